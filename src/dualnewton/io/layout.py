"""The layout of a table in a text file, found from its beginning: encoding, delimiter, decimal mark and header."""

from __future__ import annotations

import codecs
import csv
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dualnewton.io.dataset import DataError
from dualnewton.io.source import ReadOptions
from dualnewton.io.streams import reading, stem
from dualnewton.io.words import MISSING, TARGETS, are_codes, is_number

HEAD, FEWEST = 1 << 16, 2
"""Bytes of a file from which its layout is found, and complete lines: more bytes are read if these hold fewer."""

LINES = 100
"""Lines of it that are examined for the decimal mark."""

DELIMITERS = (",", ";", "\t", "|")

DECIMALS = (".", ",")

UTF8 = "utf-8"
"""The encoding of a file unless the user or a byte order mark names another."""

MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""Byte order marks, and the encoding that reads a file which begins with one."""

WITH_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
QUOTED = re.compile(r'"[^"]*"')
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")


class EncodingError(DataError):
    """The bytes of a file are not text in the expected encoding."""


@dataclass(frozen=True)
class Layout:
    """The layout of a table in a text file."""

    encoding: str  # name of a codec of Python
    delimiter: str
    decimal: str
    names: tuple[str, ...]  # names of the columns, generated if the file has none
    has_names: bool  # whether the first line holds the names
    blank: int  # empty lines before the first one
    # Columns whose first values are digits, some with a leading zero: postal codes, telephone numbers and the like.
    codes: tuple[str, ...] = ()
    longest: int = 0  # length of the longest of the first lines


def layout_of(path: Path, wanted: ReadOptions, member: str | None = None) -> Layout:
    """Find the layout of a file; options in ``wanted`` take precedence.

    A beginning that is not text in the encoding of ``wanted``, UTF-8 by default, is an ``EncodingError``; an empty file is a
    ``DataError``.
    """
    encoding, lines = _beginning(path, wanted, member)
    blank = _blank(lines)
    if blank == len(lines):
        raise DataError(f"{path}: the file is empty, expected a table with one example per line")
    delimiter = "\t" if stem(path).suffix.lower() == ".tsv" else _delimiter(lines[blank])
    rows = _rows(lines[blank : blank + LINES], delimiter)
    first = tuple(value.strip() for value in rows[0]) or ("",)
    has_names = are_names(first, wanted)
    names = tuple(name if has_names and name else f"column {j}" for j, name in enumerate(first))
    decimal = checked_decimal(wanted.decimal) or _decimal(rows[has_names:])
    values = itertools.zip_longest(*rows[has_names:], fillvalue="")
    codes = tuple(name for name, column in zip(names, values, strict=False) if are_codes(column))
    return Layout(encoding, delimiter, decimal, names, has_names, blank, codes, max(map(len, lines)))


def _beginning(path: Path, wanted: ReadOptions, member: str | None) -> tuple[str, list[str]]:
    """Return the encoding and the first lines of a file: at least the first two, however long they are."""
    head, given, complete = b"", checked_encoding(wanted.encoding), False
    with reading(path, member=member) as stream:
        while True:
            more = stream.read(len(head) or HEAD)
            head, complete = head + more, len(more) < (len(head) or HEAD)
            marked = next((name for mark, name in MARKS.items() if head.startswith(mark)), None)
            encoding = marked if marked and given in (None, marked.removesuffix("-sig")) else given or UTF8
            lines = _decoded(path, head, encoding, complete=complete).splitlines()
            if complete:
                return encoding, lines
            if len(lines) - _blank(lines) > FEWEST:
                return encoding, lines[:-1]  # the last line may be cut


def _blank(lines: Sequence[str]) -> int:
    """Return the number of empty lines before the first one with text."""
    return next((k for k, line in enumerate(lines) if line.strip()), len(lines))


def checked_encoding(name: str | None) -> str | None:
    """Return the name of a codec of text, which must be one of Python's."""
    try:
        if name is not None:
            "0".encode(name)  # refuses codecs of bytes, such as base64
        return None if name is None else codecs.lookup(name).name
    except (LookupError, UnicodeError):
        raise DataError(f"encoding must be a codec of Python, such as utf-8 or latin-1, got {name!r}") from None


def checked_decimal(mark: str | None) -> str | None:
    """Return a decimal mark, which must be a point or a comma."""
    if mark is not None and mark not in DECIMALS:
        raise DataError(f"decimal must be '.' or ',', got {mark!r}")
    return mark


def are_names(first: Sequence[str], wanted: ReadOptions) -> bool:
    """Return True if the first line is a header: none of its values is a number, or one is a requested or known name."""
    asked = {
        name for name in (wanted.target, wanted.weights, wanted.offset) if isinstance(name, str) and not is_number(name)
    }
    known = asked.intersection(first) or {name.lower() for name in first}.intersection(TARGETS)
    return bool(known) or all(not is_number(name) and name.lower() not in MISSING - {""} for name in first)


def _decoded(path: Path, head: bytes, encoding: str, *, complete: bool) -> str:
    """Return the beginning of a file as text, without a character that is cut unless it is the complete file."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head, complete)
    except UnicodeError as error:  # a UTF-16 stream without a byte order mark has no byte at fault
        start = getattr(error, "start", None)
        seen = str(error) if start is None else f"byte {head[start]:#04x} in the first {max(len(head), HEAD) >> 10} KiB"
        raise not_text(path, encoding, seen) from None


def not_text(path: Path, encoding: str, seen: str) -> EncodingError:
    """Return the error for bytes that are not text in an encoding."""
    name = encoding.upper().removesuffix("-SIG")
    return EncodingError(f"{path}: not {name} text ({seen}): name its encoding, such as latin-1 or cp1252 (--encoding)")


def _delimiter(line: str) -> str:
    """Return the delimiter that occurs most often in a line outside quotes; the comma if there is none."""
    return max(DELIMITERS, key=QUOTED.sub("", line).count)


def _rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    rows = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter)
    try:
        return list(itertools.islice(rows, len(lines)))
    except csv.Error:
        return [line.split(delimiter) for line in lines]


def _decimal(rows: Sequence[Sequence[str]]) -> str:
    """Return the decimal mark: a comma if numbers are written with one, and none with a point.

    Values such as 1,234 alone are ambiguous: thousands in some files and decimals in others. The decimal mark is then the point.
    """
    values = [value.strip() for row in rows for value in row]
    if any(WITH_POINT.fullmatch(value) for value in values):
        return "."
    commas = [value for value in values if WITH_COMMA.fullmatch(value)]
    return "," if any(not THOUSANDS.fullmatch(value) for value in commas) else "."
