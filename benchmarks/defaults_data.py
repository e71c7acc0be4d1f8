"""Tables for the comparison of default settings: generated of four sizes, and those bundled with scikit-learn and statsmodels."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.data import FOLDER

Sizes = dict[str, tuple[int, int]]

SIZES: Sizes = {"300×10": (300, 10), "1000×20": (1000, 20), "5000×50": (5000, 50), "200×5000": (200, 5000)}
SKLEARN, STATSMODELS = "scikit-learn's tables", "statsmodels' tables"
GROUPS = (*SIZES, SKLEARN, STATSMODELS)
FURTHER = "further tables"
"""Data sets of the other benchmarks, which are compared only where they are asked for by this name."""

FURTHER_ROWS, FURTHER_FEATURES = 2000, 2000
"""Rows drawn from a further table, and the number of features above which it is left out."""

KINDS = ("gaussian", "correlated", "one-hot", "ill-scaled", "few informative")
FORMS = ("raw", "standardised")

FEWEST_ROWS = 15
"""Smaller tables are left out: five folds of three classes need some rows each."""

MOST_CLASSES = 10
"""A target with at most so many values, each at least five times, is taken as class labels."""


@dataclass(frozen=True, eq=False)
class Table:
    """Features with the four kinds of targets that the estimators take.

    Attributes
    ----------
    group, name, kind : str
        The size or the library it is from; its name; the kind of the generated data, or "raw" or "standardised".
    X : array of shape (n, d)
    y : array of shape (n,)
        A real target.
    two, many : array of shape (n,)
        Labels of two and of three or more classes.
    outputs : tuple of arrays, of shapes (n, p) and (n, K)
        Features and targets of a regression with several outputs.
    """

    group: str
    name: str
    kind: str
    X: np.ndarray
    y: np.ndarray
    two: np.ndarray
    many: np.ndarray
    outputs: tuple[np.ndarray, np.ndarray]

    def task(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return features and target of a task: "regression", "two", "many", "outputs" or "counts"."""
        if name == "outputs":
            return self.outputs
        return self.X, {"regression": self.y, "two": self.two, "many": self.many, "counts": self.counts}[name]

    @property
    def counts(self) -> np.ndarray:
        """Whole numbers from 1 to 8 that grow with the real target."""
        spread = float(self.y.std()) or 1.0
        return 1.0 + np.floor(np.exp(np.clip((self.y - self.y.mean()) / spread, -2.0, 2.0)))

    @property
    def label(self) -> str:
        """Name and kind."""
        return f"{self.name} {self.kind}"


# Generated tables -----------------------------------------------------------------------------------------------------------


def generated(size: str, kind: str) -> Table:
    """Return a table whose targets depend linearly on the features, with noise of half the spread of the signal."""
    n, d = SIZES[size]
    return generate(n, d, kind, size)


@cache
def generate(n: int, d: int, kind: str, group: str = "") -> Table:
    """Return a generated table of any size."""
    rng = np.random.default_rng([n, d, KINDS.index(kind)])
    X, scale = _features(rng, n, d, kind)
    W = rng.standard_normal((d, 4)) / scale[:, None]
    if kind == "few informative":
        W[min(5, d) :] = 0.0
    signal = X @ W
    signal = (signal - signal.mean(axis=0)) / signal.std(axis=0)
    noisy = signal + 0.5 * rng.standard_normal(signal.shape)
    y = 3.0 + 2.0 * noisy[:, 0]
    return Table(
        group, f"{n}×{d}", kind, X, y, (noisy[:, 0] > 0.0) * 1, noisy[:, 1:].argmax(axis=1), (X, noisy[:, 1:] + 3.0)
    )


