"""Several small models with kinks take their interior-point steps together, and each is as good as alone."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.planning.small import small_plan
from dualnewton.solvers.direct import several_kinks
from dualnewton.solvers.direct.block import Block, Limits
from dualnewton.solvers.direct.kinks import solve as alone
from dualnewton.solvers.primal import interior_search, step_systems
from tuned import tuned

LOSSES = [losses.Hinge(), losses.EpsilonInsensitive(0.3), losses.Quantile(0.2)]


def problems_for(loss, n=120, d=6, K=4, *, fit_intercept=True, lam_n=0.3):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)) * np.geomspace(0.1, 3.0, d)
    scores = X @ rng.standard_normal((d, K)) + rng.standard_normal((n, K))
    kind = isinstance(loss, losses.Hinge)
    Y = np.where(scores.argmax(axis=1)[:, None] == np.arange(K), 1.0, -1.0) if kind else scores
    first = dn.Problem(X, Y[:, 0], loss, lam=lam_n / n, fit_intercept=fit_intercept)
    return [replace(first, y=Y[:, k], X=first.data) for k in range(K)]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("tol", [1e-4, 1e-9])
def test_each_model_is_as_good_as_alone(loss, fit_intercept, tol):
    problems = problems_for(loss, fit_intercept=fit_intercept)
    problems[1] = replace(problems[1], lam=30.0 * problems[1].lam)
    for problem, result in zip(problems, dn.solve_many(problems, tol=tol), strict=True):
        assert result.plan.together
        assert result.certificate.relative_gap <= tol
        other = dn.solve(problem, tol=1e-11)
        gap = result.certificate.gap + other.certificate.gap + 1e-14  # rounding
        assert abs(result.certificate.primal - other.certificate.primal) <= gap
        assert np.linalg.norm(result.w - other.w) <= 2.0 * np.sqrt(2.0 * gap / problem.lam)


def test_the_steps_of_all_models_are_few(monkeypatch):
    """The number of steps is that of the slowest model and a few more, not the sum over the models."""
    problems, calls, own = problems_for(losses.Hinge(), K=6), [], interior_search.step

    def counted(*args, **options):
        calls.append(1)
        return own(*args, **options)

    monkeypatch.setattr(interior_search, "step", counted)
    dn.solve_many(problems, tol=1e-4)
    together = len(calls)
    steps = []
    for problem in problems:
        calls.clear()
        dn.solve(problem, tol=1e-4)
        steps.append(len(calls))
    assert together <= max(steps) + 5
    assert together < 0.5 * sum(steps)


@pytest.mark.parametrize("joined", [0, 15], ids=["blocks", "joined"])
def test_a_step_is_that_of_each_model(joined, monkeypatch):
    """The system of all models has one block for each of them; small blocks are factorised as one matrix."""
    factorised = []
    monkeypatch.setattr(several_kinks, "cholesky", lambda H: factorised.append(len(H)) or step_systems.cholesky(H))
    rng = np.random.default_rng(0)
    A, ridges = rng.standard_normal((20, 5)), rng.uniform(0.1, 2.0, (3, 5))
    weights, mass, imbalance = rng.uniform(0.1, 9.0, (3, 20)), rng.standard_normal((3, 20)), rng.standard_normal((3, 5))
    models = several_kinks.Models(np.ascontiguousarray(A.T), 5, ridges, joined, alike=False)
    assert models.factorise(weights.ravel())
    assert factorised == ([15] if joined else [5, 5, 5])
    dx, dz = models.direction(imbalance.ravel(), mass.ravel())
    for k in range(3):
        one = step_systems.Rows.of(A, 5, ridges[k])
        assert one.factorise(weights[k])
        for mine, other in zip((dx, dz), one.direction(imbalance[k], mass[k]), strict=True):
            np.testing.assert_allclose(mine.reshape(3, -1)[k], other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("alike", [False, True])
def test_models_of_one_penalty_share_the_matrix_of_their_least_squares_fits(alike):
    rng = np.random.default_rng(1)
    A, targets, c = rng.standard_normal((20, 5)), rng.standard_normal((3, 20)), np.ones(20)
    ridges = np.tile(rng.uniform(0.1, 2.0, 5), (3, 1)) if alike else rng.uniform(0.1, 2.0, (3, 5))
    models = several_kinks.Models(np.ascontiguousarray(A.T), 5, ridges, 15, alike)
    found = models.fitted(targets.ravel(), np.ones(60), 0.7, single=False).reshape(3, 5)
    for ridge, own, target in zip(ridges, found, targets, strict=True):
        one = step_systems.Rows.of(A, 5, ridge).fitted(target, c, 0.7, single=False)
        np.testing.assert_allclose(own, one, rtol=1e-11)
        np.testing.assert_allclose((A.T @ A / 0.7 + np.diag(ridge)) @ own, A.T @ target / 0.7, rtol=1e-10)


def test_models_that_differ_in_more_are_solved_alone():
    problems = problems_for(losses.Hinge())
    problems[2] = replace(problems[2], sample_weight=np.linspace(0.0, 2.0, problems[2].n))
    block, limits = Block(problems[0].data), Limits(1e-6)
    found = several_kinks.solve(problems, block, [None] * 4, limits, alone=alone)
    for problem, each in zip(problems, found, strict=True):
        np.testing.assert_array_equal(each.w, alone(problem, Block(problem.data), None, limits).w)


def test_what_is_batched():
    (problem, *_) = problems_for(losses.Hinge())
    assert small_plan(problem, "auto", "auto", 3).together
    assert not small_plan(problem, "auto", "auto", 1).together
    assert not small_plan(problem, "auto", "auto", 3, tuned(kinks_together=1, direct_entries=1 << 20)).together
