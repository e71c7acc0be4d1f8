"""QuantileRegressor: properties of quantiles, equality with scikit-learn's linear programs, certificates, and what is refused."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor as Theirs
from sklearn.utils._param_validation import InvalidParameterError

import dualnewton as dn
from tuned import tuned

QUANTILES = [0.1, 0.5, 0.9]


def make_data(n=200, d=6, seed=0):
    """Residuals with heavy tails whose spread depends on the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    w = rng.standard_normal(d) * (np.arange(d) % 2)
    return X, X @ w + 2.0 + (1.0 + 0.5 * np.abs(X[:, 0])) * rng.standard_t(3, n)


X, Y = make_data()
WEIGHTS = np.random.default_rng(1).integers(0, 4, 200)


def objective(model, X, y, c=None):
    r = y - X @ np.asarray(model.coef_, dtype=float) - model.intercept_
    pinball = np.maximum(model.quantile * r, (model.quantile - 1.0) * r)
    w = np.asarray(model.coef_, dtype=float)
    norm = 0.5 * w @ w if getattr(model, "penalty", "l1") == "l2" else np.abs(w).sum()
    return np.average(pinball, weights=c) + model.alpha * norm


# The linear program of scikit-learn ----------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", QUANTILES)
@pytest.mark.parametrize("alpha", [0.0, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_it_is_the_vertex_that_highs_finds(quantile, alpha, fit_intercept):
    rows, y = X[:197], Y[:197]  # qn is no integer, so that the best b is unique
    settings = {"quantile": quantile, "alpha": alpha, "fit_intercept": fit_intercept}
    ours, theirs = dn.QuantileRegressor(**settings, tol=1e-10).fit(rows, y), Theirs(**settings).fit(rows, y)
    assert objective(ours, rows, y) == pytest.approx(objective(theirs, rows, y), rel=1e-12)
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(rows), atol=1e-9)
    np.testing.assert_array_equal(ours.coef_ == 0.0, np.abs(theirs.coef_) < 1e-12)
    assert ours.certificate_.relative_gap <= 1e-10
    assert ours.certificate_.primal == pytest.approx(objective(ours, rows, y), rel=1e-12)
    assert ours.plan_.method == "interior"


@pytest.mark.parametrize("alpha", [0.01, 0.1])
def test_more_features_than_examples(alpha):
    few, y = make_data(n=30, d=70, seed=3)
    ours, theirs = dn.QuantileRegressor(alpha=alpha, tol=1e-9).fit(few, y), Theirs(alpha=alpha).fit(few, y)
    assert objective(ours, few, y) == pytest.approx(objective(theirs, few, y), rel=1e-9)
    assert ours.certificate_.relative_gap <= 1e-9


@pytest.mark.parametrize("quantile", QUANTILES)
def test_without_features_to_use_it_is_the_quantile_of_the_targets(quantile):
    model = dn.QuantileRegressor(quantile=quantile, alpha=1e3).fit(X, Y)
    # Any intercept between two targets is optimal, so that there is no vertex.
    assert np.abs(model.coef_).max() <= 1e-15
    ranked = np.sort(Y)
    assert ranked[int(quantile * 200) - 1] <= model.intercept_ <= ranked[int(quantile * 200)]


@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_repeated_and_rounded_rows(alpha):
    """Many vertices are degenerate: several examples lie on the plane that others determine."""
    rows, y = np.round(np.repeat(X[:60, :3], 3, axis=0)), np.round(np.repeat(Y[:60], 3))
    ours, theirs = dn.QuantileRegressor(alpha=alpha, tol=1e-9).fit(rows, y), Theirs(alpha=alpha).fit(rows, y)
    assert ours.certificate_.relative_gap <= 1e-9
    assert objective(ours, rows, y) == pytest.approx(objective(theirs, rows, y), rel=1e-9)


def test_dependent_and_empty_features():
    wide = np.column_stack([X, X[:, 0] + X[:, 1], np.zeros(200)])
    for alpha in (0.0, 0.02):
        ours, theirs = dn.QuantileRegressor(alpha=alpha, tol=1e-9).fit(wide, Y), Theirs(alpha=alpha).fit(wide, Y)
        assert ours.certificate_.relative_gap <= 1e-9
        assert objective(ours, wide, Y) == pytest.approx(objective(theirs, wide, Y), rel=1e-9)


# Properties of quantiles ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", [0.05, 0.3, 0.5, 0.8])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_the_share_of_residuals_below_is_the_quantile(quantile, penalty, alpha):
    """The optimality condition of b: at most qn residuals are negative, and at most (1 − q)n positive; at most d + 1 are zero."""
    model = dn.QuantileRegressor(quantile=quantile, alpha=alpha, penalty=penalty, tol=1e-12).fit(X, Y)
    residuals = Y - model.predict(X)
    zero = np.abs(residuals) < 1e-9
    assert zero.sum() <= 7
    assert (residuals[~zero] < 0.0).sum() <= quantile * 200
    assert (residuals[~zero] > 0.0).sum() <= (1.0 - quantile) * 200


@pytest.mark.parametrize("quantile", QUANTILES)
def test_equivariance_without_a_penalty(quantile):
    """Koenker and Bassett's Theorem 3.2: y → a + by, q → 1 − q for b < 0, y → y + Xγ, and X → XA."""
    rng, settings = np.random.default_rng(2), {"alpha": 0.0, "tol": 1e-12}
    model = dn.QuantileRegressor(quantile=quantile, **settings).fit(X, Y)
    scaled = dn.QuantileRegressor(quantile=quantile, **settings).fit(X, 3.0 + 2.0 * Y)
    np.testing.assert_allclose(scaled.coef_, 2.0 * model.coef_, atol=1e-9)
    assert scaled.intercept_ == pytest.approx(3.0 + 2.0 * model.intercept_, abs=1e-9)
    mirrored = dn.QuantileRegressor(quantile=1.0 - quantile, **settings).fit(X, -Y)
    np.testing.assert_allclose(mirrored.coef_, -model.coef_, atol=1e-9)
    shift, A = rng.standard_normal(6), rng.standard_normal((6, 6))
    shifted = dn.QuantileRegressor(quantile=quantile, **settings).fit(X, Y + X @ shift)
    np.testing.assert_allclose(shifted.coef_, model.coef_ + shift, atol=1e-9)
    mixed = dn.QuantileRegressor(quantile=quantile, **settings).fit(X @ A, Y)
    np.testing.assert_allclose(A @ mixed.coef_, model.coef_, atol=1e-8)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
def test_a_weight_is_a_repeated_row(penalty, alpha):
    settings = {"alpha": alpha, "penalty": penalty, "quantile": 0.3, "tol": 1e-11}
    weighted = dn.QuantileRegressor(**settings).fit(X, Y, sample_weight=2.5 * WEIGHTS)
    repeated = dn.QuantileRegressor(**settings).fit(np.repeat(X, WEIGHTS, axis=0), np.repeat(Y, WEIGHTS))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-10)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-4)
    assert weighted.certificate_.primal == pytest.approx(objective(weighted, X, Y, WEIGHTS), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
def test_weights_as_scikit_learn_has_them(alpha):
    ours = dn.QuantileRegressor(alpha=alpha, tol=1e-10).fit(X, Y, sample_weight=WEIGHTS)
    theirs = Theirs(alpha=alpha).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-9)


