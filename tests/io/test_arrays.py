"""npz and npy files: mapped where they lie, checked before anything is allocated, and never unpickled."""

import io
import mmap
import pickle
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import data
from dualnewton.io import arrays
from dualnewton.io.conversion import convert
from small_sets import dense_set, full, same, sparse_set


def is_mapped(array):
    """Whether an array lies in a mapped file, through however many views."""
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array is not None


def save(path, **entries):
    np.savez(path, **entries)
    return path


def parts(X, **more):
    return {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape), **more}


def test_npz_layouts(tmp_path):
    sparse, dense = sparse_set(weights=True), dense_set(weights=True, text=True)
    more = {"y": sparse.y, "sample_weight": sparse.sample_weight}
    same(data.read(save(tmp_path / "s.npz", **parts(sparse.X, **more))), sparse)
    names = np.array(dense.feature_names)
    entries = {"X": dense.X, "y": dense.y, "w": dense.sample_weight, "feature_names": names}
    same(data.read(save(tmp_path / "d.npz", **entries), weights="w"), dense)
    np.savez_compressed(tmp_path / "c.npz", **parts(sparse.X, **more))
    same(data.read(tmp_path / "c.npz"), sparse)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_files_of_scipy_with_labels_beside(tmp_path, kind):
    known = sparse_set()
    sp.save_npz(tmp_path / "file.npz", known.X.asformat(kind))
    assert data.read(tmp_path / "file.npz").y is None
    np.save(tmp_path / "file.y.npy", known.y)
    same(data.read(tmp_path / "file.npz"), known)


def test_other_sparse_formats_are_refused(tmp_path):
    sp.save_npz(tmp_path / "file.npz", sp.dia_array(np.eye(3)))
    with pytest.raises(data.DataError, match="expected entries X, or data, indices, indptr and shape"):
        data.read(tmp_path / "file.npz")


def test_npy_with_labels_in_a_column_or_beside(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "file.npy", X)
    found = data.read(tmp_path / "file.npy")
    assert found.y is None
    assert is_mapped(found.X)
    column = data.read(tmp_path / "file.npy", target=-1)
    assert column.y.tolist() == [2.0, 5.0, 8.0, 11.0]
    assert column.X.tolist() == X[:, :2].tolist()
    np.save(tmp_path / "file.y.npy", np.array(["a", "b", "a", "b"]))
    found = data.read(tmp_path / "file.npy")
    assert found.y.tolist() == ["a", "b", "a", "b"]
    assert data.read(tmp_path / "file.npy", target=False).y is None


@pytest.mark.parametrize("suffix", [".npz", ".npy"])
@pytest.mark.parametrize("make", [sparse_set, dense_set])
def test_a_problem_takes_a_converted_file_without_a_copy(tmp_path, make, suffix):
    known = make()
    np.savez(tmp_path / "in.npz", **({"X": known.X} if make is dense_set else parts(known.X)), y=known.y)
    convert(tmp_path / "in.npz", tmp_path / f"out{suffix}")
    X = data.read(tmp_path / f"out{suffix}").X
    problem = dn.Problem(X, np.ones(X.shape[0]), dn.losses.Squared())
    pairs = (
        [(X.data, problem.X.data), (X.indices, problem.X.indices), (X.indptr, problem.X.indptr)]
        if sp.issparse(X)
        else [(X, problem.X)]
    )
    for read, used in pairs:
        assert is_mapped(read)
        assert np.shares_memory(read, used)
        assert used.flags.aligned
    np.testing.assert_array_equal(full(X), full(known.X))
    assert dn.solve(problem, tol=1e-6, random_state=0).certificate.relative_gap <= 1e-6


def test_numbers_of_other_types_become_float64(tmp_path):
    for X in (
        np.eye(3, dtype=np.int8),
        np.eye(3, dtype=">f8"),
        np.eye(3, dtype=np.float16),
        np.asfortranarray(np.eye(3)),
    ):
        np.save(tmp_path / "file.npy", X)
        found = data.read(tmp_path / "file.npy").X
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, np.eye(3))
    np.save(tmp_path / "file.npy", np.eye(3, dtype=np.float32))
    assert data.read(tmp_path / "file.npy").X.dtype == np.float32


def test_a_wider_matrix_can_be_asked_for_if_it_is_sparse(tmp_path):
    known = sparse_set()
    path = save(tmp_path / "file.npz", **parts(known.X, y=known.y))
    assert data.read(path, n_features=20).X.shape == (40, 20)
    with pytest.raises(data.DataError, match="n_features must be at least"):
        data.read(path, n_features=3)


class Bomb:
    """Whoever unpickles this notices."""

    exploded = False

    def __reduce__(self):
        return setattr, (Bomb, "exploded", True)


def header(shape, kind="<f8"):
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def archive(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in members.items():
            zipped.writestr(f"{name}.npy", content)
    return stream.getvalue()


def pickled():
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb()], dtype=object), allow_pickle=True)
    return stream.getvalue()


