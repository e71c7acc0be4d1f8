"""A joint step of all examples, for piecewise linear losses: a proximal step on the dual, by Newton's method on the features.

Rounds on small sets move free examples, whose dual variables are inside a piece of φ*, slowly if the data are ill-conditioned. A
step around the dual point α̂, with w = w(α̂) and margins z, maximises D(α) − (μ/2n) Σ c_i (α_i − α̂_i)². With w + u for the new w
it is the dual of the smooth problem

    min over u, b:  Σ c_i φ_μ(z_i + a_iᵀu + b − μα̂_i) + (λn/2) uᵀVu + uᵀAᵀ(c∘α̂),        φ_μ = (φ* + μv²/2)*,

in which α_i = −φ_μ′ is the step of one example with the curvature μ (:func:`~dualnewton.solvers.dual.piecewise.solve_one`). φ_μ″
is 1/μ for free examples and zero for all others: conjugate gradients for a Newton step read the free rows only. For a penalty
that is not quadratic, ½‖u‖² bounds the change of g*. A step that does not increase D is not taken. (Li, Sun and Toh, A highly
efficient semismooth Newton augmented Lagrangian method for solving Lasso problems, 2018.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.objective.problem import Problem
from dualnewton.solvers.dual.piecewise import free_kinks, solve_one

FRACTION = 0.5
"""Newton's method ends when the gap of the proximal problem is at most the square of this fraction, times its proximal term."""

ROUGH = 0.1
"""Conjugate gradients end when the residual of a Newton step has fallen to this fraction, in the norm of the gap."""

MOST_STEPS, MOST_PRODUCTS = 30, 100
"""Limits on Newton steps of a proximal step, and on conjugate gradients for each."""

LEAST_SLOPE, MOST_SLOPE = -0.5, 0.1
"""The line search ends where the slope, relative to that at its start, is in this range."""

TRIALS = 20
"""Points of a line search, at most."""

FLAT = 1e-12
"""Conjugate gradients end at a direction whose curvature is at most this fraction of the largest (repeated rows)."""

FEW_FREE = 1e-3
"""The intercept has at least the curvature that it would have if this fraction of the examples were free."""


class ProximalStep(NamedTuple):
    """Where a step ended."""

    moved: np.ndarray  # indices of the examples whose dual variables change
    alpha: np.ndarray  # their new dual variables
    intercept: float
    free: np.ndarray  # indices of the free examples
    epochs: float  # work
    steps: int  # of Newton's method
    products: int  # of conjugate gradients, each with the free rows and with their transpose
    increase: float  # of n D; a step is not to be taken unless it is positive


def proximal_step(
    problem: Problem,
    pieces: np.ndarray,  # (n, 2m + 1) slopes and kinks of the loss
    alpha: np.ndarray,  # (n,) α̂
    # w, b and the curvature ρ/(λn) of the intercept, which the rounds treat as a penalised feature.
    state: tuple[np.ndarray, float, float],
    width: float,  # μ
    *,
    most: float = math.inf,  # epochs after which no further Newton step begins
    deadline: float = math.inf,  # likewise, by ``time.perf_counter``
) -> ProximalStep:
    """Return the proximal step from α̂."""
    (w, b, _), c, data = state, problem.c, problem.data
    ridge, mass = _ridge(problem), float(c @ alpha)
    u, shift, z = np.zeros(problem.d), 0.0, data.times(w) + (problem.o + b)
    beta, epochs, steps, products = solve_one(pieces, z, width, alpha), 0.5, 0, 0
    while True:
        change = c * (beta - alpha)
        push = data.transposed_times(change)
        epochs += 0.5
        gradient, imbalance = ridge * u - push, -float(c @ beta) if problem.fit_intercept else 0.0
        free = np.flatnonzero(~np.isnan(free_kinks(pieces, beta)) & (c > 0.0))
        b_weight = (float(c[free].sum()) + FEW_FREE * float(c.sum())) / width
        gap = 0.5 * (float(gradient @ (gradient / ridge)) + imbalance**2 / b_weight)
        enough = 0.5 * FRACTION**2 * width * float(change @ (beta - alpha))
        if gap <= enough or steps == MOST_STEPS or epochs >= most or time.perf_counter() > deadline:
            break
        own, rough = b_weight if problem.fit_intercept else None, ROUGH * max(enough, ROUGH * gap)
        du, db, used = _newton_step(data.rows(free), c[free] / width, ridge, own, gradient, imbalance, rough)
        along, first = data.times(du) + db, float(gradient @ du) + imbalance * db
        fixed, bend = float(ridge @ (u * du)) - db * mass, float(ridge @ (du * du))

        def slope(t: float) -> tuple[float, np.ndarray]:
            new = solve_one(pieces, z + t * along, width, alpha)  # noqa: B023 (called in this turn only)
            return fixed + t * bend - float((c * (new - alpha)) @ along), new  # noqa: B023

        length, beta = _searched(slope, first)
        z, u, shift = z + length * along, u + length * du, shift + length * db
        steps, products, epochs = steps + 1, products + used, epochs + 0.5 + used * free.size / problem.n
    moved, increase = np.flatnonzero(change), _increase(problem, ridge, (alpha, beta), change, push, state)
    return ProximalStep(moved, beta[moved], b + shift, free, epochs, steps, products, increase)


