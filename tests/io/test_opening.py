"""Data sets on disk have the rows, labels, weights and offsets of their files, and notice what is wrong with these."""

import gc
import os
import sys

import numpy as np
import pytest
import scipy.sparse as sp

import disk_cases as cases
from dualnewton import data
from dualnewton.io import opening, stored
from dualnewton.io.dataset import DataError
from dualnewton.matrix import linear

EVERY_FORMAT = pytest.mark.parametrize("kind", cases.FORMATS)
UNKNOWN = 1000
"""A number that madvise does not know."""


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    cases.small_pieces(monkeypatch)


def files_open():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@EVERY_FORMAT
def test_a_folder_has_the_rows_and_vectors_of_its_files(tmp_path, kind):
    options, before = cases.written(tmp_path / "big", kind), files_open()
    found = data.open(tmp_path / "big", **options)
    assert found.X.shape == (cases.N, cases.D)
    assert len(found.X.source.rows) > 10
    assert found.X.profile.sparse == sp.issparse(cases.rows_of(kind))
    expected = linear.to_dense(cases.rows_of(kind))
    np.testing.assert_allclose(linear.to_dense(found.X.rows(slice(None))), expected, rtol=1e-15)
    few = np.array([0, 1, 251, 252, 255, 599])
    np.testing.assert_allclose(linear.to_dense(found.X.rows(few)), expected[few], rtol=1e-15)
    for name, values in (("y", cases.Y), ("sample_weight", cases.WEIGHTS), ("offset", cases.OFFSET)):
        assert np.array_equal(getattr(found, name), values), name
    assert found.feature_names == (cases.NAMES if kind in ("parquet", "csv") else None)
    assert repr(found).startswith("Dataset('big', n=600, d=6")
    del found
    assert files_open() == before


@EVERY_FORMAT
def test_one_file_a_list_and_a_pattern_are_the_same_rows(tmp_path, kind):
    options = cases.written(tmp_path, kind)
    suffix = cases.FORMATS[kind][1]
    paths = [tmp_path / f"part-{k}{suffix}" for k in range(3)]
    as_list, as_pattern = (data.open(each, **options) for each in (paths, str(tmp_path / f"part-[0-9]{suffix}")))
    assert as_list.X.fingerprint() == as_pattern.X.fingerprint()
    assert np.array_equal(as_list.y, as_pattern.y)
    one = data.open(paths[0], **{name: value for name, value in options.items() if isinstance(value, str)})
    assert one.X.n == 250
    assert one.name == "part-0"


def test_maps_are_read_from_their_files_and_float32_is_kept(tmp_path):
    whole = cases.DENSE.astype(np.float32)
    np.save(tmp_path / "X.npy", whole)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for given in (mapped, mapped[100:400], [mapped[:50], mapped[50:]]):
        found = data.open(given, target=cases.Y[: len(given)] if isinstance(given, np.ndarray) else cases.Y)
        assert all(segment.on_disk for segment in found.X.source.segments)
        assert found.X.dtype == np.float32
        expected = np.concatenate(given) if isinstance(given, list) else given
        assert np.array_equal(found.X.rows(slice(None)), expected)
    in_memory = data.open(whole, target=cases.Y)
    assert not in_memory.X.source.segments[0].on_disk


def test_labels_may_be_a_column_of_the_matrix_a_file_or_an_array(tmp_path):
    np.save(tmp_path / "X.npy", np.column_stack([cases.DENSE, cases.Y]))
    np.savetxt(tmp_path / "weights.txt", cases.WEIGHTS, fmt="%.17g")
    found = data.open(tmp_path / "X.npy", target=-1, weights=str(tmp_path / "weights.txt"), offset=cases.OFFSET)
    assert found.X.d == cases.D
    assert np.array_equal(found.X.rows(slice(None)), cases.DENSE)
    for name, values in (("y", cases.Y), ("sample_weight", cases.WEIGHTS), ("offset", cases.OFFSET)):
        assert np.array_equal(getattr(found, name), values), name
    with pytest.raises(DataError, match="weights must have one entry for each of 600 examples, has 5"):
        data.open(tmp_path / "X.npy", target=-1, weights=np.ones(5))


