"""Data sets that need no file: random generators, and the sets that scikit-learn contains."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from dualnewton.io.dataset import DataError, Dataset

NOISE = 0.1
"""Standard deviation of the noise added to x_iᵀu before its sign is taken as the label; it makes the classes overlap."""

LENGTH = math.sqrt(10.0)
"""Norm of the rows of ``uncentred``; with λ = 1/n it makes the conditioning that of unit rows with λ = 1/(10n)."""

KNOWN = {
    "synthetic": ("classification", 2048, 1024),
    "iris": ("classification", 150, 4),
    "breast_cancer": ("classification", 569, 30),
    "wine": ("classification", 178, 13),
    "digits": ("classification", 1797, 64),
    "diabetes": ("regression", 442, 10),
}
"""Kind, n and d of the paper's synthetic set (Section 7), and of the sets inside scikit-learn."""

PAPER_SET = "synthetic"


def bundled(name: str) -> Dataset:
    """Return a data set that scikit-learn contains."""
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    X, names = np.ascontiguousarray(found.data, dtype=np.float64), tuple(map(str, found.feature_names))
    return Dataset(X, np.asarray(found.target), feature_names=names, name=name, target="the array 'target'")


def dense(n: int, d: int, seed: int = 0) -> Dataset:
    """Return Gaussian rows of norm one, labelled by the side of a random hyperplane with noise.

        x_i = s_i / ‖s_i‖,   s_ij ~ N(0, 1/j),   y_i = sign(x_iᵀu + 0.1 ε_i),   u_j, ε_i ~ N(0, 1)

    The standard deviation j^−½ of feature j makes the rows correlated, as in real data. The random numbers are drawn from
    ``numpy.random.default_rng(seed)`` in the order s, u, ε.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(d) + NOISE * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return Dataset(X, y, name=f"dense:{n}x{d}:{seed}", target="generated")


def uncentred(n: int, d: int, seed: int = 0) -> Dataset:
    """Return rows with a common mean direction, as features that were not centred have, labelled by a hyperplane with noise.

        x_i = √10 s_i / ‖s_i‖,   s_ij ~ N(1, 1),   y_i = sign(x_iᵀu + 0.1 ε_i),   u = v − mean(v),   v_j, ε_i ~ N(0, 1)

    The random numbers are drawn from ``numpy.random.default_rng(seed)`` in the order s, v, ε. The paper does not say how its
    synthetic set was generated; ``synthetic`` is this set with n = 2048 and d = 1024. With λ = 1/n the problem is conditioned
    like one with rows of norm one and λ = 1/(10n).
    """
    rng = np.random.default_rng(seed)
    X = 1.0 + rng.standard_normal((n, d))
    X *= LENGTH / np.linalg.norm(X, axis=1, keepdims=True)
    v = rng.standard_normal(d)
    y = np.where(X @ (v - v.mean()) + NOISE * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return Dataset(X, y, name=f"uncentred:{n}x{d}:{seed}", target="generated")


def sparse(n: int, d: int, entries: int, seed: int = 0) -> Dataset:
    """Return sparse rows of norm one with at most ``entries`` nonzeros each, labelled by a random hyperplane with noise.

    Column j is drawn with a probability proportional to 1/j, as word frequencies are; repeated draws are summed into one entry.
    """
    rng = np.random.default_rng(seed)
    weights = np.cumsum(1.0 / np.arange(1, d + 1))
    columns = np.searchsorted(weights, rng.random(n * entries) * weights[-1]).astype(np.int32)
    rows = np.repeat(np.arange(n), entries)
    X = sp.csr_array((np.abs(rng.standard_normal(n * entries)), (rows, columns)), shape=(n, d))
    X.sum_duplicates()
    norms = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
    X.data /= np.repeat(norms, np.diff(X.indptr))
    y = np.where(X @ rng.standard_normal(d) + NOISE * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return Dataset(X, y, name=f"sparse:{n}x{d}x{entries}:{seed}", target="generated")


LEVELS = (11, 12, 2, 22, 6, 10, 10)
"""Levels of the one-hot columns of ``motor``: brand, power and fuel of the car, region, area, ages of car and driver."""


def motor(n: int, seed: int = 0) -> Dataset:
    """Return claims per year of motor insurance policies, in the shape of the French third-party liability data of 678,013 rows.

    73 one-hot columns of seven categories and two numbers (bonus, logarithm of the population density), y = claims/exposure with
    the exposure, in years, as weight. About 0.1 claims a year follow a Poisson distribution with a log-linear mean.
    """
    rng = np.random.default_rng(seed)
    starts = np.cumsum((0, *LEVELS))
    levels = [rng.choice(count, n, p=rng.dirichlet(np.full(count, 2.0))) for count in LEVELS]
    numbers = np.column_stack([0.15 * rng.exponential(1.0, n) + 0.5, 0.2 * rng.standard_normal(n) + 0.6])
    columns = np.column_stack(
        [*(start + each for start, each in zip(starts, levels, strict=False)), *np.full((2, n), 0)]
    )
    columns[:, -2:] = starts[-1] + np.arange(2)
    entries = np.column_stack([np.ones((n, len(LEVELS))), numbers])
    ends = columns.shape[1] * np.arange(n + 1)
    X = sp.csr_array((entries.ravel(), columns.ravel().astype(np.int32), ends), shape=(n, int(starts[-1]) + 2))
    w = 0.3 * rng.standard_normal(X.shape[1])
    exposure = rng.uniform(0.02, 1.0, n)
    margins = X @ w
    y = rng.poisson(exposure * np.exp(margins - margins.mean() - 2.4)) / exposure
    return Dataset(X, y, sample_weight=exposure, name=f"motor:{n}:{seed}", target="claims per year")


GENERATORS: dict[str, tuple[Callable[..., Dataset], int, str]] = {
    "dense": (dense, 2, "dense:NxD"),
    "uncentred": (uncentred, 2, "uncentred:NxD"),
    "sparse": (sparse, 3, "sparse:NxDxK (K entries per row)"),
    "motor": (motor, 1, "motor:N"),
}
"""Generators by name: the function, the number of sizes in the name, and the form of the name."""


def is_known(name: str) -> bool:
    """Return True if the name is that of a data set that needs no file."""
    return name in KNOWN or name.partition(":")[0] in GENERATORS


def generated(name: str) -> Dataset | None:
    """Return the set of a name such as iris, dense:20000x500 or (with a seed) dense:20000x500:7; None for other names."""
    if name == PAPER_SET:
        return replace(uncentred(*KNOWN[name][1:]), name=name)
    if name in KNOWN:
        return bundled(name)
    kind, _, rest = name.partition(":")
    if kind not in GENERATORS:
        return None
    make, count, usage = GENERATORS[kind]
    found = re.fullmatch(r"(\d{1,12}(?:x\d{1,12})*)(?::(\d{1,12}))?", rest)
    sizes = [int(size) for size in found[1].split("x")] if found else []
    if found is None or len(sizes) != count or min(sizes) < 1:
        raise DataError(f"{name!r} must have the form {usage}, optionally followed by :SEED")
    return make(*sizes, seed=int(found[2] or 0))
