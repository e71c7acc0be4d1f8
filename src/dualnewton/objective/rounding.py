"""Bounds on what floating-point arithmetic has added to P − D: the proof that a certificate covers its own rounding errors.

P and D are sums of products, losses and conjugates, computed in float64. With u = 2⁻⁵³ and γ_m = mu/(1 − mu), a sum of m products
has an error of at most γ_m times the sum of their absolute values, in any order of summation, with or without fused operations
(Higham, Accuracy and Stability of Numerical Algorithms, Section 3.1). The absolute values are bounded by norms, of which only
those of the features, N_j = ‖A_j‖, cost a pass over the data, once. With z the margins and r the errors of ᾱ this gives

    ‖e‖ ≤ γ_{d+3} (Σ_j |w_j| N_j + |b|√n + ‖o‖)         for the errors e of the margins
    r_j ≤ γ_{m+3} ‖cα‖ N_j / (λn)                       for those of ᾱ

where m ≤ n bounds the additions through which a row enters ᾱ: sums over many rows are added part by part (``Data.additions``).
ᾱ of a point that was balanced by a step t along a direction is the difference of two sums, whose terms have three times the
size of the result's if t ≤ ½: γ is tripled where m < n.

- A loss bounds the errors of the two sums over the examples: by ``Loss.value_change`` for margins with errors e, and by ``ULPS``
  times u times the terms of its formulas for their evaluation (``losses/rounding.py``).
- For a strongly convex g, g* is 1-smooth: g*(ᾱ + r) − g*(ᾱ) ≤ ⟨|∇g*(ᾱ)|, r⟩ + ½‖r‖². ∇g*(ᾱ) is near w, because the gap is at
  least (λ/2)‖w − ∇g*(ᾱ)‖².
- For the Lasso, ᾱ may lie outside of the domain of g* by r. Then α is divided by 1 + max_j r_j, and the concave D falls by at
  most that fraction of D(α) − D(0).
- With an intercept, Σ c_i α_i need not be exactly zero. The entries of one sign are scaled down until it is, by a factor 1 − τ;
  the domain of φ* is convex and contains 0. Losses of several columns have ways of their own (``Loss.balancing_cost``).

All of this holds for data in float32 as well, which are read as they are and multiplied in float64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.losses.rounding import DOUBLE, RoundingErrors, Roundoff, Sizes
from dualnewton.objective import row_sums
from dualnewton.objective.alike import like
from dualnewton.objective.groups import Group
from dualnewton.objective.row_sums import DualSizes, dual_sizes
from dualnewton.regularizers.base import largest
from dualnewton.row_arrays import SUMMED, additions, on_host
from dualnewton.validation import frozen

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem
    from dualnewton.regularizers import Regularizer

FLOAT64 = Roundoff()

FAR = 2.0**60
"""Size of the errors at which a gauge is evaluated, since ``reach`` is 1 for all points inside the domain."""

OF_SIZES = ("value_terms", "value_change", "conjugate_terms", "domain_distance", "balancing_cost")
"""Functions of a loss that, unless a loss overrides them, bound its errors by sums over the examples, without single labels."""


def rounding_bound(
    problem: Problem,
    w: np.ndarray,
    b: Any,
    alpha: Any,
    primal: float,
    dual: float,
    *,
    roundoff: Roundoff = FLOAT64,
    conjugates: float | None = None,
    sizes: DualSizes | None = None,
    enough: float = -math.inf,
) -> float | None:
    """Return R such that P(w, b) − P* ≤ primal − dual + R in exact arithmetic; None if no bound is known.

    ``primal`` and ``dual`` are P(w, b) and D(α) as computed from the data in the arithmetic ``roundoff``. If ``conjugates``,
    Σ c_i |φ*(−α_i)|, is not given, it is bounded by D and the losses at z = 0; ``sizes`` are the sums over the dual point, if
    they are known. A bound up to ``enough`` is returned without the norms of the features, from the norm of X alone.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        sizes = sizes or dual_sizes(problem.loss, alpha, problem.row_vectors, masses=problem.fit_intercept)
        return _bound(problem, (w, b, alpha), (primal, dual), sizes, enough, roundoff, conjugates)