def test_shards_of_svmlight_share_their_first_index_and_their_width(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n")
    (tmp_path / "b.svm").write_text("-1 0:1 2:5\n")
    found = data.open(tmp_path)
    assert np.array_equal(found.X.rows(slice(None)).toarray(), [[0.0, 2.0, 0.0, 4.0], [1.0, 0.0, 5.0, 0.0]])
    assert data.open(tmp_path, n_features=9).X.d == 9


@pytest.mark.parametrize(("memory", "size"), [("2G", 2 << 30), ("1.5 MiB", 3 << 19), (4096, 4096), ("100kb", 102400)])
def test_memory_is_a_number_of_bytes_with_or_without_a_unit(memory, size):
    assert opening.bytes_of(memory) == size


@pytest.mark.parametrize("memory", ["", "much", "-2G", 0, "2X", True])
def test_other_words_for_memory_are_refused(memory):
    with pytest.raises(DataError, match="memory must be a number of bytes"):
        opening.bytes_of(memory)


def test_pieces_are_cut_to_the_memory_allowed(tmp_path, monkeypatch):
    for name in ("DENSE", "SPARSE"):
        monkeypatch.setattr(opening, name, 1 << 26)
    cases.written(tmp_path, "npy")
    assert len(data.open(tmp_path).X.source.rows) == 3
    small = data.open(tmp_path, memory="64K").X
    assert max(profile.stored * 8 for segment in small.source.segments for profile in segment.profiles) <= 1 << 12
    small.times(np.ones(cases.D))
    assert sum(slot.nbytes for slots in small.source._slots for slot in slots) <= 2 << 12


# Faults --------------------------------------------------------------------------------------------------------------


def passed(found):
    return found.X.times(np.ones(cases.D))


@EVERY_FORMAT
def test_a_file_that_disappears_or_changes_is_named(tmp_path, kind):
    options = cases.written(tmp_path, kind)
    path = tmp_path / f"part-2{cases.FORMATS[kind][1]}"
    found = data.open(tmp_path, **options)
    spilled = kind in ("svmlight", "csv", "compressed npz")  # parsed once: what happens to the text does not matter
    expected = passed(found)
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 64)
    if spilled:
        assert np.array_equal(passed(found), expected)
        return
    with pytest.raises(DataError, match=r"part-2.*changed since"):
        passed(found)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="part-2"):
        passed(found)


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz", "parquet"])
def test_a_truncated_file_is_refused_when_it_is_opened(tmp_path, kind):
    options = cases.written(tmp_path, kind)
    path = tmp_path / f"part-1{cases.FORMATS[kind][1]}"
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 3)
    before = files_open()
    with pytest.raises(DataError, match="part-1"):
        data.open(tmp_path, **options)
    assert files_open() == before


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", cases.DENSE)
    np.save(tmp_path / "b.npy", cases.DENSE[:, 1:])
    with pytest.raises(DataError, match=r"b.npy: has 5 features, .*a.npy has 6"):
        data.open(tmp_path)
    np.save(tmp_path / "b.npy", cases.DENSE)
    np.save(tmp_path / "b.y.npy", cases.Y)
    with pytest.raises(DataError, match=r"a.npy: has no labels, .*b.npy has them"):
        data.open(tmp_path)
    (tmp_path / "c.svm").write_text("1 1:2\n")
    with pytest.raises(DataError, match=r"c.svm: all files must have one format"):
        data.open(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="folder inside a folder"):
        data.open(tmp_path)
    with pytest.raises(DataError, match="no files of data"):
        data.open(tmp_path / "empty")
    with pytest.raises(DataError, match=r"no file matches .*\*.npz"):
        data.open(str(tmp_path / "*.npz"))


