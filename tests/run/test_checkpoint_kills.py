"""Runs are killed as processes, by SIGKILL, at any moment; they leave a whole file or none, and end with the same bits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import checkpoint_killer
from checkpoint_cases import bits

KILLS = 7
"""Of each of eight runs."""

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="processes are forked here, which this system cannot do"
)


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """The folder with what the killed runs have left, and what is told of each."""
    folder, here = tmp_path_factory.mktemp("killed"), Path(__file__).parent
    # One thread, since a fork copies only the one that calls it.
    threads = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    run = subprocess.run(
        [sys.executable, checkpoint_killer.__file__, str(folder), "0", str(KILLS)],
        env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join([str(here), *sys.path])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return folder, {told.pop("run"): told for told in map(json.loads, run.stdout.splitlines())}


def test_at_least_fifty_processes_were_killed_some_of_them_while_they_wrote(killed):
    _, told = killed
    assert set(told) == {case.name for case in checkpoint_killer.RUNS}
    assert sum(run["kills"] for run in told.values()) >= 50
    assert sum(run["while writing"] for run in told.values()) >= 10
    assert sum(run["resumed"] for run in told.values()) >= 25
    assert all(run["failed"] == 0 for run in told.values())


@pytest.mark.parametrize("case", checkpoint_killer.RUNS, ids=lambda case: case.name)
def test_what_was_killed_ends_in_another_process_with_the_same_bits(case, killed):
    folder, _ = killed
    path = folder / f"{case.name}.checkpoint"
    assert path.exists()
    assert bits(case.solve(checkpoint=path)) == bits(case.solve())
