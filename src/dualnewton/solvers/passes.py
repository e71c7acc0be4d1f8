"""The passes over the data that a primal method asks for, behind one small interface.

A method never sees X. It hands over points and what to do with margins, and gets sums back; the data may lie in memory, as
here, or be chunks on a disk, on other machines or on a GPU: whoever implements :class:`Passes` serves every method.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from dualnewton import _linear
from dualnewton.solvers.costs import Costs

BLOCK_BYTES = 1 << 22
"""Of a block of dense rows: its two products should find it in the cache the second time."""

SQUARED_BYTES = 1 << 21
"""Of a block of rows whose outer products are added: with their weights they should stay near."""

BLOCK_MARGINS = 1 << 13
"""Margins in a block of sparse rows: temporaries of up to 128 KiB come from memory that is already mapped."""

PART_ENTRIES, DENSE_PART_ENTRIES = 1 << 17, 1 << 19
"""Stored entries that make a part of the data worth a thread of its own: sparse ones take longer."""

MOST_PARTS = 16

WORTH_THREADS = 2.5e-3
"""Nominal seconds of a pass below which threads would wait for each other's interpreter more than they gain."""

SKETCH_PARTS, LARGE_SKETCH = 4, 1 << 25
"""Into how many parts a sketch is cut, and how many multiplications make it worth that."""


