"""Rows of this machine, in memory or in files, as data on the workers of a cluster."""

from __future__ import annotations

import uuid
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.chunked import ChunkedData, View
from dualnewton.matrix.dask.data import DaskData
from dualnewton.matrix.linear import Matrix, cut
from dualnewton.matrix.segments import Segment, Slot
from dualnewton.validation import data_matrix

BLOCK = 1 << 23
"""Bytes of a block of rows that are sent to a worker (8 MiB): a constant, since blocks decide the last bits of sums."""


def on_workers(X: Any) -> DaskData:
    """Return rows as data on the cluster of the current client.

    Pieces of files are read by the workers, which must see the same files under the same paths. Rows in memory are sent to
    them, and stay with the scheduler, which sends them again if a worker is lost.
    """
    import dask

    data = X if isinstance(X, ChunkedData) else ChunkedData(cut(data_matrix("X", X), BLOCK))
    token, blocks = uuid.uuid4().hex, list[Any]()
    for k, segment in enumerate(data.source.segments):
        if segment.private:
            raise DualnewtonError(f"X must be rows that the workers of a cluster can read, but {segment.private}")
        held = dask.delayed(segment, name=f"dualnewton-file-{token}-{k}", traverse=False)
        for place in range(len(segment.profiles)):
            name = f"dualnewton-read-{token}-{len(blocks)}"
            blocks.append(dask.delayed(read)(held, place, data.view, dask_key_name=name))
    # The graph holds the rows that are in memory; Dask would warn of more than 10 MB.
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PiB"}):
        return DaskData(blocks)


def read(segment: Segment, place: int, view: View) -> Matrix:
    """Read a piece into memory of its own; this runs on a worker."""
    (piece,) = segment.read([place], iter(Slot, None))
    X = view.of(piece).X
    return X if linear.is_sparse(X) or X.flags.writeable else X.copy()  # a map of the file is not kept
