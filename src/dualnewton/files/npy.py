"""The header of an array in NumPy's npy format, read without belief.

Nothing is made of it but numbers and text, and its shape has to agree with the length of the array. NumPy's own reader takes
more than is needed here: it repairs headers, warns, and makes any type.
"""

from __future__ import annotations

import math
import re
import struct
import zipfile
import zlib
from typing import IO, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError

MAGIC = b"\x93NUMPY"
LENGTHS = {b"\x01\x00": struct.Struct("<H"), b"\x02\x00": struct.Struct("<I")}
"""How the versions of the npy format say how long the header is."""

LONGEST = 10_000
"""Bytes that a header may have."""

TOLD = re.compile(
    rb"\{ *'descr' *: *'([^']{1,40})' *, *'fortran_order' *: *(True|False) *, *'shape' *: *\(([\d, ]{0,400})\) *,? *\} *\n?"
)
"""What it says: the type, the order, the shape. Nothing is evaluated."""

TYPES = re.compile(r"[<>|=]?[fiubUS]\d{1,8}")
"""Floats, integers, truth values and text: all that is ever made a type."""

FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    OverflowError,
    RecursionError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
)
"""What zipfile, json and this module raise about damaged files of arrays."""


class Header(NamedTuple):
    """What an array says about itself, and where its numbers begin."""

    shape: tuple[int, ...]
    in_columns: bool
    dtype: np.dtype
    start: int


def header(file: IO[bytes], length: int) -> Header:
    """Read the header of an array that has so many bytes with it; raise ``DualnewtonError`` where they do not agree."""
    magic, version = file.read(len(MAGIC)), file.read(2)
    if magic != MAGIC or version not in LENGTHS:
        raise DualnewtonError("does not begin as an npy array does")
    (size,) = LENGTHS[version].unpack(file.read(LENGTHS[version].size))
    if size > LONGEST:
        raise DualnewtonError(f"the header has {size} bytes")
    found = TOLD.fullmatch(file.read(size))
    if found is None:
        raise DualnewtonError("the header is not that of an npy array of numbers or text")
    kind, shape = found[1].decode("ascii", "replace"), tuple(int(each) for each in found[3].split(b",") if each.strip())
    if not TYPES.fullmatch(kind):
        raise DualnewtonError(f"holds {kind!r:.40}, expected numbers or text; Python objects are never loaded")
    dtype, start = np.dtype(kind), len(MAGIC) + 2 + LENGTHS[version].size + size
    if start + bytes_of(shape, dtype) != length:
        raise DualnewtonError(f"the shape {shape!r:.40} of {dtype} does not agree with its length")
    return Header(shape, found[2] == b"True", dtype, start)


def bytes_of(shape: tuple[int, ...], dtype: np.dtype) -> int:
    """Return how many bytes an array has, in numbers that do not overflow."""
    return math.prod(shape) * dtype.itemsize