def _ridge(problem: Problem) -> np.ndarray:
    """λn V, or λn for a penalty that is not quadratic."""
    form = problem.regularizer.form
    weights = form.weights if form.is_quadratic else None
    return problem.lam * problem.n * (np.ones(problem.d) if weights is None else weights)


def _increase(
    problem: Problem,
    ridge: np.ndarray,
    points: tuple[np.ndarray, np.ndarray],  # α̂ and α
    change: np.ndarray,  # (n,) c∘(α − α̂)
    push: np.ndarray,  # (d,) Aᵀ change
    state: tuple[np.ndarray, float, float],
) -> float:
    """Return the increase of n D, in which the intercept is a penalised feature as in the rounds, or a lower bound on it."""
    w, b, b_curvature = state
    before, after = (problem.loss.conjugates(point, problem.y, problem.sample_weight) for point in points)
    gain = before - after - float(push @ w) - 0.5 * float(push @ (push / ridge)) - float(problem.o @ change)
    if problem.fit_intercept:
        total = float(change.sum())
        gain -= b * total + 0.5 * b_curvature * total**2
    return float(gain)


def _newton_step(
    rows: linear.Matrix,  # free rows
    weights: np.ndarray,  # φ_μ″ times c of these
    ridge: np.ndarray,  # (d,) λn V
    b_weight: float | None,  # curvature of the intercept; None without an intercept
    gradient: np.ndarray,
    imbalance: float,
    enough: float,  # gap of the residual that is small enough
) -> tuple[np.ndarray, float, int]:
    """Return the Newton step of u and of b, and the number of products."""
    images, sums = linear.multiplied(rows), linear.multiplied(linear.transposed(rows))
    diagonal = ridge + linear.transposed(linear.squared(rows)) @ weights
    if b_weight is None:
        right = -gradient

        def times(x: np.ndarray) -> np.ndarray:
            return ridge * x + sums(weights * images(x))

    else:
        right, diagonal = -np.append(gradient, imbalance), np.append(diagonal, b_weight)
        more = b_weight - float(weights.sum())

        def times(x: np.ndarray) -> np.ndarray:
            image = weights * (images(x[:-1]) + x[-1])
            return np.append(ridge * x[:-1] + sums(image), image.sum() + more * x[-1])

    units = 0.5 / ridge if b_weight is None else np.append(0.5 / ridge, 0.5 / b_weight)
    x, used = conjugate_gradients(
        times,
        right,
        (1.0 / diagonal).__mul__,
        fraction=0.0,
        most=MOST_PRODUCTS,
        flat=FLAT,
        is_enough=lambda r: float(units @ (r * r)) <= enough,
    )
    return (x, 0.0, used) if b_weight is None else (x[:-1], float(x[-1]), used)


def _searched(slope: Callable[[float], tuple[float, np.ndarray]], first: float) -> tuple[float, np.ndarray]:
    """Return a length at which the slope of a convex function, ``first`` at zero, is small, and what ``slope`` returned."""
    low, high, at_low, at_high, t = 0.0, math.inf, 1.0, 0.0, 1.0
    for _ in range(TRIALS):
        value, found = slope(t)
        value /= -first  # from −1 at zero to 0 at the minimum
        if LEAST_SLOPE <= value <= MOST_SLOPE:
            break
        if value > 0.0:
            high, at_high = t, value
        else:
            low, at_low = t, -value
        t = 2.0 * t if high == math.inf else low + (high - low) * min(max(at_low / (at_low + at_high), 0.1), 0.9)
    return t, found
