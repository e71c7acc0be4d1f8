"""Strict reader of the header of an array in NumPy's npy format.

It evaluates no code, creates only types of numbers and text, and requires that the shape matches the length of the array.
NumPy's own reader accepts more: it repairs headers, emits warnings, and creates any type.
"""

from __future__ import annotations

import contextlib
import errno
import math
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError

MAGIC = b"\x93NUMPY"
LENGTHS = {b"\x01\x00": struct.Struct("<H"), b"\x02\x00": struct.Struct("<I")}
"""The format of the length of the header in each supported version of the npy format."""

LONGEST = 10_000
"""Maximum length of a header in bytes; NumPy has the same limit. The headers of arrays of numbers have about 120 bytes."""

LAYOUT = re.compile(
    rb"\{ *'descr' *: *'([^']{1,40})' *, *'fortran_order' *: *(True|False) *, *'shape' *: *\(([\d, ]{0,400})\) *,? *\} *\n?"
)
"""The text of a header: type, memory order and shape."""

TYPES = re.compile(r"[<>|=]?[fiubUS]\d{1,8}")
"""The accepted types: floats, integers, booleans and text."""

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
"""The exceptions that zipfile, json and this module raise for damaged files."""


@contextlib.contextmanager
def damage(
    kind: type[DualnewtonError],
    message: str,
    faults: tuple[type[Exception], ...] = FAULTS,
    errnos: tuple[int, ...] = (errno.EINVAL,),
) -> Iterator[None]:
    """Convert the exceptions that a damaged file causes into one ``kind`` of error, with this message and the reason.

    An ``OSError`` is one of them if it has no number or one of ``errnos``, by default that of seeking to, or mapping, a wrong
    offset; others, such as a missing file, are raised unchanged.
    """
    caught: tuple[type[Exception], ...] = (OSError, *faults)
    try:
        yield
    except kind:
        raise
    except caught as error:
        if isinstance(error, OSError) and error.errno is not None and error.errno not in errnos:
            raise
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise kind(f"{message} ({reason})") from None


class Header(NamedTuple):
    """Shape, memory order and type of an array, and the offset in bytes at which its entries begin."""

    shape: tuple[int, ...]
    in_columns: bool
    dtype: np.dtype
    start: int


def header(file: IO[bytes], length: int) -> Header:
    """Read the header of an npy file of ``length`` bytes; raise a ``DualnewtonError`` if it is invalid or does not match."""
    magic, version = file.read(len(MAGIC)), file.read(2)
    if magic != MAGIC or version not in LENGTHS:
        raise DualnewtonError("does not begin with the signature of an npy array")
    (size,) = LENGTHS[version].unpack(file.read(LENGTHS[version].size))
    if size > LONGEST:
        raise DualnewtonError(f"the header has {size} bytes, more than the {LONGEST} allowed")
    found = LAYOUT.fullmatch(file.read(size))
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
    """Return the size of an array in bytes, in Python integers, which do not overflow."""
    return math.prod(shape) * dtype.itemsize