class Target(Protocol):
    """What is made of the margins of a block of rows: K columns of them, of one model or several."""

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ c_i φ_i for each model, and R of the shape of Z, the derivatives c_i ∂φ_i/∂z_ik."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one pass brings home.

    Attributes
    ----------
    values : array
        Σ c_i φ_i of each model.
    gradients : array of shape (K, d)
        Σ_i R_ik a_i.
    slopes : array of shape (K,)
        Σ_i R_ik, the derivatives by the intercepts.
    margins : array of shape (n, K)
        a_iᵀw_k + b_k.
    """

    values: np.ndarray
    gradients: np.ndarray
    slopes: np.ndarray
    margins: np.ndarray


class Passes(ABC):
    """Data that can be passed over: n rows of d features, and what that costs."""

    n: int
    d: int
    costs: Costs

    @abstractmethod
    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target) -> Evaluation:
        """Margins, losses and gradients at K points, in one pass."""

    @abstractmethod
    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Aᵀ D(weights_k) (A V_k + v_k) for each k, and the column sums of what Aᵀ is applied to, in one pass."""

    @abstractmethod
    def diagonal(self, weights: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Σ weights_i a_ij² for the given features j."""

    @abstractmethod
    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        """Σ_j scale_j a_ij² for each row i."""

    @abstractmethod
    def sketch(self, indices: np.ndarray, weights: np.ndarray, *, intercept: bool, single: bool = False) -> np.ndarray:
        """Σ weights_s ã ãᵀ over the rows with these indices, d×d; with a constant feature 1 appended if ``intercept``.

        Rows with a negative weight are taken away. Where ``single``, products in single precision are good enough.
        """

    @abstractmethod
    def take(self, indices: np.ndarray | slice) -> Any:
        """Return the rows themselves, as float64."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Give back what the passes hold."""


class MemoryPasses(Passes):
    """Passes over rows in memory (or memory-mapped), by blocks that stay in the cache between the two products.

    The rows are cut into parts by their number and size alone. Threads take parts, and what the parts bring is added in
    order: the result has the same bits for any number of threads.

    Parameters
    ----------
    X : array or CSR array of shape (n, d)
        The rows.
    n_threads : int
        How many threads may work.
    compiled : bool
        Whether kernels may be used, where NumPy or SciPy would have to copy.
    """

    def __init__(self, X: Any, n_threads: int = 1, *, compiled: bool = True) -> None:
        self.costs = Costs.of(X)
        if self.costs.sparse and not self.costs.by_entry:
            X = X.toarray()
            self.costs = Costs.of(X)
        self.X, (self.n, self.d), self.compiled = X, X.shape, compiled
        stored = X.nnz if sp.issparse(X) else X.size
        worth = PART_ENTRIES if sp.issparse(X) else DENSE_PART_ENTRIES
        parts = max(1, min(MOST_PARTS, stored // worth, stored // (4 * self.d), self.n))
        ends = np.linspace(0, self.n, parts + 1).astype(int)
        self.parts = [slice(int(low), int(high)) for low, high in itertools.pairwise(ends)]
        self.blocks = [self._blocks_of(part) for part in self.parts]
        self.helpers = min(n_threads, parts) - 1 if self.costs.data_pass > WORTH_THREADS else 0
        self.pool = ThreadPoolExecutor(self.helpers) if self.helpers else None

    def _blocks_of(self, part: slice) -> list[_Block]:
        sparse = sp.issparse(self.X)
        step = BLOCK_MARGINS if sparse else max(16, BLOCK_BYTES // (8 * self.d))
        rows = [slice(low, min(low + step, part.stop)) for low in range(part.start, part.stop, step)]
        if self.X.dtype != np.float64 and self.compiled:
            return [_KernelBlock(self.X, each) for each in rows]
        return [_LibraryBlock(self.X, each) for each in rows]

    def _each(self, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Do the work for each item, by whoever is free; return what came of it, in order."""
        if self.pool is None or len(items) == 1:
            return [work(item) for item in items]
        waiting = iter(range(len(items)))  # next() on it is atomic: an item is taken once
        done: list[Any] = [None] * len(items)

        def take() -> None:
            for place in waiting:
                done[place] = work(items[place])

        others = [self.pool.submit(take) for _ in range(self.helpers)]
        take()
        for other in others:
            other.result()
        return done

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target) -> Evaluation:
        margins = np.empty((self.n, len(W)))

        def work(blocks: Sequence[_Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            values: Any = 0.0
            slopes, gradients = np.zeros(len(W)), np.zeros(W.shape)
            for block in blocks:
                Z = margins[block.rows]
                block.products(W, Z)
                Z += b
                sums, R = target.losses(block.rows, Z)
                values = values + sums
                slopes += R.sum(axis=0)
                block.gather(R, gradients)
            return values, gradients, slopes

        values, gradients, slopes = _added(self._each(self.blocks, work))
        return Evaluation(values, gradients, slopes, margins)

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def work(blocks: Sequence[_Block]) -> tuple[np.ndarray, np.ndarray]:
            sums, result = np.zeros(len(V)), np.zeros(V.shape)
            for block in blocks:
                Z = np.empty((block.rows.stop - block.rows.start, len(V)))
                block.products(V, Z)
                Z += v
                Z *= weights[block.rows]
                sums += Z.sum(axis=0)
                block.gather(Z, result)
            return result, sums

        result, sums = _added(self._each(self.blocks, work))
        return result, sums

    def diagonal(self, weights: np.ndarray, features: np.ndarray) -> np.ndarray:
        if self.compiled:
            everywhere = np.zeros(self.d)
            self._run("diagonal", weights, everywhere)
            return everywhere[features]
        columns = _linear.to_dense(self.X[:, features])
        return np.einsum("ij,ij,i->j", columns, columns, weights)

    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        scores = np.empty(self.n)
        if self.compiled:
            self._run("row_scores", scale, scores)
            return scores
        for part in _pieces(self.n, self.n if sp.issparse(self.X) else max(16, BLOCK_BYTES // (8 * self.d))):
            scores[part] = _linear.squared(self.X[part].astype(np.float64, copy=False)) @ scale
        return scores

    def _run(self, kernel: str, *arguments: Any) -> None:
        from dualnewton.kernels import passes
        from dualnewton.kernels.rows import Rows

        getattr(passes, kernel).prepare(*Rows.of(self.X), *arguments)
        getattr(passes, kernel)(*Rows.of(self.X), *arguments)

    def take(self, indices: np.ndarray | slice) -> Any:
        return _linear.take_rows(self.X, indices)

    def sketch(self, indices: np.ndarray, weights: np.ndarray, *, intercept: bool, single: bool = False) -> np.ndarray:
        one_by_one = self.compiled and sp.issparse(self.X) and self._one_by_one(indices)
        kind = np.float32 if single else np.float64
        add = self._add_pairs if one_by_one else partial(self._add_products, kind)
        size = self.d + intercept

        def work(part: slice) -> tuple[np.ndarray, np.ndarray]:
            H, border = np.zeros((size, size)), np.zeros(self.d if intercept or one_by_one else 0)
            add(indices[part], weights[part], H, border)
            return H, border

        parts = SKETCH_PARTS if indices.size * self.d**2 >= LARGE_SKETCH else 1
        H, border = _added(self._each(list(_pieces(indices.size, -(-indices.size // parts))), work))
        if intercept:
            H[self.d, : self.d] = H[: self.d, self.d] = border
            H[self.d, self.d] = weights.sum()
        return H

    def _add_pairs(self, indices: np.ndarray, weights: np.ndarray, H: np.ndarray, border: np.ndarray) -> None:
        self._run("curvature", indices, weights, H, border)
        square = H[: self.d, : self.d]
        square += np.tril(square, -1).T

    def _add_products(
        self, kind: type, indices: np.ndarray, weights: np.ndarray, H: np.ndarray, border: np.ndarray
    ) -> None:
        consecutive = indices.size == indices[-1] - indices[0] + 1 if indices.size else False
        # As many rows as features at least, or H would be read and written more often than the rows.
        for some in _pieces(indices.size, max(self.d, SQUARED_BYTES // (8 * self.d))):
            # A view where it can be had: copies take as long as the product.
            own = slice(indices[some.start], indices[some.stop - 1] + 1) if consecutive else indices[some]
            rows = _linear.to_dense(_linear.take_rows(self.X, own))
            if border.size:
                border += weights[some] @ rows
            H[: self.d, : self.d] += _outer_products(rows, weights[some], kind)

    def _one_by_one(self, indices: np.ndarray) -> bool:
        """Whether pairs of stored entries are so few that they beat dense products."""
        lengths = (self.X.indptr[indices + 1] - self.X.indptr[indices]).astype(float)
        return self.costs.outer(indices.size, 0.5 * float(lengths @ lengths))[1]

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()


class _Block(Protocol):
    """Some consecutive rows, and the two products of a pass."""

    rows: slice

    def products(self, W: np.ndarray, out: np.ndarray) -> None:
        """out = A Wᵀ."""

    def gather(self, R: np.ndarray, out: np.ndarray) -> None:
        """out += Rᵀ A."""


class _LibraryBlock:
    """By BLAS, or by SciPy on a view of the rows."""

    def __init__(self, X: Any, rows: slice) -> None:
        self.rows = rows
        if sp.issparse(X):
            start, stop = X.indptr[rows.start], X.indptr[rows.stop]
            pointers = X.indptr[rows.start : rows.stop + 1] - start
            shape = (rows.stop - rows.start, X.shape[1])
            self.A: Any = sp.csr_array((X.data[start:stop], X.indices[start:stop], pointers), shape=shape)
        else:
            self.A = X[rows]
        self.transposed = self.A.T  # made once: SciPy takes its time over it

    def products(self, W: np.ndarray, out: np.ndarray) -> None:
        if not W.any():  # where most runs begin
            out[:] = 0.0
        elif len(W) == 1:
            out[:, 0] = self.A @ W[0]
        else:
            out[:] = self.A @ W.T

    def gather(self, R: np.ndarray, out: np.ndarray) -> None:
        if len(out) == 1:
            out[0] += self.transposed @ R[:, 0]
        else:
            out += (self.transposed @ R).T


class _KernelBlock:
    """By kernels that read the rows as they are stored."""

    def __init__(self, X: Any, rows: slice) -> None:
        from dualnewton.kernels import passes
        from dualnewton.kernels.rows import Rows

        self.rows, self.place, self.kernels = rows, (*Rows.of(X), rows.start, rows.stop), passes
        nothing = np.empty((0, 1)), np.empty((1, X.shape[1]))
        passes.products.prepare(*self.place, nothing[1], nothing[0])
        passes.gather.prepare(*self.place, *nothing)

    def products(self, W: np.ndarray, out: np.ndarray) -> None:
        self.kernels.products(*self.place, W, out)

    def gather(self, R: np.ndarray, out: np.ndarray) -> None:
        self.kernels.gather(*self.place, R, out)


def _outer_products(rows: np.ndarray, weights: np.ndarray, kind: type) -> np.ndarray:
    """AᵀD(weights)A, as products of a matrix with itself, which take half the multiplications."""
    if (weights == weights[:1]).all():  # no copy, unless of another kind
        same: np.ndarray = rows.astype(kind, copy=False)
        return np.asarray(weights[:1].sum() * (same.T @ same))
    if (negative := weights < 0.0).any():
        parts = np.flatnonzero(~negative), np.flatnonzero(negative)
        given, taken = (_outer_products(rows.take(own, axis=0), np.abs(weights[own]), kind) for own in parts)
        return given - taken
    scaled = np.multiply(rows, np.sqrt(weights)[:, None], out=np.empty(rows.shape, kind), casting="same_kind")
    return np.asarray(scaled.T @ scaled)


def _added(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Add what the parts brought, in their order."""
    total = parts[0]
    for part in parts[1:]:
        total = tuple(sum_ + more for sum_, more in zip(total, part, strict=True))
    return total


def _pieces(size: int, step: int) -> Iterator[slice]:
    for low in range(0, size, step):
        yield slice(low, min(low + step, size))
