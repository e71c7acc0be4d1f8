"""Reading of data files and named data sets: X, y and weights from a path or a name."""

from dualnewton.errors import DataWarning
from dualnewton.io.catalog import find, load
from dualnewton.io.conversion import convert
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.formats import read
from dualnewton.io.gpu import on_gpu
from dualnewton.io.opening import open  # noqa: A004

__all__ = ["DataError", "DataWarning", "Dataset", "convert", "find", "load", "on_gpu", "open", "read"]
