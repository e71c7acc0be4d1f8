"""certify() of our own estimators: from coef_ and the data alone it finds what the fit has proved, and sees what is wrong."""

import copy
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC, SVR

import dualnewton as dn
from dualnewton import losses
from estimators.cases import CASES, Case, certificates, data_for

MORE = [
    Case("hinge", dn.LinearSVC(loss="hinge"), 2),
    Case("hinge, three", dn.LinearSVC(loss="hinge", class_weight="balanced"), 3),
    Case("squared hinge", dn.LinearSVC(), 3),
    Case("squared hinge, l1", dn.LinearSVC(penalty="l1", fit_intercept=False), 2),
    Case("epsilon insensitive", dn.LinearSVR(epsilon=0.2)),
    Case("squared epsilon insensitive", dn.LinearSVR(epsilon=0.2, loss="squared_epsilon_insensitive")),
    Case("elastic net", dn.ElasticNet(alpha=0.1)),
    Case("lasso", dn.Lasso(alpha=0.1)),
    Case("huber with a scale", dn.HuberRegressor(alpha=0.1)),
    Case("huber with a scale, unpenalised", dn.HuberRegressor(alpha=0.0, epsilon=1.1)),
    Case("quantile", dn.QuantileRegressor(quantile=0.3, alpha=0.05)),
    Case("quantile, l2", dn.QuantileRegressor(alpha=0.05, penalty="l2")),
    Case("quantile, unpenalised", dn.QuantileRegressor(quantile=0.8, alpha=0.0)),
    Case("elastic net, unpenalised", dn.ElasticNet(alpha=0.0)),
    Case("lasso, positive", dn.Lasso(alpha=0.1, positive=True)),
]
FOUND = CASES + MORE
WEIGHTS = np.random.default_rng(7).uniform(0.2, 2.0, 60)


@pytest.mark.parametrize("case", FOUND, ids=[case.name for case in FOUND])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_the_certificate_of_a_fit_is_found_again(case, weights):
    X, y = case.data()
    model = clone(case.model).fit(X, y, weights)
    before = copy.deepcopy(vars(model))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dn.certify(model, X, y, sample_weight=weights)
    parts = found.parts or (found,)
    for part, of_fit in zip(parts, certificates(model), strict=True):
        # Softmax is centred after the fit, which lowers P a little.
        assert part.primal <= of_fit.primal * (1.0 + 1e-13)
        assert part.primal == pytest.approx(of_fit.primal, rel=1e-7)
        assert part.dual >= of_fit.dual - 1e-13 * abs(of_fit.primal)
        assert part.relative_gap <= max(model.tol, 1e-14)
    assert before.keys() == vars(model).keys()
    np.testing.assert_array_equal(before["coef_"], model.coef_)


@pytest.mark.parametrize("case", FOUND, ids=[case.name for case in FOUND])
def test_wrong_coefficients_are_seen_whatever_the_fit_had_proved(case):
    X, y = case.data()
    model = clone(case.model).fit(X, y)
    best = dn.certify(model, X, y)
    model.coef_ = model.coef_ + 0.01 * np.random.default_rng(1).random(model.coef_.shape)
    wrong = dn.certify(model, X, y)
    assert wrong.gap >= (1.0 - 1e-6) * (wrong.primal - best.primal) > 1e-7


@pytest.mark.parametrize("case", FOUND, ids=[case.name for case in FOUND])
def test_weights_left_out_are_seen(case):
    X, y = case.data()
    model = clone(case.model).fit(X, y, sample_weight=np.where(np.arange(len(y)) % 2 == 0, 0.1, 3.0))
    assert dn.certify(model, X, y).relative_gap > 1e-6


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (dn.LogisticRegression(), {"C": 2.0}),
        (dn.LogisticRegression(C=np.inf), {"C": 1.0}),
        (dn.LinearSVC(loss="hinge"), {"loss": "squared_hinge"}),
        (dn.ERMClassifier("squared_hinge"), {"loss": "hinge"}),
    ],
    ids=str,
)
def test_parameters_are_read_as_they_are_now(model, settings):
    X, y = data_for(2)
    fitted = clone(model).fit(X, y)
    assert dn.certify(fitted, X, y).relative_gap <= 1e-4
    assert dn.certify(fitted.set_params(**settings), X, y).relative_gap > 1e-3


