"""Largest eigenvalues of Gram matrices AAᵀ and of their expectations E[(AAᵀ)_Ŝ], computed from the rows of A.

The n×n matrices are never formed. The Lanczos process returns an upper bound, because an eigenvalue that is too small would give
an invalid ESO vector or a rate that is too fast.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix import linear, whole
from dualnewton.samplings import PairStructure

SMALL = 300
"""Largest order of a matrix that is formed and passed to LAPACK at a small cost; larger ones use Lanczos."""

_STEPS = 400
"""Largest number of matrix-vector products in a Lanczos process; each costs two passes over the rows."""

_CONVERGED = 1e-8
"""Residual norm, relative to the Ritz value, at which a Lanczos process has converged; it loosens the bound by as much."""

_ROUNDING = 1e-12
"""Allowance for the rounding errors of a Lanczos process, relative to the Ritz value; about 5000 units of rounding."""

_CHANCE = 1e-10
"""Probability that the bound of a Lanczos process fails if its residual did not converge; small enough to neglect."""

_GROUP = 256
"""Number of rows in a group of small blocks whose Gram matrices are computed by one product, to save calls. A factor with at
most a quarter of it, 64 rows, counts as small."""

_CHUNK = 1 << 20
"""Matrix entries scaled at a time: 8 MiB of float64, which bounds the size of the temporary copy."""


def top(matrix: np.ndarray) -> float:
    """λmax of a symmetric matrix, by LAPACK."""
    return float(np.linalg.eigvalsh(matrix)[-1])


def lanczos_top(times: Callable[[np.ndarray], np.ndarray], size: int, at_most: float) -> float:
    """Return an upper bound on λmax of a positive semidefinite operator, by the Lanczos process.

    If the residual r of the Ritz value ρ converges, the bound is ρ + r. If it does not within ``_STEPS`` products (the largest
    eigenvalues lie too close together), the bound is that of Kuczyński and Woźniakowski (SIAM J. Matrix Anal. Appl. 13, 1992),
    which needs no eigenvalue gap: for a random start, λmax > ρ/(1 − ε) has a probability below 1.648 √size exp(−√ε(2k − 1))
    after k steps. SciPy's ``eigsh`` raises an error in that case, so the recurrence is written out here. The Lanczos vectors
    are not reorthogonalised, because the loss of orthogonality only repeats eigenvalues that were already found.

    ``times`` is the product with a vector; the result does not exceed ``at_most``, a known upper bound on λmax.
    """
    from scipy.linalg import eigh_tridiagonal

    x = np.random.default_rng(0).standard_normal(size)  # a fixed seed, so that equal inputs give equal bits
    x /= np.linalg.norm(x)
    previous = np.zeros(size)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    ritz, beta = 0.0, 0.0
    for k in range(_STEPS):
        y = times(x) - beta * previous
        diagonal.append(float(x @ y))
        y -= diagonal[-1] * x
        beta = float(np.linalg.norm(y))
        values, vectors = eigh_tridiagonal(diagonal, off_diagonal, select="i", select_range=(k, k))
        ritz, residual = float(values[0]), beta * abs(float(vectors[-1, 0]))
        if residual <= _CONVERGED * ritz:
            return min(at_most, ritz + residual + _ROUNDING * ritz)
        off_diagonal.append(beta)
        previous, x = x, y / beta
    slack = (math.log(1.648 * math.sqrt(size) / _CHANCE) / (2 * _STEPS - 1)) ** 2
    return min(at_most, ritz / (1.0 - slack))


@dataclass(frozen=True)
class Rows:
    """The Gram matrix M = AAᵀ of the rows of A, dense or CSR."""

    A: linear.Matrix

    @cached_property
    def diagonal(self) -> np.ndarray:
        """M_ii = ‖a_i‖²."""
        return linear.squared_norms(self.A)

    def tops(self, columns: sp.csc_array) -> np.ndarray:
        """λmax(D(u) M D(u)) for each column u of a sparse matrix.

        Columns with few entries are processed in groups, so that one product computes the Gram matrices of many small blocks.
        """
        found = np.zeros(columns.shape[1])
        for first, last in _groups(columns.indptr):
            part = slice(columns.indptr[first], columns.indptr[last])
            members, u = columns.indices[part], columns.data[part]
            if last == first + 1:
                found[first] = self._top(members, u)
                continue
            gram = linear.gram(whole.take_rows(self.A, members)) * np.outer(u, u)
            cuts = columns.indptr[first : last + 1] - columns.indptr[first]
            for k, (a, b) in enumerate(itertools.pairwise(cuts), start=first):
                found[k] = top(gram[a:b, a:b]) if b > a else 0.0
        return found

    def _top(self, members: np.ndarray, u: np.ndarray) -> float:
        rows = self.take(members)
        n, d = rows.shape
        if n <= min(d, SMALL):
            return top(_gram(rows) * np.outer(u, u))
        if d <= SMALL:  # D(u)A and its transpose have the same singular values, so the d×d product gives the same λmax
            return top(sum((linear.gram(part.T) for part in _scaled_chunks(rows, u)), start=np.zeros((d, d))))

        def across(x: np.ndarray) -> np.ndarray:
            return u * whole.times(rows, whole.transposed_times(rows, u * x))

        def down(x: np.ndarray) -> np.ndarray:
            return whole.transposed_times(rows, u * u * whole.times(rows, x))

        trace = float(u * u @ self.diagonal[members])
        return lanczos_top(down if d < n else across, min(n, d), at_most=trace)

    def take(self, members: np.ndarray) -> linear.Matrix:
        """Return the given rows, without a copy if they are all rows in order."""
        everyone = members.size == self.A.shape[0] and bool((np.diff(members) == 1).all())
        return self.A if everyone else whole.take_rows(self.A, members)


@dataclass(frozen=True)
class ExpectedGram:
    """E[(AAᵀ)_Ŝ] = D(δ∘m) + Σ_k c_k D(u_k) AAᵀ D(u_k), with δ, c and u from ``sampling.pair_structure()``.

    A product with a vector costs two passes over the rows of each u_k; factors with few rows are summed once in a sparse matrix.
    """

    rows: Rows
    pairs: PairStructure

    def top(self, scale: np.ndarray, at_most: float) -> float:
        """λmax(D(scale) E[(AAᵀ)_Ŝ] D(scale)); the result of Lanczos does not exceed the known bound ``at_most``."""
        alone = scale**2 * self.pairs.diagonal * self.rows.diagonal
        if not self.pairs.weights.any():
            return float(alone.max())
        if not self.pairs.diagonal.any() and not overlapping(self.pairs):  # block diagonal: λmax is that of one block
            columns = sp.csc_array(linear.diagonal(scale) @ self.pairs.factors)
            return float((self.pairs.weights * self.rows.tops(columns)).max())
        if scale.size <= SMALL:
            return top(np.outer(scale, scale) * self.pairs.dense() * _gram(self.rows.A))
        return lanczos_top(lambda x: scale * self.times(scale * x), scale.size, at_most)

    def times(self, x: np.ndarray) -> np.ndarray:
        """E[(AAᵀ)_Ŝ] x."""
        y = self.pairs.diagonal * self.rows.diagonal * x + self._narrow @ x
        for weight, members, u in self._wide:
            rows = self.rows.take(members)
            y[members] += weight * u * whole.times(rows, whole.transposed_times(rows, u * x[members]))
        return y

    @cached_property
    def _factors(self) -> list[tuple[float, np.ndarray, np.ndarray]]:
        return list(zip(self.pairs.weights, *columns_of(self.pairs.factors), strict=True))

    @cached_property
    def _wide(self) -> list[tuple[float, np.ndarray, np.ndarray]]:
        return [factor for factor in self._factors if factor[1].size > _GROUP // 4]

    @cached_property
    def _narrow(self) -> sp.csr_array:
        n = self.rows.A.shape[0]
        entries, places = [np.empty(0)], [np.empty((2, 0), dtype=np.int64)]
        for weight, members, u in self._factors:
            if members.size <= _GROUP // 4:
                gram = linear.gram(whole.take_rows(self.rows.A, members))
                entries.append((weight * np.outer(u, u) * gram).ravel())
                places.append(np.stack(np.meshgrid(members, members, indexing="ij")).reshape(2, -1))
        return sp.coo_array((np.concatenate(entries), tuple(np.concatenate(places, axis=1))), shape=(n, n)).tocsr()


def columns_of(matrix: sp.csc_array) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the row indices and the values of the entries of each column."""
    cuts = matrix.indptr[1:-1]
    if matrix.shape[1] == 0:
        return [], []
    return np.split(matrix.indices, cuts), np.split(matrix.data, cuts)


