"""Threads that process a list of tasks; the results are in the order of the list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np


class Workers:
    """The calling thread and ``helpers`` further threads.

    Parameters
    ----------
    helpers : int
        Number of further threads; with 0 the calling thread does all the work.
    """

    def __init__(self, helpers: int = 0) -> None:
        self.helpers = helpers
        self.pool = ThreadPoolExecutor(helpers) if helpers > 0 else None

    def each(self, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Return ``work(item)`` for each item, in the order of the items."""
        if self.pool is None or len(items) == 1:
            return [work(item) for item in items]
        waiting = iter(range(len(items)))  # next() is atomic, so that each item is processed once
        done: list[Any] = [None] * len(items)

        def take() -> None:
            for place in waiting:
                done[place] = work(items[place])

        others = [self.pool.submit(take) for _ in range(min(self.helpers, len(items) - 1))]
        take()
        for other in others:
            other.result()
        return done

    def close(self) -> None:
        """End the threads."""
        if self.pool is not None:
            self.pool.shutdown()


def added(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Add tuples of arrays in their order, so that the result does not depend on which thread computed which part."""
    total = parts[0]
    for part in parts[1:]:
        total = tuple(sum_ + more for sum_, more in zip(total, part, strict=True))
    return total
