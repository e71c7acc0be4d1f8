"""Dual bounds from one pass: P, the dual point α_i = −φ′(z_i) and ᾱ are sums over rows, so that one pass gives them all.

α is made feasible from these sums and from α itself, without reading X again:

1. *Balance.* With an intercept, Σ c_i α_i = 0 is required. α − td is balanced for t = Σ c_i α_i / Σ c_i d_i, where d_i is
   φ″(z_i), or less next to an end of the domain (``Loss.balancing_direction``); the pass sums c_i d_i a_i as well as c_i α_i a_i.
   A loss that balances by its mean (the squared loss) has d_i = 1: on small data Σ c_i a_i is computed when it is needed.
2. *Domain of the conjugate of g.* For penalties that are not strongly convex (the Lasso), α is scaled by a factor, and ᾱ with
   it. The pass sums ᾱ a second time from α/3: the difference between the two sums measures the rounding errors. On small data
   that is done only where the bound γ‖X‖‖cα‖/(λn) on these errors is not far below the tolerance.
3. *Far from the optimum* the best multiple sα is searched (``multiples.py``).

Another intercept changes every α_i. It is searched, on the margins of the pass, if the balancing above would change the gap
noticeably, or if the loss has no balancing direction (softmax) and the imbalance is large; ᾱ of the new point takes a second
pass. A small imbalance of softmax is removed from α (``Loss.balanced``), which takes a second pass as well.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.losses.base import BALANCING, Curvature
from dualnewton.matrix import Evaluation, RowForm
from dualnewton.matrix.vectors import LONG, less_multiple
from dualnewton.objective import row_sums
from dualnewton.objective.groups import Group, columns_of, for_each, groups_of, singles
from dualnewton.objective.targets import PrimalPoints, joined, needs_thirds, sum_columns
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

UNIT, SLIGHTEST = 2.0**-53, 1e-3
"""Rounding error of an operation in float64, and the fraction of the tolerance up to which a bound on the rounding errors of ᾱ is
used as their size."""

ENOUGH = 0.9
"""Part of the tolerance up to which the gap of a balanced point suffices; the rest is for rounding errors."""


class Bound(NamedTuple):
    """A feasible dual point with ᾱ and D(α), a lower bound on the optimal value; −∞ if rounding has made it infeasible.

    ``sizes`` are the sums over α from which its rounding errors are bounded, if they are known.
    """

    value: float
    alpha: np.ndarray
    bar: np.ndarray
    sizes: row_sums.DualSizes | None = None


class PrimalBound(NamedTuple):
    """P(w, b), the bound of a dual point, and the part λ g(w) of P."""

    primal: float
    bound: Bound
    penalty: float


class DualSums:
    """The dual points α of a group of problems and their sums over the rows.

    ``products`` (L, d) and ``sums`` (L,) are Σ c_i r_ik a_iᵀ and Σ c_i r_ik for the columns r of :func:`sum_columns`, problem by
    problem. The balancing ``direction``, in the shape of α, is one of these columns; without one, α is corrected by a constant,
    if the loss allows it.
    """

    def __init__(
        self,
        group: Group,
        alpha: np.ndarray,
        products: np.ndarray,
        sums: np.ndarray,
        direction: np.ndarray | None = None,
    ) -> None:
        self.group, self.alpha, self.products, self.sums, self.direction = group, alpha, products, sums, direction
        # Whether the pass has summed the thirds of the columns.
        self.has_thirds = len(products) > group.M * group.K * (1 if direction is None else 2)
        own = self._place(0)
        self.mass = sums[own]  # Σ c_i α_i of each column
        # ᾱ, and ᾱ of the point that :meth:`bounds` has balanced by these multiples t of the direction, one for each column.
        self.bar = self.balanced_bar = products[own] / group.scale
        self.steps: list[float] = []

    def _place(self, kind: int) -> Any:
        """Return the columns of all problems that are α (0) or the direction (1), or thirds of these (then)."""
        group = self.group
        if group.M > 1:
            return slice(kind, None, len(self.products) // group.M)
        return kind if group.K == 1 else slice(kind * group.K, (kind + 1) * group.K)

    @property
    def masses(self) -> list[float]:
        """Σ c_i α_i of each column."""
        return self.group.numbers(self.mass)

    @cached_property
    def sizes(self) -> row_sums.DualSizes:
        """Sums over α."""
        first = self.group.first
        return row_sums.dual_sizes(first.loss, self.alpha, self.group.rows, masses=first.fit_intercept)

    @property
    def _balances(self) -> bool:
        """Whether a multiple of d makes α feasible for a problem with an intercept."""
        first = self.group.first
        return self.direction is not None or (first.fit_intercept and first.loss.balances_by_mean)

    def _along(self, third: int = 0) -> np.ndarray:
        """Return Σ c_i d_i a_i of each column over λn; if ``third`` is 1, summed from thirds and as a third of it."""
        if self.direction is not None:
            return self.products[self._place(1 + 2 * third)] / self.group.scale
        return np.asarray(self._of_ones[third], like=self.bar) / self.group.scale

    @cached_property
    def _of_ones(self) -> np.ndarray:
        """Σ c_i a_i and, where rounding errors are measured, Σ (c_i/3) a_i, as rows."""
        first = self.group.first
        if not self.has_thirds:
            return first.data.transposed_times(first.c)[None]
        return first.data.transposed_times(np.column_stack([first.c, first.c / 3.0])).T

    def _steps(self) -> list[float]:
        """Return t of each column, at most 1 in absolute value for a direction; none if α is balanced."""
        group, found, absolute = self.group, self.masses, list[float]()
        if self.direction is None:
            for mass, size in zip(found, group.numbers(self.sizes.absolute), strict=True):
                if not abs(mass) <= BALANCED * size:
                    weight = float(group.first.c.sum())
                    return [each / weight for each in found]
            return []
        available = group.numbers(self.sums[self._place(1)])
        for k, mass in enumerate(found):
            size = abs(mass)
            if size <= BALANCED * available[k]:
                absolute = absolute or group.numbers(self.sizes.absolute)
            if size <= BALANCED * available[k] and size <= BALANCED * absolute[k]:
                found[k] = 0.0
            else:
                found[k] = mass / max(available[k], size, TINY)
        return found if any(found) else []

    def bounds(self, tol: float = 0.0) -> list[Bound]:
        """Balance α along the direction, scale it into the domain of g*, and return D of each problem.

        The scale need be no sharper than ``tol`` demands.
        """
        group, first, alpha, bar, sizes = self.group, self.group.first, self.alpha, self.bar, None
        if balances := self._balances:
            self.steps = self._steps()
        if steps := self.steps:
            bar = self.balanced_bar = bar - group.per_feature(steps) * self._along()
            if alpha.ndim == 1 and alpha.size >= LONG and self.direction is not None:
                alpha = less_multiple(alpha, steps[0], self.direction)  # in threads
            else:
                alpha = alpha - group.per_row(steps, alpha) * (1.0 if self.direction is None else self.direction)
        elif not balances and first.columns > 1 and first.fit_intercept and first.is_unbalanced(self.sizes):
            return [Bound(-np.inf, alpha, bar, self.sizes)]  # without the conjugates, which take about a pass
        else:
            sizes = vars(self).get("sizes")
        if not first.regularizer.strongly_convex:
            if not self.has_thirds and sizes is None:
                sizes = row_sums.dual_sizes(first.loss, alpha, group.rows, masses=first.fit_intercept)
            error = self._difference(bar) if self.has_thirds else self._error(alpha, bar, sizes, SLIGHTEST * tol)
            pairs = zip(group.problems, group.each(bar), group.each(error), strict=True)
            factors = [problem.reach(own, error) for problem, own, error in pairs]
            if factors.count(1.0) < len(factors):
                scale: Any = factors[0] if group.M == 1 else np.array(factors)
                sizes, by_row = None if sizes is None else sizes.times(scale), scale if group.M == 1 else scale[:, None]
                alpha, bar = by_row * alpha, by_row * bar
        terms = row_sums.dual_terms(first.loss, alpha, group.rows, masses=first.fit_intercept, sizes=sizes)
        if group.M == 1:
            return [Bound(first.dual_value(terms, bar, balanced=balances and not steps), alpha, bar, terms.sizes)]
        each = zip(group.problems, row_sums.split(terms), alpha, bar, strict=True)
        return [Bound(problem.dual_value(own, s), a, s, own.sizes) for problem, own, a, s in each]

    def _error(self, alpha: np.ndarray, bar: np.ndarray, sizes: Any, slight: float) -> Any:
        """Return the rounding errors of ᾱ of the balanced point of one problem: a bound on all of them or, if it exceeds
        ``slight``, the difference of ᾱ from a second sum.
        """
        group, first = self.group, self.group.first
        error = UNIT * (first.n + 8) * first.data.norm * math.sqrt(sizes.squares) / group.scale
        if error <= slight:
            return error
        return np.abs(bar - 3.0 * first.data.transposed_times(group.rows.weighted(alpha) / 3.0).T / group.scale)

    def _difference(self, bar: np.ndarray) -> np.ndarray:
        """Return the distance of ᾱ of the balanced point from that of the thirds of the columns, whose rounding errors differ."""
        group, kinds = self.group, 1 if self.direction is None else 2
        found = self.products[self._place(kinds)] / group.scale
        if self.steps:
            found = found - group.per_feature(self.steps) * self._along(third=1)
        return np.abs(bar - 3.0 * found)


def dual_sums(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[DualSums]:
    """Return the sums of a dual point of each problem, in one pass."""
    return _dual_sums(singles(problems), alphas)


def dual_bounds(
    problems: Sequence[Problem], alphas: Sequence[np.ndarray], groups: Sequence[Group] | None = None, tol: float = 0.0
) -> list[Bound]:
    """Return the bound of a dual point of each problem, in one pass; ``groups`` are those of the problems, if they are known.

    The bounds need be no sharper than ``tol`` demands.
    """
    groups, points, first = groups or groups_of(problems), [], 0
    for group in groups:
        points.append(alphas[first] if group.M == 1 else np.array(alphas[first : first + group.M]))
        first += group.M
    found = for_each(problems[0], _dual_sums(groups, points, tol), partial(DualSums.bounds, tol=tol))
    return list(itertools.chain.from_iterable(found))


def _dual_sums(groups: Sequence[Group], alphas: Sequence[np.ndarray], tol: float = 0.0) -> list[DualSums]:
    data, both = groups[0].first.data, list(zip(groups, alphas, strict=True))
    columns = []
    for group, alpha in both:
        for each, own in zip(group.problems, group.each(alpha), strict=True):
            bounded = each.regularizer.strongly_convex
            thirds = not bounded and needs_thirds(each, measured=group.M > 1 or tol == 0.0)
            columns.append(sum_columns(each.row_vectors, own.reshape(data.n, -1), thirds=thirds))
    # Products with a vector are faster than with a matrix of one column.
    factors = joined(columns)
    products = data.transposed_times(factors[:, 0] if factors.shape[1] == 1 else factors).reshape(data.d, -1).T
    totals = [on_host(column_sums(each)) for each in columns]
    found, first, place = [], 0, 0
    for group, alpha in both:
        own = totals[place : place + group.M]
        last, place = first + sum(map(len, own)), place + group.M
        found.append(DualSums(group, alpha, products[first:last], own[0] if group.M == 1 else np.concatenate(own)))
        first = last
    return found


def primal_bounds(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    tol: float = 0.0,
    groups: Sequence[Group] | None = None,
) -> list[PrimalBound]:
    """Return P(w, b) and the dual bound of α_i = −φ′(z_i) for each problem, in one pass.

    Problems whose intercept must be searched share a second pass. The search is left out where the gap is at most half of
    ``tol`` times |P| without it. ``groups`` are those of the problems, if they are known.
    """
    d = problems[0].d
    W = models[0].reshape(-1, d) if len(models) == 1 else np.concatenate([w.reshape(-1, d) for w in models])
    alike = len(problems) == 1 or len({problem.columns for problem in problems}) == 1
    if len(problems) == 1 and problems[0].columns > 1:
        b = intercepts[0]
    else:
        b = (
            np.asarray(intercepts).reshape(-1)
            if alike
            else np.concatenate([np.reshape(each, -1) for each in intercepts])
        )
    vectors, groups = [problem.row_vectors for problem in problems], groups or groups_of(problems)
    points = PrimalPoints(problems, groups, tol)
    found = problems[0].data.evaluate(W, b, points, vectors)
    items, k, column, first, kept = [], 0, 0, 0, 0
    for group in groups:
        sums, first, kept = _sums_of_group(group, points.forms[k], found, first, kept)
        items.append((sums, k, column))
        k, column = k + group.M, column + group.M * group.K
    searched: dict[int, np.ndarray] = {}

    def bounds_of(item: tuple[DualSums, int, int]) -> list[PrimalBound]:
        sums, k, column = item
        results = []
        for place, bound in enumerate(sums.bounds(tol)):
            problem, K = problems[k], sums.group.K
            penalty = float(problem.lam * problem.g.value(models[k]))
            primal = float(found.values[k]) / problem.n + penalty
            near = None
            if problem.fit_intercept and bound.value == -np.inf:
                near = _nearly_balanced(sums, place, primal, models[k], tol)
            known = primal - bound.value <= 0.5 * tol * abs(primal)
            if near is None and problem.fit_intercept and not known and _intercept_matters(sums, place, primal, bound):
                z = vectors[k].shifted(found.margins[:, column if K == 1 else slice(column, column + K)])
                best = problem.best_intercept_at(z, problem.no_intercept())
                searched[k] = problem.balanced(problem.slopes_at(z + np.asarray(best, like=z)))
            results.append(PrimalBound(primal, near or bound, penalty))
            k, column = k + 1, column + K
        return results

    results = list(itertools.chain.from_iterable(for_each(problems[0], items, bounds_of)))
    if places := sorted(searched):
        others = dual_bounds([problems[k] for k in places], [searched[k] for k in places])
        for k, other in zip(places, others, strict=True):
            results[k] = results[k]._replace(bound=better(results[k].bound, other))
    return results


def _sums_of_group(group: Group, form: RowForm, found: Evaluation, first: int, kept: int) -> tuple[DualSums, int, int]:
    """Return the sums of a group of a pass, and the ends of its columns among the sums and among the kept ones."""
    M, K, kinds = group.M, group.K, 1 + form.direction
    size = M * K * kinds
    last, end = first + size * (1 + form.thirds), kept + size
    assert found.kept is not None
    if M > 1:
        columns = np.ascontiguousarray(found.kept.T)  # data in pieces have contiguous rows
        vectors = [columns[kept + kind : end : kinds] for kind in range(kinds)]
    elif found.kept.shape[1] == M * K:  # the only model, without a direction
        vectors = [found.kept if K > 1 else found.kept[:, 0]]
    else:
        places = range(kept, end, K)
        vectors = [some_columns(found.kept, at if K == 1 else slice(at, at + K)) for at in places]
    return DualSums(group, vectors[0], found.gradients[first:last], found.slopes[first:last], *vectors[1:]), last, end


def _nearly_balanced(sums: DualSums, place: int, primal: float, w: np.ndarray, tol: float) -> Bound | None:
    """Return the bound of a point that ``Loss.balanced`` changes little, for a loss without a direction (softmax).

    It takes a second pass, but no search for the intercept. None if the imbalance is large, or if balancing costs more than the
    gap of the point itself, λ(g(w) + g*(ᾱ) − ⟨w, ᾱ⟩), which is the whole gap of a balanced point, and more than ``tol`` allows.
    """
    problem = sums.group.problems[place]
    if problem.loss.balances_by_direction or sum(map(abs, sums.masses)) > SLIGHT * float(problem.c.sum()):
        return None
    own = problem.lam * float(problem.g.value(w) + problem.g.conjugate(sums.bar) - np.vdot(w, sums.bar))
    (bound,) = dual_bounds([problem], [problem.balanced(sums.alpha)])
    allowed = max(TWICE * own + ROUNDING * abs(primal), ENOUGH * tol * abs(primal))
    return bound if primal - bound.value <= allowed else None


def _intercept_matters(sums: DualSums, place: int, primal: float, bound: Bound) -> bool:
    """Whether the best intercept may have a noticeably smaller gap than the balanced point.

    Balancing changes α, to first order, as the best intercept does. The two differ by the fraction |t| of the change, and for
    about the fraction ``BALANCING`` of the examples, which are near an end of the domain; the sum over these is random, hence the
    square root. If the difference of ᾱ is negligible against the gap, the two gaps agree.
    """
    group = sums.group
    problem = group.problems[place]
    if bound.value == -np.inf:
        return True
    if problem.loss.curvature is Curvature.CONSTANT or not sums.steps:
        return False  # the balanced point is that of the best intercept
    longest = max(map(abs, sums.steps[place * group.K : (place + 1) * group.K]))
    if longest > BALANCING:
        return True
    change = math.sqrt(longest + BALANCING) * (group.each(sums.bar)[place] - group.each(sums.balanced_bar)[place])
    # g* of a strongly convex g is smooth; otherwise α is scaled by about 1 − ‖change‖∞, and D changes by that fraction of |P|.
    smooth = problem.regularizer.strongly_convex
    moved = 0.5 * problem.lam * float(np.vdot(change, change)) if smooth else float(np.abs(change).max()) * abs(primal)
    share = SLACK**2 if smooth else SLACK
    return not moved <= share * (primal - bound.value) + ROUNDING * abs(primal)


def best_intercept_bounds(problems: Sequence[Problem], models: Sequence[np.ndarray]) -> list[tuple[float, Any, Bound]]:
    """Return P(w, b), the best intercept b for w, and the dual bound at it, for each problem, in two passes."""
    data = problems[0].data
    products = data.times(models[0].T if len(models) == 1 else np.column_stack([w.T for w in models]))

    def at_best(model: tuple[tuple[Problem, Any], np.ndarray]) -> tuple[float, Any, np.ndarray]:
        (problem, own), w = model
        z = problem.row_vectors.shifted(products.reshape(data.n, -1)[:, own])
        b = problem.best_intercept_at(z)
        z = z + np.asarray(b, like=z) if problem.fit_intercept else z
        return problem.primal_at(z, w), b, problem.balanced(problem.slopes_at(z))

    points = for_each(problems[0], list(zip(columns_of(problems), models, strict=True)), at_best)
    bounds = dual_bounds(problems, [alpha for _, _, alpha in points])
    return [(primal, b, bound) for (primal, b, _), bound in zip(points, bounds, strict=True)]


def better(one: Bound, other: Bound) -> Bound:
    """Return the larger bound, the first if they are equal."""
    return other if other.value > one.value else one
