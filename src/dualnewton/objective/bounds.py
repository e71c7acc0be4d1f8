"""Dual bounds from one pass: P, the dual point α_i = −φ′(z_i) and ᾱ are sums over rows, so that one pass gives them all.

α is made feasible from these sums and from α itself, without reading X again:

1. *Balance.* With an intercept, Σ c_i α_i = 0 is required. α − td is balanced for t = Σ c_i α_i / Σ c_i d_i, where d_i is
   φ″(z_i), or less next to an end of the domain (``Loss.balancing_direction``); the pass sums c_i d_i a_i as well as c_i α_i a_i.
2. *Domain of the conjugate of g.* For penalties that are not strongly convex (the Lasso), α is scaled by a factor, and ᾱ with
   it. The pass sums ᾱ a second time from α/3: the difference between the two sums measures the rounding errors.
3. *Far from the optimum* the best multiple sα is searched; φ*(−sα_i) needs α alone, and ᾱ is multiplied by s.

Another intercept changes every α_i. It is searched, on the margins of the pass, if the balancing above would change the gap
noticeably, or if the loss has no balancing direction (softmax) and the imbalance is large; ᾱ of the new point takes a second
pass. A small imbalance of softmax is removed from α (``Loss.balanced``), which takes a second pass as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.losses.base import BALANCING, Curvature
from dualnewton.matrix import BlockLosses, RowForm, RowVectors
from dualnewton.objective import row_sums
from dualnewton.row_arrays import column_sums, on_host, some_columns

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

BALANCED = 1e-13
"""Σ c_i α_i counts as zero up to this fraction of Σ c_i d_i and of Σ c_i |α_i|."""

SLACK, ROUNDING = 0.2, 1e-15
"""The intercept is searched if balancing changes ᾱ by more than this fraction of its distance from the optimum, which the gap
measures, and D by more than this fraction of |P|, for rounding."""

SLIGHT, TWICE = 1e-3, 2.0
"""Two limits up to which a dual point without a balancing direction (softmax) is balanced without another intercept: the
imbalance Σ_k |Σ_i c_i α_ik| as a fraction of Σ c_i, and the gap as a multiple of the gap without an imbalance."""

TINY = float(np.finfo(float).tiny)
"""Lower limit for a sum of curvatures that is used as a divisor."""

FAR = 1e-2
"""Relative gap above which the best multiple sα of the dual point is searched: far from the optimum −φ′ overshoots."""


class Bound(NamedTuple):
    """A feasible dual point with ᾱ and D(α), a lower bound of the optimal value; −∞ if rounding has made it infeasible."""

    value: float
    alpha: np.ndarray
    bar: np.ndarray


@dataclass(frozen=True, eq=False)
class DualSums:
    """A dual point α and its sums over rows.

    Attributes
    ----------
    problem : Problem
        The problem.
    alpha : array of shape (n,) or (n, K)
        α.
    products : array of shape (M, d)
        Σ c_i r_ik a_iᵀ for the M columns r of :func:`sum_columns`.
    sums : array of shape (M,)
        Σ c_i r_ik.
    direction : array of the shape of α, optional
        The balancing direction, by which α is corrected; the columns contain it as well.
    """

    problem: Problem
    alpha: np.ndarray
    products: np.ndarray
    sums: np.ndarray
    direction: np.ndarray | None = None

    def _bars(self, column: int) -> np.ndarray:
        """Return (1/λn) Σ c_i r_ik a_i for K columns, starting at the given one, in the shape of w."""
        problem, K = self.problem, self.problem.columns
        return self.products[column if K == 1 else slice(column, column + K)] / (problem.lam * problem.n)

    @cached_property
    def bar(self) -> np.ndarray:
        """ᾱ."""
        return self._bars(0)

    @property
    def mass(self) -> np.ndarray:
        """Σ c_i α_i."""
        return self.sums[: self.problem.columns]

    @cached_property
    def step(self) -> Any:
        """t, the multiples of the direction that balance each column of α: a number if there is one column, or no direction."""
        if self.direction is None:
            return 0.0
        K = self.problem.columns
        return self._step(0) if K == 1 else np.array([self._step(k) for k in range(K)])

    def _step(self, k: int) -> float:
        """Return the multiple of the direction that balances one column of α: at most 1 in absolute value."""
        K = self.problem.columns
        mass, available = float(self.sums[k]), float(self.sums[K + k])
        if abs(mass) <= BALANCED * available:
            size = float(column_sums(np.abs(self.problem.weighted(self.alpha if K == 1 else self.alpha[:, k]))))
            if abs(mass) <= BALANCED * size:
                return 0.0
        return mass / max(available, abs(mass), TINY)

    @cached_property
    def moves(self) -> bool:
        """Whether balancing changes α."""
        return self.step != 0.0 if self.problem.columns == 1 else bool(np.count_nonzero(self.step))

    @cached_property
    def balanced_bar(self) -> np.ndarray:
        """ᾱ of the balanced point."""
        return self._moved(self.bar, self.problem.columns)

    def bound(self) -> Bound:
        """Balance α along the direction, scale it into the domain of g*, and return D."""
        problem, K = self.problem, self.problem.columns
        t, alpha, bar = self.step, self.alpha, self.balanced_bar
        if self.moves:
            alpha = alpha - (t if K == 1 else np.asarray(t, like=alpha)) * self.direction
        if not problem.regularizer.strongly_convex:
            half = len(self.products) // 2
            factor = problem.reach(bar, 3.0 * self._moved(self._bars(half), half + K))
            alpha, bar = (alpha, bar) if factor == 1.0 else (factor * alpha, factor * bar)
        return Bound(problem.dual_at(alpha, bar), alpha, bar)

    def _moved(self, bar: np.ndarray, column: int) -> np.ndarray:
        """ᾱ − t d̄, where the direction has the columns from this one on."""
        return bar - (np.multiply(self.step, self._bars(column).T)).T if self.moves else bar


def sum_columns(rows: RowVectors, columns: np.ndarray, *, thirds: bool) -> np.ndarray:
    """Return columns of some rows whose sums give ᾱ: c_i α_i, c_i d_i with the balancing direction d, and thirds of both.

    The thirds, which measure rounding errors, are included if g is not strongly convex. ``columns`` are α_i and d_i.
    """
    columns = rows.weighted(columns)
    return np.concatenate([columns, columns / 3.0], axis=1) if thirds else columns


def _side_by_side(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the columns of all parts; a single part is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def columns_of(models: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each problem, or form of one, with the columns of its margins: an index if there is one."""
    first = 0
    for model in models:
        columns = model.loss.columns
        yield model, first if columns == 1 else slice(first, first + columns)
        first += columns


