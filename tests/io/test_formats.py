"""What a file is, by its name or by its first bytes."""

import gzip

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io.conversion import convert
from dualnewton.io.formats import SUFFIXES, format_of
from small_sets import csv_text, dense_set, full, same, sparse_set, svmlight_text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_is_known_by_its_first_bytes_too(tmp_path, suffix):
    known = dense_set()
    np.savez(tmp_path / "in.npz", X=known.X, y=known.y, feature_names=np.array(known.feature_names))
    convert(tmp_path / "in.npz", tmp_path / f"file{suffix}")
    bare = (tmp_path / f"file{suffix}").rename(tmp_path / "bare")
    assert format_of(bare) == SUFFIXES[suffix]
    target = {"target": -1} if SUFFIXES[suffix] == "csv" else {}
    np.testing.assert_array_equal(full(data.read(bare, **target).X), known.X)


@pytest.mark.parametrize("name", ["train", "train.txt", "a9a.t", "train.data", "train.gz"])
def test_text_is_told_apart(tmp_path, name):
    sparse, dense = sparse_set(), dense_set()
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(svmlight_text(sparse).encode()))
    same(data.read(tmp_path / name), sparse)
    (tmp_path / name).write_bytes(pack(csv_text(dense).encode()))
    same(data.read(tmp_path / name), dense)


def test_svmlight_is_known_though_the_first_lines_say_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_text("# a, comment\n\n+1\n-1 qid:3 1:2\n")
    assert format_of(path) == "svmlight"


@pytest.mark.parametrize(
    ("name", "advice"),
    [("t.xlsx", "save the sheet as CSV"), ("t.json", "CSV or Parquet"), ("t.zip", "unpack it first")],
)
def test_formats_that_are_not_read_are_named(tmp_path, name, advice):
    (tmp_path / name).write_bytes(b"PK\x03\x04")
    with pytest.raises(data.DataError, match=advice):
        data.find(str(tmp_path / name))
    with pytest.raises(data.DataError, match="is an address, expected a file: download it first"):
        data.find(f"https://example.org/{name}")


@pytest.mark.parametrize("content", [b"", b"hello world\n", bytes(range(256)) * 10])
def test_what_tells_nothing_is_refused(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(data.DataError, match="its ending and its first bytes show no known format"):
        data.read(path)


def test_what_cannot_be_opened_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        data.read(tmp_path / "absent.csv")
    with pytest.raises(IsADirectoryError):
        data.read(tmp_path)


def test_a_wrong_ending_is_an_error_about_the_content(tmp_path):
    for suffix in SUFFIXES:
        path = tmp_path / f"file{suffix}"
        path.write_bytes(b"\x00\x01\x02 nothing of the kind, \xff")
        with pytest.raises(data.DataError, match=f"file{suffix}"):
            data.read(path)
