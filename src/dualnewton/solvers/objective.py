"""A problem as a primal method sees it: a function of one vector x, whose losses depend on columns of margins.

    n P(x) = Σ_i c_i φ_i(z_i) + ½ Σ_j ridge_j x_j²,        z_ik = a_iᵀw_k + b_k,      x = (w_1, b_1, …, w_K, b_K)

K = 1 but for softmax; the intercepts b are there where the problem has them, and have no ridge.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dualnewton._softmax import chances
from dualnewton.multinomial import MultinomialProblem
from dualnewton.problem import Problem
from dualnewton.solvers.joint import pair_weights
from dualnewton.solvers.runner import PrimalPoint


class Objective(ABC):
    """The parts that do not depend on the kind of the problem.

    Attributes
    ----------
    columns : int
        K.
    column_ridge : array of shape (d,) or (d + 1,)
        λn v_j for each feature, and 0 for the intercept, of each column.
    quadratic : bool
        Whether the curvature is the same everywhere.
    in_pieces : bool
        Whether that of a row is some number or none.
    joint : bool
        Whether the columns have one Hessian together.
    """

    quadratic = in_pieces = joint = False

    def __init__(self, problem: Any, columns: int, weights: np.ndarray | None) -> None:
        self.problem, self.columns = problem, columns
        ridge = problem.lam * problem.n * (np.ones(problem.d) if weights is None else weights)
        self.column_ridge = np.append(ridge, 0.0) if problem.fit_intercept else ridge
        self.ridge = np.tile(self.column_ridge, columns)

    @abstractmethod
    def losses(self, rows: slice, Z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return Σ c_i φ_i over a block of rows, and the derivatives by their margins, of the shape of Z."""

    @abstractmethod
    def curvature(self, margins: np.ndarray) -> np.ndarray:
        """c_i ∂²φ_i/∂z_ik² of all rows, of shape (n, K); or whatever one Hessian of all columns is made of, a column each."""

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (K, d) and b of shape (K,)."""
        each = x.reshape(self.columns, -1)
        b = each[:, -1].copy() if self.problem.fit_intercept else np.zeros(self.columns)
        return each[:, : self.problem.d], b

    def vector(self, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Join what :meth:`parts` took apart."""
        each = np.atleast_2d(W)
        return (
            np.concatenate([each, np.reshape(b, (-1, 1))], axis=1).ravel()
            if self.problem.fit_intercept
            else each.ravel()
        )

    def gap(self, gradient: np.ndarray) -> float:
        """n(P − D) for the α that belongs to x: Σ g_j²/(2 ridge_j), by Fenchel and Young, where the intercept is at its best."""
        g = gradient.reshape(self.columns, -1)[:, : self.problem.d]
        return float((np.square(g) / (2.0 * self.column_ridge[: self.problem.d])).sum())

    @abstractmethod
    def point(self, x: np.ndarray) -> PrimalPoint:
        """Return x as the judge takes it."""


class OneColumn(Objective):
    """A :class:`Problem` with the penalty (λ/2) Σ v_j w_j²."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, 1, problem.regularizer.weights)  # type: ignore[attr-defined]
        self.quadratic = problem.loss.quadratic
        self.in_pieces = not self.quadratic and problem.loss.in_pieces(problem.y[:2])

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[float, np.ndarray]:
        value, slopes = self.problem.row_losses(rows, Z[:, 0])
        return value, slopes[:, None]

    def curvature(self, margins: np.ndarray) -> np.ndarray:
        return self.problem.row_curvature(margins[:, 0])[:, None]

    def point(self, x: np.ndarray) -> PrimalPoint:
        (w,), (b,) = self.parts(x)
        return PrimalPoint(w.copy(), float(b))


class Softmax(Objective):
    """A :class:`MultinomialProblem`.

    The curvature of its classes is taken class by class: diag(p) − ppᵀ ⪯ 2 diag(p(1 − p)), so that what is left out changes
    it by no more than a factor of two, which the corrections by gradients make up for.
    """

    def __init__(self, problem: MultinomialProblem) -> None:
        super().__init__(problem, problem.n_classes, None)

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[float, np.ndarray]:
        offset = self.problem.offset
        return self.problem.row_losses(rows, Z if offset is None else Z + offset[rows])

    def curvature(self, margins: np.ndarray) -> np.ndarray:
        offset = self.problem.offset
        return self.problem.row_curvature(slice(None), margins if offset is None else margins + offset)

    def point(self, x: np.ndarray) -> PrimalPoint:
        W, b = self.parts(x)
        return PrimalPoint(W.copy(), b)


class JointSoftmax(Softmax):
    """A :class:`MultinomialProblem` whose curvature is that of all classes together, by each two of them."""

    joint = True

    def curvature(self, margins: np.ndarray) -> np.ndarray:
        offset = self.problem.offset
        return pair_weights(chances(margins if offset is None else margins + offset)[0], self.problem.c)


def objective_of(problem: Problem | MultinomialProblem, *, newton: bool = False) -> Objective:
    """Return a problem as a primal method sees it."""
    if not isinstance(problem, MultinomialProblem):
        return OneColumn(problem)
    return JointSoftmax(problem) if newton else Softmax(problem)
