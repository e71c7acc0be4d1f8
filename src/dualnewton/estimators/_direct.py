"""Ridge regression with fewer examples than features, solved at once for all outputs and penalties by one n×n decomposition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem

EFFORT = 1e9
"""Multiplications that take less time than a compiler would: up to so many, exact steps go before iterations."""

WIDTH = 4096
"""Columns that are widened at a time."""


def is_cheap(X: linear.Matrix) -> bool:
    """Whether a matrix of the size of the examples or of the features, whichever are fewer, is soon computed."""
    n, d = X.shape
    return n * d * min(n, d) <= EFFORT


def exact_duals(problems: Sequence[Problem]) -> list[np.ndarray]:
    """Return the optimal α of least-squares problems that differ in labels and λ only; the judge has the last word.

    With s = √c, K = D(s) X Xᵀ D(s), and, for an intercept, P = I − ssᵀ/sᵀs, the optimum is w = Xᵀ D(s) v for
    (PKP + λnI) v = P D(s) y, and α = λn v/s.
    """
    from scipy.linalg import eigh

    first = problems[0]
    n, s = first.n, np.sqrt(first.c)
    K = s[:, None] * _gram(first.X) * s
    unit = s / np.linalg.norm(s) if first.fit_intercept else np.zeros(n)

    def projected(columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(unit, unit @ columns)

    values, U = eigh(projected(projected(K).T))
    values = np.maximum(values, 0.0)
    right = U.T @ projected(s[:, None] * np.stack([problem.y for problem in problems], axis=1))
    scales = np.array([problem.lam * n for problem in problems])
    V = projected(U @ (right / (values[:, None] + scales)))
    # A row of weight zero does not take part: any α will do for it.
    alphas = scales * np.divide(V, s[:, None], out=np.zeros_like(V), where=s[:, None] > 0.0)
    return list(np.ascontiguousarray(alphas.T))


def _gram(X: linear.Matrix) -> np.ndarray:
    """X Xᵀ in double precision, without a second copy of dense data that are wide and single."""
    if linear.is_sparse(X) or X.dtype == np.float64:
        return linear.gram(linear.take_rows(X, slice(None)))
    columns = range(0, X.shape[1], WIDTH)
    return sum((linear.gram(X[:, j : j + WIDTH].astype(np.float64)) for j in columns), start=np.zeros(2 * X.shape[:1]))
