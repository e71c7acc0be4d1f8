"""``dualnewton convert``: what it writes and says, and how it fails."""

import bz2
import os
import subprocess
import sys

import numpy as np
import pytest

from dualnewton import data

TEXT = "1 1:0.5 3:2\n-1 2:1\n1 1:3 # a comment\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in.svm.bz2").write_bytes(bz2.compress(TEXT.encode()))
    (tmp_path / "in.csv").write_text("a,price,b\n1,10,2\n3,20,4\n")
    return tmp_path


def test_a_compressed_file_becomes_a_mapped_one(command, folder):
    said = command("convert", "in.svm.bz2", "out.npz")
    assert (said.code, said.err) == (0, "")
    assert "3 examples, 3 features, 4 entries" in said.out
    assert data.read("out.npz").X.toarray().tolist() == [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0], [3.0, 0.0, 0.0]]


def test_target_and_type_are_chosen(command, folder):
    said = command("convert", "in.csv", "out.npy", "--target", "price", "--dtype", "float32")
    assert said.code == 0
    assert "the column 'price'" in said.out
    found = data.read("out.npy")
    assert found.X.dtype == np.float32
    assert found.y.tolist() == [10.0, 20.0]


def test_counting_and_width_are_chosen(command, folder):
    assert command("convert", "in.svm.bz2", "zero.npz", "--zero-based", "--n-features", "7").code == 0
    assert data.read("zero.npz").X.shape == (3, 7)
    assert command("convert", "in.svm.bz2", "one.npz", "--one-based").code == 0
    assert data.read("one.npz").X.shape == (3, 3)


def test_a_named_set_is_written(command):
    assert command("convert", "iris", "iris.csv").code == 0
    assert data.read("iris.csv").X.shape == (150, 4)


WRONG = {
    "no such file": (["absent.svm", "out.npz"], "there is no file 'absent.svm'"),
    "a damaged line": (["damaged.svm", "out.npz"], "damaged.svm, line 2: expected index:value, found 'x'"),
    "an absent column": (["in.csv", "out.npz", "--target", "cost"], "(a, price, b), got 'cost'"),
    "an unknown format": (["in.csv", "out.xls"], "the ending must name the format"),
    "a folder to write": (["in.csv", "."], "Is a directory"),
    "no folder": (["in.csv", "absent/out.npz"], "absent"),
    "another type": (["in.csv", "out.npz", "--dtype", "int"], "dtype must be one of float64, float32, got 'int'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_and_nothing_is_written(command, folder, name):
    arguments, message = WRONG[name]
    (folder / "damaged.svm").write_text("1 1:2\n1 x\n")
    before = sorted(os.listdir(folder))
    said = command("convert", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert message in said.err
    assert sorted(os.listdir(folder)) == before


def test_a_full_disk_is_one_line_and_nothing_is_written(folder):
    rows = "".join(f"{i},{i},{i}\n" for i in range(20000))
    (folder / "large.csv").write_text("a,b,y\n" + rows)
    before = sorted(os.listdir(folder))
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)); import signal; "
    code = (
        limited + "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); from dualnewton.cli import main; main(sys.argv[1:])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "convert", "large.csv", "out.npy"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "File too large" in run.stderr
    assert "out.npy" in run.stderr
    assert sorted(os.listdir(folder)) == before


def test_on_a_terminal_a_bar_shows_the_bytes_read(folder, monkeypatch, capsys):
    from rich import console

    from dualnewton.cli import _transfer

    monkeypatch.setattr(console.Console, "is_terminal", property(lambda _: True))
    with _transfer.transfer("reading in.csv") as progress:
        progress(10, 20)
    assert "reading in.csv" in capsys.readouterr().err


def test_bytes_are_told_as_they_are_read(folder):
    from dualnewton import data

    told = []
    data.find(str(folder / "in.csv"), progress=lambda done, of: told.append((done, of)))
    size = (folder / "in.csv").stat().st_size
    assert told[-1] == (size, size)
    assert told == sorted(told)
