"""The multi-task estimators find what scikit-learn's find, and prove it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context, linear_model
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, ShuffleSplit

import dualnewton as dn
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.matrix.memory import profile_of
from dualnewton.planning.direct import gathers_columns
from estimators.cases import relative
from tuned import tuned

SHAPES = {"tall": (50, 5), "wide": (24, 30)}
PAIRS = {
    "elastic net": (dn.MultiTaskElasticNet, linear_model.MultiTaskElasticNet),
    "lasso": (dn.MultiTaskLasso, linear_model.MultiTaskLasso),
}
every_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
every_shape = pytest.mark.parametrize("shape", SHAPES)


def data(shape="tall", outputs=3, *, weighted=False):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) + 1.0
    Y = X[:, :4] @ rng.standard_normal((4, outputs)) + 0.5 * rng.standard_normal((n, outputs)) + 2.0
    return X, Y, rng.integers(1, 4, n).astype(float) if weighted else None


# Single fits -----------------------------------------------------------------------------------------------------------


@every_pair
@every_shape
@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_fit_is_scikit_learns(pair, shape, outputs, fit_intercept, weighted):
    X, Y, weights = data(shape, outputs, weighted=weighted)
    kind, reference = pair
    theirs = reference(0.1, fit_intercept=fit_intercept, tol=1e-13, max_iter=10**6).fit(X, Y, weights)
    for given in (X, sp.csr_array(X)):
        ours = kind(0.1, fit_intercept=fit_intercept, tol=1e-13).fit(given, Y, weights)
        assert ours.coef_.shape == theirs.coef_.shape
        assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
        assert relative(ours.coef_, theirs.coef_) < 1e-6
        assert relative(ours.intercept_, theirs.intercept_) < 1e-6 or not fit_intercept
        assert ours.predict(given).shape == Y.shape
        assert ours.certificate_.relative_gap <= 1e-13
        assert ours.dual_coef_.shape == Y.shape
        assert ours.dual_gap_ == ours.certificate_.gap
        assert (ours.sparse_coef_.toarray() == ours.coef_).all()
    certificate = dn.certify(theirs, X, Y, sample_weight=weights)
    assert certificate.relative_gap < 1e-9
    assert certificate.primal == pytest.approx(ours.certificate_.primal, rel=1e-9)


def test_features_are_selected_for_all_outputs():
    X, Y, _ = data("wide")
    coef = dn.MultiTaskLasso(0.3).fit(X, Y).coef_
    used = (coef != 0.0).any(axis=0)
    assert 0 < used.sum() < used.size
    assert (coef[:, used] != 0.0).all()


@every_pair
def test_no_penalty_is_least_squares_for_each_output(pair):
    X, Y, weights = data(weighted=True)
    ours = pair[0](0.0).fit(X, Y, weights)
    reference = linear_model.LinearRegression().fit(X, Y, weights)
    assert relative(ours.coef_, reference.coef_) < 1e-9
    assert max(certificate.relative_gap for certificate in ours.certificate_) < 1e-9
    assert dn.certify(ours, X, Y, sample_weight=weights).relative_gap < 1e-9


def test_a_share_of_zero_is_ridge_regression():
    X, Y, _ = data()
    ours = dn.MultiTaskElasticNet(0.3, l1_ratio=0.0, tol=1e-12).fit(X, Y)
    assert relative(ours.coef_, linear_model.Ridge(0.3 * len(X)).fit(X, Y).coef_) < 1e-5


def test_a_vector_of_targets_is_refused_in_words():
    X, Y, _ = data()
    for kind, other in ((dn.MultiTaskElasticNet, "ElasticNet"), (dn.MultiTaskLassoCV, "LassoCV")):
        with pytest.raises(ValueError, match=rf"y must have shape \(n, outputs\).* use {other}$"):
            kind().fit(X, Y[:, 0])


def test_a_warm_start_from_the_optimum_has_nothing_to_do():
    X, Y, _ = data("wide")
    model = dn.MultiTaskLasso(0.1, warm_start=True, tol=1e-6).fit(X, Y)
    assert model.fit(X, Y).trace_.epoch[-1] == 0


def test_a_path_is_a_fit_for_each_value():
    X, Y, _ = data("wide")
    path = dn.MultiTaskLasso(tol=1e-12).path(X, Y, [0.1, 1.0])
    for value, coef in zip(path.values, path.coef, strict=True):
        assert relative(coef, dn.MultiTaskLasso(value, tol=1e-12).fit(X, Y).coef_) < 1e-5


def test_a_fit_without_time_warns_and_has_its_proof():
    X, Y, _ = data("wide")
    for model in (dn.MultiTaskLasso(0.01, time_limit=0.0), dn.MultiTaskLassoCV(alphas=4, time_limit=0.0)):
        with pytest.warns(ConvergenceWarning, match="certified relative gap"):
            model.fit(X, Y)
        assert np.isfinite(model.certificate_.gap)


# Cross-validation ------------------------------------------------------------------------------------------------------

GRIDS = [
    {"l1_ratio": 0.5},
    {"l1_ratio": [0.3, 1.0]},
    {"l1_ratio": 0.0, "alphas": [0.1, 3.0, 1.0]},
    {"l1_ratio": 0.9, "cv": ShuffleSplit(3, random_state=0)},
]


WAYS = {"in passes": {"fold_moments": 0}, "by moments": {}, "by columns": {"joint_moment_features": 0}}


@pytest.mark.parametrize("way", WAYS)
@every_shape
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("settings", GRIDS, ids=["one share", "two", "none", "other folds"])
def test_a_search_finds_what_scikit_learn_finds(monkeypatch, way, shape, fit_intercept, settings):
    monkeypatch.setattr(dn.MultiTaskElasticNetCV, "_tuning", tuned(**WAYS[way]))
    X, Y, weights = data(shape, weighted=True)
    settings = {"alphas": 4, "eps": 1e-2, "cv": 3, "fit_intercept": fit_intercept, **settings}
    ours = dn.MultiTaskElasticNetCV(tol=1e-12, **settings).fit(X, Y, weights)
    theirs = linear_model.MultiTaskElasticNetCV(tol=1e-13, max_iter=200_000, **settings).fit(X, Y, weights)
    assert ours.l1_ratio_ == theirs.l1_ratio_
    for name in ("alpha_", "alphas_", "mse_path_", "coef_", "intercept_"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert np.shape(mine) == np.shape(other)
        assert np.allclose(mine, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())
    assert max(certificate.relative_gap for certificate in ours.certificates_.ravel()) <= 1e-12
    assert ours.certificates_.shape == (np.size(ours.l1_ratio), *theirs.mse_path_.shape[-2:])
    assert dn.certify(ours, X, Y, sample_weight=weights).relative_gap < 1e-9


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_lassos_grid_leaves_nothing_at_first(outputs):
    X, Y, _ = data(outputs=outputs)
    ours, theirs = (kind(alphas=5).fit(X, Y) for kind in (dn.MultiTaskLassoCV, linear_model.MultiTaskLassoCV))
    np.testing.assert_allclose(ours.alphas_, theirs.alphas_)
    assert not dn.MultiTaskLasso(ours.alphas_[0] * (1 + 1e-9)).fit(X, Y).coef_.any()
    assert dn.MultiTaskLasso(ours.alphas_[0] * 0.99).fit(X, Y).coef_.any()


def test_zero_is_among_the_alphas():
    X, Y, _ = data()
    ours = dn.MultiTaskElasticNetCV(alphas=[0.0, 1.0], cv=3).fit(X, Y)
    assert ours.alpha_ == 0.0
    assert relative(ours.coef_, linear_model.LinearRegression().fit(X, Y).coef_) < 1e-9


def test_the_moments_of_few_features_serve_fewer_rows_as_well():
    rows, few = sp.random(40, 100, 0.5, format="csr"), tuned(joint_moment_features=100)
    assert not gathers_columns(profile_of(rows), few)
    assert gathers_columns(profile_of(rows), tuned(joint_moment_features=99))
    assert not gathers_columns(profile_of(rows.T.tocsr()), tuned(joint_moment_features=0))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("ratio", [1.0, 0.4])
def test_gathered_features_have_the_paths_of_all_features(fit_intercept, ratio):
    from dualnewton.estimators.model_selection._folds import Folds
    from dualnewton.estimators.model_selection._joint_paths import JointColumns, JointPaths

    X, Y, weights = data("wide", weighted=True)
    model = dn.MultiTaskLassoCV()
    posed = model._checked(X, Y, weights)
    folds = Folds.of(ShuffleSplit(2, random_state=1).split(X), len(Y))
    alphas = np.geomspace(3.0, 1e-2, 12)
    with GridSession(model) as session:
        each = [
            kind(session, posed, folds, fit_intercept=fit_intercept).along(ratio, alphas, 1e-10)
            for kind in (JointPaths, JointColumns)
        ]
    for full, gathered in zip(each[0][: len(folds)], each[1], strict=True):
        np.testing.assert_allclose(gathered.W, full.W, atol=1e-4)
        np.testing.assert_allclose(gathered.b, full.b, atol=1e-4)


def test_the_certificates_of_a_path_are_those_of_each_model():
    from dualnewton.objective.outputs import certify_path

    X, Y, c = data("wide", weighted=True)
    rng = np.random.default_rng(1)
    models, b = 0.1 * rng.standard_normal((4, 3, 30)), rng.standard_normal((4, 3))
    lams = [0.01, 0.1, 1.0, 5.0]
    for g in (dn.regularizers.JointL1(), dn.regularizers.JointElasticNet(0.4)):
        for fit_intercept in (True, False):
            more = {"regularizer": g, "sample_weight": c, "fit_intercept": fit_intercept}
            problems = [dn.Problem(X, Y, dn.losses.SquaredOutputs(3), lam=lam, **more) for lam in lams]
            own = b if fit_intercept else 0.0 * b
            found = certify_path(problems[0], lams, models, own)
            for k, problem in enumerate(problems):
                each = problem.certify(models[k], own[k])
                assert found[k].primal == pytest.approx(each.primal, rel=1e-12)
                assert found[k].dual <= each.dual + 1e-12 * abs(
                    each.dual
                )  # a far point's multiple is searched for there only
                alpha = problem.alpha_of(models[k], None)
                assert found[k].dual == pytest.approx(problem.dual(alpha), rel=1e-9)


def test_metadata_reach_the_splitter():
    X, Y, _ = data()
    groups = np.arange(len(X)) % 4
    with config_context(enable_metadata_routing=True):
        ours = dn.MultiTaskLassoCV(alphas=3, cv=GroupKFold(4)).fit(X, Y, groups=groups)
    same = dn.MultiTaskLassoCV(alphas=3, cv=list(GroupKFold(4).split(X, Y, groups))).fit(X, Y)
    assert (ours.mse_path_ == same.mse_path_).all()


def test_bad_shares_and_values_are_refused():
    X, Y, _ = data()
    with pytest.raises(ValueError, match=r"l1_ratio must be a number between 0 and 1"):
        dn.MultiTaskElasticNetCV(l1_ratio=[0.5, 1.5]).fit(X, Y)
    with pytest.raises(ValueError, match="not supported for l1_ratio=0"):
        dn.MultiTaskElasticNetCV(l1_ratio=0.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"alphas\[0\] == -1"):
        dn.MultiTaskElasticNetCV(alphas=[-1.0]).fit(X, Y)


@pytest.mark.parametrize(("n", "d", "K", "seed"), [(5, 60, 3, 0), (20, 120, 3, 1)])
def test_weak_elastic_nets_of_more_features_than_examples_meet_the_tolerance(n, d, K, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.integers(1, 5, (n, d)).astype(float), rng.standard_normal((n, K))
    model = dn.MultiTaskElasticNet(alpha=1e-5, tol=1e-8, fit_intercept=False).fit(X, Y)
    assert model.certificate_.relative_gap <= 1e-8
    assert model.n_iter_ < 50
