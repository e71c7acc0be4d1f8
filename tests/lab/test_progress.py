"""The live line: what runs, its epoch and gap, the time left; plain lines where there is no terminal."""

import io

import pytest

from dualnewton.lab import progress
from dualnewton.lab.progress import Steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_plain_lines_come_each_time_the_run_has_taken_twice_as_long(clock):
    out = io.StringIO()
    with Steps(4.0, out) as steps:
        tell = steps.begin("first", goal=1e-4)
        for k in range(1, 9):
            clock[0] = float(k)
            tell(float(k), 10.0**-k)
        steps.begin("second")
    lines = out.getvalue().splitlines()
    assert [line.split(", ")[1] for line in lines] == ["epoch 1", "epoch 2", "epoch 4", "epoch 8"]
    # The gap has gone from 1e-1 to the goal 1e-4: a step of four is done after 8 s.
    assert lines[-1] == "first, epoch 8, gap 1.0e-08, 8 s, about 24 s left"


def test_steps_add_up(clock):
    out = io.StringIO()
    with Steps(10.0, out) as steps:
        steps.begin("heavy", weight=8.0)
        clock[0] = 40.0
        steps.begin("light", weight=2.0)
    assert out.getvalue() == "light, 40 s, about 10 s left\n"


@pytest.mark.parametrize(
    ("first", "now", "goal", "share"),
    [
        (1.0, 1e-2, 1e-4, 0.5),
        (1.0, 1e-6, 1e-4, 1.0),
        (1.0, 2.0, 1e-4, 0.0),
        (1.0, 0.5, 0.0, 0.0),
        (1e-5, 1e-6, 1e-4, 0.0),
    ],
)
def test_the_part_of_the_way(first, now, goal, share):
    assert progress._fraction(first, now, goal) == pytest.approx(share)
