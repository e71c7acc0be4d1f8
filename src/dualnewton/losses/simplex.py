"""Softmax and its entropy for blocks of margins: differences are computed without cancellation, and no exponential overflows."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dualnewton.row_arrays import at_labels, blocks, is_elsewhere, ones

FEASIBLE = 1e-12
"""Absolute tolerance, for rounding, within which p_i = e_y − α_i counts as a distribution: Σ_k p_ik = 1 and p_ik ≥ 0."""

BELOW_ONE = 1.0 - 2.0**-53
"""The largest float64 number below one; m = 1 − p_y is clipped to it, since (1 − m) log(1 − m) → 0 as m → 1."""

SMALLEST = float(np.finfo(float).tiny)
"""The smallest normal float64 number: p is clipped to it in log p, since p log p → 0 as p → 0."""


def pair_products(p: np.ndarray) -> np.ndarray:
    """p_ik p_il, one column for each pair of classes k < l: diag(p) − ppᵀ = Σ p_k p_l (e_k − e_l)(e_k − e_l)ᵀ."""
    pairs = np.asarray(list(combinations(range(p.shape[1]), 2)), like=p)
    columns = np.ascontiguousarray(p.T, like=p)
    return (columns[pairs[:, 0]] * columns[pairs[:, 1]]).T


def softmax(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row p = softmax(z), where z is largest, and rest = Σ exp(z_k − max z) − 1.

    No exponential overflows. log Σ exp(z_k) = max z + log(1 + rest), and 1 − max p = rest/(1 + rest) without cancellation. NumPy
    is several times faster along long rows than along short ones, so that p and the mask have contiguous columns.
    """
    shifted = Z.T.copy()
    shifted -= shifted.max(axis=0)
    p, largest, rest = _normalised(shifted)
    return p.T, largest.T, rest


def _normalised(shifted: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return p, where z is largest, and rest, given z − max z of shape (K, n), which is overwritten by p."""
    p = np.exp(shifted, out=shifted)
    largest = p == 1.0
    # The sum leaves out one of the terms that equal one, so that small terms are not lost by rounding.
    p -= largest
    rest = p.sum(axis=0)
    if is_elsewhere(p) or np.count_nonzero(largest) > len(rest):  # several margins of a row are largest
        rest += largest.sum(axis=0) - 1.0
    p += largest
    p /= 1.0 + rest
    return p, largest, rest


def probabilities(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p and, without cancellation, 1 − p for any number of rows."""
    p, missed = (np.empty(Z.shape[::-1], like=Z).T for _ in range(2))
    for part in blocks(Z, Z.shape[1]):
        p[part], largest, rest = softmax(Z[part])
        missed[part] = np.where(largest, (rest / (1.0 + rest))[:, None], 1.0 - p[part])
    return p, missed


def losses(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log Σ_k exp(z_k) − z_y and p − e_y of each row; all differences are computed without cancellation."""
    columns = Z.T
    shifted = np.ascontiguousarray(columns - columns.max(axis=0), like=Z)
    entries, own = at_labels(shifted, y)
    below = entries[own]
    p, largest, rest = _normalised(shifted)  # p overwrites z − max z
    is_largest = (largest if is_elsewhere(largest) else largest.reshape(-1))[own]
    entries[own] = np.where(is_largest, -rest / (1.0 + rest), entries[own] - 1.0)
    return np.log1p(rest) - below, p.T


def entropy(alpha: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return H(e_y − α) of each row, and whether e_y − α is a distribution up to ``FEASIBLE``."""
    own, each = (np.arange(len(alpha), like=y), y), ones(alpha.shape[1], alpha)
    missed = alpha[own]
    p = -alpha
    p[own] = 0.0
    inside = (np.abs(p @ each - missed) <= FEASIBLE) & ((p < -FEASIBLE) @ each == 0.0) & (missed <= 1.0 + FEASIBLE)
    np.maximum(p, 0.0, out=p)
    entropy = -((p * np.log(np.maximum(p, SMALLEST))) @ each)  # 0 log 0 = 0
    missed = np.clip(missed, 0.0, BELOW_ONE)
    entropy -= (1.0 - missed) * np.log1p(-missed)
    return entropy, inside
