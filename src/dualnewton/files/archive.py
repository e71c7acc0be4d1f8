"""Files of a JSON header and named arrays, for models and checkpoints: no pickle, atomic writes, validated reads.

A file is a zip archive without compression. Its member ``header.json`` describes it; every other member is an array in
NumPy's npy format, so that ``numpy.load`` also opens the file:

    {"format": "dualnewton model", "version": 1, "content": {...}, "arrays": ["coef", "intercept"]}

Reading executes no code from the file and validates it: each member must match its checksum, and each array its length.
"""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files.npy import damage, header
from dualnewton.files.replacing import replacing

HEADER = "header.json"
"""The name of the member that describes the file."""

FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The fixed date of every member, so that equal contents give equal files; it is the earliest date that zip can store."""

NPY = (1, 0)
"""The version of the npy format in which arrays are written; it suffices for arrays of numbers and text."""


class BadFileError(DualnewtonError):
    """A file is damaged or of another kind; the message has the reason in one line."""


def write(
    path: str | os.PathLike[str], kind: str, version: int, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> None:
    """Write a file atomically: if writing fails, an existing file is unchanged.

    ``version`` is that of the layout of ``content``, values that JSON can represent; no array may hold Python objects.
    """
    header = {"format": f"dualnewton {kind}", "version": version, "content": content, "arrays": list(arrays)}
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        archive.writestr(_member(HEADER), json.dumps(header, indent=1, ensure_ascii=False))
        for name, array in arrays.items():
            with archive.open(_member(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asarray(array), version=NPY, allow_pickle=False)


def read(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the content and the arrays of a file; one that is damaged, of another kind or newer is a ``BadFileError``."""
    with open(path, "rb") as file, damage(BadFileError, f"{path} is not a dualnewton {kind}, or is damaged"):
        return _content(file, path, kind, version)


def _content(file: Any, path: Any, kind: str, version: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not zipfile.is_zipfile(file):
        raise BadFileError(f"{path} is not a dualnewton {kind}, or was cut short")
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if HEADER not in members:
            raise BadFileError(f"{path} is not a dualnewton {kind}: it has no {HEADER}")
        stated = json.loads(_bytes(archive, members[HEADER]))
        if stated["format"] != f"dualnewton {kind}":
            raise BadFileError(f"{path} is not a dualnewton {kind} but says it is {stated['format']!r}")
        if not isinstance(stated["version"], int) or stated["version"] < 1:
            raise BadFileError(f"{path} is damaged: its version is {stated['version']!r}")
        if stated["version"] > version:
            raise BadFileError(
                f"{path} is a dualnewton {kind} of version {stated['version']}, this library reads versions up to {version}: "
                "a newer dualnewton can read it"
            )
        arrays = {name: _array(_bytes(archive, members[f"{name}.npy"])) for name in stated["arrays"]}
        content = stated["content"]
        if not isinstance(content, dict):
            raise BadFileError(f"{path} is damaged: its content is not a table")
        return content, arrays


def _bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Read a member and verify its checksum; compressed members are refused, since they may expand to any size."""
    if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
        raise DualnewtonError(f"{member.filename} is compressed")
    raw = archive.read(member)
    if len(raw) != member.file_size:
        raise DualnewtonError(f"{member.filename} is cut short")
    return raw


def _array(raw: bytes) -> np.ndarray:
    """Read an array whose shape must match its length."""
    found = header(io.BytesIO(raw), len(raw))
    flat = np.frombuffer(raw, found.dtype, math.prod(found.shape), found.start).copy()
    return flat.reshape(found.shape, order="F" if found.in_columns else "C")


def _member(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(name, FIRST_DAY)
