"""More features than examples: solutions on n coordinates or fewer are those of the problem itself."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.planning.small import small_plan
from dualnewton.solvers.direct import newton, row_squares, wide
from dualnewton.solvers.direct.block import Block, Limits
from tuned import DIRECT, GENERAL, tuned

N, D = 40, 300
RNG = np.random.default_rng(3)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.5)
SCORE = X[:, :20] @ RNG.standard_normal(20) + RNG.standard_normal(N)
SIGNS = np.where(SCORE > 0.3, 1.0, -1.0)
WEIGHTS = RNG.uniform(0.0, 2.0, N) * (RNG.random(N) < 0.9)

LOSSES = [
    (losses.Squared(), SCORE),
    (losses.Logistic(), SIGNS),
    (losses.SquaredHinge(), SIGNS),
    (losses.SmoothHinge(0.3), SIGNS),
    (losses.Huber(0.5), SCORE),
    (losses.SquaredEpsilonInsensitive(0.2), SCORE),
]
STORAGES = {"dense": np.asarray, "float32": np.float32, "csr": sp.csr_array}
FACTOR, GRADIENTS = tuned(fewest_directions=1000, **DIRECT), tuned(fewest_directions=1, multiply=1.2e8, **DIRECT)
"""The factor at once; and about a dozen gradients first, as if products of rows took longer than they do."""


def solved(problem, tol, directions, start=None):
    block = Block(problem.data)
    found = wide.solve(problem, block, start, Limits(tol, 100), inner=newton.solve, directions=directions)
    return found, bool(block.cache)


EITHER = [False, True]
CELLS = all_pairs(itertools.product(range(len(LOSSES)), [1.0, 1e-4]), STORAGES, EITHER, EITHER, EITHER, EITHER)


@pytest.mark.parametrize(("model", "storage", "fit_intercept", "scaled", "weights", "offset"), CELLS, ids=str)
def test_it_finds_what_the_general_method_finds(model, storage, fit_intercept, scaled, weights, offset):
    """Every loss with every λ meets every storage and every other part of a problem, and these meet each other."""
    (loss, y), lam = LOSSES[model[0]], model[1]
    problem = dn.Problem(
        STORAGES[storage](X),
        y,
        loss,
        regularizer=regularizers.L2(np.linspace(1.0, 4.0, D) if scaled else None),
        lam=lam,
        sample_weight=WEIGHTS if weights else None,
        offset=0.3 * SCORE if offset else None,
        fit_intercept=fit_intercept,
    )
    found = dn.solve(problem, tol=1e-11, tuning=FACTOR)
    assert (found.plan.family, found.plan.directions) == ("wide", 0)
    assert found.certificate.relative_gap <= 1e-11
    general = dn.solve(problem, method="newton", tol=1e-11, tuning=GENERAL)
    assert general.plan.family is None
    np.testing.assert_allclose(found.w, general.w, rtol=1e-4, atol=2e-6)
    assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-10)


@pytest.mark.parametrize(("loss", "y"), [*LOSSES[:3], LOSSES[5]], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("penalty", [None, np.linspace(1.0, 4.0, D)], ids=["plain", "weighted"])
def test_gradients_suffice_for_a_loose_tolerance_and_the_gap_is_the_one_they_expect(loss, y, penalty):
    for weights, offset, fit_intercept in itertools.product((None, WEIGHTS), (None, 0.3 * SCORE), (False, True)):
        more = {"sample_weight": weights, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(X, y, loss, regularizer=regularizers.L2(penalty), lam=1.0, **more)
        found, factorised = solved(problem, 1e-4, 30)
        assert not factorised
        assert 0 < found.steps <= 30
        certificate = problem.certify(found.w, found.intercept)
        assert certificate.relative_gap <= 1e-4
        # The model lies in the span of the rows, where the minimiser is.
        inside = np.linalg.lstsq(X.T, found.w * (1.0 if penalty is None else penalty), rcond=None)[1]
        assert inside.size == 0 or inside[0] <= 1e-20 * D


@pytest.mark.parametrize("tuning", [FACTOR, GRADIENTS], ids=["factor", "gradients"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_softmax_is_solved_for_all_classes_together(fit_intercept, tuning):
    y = np.digitize(SCORE, [-1.0, 1.0])
    for weights, offset in itertools.product((None, WEIGHTS), (None, 0.1 * np.outer(SCORE, [1.0, 0.0, 2.0]))):
        more = {"sample_weight": weights, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(X, y, losses.Softmax(3), lam=1e-2, **more)
        found = dn.solve(problem, tol=1e-11, tuning=tuning)
        assert found.plan.family == "wide"
        assert found.certificate.relative_gap <= 1e-11
        general = dn.solve(problem, tol=1e-11, tuning=GENERAL)
        assert general.plan.family is None
        np.testing.assert_allclose(found.w, general.w, atol=1e-4)
        assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-10)
        assert dn.solve(problem, tol=1e-4, tuning=tuning).certificate.relative_gap <= 1e-4


def test_least_squares_over_gradients_are_the_iterates_of_conjugate_gradients(monkeypatch):
    monkeypatch.setattr(wide, "_suffices", lambda _gaps, _wanted, most: most > 0)  # all steps that are asked for
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1.0)
    H, g = X.T @ X + N * np.eye(D), X.T @ SCORE
    w, r = np.zeros(D), g.copy()
    p = r.copy()
    for k in range(1, 6):
        t = (r @ r) / (p @ H @ p)
        w, new = w + t * p, r - t * (H @ p)
        p, r = new + (new @ new) / (r @ r) * p, new
        found, _ = wide._by_gradients(problem, newton.solve, Limits(1e-12), k)
        assert found.steps == k
        np.testing.assert_allclose(found.w, w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tuning", [FACTOR, GRADIENTS], ids=["factor", "gradients"])
@pytest.mark.parametrize(
    "rows",
    [
        np.vstack([X[:10]] * 4),
        RNG.standard_normal((N, 3)) @ RNG.standard_normal((3, D)),
        X * np.geomspace(1e-4, 1e4, N)[:, None],
        X * np.geomspace(1e-3, 1e3, D),
        1e4 * X,
        1e-8 * X,
        np.zeros((N, D)),
        X[:1],
        X[:2],
    ],
    ids=["repeated", "rank 3", "row scales", "feature scales", "large", "small", "zeros", "one row", "two rows"],
)
def test_degenerate_rows_are_certified_all_the_same(rows, tuning):
    for loss, y in LOSSES[:3]:
        for fit_intercept in (False, True):
            labels = y[: len(rows)].copy()
            labels[-1] = -labels[0]
            problem = dn.Problem(rows, labels, loss, lam=0.01, fit_intercept=fit_intercept)
            result = dn.solve(problem, tol=1e-6, tuning=tuning)
            assert result.certificate.relative_gap <= 1e-6 or result.certificate.gap <= 1e-15  # P(0) is about one


def test_gradients_that_fall_slowly_are_left_for_the_factor():
    problem = dn.Problem(X * np.geomspace(1e-2, 1e2, D), SIGNS, losses.Logistic(), lam=1e-6, fit_intercept=True)
    found, factorised = solved(problem, 1e-10, 30)
    assert factorised
    assert problem.certify(found.w, found.intercept).relative_gap <= 1e-10


@pytest.mark.parametrize("by_rows", [False, True])
def test_several_models_share_one_factor(by_rows, monkeypatch):
    made, of = [], wide.Factor.of
    monkeypatch.setattr(wide.Factor, "of", lambda *args: made.append(args) or of(*args))
    if not by_rows:
        monkeypatch.setattr(wide, "_takes_row_factors", lambda *_: False)
    problems = [dn.Problem(X, SIGNS, losses.Logistic(), lam=lam, fit_intercept=True) for lam in (1.0, 1e-3, 1e-6)]
    results = dn.solve_many(problems, tol=1e-10, tuning=FACTOR)
    assert len(made) == 1 - by_rows
    for problem, result in zip(problems, results, strict=True):
        assert result.certificate.relative_gap <= 1e-10
        assert np.array_equal(result.w, dn.solve(problem, tol=1e-10, tuning=FACTOR).w)


def test_a_warm_start_takes_fewer_steps():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-4, fit_intercept=True)
    cold, _ = solved(problem, 1e-10, 0)
    warm, _ = solved(problem, 1e-10, 0, (cold.w + 1e-3, cold.intercept))
    assert warm.steps < cold.steps
    np.testing.assert_allclose(warm.w, cold.w, atol=1e-5)


@pytest.mark.parametrize("tuning", [FACTOR, GRADIENTS], ids=["factor", "gradients"])
def test_limits_callbacks_and_checkpoints(tmp_path, tuning):
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-6, fit_intercept=True)
    settings = {"tol": 1e-9, "tuning": tuning}
    straight = dn.solve(problem, **settings)
    watched = dn.solve(problem, **settings, callback=lambda _: False)
    assert np.array_equal(straight.w, watched.w)
    few = dn.solve(problem, **settings, max_epochs=4)
    assert (few.status, few.n_epochs) == (dn.Status.EPOCH_LIMIT, 4.0)
    assert dn.solve(problem, **settings, time_limit=0.0).status is dn.Status.TIME_LIMIT
    checkpoint = dn.Checkpoint(tmp_path / "run", seconds=0.0, spacing=0.0)
    for limit in (2, 6, 1000):
        last = dn.solve(problem, **settings, max_epochs=limit, checkpoint=checkpoint)
    assert np.array_equal(last.w, straight.w)


def test_which_problems_are_wide():
    def family(n, d, loss, regularizer=None, models=1, method="auto"):
        y = np.resize([1.0, -1.0], n)
        rows = sp.csr_array(np.eye(n, d))
        problem = dn.Problem(rows, y, loss, regularizer=regularizer or regularizers.L2())
        plan = small_plan(problem, method, "auto", models, tuned(**DIRECT))  # without products of sparse rows
        return plan and plan.family

    assert family(200, 5000, losses.Logistic()) == "wide"
    assert family(200, 5000, losses.Logistic(), models=9) == "wide"
    assert family(200, 5000, losses.Logistic(), method="newton") == "wide"
    assert family(200, 5000, losses.Logistic(), method="sdna") is None
    assert family(200, 5000, losses.Logistic(), regularizers.ElasticNet(0.5)) is None
    assert family(5000, 400, losses.Logistic()) is None
    assert family(2000, 5000, losses.Logistic()) is None  # more products than direct_multiplications
    assert family(30, 50, losses.Logistic()) == "newton"


def test_outputs_of_least_squares_share_one_hessian(monkeypatch):
    made, of = [], row_squares._System.of
    monkeypatch.setattr(row_squares._System, "of", lambda *args, **more: made.append(1) or of(*args, **more))
    scales = (1.0, 2.0, -3.0)
    problems = [dn.Problem(X, k * SCORE + k, losses.Squared(), lam=1e-3, fit_intercept=True) for k in scales]
    results = dn.solve_many(problems, tol=1e-10, tuning=FACTOR)
    assert len(made) == 1
    alone = dn.solve(problems[0], tol=1e-10, tuning=FACTOR)
    for k, result in zip(scales, results, strict=True):
        assert result.certificate.relative_gap <= 1e-10
        assert (result.plan.family, result.plan.together) == ("wide", True)
        np.testing.assert_allclose(result.w, k * alone.w, rtol=1e-8, atol=1e-10)


WEIGHTED = {"sample_weight": WEIGHTS, "offset": 0.3 * SCORE, "regularizer": regularizers.L2(np.linspace(1.0, 4.0, D))}
SCALES = {"even": np.ones(D), "uneven": np.geomspace(1e-3, 1e3, D)}


def narrow_block(problem):
    """Rows whose products are summed in float32, although they are few."""
    return Block(problem.data, tuned(narrowed_entries=1))


@pytest.mark.parametrize("more", [{}, WEIGHTED], ids=["plain", "weighted"])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [1.0, 1e-3])
def test_corrections_remove_the_errors_of_products_in_float32(more, scales, fit_intercept, lam):
    problem = dn.Problem(X * SCALES[scales], SCORE, losses.Squared(), lam=lam, fit_intercept=fit_intercept, **more)
    for tol in (1e-4, 1e-12):
        block = narrow_block(problem)
        (found,) = row_squares.solve([problem], block, Limits(tol))
        assert problem.certify(found.w, found.intercept).relative_gap <= tol
        assert (problem.regularizer, np.float32) in block.cache
    (exact,) = row_squares.solve([problem], Block(problem.data), Limits(1e-12))
    np.testing.assert_allclose(found.w, exact.w, rtol=1e-5, atol=1e-5 * np.abs(exact.w).max())


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0.0, 3.0])
@pytest.mark.parametrize("lam", [1.0, 1e-2, 1e-4])
def test_the_gap_without_a_correction_is_at_most_the_expected_one(scales, kind, shift, lam, monkeypatch):
    problem = dn.Problem((X + shift) * SCALES[scales], SCORE, losses.Squared(), lam=lam, fit_intercept=True)
    gaps, expected = [], row_squares.expected_gaps
    monkeypatch.setattr(row_squares, "expected_gaps", lambda *args: gaps.append(expected(*args)) or 0.0 * gaps[-1])
    (found,) = row_squares._corrected([problem], narrow_block(problem), Limits(1.0), kind)
    assert found.steps == 1
    certificate = problem.certify(found.w, found.intercept)
    assert certificate.gap <= gaps[0][0] / N + certificate.rounding


@pytest.mark.parametrize("lam", [1e-3, 1e-4, 1e-5])
def test_the_gap_after_corrections_is_estimated_where_rows_depend_on_each_other(lam):
    """Without an intercept, centred rows have a sum of zero: u is large along ones, where X loses it, and hides the errors."""
    problem = dn.Problem(X - X.mean(axis=0), np.sign(SCORE) + 0.5, losses.Squared(), lam=lam)
    (found,) = row_squares.solve([problem], narrow_block(problem), Limits(1e-6))
    assert problem.certify(found.w).relative_gap <= 1e-6


def test_products_of_rows_far_from_zero_are_summed_in_float64():
    problem = dn.Problem(X + 1e4, SCORE, losses.Squared(), lam=1e-3, fit_intercept=True)
    block = narrow_block(problem)
    (found,) = row_squares.solve([problem], block, Limits(1e-4))
    assert (problem.regularizer, np.float64) in block.cache
    assert problem.certify(found.w, found.intercept).relative_gap <= 1e-4


def test_outputs_with_other_penalties_are_solved_without_common_products_too():
    problems = [dn.Problem(X, SCORE, losses.Squared(), lam=lam, fit_intercept=True) for lam in (1.0, 1e-2)]
    results = dn.solve_many(problems, tol=1e-10, tuning=FACTOR)
    assert all(result.certificate.relative_gap <= 1e-10 for result in results)
