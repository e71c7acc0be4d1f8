"""Tools of ``losses.check`` and ``regularizers.check``: call the methods of an object and report the identities that fail.

Every identity is a small function of the test points that yields a sentence with the numbers found if the identity fails.
The tolerances cover rounding only. In particular no derivative is compared with a finite difference up to an assumed truncation
error: by convexity the slope of a secant lies between the derivatives at its ends, with or without kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.validation import Array

ROUNDING = 1e-12
"""Allowed rounding error, as a fraction of one plus the absolute terms of the sum: about 5000 units in the last place."""

STEP = 1e-5
"""Half-length of the secants with which derivatives are compared, as a fraction of 1 + |z|: secants this long resolve slopes
to ROUNDING/STEP = 1e-7."""


class UnusableError(Exception):
    """A method cannot be called or gives unusable results; the message has the reason."""


def call(owner: Any, method: str, *args: Any) -> Any:
    """Call a method; raise an ``UnusableError`` that names it if it fails or writes into its arguments."""
    before = [np.array(arg) for arg in args]
    try:
        with np.errstate(all="ignore"):  # results that are not finite are reported later, with their arguments
            result = getattr(owner, method)(*args)
    except NotImplementedError as error:
        raise UnusableError(f"is not complete: {error}") from error
    except Exception as error:
        raise UnusableError(f"cannot be used: {method} raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(old, new, equal_nan=True) for old, new in zip(before, args, strict=True)):
        raise UnusableError(f"writes into the arguments of {method}; it must not change them")
    return result


def failures(identity: Callable[[Any], Iterator[str]], subject: Any) -> Iterator[str]:
    """Yield the failures that one identity reports, or the reason why it cannot be tested."""
    try:
        yield from identity(subject)
    except UnusableError as error:
        yield str(error)


def report(subject: Any, found: Iterable[str]) -> None:
    """Raise a ``DualnewtonError`` with one line per different failure, if there is any."""
    if lines := [f"{type(subject).__name__} {words}" for words in dict.fromkeys(found)]:
        raise DualnewtonError("\n".join(lines))


def broken(defect: Array, allowed: Array, size: Array) -> Iterator[tuple[Any, ...]]:
    """Yield the index of one defect that exceeds its allowed value, if there is any; NaN counts as exceeding.

    Among the defects within a factor of ten of the worst, it is the one whose argument is nearest to one in size, which makes
    the most readable message.
    """
    defect, allowed, size = np.broadcast_arrays(defect, allowed, size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.where(defect <= allowed, 0.0, np.nan_to_num(defect / allowed, nan=np.inf, posinf=np.inf))
        if excess.any():
            distance = np.where(excess >= 0.1 * excess.max(), np.abs(np.log(np.abs(size))), np.nan)
            yield np.unravel_index(np.nanargmin(distance), excess.shape)
