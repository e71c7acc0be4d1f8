"""The linear system of an interior-point step, for a convex piecewise linear loss and the penalty (λ/2) Σ v_j w_j².

With ã_i = (a_i, 1), x = (w, b), ridge_j = λn v_j (none for b) and one slope p_im for each kink m of example i, a step solves

    ridge ∘ Δx + Σ_i c_i ã_i Σ_m Δp_im = −r,        Δp_im / D_im = ã_iᵀΔx + g_im

for given D > 0. Elimination of Δp leaves the normal equations, a weighted Gram matrix plus the ridge:

    (D(ridge) + Ãᵀ W Ã) Δx = −r − Ãᵀ (c ∘ Σ_m D_m g_m),        W_i = c_i Σ_m D_im.

Near the optimum D grows without bound for examples on a kink and vanishes for all others, so that the matrix is badly
conditioned: with λn = 10⁻³ the factor alone loses all digits at a relative gap of about 10⁻⁶. Refinement restores them: the
residuals of the two equations above, in which nothing large cancels, are solved for with the same factor and added to Δx and to
Δp separately.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from dualnewton.matrix import Data, linear
from dualnewton.solvers.primal.curvature import Cholesky, Woodbury, gram_of

MOST_REFINEMENTS = 6
"""Limit on further solves with one factor."""

FEW_REFINEMENTS = 2
"""Number of refinements that cost less than a matrix in float64 instead of float32."""

GAIN = 0.25
"""A refinement that does not reduce the residual to this fraction is the last one."""

CANCELLED = 1e3
"""With more features than examples, the ridge of a feature is small if Σ_i w_i a_ij² exceeds it by the factor ``CANCELLED``: so
much less accurate would Woodbury's formula be."""

Check = Callable[[], None]
"""Called between large pieces of work; it may raise an exception to stop them."""


class Operator(Protocol):
    """Products with Ã, and the curvature of a step."""

    def times(self, x: np.ndarray) -> np.ndarray:
        """Ã x."""

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """Ãᵀ v."""

    def curvature(self, weights: np.ndarray, ridge: np.ndarray, check: Check, *, single: bool = False) -> Solver:
        """D(ridge) + Ãᵀ D(weights) Ã, ready to solve with; from products in float32 if ``single``."""

    def close(self) -> None:
        """Release resources."""


class Solver(Protocol):
    """A factorised matrix."""

    def solve(self, g: np.ndarray) -> np.ndarray:
        """Return the solution for a right-hand side."""


class ScaledCholesky:
    """H + D(ridge), scaled to a unit diagonal before it is factorised: an added regularisation is then relative to each entry."""

    def __init__(self, H: np.ndarray, ridge: np.ndarray, check: Check) -> None:
        diagonal = np.einsum("ii->i", H)  # a view
        diagonal += ridge
        self.scale = 1.0 / np.sqrt(
            np.where(diagonal > 0.0, diagonal, 1.0)
        )  # zero: a feature without entries or penalty
        H *= self.scale[:, None]
        H *= self.scale
        self.factor = Cholesky(H, np.full(len(H), np.finfo(float).eps), check=check)

    def solve(self, g: np.ndarray) -> np.ndarray:
        return self.scale * self.factor.solve(self.scale * g)


