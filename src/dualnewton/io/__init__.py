"""Data files and named data sets: from a path or a name to X, y and weights."""

from dualnewton.io.catalog import find, load
from dualnewton.io.conversion import convert
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.formats import read

__all__ = ["DataError", "Dataset", "convert", "find", "load", "read"]
