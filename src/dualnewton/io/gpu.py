"""Rows on a GPU; the libraries of the GPU are loaded on first use."""

from __future__ import annotations

from typing import Any

from dualnewton.matrix import Data


def on_gpu(X: Any) -> Data:
    """Return a matrix as rows on a GPU, for a ``Problem`` or an estimator.

    Rows of the host that would take more than half of the memory of the GPU stay on the host: each pass copies them piece by
    piece, while the GPU computes with the piece before. ``device="cuda"`` of an estimator does the same.

    Parameters
    ----------
    X : array or sparse array of NumPy, SciPy, CuPy or PyTorch
        Rows that are on the GPU are not copied. Rows of the host, in memory or memory-mapped, must not change before the last
        fit has ended.

    Returns
    -------
    Data
        The data, to be passed to ``Problem`` as X.

    Raises
    ------
    DualnewtonError
        If CuPy or a GPU is missing, or X is not a matrix of finite numbers.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from dualnewton import data
    >>> def fitted(X, y):
    ...     return dn.solve(dn.Problem(data.on_gpu(X), y, dn.losses.Logistic(), lam=1e-6))
    """
    from dualnewton.matrix import cuda_copies

    return cuda_copies.on_gpu(X)