class Split:
    """R + ÃᵀWÃ for fewer examples than features and a diagonal R of any scale, such as the curvature of thresholds.

    Woodbury's formula divides by all of R: where R_j is small, as for every coefficient that is not zero, most digits cancel.
    Here it is used for the other features N alone. With B = W^½Ã and K = I + B_N R_N⁻¹ B_Nᵀ, the few features F of small R_j, and
    the intercept, have the matrix

        S = R_F + B_Fᵀ K⁻¹ B_F,

    a sum of positive semidefinite matrices, in which nothing cancels; u = K⁻¹(B_F x_F + B_N R_N⁻¹g_N) and R_N x_N = g_N − B_Nᵀu.

    Parameters
    ----------
    rows : matrix of shape (n, d)
        A.
    weights : array of shape (n,)
        The diagonal of W.
    ridge : array of shape (d,) or (d + 1,)
        The diagonal of R, and 0 for an intercept.
    small : array of int
        F, without the intercept.
    check : callable
        Called between large pieces of work; may raise an exception.
    """

    def __init__(
        self, rows: linear.Matrix, weights: np.ndarray, ridge: np.ndarray, small: np.ndarray, check: Check
    ) -> None:
        d, roots = rows.shape[1], np.sqrt(weights)
        others = np.ones(d, dtype=bool)
        others[small] = False
        self.rows, self.roots, self.d = rows, roots, d
        self.small = np.append(small, np.arange(d, len(ridge)))
        self.inverse = np.divide(1.0, ridge[:d], out=np.zeros(d), where=others)
        gram = linear.gram(linear.scale_columns(rows, np.sqrt(self.inverse)))
        check()
        self.inner = Cholesky(linear.scaled_both(gram, roots), np.ones(len(roots)), check=check)
        ones = np.ones((len(roots), len(ridge) - d))
        B = roots[:, None] * np.hstack([linear.to_dense(rows[:, small]), ones])
        self.solved = self.inner.solve(B)
        self.outer = ScaledCholesky(B.T @ self.solved, ridge[self.small], check)

    def solve(self, g: np.ndarray) -> np.ndarray:
        h = self.roots * (self.rows @ (self.inverse * g[: self.d]))
        x = np.zeros_like(g)
        x[self.small] = own = self.outer.solve(g[self.small] - h @ self.solved)
        u = self.roots * (self.solved @ own + self.inner.solve(h))
        x[: self.d] += self.inverse * (g[: self.d] - self.rows.T @ u)
        return x


