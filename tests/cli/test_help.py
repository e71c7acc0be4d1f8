"""Every --help is a small lesson: it explains, and its examples work as they stand."""

import bz2
import re
import shlex
import subprocess
import sys

import pytest

from dualnewton.cli._app import COMMANDS, application

OPTIONAL = (
    "target",
    "weights",
    "test",
    "out",
    "checkpoint",
    "lam",
    "name",
    "n_features",
    "dtype",
    "drop",
    "categorical",
    "numeric",
    "test_size",
    "cv",
)
"""What is not there if it is not given."""

HEAVY = ("numba", "sklearn", "pandas", "pyarrow", "matplotlib", "plotly", "scipy.linalg", "scipy.optimize")


def help_of(command, monkeypatch, *words):
    monkeypatch.setenv("COLUMNS", "220")
    monkeypatch.setenv("TERMINAL_WIDTH", "220")
    said = command(*words, "--help")
    assert said.code == 0
    return said.out


def examples_in(text):
    return re.findall(r"^\s*(dualnewton .*?)\s*$", text, flags=re.MULTILINE)


@pytest.fixture
def standins(tmp_path, monkeypatch):
    """Small files under the names of files and sets that a reader of the help has, and we have not."""
    table = "a,b,price,label\n" + "".join(f"{k},{k * k % 7},{k / 3},{k % 2}\n" for k in range(40))
    folder = tmp_path / "sets"
    folder.mkdir()
    for name in ("mushrooms", "a9a"):
        (folder / f"{name}.csv").write_text(table)
    monkeypatch.setenv("DUALNEWTON_DATA", str(folder))
    (tmp_path / "measurements.csv").write_text(table)
    with bz2.open(tmp_path / "train.svm.bz2", "wt") as file:
        file.write("1 1:0.5 3:2\n-1 2:1\n1 3:1\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_work(command, monkeypatch, request, name):
    found = examples_in(help_of(command, monkeypatch, name))
    assert found, f"{name} --help has no example"
    if name in ("convert", "datasets"):
        request.getfixturevalue("standins")
    if name == "warm-up":  # without the kernels that take a minute to compile
        monkeypatch.setattr("dualnewton.run.warm_up.steps", lambda *_: [])
    for line in found:
        said = command(*shlex.split(line)[1:])
        assert said.code == 0, (line, said.err)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_word_has_its_line_and_its_default(name):
    import typer.main

    own = typer.main.get_command(application()).commands[name]
    assert len(own.help.split("For example")[0].split()) > 20
    for word in own.params:
        text = word.help or ""
        assert text.endswith("."), (word.name, text)
        told = word.required or word.default is not None or "default" in text or word.name in OPTIONAL
        assert told, f"{name}: what is {word.name} if it is not given?"


def test_the_commands_are_listed(command, monkeypatch):
    text = help_of(command, monkeypatch)
    for name in COMMANDS:
        assert re.search(rf"│ {name}\s+\S", text)
    assert command().out.split() == command("--help").out.split()


def test_the_version(command):
    import dualnewton

    assert command("--version").out == f"dualnewton {dualnewton.__version__}\n"


@pytest.mark.slow
def test_help_loads_nothing_heavy():
    code = (
        "import sys, scipy.sparse\n"
        f"heavy = [name for name in {HEAVY} if name not in sys.modules]  # scipy before 1.16 itself loads scipy.linalg\n"
        "import dualnewton.cli\n"
        "try:\n    dualnewton.cli.main(['fit', '--help'])\n"
        "except SystemExit:\n    print('loaded', [name for name in heavy if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "loaded []"
