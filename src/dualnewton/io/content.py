"""A SHA-256 of the content of a data set, the same for every file format that holds the same numbers and classes."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.io.dataset import Dataset

BLOCK = 1 << 22
"""Entries of a dense block of rows that is converted at a time, so that large data are not copied whole."""


def content_digest(data: Dataset, classes: bool) -> str:
    """Return the SHA-256 of the content of a data set.

    It does not depend on the format of the file, on its compression, on explicit zeros, on dense or sparse storage, and on
    float32 or float64 (for values that float32 holds exactly). It is the SHA-256 of these five SHA-256 digests, each of
    little-endian numbers:

    1. n and d, int64;
    2. the number of nonzero entries of each row, int64;
    3. the columns of these entries, counted from zero and increasing in each row, int64;
    4. their values, float64;
    5. the labels: for classification the index of each class in sorted order (int64), otherwise the numbers (float64).

    If the labels are classes, −1/+1, 0/1 and 1/2 are the same content. Text is always classes.
    """
    n, d = data.X.shape
    parts = [hashlib.sha256(np.array([n, d], "<i8").data)] + [hashlib.sha256() for _ in range(3)]
    for low in range(0, n, step := max(1, BLOCK // max(1, d))):
        for part, numbers in zip(parts[1:], _entries(data.X[low : low + step]), strict=True):
            part.update(np.ascontiguousarray(numbers).data)
    y = np.asarray(data.y)
    classes = classes or y.dtype.kind not in "biuf"
    y = np.unique(y, return_inverse=True)[1].astype("<i8") if classes else y.astype("<f8") + 0.0  # no negative zeros
    parts.append(hashlib.sha256(np.ascontiguousarray(y).data))
    return hashlib.sha256(b"".join(part.digest() for part in parts)).hexdigest()


def _entries(rows: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the number of nonzero entries of each row, their columns and their values."""
    kept = sp.csr_array(rows, copy=True)
    kept.sum_duplicates()
    kept.eliminate_zeros()
    return np.diff(kept.indptr).astype("<i8"), kept.indices.astype("<i8"), kept.data.astype("<f8")
