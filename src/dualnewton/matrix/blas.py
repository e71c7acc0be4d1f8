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
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.limit = _blas_controller().limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


one_blas_thread = _OneBlasThread()


@lru_cache(maxsize=1)
def _blas_controller() -> Any:
    import scipy.linalg  # noqa: F401  (loads its BLAS library, so that the controller finds it)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
