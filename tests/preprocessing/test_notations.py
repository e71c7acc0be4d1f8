"""Numbers and dates that people write as text."""

import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dualnewton.errors import DualnewtonError
from dualnewton.io.frames import Frame
from dualnewton.preprocessing import Choices, Encoding, notations, roles_of
from dualnewton.preprocessing.columns import from_dict, to_dict
from dualnewton.preprocessing.roles import Kind


def frame_of(table):
    return Frame(Path("table.parquet"), table)


@pytest.mark.parametrize(
    ("text", "decimal", "value"),
    [
        ("$1,234.50", ".", 1234.5),
        ("-$5", ".", -5.0),
        ("12 €", ",", 12.0),
        ("1.234,50 €", ",", 1234.5),
        ("1 234 567", ".", 1234567.0),
        ("1\u202f234,5", ",", 1234.5),
        ("7%", ".", 7.0),
        ("7,5 %", ",", 7.5),
        ("1e-3", ".", 1e-3),
        ("1,2", ".", np.nan),  # a list, or a decimal comma: not a number with a decimal point
        ("1,23,456", ".", np.nan),
        ("12 34", ".", np.nan),
        ("$", ".", np.nan),
        ("C00012", ".", np.nan),
        ("nan", ".", np.nan),
        ("1_000", ".", np.nan),
    ],
)
def test_numbers(text, decimal, value):
    np.testing.assert_equal(notations.numbers_in([text], decimal), [value])


def test_percentages_beside_other_numbers_are_no_numbers():
    np.testing.assert_equal(notations.numbers_in(["5%", "0.05"], "."), [np.nan, 0.05])


@pytest.mark.parametrize(
    ("texts", "order"),
    [
        (["1/13/2022", "2/3/2022"], notations.MONTH_FIRST),
        (["13/1/2022", "2/3/2022"], notations.DAY_FIRST),
        (["31-12-99 23:59"], notations.DAY_FIRST),
        (["1/2/2022", "12/12/2022"], notations.ISO),
        (["1/13/2022", "13/1/2022"], None),
        (["1/13/2022", "soon"], None),
        ([], None),
    ],
)
def test_one_day_above_twelve_tells_the_order(texts, order):
    assert notations.order_of(texts) == order


def test_days_are_those_of_the_calendar():
    moments = [datetime.datetime(2024, 2, 29, 18, 30), datetime.datetime(1970, 1, 1), datetime.datetime(1999, 12, 31)]
    expected = [(moment - moments[1]) / datetime.timedelta(days=1) for moment in moments]
    np.testing.assert_array_equal(
        notations.days_in(["2/29/2024 6:30 PM", "1/1/1970", "12/31/99"], notations.MONTH_FIRST), expected
    )
    np.testing.assert_array_equal(
        notations.days_in(["29/2/2024 18:30:00", "01-01-1970", "31/12/1999"], notations.DAY_FIRST), expected
    )
    assert np.isnan(notations.days_in(["2/30/2024", "2024"], notations.MONTH_FIRST)).all()


def test_a_new_table_is_read_in_the_order_of_the_fit():
    days = pa.table({"day": ["1/13/2022", "2/3/2022", "3/4/2022"], "price": ["$1.00", "$2,000.00", None]})
    roles = roles_of(days, ("day", "price"), Choices())
    assert [(role.kind, role.order) for role in roles] == [(Kind.DATE, notations.MONTH_FIRST), (Kind.NUMBER, "")]
    fitted = Encoding.fit(frame_of(days), roles, standardise=False)
    columns = tuple(from_dict(to_dict(column)) for column in fitted.columns)
    assert columns == fitted.columns
    new = pa.table({"day": ["3/4/2022"], "price": ["$3.50"]})  # which alone would not tell the order
    X, _ = fitted.matrix(frame_of(new))
    assert X[0, 0] == (datetime.date(2022, 3, 4) - datetime.date(1970, 1, 1)).days
    assert X[0, 1] == 3.5
    with pytest.raises(DualnewtonError, match="must hold dates with the month first, got '13/4/2022'"):
        fitted.matrix(frame_of(pa.table({"day": ["13/4/2022"], "price": ["1"]})))


def test_dates_without_an_order_stay_text_and_say_so():
    unclear = pa.table({"day": [f"{k % 12 + 1}/{k // 12 + 1}/2022" for k in range(60)]})
    (role,) = roles_of(unclear, ("day",), Choices())
    assert role.kind is Kind.IDENTIFIER
    assert "day and month cannot be distinguished" in role.seen
