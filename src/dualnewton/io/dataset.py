"""``Dataset``, which every reader returns, and ``DataError``, which every reader raises."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError


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
def damage(path: Path, what: str, faults: tuple[type[Exception], ...], errnos: tuple[int, ...] = ()) -> Iterator[None]:
    """Convert the exceptions that a damaged file causes into a ``DataError``, which says ``what`` the file is.

    An ``OSError`` is one of them if it has no number or one of ``errnos``; others, such as a missing file, stay as they are.
    """
    caught: tuple[type[Exception], ...] = (OSError, *faults)
    try:
        yield
    except DataError:
        raise
    except caught as error:
        if isinstance(error, OSError) and error.errno is not None and error.errno not in errnos:
            raise
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataError(f"{path}: {what} ({reason})") from None


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: the examples with their labels, weights and feature names.

    Parameters
    ----------
    X : array or CSR array of shape (n, d)
        One example per row; float64 or float32, in C order, possibly mapped from a file.
    y : array of shape (n,), optional
        The labels: numbers or text, as in the file.
    sample_weight : array of shape (n,), optional
        The weights of the examples.
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
    feature_names: tuple[str, ...] | None = None
    name: str = ""
    target: str | None = None

    def __repr__(self) -> str:
        n, d = self.X.shape
        storage = "dense" if isinstance(self.X, np.ndarray) else f"sparse, {self.X.nnz} entries"
        return f"Dataset({self.name!r}, n={n}, d={d}, {storage}, {self.X.dtype})"