EVIL = {
    "pickle as npy": ("file.npy", lambda: pickle.dumps(Bomb())),
    "objects in npy": ("file.npy", pickled),
    "pickle in npz": ("file.npz", lambda: archive(X=pickle.dumps(Bomb()))),
    "objects in npz": ("file.npz", lambda: archive(X=pickled())),
    "a shape that lies": ("file.npy", lambda: header((10**9, 10**6)) + bytes(80)),
    "a shape that lies, zipped": ("file.npz", lambda: archive(X=header((10**9, 10**6)) + bytes(80))),
    "a negative shape": ("file.npy", lambda: header((-1, -10)) + bytes(80)),
    "a shape that overflows": ("file.npy", lambda: header((2**62, 4)) + bytes(0)),
    "no shape": ("file.npy", lambda: header("()") + bytes(8)),
    "structured": ("file.npy", lambda: header((10,), [("a", "<f8")]) + bytes(80)),
    "a deep literal": ("file.npy", lambda: b"\x93NUMPY\x01\x00\x20\x4e" + b"(" * 20000),
    "not an archive": ("file.npz", lambda: b"PK\x03\x04" + bytes(100)),
}


@pytest.mark.parametrize("name", EVIL)
def test_evil_files_neither_run_nor_allocate(tmp_path, name):
    file, make = EVIL[name]
    (tmp_path / file).write_bytes(make())
    with pytest.raises(data.DataError) as caught:
        data.read(tmp_path / file)
    assert "\n" not in str(caught.value)
    assert not Bomb.exploded


def test_a_member_larger_than_memory_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "file.npz").write_bytes(archive(X=header((10**6, 1)) + bytes(8 * 10**6)))
    monkeypatch.setattr(arrays, "memory", lambda: 10**6)
    with pytest.raises(data.DataError, match="needs 7 MiB of memory"):
        data.read(tmp_path / "file.npz")


def test_a_member_that_cannot_have_its_size_is_refused(tmp_path):
    raw = archive(X=header((10**4, 1)) + bytes(8 * 10**4))
    size = 128 + 8 * 10**4
    lie = raw.replace(size.to_bytes(4, "little"), (1 << 31).to_bytes(4, "little"))
    assert lie != raw
    (tmp_path / "file.npz").write_bytes(lie)
    with pytest.raises(data.DataError, match="cannot have the size it claims"):
        data.read(tmp_path / "file.npz")


def test_a_changed_byte_in_a_compressed_member_is_noticed(tmp_path):
    X = np.random.default_rng(0).standard_normal((50, 4))
    np.savez_compressed(tmp_path / "file.npz", X=X)
    raw = bytearray((tmp_path / "file.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "file.npz").write_bytes(raw)
    with pytest.raises(data.DataError, match="damaged"):
        data.read(tmp_path / "file.npz")


X = sp.csr_array(np.eye(3))
WRONG = {
    "an index too large": parts(X) | {"indices": np.array([0, 1, 3])},
    "an index below zero": parts(X) | {"indices": np.array([0, 1, -1])},
    "starts that fall": parts(X) | {"indptr": np.array([0, 3, 1, 3])},
    "starts that end early": parts(X) | {"indptr": np.array([0, 1, 2, 2])},
    "too few starts": parts(X) | {"indptr": np.array([0, 1, 3])},
    "indices that are no integers": parts(X) | {"indices": np.array([0.0, 1.0, 2.0])},
    "data that are text": parts(X) | {"data": np.array(["a", "b", "c"])},
    "a strange shape": parts(X) | {"shape": np.array([3, 3, 3])},
    "no shape": {"data": X.data, "indices": X.indices, "indptr": X.indptr},
    "too few labels": parts(X) | {"y": np.ones(2)},
    "labels that are not finite": parts(X) | {"y": np.array([1.0, np.nan, 0.0])},
    "a matrix of labels": parts(X) | {"y": np.ones((3, 2))},
    "too few weights": parts(X) | {"y": np.ones(3), "sample_weight": np.ones(2)},
    "complex numbers": {"X": np.eye(3) * 1j},
    "a vector": {"X": np.ones(3)},
    "no rows": {"X": np.ones((0, 3))},
    "too many names": {"X": np.eye(3), "feature_names": np.array(["a", "b", "c", "d"])},
    "a row too large": {"data": np.ones(1), "row": np.array([3]), "col": np.array([0]), "shape": np.array([3, 3])},
}


@pytest.mark.parametrize("name", WRONG)
def test_arrays_that_do_not_agree_are_refused(tmp_path, name):
    with pytest.raises(data.DataError) as caught:
        data.read(save(tmp_path / "file.npz", **WRONG[name]))
    assert str(tmp_path / "file.npz") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("option", [{"target": "z"}, {"weights": "z"}, {"zero_based": True}, {"target": 7}])
def test_what_is_not_there_cannot_be_chosen(tmp_path, option):
    with pytest.raises(data.DataError):
        data.read(save(tmp_path / "file.npz", X=np.eye(3), y=np.ones(3)), **option)
