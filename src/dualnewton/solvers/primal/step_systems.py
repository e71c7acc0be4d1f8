"""The linear systems of interior-point steps: by dense rows, by passes over data of any kind, or by the products of few rows.

A step solves (D(ridge) + Ãᵀ D(weights) Ã) Δx = −(imbalance + Ãᵀ mass), in variables x that determine the margins.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

from dualnewton.matrix import Data, linear
from dualnewton.solvers.primal.curvature import Cholesky, Woodbury

LIFTS = (1e-14, 1e-11, 1e-8)
"""Fractions of its diagonal that are added to a matrix, in turn, if it has no Cholesky factor."""

SHORT, LONG = 18, 32
"""Length of rows from which the symmetry of Ãᵀ D(weights) Ã saves more time than roots of the weights and SciPy's call of BLAS
take; and that from which they stay in their order, since copying them into that of columns takes longer than it saves."""

CANCELLED = 1e3
"""With more features than examples, the ridge of a feature is small if Σ_i w_i a_ij² exceeds it by this factor, by which
Woodbury's formula would magnify rounding errors."""

Check = Callable[[], None] | None
"""Called between large pieces of work; it may raise an exception to stop them."""


class System(ABC):
    """The linear part of a step for x = (w, b): subclasses have the products with Ã, and the factor of a matrix."""

    restricts = False  # whether a step may leave examples out

    def __init__(
        self,
        d: int,  # number of features
        ridge: np.ndarray,  # (d,) or (d + 1,) λn v_j, and 0 for an intercept
        # Units of x, if the unit of a margin is one, for entries without a ridge; 1 by default.
        units: np.ndarray | None = None,
    ) -> None:
        self.ridge, self.d, self.loose = ridge, d, None
        if not ridge.all():
            self.loose = np.where(ridge > 0.0, 0.0, 1.0 if units is None else units)
        self.halves = 0.5 / ridge if self.loose is None else np.divide(0.5, ridge, out=0.0 * ridge, where=ridge > 0.0)

    @abstractmethod
    def margins(self, x: np.ndarray) -> np.ndarray:
        """ãᵀx of each example."""

    @abstractmethod
    def sums(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i ã_i."""

    @abstractmethod
    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check, single: bool) -> bool:
        """Factorise D(ridge) + Ãᵀ D(weights) Ã, from products in float32 if ``single``; return whether that is possible."""

    @abstractmethod
    def solved(self, right: np.ndarray) -> np.ndarray:
        """Solve with the factor."""

    def factorise(self, weights: np.ndarray, *, check: Check = None, single: bool = False) -> bool:
        """Factorise the matrix of a step; return whether that is possible."""
        return self.curve(weights, self.ridge, check=check, single=single)

    def imbalance(self, x: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """ridge ∘ x + Σ_i mass_i ã_i."""
        return self.ridge * x + self.sums(mass)

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Δx and ÃΔx that remove the imbalance plus Σ_i mass_i ã_i."""
        dx = self.solved(-(imbalance + self.sums(mass)))
        return dx, self.margins(dx)

    def gap(self, imbalance: np.ndarray, unit: float) -> float:
        """What an imbalance adds to n(P − D), if the unit of a margin is ``unit``.

        It is the distance of w from w(α) for entries with a ridge, and the unit of x_j times the imbalance for the others.
        """
        own = float(self.halves.dot(imbalance * imbalance))  # methods: operators take twice as long for few features
        return own if self.loose is None else own + unit * float(self.loose.dot(np.abs(imbalance)))

    def penalty(self, x: np.ndarray) -> float:
        """½ Σ ridge_j x_j²."""
        return 0.5 * float(self.ridge.dot(x * x))

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float, *, single: bool) -> np.ndarray | None:
        """argmin_x Σ_i c_i (ã_iᵀx − target_i)²/(2 width) + ½ Σ ridge_j x_j²."""
        return self.solved(self.sums(c * targets / width)) if self.factorise(c / width, single=single) else None

    def model(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return w and b."""
        return x[: self.d], float(x[self.d]) if len(x) > self.d else 0.0


class Rows(System):
    """Ã as one dense matrix."""

    restricts = True

    def __init__(
        self,
        # (d, n) or (d + 1, n) Ãᵀ: for short rows an array in C order, so that scaling the examples is fast; for long ones the
        # transpose of rows in C order.
        columns: np.ndarray,
        d: int,
        ridge: np.ndarray,
        units: np.ndarray | None = None,
    ) -> None:
        super().__init__(d, ridge, units)
        self.columns, self.symmetric, self.by_rows = columns, len(columns) >= SHORT, not columns.flags.c_contiguous
        self.scaled, self.H = np.empty_like(columns), np.empty((len(ridge), len(ridge)))
        self.diagonal = self.H.reshape(-1)[:: len(ridge) + 1]
        self.plain: np.ndarray | None = None

    @classmethod
    def of(cls, rows: np.ndarray, d: int, ridge: np.ndarray, units: np.ndarray | None = None) -> Rows:
        """Return the matrix of Ã in C order."""
        return cls(rows.T if rows.shape[1] >= LONG else np.ascontiguousarray(rows.T), d, ridge, units)

    def margins(self, x: np.ndarray) -> np.ndarray:
        return x.dot(self.columns)

    def sums(self, mass: np.ndarray) -> np.ndarray:
        return self.columns.dot(mass)

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        right = self.columns.dot(mass)
        right += imbalance
        dx = dpotrs(self.factor, np.negative(right, out=right), lower=1, overwrite_b=1)[0]
        return dx, dx.dot(self.columns)

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float, *, single: bool) -> np.ndarray | None:  # noqa: ARG002
        if self.plain is None:  # classes share it
            self._weigh(c)
            self.plain = self.H.copy()
        self.H[...] = self.plain
        return self.solved(self.sums(c * targets)) if self._factorise(width * self.ridge) else None

    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check = None, single: bool = False) -> bool:  # noqa: ARG002
        self._weigh(weights)
        return self._factorise(ridge)

    def _factorise(self, ridge: np.ndarray) -> bool:
        self.diagonal += ridge
        self.factor = cholesky(self.H.T)
        return self.factor is not None

    def _weigh(self, weights: np.ndarray) -> None:
        """Compute the upper triangle of H = Ãᵀ D(weights) Ã, at least."""
        if self.symmetric or self.by_rows:
            np.multiply(self.columns, np.sqrt(weights), out=self.scaled)
            # In Fortran order, which is not copied.
            scaled, trans = (self.scaled, 0) if self.by_rows else (self.scaled.T, 1)
            dsyrk(1.0, scaled, c=self.H.T, trans=trans, overwrite_c=1, lower=1)
        else:
            np.multiply(self.columns, weights, out=self.scaled)
            self.scaled.dot(self.columns.T, out=self.H)

    def solved(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(dpotrs(self.factor, right, lower=1, overwrite_b=1)[0])

    def restricted(self, kept: np.ndarray) -> Rows:
        """Return the matrix of some examples."""
        columns = self.columns.T.take(kept, axis=0).T if self.by_rows else self.columns.take(kept, axis=1)
        return Rows(columns, self.d, self.ridge)


class Passes(System):
    """Ã by passes over the data, and a d×d matrix."""

    def __init__(self, data: Data, ridge: np.ndarray, units: np.ndarray | None = None) -> None:
        super().__init__(data.d, ridge, units)
        self.data, self.intercept = data, len(ridge) > data.d
        self.restricts = data.capabilities.whole and data.capabilities.subsets

    def margins(self, x: np.ndarray) -> np.ndarray:
        return self.data.times(x[:-1]) + x[-1] if self.intercept else self.data.times(x)

    def sums(self, mass: np.ndarray) -> np.ndarray:
        sums = self.data.transposed_times(mass)
        return np.append(sums, mass.sum()) if self.intercept else sums

    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check, single: bool) -> bool:
        H = self.data.weighted_gram(weights, intercept=self.intercept, single=single)
        if check is not None:
            check()
        self.factor: Any = ScaledCholesky(H, ridge, check)
        return True

    def solved(self, right: np.ndarray) -> np.ndarray:
        found: np.ndarray = self.factor.solve(right)
        return found

    def restricted(self, kept: np.ndarray) -> Passes:
        """Return the system of some examples."""
        return Passes(self.data.subset(kept), self.ridge)


class WidePasses(Passes):
    """Ã by passes over the data, and an n×n matrix, for fewer examples than features."""

    def __init__(
        self,
        data: Data,
        ridge: np.ndarray,
        units: np.ndarray | None = None,
        *,
        # (n, n) A V⁻¹ Aᵀ for the V to which every ridge is proportional; None if the ridge changes between steps.
        gram: np.ndarray | None,
        penalty: np.ndarray | None,  # (d,) V
        # Most features with a small ridge that have a matrix of their own. A vertex has no more of them than examples,
        # but at an interior point all of several equal features are among them.
        most_small: int,
    ) -> None:
        super().__init__(data, ridge, units)
        self.gram, self.v, self.most_small, self.rows = gram, penalty, most_small, data.rows(slice(None))
        self.restricts = False  # an n×n matrix

    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check, single: bool) -> bool:  # noqa: ARG002
        own = ridge[: self.d]
        self.factor = self._factor(weights, ridge, own, check)
        return True

    def _factor(self, weights: np.ndarray, ridge: np.ndarray, own: np.ndarray, check: Check) -> Any:
        if self.gram is not None and self.v is not None:
            return Woodbury(self.rows, weights, own, self.gram * (self.v[0] / own[0]), intercept=self.intercept)
        mass = self.data.column_norms(weights)
        small = np.flatnonzero(mass > CANCELLED * own)
        if not small.size:
            return Woodbury(self.rows, weights, own, intercept=self.intercept)
        if small.size > self.most_small:
            small = np.sort(small[np.argsort(own[small] / mass[small], kind="stable")[: self.most_small]])
        return Split(self.rows, weights, ridge, small, check)


class Coordinates(System):
    """Ã with a row r_j e_j appended for each feature: its curvature is added to the ridge, and the row is never formed."""

    def __init__(
        self,
        system: System,
        sizes: np.ndarray,  # (d,) r
    ) -> None:
        super().__init__(system.d, system.ridge, system.loose)
        self.system, self.sizes = system, sizes

    def margins(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([self.system.margins(x), self.sizes * x[: self.d]])

    def sums(self, mass: np.ndarray) -> np.ndarray:
        sums = self.system.sums(mass[: -self.d])
        sums[: self.d] += self.sizes * mass[-self.d :]
        return sums

    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check, single: bool) -> bool:
        own = ridge.copy()
        own[: self.d] += np.square(self.sizes) * weights[-self.d :]
        return self.system.curve(weights[: -self.d], own, check=check, single=single)

    def solved(self, right: np.ndarray) -> np.ndarray:
        return self.system.solved(right)


class Gram:
    """The linear part of a step for fewer examples than features: w = V⁻¹Aᵀβ, x = β, or (β, b) with Σ β_i = 0.

    With K = A V⁻¹ Aᵀ the margins are Kβ + b, and λnβ + mass = 0 is the condition of balance, for which a step solves

        (λn D(weights)⁻¹ + K) Δβ = −(λnβ + mass)/weights − Δb.
    """

    restricts = False  # x has an entry for each example

    def __init__(
        self,
        rows: np.ndarray,  # (n, d) A
        K: np.ndarray,  # (n, n) A V⁻¹ Aᵀ
        v: np.ndarray | None,  # (d,) diagonal of V; ones by default
        lamn: float,  # λn
        *,
        intercept: bool,  # whether b is free
    ) -> None:
        self.rows, self.K, self.v, self.lamn, self.n, self.intercept = rows, K, v, lamn, len(rows), intercept

    def margins(self, x: np.ndarray) -> np.ndarray:
        """Kβ + b."""
        return self.K @ x[: self.n] + (x[self.n] if self.intercept else 0.0)

    def imbalance(self, x: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """λnβ + mass, and with an intercept −Σ β_i."""
        left = self.lamn * x[: self.n] + mass
        return np.append(left, -x[: self.n].sum()) if self.intercept else left

    def gap(self, imbalance: np.ndarray, unit: float) -> float:
        """What an imbalance adds to n(P − D), if the unit of a margin is ``unit``."""
        own = imbalance[: self.n]
        free = own.sum() + self.lamn * imbalance[self.n] if self.intercept else 0.0  # Σ mass_i
        return 0.5 * float(own @ (self.K @ own)) / self.lamn + unit * abs(float(free))

    def penalty(self, x: np.ndarray) -> float:
        """λn/2 times the penalty of w."""
        return 0.5 * self.lamn * float(x[: self.n] @ (self.K @ x[: self.n]))

    def factorise(self, weights: np.ndarray, *, check: Check = None, single: bool = False) -> bool:  # noqa: ARG002
        """Factorise the matrix of a step; return whether that is possible."""
        self.roots = np.sqrt(weights)
        scaled = self.K * self.roots
        scaled *= self.roots[:, None]
        scaled.ravel()[:: self.n + 1] += self.lamn
        self.factor = cholesky(scaled.T)
        if self.factor is not None and self.intercept:
            self.along = self._solved(self.roots)
        return self.factor is not None

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float, *, single: bool) -> np.ndarray | None:  # noqa: ARG002
        """Return the least-squares fit to the targets: see :meth:`Rows.fitted`."""
        zeros = np.zeros(self.n + self.intercept)
        return self.direction(zeros, -c * targets / width)[0] if self.factorise(c / width) else None

    def _solved(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(dpotrs(self.factor, right, lower=1)[0])

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Δx and the change of the margins that remove the imbalance plus the mass."""
        step = self._solved((imbalance[: self.n] + mass) / self.roots)
        if not self.intercept:
            beta = -self.roots * step
            return beta, self.K @ beta
        b = -(imbalance[self.n] + float(self.roots @ step)) / float(self.roots @ self.along)
        beta = -self.roots * (step + b * self.along)
        return np.append(beta, b), self.K @ beta + b

    def model(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return w and b."""
        w = x[: self.n] @ self.rows
        return w if self.v is None else w / self.v, float(x[self.n]) if self.intercept else 0.0


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
    """

    def __init__(
        self,
        rows: linear.Matrix,  # (n, d) A
        weights: np.ndarray,  # (n,) diagonal of W
        ridge: np.ndarray,  # (d,) or (d + 1,) diagonal of R, and 0 for an intercept
        small: np.ndarray,  # F, without the intercept
        check: Check,  # called between large pieces of work; may raise an exception
    ) -> None:
        d, roots = rows.shape[1], np.sqrt(weights)
        others = np.ones(d, dtype=bool)
        others[small] = False
        self.rows, self.roots, self.d = rows, roots, d
        self.small = np.append(small, np.arange(d, len(ridge)))
        self.inverse = np.divide(1.0, ridge[:d], out=np.zeros(d), where=others)
        gram = linear.gram(linear.scale_columns(rows, np.sqrt(self.inverse)))
        if check is not None:
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


def cholesky(H: np.ndarray) -> np.ndarray | None:
    """Return the lower Cholesky factor of H, in Fortran order; None if rounding has made it indefinite."""
    factor, failed = dpotrf(H, lower=1, clean=0)
    for lift in LIFTS:
        if not failed:
            break
        diagonal = H.ravel("K")[:: len(H) + 1]
        diagonal *= 1.0 + lift
        diagonal[diagonal == 0.0] = 1.0  # a feature without entries or penalty
        factor, failed = dpotrf(H, lower=1, clean=0)
    return None if failed else factor
