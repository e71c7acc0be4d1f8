"""Features that are exact linear combinations of others: duplicates, dummy variables of all levels, constants.

A dual point that is orthogonal to the others is orthogonal to these as well. A relation Σ_j β_j x_j = 0 between columns is proved
by evaluating it on all rows in floating-point arithmetic that has no rounding errors:

- β_j are integers, the entries x_ij are multiples of 2⁻²⁰, and 2²⁰ Σ_j |β_j| max_i |x_ij| < 2⁵³; or
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


def spanning_features(data: Data, G: np.ndarray, among: np.ndarray) -> np.ndarray | None:
    """Return features whose exact linear combinations are all others; None if not all relations are proved.

    Parameters
    ----------
    data : Data
        The rows.
    G : array of shape (d, d) or (d + 1, d + 1)
        A Gram matrix of the features and, last, a constant 1, if it is one of them.
    among : array of int
        The features that matter, in increasing order.
    """
    from scipy.linalg import solve_triangular
    from scipy.linalg.lapack import dpstrf

    own = G[np.ix_(among, among)]
    if not (own.diagonal().min(initial=np.inf) > 0.0 and np.isfinite(own).all()):
        return None
    scale = 1.0 / np.sqrt(own.diagonal())
    scale[among == data.d] *= 4.0  # the constant comes first: constant features are multiples of it, not it of them
    factor, order, rank, _ = dpstrf(scale[:, None] * own * scale, tol=DEPENDENT, lower=True)
    if rank in (0, len(among)):
        return None
    order = order - 1
    first, rest = order[:rank], order[rank:]
    lower = np.tril(factor[:rank, :rank])
    coefficients = solve_triangular(lower, factor[rank:, :rank].T, lower=True, trans="T")  # of scaled features
    found = np.where(np.abs(coefficients) > NEGLIGIBLE, coefficients, 0.0) * scale[first][:, None] / scale[rest]
    relations = np.zeros((len(G), len(rest)))
    relations[among[first]], relations[among[rest], np.arange(len(rest))] = found, -1.0
    return np.sort(among[first]) if _hold(data, relations, among[rest], constant=len(G) > data.d) else None


def _hold(data: Data, relations: np.ndarray, last: np.ndarray, *, constant: bool) -> bool:
    """Whether coefficients near these give relations that are proved; each has the coefficient −1 at its entry of ``last``."""
    pairs, near = np.count_nonzero(relations, axis=0) == 2, np.abs(relations) * NEGLIGIBLE
    with_constant = pairs & (relations[-1] != 0.0) if constant else np.zeros(len(last), dtype=bool)
    relations[-1, with_constant] = linear.to_dense(data.rows(slice(0, 1)))[0, last[with_constant]]
    powers = np.copysign(np.exp2(np.rint(np.log2(np.abs(relations) + (relations == 0.0)))), relations)
    powers[relations == 0.0] = 0.0
    doubled = pairs & ~with_constant & (np.abs(powers - relations) <= near).all(axis=0)
    relations[:, doubled] = powers[:, doubled]
    others = ~(with_constant | doubled)
    if (integers := _integers(relations[:, others])) is None:
        return False
    relations[:, others] = integers
    used, most = np.flatnonzero(integers[: data.d].any(axis=1)), float(np.abs(integers).sum(axis=0).max(initial=0.0))
    step = max(1, ENTRIES // data.d)
    for start in range(0, data.n, step):
        rows = linear.to_dense(data.rows(slice(start, start + step)))
        entries = FINEST * rows[:, used]
        if np.any(entries != np.rint(entries)) or most * max(FINEST, np.abs(entries).max(initial=0.0)) >= LARGEST:
            return False
        if np.any(rows @ relations[: data.d] + (relations[-1] if constant else 0.0)):
            return False
    return True


def _integers(relations: np.ndarray) -> np.ndarray | None:
    """Return each relation, a column, times the smallest factor that makes its coefficients integers; None if none does."""
    found = []
    for own in relations.T:
        near = (each for factor in MULTIPLES if np.abs(np.rint(each := factor * own) - each).max() <= NEGLIGIBLE)
        if (multiple := next(near, None)) is None:
            return None
        found.append(np.rint(multiple))
    return np.array(found).reshape(-1, len(relations)).T
