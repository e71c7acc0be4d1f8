"""
Fits with a time limit
======================

A fit with a time limit: the model can be used at any limit, and its certificate bounds the distance to the optimum.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import dualnewton as dn

rng = np.random.default_rng(0)
n, d = 20_000, 100
X = rng.standard_normal((n, d)) * np.logspace(0.0, -2.0, d)  # features of very different scales
y = (X @ (rng.standard_normal(d) / X.std(axis=0)) + 5.0 * rng.standard_normal(n) > 0.0).astype(int)

print("  limit   accuracy   certificate")  # SDNA converges slowly on such features, so that the limits take effect
for limit in (0.0, 0.1, 0.5, 5.0):
    model = dn.LogisticRegression(C=10.0, solver="sdna", tol=1e-8, max_iter=10_000, time_limit=limit)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, y)
    print(f"  {limit:4.1f} s   {model.score(X, y):.4f}     {model.certificate_}")
    for warning in said[:1]:
        print(f"           warned: {str(warning.message).partition('. ')[0]}.")

print("\nThe gap during the last fit (trace_), from which a limit can be chosen:")
for row in model.trace_.rows[:: max(1, len(model.trace_) // 5)]:
    print(f"  after {row.seconds:.2f} s: relative gap {row.certificate.relative_gap:.1e}")

print("\nA later fit continues from that model:")
model.set_params(warm_start=True, time_limit=None, solver="auto", tol=1e-12).fit(X, y)
print(f"  {model.n_iter_[0]} epochs more: {model.certificate_}")
