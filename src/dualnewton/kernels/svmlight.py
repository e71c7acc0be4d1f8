"""Parser of svmlight text into arrays, in one pass over the bytes.

    label [qid:number] index:value index:value ... [# comment]

The pass ends at the first malformed line. :mod:`dualnewton.io.svmlight` then reports the error: its parser of single lines is
the specification of this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from dualnewton.kernels.decimals import HARD, NONE, jit, number

NEWLINE, SPACE, HASH, COLON = 10, 32, 35, 58
QID = (113, 105, 100, COLON)
"""The bytes of ``qid:``."""

DIGITS = 18
"""Maximum number of digits of an index: 18 digits always fit into an int64."""

NO_INDEX = np.int64(1 << 62)
"""The smallest index of a text without entries, larger than any index."""

in_place = numba.njit(nogil=True, inline="always")


class Parsed(NamedTuple):
    """Numbers of rows, entries and values left to ``float``; whether columns ascend; the smallest and the largest index.

    ``damaged`` is the position at which the first malformed line begins, or −1.
    """

    rows: int
    entries: int
    hard: int
    ascending: bool
    least: int
    most: int
    damaged: int


@in_place
def _is_blank(byte):
    """Whether a byte separates words of a line: a space or one of tab, vertical tab, form feed, carriage return."""
    return byte == SPACE or (byte != NEWLINE and 9 <= byte <= 13)


@in_place
def _ends_word(byte):
    return 9 <= byte <= 13 or byte in (SPACE, HASH)


class Line(NamedTuple):
    """The entries of one line: the position of its newline, −1 if it is malformed, and the counts of :class:`Parsed` after it."""

    end: int
    entries: int
    hard: int
    ascending: bool
    least: int
    most: int


@in_place
def _after_blanks(text, p):
    while _is_blank(text[p]):
        p += 1
    return p


@in_place
def _newline(text, p):
    while text[p] != NEWLINE:
        p += 1
    return p


@jit
def _left_to_float(hard, left, place, start, end):
    """Enter a number in the list of those that ``float`` must parse; return their count, −1 if the list is full."""
    if left == len(hard):
        return -1
    hard[left, 0], hard[left, 1], hard[left, 2] = place, start, end
    return left + 1


@jit
def _after_query(text, p):
    """Return the position after a query id (for ranking), which is not part of X; −1 if there is none at p.

    No byte after a newline is read, so none after the end of the text.
    """
    for k in range(4):
        if text[p + k] != QID[k]:
            return -1
    query = number(text, p + 4)
    return -1 if query.outcome == NONE or not _ends_word(text[query.end]) else query.end


@in_place
def _pairs(text, p, lowest, entries, left, columns, values, hard):
    """Parse the part of a line after its label; the parameters are those of :func:`parse`."""
    least, most, last, ascending, first = NO_INDEX, np.int64(-1), np.int64(-1), True, True
    malformed = Line(-1, entries, left, ascending, least, most)
    while True:
        p = _after_blanks(text, p)
        if text[p] == HASH:
            p = _newline(text, p)
        if text[p] == NEWLINE:
            return Line(p, entries, left, ascending, least, most)
        digit = np.uint8(text[p] - 48)
        if digit > 9:
            p = _after_query(text, p) if first else -1
            if p < 0:
                return malformed
            first = False
            continue
        begin, index = p, np.int64(0)
        while digit <= 9:
            index = index * 10 + digit
            p += 1
            digit = np.uint8(text[p] - 48)
        if text[p] != COLON or p - begin > DIGITS or index < lowest:
            return malformed
        value = number(text, p + 1)
        if value.outcome == HARD:
            left = _left_to_float(hard, left, entries, p + 1, value.end)
        if value.outcome == NONE or not _ends_word(text[value.end]) or left < 0:
            return malformed
        columns[entries] = index
        values[entries] = value.bits
        entries += 1
        ascending &= index > last
        first, last, p = False, index, value.end
        least, most = min(least, index), max(most, index)


@jit
def parse(text, lowest, labels, ends, columns, values, hard):
    """Parse all lines of a text that ends with a newline.

    Parameters
    ----------
    text : array of uint8
        The bytes.
    lowest : int
        The smallest allowed index.
    labels, values : arrays of uint64
        Output: the bits of the numbers.
    ends : array of int64
        Output: the number of entries up to the end of each row.
    columns : array of int64
        Output: the indices as written in the text.
    hard : array of int64, shape (?, 3)
        Output: the numbers that ``float`` must parse: entry i, or −1 − i for the label of row i; start; end. If the array is
        full, the line counts as malformed.
    """
    rows, entries, left, ascending, p = 0, 0, 0, True, 0
    least, most = NO_INDEX, np.int64(-1)
    while p < text.size:
        start = p
        p = _after_blanks(text, p)
        if text[p] == NEWLINE or text[p] == HASH:
            p = _newline(text, p) + 1
            continue
        malformed = Parsed(rows, entries, left, ascending, least, most, start)
        label = number(text, p)
        if label.outcome == HARD:
            left = _left_to_float(hard, left, -1 - rows, p, label.end)
        if label.outcome == NONE or not _ends_word(text[label.end]) or left < 0:
            return malformed
        labels[rows] = label.bits
        line = _pairs(text, label.end, lowest, entries, left, columns, values, hard)
        if line.end < 0:
            return malformed
        entries, left, ascending = line.entries, line.hard, ascending & line.ascending
        least, most, p = min(least, line.least), max(most, line.most), line.end + 1
        ends[rows] = entries
        rows += 1
    return Parsed(rows, entries, left, ascending, least, most, -1)
