"""Default against default on random tables: ``python -m benchmarks.scan [--seed 0] [--tables 40] [--each 8] [--cap 10]``.

Searches for kinds of data on which an estimator is much slower than scikit-learn's, misses its tolerance or fails. Every seed
draws other tables: their numbers of rows and features, the kind of the features, their storage and type, and the estimators that
are fitted on each, both libraries with default settings in one thread. No code was tuned on them. The worst cells are printed
first; the exit status is 1 if a model of ours fails or misses its tolerance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.defaults import Cell, Effort, measure_all, prepare
from benchmarks.defaults_cases import CASES, Case
from benchmarks.defaults_data import Table
from benchmarks.timing import geometric_mean

ROWS, FEATURES, ENTRIES = (40, 60_000), (2, 3000), 4_000_000
"""Ranges of the numbers of rows and features, drawn on a logarithmic scale, and the largest number of entries."""

SPARSE_FEATURES, PER_ROW = (300, 50_000), 40
"""Range of the number of features of sparse tables, and the largest mean number of entries in a row."""

DENSE_ONLY = ("LinearRegression", "RidgeCV", "RidgeClassifierCV", "QuantileRegressor", "HuberRegressor")
"""Estimators that are left out on sparse tables, on which scikit-learn takes minutes or another method."""


# Features -------------------------------------------------------------------------------------------------------------------


def _gaussian(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_normal((n, d))


def _neighbours(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Each feature has a correlation of 0.95 with the one before."""
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + 0.31 * X[:, j]
    return X


