"""CSV and TSV files of numbers: one example per line, with values separated by commas, semicolons, tabs or bars.

The reader in this file, with Python's ``csv``, is the specification of the format and of its errors. From FAST bytes on the
blocks are read with Arrow (``arrow_blocks``) as long as every value is a plain finite number; from the first other value on,
this reader continues.
"""

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

from dualnewton.io.columns import Columns, assign, infinite, missing, not_numbers
from dualnewton.io.dataset import DataError
from dualnewton.io.layout import Layout, layout_of, not_text
from dualnewton.io.source import ReadOptions, Rows, Source, refuse_zero_based
from dualnewton.io.streams import reading
from dualnewton.io.words import MISSING

NUMBER_BYTES = 128
"""Estimated bytes of memory per value while it is a Python string in a list; it bounds the number of lines in a block."""

LONGEST = 1 << 26
"""Largest length of a line in characters; a file with a longer line is not a table, and reading on would exhaust the memory."""

FAST = 1 << 18
"""Bytes of a file and of a block above which Arrow reads them; importing it takes as long as reading 256 KiB with ``csv``."""

Line = tuple[int, list[str]]


@dataclass(frozen=True, eq=False)
class TableSource(Source):
    """A file of values separated by a delimiter, with or without a header line."""

    columns: Columns = None  # type: ignore[assignment]
    layout: Layout = None  # type: ignore[assignment]
    member: str | None = None

    def blocks(self) -> Iterator[Rows]:
        done = 0
        if min(self.path.stat().st_size, self.wanted.block) >= FAST:
            from dualnewton.io.arrow_csv import NotPlainError, plain_blocks

            try:
                for rows in plain_blocks(self):
                    yield rows
                    done += len(rows)
                return
            except NotPlainError:
                pass
        yield from self._remaining(done)

    def _remaining(self, done: int) -> Iterator[Rows]:
        """Yield the examples after the first ``done`` with Python's ``csv``."""
        with lines_of(self.path, self.layout, self.wanted, self.member) as lines:
            rest = itertools.islice(lines, int(self.layout.has_names) + done, None)
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
        X = self._numbers(texts)
        if X is None:
            raise self._fault(lines)
        vectors = {} if self.columns.target is None else {"y": self._labels(lines)}
        vectors |= {name: self._column_of_numbers(lines, j) for name, j in self.columns.numbers.items()}
        return Rows(X.reshape(len(lines), len(features)), vectors)

    def _labels(self, lines: list[Line]) -> np.ndarray:
        """Return the labels as numbers if all labels of the block are numbers, else as text."""
        texts = self._column(lines, self.columns.target)
        numbers = None if self.text_labels else self._numbers(texts)
        return np.array(texts) if numbers is None else numbers

    def _column_of_numbers(self, lines: list[Line], j: int) -> np.ndarray:
        """Return the weights or offsets."""
        numbers = self._numbers(self._column(lines, j))
        if numbers is None:
            raise self._fault(lines, j)
        return numbers

    def _numbers(self, texts: list[str]) -> np.ndarray | None:
        """Return finite numbers in the notation of the file, or None if a text is anything else."""
        if self.layout.decimal == ",":
            texts = [_with_point(text) for text in texts]
        return numbers_in(texts)

    def _column(self, lines: list[Line], j: Any) -> list[str]:
        texts = [row[j].strip() for _, row in lines]
        for (number, _), text in zip(lines, texts, strict=True):
            if text.lower() in MISSING:
                raise missing(self.path, self.columns, j, f", line {number}", text)
        return texts

    def _fault(self, lines: list[Line], column: int | None = None) -> DataError:
        """Return the error for the first value of the lines that is not a finite number."""
        features = self.columns.features.tolist() if column is None else [column]
        bad = {
            j: (number, row[j]) for number, row in reversed(lines) for j in features if self._numbers([row[j]]) is None
        }
        first, j = min((number, j) for j, (number, _) in bad.items())
        text, where = bad[j][1].strip(), f", line {first}"
        if text.lower() in MISSING:
            return missing(self.path, self.columns, j, where, text)
        if _is_infinite(text):
            return infinite(self.path, self.columns, j, where, text)
        words = sorted(j for j, (_, seen) in bad.items() if seen.strip().lower() not in MISSING)
        return not_numbers(self.path, self.columns, words, where, text)


def source(path: Path, wanted: ReadOptions, member: str | None = None) -> TableSource:
    """Find the layout of a table and the roles of its columns."""
    refuse_zero_based(path, wanted)
    layout = layout_of(path, wanted, member)
    columns = assign(path, layout.names, layout.has_names, wanted)
    features = tuple(layout.names[j] for j in columns.features) if layout.has_names else None
    return TableSource(path, wanted, features, columns.target_text, columns.files, False, columns, layout, member)


@contextlib.contextmanager
def lines_of(path: Path, layout: Layout, wanted: ReadOptions, member: str | None = None) -> Iterator[Iterator[Line]]:
    """Open a table as an iterator of (line number, values); blank lines are skipped."""
    with reading(path, wanted.report, member) as stream:
        text = io.TextIOWrapper(stream, encoding=layout.encoding, newline="")
        rows = csv.reader(_bounded(path, text), delimiter=layout.delimiter, strict=True)
        yield _counted(path, rows, layout.encoding)


def _counted(path: Path, rows: Any, encoding: str) -> Iterator[Line]:
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            what = "a quotation mark is not closed" if "end of data" in str(error) else str(error)
            raise DataError(f"{path}, line {rows.line_num}: {what}") from None
        except UnicodeDecodeError as error:
            raise not_text(path, encoding, f"after line {rows.line_num}: {error.reason}") from None
        if row is None:
            return
        if row and (len(row) > 1 or row[0].strip()):
            yield rows.line_num, row


def _bounded(path: Path, text: io.TextIOWrapper) -> Iterator[str]:
    while line := text.readline(LONGEST):
        if len(line) == LONGEST:
            raise DataError(f"{path}: a line has more than {LONGEST} characters, so this is not a table")
        yield line


def numbers_in(texts: list[str]) -> np.ndarray | None:
    """Return an array of finite numbers, or None if a text is anything else."""
    together = "".join(texts)
    if "_" in together or not together.isascii():  # Python's float accepts these, the file format does not
        return None
    try:
        found = np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError:
        return None
    return found if np.isfinite(found).all() else None


def _with_point(text: str) -> str:
    """Return a number with a decimal comma as one with a point; an underscore makes a text with a point invalid."""
    return text.replace(",", ".") if "." not in text else f"{text}_"


def _is_infinite(text: str) -> bool:
    with contextlib.suppress(ValueError):
        return math.isinf(float(text))
    return False