def _features(rng: np.random.Generator, n: int, d: int, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features, and the scale of each by which its coefficient is divided."""
    ones = np.ones(d)
    if kind == "correlated":  # five common factors explain nine tenths of the variance of a feature
        common = rng.standard_normal((n, 5)) @ rng.standard_normal((5, d)) / np.sqrt(5.0)
        return np.sqrt(0.9) * common + np.sqrt(0.1) * rng.standard_normal((n, d)), ones
    if kind == "one-hot":  # variables of five levels each, of unequal frequencies
        levels = rng.choice(5, size=(n, -(-d // 5)), p=[0.4, 0.3, 0.15, 0.1, 0.05])
        hot = (levels[:, :, None] == np.arange(5)).reshape(n, -1)
        return np.ascontiguousarray(hot[:, :d] * 1.0), ones
    X = rng.standard_normal((n, d))
    if kind == "ill-scaled":  # spreads between 1e-3 and 1e3, means of the same order
        scale = 10.0 ** rng.uniform(-3.0, 3.0, d)
        return (X + rng.standard_normal(d)) * scale, scale
    return X, ones


# Bundled tables -------------------------------------------------------------------------------------------------------------


def bundled(group: str) -> Iterator[tuple[str, Callable[[], Table | str]]]:
    """Yield the name of every table of a library, with a function that loads it raw; a string says why it is left out."""
    if group == SKLEARN:
        for name in ("iris", "wine", "breast_cancer", "digits", "diabetes", "linnerud"):
            yield name, lambda name=name: _of_sklearn(name)
        return
    if group == FURTHER:
        for file in sorted(FOLDER.glob("*.npz")):
            yield file.stem, lambda file=file: _of_file(file)
        return
    try:
        datasets = importlib.import_module("statsmodels.datasets")
    except ImportError:
        yield "statsmodels", lambda: "statsmodels is not installed"
        return
    for name in sorted(dir(datasets)):
        module = getattr(datasets, name)
        if hasattr(module, "load_pandas"):
            yield name, lambda name=name, module=module: _of_statsmodels(name, module)


def _of_sklearn(name: str) -> Table | str:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return _table(SKLEARN, name, X, y)


def _of_statsmodels(name: str, module: Any) -> Table | str:
    """Take endog and exog where they are given, else the last numeric column and the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = module.load_pandas()
    frame = bundle.data.select_dtypes("number")
    if bundle.get("endog") is not None and bundle.get("exog") is not None:
        exog, endog = bundle.exog, bundle.endog
        exog = (exog.to_frame() if exog.ndim == 1 else exog).select_dtypes("number")
        y = endog.to_numpy(dtype=float)
    else:
        frame = frame.loc[:, frame.isna().mean() < 0.5]
        exog, y = frame.iloc[:, :-1], frame.iloc[:, -1].to_numpy(dtype=float)
    return _table(STATSMODELS, name, exog.to_numpy(dtype=float), y)


def _of_file(file: Path) -> Table | str:
    content = np.load(file)
    parts = ("data", "indices", "indptr")
    X = content["X"] if "X" in content else sp.csr_array(tuple(content[part] for part in parts), shape=content["shape"])
    if X.shape[1] > FURTHER_FEATURES:
        return f"{X.shape[1]} features"
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:FURTHER_ROWS])
    X = X[rows]
    return _table(FURTHER, file.stem, (X.toarray() if sp.issparse(X) else X).astype(float), content["y"][rows])


def _table(group: str, name: str, X: np.ndarray, target: np.ndarray) -> Table | str:
    """Make the four targets of one; rows with missing values are left out, as is a table without use."""
    target = np.asarray(target, dtype=float)
    several = target.reshape(len(target), -1)
    known = np.isfinite(X).all(axis=1) & np.isfinite(several).all(axis=1)
    X, several = np.ascontiguousarray(X[known]), several[known]
    y = np.ascontiguousarray(several[:, 0])
    if X.shape[1] < 1 or len(y) < FEWEST_ROWS:
        return f"{X.shape[0]} complete rows and {X.shape[1]} features"
    if y.min() == y.max():
        return "its target is constant"
    if several.shape[1] > 1:
        outputs = X, np.ascontiguousarray(several)
    elif X.shape[1] > 2:  # the target and the first feature from the other features
        outputs = np.ascontiguousarray(X[:, 1:]), np.column_stack([y, X[:, 0]])
    else:
        outputs = X, np.column_stack([y, y**2])
    return Table(group, name, "raw", X, y, _above_median(y), _classes(y), outputs)


def _above_median(y: np.ndarray) -> np.ndarray:
    above = y > np.median(y)
    return (above if above.any() else y > y.min()) * 1


def _classes(y: np.ndarray) -> np.ndarray:
    """Return the values as labels where they are few, else the third in which each lies."""
    values, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    if 3 <= len(values) <= MOST_CLASSES and counts.min() >= 5:
        return labels
    thirds = np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)
    return thirds if len(np.unique(thirds)) == 3 else np.argsort(np.argsort(y, kind="stable")) * 3 // len(y)


def standardised(table: Table) -> Table:
    """Return the table with features, and real targets, of mean zero and spread one; constant columns become zero."""
    features, outputs = (_scaled(part) for part in table.outputs)
    return Table(
        table.group,
        table.name,
        "standardised",
        _scaled(table.X),
        _scaled(table.y),
        table.two,
        table.many,
        (features, outputs),
    )


def _scaled(X: np.ndarray) -> np.ndarray:
    centred = X - X.mean(axis=0)
    spread = centred.std(axis=0)
    return centred / np.where(spread > 1e-12 * np.abs(X).max(axis=0, initial=1.0), spread, 1.0)


# All of them ----------------------------------------------------------------------------------------------------------------


def tables(
    groups: tuple[str, ...], kinds: tuple[str, ...], names: tuple[str, ...] = ()
) -> tuple[list[Table], dict[str, str]]:
    """Return the chosen tables, and the bundled ones that are left out with the reason."""
    found: list[Table] = []
    left_out: dict[str, str] = {}
    for group in groups:
        if group in SIZES:
            found += [generated(group, kind) for kind in KINDS if kind in kinds]
            continue
        for name, load in bundled(group):
            if names and name not in names:
                continue
            table = load()
            if isinstance(table, str):
                left_out[name] = table
                continue
            forms = {"raw": table, "standardised": standardised(table)}
            found += [form for kind, form in forms.items() if kind in kinds]
    return found, left_out
