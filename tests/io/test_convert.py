"""From every format to every other without loss, in bounded memory, and whole or not at all."""

import errno
import io
import tempfile
import tracemalloc
import zipfile
from functools import cache

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io import writers
from dualnewton.io.conversion import convert
from small_sets import csv_text, dense_set, same, sparse_set, svmlight_text

SUFFIXES = [".npz", ".npy", ".svm", ".svm.gz", ".svm.xz", ".csv", ".tsv.bz2", ".parquet"]
NO_NAMES = (".svm", ".svm.gz", ".svm.xz")


def save(path, known):
    """Write a set as npz, by NumPy."""
    parts = ["X"] if isinstance(known.X, np.ndarray) else ["data", "indices", "indptr", "shape"]
    entries = {name: known.X if name == "X" else getattr(known.X, name) for name in parts} | {"y": known.y}
    if known.sample_weight is not None:
        entries["sample_weight"] = known.sample_weight
    if known.feature_names is not None:
        entries["feature_names"] = np.array(known.feature_names)
    np.savez(path, **entries)
    return path


@pytest.mark.parametrize("first", SUFFIXES)
@pytest.mark.parametrize("second", SUFFIXES)
def test_nothing_is_lost_on_the_way(tmp_path, first, second):
    for make, block in ((dense_set, 1 << 22), (sparse_set, 1)):
        known = make()
        one = convert(save(tmp_path / "in.npz", known), tmp_path / f"{make.__name__}_one{first}", block=block)
        two = convert(one.path, tmp_path / f"{make.__name__}_two{second}", block=block)
        assert one.shape == two.shape == known.X.shape
        named = make is dense_set and not {first, second}.intersection(NO_NAMES)
        same(data.read(two.path), known, names=named)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".parquet"])
def test_weights_names_and_text_are_kept(tmp_path, suffix):
    known = dense_set(weights=True, text=True)
    done = convert(save(tmp_path / "in.npz", known), tmp_path / f"out{suffix}")
    weights = "sample_weight" if suffix in (".csv", ".parquet") else None
    same(data.read(done.path, weights=weights), known)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_float32_can_be_asked_for(tmp_path, suffix):
    known = dense_set()
    done = convert(save(tmp_path / "in.npz", known), tmp_path / f"out{suffix}", dtype="float32")
    found = data.read(done.path).X
    dense = found if isinstance(found, np.ndarray) else found.toarray()
    np.testing.assert_array_equal(dense.astype(np.float32), known.X.astype(np.float32))
    assert suffix not in (".npz", ".npy") or found.dtype == np.float32


def test_equal_data_make_equal_files(tmp_path):
    source = save(tmp_path / "in.npz", sparse_set())
    for suffix in SUFFIXES:
        raw = [convert(source, tmp_path / f"{k}{suffix}").path.read_bytes() for k in range(2)]
        assert raw[0] == raw[1]


def test_arrays_lie_at_aligned_places_and_numpy_opens_the_file(tmp_path):
    known = sparse_set()
    done = convert(save(tmp_path / "in.npz", known), tmp_path / "out.npz")
    with zipfile.ZipFile(done.path) as archive:
        assert archive.testzip() is None
    raw = done.path.read_bytes()
    places = [at for at in range(len(raw)) if raw.startswith(b"\x93NUMPY", at)]
    assert len(places) == 5
    assert all(place % writers.ALIGNED == 0 for place in places)
    with np.load(done.path, allow_pickle=False) as z:
        assert z["shape"].tolist() == list(known.X.shape)
        np.testing.assert_array_equal(z["data"], known.X.data)


