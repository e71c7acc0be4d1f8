"""How far a file was read, or how much of it has come, on a terminal with a bar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def reading(source: str) -> Iterator[Callable[[int], None]]:
    """Show a bar of the bytes read of a file; what is not a file has none."""
    size = Path(source).stat().st_size if Path(source).is_file() else None
    with _bar(f"reading {Path(source).name}", size) as advance:
        yield lambda done: advance(done, size)


@contextlib.contextmanager
def coming(name: str) -> Iterator[Callable[[int, int | None], None]]:
    """Show a bar of the bytes that have come of a download."""
    with _bar(f"downloading {name}", None) as advance:
        yield advance


@contextlib.contextmanager
def _bar(text: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn()]
    columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(text, total=total)
        yield lambda done, of: progress.update(task, completed=done, total=of)
