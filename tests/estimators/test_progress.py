"""The progress line: what it says, and where."""

import io
import math
import re

import pytest
from rich.console import Console

import dualnewton as dn
from dualnewton.estimators._progress import ProgressLine, described, seconds_left
from dualnewton.objective.certificate import Certificate
from dualnewton.run.result import Progress
from estimators.cases import data_for


def rows(*gaps):
    """A certificate each second, with the given gaps."""
    return [Progress(float(k), float(k), Certificate(1.0, 1.0 - gap)) for k, gap in enumerate(gaps)]


def test_the_time_left_follows_from_the_slope():
    assert seconds_left(rows(1e-1, 1e-2, 1e-3), 1e-6) == pytest.approx(3.0, rel=1e-6)
    assert seconds_left(rows(1e-1, 1e-3), 2e-3) == 0.0
    assert math.isnan(seconds_left(rows(1e-1), 1e-6))
    assert math.isnan(seconds_left(rows(1e-1, 1e-1), 1e-6))


def test_no_time_is_told_where_two_estimates_disagree():
    assert math.isnan(seconds_left(rows(1e-1, 1e-2), 1e-6))  # two certificates do not tell whether the speed is steady
    assert math.isnan(seconds_left(rows(1e-1, 1e-5, 0.99e-5, 0.98e-5, 0.97e-5), 1e-6))
    assert seconds_left(rows(1e-1, 1e-3, 1e-4), 1e-6) == pytest.approx(2.0)  # the slower of the two


@pytest.mark.parametrize("width", [40, 80])
def test_on_a_terminal_it_is_one_line_at_any_width(width):
    file = io.StringIO()
    line = ProgressLine("LogisticRegression", 1e-9, file)
    line.console = Console(file=file, force_terminal=True, width=width)
    for progress in rows(*(10.0**-k for k in range(6))):
        line(progress)
    line.close()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue()).replace("\r", "\n").splitlines()
    assert all(len(each) <= width for each in shown)
    assert sum("epoch" in each for each in shown) == len([each for each in shown if each.strip()])


def test_a_line_names_epoch_gap_and_time():
    text = described(rows(1e-1, 1e-2, 1e-3), 1e-5)
    assert text == "epoch 2, relative gap 1.00e-03 (tol 1e-05), 2 s, about 2 s left"


def test_elsewhere_than_on_a_terminal_a_long_run_leaves_a_few_lines():
    file = io.StringIO()
    line = ProgressLine("Ridge", 1e-9, file)
    for progress in rows(*(10.0 ** (-k / 100) for k in range(1, 400))):
        line(progress)
    line.close()
    written = file.getvalue().splitlines()
    assert 5 <= len(written) <= 15
    assert written[0].startswith("Ridge: epoch 0")


def test_the_slowest_of_several_models_is_shown():
    file = io.StringIO()
    line = ProgressLine("Ridge", 1e-9, file)
    line(Progress(0.0, 0.0, Certificate(1.0, 0.5), model=0))
    line(Progress(3.0, 9.0, Certificate(1.0, 0.9), model=1))
    assert "5.00e-01" in file.getvalue().splitlines()[-1]


def test_on_a_terminal_one_line_is_rewritten():
    line = ProgressLine("Ridge", 1e-9)
    line.console = Console(file=io.StringIO(), force_terminal=True, width=200)
    for progress in rows(1e-1, 1e-2, 1e-3):
        line(progress)
    line.close()
    assert line.live is None
    assert "1.00e-03" in line.console.file.getvalue()


def test_verbose_shows_it_and_the_callback_is_told_as_well(capsys):
    X, y = data_for(2)
    seen = []
    dn.LogisticRegression(solver="ihs", verbose=1, callback=seen.append).fit(X, y)
    said = capsys.readouterr()
    assert said.err.startswith("LogisticRegression: epoch 0, relative gap")
    assert said.out == ""
    assert len(seen) >= 2
    dn.LogisticRegression().fit(X, y)
    assert capsys.readouterr().err == ""
