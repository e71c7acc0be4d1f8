"""
Certify models of other libraries
=================================

Certify a fitted model of another library, or given coefficients, without a new fit: bound the distance to the optimum.
"""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, Lasso, LogisticRegression, SGDClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import dualnewton as dn

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)
size, X_rest = X[:, 0], X[:, 1:]  # a regression target and the features that predict it

MODELS = [
    (LogisticRegression(solver="saga", tol=0.1, random_state=0), X, y),
    (LogisticRegression(solver="newton-cholesky"), X, y),
    (LinearSVC(loss="hinge", random_state=0), X, y),
    (SVC(kernel="linear"), X, y),
    (Lasso(alpha=0.01), X_rest, size),
    (HuberRegressor(), X_rest, size),
]

print("Models that scikit-learn fitted:")
for model, data, target in MODELS:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate gives the accuracy
        model.fit(data, target)
    print(f"  {model!s:48} {dn.certify(model, data, target)}")

print("\nCoefficients of any origin, here from SGD, with the objective given explicitly:")
signs = np.where(y == 1, 1.0, -1.0)
sgd = SGDClassifier(loss="log_loss", alpha=1e-2, random_state=0).fit(X, y)
problem = dn.Problem(X, signs, dn.losses.Logistic(), lam=1e-2, fit_intercept=True)
print(f"  {problem.certify(sgd.coef_[0], sgd.intercept_[0])}")

print("\nA model that cannot be certified is refused, with a suggestion:")
try:
    dn.certify(sgd, X, y)
except dn.DualnewtonError as refusal:
    print(f"  {refusal}")
