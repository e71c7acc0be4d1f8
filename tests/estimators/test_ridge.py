"""Ridge and RidgeClassifier against scikit-learn's."""

import numpy as np
import pytest
from sklearn import linear_model as theirs

import dualnewton as dn
from dualnewton.losses import Squared
from estimators.cases import as_csr, certificates, data_for, relative

EXACT = {"tol": 1e-12}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("n", "d", "alpha"),
    [(n, d, alpha) for n, d in ((60, 6), (20, 50)) for alpha in (1e-3, 1.0, 1e3)] + [(600, 200, 1.0)],
)
def test_parity(sparse, fit_intercept, n, d, alpha):
    X, y = data_for(0, n=n, d=d)
    for weight in (None, np.random.default_rng(1).uniform(0.0, 3.0, n)):
        ours = dn.Ridge(alpha, fit_intercept=fit_intercept, **EXACT).fit(as_csr(X) if sparse else X, y, weight)
        reference = theirs.Ridge(alpha, fit_intercept=fit_intercept).fit(X, y, weight)
        assert relative(ours.coef_, reference.coef_) < 1e-6
        assert ours.intercept_ == pytest.approx(reference.intercept_, rel=1e-6, abs=1e-9)
        assert relative(ours.predict(X), reference.predict(X)) < 1e-6


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_without_a_penalty_it_is_least_squares(sparse, fit_intercept):
    for n, d in ((60, 6), (10, 30)):
        X, y = data_for(0, n=n, d=d)
        ours = dn.Ridge(0.0, fit_intercept=fit_intercept, **EXACT).fit(as_csr(X) if sparse else X, y)
        reference = theirs.LinearRegression(fit_intercept=fit_intercept).fit(X, y)
        assert relative(ours.coef_, reference.coef_) < 1e-6
        assert ours.certificate_.relative_gap <= 1e-12


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_parity_with_nonnegative_coefficients(fit_intercept):
    X, y = data_for(0)
    ours = dn.Ridge(1.0, fit_intercept=fit_intercept, positive=True, **EXACT).fit(X, y)
    reference = theirs.Ridge(1.0, fit_intercept=fit_intercept, positive=True, tol=1e-14).fit(X, y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert ours.coef_.min() == 0.0


@pytest.mark.parametrize("alpha", [2.0, [0.5, 3.0, 0.0]], ids=["one alpha", "one for each target"])
def test_several_targets(alpha):
    X, y = data_for(0)
    Y = np.stack([y, -2.0 * y + 1.0, np.sin(5.0 * y)], axis=1)
    ours, reference = dn.Ridge(alpha, **EXACT).fit(X, Y), theirs.Ridge(alpha, solver="svd").fit(X, Y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert relative(ours.intercept_, reference.intercept_) < 1e-6
    assert ours.predict(X).shape == Y.shape
    assert len(ours.certificate_) == len(ours.trace_) == 3
    for k, value in enumerate(np.broadcast_to(alpha, 3)):
        alone = dn.Ridge(value, **EXACT).fit(X, Y[:, k])
        assert relative(alone.coef_, ours.coef_[k]) < 1e-9


def test_shapes_are_theirs():
    X, y = data_for(0)
    for target in (y, y[:, None], np.stack([y, y], axis=1)):
        ours, reference = dn.Ridge().fit(X, target), theirs.Ridge().fit(X, target)
        assert ours.coef_.shape == reference.coef_.shape
        assert np.shape(ours.intercept_) == np.shape(reference.intercept_)
        assert ours.predict(X).shape == reference.predict(X).shape


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced", {1: 3.0}])
def test_parity_of_the_classifier(sparse, n_classes, class_weight):
    X, y = data_for(n_classes)
    for weight in (None, np.random.default_rng(1).uniform(0.0, 3.0, len(y))):
        ours = dn.RidgeClassifier(class_weight=class_weight, **EXACT).fit(as_csr(X) if sparse else X, y, weight)
        reference = theirs.RidgeClassifier(class_weight=class_weight, solver="svd").fit(X, y, weight)
        assert relative(ours.coef_, reference.coef_) < 1e-6
        assert relative(ours.decision_function(X), reference.decision_function(X)) < 1e-6
        assert (ours.predict(X) == reference.predict(X)).all()


def test_several_labels_per_row():
    X, y = data_for(3)
    Y = np.stack([y == 0, y > 0, X[:, 0] > 0.0], axis=1).astype(int)
    ours, reference = dn.RidgeClassifier(**EXACT).fit(X, Y), theirs.RidgeClassifier(solver="svd").fit(X, Y)
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert (ours.predict(X) == reference.predict(X)).all()


def test_the_certificate_is_that_of_the_problem():
    X, y = data_for(0, n=600, d=200)
    model = dn.Ridge(3.0).fit(X, y)
    problem = dn.Problem(X, y, Squared(), lam=3.0 / 600, fit_intercept=True)
    certified = problem.certify(model.coef_, model.intercept_, model.dual_coef_)
    assert certified.primal == pytest.approx(model.certificate_.primal, rel=1e-12)
    assert certified.relative_gap <= 1e-4


def test_refusals_teach():
    X, y = data_for(0)
    with pytest.raises(
        ValueError, match=r"penalties do not correspond: 2 != 1\. There must be one for all targets or one for each"
    ):
        dn.Ridge([1.0, 2.0]).fit(X, y)
    with pytest.raises(ValueError, match="alpha must be finite and >= 0"):
        dn.Ridge([-1.0]).fit(X, y)
    with pytest.raises(ValueError, match="alpha must be > 0 with positive=True"):
        dn.Ridge(0.0, positive=True).fit(X, y)


def test_our_solvers_choose():
    X, y = data_for(0)
    for solver in ("sdna", "sdca", "newton", "ihs"):
        model = dn.Ridge(solver=solver).fit(X, y)
        assert model.plan_.method == model.solver_ == solver
        assert max(c.relative_gap for c in certificates(model)) <= 1e-4


def test_a_classifier_of_one_class_predicts_it():
    X = np.random.default_rng(0).standard_normal((20, 3))
    model = dn.RidgeClassifier(fit_intercept=False).fit(X, np.full(20, "only"))
    assert (model.predict(X) == "only").all()
