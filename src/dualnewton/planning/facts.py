"""The numbers from which costs are predicted: sizes, conditioning, and the declarations of loss and penalty."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.eligible import has_hessian, is_joint, methods_for
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.planning.working_sets import follows_penalties
from dualnewton.solvers.primal.single_precision import EXACT, mean_noise


@dataclass(frozen=True, eq=False)
class Facts:
    """A problem, and the numbers from which the cost of each method is predicted."""

    problem: Problem  # problem to solve
    costs: Costs  # predicted seconds of operations on its data
    # 1 + R/(γλn), where R is the mean of c_i‖a_i‖²: the epochs in which a dual method divides the gap by e (Theorem 5, τ =
    # 1). For a loss without γ, R is the mean of c_i φ″_i‖a_i‖² at w = 0 and its best intercept, and γ = 1.
    conditioning: float
    near: bool = False  # whether the run starts from the solution of a similar problem
    models: int = 1  # number of similar problems that are solved together

    @classmethod
    def of(cls, problem: Problem, tuning: Tuning = DEFAULT, *, near: bool = False, models: int = 1) -> Facts:
        """Measure the problem: on a sample of its rows, unless the sum of all squares is known."""
        costs = Costs.of(problem.data.profile, tuning)
        data, gamma = problem.data, problem.loss.gamma
        known = data.capabilities.random_rows and data.capabilities.whole
        if known and gamma is not None and problem.sample_weight is None:
            mean = data.norm * data.norm / costs.n
        else:
            mean, gamma = _mean_curvature(problem, evenly_spaced(costs.n, tuning.norm_sample)), gamma or 1.0
        scale = gamma * problem.lam * costs.n
        # Squares may overflow to infinity or NaN.
        worst = tuning.largest_conditioning
        conditioning = 1.0 + mean / scale if mean < worst * scale else worst
        return cls(problem, costs, conditioning, near, models)

    @cached_property
    def tuning(self) -> Tuning:
        """The tuned numbers."""
        return self.costs.tuning

    @cached_property
    def classes(self) -> int:
        """K, the number of margins per example."""
        return self.problem.columns

    @cached_property
    def has_hessian(self) -> bool:
        """Whether the penalty is quadratic, so that Newton's method needs no working sets."""
        return has_hessian(self.problem)

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """The methods among which "auto" chooses."""
        return methods_for(self.problem, self.tuning)

    @cached_property
    def difficulty(self) -> float:
        """An estimate, up to a constant, of the epochs in which a dual method divides the gap by e.

        The conditioning is the worst case: all rows have the same direction. Rows in random directions, with n < d,
        have a Gram matrix with eigenvalues in (1 ± ρ)², where ρ² = n E[cos²] over pairs of rows. Where ∇g* is not linear, steps
        are shorter, since they use a bound on g*.
        """
        worst = self.conditioning
        rho = math.sqrt(self.row_overlap) if worst > 1.0 else 1.0  # the overlap gives no fewer epochs than one
        epochs = min(worst, ((1.0 + rho) / (1.0 - rho)) ** 2) if rho < 1.0 else worst
        return epochs if self.has_hessian else self.tuning.kinked_epochs * epochs

    @cached_property
    def row_overlap(self) -> float:
        """n times the mean squared cosine between two rows, from a sample; infinite with more rows than features."""
        n = self.costs.n
        return n * mean_squared_cosine(self.problem, self.tuning) if 1 < n < self.costs.d else math.inf

    @cached_property
    def feature_overlap(self) -> float:
        """d times the mean squared cosine between two rows whose features are scaled to equal norms; infinite where unknown.

        It is about one plus the sum of the squared correlations of a feature with the others. Of sparse features a sample of the
        rows has too few entries, and on a GPU the sample would cost more than passes.
        """
        costs, able = self.costs, self.problem.data.capabilities
        if costs.sparse or costs.on_gpu or not able.random_rows:
            return math.inf
        return float(costs.d * mean_squared_cosine(self.problem, self.tuning, scaled=True))

    @cached_property
    def used_features(self) -> float:
        """The expected number of nonzero coefficients, over all classes, with a penalty that has kinks or bounds.

        It is at least a fixed share of min(n, d). Features whose gradient at w = 0 has a standard deviation above the threshold
        are included, since noise alone makes them nonzero. Without strong convexity there are at most n. Least squares with
        such a penalty has only one method, so that this pass is not made.
        """
        problem, n, d = self.problem, self.costs.n, self.costs.d * self.columns
        guess = self.tuning.used_share * min(n, d)
        threshold = float(np.mean(problem.regularizer.form.threshold))
        if threshold == 0.0 or (follows_penalties(problem, self.tuning) and not problem.regularizer.strongly_convex):
            return guess
        some = evenly_spaced(n, self.tuning.norm_sample)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            c, y = (problem.data.entries(each, some) for each in (problem.c, problem.y))
            slopes = problem.loss.derivative(first_margins(problem, some), y)
            slopes = c * np.sqrt(np.square(slopes).reshape(len(slopes), -1).mean(axis=1))
            squares = linear.squared(problem.data.rows(some))
            noise = np.sqrt(np.asarray(np.square(slopes) @ squares).ravel() / len(slopes) / n)
        by_chance = d * float(np.mean(noise > problem.lam * threshold))
        return max(guess, by_chance if problem.regularizer.strongly_convex else min(by_chance, n))

    @cached_property
    def feature_spread(self) -> float:
        """The standard deviation of ln(1 + E[a_j²]/λ) over the features, from a sample of the rows."""
        rows = self.problem.data.rows(evenly_spaced(self.costs.n, self.tuning.norm_sample))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            curvature = np.asarray(linear.squared(rows).mean(axis=0)).ravel() / self.problem.lam
        # Squares may overflow.
        return float(np.log1p(np.minimum(curvature, self.tuning.largest_conditioning)).std())

    @cached_property
    def columns(self) -> int:
        """The number of classes if the penalty has kinks or bounds, so that each class has its own coordinates; else 1."""
        return 1 if self.has_hessian else self.classes

    @cached_property
    def small(self) -> bool:
        """Whether the data are so small that NumPy is used and nothing is compiled."""
        few = not is_joint(self.problem) or self.costs.d <= self.tuning.numpy_features
        return few and is_small(self.tuning, self.costs.n, self.costs.d, self.columns)

    @cached_property
    def quadratic(self) -> bool:
        """Whether the Hessian is the same everywhere."""
        return self.problem.loss.curvature is Curvature.CONSTANT

    @cached_property
    def in_pieces(self) -> bool:
        """Whether φ″ is piecewise constant: Newton's method is exact once each row is in its final piece."""
        return self.problem.loss.curvature is Curvature.PIECEWISE

    @cached_property
    def outputs(self) -> int:
        """The number of models that share one Hessian, so that its cost does not grow with them; else the cost is per model."""
        return self.models if self.quadratic and self.problem.sample_weight is None else 1

    @cached_property
    def data_pass(self) -> float:
        """The cost of a pass: margins, losses and gradients of all columns of the model, and of all outputs."""
        return self.sketch_costs.data_pass if self.outputs == 1 else self.costs.with_columns(self.outputs).data_pass

    @cached_property
    def matrix_costs(self) -> Costs:
        """The costs of d×d matrices: in single precision, if that is expected to change the curvature by little.

        The mean entry of the diagonal is γ⁻¹ Σ c_i‖a_i‖²/d, and the ridge λn.
        """
        noise = mean_noise((self.conditioning - 1.0) * self.costs.n / self.costs.d, self.costs.d)
        return replace(self.sketch_costs, single=True) if noise <= EXACT else self.sketch_costs

    @cached_property
    def sketch_costs(self) -> Costs:
        """The costs of sketched Newton, whose passes are over all columns of the model."""
        return self.costs if self.classes == 1 else self.costs.with_columns(self.classes)

    @cached_property
    def samples(self) -> tuple[int, ...]:
        """The sizes of the samples on which the problem is solved first; none if it has too few rows for its unknowns.

        They grow while a larger sample saves more, in passes over all rows, than it costs. The first is not the smallest if a
        step on a larger one takes hardly longer, as on a GPU.
        """
        costs, tuning, able = self.costs, self.tuning, self.problem.data.capabilities
        most = min(tuning.sample_share * costs.n, able.gathered / costs.d)
        unknowns = self.classes * (costs.d + self.problem.fit_intercept)
        size = tuning.sample_rows * unknowns
        if self.near or self.quadratic or not (able.subsets and self.has_hessian) or unknowns > tuning.largest_matrix:
            return ()
        sizes = []
        while size <= most:
            sizes.append(size)
            size *= tuning.sample_growth
        if not sizes:
            return ()
        return min((self._growing(sizes[k:]) for k in range(len(sizes))), key=self.sampled_cost)

    def _growing(self, sizes: list[int]) -> tuple[int, ...]:
        """Return the first size and those after it that save more than they cost."""
        later = itertools.takewhile(lambda pair: self._grows(*pair), itertools.pairwise(sizes))
        return sizes[0], *(larger for _, larger in later)

    def _grows(self, size: int, larger: int) -> bool:
        passes = self.sampled_passes(size) - self.sampled_passes(larger)
        return passes * self.data_pass > self._sample_cost(larger, self.tuning.later_sample_steps)

    def sampled_cost(self, sizes: tuple[int, ...]) -> float:
        """Predict the cost of sketched Newton that starts on samples of these sizes."""
        tuning, (first, *later) = self.tuning, sizes
        samples = self._sample_cost(first, tuning.first_sample_steps)
        samples += sum(self._sample_cost(size, tuning.later_sample_steps) for size in later)
        return samples + (self.sampled_passes(sizes[-1]) + tuning.certificate_passes) * self.data_pass

    def _sample_cost(self, size: int, steps: float) -> float:
        """The cost of copying the rows of a sample, and of a number of Newton steps on it: a pass and a matrix each."""
        costs, K, call = self.costs, self.classes, self.tuning.rates.call
        products = costs.outer(size, size / costs.n * costs.pairs)[0] * (1 if K == 1 else K * (K - 1) / 2)
        pass_ = size / costs.n * (self.data_pass - call)
        return self.tuning.sample_copy * pass_ + steps * (
            pass_ + 2.0 * call + products + costs.factor(K * (costs.d + 1))
        )

    def sampled_passes(self, size: int) -> float:
        """Predict the passes from the solution on a sample: an evaluation, and steps whose speed is that of a sketch."""
        unknowns = self.classes * (self.costs.d + 1)
        return 1.0 + self.starting_logarithm / sketch_speed(size, unknowns, self.tuning)

    @cached_property
    def starting_logarithm(self) -> float:
        """The logarithm of the factor by which the gap decreases from w = 0 to ``predicted_gap``."""
        return math.log(self.conditioning / self.tuning.predicted_gap) + self.tuning.starting_gap

    @cached_property
    def matrix_free(self) -> bool:
        """Whether Newton's method solves by conjugate gradients, since neither n×n nor d×d matrices may be factorised."""
        return min(self.costs.n, self.costs.d) > self.tuning.largest_matrix and self.has_hessian