# The other penalty, storages, precision ------------------------------------------------------------------------------


@pytest.mark.parametrize("quantile", QUANTILES)
def test_l2_is_the_problem_with_that_penalty(quantile):
    model = dn.QuantileRegressor(quantile=quantile, alpha=0.2, penalty="l2", tol=1e-10).fit(X, Y)
    problem = dn.Problem(X, Y, dn.losses.Quantile(quantile), lam=0.2, fit_intercept=True)
    other = dn.solve(problem, tol=1e-9, max_epochs=5000, random_state=0)
    assert model.certificate_.primal == pytest.approx(other.certificate.primal, rel=1e-8)
    assert objective(model, X, Y) == pytest.approx(model.certificate_.primal, rel=1e-12)
    assert model.certificate_.relative_gap <= 1e-10


@pytest.mark.parametrize("alpha", [0.0, 0.03])
@pytest.mark.parametrize("tuning", [tuned(), tuned(one_block_features=0)], ids=["block", "passes"])
def test_storages_give_one_model(alpha, tuning):
    thin = np.where(np.random.default_rng(4).random(X.shape) < 0.5, X, 0.0)

    def fitted(rows):
        model = dn.QuantileRegressor(alpha=alpha, tol=1e-10)
        model._tuning = tuning
        return model.fit(rows, Y)

    dense = fitted(thin)
    np.testing.assert_allclose(fitted(sp.csr_array(thin)).coef_, dense.coef_, atol=1e-9)
    single = fitted(thin.astype(np.float32))
    assert single.coef_.dtype == np.float32
    np.testing.assert_allclose(single.coef_, dense.coef_, atol=1e-4)
    assert single.certificate_.relative_gap <= 1e-10


