"""Numbers in text are those that float finds, to the last bit."""

import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualnewton.kernels import decimals


def read(text):
    """The bits, the end and the outcome of a number in text."""
    return decimals.number(np.frombuffer(text.encode() + b"\n", dtype=np.uint8), 0)


def bits(number):
    return struct.unpack("<Q", struct.pack("<d", number))[0]


def agrees(text):
    found = read(text)
    assert found.end == len(text)
    assert found.outcome in (decimals.EXACT, decimals.HARD)
    if found.outcome == decimals.EXACT:
        assert int(found.bits) == bits(float(text)), text
    return found.outcome == decimals.EXACT


PLAIN = ["0", "-0", "+0.0", "1", "-1", "+7", "1.", ".5", "-.5e1", "1e5", "1E+5", "1e-5", "0.1", "0.3", "1e22", "1e23"]
ZEROS = ["00001.50", "1e0000", "0e999", "0.000", "1000000000000000000000000"]
LONG = ["0.1000000000000000055511151231257827", "3.141592653589793115997963468544185161590576171875"]
EDGES = ["9007199254740993", "9007199254740992.5", "2.2250738585072014e-308", "1.7976931348623157e308"]


@pytest.mark.parametrize("text", [*PLAIN, *ZEROS, *LONG, *EDGES])
def test_numbers_of_all_kinds_are_exact(text):
    assert agrees(text)


@pytest.mark.parametrize("text", ["", "-", ".", "e5", "1e", "1e+", "nan", "inf", "x"])
def test_what_is_no_number_is_none(text):
    found = read(text)
    assert found.outcome == decimals.NONE or found.end < len(text)


@pytest.mark.parametrize("text", ["1e400", "1e-400", "5e-324", "2e-310"])
def test_what_lies_beyond_normal_numbers_is_left_to_float(text):
    assert not agrees(text)


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(["r", ".15g", ".16e", ".17g", ".20e", ".3f"]))
@settings(max_examples=1000)
def test_every_double_comes_back(number, style):
    agrees(repr(number) if style == "r" else format(number, style))


@given(st.integers(0, 10**25), st.integers(-330, 290))
@settings(max_examples=1000)
def test_every_decimal_is_rounded_as_float_does(digits, power):
    agrees(f"{digits}e{power}")


@given(st.integers(2**52, 2**53 - 1), st.integers(-60, 60), st.integers(-1, 1))
@settings(max_examples=500)
def test_numbers_halfway_between_two_doubles_and_their_neighbours(mantissa, power, nudge):
    half = Fraction(2 * mantissa + 1) * Fraction(2) ** power
    scale = max(0, -power)  # so many decimals write it exactly
    agrees(f"{int(half * 10**scale) * 1000 + nudge}e-{scale + 3}")


def test_few_of_common_numbers_are_left_to_float():
    rng = np.random.default_rng(0)
    texts = [
        style % number for number in rng.standard_normal(500).tolist() for style in ("%.6g", "%.17g", "%r", "%.25f")
    ]
    assert sum(not agrees(text) for text in texts) <= 2
