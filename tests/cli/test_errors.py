"""What goes wrong is one line, exit code 2, and no file."""

import errno
import os
import subprocess
import sys

import numpy as np
import pytest

from cli.running import process, refused
from dualnewton.cli import main

GOOD = "x,z,y\n1,2,0\n2,1,1\n3,5,0\n4,4,1\n"


def others(folder, *expected):
    """The files in a folder but for the expected ones."""
    return sorted(path.name for path in folder.iterdir() if path.name not in expected)


WORDS = {
    "absent file": (["absent.csv"], "absent.csv"),
    "absent name": (["breast_cancr"], "breast_cancr"),
    "folder": (["."], "."),
    "unreadable": (["/proc/self/mem"], ""),
    "no such column": (["good.csv", "--target", "label"], "label"),
    "no such weights": (["good.csv", "--weights", "c"], "weights"),
    "unknown loss": (["good.csv", "--loss", "logitic"], "did you mean logistic"),
    "unknown penalty": (["good.csv", "--penalty", "elasticnett"], "did you mean elasticnet"),
    "unknown penalty with three classes": (["iris", "--penalty", "elasticnett"], "did you mean elasticnet"),
    "penalty without options": (["good.csv", "--penalty", "box"], "one of l2, l1, elasticnet, nonnegative, got 'box'"),
    "quantile beyond": (["good.csv", "--loss", "quantile", "--quantile", "3"], "q (the quantile) must be a number > 0"),
    "unknown method": (["good.csv", "--method", "sdnaa"], "method must be one of"),
    "unknown multiclass": (["iris", "--multiclass", "softmx"], "did you mean softmax"),
    "softmax with a hinge": (["iris", "--multiclass", "softmax", "--loss", "hinge"], "use ovr"),
    "softmax with a kink by a sketch": (["iris", "--penalty", "l1", "--method", "ihs"], 'must be "auto" or "newton"'),
    "C and lam": (["good.csv", "-C", "1", "--lam", "1"], "give one of them"),
    "C of nothing": (["good.csv", "-C", "0"], "C must be a number > 0, or inf for no penalty, got 0"),
    "negative lam": (["good.csv", "--lam", "-1"], "lam must be a finite number >= 0"),
    "l1_ratio beyond": (["good.csv", "--penalty", "elasticnet", "--l1-ratio", "2"], "l1_ratio must be"),
    "l1_ratio of l2": (
        ["good.csv", "--l1-ratio", "0.5"],
        "l1_ratio is a parameter of elasticnet, nonnegative, multi_task, not of l2",
    ),
    "parameter of another loss": (["good.csv", "--delta", "2"], "delta is a parameter of huber, not of logistic"),
    "negative tol": (["good.csv", "--tol", "-1"], "tol must be"),
    "no threads": (["good.csv", "--threads", "0"], "n_threads must be"),
    "negative seed": (["good.csv", "--seed", "-1"], "random_state must be"),
    "a word for a number": (["good.csv", "--tol", "small"], "--tol"),
    "unknown option": (["good.csv", "--penalti", "l1"], "--penalti"),
    "no data": ([], "DATA"),
    "text for numbers": (["text.csv", "--loss", "squared"], "must hold numbers"),
    "one class": (["one.csv"], "holds a single class, 1 on all 3 rows"),
    "an identifier": (["identifiers.csv", "--target", "id"], "has another class on each of the 12 rows, such as a0"),
    "constant": (["one.csv", "--loss", "squared"], "is constant, 1 on all 3 rows"),
    "infinity": (["inf.csv"], "the column 'x' must be finite, got inf"),
    "inf": (["inf.npz"], "inf"),
    "text in features": (["words.csv"], "words.csv"),
    "not a table": (["noise.csv"], "noise.csv"),
    "not a Parquet file": (["noise.parquet"], "noise.parquet"),
    "not an archive": (["noise.npz"], "noise.npz"),
    "a damaged line": (["bad.svm"], "2"),
    "test without the features": (["good.csv", "--test", "other.csv"], "no column 'x'"),
    "test with other classes": (["good.csv", "--test", "labels.csv"], "classes of the model"),
    "absent test": (["good.csv", "--test", "absent.csv"], "absent.csv"),
    "absent checkpoint folder": (["good.csv", "--checkpoint", "absent/c"], "checkpoint"),
    "foreign checkpoint": (["good.csv", "--checkpoint", "good.csv"], "good.csv"),
}


@pytest.fixture
def files(tmp_path):
    (tmp_path / "good.csv").write_text(GOOD)
    (tmp_path / "text.csv").write_text("x,y\n1,a\n2,b\n3,a\n")
    (tmp_path / "one.csv").write_text("x,y\n1,1\n2,1\n3,1\n")
    (tmp_path / "identifiers.csv").write_text("x,id\n" + "".join(f"{k % 3},a{k}\n" for k in range(12)))
    (tmp_path / "inf.csv").write_text("x,y\n1,0\ninf,1\n3,1\n")
    (tmp_path / "words.csv").write_text("x,y\none,0\ntwo,1\n")
    (tmp_path / "other.csv").write_text("u,z,y\n1,2,0\n2,3,1\n")
    (tmp_path / "labels.csv").write_text("x,z,y\n1,2,0\n2,3,7\n")
    (tmp_path / "bad.svm").write_text("1 1:2\n-1 1:x\n")
    np.savez(tmp_path / "inf.npz", X=np.array([[1.0], [np.inf], [2.0]]), y=np.array([0, 1, 1]))
    for name in ("noise.csv", "noise.parquet", "noise.npz"):
        (tmp_path / name).write_bytes(np.random.default_rng(0).bytes(300))
    return sorted(path.name for path in tmp_path.iterdir())


