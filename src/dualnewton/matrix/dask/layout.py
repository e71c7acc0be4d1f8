"""The blocks of rows of a data set, the shares of them that tasks work on, and the passes of a client over them.

A *block* is a chunk of the user's collection: arithmetic is by blocks, and sums of blocks are added by a tree (``sums.py``), so
that no bit of a result depends on the cluster. A *share* is a few consecutive blocks on one worker, for which a pass has one
task: the number of tasks, about a millisecond of the scheduler each, follows that of the cluster's threads, not of the blocks.

Everything is an ordinary task of Dask that depends on other tasks. When a worker is lost, Dask computes again what was on it,
from the user's collection on, by the same functions with the same arguments: the bits are the same.
"""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dualnewton.matrix.dask import local, tasks
from dualnewton.matrix.dask.events import LARGEST, Expected, Inbox
from dualnewton.matrix.dask.programs import Call, Leaf, Stored, compiled, identity
from dualnewton.matrix.dask.rows import RowBlocks
from dualnewton.matrix.dask.sums import Join, Nodes, Values, folded, total
from dualnewton.matrix.dask.waiting import explained, gathered, received

MOST_TOGETHER = 16
"""Large sums of shares that are added by one task; the client adds as many itself."""

LARGE = 1 << 16
"""Bytes of arguments (64 KiB) from which they are sent to the scheduler once, instead of with the task of each share."""

REMEMBERED = 16
"""Reductions, and entries of a few rows, whose values are remembered: each takes a few milliseconds of the scheduler, and methods
ask for some repeatedly."""


HELD, HELD_BYTES = 16, 1 << 24
"""Exchanges of messages, and bytes of arrays on the workers (16 MiB), after which unused results are released together. Dask's
client sends its messages at least 10 ms apart, and its scheduler those to a worker 5 ms, so that releases delay what follows."""


