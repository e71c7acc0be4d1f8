"""The table of rates: the theory's own numbers, and runs that keep its promises."""

import csv

import pytest

from dualnewton import Problem, losses, samplings, theory
from dualnewton.io import load
from dualnewton.lab import forecast
from dualnewton.lab.watched import Limits


@pytest.fixture(scope="module")
def problem():
    dataset = load("dense:120x10")
    return Problem(dataset.X, dataset.y, losses.Logistic(), lam=1.0 / 120)


@pytest.fixture(scope="module")
def rows(problem):
    return forecast.forecast(problem, [1, 16], Limits(1e-4, 300, 20.0))


def test_rates_and_bounds_are_those_of_the_theory(problem, rows):
    for row in rows:
        bound = theory.epochs_to(problem, samplings.Nice(120, row.tau), 1e-4)
        assert (row.theta, row.sigma1_prox) == (bound.rates.theta, bound.rates.sigma1_prox)
        assert (row.sdna_bound, row.sdca_bound) == (bound.sdna, bound.sdca)
        assert row.theta <= row.sigma1_prox * (1.0 + 1e-12)


def test_the_runs_keep_the_promise(rows):
    # The theorems bound the mean; these data are far kinder than the bound.
    for row in rows:
        assert row.sdna_epochs <= row.sdna_bound
        assert row.sdca_epochs <= row.sdca_bound
    assert rows[0].sdna_epochs == rows[0].sdca_epochs


def test_a_run_that_ends_early_has_no_epochs(problem):
    (row,) = forecast.forecast(problem, [1], Limits(1e-4, 1, 20.0))
    assert row.sdna_epochs is row.sdca_epochs is None
    assert forecast.table([row], 1e-4).rows[0][-1] == "not reached"


def test_quadratic_losses_have_sigma_1():
    dataset = load("dense:12x6")
    problem = Problem(dataset.X, dataset.y, losses.Squared(), lam=1.0 / 12)
    rows = forecast.forecast(problem, [2], Limits(1e-2, 200, 20.0))
    assert rows[0].sigma1_prox <= rows[0].sigma1
    assert "σ₁" in forecast.table(rows, 1e-2).columns


def test_the_file_has_the_numbers(rows, tmp_path):
    forecast.write(rows, str(tmp_path / "rates.csv"))
    with open(tmp_path / "rates.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [float(row["theta"]) for row in found] == [row.theta for row in rows]
    assert found[0]["sigma1"] == ""


def test_the_list_of_sizes():
    assert forecast.taus_of("1, 8,8,32", 100) == [1, 8, 32]
    with pytest.raises(ValueError, match=r"--tau must be whole numbers with commas .* got '1;2'"):
        forecast.taus_of("1;2", 100)
    with pytest.raises(ValueError, match=r"--tau must be an integer in \[1, 100\], got 101"):
        forecast.taus_of("101", 100)