def overlapping(pairs: PairStructure) -> bool:
    """Return True if some example is in the support of more than one factor."""
    return bool(np.bincount(pairs.factors.indices, minlength=1).max() > 1)


def inverse_root(x: np.ndarray) -> np.ndarray:
    """x^(−1/2), and 0 where x is 0, so that coordinates with a zero diagonal entry are ignored."""
    return np.divide(1.0, np.sqrt(x), out=np.zeros_like(x), where=x > 0.0)


def _groups(starts: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of consecutive columns with at most _GROUP entries together, or of one column with more."""
    first, columns = 0, len(starts) - 1
    while first < columns:
        last = int(np.searchsorted(starts, starts[first] + _GROUP, side="right")) - 1
        last = min(max(last, first + 1), columns)
        yield first, last
        first = last


def _gram(rows: linear.Matrix) -> np.ndarray:
    return linear.gram(rows.astype(np.float64, copy=False))


def _scaled_chunks(rows: linear.Matrix, u: np.ndarray) -> Iterator[np.ndarray]:
    """Yield D(u) rows in float64, at most _CHUNK entries at a time."""
    step = max(1, _CHUNK // rows.shape[1])
    for start in range(0, rows.shape[0], step):
        part = slice(start, start + step)
        yield linear.diagonal(u[part]) @ rows[part].astype(np.float64, copy=False)
