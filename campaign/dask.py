"""Random adversarial problems whose rows are blocks of a Dask cluster, which the process of the campaign holds."""

from __future__ import annotations

import atexit
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from campaign.fits import attempted
from campaign.problems import drawn

LATE = 2.0
"""Seconds beyond a time limit that a fit may take: a pass over the blocks that has begun is completed."""

BLOCKS = 3


@cache
def cluster() -> Any:
    """Return the client of a cluster of two workers in this process."""
    from distributed import Client, LocalCluster

    local = LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None)
    client = Client(local)
    atexit.register(local.close)
    atexit.register(client.close)
    return client


def _array(X: np.ndarray) -> Any:
    import dask.array as da

    return da.from_array(X, chunks=(-(-len(X) // BLOCKS), X.shape[1]))


def _sparse_blocks(X: np.ndarray) -> Any:
    import dask

    return [dask.delayed(sp.csr_array(part)) for part in np.array_split(X, min(BLOCKS, len(X)))]


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "Dask": _array,
    "Dask float32": _array,
    "Dask CSR": _sparse_blocks,
}


def case(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001
    """Try one random problem on the cluster."""
    cluster()
    return attempted(drawn(seed, STORAGES), LATE)
