"""A problem in the form of the primal methods: a function of one vector x, whose losses depend on columns of margins.

    n P(x) = Σ_i c_i φ_i(z_i) + ½ Σ_j ridge_j x_j²,        z_ik = a_iᵀw_k + b_k,      x = (w_1, b_1, …, w_K, b_K)

The intercepts b exist if the problem has them, and have no ridge.
"""

from __future__ import annotations

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.losses import Curvature
from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import is_elsewhere, on_host
from dualnewton.solvers.protocol import PrimalPoint


class Objective:
    """A problem with the penalty (λ/2) Σ_k Σ_j v_j w_kj².

    The curvature of several columns is that of each column alone, or that of all jointly. For softmax diag(p) − ppᵀ ⪯
    2 diag(p(1 − p)): without the coupling of the columns it changes by at most a factor of two, which L-BFGS corrects.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        joint: bool = False,  # whether the curvature of several columns is that of all jointly
    ) -> None:
        self.problem, self.columns = problem, problem.columns
        self.quadratic = problem.loss.curvature is Curvature.CONSTANT
        self.in_pieces = problem.loss.curvature is Curvature.PIECEWISE  # that of a row is one number or zero
        self.joint = joint and self.columns > 1
        weights = problem.regularizer.form.weights
        strength = problem.lam * problem.n
        ridge = np.broadcast_to(strength, problem.d) if weights is None else strength * weights
        # (d,) or (d + 1,) λn v_j for each feature, and 0 for the intercept, of each column.
        self.column_ridge = np.append(ridge, 0.0) if problem.fit_intercept else ridge
        whole = self.column_ridge if self.columns == 1 else np.tile(self.column_ridge, self.columns)
        self.ridge = problem.data.feature_array(whole)  # of all columns, on the device of x
        if not is_elsewhere(self.ridge):
            self.column_ridge = np.ascontiguousarray(self.column_ridge)

    def curvature(self, margins: np.ndarray) -> np.ndarray:
        """c_i ∂²φ_i/∂z_ik² of all rows, of shape (n, K); or the couplings of each pair of columns, for a joint Hessian."""
        if self.joint:
            return self.problem.row_couplings(margins)
        return self.problem.row_curvature(self.as_margins(margins)).reshape(margins.shape)

    def as_margins(self, Z: np.ndarray) -> np.ndarray:
        """Return n × K margins in the shape of the problem: a vector for K = 1."""
        return Z[:, 0] if self.columns == 1 else Z

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (K, d) and b of shape (K,)."""
        each = x.reshape(self.columns, -1)
        b = each[:, -1].copy() if self.problem.fit_intercept else np.zeros(self.columns)
        return each[:, : self.problem.d], b

    def vector(self, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Undo :meth:`parts`, on the device on which the data keep vectors over features."""
        each = np.atleast_2d(W)
        if self.problem.fit_intercept:
            each = np.concatenate([each, np.asarray(np.reshape(b, (-1, 1)), like=each)], axis=1)
        return self.problem.data.feature_array(each.ravel())

    def gap(self, gradient: np.ndarray) -> float:
        """n(P − D) for the α that belongs to x: Σ g_j²/(2 ridge_j), by Fenchel and Young, where the intercept is at its best."""
        return float((self.gap_weights * gradient).dot(gradient))

    @cached_property
    def gap_weights(self) -> np.ndarray:
        """1/(2 ridge_j), and zero for the intercepts, on the device of x: n(P − D) is the sum of these times g_j²."""
        with np.errstate(divide="ignore"):
            each = (0.5 / self.ridge).reshape(self.columns, -1)
        each[:, self.problem.d :] = 0.0
        return each.reshape(-1)

    def point(self, x: np.ndarray) -> PrimalPoint:
        """Return x as a point that the problem certifies."""
        if self.problem.places_models and is_elsewhere(x):
            (w,), (b,) = self.parts(x)
            return PrimalPoint(w, float(b))
        W, b = self.parts(on_host(x))
        return PrimalPoint(W[0].copy(), float(b[0])) if self.columns == 1 else PrimalPoint(W.copy(), b)
