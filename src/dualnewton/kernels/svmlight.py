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
    least, most = np.int64(1) << np.int64(62), np.int64(-1)
    while p < text.size:
        start = p
        while _is_blank(text[p]):
            p += 1
        if text[p] == NEWLINE or text[p] == HASH:
            while text[p] != NEWLINE:
                p += 1
            p += 1
            continue
        damaged = Parsed(rows, entries, left, ascending, least, most, start)
        label = number(text, p)
        if label.outcome == NONE or not _ends_word(text[label.end]):
            return damaged
        if label.outcome == HARD:
            if left == len(hard):
                return damaged
            hard[left, 0], hard[left, 1], hard[left, 2] = -1 - rows, p, label.end
            left += 1
        labels[rows] = label.bits
        p, first, last = label.end, True, np.int64(-1)
        while True:
            while _is_blank(text[p]):
                p += 1
            if text[p] == HASH:
                while text[p] != NEWLINE:
                    p += 1
            if text[p] == NEWLINE:
                break
            digit = np.uint8(text[p] - 48)
            if digit > 9:
                # A query id (for ranking) is not part of X. (No byte after a newline is read, so none after the end of the text.)
                for k in range(4):
                    if not first or text[p + k] != QID[k]:
                        return damaged
                query = number(text, p + 4)
                if query.outcome == NONE or not _ends_word(text[query.end]):
                    return damaged
                first, p = False, query.end
                continue
            begin, index = p, np.int64(0)
            while digit <= 9:
                index = index * 10 + digit
                p += 1
                digit = np.uint8(text[p] - 48)
            if text[p] != COLON or p - begin > DIGITS or index < lowest:
                return damaged
            p += 1
            value = number(text, p)
            if value.outcome == NONE or not _ends_word(text[value.end]):
                return damaged
            if value.outcome == HARD:
                if left == len(hard):
                    return damaged
                hard[left, 0], hard[left, 1], hard[left, 2] = entries, p, value.end
                left += 1
            columns[entries] = index
            values[entries] = value.bits
            entries += 1
            ascending &= index > last
            first, last, p = False, index, value.end
            least, most = min(least, index), max(most, index)
        p += 1
        ends[rows] = entries
        rows += 1
    return Parsed(rows, entries, left, ascending, least, most, -1)
