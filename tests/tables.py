"""All instances of everything, once: a loss or regulariser that the library exports is tested everywhere.

Those with interesting parameters are listed; of any other exported class, the one with default parameters joins them.
"""

import os
from dataclasses import dataclass, is_dataclass
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton import losses, regularizers, samplings
from dualnewton.objective.problem import Problem


def exported(module, base):
    """The classes of a package that a user can make instances of."""
    public = [getattr(module, name) for name in module.__all__]
    return [kind for kind in public if isinstance(kind, type) and issubclass(kind, base) and is_dataclass(kind)]


def unlisted(module, base, *lists):
    """One instance of each exported class that none of the lists has, with its default parameters."""
    listed = {type(instance) for instances in lists for instance in instances}
    return [kind() for kind in exported(module, base) if kind not in listed]


LOSSES = [
    losses.Squared(),
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.SmoothHinge(width=0.5),
    losses.SmoothHinge(width=2.0),
    losses.Huber(delta=0.7),
    losses.SquaredEpsilonInsensitive(epsilon=0.3),
    losses.SmoothEpsilonInsensitive(epsilon=0.3, width=0.5),
    losses.SmoothQuantile(q=0.25, width=0.5),
]

NON_SMOOTH = [
    losses.Hinge(),
    losses.EpsilonInsensitive(epsilon=0.3),
    losses.EpsilonInsensitive(epsilon=0.0),
    losses.Quantile(q=0.3),
]

SEVERAL_COLUMNS = [losses.Softmax(2), losses.Softmax(5), losses.SquaredOutputs(3)]

WITHOUT_GAMMA = []
"""Smooth losses for which there is no γ."""

for new in unlisted(losses, losses.Loss, LOSSES, NON_SMOOTH, SEVERAL_COLUMNS):
    where = NON_SMOOTH if new.kinked else SEVERAL_COLUMNS if new.columns > 1 else LOSSES
    (WITHOUT_GAMMA if where is LOSSES and new.gamma is None else where).append(new)


@dataclass(frozen=True, eq=False)
class AgainstDirection(regularizers.Regularizer):
    """½‖w‖² + ½(uᵀw)²: a regulariser such as a user would write, of which ∇g* needs all features at once."""

    direction: np.ndarray

    @property
    def size(self):
        return len(self.direction)

    def value(self, w):
        return 0.5 * float(w @ w) + 0.5 * float(self.direction @ w) ** 2

    def conjugate(self, s):
        return 0.5 * float(s @ self.grad_conjugate(s))

    def grad_conjugate(self, s):
        u = self.direction
        return s - u * ((u @ s) / (1.0 + u @ u))


def regularizers_for(d):
    """Every strongly convex regulariser, made for d features, and one of the user's."""
    listed = [
        regularizers.L2(),
        regularizers.ElasticNet(l1=0.3),
        regularizers.ElasticNet(l1=0.1, positive=True),
        regularizers.NonNegative(),
        regularizers.Box(-0.5, 0.8),
        regularizers.Box(np.linspace(-1.0, -0.1, d), np.r_[np.inf, np.linspace(0.2, 1.0, d - 1)]),
        regularizers.JointElasticNet(l1=0.3),
        regularizers.GroupElasticNet(np.arange(d) // 2, strength=0.2),
        regularizers.L2(np.linspace(1.0, 3.0, d)),
        AgainstDirection(np.linspace(-1.0, 2.0, d)),
    ]
    return listed + [g for g in unlisted(regularizers, regularizers.Regularizer, listed) if g.strongly_convex]


def samplings_for(n):
    """Every sampling with few enough sets to enumerate, for n in 3..8."""
    rng = np.random.default_rng(7)
    pairs = [[i, (i + 1) % n] for i in range(n)]
    return [
        samplings.Serial(n),
        samplings.Serial(n, rng.dirichlet(np.full(n, 3.0))),
        samplings.Nice(n, 2),
        samplings.Nice(n, n - 1),
        samplings.Nice(n, n),
        samplings.Independent(rng.uniform(0.1, 0.6, n)),
        samplings.Independent(np.full(n, 0.4)),
        samplings.Partition(n, 2),
        samplings.Shuffled(n, 2),
        samplings.Explicit(n, [*pairs, list(range(n))], [*np.full(n, 0.8 / n), 0.2]),
        samplings.Explicit(n, [[0], *pairs], [0.3, *np.full(n, 0.7 / n)]),
    ]


def uniform_samplings_for(n):
    """Those of them with equal marginals, as Sections 3 and 4 of the paper ask."""
    return [sampling for sampling in samplings_for(n) if sampling.is_uniform]


def labels_for(loss, n, rng):
    """Random labels of the loss's domain, all classes present."""
    if loss.label_columns > 1:
        return rng.standard_normal((n, loss.label_columns))
    if loss.columns > 1:
        return rng.permutation(np.arange(n) % loss.columns)
    if isinstance(loss, losses.Margin):
        return np.where(np.arange(n) % 2 == 0, 1.0, -1.0)[rng.permutation(n)]
    y = rng.standard_normal(n)
    return y if loss.valid_labels(y).all() else np.abs(y)


def make_problem(loss, *, n=6, d=4, seed=0, sparse=False, weights=False, offset=False, dtype=np.float64, **kwargs):
    """A small random problem with rows of unequal norm."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 1.5, (n, 1))
    if sparse:
        X = sp.csr_array(X * (rng.random((n, d)) < 0.6))
    if weights:
        kwargs["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if offset:
        kwargs["offset"] = 0.3 * rng.standard_normal(n if loss.columns == 1 else (n, loss.columns))
    return Problem(X.astype(dtype), labels_for(loss, n, rng), loss, **kwargs)


def load(name):
    """A real data set, or a skip by its name where the file is absent."""
    folder = Path(os.environ.get("DUALNEWTON_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / f"{name}.npz"
    if not path.exists():
        pytest.skip(f"data set {name} is not in {folder} (set DUALNEWTON_DATA)")
    z = np.load(path)
    X = z["X"] if "X" in z else sp.csr_array((z["data"], z["indices"], z["indptr"]), shape=z["shape"])
    return X, z["y"]


def name_of(instance):
    """A readable test id."""
    return repr(instance).split("(array")[0].replace("\n", "")[:60]


WITH_KINKS = [
    regularizers.L1(),
    regularizers.L1(positive=True),
    regularizers.ElasticNet(0.3),
    regularizers.ElasticNet(0.1, positive=True),
    regularizers.NonNegative(),
    regularizers.Box(-0.05, 0.08),
    regularizers.Box(0.01, 0.02),
]
"""Penalties with kinks or bounds, feature by feature."""

JOINT = [regularizers.JointL1(), regularizers.JointElasticNet(0.3)]
"""Penalties that join the columns of a model."""
