"""The functions that run on the workers. Their arguments are sent there: they hold no problems, no clients and no futures."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.matrix.dask import events
from dualnewton.matrix.dask.programs import Program
from dualnewton.matrix.dask.sums import Join, Nodes, Values, folded
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.protocol import Profile, RowVectors, Target, Work
from dualnewton.matrix.selections import places_of
from dualnewton.validation import data_matrix

Blocks = Sequence[tuple[int, range]]
"""The number of each block of a share, and its rows."""

Found = tuple[Values | None, tuple[np.ndarray, ...]]
"""What a function of a block returns: values that are added over all blocks, and arrays that stay on the worker."""


def settled(values: Any) -> Any:
    """Return an array, or a CSR array, whose entries are contiguous and aligned; it is copied if they are not.

    What Dask receives from another process may begin at any byte, and views need not be contiguous. NumPy computes with such
    arrays by other loops, and the last bits of results would depend on which worker has computed which block.
    """
    if linear.is_sparse(values):
        parts = settled(values.data), settled(values.indices), settled(values.indptr)
        same = parts[0] is values.data and parts[1] is values.indices and parts[2] is values.indptr
        return values if same else type(values)(parts, shape=values.shape)
    return values if values.flags.aligned and values.flags.forc else np.array(values, order="K")


class Block(NamedTuple):
    """The argument of a function of a block: its number among all blocks, its rows, and X there (None if X is not read)."""

    number: int
    rows: range
    data: Any


class Share:
    """The rows that one task works on: a few blocks (with their numbers in the collection), with the arithmetic of memory."""

    def __init__(self, blocks: Sequence[MemoryData], numbers: Sequence[int]) -> None:
        self.blocks, self.numbers = blocks, numbers
        self._last: tuple[bytes, list[MemoryData]] = b"", []

    def using(self, work: bytes) -> Sequence[MemoryData]:
        """Return the blocks with other options of their passes, if any; those of the last options are kept."""
        if not work:
            return self.blocks
        if self._last[0] != work:
            options = pickle.loads(work)
            self._last = work, [block.using(options) for block in self.blocks]
        return self._last[1]

    def __sizeof__(self) -> int:
        # From this size the scheduler decides whether to move the rows or the task.
        return sum(array.nbytes for block in self.blocks for array in block.arrays().values())

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_of, ([(block.X, block.work) for block in self.blocks], self.numbers)


def _share_of(parts: Sequence[tuple[Any, Work]], numbers: Sequence[int]) -> Share:
    return Share([MemoryData(settled(X), work) for X, work in parts], numbers)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a task leaves on its worker: sums over its blocks, and for each block arrays with an entry per row."""

    sums: Nodes
    rows: list[tuple[np.ndarray, ...]]

    def __sizeof__(self) -> int:
        # Dask would walk through all tuples, in a tenth of the time that a worker takes for a task.
        return sum(array.nbytes for block in self.rows for array in block)

    def settled(self) -> Outcome:
        """Return the same with arrays that are aligned (see :func:`settled`)."""
        return Outcome(self.sums, [tuple(map(settled, block)) for block in self.rows])


@dataclass(frozen=True, eq=False)
class Step:
    """What is done with each block."""

    program: Program  # evaluates the row arrays that the function is given
    function: Callable[..., Found]  # of a :class:`Block` and these arrays; it returns :data:`Found`
    join: Join  # how the values of two blocks become one
    count: int  # number of all blocks
    # Options of passes over X (:class:`Work`), pickled, so that they can be compared; empty for those that a share has.
    work: bytes = b""


def run(step: Step, blocks: Blocks, share: Share | None, *stored: Outcome) -> Outcome:
    """Do a step with each block of a share."""
    given = (
        step.program.run([tuple(map(settled, each.rows[k])) for each in stored], rows)
        for k, (_, rows) in enumerate(blocks)
    )
    data = [None] * len(blocks) if share is None else share.using(step.work)
    return over_blocks(step.function, step.join, step.count, blocks, data, given)


def over_blocks(
    function: Callable[..., Found],
    join: Join,
    count: int,
    blocks: Blocks,
    data: Sequence[MemoryData | None],
    given: Iterable[Sequence[Any]],
) -> Outcome:
    """Call the function of a step with each block and the row arrays that are given for it."""
    found: list[tuple[np.ndarray, ...]] = []
    nodes: Nodes = {}
    with one_blas_thread:
        for (number, rows), own, arrays in zip(blocks, data, given, strict=True):
            try:
                values, kept = function(Block(number, rows, own), *arrays)
            except Exception as error:
                error.add_note(f"in block {number} of X, rows {rows.start} to {rows.stop - 1}")
                raise
            found.append(tuple(map(settled, kept)))
            if values is not None:
                nodes = folded([*nodes.items(), ((0, number), values)], count, join)
    return Outcome(nodes, found)


