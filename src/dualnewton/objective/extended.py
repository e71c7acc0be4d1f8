"""Certificates in extended precision: P and D of a given pair, recomputed in NumPy's ``longdouble``.

On x86-64 processors this type has 64 bits of mantissa instead of 53 (on some others 113), and rounding errors of sums are 2048
times smaller. Where it is no more precise than float64 (Windows, macOS on ARM) the result is valid, but not more accurate: the
bound on rounding errors uses the precision that the type has. Rows are read in blocks, as float64 numbers, and products with
them are computed in the longer type. It takes about ten times as long as an ordinary certificate.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.losses import Loss
from dualnewton.losses.rounding import DOUBLE, ULPS, Roundoff
from dualnewton.matrix.extended import extended_pass
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.rounding import rounding_bound
from dualnewton.objective.scale_rounding import scale_bound
from dualnewton.objective.unpenalised_rounding import unpenalised_bound

if TYPE_CHECKING:
    from dualnewton.objective.huber_scale import HuberScaleProblem
    from dualnewton.objective.problem import Problem
    from dualnewton.objective.unpenalised import Unpenalised

Long = np.longdouble

UNIT = float(np.finfo(Long).eps) / 2.0
EXTENDED = Roundoff(unit=UNIT, feasible=1e-15, terms=ULPS * UNIT, in_parts=False)
"""The number type of this module. Dual points of the Lasso are scaled by the norm of ᾱ that it computes, rounded to float64."""


def extended_pair(problem: Problem, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair with P, D and the bound on their rounding errors computed in extended precision."""
    n, K, loss, y = problem.n, problem.columns, precise(problem.loss), labels(problem)
    w, b = np.asarray(pair.w, dtype=Long), np.asarray(pair.intercept, dtype=Long)
    alpha = loss.closed(np.array(pair.alpha, dtype=Long), y)
    if problem.fit_intercept:  # sums that are zero in float64 may differ from zero here
        alpha = loss.rebalanced(alpha, y, problem.c)
    mass = problem.weighted(alpha)
    total, bar, full = sums(problem, lambda z, rows: loss.value(z, y[rows]), w, b, mass)
    bar = (bar.T if K > 1 else bar[:, 0]) / (Long(problem.lam) * n)
    if problem.regularizer.form.is_general:  # its functions accept float64 only
        w, bar = pair.w, bar.astype(np.float64)
    if not problem.regularizer.strongly_convex and (factor := float(problem.g.reach(bar))) < 1.0:
        factor *= 1.0 - 2.0**-51  # the norm was rounded to float64
        alpha, mass, bar = factor * alpha, factor * mass, factor * bar
    primal = float(total / n + Long(problem.lam) * problem.g.value(w))
    conjugates, sizes = _conjugates(problem, loss.conjugate(-alpha, y), mass)
    dual = float(-conjugates / n - Long(problem.lam) * problem.g.conjugate(bar))
    # A loss that converts its arguments to float64 has the rounding errors of float64.
    roundoff = EXTENDED if full else replace(EXTENDED, terms=ULPS * DOUBLE)
    given: Any = {"roundoff": roundoff, "conjugates": 1.01 * sizes}
    rounding = rounding_bound(problem, pair.w, pair.intercept, alpha, primal, dual, **given)
    return replace(pair, certificate=Certificate(primal, dual, rounding=rounding))


def sums(
    problem: Problem, value: Callable[[np.ndarray, slice], np.ndarray], w: np.ndarray, b: np.ndarray, mass: np.ndarray
) -> tuple[Any, np.ndarray, bool]:
    """Return Σ c_i φ_i, Σ mass_i x_i of shape (d, K), and whether all φ_i have extended precision.

    ``value`` computes φ of some rows from their margins with offsets.
    """
    total, full = Long(0.0), True

    def take(rows: slice, margins: np.ndarray) -> None:
        nonlocal total, full
        own = problem.row_vectors.part(rows)
        found = value(own.shifted(margins + b), rows)
        full = full and found.dtype == Long
        total += found.sum() if own.c is None else own.c @ found

    along = extended_pass(problem.data, w, mass, take)
    return total, along, full


