"""The Dask cluster of a command: workers of this machine, or those of a scheduler at an address."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dualnewton.cli._output import count
from dualnewton.cli._transfer import stage
from dualnewton.errors import DualnewtonError, MissingPackageError
from dualnewton.matrix.dask.settings import LOCAL_CLUSTER

if TYPE_CHECKING:
    from dualnewton.io import Dataset

LOCAL = "local"
"""The address of a cluster that the command starts; ``local:2`` has two workers."""

PRELOAD = "dualnewton.cli._worker"
"""The module that the workers of such a cluster load at their start."""

PATIENCE = 10
"""Seconds to wait for the answer of a scheduler."""


class Cluster:
    """The place of the rows of a fit. Without a client, which connects to a cluster, they stay in this process."""

    def __init__(self, client: Any = None) -> None:
        self.client = client

    def placed(self, dataset: Dataset) -> Dataset:
        """Return the data set with its rows on the workers."""
        if self.client is None:
            return dataset
        from dualnewton.matrix.dask.placing import on_workers

        with stage(f"placing {dataset.name} on the cluster"):
            return replace(dataset, X=on_workers(dataset.X))

    @property
    def estimators(self) -> Any:
        """The module of the estimators for rows at this place."""
        return importlib.import_module("dualnewton.estimators" if self.client is None else "dualnewton.dask")

    def __str__(self) -> str:
        threads = self.client.nthreads()
        size = f"{count(len(threads), 'worker')}, {count(sum(threads.values()), 'thread')}"
        return f"{self.client.scheduler.address}: {size}"


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """Connect to the cluster at an address, or start one, for the time of the block; do nothing without an address."""
    if address is None:
        yield Cluster()
        return
    try:
        import dask
        import distributed
    except ImportError as error:
        raise MissingPackageError(
            f'--dask needs dask and distributed: pip install "dualnewton[dask]" ({error})'
        ) from None
    for name in ("distributed", "distributed.client"):  # the second has its own level
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are raised; the rest is for the dashboard
    with contextlib.ExitStack() as stack:
        with stage(f"connecting to {address}"):
            place = address
            if address.partition(":")[0] == LOCAL:
                stack.enter_context(dask.config.set(LOCAL_CLUSTER))
                place = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=workers_in(address),
                        threads_per_worker=1,
                        dashboard_address=":0",
                        preload=[PRELOAD],
                    )
                )
            client = stack.enter_context(_client(distributed, place, address))
        yield Cluster(client)


def workers_in(address: str) -> int:
    """Return the number of workers in an address such as ``local:2``; by default the number of physical cores."""
    from dualnewton.matrix.workers import physical_cores

    _, colon, number = address.partition(":")
    if not colon:
        return physical_cores()
    if not number.isdecimal() or int(number) < 1:
        raise DualnewtonError(f"--dask local:NUMBER must have a number of workers >= 1, got {address!r}")
    return int(number)


def _client(distributed: Any, place: Any, address: str) -> Any:
    try:
        return distributed.Client(place, timeout=PATIENCE)
    except (OSError, ValueError) as error:  # a timeout is an OSError
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DualnewtonError(
            f"--dask must be the address of a Dask scheduler, such as tcp://host:8786, or local; none answers at {address!r} "
            f"({reason})"
        ) from None
