"""Rows in the memory of the host that exceed the memory of the device that computes with them.

A pass copies the rows to the device piece by piece, and one thread copies the next piece while the device computes with the one
before. Vectors with an entry per row stay on the host; samples of the rows, on which a method starts, are data on the device.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from dualnewton.matrix.chunked import ChunkedData, Share, View
from dualnewton.matrix.device import DeviceData
from dualnewton.matrix.linear import Matrix, some_rows
from dualnewton.matrix.pieces import AHEAD, Pieces, Wanted
from dualnewton.matrix.protocol import Capabilities
from dualnewton.matrix.read_ahead import ReadAhead
from dualnewton.matrix.segments import Held


class StreamedData(ChunkedData):
    """Rows on the host in several pieces, which are copied to a device for each pass.

    Three pieces, and the results of a pass, must fit into the memory of the device together. ``place`` copies a matrix to the
    device, and returns it as data there once it has arrived; a separate thread calls it.
    """

    capabilities = Capabilities(
        random_rows=False, whole=False, reason="the rows are on the host, and are copied to a device piece by piece"
    )

    def __init__(self, pieces: Sequence[Any], place: Callable[[Matrix], DeviceData]) -> None:
        self.place = place
        self._set(Pieces([Held(piece, k) for k, piece in enumerate(pieces)]), View())

    def _set(self, source: Pieces, view: View) -> StreamedData:
        super()._set(source, view)
        self.profile = replace(self.profile, on_gpu=True, streamed=True)
        return self

    def _viewed(self, **changes: Any) -> ChunkedData:
        made = super()._viewed(**changes)
        made.place = self.place  # type: ignore[attr-defined]
        return made

    def _separate(self, rows: Matrix) -> DeviceData:
        """Return some rows on the device, which is faster than the host for the matrix products of steps on a sample."""
        return self.place(rows)

    @contextmanager
    def _computing(self, indices: np.ndarray | None = None) -> Iterator[Iterator[Share]]:
        wanted = self.source.wanted(indices)
        with self.source.reading(wanted) as found, ReadAhead(self._copied(wanted, found), AHEAD) as there:
            yield iter(there)

    def _copied(self, wanted: Sequence[Wanted], found: Iterator[tuple[Matrix, np.ndarray | None]]) -> Generator[Share]:
        """Copy the wanted rows of each piece to the device, and apply the view to them."""
        for each, (matrix, some) in zip(wanted, found, strict=True):
            data = self.place(matrix if some is None else some_rows(matrix, some))
            data = data if self.view.constant is None else data.with_constant(self.view.constant)
            yield each.own, None, data if self.view.features is None else data.with_features(self.view.features)
