"""The progress display of a fit, with a bar on terminals."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from dualnewton.estimators._progress import ProgressLine
from dualnewton.run.result import Progress

CELLS = 8
"""Length of the bar in characters, which leaves room for the text on a line of 80."""

NARROW = 60
"""Width of a terminal in characters below which the bar is left out, so that the gap can be read."""


class ProgressBar(ProgressLine):
    """The progress line after a bar that fills as the logarithm of the gap decreases from its first value to that of ``tol``."""

    def __init__(self, name: str, tol: float) -> None:
        super().__init__(name, tol)
        self.first: dict[int, float] = {}

    def __call__(self, progress: Progress) -> None:
        """Record the first gap of each model and show the progress."""
        self.first.setdefault(progress.model, progress.certificate.relative_gap)
        super().__call__(progress)

    def begin(self) -> None:
        """Show that the fit has begun, before its first certificate."""
        if self.console.is_terminal:
            self._rewrite(f"{self.name}: starting")

    def share(self) -> float:
        """Return the progress of the slowest model, in [0, 1]."""
        if not self.recent:
            return 0.0
        return min(done(self.first[k], rows[-1].certificate.relative_gap, self.tol) for k, rows in self.recent.items())

    def _rewrite(self, text: str) -> None:
        full = round(CELLS * self.share())
        bar = f"{'━' * full}{'─' * (CELLS - full)} " if self.console.width >= NARROW else ""
        super()._rewrite(bar + text)


def done(first: float, now: float, tol: float) -> float:
    """Return log(first/now)/log(first/tol), clipped to [0, 1]."""
    if now <= tol:
        return 1.0
    if not now < first < math.inf:
        return 0.0
    return math.log(first / now) / math.log(first / max(tol, 1e-16))


@contextlib.contextmanager
def progress(name: str, tol: float) -> Iterator[ProgressBar]:
    """Show a bar while the block runs."""
    bar = ProgressBar(name, tol)
    bar.begin()
    try:
        yield bar
    finally:
        bar.close()
