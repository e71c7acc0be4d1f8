"""CSV and TSV files: one example per line, with values separated by commas, semicolons or tabs."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.io.columns import TARGETS, Columns, assign, infinite, missing, not_numbers
from dualnewton.io.dataset import DataError
from dualnewton.io.source import Rows, Source, Wanted, refuse_zero_based
from dualnewton.io.streams import reading, stem

DELIMITERS = (",", ";", "\t")

MISSING = {"", "na", "n/a", "nan", "null", "?"}
"""Spellings of a missing value, in lower case; the comparison ignores case."""

NUMBER_BYTES = 128
"""Estimated bytes of memory per value while it is a Python string in a list; it bounds the number of lines in a block."""

LONGEST = 1 << 26
"""Largest length of a line in characters; a file with a longer line is not a table, and reading on would exhaust the memory."""

Line = tuple[int, list[str]]


@dataclass(frozen=True, eq=False)
class TableSource(Source):
    """A file of values separated by a delimiter, with or without a header line."""

    columns: Columns = None  # type: ignore[assignment]
    delimiter: str = ","
    has_names: bool = True
    member: str | None = None

    def blocks(self) -> Iterator[Rows]:
        with _lines(self.path, self.delimiter, self.wanted, self.member) as lines:
            rest = itertools.islice(lines, int(self.has_names), None)
            many = max(1, self.wanted.block // (NUMBER_BYTES * len(self.columns.names)))
            while some := list(itertools.islice(rest, many)):
                yield self._block(some)

    def _block(self, lines: list[Line]) -> Rows:
        names, features = self.columns.names, self.columns.features.tolist()
        for number, row in lines:
            if len(row) != len(names):
                raise DataError(f"{self.path}, line {number}: expected {len(names)} values, found {len(row)}")
        pick = itemgetter(*features) if len(features) > 1 else lambda row: (row[features[0]],)
        texts = list(itertools.chain.from_iterable(pick(row) for _, row in lines))
        X = _numbers(texts)
        if X is None:
            raise self._fault(lines)
        y = None if self.columns.target is None else self._labels(lines)
        weights, offset = (self._column_of_numbers(lines, j) for j in (self.columns.weights, self.columns.offset))
        return Rows(X.reshape(len(lines), len(features)), y, weights, offset)

    def _labels(self, lines: list[Line]) -> np.ndarray:
        """Return the labels as numbers if all labels of the block are numbers, else as text."""
        texts = self._column(lines, self.columns.target)
        numbers = None if self.text_labels else _numbers(texts)
        return np.array(texts) if numbers is None else numbers

    def _column_of_numbers(self, lines: list[Line], j: int | None) -> np.ndarray | None:
        """Return the weights or offsets, if there is such a column."""
        if j is None:
            return None
        numbers = _numbers(self._column(lines, j))
        if numbers is None:
            raise self._fault(lines, j)
        return numbers

    def _column(self, lines: list[Line], j: Any) -> list[str]:
        texts = [row[j].strip() for _, row in lines]
        for (number, _), text in zip(lines, texts, strict=True):
            if text.lower() in MISSING:
                raise missing(self.path, self.columns, j, f", line {number}", text)
        return texts

    def _fault(self, lines: list[Line], column: int | None = None) -> DataError:
        """Return the error for the first value of the lines that is not a finite number."""
        features = self.columns.features.tolist() if column is None else [column]
        bad = {j: (number, row[j]) for number, row in reversed(lines) for j in features if _number(row[j]) is None}
        first, j = min((number, j) for j, (number, _) in bad.items())
        text, where = bad[j][1].strip(), f", line {first}"
        if text.lower() in MISSING:
            return missing(self.path, self.columns, j, where, text)
        if _is_infinite(text):
            return infinite(self.path, self.columns, j, where, text)
        words = sorted(j for j, (_, seen) in bad.items() if seen.strip().lower() not in MISSING)
        return not_numbers(self.path, self.columns, words, where, text)


def source(path: Path, wanted: Wanted, member: str | None = None) -> TableSource:
    """Read the first line of a table to find the delimiter and whether the line is a header."""
    refuse_zero_based(path, wanted)
    delimiter = "\t" if stem(path).suffix.lower() == ".tsv" else _delimiter(path, member)
    with _lines(path, delimiter, wanted, member) as lines:
        _, first = next(lines, (0, []))
    if len(first) < 2:
        raise DataError(f"{path}: expected values separated by a comma, a semicolon or a tab, found {str(first)[1:41]}")
    names = tuple(name.strip() for name in first)
    has_names = _are_names(names, wanted)
    if not has_names:
        names = tuple(f"column {j}" for j in range(len(first)))
    columns = assign(path, names, has_names, wanted)
    features = tuple(names[j] for j in columns.features) if has_names else None
    files = columns.weights_file, columns.offset_file
    return TableSource(
        path, wanted, features, columns.target_text, *files, False, columns, delimiter, has_names, member
    )


def _are_names(first: tuple[str, ...], wanted: Wanted) -> bool:
    """Return True if the first line is a header: none of its values is a number, or one is a requested or known name."""
    asked = {
        name
        for name in (wanted.target, wanted.weights, wanted.offset)
        if isinstance(name, str) and _number(name) is None
    }
    known = asked.intersection(first) or {name.lower() for name in first}.intersection(TARGETS)
    return bool(known) or all(_number(name) is None and name.lower() not in MISSING - {""} for name in first)


def _delimiter(path: Path, member: str | None) -> str:
    """Return the delimiter that occurs most often in the first line."""
    with reading(path, member=member) as stream:
        line = b"\n"
        while line and not line.strip():
            line = stream.readline(LONGEST)
    text = line.decode("utf-8", "replace")
    return max(DELIMITERS, key=text.count)


@contextlib.contextmanager
def _lines(path: Path, delimiter: str, wanted: Wanted, member: str | None) -> Iterator[Iterator[Line]]:
    """Open a table as an iterator of (line number, values); blank lines are skipped."""
    with reading(path, wanted.report, member) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        yield _counted(path, csv.reader(_bounded(path, text), delimiter=delimiter, strict=True))


def _counted(path: Path, rows: Any) -> Iterator[Line]:
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise DataError(f"{path}, line {rows.line_num}: {error}") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, after line {rows.line_num}: not UTF-8 text ({error.reason})") from None
        if row is None:
            return
        if row and (len(row) > 1 or row[0].strip()):
            yield rows.line_num, row


def _bounded(path: Path, text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise DataError(f"{path}: a line has more than {LONGEST} characters, so this is not a table")
        yield line


def _numbers(texts: list[str]) -> np.ndarray | None:
    """Return an array of finite numbers, or None if a text is anything else."""
    together = "".join(texts)
    if "_" in together or not together.isascii():  # Python's float accepts these, the file format does not
        return None
    try:
        found = np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _number(text: str) -> float | None:
    found = _numbers([text])
    return None if found is None else float(found[0])


def _is_infinite(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return math.isinf(float(text))
    return False
