"""A primal–dual interior-point method (Mehrotra's predictor–corrector) for convex piecewise linear losses.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,      z_i = ã_iᵀx + o_i,  ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

A penalty t_j |w_j| is one of the φ_i (:mod:`~dualnewton.solvers.primal.kinked_view`), and the ridge may be zero: then this is a
linear program, and n(P − D) is finite only once the first condition below holds.

A convex piecewise linear φ_i is a sum over its kinks k_im, m = 1 … M, at which its slope rises by J_im from u_i on the left:

    φ_i(z) = u_i z + Σ_m J_im max(0, z − k_im) + constant.

With p_im ∈ [0, J_im] for the part of a jump that is taken, q = J − p, and z_i − k_im = t_im − s_im, the optimality conditions are

    ridge ∘ x + Σ_i c_i ã_i (u_i + Σ_m p_im) = 0,      p s = 0,  q t = 0,      p, q, s, t ≥ 0,

and α_i = −(u_i + Σ_m p_im) is a feasible dual point at every step. (Its sum Σ c_i α_i is zero once the first condition holds.)
The method follows p s = q t = μ → 0; when the first condition holds, n(P − D) = Σ c_i (p s + q t). Each of 10 to 30 steps solves
with one weighted Gram matrix (:mod:`~dualnewton.solvers.primal.newton_system`), whatever λ is. (Mehrotra, On the implementation
of a primal-dual interior point method, 1992; Gondzio, Multiple centrality corrections in a primal-dual method for linear
programming, 1996; for quantile regression Portnoy and Koenker, The Gaussian hare and the Laplacian tortoise, 1997.)

When rounding ends the steps early, or the certificate misses ``tol``, the linear system of the examples on a kink
(:mod:`~dualnewton.solvers.dual.kink_system`) finishes. Without a ridge the nearest vertex is always tried
(:mod:`~dualnewton.solvers.primal.vertex`), which has coefficients that are exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.dual.kink_system import solved_on_kinks
from dualnewton.solvers.primal.kinked_view import View, root_mean_squares
from dualnewton.solvers.primal.newton_system import NewtonSystem, Operator, WithCoordinates
from dualnewton.solvers.primal.vertex import vertex_near
from dualnewton.solvers.protocol import Method, Point

START = 2.0
"""s and t start with this multiple of the root mean square distance of a margin from its kinks."""

BOUNDARY = 0.99
"""Fraction of the way to the boundary of p, q, s, t > 0 that a step goes at most; it tends to one with μ."""

REACH, SPREAD = 0.3, 3.0
"""A centrality correction aims at a step that is longer by ``REACH`` and brings the products p s and q t
at its end back into [μ/SPREAD, μ·SPREAD]."""

SLOW, CENTRAL, SHORTER = 0.1, 1e-2, 20
"""While μ decreases by no more than the factor ``SLOW``, a step is shortened until the products at its end are at least
``CENTRAL`` times their mean, at most this many times."""

PREDICTED, CORRECTED = math.inf, 1e-4
"""Residual of the linear system, as a fraction of the gap, that is small enough for the predictor, of which only the target of
μ and a second-order term are used, and for the step itself."""

PATIENCE = 6
"""Consecutive steps without a smaller residual after which rounding is assumed to have stopped the method."""

NEAR = 1e-3
"""Relative gap above which the examples on a kink are not known well enough for their linear system."""

NEARLY = 100.0
"""A model with zeros is nearly accurate enough if its gap is within this factor of the tolerance."""

NOTHING = 1e-18
"""Gap, in units of a margin, below which it is rounding."""

SHORTEST = 1e-10
"""Steps shorter than this are treated as none."""


@dataclass(frozen=True, eq=False)
class State:
    """A point of one model.

    Attributes
    ----------
    x : array
        (w, b).
    z : array of shape (n,)
        ãᵀx of each example, without offsets.
    boxes : array of shape (4, M, n)
        p, q, s, t.
    imbalance : array
        ridge ∘ x + Σ_i c_i ã_i (u_i + Σ_m p_im).
    residual : float
        An estimate of n(P − D).
    scale : float
        The unit of s and t.
    single : bool
        Whether float32 is accurate enough for the matrix of the next step.
    """

    x: np.ndarray
    z: np.ndarray
    boxes: np.ndarray
    imbalance: np.ndarray
    residual: float
    scale: float
    single: bool


class InteriorPoint(Method):
    """Models over the same data, each with its own steps.

    Parameters
    ----------
    starts : sequence of (Problem, CertifiedPair)
        Problems that share X, with a piecewise linear loss and a penalty Σ ½ v_j w_j² + t_j |w_j|, which may be zero, and
        their starting points.
    operator : Operator
        Products with the data.
    tol : float
        The wanted relative gap.
    corrections : int
        Limit on centrality corrections per step: each costs two or three products with the data, and saves some steps.
    largest_system : int
        Limit on the examples in the linear system of the kinks.
    single : bool
        Whether the first matrices are computed in float32.
    """

    def __init__(
        self,
        starts: Sequence[tuple[Problem, CertifiedPair]],
        operator: Operator,
        *,
        tol: float,
        corrections: int,
        largest_system: int,
        single: bool = False,
    ) -> None:
        self.single, self.corrections = single, corrections
        self.tol, self.largest_system, first = tol, largest_system, starts[0][0]
        sizes = root_mean_squares(first.data, intercept=first.fit_intercept)
        self.problems = [problem for problem, _ in starts]
        self.views = [View(problem, sizes) for problem in self.problems]
        with_penalty = self.views[0].thresholds
        self.operator: Operator = WithCoordinates(operator, sizes) if with_penalty else operator
        self.states = [self._start(view, pair) for view, (_, pair) in zip(self.views, starts, strict=True)]
        self.best = list(self.states)  # states with the least residual so far
        self.idle = [0] * len(starts)  # consecutive steps without a smaller residual

    def _start(self, view: View, pair: CertifiedPair) -> State:
        """Return an interior point; it is nearer to the pair if the gap of the pair is smaller."""
        x = np.append(pair.w, pair.intercept) if view.rows.fit_intercept else np.array(pair.w)
        z = self.operator.times(x)
        ahead = view.kinks - z
        scale = START * math.sqrt(float(np.square(ahead).mean())) or 1.0
        inside = min(0.5, math.sqrt(max(pair.certificate.relative_gap, 0.0)))
        p = np.clip(view.split(pair.alpha), inside * view.jumps, (1.0 - inside) * view.jumps)
        apart = 2.0 * inside * scale
        boxes = np.stack([p, view.jumps - p, np.maximum(ahead, 0.0) + apart, np.maximum(-ahead, 0.0) + apart])
        imbalance = view.ridge * x + self.operator.transposed_times(view.c * view.slopes(p))
        return State(x, z, boxes, imbalance, _residual(view, boxes, imbalance, scale), scale, self.single)

    # A step ------------------------------------------------------------------------------------------------------------

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        epochs = 0.0
        try:
            for k in range(len(self.states)):
                epochs = max(epochs, self._advance(k, Deadline(deadline), most))
        except OutOfTime:
            return max(epochs, 1.0)
        return epochs

    def _advance(self, k: int, deadline: Deadline, most: float) -> float:
        """Take a step of model k, and return the number of passes over the data; beyond ``most``, only necessary ones."""
        view, state = self.views[k], self.states[k]
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            found, epochs = self._stepped(view, state, deadline, most)
        if found is None or not math.isfinite(found.residual):
            if epochs < most:  # otherwise the limit may be the cause
                self.idle[k] = PATIENCE
            return epochs
        self.states[k] = found
        self.idle[k] = 0 if found.residual < self.best[k].residual else self.idle[k] + 1
        if self.idle[k] == 0:
            self.best[k] = found
        return epochs

    def _stepped(self, view: View, state: State, deadline: Deadline, most: float) -> tuple[State | None, float]:
        """Return the state after a step, None if there is none, and the passes over the data.

        After ``most`` passes there are no more refinements and corrections.

        1. Factorise. 2. Predict: a step towards μ = 0 shows how far μ can decrease. 3. Correct: a step to that μ, with the
        second- order term of the predictor. 4. Correct for centrality, while that makes the step longer. 5. Move.
        """
        boxes = state.boxes
        if view.gap(boxes) <= NOTHING * state.scale * float(view.c.sum()):
            return None, 0.0
        # 1.
        directions = _Directions(self.operator, view, state, deadline, most)
        # 2.
        mu = view.mean(directions.products)
        predicted = directions.towards(-directions.products, PREDICTED)
        reached = view.mean(directions.products_at(predicted, predicted.length))
        target = min(1.0, reached / mu) ** 3 * mu
        # 3.
        aim = target - directions.products - predicted.way[:2] * predicted.way[2:]
        step = directions.towards(aim, CORRECTED)
        if state.single and directions.system.weak:
            spent = directions.passes
            found, more = self._stepped(view, replace(state, single=False), deadline, most - spent)
            return found, spent + more
        # 4.
        for _ in range(self.corrections):
            if step.length >= 1.0 or directions.passes >= most:
                break
            there = directions.products_at(step, min(1.0, step.length + REACH))
            change = np.clip(there, target / SPREAD, target * SPREAD) - there
            aim = aim + np.maximum(change, -SPREAD * target)
            other = directions.towards(aim, CORRECTED)
            if not other.length >= step.length + 0.1 * REACH:
                break
            step = other
        # 5.
        deadline.check()
        epochs = directions.passes
        length = min(1.0, max(BOUNDARY, 1.0 - mu / state.scale) * step.length)
        if target > SLOW * mu:
            length = directions.central(step, length)
        if not length > SHORTEST:
            return None, epochs
        z, moved = state.z + length * step.z, boxes + length * view.alive(step.way)
        view.take_up(moved, z)
        # The imbalance is linear in x and p, so that the residual of the linear system gives it without another product.
        imbalance = (1.0 - length) * state.imbalance - length * step.left
        residual = _residual(view, moved, imbalance, state.scale)
        return State(state.x + length * step.x, z, moved, imbalance, residual, state.scale, state.single), epochs

    # The interface of the loop ------------------------------------------------------------------------------------------------

    def point(self, k: int) -> KinkedPoint | VertexPoint:
        view, state = self.views[k], self.best[k]
        w = state.x[: view.rows.d]
        if not view.has_ridge:
            return self._vertex_point(view, state, NEARLY if view.thresholds and not self.is_stuck(k) else 1.0)
        alpha = view.dual_point(state.boxes[0])
        if view.thresholds:
            return KinkedPoint(w, alpha)
        at, vertices = view.nearest_vertices(state.boxes)
        if np.count_nonzero(~np.isnan(at)) > self.largest_system:
            return KinkedPoint(w, alpha)
        return KinkedPoint(w, alpha, (self.tol, math.inf if self.is_stuck(k) else NEAR), at, vertices)

    def _vertex_point(self, view: View, state: State, nearly: float) -> VertexPoint:
        """Return w, b and α, with p moved by the Newton step that removes the remaining imbalance, and the vertex."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            directions = _Directions(self.operator, view, state, Deadline(math.inf))
            moved = directions.system.solve(state.imbalance, np.zeros_like(state.boxes[0]), 0.0).p
            if not np.isfinite(moved).all():  # both slacks of a kink are zero, and its curvature is infinite
                moved = np.zeros_like(moved)
            balanced = np.clip(state.boxes[0] + view.alive(moved), 0.0, view.jumps)
            vertex = vertex_near(view, self.operator, state.x, state.boxes, directions.system.D)
        points = [] if vertex is None else [vertex]
        if vertex is None and view.thresholds:
            points.append((view.with_zeros(state.x, state.boxes, state.scale), balanced))
        points.append((state.x, balanced))
        return VertexPoint(tuple((*_parted(view, x), view.dual_point(p)) for x, p in points), self.tol, nearly)

    def residual(self, k: int) -> float:
        return self.best[k].residual / self.problems[k].n

    def is_stuck(self, k: int) -> bool:
        return self.idle[k] >= PATIENCE

    def keep(self, wanted: Sequence[int]) -> None:
        for name in ("problems", "views", "states", "best", "idle"):
            setattr(self, name, [getattr(self, name)[k] for k in wanted])

    def state(self) -> tuple[tuple[State, State, int], ...]:
        return tuple(zip(self.states, self.best, self.idle, strict=True))

    def restore(self, state: tuple[tuple[State, State, int], ...]) -> None:
        self.states, self.best, self.idle = map(list, zip(*state, strict=True))

    def close(self) -> None:
        self.operator.close()


