"""The svmlight format of SVMlight, LIBSVM and LIBLINEAR: one sparse example per line.

    label [qid:number] index:value index:value ... [# comment]

:func:`parse_line` parses one line and specifies the format and its error messages. For files of more than a few lines, a compiled
kernel parses blocks of text in two threads and leaves every line that it cannot parse to ``parse_line``. All numbers equal
those of Python's ``float`` to the last bit.
"""

from __future__ import annotations

import codecs
import math
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io.dataset import DataError
from dualnewton.io.source import NO_INDEX, ReadOptions, Rows, Source, SparseRows, separate_files
from dualnewton.io.streams import reading

NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
INDEX = re.compile(rb"\d{1,18}")

SMALL = 1 << 17
"""Largest size in bytes of a first block that is parsed line by line, because loading the compiled kernel would take longer."""

LONGEST = 1 << 28
"""Largest length of a line in bytes; a file with a longer line is not text, and reading on would exhaust the memory."""

THREADS = 2
"""Number of threads that parse blocks while the main thread reads and decompresses the file."""

HARD = 64
"""One in this many numbers may be left by the kernel to ``float``; a text with more of them is parsed line by line."""

Parser = Callable[[bytes, int], Rows]


class DamagedLineError(Exception):
    """A line that cannot be parsed: its position in the block, and the reason."""

    def __init__(self, lines_before: int, reason: str) -> None:
        super().__init__(reason)
        self.lines_before, self.reason = lines_before, reason


@dataclass(frozen=True, eq=False)
class SvmlightSource(Source):
    """A file in the svmlight format."""

    is_sparse = True
    parser: Parser | None = None

    def blocks(self) -> Iterator[Rows]:
        with reading(self.path, self.wanted.report) as stream:
            texts = _texts(stream, self.wanted.block, self.path)
            first = next(texts, b"").removeprefix(codecs.BOM_UTF8)  # which some editors write
            parser = self.parser or (by_lines if len(first) < SMALL else by_kernel)
            lowest = 1 if self.wanted.zero_based is False else 0
            yield from self._in_order(chain([first] if first else [], texts), lambda text: parser(text, lowest))

    def _in_order(self, texts: Iterable[bytes], parse: Callable[[bytes], Rows]) -> Iterator[Rows]:
        """Parse several texts concurrently and yield their rows in order; the error for an invalid line has its number."""
        lines = 0
        workers = min(THREADS, os.cpu_count() or 1)
        with ThreadPoolExecutor(workers) as pool:
            waiting: deque[tuple[bytes, Future[Rows]]] = deque()
            # The None values after the last text make the loop yield the blocks that are still in the queue.
            for text in chain(texts, [None] * (workers + 1)):
                if text is not None:
                    waiting.append((text, pool.submit(parse, text)))
                if waiting and (text is None or len(waiting) > workers):
                    done, rows = waiting.popleft()
                    try:
                        block = rows.result()
                    except DamagedLineError as damage:
                        where = f"{self.path}, line {lines + damage.lines_before + 1}"
                        raise DataError(f"{where}: {damage.reason}") from None
                    lines += done.count(b"\n")
                    if len(block):
                        yield block

    def shift_and_width(self, least: int, most: int) -> tuple[int, int]:
        zero_based = self.wanted.zero_based if self.wanted.zero_based is not None else least == 0
        shift = 0 if zero_based else 1
        d, asked = most + 1 - shift if most >= 0 else 0, self.wanted.n_features
        if asked is not None and asked < d:
            raise DataError(f"{self.path}: has the feature {most}, so n_features must be at least {d}, got {asked}")
        return shift, d if asked is None else asked


def source(path: Path, wanted: ReadOptions) -> SvmlightSource:
    """Return the source of a svmlight file, whose labels are at the beginning of each line."""
    if wanted.target is not None and wanted.target is not False:
        raise DataError(
            f"{path}: target={wanted.target!r} is not allowed, a svmlight file has its labels first in each line"
        )
    files = separate_files(path, wanted, "anything in a svmlight file")
    return SvmlightSource(path, wanted, target="the first number of each line", files=files)


def _texts(stream: BinaryIO, size: int, path: Path) -> Iterator[bytes]:
    """Divide a stream into texts of whole lines, of about ``size`` bytes each."""
    rest: list[bytes] = []
    while chunk := stream.read(size):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            yield b"".join([*rest, chunk[:cut]])
            rest = []
        rest.append(chunk[cut:])
        if sum(map(len, rest)) > LONGEST:
            raise DataError(f"{path}: a line has more than {LONGEST} bytes, so this is not a svmlight file")
    if last := b"".join(rest):
        yield last + b"\n"


# One line at a time: the specification --------------------------------------------------------------------------------


