"""Certificates in extended precision: P and D of a given pair, recomputed in NumPy's ``longdouble``.

On x86-64 processors this type has 64 bits of mantissa instead of 53 (on some others 113), and rounding errors of sums are 2048
times smaller. Where it is no more precise than float64 (Windows, macOS on ARM) the result is valid, but not more accurate: the
bound of rounding errors uses the precision that the type has. Rows are read in blocks, as float64 numbers, and products with
them are computed in the longer type. It takes about ten times as long as an ordinary certificate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.losses import Loss
from dualnewton.losses.rounding import DOUBLE, ULPS, Roundoff
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.rounding import rounding_bound

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

Long = np.longdouble

UNIT = float(np.finfo(Long).eps) / 2.0
EXTENDED = Roundoff(unit=UNIT, feasible=1e-15, terms=ULPS * UNIT)
"""The number type of this module. Dual points of the Lasso are scaled by the norm of ᾱ that it computes, rounded to float64."""

ENTRIES = 1 << 18
"""Number of entries of X that are converted at a time (4 MiB)."""


def extended_pair(problem: Problem, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair with P, D and the bound of their rounding errors computed in extended precision."""
    n, K, loss, y = problem.n, problem.columns, precise(problem.loss), labels(problem)
    w, b = np.asarray(pair.w, dtype=Long), np.asarray(pair.intercept, dtype=Long)
    alpha = loss.closed(np.array(pair.alpha, dtype=Long), y)
    if problem.fit_intercept:  # sums that are zero in float64 may differ from zero here
        alpha = loss.rebalanced(alpha, y, problem.c)
    mass, bar, total = problem.weighted(alpha), np.zeros((problem.d, K), dtype=Long), Long(0.0)
    full = True
    for rows, X in _blocks(problem):
        own = problem.row_vectors.part(rows)
        z = own.shifted((X @ w.T if K > 1 else X @ w) + b)
        value = loss.value(z, y[rows])
        full = full and value.dtype == Long
        total += value.sum() if own.c is None else own.c @ value
        bar += X.T @ mass[rows].reshape(-1, K)
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
    return CertifiedPair(
        pair.w, pair.intercept, pair.alpha, Certificate(primal, dual, rounding=rounding), scale=pair.scale
    )


def _blocks(problem: Problem) -> Iterator[tuple[slice, Any]]:
    """Yield slices of rows with their entries in extended precision."""
    step = max(1, ENTRIES * problem.n // max(problem.data.profile.stored, 1))
    for start in range(0, problem.n, step):
        rows = slice(start, min(start + step, problem.n))
        yield rows, problem.data.rows(rows).astype(Long)


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
