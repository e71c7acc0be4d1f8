"""The compiled engine: SDNA and SDCA for K models over the same rows, with Numba kernels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dualnewton.kernels import gradients, separable, shrinking
from dualnewton.kernels.losses import BY_NUMBERS, compiled, inlined
from dualnewton.kernels.models import Models
from dualnewton.kernels.rows import Rows
from dualnewton.matrix import linear
from dualnewton.matrix.workers import workers
from dualnewton.objective.problem import Problem
from dualnewton.samplings import IndexBlock, Sampling
from dualnewton.solvers.dual.base import intercept_weight
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.dual.pipeline import Pipeline, useful_threads
from dualnewton.solvers.dual.reference import eso_vectors
from dualnewton.validation import frozen

INACTIVE = 0.01
"""Threshold of shrinking: an example whose dual residual c (α + φ′)² is at most this fraction of the mean residual becomes
inactive, and is skipped until the next full sweep."""

LOOSEST, TIGHTEST = 0.03, 1e-13
"""Largest and smallest absolute tolerance of the margins in the block subproblems; it follows the square root of the gap."""

FLOAT32_RATIO = 1e4
"""Largest ratio of the largest eigenvalue of a Gram block to γλn at which float32 rows are summed in float32. The relative error
of about 1e-7 is then at most 1e-3 of the curvature that γ adds, so that every step still increases the dual."""


COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""What Numba adds to its messages where a package for coloured terminals is installed."""

MOVING = ("w", "w_bar", "alpha", "b", "tolerance", "inactive_below", "active")
"""The parts of :class:`Models` that a step changes; the other parts are computed from the problems, or are zero between steps."""


