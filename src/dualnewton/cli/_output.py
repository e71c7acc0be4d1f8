"""Output of the commands: facts, tables, certificates and files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualnewton.interop.labels import listed
from dualnewton.objective.certificate import Certificate
from dualnewton.validation import finite_or_none

KEY = 12
"""Width in characters of the first column of facts, enough for the longest key."""

LAST = 24
"""Width in characters of the last column of a table above which long words, such as addresses, may be broken."""

SHOWN = 12
"""Largest number of classes whose certificates are all printed; with more classes, only the one with the largest gap is."""


def say(key: str, value: Any) -> None:
    """Print a fact: a key and its value, which is wrapped on a terminal."""
    _print(f"{key:<{KEY}} ", end="", style="bold")
    _print(_wrapped(str(value), KEY + 1))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with left-aligned columns.

    On a terminal that is too narrow for it, cells are wrapped at words; if the longest words do not fit next to each other,
    each row becomes a list of its cells.
    """
    cells = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(head, *cells, strict=True))
    widths, width = [max(map(len, column)) for column in columns], terminal_width()
    least = [max(map(_longest_word, column)) for column in columns]
    least[-1] = min(least[-1], LAST)
    if width is None or _total(widths) <= width:
        _print(_line(head, widths), style="bold")
        for row in cells:
            _print(_line(row, widths))
    elif _total(least) <= width:
        _print_folded([head, *cells], least)
    else:
        for name, *others in cells:
            _print(f"{head[0]} {name}", style="bold")
            for title, cell in zip(head[1:], others, strict=True):
                if cell:
                    _print(_wrapped(f"  {title}: {cell}", 4))


def paragraph(text: str) -> None:
    """Print sentences, which are wrapped on a terminal."""
    _print(_wrapped(text, 0))


def terminal_width() -> int | None:
    """Return the characters in a line of the terminal; None if the output is not a terminal, and lines may be of any length."""
    console = _console()
    return console.width if console.is_terminal else None


def count(number: float, thing: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{number:.10g} {thing}{'' if number == 1 else 's'}"


def as_json(value: Any) -> None:
    """Print a value as JSON for other programs; numbers that are not finite must be None."""
    print(json.dumps(value, indent=1, allow_nan=False))


def certificate_lines(certificates: Sequence[Certificate], names: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the certificate: that of the sum and, if there are several problems, that of each by name."""
    if len(certificates) == 1:
        yield "certificate", str(certificates[0])
        return
    yield "certificate", f"{Certificate.of_parts(tuple(certificates))}, in sum"
    named = list(zip(names, certificates, strict=True))
    if len(named) > SHOWN:
        named = [max(named, key=lambda pair: pair[1].relative_gap)]
        yield "", f"of {len(certificates)} classes the one with the largest relative gap:"
    for name, certificate in named:
        yield "", f"{listed([name])}: {certificate}"


def certificate_json(certificates: Sequence[Certificate]) -> dict[str, Any]:
    """Return the certificate as values for JSON; ``parts`` has an entry for each class."""
    whole = certificates[0] if len(certificates) == 1 else Certificate.of_parts(tuple(certificates))
    return {**_numbers(whole), "parts": [_numbers(each) for each in whole.parts]}


def warn(notes: Sequence[str]) -> None:
    """Print a message about the data on standard error, so that standard output has only the result."""
    for note in notes:
        print(f"dualnewton: {note}", file=sys.stderr)


# Files ---------------------------------------------------------------------------------------------------------------


def ready(path: str | None) -> None:
    """Raise an error, before any work is done, if a file cannot be written at ``path``."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if target.exists() and not target.is_file():  # a device, which must not be replaced by a file
        raise OSError(errno.EINVAL, "is not a plain file, so nothing is written there", path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(target.parent))
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Add the path to an ``OSError``, since the error for a full disk does not name the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"could not be written: {error.strerror or error}", path) from error


# -----------------------------------------------------------------------------------------------------------------------


def _console() -> Any:
    from rich.console import Console

    return Console()


def _print(text: str, **how: Any) -> None:
    # soft_wrap leaves the wrapping of long lines to the terminal; rich omits colours if the output is not a terminal.
    _console().print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, **how)


def _print_folded(rows: Sequence[Sequence[str]], least: Sequence[int]) -> None:
    """Print rows, the first of them in bold, with cells that are wrapped in columns of at least these widths."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    for width in least:
        grid.add_column(min_width=width)
    for k, row in enumerate(rows):
        grid.add_row(*(Text(cell, style="" if k else "bold") for cell in row))
    _console().print(grid)


def _wrapped(text: str, indent: int) -> str:
    """Break the lines of a text between words at the width of the terminal; those after the first are indented."""
    width = terminal_width()
    if width is None or indent + len(text) <= width:
        return text
    columns = max(width - indent, 20)
    lines = textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False, drop_whitespace=True)
    return f"\n{' ' * indent}".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _total(widths: Sequence[int]) -> int:
    """Return the width of a line of cells with these widths."""
    return sum(widths) + 2 * (len(widths) - 1)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _numbers(certificate: Certificate) -> dict[str, float | None]:
    names = ("primal", "dual", "gap", "relative_gap", "rounding", "reach")
    return {name: finite_or_none(getattr(certificate, name)) for name in names}
