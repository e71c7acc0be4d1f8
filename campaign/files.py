"""Damaged and forged files through every reader: each is read or refused by name, in bounded memory, and nothing else happens."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from campaign.parts import Defect, skipped
from campaign.watch import Watch

Rng = np.random.Generator

FILES = 40
"""Damaged copies of each seed."""

ROOM, MULTIPLE = 96 << 20, 64
"""Memory that a reader may use: so many bytes, for its buffers, and this multiple of the size of the file."""

WORDS = [
    b"", b"\n", b",", b":", b"#", b'"', b"\0", b"\xff", b"-", b"1e999", b"nan", b"inf", b"99999999999999999999", b" 0:", b"qid:",
    b"\r", b"../../x", b"4294967297:1", b"\xef\xbb\xbf", b"1_0", b"0x1", b"9" * 400, b"(" * 50, b"9223372036854775807",
]  # fmt: skip
VALUES = [
    None, True, -1, 0, 1, 2**31, 2**63, 2**70, 1e308, -0.5, "", "x", "../../etc/passwd", "os:system", [], {}, [[]], "nan",
    [1, 2], {"array": "0"}, {"class": "builtins.eval"}, "losses.smooth:Logistic", "1" * 5000,
]  # fmt: skip
SHAPES = [(), (0,), (0, 3), (-1, 3), (2**40, 2**40), (2**63, 1), (1 << 40,), (3, 3, 3), (2**31, 2)]
TYPES = [
    "|O",
    "<f8",
    ">f8",
    "<f2",
    "<c16",
    "<U9",
    "|S5",
    "<M8[s]",
    "<i8",
    "|b1",
    "|V8",
    [("a", "<f8")],
    "<f16",
    "|S0",
    "<U0",
]

RNG = np.random.default_rng(4)
X = np.where(RNG.random((12, 5)) < 0.6, RNG.standard_normal((12, 5)), 0.0)
Y = np.where(RNG.random(12) < 0.5, 1.0, -1.0)
NAMES = [f"f{j}" for j in range(5)]


def _svmlight() -> bytes:
    lines = (
        f"{y:g} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v)
        for row, y in zip(X, Y, strict=True)
    )
    return "\n".join(lines).encode() + b"\n"


def _csv() -> bytes:
    rows = (",".join(map(repr, [*row.tolist(), int(y)])) for row, y in zip(X, Y, strict=True))
    return "\n".join([",".join([*NAMES, "target"]), *rows]).encode() + b"\n"


def _table() -> bytes:
    colours = np.where(Y > 0, "red", "blue").tolist()
    rows = (f"{k % 3},2024-01-{k + 1:02d},{colours[k]},{value!r}" for k, value in enumerate(X[:, 0].tolist()))
    return "\n".join(["size,day,colour,target", *rows]).encode() + b"\n"


def _npy() -> bytes:
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def _npz(*, sparse: bool, compressed: bool) -> bytes:
    file, rows = io.BytesIO(), sp.csr_array(X)
    entries = {name: getattr(rows, name) for name in ("data", "indices", "indptr", "shape")} if sparse else {"X": X}
    (np.savez_compressed if compressed else np.savez)(file, **entries, y=Y)
    return file.getvalue()


def _parquet(compression: str, *, text: bool = False) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    columns = dict(zip(NAMES, X.T, strict=True)) | {"target": Y}
    if text:
        columns["colour"] = np.where(Y > 0, "red", "blue")
    pq.write_table(pa.table(columns), file, row_group_size=5, compression=compression)
    return file.getvalue()


def _model(folder: Path) -> bytes:
    path = folder / "whole.model"
    dn.save(dn.LogisticRegression(C=0.5).fit(X, Y), path)
    return _taken(path)


def _run(path: Path) -> Any:
    problem = dn.Problem(X, Y, dn.losses.Hinge(), lam=0.1, fit_intercept=True)
    often = dn.Checkpoint(path, seconds=0.0, spacing=0.0)
    return dn.solve(problem, method="sdna", max_epochs=20, tol=1e-6, random_state=0, checkpoint=often)


def _checkpoint(folder: Path) -> bytes:
    path = folder / "whole.checkpoint"
    _run(path)
    return _taken(path)


def _taken(path: Path) -> bytes:
    raw = path.read_bytes()
    path.unlink()
    return raw


def _coefficients() -> bytes:
    return (
        "feature,coefficient\n" + "\n".join(f"{name},{k}.5" for k, name in enumerate(NAMES)) + "\nintercept,1\n"
    ).encode()


# What is done with what was read -----------------------------------------------------------------------------------------


def _read(path: Path) -> None:
    found = dn.data.read(path)
    n, d = found.X.shape
    if min(n, d) < 1 or found.X.dtype not in (np.float32, np.float64) or (found.y is not None and len(found.y) != n):
        raise Defect(f"read as {found.X.shape} of {found.X.dtype}")
    if sp.issparse(found.X):
        found.X.check_format(full_check=True)


def _open(path: Path) -> None:
    found = dn.data.open(path, memory="16M")
    if found.X.d <= 1 << 20:
        found.X.times(np.zeros(found.X.d))


def _load(path: Path) -> None:
    model = dn.load(path)
    if hasattr(model, "predict"):
        model.predict(X)


def _encode(path: Path) -> None:
    from dualnewton.cli._options import TABLE_DEFAULTS
    from dualnewton.cli._tables import training_data
    from dualnewton.io.source import ReadOptions

    training_data(str(path), ReadOptions("target"), TABLE_DEFAULTS)


def _weights(path: Path) -> None:
    from dualnewton.cli._coefficients import read_coefficients

    read_coefficients(str(path))


def _both(path: Path) -> None:
    _read(path)
    _open(path)


@dataclass(frozen=True)
class Reader:
    """A kind of file: an intact one, its name, what reads it, whether it is a zip archive, and the packages that it needs."""

    name: str
    intact: Callable[[Path], bytes]
    read: Callable[[Path], Any]
    archive: bool = False
    needs: tuple[str, ...] = ()


ARROW, COMMANDS = ("pyarrow",), ("pyarrow", "typer", "rich")


def _wrapped(pack: Callable[[bytes], bytes], make: Callable[[], bytes]) -> Callable[[Path], bytes]:
    return lambda folder: pack(make())


READERS = [
    Reader("a.svm", _wrapped(bytes, _svmlight), _both),
    Reader("bare", _wrapped(bytes, _svmlight), _both),
    Reader("a.svm.gz", _wrapped(gzip.compress, _svmlight), _both),
    Reader("a.svm.bz2", _wrapped(bz2.compress, _svmlight), _both),
    Reader("a.svm.xz", _wrapped(lzma.compress, _svmlight), _both),
    Reader("a.csv", _wrapped(bytes, _csv), _both, needs=ARROW),
    Reader("t.csv", _wrapped(bytes, _table), _encode, needs=COMMANDS),
    Reader("t.parquet", _wrapped(bytes, lambda: _parquet("gzip", text=True)), _encode, needs=COMMANDS),
    Reader("a.csv.gz", _wrapped(gzip.compress, _csv), _both, needs=ARROW),
    Reader("a.npy", _wrapped(bytes, _npy), _both),
    Reader("a.npz", _wrapped(bytes, lambda: _npz(sparse=False, compressed=False)), _both, archive=True),
    Reader("s.npz", _wrapped(bytes, lambda: _npz(sparse=True, compressed=False)), _both, archive=True),
    Reader("c.npz", _wrapped(bytes, lambda: _npz(sparse=True, compressed=True)), _both, archive=True),
    Reader("a.parquet", _wrapped(bytes, lambda: _parquet("none")), _both, needs=ARROW),
    Reader("z.parquet", _wrapped(bytes, lambda: _parquet("snappy")), _both, needs=ARROW),
    Reader("a.model", _model, _load, archive=True),
    Reader("a.checkpoint", _checkpoint, _run, archive=True),
    Reader("w.csv", _wrapped(bytes, _coefficients), _weights, needs=COMMANDS[1:]),
]


# Damage ------------------------------------------------------------------------------------------------------------------


def _some(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def mutated(raw: bytes, rng: Rng) -> bytes:
    """Change, cut, repeat, insert or exchange a few bytes."""
    content = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
        kind = rng.integers(7)
        if kind == 0 and at < len(content):
            content[at] = rng.integers(256)
        elif kind == 1 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del content[at : min(end, at + 40)]
        elif kind == 3:
            content[at:at] = content[at : min(end, at + 40)] * int(_some(rng, [1, 1, 300]))
        elif kind == 4:
            content[at:at] = _some(rng, WORDS)
        elif kind == 5:  # a number that counts or points
            content[at : at + 4] = int(_some(rng, [0, 1, 2**31 - 1, 2**32 - 1, 12])).to_bytes(4, "little")
        else:
            del content[at:]
    return bytes(content)


def _other_json(raw: bytes, rng: Rng) -> bytes:
    """Replace one value somewhere in a JSON text, or leave it out."""
    tree = json.loads(raw)
    place, key = {"": tree}, ""
    for _ in range(int(rng.integers(1, 7))):
        inner = place[key]
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner))) if isinstance(inner, list) else []
        if not keys:
            break
        place, key = inner, _some(rng, keys)
    if rng.random() < 0.2:
        del place[key]
    else:
        place[key] = _some(rng, VALUES)
    return json.dumps(tree).encode()


def _other_header(raw: bytes, rng: Rng) -> bytes:
    """Give an npy array another shape, type or order, and keep its bytes."""
    start = 10 + int.from_bytes(raw[8:10], "little")
    text = raw[10:start].decode()
    if rng.random() < 0.5:
        text = re.sub(r"'shape': \([^)]*\)", f"'shape': {_some(rng, SHAPES)}", text)
    else:
        text = re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {_some(rng, TYPES)!r}", text)
    text = text.rstrip() + "\n"
    return raw[:8] + len(text).to_bytes(2, "little") + text.encode() + raw[start:]


def rezipped(raw: bytes, rng: Rng) -> bytes:
    """Change the content of one member of an archive, with right checksums, or its name."""
    out = io.BytesIO()
    with (
        warnings.catch_warnings(action="ignore"),  # two members of one name
        zipfile.ZipFile(io.BytesIO(raw)) as given,
        zipfile.ZipFile(out, "w", _some(rng, [0, 0, 0, 8])) as made,
    ):
        chosen = _some(rng, given.namelist())
        for name in given.namelist():
            content = given.read(name)
            if name == chosen:
                kind = rng.integers(4)
                if kind == 0:
                    name = _some(rng, ["../" + name, "/tmp/" + name, name + "\0", "header.json", "y.npy", "X.npy"])
                elif kind == 1 or not content.startswith((b"{", b"\x93NUMPY")):
                    content = mutated(content, rng)
                elif content.startswith(b"{"):
                    content = _other_json(content, rng)
                else:
                    content = _other_header(content, rng)
            made.writestr(name, content)
    return out.getvalue()


def damaged(reader: Reader, raw: bytes, rng: Rng) -> bytes:
    """Return a damaged or forged file."""
    if reader.archive and rng.random() < 0.6:
        return rezipped(raw, rng)
    if reader.name.endswith(".npy") and rng.random() < 0.4:
        return _other_header(raw, rng)
    for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
        if reader.name.endswith(suffix) and rng.random() < 0.7:
            return module.compress(mutated(module.decompress(raw), rng))  # type: ignore[attr-defined]
    return mutated(raw, rng)


# Observation -------------------------------------------------------------------------------------------------------------


def outcome(reader: Reader, path: Path) -> str:
    """Read a file; return whether it was read or refused."""
    before = set(os.listdir(path.parent))
    size = path.stat().st_size
    with Watch(path.parent) as watch, warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            reader.read(path)
            found = "read"
        except Defect:
            raise
        except (dn.DualnewtonError, OSError) as error:
            found = "refused"
            named = path.name in str(error) or "the column '" in str(error)  # of a table, whose file the user has named
            if not named or "\n" in str(error):
                raise Defect(f"the refusal does not name the file in one line: {error!r}") from error
    if watch.growth > ROOM + MULTIPLE * size:
        raise Defect(f"{watch.growth >> 20} MiB of memory for a file of {size} bytes")
    if watch.seen:
        raise Defect(f"reading did {watch.seen}")
    left = set(os.listdir(path.parent)) - before
    if left:
        raise Defect(f"reading left {sorted(left)}")
    return found


def case(seed: int, folder: Path) -> Counter[str]:
    """Try some damaged copies of one kind of file."""
    rng = np.random.default_rng([seed, 30])
    reader = READERS[seed % len(READERS)]
    if (without := skipped(reader.name, reader.needs)) is not None:
        return without
    raw = reader.intact(folder)
    path = folder / reader.name
    path.write_bytes(raw)
    reader.read(path)
    counts: Counter[str] = Counter()
    for k in range(FILES):
        path.unlink()  # what is mapped keeps the old file
        content = damaged(reader, raw, rng)
        path.write_bytes(content)
        try:
            counts[outcome(reader, path)] += 1
        except Exception as error:
            raise Defect(f"{reader.name}, copy {k}: {type(error).__name__}: {error}") from error
    return counts
