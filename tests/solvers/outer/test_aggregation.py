"""Aggregation: mean rows bound from below, their dual points are feasible for all examples, the optimum is that of all rows."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.run.result import Status
from dualnewton.solvers.outer import aggregation
from dualnewton.solvers.outer.aggregation import aggregated, expanded
from tables import LOSSES, name_of
from tuned import tuned
from verified import assert_certificate_is_true

SHIFTED = [losses.Quantile(0.3), losses.EpsilonInsensitive(0.4), losses.EpsilonInsensitive(0.0)]
AGGREGATED, WHOLE = tuned(aggregated=1.0, one_block_features=0), tuned(aggregated=np.inf)


def problem_of(loss, n=1500, d=4, seed=0, **more):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + rng.standard_t(3, n)
    return dn.Problem(X, y, loss, **{"lam": 0.01, "fit_intercept": True, **more})


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_losses_that_declare_it_are_functions_of_the_residual(loss):
    z, shift = np.linspace(-3.0, 3.0, 41), 0.7
    y = loss.labels(np.ones(41), 41)
    if loss.columns == 1 and loss.shifts:
        np.testing.assert_allclose(loss.value(z + shift, y + shift), loss.value(z, y), atol=1e-14)


@pytest.mark.parametrize("loss", SHIFTED, ids=name_of)
@pytest.mark.parametrize("weights", [False, True])
def test_any_division_bounds_from_below_and_its_dual_point_is_feasible(loss, weights):
    """Whatever the groups are: the smaller P is at most P, and D of the expanded point is the smaller D."""
    rng = np.random.default_rng(1)
    more = {"sample_weight": rng.integers(0, 3, 1500) * 0.5, "offset": rng.standard_normal(1500)} if weights else {}
    problem = problem_of(loss, **more)
    groups = rng.integers(-1, 3, 1500).astype(np.int8)
    few, numbers = aggregated(problem, groups)
    assert few.n == np.count_nonzero(groups == -1) + len(numbers)
    for _ in range(5):
        w, b = rng.standard_normal(4), rng.standard_normal()
        assert few.n * few.primal(w, b) <= problem.n * problem.primal(w, b) * (1.0 + 1e-12)
    found = dn.solve(few, method="interior", tol=1e-9, tuning=WHOLE)
    alpha = problem.balanced(expanded(groups, numbers, found.alpha))
    assert problem.n * problem.dual(alpha) == pytest.approx(few.n * found.certificate.dual, rel=1e-9)


@pytest.mark.parametrize("loss", SHIFTED, ids=name_of)
@pytest.mark.parametrize("regularizer", [regularizers.L2(), regularizers.L1(), None], ids=["l2", "l1", "none"])
@pytest.mark.parametrize("storage", ["dense", "sparse", "float32"])
def test_the_optimum_is_that_of_all_rows(loss, regularizer, storage):
    problem = problem_of(loss, regularizer=regularizer or regularizers.L2())
    if storage == "sparse":
        problem = replace(problem, X=sp.csr_array(np.where(np.abs(problem.X) > 0.7, problem.X, 0.0)))
    if storage == "float32":
        problem = replace(problem, X=problem.X.astype(np.float32))
    problem = problem if regularizer else Unpenalised.of(problem)
    result = dn.solve(problem, method="interior", tol=1e-8, tuning=AGGREGATED, random_state=0)
    whole = dn.solve(problem, method="interior", tol=1e-8, tuning=WHOLE)
    assert "means of the others" in result.plan.reason
    assert "means of the others" not in whole.plan.reason
    assert result.status is Status.CONVERGED
    assert result.certificate.primal == pytest.approx(whole.certificate.primal, rel=2e-8)
    if regularizer:
        assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("kept", [0.02, 0.2])
def test_margins_that_leave_their_group_are_kept(kept, monkeypatch):
    monkeypatch.setattr(aggregation, "KEPT", kept)
    problem = problem_of(losses.Quantile(0.9), regularizer=regularizers.L1())
    result = dn.solve(problem, tol=1e-9, tuning=AGGREGATED, random_state=0)
    whole = dn.solve(problem, tol=1e-9, tuning=WHOLE)
    assert len(result.trace.rows) > 2
    assert result.certificate.primal == pytest.approx(whole.certificate.primal, rel=1e-8)


def test_models_that_are_solved_together_and_a_warm_start():
    problems = [problem_of(losses.Quantile(0.3), lam=lam, regularizer=regularizers.L1()) for lam in (0.1, 0.01)]
    problems[1] = replace(problems[1], X=problems[0].X)
    results = dn.solve_many(problems, method="interior", tol=1e-8, tuning=AGGREGATED, random_state=0)
    for problem, result in zip(problems, results, strict=True):
        alone = dn.solve(problem, tol=1e-8, tuning=WHOLE)
        assert result.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-8)
    near = dn.solve(
        replace(problems[1], lam=0.0101), tol=1e-8, tuning=AGGREGATED, warm_start=results[1], random_state=0
    )
    assert near.status is Status.CONVERGED
    assert near.n_epochs < results[1].n_epochs
