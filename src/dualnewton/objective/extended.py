"""Certificates in extended precision: P and D of a given pair, recomputed in NumPy's ``longdouble``.

On x86-64 processors this type has 64 bits of mantissa instead of 53 (on some others 113), and rounding errors of sums are 2048
times smaller. Where it is no more precise than float64 (Windows, macOS on ARM) the result is as valid, but no sharper: the bound
of rounding errors uses the precision that the type has. Rows are read in blocks, as float64 numbers, and products with them are
computed in the longer type. It takes some ten times as long as an ordinary certificate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.losses.rounding import ULPS, Roundoff
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.rounding import rounding_bound

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

Long = np.longdouble

UNIT = float(np.finfo(Long).eps) / 2.0
EXTENDED = Roundoff(unit=UNIT, feasible=1e-15, terms=ULPS * UNIT)
"""The arithmetic of this module. Dual points of the Lasso are scaled by the norm of ᾱ that it computes, rounded to float64."""

ENTRIES = 1 << 18
"""Entries of X that are converted at a time: 4 MiB."""


def extended_pair(problem: Problem, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair with P, D and the bound of their rounding errors computed in extended precision."""
    n, K = problem.n, problem.columns
    w, b = np.asarray(pair.w, dtype=Long), np.asarray(pair.intercept, dtype=Long)
    alpha = _feasible(problem, pair.alpha)
    mass, bar, total = problem.weighted(alpha), np.zeros((problem.d, K), dtype=Long), Long(0.0)
    for rows, X in _blocks(problem):
        own = problem.row_vectors.part(rows)
        z = own.shifted((X @ w.T if K > 1 else X @ w) + b)
        value = problem.loss.value(z, own.y).astype(Long)
        total += value.sum() if own.c is None else own.c @ value
        bar += X.T @ mass[rows].reshape(-1, K)
    bar = (bar.T if K > 1 else bar[:, 0]) / (Long(problem.lam) * n)
    if not problem.regularizer.strongly_convex and (factor := float(problem.g.reach(bar))) < 1.0:
        factor *= 1.0 - 2.0**-51  # the norm was rounded to float64
        alpha, mass, bar = factor * alpha, factor * mass, factor * bar
    primal = float(total / n + Long(problem.lam) * problem.g.value(w))
    dual = float(-_conjugates(problem, alpha, mass) / n - Long(problem.lam) * problem.g.conjugate(bar))
    rounding = rounding_bound(problem, pair.w, pair.intercept, alpha, primal, dual, EXTENDED)
    return CertifiedPair(
        pair.w, pair.intercept, pair.alpha, Certificate(primal, dual, rounding=rounding), scale=pair.scale
    )


def _feasible(problem: Problem, alpha: np.ndarray) -> np.ndarray:
    """Return α, balanced in extended precision: sums that are zero in float64 need not be zero."""
    loss, c = problem.loss, problem.c
    alpha = loss.closed(np.array(alpha, dtype=Long), problem.y)
    if not problem.fit_intercept:
        return alpha
    if problem.columns > 1:
        place = loss.freest(alpha, problem.y, problem.sample_weight)
        one = slice(place, place + 1)
        moved = alpha[one] - (problem.weighted(alpha).sum(axis=0) / c[place] if c[place] > 0.0 else 0.0)
        if np.isfinite(loss.conjugate(-moved, problem.y[one])).all():
            alpha[one] = moved
        return alpha
    up, down = c @ np.maximum(alpha, 0.0), c @ np.maximum(-alpha, 0.0)
    smaller = min(up, down)
    return np.where(alpha > 0.0, smaller / (up or 1.0), smaller / (down or 1.0)) * alpha


def _blocks(problem: Problem) -> Iterator[tuple[slice, Any]]:
    """Yield slices of rows with their entries in extended precision."""
    step = max(1, ENTRIES * problem.n // max(problem.data.profile.stored, 1))
    for start in range(0, problem.n, step):
        rows = slice(start, min(start + step, problem.n))
        yield rows, problem.data.rows(rows).astype(Long)


def _conjugates(problem: Problem, alpha: np.ndarray, mass: np.ndarray) -> Any:
    """Σ c_i (φ*(−α_i) + o_i α_i)."""
    values = problem.loss.conjugate(-alpha, problem.y).astype(Long)
    c = problem.sample_weight
    total = values.sum() if c is None else c @ np.where(c > 0.0, values, 0.0)
    return total if problem.offset is None else total + (mass * problem.offset).sum()
