"""Files that are there whole or not at all, and archives that believe nothing."""

import errno
import fcntl
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dualnewton.files import archive as _archive
from dualnewton.files.archive import BadFileError
from dualnewton.files.replacing import replacing, unfinished

CONTENT = {"text": "ünï", "numbers": [1, 2.5, None], "deep": {"a": [True]}}


def written(path, **changes):
    kept = {"coef": np.arange(6.0).reshape(2, 3), "labels": np.array(["a", "bc"])}
    _archive.write(path, "model", 1, CONTENT, kept | changes)
    return path


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(path, members, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, raw in members.items():
            archive.writestr(name, raw)
    return path


# Files -------------------------------------------------------------------------------------------------------------------


def test_the_error_for_an_absent_folder_names_the_folder(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"no such folder to write to: .*absent'"),
        replacing(tmp_path / "absent" / "x"),
    ):
        pass


def test_a_file_takes_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path, "w") as file:
        file.write("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_what_was_there_stays_when_something_goes_wrong(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def half():
        with replacing(path, "w") as file:
            file.write("half")
            raise error

    with pytest.raises(error):
        half()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = written(tmp_path / "a.model")
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        written(path, coef=np.zeros((1, 1)))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["a.model"]


def test_what_a_killed_process_left_behind_is_removed(tmp_path):
    code = (
        "import os, signal; from dualnewton.files.replacing import replacing\n"
        "with replacing('a.txt', 'w') as file: file.write('half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False)
        assert len(unfinished(tmp_path / "a.txt")) == 1  # that of the last one killed
    (tmp_path / "a.txt.part").write_text("of somebody else")
    with replacing(tmp_path / "a.txt", "w") as file:
        file.write("new")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.txt", "a.txt.part"]


def test_two_who_write_to_one_path_do_not_share_a_file(tmp_path):
    path = tmp_path / "a.txt"
    with replacing(path, "w") as first:
        first.write("first, which ends last")
        with replacing(path, "w") as second:
            second.write("second")
            assert {Path(first.name), Path(second.name)} == set(unfinished(path))
        assert path.read_text() == "second"
    assert path.read_text() == "first, which ends last"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_was_taken_for_a_leftover_before_it_was_locked_is_created_again(tmp_path, monkeypatch):
    path, lock, removed = tmp_path / "a.txt", fcntl.flock, []

    def late(file, kind):
        if not removed:  # another process comes first
            removed.append(file.name)
            os.unlink(file.name)
        lock(file, kind)

    monkeypatch.setattr(fcntl, "flock", late)
    with replacing(path, "w") as file:
        file.write("new")
        assert file.name != removed[0]
    assert path.read_text() == "new"


def test_permissions_are_those_of_any_new_file(tmp_path):
    with replacing(tmp_path / "a.txt"):
        pass
    (tmp_path / "b.txt").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode


# Archives ----------------------------------------------------------------------------------------------------------------


@given(
    arrays(st.sampled_from([np.float64, np.float32, np.int64, np.bool_, "U3"]), array_shapes(min_dims=0, min_side=0))
)
def test_what_is_written_is_read(array):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a")
        _archive.write(path, "model", 3, CONTENT, {"x": array})
        content, found = _archive.read(path, "model", 3)
    assert content == CONTENT
    assert found["x"].dtype == array.dtype
    np.testing.assert_array_equal(found["x"], array)


def test_equal_contents_make_equal_files(tmp_path):
    assert written(tmp_path / "a").read_bytes() == written(tmp_path / "b").read_bytes()


def test_arrays_in_columns_come_back_as_they_were(tmp_path):
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    _, found = _archive.read(written(tmp_path / "a", coef=columns), "model", 1)
    np.testing.assert_array_equal(found["coef"], columns)


def test_numpy_opens_it_too(tmp_path):
    with np.load(written(tmp_path / "a")) as archive:
        np.testing.assert_array_equal(archive["coef"], np.arange(6.0).reshape(2, 3))


def test_objects_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"[Oo]bject"):
        written(tmp_path / "a", coef=np.array([print], dtype=object))
    assert list(tmp_path.iterdir()) == []


def header_with(**changes):
    def change(members):
        header = json.loads(members["header.json"]) | changes
        return members | {"header.json": json.dumps(header).encode()}

    return change


def array_of(raw):
    return lambda members: members | {"coef.npy": raw}


def npy(header, body=b""):
    """An array file with any header."""
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body


def pickled():
    stream = io.BytesIO()
    np.save(stream, np.array([os.getcwd], dtype=object), allow_pickle=True)
    return stream.getvalue()


WRONG = {
    "another kind": (header_with(format="dualnewton checkpoint"), "says it is 'dualnewton checkpoint'"),
    "newer": (header_with(version=2), "version 2, this library reads versions up to 1"),
    "version of nothing": (header_with(version=0), "its version is 0"),
    "version as text": (header_with(version="1"), "its version is '1'"),
    "no content": (header_with(content=None), "not a table"),
    "an array too many": (header_with(arrays=["coef", "labels", "more"]), "more.npy"),
    "arrays that are no names": (header_with(arrays=[["coef"]]), "damaged"),
    "no header": (
        lambda members: {name: raw for name, raw in members.items() if name != "header.json"},
        "no header.json",
    ),
    "a header that is no JSON": (lambda members: members | {"header.json": b"{"}, "damaged"),
    "a header that is a number": (lambda members: members | {"header.json": b"7"}, "damaged"),
    "a header without end": (lambda members: members | {"header.json": b"[" * 100_000}, "damaged"),
    "an array of objects": (array_of(pickled()), "damaged"),
    "an array that is larger than it is": (
        array_of(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }")),
        "does not agree with its length",
    ),
    "an array of negative length": (
        array_of(npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2), }", bytes(16))),
        "damaged",
    ),
    "an array of another format": (
        array_of(b"\x93NUMPY\x02\x00" + bytes(20)),
        "the header is not that of an npy array",
    ),
    "an array with code in it": (
        array_of(npy("{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (), }")),
        "damaged",
    ),
    "an empty array file": (array_of(b""), "damaged"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_in_a_line(tmp_path, case):
    change, message = WRONG[case]
    path = zipped(tmp_path / "wrong", change(members_of(written(tmp_path / "right"))))
    with pytest.raises(BadFileError) as refused:
        _archive.read(path, "model", 1)
    assert message in str(refused.value)
    assert str(path) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_compressed_members_are_refused(tmp_path):
    members = members_of(written(tmp_path / "right"))
    path = zipped(tmp_path / "bomb", members | {"coef.npy": bytes(10_000_000)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(BadFileError, match="compressed"):
        _archive.read(path, "model", 1)


@pytest.mark.parametrize("content", [b"", b"PK", b"not an archive\n" * 100])
def test_something_else_is_refused(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(BadFileError, match="is not a dualnewton model"):
        _archive.read(tmp_path / "a", "model", 1)


def test_an_absent_file_is_another_matter(tmp_path):
    with pytest.raises(FileNotFoundError):
        _archive.read(tmp_path / "a", "model", 1)
    with pytest.raises(IsADirectoryError):
        _archive.read(tmp_path, "model", 1)


def test_a_file_that_was_cut_short_is_refused_wherever_it_ends(tmp_path):
    raw = written(tmp_path / "a").read_bytes()
    for end in range(len(raw)):
        (tmp_path / "b").write_bytes(raw[:end])
        with pytest.raises(BadFileError):
            _archive.read(tmp_path / "b", "model", 1)
