"""``dualnewton fit --dask``: the model of a fit without a cluster, from files that the workers read."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import disk_cases as cases
from cli.running import refused
from dualnewton.cli import _cluster
from dualnewton.interop.model_file import SavedModel

SETTINGS = ["--loss", "squared_hinge", "--method", "newton", "--tol", "1e-10"]


@pytest.fixture
def address(cluster, monkeypatch):
    cases.small_pieces(monkeypatch, 1 << 13)
    return cluster.scheduler.address


def coefficients(command, name, *arguments):
    said = command("fit", *arguments, *SETTINGS, "--out", name)
    assert said.code == 0, said.err
    return SavedModel.load(name), said


def test_workers_read_the_files_of_a_folder(address, command, tmp_path):
    cases.written(tmp_path / "big", "npz")
    ours, said = coefficients(command, "ours.model", "big", "--dask", address)
    theirs, alone = coefficients(command, "theirs.model", "big")
    np.testing.assert_allclose(ours.coef, theirs.coef, rtol=1e-6)
    assert f"{address}: 2 workers, 2 threads" in said.out
    assert "fit: epoch 0, relative gap" in said.err  # the progress
    assert [line for line in said.out.splitlines() if line.startswith("train")] == [
        line for line in alone.out.splitlines() if line.startswith("train")
    ]


def test_rows_in_memory_are_sent_to_the_workers(address, command):
    ours, _ = coefficients(command, "ours.model", "breast_cancer", "--dask", address)
    theirs, _ = coefficients(command, "theirs.model", "breast_cancer")
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-9)


def test_cross_validation_chooses_lambda_on_the_workers(address, command):
    ours = command("fit", "diabetes", "--cv", 3, "--dask", address)
    theirs = command("fit", "diabetes", "--cv", 3)
    assert ours.code == 0, ours.err
    choices = [next(line for line in said.out.splitlines() if line.startswith("choice")) for said in (ours, theirs)]
    # The folds on the workers have other bounds on their errors.
    assert choices[0].split(" (exact fits")[0] == choices[1].split(" (exact fits")[0]
    assert "Proved: exact fits choose the same value" in choices[0]


def test_ctrl_c_ends_a_cluster_of_this_machine_and_leaves_model_and_checkpoint(tmp_path):
    cases.written(tmp_path / "big", "npz")
    arguments = ["fit", "big", "--dask", "local:1", "--loss", "hinge", "--tol", "1e-12", "--checkpoint", "state"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dualnewton", *arguments, "--out", "some.model"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while process.poll() is None and not (tmp_path / "state").exists():
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        out, err = process.communicate(timeout=120)  # returns when no process has the pipes open
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "the same command continues from the checkpoint" in out
    assert (tmp_path / "state").exists()
    assert SavedModel.load(tmp_path / "some.model").status == ("INTERRUPTED",)
    assert "Traceback" not in err


def test_what_is_in_the_way_is_said_in_words(address, command, tmp_path, monkeypatch):
    cases.written(tmp_path / "text", "svmlight")
    said = refused(command("fit", "text", "--dask", address))
    assert "text/part-0.svm was parsed into an unnamed file" in said
    assert "`dualnewton convert`" in said
    assert "a number of workers >= 1, got 'local:0'" in refused(command("fit", "iris", "--dask", "local:0"))
    monkeypatch.setattr(_cluster, "PATIENCE", 0.3)
    assert "none answers at '127.0.0.1:1'" in refused(command("fit", "iris", "--dask", "127.0.0.1:1"))
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert 'pip install "dualnewton[dask]"' in refused(command("fit", "iris", "--dask", address))
