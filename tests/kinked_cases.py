"""A loss with a kink such as a user would write, and problems for losses of that kind."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses


@dataclass(frozen=True)
class Quantile(losses.NonSmooth):
    """A loss such as a user would write: (q − [z > y])(y − z), and its neighbour."""

    q: float = 0.3

    def value(self, z, y):
        return np.maximum((1.0 - self.q) * (z - y), self.q * (y - z))

    def derivative(self, z, y):
        return (z > y) * 1.0 - self.q

    def second_derivative(self, z, y):
        return 0.0 * (z - y)

    def conjugate_inside(self, u, y):
        return u * y

    def domain(self, y):
        return 0.0 * y - self.q, 0.0 * y + 1.0 - self.q

    def kinks(self, y):
        return (losses.Kink(y, *self.domain(y)),)

    def smoothed(self, width):
        return SmoothQuantile(self.q, width)


@dataclass(frozen=True)
class SmoothQuantile(losses.Loss):
    q: float
    width: float

    @property
    def gamma(self):
        return self.width

    def slope(self, z, y):
        return np.minimum(np.maximum((z - y) / self.width, -self.q), 1.0 - self.q)

    def value(self, z, y):
        u = np.minimum(np.maximum((z - y) / self.width, -self.q), 1.0 - self.q)
        return u * (z - y - 0.5 * self.width * u)

    def derivative(self, z, y):
        return np.minimum(np.maximum((z - y) / self.width, -self.q), 1.0 - self.q)

    def second_derivative(self, z, y):
        t = (z - y) / self.width
        return (t > -self.q) * (t < 1.0 - self.q) / self.width

    def conjugate_inside(self, u, y):
        return u * (0.5 * self.width * u + y)

    def domain(self, y):
        return 0.0 * y - self.q, 0.0 * y + 1.0 - self.q


def problem_for(loss, *, n=80, d=6, seed=1, sparse=False, **kwargs):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.sign(X[:, 0] - 0.5 * X[:, 1] + rng.standard_normal(n))
    if not isinstance(loss, losses.Margin):
        y = X @ rng.standard_normal(d) + rng.standard_normal(n) + 1.0
    return dn.Problem(sp.csr_array(X * (rng.random((n, d)) < 0.7)) if sparse else X, y, loss, **kwargs)
