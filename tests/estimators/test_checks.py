"""scikit-learn's own conformance checks: every one of them, with default parameters, and none is expected to fail."""

from sklearn.utils.estimator_checks import parametrize_with_checks

import dualnewton as dn

MODELS = [
    dn.LogisticRegression(),
    dn.Ridge(),
    dn.RidgeClassifier(),
    dn.ERMClassifier(),
    dn.ERMRegressor(),
]


@parametrize_with_checks(MODELS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
