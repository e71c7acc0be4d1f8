"""Primal–dual interior-point steps (Mehrotra's predictor–corrector) for convex piecewise linear losses.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,      z_i = ã_iᵀx + o_i,  ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

A convex piecewise linear φ_i is a sum over its kinks k_im, m = 1 … M, at which its slope rises by J_im from u_i on the left:

    φ_i(z) = u_i z + Σ_m J_im max(0, z − k_im) + constant.

With p_im ∈ [0, J_im] for the part of a jump that is taken, q = J − p, and r_im = z_i − k_im = t_im − s_im, the optimality
conditions are

    ridge ∘ x + Σ_i c_i ã_i (u_i + Σ_m p_im) = 0,      p s = 0,  q t = 0,      p, q, s, t ≥ 0,

and α_i = −(u_i + Σ_m p_im) is a feasible dual point at every step. (Its sum Σ c_i α_i is zero once the first condition holds.)
The method follows p s = q t = μ e_i → 0, where e_i ∝ 1/√c_i has the weighted mean one, so that n(P − D) = Σ c_i (p s + q t) =
μ Σ c_i when the first condition holds. (With e_i = 1 the products of light examples, such as the thresholds of a weak penalty,
tend to zero long before they matter, and steps become short; with e_i ∝ 1/c_i systems of the size of the rows lose more digits.)
A step solves

    ridge ∘ Δx + Σ_i c_i ã_i Σ_m Δp_im = −imbalance,        Δp_im / D_im = ã_iᵀΔx + g_im,        1/D = s/p + t/q

for one D and two or more g, with one weighted Gram matrix (:mod:`~dualnewton.solvers.primal.step_systems`), whatever λ is. Near
the optimum D grows without bound for examples on a kink and vanishes for all others, so that the matrix is badly conditioned:
with λn = 10⁻³ the factor alone loses all digits at a relative gap of about 10⁻⁶. Refinement restores them: the residuals of the
two equations above, in which nothing large cancels, are solved for with the same factor and added to Δx and to Δp separately.

(Mehrotra, On the implementation of a primal-dual interior point method, 1992; Gondzio, Multiple centrality corrections in a
primal-dual method for linear programming, 1996; for quantile regression Portnoy and Koenker, The Gaussian hare and the Laplacian
tortoise, 1997.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property

BOUNDARY = 0.995
"""Fraction of the way to the boundary of p, q, s, t > 0 that a step goes at most; it tends to one with μ."""

REACH, SPREAD = 0.3, 3.0
"""A centrality correction aims at a step that is longer by ``REACH`` and brings p s/e_i and q t/e_i
at its end back into [μ/SPREAD, μ·SPREAD]."""

CENTRAL, SHORTER = 1e-2, 20
"""If rounding limits the accuracy of a step, it is shortened until the products at its end are at least ``CENTRAL`` times their
mean, at most this many times."""

CORRECTED = 1e-4
"""Residual of the linear system, as a fraction of the gap, that is small enough for a step. (Of the predictor only the target of
μ and a second-order term are used: it is not refined.)"""

MOST_REFINEMENTS = 6
"""Limit on further solves with one factor."""

FEW_REFINEMENTS = 2
"""Number of refinements that cost less than a matrix in float64 instead of float32."""

GAIN = 0.25
"""A refinement that does not reduce the residual to this fraction is the last one."""

SMALL_PART = 10.0
"""s or t absorbs a rounding error if it is this many times as large."""

SHORTEST = 1e-10
"""Steps shorter than this are treated as none."""

NOTHING = 1e-18
"""Mean of p s and q t, in units of a margin, below which it is rounding."""

WIDTH, NARROWER = 6.0, 2.0
"""Width, in root mean square residuals of the least-squares fit, over which a slope rises by its jump at the start: of losses
that are flat on one side of their kink, and of losses that grow on both sides. (With 2 instead of 6, and ``NEARER``, fits of the
latter take 0.89 to 0.92 of the steps, quantiles with a ridge 0.78 of them, and fits of the hinge 1.2 times as many.)"""

EXPECTED = 0.5
"""Expected root mean square residual of a least-squares fit, as a fraction of the deviation of the kinks."""

MULTIPLES, MANY = np.sqrt(2.0) ** np.arange(8), 512
"""Multiples of the least-squares fit of which the start is the best, by the losses of ``MANY`` to 2 ``MANY`` examples."""

WORTHWHILE = 0.8
"""A multiple is taken if it reduces the objective to this fraction; smaller reductions need a step more as often as one less."""

INSIDE, MULTIPLE_INSIDE, APART, NEARER = 0.1, 0.02, 1.0, 0.5
"""At the start p and q are at least ``INSIDE`` of the jump, or ``MULTIPLE_INSIDE`` at a multiple of the fit, and s and t at least
√e_i times ``APART`` root mean square residuals, or ``NEARER`` for losses that grow on both sides of their kinks."""


@dataclass(frozen=True, eq=False)
class Terms:
    """The losses of some examples as sums over kinks."""

    system: Any  # products with the examples, and the linear systems of the steps
    # (M, n) k_im without the offset, and J_im.
    kinks: np.ndarray
    jumps: np.ndarray
    least: np.ndarray  # (n,) slopes left of all kinks
    c: np.ndarray | None  # (n,) weights, if they are not all one
    live: np.ndarray | None = None  # (n,) examples of positive weight, if others are among them; these do not move
    fixed: np.ndarray | None = None  # Σ c_i ã_i (slope) of the examples that are left out, if there are any

    @cached_property
    def even(self) -> Any:
        """(n,) e_i: the products p s and q t on the central path with μ = 1; 1 where c_i = 0."""
        if self.c is None:
            return 1.0
        root = np.sqrt(self.c)
        return float(self.c.sum()) / float(root.sum()) / np.where(root > 0.0, root, 1.0)

    @cached_property
    def total_weight(self) -> float:
        """Sum of the weights of all products p s and q t."""
        return 2.0 * len(self.jumps) * (self.jumps.shape[1] if self.c is None else float(self.c.sum()))

    def fold(self, values: np.ndarray) -> np.ndarray:
        """Sum over the kinks of each example."""
        if len(values) == 1:
            return values[0]
        return values[0] + values[1] if len(values) == 2 else np.add.reduce(values, axis=0)

    def mass(self, values: np.ndarray) -> np.ndarray:
        """Sum over the kinks of each example, times its weight."""
        return self.fold(values) if self.c is None else self.c * self.fold(values)

    def total(self, values: np.ndarray) -> float:
        """Sum over the kinks of all examples, with their weights."""
        return float(values.sum() if self.c is None else self.c.dot(self.fold(values)))

    def slopes(self, p: np.ndarray) -> np.ndarray:
        """−α_i, times the weights."""
        u = self.least + self.fold(p)
        return u if self.c is None else self.c * u

    def imbalance(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The residual of the first optimality condition."""
        own: np.ndarray = self.system.imbalance(x, self.slopes(p))
        return own if self.fixed is None else own + self.fixed

    def at(
        self,
        x: np.ndarray,
        r: np.ndarray,
        boxes: np.ndarray,
        unit: float,
        imbalance: np.ndarray | None = None,
        *,
        single: bool = False,
    ) -> State:
        """Return the state at a point: μ, the imbalance unless it is known, and the gap."""
        if imbalance is None:
            imbalance = self.imbalance(x, boxes[0])
        if self.c is None:
            product = float(np.vdot(boxes[:2], boxes[2:]))
        else:
            products = boxes[:2] * boxes[2:]
            product = self.total(products[0]) + self.total(products[1])
        mu = product / self.total_weight
        return State(x, r, boxes, imbalance, mu, product + self.system.gap(imbalance, unit), unit, single)

    def restricted(self, kept: np.ndarray, p: np.ndarray) -> Terms:
        """Return the terms of some of all examples; p of the others is constant."""
        mass = self.slopes(p)
        mass[kept] = 0.0
        c = None if self.c is None else self.c[kept]
        fixed = self.system.sums(mass)
        kinks, jumps = self.kinks.take(kept, axis=1), self.jumps.take(kept, axis=1)
        return Terms(self.system.restricted(kept), kinks, jumps, self.least[kept], c, fixed=fixed)


