"""Newton's method on small data finds the optimum that the general method finds, and stops for the same reasons."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.planning import small
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.direct import descent, newton, risk
from dualnewton.solvers.direct.block import Block, Limits
from tuned import GENERAL

N, D = 90, 7
RNG = np.random.default_rng(2)
X = RNG.standard_normal((N, D)) * np.geomspace(0.05, 5.0, D)
SCORE = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
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


def stepped_by(monkeypatch):
    """Record the calls of the direct solver."""
    seen, solve = [], newton.solve
    monkeypatch.setattr(newton, "solve", lambda *args, **rest: seen.append(args) or solve(*args, **rest))
    return seen


@pytest.mark.parametrize(
    ("case", "fit_intercept", "penalty", "lam"),
    all_pairs(LOSSES, [False, True], [None, np.linspace(1.0, 4.0, D)], [1.0, 1e-4]),
)
def test_it_finds_what_the_general_method_finds(case, fit_intercept, penalty, lam, monkeypatch):
    """A covering design of the four factors: any two levels of any two of them meet."""
    loss, y = case
    seen = stepped_by(monkeypatch)
    for storage, weights, offset in itertools.product(STORAGES.values(), (None, WEIGHTS), (None, 0.3 * SCORE)):
        problem = dn.Problem(
            storage(X),
            y,
            loss,
            regularizer=regularizers.L2(penalty),
            lam=lam,
            sample_weight=weights,
            offset=offset,
            fit_intercept=fit_intercept,
        )
        found = dn.solve(problem, method="newton", tol=1e-12)
        assert seen, "the small method was not used"
        assert found.certificate.relative_gap <= 1e-12
        seen.clear()
        general = dn.solve(problem, method="newton", tol=1e-12, tuning=GENERAL)
        assert not seen
        np.testing.assert_allclose(found.w, general.w, rtol=1e-4, atol=2e-6)
        assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-11)


def test_several_models_leave_when_they_are_done():
    problems = [dn.Problem(X, SIGNS, losses.Logistic(), lam=lam, fit_intercept=True) for lam in (1.0, 1e-3, 1e-6)]
    for problem, result in zip(problems, dn.solve_many(problems, method="newton", tol=1e-10), strict=True):
        assert result.converged
        alone = dn.solve(problem, method="newton", tol=1e-10)  # its last steps may share a Hessian
        assert result.certificate.primal == pytest.approx(alone.certificate.primal, rel=1e-10)
        np.testing.assert_allclose(result.w, alone.w, rtol=1e-4, atol=1e-6)


def test_separable_classes_and_a_tiny_penalty_take_shortened_steps():
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    problem = dn.Problem(1e3 * X, y, losses.Logistic(), lam=1e-9, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-8)
    assert result.certificate.relative_gap <= 1e-8


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_only_the_end_of_a_shortened_step_has_a_gradient(fit_intercept, monkeypatch):
    gradients, sums = [], risk.Risk.sums
    problem = dn.Problem(X, SIGNS, losses.SquaredHinge(), lam=1e-3, fit_intercept=fit_intercept)
    own = risk.Risk.of(problem, Block(problem.data))
    start = own.at(np.zeros(own.size), np.zeros(N))
    way = -1e3 * start.gradient / np.linalg.norm(start.gradient)
    monkeypatch.setattr(risk.Risk, "sums", lambda *args: gradients.append(1) or sums(*args))
    end, last = descent.step(own, start, way)
    assert not last
    assert len(gradients) == 1
    assert end.value < start.value
    np.testing.assert_array_equal(end.gradient, own.at(end.x, end.margins).gradient)
    np.testing.assert_allclose(end.margins, own.margins(end.x), rtol=1e-12, atol=1e-12)
    assert 0.0 < np.linalg.norm(end.x) < np.linalg.norm(way)


def test_rows_without_curvature_leave_a_singular_hessian():
    problem = dn.Problem(X, np.ones(N), losses.SquaredHinge(), lam=1e-3, fit_intercept=True)  # b = 1 fits every row
    result = dn.solve(problem, method="newton", tol=1e-12)
    assert result.certificate.gap <= 1e-12


def test_an_unreachable_tolerance_ends_at_rounding():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=0.0)
    assert result.status in (dn.Status.NO_PROGRESS, dn.Status.ROUNDING)
    assert result.certificate.relative_gap <= 1e-14


def test_limits_end_it_between_steps(monkeypatch):
    problem = dn.Problem(1e3 * X, SIGNS, losses.Logistic(), lam=1e-9, fit_intercept=True)
    few = dn.solve(problem, method="newton", tol=1e-12, max_epochs=4)
    assert (few.status, few.n_epochs) == (dn.Status.EPOCH_LIMIT, 4.0)
    late = dn.solve(problem, method="newton", tol=1e-12, time_limit=0.0)
    assert late.status is dn.Status.TIME_LIMIT


def test_a_warm_start_takes_fewer_steps():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-4, fit_intercept=True)
    cold = dn.solve(problem, method="newton", tol=1e-10)
    near = dn.Problem(X, SIGNS, losses.Logistic(), lam=1.1e-4, fit_intercept=True)
    assert dn.solve(near, method="newton", tol=1e-10, warm_start=cold).n_epochs < cold.n_epochs
    assert dn.solve(problem, method="newton", tol=1e-8, warm_start=cold).n_epochs == 0.0


def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(tmp_path):
    problem = dn.Problem(1e3 * X, SIGNS, losses.Logistic(), lam=1e-9, fit_intercept=True)
    settings = {"method": "newton", "tol": 1e-10}
    straight = dn.solve(problem, **settings)
    checkpoint = dn.Checkpoint(tmp_path / "run", seconds=0.0, spacing=0.0)
    for limit in range(int(straight.n_epochs) + 1):
        # A limit cuts the steps inside one step of the loop, where the certificate may already meet tol.
        cut = dn.solve(problem, **settings, max_epochs=limit, checkpoint=checkpoint)
        met = cut.certificate.relative_gap <= settings["tol"]
        assert cut.status is (dn.Status.CONVERGED if met else dn.Status.EPOCH_LIMIT)
    assert np.array_equal(dn.solve(problem, **settings, checkpoint=checkpoint).w, straight.w)


def test_wide_or_large_data_are_left_to_the_general_methods():
    def family(n, d, models=1):
        problem = dn.Problem(np.ones((n, d)), np.ones(n), losses.Logistic(), fit_intercept=True)
        return small.small_plan(problem, "auto", "auto", models) is not None

    assert family(500, 200)
    assert family(5000, 50)
    assert not family(300, 300)  # more features than one_block_features
    assert not family(30_000, 100)  # more entries than direct_entries
    assert not family(5000, 50, models=8)
    assert family(500, 50, models=30)  # few enough entries for any number of models


def test_a_callback_changes_no_bit():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)
    straight, watched = dn.solve(problem, tol=1e-6), dn.solve(problem, tol=1e-6, callback=lambda _: False)
    assert np.array_equal(straight.w, watched.w)
    assert (straight.intercept, straight.certificate) == (watched.intercept, watched.certificate)
    assert straight.plan == watched.plan


def test_the_steps_end_at_the_tolerance():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)
    epochs = [dn.solve(problem, tol=tol).n_epochs for tol in (1e-2, 1e-4, 1e-12)]
    assert epochs[0] < epochs[1] < epochs[2]


def test_the_general_method_goes_on_where_a_direct_solution_misses_the_tolerance(monkeypatch):
    monkeypatch.setattr(descent, "MOST_TRIALS", 0)  # no point on a step is ever good enough
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-8)
    assert result.converged
    assert result.plan.before.family == "newton"
    assert "the direct solution missed tol" in str(result.plan)


@pytest.mark.parametrize("scale", [0.5, 3.0], ids=["too short", "too long"])
def test_the_solution_of_a_sample_is_shortened_where_it_fits_too_well(scale, monkeypatch):
    """The factor is near the minimum along x, given all rows; a point that is too short stays as it is."""
    monkeypatch.setattr(newton, "SAMPLED", 1)
    monkeypatch.setattr(newton, "SECANTS", 30)
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)
    own, best = risk.Risk.of(problem, Block(problem.data)), dn.solve(problem, tol=1e-10)
    x = scale * own.vector(best.w, best.intercept)
    margins = scale * (X @ best.w + best.intercept)
    assert newton._best_factor(own, x, margins) == pytest.approx(min(1.0, 1.0 / scale), rel=1e-3)


def test_a_sample_is_left_when_a_step_promises_no_more_than_its_accuracy(monkeypatch):
    """Fewer steps on the sample, and still the optimum of all rows."""
    rng, steps = np.random.default_rng(5), newton.step
    A = rng.standard_normal((4200, 6))
    y = np.where(A @ rng.standard_normal(6) + rng.logistic(size=4200) > 0.0, 1.0, -1.0)
    problem, rows = dn.Problem(A, y, losses.Logistic(), lam=1e-4, fit_intercept=True), []

    def counted(own, *args):
        rows.append(own.n)
        return steps(own, *args)

    monkeypatch.setattr(newton, "step", counted)
    found = dn.solve(problem, method="newton", tol=1e-10)
    assert 0 < rows.count(525) <= 4
    assert found.certificate.relative_gap <= 1e-10


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Softmax(3)], ids=["one column", "three columns"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_ones_beside_the_features_change_nothing(loss, fit_intercept, monkeypatch):
    """The value, the gradient and the Hessian of the risk are the same with and without a column for the intercept."""
    y = SIGNS if loss.columns == 1 else np.arange(N) % 3
    problem = dn.Problem(X, y, loss, lam=1e-2, fit_intercept=fit_intercept, sample_weight=WEIGHTS)
    copied = risk.Risk.of(problem, Block(problem.data))
    monkeypatch.setattr(risk, "COPIED", 0)
    bordered = risk.Risk.of(problem, Block(problem.data))
    assert bordered.border is fit_intercept
    assert not copied.border
    x = 0.1 * np.random.default_rng(3).standard_normal(copied.ridge.size)
    one, other = (each.at(x, each.margins(x)) for each in (copied, bordered))
    assert one.value == pytest.approx(other.value, rel=1e-12)
    np.testing.assert_allclose(one.gradient, other.gradient, rtol=1e-10, atol=1e-12)
    factors = (np.tril(each.factor(at.margins)) for each, at in ((copied, one), (bordered, other)))
    np.testing.assert_allclose(*(factor @ factor.T for factor in factors), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("scales", "copies", "narrow"), [(1e3, 0.0, True), (1.0, 1e-7, False), (1e30, 0.0, False)])
def test_a_hessian_is_summed_in_float32_where_that_changes_no_direction_much(scales, copies, narrow):
    """Features of any scale may be; not such that almost repeat another, nor such whose squares overflow."""
    A = X * np.geomspace(1.0 / scales, scales, D)
    A = np.column_stack([A, A[:, 0] + copies * SCORE]) if copies else A
    problem = dn.Problem(A, SIGNS, losses.Logistic(), lam=1e-9, fit_intercept=True)
    own = risk.Risk.of(problem, Block(problem.data))
    with np.errstate(over="ignore", invalid="ignore"):  # as in a run
        wide, single = own.factor(np.zeros(N)), own.factor(np.zeros(N), single=True)
    assert np.array_equal(wide, single) is not narrow
    lengths = wide.diagonal()[:, None]
    np.testing.assert_allclose(np.tril(single) / lengths, np.tril(wide) / lengths, atol=1e-5)


def hessians(monkeypatch):
    """Record the numbers of rows and the types of all Hessians."""
    seen, gram = [], risk.Risk._gram
    monkeypatch.setattr(
        risk.Risk, "_gram", lambda own, weights, kind: seen.append((own.n, kind)) or gram(own, weights, kind)
    )
    return seen


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.SquaredEpsilonInsensitive(0.2)])
def test_a_hessian_serves_several_steps_where_it_costs_as_much_as_these(loss, monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1000, 60))
    score = A @ rng.standard_normal(60) / 8 + 0.5 * rng.standard_normal(1000)
    y = score if loss == losses.SquaredEpsilonInsensitive(0.2) else np.sign(score)
    seen, found = hessians(monkeypatch), []
    for features in (12, 1 << 20):  # a Hessian costs as much as 5 steps, or as none
        seen.clear()
        problem = dn.Problem(A, y, loss, lam=1e-3, fit_intercept=True)
        whole = replace(DEFAULT, hessian_features=features, updated_products=1 << 60)  # never from the last Hessian
        result = dn.solve(problem, tol=1e-6, tuning=whole)
        assert result.plan.family == "newton"
        assert result.certificate.relative_gap <= 1e-6
        assert {kind for _, kind in seen} == {np.float32}
        found.append(len(seen))
    often, always = found
    assert often <= 2
    assert always >= 4


def test_the_curvature_of_few_rows_is_renewed_in_most_steps(monkeypatch):
    """Most examples of separable classes lose their curvature: with the price of a Hessian of all rows it served three."""
    made, taken, factor, step = 0, 0, newton.Risk.narrow_factor, newton.step

    def counted(self, margins):
        nonlocal made
        made += 1
        return factor(self, margins)

    def stepped(*given, **more):
        nonlocal taken
        taken += 1
        return step(*given, **more)

    monkeypatch.setattr(newton.Risk, "narrow_factor", counted)
    monkeypatch.setattr(newton, "step", stepped)
    X, y = load_digits(return_X_y=True)
    model = dn.LinearSVC().fit(X, y)
    assert max(each.relative_gap for each in model.certificate_) <= model.tol
    assert taken <= 1.5 * made


def test_with_few_rows_for_each_unknown_each_step_has_its_own_hessian(monkeypatch):
    rng = np.random.default_rng(0)
    seen, evaluated, at = hessians(monkeypatch), [], risk.Risk.losses
    monkeypatch.setattr(risk.Risk, "losses", lambda *args: evaluated.append(1) or at(*args))
    A = rng.standard_normal((150, 50))
    result = dn.solve(dn.Problem(A, np.sign(A[:, 0] + rng.standard_normal(150)), losses.Logistic(), lam=1e-2), tol=1e-6)
    assert result.plan.family == "newton"
    assert len(evaluated) == len(seen) + 1


def test_sums_in_float32_that_lose_a_direction_are_tried_once(monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1000, 60))
    A[:, -1] = A[:, 0] + 1e-6 * A[:, 1]
    seen = hessians(monkeypatch)
    problem = dn.Problem(A, np.sign(A[:, 0] + rng.standard_normal(1000)), losses.Logistic(), lam=1e-9)
    result = dn.solve(problem, tol=1e-6)
    assert result.certificate.relative_gap <= 1e-6
    kinds = [kind for _, kind in seen]
    assert kinds[:2] == [np.float32, np.float64]
    assert kinds.count(np.float32) == 1


def test_a_new_hessian_is_compared_with_further_steps_from_the_old():
    fast, slow = [1.0, 1e-4], [0.5**k for k in range(7)]
    assert not descent.needs_hessian(fast, 1e-6, price=0.0)  # half a step is left, and one from a new Hessian
    assert not descent.needs_hessian(slow, 1e-6, price=20.0)  # 14 steps are left, and 3 from new Hessians
    assert descent.needs_hessian(slow, 1e-6, price=5.0)
    assert not descent.needs_hessian(slow[:5], 1e-6, price=5.0)  # it has served fewer steps than it cost
    assert not descent.needs_hessian(slow[:2], 1e-6, price=1.1)
    assert descent.needs_hessian(slow[:2], 1e-6, price=1.0)
    assert descent.needs_hessian([1.0, 2.0], 1e-6, price=100.0)
    assert descent.needs_hessian(fast, 0.0, price=100.0)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_an_exact_step_of_least_squares_is_certified_without_another_evaluation(fit_intercept, weighted, monkeypatch):
    evaluations, at = [], risk.Risk.losses
    monkeypatch.setattr(risk.Risk, "losses", lambda *args: evaluations.append(1) or at(*args))
    rng = np.random.default_rng(0)
    n, d = 2000, 10
    X, c = rng.standard_normal((n, d)) + 1.0, rng.uniform(0.5, 2.0, n) if weighted else None
    y = X @ rng.standard_normal(d) + rng.standard_normal(n)
    for scale, tol, more in ((np.ones(d), 1e-8, 0), (np.geomspace(1e-6, 1e6, d), 1e-13, 1)):
        evaluations.clear()
        problem = dn.Problem(X * scale, y, losses.Squared(), lam=1e-3, sample_weight=c, fit_intercept=fit_intercept)
        found = newton.solve(problem, Block(problem.data), None, Limits(tol))
        assert (len(evaluations) > 1) == bool(more)  # rounding errors that may be too large are measured
        assert problem.certify(found.w, found.intercept).relative_gap <= max(tol, 1e-9)


@pytest.mark.parametrize(
    ("loss", "y"),
    [(losses.Logistic(), SIGNS), (losses.Poisson(), np.floor(np.exp(0.1 * SCORE)))],
    ids=["logistic", "poisson"],
)
@pytest.mark.parametrize("weights", [None, 0.1 + WEIGHTS])
def test_the_certified_gap_is_about_the_expected_one_or_less(loss, y, weights):
    """Also away from the best intercept: the certificate balances the dual point, so that its slope counts to second order."""
    problem = dn.Problem(X + 3.0, y, loss, lam=1e-2, sample_weight=weights, fit_intercept=True)
    made, rng = risk.Risk.of(problem, Block(problem.data)), np.random.default_rng(8)
    best = dn.solve(problem, tol=1e-13)
    for size in (1e-2, 1e-3, 1e-4):
        x = made.vector(best.w, best.intercept) + size * rng.standard_normal(made.size)
        at = made.at(x, made.margins(x))
        certified = N * problem.certify(*made.model(x)).gap
        assert certified <= 2.0 * made.gap(at)
        assert made.gap(at) < np.square(at.gradient) @ made.halves + abs(at.gradient[-1])


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("copied", [0, risk.COPIED], ids=["bordered", "with ones"])
@pytest.mark.parametrize("shift", [0.0, 1e3], ids=["some rows curved", "no row curved"])
def test_the_hessian_sums_the_rows_on_which_the_loss_is_curved(weights, copied, shift, monkeypatch):
    """Rows with φ″ = 0 are left out, which changes nothing but the order of the sum."""
    monkeypatch.setattr(risk, "COPIED", copied)
    loss = losses.SmoothHinge(0.3)
    problem = dn.Problem(X, SIGNS, loss, sample_weight=weights, fit_intercept=True)
    own, z = risk.Risk.of(problem, Block(problem.data, DEFAULT)), 0.3 * SCORE + shift * SIGNS
    rows = np.column_stack([X, np.ones(N)])
    curvature = problem.c * loss.second_derivative(z, SIGNS)
    expected = rows.T @ (curvature[:, None] * rows)
    assert 0 < np.count_nonzero(curvature) < N or shift
    np.testing.assert_allclose(own.hessian(z), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(own.hessian(z, np.float32), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("loss", "y"),
    [
        (losses.Poisson(), 1.0 + np.floor(np.exp(np.clip(SCORE, -2.0, 2.0)))),
        (losses.Gamma(), np.exp(np.clip(SCORE, -2.0, 2.0))),
        (losses.Logistic(), SIGNS),
    ],
    ids=["poisson", "gamma", "logistic"],
)
def test_the_dual_point_of_the_last_quadratic_model_saves_steps(loss, y, monkeypatch):
    """At the end of a Newton step on features of large scale, the slopes of the models have a smaller gap."""
    evaluated, at, saved = [], risk.Risk.losses, 0
    monkeypatch.setattr(risk.Risk, "losses", lambda *args: evaluated.append(1) or at(*args))

    def solved(problem):
        evaluated.clear()
        found = newton.solve(problem, Block(problem.data), None, Limits(1e-4))
        pair = found.point().certified([problem], [found.point()], 1e-4)[0]
        assert pair.certificate.relative_gap <= 1e-4
        return found, len(evaluated)

    for weights, offset, fit_intercept in itertools.product((None, WEIGHTS), (None, 0.1 * SCORE), (False, True)):
        more = {"sample_weight": weights, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(1e3 * X, y, loss, lam=1.0, **more)
        found, count = solved(problem)
        with monkeypatch.context() as patch:
            patch.setattr(newton, "_linear_slopes", lambda *_: None)
            plain, most = solved(problem)
        assert plain.alpha is None
        assert count < most if found.alpha is not None else count == most
        saved += most - count
    assert saved >= 2
