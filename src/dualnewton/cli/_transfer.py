"""The progress of what precedes a fit: downloading, reading, encoding. Each stage takes one line, which it removes at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def transfer(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a progress bar; the block calls the yielded function with the bytes done and the total number, if known."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(bar_width=16)]
    columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with on_terminal(progress):
        task = progress.add_task(text, total=None)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextlib.contextmanager
def stage(text: str) -> Iterator[None]:
    """Show a text and the time while the block runs, on a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns: list[Any] = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with on_terminal(progress):
        progress.add_task(text, total=None)
        yield


def on_terminal(progress: Any) -> contextlib.AbstractContextManager[Any]:
    """Show a display of rich on a terminal; elsewhere it is not begun, since rich before 14.1 ends each with an empty line."""
    return progress if progress.console.is_terminal else contextlib.nullcontext()
