"""Access to the data matrix X (together with ``kernels``): one protocol, and one class for each kind of storage.

``protocol`` defines the operations that solvers, planner and verifier use; ``memory`` implements them for arrays and CSR
matrices, ``compiled`` its passes by kernels, ``over_rows`` functions of vectors over the rows, ``chunked`` the same for a list of
such pieces. ``workers`` has the threads. ``linear`` works on rows that have been gathered in memory, ``grams`` computes their
weighted Gram products, and ``whole`` has the products with a matrix as it is stored, for this package and the theory.
"""

from dualnewton.matrix.chunked import ChunkedData
from dualnewton.matrix.memory import MemoryData, as_data, from_elsewhere
from dualnewton.matrix.over_rows import dual_sums, row_parts, sum_over_rows
from dualnewton.matrix.protocol import BlockLosses, Capabilities, Data, Evaluation, Profile, RowForm, RowVectors, Target
from dualnewton.matrix.selections import count_active

__all__ = [
    "BlockLosses",
    "Capabilities",
    "ChunkedData",
    "Data",
    "Evaluation",
    "MemoryData",
    "Profile",
    "RowForm",
    "RowVectors",
    "Target",
    "as_data",
    "count_active",
    "dual_sums",
    "from_elsewhere",
    "row_parts",
    "sum_over_rows",
]