def _bound(
    problem: Problem,
    point: tuple[np.ndarray, Any, Any],
    found: tuple[float, float],
    sizes: DualSizes,
    enough: float,
    roundoff: Roundoff = FLOAT64,
    conjugates: float | None = None,
    penalty: float | None = None,
) -> float | None:
    """Return the bound of :func:`rounding_bound`, given λ g(w) if it is known.

    The caller has switched off NumPy's warnings, which takes a microsecond.
    """
    values = float(found[0]), float(found[1])  # arithmetic of Python's floats takes a third of the time of NumPy's
    if not (math.isfinite(values[0]) and math.isfinite(values[1])):
        return None
    if enough > 0.0:
        bound = _Analysis.of(problem, *point, roundoff, sizes, penalty=penalty).bound(*values, conjugates)
        if bound is None or bound <= enough:
            return bound
    analysis = _Analysis.of(problem, *point, roundoff, sizes, problem.data.feature_norms)
    bound = analysis.bound(*values, conjugates)
    if conjugates is None and bound is not None and 0.0 < enough < bound:
        bound = min(bound, analysis.bound(*values, analysis.conjugates(*values)) or math.inf)
    return bound if bound is None or bound < math.inf else math.inf  # also where it is not a number


def rounding_bounds(
    groups: Sequence[Group],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    found: Sequence[Any],
    tol: float,
) -> list[float | None]:
    """Return R of each problem, given the pairs of P and the dual bound that :func:`bounds.primal_bounds` has found.

    It need not be sharp where gap + R ≤ tol|P|. Called in a run, whose arithmetic gives no warnings.
    """
    if len(models) == 1:
        return _bounds_of_each(groups[0].problems, models, intercepts, found, tol)
    errors = list[float | None]()
    for group in groups:
        own = slice(len(errors), len(errors) + group.M)
        points = models[own], intercepts[own], found[own]
        if group.M > 1:
            sums = row_sums.label_sums_of_each(group.first.loss, group.rows.y, group.rows.c)
            for problem, labels in zip(group.problems, sums, strict=True):
                vars(problem).setdefault("label_sums", labels)
            if (shared := _bound_of_all(group, *points, tol)) is not None:
                errors += [shared] * group.M
                continue
        errors += _bounds_of_each(group.problems, *points, tol)
    return errors


def _bounds_of_each(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    found: Sequence[Any],
    tol: float,
) -> list[float | None]:
    """Return R of each problem by a computation of its own."""
    errors = []
    for problem, w, b, (primal, bound, penalty) in zip(problems, models, intercepts, found, strict=True):
        dual, alpha, _, sizes = bound
        sizes = sizes or dual_sizes(problem.loss, alpha, problem.row_vectors, masses=problem.fit_intercept)
        enough = allowed_rounding(primal, dual, tol)
        errors.append(_bound(problem, (w, b, alpha), (primal, dual), sizes, enough, penalty=penalty))
    return errors


