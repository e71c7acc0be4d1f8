"""One line that shows the progress of a fit: the epoch, the certified gap, the time left."""

from __future__ import annotations

import math
import sys
from typing import Any

from dualnewton.run.result import Progress

RECENT = 5
"""Number of latest certificates from which the speed is estimated."""

AGREEMENT = 3.0
"""Largest ratio of two estimates of the time left for which one is shown."""


class ProgressLine:
    """A callback for ``solve`` that shows the slowest model of a run, on its way to the relative gap ``tol``.

    On a terminal one line is rewritten in place. Elsewhere (a file, a log) a plain line is written at the first certificate,
    and again each time the run has taken twice as long, so that a long run leaves a few lines. ``file`` is standard error by
    default.
    """

    def __init__(self, name: str, tol: float, file: Any = None) -> None:
        from rich.console import Console  # only fits with ``verbose`` need it

        self.name, self.tol = name, tol
        self.console = Console(file=sys.stderr if file is None else file)
        self.live: Any = None
        self.recent: dict[int, list[Progress]] = {}
        self.next_line = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show the model with the longest estimated time left."""
        rows = self.recent.setdefault(progress.model, [])
        rows.append(progress)
        del rows[:-RECENT]
        slowest = max(self.recent.values(), key=lambda rows: rows[-1].certificate.relative_gap)
        text = f"{self.name}: {described(slowest, self.tol)}"
        if self.console.is_terminal:
            self._rewrite(text)
        elif progress.seconds >= self.next_line or slowest[-1].certificate.relative_gap <= self.tol:
            self.console.print(text, highlight=False, soft_wrap=True)
            self.next_line = max(1.0, 2.0 * progress.seconds)

    def _rewrite(self, text: str) -> None:
        if self.live is None:
            from rich.live import Live

            self.live = Live(console=self.console, auto_refresh=False)
            self.live.start()
        from rich.text import Text

        # The line is cut at the width of the terminal, so that it never wraps.
        self.live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def close(self) -> None:
        """End the line, which stays visible."""
        if self.live is not None:
            self.live.stop()
            self.live = None


def described(rows: list[Progress], tol: float) -> str:
    """Return a line with the epoch, the gap and the time of a model, and the estimated time left."""
    last = rows[-1]
    left = seconds_left(rows, tol)
    when = "" if math.isnan(left) or left == 0.0 else f", about {left:.2g} s left"
    gap = last.certificate.relative_gap
    return f"epoch {last.epoch:.4g}, relative gap {gap:.2e} (tol {tol:.0e}), {last.seconds:.3g} s{when}"


def seconds_left(rows: list[Progress], tol: float) -> float:
    """Extrapolate the decrease of the logarithm of the gap to ``tol``; return the seconds left.

    It is nan with fewer than three certificates, if the gap did not decrease, and if all certificates and the newer half give
    estimates that differ by more than the factor AGREEMENT: no estimate is better than a wrong one.
    """
    last = rows[-1]
    if last.certificate.relative_gap <= tol:
        return 0.0
    if len(rows) < 3:
        return math.nan
    whole, recent = (_extrapolated(some, tol) for some in (rows, rows[len(rows) // 2 :]))
    return max(whole, recent) if 1.0 / AGREEMENT <= whole / recent <= AGREEMENT else math.nan


def _extrapolated(rows: list[Progress], tol: float) -> float:
    first, last = rows[0], rows[-1]
    gaps = first.certificate.relative_gap, last.certificate.relative_gap
    if not 0.0 < gaps[1] < gaps[0] < math.inf or last.seconds <= first.seconds:
        return math.nan
    speed = math.log(gaps[0] / gaps[1]) / (last.seconds - first.seconds)
    return math.log(gaps[1] / max(tol, 1e-16)) / speed
