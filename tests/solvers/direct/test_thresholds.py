"""Lasso and elastic net on small data: the optimum that the general method and scikit-learn find, on degenerate data too."""

import itertools
import warnings

import numpy as np
import pytest
import sklearn.linear_model as skl
from benchmarks.defaults_data import generated
from sklearn.datasets import load_diabetes

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.solvers.direct import active_set, entries, thresholds
from dualnewton.solvers.direct.active_set import Columns, Kinks, Matrix, Model
from dualnewton.solvers.direct.block import Block, Limits
from tuned import GENERAL

RNG = np.random.default_rng(4)


def rows_of(n, d, *, correlated=0.0):
    """Rows, and targets that depend on a few of the features."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + correlated * rng.standard_normal((n, 1)) + 0.5
    y = 3.0 * X[:, : min(d, 6)] @ rng.standard_normal(min(d, 6)) + rng.standard_normal(n)
    return X, y


def strongest(X, y):
    """The smallest alpha for which the Lasso keeps all features at zero."""
    return float(np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max()) / len(y)


SHAPES = {
    "few features": rows_of(80, 7),
    "correlated": rows_of(90, 30, correlated=3.0),
    "more features than rows": rows_of(40, 70),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.3, 1e-3])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("positive", [False, True])
def test_it_finds_what_the_general_method_finds(shape, share, ratio, positive, monkeypatch):
    seen, solve = [], thresholds.solve
    monkeypatch.setattr(thresholds, "solve", lambda *args, **rest: seen.append(args) or solve(*args, **rest))
    X, y = SHAPES[shape]
    lam, g = regularizers.mixed(share * strongest(X, y), ratio, positive=positive)
    weights = RNG.uniform(0.0, 2.0, len(y)) * (RNG.random(len(y)) < 0.9)
    for fit_intercept, c, offset in itertools.product((True, False), (None, weights), (None, 0.3 * y)):
        more = {"lam": lam, "sample_weight": c, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(X, y, losses.Squared(), regularizer=g, **more)
        found = dn.solve(problem, tol=1e-11)
        assert seen, "the direct solver was not used"
        assert found.plan.family == "thresholds"
        assert found.certificate.relative_gap <= 1e-11
        seen.clear()
        general = dn.solve(problem, tol=1e-11, tuning=GENERAL)
        assert not seen
        assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-10)
        np.testing.assert_allclose(found.w, general.w, atol=1e-4 * (1.0 + np.abs(general.w).max()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-8, 1e-3, 1e8])
def test_scikit_learn_finds_the_same_at_any_scale(shape, scale):
    X, y = SHAPES[shape]
    X, y = scale * X, 1e3 * y
    alpha = 0.1 * strongest(X, y)
    ours = dn.Lasso(alpha=alpha, tol=1e-6).fit(X, y)
    theirs = skl.Lasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(X, y)
    np.testing.assert_allclose(scale * ours.coef_, scale * theirs.coef_, atol=1e-5 * scale * np.abs(theirs.coef_).max())
    assert ours.plan_.family == "thresholds"


def degenerate():
    """Data that leave matrices singular, by name."""
    X, y = rows_of(60, 8)
    big, t = rows_of(30, 60)
    yield "duplicated columns", np.hstack([X, X, -X]), y
    yield "constant columns", np.hstack([X, np.full((60, 2), 3.0), np.zeros((60, 1))]), y
    yield "one column", X[:, :1], y
    yield "one row", X[:1], y[:1]
    yield "constant targets", X, np.full(60, 2.5)
    yield "zero targets", X, np.zeros(60)
    yield "far from the origin", X + 1e4, y
    yield "mixed scales", X * np.geomspace(1e-8, 1e8, 8), y
    yield "more features than rows, each three times", np.hstack([big, big, 2.0 * big]), t
    yield "exact fit", X, X @ np.arange(8.0)


@pytest.mark.parametrize(("X", "y"), [case[1:] for case in degenerate()], ids=[case[0] for case in degenerate()])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("share", [1.5, 0.5, 1e-4])
def test_degenerate_data_are_certified_without_warnings(X, y, ratio, share):
    alpha = max(share * strongest(X, y), 1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fit_intercept, positive in itertools.product((True, False), repeat=2):
            options = {"alpha": alpha, "l1_ratio": ratio, "fit_intercept": fit_intercept, "positive": positive}
            assert dn.ElasticNet(**options, tol=1e-6).fit(X, y).certificate_.relative_gap <= 1e-6


def test_a_strong_penalty_keeps_all_features_at_zero():
    X, y = SHAPES["more features than rows"]
    model = dn.Lasso(alpha=1.0001 * strongest(X, y)).fit(X, y)
    assert not model.coef_.any()
    assert model.intercept_ == pytest.approx(y.mean())


def test_a_start_is_continued_and_limits_end_the_steps():
    X, y = SHAPES["more features than rows"]
    lam, g = regularizers.mixed(0.01 * strongest(X, y), 1.0)
    problem = dn.Problem(X, y, losses.Squared(), regularizer=g, lam=lam, fit_intercept=True)
    block, limits = Block(problem.data), Limits(1e-10)
    found = thresholds.solve(problem, block, None, limits)
    again = thresholds.solve(problem, block, (found.w, found.intercept), limits)
    np.testing.assert_array_equal(again.w, found.w)
    short = thresholds.solve(problem, block, None, Limits(1e-10, 1))
    late = thresholds.solve(problem, block, None, Limits(1e-10, deadline=0.0))
    assert short.steps == 1
    assert not late.w.any()
    assert problem.primal(found.w, found.intercept) < problem.primal(short.w, short.intercept)


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 2.0])
@pytest.mark.parametrize("low", [None, -np.inf])
def test_proximal_steps_alone_reach_the_minimum(matrix, ridge, low, monkeypatch):
    """Where the active set method cycles, the proximal steps converge: here it takes no part at all."""
    monkeypatch.setattr(active_set, "MOST_SETS", 0)
    A, t = rows_of(20, 35, correlated=1.0)
    high = np.full(35, 0.05 * np.abs(A.T @ t).max())
    kinks = Kinks(np.full(35, ridge), -high if low is None else np.full(35, low), high)
    model = Model(Matrix(A.T @ A, 20) if matrix else Columns(A), -(A.T @ t), np.zeros(35), kinks)
    v = model.minimise(1e-8, lambda: False)
    slopes = A.T @ (A @ v - t)
    used = v != 0.0
    assert used.any()
    assert low is None or v.min() >= 0.0
    np.testing.assert_allclose(slopes[used] + ridge * v[used], -high[used] * np.sign(v[used]), rtol=2e-8)
    assert np.all(kinks.shrunk(-slopes)[~used] <= 2e-8 * high[~used])


def test_the_diabetes_table_agrees_with_scikit_learn():
    X, y = load_diabetes(return_X_y=True)
    for alpha, ratio in itertools.product((1.0, 0.1, 1e-3), (1.0, 0.5)):
        ours = dn.ElasticNet(alpha=alpha, l1_ratio=ratio, tol=1e-10).fit(X, y)
        theirs = skl.ElasticNet(alpha=alpha, l1_ratio=ratio, tol=1e-12, max_iter=100_000).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("entry", [-1e-18, 0.0, np.nan, np.inf, 1e308])
def test_a_system_of_any_matrix_comes_to_an_end(entry):
    """Rounding leaves a matrix that should be zero with a negative diagonal; the lift once grew the wrong way for ever."""
    x = active_set.solution(np.full((3, 3), entry), np.ones(3))
    assert x.shape == (3,)
    assert np.isfinite(x).all() or not np.isfinite(entry)


@pytest.mark.parametrize("origin", [0.1, 1e6], ids=["near zero", "far from zero"])
@pytest.mark.parametrize("weights", [None, RNG.uniform(0.5, 2.0, 200)], ids=["plain", "weighted"])
def test_all_features_at_once_have_the_products_of_centred_ones(origin, weights):
    X = np.random.default_rng(6).standard_normal((200, 30)) + origin
    problem = dn.Problem(X, X[:, 0], losses.Squared(), lam=1.0, sample_weight=weights, fit_intercept=True)
    before = X.copy()
    rows = thresholds.Rows(problem, Block(problem.data))
    rows.gather(np.arange(30))
    c = np.ones(200) if weights is None else weights
    centred = X - c @ X / c.sum()
    np.testing.assert_allclose(rows.matrix(), (centred.T * c) @ centred, rtol=1e-6, atol=1e-7)
    v = np.linspace(-1.0, 1.0, 30)
    missed = centred @ v - (X[:, 0] - c @ X[:, 0] / c.sum())
    assert rows.evaluate(v)[0] == pytest.approx(0.5 * c @ np.square(missed), rel=1e-8)
    np.testing.assert_array_equal(rows.values, before)


def test_penalties_fall_in_equal_ratios_to_the_wanted_one():
    assert thresholds.falling_multiples(0.5, 0.3) == (1.0,)
    assert thresholds.falling_multiples(10.0, 0.3) == (1.0,)  # in between there would be a ratio above 0.3
    assert thresholds.falling_multiples(1e3, 0.0) == (1.0,)
    found = thresholds.falling_multiples(100.0, 0.3)
    np.testing.assert_allclose(found, [100.0 ** (2 / 3), 100.0 ** (1 / 3), 1.0])
    assert len(thresholds.falling_multiples(1e300, 0.3)) == thresholds.MOST_PENALTIES


def one_hot_model(variables, seed):
    """The model of a step from w = 0 for one-hot features with an intercept, which is eliminated: flat along each variable.

    Rounding errors of the elimination leave a matrix that is not positive semidefinite.
    """
    rng = np.random.default_rng([variables, seed])
    levels = rng.choice(5, size=(2000, variables), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    A = (levels[:, :, None] == np.arange(5)).reshape(2000, -1) * 1.0
    score = A @ rng.standard_normal(A.shape[1])
    slope = 0.5 - ((score - score.mean()) / score.std() + 0.5 * rng.standard_normal(2000) > 0.0)
    means, thresholds = A.mean(axis=0), np.ones(A.shape[1])
    H = (0.5 * A).T @ (0.5 * A) - 500.0 * np.outer(means, means)
    return Matrix(H, 2000), (slope - slope.mean()) @ A, Kinks(0.0 * thresholds, -thresholds, thresholds)


@pytest.mark.parametrize(("variables", "seed"), [(4, 15), (10, 0), (16, 8)])
def test_flat_directions_of_one_hot_features_lead_to_a_minimum(variables, seed):
    """Singular systems once led to points of the size of 1/rounding, from which no step came back."""
    gram, slopes, kinks = one_hot_model(variables, seed)
    model = Model(gram, slopes, np.zeros(len(slopes)), kinks)
    v = model.minimise(1e-6, lambda: False)
    assert model._violation() <= 1e-6
    assert np.abs(v).max() < 100.0
    rough = Model(gram, slopes, np.zeros(len(slopes)), kinks)
    rough.minimise(0.0, lambda: False, share=0.1)
    lowest = model._value(v, model.slopes)
    assert lowest <= rough._value(rough.v, rough.slopes) + 1e-9 * abs(lowest) <= 0.8 * lowest


@pytest.mark.parametrize(("n", "d"), [(300, 600), (700, 400), (1200, 1000)])
@pytest.mark.parametrize("make", [dn.Lasso, dn.ElasticNet])
def test_independent_features_of_which_many_are_used_need_sweeps_alone(n, d, make, monkeypatch):
    """Linear systems of hundreds of features would take several times as long."""
    rng, systems, minimise = np.random.default_rng(0), [], active_set.Model.minimise
    monkeypatch.setattr(
        active_set.Model, "minimise", lambda own, *rest: systems.append(own.v.size) or minimise(own, *rest)
    )
    X, w = rng.standard_normal((n, d)), rng.standard_normal(d) * (rng.random(d) < 0.3)
    y = X @ w
    y = y / y.std() + 0.3 * rng.standard_normal(n)
    model = make(alpha=0.01, tol=1e-6).fit(X, y)
    assert len(systems) == 1  # over the features with the strongest slopes at w = 0
    assert systems[0] <= 2 * thresholds.LEAST
    assert "coordinate descent" in str(model.plan_)
    assert not model.plan_.has_switched
    assert model.certificate_.relative_gap <= 1e-6
    exact = make(alpha=0.01, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=2e-3)


@pytest.mark.parametrize(("n", "d"), [(300, 600), (700, 400), (1200, 1000)])
def test_correlated_features_are_left_to_newton_steps(n, d, monkeypatch):
    swept = []
    monkeypatch.setattr(entries, "swept", lambda *args, **_: swept.append(args))
    rng = np.random.default_rng(0)
    X = 0.3 * rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    y = X @ (rng.standard_normal(d) + 0.2)
    model = dn.Lasso(alpha=0.01 * y.std()).fit(X, y)
    assert not swept
    assert model.certificate_.relative_gap <= model.tol


def test_newton_steps_follow_where_sweeps_do_not_suffice(monkeypatch):
    """The targets hide the common part of the features, so that these seem independent."""
    monkeypatch.setattr(thresholds, "worthwhile_sweeps", lambda *_: 3)
    rng = np.random.default_rng(0)
    for n, d in ((300, 600), (700, 400)):
        X = 0.5 * rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
        y = X @ rng.standard_normal(d)
        alpha = 0.01 * y.std()
        found = dn.Lasso(alpha=alpha, tol=1e-9).fit(X, y)
        assert found.certificate_.relative_gap <= 1e-9
        # The gap by the residuals, shortened to a feasible dual point. (Coordinate descent takes 80,000 sweeps to a gap of 5e-6.)
        Xc, yc = X - X.mean(axis=0), y - y.mean()
        r = yc - Xc @ found.coef_
        primal = 0.5 * float(r @ r) / n + alpha * np.abs(found.coef_).sum()
        point = r * min(1.0, alpha * n / np.abs(Xc.T @ r).max())
        dual = float(yc @ yc - (yc - point) @ (yc - point)) / (2 * n)
        assert primal == pytest.approx(found.certificate_.primal, rel=1e-12)
        assert primal - dual <= 2e-9 * primal


KINKED = {
    "thresholds": (losses.Squared(), regularizers.L1(), 2.0),
    "proximal": (losses.Logistic(), regularizers.ElasticNet(l1=0.5), 0.2),
    "joint": (losses.SquaredOutputs(2), regularizers.JointL1(), 3.0),
}
"""Loss, penalty, and a λ for which some features are zero, by the direct solver."""


@pytest.mark.parametrize("family", KINKED)
def test_a_start_with_few_features_gathers_the_others(family):
    loss, g, high = KINKED[family]
    X, y = SHAPES["few features"]
    targets = {"proximal": np.where(y > np.median(y), 1.0, -1.0), "joint": np.column_stack([y, y + X[:, 0]])}
    strong, weak = (
        dn.Problem(X, targets.get(family, y), loss, regularizer=g, lam=lam, fit_intercept=True) for lam in (high, 1e-3)
    )
    start = dn.solve(strong, tol=1e-8)
    result = dn.solve(weak, tol=1e-8, warm_start=start)
    assert 0 < np.count_nonzero(start.w) < np.count_nonzero(result.w)
    assert result.converged
    assert result.plan.family == family  # an iterative method would follow a direct solution that misses tol


@pytest.mark.parametrize(("n", "d"), [(800, 1200), (2000, 600)])
def test_few_features_are_gathered_where_strong_ones_let_many_seem_useful(n, d, monkeypatch):
    """At w = 0 half of the features violate the conditions; all were copied for coordinate descent, but 20 are used."""
    swept, gathered, gather = [], [], thresholds.Rows.gather
    monkeypatch.setattr(entries, "swept", lambda *args, **_: swept.append(args))
    monkeypatch.setattr(thresholds.Rows, "gather", lambda self, some: gathered.append(some.size) or gather(self, some))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = X[:, :20].sum(axis=1) + rng.standard_normal(n)
    slopes = np.abs(X.T @ (y - y.mean())) / n
    model = dn.Lasso(alpha=0.1 * slopes.max(), tol=1e-6).fit(X, y)
    assert np.count_nonzero(slopes > model.alpha) > 100
    assert not swept
    assert 20 <= sum(gathered) <= 40
    assert 20 <= np.count_nonzero(model.coef_) <= 25
    assert model.certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize(("n", "d"), [(400, 900), (1500, 300)])
def test_the_strongest_features_show_whether_features_share_what_they_explain(n, d):
    rng = np.random.default_rng(3)
    for correlation, expected in ((0.0, True), (0.99, False)):
        X = rng.standard_normal((n, d))
        for j in range(1, d):
            X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * X[:, j]
        y = X[:, ::60].sum(axis=1) + rng.standard_normal(n)
        slopes = np.abs(X.T @ (y - y.mean())) / n
        problem = dn.Problem(
            X, y, losses.Squared(), regularizer=regularizers.L1(), lam=0.1 * slopes.max(), fit_intercept=True
        )
        block, kinks = Block(problem.data), thresholds.kinks_of(problem)
        rows = thresholds.Rows(problem, block)
        zero = rows.evaluate(np.empty(0))
        np.testing.assert_allclose(np.abs(zero[1]), n * slopes, rtol=1e-9, atol=1e-9 * n)
        strong = thresholds.highest_scored(np.abs(zero[1]), np.arange(d), 16)
        w, known, independent = thresholds.minimum_over_strongest(
            rows, kinks, zero, strong, block.crossovers, Limits(1e-8)
        )
        assert independent is expected
        assert known[0] < zero[0]
        residuals = y - y.mean() - (X - X.mean(axis=0)) @ w
        np.testing.assert_allclose(known[1], -(X - X.mean(axis=0)).T @ residuals, atol=1e-8 * n)


def test_features_stronger_than_chance():
    pull = np.minimum(np.abs(np.random.default_rng(0).standard_normal(1000)), 3.0)
    pull[[3, 500]] = 6.0, 5.0
    np.testing.assert_array_equal(thresholds.stronger_than_chance(pull, np.arange(1000)), [3, 500])
    np.testing.assert_array_equal(thresholds.stronger_than_chance(pull, np.arange(4, 1000)), [500])
    assert thresholds.highest_scored(pull, np.arange(1000), 2).tolist() == [3, 500]


def test_sweeps_that_fail_on_more_features_than_examples_are_followed_by_newton_steps():
    """Scales between 1e-3 and 1e3: the sweeps ended early, and the iterative method after them did not converge."""
    table = generated("200×5000", "ill-scaled")
    assert dn.ElasticNet().fit(table.X, table.y).certificate_.relative_gap <= 1e-4
