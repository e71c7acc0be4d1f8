"""LinearSVC and LinearSVR against liblinear and libsvm, whose objectives they certify."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import svm
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualnewton as dn
from estimators.cases import certificates, data_for, relative

LINEAR = {"hinge": 1.0, "squared_hinge": 2.0}


@parametrize_with_checks(
    [
        dn.LinearSVC(),
        dn.LinearSVC(loss="hinge"),
        dn.LinearSVR(),
    ]
)
def test_scikit_learns_checks(estimator, check):
    if "equivalence" in check.func.__name__:
        # It compares what is predicted to 1e-7; a gap of tol leaves that uncertain by about its root.
        estimator.set_params(tol=0.0, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # in most of them max_iter is 5
        check(estimator)


def with_ones(X):
    """With liblinear's own way to an intercept, a constant feature, both penalise it."""
    ones = np.ones((X.shape[0], 1))
    return sp.csr_array(sp.hstack([X, ones])) if sp.issparse(X) else np.hstack([X, ones])


def tight(model, X, y, weights):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.set_params(tol=1e-14, max_iter=10**6, random_state=0).fit(X, y, weights)


@pytest.mark.parametrize(("sparse", "weighted"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("C", [0.05, 2.0])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_squared_hinge_is_liblinears(sparse, weighted, C, n_classes, class_weight):
    X, y = data_for(n_classes)
    X = sp.csr_array(X) if sparse else X
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y)) if weighted else None
    theirs = tight(svm.LinearSVC(C=C, dual=False, class_weight=class_weight), X, y, weights)
    ours = dn.LinearSVC(C=C, fit_intercept=False, class_weight=class_weight, tol=1e-12).fit(with_ones(X), y, weights)
    assert relative(ours.coef_, np.hstack([theirs.coef_, theirs.intercept_[:, None]])) <= 1e-6
    assert ours.coef_.shape == (1 if n_classes == 2 else 3, X.shape[1] + 1)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_l1_is_liblinears(loss):
    """Where liblinear has it; with the hinge it is certified alone."""
    X, y = data_for(2)
    ours = dn.LinearSVC("l1", loss, C=0.3, fit_intercept=False, tol=1e-10, max_iter=10**4).fit(X, y)
    assert ours.certificate_.relative_gap <= 1e-10
    if loss == "squared_hinge":
        theirs = tight(svm.LinearSVC("l1", C=0.3, dual=False, fit_intercept=False), X, y, None)
        assert relative(ours.coef_, theirs.coef_) <= 1e-5
        assert ((ours.coef_ == 0.0) == (theirs.coef_ == 0.0)).all()


@pytest.mark.parametrize("C", [0.05, 2.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["auto", "interior", "newton", "sdna"])
def test_the_hinge_with_its_free_intercept_is_libsvms(C, weighted, solver):
    X, y = data_for(2)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, len(y)) if weighted else None
    theirs = svm.SVC(kernel="linear", C=C, tol=1e-12).fit(X, y, weights)
    ours = dn.LinearSVC(loss="hinge", C=C, tol=1e-12, solver=solver, max_iter=5000).fit(X, y, weights)
    assert ours.plan_.method == {"auto": "interior"}.get(solver, solver)
    assert ours.plan_.smoothed == (solver == "newton")
    assert relative(ours.coef_, theirs.coef_) <= 1e-6
    assert relative(ours.decision_function(X), theirs.decision_function(X)) <= 1e-5


@pytest.mark.parametrize("C", [0.05, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3])
@pytest.mark.parametrize("solver", ["auto", "interior", "newton", "sdna"])
def test_plain_regression_with_its_free_intercept_is_libsvms(C, epsilon, solver):
    X, y = data_for(0)
    theirs = svm.SVR(kernel="linear", C=C, epsilon=epsilon, tol=1e-12).fit(X, y)
    ours = dn.LinearSVR(C=C, epsilon=epsilon, tol=1e-12, solver=solver).fit(X, y)
    assert relative(ours.coef_, theirs.coef_.ravel()) <= 1e-6
    assert relative(ours.predict(X), theirs.predict(X)) <= 1e-5


@pytest.mark.parametrize("sparse", [False, True])
def test_squared_regression_is_liblinears(sparse):
    X, y = data_for(0)
    X = sp.csr_array(X) if sparse else X
    settings = {"C": 0.7, "epsilon": 0.2, "loss": "squared_epsilon_insensitive"}
    theirs = tight(svm.LinearSVR(**settings, dual=False), X, y, None)
    ours = dn.LinearSVR(**settings, fit_intercept=False, tol=1e-13).fit(with_ones(X), y)
    assert relative(ours.coef_, np.append(theirs.coef_, theirs.intercept_)) <= 1e-6


@pytest.mark.parametrize("sparse", [False, True])
def test_squared_regression_without_a_tube_is_ridge_regression(sparse):
    """It is solved as that is: dual rounds on as many sparse examples as features took 110 epochs."""
    X, y = data_for(0)
    X = sp.csr_array(X) if sparse else X
    ours = dn.LinearSVR(C=0.7, loss="squared_epsilon_insensitive").fit(X, y)
    ridge = dn.Ridge(alpha=0.5 / 0.7, tol=ours.tol).fit(X, y)
    assert np.array_equal(ours.coef_, ridge.coef_)
    assert ours.certificate_.gap == ridge.certificate_.gap