@pytest.mark.parametrize("alpha", [0.0, 1e-3])
def test_many_examples_are_aggregated_and_certified_as_a_whole(alpha):
    many, y = make_data(n=30000, d=4)
    model = dn.QuantileRegressor(alpha=alpha, quantile=0.2).fit(many, y)
    assert "means of the others" in model.plan_.reason
    assert model.certificate_.relative_gap <= 1e-6
    assert objective(model, many, y) == pytest.approx(model.certificate_.primal, rel=1e-12)
    assert (y < model.predict(many)).mean() == pytest.approx(0.2, abs=1e-3)
    threads = dn.QuantileRegressor(alpha=alpha, quantile=0.2, n_jobs=2).fit(many, y)
    np.testing.assert_array_equal(threads.coef_, model.coef_)


# Certificates, files, warm starts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 0.1])
def test_scikit_learns_own_model_is_certified(alpha):
    model = Theirs(alpha=alpha, quantile=0.3).fit(X, Y, WEIGHTS)
    certificate = dn.certify(model, X, Y, sample_weight=WEIGHTS)
    assert certificate.primal == pytest.approx(objective(model, X, Y, WEIGHTS), rel=1e-12)
    assert certificate.relative_gap <= 1e-8
    model.coef_ = model.coef_ + 0.1
    worse = dn.certify(model, X, Y, sample_weight=WEIGHTS)
    true_gap = worse.primal - certificate.primal
    assert true_gap <= worse.gap <= 1.2 * true_gap


@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_saved_models_predict_and_are_certified(tmp_path, alpha, penalty):
    model = dn.QuantileRegressor(alpha=alpha, penalty=penalty, quantile=0.7).fit(X, Y)
    dn.save(model, tmp_path / "model")
    loaded = dn.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert dn.certify(loaded, X, Y).relative_gap <= max(1e-6, 2.0 * model.certificate_.relative_gap)


def test_a_warm_start_is_where_the_last_fit_ended():
    model = dn.QuantileRegressor(alpha=0.01, warm_start=True).fit(X, Y)
    first = model.n_iter_
    assert model.fit(X, Y).n_iter_ == 0 < first
    model.set_params(alpha=0.011).fit(X, Y)
    assert model.certificate_.relative_gap <= 1e-6


def test_a_path_has_the_models_of_single_fits():
    alphas = [0.2, 0.05, 0.01]
    path = dn.QuantileRegressor(quantile=0.4, tol=1e-9).path(X, Y, alphas)
    for alpha, coef in zip(alphas, path.coef, strict=True):
        alone = dn.QuantileRegressor(quantile=0.4, alpha=alpha, tol=1e-9).fit(X, Y)
        np.testing.assert_allclose(np.ravel(coef), alone.coef_, atol=1e-8)


