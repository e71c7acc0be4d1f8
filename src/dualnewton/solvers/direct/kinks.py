"""Small problems with a convex piecewise linear loss and a quadratic penalty: all interior-point steps in one call.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,      z_i = ã_iᵀx + o_i,  ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

The method is that of :mod:`~dualnewton.solvers.primal.interior_point`, whose symbols are used here: a loss is a sum over its
kinks k_im, at which its slope rises by J_im, p_im ∈ [0, J_im] is the part of a jump that is taken, q = J − p, z − k = t − s, and
the steps follow p s = q t = μ → 0 (Mehrotra's predictor and corrector). On small data the interpreter takes most of the time, so
that

1. the start is the least-squares fit to the kinks, from which 6 to 12 steps lead to a relative gap of 1e-4,
2. a step takes about 40 array operations on p, q, s, t in one array, and one Cholesky factor: d×d, or n×n for fewer examples than
   features (:mod:`~dualnewton.solvers.direct.step_systems`),
3. once most slopes are near an end of their jump, the steps go on with the other examples alone (:meth:`Terms.restricted`), and
   the gap of all examples decides whether that was right.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.objective.coordinates import Reflections, products_suffice
from dualnewton.objective.problem import Problem
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.direct.step_systems import Gram, Rows

WIDTH = 6.0
"""Width, in root mean square residuals of the least-squares fit, over which a slope rises by its jump at the start."""

INSIDE, APART = 0.1, 1.0
"""At the start p and q are at least ``INSIDE`` of the jump, and s and t at least ``APART`` root mean square residuals."""

BOUNDARY = 0.99
"""Fraction of the way to the boundary of p, q, s, t > 0 that a step goes at most; it tends to one with μ."""

SHORTEST, WORSE, PATIENCE = 1e-8, 10.0, 5
"""Rounding has stopped the method when a step is shorter than ``SHORTEST``, when it multiplies the gap by ``WORSE``, or when so
many steps in a row have not found a smaller gap."""

FINE = 1e-5
"""Relative gap below which the solutions of the linear systems are refined."""

DECIDED, CALM, CARE = 0.15, 0.25, 0.2
"""A slope is decided within the fraction ``DECIDED`` of its jump from an end, if the last step changed the distance of the margin
from the kink by less than the fraction ``CALM``; times ``CARE`` each time that was wrong."""

RIPE = 0.3
"""The steps go on without decided examples from this relative gap on: before, separable classes have few slopes that are not near
zero."""

NEAR = 4.0
"""The gap is computed where its estimate from p s and q t, about twice as large, is within this factor of the tolerance."""


@dataclass(frozen=True, eq=False)
class Terms:
    """The losses of some examples as sums over kinks.

    Attributes
    ----------
    matrix : Rows or Gram
        Products with the examples.
    kinks, jumps : arrays of shape (M, n)
        k_im without the offset, and J_im.
    least : array of shape (n,)
        Slopes left of all kinks.
    c : array of shape (n,), optional
        Weights, if they are not all one.
    fixed : array or float
        Σ c_i ã_i (slope) of the examples that are left out.
    """

    matrix: Any
    kinks: np.ndarray
    jumps: np.ndarray
    least: np.ndarray
    c: np.ndarray | None
    fixed: Any = 0.0

    def fold(self, values: np.ndarray) -> np.ndarray:
        """Sum over the kinks of each example."""
        return values[0] if len(values) == 1 else np.add.reduce(values, axis=0)

    def mass(self, values: np.ndarray) -> np.ndarray:
        """Sum over the kinks of each example, times its weight."""
        return self.fold(values) if self.c is None else self.c * self.fold(values)

    def total(self, values: np.ndarray) -> float:
        """Sum over the kinks of all examples, with their weights."""
        return float(values.sum() if self.c is None else self.c @ self.fold(values))

    def slopes(self, p: np.ndarray) -> np.ndarray:
        """−α_i, times the weights."""
        u = self.least + self.fold(p)
        return u if self.c is None else self.c * u

    def imbalance(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The residual of the first optimality condition."""
        return self.matrix.imbalance(x, self.slopes(p)) + self.fixed

    def restricted(self, kept: np.ndarray, p: np.ndarray) -> Terms:
        """Return the terms of the examples ``kept``; p of the others is constant."""
        mass = self.slopes(p)
        mass[kept] = 0.0
        c = None if self.c is None else self.c[kept]
        fixed = self.fixed + self.matrix.columns @ mass
        kinks, jumps = self.kinks.take(kept, axis=1), self.jumps.take(kept, axis=1)
        return Terms(self.matrix.restricted(kept), kinks, jumps, self.least[kept], c, fixed)


