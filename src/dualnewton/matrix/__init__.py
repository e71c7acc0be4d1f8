"""Everything that touches the data matrix X, with ``kernels``: one protocol, and a class for each place where X may lie.

``protocol`` says what solvers, planner and verifier may ask of data; ``memory`` answers for arrays and CSR matrices,
``chunked`` for a list of pieces of them. Rows that have been gathered in memory are worked on by ``linear`` and, where they are
multiplied by each other, by ``grams``; ``whole`` has the products with a matrix as it is stored, and is used in here and by
the theory only.
"""

from dualnewton.matrix.chunked import ChunkedData
from dualnewton.matrix.memory import MemoryData, as_data
from dualnewton.matrix.protocol import Capabilities, Data, Evaluation, Profile, Target

__all__ = ["Capabilities", "ChunkedData", "Data", "Evaluation", "MemoryData", "Profile", "Target", "as_data"]