class Block:
    """Ã as one dense matrix, for data so small that Python calls take most of the time."""

    def __init__(self, data: Data, *, intercept: bool) -> None:
        rows = linear.to_dense(data.rows(slice(None)))
        self.rows = np.column_stack([rows, np.ones(data.n)]) if intercept else rows

    def times(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(self.rows @ x)

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        return np.asarray(v @ self.rows)

    def curvature(self, weights: np.ndarray, ridge: np.ndarray, check: Check, *, single: bool = False) -> Solver:  # noqa: ARG002
        return ScaledCholesky((self.rows.T * weights) @ self.rows, ridge, check)

    def close(self) -> None:
        """Do nothing."""


class Passes:
    """Ã by passes over the data, and a d×d matrix."""

    def __init__(self, data: Data, *, intercept: bool) -> None:
        self.data, self.intercept = data, intercept

    def times(self, x: np.ndarray) -> np.ndarray:
        if not self.intercept:
            return self.data.times(x)
        return self.data.times(x[:-1]) + x[-1]

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        sums = self.data.transposed_times(v)
        return np.append(sums, v.sum()) if self.intercept else sums

    def curvature(self, weights: np.ndarray, ridge: np.ndarray, check: Check, *, single: bool = False) -> Solver:
        H = self.data.weighted_gram(weights, intercept=self.intercept, single=single)
        check()
        return ScaledCholesky(H, ridge, check)

    def close(self) -> None:
        """Release the threads of the data."""
        self.data.close()


class WidePasses(Passes):
    """Ã by passes over the data, and an n×n matrix, for fewer examples than features.

    Parameters
    ----------
    data : Data
        The data.
    intercept : bool
        Whether a column of ones is appended.
    penalty : array of shape (d,), optional
        v, to which every ridge is proportional; None if it changes between steps.
    most_small : int
        Most features with a small ridge that have a matrix of their own. A vertex has no more of them than examples, but at an
        interior point all of several equal features are among them.
    """

    def __init__(self, data: Data, *, intercept: bool, penalty: np.ndarray | None, most_small: int) -> None:
        super().__init__(data, intercept=intercept)
        self.penalty, self.most_small = penalty, most_small

    @cached_property
    def rows(self) -> linear.Matrix:
        """All rows."""
        return self.data.rows(slice(None))

    @cached_property
    def gram(self) -> np.ndarray:
        """A V⁻¹ Aᵀ."""
        assert self.penalty is not None
        return gram_of(self.rows, self.penalty)

    def curvature(self, weights: np.ndarray, ridge: np.ndarray, check: Check, *, single: bool = False) -> Solver:  # noqa: ARG002
        own = ridge[: self.data.d]
        if self.penalty is not None:
            return Woodbury(self.rows, weights, own, self.gram * (self.penalty[0] / own[0]), intercept=self.intercept)
        mass = self.data.column_norms(weights)
        small = np.flatnonzero(mass > CANCELLED * own)
        if not small.size:
            return Woodbury(self.rows, weights, own, intercept=self.intercept)
        if small.size > self.most_small:
            small = np.sort(small[np.argsort(own[small] / mass[small], kind="stable")[: self.most_small]])
        return Split(self.rows, weights, ridge, small, check)


class WithCoordinates:
    """Ã with a row r_j e_j appended for each feature: its curvature is added to the ridge, and the row is never formed.

    Parameters
    ----------
    operator : Operator
        Products with the data.
    sizes : array of shape (d,)
        r.
    """

    def __init__(self, operator: Operator, sizes: np.ndarray) -> None:
        self.operator, self.sizes, self.d = operator, sizes, len(sizes)

    def times(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([self.operator.times(x), self.sizes * x[: self.d]])

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        sums = self.operator.transposed_times(v[: -self.d])
        sums[: self.d] += self.sizes * v[-self.d :]
        return sums

    def curvature(self, weights: np.ndarray, ridge: np.ndarray, check: Check, *, single: bool = False) -> Solver:
        own = ridge.copy()
        own[: self.d] += np.square(self.sizes) * weights[-self.d :]
        return self.operator.curvature(weights[: -self.d], own, check, single=single)

    def close(self) -> None:
        """Release the resources of the operator."""
        self.operator.close()


@dataclass(frozen=True, eq=False)
class Solution:
    """Δx, ÃΔx and Δp, and the residual of the first equation, if it was computed."""

    x: np.ndarray
    z: np.ndarray
    p: np.ndarray
    left: Any = None


class NewtonSystem:
    """The system of one step, factorised.

    Parameters
    ----------
    operator : Operator
        Ã.
    ridge : array
        λn v_j, and 0 for an intercept.
    c : array of shape (n,)
        The weights of the examples.
    D : array of shape (m, n)
        Positive, one row for each kink of the loss.
    size : Callable
        Measures a residual of the first equation: refinement ends when it is small enough.
    check : callable
        Called between large pieces of work; may raise an exception.
    single : bool
        Whether the matrix is computed in float32, which refinement corrects if it is well conditioned.
    most : float
        Limit on products, beyond which solutions are not refined.

    Attributes
    ----------
    products : int
        Products with Ã and Ãᵀ so far.
    weak : bool
        Whether a solution missed the requested accuracy, or needed many refinements.
    """

    def __init__(
        self,
        operator: Operator,
        ridge: np.ndarray,
        c: np.ndarray,
        D: np.ndarray,
        size: Callable[[np.ndarray], float],
        check: Check,
        *,
        single: bool = False,
        most: float = math.inf,
    ) -> None:
        self.operator, self.ridge, self.c, self.D, self.size, self.most = operator, ridge, c, D, size, most
        self.solver = operator.curvature(c * D.sum(axis=0), ridge, check, single=single)
        self.products, self.weak = 0, False

    def solve(self, r: np.ndarray, g: np.ndarray, enough: float) -> Solution:
        """Return Δx, ÃΔx and Δp, refined until the residual of the first equation is at most ``enough``, if possible.

        If any residual is small enough, it is not computed.
        """
        found = self._once(-r, g)
        if math.isinf(enough):
            return found
        found = self._with_residual(r, found)
        for count in range(MOST_REFINEMENTS):
            size = self.size(found.left)
            if size <= enough:
                self.weak |= count > FEW_REFINEMENTS
                return found
            if self.products >= self.most:
                return found
            more = self._once(found.left, found.z + g - found.p / self.D)
            better = self._with_residual(r, Solution(found.x + more.x, found.z + more.z, found.p + more.p))
            if not (after := self.size(better.left)) < size:
                break
            found = better
            if after > GAIN * size:
                break
        self.weak = True
        return found

    def _once(self, r: np.ndarray, g: np.ndarray) -> Solution:
        """Solve by the factor alone, for r on the right-hand side of the first equation and g on that of the second."""
        weighted = self.D * g
        x = self.solver.solve(r - self.operator.transposed_times(self.c * weighted.sum(axis=0)))
        z = self.operator.times(x)
        self.products += 2
        return Solution(x, z, self.D * z + weighted)

    def _with_residual(self, r: np.ndarray, found: Solution) -> Solution:
        self.products += 1
        sums = self.operator.transposed_times(self.c * found.p.sum(axis=0))
        return replace(found, left=-r - self.ridge * found.x - sums)