def _bound_of_all(
    group: Group, models: Sequence[np.ndarray], intercepts: Sequence[Any], found: Sequence[Any], tol: float
) -> float | None:
    """Return one R for all problems of a group; None if it is too large for one of them, or none is known.

    R grows with the norms of w, b, α and the labels, with g(w), |D|, P − λg(w) and P − D, and with the imbalance as a fraction of
    Σ c_i |α_i|, for a loss that bounds its errors by these alone. It is computed once, from the largest value of each among the
    problems, which must have one λ.
    """
    first, (primals, bounds, _) = group.first, zip(*found, strict=True)
    kind: Any = type(first.loss)
    alike = len({problem.lam for problem in group.problems}) == 1 and first.regularizer.form.is_plain
    if not (alike and _is_bounded_by_sizes(kind) and None not in [bound.sizes for bound in bounds]):
        return None
    values = [(primal, bound.value) for primal, bound in zip(primals, bounds, strict=True)]
    enough = min([allowed_rounding(*each, tol) for each in values])
    largest = max([max(map(abs, each)) for each in values])
    if not (enough > 0.0 and math.isfinite(largest)):
        return None
    squares, weighted, *columns = zip(*[bound.sizes for bound in bounds], strict=True)
    sizes = DualSizes(max(squares), max(weighted))
    if first.fit_intercept:
        share = max([abs(mass) / size if size > 0.0 else 0.0 for mass, size in zip(*columns, strict=True)])
        sizes = DualSizes(*sizes[:2], share * max(columns[1]), max(columns[1]))
    W, problem = np.array(models), like(first)
    longest = W[np.argmax(np.einsum("kj,kj->k", W, W))]
    labels = zip(*[each.label_sums for each in group.problems], strict=True)
    vars(problem)["label_sums"] = row_sums.LabelSums(*map(max, labels))
    analysis = _Analysis.of(problem, longest, max(map(abs, intercepts)), bounds[0].alpha, FLOAT64, sizes)
    # The losses are P − λg(w), where the largest λg(w) is subtracted: it is added before.
    dual = largest + analysis.penalty
    error = analysis.bound(dual + max(0.0, *[primal - value for primal, value in values]), dual, None)
    return error if error is not None and error <= enough else None


@lru_cache
def _is_bounded_by_sizes(loss: type[RoundingErrors]) -> bool:
    """Whether losses of this class bound their errors by sums over the examples alone."""
    return all(getattr(loss, name) is getattr(RoundingErrors, name) for name in OF_SIZES)


def allowed_rounding(primal: float, dual: float, tol: float) -> float:
    """Return the rounding errors with which the gap is still at most tol|P|."""
    return tol * abs(primal) - max(primal - dual, 0.0)


