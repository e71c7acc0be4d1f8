"""
The same code with both libraries
=================================

The same code with scikit-learn and with dualnewton, changing only the import: times, certificates, and differences.
"""

import time

import numpy as np
from sklearn import linear_model as before
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

import dualnewton as after


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


ROWS = [
    ("LogisticRegression", standardised(load_breast_cancer), {"C": 0.1, "max_iter": 1000}),
    ("LogisticRegression", standardised(load_digits), {"C": 0.1, "max_iter": 1000}),
    ("Ridge", standardised(load_diabetes), {"alpha": 10.0}),
    ("ElasticNet", standardised(load_diabetes), {"alpha": 0.5, "l1_ratio": 0.9}),
    ("Lasso", standardised(load_diabetes), {"alpha": 1.0}),
    ("HuberRegressor", standardised(load_diabetes), {"alpha": 1.0}),
]


def fitted(library, name, X, y, settings):
    estimator = getattr(library, name)(**settings)  # this line is the same for both
    start = time.perf_counter()
    estimator.fit(X, y)
    return estimator, time.perf_counter() - start


def worst(certificate):
    return max(one.relative_gap for one in (certificate if isinstance(certificate, list) else [certificate]))


for name, (X, y), settings in ROWS:
    print(f"{name} on {X.shape[0]} x {X.shape[1]}")
    theirs, their_time = fitted(before, name, X, y, settings)
    ours, our_time = fitted(after, name, X, y, settings)
    difference = np.abs(ours.coef_ - theirs.coef_).max() / np.abs(theirs.coef_).max()
    same = np.mean(ours.predict(X) == theirs.predict(X)) if name == "LogisticRegression" else None
    print(f"  sklearn.linear_model  {1e3 * their_time:7.1f} ms")
    print(f"  dualnewton            {1e3 * our_time:7.1f} ms   proved: relative gap {worst(ours.certificate_):.1e}")
    print(f"  coefficients differ by {difference:.1e}" + ("" if same is None else f"; {same:.1%} of the labels agree"))
