"""Section 7 on small data: what is a theorem or robust holds there, and a wrong measurement is noticed."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from dualnewton.io import DataError
from dualnewton.lab import claims, figure1, figure2, figure3, sets
from dualnewton.lab import reproduce as whole
from dualnewton.lab.figures import ORDERS, runs_of, runs_of_method
from dualnewton.lab.progress import Steps
from dualnewton.lab.sets import SYNTHETIC, posed
from dualnewton.lab.watched import NICE, Watched


@pytest.fixture(autouse=True)
def no_mushrooms(monkeypatch):
    """The tests run where the set is not to be had."""

    def absent():
        raise DataError("put mushrooms there")

    monkeypatch.setitem(sets.SETS, "mushrooms", (absent, absent))


@pytest.fixture(scope="module")
def synthetic():
    dataset = sets.SETS[SYNTHETIC][True]()
    return sets.Posed(SYNTHETIC, sets.Problem(dataset.X, dataset.y, sets.LOSSES["squared"], lam=1.0 / len(dataset.y)))


def ended_by_epochs(grid):
    """The same runs without a time limit, so that a loaded machine does not cut them short."""
    return replace(grid, limits=replace(grid.limits, seconds=math.inf))


@pytest.fixture(scope="module")
def runs(synthetic):
    with Steps(total=5.0) as steps:  # the progress bar counts five runs
        return runs_of(ended_by_epochs(figure1.QUICK), synthetic, NICE, steps, "test", 0)


def test_sdna_needs_fewer_epochs_with_larger_sets_and_sdca_more(synthetic, runs):
    assert claims.fewer_epochs(synthetic, runs_of_method("sdna", runs), 1e-5).holds
    assert claims.more_epochs(synthetic, runs_of_method("sdca", runs), 1e-5).holds


def test_the_claims_turned_round_do_not_hold(synthetic, runs):
    assert not claims.fewer_epochs(synthetic, runs_of_method("sdca", runs), 1e-5).holds
    assert not claims.more_epochs(synthetic, runs_of_method("sdna", runs), 1e-5).holds


def test_the_methods_coincide_for_single_examples(synthetic):
    assert claims.coincide(synthetic, 200, 0).holds


def test_one_that_moves_otherwise_is_noticed(synthetic, monkeypatch):
    class Short(claims.METHODS["sdca"]):
        def round(self, S):
            before = self.alpha.copy()
            super().round(S)
            self.start_from(before + 0.999 * (self.alpha - before))

    monkeypatch.setitem(claims.METHODS, "sdca", Short)
    assert claims.coincide(synthetic, 50, 0).holds is False


def seen(tau, epochs, level=1e-5):
    """A run that reached the level after so many epochs."""
    return Watched(
        "sdna", NICE, tau, None, np.array([0.0, epochs]), np.array([0.0, 1.0]), np.ones(2), np.array([1.0, level])
    )


@pytest.mark.parametrize(
    ("epochs", "fewer", "more"),
    [([9, 5, 3], True, False), ([9, 10, 3], False, False), ([3, 5, 9], False, True), ([4, 4, 4], False, False)],
)
def test_the_verdict_on_epochs(synthetic, epochs, fewer, more):
    some = [seen(tau, count) for tau, count in zip((1, 8, 32), epochs, strict=True)]
    assert claims.fewer_epochs(synthetic, some, 1e-5).holds is fewer
    assert claims.more_epochs(synthetic, some, 1e-5).holds is more


def test_what_was_not_reached_is_not_measured(synthetic):
    some = [seen(1, 9, level=1.0), seen(8, 9, level=1.0)]
    assert claims.fewer_epochs(synthetic, some, 1e-5).holds is None
    assert claims.more_epochs(synthetic, some, 1e-5).holds is None


@pytest.mark.parametrize(
    ("times", "inside"),
    [({1: 3.0, 4: 1.0, 16: 2.0}, True), ({1: 1.0, 4: 2.0, 16: 3.0}, False), ({1: 3.0, 4: 2.0, 16: 1.0}, False)],
)
def test_the_verdict_on_an_interior_best(times, inside):
    some = SimpleNamespace(name="data", problem=SimpleNamespace(d=100))
    claim = claims.interior(some, "rounds", dict.fromkeys(times, 10.0), times)
    assert claim.holds is inside
    assert bool(claim.reason) is not inside


def test_no_best_without_times():
    some = SimpleNamespace(name="data", problem=SimpleNamespace(d=100))
    assert claims.interior(some, "rounds", {1: math.inf}, {1: math.inf}).holds is None


def test_the_verdict_on_costs():
    some = SimpleNamespace(name="data")
    growing, flat = {1: 1.0, 8: 3.0, 64: 20.0}, {1: 1.0, 8: 1.5, 64: 1.6}
    assert claims.cost_grows(some, growing).holds
    assert not claims.cost_grows(some, flat).holds
    assert claims.cost_hardly_grows(some, flat).holds
    assert not claims.cost_hardly_grows(some, growing).holds


def test_all_of_it_in_a_quick_look(monkeypatch):
    for figure in (figure1, figure2, figure3):
        monkeypatch.setattr(figure, "QUICK", ended_by_epochs(figure.QUICK))
    report = whole.reproduce("all", quick=True)
    assert [section.name for section in report.sections] == list(whole.PARTS)
    assert report.notes[0].startswith(
        "The mushrooms data are missing, so that no figure shows them: put mushrooms there"
    )
    for section in report.sections:
        assert section.records
        assert all(len(record) == len(section.columns) for record in section.records)
        assert all(len(row) == len(table.columns) for table in section.tables for row in table.rows)
    for section in report.sections[1:]:
        (chart,) = section.charts
        assert not {"Upper", "lower row", "left", "right panel"} & set(
            chart.caption.split()
        )  # of whichever panels there are
        assert "row:" not in chart.caption
        assert [len(row) for row in chart.rows] == [1] * len(ORDERS)
    by_name = {claim.statement: claim.holds for claim in report.claims}
    assert by_name["As τ grows, SDCA needs more epochs"]
    assert by_name["SDNA and SDCA coincide for τ = 1"]


def test_the_words_that_are_not_known_are_refused():
    with pytest.raises(ValueError, match="example, figure1, figure2, figure3, all, got 'figure4'"):
        whole.reproduce("figure4")
    with pytest.raises(ValueError, match="squared, logistic here, got 'hinge'"):
        posed("hinge")
