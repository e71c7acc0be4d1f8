"""Output of the commands: facts, tables, certificates and files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualnewton.interop.labels import listed
from dualnewton.objective.certificate import Certificate

KEY = 12
"""Width in characters of the first column of facts, enough for the longest key."""

SHOWN = 12
"""Largest number of classes whose certificates are all printed; with more classes, only the one with the largest gap is."""


def say(key: str, value: Any) -> None:
    """Print a fact: a key and its value."""
    _print(f"{key:<{KEY}} ", end="", style="bold")
    _print(str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table with left-aligned columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    _print(_line(head, widths), style="bold")
    for row in cells:
        _print(_line(row, widths))


def count(number: float, thing: str) -> str:
    """Return a number of things, in the singular where it is one."""
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


def finite_or_none(value: float | None) -> float | None:
    """Return a finite number, or None, since JSON has no infinities and NaN."""
    return float(value) if value is not None and abs(value) < float("inf") else None


def warn(notes: Sequence[str]) -> None:
    """Print what a person should know about the data on standard error, so that the output stays what was asked for."""
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


def _print(text: str, **how: Any) -> None:
    from rich.console import Console

    # soft_wrap leaves the wrapping of long lines to the terminal; rich omits colours if the output is not a terminal.
    Console().print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, **how)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _numbers(certificate: Certificate) -> dict[str, float | None]:
    names = ("primal", "dual", "gap", "relative_gap", "rounding")
    return {name: finite_or_none(getattr(certificate, name)) for name in names}