@dataclass(eq=False)  # frozen ones take longer to make
class _Analysis:
    """The norms from which the bounds are computed. All are numbers, whatever K is: this is done for each small fit."""

    # As in :func:`rounding_bound`.
    problem: Problem
    alpha: Any
    roundoff: Roundoff
    # γ of sums over the rows and of products with rows, each with some further operations, and of sums by parts.
    sums: float
    products: float
    in_parts: float
    penalty: float  # λ g(w)
    features: np.ndarray | None  # N; if None, each N_j is bounded by their norm
    along: float  # (Σ_k (Σ_j |w_kj| N_j)²)^½, or ‖W‖ (Σ_j N_j²)^½, which is at least as large
    norm: float  # (Σ_j N_j²)^½
    margins: float  # bound on ‖z‖
    sizes: DualSizes  # sums over the dual point
    mass: float  # bound on ‖cα‖

    @classmethod
    def of(
        cls,
        problem: Problem,
        w: np.ndarray,
        b: Any,
        alpha: Any,
        roundoff: Roundoff,
        sizes: DualSizes,
        features: np.ndarray | None = None,
        penalty: float | None = None,
    ) -> _Analysis:
        n = problem.n
        sums, products = roundoff.gamma(n + 8), roundoff.gamma(problem.d + 8)
        in_parts = sums if n < 2 * SUMMED else sums_in_parts(problem, alpha, roundoff)
        safety = 1.0 + 2.0 * (sums + products)  # the norms have rounding errors, too
        shift = b if problem.columns == 1 else math.sqrt(b.dot(b))
        square, plain = 0.0, False
        if features is None:
            norm, square = problem.data.norm * safety, float(np.vdot(w, w))
            along: Any = math.sqrt(square) * norm
            plain = problem.regularizer.form.is_plain
        else:
            norm, along = math.sqrt(features.dot(features)) * safety, np.abs(on_host(w)) @ features
            along = float(along if problem.columns == 1 else math.sqrt(along.dot(along))) * safety
        margins = along + math.sqrt(n) * abs(float(shift))
        if problem.offset is not None:
            margins += math.sqrt(problem.label_sums.offsets) * safety
        if plain or penalty is None:
            penalty = problem.lam * (0.5 * square if plain else float(problem.g.value(w)))
        mass = math.sqrt(sizes.squares) * safety
        # By position: names take twice as long.
        return cls(
            problem,
            alpha,
            roundoff,
            sums,
            products,
            in_parts,
            penalty,
            features,
            along,
            norm,
            margins * safety,
            sizes,
            mass,
        )

    def bound(self, primal: float, dual: float, conjugates: float | None) -> float | None:
        """Return R = A + B√(gap + R), where B is due to the distance of w from ∇g*(ᾱ): (λ/2)distance² ≤ gap + R."""
        problem, roundoff = self.problem, self.roundoff
        n, lam, penalty = problem.n, problem.lam, self.penalty
        sizes = self._sizes(primal, dual, conjugates)
        if (change := problem.loss.value_change(sizes, problem.y)) is None:
            return None
        growth, moves = self._feasibility(sizes)
        if problem.offset is not None:
            growth += 1.01 * moves * math.sqrt(problem.label_sums.offsets)  # Σ c_i o_i α_i changes by at most this
        moves = self.in_parts * self.mass + moves  # (Σ_k r_kj²)^½ ≤ moves N_j/(λn)
        # The errors of Σ c_i φ(z_i) at the computed margins, Σ c_i φ*(−α_i) and Σ c_i o_i α_i; ‖o‖ is part of the margins' bound.
        error = (roundoff.terms + self.sums) * (problem.loss.value_terms(sizes) + problem.loss.conjugate_terms(sizes))
        linear = sizes.margins * sizes.dual if problem.offset is not None else 0.0
        error += (DOUBLE + problem.columns * self.sums) * linear
        known = (change + error + growth) / n
        # A regulariser that is given by its functions only is evaluated in float64; values of others are rounded to it.
        own, products = roundoff, self.products
        if problem.regularizer.form.is_general:
            own, products = FLOAT64, FLOAT64.gamma(problem.d + 8)
        penalty_error = own.terms + products + (problem.columns + 4) * DOUBLE
        known += penalty_error * penalty + 8.0 * DOUBLE * (abs(primal) + abs(dual))
        if not problem.regularizer.strongly_convex:
            size, features = moves / (lam * n), self.features
            if features is None:
                outside = (
                    size * self.norm / (FAR * float(problem.regularizer.reach(_far(problem.d))))
                )  # of equal errors
            else:
                outside = gauge(problem.regularizer, size * features)
            return known + (outside + roundoff.feasible) * max(dual + sizes.below / n, 0.0)
        size = moves * self.norm / (lam * n)
        known += moves * self.along / n + 0.5 * lam * size * size
        # The terms of g* are at most those of ⟨ᾱ, ∇g*(ᾱ)⟩ = g* + g(∇g*(ᾱ)), where g(∇g*(ᾱ)) ≤ g(w) + ‖ᾱ‖·distance, since ∇g*(ᾱ)
        # minimises g(w) − ⟨ᾱ, w⟩, and λ‖ᾱ‖ ≤ ‖cα‖ ‖N‖/n. λg* = −D − (1/n) Σ c_i (φ* + o_i α_i) ≤ gap + λ⟨ᾱ, w⟩ − λg(w).
        gap = max(primal - dual, 0.0)
        conjugate = min(abs(dual) + (sizes.conjugate + linear) / n, gap + known + self.mass * self.along / n + penalty)
        known += 2.0 * penalty_error * (conjugate + penalty)
        largest = self.mass * self.norm / n
        slope = math.sqrt(2.0 / lam) * (lam * size + 2.0 * penalty_error * largest)
        return known + 0.5 * slope * (slope + math.sqrt(slope * slope + 4.0 * (gap + known)))

    def conjugates(self, primal: float, dual: float) -> float:
        """Return a bound on Σ c_i |φ*(−α_i)|, computed from α.

        The losses at z = 0 give one without this sum, which is far too large where P is far below them. The errors of the value
        are those of the sum of φ*, by the bound that it replaces.
        """
        problem, sizes = self.problem, self._sizes(primal, dual, None)
        c, values = problem.sample_weight, np.abs(problem.loss.conjugate(-self.alpha, problem.y))
        total = float(values.sum() if c is None else (c * np.where(c > 0.0, values, 0.0)).sum())
        return 1.01 * (total + (self.roundoff.terms + self.sums) * problem.loss.conjugate_terms(sizes))

    def _sizes(self, primal: float, bound: float, conjugates: float | None) -> Sizes:
        """Return the sums over the examples that a loss needs; ``bound`` is D(α)."""
        problem, roundoff, alpha = self.problem, self.roundoff, self.sizes
        weight, squared_weight, heaviest, labels, own, at_zero, below, _ = problem.label_sums
        n, root, terms = problem.n, math.sqrt(heaviest), roundoff.terms
        labels, at_zero, dual = math.sqrt(labels), 1.01 * at_zero, 1.01 * math.sqrt(alpha.weighted)
        relative = self.products + terms
        # φ*(u) ≥ −φ(0), so that Σ c_i |φ*_i| ≤ Σ c_i φ*_i + 2 Σ c_i |φ_i(0)|. Σ c_i (φ*_i + o_i α_i) = −n(D + λg*), and g* is at
        # least −min g ≥ −g(w).
        margins = root * self.margins
        if conjugates is None:
            offsets = 0.0 if problem.offset is None else margins * dual
            conjugates = 1.01 * n * (abs(bound) + self.penalty) + offsets + 2.0 * at_zero
        value, change = n * (primal - self.penalty), relative * margins + terms * labels
        largest_change = relative * self.margins + terms * math.sqrt(own)
        away = problem.loss.domain_distance(self.alpha, problem.y, roundoff)
        sizes = value, conjugates, below, at_zero, weight, margins, labels, dual, change, largest_change, away
        return Sizes(*sizes, squared_weight, alpha.sums, alpha.absolute, self.mass)

    def into_domain(self, sizes: Sizes) -> tuple[float, float]:
        """Bound what it costs to move each −α_i into the domain of φ*: the growth of Σ c_i φ*(−α_i), and the move of cα.

        It moves by at most ζ; φ* of each column then grows by at most ζ(1 + log 1/ζ), as p log p does, and ‖cζ_k‖² ≤ ζ² Σ c_i².
        """
        K, away = self.problem.columns, sizes.away
        if away == 0.0:
            return 0.0, 0.0
        return K * sizes.weight * away * (1.0 - math.log(away)), 1.01 * math.sqrt(K * sizes.squared_weight) * away

    def _feasibility(self, sizes: Sizes) -> tuple[float, float]:
        """Bound what exact feasibility costs: the growth of Σ c_i φ*(−α_i), and the move of cα in the Euclidean norm.

        Each −α_i is moved into the domain of φ*. With an intercept the sums of the columns are then made zero.
        """
        problem, (growth, moves) = self.problem, self.into_domain(sizes)
        if not problem.fit_intercept:
            return growth, moves
        further = problem.loss.balancing_cost(sizes, problem.y, problem.sample_weight, error=self.in_parts)
        return growth + further[0], moves + further[1]


def sums_in_parts(problem: Problem, alpha: Any, roundoff: Roundoff) -> float:
    """Return γ of ᾱ and of Σ c_i α_i, whose terms are added part by part in float64; see above for the factor."""
    plain = roundoff.gamma(problem.n + 8)
    if not roundoff.in_parts:
        return plain
    return min(plain, 3.0 * roundoff.gamma(max(problem.data.additions, additions(alpha)) + 8))


@lru_cache
def _far(count: int) -> np.ndarray:
    return frozen(np.full(count, FAR))


def gauge(regularizer: Regularizer, r: np.ndarray) -> float:
    """Return a t for which errors of ᾱ divided by t lie in the domain of g*, if (Σ_k r_kj²)^½ ≤ r_j for each feature.

    The domain is that of one column for each column, or one of the norms of the features' coefficients: a W of one row with these
    numbers, or with further rows of zeros, has the largest gauge.
    """
    most = largest(r)
    if most == 0.0 or not most < math.inf:
        return most
    return most / (FAR * float(regularizer.reach(r * (FAR / most))))
