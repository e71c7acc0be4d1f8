"""Estimators whose rows, folds or classes have no weight, and data that leave nothing to choose from."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import KFold

import dualnewton as dn
from dualnewton.errors import DualnewtonError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
Y = RNG.standard_normal(6)
SIGNS = np.array([0, 1, 0, 1, 0, 1])
EMPTY = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])  # the first of three folds is scored on rows of weight zero
SEARCHES = {
    "LassoCV": (dn.LassoCV(alphas=3, cv=KFold(3)), Y),
    "ElasticNetCV": (dn.ElasticNetCV(alphas=3, cv=KFold(3)), Y),
    "MultiTaskLassoCV": (dn.MultiTaskLassoCV(alphas=3, cv=KFold(3)), np.stack([Y, -Y], axis=1)),
    "LogisticRegressionCV": (dn.LogisticRegressionCV(Cs=3, cv=KFold(3)), SIGNS),
    "RidgeCV": (dn.RidgeCV(cv=KFold(3)), Y),
    "RidgeClassifierCV": (dn.RidgeClassifierCV(cv=KFold(3)), SIGNS),
    "PoissonRegressorCV": (dn.PoissonRegressorCV(alphas=3, cv=KFold(3)), np.abs(Y)),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_fold_without_weights_is_named(name):
    model, y = SEARCHES[name]
    with pytest.raises(DualnewtonError, match=r"sample_weight must be positive.*only zeros in split 0"):
        model.fit(X, y, sample_weight=EMPTY)


@pytest.mark.parametrize("model", [dn.RidgeCV(), dn.RidgeClassifierCV()], ids=lambda model: type(model).__name__)
def test_leaving_the_only_row_out_is_refused(model):
    with pytest.raises(DualnewtonError, match=r"at least 2 rows of positive weight, got 1 .n_samples=6"):
        model.fit(X, SIGNS, sample_weight=np.eye(6)[1])


def test_a_class_without_weight_has_no_part_in_balanced_weights():
    weights = np.where(SIGNS == 1, 0.0, 1.0)
    model = dn.LogisticRegression(class_weight="balanced").fit(X, SIGNS, sample_weight=weights)
    assert (model.predict(X) == 0).all()


def test_means_of_single_precision_do_not_overflow():
    model = dn.PoissonRegressor().fit(X.astype(np.float32), np.abs(Y))
    model.coef_ = np.full(3, 1e3, np.float32)
    seen = model.predict(np.abs(X).astype(np.float32))
    assert seen.dtype == np.float32
    assert np.isfinite(seen).all()


def test_outputs_that_no_feature_explains():
    search = dn.MultiTaskLassoCV(alphas=3, cv=3).fit(sp.csr_array((6, 3)), np.stack([Y, -Y], axis=1))
    assert not search.coef_.any()
