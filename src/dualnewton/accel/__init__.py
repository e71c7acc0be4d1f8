"""scikit-learn's own linear models, fitted by this library without a changed import.

``install()`` replaces the classes of scikit-learn that this library has, too, by subclasses whose ``fit`` computes the model here
and stores it in the attributes that scikit-learn's class has. Everything else, from ``predict`` to ``clone``, is scikit-learn's.
Where the two libraries differ, or this one refuses, ``fit`` is scikit-learn's as well, and :func:`fallbacks` says why.

    python -m dualnewton.accel script.py arguments …
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

__all__ = ["fallbacks", "install", "installed", "uninstall"]

_replaced: dict[type, type] = {}
_fallbacks: Counter[tuple[str, str]] = Counter()


def install() -> None:
    """Let scikit-learn's linear models be fitted by this library, in all modules of scikit-learn that are or will be loaded.

    Names that a program imported from scikit-learn before the call keep scikit-learn's classes.

    Examples
    --------
    >>> from dualnewton import accel
    >>> accel.install()
    >>> from sklearn.linear_model import Ridge
    >>> Ridge().fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 2.5]).certificate_.relative_gap <= 1e-4
    True
    >>> accel.uninstall()
    """
    if not _replaced:
        from dualnewton.accel._classes import pairs

        for theirs, made in pairs():
            _replaced[theirs] = made
            _exchange(theirs, made)


def uninstall() -> None:
    """Put scikit-learn's classes back; models that were fitted in between keep working.

    Examples
    --------
    >>> from dualnewton import accel
    >>> accel.uninstall()  # does nothing if nothing is installed
    >>> accel.installed()
    False
    """
    for theirs, made in _replaced.items():
        _exchange(made, theirs)
    _replaced.clear()


def installed() -> bool:
    """Whether scikit-learn's classes are replaced.

    Examples
    --------
    >>> from dualnewton import accel
    >>> accel.installed()
    False
    """
    return bool(_replaced)


def fallbacks() -> dict[tuple[str, str], int]:
    """Return how often ``fit`` was scikit-learn's own, by the name of the class and the reason.

    Examples
    --------
    >>> from dualnewton import accel
    >>> accel.fallbacks()
    {}
    """
    return dict(_fallbacks)


def _exchange(before: type, after: type) -> None:
    """Replace a class by another in every loaded module of scikit-learn."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "sklearn" and vars(module).get(before.__name__) is before:
            setattr(module, before.__name__, after)


def note(model: Any, reason: str) -> None:
    """Count a fit that was scikit-learn's own."""
    _fallbacks[type(model).__name__, reason] += 1