def test_columns_of_parquet_files_are_found_by_name_and_others_are_refused(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0], "y": [0, 1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"y": [1, 0], "b": [7.0, 8.0], "a": [5.0, 6.0]}), tmp_path / "2.parquet")
    found = data.open(tmp_path)
    assert np.array_equal(found.X.rows(slice(None)), [[1, 3], [2, 4], [5, 7], [6, 8]])
    assert found.y.tolist() == [0, 1, 1, 0]
    pq.write_table(pa.table({"y": [1, 0], "c": [7.0, 8.0], "a": [5.0, 6.0]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet: has no column 'b'"):
        data.open(tmp_path)
    pq.write_table(pa.table({"y": [1, 0], "b": [7.0, None], "a": [5.0, 6.0]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet, row 1, column 'b': the value is missing"):
        passed_two(data.open(tmp_path))


def passed_two(found):
    return found.X.times(np.ones(found.X.d))


def test_rows_are_checked_when_they_are_read(tmp_path):
    X = cases.DENSE.copy()
    X[444, 3] = np.nan
    np.save(tmp_path / "X.npy", X)
    found = data.open(tmp_path / "X.npy")
    with pytest.raises(ValueError, match=r"X.npy \(rows \d+ to \d+\) must be finite, got nan"):
        passed(found)
    own = cases.SPARSE
    indices = own.indices.copy()
    indices[-1] = 77
    np.savez(tmp_path / "S.npz", data=own.data, indices=indices, indptr=own.indptr, shape=own.shape)
    with pytest.raises(DataError, match=r"S.npz.*indices must lie in \[0, 6\), got 0 … 77"):
        passed(data.open(tmp_path / "S.npz"))
    np.save(tmp_path / "F.npy", np.asfortranarray(cases.DENSE))
    with pytest.raises(DataError, match=r"F.npy: X is stored column by column"):
        data.open(tmp_path / "F.npy")


def test_repeated_columns_of_a_sparse_row_are_added(tmp_path):
    np.savez(
        tmp_path / "S.npz",
        data=np.array([1.0, 2.0, 4.0]),
        indices=np.array([1, 0, 1]),
        indptr=np.array([0, 3, 3]),
        shape=(2, 2),
    )
    found = data.open(tmp_path / "S.npz")
    for _ in range(2):
        assert found.X.times(np.array([1.0, 10.0])).tolist() == [52.0, 0.0]


def test_an_error_of_the_disk_names_the_file(tmp_path, monkeypatch):
    cases.written(tmp_path, "npy")
    found, before = data.open(tmp_path), files_open()

    def broken(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(
        stored, "POPULATE", UNKNOWN
    )  # a map of pages that cannot be read fails as one of unknown options does
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(OSError, match=r"Input/output error.*part-0.npy"):
        passed(found)
    assert files_open() == before


def test_mapped_rows_are_those_that_are_read_into_buffers(tmp_path, monkeypatch):
    cases.written(tmp_path, "npy")
    found, read = data.open(tmp_path), os.preadv
    calls = []
    monkeypatch.setattr(os, "preadv", lambda *given: calls.append(given) or read(*given))
    mapped = passed(found)
    if sys.platform.startswith("linux"):
        assert not calls
    monkeypatch.setattr(stored, "POPULATE", UNKNOWN)
    assert np.array_equal(passed(found), mapped)
    assert len(calls) > 3


def test_what_cannot_be_mapped_is_read(tmp_path):
    path, values = tmp_path / "values", np.arange(30.0).reshape(10, 3)
    path.write_bytes(b"x" + values.tobytes())
    own = stored.StoredFile(path)
    with own.opened() as file:
        unaligned, late = (stored.StoredArray(own, start, (10, 3), values.dtype) for start in (1, 8))
        assert unaligned.mapped(file, 0, 10) is None
        assert late.mapped(file, 0, 10) is None  # the file ends too early
        assert late.mapped(file, 0, 0) is None
        with pytest.raises(DataError, match="7 bytes too early"):
            late.read_into(file, 0, np.empty((10, 3)))
    assert np.array_equal(unaligned.range(2, 4), values[2:4])
