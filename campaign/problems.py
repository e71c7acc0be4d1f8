"""Random adversarial problems: everything is drawn from one generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from campaign.exact import Objective
from dualnewton import losses, regularizers
from dualnewton.matrix import ChunkedData

Rng = np.random.Generator


def _some(rng: Rng, options: Any) -> Any:
    """One of the options, as it is."""
    return options[int(rng.integers(len(options)))]


def power(rng: Rng, low: float, high: float) -> float:
    """Return ten to a random exponent."""
    return float(10.0 ** rng.uniform(low, high))


LOSSES: dict[str, Callable[[Rng], Any]] = {
    "Squared": lambda rng: losses.Squared(),
    "Logistic": lambda rng: losses.Logistic(),
    "SquaredHinge": lambda rng: losses.SquaredHinge(),
    "SmoothHinge": lambda rng: losses.SmoothHinge(power(rng, -4, 1)),
    "Hinge": lambda rng: losses.Hinge(),
    "Huber": lambda rng: losses.Huber(power(rng, -3, 3)),
    "SquaredEpsilonInsensitive": lambda rng: losses.SquaredEpsilonInsensitive(_some(rng, [0.0, power(rng, -3, 2)])),
    "SmoothEpsilonInsensitive": lambda rng: losses.SmoothEpsilonInsensitive(power(rng, -3, 1), power(rng, -4, 1)),
    "EpsilonInsensitive": lambda rng: losses.EpsilonInsensitive(_some(rng, [0.0, power(rng, -3, 2)])),
    "Quantile": lambda rng: losses.Quantile(float(rng.uniform(0.01, 0.99))),
    "SmoothQuantile": lambda rng: losses.SmoothQuantile(float(rng.uniform(0.01, 0.99)), power(rng, -4, 1)),
    "Poisson": lambda rng: losses.Poisson(),
    "Gamma": lambda rng: losses.Gamma(),
    "Tweedie": lambda rng: losses.Tweedie(float(rng.uniform(1.05, 1.95))),
    "Softmax": lambda rng: losses.Softmax(int(rng.integers(2, 5))),
    "SquaredOutputs": lambda rng: losses.SquaredOutputs(int(rng.integers(2, 4))),
}
CLASSES = ("Logistic", "SquaredHinge", "SmoothHinge", "Hinge")
COUNTS = ("Poisson", "Gamma", "Tweedie")


def _box(rng: Rng, d: int) -> Any:
    low, high = np.sort(rng.standard_normal((2, d)), axis=0)
    return regularizers.Box(low, np.where(rng.random(d) < 0.2, np.inf, high))


PENALTIES: dict[str, Callable[[Rng, int], Any]] = {
    "L2": lambda rng, d: regularizers.L2(),
    "L2 weighted": lambda rng, d: regularizers.L2(10.0 ** rng.uniform(0, 4, d)),
    "L1": lambda rng, d: regularizers.L1(bool(rng.integers(2))),
    "ElasticNet": lambda rng, d: regularizers.ElasticNet(power(rng, -3, 2), bool(rng.integers(2))),
    "NonNegative": lambda rng, d: regularizers.NonNegative(),
    "Box": _box,
    "JointL1": lambda rng, d: regularizers.JointL1(),
    "JointElasticNet": lambda rng, d: regularizers.JointElasticNet(power(rng, -3, 2)),
    "GroupElasticNet": lambda rng, d: regularizers.GroupElasticNet(
        rng.integers(0, max(d // 2, 1), d), power(rng, -2, 1)
    ),
}
METHODS = ("auto", "auto", "auto", "newton", "ihs", "sdna", "sdca", "interior")
STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "C order": lambda X: X,
    "Fortran order": np.asfortranarray,
    "float32": lambda X: X,
    "CSR": sp.csr_array,
    "CSR float32": sp.csr_array,
    "CSC": sp.csc_array,
    "chunked": lambda X: ChunkedData(np.array_split(X, min(3, len(X)))),
    "chunked CSR": lambda X: ChunkedData([sp.csr_array(part) for part in np.array_split(X, min(3, len(X)))]),
}


SIZES = (1, 2, 3, 10, 30, 30, 60, 200), (1, 2, 3, 8, 8, 30, 100, 300)
"""Numbers of rows and of features."""


def rows(rng: Rng, n: int, d: int, *, gentle: bool = False) -> np.ndarray:
    """Rows with some of: scales from 1e-8 to 1e8, duplicate rows and columns, zeros, constants, low rank."""
    X = rng.standard_normal((n, d))
    kind = rng.random(8)
    if kind[0] < 0.4:
        X = X * 10.0 ** rng.uniform(-8, 8) if not gentle else X * 10.0 ** rng.uniform(-3, 3)
    if kind[1] < 0.3:
        X = X * 10.0 ** (rng.uniform(-8, 8, d) if not gentle else rng.uniform(-3, 3, d))
    if kind[2] < 0.2:
        X = X * 10.0 ** rng.uniform(-4, 4, (n, 1))
    if kind[3] < 0.2:
        X = X[rng.integers(0, n, n)]
    if kind[4] < 0.2:
        X = X[:, rng.integers(0, d, d)]
    if kind[5] < 0.3:
        X = X * (rng.random((n, d)) < rng.uniform(0.02, 0.7))
    if kind[6] < 0.1:
        X = X + power(rng, 0, 8)
    if kind[7] < 0.1:
        X = np.outer(X[:, 0], X[0])
    return np.ascontiguousarray(X)


def labels(rng: Rng, name: str, loss: Any, X: np.ndarray) -> np.ndarray:
    """Labels of the loss's domain: random, separable, of one class only, of large or small scale, all zero."""
    n, kind = len(X), rng.random()
    scores = X @ rng.standard_normal(X.shape[1])
    scores = scores / (np.abs(scores).max() or 1.0)
    noisy = scores + rng.standard_normal(n) * _some(rng, [0.0, 0.1, 3.0])
    if name == "SquaredOutputs":
        return rng.standard_normal((n, loss.columns)) * power(rng, -8, 8)
    if name == "Softmax":
        return np.zeros(n) if kind < 0.1 else rng.integers(0, loss.columns, n).astype(float)
    if name in CLASSES:
        return np.full(n, _some(rng, [-1.0, 1.0])) if kind < 0.1 else np.where(noisy > 0.0, 1.0, -1.0)
    if name in COUNTS:
        y = np.zeros(n) if kind < 0.05 else rng.poisson(np.exp(np.clip(2.0 * noisy, -5, 5))).astype(float)
        y = y * (power(rng, -4, 4) if kind > 0.7 else 1.0)
        return y + 0.01 if name == "Gamma" else y
    return np.zeros(n) if kind < 0.05 else noisy * (power(rng, -8, 8) if kind > 0.5 else 1.0)


