"""Data files and named data sets: from a path or a name to X, y and weights."""

from dualnewton.data.catalog import find, load
from dualnewton.data.dataset import DataError, Dataset
from dualnewton.data.formats import read

__all__ = ["DataError", "Dataset", "find", "load", "read"]