def run_and_send(topic: str, whole: bool, step: Step, blocks: Blocks, share: Share | None, *stored: Outcome) -> Outcome:
    """Do a step, and send the sums to the client, or the whole outcome, if they are small."""
    try:
        outcome = run(step, blocks, share, *stored)
    except BaseException:
        events.send(topic, None, 0)
        raise
    size = sum(getattr(each, "nbytes", 0) for values in outcome.sums.values() for each in values)
    if whole:
        events.send(topic, outcome, size + outcome.__sizeof__())
    else:
        events.send(topic, outcome.sums, size)
    return outcome


def sums_of(outcome: Outcome) -> Nodes:
    """Return the sums of a step, without the arrays that stay on the worker."""
    return outcome.sums


def add(join: Join, count: int, *parts: Nodes) -> Nodes:
    """Add the sums of several shares."""
    return folded([item for part in parts for item in part.items()], count, join)


# Rows of X, and arrays beside them -----------------------------------------------------------------------------------


def make_share(first: int, names: Sequence[str], blocks: Sequence[Any]) -> Share:
    """Check blocks of X, and return those that have rows; they are copied only if their type or order requires it."""
    made = {}
    for number, (name, block) in enumerate(zip(names, blocks, strict=True), first):
        given = block.to_numpy() if hasattr(block, "to_numpy") else block
        if not linear.is_sparse(given) and np.ndim(given) != 2:
            raise DualnewtonError(f"X must have two axes, got {np.ndim(given)} in block {number} ({name})")
        if given.shape[0]:
            made[number] = MemoryData(settled(data_matrix(f"X, block {number} ({name}),", given)))
    return Share(list(made.values()), list(made))


def described(share: Share) -> list[tuple[int, Profile, str]]:
    """Return number, size and type of each block."""
    both = zip(share.numbers, share.blocks, strict=True)
    return [(number, block.profile, str(block.X.dtype)) for number, block in both]


def with_constant(value: float, share: Share) -> Share:
    """Return a share with a constant column appended."""
    return Share([block.with_constant(value) for block in share.blocks], share.numbers)


def with_features(features: np.ndarray, share: Share) -> Share:
    """Return a share with some of its columns."""
    both = [
        (block.X[:, features] if linear.is_sparse(block.X) else block.X.take(features, axis=1), block.work)
        for block in share.blocks
    ]
    return _share_of(both, share.numbers)


def beside(share: Share, name: str, parts: Sequence[Any]) -> Outcome:
    """Return the entries of a row array for each block; the share is an argument for them to be made on its worker."""
    found: list[tuple[np.ndarray, ...]] = []
    for number, block, part in zip(share.numbers, share.blocks, parts, strict=True):
        values = settled(np.asarray(part.to_numpy() if hasattr(part, "to_numpy") else part))
        if len(values) != block.n:
            raise DualnewtonError(
                f"{name} must have an entry for each row of X, got {len(values)} for the {block.n} rows of block {number}"
            )
        found.append((values,))
    return Outcome({}, found)


def without_rows(values: Any) -> np.ndarray:
    """Return an array without its rows, which has its type and its other axes."""
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)[:0].copy()


def picked(
    program: Program, blocks: Blocks, chosen: Sequence[Sequence[np.ndarray]], share: Share | None, *stored: Outcome
) -> list[list[tuple[Any, ...]]]:
    """Return rows of X, if a share is given, and entries of row arrays, at the places of each block that several draws choose."""
    found: list[list[tuple[Any, ...]]] = [[] for _ in chosen]
    for k, (_, rows) in enumerate(blocks):
        if not any(draw[k].size for draw in chosen):
            continue
        values = program.run([each.rows[k] for each in stored], rows)
        axes = [each.shape.index(len(rows)) if each.ndim > 1 else 0 for each in values]
        for own, draw in zip(found, chosen, strict=True):
            if (places := draw[k]).size:
                entries = [each.take(places, axis=axis) for each, axis in zip(values, axes, strict=True)]
                own.append((*([] if share is None else [share.blocks[k].rows(places)]), *entries))
    return found


def part_of(outcome: Outcome, block: int, place: int) -> np.ndarray:
    """Return one array of one block."""
    return outcome.rows[block][place]


def fingerprints(share: Share) -> list[str]:
    """Return the hash of each block."""
    return [block.fingerprint() for block in share.blocks]


