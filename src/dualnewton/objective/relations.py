"""Features that are exact linear combinations of others: duplicates, dummy variables of all levels, constants.

A dual point that is orthogonal to the others is orthogonal to these as well. A relation Σ_j β_j x_j = 0 between columns is proved
by evaluating it on all rows in floating-point arithmetic that has no rounding errors:

- β_j are integers, the entries x_ij are multiples of 2⁻²⁰, and 2²⁰ Σ_j |β_j| ‖x_j‖ < 2⁵³; or
- two columns, of which one is a power of two times the other, or a multiple of the constant column.

Columns that depend on each other up to rounding only have no such relation. The direction in which they differ is made of
rounding errors, and the optimum may use it with huge coefficients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

TO_FINEST = 1.5 * LARGEST / 2.0 / FINEST
"""Adding this number to an entry and subtracting it again gives a multiple of 1/FINEST, the entry itself if it is one."""

CLOSE = 2.0**-40
"""Values of a relation on a row below this fraction of the root mean square of its terms are rounding errors."""

ENTRIES = 1 << 15
"""Number of stored entries of X that are read at a time: intermediate arrays then stay in the cache."""


def spanning_features(data: Data, G: np.ndarray, among: np.ndarray) -> tuple[np.ndarray | None, bool]:
    """Return features whose exact linear combinations are all others, None if not all relations are proved.

    The second value says whether the relations hold on all rows up to rounding: a Gram matrix of more rows has the same ones.

    G is a Gram matrix of the features and, last, a constant 1, if it is one of them; ``among`` are the features that matter,
    in increasing order.
    """
    from scipy.linalg.lapack import dpstrf, dtrtrs

    own = G if len(among) == len(G) else G[np.ix_(among, among)]
    if not (np.minimum.reduce(own.diagonal(), initial=np.inf) > 0.0 and np.isfinite(own).all()):
        return None, False
    scale = 1.0 / np.sqrt(own.diagonal())
    scale[among == data.d] *= 4.0  # the constant comes first: constant features are multiples of it, not it of them
    factor, order, rank, _ = dpstrf(scale[:, None] * own * scale, tol=DEPENDENT, lower=True)
    if rank in (0, len(among)):
        return None, False
    order = order - 1
    first, rest = order[:rank], order[rank:]
    coefficients = dtrtrs(factor[:rank, :rank], factor[rank:, :rank].T, lower=True, trans=1)[0]  # of scaled features
    constant, units, places = len(G) > data.d, scale[first][:, None] / scale[rest], (among[rest], np.arange(len(rest)))

    def relations_of(scaled: np.ndarray) -> np.ndarray:
        """Return the coefficients of the features themselves, a column for each relation, with −1 at its own feature."""
        found = np.zeros((len(G), len(rest)))
        found[among[first]], found[places] = scaled * units, -1.0
        return found

    near = relations_of(np.where(np.abs(coefficients) > NEGLIGIBLE, coefficients, 0.0))
    if (exact := _exact(data, near, places[0], constant=constant)) is not None:
        proved, close = _evaluated(data, *exact, constant=constant)
        return np.sort(among[first]) if proved else None, close
    return None, _evaluated(data, relations_of(coefficients), np.zeros(0, dtype=int), constant=constant)[1]


def _exact(
    data: Data, relations: np.ndarray, last: np.ndarray, *, constant: bool
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return relations near these that are exact if entries of some features, also returned, are multiples of 1/FINEST.

    None if there are no such relations. Each has the coefficient −1 at its entry of ``last``.
    """
    pairs = np.add.reduce(relations != 0.0) == 2
    others: Any = slice(None)
    if np.count_nonzero(pairs):
        with_constant = pairs & (relations[-1] != 0.0) if constant else np.zeros(len(last), dtype=bool)
        relations[-1, with_constant] = linear.to_dense(data.rows(slice(0, 1)))[0, last[with_constant]]
        powers = np.copysign(np.exp2(np.rint(np.log2(np.abs(relations) + (relations == 0.0)))), relations)
        powers[relations == 0.0] = 0.0
        near = np.abs(powers - relations) <= NEGLIGIBLE * np.abs(relations)
        doubled = pairs & ~with_constant & near.all(axis=0)
        relations[:, doubled] = powers[:, doubled]
        others = ~(with_constant | doubled)
    if (integers := _integers(relations[:, others])) is None:
        return None
    relations[:, others] = integers
    sizes = data.feature_norms @ np.abs(integers[: data.d]) + np.add.reduce(np.abs(integers[data.d :]))
    if not FINEST * np.maximum.reduce(sizes, initial=0.0) < 0.99 * LARGEST:
        return None
    return relations, np.logical_or.reduce(integers[: data.d], axis=1).nonzero()[0]


def _evaluated(data: Data, relations: np.ndarray, whole: np.ndarray, *, constant: bool) -> tuple[bool, bool]:
    """Whether the relations hold and entries of the features ``whole`` are multiples of 1/FINEST; whether they nearly hold."""
    d, proved = data.d, True
    step = max(1, ENTRIES * data.n // max(1, data.profile.stored))
    for start in range(0, data.n, step):
        rows = data.rows(slice(start, start + step))
        values = rows @ relations[:d]
        if constant:
            values += relations[-1]
        if np.count_nonzero(values):
            proved = False
            allowed = CLOSE * (data.feature_norms @ np.abs(relations[:d])) / np.sqrt(data.n)  # of a row
            if (np.abs(values).max(axis=0) > allowed).any():
                return False, False
        if proved and whole.size:
            entries = linear.entries(rows if whole.size == d else rows[:, whole])
            proved = bool(((entries + TO_FINEST) - TO_FINEST == entries).all())
    return proved, True


def _integers(relations: np.ndarray) -> np.ndarray | None:
    """Return each relation, a column, times the smallest factor that makes its coefficients integers; None if none does."""
    found = np.rint(relations)
    if (np.abs(found - relations) <= NEGLIGIBLE).all():
        return found
    left = np.arange(relations.shape[1])
    for factor in MULTIPLES:
        if not left.size:
            break
        multiples = factor * relations[:, left]
        rounded = np.rint(multiples)
        near = np.abs(rounded - multiples).max(axis=0) <= NEGLIGIBLE
        found[:, left[near]], left = rounded[:, near], left[~near]
    return None if left.size else found
