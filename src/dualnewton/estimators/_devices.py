"""Arrays on a GPU as arguments and results of estimators, by scikit-learn's convention for array libraries.

Fitted attributes and predictions are arrays of the library and on the device of X. The rows stay on the device; labels and
weights (one number per row) are checked on the host, and probabilities and scores are computed on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.row_arrays import on_host

GPU_LIBRARIES = ("cupy", "cupyx", "torch")
"""The packages of array types that may be on a GPU."""

FITTED = ("coef_", "intercept_", "dual_coef_")
"""The fitted attributes that are moved to the device of X."""


def library_of(array: Any) -> str | None:
    """Return the package of an array that may be on a GPU; None for other values."""
    found = type(array).__module__.partition(".")[0]
    return found if found in GPU_LIBRARIES else None


def rows_on_gpu(X: Any, device: str | None) -> Data | None:
    """Return rows that are on a GPU, or that a model with this ``device`` moves there; None for other rows."""
    if isinstance(X, Data) or (device is None and library_of(X) is None):
        return None
    from dualnewton.matrix import cuda_copies

    return cuda_copies.on_gpu(X)


def beside(X: Any, values: Any) -> Any:
    """Return an array in the library and on the device of X; strings, which no GPU stores, as a NumPy array."""
    library = library_of(X)
    if library is None:
        return on_host(values)
    if library_of(values) == library or not hasattr(values, "dtype") or values.dtype.kind not in "fiub":
        return values
    from dualnewton.matrix.cuda_library import cupy

    placed = cupy().asarray(values)
    if library != "torch":
        return placed
    import torch

    return torch.from_dlpack(placed)


def keep_beside(model: Any, X: Any) -> None:
    """Move the fitted arrays to the library and the device of X."""
    for name in FITTED:
        setattr(model, name, beside(X, getattr(model, name)))


def computed_on_host(function: Callable[[np.ndarray], np.ndarray], margins: Any) -> Any:
    """Compute a function of margins on the host; return the result on the device of the margins."""
    return function(margins) if type(margins) is np.ndarray else beside(margins, function(on_host(margins)))