# Steps ---------------------------------------------------------------------------------------------------------------


def value(block: Block, values: Any) -> Found:  # noqa: ARG001
    """Return an evaluated expression as a value that is added over all blocks."""
    return (values,), ()


def values(block: Block, found: tuple[Any, ...]) -> Found:  # noqa: ARG001
    """Return several values of an expression, each of which is added over all blocks."""
    return found, ()


def keep(block: Block, *arrays: np.ndarray) -> Found:  # noqa: ARG001
    """Leave evaluated expressions on the worker."""
    return None, arrays


def listed(block: Block, *arrays: np.ndarray, function: Callable[..., Any]) -> Found:
    """Return a small value of a block under the number of the block."""
    return ({block.number: function(block, *arrays)},), ()


def together(one: dict[int, Any], other: dict[int, Any]) -> dict[int, Any]:
    """Join the small values of different blocks."""
    return {**one, **other}


def method_sums(block: Block, *arrays: np.ndarray, method: str, **arguments: Any) -> Found:
    """Call a method of ``Data``, with row arrays as its first arguments; its results are added over all blocks."""
    found = getattr(block.data, method)(*arrays, **arguments)
    return found if isinstance(found, tuple) else (found,), ()


def method_rows(block: Block, *, method: str, **arguments: Any) -> Found:
    """Call a method of ``Data`` that returns a row array."""
    return None, (getattr(block.data, method)(**arguments),)


def evaluate(
    block: Block, *arrays: Any, W: np.ndarray, b: np.ndarray, target: Target, present: Sequence[Sequence[bool]]
) -> Found:
    """Compute margins, losses and gradients; ``present`` says which of y, c and o of each model are among the arrays."""
    given = iter(arrays)
    vectors = [RowVectors(*[next(given) if there else None for there in each]) for each in present]  # type: ignore[arg-type]
    found = block.data.evaluate(W, b, target, vectors)
    kept = () if found.kept is None else (found.kept,)
    return (found.values, found.gradients, found.slopes), (found.margins, *kept)


def weighted_products(block: Block, weights: np.ndarray, *, V: np.ndarray, v: np.ndarray) -> Found:
    """Aᵀ D(weights_k) (A V_k + v_k) and the sums of the vectors in between."""
    return block.data.weighted_products(V, v, weights), ()


def weighted_gram(
    block: Block, weights: np.ndarray, mask: np.ndarray | None = None, *, intercept: bool, single: bool
) -> Found:
    """Σ weights_s ã_s ã_sᵀ over all rows, or over those of a mask."""
    rows = None if mask is None else np.flatnonzero(mask)
    if rows is not None and not rows.size:
        return (), ()
    own = weights if rows is None else weights[rows]
    return (block.data.weighted_gram(own, rows, intercept=intercept, single=single),), ()


def weighted_grams(block: Block, *weights: np.ndarray, intercept: bool) -> Found:
    """Σ weights_s ã_s ã_sᵀ over all rows, for each of several weights."""
    return tuple(block.data.weighted_grams(weights, intercept=intercept)), ()


# Selections of rows --------------------------------------------------------------------------------------------------


def summed(block: Block, chances: np.ndarray) -> float:  # noqa: ARG001
    """Return the sum of a block."""
    return float(chances.sum())


def drawn(
    block: Block, chances: np.ndarray, *scores: np.ndarray, points: dict[int, np.ndarray]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows at which the chances add up to the points of this block, how often each is met, and its score."""
    own = np.flatnonzero(chances > 0.0)
    wanted = points.get(block.number, np.empty(0))
    if not (wanted.size and own.size):
        return np.empty(0, np.intp), np.empty(0, np.intp), np.empty(0)
    places, times = np.unique(places_of(wanted, chances[own]), return_counts=True)
    rows = own[places]
    return rows + block.rows.start, times, scores[0][rows] if scores else np.ones(rows.size)


def largest(block: Block, values: np.ndarray, *, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows with the largest positive values, and the values."""
    rows = np.flatnonzero(values > 0.0)
    rows = rows[np.argsort(-values[rows], kind="stable")[:size]]
    return rows + block.rows.start, values[rows]


def true_rows(block: Block, mask: np.ndarray) -> np.ndarray:
    """Return the rows at which a mask is true."""
    return np.flatnonzero(mask) + block.rows.start


def entries_where(block: Block, values: np.ndarray, mask: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """Return the entries of a block at which a mask is true."""
    return values[mask]


def distinct(block: Block, values: np.ndarray) -> np.ndarray:  # noqa: ARG001
    """Return the distinct values of a block."""
    return np.unique(values)
