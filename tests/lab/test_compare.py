"""Contenders solve the same problem, nobody is believed, and who fails is a row that says so."""

import itertools
import math
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dualnewton import Problem, losses, solve
from dualnewton.interop.specification import Specification
from dualnewton.io import load
from dualnewton.lab import child, compare, contenders
from dualnewton.lab.compare import Row
from dualnewton.lab.contenders import Attempt, Match, Ours, Theirs, attempts_at
from dualnewton.lab.peers import Fitted, Peer
from dualnewton.planning.planner import METHODS


@pytest.fixture(scope="module")
def problem():
    dataset = load("dense:300x20")
    return Problem(dataset.X, dataset.y, losses.Logistic(), lam=1.0 / 300)


LOGISTIC = Specification("logistic", 1.0 / 300, fit_intercept=False)
"""The same in words."""


@pytest.fixture(scope="module")
def match(problem):
    return Match(problem, LOGISTIC, solve(problem, tol=1e-10, random_state=0).alpha, 1e-6)


def test_the_judge_proves_the_suboptimality(problem, match):
    best = solve(problem, tol=1e-12, random_state=0)
    for scale in (0.0, 0.9, 1.0):
        w = scale * best.w
        true = (problem.primal(w) - best.certificate.primal) / problem.primal(w)
        assert true <= match.suboptimality(w) + 1e-12
        assert match.suboptimality(w) <= true + 1e-6


@pytest.mark.parametrize("method", METHODS[:-1])  # interior needs kinks
def test_our_methods_reach_the_goal(match, method):
    attempts = list(Ours(match, method).work())
    assert attempts[-1].suboptimality <= match.goal
    assert all(one.seconds > 0.0 for one in attempts)


@pytest.mark.parametrize("name", ["lbfgs", "newton-cholesky", "liblinear dual"])
def test_peers_reach_the_goal_on_our_problem(match, name):
    attempts = list(Theirs(match, name).work())
    assert attempts[-1].suboptimality <= match.goal


def test_the_hinge_of_liblinear_is_ours():
    dataset = load("dense:200x5")
    problem = Problem(dataset.X, dataset.y, losses.Hinge(), lam=1.0 / 200)
    match = Match(
        problem,
        Specification("hinge", 1.0 / 200, fit_intercept=False),
        solve(problem, tol=1e-8, random_state=0).alpha,
        1e-4,
    )
    assert list(Theirs(match, "liblinear dual").work())[-1].suboptimality <= 1e-4


def test_a_contender_that_gets_no_better_is_ended(match):
    tried = []
    attempts = list(
        attempts_at(match, lambda tol: (tried.append(tol), Fitted(np.zeros(20), 0.0, 1.0))[1], contenders.LADDER)
    )
    assert len(attempts) == contenders.STALLED + 1
    assert {one.suboptimality for one in attempts} == {match.suboptimality(np.zeros(20))}


def test_a_model_that_is_not_finite_is_worth_nothing(match):
    attempts = list(attempts_at(match, lambda _tol: Fitted(np.full(20, np.nan), 0.0, 1.0), contenders.LADDER[:2]))
    assert [one.suboptimality for one in attempts] == [math.inf] * 2


def test_a_warm_up_has_both_labels(match):
    assert set(match.warm_up_task().problem.y) == {-1.0, 1.0}


# Children --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """What a child may do wrong."""

    how: str

    def prepare(self):
        pass

    def work(self):
        yield 1
        if self.how == "raises":
            raise RuntimeError("no\nluck")
        if self.how == "hangs":
            time.sleep(600.0)
        yield 2


@pytest.mark.parametrize(
    ("how", "expected"),
    [("ends", [1, 2, child.DONE]), ("raises", [1, "RuntimeError: no luck"]), ("hangs", [1, child.CUT])],
)
def test_how_a_child_ends(how, expected):
    assert list(child.values_of(Job(how), 1.0, 1)) == expected


