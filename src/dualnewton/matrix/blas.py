"""One thread for the linear algebra of NumPy and SciPy while a problem is solved."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any


class _OneBlasThread:
    """Keep the linear algebra of certificates to one thread: their last bits would depend on the number of threads.

    The limit is the process's, so it is set by the first of several solves that run side by side and lifted by the last.
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
    import scipy.linalg  # noqa: F401  (so that its library is among those found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