def test_a_csv_target_can_be_chosen(tmp_path):
    (tmp_path / "in.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    done = convert(tmp_path / "in.csv", tmp_path / "out.npy", target="b")
    assert done.target == "the column 'b'"
    assert data.read(done.path).y.tolist() == [2.0, 5.0]


# Memory ----------------------------------------------------------------------------------------------------------------


def peak(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_reading_takes_as_much_as_the_file_has(tmp_path):
    (tmp_path / "in.csv").write_text(LARGE["in.csv"]())
    assert peak(lambda: data.read(tmp_path / "in.csv")) > 700_000


LARGE = {
    "in.svm": cache(lambda: svmlight_text(sparse_set(n=4000, d=40))),
    "in.csv": cache(lambda: csv_text(dense_set(n=4000, d=15))),
}


@pytest.mark.parametrize("out", ["out.npz", "out.npy", "out.csv", "out.svm"])
@pytest.mark.parametrize("name", LARGE)
def test_memory_does_not_grow_with_the_file(tmp_path, name, out, monkeypatch):
    monkeypatch.setattr(writers, "BLOCK", 1 << 13)
    text = LARGE[name]()

    def converted():
        convert(tmp_path / name, tmp_path / out, block=1 << 13)

    (tmp_path / name).write_text("".join(text.splitlines(keepends=True)[:100]))
    converted()  # loads the modules, which are no part of the file
    few = peak(converted)  # mostly buffers of open files, of 128 KiB each from Python 3.14 on
    (tmp_path / name).write_text(text)
    assert (tmp_path / name).stat().st_size > 700_000
    assert peak(converted) - few < 180_000 + io.DEFAULT_BUFFER_SIZE  # one buffer more may be open at the peak


def test_the_compiled_parser_is_bounded_too(tmp_path):
    text = svmlight_text(sparse_set(n=12000, d=40))
    (tmp_path / "in.svm").write_text(text)
    convert(tmp_path / "in.svm", tmp_path / "out.npz")  # loads the compiler
    small, large = (
        peak(lambda block=block: convert(tmp_path / "in.svm", tmp_path / "out.npz", block=block))
        for block in (1 << 18, 1 << 22)
    )
    assert small < large / 3


# Whole or not at all ---------------------------------------------------------------------------------------------------


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("out", ["out.npz", "out.npy", "out.csv", "out.svm.gz", "out.parquet"])
def test_a_damaged_source_leaves_nothing_behind_and_what_was_there_untouched(tmp_path, out):
    (tmp_path / "in.csv").write_text(csv_text(dense_set()) + "1,2\n")
    (tmp_path / out).write_bytes(b"before")
    with pytest.raises(data.DataError, match="line 32"):
        convert(tmp_path / "in.csv", tmp_path / out, block=1)
    assert names(tmp_path) == sorted(["in.csv", out])
    assert (tmp_path / out).read_bytes() == b"before"


class FullDisk(io.BytesIO):
    """A disk with room for a few bytes."""

    def write(self, content):
        if self.tell() > 500:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(content)


def test_a_full_disk_names_the_file_and_leaves_nothing(tmp_path, monkeypatch):
    (tmp_path / "in.csv").write_text(csv_text(dense_set()))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: FullDisk())
    with pytest.raises(OSError, match="No space left on device") as caught:
        convert(tmp_path / "in.csv", tmp_path / "out.npz", block=1)
    assert caught.value.filename == str(tmp_path / "out.npz")
    assert names(tmp_path) == ["in.csv"]


REFUSED = {
    "unknown ending": ("out.xls", {}, "the ending must name the format"),
    "no ending": ("out", {}, "the ending must name the format"),
    "a compressed archive": ("out.npz.gz", {}, "only svmlight and CSV files can be compressed"),
    "text labels": ("out.svm", {"target": "t"}, "labels that are numbers, the data have text"),
    "no labels": ("out.svm", {"target": False}, "labels that are numbers, the data have none"),
    "no folder": ("absent/out.npz", {}, "there is no folder"),
    "other numbers": ("out.npz", {"dtype": "int8"}, "dtype must be one of float64, float32, got 'int8'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused(tmp_path, name):
    out, options, message = REFUSED[name]
    (tmp_path / "in.csv").write_text("a,b,t\n1,2,red\n3,4,blue\n" if name == "text labels" else "a,b,t\n1,2,3\n")
    with pytest.raises(data.DataError, match=message):
        convert(tmp_path / "in.csv", tmp_path / out, **options)
    assert names(tmp_path) == ["in.csv"]


@pytest.mark.parametrize(("out", "stranger"), [("out.npy", "y"), ("out.npz", "y"), ("out.npy", "sample_weight")])
def test_a_file_that_would_be_taken_for_labels_is_not_left_beside(tmp_path, out, stranger):
    (tmp_path / "in.csv").write_text("a,b,c\n1,2,3\n")
    np.save(tmp_path / f"out.{stranger}.npy", np.ones(1))
    with pytest.raises(data.DataError, match=f"{stranger}: remove it first"):
        convert(tmp_path / "in.csv", tmp_path / out, target=False)
    assert names(tmp_path) == ["in.csv", f"out.{stranger}.npy"]


def test_a_feature_may_not_have_the_name_of_the_target(tmp_path):
    (tmp_path / "in.csv").write_text("target,b,c\n1,2,3\n")
    with pytest.raises(data.DataError, match="a feature is named 'target'"):
        convert(tmp_path / "in.csv", tmp_path / "out.csv", target="b")


def test_a_named_set_and_the_progress_of_a_file(tmp_path):
    assert convert("iris", tmp_path / "iris.csv").shape == (150, 4)
    seen = []
    convert(tmp_path / "iris.csv", tmp_path / "iris.npz", report=seen.append)
    assert seen[-1] == (tmp_path / "iris.csv").stat().st_size
    assert seen == sorted(seen)
    with pytest.raises(data.DataError, match="there is no file 'absent'"):
        convert("absent", tmp_path / "out.npz")