def _mean_curvature(problem: Problem, some: slice) -> float:
    """Return the mean of c_i‖a_i‖² over some rows, for a loss without γ of c_i φ″_i‖a_i‖²."""
    data = problem.data
    sizes = data.squared_norms(some)
    if problem.sample_weight is not None:
        sizes = data.entries(problem.c, some) * sizes
    if problem.loss.gamma is None:
        y = data.entries(problem.y, some)
        curvature = problem.loss.second_derivative(first_margins(problem, some), y)
        sizes = sizes * curvature.reshape(sizes.size, -1).max(axis=1)
    return float(sizes.mean())


def mean_squared_cosine(problem: Problem, tuning: Tuning, *, scaled: bool = False) -> float:
    """Return the mean squared cosine between two rows, from a sample; infinite where that is not known.

    It is 1/d for isotropic random rows, and larger if the rows are near a subspace of fewer dimensions. With ``scaled`` the
    features of the sample, which are dense, are first scaled to equal norms.
    """
    if not problem.data.capabilities.random_rows:
        return math.inf
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rows = problem.data.rows(evenly_spaced(problem.n, tuning.overlap_sample))
        if scaled:
            squares = np.square(rows).sum(axis=0)
            rows = rows * np.divide(1.0, np.sqrt(squares), out=np.zeros_like(squares), where=squares > 0.0)
        G = linear.gram(rows)
        norms = np.sqrt(np.einsum("ii->i", G))
        units = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0.0)
        total, m = float(np.square(units[:, None] * G * units).sum()), np.count_nonzero(norms)
    # Squares may overflow.
    return max(total - m, 0.0) / (m * (m - 1)) if m > 1 and math.isfinite(total) else math.inf


def sketch_speed(rows: float, unknowns: float, tuning: Tuning) -> float:
    """Predict the logarithm of the factor by which a step on a sketch of more rows than unknowns divides the gap.

    The eigenvalues of H_S⁻¹H lie about in (1 ± e)² for e = √(unknowns/rows), so that conjugate steps leave the fraction e of the
    error.
    """
    return 0.5 * tuning.sketch_power * math.log(rows / unknowns)


def first_margins(problem: Problem, some: slice) -> np.ndarray:
    """Return the margins of some rows at w = 0, with their best intercept if the loss has no γ."""
    c, o, y = (problem.data.entries(each, some) for each in (problem.c, problem.o, problem.y))
    if problem.loss.gamma is not None or not problem.fit_intercept or problem.columns > 1:
        return o
    return o + problem.loss.best_intercept(o, y, c if c.any() else None)


def evenly_spaced(n: int, rows: int) -> slice:
    """Return a slice of about ``rows`` of n rows, evenly spaced."""
    return slice(None, None, max(1, n // rows))
