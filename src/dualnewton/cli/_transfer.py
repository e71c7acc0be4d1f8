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
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns: list[Any] = [_description(), *([BarColumn(bar_width=16)] if console.width >= BAR_FROM else [])]
    columns += [
        DownloadColumn(table_column=_whole()),
        *([TransferSpeedColumn()] if console.width >= SPEED_FROM else []),
    ]
    columns += [TimeRemainingColumn(table_column=_whole())]
    progress = Progress(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal)
    with on_terminal(progress):
        task = progress.add_task(text, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Show a text and the time while the block runs, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns: list[Any] = [SpinnerColumn(), _description(), TimeElapsedColumn(table_column=_whole())]
    progress = Progress(*columns, console=console, transient=True, expand=True, disable=not console.is_terminal)
    with on_terminal(progress):
        progress.add_task(text, total=None)
        yield


def on_terminal(progress: Any) -> contextlib.AbstractContextManager[Any]:
    """Show a display of rich on a terminal only, since rich before 14.1 ends each display with an empty line."""
    return progress if progress.console.is_terminal else contextlib.nullcontext()


def _description() -> Any:
    """Return the column of the text, the only column that is truncated on a narrow terminal."""
    from rich.progress import TextColumn
    from rich.table import Column

    return TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))


def _whole() -> Any:
    """Return the layout of a column that is neither wrapped nor cut."""
    from rich.table import Column

    return Column(no_wrap=True, min_width=7)
