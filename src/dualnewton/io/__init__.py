"""Reading of data files and named data sets: X, y and weights from a path or a name."""

from dualnewton.io.catalog import find, load
from dualnewton.io.conversion import convert
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.formats import read

__all__ = ["DataError", "Dataset", "convert", "find", "load", "read"]
