"""Newton steps on a variable for each row, with a factor for each step, for fewer examples than features."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.direct import row_factors, wide
from dualnewton.solvers.direct.block import Block, Limits
from tuned import GENERAL, tuned

N, D = 40, 300
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) + 2.0 * RNG.standard_normal((N, 3)) @ RNG.standard_normal((3, D))
SCORE = X[:, :20] @ RNG.standard_normal(20) / 9.0 + 0.3 * RNG.standard_normal(N)
SIGNS, COUNTS = np.where(SCORE > 0.3, 1.0, -1.0), 1.0 + np.floor(np.exp(np.clip(SCORE, -2.0, 2.0)))
WEIGHTS = RNG.uniform(0.2, 2.0, N)
SCALES = np.geomspace(1e-2, 1e2, D)[RNG.permutation(D)]

CASES = [
    (losses.Logistic(), SIGNS),
    (losses.Poisson(), COUNTS),
    (losses.SquaredHinge(), SIGNS),
    (losses.SmoothHinge(0.5), SIGNS),
    (losses.Huber(0.3), SCORE),
    (losses.SquaredEpsilonInsensitive(0.2), SCORE),
]
STORAGES = {
    "dense": np.asarray,
    "float32": np.float32,
    "csr": lambda X: sp.csr_array(np.where(np.abs(X) < 0.1, 0.0, X)),
}


def solved(problem, tol, **numbers):
    return row_factors.solve(problem, Block(problem.data, tuned(**numbers)), Limits(tol))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("loss", "y"), CASES, ids=lambda value: type(value).__name__)
def test_it_finds_what_the_general_method_finds(loss, y, storage):
    for fit_intercept, weights, offset, penalty in itertools.product(
        (False, True), (None, WEIGHTS), (None, 0.3 * SCORE), (None, np.linspace(1.0, 4.0, D))
    ):
        problem = dn.Problem(
            STORAGES[storage](X),
            y,
            loss,
            lam=1e-2,
            regularizer=regularizers.L2(penalty),
            sample_weight=weights,
            offset=offset,
            fit_intercept=fit_intercept,
        )
        found, done = solved(problem, 1e-9)
        assert done
        pair = problem.certified_pair(found.w, found.intercept, found.alpha)
        assert pair.certificate.relative_gap <= 1e-9
        general = dn.solve(problem, method="newton", tol=1e-10, tuning=GENERAL)
        np.testing.assert_allclose(found.w, general.w, rtol=1e-3, atol=1e-4 * np.abs(general.w).max())


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.3)], ids=repr)
@pytest.mark.parametrize("lam", [1.0, 1e-3, 1e-5])
def test_products_in_float32_are_corrected_where_their_errors_matter(loss, lam, monkeypatch):
    """K in float32 determines the steps; margins computed from X follow where its errors would change the gap."""
    widened, wide_margins = 0, row_factors.FactorRows.widened

    def counted(*given):
        nonlocal widened
        widened += 1
        return wide_margins(*given)

    monkeypatch.setattr(row_factors.FactorRows, "widened", counted)
    problem = dn.Problem(X, SCORE if isinstance(loss, losses.Huber) else SIGNS, loss, lam=lam, fit_intercept=True)
    for tol in (1e-4, 1e-10):
        found, done = solved(problem, tol, narrowed_entries=0)
        assert done
        assert problem.certified_pair(found.w, found.intercept, found.alpha).certificate.relative_gap <= tol
    error = row_factors.ERRORS[np.float32] * np.square(X).sum() / N * np.sqrt(N)
    if error > row_factors.SMALL * lam * N * loss.gamma:
        assert widened == 0  # K is summed in float64
    elif loss == losses.SquaredHinge() or lam < 1.0:
        assert widened > 0


def test_features_of_all_scales_and_repeated_rows_take_shortened_steps():
    """Rounding errors of the products are too large for pieces of parabolas with a weak penalty, which take coordinates."""
    A = np.vstack([X * SCALES, X[: N // 2] * SCALES])
    y = np.concatenate([SCORE, -SCORE[: N // 2]])
    cases = (losses.Huber(0.1), y), (losses.SquaredHinge(), np.sign(y)), (losses.Logistic(), np.sign(y))
    for (loss, labels), lam in itertools.product(cases, (10.0, 1e-4)):
        problem = dn.Problem(A, labels, loss, lam=lam, fit_intercept=True)
        found, done = solved(problem, 1e-6)
        assert done or (lam == 1e-4 and found.steps < 50)
        if done:
            assert problem.certified_pair(found.w, found.intercept, found.alpha).certificate.relative_gap <= 1e-6
        result = dn.solve(problem, tol=1e-6, tuning=replace(DEFAULT, fewest_directions=1 << 20))
        assert result.converged
        assert result.plan.family == "wide"


def test_matrices_that_are_indefinite_by_rounding_are_left_to_the_coordinates():
    problem = dn.Problem(X, SIGNS, losses.SquaredHinge(), lam=1e-2)
    block = Block(problem.data)
    block.cache[problem.regularizer, np.float64] = -(X @ X.T)
    found, done = row_factors.solve(problem, block, Limits(1e-6))
    assert not done
    assert not found.w.any()


def test_problems_over_one_block_share_the_products_of_the_rows(monkeypatch):
    seen, computed = [], row_factors.products_of_rows
    monkeypatch.setattr(row_factors, "products_of_rows", lambda *given: seen.append(computed(*given)) or seen[-1])
    problems = [dn.Problem(X, SIGNS, losses.SquaredHinge(), lam=lam) for lam in (1e-1, 1e-2)]
    results = dn.solve_many(problems, tol=1e-6)
    assert all(result.converged and result.plan.family == "wide" for result in results)
    assert len(seen) == 2
    assert seen[0] is seen[1]


def test_the_coordinates_follow_where_the_steps_fail(monkeypatch):
    """The matrix of all products in float64 is not computed again for them."""
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-2)
    expected = dn.solve(problem, tol=1e-8)
    solve, formed, row_gram = row_factors.solve, 0, type(problem.data).row_gram

    def failing(problem, block, limits):
        return solve(problem, block, limits._replace(most=1))

    def counted(self, *given, **more):
        nonlocal formed
        formed += 1
        return row_gram(self, *given, **more)

    monkeypatch.setattr(wide.row_factors, "solve", failing)
    monkeypatch.setattr(type(problem.data), "row_gram", counted)
    numbers = replace(DEFAULT, fewest_directions=1 << 20)  # gradients are not tried
    result = dn.solve(problem, tol=1e-8, tuning=numbers)
    assert result.converged
    assert formed == 1
    np.testing.assert_allclose(result.w, expected.w, rtol=1e-3, atol=1e-5)
