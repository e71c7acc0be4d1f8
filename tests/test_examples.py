"""The examples run as they stand, say what was proved, and write nothing but where they are told to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
FIGURES = {
    "demo.py": ([], "demo_gap.png"),
    "certified_choice.py": (["."], "choice.png"),
    "path_plot.py": (["."], "lasso_path.png"),
    "quantiles.py": (["."], "quantiles.png"),
}
"""What an example is told, and what it draws in the folder that it runs in."""


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_an_example_runs(script, tmp_path):
    arguments, figure = FIGURES.get(script.name, ([], None))
    caches = tmp_path / "caches"
    caches.mkdir()
    folder = tmp_path / "here"
    folder.mkdir()
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script), *arguments],
        cwd=folder,
        env=os.environ | {"MPLCONFIGDIR": str(caches)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "relative gap" in run.stdout
    drawn = {path.name for path in folder.iterdir()}
    assert drawn == ({figure} if figure else set())
    assert all((folder / name).stat().st_size > 10_000 for name in drawn)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_an_example_is_short(script):
    _, _, program = script.read_text(encoding="utf-8").partition(
        '\n"""\n'
    )  # without the title and the text of the gallery
    assert 0 < len(program.splitlines()) < 60


def test_without_matplotlib_the_path_is_printed(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
    (script,) = [script for script in EXAMPLES if script.name == "path_plot.py"]
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "relative gap" in run.stdout
    assert "The figure needs matplotlib" in run.stdout
    assert not (tmp_path / "lasso_path.png").exists()