class Layout:
    """Where the rows are.

    ``numbers`` are the blocks of each share, as the user's collection numbers them, and ``sizes`` the rows of each block.
    """

    def __init__(self, client: Any, numbers: Sequence[Sequence[int]], sizes: Sequence[Sequence[int]]) -> None:
        self.client, self.numbers = client, numbers
        ends = np.cumsum([0, *(size for share in sizes for size in share)])
        places = iter(enumerate(range(int(low), int(high)) for low, high in itertools.pairwise(ends)))
        self.shares: list[tasks.Blocks] = [[next(places) for _ in share] for share in sizes]
        self.n, self.count = int(ends[-1]), len(ends) - 1
        few = self.n <= local.FEW_ROWS and self.count <= local.FEW_BLOCKS
        self.local = local.LocalRows([block for share in self.shares for block in share], self.fetched) if few else None
        self._values: dict[Any, Values] = {}  # small values that were asked for last, by their expressions
        self._fetched: list[Any] = []  # futures of the last results that were gathered, which keep these on the workers
        self._held: list[Any] = []  # futures of the last results that tasks have sent as events
        self._held_bytes = 0
        with explained(client):
            self._inbox = Inbox.of(client)
        self._sent: dict[Any, RowBlocks] = {}  # arrays of this process that were sent last, by their content

    # Graphs ----------------------------------------------------------------------------------------------------------

    def submit(self, name: str, function: Callable[..., Any], arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """Start a task for each list of arguments, in which futures stand for their results; return the futures."""
        graph, keys = self._tasks(name, function, arguments)
        return self._futures(graph, keys)

    def _tasks(
        self, name: str, function: Callable[..., Any], arguments: Sequence[Sequence[Any]]
    ) -> tuple[dict[Any, Any], list[Any]]:
        from dask._task_spec import Task

        keys = [(f"dualnewton-{name}-{uuid.uuid4().hex}", k) for k in range(len(arguments))]
        return {
            key: Task(key, function, *map(_referred, each)) for key, each in zip(keys, arguments, strict=True)
        }, keys

    def _futures(self, graph: dict[Any, Any], keys: Sequence[Any]) -> list[Any]:
        import dask
        from dask._expr import LLGExpr

        # Dask would compute a hash of everything in the graph for its name; ours are unique without.
        named = LLGExpr(graph, _determ_token=uuid.uuid4().hex)
        # The graph holds w and, at the start, labels that the user has in memory; Dask would warn of more than 10 MB.
        with explained(self.client), dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
            found: list[Any] = self.client.get(named, list(keys), sync=False)
        self._fetched = []
        return found

    def fetched(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for results of any size, and return them; they are released after the next graph was sent."""
        self._fetched = list(futures)
        return gathered(self.client, futures)

    def received(self, futures: Sequence[Any], expected: Expected) -> list[Any] | None:
        """Wait for results that tasks send; return None if some are too large, so that they must be gathered."""
        received(self.client, futures, expected)
        self._inbox.forget([future.key for future in futures])
        return expected.results()

    def _hold(self, futures: Sequence[Any], size: int) -> None:
        """Keep futures of small results for some exchanges of messages, so that many are released at a time.

        This is called after a graph was sent: what is released now does not delay it.
        """
        if len(self._held) >= HELD or self._held_bytes + size > HELD_BYTES:
            self._held, self._held_bytes = [], 0
        self._held.append(futures)
        self._held_bytes += size

    # Passes ----------------------------------------------------------------------------------------------------------

    def run(
        self,
        name: str,  # name of the tasks on the dashboard
        function: Callable[..., tasks.Found],  # one of ``tasks``, of a block and of the entries of the arrays
        arrays: Sequence[RowBlocks] = (),  # what it is given for each block
        *,
        data: Sequence[Any] | None = None,  # shares of X, if it reads rows
        work: bytes = b"",  # options of its passes over X; see ``tasks.Step``
        join: Join = np.add,  # how the values of two blocks become one
        sums: bool = True,  # whether there are values; else the call returns at once, without waiting for the tasks
        kept: Sequence[np.ndarray] = (),  # arrays that stay on the workers, as they are for a block without rows
    ) -> tuple[Values, list[RowBlocks]]:
        """Do a step with each block; return its values, joined over all blocks, and what it leaves on the workers."""
        expressions = [each.expression for each in arrays]
        if self.local is not None and data is None and not kept:
            return total(self.local.outcome(function, join, expressions).sums), []
        program, sources = compiled(expressions)
        step: Any = tasks.Step(program, function, join, self.count, work)
        graph: dict[Any, Any] = {}
        if _bytes_of(function, program) > LARGE:
            graph, (step,) = self._tasks(f"{name}-arguments", _itself, [[step]])
            step = _Key(step)
        arguments = [
            [step, blocks, None if data is None else data[k], *(source.futures[k] for source in sources)]
            for k, blocks in enumerate(self.shares)
        ]
        size = self.n * sum(map(_bytes_per_row, kept))
        whole = self.local is not None and bool(kept)  # the client needs the rows, too
        expects = sums and not (whole and size > LARGEST * len(self.shares))
        send = partial(tasks.run_and_send, self._inbox.topic, whole) if expects else tasks.run
        own, keys = self._tasks(name, send, arguments)
        expected = self._inbox.expect(keys if expects else [])
        stored = Stored(self._futures({**graph, **own}, keys))
        self._hold(stored.futures, size)
        if not sums:
            return (), self._leaves(stored, kept)
        found = self.received(stored.futures, expected) if expects else None
        if self.local is not None and kept:
            stored.outcomes = found or []
            self.local.gather([stored])
            found = [each.sums for each in stored.outcomes]
        if found is None:
            self._held = [
                each for each in self._held if each is not stored.futures
            ]  # large: released with its last use
            found = self._gathered_sums(name, stored.futures, join)
        return self._sum(found, join), self._leaves(stored, kept)

    def _gathered_sums(self, name: str, futures: Sequence[Any], join: Join) -> list[Nodes]:
        """Return the sums of shares that are too large for events; those of many shares are added on the workers first."""
        graph, parts = self._tasks(f"{name}-sums", tasks.sums_of, [[future] for future in futures])
        while len(parts) > MOST_TOGETHER:
            groups = [parts[low : low + MOST_TOGETHER] for low in range(0, len(parts), MOST_TOGETHER)]
            own, parts = self._tasks(
                f"{name}-sums", partial(tasks.add, join, self.count), [list(map(_Key, each)) for each in groups]
            )
            graph.update(own)
        return self.fetched(self._futures(graph, parts))

    def _sum(self, parts: Sequence[Nodes], join: Join) -> Values:
        """Add the sums of shares."""
        return total(folded([item for part in parts for item in part.items()], self.count, join))

    def _leaves(self, stored: Stored, kept: Sequence[np.ndarray]) -> list[RowBlocks]:
        return [RowBlocks(self, Leaf(stored, place, meta)) for place, meta in enumerate(kept)]

    def each_block(self, name: str, function: Callable[..., Any], arrays: Sequence[RowBlocks]) -> list[Any]:
        """Return the small values of a function of each block, in the order of the blocks."""
        (found,), _ = self.run(name, partial(tasks.listed, function=function), arrays, join=tasks.together)
        return [found[number] for number in range(self.count)]

    # Row arrays ------------------------------------------------------------------------------------------------------

    def joined(self, join: np.ufunc, call: Call, function: Callable[..., tasks.Found]) -> Values:
        """Join the values of an expression over all blocks: one value (``tasks.value``), or several (``tasks.values``)."""
        key = self._key(call) if self.local is None else None
        return self._known(key, lambda: self.run("row-sums", function, [RowBlocks(self, call)], join=join)[0])

    def _key(self, *parts: Any) -> Any:
        """Return a key of expressions and small arrays; None if they have an argument without a hash, such as a large array."""
        try:
            hash(key := tuple(map(identity, parts)))
        except TypeError:
            return None
        return key

    def _known(self, key: Any, find: Callable[[], Values]) -> Values:
        """Return copies of the values that were found last for a key, or of new ones; None is a key without a memory."""
        values = self._values.pop(key, None) if key is not None else None
        values = find() if values is None else values
        if key is not None:
            self._values[key] = values  # the last one that was asked for
            while len(self._values) > REMEMBERED:
                del self._values[next(iter(self._values))]
        return tuple(each.copy() if isinstance(each, np.ndarray) else each for each in values)

    def stored(self, arrays: Sequence[RowBlocks]) -> list[RowBlocks]:
        """Evaluate expressions and leave them on the workers; this does not wait for them."""
        found = self.run("rows", tasks.keep, arrays, sums=False, kept=[each.meta for each in arrays])[1]
        if self.local is not None:
            for made, each in zip(found, arrays, strict=True):
                self.local.take_over(made.expression, each.expression)
        return found

    def beside(self, name: str, data: Sequence[Any], parts: Sequence[Sequence[Any]], meta: np.ndarray) -> RowBlocks:
        """Return a row array, given the entries (or the futures of them) of each block of each share."""
        arguments = [[share, name, list(given)] for share, given in zip(data, parts, strict=True)]
        return self._leaves(Stored(self.submit(f"{name}-of-blocks", tasks.beside, arguments)), [meta])[0]

    def sent(self, data: Sequence[Any], values: np.ndarray) -> RowBlocks:
        """Return an array of this process as a row array; arrays that were sent lately are not sent again."""
        values = np.ascontiguousarray(values)
        key = values.shape, values.dtype.str, hashlib.blake2b(values.data, digest_size=16).digest()
        if key not in self._sent:
            # Copies: Dask serialises them later, when the caller may have changed the array.
            parts = [[values[rows.start : rows.stop].copy() for _, rows in share] for share in self.shares]
            self._sent[key] = self.beside("values", data, parts, values[:0])
            if self.local is not None:
                self.local.know(self._sent[key].expression, [part for share in parts for part in share])
            while len(self._sent) > REMEMBERED:
                del self._sent[next(iter(self._sent))]
        return self._sent[key].copy()

    def entries(self, values: RowBlocks, indices: np.ndarray) -> np.ndarray:
        """Return the entries of some rows, in the order of the indices."""
        if self.local is not None:
            blocks = self.local.values(values.expression)
            return np.concatenate(blocks, axis=values.axis).take(indices, axis=values.axis)
        if indices.size * _bytes_per_row(values.meta) > LARGEST:
            return self._entries(values, indices)
        key = self._key(values.expression, indices)
        return self._known(key, lambda: (self._entries(values, indices),))[0]

    def _entries(self, values: RowBlocks, indices: np.ndarray) -> np.ndarray:
        order = np.argsort(indices, kind="stable")
        (blocks,) = self.picked([indices[order]], None, [values])
        found = np.concatenate([part for (part,) in blocks], axis=values.axis) if blocks else values.meta
        back = np.empty(indices.size, dtype=np.intp)
        back[order] = np.arange(indices.size)
        return found.take(back, axis=values.axis)

    def entries_where(self, values: RowBlocks, mask: RowBlocks) -> np.ndarray:
        """Return the entries of the rows at which a mask is true; they should be few."""
        return np.concatenate(self.each_block("selected-entries", tasks.entries_where, [values, mask]))

    def distinct(self, values: RowBlocks) -> np.ndarray:
        """Return the distinct entries, in order."""
        return np.unique(np.concatenate(self.each_block("distinct-values", tasks.distinct, [values])))

    def picked(
        self, draws: Sequence[np.ndarray], data: Sequence[Any] | None, arrays: Sequence[RowBlocks]
    ) -> list[list[tuple[Any, ...]]]:
        """Return some rows for each of several draws, given by increasing indices, in one exchange of messages.

        For each block that has rows of the draw there are its rows of X, if shares of X are given, and its entries of the arrays.
        """
        program, sources = compiled([each.expression for each in arrays])
        arguments = []
        for k, blocks in enumerate(self.shares):
            chosen = [_places(blocks, indices) for indices in draws]
            if any(each.size for draw in chosen for each in draw):
                share = None if data is None else data[k]
                arguments.append([program, blocks, chosen, share, *(source.futures[k] for source in sources)])
        found = self.fetched(self.submit("sampled-rows", tasks.picked, arguments))
        return [[block for share in found for block in share[number]] for number in range(len(draws))]

    def dask_array(self, values: RowBlocks) -> Any:
        """Return the entries as a dask array."""
        import dask
        import dask.array as da

        (made,) = self.stored([values])
        parts = []
        for future, blocks in zip(made.expression.stored.futures, self.shares, strict=True):  # type: ignore[union-attr]
            for k, (_, rows) in enumerate(blocks):
                shape = tuple(length or len(rows) for length in values.meta.shape)
                entries = dask.delayed(tasks.part_of)(dask.delayed(future), k, 0)
                parts.append(da.from_delayed(entries, shape, values.dtype))
        return da.concatenate(parts, axis=values.axis)


class _Key:
    """A task of the same graph, as an argument of another."""

    def __init__(self, key: Any) -> None:
        self.key = key


def _referred(argument: Any) -> Any:
    """Return an argument of a task: a reference to another task for a future."""
    from dask._task_spec import List, TaskRef

    if isinstance(argument, list) and any(hasattr(each, "key") for each in argument):
        return List(*map(_referred, argument))
    return TaskRef(argument.key) if hasattr(argument, "key") else argument


def _places(blocks: tasks.Blocks, indices: np.ndarray) -> list[np.ndarray]:
    """Return the places within each block of rows that are given by increasing indices."""
    ends = np.searchsorted(indices, [rows.start for _, rows in blocks] + [blocks[-1][1].stop])
    return [indices[low:high] - rows.start for low, high, (_, rows) in zip(ends[:-1], ends[1:], blocks, strict=True)]


def _itself(value: Any) -> Any:
    return value


def _bytes_of(function: Any, program: Any) -> int:
    """Return the size of the arrays that go with a step."""
    given = [*getattr(function, "keywords", {}).values()]
    for each in program.instructions:
        given += [*vars(each).values(), *getattr(each, "args", ())]
    return sum(each.nbytes for each in given if isinstance(each, np.ndarray))


def _bytes_per_row(meta: np.ndarray) -> int:
    """Return the bytes of a row of an array, given the array without rows."""
    return int(np.prod([length for length in meta.shape if length], dtype=int)) * meta.itemsize