def test_an_unpenalised_intercept_is_the_limit_of_theirs():
    X, y = data_for(2)
    ours = dn.LinearSVC(tol=1e-12).fit(X, y)
    far = [
        relative(tight(svm.LinearSVC(dual=False, intercept_scaling=s), X, y, None).coef_, ours.coef_)
        for s in (1.0, 30.0, 1e3)
    ]
    assert far[0] > far[1] > far[2]
    assert far[2] <= 1e-5


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_certificate_is_of_the_documented_objective(loss):
    X, y = data_for(2)
    model = dn.LinearSVC(loss=loss, C=0.4, tol=1e-9).fit(X, y)
    p, signs = LINEAR[loss], 2.0 * y - 1.0
    losses = np.maximum(0.0, 1.0 - signs * model.decision_function(X)) ** p
    objective = 0.4 * losses.sum() + 0.5 * (model.coef_**2).sum()
    assert model.certificate_.primal == pytest.approx(objective / (p * 0.4 * len(y)), rel=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        dn.LinearSVC(loss="hinge", C=0.3),
        dn.LinearSVC(C=0.3),
        dn.LinearSVR(epsilon=0.1, C=0.3),
        dn.LinearSVR(loss="squared_epsilon_insensitive", C=0.3),
    ],
    ids=str,
)
def test_weights_are_repeated_rows_and_zeros_absent_ones(model):
    classifies = isinstance(model, dn.LinearSVC)
    X, y = data_for(3 if classifies else 0)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    times[:3] = 1
    model.set_params(tol=1e-13)
    weighted = model.fit(X, y, times.astype(float)).coef_.copy()
    repeated = model.fit(np.repeat(X, times, axis=0), np.repeat(y, times)).coef_
    assert relative(weighted, repeated) <= 1e-6


def test_class_weights_count_where_the_class_stands_against_the_rest():
    X, y = load_iris(return_X_y=True)
    weight = {0: 0.2, 1: 1.0, 2: 5.0}
    theirs = tight(svm.LinearSVC(C=0.1, dual=False, class_weight=weight), X, y, None)
    ours = dn.LinearSVC(C=0.1, fit_intercept=False, class_weight=weight, tol=1e-12).fit(with_ones(X), y)
    assert relative(ours.coef_[:, :-1], theirs.coef_) <= 1e-6


def test_what_a_fit_has_and_says():
    X, y = make_classification(300, 10, n_informative=6, n_classes=3, random_state=0)
    model = dn.LinearSVC(loss="hinge", tol=1e-8).fit(X, y)
    assert model.coef_.shape == (3, 10)
    assert model.intercept_.shape == (3,)
    assert isinstance(model.n_iter_, int)
    assert model.dual_coef_.shape == (300, 3)
    assert "interior-point steps on one dense block" in str(model.plan_)
    assert all(certificate.relative_gap <= 1e-8 for certificate in certificates(model))
    regressor = dn.LinearSVR().fit(X, X[:, 0])
    assert (regressor.coef_.shape, regressor.intercept_.shape) == ((10,), (1,))


def test_a_refit_starts_from_the_dual_point_of_the_last():
    X, y = data_for(2)
    model = dn.LinearSVC(loss="hinge", tol=1e-9, warm_start=True).fit(X, y)
    assert model.fit(X, y).n_iter_ == 0
    model.set_params(C=1.05).fit(X, y)
    assert model.trace_.gap[0] < 0.2 * model.trace_.primal[0]  # the gap of α = 0 is P itself


def test_a_fit_cut_short_warns_with_its_proven_gap():
    X, y = data_for(2)
    with pytest.warns(ConvergenceWarning, match="certified relative gap"):
        model = dn.LinearSVC(loss="hinge", tol=1e-12, max_iter=2).fit(X, y)
    assert 1e-12 < model.certificate_.relative_gap < np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dn.LinearSVC(loss="hinge", tol=1e-12).fit(X, y)


def test_a_path():
    X, y = data_for(2)
    path = dn.LinearSVC(loss="hinge", tol=1e-8).path(X, y, [1.0, 0.01, 0.1])
    assert path.coef.shape == (3, 1, X.shape[1])
    alone = dn.LinearSVC(loss="hinge", tol=1e-8, C=0.01).fit(X, y)
    assert relative(path.coef[1], alone.coef_) <= 1e-3


def test_classes_coupled_by_a_loss_are_refused():
    X, y = data_for(3)
    with pytest.raises(ValueError, match='multi_class must be "ovr", got "crammer_singer"'):
        dn.LinearSVC(multi_class="crammer_singer").fit(X, y)
    with pytest.raises(ValueError, match="'solver' parameter of LinearSVC must be"):
        dn.LinearSVC(solver="liblinear").fit(X, y)
