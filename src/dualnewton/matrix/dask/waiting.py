"""Waiting for a cluster, and its errors in words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask.events import Expected

PATIENCE = 30.0
"""Seconds for which a fit waits for the first worker, and goes on waiting after the last worker was lost."""

LOOK = 1.0
"""Seconds between two checks of the workers while results are missing."""

CONTINUE = "With checkpoint=path, which solve() and the estimators take, the same fit on a new cluster continues from that file"
LOST = f"the connection to the Dask cluster was lost during the fit. {CONTINUE}"


def gathered(client: Any, futures: Sequence[Any]) -> list[Any]:
    """Wait for small results, and return them."""
    with explained(client):
        started = asyncio.run_coroutine_threadsafe(
            client.gather(list(futures), asynchronous=True), client.loop.asyncio_loop
        )
        found: list[Any] = _watched(client, lambda: started.result(timeout=LOOK), started.done)
    return found


def received(client: Any, futures: Sequence[Any], expected: Expected) -> None:
    """Wait until tasks have sent their results, or have ended without it (an event may be lost with a connection)."""
    with explained(client), suppress(TimeoutError):
        _watched(client, lambda: expected.wait(LOOK), lambda: all(future.done() for future in futures))


def computed(client: Any, futures: Sequence[Any]) -> None:
    """Wait until tasks have ended, with or without an error; their results stay on the workers."""
    from distributed import wait

    with explained(client):
        _watched(client, lambda: wait(futures, timeout=LOOK), lambda: False)


def first_worker(client: Any) -> None:
    """Wait for a worker; raise an error if none comes."""
    with explained(client):
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise DualnewtonError(
                f"the Dask cluster at {client.scheduler.address} has no workers, and none came within {PATIENCE:g} seconds"
            ) from None


def _watched(client: Any, attempt: Callable[[], Any], done: Callable[[], bool]) -> Any:
    """Repeat an attempt that lasts for ``LOOK`` seconds, until it has succeeded or there have been no workers for too long.

    Dask itself waits without limit for a new worker after the last one was lost.
    """
    alone = 0.0  # the time of the first look that found no workers
    while True:
        try:
            return attempt()
        except TimeoutError:
            if done():  # the error is that of a task
                raise
            alone = _alone_since(client, alone)


def _alone_since(client: Any, before: float) -> float:
    """Return since when the cluster has no workers, 0 if it has some; raise an error if that is too long ago."""
    if client.status == "closed":
        raise CancelledError("the client is closed")
    if client.nthreads():
        return 0.0
    since = before or time.monotonic()
    if time.monotonic() - since >= PATIENCE:
        raise DualnewtonError(
            f"the Dask cluster has had no workers for {PATIENCE:g} seconds during the fit: the last one was lost, and no other "
            f"came. {CONTINUE}"
        )
    return since


@contextmanager
def explained(client: Any) -> Iterator[None]:
    """Raise errors of the cluster as errors that say what happened and what to do."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    try:
        yield
    except DualnewtonError:
        raise
    except KilledWorker as error:
        raise DualnewtonError(
            f"the workers of the Dask cluster that ran a task of the fit died {error.allowed_failures + 1} times: {error}. "
            "Often the reason is memory: smaller blocks of X, or more workers, need less of it"
        ) from error
    except (FutureCancelledError, CancelledError, CommClosedError, OSError) as error:
        raise DualnewtonError(f"{LOST} ({type(error).__name__}: {error})") from error
    except Exception as error:
        if getattr(client, "status", "running") == "running":
            raise
        raise DualnewtonError(f"{LOST} ({type(error).__name__}: {error})") from error
