"""Functions of consecutive rows, compiled from the methods of a loss and called through their addresses.

A pass calls such a function once for each block of rows: the cost of the call is negligible, and no kernel is compiled again
for a loss. Arrays are given by addresses, since each model of a pass has its own vectors, some of which may be absent.

All have the parameters

    p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign

where p and q are the fields of the loss and sign is 1 or −1. For losses of one margin the arrays have m entries, and K and the
three distances are not used; those of K margins are in ``column_functions``. A loss of the library with at most two fields is
compiled once per installation; any other, in each process and for the values of its fields.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, intp, types
from numba.core.errors import NumbaError

from dualnewton.kernels import column_functions
from dualnewton.kernels._compiler import address_of, compiled_for
from dualnewton.kernels._jit import LEAN_ROWS, calling, row_function
from dualnewton.kernels._memory import array_at
from dualnewton.kernels.loss_methods import (
    conjugate_inside,
    derivative,
    direction,
    domain,
    loss_at,
    second_derivative,
    value,
)
from dualnewton.kernels.losses import fields_of, of_library
from dualnewton.losses import Loss

SIGNATURE = float64(float64, float64, *[intp] * 5, *[types.CPointer(float64)] * 7, float64)

FIELDS = 2
"""Largest number of fields of a loss that are passed as arguments."""


class RowFunction(NamedTuple):
    """A compiled function, its address, which is valid as long as the function exists, and the fields of the loss."""

    function: Any
    address: int
    p: float = 0.0
    q: float = 0.0


def _compiled(function: Callable[..., float], *, keep: bool = True, lean: bool = False) -> RowFunction:
    """Compile a function, or load it from the cache on disk."""
    made = row_function(function, **LEAN_ROWS if lean else {})
    if keep:
        found = compiled_for(made, SIGNATURE.args)
    else:
        made.compile(SIGNATURE.args)
        found = made.overloads[SIGNATURE.args]
    return RowFunction(made, address_of(found))


def _of_loss(
    *overridden: str, columns: Callable[[Any], Callable[..., float]] | None = None
) -> Callable[[Callable[[Any], Callable[..., float]]], Callable[[Loss], RowFunction | None]]:
    """Build functions of rows from losses, and cache them; None for a loss whose methods or fields cannot be compiled.

    The decorated function, and ``columns`` for losses of several columns, is given the type of the loss's fields, or the fields
    themselves where they are compiled as constants.

    The function is derived from the methods ``overridden`` of ``Loss``, and not valid for a loss that overrides one of them.
    ``columns`` names the required method of a loss of several columns.
    """

    def decorate(make: Callable[[Any], Callable[..., float]]) -> Callable[[Loss], RowFunction | None]:
        @cache
        def shared(kind: Any, one: bool) -> RowFunction:
            return _compiled((make if one or columns is None else columns)(kind), lean=one)

        @lru_cache(maxsize=64)
        def made(loss: Loss) -> RowFunction | None:
            one = loss.columns == 1
            if one and any(_is_own(loss, name) for name in overridden):
                return None
            if not one and (columns is None or not _is_own(loss, columns.method)):  # type: ignore[attr-defined]
                return None
            try:
                self: Any = fields_of(loss)
                kind: Any = type(self)
                if of_library(type(loss)) and len(self) <= FIELDS:
                    return shared(kind, one)._replace(**dict(zip("pq", self, strict=False)))
                return _compiled((make if one or columns is None else columns)(self), keep=False)
            except (NumbaError, TypeError, ValueError):
                return None

        return made

    return decorate


def _is_own(loss: Loss, name: str) -> bool:
    """Whether the loss overrides the method of ``Loss`` by another than a shorter one."""
    own = getattr(type(loss), name)
    return own is not getattr(Loss, name) and not getattr(own, "is_shorter", False)


# Functions of rows ----------------------------------------------------------------------------------------------------------


@_of_loss(columns=column_functions.losses)
def losses_of(kind: Any) -> Callable[..., float]:
    """Return Σ c φ(z + o; y); write sign·φ′ to ``slopes`` and sign·cφ′ to ``factors``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs, os = array_at(z, m), array_at(y, m), array_at(c, m), array_at(o, m)
        own_slopes, own_factors = array_at(slopes, m), array_at(factors, m)
        total = 0.0
        for i in range(m):
            slope = sign * derivative(self, zs[i] + os[i], ys[i])
            total += cs[i] * value(self, zs[i] + os[i], ys[i])
            own_slopes[i] = slope
            own_factors[i] = cs[i] * slope
        return total

    return function


