"""Functions of consecutive rows with K margins each, made of a loss's functions by columns (``Loss.losses_by_columns`` …).

They have the parameters of ``row_functions``. Columns of the margins are ``z_apart`` numbers apart, those of ``slopes`` and
``kept`` ``kept_apart`` and those of ``factors`` ``factors_apart``, 0 if they are not requested. Offsets, and labels that are
vectors, have K consecutive numbers for each row.

The rows are processed in blocks of up to ``NUMBERS`` margins, which stay in the first-level cache. They read and write
slices: with an index that may be negative, as far as the compiler knows, each number would have an address of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import carray

from dualnewton.kernels._jit import row_part
from dualnewton.kernels.loss_methods import BY_COLUMNS, labels_of, loss_at

NUMBERS, FEWEST = 1 << 10, 1 << 4
"""Number of margins in a block (8 KiB), and minimum number of its rows."""

_losses, _curvature, _couplings, _conjugates = BY_COLUMNS.values()


def _made_of(method: str) -> Callable[[Any], Any]:
    """Mark a function of rows with the required method of the loss."""

    def mark(make: Any) -> Any:
        make.method = method
        return make

    return mark


@row_part
def _rows_at_a_time(m, K):
    return min(m, max(FEWEST, NUMBERS // K))


@row_part
def _read(z, apart, o, low, own):
    """Copy the margins of as many rows as ``own`` has columns, starting at row ``low``, and add their offsets."""
    K, count = own.shape
    for k in range(K):
        column = z[k * apart + low : k * apart + low + count]
        offsets = o[low * K + k :: K]
        for i in range(count):
            own[k, i] = column[i] + offsets[i]


@row_part
def _write(found, factor, weights, low, apart, out):
    """Copy factor · weight · found to the columns of ``out`` starting at row ``low``, if they are requested."""
    M, count = found.shape
    for k in range(M if apart > 0 else 0):
        column = out[k * apart + low : k * apart + low + count]
        for i in range(count):
            column[i] = factor * weights[i] * found[k, i]


@_made_of("losses_by_columns")
def losses(kind: Any) -> Callable[..., float]:
    """Return Σ c φ(z + o; y); write sign·φ′ to ``slopes`` and sign·cφ′ to ``factors``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self, step, total = loss_at(kind, p, q), _rows_at_a_time(m, K), 0.0
        z, y, c, o = carray(z, (K - 1) * z_apart + m), carray(y, m * K), carray(c, m), carray(o, m * K)
        slopes, factors = carray(slopes, (K - 1) * kept_apart + m), carray(factors, (K - 1) * factors_apart + m)
        ones = np.empty(step)
        for i in range(step):
            ones[i] = 1.0
        for low in range(0, m, step):
            count = min(step, m - low)
            own, found, values, weights = (
                np.empty((K, count)),
                np.empty((K, count)),
                np.empty(count),
                c[low : low + count],
            )
            _read(z, z_apart, o, low, own)
            _losses(self, own, labels_of(self, y, low, count, K), values, found)
            _write(found, sign, ones, low, kept_apart, slopes)
            _write(found, sign, weights, low, factors_apart, factors)
            for i in range(count):
                total += weights[i] * values[i]
        return total

    return function


def _columns_made_of(method: str, by_columns: Any) -> Callable[[Any], Callable[..., float]]:
    """Build functions that write c times the result of a function by columns to the columns of ``factors``."""

    @_made_of(method)
    def make(kind: Any) -> Callable[..., float]:
        paired = method == "couplings_by_columns"

        def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
            self, step, M = loss_at(kind, p, q), _rows_at_a_time(m, K), (K * (K - 1)) // 2 if paired else K
            z, y, c, o = carray(z, (K - 1) * z_apart + m), carray(y, m * K), carray(c, m), carray(o, m * K)
            factors = carray(factors, (M - 1) * factors_apart + m)
            for low in range(0, m, step):
                count = min(step, m - low)
                own, found, values = np.empty((K, count)), np.empty((M, count)), np.empty(count)
                _read(z, z_apart, o, low, own)
                by_columns(self, own, labels_of(self, y, low, count, K), values, found)
                _write(found, 1.0, c[low : low + count], low, factors_apart, factors)
            return 0.0

        return function

    return make


curvature = _columns_made_of("curvature_by_columns", _curvature)
"""Write c times the diagonal of φ″ to K columns of ``factors``."""

couplings = _columns_made_of("couplings_by_columns", _couplings)
"""Write c times the couplings of each two columns to K(K − 1)/2 columns of ``factors``."""


@_made_of("conjugates_by_columns")
def conjugates(kind: Any) -> Callable[..., float]:
    """Return Σ c φ*(−z; y) for a dual point z; a row of weight zero contributes zero even where its φ* is infinite."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self, step, total = loss_at(kind, p, q), _rows_at_a_time(m, K), 0.0
        z, y, c = carray(z, (K - 1) * z_apart + m), carray(y, m * K), carray(c, m)
        for low in range(0, m, step):
            count = min(step, m - low)
            own, buffer, values, weights = (
                np.empty((K, count)),
                np.empty((K, count)),
                np.empty(count),
                c[low : low + count],
            )
            for k in range(K):
                for i in range(count):
                    own[k, i] = -z[k * z_apart + low + i]
            _conjugates(self, own, labels_of(self, y, low, count, K), values, buffer)
            for i in range(count):
                total += weights[i] * values[i] if weights[i] > 0.0 else 0.0
        return total if total == total else np.inf  # NaN proves nothing

    return function
