"""Example 2.3: its numbers exactly, and what the three methods do."""

import math

import numpy as np
import pytest

from dualnewton import theory
from dualnewton.lab import example
from dualnewton.lab.progress import Steps


@pytest.fixture(scope="module")
def section():
    with Steps(1.0) as steps:
        return example.run(steps, quick=True)


def test_the_rates_are_the_papers():
    sigma = example.sigmas()
    assert sigma["σ₁"] == pytest.approx(0.33501, abs=5e-6)
    assert sigma["σ₂"] == pytest.approx(1.3332e-4, abs=5e-9)
    assert sigma["σ₃"] == pytest.approx(3.3333e-5, abs=5e-10)


@pytest.mark.parametrize("name", example.PRINTED)
def test_the_matrices_are_the_papers(name):
    np.testing.assert_allclose(example.matrices()[name], example.PRINTED[name], atol=example.DIGITS[name])


def test_the_claims_that_do_not_wait_for_slow_methods_hold(section):
    verdicts = [claim.holds for claim in section.claims]
    assert verdicts == [True, True, None, True]


def test_a_wrong_digit_is_noticed(monkeypatch):
    monkeypatch.setitem(example.RATES, "σ₂", (1.3342e-4, 5e-9))
    assert example.digits_claim().holds is False


def test_method_1_keeps_what_theorem_3_promises():
    one = example.contenders()[0]
    values = one.values(12, seed=1)
    # The mean of 400 runs, whose relative standard deviation after k steps is about (3/2)^(k/2)/20.
    bound = np.exp(np.arange(13) * math.log1p(-one.sigma))
    assert (values <= bound * (1.0 + 4.0 * 1.5 ** (np.arange(13) / 2) / 20.0)).all()
    assert values[12] < 0.05


def test_the_slow_methods_are_as_slow_as_their_rates_say():
    _, second, third = example.contenders()
    ends = [one.values(2000, seed=0)[-1] for one in (second, third)]
    assert 0.5 < ends[0] < ends[1] < 1.0


def test_an_order_that_is_broken_is_noticed():
    small = example.small_rates()
    assert example.order_claim(small).holds
    tau, rates = small[1]
    wrong = theory.Rates(theta=2.0 * rates.sigma1_prox, sigma1_prox=rates.sigma1_prox, sigma1=rates.sigma1, missing={})
    assert example.order_claim([(tau, wrong)]).holds is False


def test_the_records_have_the_columns_they_name(section):
    assert all(len(record) == len(section.columns) for record in section.records)
    assert {record[0] for record in section.records} == {one.name for one in example.contenders()}