@pytest.mark.parametrize(
    ("model", "n_classes"),
    [
        (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3), 2),
        (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, use_legacy_attributes=False), 3),
        (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, l1_ratios=[0.3, 1.0]), 2),
        (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, l1_ratios=[0.3, 1.0]), 3),
        (dn.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=[0.1, 0.3], cv=3), 0),
        (dn.RidgeCV(), 0),
        (dn.RidgeCV(cv=3), 0),
    ],
    ids=str,
)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_a_cross_validated_model_is_judged_at_the_values_it_chose(model, n_classes, weights):
    X, y = data_for(n_classes)
    fitted = clone(model).fit(X, y, sample_weight=weights)
    assert dn.certify(fitted, X, y, sample_weight=weights).relative_gap <= 1e-4
    chosen = "C_" if hasattr(fitted, "C_") else "alpha_"
    setattr(fitted, chosen, 3.0 * np.asarray(getattr(fitted, chosen)))
    assert dn.certify(fitted, X, y, sample_weight=weights).relative_gap > 1e-6


@pytest.mark.parametrize("model", [dn.LinearSVC(loss="hinge", C=0.3), dn.LinearSVR(epsilon=0.2, C=0.3)], ids=str)
def test_without_the_dual_point_of_the_fit_another_is_found(model):
    X, y = data_for(2 if isinstance(model, dn.LinearSVC) else 0)
    fitted = clone(model).set_params(tol=1e-10).fit(X, y)
    expected = dn.certify(fitted, X, y)
    del fitted.dual_coef_
    found = dn.certify(fitted, X, y)
    assert found.primal == expected.primal
    assert found.relative_gap <= 1e-9


@pytest.mark.parametrize(
    ("theirs", "ours", "labelled"),
    [
        (SVC(kernel="linear", C=0.5, tol=1e-9), dn.LinearSVC(loss="hinge", C=0.5, tol=1e-12), True),
        (SVR(kernel="linear", C=0.5, tol=1e-9, epsilon=0.2), dn.LinearSVR(epsilon=0.2, C=0.5, tol=1e-12), False),
    ],
    ids=["SVC", "SVR"],
)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_libsvm_is_judged_on_the_objective_that_we_fit(theirs, ours, labelled, weights):
    X, y = data_for(2 if labelled else 0)
    if labelled:
        theirs, ours = (clone(model).set_params(class_weight={0: 1.0, 1: 2.0}) for model in (theirs, ours))
    found = dn.certify(clone(theirs).fit(X, y, weights), X, y, sample_weight=weights)
    optimum = clone(ours).fit(X, y, weights).certificate_.primal
    suboptimality = found.primal - optimum
    assert found.relative_gap <= 1e-6
    # The bound holds, and is sharp: a ninth more at most.
    assert suboptimality <= found.gap + 1e-12
    assert found.gap <= 1.12 * suboptimality + 1e-11


def test_one_vs_rest_of_ours_is_certified():
    X, y = data_for(3)
    found = dn.certify(OneVsRestClassifier(dn.LinearSVC()).fit(X, y), X, y)
    together = dn.certify(dn.LinearSVC().fit(X, y), X, y)
    assert found.relative_gap <= 1e-4
    assert found.primal == pytest.approx(together.primal, rel=1e-8)


def test_a_subclass_of_the_users_own_is_certified():
    class Mine(dn.ERMRegressor):
        pass

    X, y = data_for(0)
    assert dn.certify(Mine(losses.Huber(0.3)).fit(X, y), X, y).relative_gap <= 1e-6


def test_single_precision_is_judged_as_it_is_stored():
    X, y = data_for(2)
    X = X.astype(np.float32)
    model = dn.LogisticRegression(tol=1e-12).fit(X, y)
    found = dn.certify(model, X, y)
    assert model.certificate_.relative_gap <= 1e-12
    assert 0.0 <= found.relative_gap < 1e-8
    assert found.primal > model.certificate_.primal
