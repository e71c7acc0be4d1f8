"""Data on a Dask cluster.

``sources`` turns collections into blocks, ``layout`` runs the passes of a client over them, ``tasks`` has the functions that run
on the workers, ``events`` brings small results to the client, ``sums`` adds them in a fixed order, ``rows`` and ``programs``
are the arrays with an entry per row, and ``data`` implements the protocol :class:`dualnewton.matrix.Data` with them. ``placing``
brings rows of this machine to workers.
Only functions import dask and distributed.
"""

from dualnewton.matrix.dask.data import DaskData, as_data
from dualnewton.matrix.dask.rows import RowBlocks

__all__ = ["DaskData", "RowBlocks", "as_data"]