@_of_loss("balancing_direction")
def direction_of(kind: Any) -> Callable[..., float]:
    """Given sign·φ′ in ``slopes``, write the balancing direction d to ``kept`` and cd to ``factors``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs, os = array_at(z, m), array_at(y, m), array_at(c, m), array_at(o, m)
        own_slopes, own_kept, own_factors = array_at(slopes, m), array_at(kept, m), array_at(factors, m)
        for i in range(m):
            low, high = domain(self, zs[i], ys[i])
            d = direction(sign * own_slopes[i], low, high, second_derivative(self, zs[i] + os[i], ys[i]))
            own_kept[i] = d
            own_factors[i] = cs[i] * d
        return 0.0

    return function


@_of_loss(columns=column_functions.curvature)
def curvature_of(kind: Any) -> Callable[..., float]:
    """Write cφ″(z + o; y) to ``factors``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs, os, own_factors = (
            array_at(z, m),
            array_at(y, m),
            array_at(c, m),
            array_at(o, m),
            array_at(factors, m),
        )
        for i in range(m):
            own_factors[i] = cs[i] * second_derivative(self, zs[i] + os[i], ys[i])
        return 0.0

    return function


@_of_loss("conjugate", "conjugates", columns=column_functions.conjugates)
def conjugates_of(kind: Any) -> Callable[..., float]:
    """Return Σ c φ*(−z; y) for a dual point z; a row of weight zero contributes zero even where its φ* is infinite."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs = array_at(z, m), array_at(y, m), array_at(c, m)
        total = outside = 0.0
        for i in range(m):
            low, high = domain(self, zs[i], ys[i])
            inside = min(max(-zs[i], low), high)
            term = cs[i] * conjugate_inside(self, inside, ys[i])  # before the selection, to avoid a branch
            total += term if cs[i] > 0.0 else 0.0
            outside += cs[i] if inside != -zs[i] else 0.0  # NaN is also outside
        return total if outside == 0.0 else np.inf

    return function


@_of_loss()
def slope_of(kind: Any) -> Callable[..., float]:
    """Return Σ c φ′(z + o + sign·kept; y) kept: the derivative of the sum of losses along a line."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs, os, own_kept = array_at(z, m), array_at(y, m), array_at(c, m), array_at(o, m), array_at(kept, m)
        total = 0.0
        for i in range(m):
            total += cs[i] * derivative(self, zs[i] + os[i] + sign * own_kept[i], ys[i]) * own_kept[i]
        return total

    return function


@_of_loss("best_intercept")
def intercept_slopes_of(kind: Any) -> Callable[..., float]:
    """Write Σ cφ′, Σ cφ″ and Σ c|φ′| at the margins z + sign to the first three places of ``kept``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        self = loss_at(kind, p, q)
        zs, ys, cs, own_kept = array_at(z, m), array_at(y, m), array_at(c, m), array_at(kept, 3)
        value = curvature = terms = 0.0
        for i in range(m):
            slope = cs[i] * derivative(self, zs[i] + sign, ys[i])
            curvature += cs[i] * second_derivative(self, zs[i] + sign, ys[i])
            value += slope
            terms += abs(slope)
        own_kept[0], own_kept[1], own_kept[2] = value, curvature, terms
        return value

    return function


@_of_loss(columns=column_functions.couplings)
def couplings_of(kind: Any) -> Callable[..., float]:
    """Write c times the couplings of each two columns to ``factors``; one column has none."""
    raise TypeError("a loss of one column has no couplings")


OF_LOSSES = losses_of, direction_of, curvature_of, couplings_of, conjugates_of, slope_of, intercept_slopes_of
"""All functions of rows that are built from losses."""


@lru_cache(maxsize=1)
def weighted() -> RowFunction:
    """Write cz to ``factors``."""

    def function(p, q, m, K, z_apart, kept_apart, factors_apart, z, y, c, o, slopes, kept, factors, sign):
        zs, cs, own_factors = array_at(z, m), array_at(c, m), array_at(factors, m)
        for i in range(m):
            own_factors[i] = cs[i] * zs[i]
        return 0.0

    return _compiled(function, lean=True)


call = calling(SIGNATURE)
"""Call the function of rows at an address, with the addresses of its arrays."""
