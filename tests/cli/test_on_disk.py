"""The commands on folders of files, and on files that are read in pieces."""

import json

import numpy as np
import pytest

import disk_cases as cases
from cli.running import refused
from dualnewton.interop.model_file import SavedModel

COLUMNS = {"parquet": ["--weights", "w"]}


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    cases.small_pieces(monkeypatch)


def done(said):
    assert said.code == 0, said.err
    return said.out


@pytest.mark.parametrize("kind", ["npz", "parquet", "svmlight"])
def test_a_folder_is_fitted_evaluated_certified_and_predicted(kind, command, tmp_path):
    folder, columns = tmp_path / "big", COLUMNS.get(kind, [])
    if kind == "npz":
        cases.written_without_offsets(folder)
    else:
        cases.written(folder, kind)
    target = ["--target", "y"] if kind == "parquet" else []
    told = done(command("fit", folder, "--memory", "1G", "--out", "m.model", *columns, *target))
    assert "big: 600 examples" in told
    scores = json.loads(done(command("evaluate", "m.model", folder, "--json")))
    proof = json.loads(done(command("certify", "m.model", folder, "--json", *columns)))
    assert proof["relative_gap"] <= 1e-6
    done(command("predict", "m.model", folder, "--out", "out.npy", "--memory", "64M"))
    assert np.mean(np.load("out.npy") == cases.Y) == pytest.approx(scores["accuracy"], rel=1e-12)


def test_one_file_in_pieces_gives_the_model_of_the_same_file_in_memory(command, tmp_path):
    cases.written_without_offsets(tmp_path)
    file, settings = tmp_path / "part-2.npz", ["--method", "newton", "--tol", "1e-10", "--out"]
    done(command("fit", file, *settings, "one.model"))
    assert "in pieces" in done(command("fit", file, *settings, "other.model", "--memory", "100M"))
    one, other = (SavedModel.load(f"{name}.model") for name in ("one", "other"))
    np.testing.assert_allclose(other.coef, one.coef, rtol=1e-5)
    assert other.certificate.primal == pytest.approx(one.certificate.primal, rel=1e-9)


def test_what_needs_the_rows_in_memory_is_refused(command, tmp_path):
    cases.written(tmp_path, "npy")
    assert "--test-size is for data in memory" in refused(command("fit", tmp_path, "--test-size", "0.2"))
    assert "memory must be a number of bytes" in refused(command("fit", tmp_path, "--memory", "lots"))
    assert "--memory needs a file, a folder or a pattern" in refused(command("fit", "iris", "--memory", "1G"))
