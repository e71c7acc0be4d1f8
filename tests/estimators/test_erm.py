"""ERMClassifier and ERMRegressor: any loss and any regulariser."""

from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.interop.names import LOSSES, PENALTIES
from estimators.cases import certificates, data_for, relative

CLASSIFIES = [name for name, kind in LOSSES.items() if issubclass(kind, losses.Margin)]


@dataclass(frozen=True)
class LogCosh(losses.Loss):
    """log cosh(z − y): a loss such as a user would write."""

    gamma = 1.0

    def value(self, z, y):
        r = np.abs(z - y)
        return r + np.log1p(np.exp(-2.0 * r)) - np.log(2.0)

    def derivative(self, z, y):
        return np.tanh(z - y)

    def second_derivative(self, z, y):
        return 1.0 - np.tanh(z - y) ** 2

    def conjugate_inside(self, u, y):
        up, down = 1.0 + u, 1.0 - u
        return 0.5 * (up * np.log(up + (up == 0.0)) + down * np.log(down + (down == 0.0))) + u * y

    def domain(self, y):
        return 0.0 * y - 1.0, 0.0 * y + 1.0


def test_by_default_they_are_logistic_and_ridge_regression():
    X, y = data_for(2)
    ours = dn.ERMClassifier(tol=1e-12).fit(X, y)
    reference = LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(X, y)  # lam = 1/n is C = 1
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert np.abs(ours.predict_proba(X) - reference.predict_proba(X)).max() < 1e-6
    assert np.abs(ours.predict_log_proba(X) - reference.predict_log_proba(X)).max() < 1e-5
    X, y = data_for(0)
    assert relative(dn.ERMRegressor(tol=1e-12).fit(X, y).coef_, Ridge(1.0).fit(X, y).coef_) < 1e-6


@pytest.mark.parametrize("name", CLASSIFIES)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_classification_loss_has_a_name(name, n_classes):
    X, y = data_for(n_classes)
    model = dn.ERMClassifier(name, lam=0.1, tol=1e-5).fit(X, y)
    assert max(certificate.relative_gap for certificate in certificates(model)) <= 1e-5
    assert hasattr(model, "predict_proba") == (name == "logistic")


@pytest.mark.parametrize("name", sorted(set(LOSSES) - set(CLASSIFIES)))
def test_every_regression_loss_has_a_name(name):
    X, y = data_for(0)
    y = np.exp(y - y.max()) if name in ("poisson", "gamma", "tweedie") else y  # labels > 0
    model = dn.ERMRegressor(name, lam=0.1, tol=1e-5).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-5


@pytest.mark.parametrize("name", sorted(set(PENALTIES) - {"group_elastic_net"}))
def test_every_regulariser_that_needs_no_groups_has_a_name(name):
    X, y = data_for(0)
    model = dn.ERMRegressor(regularizer=name, lam=0.1).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6


def test_a_loss_and_a_regulariser_of_the_users_own():
    losses.check(LogCosh())
    X, y = data_for(0)
    model = clone(dn.ERMRegressor(LogCosh(), regularizers.GroupElasticNet([0, 0, 1, 1, 2, 2], 0.5), 0.1)).fit(X, y)
    assert model.certificate_.relative_gap <= 1e-6
    assert relative(model.predict(X), X @ model.coef_ + model.intercept_) < 1e-12


def test_several_targets_are_fitted_each_by_itself():
    X, y = data_for(0)
    together = dn.ERMRegressor("huber", tol=1e-10).fit(X, np.stack([y, y**2], axis=1))
    for k, target in enumerate((y, y**2)):
        assert relative(together.coef_[k], dn.ERMRegressor("huber", tol=1e-10).fit(X, target).coef_) < 1e-5


def test_weights_count_relative_to_each_other():
    X, y = data_for(2)
    weights = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    once, tenfold = (dn.ERMClassifier(lam=0.1, tol=1e-10).fit(X, y, factor * weights) for factor in (1.0, 10.0))
    assert relative(tenfold.coef_, once.coef_) < 1e-6


def test_refusals_teach():
    X, y = data_for(2)
    with pytest.raises(ValueError, match=r"loss must be one of logistic, .* got 'log': did you mean logistic"):
        dn.ERMClassifier("log").fit(X, y)
    with pytest.raises(
        ValueError, match=r"loss must have one margin per example, got Softmax\(n_classes=2\) with 2: use Log"
    ):
        dn.ERMClassifier(losses.Softmax(2)).fit(X, y)
    with pytest.raises(ValueError, match=r"regularizer must be one of l2, .* got 'l3'"):
        dn.ERMClassifier(regularizer="l3").fit(X, y)
    with pytest.raises(ValueError, match="'lam' parameter of ERMClassifier"):
        dn.ERMClassifier(lam=0.0).fit(X, y)
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = dn.ERMClassifier("squared_hinge").predict_proba
