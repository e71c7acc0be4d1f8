"""The cells of the benchmark: data sets, losses and strengths of regularisation."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses

LOSSES: dict[str, losses.Loss] = {"logistic": losses.Logistic(), "squared hinge": losses.SquaredHinge()}
EVERY_LOSS: dict[str, losses.Loss] = {**LOSSES, "squared": losses.Squared(), "Huber": losses.Huber(1.0)}

FOLDER = Path(os.environ.get("DUALNEWTON_DATA", Path(__file__).parents[2] / "shared" / "data"))

NOISE = 0.1
"""Standard deviation of the noise added to the linear scores of generated labels; it makes the classes overlap."""


def unit_rows(X: Any) -> Any:
    """Scale each row to norm one, in float64; a row of zeros stays zero."""
    if sp.issparse(X):
        X = sp.csr_matrix(X, dtype=np.float64)
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())
        scaled = X.data / np.repeat(np.where(norms > 0.0, norms, 1.0), np.diff(X.indptr))
        return sp.csr_matrix((scaled, X.indices, X.indptr), shape=X.shape)
    norms = np.linalg.norm(X, axis=1, keepdims=True)
    return np.ascontiguousarray(X / np.where(norms > 0.0, norms, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class Dataset:
    """A matrix with labels that is loaded or generated on first use and then scaled, to unit rows by default."""

    name: str
    make: Callable[[], tuple[Any, np.ndarray]]
    scale: Callable[[Any], Any] = unit_rows

    @cached_property
    def arrays(self) -> tuple[Any, np.ndarray]:
        """X, dense in C order or CSR with int32 indices, float64; and y."""
        X, y = self.make()
        return self.scale(X), y

    @property
    def X(self) -> Any:
        """The examples."""
        return self.arrays[0]

    @property
    def y(self) -> np.ndarray:
        """The labels."""
        return self.arrays[1]

    @property
    def is_dense(self) -> bool:
        """True if X is a NumPy array."""
        return not sp.issparse(self.X)


@dataclass(frozen=True)
class Cell:
    """One problem: data, loss, and λn."""

    data: Dataset
    loss: str
    lam_n: float

    def __str__(self) -> str:
        return f"{self.data.name}, {self.loss}, λn={self.lam_n:g}"

    def problem(self) -> dn.Problem:
        """Return a new problem, so that the timed fit includes the checks of the data."""
        return dn.Problem(self.data.X, self.data.y, EVERY_LOSS[self.loss], lam=self.lam_n / len(self.data.y))


def dense(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Generate Gaussian rows whose j-th feature has the standard deviation j^−½, labelled by a random hyperplane with noise."""
    rng = np.random.default_rng(seed)
    X = unit_rows(rng.standard_normal((n, d)) / np.sqrt(np.arange(1, d + 1)))
    return X, np.where(X @ rng.standard_normal(d) + NOISE * rng.standard_normal(n) > 0.0, 1.0, -1.0)


def ten_classes(X: np.ndarray, seed: int = 1) -> np.ndarray:
    """Label each row by the largest of ten random linear scores, with noise; return ten columns of ±1, one against the rest."""
    rng = np.random.default_rng(seed)
    scores = X @ rng.standard_normal((X.shape[1], 10)) + NOISE * rng.standard_normal((len(X), 10))
    return np.where(scores.argmax(axis=1)[:, None] == np.arange(10), 1.0, -1.0)


def dense_set(n: int, d: int) -> Dataset:
    """Return a generated set, named by its shape."""
    return Dataset(f"dense {n}×{d}", lambda: dense(n, d))


def reader(name: str, labels: Callable[[np.ndarray], np.ndarray]) -> Callable[[], tuple[Any, np.ndarray]]:
    """Return a function that reads a set from the data folder and transforms its labels."""

    def read() -> tuple[Any, np.ndarray]:
        with np.load(FOLDER / f"{name}.npz") as z:
            X = z["X"] if "X" in z else sp.csr_matrix((z["data"], z["indices"], z["indptr"]), shape=z["shape"])
            return X, labels(z["y"])

    return read


def real_set(name: str, is_positive: Callable[[np.ndarray], np.ndarray]) -> Dataset:
    """Return a set from the data folder with labels ±1."""
    return Dataset(name, reader(name, lambda y: np.where(is_positive(y), 1.0, -1.0)))


def is_here(name: str) -> bool:
    """Return True if the data folder contains this set."""
    return (FOLDER / f"{name}.npz").exists()


REAL = [
    real_set("mushrooms", lambda y: y == y.max()),
    real_set("w8a", lambda y: y > 0),
    real_set("a9a", lambda y: y > 0),
    real_set("news20", lambda y: y <= 10),  # the first ten classes against the rest
]
DENSE = [dense_set(20_000, 500), dense_set(2_000, 10_000)]
QUICK_DENSE = [dense_set(4_000, 200), dense_set(500, 2_000)]


def datasets(quick: bool) -> tuple[list[Dataset], list[str]]:
    """Return the available sets, and the names of the others."""
    wanted = [data for data in REAL if not quick or data.name in ("mushrooms", "a9a")]
    here = [data for data in wanted if is_here(data.name)]
    absent = [data.name for data in wanted if data not in here]
    return here + (QUICK_DENSE if quick else DENSE), absent


def cells(sets: list[Dataset], quick: bool) -> Iterator[Cell]:
    """Yield every problem on these sets."""
    strengths = (1.0,) if quick else (1.0, 0.1)
    for data, loss, lam_n in itertools.product(sets, LOSSES, strengths):
        yield Cell(data, loss, lam_n)


@cache
def warm_up_cells() -> tuple[Cell, ...]:
    """Return one small problem per storage and loss, large enough (n·d > 2²⁰) to use the compiled kernels.

    The sparse set has few enough entries that the library keeps it sparse, and one rare feature.
    """
    X, y = dense(17_000, 64)
    few = np.abs(X) >= np.quantile(np.abs(X), 0.85)
    few[5:, 0] = False
    sparse = Dataset("warm-up, CSR", lambda: (sp.csr_matrix(X * few), y))
    sets = (Dataset("warm-up, dense", lambda: (X, y)), sparse)
    return tuple(Cell(data, loss, 1.0) for data in sets for loss in EVERY_LOSS)


def warm_up_like(cell: Cell) -> Cell:
    """Return the warm-up problem with the same storage and loss."""
    return next(warm for warm in warm_up_cells() if (warm.data.is_dense, warm.loss) == (cell.data.is_dense, cell.loss))