def test_a_contender_can_be_sent_to_a_process_that_was_not_forked(match):
    values = list(child.values_of(Ours(match, "newton"), 30.0, 1, start="spawn"))
    assert values[-1] == child.DONE
    assert values[-2].suboptimality <= match.goal


# The whole -------------------------------------------------------------------------------------------------------------


def test_a_comparison_has_a_row_for_everyone(problem, monkeypatch):
    def broken(_task):
        raise RuntimeError("it is broken")

    peers = [
        *(peer for peer in contenders.ALL_PEERS["logistic"] if peer.name == "lbfgs"),
        Peer("absent", "no_such_package", broken),
        Peer("broken", "sklearn", broken),
        Peer("choosy", "sklearn", broken, refuses=lambda _X: "too wide"),
    ]
    monkeypatch.setitem(contenders.ALL_PEERS, "logistic", peers)
    report, rows = compare.compare(problem, LOGISTIC, "data", methods="auto,newton", time_limit=20.0, command="again")
    remarks = {row.name: row.ending for row in rows}
    assert remarks == {
        "dualnewton auto": "",
        "dualnewton newton": "",
        "lbfgs": "",
        "absent": "not installed",
        "broken": "RuntimeError: it is broken",
        "choosy": "too wide",
    }
    assert {row.name for row in rows[:3]} == {"dualnewton auto", "dualnewton newton", "lbfgs"}
    (table,) = report.sections[0].tables
    assert len(table.rows) == 6
    assert [len(panel.curves) for panel in report.sections[0].charts[0].panels] == [3, 3]
    assert [entry["solver"] for entry in compare.as_json(rows)] == [row.name for row in rows]


def test_times_are_those_of_models_that_are_proved():
    row = Row("a", "b", [Attempt(0.1, 1.0, 1.0, 1e-3), Attempt(0.01, 3.0, 2.0, 1e-5), Attempt(0.001, 2.0, 2.0, 1e-5)])
    assert [row.time_to(level) for level in compare.LEVELS] == [1.0, 2.0, math.inf]
    assert compare._line(row)[2:6] == ["1 s", "2 s", "–", "1.0e-05"]


def test_what_is_refused(problem):
    with pytest.raises(ValueError, match="all, none or some of auto, sdna, sdca, newton, ihs, interior, got 'lbfgs'"):
        compare.compare(problem, LOGISTIC, "data", methods="lbfgs")
    with pytest.raises(ValueError, match="no solver takes part"):
        compare.compare(problem, LOGISTIC, "data", methods="none", peers="none")
    bounded = replace(LOGISTIC, penalty="nonnegative")
    with pytest.raises(ValueError, match="--penalty must be one of l2, l1, elasticnet here, got 'nonnegative'"):
        compare.compare(problem, bounded, "data")


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("penalty", contenders.RATIOS)
@pytest.mark.parametrize("loss", contenders.ALL_PEERS)
def test_who_takes_part_solves_the_problem_with_this_penalty_and_intercept(loss, penalty, fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5)) + 0.5
    z = X[:, 0] + 0.5 * rng.standard_normal(60)
    number = loss in ("squared", "poisson", "gamma")
    y = np.exp(z) if loss in ("poisson", "gamma") else z if number else np.sign(z - np.median(z))
    words = Specification(loss, 0.1, penalty, fit_intercept=fit_intercept)
    labels, classes = (y, None) if number else ((y > 0).astype(int), np.array([0, 1]))
    (problem,) = words.problems(X, labels, classes)
    match = Match(problem, words, solve(problem, tol=1e-9, random_state=0).alpha, 1e-4)
    able = [peer for peer in contenders.ALL_PEERS[loss] if not match.excuse(peer)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other libraries
        for peer in able:
            w, b, _ = Theirs(match, peer.name).attempts(match)(1e-8)
            assert match.suboptimality(w, b) <= 1e-5, peer.name
    assert able or loss not in ("logistic", "squared")  # scikit-learn solves these with every penalty


def test_the_names_of_peers_are_told_apart():
    for table in contenders.ALL_PEERS.values():
        assert all(a.name != b.name for a, b in itertools.combinations(table, 2))
