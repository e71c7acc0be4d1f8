"""Data on the workers of a Dask cluster: each block of rows stays where it is, with its labels, margins and dual variables."""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.dask import tasks
from dualnewton.matrix.dask.layout import Layout
from dualnewton.matrix.dask.programs import Constant, Scattered
from dualnewton.matrix.dask.rows import RowBlocks
from dualnewton.matrix.dask.sources import blocks_of, current_client, is_collection, require_computed, shared_out
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.protocol import Capabilities, Data, Evaluation, Profile, Rows, RowVectors, Target, Work
from dualnewton.matrix.selections import count_active
from dualnewton.row_arrays import RowArray, is_elsewhere, on_host

KEPT = 1 << 20
"""Entries of a sample of rows that the client keeps."""


@dataclass(frozen=True, eq=False)
class Selected:
    """A set of rows, as a row array of booleans, and their number."""

    mask: RowBlocks
    size: int


class DaskData(Data):
    """Rows on the workers of a cluster.

    X is a dask array, a dask data frame or a list of delayed matrices, dense or CSR. Blocks without rows are left out; a row
    must lie in one block, so that an array whose columns are chunked is rechunked.
    """

    capabilities = Capabilities(
        random_rows=False,
        whole=False,
        local=False,
        by_messages=True,
        reason="the rows are on the workers of a cluster",
    )
    _kept: tuple[Any, Any] = (None, None)
    _work = b""

    def __init__(self, X: Any) -> None:
        client = current_client()
        blocks, sizes = blocks_of(client, "X", X, axes=2)
        require_computed(client, "X", blocks)
        ranges = shared_out(len(blocks), sizes, client)
        plain = Layout(client, [], [])
        arguments = [[own.start, [str(blocks[k].key) for k in own], [blocks[k] for k in own]] for own in ranges]
        futures = plain.submit("share", tasks.make_share, arguments)
        found = plain.fetched(plain.submit("describe-share", tasks.described, [[each] for each in futures]))
        self._set(client, [k for k, own in enumerate(found) if own], futures, found)

    def _set(self, client: Any, filled: Sequence[int], futures: Sequence[Any], found: Sequence[Any]) -> None:
        if not filled:
            raise DualnewtonError("X must have at least one row, got blocks without rows")
        self.futures = [futures[k] for k in filled]
        shares = [found[k] for k in filled]
        self.layout = Layout(
            client, [[number for number, _, _ in own] for own in shares], [[p.n for _, p, _ in own] for own in shares]
        )
        blocks = [each for own in shares for each in own]
        first, known, _ = blocks[0]
        for number, each, _ in blocks:
            if each.d != known.d:
                raise DualnewtonError(
                    f"X must have the same columns in all blocks: block {first} has {known.d}, block {number} has {each.d}"
                )
            if each.sparse != known.sparse:
                raise DualnewtonError(f"X must be sparse or dense in all blocks: blocks {first} and {number} differ")
        self.profile = Profile(
            n=self.layout.n,
            d=known.d,
            stored=sum(each.stored for _, each, _ in blocks),
            pairs=sum(each.pairs for _, each, _ in blocks),
            sparse=known.sparse,
            itemsize=max(each.itemsize for _, each, _ in blocks),
        )

    def _with(self, futures: list[Any], profile: Profile) -> DaskData:
        made = object.__new__(DaskData)
        made.layout, made.futures, made.profile, made._work = self.layout, futures, profile, self._work
        return made

    # Identity --------------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        found = self.layout.fetched(self._changed("fingerprint", tasks.fingerprints))
        digest = hashlib.blake2b("".join(itertools.chain(*found)).encode(), digest_size=16)
        return f"{self.n}x{self.d} in {self.layout.count} blocks {digest.hexdigest()}"

    def same_as(self, other: Data) -> bool:
        theirs = getattr(other, "futures", [])
        return self is other or [each.key for each in self.futures] == [each.key for each in theirs]

    def with_constant(self, value: float) -> DaskData:
        return self._with(
            self._changed("constant-column", partial(tasks.with_constant, value)), self.profile.with_constant()
        )

    def with_features(self, features: np.ndarray) -> DaskData:
        """Return the same rows with these columns alone, given by increasing indices."""
        share = features.size / self.d
        stored, pairs = int(share * self.profile.stored), share**2 * self.profile.pairs
        profile = replace(self.profile, d=features.size, stored=stored, pairs=pairs)
        return self._with(self._changed("columns", partial(tasks.with_features, features)), profile)

    def _changed(self, name: str, function: Any) -> list[Any]:
        """Return the shares that a function makes of these."""
        return self.layout.submit(name, function, [[each] for each in self.futures])

    def using(self, work: Work) -> DaskData:
        made = self._with(self.futures, self.profile)
        made._work = pickle.dumps(replace(work, whole=self.profile.stored))
        return made

    # Row arrays ------------------------------------------------------------------------------------------------------

    def adopted(self, name: str, values: Any) -> Any:
        return self.beside(name, values) if is_collection(values) else values

    def placed(self, values: Any) -> RowBlocks:
        if isinstance(values, RowBlocks):
            return values
        return self.layout.sent(self.futures, np.asarray(on_host(values)))

    def beside(self, name: str, values: Any) -> RowBlocks:
        """Return a collection with an entry for each row of X as a row array."""
        client, numbers = self.layout.client, self.layout.numbers
        if hasattr(values, "to_dask_array"):
            values = values.to_dask_array()
        axes = getattr(values, "ndim", 1)
        sizes = [len(rows) for share in self.layout.shares for _, rows in share]
        chunks = getattr(values, "chunks", ((np.nan,),))[0]
        if not np.isnan(chunks).any() and [size for size in chunks if size] != sizes:
            if sum(chunks) != self.n:
                raise DualnewtonError(
                    f"{name} must have an entry for each of the {self.n} rows of X, got {sum(chunks)}"
                )
            values = values.rechunk({0: tuple(sizes)})
            numbers = [list(range(share[0][0], share[-1][0] + 1)) for share in self.layout.shares]
        elif not np.isnan(chunks).any():
            kept = [k for k, size in enumerate(chunks) if size]
            numbers = [[kept[number] for number, _ in share] for share in self.layout.shares]
        blocks, _ = blocks_of(client, name, values, axes)
        if len(blocks) <= max(share[-1] for share in numbers):
            raise DualnewtonError(f"{name} must have the blocks of X, got {len(blocks)} blocks")
        require_computed(client, name, blocks)
        (meta,) = self.layout.fetched(
            self.layout.submit("type-of-values", tasks.without_rows, [[blocks[numbers[0][0]]]])
        )
        return self.layout.beside(name, self.futures, [[blocks[k] for k in share] for share in numbers], meta)

    def ones(self) -> RowBlocks:
        return RowBlocks(self.layout, Constant((0,), 1.0, np.dtype(np.float64)))

    def entries(self, values: RowArray, rows: Any) -> np.ndarray:
        if isinstance(rows, Selected):
            rows = self._indices(rows)
        if not is_elsewhere(values):
            return np.asarray(values[rows])
        return self.layout.entries(values, np.arange(self.n)[rows] if isinstance(rows, slice) else np.asarray(rows))

    def changed(self, values: RowArray, others: RowArray) -> Selected:
        return self._selected(values != others)

    def _selected(self, mask: RowBlocks) -> Selected:
        return Selected(mask, int(np.count_nonzero(mask)))

    def _indices(self, rows: Selected) -> np.ndarray:
        return np.concatenate(self.layout.each_block("selected-rows", tasks.true_rows, [rows.mask]))

    def take(self, values: RowArray, rows: Any) -> Any:
        if isinstance(rows, Selected):
            return values if rows.size == self.n else np.where(rows.mask, values, 0.0)
        return self.layout.entries(values, rows)

    def only_at(self, values: RowArray, rows: np.ndarray, factor: float) -> RowArray:
        return values * RowBlocks(self.layout, Scattered(rows, np.full(rows.size, factor)))

    def active(self, weights: RowArray) -> Any:
        found = self._selected(weights != 0.0)
        return found if found.size else np.zeros(1, dtype=np.intp)

    def draw(
        self, rng: np.random.Generator, weights: RowArray, size: int, scores: RowArray | None = None
    ) -> tuple[Any, Any]:
        if count_active(weights) <= size:
            active = self.active(weights)
            return active, self.take(weights, active)
        chances = weights if scores is None else weights * scores
        totals = np.array(self.layout.each_block("chances", tasks.summed, [chances]))
        ends = np.cumsum(totals)
        stratum = float(ends[-1]) / size
        points = (np.arange(size) + rng.random(size)) * stratum
        owners = np.minimum(np.searchsorted(ends, points), totals.size - 1)
        within = points - (ends - totals)[owners]
        wanted = {int(number): within[owners == number] for number in np.unique(owners)}
        arrays = [chances] if scores is None else [chances, scores]
        found = self.layout.each_block("sketch-rows", partial(tasks.drawn, points=wanted), arrays)
        rows, times, own = (np.concatenate(parts) for parts in zip(*found, strict=True))
        return rows, times * stratum / own

    def dominant(self, weights: RowArray, norms: RowArray, size: int, few: int) -> tuple[np.ndarray, np.ndarray | None]:
        most = self.n if few else size
        found = self.layout.each_block("dominant-rows", partial(tasks.largest, size=most), [weights * norms])
        rows, products = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = rows[np.argsort(-products, kind="stable")]
        others = order[size:]
        some = np.sort(others[np.linspace(0, others.size - 1, min(few, others.size)).astype(int)]) if few else None
        return np.sort(order[:size]), some

    def subset(self, rows: np.ndarray) -> Data:
        return MemoryData(self.rows(rows))

    def subsets(self, draws: Sequence[np.ndarray], arrays: Sequence[RowArray]) -> Iterator[tuple[Data, list[RowArray]]]:
        few = self.layout.local is not None  # the client has the arrays, or gathers them once
        found = self.layout.picked(draws, self.futures, [] if few else arrays)
        for rows, blocks in zip(draws, found, strict=True):
            X, *parts = zip(*blocks, strict=True)
            entries = [np.concatenate(own, axis=each.axis) for own, each in zip(parts, arrays, strict=False)]
            own = [self.take(each, rows) for each in arrays] if few else entries
            yield MemoryData(self._stacked(X)), own

    def _stacked(self, blocks: Sequence[Any]) -> Any:
        return linear.stacked(blocks, dense=not self.profile.sparse)

    # Products --------------------------------------------------------------------------------------------------------

    def times(self, w: np.ndarray) -> RowArray:
        return self._rows("times", np.empty((0, *w.shape[1:])), w=w)

    def row_scores(self, scale: np.ndarray) -> RowArray:
        return self._rows("row_scores", np.empty(0), scale=scale)

    def transposed_times(self, v: RowArray) -> np.ndarray:
        return self._sum("transposed_times", v)

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        arrays: list[Any] = [each for own in vectors for each in own if each is not None]
        present = [[each is not None for each in own] for own in vectors]
        metas = [[None if each is None else each.meta for each in own] for own in vectors]  # type: ignore[attr-defined]
        kept = target.losses([RowVectors(*own) for own in metas], np.empty((0, len(W)))).kept  # type: ignore[arg-type]
        step = partial(tasks.evaluate, W=W, b=b, target=target, present=present)
        shapes = [np.empty((0, len(W))), *([] if kept is None else [np.empty(kept.shape)])]
        values, rows = self._pass("gradients", step, arrays, kept=shapes)
        return Evaluation(*values, *rows)

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: RowArray) -> tuple[np.ndarray, np.ndarray]:
        step = partial(tasks.weighted_products, V=V, v=v)
        (result, sums), _ = self._pass("hessian-products", step, [weights])
        return result, sums

    def weighted_gram(
        self,
        weights: Any,
        indices: Any = None,
        *,
        intercept: bool = False,
        single: bool = False,
        keep: bool = False,  # noqa: ARG002 (the sum of all workers is the client's)
    ) -> np.ndarray:
        arrays = [weights]
        if isinstance(indices, Selected):
            arrays = [weights, indices.mask] if indices.size < self.n else [weights]
        elif indices is not None:
            own = np.asarray(indices), np.asarray(weights, dtype=np.float64)
            arrays = [RowBlocks(self.layout, Scattered(own[0], each)) for each in (own[1], np.ones(own[0].size, bool))]
        step = partial(tasks.weighted_gram, intercept=intercept, single=single)
        found, _ = self._pass("weighted-gram", step, arrays)
        size = self.d + intercept
        return np.zeros((size, size)) if not found else found[0]

    def weighted_grams(self, weights: Sequence[Any], *, intercept: bool = False) -> list[np.ndarray]:
        step = partial(tasks.weighted_grams, intercept=intercept)
        return list(self._pass("weighted-grams", step, weights)[0])

    def moments(
        self, weights: Any, targets: Any, origin: np.ndarray, indices: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        if indices is not None and not isinstance(indices, Selected):
            weights, targets = (
                RowBlocks(self.layout, Scattered(indices, np.asarray(each))) for each in (weights, targets)
            )
        arrays = [self.placed(weights), self.placed(targets)]
        step = partial(tasks.method_sums, method="moments", origin=origin)
        (H, cross), _ = self._pass("moments", step, arrays)
        return H, cross

    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        return linear.gram(self.rows(indices), scale)

    def column_norms(self, weights: RowArray, features: np.ndarray | None = None) -> np.ndarray:
        return self._sum("column_norms", weights, features=features)

    def absolute_sums(self, weights: RowArray) -> np.ndarray:
        return self._sum("absolute_sums", weights)

    def nonzeros(self) -> np.ndarray:
        return self._sum("nonzeros")

    def _pass(self, name: str, step: Any, arrays: Sequence[Any] = (), **options: Any) -> tuple[Any, list[RowBlocks]]:
        """Do a step with each block of X; see ``Layout.run``."""
        return self.layout.run(name, step, arrays, data=self.futures, work=self._work, **options)

    def _sum(self, method: str, *arrays: Any, **arguments: Any) -> np.ndarray:
        """Return the sum over all blocks of what a method of their rows returns."""
        placed = [each if is_elsewhere(each) else self.placed(each) for each in arrays]
        step = partial(tasks.method_sums, method=method, **arguments)
        (found,), _ = self._pass(method.replace("_", "-"), step, placed)
        return np.asarray(found)

    def _rows(self, method: str, meta: np.ndarray, **arguments: Any) -> RowBlocks:
        """Return the row array that a method of the rows of each block returns; ``meta`` is that of a block without rows."""
        step = partial(tasks.method_rows, method=method, **arguments)
        return self._pass(method.replace("_", "-"), step, sums=False, kept=[meta])[1][0]

    # Parts -----------------------------------------------------------------------------------------------------------

    def rows(self, indices: Any) -> Any:
        if isinstance(indices, slice):
            return self._sample(indices.indices(self.n))
        indices = self._indices(indices) if isinstance(indices, Selected) else np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        (blocks,) = self.layout.picked([indices[order]], self.futures, [])
        found = self._stacked([rows for (rows,) in blocks])
        back = np.empty(indices.size, dtype=np.intp)
        back[order] = np.arange(indices.size)
        return found if np.array_equal(order, back) else found[back]

    def _sample(self, places: tuple[int, int, int]) -> Any:
        """Return rows at equal distances; a few are kept, since the planner reads the same ones for each of many problems."""
        if self._kept[0] == places:
            return self._kept[1]
        found = self.rows(np.arange(*places))
        if found.shape[0] * self.d <= KEPT:
            self._kept = places, found
        return found

    def columns(self, features: np.ndarray) -> Any:  # noqa: ARG002
        raise TypeError(f"columns cannot be gathered: {self.capabilities.reason}")


def as_data(X: Any) -> DaskData:
    """Return a collection, or a list of delayed matrices, as data."""
    return DaskData(X)
