"""``Dataset``, which every reader returns, and ``DataError``, which every reader raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix.memory import profile_of

VECTORS = ("y", "sample_weight", "offset")
"""The fields of a data set that have an entry for each example."""

OPTIONS = {"sample_weight": "weights", "offset": "offset"}
"""The options by which users name the column, the array or the file of a vector of numbers, by the field of the data set."""


class DataError(DualnewtonError):
    """A file or a name is invalid; the message is one line with the place, the value found and the values allowed.

    Examples
    --------
    >>> import dualnewton as dn
    >>> try:
    ...     dn.data.load("irises")
    ... except dn.data.DataError as error:
    ...     print("irises" in str(error))
    True
    """


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Add the path to an ``OSError`` that names no file, such as those of reading and of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: the examples with their labels, weights, offsets and feature names.

    Parameters
    ----------
    X : array, CSR array or Data of shape (n, d)
        One example per row; float64 or float32, in C order, possibly mapped from a file. :func:`dualnewton.io.open` returns rows
        that stay on disk, as :class:`dualnewton.matrix.Data`.
    y : array of shape (n,), optional
        The labels: numbers or text, as in the file.
    sample_weight : array of shape (n,), optional
        The weights of the examples.
    offset : array of shape (n,), optional
        The offsets that are added to the margins of the examples.
    feature_names : tuple of str, optional
        The names of the columns of X.
    name : str
        The name of the data set.
    target : str, optional
        A description of where the labels were found, such as "the array 'y'".

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> data = dn.data.Dataset(np.eye(3), np.array([0.0, 1.0, 1.0]), name="three rows")
    >>> data.X.shape, data.name
    ((3, 3), 'three rows')
    """

    X: Any
    y: np.ndarray | None = None
    _: KW_ONLY
    sample_weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    feature_names: tuple[str, ...] | None = None
    name: str = ""
    target: str | None = None

    def __repr__(self) -> str:
        profile = getattr(self.X, "profile", None) or profile_of(self.X)
        storage = f"sparse, {profile.stored} entries" if profile.sparse else "dense"
        return f"Dataset({self.name!r}, n={profile.n}, d={profile.d}, {storage}, {self.X.dtype})"
