"""Expressions of row arrays that the client evaluates itself, where rows are few: it gathers stored blocks once.

A block's value of each expression is kept as long as the expression, so that sums over the same rows, dozens in a search for an
intercept, take neither messages nor repeated arithmetic. The functions and the blocks are those of the workers, and so are the
bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from dualnewton.matrix.dask import tasks
from dualnewton.matrix.dask.programs import Call, Expression, Leaf, Stored, inside, replaced
from dualnewton.matrix.dask.sums import Join

FEW_ROWS, FEW_BLOCKS = 1 << 16, 64
"""Numbers of rows and of blocks up to which row arrays are gathered. A vector of so many rows (512 KiB) is fetched in about the
time of one exchange of messages."""


class LocalRows:
    """The blocks of row arrays in the memory of the client.

    ``blocks`` are the number and the rows of each; ``fetch`` waits for futures, and returns their values.
    """

    def __init__(self, blocks: tasks.Blocks, fetch: Callable[[Sequence[Any]], list[Any]]) -> None:
        self.blocks, self.fetch = blocks, fetch
        self._known: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()

    def outcome(self, step: Callable[..., tasks.Found], join: Join, arrays: Sequence[Expression]) -> tasks.Outcome:
        """Do a step that does not read X with each block."""
        self._gather_for(arrays)
        given = zip(*map(self._values, arrays), strict=True) if arrays else [()] * len(self.blocks)
        return tasks.over_blocks(step, join, len(self.blocks), self.blocks, [None] * len(self.blocks), given)

    def values(self, expression: Expression) -> list[Any]:
        """Return the value of an expression for each block."""
        self._gather_for([expression])
        return self._values(expression)

    def gather(self, stored: Iterable[Stored]) -> None:
        """Fetch stored arrays that are not here yet, in one exchange of messages."""
        missing = [each for each in dict.fromkeys(stored) if not each.outcomes]
        if missing:
            found = iter(self.fetch([future for each in missing for future in each.futures]))
            for each in missing:
                each.outcomes = [next(found).settled() for _ in each.futures]

    def know(self, leaf: Expression, values: list[Any]) -> None:
        """Keep the blocks of an array that this process has sent to the workers."""
        self._known[leaf] = values

    def take_over(self, leaf: Expression, expression: Expression) -> None:
        """Give a leaf, in which an expression is stored, the value of the expression, if that is known without messages."""
        if not any(self._missing(expression)):
            self._known[leaf] = self._values(expression)

    def _gather_for(self, arrays: Iterable[Expression]) -> None:
        self.gather(leaf.stored for each in arrays for leaf in self._missing(each))

    def _missing(self, expression: Expression) -> Iterator[Leaf]:
        """Yield the leaves of an expression that must be gathered for its value."""
        if expression in self._known:
            return
        if isinstance(expression, Call):
            for each in inside((expression.args, expression.kwargs)):
                yield from self._missing(each)
        elif isinstance(expression, Leaf) and not expression.stored.outcomes:
            yield expression

    def _values(self, expression: Expression) -> list[Any]:
        found = self._known.get(expression)
        if found is None:
            found = self._known[expression] = self._evaluated(expression)
        return found

    def _evaluated(self, expression: Expression) -> list[Any]:
        if isinstance(expression, Leaf):
            rows = [block for outcome in expression.stored.outcomes for block in outcome.rows]
            return [block[expression.place] for block in rows]
        if not isinstance(expression, Call):
            return [expression.evaluate((), rows) for _, rows in self.blocks]
        given = expression.args, expression.kwargs
        values = {each: self._values(each) for each in inside(given)}

        def of_block(k: int) -> Any:
            args, kwargs = replaced(given, lambda each: values[each][k])
            return expression.function(*args, **kwargs)

        return list(map(of_block, range(len(self.blocks))))