@pytest.mark.parametrize("solver", ["highs", "highs-ds", "interior", "auto"])
def test_names_of_solvers_give_one_model(solver):
    model = dn.QuantileRegressor(alpha=0.05, solver=solver, solver_options={"presolve": True}).fit(X, Y)
    np.testing.assert_allclose(model.coef_, dn.QuantileRegressor(alpha=0.05).fit(X, Y).coef_, atol=1e-9)


# Limits and refusals -------------------------------------------------------------------------------------------------


def test_a_limit_ends_with_a_warning_and_a_true_certificate():
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        model = dn.QuantileRegressor(alpha=0.01, max_iter=10).fit(X, Y)
    best = dn.QuantileRegressor(alpha=0.01, tol=1e-12).fit(X, Y).certificate_.primal
    assert model.certificate_.dual <= best <= model.certificate_.primal
    many, y = make_data(n=30000, d=4)
    with pytest.warns(ConvergenceWarning):
        model = dn.QuantileRegressor(alpha=0.01, time_limit=0.0).fit(many, y)
    assert model.certificate_.relative_gap > 1e-6


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"quantile": 0.0}, r"'quantile' parameter .* in the range \(0.0, 1.0\). Got 0.0"),
        ({"quantile": 1.5}, r"'quantile' parameter .* in the range \(0.0, 1.0\). Got 1.5"),
        ({"alpha": -1.0}, r"'alpha' parameter .* in the range \[0.0, inf\). Got -1.0"),
        ({"penalty": "l0"}, "'penalty' parameter .* must be a str among"),
        ({"solver": "simplex"}, "'solver' parameter .* must be a str among"),
        ({"solver_options": 3}, "'solver_options' parameter"),
    ],
)
def test_what_is_not_allowed_is_named(settings, reason):
    with pytest.raises(InvalidParameterError, match=reason):
        dn.QuantileRegressor(**settings).fit(X, Y)


def test_nothing_is_said_where_the_certificate_meets_tol():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = dn.QuantileRegressor(alpha=0.01).fit(X, Y)
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("shape", [(500, 300), (150, 600)])
def test_coefficients_are_exactly_zero_before_the_vertex_is_known(shape, monkeypatch):
    """Within a rough tolerance no vertex is found; zeros are set where that keeps the certificate within it."""
    monkeypatch.setattr("dualnewton.solvers.primal.interior_point.vertex_near", lambda *_: None)
    wide, y = make_data(*shape, seed=5)
    model = dn.QuantileRegressor(alpha=0.15, tol=1e-4).fit(wide, y)
    best = Theirs(alpha=0.15).fit(wide, y)
    assert model.certificate_.relative_gap <= 1e-4
    assert np.count_nonzero(model.coef_) <= 1.5 * np.count_nonzero(np.abs(best.coef_) > 1e-10)


@pytest.mark.parametrize("shift", [1e3, 1e5])
def test_features_far_from_zero(shift):
    # b takes up the means of the features: P(w, b) of shifted features has the same minimum.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 5))
    y = X @ np.arange(1.0, 6.0) + rng.standard_normal(50)
    here, there = (dn.QuantileRegressor(alpha=0.01).fit(rows, y) for rows in (X, X + shift))
    assert there.certificate_.relative_gap <= there.tol
    assert there.certificate_.primal == pytest.approx(here.certificate_.primal, rel=1e-5)
    np.testing.assert_allclose(there.coef_, here.coef_, rtol=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.01])
@pytest.mark.parametrize("size", [1e4, 1e12])
def test_rows_without_weight_may_be_of_any_size(alpha, size):
    """The interior points begin in units of the rows that count."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 5))
    y, weights = X @ rng.standard_normal(5) + rng.standard_normal(120), (np.arange(120) % 7 > 0) * 1.0
    model = dn.QuantileRegressor(alpha=alpha, tol=1e-8)
    expected = model.fit(X[weights > 0.0], y[weights > 0.0]).coef_
    X[weights == 0.0] *= size
    y[weights == 0.0] *= size
    model.fit(X, y, sample_weight=weights)
    assert model.certificate_.relative_gap <= 1e-8
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-6)
