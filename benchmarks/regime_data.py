"""Data of many kinds for the comparison: tall, square and wide, dense and CSR, well and ill-conditioned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from benchmarks.data import Cell, Dataset, is_here, reader

STRENGTHS = (10.0, 1.0, 0.1, 0.01)  # values of λn
QUICK_STRENGTHS = (0.1,)
CLASSIFICATION = ("logistic", "squared", "squared hinge")
REGRESSION = ("squared", "Huber")

CONDITION = 1e6
"""Condition number of the covariance of the generated ill-conditioned data."""

FLIPPED = 0.1
"""Fraction of the generated labels whose sign is flipped, so that the classes are not separable."""


@dataclass(frozen=True)
class Regime:
    """A data set, and the losses that suit its labels."""

    data: Dataset
    losses: tuple[str, ...]
    generated: bool = False

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""
        return self.data.name


# Scaling -----------------------------------------------------------------------------------------------------------------


def standardised(X: Any) -> Any:
    """Scale each column to variance one, and centre it if X is dense; centred CSR data would not stay sparse.

    A constant column is not changed.
    """
    X = as_it_is(X)
    if sp.issparse(X):
        mean = np.asarray(X.mean(axis=0)).ravel()
        # The squared deviations of entries and of zeros are summed separately; E[x²] − E[x]² would cancel catastrophically.
        apart = np.bincount(X.indices, (X.data - mean[X.indices]) ** 2, X.shape[1])
        absent = X.shape[0] - np.bincount(X.indices, minlength=X.shape[1])
        scale = column_scale(np.sqrt((apart + absent * mean**2) / X.shape[0]), mean)
        return sp.csr_matrix((X.data / scale[X.indices], X.indices, X.indptr), shape=X.shape)
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    scale = column_scale(deviation, mean)
    return np.where(scale == deviation, X - mean, X) / scale


def column_scale(deviation: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the standard deviations, with 1 for a column that is constant up to rounding."""
    return np.where(deviation > 1e-12 * np.abs(mean), deviation, 1.0)


def as_it_is(X: Any) -> Any:
    """Convert X to float64, dense in C order or CSR, without scaling."""
    return sp.csr_matrix(X, dtype=np.float64) if sp.issparse(X) else np.ascontiguousarray(X, dtype=np.float64)


def binary(y: np.ndarray) -> np.ndarray:
    """Return labels ±1, with 1 for the larger of the two labels."""
    return np.where(y == y.max(), 1.0, -1.0)


def centred(y: np.ndarray) -> np.ndarray:
    """Scale real labels to mean zero and variance one."""
    return (y - y.mean()) / y.std()


# Generated data ----------------------------------------------------------------------------------------------------------


def ill_conditioned(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Generate Gaussian rows with covariance Q diag(s) Qᵀ, labelled by a random hyperplane with one label in ten flipped.

    Q is a random rotation, and s falls geometrically from 1 to 10⁻⁶.
    """
    rng = np.random.default_rng(seed)
    Q = la.qr(rng.standard_normal((d, d)), check_finite=False)[0]
    X = rng.standard_normal((n, d)) @ (np.sqrt(np.geomspace(1.0, 1.0 / CONDITION, d))[:, None] * Q.T)
    flips = np.where(rng.random(n) < FLIPPED, -1.0, 1.0)
    return X, flips * np.where(X @ rng.standard_normal(d) > 0.0, 1.0, -1.0)


def thin_rows(n: int, d: int, share: float, seed: int = 0) -> tuple[sp.csr_matrix, np.ndarray]:
    """Generate sparse Gaussian rows with this share of stored entries, labelled by a noisy random hyperplane.

    The feature of rank j is stored in a share of the rows proportional to j^−0.7, and in all of them at most.
    """
    rng = np.random.default_rng(seed)
    frequency = np.arange(1, d + 1) ** -0.7
    stored = rng.random((n, d)) < np.minimum(share * d * frequency / frequency.sum(), 1.0)
    X = sp.csr_matrix(stored * rng.standard_normal((n, d)))
    scores = X @ rng.standard_normal(d)
    return X, np.where(scores + 0.5 * scores.std() * rng.standard_normal(n) > 0.0, 1.0, -1.0)


def thin_set(n: int, d: int, share: float) -> Regime:
    """Return a generated sparse set, named by its shape."""
    return Regime(Dataset(f"thin-{n}x{d}", lambda: thin_rows(n, d, share), as_it_is), CLASSIFICATION, generated=True)


def ill_set(n: int, d: int) -> Regime:
    """Return a generated set, named by its shape."""
    return Regime(Dataset(f"ill-{n}x{d}", lambda: ill_conditioned(n, d), as_it_is), CLASSIFICATION, generated=True)


# The cells ---------------------------------------------------------------------------------------------------------------


def classes(name: str) -> Regime:
    """Return a standardised set with two classes."""
    return Regime(Dataset(name, reader(name, binary), standardised), CLASSIFICATION)


def outputs(name: str) -> Regime:
    """Return a standardised set with standardised real labels."""
    return Regime(Dataset(name, reader(name, centred), standardised), REGRESSION)


NEWS20 = Regime(
    Dataset(
        "news20", reader("news20", lambda y: np.where(y <= 10, 1.0, -1.0)), as_it_is
    ),  # ten classes against the rest
    CLASSIFICATION,
)
REGIMES = [
    *map(classes, ("a9a", "phishing", "mushrooms", "splice", "madelon", "colon_cancer")),
    *map(outputs, ("blogfeedback", "cadata", "cpusmall")),
    NEWS20,
    ill_set(200_000, 100),
    ill_set(20_000, 2_000),
    thin_set(3_845, 1_617, 0.09),
]
QUICK = [classes("splice"), outputs("cpusmall"), ill_set(4_000, 50)]


def regimes(quick: bool, names: list[str] | None = None) -> tuple[list[Regime], list[str]]:
    """Return the requested sets (all by default) that are available, and the names of the others."""
    wanted = QUICK if quick and names is None else REGIMES
    chosen = [regime for regime in wanted if names is None or regime.name in names]
    here = [regime for regime in chosen if regime.generated or is_here(regime.name)]
    return here, [regime.name for regime in chosen if regime not in here]


def cells(sets: list[Regime], quick: bool) -> Iterator[Cell]:
    """Yield every problem on these sets; for each loss, the strengths decrease from cell to cell.

    In this order each cell can reuse results of the one before: an optimum to start from, the times and tolerances of the peers.
    """
    for regime in sets:
        for loss in regime.losses:
            for lam_n in QUICK_STRENGTHS if quick else STRENGTHS:
                yield Cell(regime.data, loss, lam_n)
