"""Limit of the BLAS libraries of NumPy and SciPy to one thread while a problem is solved."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any


class _OneBlasThread:
    """Context in which BLAS uses one thread, since the last bits of its results depend on the number of threads.

    The limit applies to the process: of several concurrent solves, the first sets it and the last restores the old one.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.before: list[tuple[Any, int]] = []  # the libraries and their earlier numbers of threads

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.before = [(library, library.get_num_threads()) for library in _blas_libraries()]
                self._set(1)
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self._set(None)

    def _set(self, threads: int | None) -> None:
        """Set the threads of the libraries (None: the earlier numbers); threadpoolctl's context takes 20 times as long."""
        for library, before in self.before:
            if before != 1:
                library.set_num_threads(before if threads is None else threads)


one_blas_thread = _OneBlasThread()


@lru_cache(maxsize=1)
def _blas_libraries() -> list[Any]:
    import scipy.linalg  # noqa: F401  (loads its BLAS library, so that the controller finds it)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers
