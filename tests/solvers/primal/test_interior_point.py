"""The interior-point method: the optimum of piecewise linear losses, however badly conditioned, and what it refuses."""

import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers, samplings
from dualnewton.matrix import ChunkedData, MemoryData
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.planning.interior import interior_cost
from dualnewton.planning.tuning import DEFAULT
from dualnewton.run.result import Status
from dualnewton.solvers.primal import interior_point, step_systems
from dualnewton.solvers.primal.interior_steps import Directions
from dualnewton.solvers.primal.step_systems import Passes, Rows
from kinked_cases import Quantile, problem_for
from tables import load, name_of
from tuned import GENERAL, tuned
from verified import assert_certificate_is_true

LOSSES = [
    losses.Hinge(),
    losses.EpsilonInsensitive(0.3),
    losses.EpsilonInsensitive(0.0),
    losses.Quantile(0.3),
    Quantile(0.8),
]
by_loss = pytest.mark.parametrize("loss", LOSSES, ids=name_of)

RNG = np.random.default_rng(0)
VARIANTS = {
    "plain": {},
    "intercept": {"fit_intercept": True},
    "weights, some zero": {"sample_weight": RNG.integers(0, 4, 80) * 0.7, "fit_intercept": True},
    "offset": {"offset": RNG.standard_normal(80)},
    "all": {"sample_weight": RNG.uniform(0.1, 3.0, 80), "offset": RNG.standard_normal(80), "fit_intercept": True},
}


def assert_same_model(problem, one, other):
    """Both are within √(2 gap/λ) of the optimum, in the norm of the penalty, which is at least the Euclidean one."""
    bound = sum(np.sqrt(2.0 * (result.certificate.gap + 1e-16) / problem.lam) for result in (one, other))
    assert np.linalg.norm(one.w - other.w) <= 1.01 * bound


# The optimum ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "variant", "storage", "d"), all_pairs(LOSSES, VARIANTS, ["dense", "sparse", "float32"], [6, 120])
)
def test_it_is_the_model_of_the_smoothed_losses(loss, variant, storage, d):
    """A covering design of the four factors: any two levels of any two of them meet."""
    problem = problem_for(loss, d=d, lam=0.02, sparse=storage == "sparse", **VARIANTS[variant])
    if storage == "float32":
        problem = replace(problem, X=problem.X.astype(np.float32))
    small = DEFAULT if variant == "all" else GENERAL  # one dense block, or passes over the data
    result = dn.solve(problem, method="interior", tol=1e-10, tuning=small)
    assert result.status is Status.CONVERGED
    assert result.plan.method == "interior"
    assert_certificate_is_true(problem, result)
    other = dn.solve(problem, tol=1e-10, max_epochs=5000, random_state=0)
    assert result.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-9)
    assert_same_model(problem, result, other)


@by_loss
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_the_conditions_of_optimality_hold(loss, C):
    problem = problem_for(loss, lam=1.0 / (80 * C), fit_intercept=True)
    result = dn.solve(problem, method="interior", tol=1e-12)
    z, u = problem.margins(result.w, result.intercept), -result.alpha
    low, high = loss.domain(problem.y)
    assert (low <= u).all()
    assert (u <= high).all()
    assert abs(problem.c @ u) <= 1e-10 * (problem.c @ np.abs(u))
    np.testing.assert_allclose(problem.w_of(result.alpha), result.w, atol=1e-5 * np.abs(result.w).max())
    # Fenchel and Young: u is a slope of φ at z, example by example.
    np.testing.assert_allclose(loss.value(z, problem.y) + loss.conjugate(u, problem.y), z * u, atol=1e-6 * (1.0 + C))


@pytest.mark.parametrize("q", [0.1, 0.5, 0.85])
def test_without_much_of_a_penalty_it_is_the_linear_program(q):
    problem = problem_for(losses.Quantile(q), lam=1e-11, fit_intercept=True)
    n, d, one = problem.n, problem.d, np.eye(problem.n)
    found = linprog(
        np.concatenate([np.zeros(d + 1), np.full(n, q / n), np.full(n, (1.0 - q) / n)]),
        A_eq=np.hstack([problem.X, np.ones((n, 1)), one, -one]),
        b_eq=problem.y,
        bounds=[(None, None)] * (d + 1) + [(0, None)] * (2 * n),
        method="highs",
    )
    result = dn.solve(problem, method="interior", tol=1e-9)
    assert result.converged
    assert problem.primal(result.w, result.intercept) == pytest.approx(found.fun, rel=1e-8)
    np.testing.assert_allclose(np.append(result.w, result.intercept), found.x[: d + 1], atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3, 1e4])
@pytest.mark.parametrize("name", ["a9a", "w8a", "madelon", "colon_cancer", "abalone", "cpusmall"])
def test_real_data_standardised(name, C, seed):
    X, y = load(name)
    rows = np.random.default_rng(seed).permutation(X.shape[0])[:600]
    X = np.asarray(X[rows].todense() if sp.issparse(X) else X[rows], dtype=float)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    y = y[rows]
    loss = losses.Hinge() if len(np.unique(y)) == 2 else losses.EpsilonInsensitive(0.1)
    y = np.where(y > y.mean(), 1.0, -1.0) if loss == losses.Hinge() else (y - y.mean()) / y.std()
    problem = dn.Problem(X, y, loss, lam=1.0 / (C * len(y)), fit_intercept=True)
    assert dn.solve(problem, method="interior", tol=1e-4).converged
    # If the classes are separable, P is much smaller than the margins, whose rounding errors then end the steps before 1e-10.
    result = dn.solve(problem, method="interior", tol=1e-10)
    found, separable = result.certificate, loss == losses.Hinge() and result.certificate.primal < 0.01
    enough = max(1e-9 * found.primal, found.rounding or 0.0) if separable else 1e-15
    assert result.converged or found.gap <= enough


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["repeated", "collinear", "constant", "few values", "zero"]))
def test_degenerate_data(seed, kind):
    rng = np.random.default_rng(seed)
    n, d = int(rng.choice([2, 9, 40])), int(rng.choice([1, 4, 50]))
    X = rng.standard_normal((n, d))
    X = {
        "repeated": X[rng.integers(0, n, n)],
        "collinear": X[:, rng.integers(0, d, d)],
        "constant": np.where(np.arange(d) == d // 2, 1.0, X),
        "few values": np.round(X),
        "zero": 0.0 * X,
    }[kind]
    loss = LOSSES[rng.integers(len(LOSSES))]
    z = np.round(X @ rng.standard_normal(d) + rng.standard_normal(n), 1)
    y = np.where(z > 0.0, 1.0, -1.0) if isinstance(loss, losses.Margin) else z
    problem = dn.Problem(X, y, loss, lam=10.0 ** rng.integers(-6, 3), fit_intercept=bool(rng.integers(2)))
    result = dn.solve(problem, method="interior", tol=1e-8, tuning=DEFAULT)
    assert result.converged or result.certificate.gap <= 1e-15
    assert_certificate_is_true(problem, result)


def test_units_do_not_matter():
    """Margins and labels times a power of two: the same bits, in the other unit."""
    problem = problem_for(losses.Quantile(0.3), lam=0.01, fit_intercept=True)
    large = replace(problem, X=problem.X * 1024.0, y=problem.y * 1024.0, lam=problem.lam * 1024.0)
    one, other = (dn.solve(each, method="interior", tol=1e-10) for each in (problem, large))
    assert one.n_epochs == other.n_epochs
    np.testing.assert_allclose(other.w, one.w, rtol=1e-12)


def test_a_weight_is_a_repeated_row():
    problem = problem_for(losses.Hinge(), lam=0.01, fit_intercept=True)
    weights = np.random.default_rng(2).integers(0, 4, problem.n)
    repeated = np.repeat(np.arange(problem.n), weights)
    other = dn.Problem(
        problem.X[repeated], problem.y[repeated], problem.loss, lam=0.01 * 80 / len(repeated), fit_intercept=True
    )
    weighted = replace(problem, sample_weight=weights.astype(float))
    one, two = (dn.solve(each, method="interior", tol=1e-12) for each in (weighted, other))
    np.testing.assert_allclose(one.w, two.w, atol=1e-5)
    assert 80 * one.certificate.primal == pytest.approx(len(repeated) * two.certificate.primal, rel=1e-11)


# Models, pieces, starts ----------------------------------------------------------------------------------------------


def test_models_that_are_solved_together_are_those_solved_alone():
    first = problem_for(losses.EpsilonInsensitive(0.2), lam=0.02, fit_intercept=True)
    problems = [first, replace(first, lam=0.5), replace(first, y=-first.y, sample_weight=np.linspace(0.0, 2.0, 80))]
    together = dn.solve_many(problems, method="interior", tol=1e-10)
    for problem, result in zip(problems, together, strict=True):
        alone = dn.solve(problem, method="interior", tol=1e-10)
        assert result.converged
        np.testing.assert_array_equal(result.w, alone.w)
        np.testing.assert_array_equal(result.alpha, alone.alpha)


@pytest.mark.parametrize(("n", "d", "q", "alpha"), [(10, 40, 0.05, 3e-3), (8, 195, 0.5, 5e-3), (30, 110, 0.9, 1e-3)])
def test_thresholds_with_more_features_than_examples_and_repeated_features(n, d, q, alpha):
    """Binary features repeat each other: an interior point has more coefficients than examples that are not zero."""
    for seed in range(8):
        rng = np.random.default_rng([seed, n])
        X = (rng.standard_normal((n, d)) > 0.5) * 1.0
        y = X[:, :3].sum(axis=1) + rng.standard_t(2, n)
        loss = losses.Quantile(q)
        problem = dn.Problem(X, y, loss, regularizer=regularizers.L1(), lam=alpha, fit_intercept=True)
        assert dn.solve(problem, method="interior", tol=1e-6).converged


def test_the_first_matrices_are_in_single_precision_and_the_last_are_not(monkeypatch):
    problem, asked = problem_for(losses.Hinge(), n=2500, d=200, lam=1e-8 / 2500, fit_intercept=True), []
    own = MemoryData.weighted_gram

    def noted(self, weights, *args, single=False, **options):
        asked.append(single)
        return own(self, weights, *args, single=single, **options)

    monkeypatch.setattr(MemoryData, "weighted_gram", noted)
    result = dn.solve(problem, method="interior", tol=1e-10)
    assert result.converged
    assert asked[0]
    assert not asked[-1]
    assert asked == sorted(asked, reverse=True)  # once in double precision, always


def test_decided_examples_are_left_out_and_resuming_changes_no_bit():
    """The last steps are over few rows; a method restored in the middle takes the same steps."""
    problem = problem_for(losses.Hinge(), n=4000, d=12, lam=1e-4, fit_intercept=True)
    start, kept = problem.certified_pair(np.zeros(12)), []

    def method():
        return interior_point.InteriorPoint(
            [(problem, start)], partial(Passes, problem.data), tol=1e-8, corrections=1, largest_system=100
        )

    one = method()
    for _ in range(6):
        one.step(None, np.inf, np.inf)
        (search,) = one.searches
        kept.append(problem.n if search.kept is None else len(search.kept))
        other = method()
        other.restore(one.state())
        one.step(None, np.inf, np.inf)
        other.step(None, np.inf, np.inf)
        np.testing.assert_array_equal(one.searches[0].best.x, other.searches[0].best.x)
    assert kept[0] == problem.n
    assert kept[-1] <= 0.5 * problem.n
    assert_certificate_is_true(problem, dn.solve(problem, method="interior", tol=1e-8, tuning=GENERAL))


def test_a_start_near_the_solution_saves_steps():
    problem = problem_for(losses.Hinge(), lam=0.01, fit_intercept=True)
    first = dn.solve(problem, method="interior", tol=1e-8)
    again = dn.solve(problem, method="interior", tol=1e-8, warm_start=first)
    assert again.n_epochs == 0.0
    near = replace(problem, lam=0.0101)
    warm, cold = (dn.solve(near, method="interior", tol=1e-8, warm_start=start) for start in (first, None))
    assert warm.converged
    assert warm.n_epochs < cold.n_epochs


def test_many_threads_have_the_same_bits():
    problem = problem_for(losses.Quantile(0.7), n=3000, d=60, lam=1e-3, fit_intercept=True)
    one, two = (dn.solve(problem, method="interior", tol=1e-9, n_threads=k) for k in (1, 2))
    np.testing.assert_array_equal(one.w, two.w)


def test_rounding_is_no_reason_to_go_on_for_ever():
    problem = problem_for(losses.Hinge(), lam=0.01)
    result = dn.solve(problem, method="interior", tol=0.0)
    assert result.status in (Status.NO_PROGRESS, Status.ROUNDING)
    assert result.certificate.relative_gap <= 1e-14


def test_slacks_that_are_zero_leave_the_dual_point_finite():
    """Both slacks of a kink underflow where a margin reaches it exactly: the curvature there is infinite."""
    X, y = np.array([[2.0, 2.0], [1.0, 2.0], [2.0, 2.0]]), np.array([1.0, 0.0, 3.0])
    problem = dn.Problem(
        X, y, losses.EpsilonInsensitive(0.1), regularizer=regularizers.L1(), lam=0.1, fit_intercept=True
    )
    start = problem.certified_pair(np.zeros(2))
    extended = np.column_stack([X, np.ones(3)])
    method = interior_point.InteriorPoint(
        [(problem, start)], partial(Rows.of, extended, 2), tol=0.0, corrections=1, largest_system=10
    )
    (search,) = method.searches
    boxes = search.best.boxes.copy()
    boxes[2:, :, 1] = 0.0
    search.best = search.best._replace(boxes=boxes)
    for _, _, alpha in method.point(0).points:
        assert np.isfinite(alpha).all()


def test_the_linear_system_of_the_kinks_finishes(monkeypatch):
    X, y = load("w8a")
    X = np.asarray(X[:800].todense())
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0.0, X.std(axis=0), 1.0)
    problem = dn.Problem(X, np.where(y[:800] > 0, 1.0, -1.0), losses.Hinge(), lam=1e-3 / 800, fit_intercept=True)
    with_it = dn.solve(problem, method="interior", tol=1e-12)
    monkeypatch.setattr(interior_point, "solved_on_kinks", lambda *_: None)
    without = dn.solve(problem, method="interior", tol=1e-12)
    assert with_it.certificate.gap <= without.certificate.gap
    assert_certificate_is_true(problem, with_it)


# Limits and refusals -------------------------------------------------------------------------------------------------


def test_the_time_limit_is_kept_with_a_true_certificate(monkeypatch):
    problem, now = problem_for(losses.Hinge(), lam=1e-4, fit_intercept=True), [0.0]
    whole = dn.solve(problem, method="interior", tol=1e-10)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    factorised = []

    class Slow(step_systems.ScaledCholesky):
        def __init__(self, *args):
            now[0] += 1.0
            factorised.append(now[0])
            super().__init__(*args)

    monkeypatch.setattr(step_systems, "ScaledCholesky", Slow)
    result = dn.solve(problem, method="interior", tol=1e-10, time_limit=4.5, tuning=GENERAL)
    assert result.status is Status.TIME_LIMIT
    assert len(factorised) == 5  # the last one too late: its step is not taken
    assert whole.certificate.gap < result.certificate.gap < np.inf
    assert_certificate_is_true(problem, result)


@pytest.mark.parametrize(("n", "d", "scale", "most"), [(80, 6, 1.0, 12), (10, 30, 1.0, 1), (40, 3, 1e6, 20)])
def test_epochs_are_limited(n, d, scale, most):
    """A step needs one matrix and seven products, half an epoch each; refinements and corrections have what is left."""
    rng = np.random.default_rng(0)
    X = scale * rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-4, 4, d)
    y = X @ rng.standard_normal(d)
    problem = dn.Problem(X, y / np.abs(y).max(), losses.EpsilonInsensitive(0.0), lam=1e-6)
    result = dn.solve(problem, method="interior", tol=1e-9, max_epochs=most, tuning=GENERAL)
    assert result.status is Status.EPOCH_LIMIT
    assert most <= result.n_epochs <= most + 4.0


@pytest.mark.parametrize("q", [0.001, 0.9999])
@pytest.mark.parametrize("seed", [0, 2])
def test_a_weak_penalty_and_a_quantile_near_an_end(q, seed):
    """Thresholds of a weak penalty are examples of little weight: the path must not decide on them first."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60 + 20 * seed, 30)) * (rng.random((60 + 20 * seed, 30)) < 0.3)
    y = X @ rng.standard_normal(30) + rng.standard_normal(len(X))
    problem = dn.Problem(X, y, losses.Quantile(q), regularizer=regularizers.L1(), lam=1e-4, fit_intercept=True)
    result = dn.solve(problem, tol=1e-6)
    assert result.converged
    assert result.n_epochs < 120


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.EpsilonInsensitive(0.1), losses.Quantile(0.999)], ids=repr)
@pytest.mark.parametrize("regularizer", [regularizers.L1(), regularizers.L2(), regularizers.ElasticNet(0.5)], ids=repr)
def test_weights_over_twelve_orders_of_magnitude(loss, regularizer):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 10))
    y = X @ rng.standard_normal(10) + rng.standard_normal(200)
    c = 10.0 ** rng.uniform(-6, 6, 200)
    problem = dn.Problem(
        X,
        np.sign(y) if isinstance(loss, losses.Hinge) else y,
        loss,
        regularizer=regularizer,
        lam=1e-3 * c.mean(),
        sample_weight=c,
        fit_intercept=True,
    )
    result = dn.solve(problem, method="interior", tol=1e-6)
    assert result.converged
    assert result.n_epochs < 120


@pytest.mark.parametrize(
    ("changed", "settings", "reason"),
    [
        ({"loss": losses.SquaredHinge()}, {}, r"needs a piecewise linear loss, such as Hinge\(\), .* got SquaredHinge"),
        (
            {"regularizer": regularizers.NonNegative()},
            {},
            r"needs regularizer L2\(\), .* without bounds, got NonNegative",
        ),
        ({}, {"tuning": tuned(largest_matrix=5)}, "needs a dense matrix of 6 rows and columns, and the limit is 5"),
        ({}, {"tau": 3}, r'tau must be "auto" or n = 80 with method "interior", got 3'),
        ({}, {"sampling": samplings.Nice(80, 4)}, 'sampling must be None with method="interior"'),
    ],
)
def test_where_it_does_not_apply_the_error_says_why(changed, settings, reason):
    problem = replace(problem_for(losses.Hinge(), lam=0.1), **changed)
    with pytest.raises(ValueError, match=reason):
        dn.solve(problem, method="interior", **settings)


def test_a_number_of_steps_that_depends_little_on_the_penalty():
    steps = []
    for C in (1e-3, 1.0, 1e3):
        problem = problem_for(losses.Hinge(), n=300, d=10, lam=1.0 / (300 * C))
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            own = Directions.__init__

            def counted(*args, own=own, calls=calls, **options):
                calls.append(1)
                own(*args, **options)

            patch.setattr(Directions, "__init__", counted)
            assert dn.solve(problem, method="interior", tol=1e-8).converged
        steps.append(len(calls))
    assert max(steps) <= 25


def test_the_predicted_cost_grows_with_the_matrix_and_the_rows():
    def cost(n, d, **more):
        return interior_cost(dn.Problem(np.ones((n, d)), np.ones(n), losses.Hinge()), tuned(**more))

    assert cost(2000, 100) < cost(4000, 100) < 2.5 * cost(2000, 100)
    assert cost(2000, 50) < cost(2000, 100) < 4.5 * cost(2000, 50)
    assert cost(50, 2000) < cost(100, 2000)
    assert cost(100, 50, largest_matrix=40) == np.inf
    problem = dn.Problem(np.ones((2000, 100)), np.ones(2000), losses.Hinge())
    assert dn.plan(problem, method="interior", tuning=GENERAL).cost == interior_cost(problem, GENERAL)


def test_it_runs_on_pieces():
    problem = problem_for(losses.Quantile(0.3), n=600, d=12, lam=0.01, fit_intercept=True)
    pieces = ChunkedData([problem.X[:100], problem.X[100:350], problem.X[350:]])
    one, other = (
        dn.solve(replace(problem, X=X), method="interior", tol=1e-10, tuning=GENERAL) for X in (problem.X, pieces)
    )
    assert one.converged
    assert other.converged
    np.testing.assert_allclose(one.w, other.w, rtol=1e-6, atol=1e-8)


# Thresholds, and no penalty ------------------------------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("variant", ["plain", "weights, some zero", "all"])
@pytest.mark.parametrize("d", [6, 120])
@pytest.mark.parametrize("small", [DEFAULT, GENERAL], ids=["block", "passes"])
def test_thresholds_are_examples_of_their_own(loss, variant, d, small):
    """t_j |w_j| is the absolute error of an example t_j e_j with target 0: the linear program with these rows is the same."""
    problem = replace(problem_for(loss, d=d, lam=0.02, **VARIANTS[variant]), regularizer=regularizers.L1())
    result = dn.solve(problem, method="interior", tol=1e-9, tuning=small)
    assert result.status is Status.CONVERGED
    assert_certificate_is_true(problem, result)
    assert result.certificate.primal == pytest.approx(optimum_of(problem), rel=2e-9)
    assert np.count_nonzero(result.w) <= min(d, 80)  # at a vertex


@by_loss
@pytest.mark.parametrize("variant", ["intercept", "all"])
def test_no_penalty_at_all(loss, variant):
    problem = problem_for(loss, d=4, lam=1.0, **VARIANTS[variant])
    risk = Unpenalised.of(replace(problem, y=-problem.y if isinstance(loss, losses.Hinge) else problem.y))
    result = dn.solve(risk, tol=1e-9)
    assert result.status is Status.CONVERGED
    assert result.plan.method == "interior"
    assert result.certificate.primal == pytest.approx(optimum_of(risk), rel=2e-9)
    mass = risk.unit.c * result.alpha
    assert np.abs(risk.unit.X.T @ mass).max() <= 1e-10 * np.abs(mass).sum()


@by_loss
def test_an_elastic_net_has_both_terms(loss):
    problem = replace(problem_for(loss, lam=0.05, fit_intercept=True), regularizer=regularizers.ElasticNet(0.4))
    result = dn.solve(problem, method="interior", tol=1e-9)
    other = dn.solve(problem, tol=1e-9, max_epochs=5000, random_state=0)
    assert_certificate_is_true(problem, result)
    assert_same_model(problem, result, other)


def test_auto_takes_it_for_linear_programs_and_small_data():
    problem = problem_for(losses.Quantile(0.3), lam=0.02)
    assert dn.plan(replace(problem, regularizer=regularizers.L1())).method == "interior"
    assert dn.plan(replace(problem, regularizer=regularizers.ElasticNet())).method == "interior"
    assert dn.plan(replace(problem, regularizer=regularizers.NonNegative())).smoothed
    assert dn.plan(replace(problem, regularizer=regularizers.L1(), loss=losses.Squared())).method != "interior"


def optimum_of(problem):
    """The optimal value by HiGHS: w = u − v, and an upper bound of each piecewise linear loss at every one of its lines."""
    unit, n, d, thresholds = (
        problem.unit,
        problem.n,
        problem.d,
        problem.lam * problem.regularizer.form.limits(problem.d)[0],
    )
    pieces = unit.loss.pieces(unit.y)
    slopes, free = pieces[:, ::2].T, np.full((n, 1), float(unit.fit_intercept))
    rows, rights = [], []
    for k, slope in enumerate(slopes):
        at = pieces[:, 1] if k == 0 else pieces[:, 2 * k - 1]  # a point of this line, where the loss has its value
        rights.append(-(unit.loss.value(at, unit.y) + slope * (unit.o - at)))
        A = slope[:, None] * np.asarray(unit.X.todense() if sp.issparse(unit.X) else unit.X)
        rows.append(np.hstack([A, -A, slope[:, None] * free, -np.eye(n)]))
    cost = np.concatenate([thresholds, thresholds, [0.0], unit.c / n])
    bounds = [(0, None)] * (2 * d) + [(None, None)] * (n + 1)
    return linprog(cost, np.vstack(rows), np.concatenate(rights), bounds=bounds).fun