class Path:
    """An iterate: x, the distances r = z − k of the margins from the kinks, and p, q, s, t.

    Attributes
    ----------
    unit : float
        The unit of a margin: the root mean square residual of the least-squares fit.
    boxes : array of shape (4, M, n)
        p, q, s, t.
    """

    def __init__(self, terms: Terms, x: np.ndarray, r: np.ndarray, boxes: np.ndarray, unit: float) -> None:
        self.terms, self.x, self.r, self.boxes, self.unit = terms, x, r, boxes, unit
        self.values, self.slacks, self.p = boxes[:2], boxes[2:], boxes[0]
        self.way, self.there = np.empty_like(boxes), np.empty_like(boxes)
        self.slopes, self.moves, self.change = self.way[:2], self.way[2:], np.empty_like(self.values)
        self.ratio = np.empty_like(self.values)
        self.refresh()

    def refresh(self) -> None:
        """Compute the imbalance and the gap, of which the complementarity is an estimate."""
        terms = self.terms
        self.imbalance = terms.imbalance(self.x, self.p)
        product = float(np.vdot(self.values, self.slacks))
        self.mu = product / self.values.size
        if terms.c is not None:
            product = terms.total(self.p * self.slacks[0]) + terms.total(self.values[1] * self.slacks[1])
        self.gap = product + terms.matrix.gap(self.imbalance, self.unit)

    def step(self, *, fine: bool) -> bool:
        """Take a step, refined if ``fine``; return False if there is none."""
        terms, values, slacks, change = self.terms, self.values, self.slacks, self.change
        if not self.mu > 0.0:
            return False
        np.divide(slacks, values, out=self.ratio)
        D = 1.0 / (self.ratio[0] + self.ratio[1])
        if not terms.matrix.factorise(terms.mass(D)):
            return False
        # The predictor, a step towards μ = 0: there p s + Δ(p s) = 0, and Σ Δp Δs + Δq Δt = −Σ Δp Δz.
        np.negative(slacks, out=change)
        _, dz = self._towards(D, self.r, change)
        length = self._length()
        reached = (1.0 - length) * self.mu - length**2 * float(terms.fold(self.way[0]) @ dz) / values.size
        target = min(max(reached / self.mu, 0.0), 1.0) ** 3 * self.mu
        # The corrector, a step to the target with the second-order term of the predictor.
        np.multiply(self.slopes, self.moves, out=change)
        np.subtract(target, change, out=change)
        np.divide(change, values, out=change)
        np.subtract(change, slacks, out=change)
        dx, dz = self._towards(D, change[0] - change[1], change, fine=fine)
        longest = self._length()
        if not longest > SHORTEST:
            return False
        length = min(1.0, max(BOUNDARY, 1.0 - self.mu / self.unit) * longest)
        self.x += length * dx
        self.r += length * dz
        np.multiply(self.way, length, out=self.there)
        self.boxes += self.there
        before = self.gap
        self.refresh()
        if self.gap <= WORSE * before:
            return True
        self.x -= length * dx
        self.r -= length * dz
        self.boxes -= self.there
        return False

    def _towards(
        self, D: np.ndarray, push: np.ndarray, change: np.ndarray, *, fine: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute the direction for which Δs + (s/p)Δp and Δt + (t/q)Δq are ``change``, with Δp = D(Δz + push)."""
        terms, dp = self.terms, self.way[0]
        dx, dz = terms.matrix.direction(self.imbalance, terms.mass(D * push))
        np.multiply(D, dz + push, out=dp)
        if fine:  # D is large near a kink, where Δz + push cancels: one step of refinement on the residual of the first condition
            left = self.imbalance + terms.matrix.imbalance(dx, terms.mass(dp))
            more, dz_more = terms.matrix.direction(left, terms.mass(D * (dz + push) - dp))
            dx, dz = dx + more, dz + dz_more
            dp += D * dz_more
        np.negative(dp, out=self.way[1])
        np.multiply(self.ratio, self.slopes, out=self.moves)
        np.subtract(change, self.moves, out=self.moves)
        return dx, dz

    def _length(self) -> float:
        """Return the largest multiple of the direction, one at most, that leaves p, q, s, t nonnegative."""
        np.divide(self.way, self.boxes, out=self.there)
        most = -float(np.minimum.reduce(self.there, axis=None))
        return 1.0 if most <= 1.0 else 1.0 / most

    def undecided(self, most: float) -> np.ndarray:
        """Return the examples with an undecided slope; decided margins have moved by at most this fraction from their kinks."""
        calm = np.abs(self.moves) < most * self.slacks
        calm &= self.values < DECIDED * self.terms.jumps
        return np.flatnonzero(~(calm[0] | calm[1]).all(axis=0))


class Search:
    """The steps of one model: on all examples first, and then on those that are undecided.

    Attributes
    ----------
    whole : Terms
        The losses of all examples of positive weight.
    path : Path
        The point, of all examples or of those ``kept``.
    p : array
        p of all examples; those that are not kept stay at an end of their jump.
    """

    def __init__(self, problem: Problem, whole: Terms, live: Any, path: Path, crossovers: Crossovers) -> None:
        self.crossovers, self.problem, self.whole, self.path, self.p = crossovers, problem, whole, path, path.p
        self.y, self.o = problem.y[live], None if problem.offset is None else problem.offset[live]
        self.kept: Any = slice(None)
        self.saved = path  # the iterate at which examples were left out first
        self.calm = CALM if whole.matrix.restricts else 0.0
        self.value = NEAR * path.gap  # of n P; an upper bound until it is computed
        self.best, self.idle = math.inf, 0  # the smallest gap so far, and steps in a row without a smaller one

    def run(self, tol: float, most: int, deadline: float) -> int:
        """Take steps until the gap is well below ``tol``, or as many as are allowed; return how many."""
        steps = 1  # the start
        while steps < most and not self._is_over(tol) and time.perf_counter() < deadline:
            moved = self.path.step(fine=self.path.gap < FINE * self.value)
            steps, self.idle = steps + 1, 0 if self.path.gap < self.best else self.idle + 1
            self.best = min(self.best, self.path.gap)
            if moved and self.idle < PATIENCE:
                self._restrict()
            elif self.whole is self.path.terms:
                break
            else:
                self._go_back()
        self.p[:, self.kept] = self.path.p
        return steps

    def _is_over(self, tol: float) -> bool:
        """Whether the gap is small enough; it is computed where the estimate is below it."""
        path, whole = self.path, self.whole
        if path.gap > NEAR * tol * self.value:
            return False
        self.p[:, self.kept] = path.p
        r = self._evaluate() - whole.kinks
        over = whole.jumps * np.maximum(r, 0.0) - self.p * r
        gap = whole.total(over) + whole.matrix.gap(path.imbalance, path.unit)
        if gap <= WELL_BELOW * tol * self.value:
            return True
        if path.terms is not whole:
            over[:, self.kept] = 0.0
            if whole.total(over) > 0.5 * WELL_BELOW * tol * self.value:
                self._widen(r, np.flatnonzero(whole.fold(over)))
        return False

    def _evaluate(self) -> np.ndarray:
        """Compute n P; return the margins."""
        whole, x = self.whole, self.path.x
        z = whole.matrix.margins(x)
        losses = self.problem.loss.value(z if self.o is None else z + self.o, self.y)
        self.value = float(losses.sum() if whole.c is None else whole.c @ losses) + whole.matrix.penalty(x)
        return z

    def _restrict(self) -> None:
        """Continue with the undecided examples alone, if they are much fewer."""
        path = self.path
        n = len(path.terms.least)
        if self.calm == 0.0 or path.x.size * n < self.crossovers.undecided_entries:
            return
        chosen = path.undecided(self.calm)
        if not 0 < len(chosen) <= self.crossovers.undecided_share * n:
            return
        whole = path.terms is self.whole
        if whole:
            self._evaluate()
            if path.gap > RIPE * self.value:
                return
            self.p, self.saved = path.p.copy(), path
        ends = np.where(path.p < path.values[1], 0.0, path.terms.jumps)
        self.p[:, self.kept] = ends
        self.kept = chosen if whole else self.kept[chosen]
        terms = path.terms.restricted(chosen, ends)
        self.path = Path(terms, path.x.copy(), path.r.take(chosen, 1), path.boxes.take(chosen, 2), path.unit)

    def _widen(self, r: np.ndarray, wrong: np.ndarray) -> None:
        """Bring examples back that were left out, and are on the wrong side of a kink.

        If these are far on the wrong side, the steps continue from the iterate at which examples were left out first.
        """
        path, whole = self.path, self.whole
        if self.calm < CALM * CARE**2:
            self._go_back()
            return
        boxes = np.empty((4, *r.shape))
        p, q, s, t = boxes
        np.clip(self.p, DECIDED * whole.jumps, (1.0 - DECIDED) * whole.jumps, out=p)
        np.subtract(whole.jumps, p, out=q)
        np.maximum(-r, 0.0, out=s)
        s += path.mu / (DECIDED * whole.jumps)
        np.add(s, r, out=t)
        boxes[:, :, self.kept] = path.boxes
        self.kept, self.calm = np.union1d(self.kept, wrong), CARE * self.calm
        terms = whole.restricted(self.kept, self.p)
        self.path = Path(terms, path.x, r.take(self.kept, 1), boxes.take(self.kept, 2), path.unit)
        self.best, self.idle = math.inf, 0
        if self.path.gap > self.saved.gap:
            self._go_back()

    def _go_back(self) -> None:
        """Continue from the iterate at which examples were left out first, and leave none out any more."""
        self.path, self.p, self.kept, self.calm = self.saved, self.saved.p, slice(None), 0.0
        self.best, self.idle = math.inf, 0


def solve(problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float) -> Found:  # noqa: ARG001
    """Take steps until the gap is small enough, or rounding stops them.

    A start is not used, because interior-point methods converge slowly from points near the boundary.
    """
    if problem.n < problem.d and (span := products_of(problem, block, tol)[1]) is not None:
        inner = Block(span.matrix, block.crossovers)
        own = solve(span.problem(problem), inner, None, tol=tol, most=most, deadline=deadline)
        return own._replace(w=span.lifted(own.w))
    live = slice(None) if problem.sample_weight is None or problem.c.all() else np.flatnonzero(problem.c > 0.0)
    with np.errstate(all="ignore"):  # the certificate shows whether overflow has spoilt the steps
        whole = terms_of(problem, block, live, tol)
        path = started(whole)
        if path is None:
            return Found(np.zeros(problem.d), 0.0, 1, np.zeros(problem.n))
        search = Search(problem, whole, live, path, block.crossovers)
        steps = search.run(tol, most, deadline)
        alpha = np.zeros(problem.n)
        alpha[live] = -whole.least - whole.fold(search.p)
        w, b = whole.matrix.model(search.path.x)
        return Found(w, b, steps, problem.loss.nearest_dual(alpha, problem.y))


def products_of(problem: Problem, block: Block, tol: float) -> tuple[np.ndarray, Any]:
    """Return K = A V⁻¹ Aᵀ, and None, or coordinates of the rows if K may have lost some of them.

    All problems of a fit share them.
    """
    key, v = (products_of, problem.regularizer), problem.regularizer.form.weights
    if key not in block.kept:
        scaled = block.rows if v is None else block.rows / np.sqrt(v)
        K = scaled @ scaled.T
        block.kept[key] = K, None if products_suffice(K, tol) else Reflections.of(block.data, v)
    made: tuple[np.ndarray, Any] = block.kept[key]
    return made


def terms_of(problem: Problem, block: Block, live: Any, tol: float) -> Terms:
    """Return the losses of the examples of positive weight."""
    kinks, lamn, v = problem.loss.kinks(problem.y[live]), problem.lam * problem.n, problem.regularizer.form.weights
    positions, jumps = np.array([k.position for k in kinks]), np.array([k.right - k.left for k in kinks])
    if problem.offset is not None:
        positions = positions - problem.offset[live]
    c = None if problem.sample_weight is None else problem.c[live]
    matrix: Rows | Gram
    if problem.n < problem.d:
        K = products_of(problem, block, tol)[0][live][:, live]
        matrix = Gram(block.rows[live], K, v, lamn, intercept=problem.fit_intercept)
    elif c is None and lamn in block.kept:
        matrix = block.kept[lamn]  # of another class, with the products of its columns
    else:
        rows = block.extended if problem.fit_intercept else block.rows
        ridge = np.zeros(rows.shape[1])
        ridge[: problem.d] = lamn if v is None else lamn * v
        matrix = Rows.of(rows[live], ridge, problem.d)
        if c is None:
            block.kept[lamn] = matrix
    return Terms(matrix, positions, jumps, kinks[0].left, c)


def started(terms: Terms) -> Path | None:
    """Return the least-squares fit to the kinks, with slopes that rise linearly over ``WIDTH`` root mean square residuals."""
    matrix, (several, n) = terms.matrix, terms.kinks.shape
    c = np.ones(n) if terms.c is None else terms.c
    total = float(np.add.reduce(c))
    targets = terms.fold(terms.kinks) / several
    if (x := matrix.fitted(targets, c, 1.0)) is None:
        return None
    off = matrix.margins(x) - targets
    unit = math.sqrt(float(c @ (off * off)) / total) or 1.0
    # With slopes p = J (½ + r/width) the first optimality condition is that of a least-squares fit.
    width = WIDTH * unit
    steepness = width / (float(np.add.reduce(terms.jumps, axis=None)) / n)
    middle = terms.least + terms.fold(0.5 * terms.jumps)
    x = matrix.fitted(targets - steepness * middle, c, steepness)
    if x is None or not math.isfinite(float(x @ x)):
        return None
    r = matrix.margins(x) - terms.kinks
    boxes = np.empty((4, *r.shape))
    p, q, s, t = boxes
    np.divide(r, width, out=p)
    p += 0.5
    np.maximum(p, INSIDE, out=p)
    np.minimum(p, 1.0 - INSIDE, out=p)
    p *= terms.jumps
    np.subtract(terms.jumps, p, out=q)
    np.maximum(-r, 0.0, out=s)
    s += APART * unit
    np.add(s, r, out=t)
    return Path(terms, x, r, boxes, unit)
