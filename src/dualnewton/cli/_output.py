"""What commands print: facts, tables, certificates; and the files they write."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dualnewton.interop.labels import listed
from dualnewton.objective.certificate import Certificate

KEY = 12
"""The width of the first column of facts."""

SHOWN = 12
"""So many classes have a line of their own; of more, only the worst is shown."""


def say(key: str, value: Any) -> None:
    """Print a fact: a word, and what there is to say about it."""
    _print(f"{key:<{KEY}} ", end="", style="bold")
    _print(str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table: text to the left, in columns as wide as they need to be."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    _print(_line(head, widths), style="bold")
    for row in cells:
        _print(_line(row, widths))


def as_json(value: Any) -> None:
    """Print what another program is to read: numbers that are not finite are null there."""
    print(json.dumps(value, indent=1, allow_nan=False))


def certificate_lines(certificates: Sequence[Certificate], names: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Say what is proved: the whole, and each class if there are several.

    Parameters
    ----------
    certificates : sequence of Certificate
        Of each problem.
    names : sequence
        Of the problems, where there are several.
    """
    if len(certificates) == 1:
        yield "certificate", str(certificates[0])
        return
    yield "certificate", f"{Certificate.of_parts(tuple(certificates))}, in sum"
    named = list(zip(names, certificates, strict=True))
    if len(named) > SHOWN:
        named = [max(named, key=lambda pair: pair[1].relative_gap)]
        yield "", f"of {len(certificates)} classes the one that is farthest from its optimum:"
    for name, certificate in named:
        yield "", f"{listed([name])}: {certificate}"


def certificate_json(certificates: Sequence[Certificate]) -> dict[str, Any]:
    """Return the same for other programs; ``parts`` has each class."""
    whole = certificates[0] if len(certificates) == 1 else Certificate.of_parts(tuple(certificates))
    return {**_numbers(whole), "parts": [_numbers(each) for each in whole.parts]}


def finite_or_none(value: float) -> float | None:
    """Return a number that JSON can say."""
    return float(value) if abs(value) < float("inf") else None


# Files ---------------------------------------------------------------------------------------------------------------


def ready(path: str | None) -> None:
    """Refuse, before any work is done, to write a file where none can be."""
    if path is None:
        return
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if target.exists() and not target.is_file():  # a device, which a file must not take the place of
        raise OSError(errno.EINVAL, "is not a plain file, so nothing is written there", path)
    if not target.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(target.parent))
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Have an error say which file could not be written: a full disk does not."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"could not be written: {error.strerror or error}", path) from error


# -----------------------------------------------------------------------------------------------------------------------


def _print(text: str, **how: Any) -> None:
    from rich.console import Console

    # Long lines are the terminal's to fold; colours are for terminals only, which rich knows.
    Console().print(text, markup=False, highlight=False, emoji=False, soft_wrap=True, **how)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def _numbers(certificate: Certificate) -> dict[str, float | None]:
    return {name: finite_or_none(getattr(certificate, name)) for name in ("primal", "dual", "gap", "relative_gap")}
