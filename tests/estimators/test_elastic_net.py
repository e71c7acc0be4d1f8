"""ElasticNet and Lasso against scikit-learn's."""

import numpy as np
import pytest
from sklearn import linear_model as theirs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from dualnewton.estimators.elastic_net import ElasticNet, Lasso
from estimators.cases import as_csr, certificates, data_for, relative

EXACT = {"tol": 1e-12}
PRECISE = {"tol": 1e-14, "max_iter": 10**6}


@parametrize_with_checks([ElasticNet(), Lasso(), ElasticNet(l1_ratio=1.0, positive=True)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("l1_ratio", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("positive", [True, False])
def test_parity(sparse, l1_ratio, fit_intercept, positive):
    for (n, d), alpha in zip([(60, 6), (20, 50), (600, 200)], [0.1, 0.02, 0.02], strict=True):
        X, y = data_for(0, n=n, d=d)
        for weight in (None, np.random.default_rng(1).uniform(0.0, 3.0, n)):
            shared = {"alpha": alpha, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept, "positive": positive}
            ours = ElasticNet(**shared, **EXACT).fit(as_csr(X) if sparse else X, y, weight)
            if l1_ratio == 0.0:  # scikit-learn warns of its own algorithm here, and has another
                total = n if weight is None else weight.sum()
                how = {"positive": True, "tol": 1e-14} if positive else {"solver": "svd"}
                reference = theirs.Ridge(alpha * total, fit_intercept=fit_intercept, **how).fit(X, y, weight)
            else:
                reference = theirs.ElasticNet(**shared, **PRECISE).fit(X, y, weight)
            assert relative(ours.coef_, reference.coef_) < 1e-6
            assert ours.intercept_ == pytest.approx(reference.intercept_, rel=1e-6, abs=1e-9)
            assert relative(ours.predict(X), reference.predict(X)) < 1e-6
            assert ours.certificate_.relative_gap <= 1e-12


def test_the_lasso_is_an_elastic_net():
    X, y = data_for(0, n=40, d=60)
    ours, reference = Lasso(0.05, **EXACT).fit(X, y), theirs.Lasso(0.05, **PRECISE).fit(X, y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert np.array_equal(ours.coef_, ElasticNet(0.05, l1_ratio=1.0, **EXACT).fit(X, y).coef_)
    assert "l1_ratio" not in ours.get_params()
    assert clone(ours).get_params() == ours.get_params()


def test_parameters_and_defaults_are_theirs():
    for ours, reference in ((ElasticNet(), theirs.ElasticNet()), (Lasso(), theirs.Lasso())):
        mine = ours.get_params()
        assert {name: mine[name] for name in reference.get_params()} == reference.get_params()


def test_several_targets_are_fitted_together_and_each_has_its_proof():
    X, y = data_for(0)
    Y = np.stack([y, -2.0 * y + 1.0, np.sin(5.0 * y)], axis=1)
    ours, reference = ElasticNet(0.1, **EXACT).fit(X, Y), theirs.ElasticNet(0.1, **PRECISE).fit(X, Y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert relative(ours.intercept_, reference.intercept_) < 1e-6
    assert np.shape(ours.dual_gap_) == np.shape(reference.dual_gap_)
    assert len(ours.certificate_) == len(ours.n_iter_) == 3
    assert (ours.sparse_coef_.toarray() == ours.coef_).all()
    assert ours.predict(X).shape == Y.shape


def test_shapes_are_theirs():
    X, y = data_for(0)
    for target in (y, y[:, None], np.stack([y, y], axis=1)):
        ours, reference = ElasticNet().fit(X, target), theirs.ElasticNet().fit(X, target)
        for name in ("coef_", "intercept_", "dual_gap_", "n_iter_"):
            assert np.shape(getattr(ours, name)) == np.shape(getattr(reference, name)), name
        assert ours.sparse_coef_.shape == reference.sparse_coef_.shape
        assert ours.predict(X).shape == reference.predict(X).shape


def test_the_dual_gap_bounds_what_scikit_learns_objective_could_still_lose():
    X, y = data_for(0, n=30, d=50)

    def objective(model):
        r = model.l1_ratio
        penalty = r * np.abs(model.coef_).sum() + 0.5 * (1.0 - r) * np.square(model.coef_).sum()
        return 0.5 * np.square(model.predict(X) - y).mean() + model.alpha * penalty

    best = objective(theirs.ElasticNet(0.05, **PRECISE).fit(X, y))
    rough = ElasticNet(0.05, tol=0.3).fit(X, y)
    assert objective(rough) - best <= rough.dual_gap_
    assert rough.dual_gap_ == certificates(rough)[0].gap
    assert rough.certificate_.primal == pytest.approx(objective(rough), rel=1e-12)


def test_weights_are_repetitions_and_zero_weights_are_absences():
    X, y = data_for(0, n=40, d=12)
    times = np.random.default_rng(0).integers(0, 4, 40)
    for model in (ElasticNet(0.1, **EXACT), Lasso(0.1, **EXACT)):
        weighted = clone(model).fit(X, y, times)
        repeated = clone(model).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
        scaled = clone(model).fit(X, y, 7.0 * times)
        assert relative(weighted.coef_, repeated.coef_) < 1e-9
        assert relative(weighted.coef_, scaled.coef_) < 1e-9


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_a_penalty_it_is_least_squares(fit_intercept):
    X, y = data_for(0)
    ours = Lasso(0.0, fit_intercept=fit_intercept, **EXACT).fit(X, y)
    reference = theirs.LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    with pytest.raises(ValueError, match=r"alpha must be > 0 with positive=True, got 0\.0"):
        Lasso(0.0, positive=True).fit(X, y)


def test_a_path_is_fitted_from_neighbour_to_neighbour():
    X, y = data_for(0, n=50, d=30)
    alphas = [0.01, 1.0, 0.1]
    path = Lasso(**EXACT).path(X, y, alphas)
    _, coefs, _ = theirs.lasso_path(X - X.mean(axis=0), y - y.mean(), alphas=alphas, **PRECISE)
    for k, place in enumerate(np.argsort(alphas)[::-1]):
        assert relative(path.coef[place], coefs[:, k]) < 1e-6
        assert path.certificates[place].relative_gap <= 1e-12
    assert repr(path) == "Path(3 models, values 0.01 to 1, coef (3, 30))"


def test_warm_starts_carry_over():
    X, y = data_for(0, n=80, d=40)
    model = Lasso(0.05, warm_start=True, tol=1e-6).fit(X, y)
    assert model.fit(X, y).n_iter_ == 0
    other = model.set_params(alpha=0.02, **EXACT).fit(X, y)
    assert relative(other.coef_, Lasso(0.02, **EXACT).fit(X, y).coef_) < 1e-9


def test_what_chooses_scikit_learns_algorithm_changes_nothing():
    X, y = data_for(0)
    plain = ElasticNet(0.1).fit(X, y)
    for extras in ({"precompute": True}, {"precompute": X.T @ X}, {"selection": "random"}, {"copy_X": False}):
        before = X.copy()
        assert np.array_equal(ElasticNet(0.1, **extras).fit(X, y, check_input=False).coef_, plain.coef_)
        assert np.array_equal(X, before)


def test_float32_stays_float32():
    X, y = data_for(0)
    model = Lasso(0.1).fit(X.astype(np.float32), y.astype(np.float32))
    assert model.coef_.dtype == np.float32
    assert relative(model.coef_, Lasso(0.1).fit(X, y).coef_) < 1e-4


def test_a_fit_that_misses_tol_warns_and_is_usable():
    X, y = data_for(0, n=30, d=100)
    with pytest.warns(ConvergenceWarning, match=r"Lasso has a certified relative gap of .* more than tol=1e-12"):
        model = Lasso(1e-4, max_iter=1, **EXACT).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