def _scales(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Amounts in different units, all positive."""
    return np.exp(rng.standard_normal((n, d))) * 10.0 ** rng.integers(-2, 5, d)


def _heavy_tails(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.standard_t(2.5, (n, d))


def _counts(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return rng.poisson(np.exp(rng.standard_normal(d)), (n, d)) * 1.0


def _dummies(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """All levels of categorical variables of 2 to 12 levels, so that the features are dependent."""
    X, j = np.zeros((n, d)), 0
    while j < d:
        levels = min(int(rng.integers(2, 13)), d - j)
        X[np.arange(n), j + rng.choice(levels, n, p=rng.dirichlet(np.full(levels, 2.0)))] = 1.0
        j += levels
    return X


def _mixed(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """A third of dummies, a third of amounts, a third of Gaussian features."""
    part = max(d // 3, 1)
    return np.hstack([_dummies(rng, n, part), _scales(rng, n, part), _gaussian(rng, n, d)])[:, :d]


def _powers(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Powers and products of a few variables on [0, 1]."""
    base = rng.random((n, max(2, round(d**0.5))))
    first, second = rng.integers(0, base.shape[1], (2, d))
    return base[:, first] ** rng.integers(1, 4, d) * base[:, second] ** rng.integers(0, 3, d)


def _low_rank(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Few factors and a little noise, as in spectra."""
    rank = max(1, min(n, d) // 10)
    return rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) + 0.01 * rng.standard_normal((n, d))


def _shifted(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Means far from zero, such as years and temperatures in kelvin."""
    return rng.standard_normal((n, d)) + rng.choice([0.0, 20.0, 300.0, 2000.0], d)


def _words(rng: np.random.Generator, n: int, d: int) -> sp.csr_array:
    """Counts of words whose frequencies follow Zipf's law, with rows of unit length."""
    frequency = 1.0 / np.arange(1.0, d + 1.0)
    length = rng.integers(5, 2 * PER_ROW, n)
    words = rng.choice(d, int(length.sum()), p=frequency / frequency.sum())
    ends = np.r_[0, length.cumsum()].astype(np.int32)
    X = sp.csr_array((np.ones(words.size), words.astype(np.int32), ends), shape=(n, d))
    X.sum_duplicates()
    X.data /= np.repeat(np.sqrt(X.power(2).sum(axis=1)), np.diff(X.indptr))
    return X


def _presences(rng: np.random.Generator, n: int, d: int) -> sp.csr_array:
    """Zeros and ones, each feature with its own frequency."""
    X = sp.random_array((n, d), density=min(0.3, rng.integers(5, PER_ROW) / d), rng=rng, format="csr")
    X.data[:] = 1.0
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # scikit-learn takes no others
    return X


DENSE: dict[str, Callable[..., np.ndarray]] = {
    "gaussian": _gaussian, "neighbours": _neighbours, "scales": _scales, "heavy tails": _heavy_tails, "counts": _counts,
    "dummies": _dummies, "mixed": _mixed, "powers": _powers, "low rank": _low_rank, "shifted": _shifted,
}  # fmt: skip
SPARSE: dict[str, Callable[..., sp.csr_array]] = {"words": _words, "presences": _presences}


# Tables ---------------------------------------------------------------------------------------------------------------------


def _between(rng: np.random.Generator, low: float, high: float) -> int:
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def table(seed: int, number: int) -> Table:
    """Return a random table, with targets that depend on some of its features."""
    rng = np.random.default_rng([seed, number])
    is_sparse = rng.random() < 0.25
    n = _between(rng, *ROWS)
    if is_sparse:
        kind, d = rng.choice(list(SPARSE)), _between(rng, *SPARSE_FEATURES)
        X: Any = SPARSE[kind](rng, n, d)
    else:
        kind, d = rng.choice(list(DENSE)), min(_between(rng, *FEATURES), max(2, ENTRIES // n))
        X = np.ascontiguousarray(DENSE[kind](rng, n, d))
    used = rng.random(d) < rng.choice([0.1, 1.0])
    used[0] = True
    spread = np.sqrt(np.maximum(_mean_squares(X), 1e-12))
    signal = X @ (rng.standard_normal((d, 4)) * used[:, None] / spread[:, None])
    signal = (signal - signal.mean(axis=0)) / np.maximum(signal.std(axis=0), 1e-12)
    noisy = signal + rng.choice([0.1, 0.5, 2.0]) * rng.standard_normal(signal.shape)
    forms = ["float64", "float32"] if is_sparse else ["float64", "float64", "float32", "Fortran order"]
    form = str(rng.choice(forms))
    X = np.asfortranarray(X) if form == "Fortran order" else X.astype("float32" if form == "float32" else "float64")
    two, many = (noisy[:, 0] > 0.0) * 1, noisy[:, 1:].argmax(axis=1)
    name = f"{number}: {'csr ' if is_sparse else ''}{n}×{d} {form}"
    return Table("scan", name, str(kind), X, 3.0 + 2.0 * noisy[:, 0], two, many, (X, noisy[:, 1:] + 3.0))


def _mean_squares(X: Any) -> np.ndarray:
    return (X.power(2) if sp.issparse(X) else np.square(X)).mean(axis=0)


def pairs(seed: int, numbers: range, each: int) -> Iterator[tuple[Case, Table]]:
    """Yield estimators with the tables on which they are fitted, ``each`` of them for a table."""
    for number in numbers:
        rng, one = np.random.default_rng([seed, number, 1]), table(seed, number)
        fitting = [case for case in CASES if not sp.issparse(one.X) or case.name not in DENSE_ONLY]
        classes = [len(np.unique(labels)) > 1 and np.bincount(labels).min() > 5 for labels in (one.two, one.many)]
        usable = dict(zip(("two", "many"), classes, strict=True))
        fitting = [case for case in fitting if usable.get(case.task, True)]
        for k in sorted(rng.permutation(len(fitting))[:each]):
            yield fitting[k], one


# The report -----------------------------------------------------------------------------------------------------------------


def report(cells: list[Cell], worst: int) -> int:
    """Print the worst cells; return how many models of ours failed or miss their tolerance."""
    known = [cell for cell in cells if cell.ours > 0.0 and cell.theirs > 0.0]
    slower = sum(cell.ratio > 1.0 for cell in known)
    mean = geometric_mean(cell.ratio for cell in known)
    print(f"{len(known)} cells, geometric mean of our time over scikit-learn's {mean:.2f}, slower in {slower}")
    for cell in sorted(known, key=lambda each: -each.ratio)[:worst]:
        print(f"  {cell}")
    missed = [cell for cell in cells if cell.missed]
    print(f"models of ours that fail or miss their tolerance: {len(missed)}")
    for cell in missed:
        print(f"  {cell}")
    return len(missed)


def main() -> int:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the tables")
    parser.add_argument("--tables", type=int, default=40, help="number of tables")
    parser.add_argument("--first", type=int, default=0, help="number of the first table")
    parser.add_argument("--each", type=int, default=8, help="estimators per table")
    parser.add_argument("--cap", type=float, default=10.0, help="limit of a fit in seconds")
    parser.add_argument("--worst", type=int, default=25, help="number of cells that are printed")
    asked = parser.parse_args()
    prepare()
    effort, cells = Effort(3, 0.1, time.process_time), []
    numbers = range(asked.first, asked.first + asked.tables)
    for cell in measure_all(list(pairs(asked.seed, numbers, asked.each)), effort, asked.cap):
        cells.append(cell)
        print(cell, file=sys.stderr, flush=True)
    return 1 if report(cells, asked.worst) else 0


if __name__ == "__main__":
    sys.exit(main())
