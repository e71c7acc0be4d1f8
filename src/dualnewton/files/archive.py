"""Files of a JSON header and named arrays, for models and checkpoints: no pickle, whole or not at all, refused where damaged.

A file is a zip archive without compression. Its member ``header.json`` says what it is; every other member is an array in
NumPy's own format, so that ``numpy.load`` opens the file, too:

    {"format": "dualnewton model", "version": 1, "content": {...}, "arrays": ["coef", "intercept"]}

Reading runs nothing and believes nothing: each member has to agree with its checksum, and each array with its length.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files.npy import FAULTS, header
from dualnewton.files.replacing import replacing

HEADER = "header.json"

FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every member: equal contents make equal files."""

NPY = (1, 0)
"""The version of NumPy's format that plain arrays are written in."""


class BadFileError(DualnewtonError):
    """A file is not what it should be; the message says in one line why."""


def write(
    path: str | os.PathLike[str], kind: str, version: int, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a file, or leave what was there.

    Parameters
    ----------
    path : path
        Where to.
    kind : str
        What the file is, such as "model".
    version : int
        Of the content's layout.
    content : mapping
        What JSON can say.
    arrays : mapping of arrays
        By name; none may hold Python objects.
    """
    header = {"format": f"dualnewton {kind}", "version": version, "content": content, "arrays": list(arrays)}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(_member(HEADER), json.dumps(header, indent=1, ensure_ascii=False))
        for name, array in arrays.items():
            with archive.open(_member(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), version=NPY, allow_pickle=False)


def read(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the content and the arrays of a file.

    Parameters
    ----------
    path : path
        Where it is.
    kind : str
        What it has to be.
    version : int
        The newest that is known.

    Raises
    ------
    BadFileError
        If it is damaged, something else, or newer than ``version``.
    OSError
        If it cannot be opened.
    """
    with open(path, "rb") as file:
        try:
            return _content(file, path, kind, version)
        except BadFileError:
            raise
        except OSError as error:
            if error.errno not in (None, errno.EINVAL):  # what a wrong offset in a damaged file leads to
                raise
            raise _damaged(path, kind, error) from None
        except FAULTS as error:
            raise _damaged(path, kind, error) from None


def _content(file: Any, path: Any, kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not zipfile.is_zipfile(file):
        raise BadFileError(f"{path} is not a dualnewton {kind}, or was cut short")
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if HEADER not in members:
            raise BadFileError(f"{path} is not a dualnewton {kind}: it has no {HEADER}")
        told = json.loads(_bytes(archive, members[HEADER]))
        if told["format"] != f"dualnewton {kind}":
            raise BadFileError(f"{path} is not a dualnewton {kind} but says it is {told['format']!r}")
        if not isinstance(told["version"], int) or told["version"] < 1:
            raise BadFileError(f"{path} is damaged: its version is {told['version']!r}")
        if told["version"] > version:
            raise BadFileError(
                f"{path} is a dualnewton {kind} of version {told['version']}, this library knows versions up to {version}: "
                "a newer dualnewton can read it"
            )
        arrays = {name: _array(_bytes(archive, members[f"{name}.npy"])) for name in told["arrays"]}
        content = told["content"]
        if not isinstance(content, dict):
            raise BadFileError(f"{path} is damaged: its content is not a table")
        return content, arrays


def _bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member, whose checksum is compared; nothing may be larger than it says, as compressed things are."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise DualnewtonError(f"{member.filename} is compressed")
    raw = archive.read(member)
    if len(raw) != member.file_size:
        raise DualnewtonError(f"{member.filename} is cut short")
    return raw


def _array(raw: bytes) -> np.ndarray:
    """Read an array after a look at whether its shape agrees with its length."""
    found = header(io.BytesIO(raw), len(raw))
    flat = np.frombuffer(raw, found.dtype, math.prod(found.shape), found.start).copy()
    return flat.reshape(found.shape, order="F" if found.in_columns else "C")


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, FIRST_DAY)


def _damaged(path: Any, kind: str, error: Exception) -> BadFileError:
    return BadFileError(f"{path} is not a dualnewton {kind}, or is damaged ({str(error) or type(error).__name__})")