def parse_line(line: bytes, lowest: int) -> tuple[float, list[tuple[int, float]]] | None:
    """Return the label and the entries of a line in ascending order of the index, or None for a blank line.

    An invalid line raises ``DualnewtonError``.
    """
    words = line.split(b"#", 1)[0].split()
    if not words:
        return None
    label, *pairs = words
    if b"," in label:
        raise DualnewtonError(f"several labels ({_shown(label)}): a line must have one")
    number = _number(label, "label")
    if pairs and pairs[0].startswith(b"qid:"):
        _number(pairs.pop(0)[4:], "qid")
    entries: dict[int, float] = {}
    for pair in pairs:
        text, colon, value = pair.partition(b":")
        if not colon or not INDEX.fullmatch(text):
            raise DualnewtonError(f"expected index:value, found {_shown(pair)}")
        index = int(text)
        if index < lowest:
            raise DualnewtonError(f"the index {index} in a file that counts features from {lowest} (zero_based=False)")
        if index in entries:
            raise DualnewtonError(f"the index {index} occurs twice")
        entries[index] = _number(value, f"value of the feature {index}")
    return number, sorted(entries.items())


def _number(text: bytes, what: str) -> float:
    found = float(text) if NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(found):
        raise DualnewtonError(f"the {what} must be a finite number, found {_shown(text)}")
    return found


def _shown(text: bytes) -> str:
    readable = text[:40].decode("utf-8", "replace")
    return repr(readable + ("…" if len(text) > 40 else ""))


def by_lines(text: bytes, lowest: int) -> Rows:
    """Parse lines one by one."""
    labels: list[float] = []
    entries: list[tuple[int, float]] = []
    ends: list[int] = []
    for k, line in enumerate(text.split(b"\n")):
        try:
            parsed = parse_line(line, lowest)
        except ValueError as error:
            raise DamagedLineError(k, str(error)) from None
        if parsed is not None:
            labels.append(parsed[0])
            entries += parsed[1]
            ends.append(len(entries))
    columns = np.array([index for index, _ in entries], dtype=np.int64)
    least, most = (int(columns.min()), int(columns.max())) if entries else (NO_INDEX, -1)
    values = np.array([value for _, value in entries], dtype=np.float64)
    X = SparseRows(values, _narrow(columns, most), np.array(ends, dtype=np.int64), least, most)
    return Rows(X, {"y": np.array(labels, dtype=np.float64)})


# A block at a time: the compiled kernel -------------------------------------------------------------------------------


def by_kernel(text: bytes, lowest: int) -> Rows:
    """Parse all lines with the compiled kernel; :func:`parse_line` handles the lines that the kernel rejects."""
    from dualnewton.kernels.svmlight import parse

    content = np.frombuffer(text, dtype=np.uint8)
    labels, values = np.empty(text.count(b"\n")), np.empty(text.count(b":"))  # upper bounds on the sizes
    ends, columns = np.empty(len(labels), dtype=np.int64), np.empty(len(values), dtype=np.int64)
    hard = np.empty((HARD + (len(labels) + len(values)) // HARD, 3), dtype=np.int64)
    found = parse(content, lowest, labels.view(np.uint64), ends, columns, values.view(np.uint64), hard)
    if found.damaged >= 0:
        return _by_specification(text, lowest, found.damaged)
    for place, start, end in hard[: found.hard].tolist():
        number = float(text[start:end])
        if not math.isfinite(number):
            return _by_specification(text, lowest, text.rfind(b"\n", 0, start) + 1)
        if place >= 0:
            values[place] = number
        else:
            labels[-1 - place] = number
    ends, columns, values = ends[: found.rows], columns[: found.entries], values[: found.entries]
    if not found.ascending:
        rows = np.repeat(np.arange(found.rows), np.diff(ends, prepend=0))
        order = np.lexsort((columns, rows))
        columns, values = columns[order], values[order]
        if ((columns[1:] == columns[:-1]) & (rows[1:] == rows[:-1])).any():
            return _by_specification(text, lowest, 0)
    X = SparseRows(values, _narrow(columns, found.most), ends, found.least, found.most)
    return Rows(X, {"y": labels[: found.rows]})


def _by_specification(text: bytes, lowest: int, start: int) -> Rows:
    """Raise the error of ``parse_line`` for the line at ``start``; if that line is valid, parse the text line by line."""
    try:
        parse_line(text[start : text.index(b"\n", start)], lowest)
    except ValueError as error:
        raise DamagedLineError(text.count(b"\n", 0, start), str(error)) from None
    return by_lines(text, lowest)


def _narrow(columns: np.ndarray, most: int) -> np.ndarray:
    return columns.astype(np.int32 if most <= np.iinfo(np.int32).max else np.int64)
