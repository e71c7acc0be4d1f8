"""Limit of the BLAS libraries of NumPy and SciPy to one thread while a problem is solved."""

from __future__ import annotations

import threading
from collections.abc import Callable
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
                self.before = [(library, threads()) for library, threads in _blas_libraries()]
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
def _blas_libraries() -> list[tuple[Any, Callable[[], int]]]:
    """Return the libraries, and the function of each that returns its number of threads."""
    import scipy.linalg  # noqa: F401  (loads its BLAS library, so that the controller finds it)
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [(library, _own_threads(library)) for library in found]


def _own_threads(library: Any) -> Callable[[], int]:
    """Return the library's own function if there is one: threadpoolctl looks for it in every call, which takes a microsecond."""
    find = getattr(library, "_get_symbol", None)
    own = find("openblas_get_num_threads") if find is not None and library.internal_api == "openblas" else None
    found: Callable[[], int] = library.get_num_threads if own is None else own
    return found