class Derivatives:
    """The losses of several models, whose margins are adjacent columns, and their derivatives (see :class:`Target`).

    A target holds only the declared forms of its problems, since it is sent to the rows (on a cluster).
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.forms = [RowForm(problem.loss) for problem in problems]

    def losses(self, rows: Sequence[RowVectors], Z: np.ndarray) -> BlockLosses:
        """Return Σ c_i φ_i of each model and the derivatives c_i φ′_i."""
        values, R = np.empty(len(self.forms)), np.empty(Z.shape, like=Z)
        for k, ((form, own), vectors) in enumerate(zip(columns_of(self.forms), rows, strict=True)):
            values[k], R[:, own] = row_sums.value_and_slopes(form.loss, Z[:, own], vectors)
        return BlockLosses(values, R)


class PrimalPoints:
    """The losses and dual points of several models on a block of rows (see :class:`Target`)."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.forms = list(map(_form_of, problems))

    def losses(self, rows: Sequence[RowVectors], Z: np.ndarray) -> BlockLosses:
        """Return Σ c_i φ_i of each model, the weighted parts of its dual point, and the dual points, to be kept."""
        values, factors, first = np.empty(len(self.forms)), [], 0
        kept = np.empty((sum(map(_kept_columns, self.forms)), len(Z)), like=Z)  # contiguous columns
        for k, ((form, own), vectors) in enumerate(zip(columns_of(self.forms), rows, strict=True)):
            z, K = vectors.shifted(Z[:, own]), form.loss.columns
            value, slopes = form.loss.value_and_derivative(z, vectors.y)
            values[k] = float(value.sum() if vectors.c is None else vectors.c @ value)
            place, last = first if K == 1 else slice(first, first + K), first + _kept_columns(form)
            kept[place] = -slopes.T
            if form.direction:
                kept[last - K : last] = form.loss.balancing_direction(kept[place].T, z, vectors.y).T
            factors.append(sum_columns(vectors, kept[first:last].T, thirds=form.thirds))
            first = last
        return BlockLosses(values, _side_by_side(factors), kept.T)


def _kept_columns(form: RowForm) -> int:
    """Return the number of columns that a pass keeps of a model: its dual point, and the balancing direction, if it has one."""
    return int(form.loss.columns * (1 + form.direction))


def _form_of(problem: Problem) -> RowForm:
    """Return the outputs of a pass that certifies a primal point; with an intercept, most losses have a balancing direction."""
    direction = problem.fit_intercept and problem.loss.balances_by_direction
    return RowForm(problem.loss, True, direction, not problem.regularizer.strongly_convex)


def dual_sums(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[DualSums]:
    """Return the sums of a dual point of each problem, in one pass."""
    data, both = problems[0].data, list(zip(problems, alphas, strict=True))
    columns = [
        sum_columns(each.row_vectors, alpha.reshape(data.n, -1), thirds=not each.regularizer.strongly_convex)
        for each, alpha in both
    ]
    # Products with a vector are faster than with a matrix of one column.
    joined = _side_by_side(columns)
    products = data.transposed_times(joined[:, 0] if joined.shape[1] == 1 else joined).reshape(data.d, -1).T
    found, first = [], 0
    for (problem, alpha), each in zip(both, columns, strict=True):
        last = first + each.shape[1]
        found.append(DualSums(problem, alpha, products[first:last], on_host(column_sums(each))))
        first = last
    return found


def primal_bounds(
    problems: Sequence[Problem], models: Sequence[np.ndarray], intercepts: Sequence[Any]
) -> list[tuple[float, Bound]]:
    """Return P(w, b) and the dual bound of α_i = −φ′(z_i) for each problem, in one pass.

    Problems whose intercept must be searched share a second pass.
    """
    d = problems[0].d
    W = models[0].reshape(-1, d) if len(models) == 1 else np.concatenate([w.reshape(-1, d) for w in models])
    b = np.hstack(intercepts) if len(models) > 1 else np.asarray(intercepts[0]).reshape(-1)
    vectors = [problem.row_vectors for problem in problems]
    points = PrimalPoints(problems)
    found = problems[0].data.evaluate(W, b, points, vectors)
    assert found.kept is not None
    results: list[tuple[float, Bound]] = []
    searched: dict[int, np.ndarray] = {}
    first = kept = 0
    for k, (problem, own) in enumerate(columns_of(problems)):
        count = 1 + points.forms[k].direction
        places = range(kept, kept + count * problem.columns, problem.columns)
        K = problem.columns
        vectors_kept = [some_columns(found.kept, at if K == 1 else slice(at, at + K)) for at in places]
        kept += count * problem.columns
        last = first + problem.columns * count * (2 - problem.regularizer.strongly_convex)
        sums = DualSums(
            problem, vectors_kept[0], found.gradients[first:last], found.slopes[first:last], *vectors_kept[1:]
        )
        primal = float(found.values[k] / problem.n + problem.lam * problem.g.value(models[k]))
        bound, first = sums.bound(), last
        near = _nearly_balanced(sums, primal, models[k]) if problem.fit_intercept and bound.value == -np.inf else None
        if near is not None:
            bound = near
        elif problem.fit_intercept and _intercept_matters(sums, primal, bound):
            z = vectors[k].shifted(found.margins[:, own])
            best = problem.best_intercept_at(z, problem.no_intercept())
            searched[k] = problem.balanced(problem.slopes_at(z + np.asarray(best, like=z)))
        results.append((primal, bound))
    if searched:
        others = dual_sums([problems[k] for k in searched], list(searched.values()))
        for k, other in zip(searched, others, strict=True):
            results[k] = results[k][0], better(results[k][1], other.bound())
    return results


def _nearly_balanced(sums: DualSums, primal: float, w: np.ndarray) -> Bound | None:
    """Return the bound of a point that ``Loss.balanced`` changes little, for a loss without a direction (softmax).

    It takes a second pass, but no search for the intercept. None if the imbalance is large, or if balancing costs more than the
    gap of the point itself, λ(g(w) + g*(ᾱ) − ⟨w, ᾱ⟩), which is the whole gap of a balanced point.
    """
    problem = sums.problem
    if problem.loss.balances_by_direction or np.abs(sums.mass).sum() > SLIGHT * float(problem.c.sum()):
        return None
    own = problem.lam * float(problem.g.value(w) + problem.g.conjugate(sums.bar) - np.vdot(w, sums.bar))
    (balanced,) = dual_sums([problem], [problem.balanced(sums.alpha)])
    bound = balanced.bound()
    return bound if primal - bound.value <= TWICE * own + ROUNDING * abs(primal) else None


def _intercept_matters(sums: DualSums, primal: float, bound: Bound) -> bool:
    """Whether the best intercept may have a noticeably smaller gap than the balanced point.

    Balancing changes α, to first order, as the best intercept does. The two differ by the fraction |t| of the change, and for
    about the fraction ``BALANCING`` of the examples, which are near an end of the domain; the sum over these is random, hence the
    square root. If the difference of ᾱ is negligible against the gap, the two gaps agree.
    """
    problem, t = sums.problem, sums.step
    if bound.value == -np.inf:
        return True
    if problem.loss.curvature is Curvature.CONSTANT or not sums.moves:
        return False  # the balanced point is that of the best intercept
    longest = abs(t) if problem.columns == 1 else float(np.abs(t).max())
    if longest > BALANCING:
        return True
    change = math.sqrt(longest + BALANCING) * (sums.bar - sums.balanced_bar)
    # g* of a strongly convex g is smooth; otherwise α is scaled by about 1 − ‖change‖∞, and D changes by that fraction of |P|.
    smooth = problem.regularizer.strongly_convex
    moved = 0.5 * problem.lam * float(np.vdot(change, change)) if smooth else float(np.abs(change).max()) * abs(primal)
    share = SLACK**2 if smooth else SLACK
    return not moved <= share * (primal - bound.value) + ROUNDING * abs(primal)


def best_intercept_bounds(problems: Sequence[Problem], models: Sequence[np.ndarray]) -> list[tuple[float, Any, Bound]]:
    """Return P(w, b), the best intercept b for w, and the dual bound at it, for each problem, in two passes."""
    data, points = problems[0].data, []
    products = data.times(models[0].T if len(models) == 1 else np.column_stack([w.T for w in models]))
    for (problem, own), w in zip(columns_of(problems), models, strict=True):
        z = problem.row_vectors.shifted(products.reshape(data.n, -1)[:, own])
        b = problem.best_intercept_at(z)
        z = z + np.asarray(b, like=z) if problem.fit_intercept else z
        points.append((problem.primal_at(z, w), b, problem.balanced(problem.slopes_at(z))))
    sums = dual_sums(problems, [alpha for _, _, alpha in points])
    return [(primal, b, each.bound()) for (primal, b, _), each in zip(points, sums, strict=True)]


def better(one: Bound, other: Bound) -> Bound:
    """Return the larger bound, the first if they are equal."""
    return other if other.value > one.value else one


def scaled_if_far(problem: Problem, primal: float, bound: Bound) -> Bound:
    """Return the bound of the best multiple sα, s ∈ (0, 1], if the relative gap exceeds ``FAR``; sα is feasible, since 0 is."""
    if not primal - bound.value > FAR * abs(primal):
        return bound
    if bound.value == -np.inf:
        nothing, bar = problem.no_dual(), np.zeros_like(bound.bar)
        return Bound(problem.dual_at(nothing, bar), nothing, bar)
    _, alpha, bar = bound
    scale = problem.lam * problem.n
    linear = 0.0 if problem.offset is None else float(np.vdot(problem.weighted(alpha), problem.offset))
    at_one = -problem.n * bound.value - scale * problem.g.conjugate(bar) - linear
    conjugates = row_sums.conjugates_along(problem.loss, alpha, problem.row_vectors, at_one)
    s = _best_factor(lambda s: conjugates(s) + s * linear + scale * problem.g.conjugate(s * bar))
    return better(bound, Bound(problem.dual_at(s * alpha, s * bar), s * alpha, s * bar))


def _best_factor(value: Callable[[float], float]) -> float:
    """Return an approximate minimiser s ∈ (0, 1] of a convex function; the search is in log s, since s may be tiny."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda t: value(float(np.exp(t))), bounds=(-50.0, 0.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))
