"""Features that are exact linear combinations of others: duplicates, dummy variables of all levels, constants.

A dual point that is orthogonal to the others is orthogonal to these as well. A relation Σ_j β_j x_j = 0 between columns is proved
by evaluating it on all rows in floating-point arithmetic that has no rounding errors:

- β_j are integers, the entries x_ij are multiples of 2⁻²⁰, and 2²⁰ Σ_j |β_j| ‖x_j‖ < 2⁵³; or
- two columns, of which one is a power of two times the other, or a multiple of the constant column.

Columns that depend on each other up to rounding only have no such relation. The direction in which they differ is made of
rounding errors, and the optimum may use it with huge coefficients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dualnewton.matrix import linear

if TYPE_CHECKING:
    from dualnewton.matrix import Data

DEPENDENT = 2.0**-30
"""Remaining sum of squares of a feature, as a fraction of its own, below which a relation with others is looked for."""

NEGLIGIBLE = 1e-4
"""Coefficients of scaled features below this are zero, and coefficients nearer than this to an integer are the integer."""

MULTIPLES = range(1, 13)
"""Factors by which a relation may have to be multiplied for its coefficients to be integers."""

FINEST = 2.0**20
"""Factor by which entries of X are multiplied; all products must be integers."""

LARGEST = 2.0**53
"""Sums of integers below this number have no rounding errors in float64."""

ENTRIES = 1 << 15
"""Number of entries of X that are read at a time: intermediate arrays then stay in the cache."""


def spanning_features(data: Data, G: np.ndarray, among: np.ndarray) -> tuple[np.ndarray | None, int]:
    """Return features whose exact linear combinations are all others, None if not all relations are proved; and the rank of G.

    G is a Gram matrix of the features and, last, a constant 1, if it is one of them; ``among`` are the features that matter,
    in increasing order.
    """
    from scipy.linalg.lapack import dpstrf, dtrtrs

    own = G if len(among) == len(G) else G[np.ix_(among, among)]
    if not (own.diagonal().min(initial=np.inf) > 0.0 and np.isfinite(own).all()):
        return None, len(among)
    scale = 1.0 / np.sqrt(own.diagonal())
    scale[among == data.d] *= 4.0  # the constant comes first: constant features are multiples of it, not it of them
    factor, order, rank, _ = dpstrf(scale[:, None] * own * scale, tol=DEPENDENT, lower=True)
    if rank in (0, len(among)):
        return None, rank
    order = order - 1
    first, rest = order[:rank], order[rank:]
    coefficients = dtrtrs(factor[:rank, :rank], factor[rank:, :rank].T, lower=True, trans=1)[0]  # of scaled features
    found = np.where(np.abs(coefficients) > NEGLIGIBLE, coefficients, 0.0) * scale[first][:, None] / scale[rest]
    relations = np.zeros((len(G), len(rest)))
    relations[among[first]], relations[among[rest], np.arange(len(rest))] = found, -1.0
    hold = _hold(data, relations, among[rest], constant=len(G) > data.d)
    return np.sort(among[first]) if hold else None, rank


def _hold(data: Data, relations: np.ndarray, last: np.ndarray, *, constant: bool) -> bool:
    """Whether coefficients near these give relations that are proved; each has the coefficient −1 at its entry of ``last``."""
    pairs = (relations != 0.0).sum(axis=0) == 2
    others = ~pairs
    if pairs.any():
        with_constant = pairs & (relations[-1] != 0.0) if constant else np.zeros(len(last), dtype=bool)
        relations[-1, with_constant] = linear.to_dense(data.rows(slice(0, 1)))[0, last[with_constant]]
        powers = np.copysign(np.exp2(np.rint(np.log2(np.abs(relations) + (relations == 0.0)))), relations)
        powers[relations == 0.0] = 0.0
        near = np.abs(powers - relations) <= NEGLIGIBLE * np.abs(relations)
        doubled = pairs & ~with_constant & near.all(axis=0)
        relations[:, doubled] = powers[:, doubled]
        others = ~(with_constant | doubled)
    if (integers := _integers(relations[:, others])) is None:
        return False
    relations[:, others] = integers
    used = np.flatnonzero(integers[: data.d].any(axis=1))
    sizes = np.abs(integers[: data.d]).T @ data.feature_norms + np.abs(integers[data.d :]).sum(axis=0)
    if not FINEST * sizes.max(initial=0.0) < 0.99 * LARGEST:
        return False
    step = max(1, ENTRIES // data.d)
    for start in range(0, data.n, step):
        rows = linear.to_dense(data.rows(slice(start, start + step)))
        entries = rows.take(used, axis=1)
        entries *= FINEST
        if (entries != np.rint(entries)).any():
            return False
        if np.any(rows @ relations[: data.d] + (relations[-1] if constant else 0.0)):
            return False
    return True


def _integers(relations: np.ndarray) -> np.ndarray | None:
    """Return each relation, a column, times the smallest factor that makes its coefficients integers; None if none does."""
    found, left = np.zeros(relations.shape), np.arange(relations.shape[1])
    for factor in MULTIPLES:
        if not left.size:
            break
        multiples = factor * relations[:, left]
        rounded = np.rint(multiples)
        near = np.abs(rounded - multiples).max(axis=0) <= NEGLIGIBLE
        found[:, left[near]], left = rounded[:, near], left[~near]
    return None if left.size else found
