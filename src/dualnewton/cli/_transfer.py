"""Progress of the stages before a fit: downloading, reading, encoding. Each stage shows one line, which it removes at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

SPEED_FROM, BAR_FROM = 70, 50
"""Widths of the terminal in characters above which speed and bar are shown; a display that does not fit would flicker."""


@contextlib.contextmanager
def transfer(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar; the block calls the yielded function with the bytes done and the total number, if known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    width = Console(stderr=True).width
    bar: list[Any] = [BarColumn(bar_width=16)] if width >= BAR_FROM else []
    speed: list[Any] = [TransferSpeedColumn()] if width >= SPEED_FROM else []
    done, left = DownloadColumn(table_column=_whole()), TimeRemainingColumn(table_column=_whole())
    with display(_description(), *bar, done, *speed, left) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Show a text and the time while the block runs, on a terminal."""
    from rich.progress import SpinnerColumn, TimeElapsedColumn

    with display(SpinnerColumn(), _description(), TimeElapsedColumn(table_column=_whole())) as progress:
        progress.add_task(text, total=None)
        yield


@contextlib.contextmanager
def display(*columns: Any, **options: Any) -> Iterator[Any]:
    """Show a display of rich on standard error, if that is a terminal: rich before 14.1 ends each display with an empty line.

    It is removed at the end of the block, and as wide as the terminal, unless the options say otherwise.
    """
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    options = {"transient": True, "expand": True, **options}
    progress = Progress(*columns, console=console, disable=not console.is_terminal, **options)
    with progress if console.is_terminal else contextlib.nullcontext():
        yield progress


def _description() -> Any:
    """Return the column of the text, the only column that is truncated on a narrow terminal."""
    from rich.progress import TextColumn
    from rich.table import Column

    return TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))


def _whole() -> Any:
    """Return the layout of a column that is neither wrapped nor cut."""
    from rich.table import Column

    return Column(no_wrap=True, min_width=7)
