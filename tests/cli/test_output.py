"""Facts and tables fit on narrow terminals, and are one line each where the output is no terminal."""

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from dualnewton.cli import _output
from dualnewton.cli._progress import ProgressBar
from dualnewton.cli._transfer import stage, transfer
from dualnewton.cli.coefficients import Line, show

HEAD = ("column", "kind", "values", "missing", "used")
ROWS = [
    ("customer_id", "identifier", "a different whole number in each of 640 rows", "", "left out"),
    ("income", "number", "3918.43 to 52646.8", 30, "standardised; missing: median 29765.6 and an indicator"),
]
LONG = "the certified relative gap is at most tol, and rounding errors of at most 1.6e-12 are included"


@pytest.fixture(params=[100, 60, 40])
def screen(request, monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=request.param, color_system=None)
    monkeypatch.setattr(_output, "_console", lambda: console)
    return console


def lines_of(console):
    return console.file.getvalue().splitlines()


def test_a_fact_is_wrapped_below_its_value(screen):
    _output.say("status", LONG)
    first, *others = lines_of(screen)
    assert first.startswith("status       the")
    assert others
    assert all(line.startswith(" " * 13 + line.strip()[0]) and len(line) <= screen.width for line in others)
    assert " ".join([first.removeprefix("status").strip(), *map(str.strip, others)]) == LONG


def test_a_paragraph_is_wrapped(screen):
    _output.paragraph(LONG)
    assert all(len(line) <= screen.width for line in lines_of(screen))
    assert " ".join(lines_of(screen)) == LONG


def test_a_table_fits_and_keeps_every_word(screen):
    _output.table(HEAD, ROWS)
    assert all(len(line.rstrip()) <= screen.width for line in lines_of(screen))
    words = " ".join(lines_of(screen)).replace(":", " ").split()
    for row in ROWS:
        assert set(" ".join(map(str, row)).replace(":", " ").split()) <= set(words)


def test_coefficients_keep_their_bars(screen):
    show([Line("monthly charge", "", 0.058, 0.05753), Line("city=city 3", "", -0.0194, -0.01944)], 0.05753)
    assert all(len(line.rstrip()) <= screen.width for line in lines_of(screen))
    bars = [max(line.count("█"), line.count("░")) for line in lines_of(screen)[1:]]
    assert max(bars) == (20 if screen.width >= 60 else 5)
    assert sorted(bars)[-2] in ((7,) if screen.width >= 60 else (2,))


def test_an_address_in_the_last_column_may_be_broken(monkeypatch):
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    monkeypatch.setattr(_output, "_console", lambda: console)
    _output.table(("name", "from"), [("mushrooms", "https://example.org/" + "x" * 80)])
    assert "mushrooms  https" in console.file.getvalue()
    assert all(len(line) <= 60 for line in lines_of(console))


def test_lines_are_not_wrapped_elsewhere(capsys):
    _output.say("status", LONG)
    _output.table(HEAD, ROWS)
    first, _, _, last = capsys.readouterr().out.splitlines()
    assert first == f"status       {LONG}"
    assert last.endswith("standardised; missing: median 29765.6 and an indicator")


@pytest.mark.parametrize("width", [80, 60, 40])
def test_the_progress_of_reading_takes_one_line(width, monkeypatch):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr("rich.console.Console", lambda **_: console)
    with transfer("reading customers-of-a-long-name.csv") as tell:
        tell(10_000_000, 44_000_000)
    with stage("choosing lambda by 5-fold cross-validation"):
        pass
    assert "10.0/44.0 MB" in out.getvalue()
    assert (
        out.getvalue().count("\x1b[1A") <= 2
    )  # the cursor goes up once at the end of each display, and never within one


@pytest.mark.parametrize(("width", "bar"), [(80, True), (40, False)])
def test_a_narrow_screen_shows_the_gap_instead_of_a_bar(width, bar, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("rich.console.Console", lambda **_: Console(file=out, force_terminal=True, width=width))
    line = ProgressBar("fit", 1e-6)
    line.begin()
    line.close()
    assert ("─" in out.getvalue()) is bar
    assert "fit: starting" in out.getvalue()


def test_characters_that_the_output_cannot_encode_are_escaped(tmp_path):
    # Standard output is ASCII in the locale C, and cp1252 if it is redirected on Windows, which lacks Greek letters.
    place = tmp_path / "data.csv"
    place.write_text(
        "größe,y\n" + "".join(f"{k % 7},{'τέλος' if k % 2 else 'b'}\n" for k in range(20)), encoding="utf-8"
    )
    run = [sys.executable, "-m", "dualnewton", "fit", place, "--target", "y"]
    said = subprocess.run(run, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert r"\u03c4\u03ad\u03bb\u03bf\u03c2" in said.stdout
