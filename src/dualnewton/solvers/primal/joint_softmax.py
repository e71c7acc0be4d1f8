"""The Hessian of softmax with all that joins its classes, for Newton's method.

The curvature of row i is c_i Q_i ⊗ ã_i ã_iᵀ with Q = diag(p) − ppᵀ = Σ_{k<l} p_k p_l (e_k − e_l)(e_k − e_l)ᵀ: one sum of outer
products for each two classes, of weights that are not negative, makes the whole matrix, and nothing cancels.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from dualnewton.matrix import Data
from dualnewton.planning.costs import CALL, FACTOR, MARGIN, MULTIPLY, Costs
from dualnewton.solvers.primal.curvature import Cholesky, Curvature
from dualnewton.solvers.primal.incremental_gram import active_rows
from dualnewton.solvers.primal.sketching import EXACT, LARGE, bears_noise

NEGLIGIBLE = 1e-3
"""Of the mean weight of a pair: rows below it have no more than this part of the pair's curvature together. Far from both
classes are most rows, in the end."""


IN_USE = 0.4
"""The part of its rows that a pair has, over all steps."""


def joined(
    data: Data,
    weights: np.ndarray,
    classes: int,
    *,
    intercept: bool,
    single: bool = False,
    negligible: float = 0.0,
) -> np.ndarray:
    """Return the curvature for the weights of each two classes, a row each, as an array of shape (K, m, K, m).

    Rows whose weight is no more than ``negligible`` times the mean of their pair are left out.
    """
    m = data.d + intercept
    H = np.zeros((classes, m, classes, m))
    for (k, other), own in zip(combinations(range(classes), 2), weights, strict=True):
        rows = active_rows(own > negligible * own.mean())
        S = data.weighted_gram(own[rows], rows, intercept=intercept, single=single)
        H[k, :, k] += S
        H[other, :, other] += S
        H[k, :, other] = H[other, :, k] = -S
    return H


class JointHessian:
    """The curvature of all rows in all classes, K(d + 1) features square.

    Parameters
    ----------
    data : Data
        The data.
    ridge : array of shape (d,) or (d + 1,)
        The penalties of a class; with one more where it has an intercept.
    classes : int
        K.
    """

    passes_made = 0

    def __init__(self, data: Data, ridge: np.ndarray, classes: int) -> None:
        self.data, self.ridge, self.classes = data, ridge, classes
        self.intercept, self.rows_read = ridge.size > data.d, data.n

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator, enough: float = 0.0) -> Curvature:  # noqa: ARG002
        """Return the curvature for the weights of each two classes, of shape (K(K − 1)/2, n)."""
        K, m, weights = self.classes, self.ridge.size, np.atleast_2d(weights)
        # No class has more curvature than all pairs together.
        single = bears_noise(self.data, np.tile(self.ridge, K), weights.sum(axis=0), self.data.n, EXACT)
        H = joined(self.data, weights, K, intercept=self.intercept, single=single, negligible=NEGLIGIBLE)
        if self.intercept:
            # To add a number to all intercepts changes nothing. No gradient goes there, and with this no step does.
            H[:, -1, :, -1] += H[:, -1, :, -1].trace() / K**2 or 1.0
        return Cholesky(H.reshape(K * m, K * m), np.tile(self.ridge, K), exact=True)


def has_room(d: int, classes: int) -> bool:
    """Whether a matrix of all features of all classes can be had."""
    return (d + 1) * classes <= LARGE


def step_cost(costs: Costs, classes: int) -> float:
    """Predict the cost of a step of Newton's method: a pass, the matrix and its factor."""
    pairs, size = classes * (classes - 1) // 2, classes * (costs.d + 1)
    sums = pairs * (CALL / 3.0 + costs.outer(IN_USE * costs.n, IN_USE * costs.pairs)[0])
    return pass_cost(costs, classes) + sums + size**3 / 6.0 / FACTOR


def pass_cost(costs: Costs, classes: int) -> float:
    """Predict the cost of a pass with so many columns of margins: dense rows are read once, sparse ones by each column."""
    one = costs.data_pass - CALL
    products = classes * one if costs.by_entry else max(one, 2.0 * classes * costs.n * costs.d / MULTIPLY)
    return CALL + products + costs.n * classes * MARGIN