@dataclass(frozen=True, eq=False)
class _Direction:
    """Δx, ÃΔx, Δ(p, q, s, t), and the largest multiple of these, one at most, that leaves p, q, s, t nonnegative."""

    x: np.ndarray
    z: np.ndarray
    way: np.ndarray
    length: float
    left: Any  # the residual of the first equation of the linear system; None for a predictor


class _Directions:
    """Newton directions at a state, by one factor.

    Attributes
    ----------
    products : array of shape (2, M, n)
        p s and q t.
    """

    def __init__(
        self, operator: Operator, view: View, state: State, deadline: Deadline, most: float = math.inf
    ) -> None:
        self.view, self.state, (self.values, self.slacks) = view, state, (state.boxes[:2], state.boxes[2:])
        self.products, self.gap = self.values * self.slacks, view.gap(state.boxes)
        self.off = state.z - view.kinks + self.slacks[0] - self.slacks[1]
        D = 1.0 / (self.slacks / self.values).sum(axis=0)
        of_step = operator, view.ridge, view.c, D, self._size, deadline.check
        self.system = NewtonSystem(*of_step, single=state.single, most=2.0 * (most - 1.0))

    @property
    def passes(self) -> float:
        """Passes over the data so far: one for the matrix, and a half for each product."""
        return 1.0 + 0.5 * self.system.products

    def _size(self, imbalance: np.ndarray) -> float:
        return self.view.size(imbalance, self.state.scale)

    def towards(self, aim: np.ndarray, enough: float) -> _Direction:
        """Return the direction that changes the products by ``aim`` to first order and removes the imbalance.

        It is refined until the remaining imbalance is this fraction of the gap.
        """
        wanted = aim / self.values
        found = self.system.solve(self.state.imbalance, self.off + wanted[0] - wanted[1], enough * self.gap)
        slopes = np.stack([found.p, -found.p])
        way = np.concatenate([slopes, wanted - self.slacks * slopes / self.values])
        return _Direction(found.x, found.z, way, self.view.length(self.state.boxes, way), found.left)

    def central(self, direction: _Direction, length: float) -> float:
        """Shorten a step until no product p s or q t is much smaller than their mean, which would make the next steps short."""
        for _ in range(SHORTER):
            there = self.view.living(self.products_at(direction, length))
            if float(there.min()) >= CENTRAL * float(there.mean()):
                break
            length *= 0.9
        return length

    def products_at(self, direction: _Direction, length: float) -> np.ndarray:
        """Return p s and q t at a multiple of a direction."""
        return (self.values + length * direction.way[:2]) * (self.slacks + length * direction.way[2:])


