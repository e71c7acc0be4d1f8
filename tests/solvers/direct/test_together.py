"""Small models that take their steps at once end where each would end alone."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import lapack
from scipy.linalg.lapack import dpotrf

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.small import small_plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run import loop
from dualnewton.solvers.direct import newton, squares, together
from dualnewton.solvers.direct.block import MOST_STEPS, Block, Limits

N, D, K = 90, 6, 3
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) * np.geomspace(0.05, 5.0, D)
SCORES = X @ RNG.standard_normal((D, K)) + RNG.standard_normal((N, K))
SIGNS = np.where(SCORES > 0.4, 1.0, -1.0)
WEIGHTS = RNG.uniform(0.0, 2.0, N) * (RNG.random(N) < 0.9)
OFFSET = RNG.standard_normal(N)

LOSSES = [
    (losses.Squared(), SCORES),
    (losses.Logistic(), SIGNS),
    (losses.SquaredHinge(), SIGNS),
    (losses.Huber(0.5), SCORES),
    (losses.SquaredEpsilonInsensitive(0.2), SCORES),
]


def problems_of(loss, targets, **more):
    """Models that differ by their labels and by λ."""
    return [dn.Problem(X, y, loss, lam=lam, **more) for y, lam in zip(targets.T, (1.0, 1e-2, 1e-4), strict=True)]


def solved(problems, *, tol=1e-10, most=MOST_STEPS, starts=(None,) * K):
    """Return where the models end, and which of them went on alone."""
    went = []

    def alone(problem, *rest):
        went.append(problem)
        return newton.solve(problem, *rest)

    block = Block(problems[0].data)
    return together.solve(problems, block, starts, Limits(tol, most), alone=alone), went


@pytest.mark.parametrize(("loss", "targets"), LOSSES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "more",
    [{}, {"sample_weight": WEIGHTS, "offset": OFFSET, "regularizer": regularizers.L2(np.linspace(1.0, 4.0, D))}],
    ids=["plain", "weights, offsets, penalty by feature"],
)
def test_each_model_ends_where_it_ends_alone(loss, targets, fit_intercept, more):
    problems = problems_of(loss, targets, fit_intercept=fit_intercept, **more)
    for problem, found in zip(problems, solved(problems)[0], strict=True):
        assert problem.certify(found.w, found.intercept).relative_gap <= 1e-10
        own = newton.solve(problem, Block(problem.data), None, Limits(1e-10))
        np.testing.assert_allclose(found.w, own.w, rtol=1e-4, atol=1e-6)
        if loss.rough_fit(problem.y, None) is None:  # else a model alone starts nearer to its solution
            assert abs(found.steps - own.steps) <= 1


def test_outputs_of_least_squares_share_one_factor(monkeypatch):
    """Of equal λ without weights; each continues from its own start, with its own offsets."""
    factors = []
    monkeypatch.setattr(lapack, "dpotrf", lambda M, **options: factors.append(M) or dpotrf(M, **options))
    more = {"lam": 1e-6, "fit_intercept": True, "regularizer": regularizers.L2(np.linspace(1.0, 4.0, D))}
    shifts = (None, OFFSET, 1e3 * OFFSET)
    problems = [
        dn.Problem(X + 1e3, y, losses.Squared(), offset=o, **more) for y, o in zip(SCORES.T, shifts, strict=True)
    ]
    start = np.ones(D), 2.0
    for starts in ((None,) * K, (None, start, start)):
        for problem, found in zip(problems, solved(problems, starts=starts)[0], strict=True):
            certificate = problem.certify(found.w, found.intercept)
            assert certificate.gap <= 1e-10 * certificate.primal + certificate.rounding  # rows of 1000 lose digits
    assert [M.shape for M in factors] == [(D + 1, D + 1)] * 2
    assert small_plan(problems[0], "auto", "auto", K, replace(DEFAULT, together_entries=0)).together


def test_weights_of_one_model_alone_are_those_of_that_model():
    problems = problems_of(losses.Logistic(), SIGNS, fit_intercept=True)
    problems[1] = dn.Problem(X, SIGNS[:, 1], losses.Logistic(), lam=1e-2, sample_weight=WEIGHTS, fit_intercept=True)
    for problem, found in zip(problems, solved(problems)[0], strict=True):
        assert problem.certify(found.w, found.intercept).relative_gap <= 1e-10


def test_a_model_whose_step_is_too_long_goes_on_alone():
    problems = problems_of(losses.Logistic(), SIGNS, fit_intercept=True)
    # Large margins of the wrong signs, where the loss has no curvature.
    far = -10.0 * np.linalg.lstsq(X, SIGNS[:, 1])[0], 0.0
    found, went = solved(problems, tol=1e-8, starts=(None, far, None))
    assert went == [problems[1]]
    for problem, own in zip(problems, found, strict=True):
        assert problem.certify(own.w, own.intercept).relative_gap <= 1e-8
    own = newton.solve(problems[1], Block(problems[1].data), far, Limits(1e-8))
    assert found[1].steps == 1 + own.steps  # the step that failed was computed twice


def test_models_of_different_losses_are_solved_one_by_one():
    mixed = [dn.Problem(X, SIGNS[:, k], loss, lam=1e-2) for k, loss in enumerate((losses.Logistic(), losses.Squared()))]
    assert solved(mixed, starts=(None, None))[1] == mixed


def test_steps_are_limited_and_a_start_is_used():
    problems = problems_of(losses.Logistic(), SIGNS, fit_intercept=True)
    cut, _ = solved(problems, tol=1e-14, most=2)
    assert [found.steps for found in cut] == [2, 2, 2]
    whole, _ = solved(problems)
    again, _ = solved(problems, starts=[(found.w, found.intercept) for found in whole])
    assert [found.steps for found in again] == [1, 1, 1]


def test_the_planner_lets_few_small_models_step_together(monkeypatch):
    monkeypatch.setattr(loop, "DEFAULT", DEFAULT)
    problems = problems_of(losses.SquaredHinge(), SIGNS, fit_intercept=True)
    results = dn.solve_many(problems, tol=1e-8)
    assert all(result.plan.together and result.converged for result in results)
    assert not small_plan(problems[0], "auto", "auto", 1).together
    assert not small_plan(problems[0], "auto", "auto", K, Tuning(together_entries=N * D)).together
    counts = dn.Problem(X, np.abs(SIGNS[:, 0]), losses.Poisson(), lam=1e-2)
    assert not small_plan(counts, "auto", "auto", K).together


@pytest.mark.parametrize(("scale", "exact"), [(1.0, True), (1e6, False)], ids=["well scaled", "lost to rounding"])
def test_an_exact_step_of_least_squares_is_not_evaluated_again_unless_rounding_may_show(scale, exact, monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 10))
    rows[:, 1] = rows[:, 0] + 1e-7 * rows[:, 1]
    rows *= scale
    targets = rows[:, :3] / scale + rng.standard_normal((2000, 3))
    problems = [dn.Problem(rows, y, losses.Squared(), lam=1e-3, fit_intercept=True) for y in targets.T]
    seen, own = [], losses.Squared.value_and_derivative
    monkeypatch.setattr(losses.Squared, "value_and_derivative", lambda *args: seen.append(None) or own(*args))
    found = squares.solve(problems, Block(problems[0].data), [None] * 3, Limits(1e-4))
    assert (len(seen) == 1) is exact
    monkeypatch.undo()
    for problem, each in zip(problems, found, strict=True):
        assert problem.certify(each.w, intercept=each.intercept).relative_gap <= 1e-4
