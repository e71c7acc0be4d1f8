"""scikit-learn's own conformance checks: every one of them, with default parameters.

The one exception is scikit-learn's own: ``n_iter_`` of Ridge and RidgeClassifier is None, and it exempts its classes, too.
"""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualnewton as dn

MODELS = [
    dn.LogisticRegression(),
    dn.Ridge(),
    dn.RidgeClassifier(),
    dn.ERMClassifier(),
    dn.ERMRegressor(),
    dn.QuantileRegressor(),
    dn.PoissonRegressor(),
    dn.GammaRegressor(),
    dn.TweedieRegressor(power=1.5),
    dn.PoissonRegressorCV(alphas=3),
    dn.MultiTaskElasticNet(),
    dn.MultiTaskLasso(),
    dn.MultiTaskElasticNetCV(alphas=5),
    dn.MultiTaskLassoCV(alphas=5),
    dn.LinearRegression(),
    dn.RidgeClassifierCV(),
]

UNCOUNTED = "check_non_transformer_estimators_n_iter"


@pytest.mark.filterwarnings("ignore:The least populated class:UserWarning")  # of one check's own data, with three folds
@parametrize_with_checks(MODELS)
def test_scikit_learns_checks(estimator, check):
    if isinstance(estimator, dn.Ridge | dn.RidgeClassifier) and check.func.__name__ == UNCOUNTED:
        pytest.skip("n_iter_ is None, as in scikit-learn")
    check(estimator)
