"""Whether a Hessian whose products are in single precision, which takes half the time, is good enough."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.matrix import Data, linear

FEW = 256
"""Number of rows from which a diagonal is estimated."""

SINGLE = 1e-7
"""Relative error of single precision in a sum of products."""

TINY, LARGEST = 1e-30, 1e30
"""Range of the largest entry on the diagonal of the Hessian in which its sums in single precision neither vanish nor overflow."""

LIFTED = 1e-12
"""Relative change of an entry of the diagonal that is no rounding error."""

EXACT, ROUGH = 0.2, 1.0
"""Largest allowed relative change of the Hessian by single precision: for Newton's method, and for a sketch."""

REFINED, TOO_LARGE = 4.0, 10.0
"""Largest such change for which conjugate gradients correct a solve in a few products, of which most estimates are several times
too large; and, above it, multiple of the gap that a solve may leave beyond which single precision is not tried. Its prediction,
before the Hessian is known, was 0.5 to 15 times the later estimate (``benchmarks/regimes.py``)."""


def bears_noise(data: Data, ridge: np.ndarray, weights: np.ndarray, most: float) -> bool:
    """Whether products in single precision, twice as fast, change the curvature in each direction by at most this factor."""
    return noise_of(estimated_diagonal(data, weights), ridge) <= most


def estimated_diagonal(data: Data, weights: np.ndarray) -> np.ndarray:
    """Estimate the diagonal of Aᵀ D(weights) A from a few rows."""
    some = np.linspace(0, data.n - 1, min(FEW, data.n)).astype(int)
    return np.asarray(data.entries(weights, some) @ linear.squared(data.rows(some))) * (data.n / some.size)


def noise_of(diagonal: np.ndarray, ridge: np.ndarray) -> float:
    """Estimate the largest relative change of the curvature in any direction by products in single precision.

    The error of each entry is about 1e-7 of the diagonal of H, that of the matrix √d times as much for d features, and every
    direction has at least the curvature of the ridge. It is infinite beyond the range of single precision.
    """
    if not TINY <= float(diagonal.max()) <= LARGEST:
        return math.inf
    return SINGLE * math.sqrt(ridge.size) * float((diagonal / ridge[: diagonal.size]).max())


def mean_noise(ratio: float, d: int) -> float:
    """Estimate the same for d features from the mean ratio of the diagonal to the ridge: the largest ratio is no less."""
    return SINGLE * math.sqrt(d) * ratio


def gap_left(steps: np.ndarray, diagonal: np.ndarray, ridge: np.ndarray) -> float:
    """Estimate the n(P − D) that the worst of these steps, computed with products in single precision, leaves.

    An entry H_jk has an error of about 1e-7 √(H_jj H_kk), so that a step s leaves about r_j = 1e-7 √H_jj ‖√H_kk s_k‖ of the
    gradient, and the gap Σ_j r_j²/(2 ridge_j).
    """
    moved = float((np.square(steps) @ diagonal).max())
    return 0.5 * SINGLE**2 * moved * float((diagonal[: ridge.size] / ridge).sum())


def noise_of_factor(factor: np.ndarray, diagonal: np.ndarray) -> float:
    """Estimate the same from the Cholesky factor of H + D(ridge), which has this diagonal, in units of its features.

    L_jj² is the curvature of feature j that it does not share with the features before it. Features that are far from dependent
    have large ones, however small the ridge is. It is infinite if the diagonal was lifted, which L_00² shows: the noise has made
    the matrix indefinite.
    """
    pivots = np.square(factor.diagonal())
    if not pivots[0] <= (1.0 + LIFTED) * diagonal[0]:
        return math.inf
    return SINGLE * math.sqrt(diagonal.size) * float((diagonal / pivots).max())


def noise_of_means(data: Data) -> float:
    """Estimate the same for independent features with an intercept, from a few rows.

    The intercept shares all but 1/(1 + Σ_j m_j²/v_j) of its curvature with features of means m_j and variances v_j.
    """
    rows = linear.to_dense(data.rows(np.linspace(0, data.n - 1, min(FEW, data.n)).astype(int)))
    squares = np.square(rows.mean(axis=0))
    return SINGLE * math.sqrt(data.d) * (1.0 + float((squares / np.maximum(rows.var(axis=0), TINY)).sum()))
