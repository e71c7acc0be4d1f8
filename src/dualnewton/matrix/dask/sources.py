"""Conversion of Dask's collections (arrays, data frames, lists of delayed matrices) to blocks on the workers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask import waiting
from dualnewton.matrix.dask.waiting import explained

SHARES_PER_THREAD = 1
"""Shares of the rows for each thread of the cluster. Rows do not move during a fit, so that more shares would not balance the
load; a task takes milliseconds of its worker and of the scheduler (benchmarks/DASK.md)."""


def current_client() -> Any:
    """Return the client of the cluster on which collections are computed."""
    try:
        from distributed import default_client
    except ImportError as error:
        raise DualnewtonError(
            'X is a Dask collection, for which dask and distributed must be installed: pip install "dualnewton[dask]"'
        ) from error
    try:
        client = default_client()
    except ValueError:
        raise DualnewtonError(
            "X is a Dask collection, but there is no cluster to compute on: make one first, for instance by "
            "dask.distributed.Client(), which starts workers on this machine, or Client(address)"
        ) from None
    waiting.first_worker(client)
    return client


def is_collection(values: Any) -> bool:
    """Whether values are a collection of Dask, or a list of delayed values."""
    if isinstance(values, list | tuple):
        return bool(values) and all(hasattr(each, "__dask_graph__") for each in values)
    return hasattr(values, "__dask_graph__")


def blocks_of(client: Any, name: str, values: Any, axes: int) -> tuple[list[Any], list[int] | None]:
    """Start to compute the blocks of rows of a collection; return their futures and, where it is known, the rows of each."""
    if isinstance(values, list | tuple):
        with explained(client):
            return client.compute(list(values)), None
    array = values.to_dask_array() if hasattr(values, "to_dask_array") else values
    if not hasattr(array, "chunks"):
        raise DualnewtonError(
            f"{name} must be a dask array, a dask data frame or a list of delayed matrices, got {type(values).__name__}"
        )
    if array.ndim != axes:
        raise DualnewtonError(f"{name} must have {axes} axes, got {array.ndim}")
    if axes == 2 and array.numblocks[1] > 1:
        array = array.rechunk({1: -1})  # a row is in one block
    with explained(client):
        persisted = client.persist(array)
    futures = {future.key: future for future in _futures_of(persisted)}
    keys = [row[0] if axes == 2 else row for row in persisted.__dask_keys__()]
    sizes = array.chunks[0]
    return [futures[key] for key in keys], None if np.isnan(sizes).any() else list(sizes)


def _futures_of(collection: Any) -> list[Any]:
    from distributed import futures_of

    return list(futures_of(collection))


def require_computed(client: Any, name: str, futures: Sequence[Any]) -> None:
    """Wait for blocks; raise an error that names the first one that cannot be computed."""
    waiting.computed(client, futures)
    for number, future in enumerate(futures):
        if future.status == "error":
            error = future.exception()
            raise DualnewtonError(
                f"block {number} of {name} cannot be computed (task {future.key}): {type(error).__name__}: {error}"
            ) from error


def shared_out(blocks: int, sizes: Sequence[int] | None, client: Any) -> list[range]:
    """Divide the blocks among about one task for each thread of the cluster: consecutive blocks, of about equally many rows."""
    threads = sum(client.nthreads().values())
    wanted = max(1, min(blocks, SHARES_PER_THREAD * threads))
    ends = np.cumsum([1] * blocks if sizes is None else sizes) * (
        wanted / max(1, blocks if sizes is None else sum(sizes))
    )
    # The block whose last row lies in the k-th part of the rows belongs to share k.
    owners = np.minimum(np.ceil(ends - 1e-9).astype(int), wanted) - 1
    firsts = [int(np.searchsorted(owners, k)) for k in range(wanted)] + [blocks]
    return [range(low, high) for low, high in itertools.pairwise(firsts) if high > low]