@dataclass(frozen=True, eq=False)
class KinkedPoint(Point):
    """w and α, and the examples that seem to lie on a kink, whose linear system is tried if w and α miss the tolerance."""

    w: np.ndarray
    alpha: np.ndarray
    tried: tuple[float, float] = (math.inf, math.inf)  # range of relative gaps
    at: np.ndarray | None = None
    vertices: np.ndarray | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.w, self.alpha)

    @staticmethod
    def certified(problems: Sequence[Problem], points: Sequence[KinkedPoint]) -> list[CertifiedPair]:
        """Have each problem certify its point."""
        return [point.certified_by(problem) for problem, point in zip(problems, points, strict=True)]

    def certified_by(self, problem: Problem) -> CertifiedPair:
        """Have the problem certify w and α and, if their gap is too large, the solution of the linear system of the kinks."""
        pair, (least, most) = problem.certified_pair(self.w, alpha=self.alpha), self.tried
        if not least < pair.certificate.relative_gap <= most or self.at is None or self.vertices is None:
            return pair
        found = solved_on_kinks(problem, self.vertices, self.at)
        return pair if found is None else problem.certified_pair(found[0], alpha=found[1]).joined_with(pair)


@dataclass(frozen=True, eq=False)
class VertexPoint(Point):
    """A vertex of a linear program, or a point with zeros for small coefficients, and the interior point: w, b and α of each.

    If the first meets the tolerance, or nearly does (within a factor), the second is not certified, since a few more steps then
    give a model with zeros.
    """

    points: tuple[tuple[np.ndarray, float, np.ndarray], ...]
    tol: float
    nearly: float

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(self.points))

    @staticmethod
    def certified(problems: Sequence[Problem], points: Sequence[VertexPoint]) -> list[CertifiedPair]:
        """Have each problem certify its points."""
        return [point.certified_by(problem) for problem, point in zip(problems, points, strict=True)]

    def certified_by(self, problem: Problem) -> CertifiedPair:
        """Have the problem certify the first point and, if its relative gap is too large, the interior point."""
        first, *others = self.points
        pair = problem.certified_pair(*first)
        if others and pair.certificate.relative_gap > self.nearly * self.tol:
            pair = pair.joined_with(problem.certified_pair(*others[0]))
        return pair


def _residual(view: View, boxes: np.ndarray, imbalance: np.ndarray, scale: float) -> float:
    """Return an estimate of n(P − D)."""
    return view.gap(boxes) + view.size(imbalance, scale)


def _parted(view: View, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Return w and b."""
    d = view.rows.d
    return x[:d], float(x[d]) if view.rows.fit_intercept else 0.0
