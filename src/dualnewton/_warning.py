"""Warnings that point at the line of the user."""

from __future__ import annotations

import inspect
import warnings

OURS = ("dualnewton", "sklearn")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn as if from the first line outside this package and scikit-learn, whose ``fit`` wraps ours."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
