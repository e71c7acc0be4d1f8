"""
How exact are scikit-learn's solvers?
=====================================

Certify models that scikit-learn fitted: the duality gap bounds their suboptimality, which a tolerance does not.
"""

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from dualnewton import certify

X, y = load_breast_cancer(return_X_y=True)
X = StandardScaler().fit_transform(X)

for tol in (1e-1, 1e-4, 1e-8):
    for solver in ("lbfgs", "newton-cholesky", "liblinear"):
        model = LogisticRegression(C=1.0, solver=solver, tol=tol, max_iter=10_000).fit(X, y)
        print(f"tol={tol:.0e} {solver:>15}: {certify(model, X, y)}")