def unpenalised_pair(problem: Unpenalised, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair of a problem without a penalty with its certificate computed in extended precision."""
    unit = problem.unit
    loss, y, n = precise(unit.loss), labels(unit), unit.n
    w, b, alpha = (np.asarray(each, dtype=Long) for each in (pair.w, pair.intercept, pair.alpha))
    alpha = loss.closed(alpha, y)
    mass = unit.weighted(alpha)
    total, along, full = sums(unit, lambda z, rows: loss.value(z, y[rows]), w, b, mass)
    conjugates, sizes = _conjugates(unit, loss.conjugate(-alpha, y), mass)
    found = replace(pair, certificate=Certificate(float(total / n), float(-conjugates / n)))
    roundoff = EXTENDED if full else replace(EXTENDED, terms=ULPS * DOUBLE)
    off = np.column_stack([along.T, mass.sum(axis=0).reshape(-1, 1)]) if unit.fit_intercept else along.T
    return found.with_rounding(*unpenalised_bound(problem, found, roundoff=roundoff, conjugates=1.01 * sizes, off=off))


def scale_pair(problem: HuberScaleProblem, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair of Huber's regression with a scale with its certificate computed in extended precision."""
    unit, sigma = problem.unit, Long(pair.scale)
    y, n, epsilon, lam = labels(unit), unit.n, Long(problem.epsilon), Long(problem.lam)
    w, b, alpha = (np.asarray(each, dtype=Long) for each in (pair.w, pair.intercept, pair.alpha))
    if unit.fit_intercept and problem.lam > 0.0:
        alpha = unit.loss.rebalanced(alpha, y, unit.c)
    mass = unit.weighted(alpha)

    def value(z: np.ndarray, rows: slice) -> np.ndarray:
        size = np.abs(z - y[rows])
        slope = np.minimum(size, epsilon * sigma) / sigma if sigma > 0.0 else epsilon
        return np.asarray(sigma / 2 + slope * (size - sigma * slope / 2))

    total, along, _ = sums(unit, value, w, b, mass)
    primal, dual, along = total / n + lam * (w @ w) / 2, mass @ y / n, along[:, 0]
    if lam > 0.0:
        dual = dual - along @ along / (2 * lam * n * n)
    found = replace(pair, certificate=Certificate(float(primal), float(dual)))
    if lam > 0.0:  # else α is unchanged
        found = replace(found, alpha=alpha)
    bound = scale_bound(problem, found, roundoff=EXTENDED, along=along)
    return replace(found, alpha=pair.alpha).with_rounding(*bound)


def precise(loss: Loss) -> Loss:
    """Return the loss with its parameters in extended precision: 1 − q of a quantile, for example, is rounded in float64."""
    made = copy.copy(loss)
    for name, value in getattr(loss, "__dict__", {}).items():
        if isinstance(value, float):
            object.__setattr__(made, name, Long(value))  # without the checks of arguments, which have passed
    return made


def labels(problem: Problem) -> np.ndarray:
    """Return the labels in extended precision, so that their logarithms have it; class labels are unchanged."""
    return problem.y.astype(Long) if problem.y.dtype == np.float64 else problem.y


def _conjugates(problem: Problem, values: np.ndarray, mass: np.ndarray) -> tuple[Any, float]:
    """Return Σ c_i (φ*(−α_i) + o_i α_i), and Σ c_i |φ*(−α_i)|, from φ*(−α_i) and c_i α_i."""
    if (c := problem.sample_weight) is not None:
        values = c * np.where(c > 0.0, values, 0.0)
    total = values.sum() if problem.offset is None else values.sum() + (mass * problem.offset).sum()
    return total, float(np.abs(values).sum())
