"""Thousands of damaged files: each is read or refused in one line, and nothing else ever happens."""

import gzip

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io.conversion import convert
from small_sets import csv_text, dense_set, sparse_set, svmlight_text

ROUNDS = 400
INTERESTING = [
    b"",
    b"\n",
    b",",
    b":",
    b"#",
    b'"',
    b"\0",
    b"\xff",
    b"-",
    b"1e999",
    b"nan",
    b"99999999999999999999",
    b" 0:",
    b"qid:",
]


def npz(path, known, compressed):
    sparse = not isinstance(known.X, np.ndarray)
    names = ("data", "indices", "indptr", "shape") if sparse else ()
    entries = {name: getattr(known.X, name) for name in names} or {"X": known.X}
    (np.savez_compressed if compressed else np.savez)(path, **entries, y=known.y)


def converted(suffix):
    def make(path):
        npz(path.with_name("in.npz"), dense_set(n=12), False)
        convert(path.with_name("in.npz"), path.with_suffix(suffix))

    return make


SEEDS = {
    "f.svm": lambda path: path.write_text(svmlight_text(sparse_set(n=12))),
    "f.svm.gz": lambda path: path.write_bytes(gzip.compress(svmlight_text(sparse_set(n=12)).encode(), mtime=0)),
    "f.csv": lambda path: path.write_text(csv_text(dense_set(n=12))),
    "t.csv": lambda path: path.write_text(csv_text(dense_set(n=12, text=True))),
    "f.npz": lambda path: npz(path, sparse_set(n=12), False),
    "c.npz": lambda path: npz(path, sparse_set(n=12), True),
    "m.npz": converted(".npz"),
    "f.npy": lambda path: np.save(path, dense_set(n=12).X),
    "f.parquet": converted(".parquet"),
    "bare": lambda path: path.write_text(svmlight_text(sparse_set(n=12))),
}


def mutated(raw, rng):
    """Change, cut, repeat, insert or exchange a few bytes."""
    content = bytearray(raw)
    for _ in range(int(rng.integers(1, 4))):
        at, end = sorted(rng.integers(0, len(content) + 1, 2).tolist())
        kind = rng.integers(6)
        if kind == 0 and at < len(content):
            content[at] = rng.integers(256)
        elif kind == 1 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif kind == 2:
            del content[at : min(end, at + 40)]
        elif kind == 3:
            content[at:at] = content[at : min(end, at + 40)]
        elif kind == 4:
            content[at:at] = INTERESTING[int(rng.integers(len(INTERESTING)))]
        else:
            del content[at:]
        content = content or bytearray(b"\n")
    return bytes(content)


def outcome(path):
    """What was read, or the message; any other exception than these two ends the test."""
    try:
        return data.read(path)
    except (ValueError, OSError) as error:
        return str(error)


def usable(found):
    """What was read can be handed to kernels."""
    n, d = found.X.shape
    assert min(n, d) > 0
    assert found.X.dtype in (np.float32, np.float64)
    assert found.y is None or len(found.y) == n
    if not isinstance(found.X, np.ndarray):
        assert 0 <= found.X.indices.min(initial=0) <= found.X.indices.max(initial=0) < d
        found.X.check_format(full_check=True)


@pytest.mark.parametrize("name", SEEDS)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, name):
    path = tmp_path / name
    SEEDS[name](path)
    raw = path.read_bytes()
    data.read(path)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(ROUNDS):
        path.unlink()  # what is mapped keeps the old file
        path.write_bytes(mutated(raw, rng))
        found = outcome(path)
        if isinstance(found, str):
            refused += 1
            assert found
            assert "\n" not in found
        else:
            usable(found)
    assert refused > ROUNDS // 10
