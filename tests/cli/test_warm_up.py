"""``dualnewton warm-up``: what it compiles is found by the next process, and a folder that cannot be written is an error."""

import json

import numba
import numpy as np
import pytest

from cli.running import refused
from dualnewton.kernels import _compiler, passes
from dualnewton.kernels.models import Kernel
from dualnewton.run import warm_up


@pytest.fixture
def one_kernel(monkeypatch):
    """The command compiles one kernel only, as a process that has loaded none would."""

    def prepare():
        rows = np.eye(2), np.empty(0, np.uint64), np.empty(0, np.int64)
        Kernel(passes._row_scores).prepare(*rows, np.array([0, 2]), np.zeros(1, np.int64), np.ones(2), np.ones(2))

    seen = []

    def steps(*chosen):
        seen.append(chosen)
        return [warm_up.Step("row scores", prepare)]

    monkeypatch.setattr(warm_up, "steps", steps)
    return seen


def facts(command, monkeypatch, *options):
    monkeypatch.setattr(_compiler, "SO_FAR", _compiler.SoFar())
    said = command("warm-up", "--json", *options)
    assert (said.code, said.err) == (0, "")
    return json.loads(said.out)


def test_kernels_are_compiled_once_into_the_folder_that_was_asked_for(command, monkeypatch, tmp_path, one_kernel):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kernels"))
    first = facts(command, monkeypatch)
    assert (first["compiled"], first["loaded"]) == (1, 0)
    assert first["cache"].startswith(str(tmp_path / "kernels"))
    assert [*(tmp_path / "kernels").rglob("*_row_scores*.nbc")]
    second = facts(command, monkeypatch, "--storage", "csr", "--dtype", "float32")
    assert (second["compiled"], second["loaded"]) == (0, 1)
    assert one_kernel == [(warm_up.STORAGES, warm_up.DTYPES), (("csr",), ("float32",))]


def test_a_folder_that_cannot_be_written_is_an_error(command, monkeypatch, tmp_path, one_kernel):
    (tmp_path / "file").touch()
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "file" / "kernels"))
    said = refused(command("warm-up"))
    assert f"NUMBA_CACHE_DIR={tmp_path / 'file' / 'kernels'} cannot be written" in said
    assert not one_kernel


def test_unknown_storages_are_named(command):
    assert "--storage takes dense and csr, separated by a comma, got 'csc'" in refused(
        command("warm-up", "--storage", "csc")
    )