@dataclass(frozen=True)
class Drawn:
    """A problem, as the library takes it and as plain arrays, and the options of a fit."""

    title: str
    make: Callable[[], Any]
    exact: Objective
    options: dict[str, Any]
    several: tuple[float, ...]  # values of λ to fit together; one for a single fit


def drawn(
    seed: int,
    storages: dict[str, Callable[[np.ndarray], Any]] = STORAGES,
    *,
    gentle: bool = False,
    harsh: bool = False,
    sizes: tuple[Sequence[int], Sequence[int]] = SIZES,
    turn: int = 0,
) -> Drawn:
    """Draw a problem, whose rows have one of the storages and of the sizes, and the options of its fit.

    A seed has one problem for each ``turn``. If ``harsh``, weights differ by twelve orders of magnitude, offsets by eight, and
    rows in the number of their entries.
    """
    rng = np.random.default_rng([seed, 20, turn] if turn else [seed, 20])
    name = _some(rng, list(LOSSES))
    loss = LOSSES[name](rng)
    n, d = (int(_some(rng, options)) for options in sizes)
    storage = _some(rng, list(storages))
    X = rows(rng, n, d, gentle=gentle or name in COUNTS)
    X = X.astype(np.float32 if "float32" in storage else np.float64)
    y = labels(rng, name, loss, X)
    penalty = "L2" if rng.random() < 0.3 else _some(rng, list(PENALTIES))
    weights = rng.random(n) * (rng.random(n) < 0.8) * power(rng, -4, 4) if rng.random() < 0.3 else None
    shape = (n,) if loss.columns == 1 else (n, loss.columns)
    offset = rng.standard_normal(shape) * power(rng, -4, 2) if rng.random() < 0.25 else None
    lam, intercept = power(rng, -8, 3), bool(rng.integers(2))
    regularizer = PENALTIES[penalty](rng, d)
    if harsh:
        weights = 10.0 ** rng.uniform(-6, 6, n) if rng.random() < 0.5 else weights
        offset = (
            rng.standard_normal(shape) * power(rng, 0, 1 if name in COUNTS else 8) if rng.random() < 0.5 else offset
        )
        X = np.where(np.arange(d) < rng.integers(1, d + 1, (n, 1)), X, np.zeros_like(X)) if rng.random() < 0.5 else X
    exact = Objective(X.astype(np.float64), y, loss, regularizer, lam, weights, offset, intercept)
    stored = storages[storage](X)

    def make(lam: float = lam) -> Any:
        return dn.Problem(
            stored,
            y,
            loss,
            regularizer=regularizer,
            lam=lam,
            sample_weight=weights,
            offset=offset,
            fit_intercept=intercept,
        )

    options: dict[str, Any] = {
        "method": _some(rng, METHODS),
        "tol": _some(rng, [1e-3, 1e-6, 1e-6, 1e-9, 1e-12, 0.0]),
        "max_epochs": int(_some(rng, [0, 1, 7, 100, 1000, 1000, 1000])),
        "time_limit": float(_some(rng, [0.0, 0.05, 0.2, 0.5, 0.5, 0.5])),
        "random_state": seed,
    }
    if rng.random() < 0.2:
        options["tau"] = int(rng.integers(1, n + 1))
    several = (lam, lam / 10.0, lam * 3.0) if rng.random() < 0.1 else (lam,)
    title = f"{loss!r} + {penalty}, {n}x{d} {storage}, lam {lam:.2g}, b {intercept}, {options}"
    return Drawn(title, make, exact, options, several)
