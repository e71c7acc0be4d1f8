"""scikit-learn's own linear models, fitted by this library without a changed import.

``install()`` replaces the classes of scikit-learn that this library also has by subclasses whose ``fit`` uses this library
and stores the model in the attributes of scikit-learn's class. Everything else, from ``predict`` to ``clone``, is scikit-learn's.
If the two libraries differ, or this one refuses the arguments, scikit-learn's ``fit`` is used, and :func:`fallbacks` has the
reason.

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
    """Replace scikit-learn's linear models by those of this library, in all loaded and future modules of scikit-learn.

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
    """Restore scikit-learn's classes; models that were fitted in between keep working.

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
    """Return the number of fits by scikit-learn's own ``fit``, by class name and reason.

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
    """Count a fit by scikit-learn's own ``fit``."""
    _fallbacks[type(model).__name__, reason] += 1
