"""How ``losses.check`` and ``regularizers.check`` ask an object for numbers, and report the identities that it breaks.

Every identity is a small function that looks at one set of tried points and yields a sentence, with the numbers seen, where it
is broken. The comparisons leave room for rounding only. In particular no slope is compared with a finite difference up to a
guessed truncation error: by convexity a secant's slope lies between the derivatives at its ends, kinks or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.validation import Array

ROUNDING = 1e-12
"""What rounding may do, as a fraction of one and of the terms that were added: thousands of units in the last place."""

STEP = 1e-5
"""Length of the secants that derivatives are compared with, as a fraction of 1 + |z|."""


class UnusableError(Exception):
    """A method cannot be asked; the text says why."""


def ask(owner: Any, method: str, *args: Any) -> Any:
    """Call a method; raise ``UnusableError``, naming it, if it fails or writes into its arguments."""
    before = [np.array(arg) for arg in args]
    try:
        with np.errstate(all="ignore"):  # a result that is not finite is reported with its place, which says more
            result = getattr(owner, method)(*args)
    except NotImplementedError as error:
        raise UnusableError(f"is not complete: {error}") from error
    except Exception as error:
        raise UnusableError(f"cannot be used: {method} raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(old, new, equal_nan=True) for old, new in zip(before, args, strict=True)):
        raise UnusableError(f"writes into the arguments of {method}; it must leave them as they are")
    return result


def listen(identity: Callable[[Any], Iterator[str]], subject: Any) -> Iterator[str]:
    """Pass on what one identity says, or what keeps it from being tested."""
    try:
        yield from identity(subject)
    except UnusableError as error:
        yield str(error)


def report(subject: Any, complaints: Iterable[str]) -> None:
    if lines := [f"{type(subject).__name__} {words}" for words in dict.fromkeys(complaints)]:
        raise DualnewtonError("\n".join(lines))


def broken(defect: Array, allowed: Array, size: Array) -> Iterator[tuple[Any, ...]]:
    """Yield the index of one defect beyond what is allowed, if there is any; NaN is beyond everything.

    Of the worst, within a factor of ten, it is the one whose arguments are nearest to one in size: the easiest to read.
    """
    defect, allowed, size = np.broadcast_arrays(defect, allowed, size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.where(defect <= allowed, 0.0, np.nan_to_num(defect / allowed, nan=np.inf, posinf=np.inf))
        if excess.any():
            strangeness = np.where(excess >= 0.1 * excess.max(), np.abs(np.log(np.abs(size))), np.nan)
            yield np.unravel_index(np.nanargmin(strangeness), excess.shape)
