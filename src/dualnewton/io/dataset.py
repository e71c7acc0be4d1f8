"""``Dataset``, which every reader returns, and ``DataError``, which every reader raises."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError


class DataError(DualnewtonError):
    """A file or a name is invalid; the message is one line with the place, the value found and the values allowed."""


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
