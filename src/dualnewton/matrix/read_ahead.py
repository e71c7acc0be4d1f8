"""One thread that produces items ahead of their use: pieces of files are read while earlier ones are in use."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")

NAME = "dualnewton reader"
"""Name of the thread."""


class ReadAhead(Generic[T]):
    """The items of an iterator, produced in another thread while the block of the ``with`` statement runs.

    At most ``most`` ≥ 2 items exist at a time: the one that the consumer holds and those that are ready or being produced. Asking
    for the next item releases the one before. An error of the iterator is raised in the consumer, in place of the item.
    When the block ends, for whatever reason, the thread has ended and the iterator is closed.
    """

    def __init__(self, items: Generator[T], most: int) -> None:
        self.items = items
        self.ready: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()
        self.slots, self.stopped = threading.Semaphore(most), False
        # A process that ends must not wait for a disk that does not answer.
        self.thread = threading.Thread(target=self._produce, name=NAME, daemon=True)

    def __enter__(self) -> ReadAhead[T]:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped = True
        self.slots.release()
        self.thread.join()

    def __iter__(self) -> Iterator[T]:
        while True:
            item, error = self.ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
            self.slots.release()

    def _produce(self) -> None:
        try:
            while True:
                self.slots.acquire()  # before the item is made, so that its memory is free
                item = None if self.stopped else next(self.items, None)
                self.ready.put((item, None))
                if item is None:
                    return
        except BaseException as error:
            self.ready.put((None, error))
        finally:
            self.items.close()