@pytest.mark.parametrize("case", WORDS)
def test_fit_refuses(command, files, tmp_path, case):
    words, message = WORDS[case]
    before = (tmp_path / "good.csv").read_bytes()
    assert message in refused(command("fit", *words, "--out", "m.model"))
    assert others(tmp_path, *files) == []
    assert (tmp_path / "good.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("out", "message"),
    [("absent/m.model", "no such folder"), (".", "Is a directory"), ("good.csv/m.model", "no such folder")],
)
def test_where_nothing_can_be_written_nothing_is_fitted(command, files, tmp_path, out, message):
    said = command("fit", "good.csv", "--out", out)
    assert message in refused(said)  # without a progress line
    assert others(tmp_path, *files) == []


def test_a_device_is_not_replaced(command, files):
    assert "not a plain file" in refused(command("fit", "good.csv", "--out", os.devnull))


@pytest.mark.parametrize(
    "words",
    [["fit", "good.csv", "--out", "new.model"], ["predict", "m.model", "good.csv", "--out", "p.csv"]],
    ids=["fit", "predict"],
)
def test_a_full_disk(command, files, tmp_path, monkeypatch, words):
    command("fit", "good.csv", "--out", "m.model")

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    said = command(*words)
    assert said.code == 2
    assert said.out == ""
    assert said.err.splitlines()[-1] == f"dualnewton: {words[-1]}: could not be written: No space left on device"
    assert others(tmp_path, *files, "m.model") == []


@pytest.mark.parametrize("name", ["predict", "evaluate", "certify"])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "is not a dualnewton model"),
        (b"PK\x03\x04 and noise", "is not a dualnewton model"),
    ],
    ids=["absent", "empty", "noise"],
)
def test_models_that_are_none(command, files, tmp_path, name, content, message):
    if content is not None:
        (tmp_path / "m.model").write_bytes(content)
    assert message in refused(command(name, "m.model", "good.csv"))


@pytest.mark.parametrize("name", ["predict", "evaluate", "certify"])
def test_data_of_another_width(command, files, name):
    for width, place in ((2, "two"), (3, "three")):
        np.save(f"{place}.npy", np.ones((2, width)))
        np.save(f"{place}.y.npy", np.array([0, 1]))
    command("fit", "two.npy", "--out", "m.model")
    assert "three has 3 features, the model was fitted on 2" in refused(command(name, "m.model", "three.npy"))
    command("fit", "good.csv", "--out", "m.model")
    assert "no column 'x'" in refused(command(name, "m.model", "other.csv"))


def test_a_checkpoint_is_no_model(command, files):
    command("fit", "good.csv", "--checkpoint", "c.ckpt")
    assert "says it is 'dualnewton checkpoint'" in refused(command("evaluate", "c.ckpt", "good.csv"))


def test_a_command_that_is_none(command):
    assert "fitt" in refused(command("fitt", "iris"))


@pytest.mark.parametrize("words", [["fit", "good.csv"], ["predict", "m.model", "good.csv"]], ids=["fit", "predict"])
@pytest.mark.parametrize("fault", [ValueError, ImportError])
def test_a_fault_of_the_library_keeps_its_traceback(command, files, monkeypatch, words, fault):
    command("fit", "good.csv", "--out", "m.model")

    def broken(*_, **__):
        raise fault("operands could not be broadcast together")

    monkeypatch.setattr("dualnewton.io.frames.read_frame", broken)
    with pytest.raises(fault, match="could not be broadcast"):
        main(words)


# As users run it ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_in_a_process_of_its_own(tmp_path, files):
    run = process("fit", "absent.csv", "--out", "m.model", cwd=tmp_path)
    out, err = run.communicate(timeout=120)
    assert (run.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert others(tmp_path, *files) == []


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is not here")
def test_a_full_disk_behind_the_screen(tmp_path, files):
    with open("/dev/full", "w") as full:
        run = process("plan", "good.csv", cwd=tmp_path, stdout=full)
        _, err = run.communicate(timeout=120)
    assert run.returncode == 2
    assert err == "dualnewton: No space left on device\n"


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    np.savez(tmp_path / "many.npz", X=np.arange(60_000.0).reshape(-1, 2), y=np.arange(30_000) % 2)
    script = f"{sys.executable} -m dualnewton fit many.npz --max-epochs 1 --out m.model > log 2>&1 &&" + (
        f" {sys.executable} -m dualnewton predict m.model many.npz | head -n 1"
    )
    run = subprocess.run(script, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout == "prediction\n"
    assert run.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that can close standard output")
def test_commands_run_without_a_standard_output(tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{k},{k % 3}\n" for k in range(30)))
    run = f'"{sys.executable}" -m dualnewton'
    fit = f"{run} fit t.csv --target y --out m >&- && {run} predict m t.csv >&- && {run} datasets >&-"
    said = subprocess.run(fit, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused(command, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe or a device, expected a file" in refused(command("fit", tmp_path / "pipe"))
