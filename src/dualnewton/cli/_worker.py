"""The start-up code of the worker processes of ``--dask local`` (``preload`` of Dask)."""

import logging
import signal
from typing import Any


def dask_setup(worker: Any) -> None:  # noqa: ARG001 (Dask's signature)
    """Ignore Ctrl-C, which a terminal sends to all processes of a command, and report no closed connections.

    After Ctrl-C the command certifies the best model so far, for which it needs its workers, and then ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
