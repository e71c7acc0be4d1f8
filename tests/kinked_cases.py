"""A loss with a kink such as a user would write, and problems for losses of that kind."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers, samplings
from dualnewton.solvers import SDNA
from dualnewton.solvers.dual.base import intercept_curvature
from tables import AgainstDirection, labels_for, name_of
from tuned import tuned


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


LOSSES = [losses.Hinge(), losses.EpsilonInsensitive(0.3), losses.EpsilonInsensitive(0.0), Quantile(0.2)]
COMPILED = tuned(small_entries=0)
PLAIN = regularizers.L2()
N, D = 40, 6

by_loss = pytest.mark.parametrize("loss", LOSSES, ids=name_of)

STORAGES = {
    "dense float64": lambda X: X,
    "dense float32": lambda X: X.astype(np.float32),
    "CSR float64": sp.csr_array,
    "CSR float32": lambda X: sp.csr_array(X.astype(np.float32)),
}
REGULARIZERS = [
    PLAIN,
    regularizers.L2(np.linspace(1.0, 3.0, D)),
    regularizers.ElasticNet(0.3),
    AgainstDirection(np.linspace(-1.0, 2.0, D)),
]
FORMS = ["plain", "weights and offset", "intercept"]


def problem_of(
    loss,
    storage="dense float64",
    regularizer=PLAIN,
    form="plain",
    *,
    lam=0.05,
    seed=0,
    n=N,
    d=D,
    repeated=True,
):
    rng = np.random.default_rng([seed, n, d])
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 1.5, (n, 1)) * (rng.random((n, d)) < 0.7)
    X[3] = 0.0
    X[5] = X[4] if repeated else X[5]
    more = {"fit_intercept": form == "intercept"}
    if form == "weights and offset":
        more["sample_weight"] = rng.uniform(0.2, 2.0, n) * (rng.random(n) < 0.9)
        more["offset"] = 0.3 * rng.standard_normal(n)
    labels = labels_for(loss, n, rng)
    return dn.Problem(STORAGES[storage](X), labels, loss, regularizer=regularizer, lam=lam, **more)


def balanced_dual(problem, alpha, centre):
    """D with the proximal term of the intercept, (λ/2ρ)(b − b₀)², by which the rounds replace the constraint Σ c_i α_i = 0."""
    free = dn.Problem(
        problem.X, problem.y, problem.loss, regularizer=problem.regularizer, lam=problem.lam,
        sample_weight=problem.sample_weight, offset=problem.o + centre,
    )  # fmt: skip
    return free.dual(alpha) - 0.5 * intercept_curvature(problem) * float(problem.c @ alpha) ** 2 / problem.n


def after_rounds(problem):
    """A solver after 60 rounds on single examples, its first intercept, and its dual point and model as joint steps take them."""
    solver = SDNA(problem, samplings.Serial(N))
    centre = solver.intercept
    for i in np.random.default_rng(0).integers(N, size=60):
        solver.round(np.array([i]))
    return solver, centre, solver.alpha.copy(), (solver.w, solver.intercept, solver.intercept_curvature)
