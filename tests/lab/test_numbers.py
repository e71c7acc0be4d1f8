"""Numbers as people write them."""

import math

import pytest

from dualnewton.lab._numbers import count, gap, seconds


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (8.0, "8"),
        (21.23, "21.2"),
        (60789.4, "60789"),
        (3e7 + 0.5, "3e+07"),
        (0.1234, "0.123"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_counts(value, shown):
    assert count(value) == shown


def test_what_was_not_reached():
    assert count(math.inf) == "not reached"
    assert count(math.inf, 2000.0) == "> 2000"


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0123, "12.3 ms"), (0.9999, "1 s"), (12.34, "12.3 s"), (math.inf, "–"), (None, "–")]
)
def test_times(value, shown):
    assert seconds(value) == shown


def test_gaps():
    assert (gap(1.234e-5), gap(math.inf), gap(None)) == ("1.2e-05", "–", "–")
