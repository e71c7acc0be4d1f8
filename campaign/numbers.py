"""Unusual numbers and arrays: each is fitted as its plain copy is, or refused by name."""

from __future__ import annotations

import ctypes
import mmap
import platform
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from campaign.exact import Objective
from campaign.fits import refused
from campaign.parts import Defect
from dualnewton import losses, regularizers

Rng = np.random.Generator
TINY, HUGE = 5e-324, np.finfo(np.float64).max


def _some(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def _with_entries(values: list[float], share: float = 0.3) -> Callable[[Rng, np.ndarray], Any]:
    """Replace some entries by special values."""
    return lambda rng, X: np.where(rng.random(X.shape) < share, rng.choice(values, X.shape), X)


def _unsorted(rng: Rng, X: np.ndarray) -> Any:
    """CSR rows whose entries are out of order."""
    rows = sp.csr_array(X)
    for low, high in zip(rows.indptr[:-1], rows.indptr[1:], strict=True):
        order = rng.permutation(high - low) + low
        rows.indices[low:high], rows.data[low:high] = rows.indices[order], rows.data[order]
    rows.has_sorted_indices = False
    return rows


def _repeated(rng: Rng, X: np.ndarray) -> Any:  # noqa: ARG001
    """CSR rows in which each entry is the sum of two that are stored."""
    i, j = np.nonzero(X)
    values = X[i, j]
    both = np.concatenate([values * 0.25, values * 0.75])
    order = np.argsort(np.r_[i, i], kind="stable")
    starts = np.searchsorted(np.sort(np.r_[i, i]), np.arange(len(X) + 1))
    return sp.csr_array((both[order], np.r_[j, j][order], starts), shape=X.shape)


def _wide_indices(rng: Rng, X: np.ndarray) -> Any:  # noqa: ARG001
    rows = sp.csr_array(X)
    return sp.csr_array((rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), shape=X.shape)


def _mapped(rng: Rng, X: np.ndarray) -> Any:  # noqa: ARG001
    """Rows in pages that the process may only read: a write would end it."""
    pages = mmap.mmap(-1, max(X.nbytes, 1))
    pages.write(np.ascontiguousarray(X).tobytes())
    rows = np.frombuffer(pages, X.dtype).reshape(X.shape)
    rows.flags.writeable = False
    return rows


def _read_only(rng: Rng, X: np.ndarray) -> Any:  # noqa: ARG001
    X = X.copy()
    X.flags.writeable = False
    return X


ARRAYS: dict[str, Callable[[Rng, np.ndarray], Any]] = {
    "subnormal": _with_entries([TINY, -TINY, 1e-310]),
    "signed zeros": _with_entries([0.0, -0.0]),
    "only zeros": lambda rng, X: 0.0 * X,
    "large": _with_entries([1e150, -1e150]),
    "largest": _with_entries([HUGE, -HUGE], 0.1),
    "small": lambda rng, X: X * 1e-200,
    "integers": lambda rng, X: np.round(3.0 * X).astype(np.int8),
    "integers beyond 2^53": lambda rng, X: np.round(X).astype(np.int64) + _some(rng, [2**53 + 1, -(2**60)]),
    "unsigned": lambda rng, X: np.abs(np.round(X)).astype(np.uint64) + np.uint64(2**63),
    "booleans": lambda rng, X: X > 0.0,
    "half precision": lambda rng, X: X.astype(np.float16),
    "extended precision": lambda rng, X: X.astype(np.longdouble),
    "other byte order": lambda rng, X: X.astype(">f8"),
    "other byte order, float32": lambda rng, X: X.astype(">f4"),
    "strided": lambda rng, X: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda rng, X: X[::-1, ::-1].copy()[::-1, ::-1],
    "broadcast": lambda rng, X: np.broadcast_to(X[0], X.shape),
    "masked": lambda rng, X: np.ma.masked_array(X, mask=False),
    "read-only": _read_only,
    "mapped": _mapped,
    "unsorted CSR": _unsorted,
    "repeated CSR": _repeated,
    "int64 indices": _wide_indices,
    "empty CSR": lambda rng, X: sp.csr_array(X.shape),
    "explicit zeros": lambda rng, X: sp.csr_array(
        (np.zeros(len(X)), (np.arange(len(X)), np.zeros(len(X), int))), shape=X.shape
    ),
    "COO": lambda rng, X: sp.coo_array(X),
    "CSC matrix": lambda rng, X: sp.csc_matrix(X),
    "wide": lambda rng, X: sp.hstack([sp.csr_array(X), sp.csr_array((len(X), 10**7))], format="csr"),
    "complex": lambda rng, X: X + 0j,
    "text": lambda rng, X: X.astype(str),
    "objects": lambda rng, X: X.astype(object),
    "NaN": _with_entries([np.nan], 0.1),
    "infinite": _with_entries([np.inf], 0.1),
    "no rows": lambda rng, X: X[:0],
    "no columns": lambda rng, X: X[:, :0],
    "three dimensions": lambda rng, X: X[None],
}


@contextmanager
def flushed_to_zero(wanted: bool) -> Iterator[None]:
    """Have the processor take subnormal numbers for zero, as libraries built with -ffast-math do to the whole process."""
    able = wanted and platform.machine() == "x86_64" and platform.libc_ver()[0] == "glibc"
    if not able:
        yield
        return
    library = ctypes.CDLL("libm.so.6")
    environment = (ctypes.c_uint32 * 8)()  # fenv_t of glibc on x86-64; the last word is MXCSR
    library.fegetenv(environment)
    before = environment[7]
    environment[7] = before | 0x8040  # flush to zero, and denormals are zero
    library.fesetenv(environment)
    try:
        yield
    finally:
        environment[7] = before
        library.fesetenv(environment)


def case(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001
    """Fit one unusual array."""
    rng = np.random.default_rng([seed, 70])
    name = list(ARRAYS)[seed % len(ARRAYS)]
    n, d = int(_some(rng, [5, 30])), int(_some(rng, [1, 4, 40]))
    plain = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.7)
    X = ARRAYS[name](rng, plain)
    loss = _some(rng, [losses.Squared(), losses.Logistic(), losses.Hinge(), losses.SquaredHinge(), losses.Huber()])
    y = np.where(plain[:, 0] > 0.0, 1.0, -1.0)
    penalty = _some(rng, [regularizers.L2(), regularizers.L1(), regularizers.ElasticNet(0.3)])
    method = _some(rng, ["auto", "newton", "sdna"]) if penalty.strongly_convex else "auto"
    flush = rng.random() < 0.2
    title = f"{name}, {n}x{d}, {loss!r} + {penalty!r}, {method}{', flushed to zero' * flush}"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            with flushed_to_zero(flush):
                problem = dn.Problem(X, y, loss, regularizer=penalty, lam=0.1, fit_intercept=bool(rng.integers(2)))
                result = dn.solve(problem, method=method, tol=1e-6, time_limit=1.0, random_state=0)
        except dn.DualnewtonError as error:
            return Counter([f"{name}: {refused(error)}"])
        except Exception as error:
            raise Defect(f"{title}: {type(error).__name__}: {error}") from error
    certificate = result.certificate
    if np.isnan([certificate.primal, certificate.dual]).any() or not np.isfinite(result.w).all():
        raise Defect(f"{title}: {certificate}, w within {np.abs(result.w).max()}")
    if problem.d <= 1000 and np.isfinite([certificate.primal, certificate.dual]).all():
        dense = (X.toarray() if sp.issparse(X) else np.asarray(X)).astype(np.float64)
        exact = Objective(dense, y, loss, penalty, 0.1, None, None, problem.fit_intercept)
        with np.errstate(all="ignore"):
            true, rounding = exact.claim(result.w, result.intercept, result.alpha)
        if not true <= certificate.gap + rounding:
            raise Defect(
                f"{title}: P − D is {true:.6g}, the certificate says {certificate.gap:.6g} (rounding {rounding:.3g})"
            )
    return Counter([f"{name}: fitted"])