class CompiledEngine(Engine):
    """K models that share X, the loss, the regulariser and whether there is an intercept."""

    certificates_are_cheap = False

    def __init__(
        self,
        problems: Sequence[Problem],  # problems, which may differ in y, λ, weights and offsets
        sampling: Sampling,  # Ŝ
        alphas: Sequence[np.ndarray],  # starting points, one per model
        *,
        # Whether a round solves one scalar subproblem per example (SDCA) or one joint subproblem (SDNA).
        separable_rounds: bool,
        n_threads: int = 1,  # number of threads that compute Gram blocks in advance; it does not change the result
        # Whether a smooth loss is swept by the kernel that shrinks, as piecewise linear ones are.
        shrinks: bool = False,
        narrow: bool = False,  # whether the rounds read a copy of dense rows in float32, half as many bytes
    ) -> None:
        self.problems = list(problems)
        stored = problems[0].data.stored
        self.rows = Rows.of(linear.in_single(stored) if narrow else stored)
        # A piecewise linear loss enters by its slopes and kinks, any other by its compiled functions.
        pieces: list[Any] = [problem.pieces for problem in problems]
        self.by_numbers = all(numbers is not None for numbers in pieces)
        self.one_at_a_time = sampling.max_size == 1
        as_argument = inlined if self.one_at_a_time else compiled
        self.loss = BY_NUMBERS if self.by_numbers else as_argument(problems[0].loss)
        # The reference keeps the compiled function alive while the kernels use its address.
        g = problems[0].regularizer
        self.gradient = gradients.compiled_gradient(g) if g.form.is_general else None
        # Computed only if there is an intercept: it needs a pass over the data.
        self.rho = intercept_weight(problems[0]) if problems[0].fit_intercept else 0.0
        labels: Sequence[Any] = pieces if self.by_numbers else [problem.y for problem in problems]
        self.models = self._models(alphas, frozen(np.stack(labels)))
        self.limit = self._limit()
        self.separable_rounds = separable_rounds or self.one_at_a_time
        self.shrinks = (self.by_numbers or shrinks) and self.one_at_a_time
        for k, alpha in enumerate(alphas):
            self.restart(k, alpha)
        if self.separable_rounds:
            self.curvature = np.stack(self._curvatures(sampling))
            kernel = separable.singles if self.one_at_a_time else separable.minibatches
            self._sweep: Any = kernel
            if self.shrinks:  # its steps need no other kernel: compiling that of sweeps would take longer
                nothing = shrinking.Visits.of_all(0, 0.0), _NO_DRAWS, 0.0
                shrinking.shrinking.prepare(*self.rows, self.curvature, self.models, 0, self.loss.argument, *nothing)
            else:
                kernel.prepare(*self._separable_arguments(_EMPTY))
        else:
            useful = useful_threads(sampling.max_size, len(problems))
            self._sweep = Pipeline(self.rows, problems[0].d, min(n_threads, useful))
            self._sweep.prepare(_EMPTY, self.limit, self.models, self.loss.argument)

    def _models(self, alphas: Sequence[np.ndarray], labels: np.ndarray) -> Models:
        problems = self.problems
        K, n, d = len(problems), problems[0].n, problems[0].d
        scale = np.array([1.0 / (problem.lam * n) for problem in problems])
        form = problems[0].regularizer.form
        limits = np.zeros((4, 0)) if form.is_plain or form.is_general else form.limits(d)
        w = np.empty((K, d))
        return Models(
            w=w,
            w_bar=w if form.is_plain else np.empty((K, d)),
            alpha=np.stack(alphas),
            y=labels,
            c=_rows_or_one([problem.sample_weight for problem in problems], 1.0, n),
            o=_rows_or_one([problem.offset for problem in problems], 0.0, n),
            b=np.zeros(K),
            b_curvature=self.rho * scale,
            scale=scale,
            limits=frozen(limits),
            gradient=gradients.NONE if self.gradient is None else self.gradient.address,
            tolerance=np.full(K, LOOSEST),
            residual=np.zeros(K),
            inactive_below=np.zeros(K),
            active=np.ones((K, n), dtype=np.bool_),
        )

    def _limit(self) -> float:
        """Return the largest τ max‖a_i‖² for Gram blocks in float32: times c/(γλn) it is at most FLOAT32_RATIO.

        Without γ it is zero, and all sums are in float64.
        """
        gamma = self.problems[0].loss.gamma
        if self.by_numbers or gamma is None:
            return 0.0
        largest = float((self.models.c.max(axis=1) * self.models.scale).max())
        return FLOAT32_RATIO * gamma / largest if largest > 0.0 else 0.0

    def _curvatures(self, sampling: Sampling) -> list[np.ndarray]:
        """Return v of each model: c_i (‖a_i‖² + ρ) for one example at a time."""
        if self.one_at_a_time:
            # In a third of the time of ``Problem.norms``, which copies sparse rows.
            norms = np.empty(self.problems[0].n)
            separable.squares.prepare(*self.rows, norms)
            separable.squares(*self.rows, norms)
            norms += self.rho
            return [problem.c * norms for problem in self.problems]
        return eso_vectors(self.problems, sampling, [self.rho] * len(self.problems))

    def _separable_arguments(self, block: IndexBlock) -> tuple[Any, ...]:
        sets = (self._shares(), np.zeros(1, dtype=np.int64)) if self.one_at_a_time else (block.starts,)
        return (*self.rows, self.curvature, block.indices, *sets, self.models, self.loss.argument)

    def _shares(self) -> np.ndarray:
        """Return the first models of the shares of threads, followed by K."""
        K = len(self.problems)
        return _ends_of(K, min(K, 1 + workers().helpers))

    def run(self, block: IndexBlock, deadline: float = math.inf) -> None:  # noqa: ARG002 (compiled blocks take microseconds)
        if not len(block):
            return
        if self.separable_rounds:
            arguments = self._separable_arguments(block)
            if self.one_at_a_time and workers().helpers:
                workers().run(self._sweep, len(self.problems), *arguments)
                return
            if self.shrinks:
                self._sweep.prepare(*arguments)
            self._sweep(*arguments)
        else:
            self._sweep.run(block, self.limit, self.models, self.loss.argument)

    def visits(self, k: int) -> shrinking.Visits:
        models = self.models
        mass = float((models.c[k] * models.alpha[k]).sum()) if models.b_curvature[k] > 0.0 else 0.0
        return shrinking.Visits.of_all(self.problems[k].n, mass)

    def shrink(self, k: int, visits: shrinking.Visits, draws: np.ndarray, fraction: float) -> int:
        given = visits, draws, fraction
        return int(shrinking.shrinking(*self.rows, self.curvature, self.models, k, self.loss.argument, *given))

    def dual(self, k: int) -> float:
        """Return D of the present dual point, as if an intercept were balanced."""
        problem = self.problems[k]
        losses = problem.loss.conjugates(self.alpha(k), problem.y, problem.sample_weight)
        if problem.offset is not None:
            losses += float(problem.weighted(self.alpha(k)) @ problem.offset)
        return -losses / problem.n - problem.lam * problem.g.conjugate(self.models.w_bar[k])

    def largest_dual(self, k: int) -> float:
        """Return an upper bound on D of model k: P at w = 0; infinite with offsets, for which it is not known."""
        problem = self.problems[k]
        return float(problem.label_sums.at_zero) / problem.n if problem.offset is None else math.inf

    def estimated(self, k: int, examples: int) -> tuple[float, float]:
        problem = self.problems[k]
        some = slice(None, None, problem.n // examples)
        (w, b, _), alpha, vectors = self.model(k), self.alpha(k)[some], problem.row_vectors.part(some)
        z = vectors.shifted(problem.data.rows(some) @ w + b)
        losses = problem.loss.value(z, vectors.y) + alpha * z
        own = float(losses.sum() if vectors.c is None else vectors.c @ losses)
        conjugates = problem.loss.conjugates(alpha, vectors.y, vectors.c)
        offsets = 0.0 if vectors.o is None else float(vectors.weighted(alpha) @ vectors.o)
        dual = -(conjugates + offsets) / len(alpha) - problem.lam * problem.g.conjugate(self.models.w_bar[k])
        return (own + conjugates) / len(alpha), dual

    def end_epoch(self) -> None:
        # Move the centre of the proximal term to the intercept (see Solver in solvers/dual/base.py).
        models = self.models
        for k in range(len(self.problems)) if self.rho > 0.0 else ():
            models.b[k] += models.b_curvature[k] * float((models.c[k] * models.alpha[k]).sum())

    def restart(self, k: int, alpha: np.ndarray) -> None:
        problem, models = self.problems[k], self.models
        models.alpha[k] = alpha
        models.w_bar[k] = problem.alpha_bar(models.alpha[k]) if alpha.any() else 0.0
        models.w[k] = problem.regularizer.grad_conjugate(models.w_bar[k])
        if problem.fit_intercept:
            models.b[k] = problem.best_intercept(models.w[k])

    def alpha(self, k: int) -> np.ndarray:
        return self.models.alpha[k]

    def active(self) -> np.ndarray:
        """Return the examples that are active for any of the models."""
        active = self.models.active
        return np.nonzero(active[0] if len(active) == 1 else active.any(axis=0))[0]

    def residual(self, k: int) -> float:
        value = float(self.models.residual[k]) / self.problems[k].n
        self.models.residual[k] = 0.0
        return value

    def correct(self, k: int, w: np.ndarray) -> None:
        if self.models.w is not self.models.w_bar:
            self.models.w_bar[k] = self.problems[k].alpha_bar(self.models.alpha[k])
        self.models.w[k] = w

    def adapt(self, k: int, gap: float, residual: float) -> None:
        # An error δ in a margin changes the objective by φ″δ²/2, so that δ² is kept well below the expected gap.
        self.models.tolerance[k] = min(LOOSEST, max(TIGHTEST, 0.3 * np.sqrt(max(gap, 0.0))))
        # The residual of a piecewise linear loss is exactly zero for most examples that are at their bounds.
        self.models.inactive_below[k] = 0.0 if self.by_numbers else INACTIVE * residual

    def move(
        self, k: int, S: np.ndarray, rows: linear.Matrix, beta: np.ndarray, intercept: float | None = None
    ) -> None:
        models = self.models
        change = models.c[k, S if models.c.shape[1] > 1 else 0] * (beta - models.alpha[k, S])
        models.alpha[k, S] = beta
        models.w_bar[k] += linear.transposed(rows) @ (models.scale[k] * change)
        models.w[k] = self.problems[k].regularizer.grad_conjugate(models.w_bar[k])
        b = models.b[k] + models.b_curvature[k] * float(change.sum()) if intercept is None else intercept
        models.b[k] = b

    def model(self, k: int) -> tuple[np.ndarray, float, float]:
        return self.models.w[k], float(self.models.b[k]), float(self.models.b_curvature[k])

    def keep(self, wanted: Sequence[int]) -> None:
        wanted = list(wanted)
        self.problems = [self.problems[k] for k in wanted]
        shared = self.models.w is self.models.w_bar
        parts = {
            name: value if name in ("limits", "gradient") else np.ascontiguousarray(value[wanted])
            for name, value in self.models._asdict().items()
        }
        for name in ("y", "c", "o"):
            parts[name] = frozen(parts[name])
        if shared:
            parts["w_bar"] = parts["w"]
        self.models = Models(**parts)
        if self.separable_rounds:
            self.curvature = np.ascontiguousarray(self.curvature[wanted])

    def state(self) -> dict[str, Any]:
        # The limit is computed from all models at the start; some of these may have ended.
        return {"limit": self.limit} | {name: getattr(self.models, name).copy() for name in MOVING}

    def restore(self, state: dict[str, Any]) -> None:
        self.limit = state["limit"]
        for name in MOVING:
            getattr(self.models, name)[...] = state[name]


_EMPTY = IndexBlock(np.empty(0, dtype=np.int64), np.zeros(1, dtype=np.int64))
"""An index block without sets, from whose types the kernels are compiled."""

_NO_DRAWS = np.empty(0, dtype=np.uint32)
"""No random numbers, likewise."""


@lru_cache(maxsize=64)
def _ends_of(models: int, shares: int) -> np.ndarray:
    """Return the first models of equal shares, followed by their number; each sweep asks for them."""
    return np.linspace(0, models, shares + 1).astype(np.intp)


def _rows_or_one(vectors: Sequence[np.ndarray | None], default: float, n: int) -> np.ndarray:
    """Stack one vector per model, or one default number per model if no model has a vector."""
    if all(vector is None for vector in vectors):
        return frozen(np.full((len(vectors), 1), default))
    return frozen(np.stack([np.full(n, default) if vector is None else vector for vector in vectors]))


def why_not(problem: Problem) -> str:
    """Return why the kernels cannot solve a problem, or an empty string if they can."""
    parts: list[tuple[Any, Callable[[Any], Any]]] = []
    if problem.pieces is None:
        parts.append((problem.loss, inlined))
    if problem.regularizer.form.is_general:
        parts.append((problem.regularizer, gradients.compiled_gradient))
    for part, compile_it in parts:
        try:
            compile_it(part)
        except Exception as error:  # Numba raises many types of exceptions for code that it cannot compile
            return f"since {type(part).__name__} cannot be compiled ({_first_reason(error)})"
    return ""


def _first_reason(error: Exception) -> str:
    """Return the first informative line of an error message: Numba's messages begin with the name of a compiler pass."""
    lines = [line.strip() for line in COLOURS.sub("", str(error)).splitlines()]
    informative = [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    return informative[0] if informative else type(error).__name__