class State(NamedTuple):
    """A point of one model."""

    x: np.ndarray  # (w, b), or other variables of the linear system that determine the margins
    r: np.ndarray  # (M, n) z − k
    boxes: np.ndarray  # (4, M, n) p, q, s, t
    imbalance: np.ndarray  # ridge ∘ x + Σ_i c_i ã_i (u_i + Σ_m p_im)
    mu: float  # weighted mean of p s and q t
    gap: float  # estimate of n(P − D), from p s, q t and the imbalance
    unit: float  # unit of a margin
    single: bool = False  # whether float32 is accurate enough for the matrix of the next step


class Direction(NamedTuple):
    """Δx, ÃΔx, Δ(p, q, s, t), and the largest multiple of these, one at most, that leaves p, q, s, t nonnegative."""

    x: np.ndarray
    z: np.ndarray
    way: np.ndarray
    length: float
    left: Any  # the imbalance that a whole step leaves; None if it was not computed


class Directions:
    """Newton directions at a state, by one factor."""

    def __init__(
        self,
        terms: Terms,
        state: State,
        check: Callable[[], None] | None = None,  # called between large pieces of work; may raise an exception
        most: float = math.inf,  # limit on products, beyond which solutions are not refined
    ) -> None:
        self.terms, self.state, self.most = terms, state, most
        self.products = 0  # with Ã and Ãᵀ so far
        self.weak = False  # whether a solution missed the requested accuracy, or needed many refinements
        self.values, self.slacks = values, slacks = state.boxes[:2], state.boxes[2:]
        self.ratio = ratio = slacks / values
        self.D = D = 1.0 / (ratio[0] + ratio[1])
        # Whether the matrix has a factor.
        self.possible = terms.system.factorise(terms.mass(D), check=check, single=state.single)

    def predicted(self) -> tuple[float, np.ndarray]:
        """Return μ at the end of the longest step towards p s = q t = 0, and Δp Δs/p + s and Δq Δt/q + t, negated.

        With u = Δp/p or Δq/q the slacks change by −(1 + u) of themselves, and Σ Δp Δs + Δq Δt = −Σ Δp Δz. The longest step,
        1/max(−u, 1 + u), and u(1 + u) depend on h = (u + ½)² alone.
        """
        terms, state = self.terms, self.state
        _, z = terms.system.direction(state.imbalance, terms.mass(self.D * state.r))
        self.products += 2
        dp = z[None] + state.r
        dp *= self.D
        if terms.live is not None:
            dp *= terms.live
        h = dp / self.values
        u, v = h  # Δp/p, and −Δq/q
        u += 0.5
        v -= 0.5
        h *= h
        length = 1.0 / max(1.0, 0.5 + math.sqrt(h.item(h.argmax())))  # an index is found faster than a value
        reached = (1.0 - length) * state.mu - length**2 * float(terms.mass(dp).dot(z)) / terms.total_weight
        h -= 1.25
        h *= self.slacks
        return reached, h

    def towards(self, change: np.ndarray, enough: float = math.inf) -> Direction:
        """Return the direction for which Δs + (s/p)Δp and Δt + (t/q)Δq are ``change``.

        It is refined until the imbalance that a whole step leaves is ``enough``; if any is small enough, it is not computed.
        """
        terms, state, left = self.terms, self.state, None
        push = change[0] - change[1]
        x, z = terms.system.direction(state.imbalance, terms.mass(self.D * push))
        self.products += 2
        way = np.empty_like(state.boxes)
        dp, slopes, moves = way[0], way[:2], way[2:]
        np.add(z[None], push, out=dp)
        dp *= self.D
        if enough < math.inf:
            x, z, dp[:], left = self.refined(x, z, dp, push, enough)
        np.negative(dp, out=way[1])
        np.multiply(self.ratio, slopes, out=moves)
        np.subtract(change, moves, out=moves)
        if terms.live is not None:
            way *= terms.live
        shares = way / state.boxes
        most = -shares.item(shares.argmin())
        return Direction(x, z, way, 1.0 if most <= 1.0 else 1.0 / most, left)

    def balancing(self) -> np.ndarray:
        """Return the change of p that removes the imbalance, as accurately as refinement can."""
        terms, nothing = self.terms, np.zeros_like(self.D)
        if not self.possible:
            return nothing
        x, z = terms.system.direction(self.state.imbalance, terms.mass(nothing))
        p = self.refined(x, z, self.D * z, nothing, 0.0)[2]
        return p if terms.live is None else p * terms.live

    def refined(
        self, x: np.ndarray, z: np.ndarray, p: np.ndarray, push: np.ndarray, enough: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return Δx, ÃΔx, Δp and the residual of the first equation, which is at most ``enough`` if that is possible."""
        terms, system = self.terms, self.terms.system
        left = self._imbalance_left(x, p)
        size = system.gap(left, self.state.unit)
        for count in range(MOST_REFINEMENTS + 1):
            if size <= enough:
                self.weak |= count > FEW_REFINEMENTS
                return x, z, p, left
            if self.products >= self.most:
                return x, z, p, left
            if count == MOST_REFINEMENTS:
                break
            off = self.D * (z + push) - p
            more, along = system.direction(left, terms.mass(off))
            self.products += 2
            others = x + more, z + along, p + (self.D * along + off)
            remains = self._imbalance_left(others[0], others[2])
            before, size = size, system.gap(remains, self.state.unit)
            if not size < before:
                break
            (x, z, p), left = others, remains
            if size > GAIN * before:
                break
        self.weak = True
        return x, z, p, left

    def _imbalance_left(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        self.products += 1
        left: np.ndarray = self.state.imbalance + self.terms.system.imbalance(x, self.terms.mass(p))
        return left

    def products_at(self, direction: Direction, length: float) -> np.ndarray:
        """Return p s and q t at a multiple of a direction, relative to those of the central path."""
        products = (self.values + length * direction.way[:2]) * (self.slacks + length * direction.way[2:])
        return products if self.terms.c is None else products / self.terms.even

    def central(self, direction: Direction, length: float) -> float:
        """Shorten a step until no product p s or q t is much smaller than their mean, which would make the next steps short."""
        for _ in range(SHORTER):
            there = self.products_at(direction, length)
            there = there if self.terms.live is None else there[..., self.terms.live]
            if float(there.min()) >= CENTRAL * float(there.mean()):
                break
            length *= 0.9
        return length


class Taken(NamedTuple):
    """The state after a step (None if there is none), the multiple of the direction, and the passes over the data."""

    state: State | None
    length: float
    passes: float


def step(
    terms: Terms,
    state: State,
    *,
    fine: bool,  # whether solutions of the linear system are refined
    # Limit on centrality corrections: each costs two or three products with the data, and saves some steps.
    corrections: int = 0,
    check: Callable[[], None] | None = None,  # called between large pieces of work; may raise an exception
    most: float = math.inf,  # passes over the data after which there are no more refinements and corrections
) -> Taken:
    """Take a step.

    1. Factorise. 2. Predict: a step towards μ = 0 shows how far μ can decrease. 3. Correct: a step to that μ, with the second-
    order term of the predictor. 4. Correct for centrality, while that makes the step longer. 5. Move.
    """
    mu = state.mu
    if not mu > NOTHING * state.unit:
        return Taken(None, 0.0, 0.0)
    # 1.
    directions = Directions(terms, state, check, 2.0 * (most - 1.0))
    if not directions.possible:
        return Taken(None, 0.0, 1.0)
    # 2.
    reached, change = directions.predicted()
    target = min(max(reached / mu, 0.0), 1.0) ** 3 * mu
    # 3.
    change += target * terms.even / directions.values
    enough = CORRECTED * state.gap if fine else math.inf
    taken = directions.towards(change, enough)
    if state.single and directions.weak:
        spent = 1.0 + 0.5 * directions.products
        again = step(
            terms,
            state._replace(single=False),
            fine=fine,
            corrections=corrections,
            check=check,
            most=most - spent,
        )
        return again._replace(passes=spent + again.passes)
    # 4.
    for _ in range(corrections):
        if taken.length >= 1.0 or 1.0 + 0.5 * directions.products >= most:
            break
        there = directions.products_at(taken, min(1.0, taken.length + REACH))
        central = np.clip(there, target / SPREAD, target * SPREAD) - there
        change = change + np.maximum(central, -SPREAD * target) * terms.even / directions.values
        other = directions.towards(change, enough)
        if not other.length >= taken.length + 0.1 * REACH:
            break
        taken = other
    # 5.
    if check is not None:
        check()
    passes = 1.0 + 0.5 * directions.products
    length = min(1.0, max(BOUNDARY, 1.0 - mu / state.unit) * taken.length)
    if directions.weak:
        length = directions.central(taken, length)
    if not length > SHORTEST:
        return Taken(None, 0.0, passes)
    x, z, boxes, _, left = taken  # in place: the direction is not used any more
    x *= length
    x += state.x
    z *= length
    r = state.r + z[None]
    boxes *= length
    boxes += state.boxes
    # The imbalance is linear in x and p, so that the residual of the linear system gives it without another product.
    imbalance = (1.0 - length) * state.imbalance
    if left is not None:
        imbalance += length * left
        take_up(boxes, r)
    return Taken(terms.at(x, r, boxes, state.unit, imbalance, single=state.single), length, passes)


def take_up(boxes: np.ndarray, r: np.ndarray) -> None:
    """Change s and t so that r = t − s to the last digit: the one that hardly changes, or the one that increases."""
    off = r + boxes[2] - boxes[3]
    down = np.where(off > 0.0, boxes[2], boxes[3]) >= SMALL_PART * np.abs(off)
    boxes[2] -= np.where((off > 0.0) == down, off, 0.0)
    boxes[3] += np.where((off > 0.0) == down, 0.0, off)


def starting_state(terms: Terms, *, single: bool = False) -> State | None:
    """Return a multiple of a least-squares fit to the kinks, with slopes that rise over a width in root mean square residuals.

    With slopes p = J (½ + r/width) the first optimality condition is that of a least-squares fit. Where most examples may lie far
    on one side of their kinks, as those of separable classes, a multiple of it has a much smaller objective, from which the steps
    are fewer.
    """
    system, (several, n) = terms.system, terms.kinks.shape
    c = np.ones(n) if terms.c is None else terms.c
    targets, share = terms.fold(terms.kinks), 1.0 / (float(n) if terms.c is None else float(np.add.reduce(c)))
    if several > 1:
        targets = targets / several
    off = targets - share * float(c.dot(targets))
    unit = EXPECTED * math.sqrt(share * float(c.dot(off * off))) or 1.0
    total = terms.fold(terms.jumps)
    # All examples have one loss: whether it grows on both sides of its kinks.
    grows = several > 1 or bool(terms.least[0] * (terms.least[0] + total[0]))
    width, apart = (NARROWER, NEARER) if grows else (WIDTH, APART)
    steepness = width * unit / (float(np.add.reduce(total)) / n)
    x = system.fitted(targets - steepness * (terms.least + 0.5 * total), c, steepness, single=single)
    if x is None or not math.isfinite(float(x.dot(x))):
        return None
    z = system.margins(x)
    off = z - targets
    unit = math.sqrt(share * float(c.dot(off * off))) or 1.0
    multiple, inside = _best_multiple(terms, x, z), INSIDE
    if multiple > 1.0:
        x, z, inside = multiple * x, multiple * z, MULTIPLE_INSIDE
    r = z - terms.kinks
    boxes = np.empty((4, *r.shape))
    p, q, s, t = boxes
    np.divide(r, width * unit, out=p)
    p += 0.5
    np.maximum(p, inside, out=p)
    np.minimum(p, 1.0 - inside, out=p)
    p *= terms.jumps
    np.subtract(terms.jumps, p, out=q)
    np.maximum(-r, 0.0, out=s)
    s += apart * unit if terms.c is None else apart * unit * np.sqrt(terms.even)
    np.add(s, r, out=t)
    return terms.at(x, r, boxes, unit, single=single)


def _best_multiple(terms: Terms, x: np.ndarray, z: np.ndarray) -> float:
    """Return the t among ``MULTIPLES`` for which the objective at tx is least, given the margins at x.

    It is 1 for losses that grow on both sides of their kinks, which a least-squares fit suits, where t saves little, and for few
    examples, whose steps take less time than this search saves. The losses of some examples, evenly spread, suffice.
    """
    least, jumps, every = terms.least, terms.jumps, len(z) // MANY
    if len(jumps) > 1 or every == 0 or (least * (least + jumps[0])).any():
        return 1.0
    z, least, jump, kink = z[::every], least[::every], jumps[0, ::every], terms.kinks[0, ::every]
    if terms.c is not None:
        least, jump = terms.c[::every] * least, terms.c[::every] * jump
    losses = float(z @ least) * MULTIPLES + np.maximum(MULTIPLES[:, None] * z - kink, 0.0) @ jump
    values = losses - float(kink @ least) + (terms.system.penalty(x) / every) * MULTIPLES * MULTIPLES
    best = values.argmin()
    return float(MULTIPLES[best]) if values[best] <= WORTHWHILE * values[0] else 1.0
