"""How far a fit has come, on a terminal with a bar."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from dualnewton.estimators._progress import ProgressLine
from dualnewton.run.result import Progress

CELLS = 16
"""The length of the bar."""


class ProgressBar(ProgressLine):
    """The progress line, and before it a bar that fills as the logarithm of the gap falls from the first one to ``tol``."""

    def __init__(self, name: str, tol: float) -> None:
        super().__init__(name, tol)
        self.first: dict[int, float] = {}

    def __call__(self, progress: Progress) -> None:
        """Show the model that is farthest from its end."""
        self.first.setdefault(progress.model, progress.certificate.relative_gap)
        super().__call__(progress)

    def share(self) -> float:
        """Return the part of the way that the slowest model has behind it, in [0, 1]."""
        return min(done(self.first[k], rows[-1].certificate.relative_gap, self.tol) for k, rows in self.recent.items())

    def _rewrite(self, text: str) -> None:
        full = round(CELLS * self.share())
        super()._rewrite(f"{'━' * full}{'─' * (CELLS - full)} {text}")


def done(first: float, now: float, tol: float) -> float:
    """Return log(first/now)/log(first/tol), as far as that makes sense: in [0, 1]."""
    if now <= tol:
        return 1.0
    if not now < first < math.inf:
        return 0.0
    return math.log(first / now) / math.log(first / max(tol, 1e-16))


@contextlib.contextmanager
def progress(name: str, tol: float) -> Iterator[ProgressBar]:
    """Show a bar while the block runs."""
    bar = ProgressBar(name, tol)
    try:
        yield bar
    finally:
        bar.close()
