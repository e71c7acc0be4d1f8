"""Softmax and its entropy for blocks of margins: differences are computed without cancellation, and no exponential overflows."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dualnewton.row_arrays import blocks, ones

FEASIBLE = 1e-12
"""Absolute tolerance, for rounding, within which p_i = e_y − α_i counts as a distribution: Σ_k p_ik = 1 and p_ik ≥ 0."""

BELOW_ONE = 1.0 - 2.0**-53
"""The largest float64 number below one; m = 1 − p_y is clipped to it, since (1 − m) log(1 − m) → 0 as m → 1."""

SMALLEST = float(np.finfo(float).tiny)
"""The smallest normal float64 number: p is clipped to it in log p, since p log p → 0 as p → 0."""


def pair_products(p: np.ndarray) -> np.ndarray:
    """p_ik p_il, one column for each pair of classes k < l: diag(p) − ppᵀ = Σ p_k p_l (e_k − e_l)(e_k − e_l)ᵀ."""
    pairs = np.asarray(list(combinations(range(p.shape[1]), 2)), like=p)
    return p[:, pairs[:, 0]] * p[:, pairs[:, 1]]


def softmax(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row p = softmax(z), argmax z, max z, and rest = Σ exp(z_k − max z) over the other classes.

    No exponential overflows. log Σ exp(z_k) = max z + log(1 + rest), and 1 − max p = rest/(1 + rest) without cancellation.
    """
    rows, top = np.arange(len(Z), like=Z), Z.argmax(axis=1)
    high = Z[rows, top]
    p = Z - high[:, None]
    np.exp(p, out=p)
    p[rows, top] = 0.0
    rest = p @ ones(Z.shape[1], Z)  # several times faster than a sum along short rows
    p[rows, top] = 1.0
    p /= (1.0 + rest)[:, None]
    return p, top, high, rest


def probabilities(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p and, without cancellation, 1 − p for any number of rows."""
    p, missed = np.empty(Z.shape, like=Z), np.empty(Z.shape, like=Z)
    for part in blocks(Z, Z.shape[1]):
        p[part], top, _, rest = softmax(Z[part])
        np.subtract(1.0, p[part], out=missed[part])
        missed[part][np.arange(len(top), like=top), top] = rest / (1.0 + rest)
    return p, missed


def losses(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log Σ_k exp(z_k) − z_y, p and 1 − p_y of each row; both differences are computed without cancellation."""
    p, top, high, rest = softmax(Z)
    own = (np.arange(len(Z), like=y), y)
    missed = np.where(top == y, rest / (1.0 + rest), 1.0 - p[own])
    return (high - Z[own]) + np.log1p(rest), p, missed


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
