"""
A loss of your own
==================

A custom loss in ERMClassifier: a class with a few expressions, which the library checks, compiles and certifies.
"""

import time
from dataclasses import dataclass

import numpy as np

import dualnewton as dn
from dualnewton import losses


@dataclass(frozen=True)
class SoftHinge(losses.Margin):
    """log(1 + exp(k(1 − yz)))/k: the hinge with its corner rounded by a logistic function of steepness k."""

    steepness: float = 4.0

    @property
    def gamma(self):
        return 4.0 / self.steepness  # φ″ is at most k/4

    def value(self, z, y):
        t = self.steepness * (1.0 - y * z)
        return (np.log1p(np.exp(-np.abs(t))) + np.maximum(t, 0.0)) / self.steepness

    def derivative(self, z, y):
        return -y * 0.5 * (1.0 + np.tanh(0.5 * self.steepness * (1.0 - y * z)))

    def second_derivative(self, z, y):
        return self.steepness * 0.25 * (1.0 - np.tanh(0.5 * self.steepness * (1.0 - y * z)) ** 2)

    def conjugate_inside(self, u, y):
        s = -y * u  # in [0, 1]; at an end, 0 log 0 = 0
        entropy = s * np.log(s + (s == 0.0) * 1.0) + (1.0 - s) * np.log(1.0 - s + (s == 1.0) * 1.0)
        return entropy / self.steepness - s

    def domain(self, y):
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


losses.check(SoftHinge())  # raises an error if convexity, smoothness or the conjugate is wrong

rng = np.random.default_rng(0)
X = rng.standard_normal((40_000, 30))
y = np.where(X @ rng.standard_normal(30) + 2.0 * rng.standard_normal(40_000) > 0.0, "yes", "no")

for loss in (SoftHinge(), losses.SmoothHinge(0.5)):
    model = dn.ERMClassifier(loss, lam=1e-3, solver="sdna", tol=1e-6)
    model.fit(X[:4000], y[:4000])  # compiles the kernels that are not in the cache
    start = time.perf_counter()
    model.fit(X, y)
    print(f"{loss!s:28} {time.perf_counter() - start:.2f} s, accuracy {model.score(X, y):.3f}, {model.certificate_}")
    print(f"{'':28} {model.plan_}")
