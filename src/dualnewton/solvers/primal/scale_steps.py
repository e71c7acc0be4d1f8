"""Primal–dual interior-point steps for Huber's regression with a joint scale (:mod:`~dualnewton.objective.huber_scale`).

The dual is a problem with a box and a ball: |ψ_i| ≤ ε for ψ = −α, and Σ c_i ψ_i² ≤ Σ c_i, whose multiplier is the scale σ. With
p = ε + ψ, q = ε − ψ and κ = ½ Σ c_i (1 − ψ_i²) the optimality conditions are

    ridge ∘ x + Σ_i c_i ã_i ψ_i = 0,     ã_iᵀx − y_i = σψ_i + t_i − s_i,     p s = q t = 0,  σκ = 0,     p, q, s, t, σ, κ ≥ 0,

and a step of Mehrotra's method (:mod:`~dualnewton.solvers.primal.interior_steps`) towards p s = q t = σκ = μ solves

    ridge ∘ Δx + Σ_i c_i ã_i Δp_i = −imbalance,    Δp_i / D_i = ã_iᵀΔx − ψ_i Δσ + g_i,    (κ/σ)Δσ − Σ_i c_i ψ_i Δp_i = m,

1/D = σ + s/p + t/q: one weighted Gram matrix of the rows, bordered by the column of σ. The number of steps, 5 to 20, hardly
depends on the best scale. Newton's method takes many where that is zero or nearly so, with hardly more examples than features:
its steps are exact for the present set of outliers only, and that set changes by few examples at a time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.solvers.primal.interior_steps import take_up
from dualnewton.solvers.primal.step_systems import Check

BOUNDARY = 0.99
"""Fraction of the way to the boundary of p, q, s, t, σ, κ > 0 that a step goes at most."""

INSIDE, WIDTH = 0.8, 3.0
"""At the start |ψ| ≤ ``INSIDE`` ε, and ψ_i = r_i over ``WIDTH`` root mean square residuals where that is less."""

SHRINK = 0.9
"""At the start, the largest Σ c_i ψ_i² as a fraction of Σ c_i."""

LEAST = 1e-3
"""Least unit of a residual at the start, as a fraction of the deviation of the targets: with as many features as examples the
residuals of the least-squares fit are zero."""

SHORTEST, NOTHING = 1e-8, 1e-18
"""A step shorter than the first number is none, and μ below the second, in units of a residual, is rounding."""

MOST_REFINEMENTS, CORRECTED = 4, 1e-3
"""Limit on further solves with one factor, and the imbalance that a step may leave, as a fraction of that which it removes or, if
that is larger, of μ."""


@dataclass(frozen=True, eq=False)
class ScalePoint:
    """A point of the search, as plain data."""

    x: np.ndarray  # (w, b)
    scale: float
    boxes: np.ndarray  # (4, n) p, q, s, t
    unit: float  # of a residual
    single: bool  # whether the matrix of the next step is computed in float32


@dataclass(frozen=True, eq=False)
class ScaleTerms:
    """The examples, and the linear systems of the steps."""

    system: Any  # a System of step_systems.py
    y: np.ndarray
    c: np.ndarray
    epsilon: float

    @cached_property
    def live(self) -> np.ndarray:
        """One for examples of positive weight, zero for the others, which do not move."""
        return (self.c > 0.0) * 1.0

    @cached_property
    def count(self) -> float:
        """Number of the products p s, q t and σκ."""
        return 2.0 * float(self.live.sum()) + 1.0

    def ball_slack(self, psi: np.ndarray) -> float:
        """κ, the distance of ψ from the boundary of the ball."""
        return 0.5 * float(self.c @ (1.0 - psi * psi))

    def started(self, *, single: bool = False) -> ScalePoint | None:
        """Return the least-squares fit, with the root mean square of its residuals as the scale; None if it has no factor."""
        total = float(self.c.sum())
        x = self.system.fitted(self.y, self.c, 1.0, single=single)
        if x is None or not np.isfinite(x).all():
            return None
        r, off = self.system.margins(x) - self.y, self.y - float(self.c @ self.y) / total
        spread, rms = (math.sqrt(float(self.c @ (part * part)) / total) for part in (off, r))
        unit = max(rms, LEAST * spread) or 1.0
        psi = np.clip(r / (WIDTH * unit), -INSIDE * self.epsilon, INSIDE * self.epsilon)
        psi *= math.sqrt(min(1.0, SHRINK * total / max(float(self.c @ (psi * psi)), SHRINK * total)))
        left = r - unit * psi
        s = np.maximum(-left, 0.0) + unit
        boxes = np.stack([self.epsilon + psi, self.epsilon - psi, s, s + left])
        boxes[2:] *= self.live  # examples of weight zero have no products
        return ScalePoint(x, unit, boxes, unit, single)

    def step(self, at: ScalePoint, check: Check = None) -> ScalePoint | None:
        """Take a step; None if there is none, because of rounding.

        1. Factorise. 2. Predict how far μ can decrease. 3. Correct: a step to that μ, with the second-order terms. 4. Move.
        """
        # 1.
        directions = Directions(self, at, check)
        if not (directions.mu > NOTHING * at.unit and directions.kappa > 0.0):
            return None
        if not directions.possible:
            return self.step(replace(at, single=False), check) if at.single else None
        # 2.
        first = directions.towards(-at.boxes[2:], -directions.kappa)
        reached = directions.mean(first, directions.length(first))
        mu = min(max(reached / directions.mu, 0.0), 1.0) ** 3 * directions.mu
        # 3.
        change = (mu - first.way[:2] * first.way[2:]) / at.boxes[:2] - at.boxes[2:]
        square = 0.5 * float(self.c @ np.square(first.way[0]))
        to_kappa = (mu - first.scale * first.kappa + (at.scale + first.scale) * square) / at.scale - directions.kappa
        taken = directions.towards(change, to_kappa, -first.scale * first.way[0], refinements=MOST_REFINEMENTS)
        if at.single and not taken.accurate:
            return self.step(replace(at, single=False), check)
        # 4.
        length = min(1.0, BOUNDARY * directions.length(taken))
        if not length > SHORTEST:
            return None
        x, scale, boxes = at.x + length * taken.x, at.scale + length * taken.scale, at.boxes + length * taken.way
        # σψ is not linear: s or t takes up what the step leaves of the second condition.
        take_up(boxes, self.system.margins(x) - self.y - 0.5 * scale * (boxes[0] - boxes[1]))
        boxes[2:] *= self.live
        return replace(at, x=x, scale=scale, boxes=boxes)

    def gap(self, at: ScalePoint) -> float:
        """An estimate of n(P − D), from the products and the imbalance."""
        (p, q, s, t), system = at.boxes, self.system
        psi = 0.5 * (p - q)
        own: float = system.gap(system.imbalance(at.x, self.c * psi), at.unit)
        return float(self.c @ (p * s + q * t)) + at.scale * self.ball_slack(psi) + own

    def model(self, at: ScalePoint) -> tuple[np.ndarray, float, float, np.ndarray]:
        """Return w, b, σ and α."""
        w, b = self.system.model(at.x)
        return w, b, at.scale, 0.5 * (at.boxes[1] - at.boxes[0])


class Direction(NamedTuple):
    """Δx, Δσ, Δ(p, q, s, t), −Σ c ψ Δp, the change of κ to first order, and whether the linear system was solved accurately."""

    x: np.ndarray
    scale: float
    way: np.ndarray
    kappa: float
    accurate: bool


class Directions:
    """Newton directions at a point, by one factor."""

    def __init__(self, terms: ScaleTerms, at: ScalePoint, check: Check = None) -> None:
        self.terms, self.at, system = terms, at, terms.system
        values, slacks = at.boxes[:2], at.boxes[2:]
        self.psi = psi = 0.5 * (values[0] - values[1])
        self.kappa = terms.ball_slack(psi)
        self.mu = (float(np.vdot(values, slacks)) + at.scale * self.kappa) / terms.count
        self.imbalance = system.imbalance(at.x, terms.c * psi)
        self.ratio = slacks / values
        self.D = 1.0 / (at.scale + self.ratio[0] + self.ratio[1])
        mass = terms.c * self.D
        self.possible = system.factorise(mass, check=check, single=at.single)
        if self.possible:
            self.own = self.kappa / at.scale
            self.border = system.sums(mass * psi)
            self.column = system.solved(self.border.copy())
            self.schur = self.own + float((mass * psi) @ (psi - system.margins(self.column)))
            self.possible = self.schur > 0.0

    def _solved(self, left: np.ndarray, right: float) -> tuple[np.ndarray, float]:
        """Solve H Δx − h Δσ = left, −hᵀΔx + (κ/σ + Σ c D ψ²) Δσ = right, where H is the weighted Gram matrix with the ridge."""
        x = self.terms.system.solved(left)
        scale = (right + float(self.border @ x)) / self.schur
        return x + scale * self.column, scale

    def towards(
        self, change: np.ndarray, to_kappa: float, off: np.ndarray | float = 0.0, *, refinements: int = 0
    ) -> Direction:
        """Return the direction for which Δs + (s/p)Δp and Δt + (t/q)Δq are ``change`` and (κ/σ)Δσ − Σ c ψ Δp is ``to_kappa``.

        ``off`` is what is added to the residuals of the second optimality condition. The equations of Δx and of Δp are refined
        apart, since D is large for most examples near the optimum.
        """
        c, psi, D, system, accurate = self.terms.c, self.psi, self.D, self.terms.system, refinements == 0
        push = off + change[0] - change[1]
        dp = D * push
        x, scale = self._solved(-(self.imbalance + system.sums(c * dp)), to_kappa + float((c * psi) @ dp))
        z = system.margins(x) - scale * psi
        dp += D * z
        goal = CORRECTED * max(float(np.abs(self.imbalance).max()), self.mu / self.at.unit)
        for _ in range(refinements):
            left = -(self.imbalance + system.imbalance(x, c * dp))
            if accurate := bool(np.abs(left).max() <= goal):
                break
            rest = to_kappa + float((c * psi) @ dp) - self.own * scale
            error = D * (z + push) - dp
            more, wider = self._solved(left - system.sums(c * error), rest + float((c * psi) @ error))
            along = system.margins(more) - wider * psi
            x, scale, z, dp = x + more, scale + wider, z + along, dp + error + D * along
        way = np.empty_like(self.at.boxes)
        way[0], way[1] = dp, -dp
        way[2:] = change - self.ratio * way[:2]
        way *= self.terms.live
        return Direction(x, scale, way, -float((c * psi) @ way[0]), accurate)

    def length(self, direction: Direction) -> float:
        """Return the largest multiple of a direction, one at most, that leaves p, q, s, t, σ and κ nonnegative."""
        boxes = np.where(self.terms.live > 0.0, self.at.boxes, 1.0)
        most = max(1.0, -float((direction.way / boxes).min()), -direction.scale / self.at.scale)
        square = 0.5 * float(self.terms.c @ np.square(direction.way[0]))
        # κ + aκ′ − a²·square ≥ 0, in the form of the quadratic formula in which nothing cancels
        root = math.sqrt(direction.kappa**2 + 4.0 * square * self.kappa)
        return min(1.0 / most, 2.0 * self.kappa / max(root - direction.kappa, self.kappa))

    def mean(self, direction: Direction, length: float) -> float:
        """μ at a multiple of a direction."""
        boxes, terms = self.at.boxes + length * direction.way, self.terms
        kappa = terms.ball_slack(self.psi + length * direction.way[0])
        product = float(np.vdot(boxes[:2], boxes[2:]))
        return (product + (self.at.scale + length * direction.scale) * kappa) / terms.count
