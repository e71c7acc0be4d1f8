"""The progress display of experiments: the current run, its epoch and gap, and the estimated time left."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from dualnewton.lab.watched import Tell


class Steps:
    """Counts the weighted steps of an experiment and shows the progress.

    On a terminal one line is rewritten in place. Elsewhere a plain line is written each time the elapsed time has doubled.

    ``total`` is the sum of the weights of all steps, which are relative and have no unit. The file is by default standard
    error.
    """

    def __init__(self, total: float, file: Any = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        self.console = Console(file=sys.stderr if file is None else file)
        self.bar = Progress(
            BarColumn(12, table_column=Column(min_width=12)),
            TextColumn("{task.percentage:3.0f} %", table_column=Column(min_width=5)),
            TimeElapsedColumn(table_column=Column(min_width=7)),
            TextColumn("left", table_column=Column(min_width=4)),
            TimeRemainingColumn(table_column=Column(min_width=7)),
            # On a narrow terminal only the description is truncated.
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
            console=self.console,
            transient=True,
            expand=True,
            disable=not self.console.is_terminal,
        )
        self.task = self.bar.add_task("", total=max(total, 1e-9))
        self.total, self.done, self.weight = total, 0.0, 0.0
        self.began = time.perf_counter()
        self.next_line = 1.0

    def __enter__(self) -> Steps:
        if self.console.is_terminal:  # elsewhere rich before 14.1 would end the display with an empty line
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bar.stop()

    def begin(self, name: str, goal: float = 0.0, weight: float = 1.0) -> Tell:
        """Begin a step, which ends the one before; return the function to call with its epoch and relative gap.

        The step ends at the relative gap ``goal``; ``weight`` is its part of the total.
        """
        self.done += self.weight
        self.weight = weight
        first: list[float] = []
        self._show(name, 0.0)

        def tell(epoch: float, gap: float) -> None:
            first.append(gap)
            self._show(f"{name}, epoch {epoch:.4g}, gap {gap:.1e}", _fraction(first[0], gap, goal))

        return tell

    def _show(self, text: str, fraction: float) -> None:
        completed = min(self.total, self.done + self.weight * fraction)
        self.bar.update(self.task, description=text, completed=completed)
        spent = time.perf_counter() - self.began
        if not self.console.is_terminal and spent >= self.next_line:
            self.next_line = 2.0 * spent
            left = f", about {spent * (self.total / completed - 1.0):.0f} s left" if completed else ""
            self.console.print(f"{text}, {spent:.0f} s{left}", highlight=False, soft_wrap=True, markup=False)


def _fraction(first: float, now: float, goal: float) -> float:
    """Return log(first/now)/log(first/goal) in [0, 1], the part of the decrease of the logarithm of the gap that is done."""
    if not 0.0 < goal < first or not 0.0 < now < first:
        return 0.0
    return min(1.0, math.log(first / now) / math.log(first / goal))
