"""The examples run as they stand, say what was proved, and write nothing but where they are told to."""

import os
import runpy
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
def test_an_example_runs(script, tmp_path, monkeypatch, capsys):
    """In this process, since to import the libraries takes longer than most of them; the last test starts one of its own."""
    arguments, figure = FIGURES.get(script.name, ([], None))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")
    assert "relative gap" in capsys.readouterr().out
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == ({figure} if figure else set())
    assert all((tmp_path / name).stat().st_size > 10_000 for name in drawn)


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
