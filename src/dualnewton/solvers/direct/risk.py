"""The regularised risk of a small problem as a function of one vector, over a dense block of rows, for Newton's method.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,        z_ik = ã_iᵀx_k,   ã_i = (a_i, 1),   x = (x_1, …, x_K),   no ridge on b

On small data a NumPy call takes longer than its arithmetic. Therefore a single column has margins of shape (n,), a product with
a vector for each sum, and the ones of the intercept beside the features, where copying the rows takes less time than the calls
that this saves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.losses import Curvature, Loss
from dualnewton.matrix import MemoryData, RowVectors, count_active, linear
from dualnewton.matrix.blocks import by_columns
from dualnewton.matrix.factors import factorised
from dualnewton.matrix.grams import coupled
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import couplings, curvature, value_and_slopes
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct.block import Block, weighted_sums
from dualnewton.solvers.primal.incremental_gram import IncrementalGram

SINGLE, NOTICED = 1e-7, 0.1
"""Error of an entry H_jk of the Hessian that is summed in float32, relative to (H_jj H_kk)^½, and the largest relative change of
the curvature of a direction by such errors; L-BFGS corrects it."""

ROUNDING, NARROW_ROUNDING = 1e-14, 1e-6
"""Relative change of the objective that counts as rounding, in float64 and in float32."""

NOISE, LARGEST = 2.5e-7, 1e15
"""Error of a product in float32, relative to the norms of its factors; and norm of these up to which, and inverse of that from
which on, such products neither overflow nor vanish."""

EVEN = 0.9
"""Least ratio of the squared mean of ‖a_i‖² to the mean of ‖a_i‖⁴ for rows that count as of equal lengths."""

DEPENDENT = 0.1
"""Assumed squared correlation of features with the curvature of the losses in :meth:`Risk.gap`."""

COPIED = 1 << 16
"""Entries of X up to which the rows are copied with a column of ones for the intercept."""


class Point(NamedTuple):
    """x with its margins (without offsets), of shape (n,) or (n, K), the gradient of n P, and n P."""

    x: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    value: float


@dataclass(frozen=True, eq=False)
class Risk:
    """n P over all rows of a block, or over a sample of them."""

    rows: Any  # (n, d) a_i, or ã_i
    vectors: RowVectors  # labels, weights and offsets
    loss: Loss  # φ
    ridge: np.ndarray  # (K m,) λn v_j for each feature and 0 for the intercept, of each column; m is d or d + 1
    halves: np.ndarray  # (K m,) 1/(2 ridge_j), and 0 for an intercept
    free: bool  # whether there is an intercept
    squares: float | None = None  # Σ ã_ij², if it is known
    block: Block | None = None  # block of sparse rows that are not made dense
    crossovers: Crossovers = USUAL
    single: bool = False  # whether sums over dense rows are computed in float32, and returned in float64

    @classmethod
    def of(cls, problem: Problem, block: Block, *, as_stored: bool = False) -> Risk:
        """Return the risk of a problem with a quadratic penalty over all rows of a block, dense or as they are stored."""
        d, free, weights = problem.d, problem.fit_intercept, problem.regularizer.form.weights
        ridge, halves = np.zeros(d + free), np.zeros(d + free)
        ridge[:d] = problem.lam * problem.n if weights is None else problem.lam * problem.n * weights
        halves[:d] = 0.5 / ridge[:d]
        if problem.columns > 1:
            ridge, halves = np.tile(ridge, problem.columns), np.tile(halves, problem.columns)
        with_ones = free and problem.n * d <= COPIED
        rows = block.stored if as_stored else block.extended if with_ones else block.rows
        squares = problem.data.norm**2 + with_ones * problem.n  # the certificate needs the norm as well
        own = block if linear.is_sparse(rows) else None
        return cls(rows, problem.row_vectors, problem.loss, ridge, halves, free, squares, own, block.crossovers)

    def narrowed(self) -> Risk:
        """Return the same risk whose products and losses are computed in float32."""
        vectors = RowVectors(self.vectors.y, *(None if v is None else v.astype(np.float32) for v in self.vectors[1:]))
        return Risk(self.rows.astype(np.float32), vectors, self.loss, self.ridge, self.halves, self.free)

    def with_narrow_rows(self) -> Risk:
        """Return the same risk of one column and dense rows, whose products with these are computed in float32.

        Losses, sums and points stay in float64.
        """
        return replace(self, rows=self.narrow)

    def narrow_noise(self, slopes: np.ndarray) -> float:
        """Estimate the gap that rounding errors of products with rows in float32 cause, given the slopes of the losses.

        Those of Σ slopes_i ã_i are about NOISE ‖slopes‖ (Σ_i ã_ij²)^½. Where they are small, those of the margins matter less.
        """
        found, squares = float(slopes @ slopes), self.squares or 0.0
        if not all(LARGEST**-2 <= each <= LARGEST**2 for each in (squares, found)):
            return math.inf
        return NOISE**2 * found * squares * float(np.maximum.reduce(self.halves))

    def part(self, chosen: np.ndarray) -> Risk:
        """Return the risk of some of the rows, with the same λ."""
        share = len(chosen) / self.n
        block = None if self.block is None else self.block.part(chosen)
        rows = self.rows.take(chosen, axis=0) if block is None else linear.as_float64(block.stored)
        ridge, halves = share * self.ridge, self.halves / share
        vectors = self.vectors.part(chosen)
        return Risk(rows, vectors, self.loss, ridge, halves, self.free, block=block, crossovers=self.crossovers)

    def is_even(self) -> bool:
        """Whether the rows are about equally long."""
        squares = linear.squared_norms(self.rows)
        return float(squares.sum()) ** 2 >= EVEN * self.n * float(squares @ squares)

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.rows.shape[0])

    @cached_property
    def transposed(self) -> Any:
        """Xᵀ, a view."""
        return self.rows.T if type(self.rows) is np.ndarray else linear.transposed(self.rows)

    @cached_property
    def sums_of_rows(self) -> Callable[[np.ndarray], np.ndarray]:
        """The function u ↦ Xᵀu of sparse rows for few nonzero u_i."""
        return linear.sums_of_rows(self.rows)

    @cached_property
    def flat_share(self) -> float:
        """Largest share of nonzero factors for which sums over sparse rows leave out the others: those of flat pieces."""
        if self.block is None or self.loss.curvature is not Curvature.PIECEWISE:
            return 0.0
        return self.block.crossovers.sloping_share

    def _curvature(self, margins: np.ndarray) -> np.ndarray:
        """Return c_i φ″_i at margins; those of the last ones are kept. Where all are one number, that of one row suffices, unless
        the rows are summed with these weights.
        """
        summed = self.border or self.block is not None
        if self.loss.curvature is Curvature.CONSTANT and self.vectors.c is None and not summed:
            first: np.ndarray = self.loss.second_derivative(margins[:1], self.vectors.y[:1])
            return np.broadcast_to(first, margins.shape)
        if self._last.get("margins") is not margins:
            self._last.update(margins=margins, curvature=curvature(self.loss, margins, self.vectors))
        return self._last["curvature"]

    @cached_property
    def _last(self) -> dict[str, np.ndarray]:
        return {}

    @cached_property
    def _sums(self) -> dict[type, IncrementalGram]:
        return {}

    def grams(self, kind: type = np.float64) -> IncrementalGram:
        """Return the sums of outer products in this type, of sparse rows or of those whose curvature is one number or zero."""
        if kind not in self._sums:
            if self.block is not None:
                self._sums[kind] = self.block.grams(self.ridge, intercept=self.free)
            else:
                share = self.crossovers.updated_share
                data = MemoryData(self.rows)
                self._sums[kind] = IncrementalGram(data, intercept=self.border, ridge=self.ridge, updated_share=share)
        return self._sums[kind]

    @cached_property
    def narrow(self) -> np.ndarray:
        """Dense rows in float32."""
        narrow: np.ndarray = self.rows.astype(np.float32)
        return narrow

    @cached_property
    def products(self) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
        """The functions p ↦ Xp and u ↦ Xᵀu of conjugate gradients: those of dense rows multiply in float32.

        The next system corrects its rounding errors.
        """
        if linear.is_sparse(self.rows):
            return linear.multiplied(self.rows), linear.multiplied(self.transposed)
        rows, wide, single = self.narrow, np.float64, np.float32
        return (
            lambda p: (rows @ p.astype(single)).astype(wide),
            lambda u: (rows.T @ u.astype(single)).astype(wide),
        )

    @cached_property
    def rounding(self) -> float:
        """Relative change of n P that counts as rounding."""
        return ROUNDING if self.rows.dtype == np.float64 else NARROW_ROUNDING

    @cached_property
    def size(self) -> int:
        """m, the unknowns of a column."""
        return self.ridge.size // self.loss.columns

    @cached_property
    def border(self) -> bool:
        """Whether the last unknown of a column is an intercept without a column of ones in ``rows``."""
        return self.size > self.rows.shape[1]

    @cached_property
    def scratch(self) -> np.ndarray:
        """Buffer for a scaled copy of the rows: mapping new memory would take longer than writing the copy."""
        return np.empty(self.rows.shape, self.rows.dtype)

    def vector(self, w: np.ndarray, b: Any) -> np.ndarray:
        """Return x of a model."""
        if not self.free:
            return np.array(w, dtype=np.float64).ravel()
        x = np.empty((self.loss.columns, self.size))
        x[:, :-1], x[:, -1] = w, b
        return x.ravel()

    def with_single_sums(self) -> Risk:
        """Return the same risk of dense rows, whose gradients contain sums in float32: half the time of those in float64."""
        own = replace(self, single=True)
        vars(own)["narrow"] = self.narrow
        return own

    def model(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return w and b of x."""
        if self.loss.columns == 1:
            return (x[:-1].copy(), float(x[-1])) if self.free else (x.copy(), 0.0)
        W = x.reshape(self.loss.columns, -1)
        return (W[:, :-1].copy(), W[:, -1].copy()) if self.free else (W.copy(), np.zeros(len(W)))

    def margins(self, x: np.ndarray) -> np.ndarray:
        """z, without offsets."""
        rows = self.rows
        if self.loss.columns == 1:
            w = x[:-1] if self.border else x
            z = rows @ w if rows.dtype == np.float64 else (rows @ w.astype(rows.dtype)).astype(np.float64)
            return z + x[-1] if self.border else z
        W = x.reshape(self.loss.columns, -1).astype(rows.dtype, copy=False)
        W, b = (W[:, :-1], W[:, -1]) if self.border else (W, None)
        if by_columns(rows, len(W)):
            Z = np.array([rows @ w for w in W]).T
        elif rows.dtype == np.float64:
            Z = (W @ rows.T).T
        else:  # BLAS takes twice as long for W Xᵀ in float32, a product with one more transposed factor
            Z = np.ascontiguousarray((rows @ W.T).T).T
        return Z if b is None else Z + b

    def constant(self, b: Any) -> np.ndarray:
        """Return the margins of w = 0."""
        if self.loss.columns == 1:
            return np.full(self.n, b, self.rows.dtype)
        return np.repeat(b.astype(self.rows.dtype)[:, None], self.n, axis=1).T

    def at(self, x: np.ndarray, margins: np.ndarray) -> Point:
        """Return the value and the gradient at x, given its margins."""
        return self.point(x, margins, *self.losses(x, margins))

    def losses(self, x: np.ndarray, margins: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return the value at x, the slopes of the losses and those of the penalty."""
        value, slopes = value_and_slopes(self.loss, margins, self.vectors)
        pull = self.ridge * x
        return value + 0.5 * float(pull @ x), slopes, pull

    def point(self, x: np.ndarray, margins: np.ndarray, value: float, slopes: np.ndarray, pull: np.ndarray) -> Point:
        """Return the point x with its gradient, given what :meth:`losses` returns there."""
        if self.loss.columns > 1:
            each = np.empty((self.loss.columns, self.size))
            each[:, : self.rows.shape[1]] = weighted_sums(slopes, self.rows)
            if self.border:
                each[:, -1] = slopes.T.sum(axis=1)
            gradient = each.ravel()
        else:
            gradient = self.sums(slopes)
        gradient += pull
        return Point(x, margins, gradient, value)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Σ values_i ã_i."""
        if self.single:
            sums = self.products[1](values)
        elif self.flat_share and count_active(values) <= self.flat_share * values.size:
            sums = self.sums_of_rows(values)
        else:
            sums = self.transposed @ (values if self.rows.dtype == values.dtype else values.astype(self.rows.dtype))
        if not self.border:
            return np.asarray(sums, dtype=np.float64)
        found = np.empty(self.size)
        found[:-1], found[-1] = sums, np.add.reduce(values)
        return found

    def gap(self, at: Point) -> float:
        """n(P − D) for the α that belongs to x: Σ g_j²/(2 ridge_j) at the best intercept.

        Away from it the certificate balances α, which changes g as a move to the best intercept would. To first order that change
        is the slope along b times the mean of the rows, plus a smaller term for the correlation of the rows with the curvature.
        """
        if not self.free:
            return float(np.square(at.gradient) @ self.halves)
        G = at.gradient.reshape(self.loss.columns, -1)
        b = G[:, -1]
        balanced = G - b[:, None] * self.mean
        gap = float(np.square(balanced, out=balanced).ravel() @ self.halves)
        share = 1.0 if self.loss.columns == 1 else DEPENDENT
        return gap + share * self.spread * float(self.halves[0] * (b @ b))

    @cached_property
    def mean(self) -> np.ndarray:
        """The weighted mean of the rows ã_i."""
        c = self.vectors.c
        sums = self.transposed @ (
            np.ones(self.n, self.rows.dtype) if c is None else c.astype(self.rows.dtype, copy=False)
        )
        return np.append(sums, 0.0) / (self.n if c is None else c.sum()) if self.border else sums / sums[-1]

    @cached_property
    def spread(self) -> float:
        """The weighted mean squared distance of the rows from their mean."""
        c, square = self.vectors.c, self.squares
        if c is not None:
            square = self.n * float(c @ linear.squared_norms(self.rows, self.rows.dtype)) / c.sum()
        elif square is None:
            flat = linear.entries(self.rows)
            square = float(flat @ flat)
        return max(square / self.n - float(self.mean @ self.mean), 0.0)

    def factor(self, margins: np.ndarray, *, single: bool = False) -> np.ndarray:
        """Return the Cholesky factor of the Hessian; with ``single``, summed in float32 if that changes no direction much."""
        return _factor(partial(self.hessian, margins), self.ridge, single=single)

    def narrow_factor(self, margins: np.ndarray) -> np.ndarray | None:
        """Return the Cholesky factor of the Hessian, summed in float32; None if that changes some direction much."""
        return _narrow_factor(partial(self.hessian, margins), self.ridge)

    @cached_property
    def is_narrow(self) -> bool:
        """Whether Hessians are summed in float32, unless that changes some direction much.

        Where only rows are read whose curvature has changed, that is for many features only: it costs a further step.
        """
        if self.block is not None or self.rows.size < self.crossovers.narrowed_entries:
            return False
        many = self.ridge.size > self.crossovers.updated_features
        return many or self.loss.curvature is not Curvature.PIECEWISE or not self.is_updated

    @cached_property
    def is_updated(self) -> bool:
        """Whether Hessians are computed from the last one: those of sparse rows, and of dense ones if they are not very few and
        their curvature is one number or zero.
        """
        products = self.rows.size * self.ridge.size
        dense = self.loss.curvature is Curvature.PIECEWISE and products >= self.crossovers.updated_products
        return self.block is not None or dense

    def sum_passes(self, margins: np.ndarray, *, single: bool = False) -> float:
        """Return the passes that cost as much as the Hessian at these margins, summed in this type; of sparse rows, with its
        factor.

        Only the rows whose curvature has changed since the last Hessian are read for it, if these are few.
        """
        changed, crossovers, kind = 1.0, self.crossovers, np.float32 if single else np.float64
        if self.loss.curvature is Curvature.PIECEWISE:
            changed = self.grams(kind).changed(self._curvature(margins))
        if self.block is None:
            return (1.0 if single else 2.0) * changed * self.ridge.size / crossovers.hessian_features
        profile = self.block.data.profile
        entries = changed * profile.pairs / crossovers.pass_pairs + self.size**3 / crossovers.pass_cubes
        return entries / profile.stored

    def factor_of(self, weights: np.ndarray, ridge: np.ndarray, *, single: bool = True) -> np.ndarray:
        """Return the Cholesky factor of Σ weights_i ã_i ã_iᵀ + D(ridge); ``single`` as in :meth:`factor`."""
        return _factor(partial(self._gram, weights), ridge, single=single)

    def hessian(self, margins: np.ndarray, kind: type = np.float64) -> np.ndarray:
        """Return the Hessian of the losses, whose Gram matrices are summed in this type."""
        K = self.loss.columns
        if K == 1:
            varies = self.loss.curvature is Curvature.VARYING
            weights = curvature(self.loss, margins, self.vectors) if varies else self._curvature(margins)
            return self._gram(weights, kind)
        weights = np.ascontiguousarray(couplings(self.loss, margins, self.vectors).T)
        H = coupled((self._gram(own, kind) for own in weights), K)
        if self.free:
            # Adding a number to all intercepts changes nothing: the gradient is zero along that direction, and so is the step.
            H[:, -1, :, -1] += H[:, -1, :, -1].trace() / K**2 or 1.0
        return H.reshape(self.ridge.size, -1)

    def _gram(self, weights: np.ndarray, kind: type) -> np.ndarray:
        """Σ weights_i ã_i ã_iᵀ. (A product of a matrix with its own transpose takes half the time of a general one.)

        Rows on which φ″ is zero are left out. Where it is one number on the others, their products are scaled once.
        """
        rows, values = self.rows, self.loss.curvature
        if self.block is not None or (values is Curvature.PIECEWISE and self.is_updated):
            return self.grams(kind).at(weights, single=kind is np.float32)[0]
        if values is Curvature.PIECEWISE:
            curved = weights.nonzero()[0]
            rows, weights = (rows if rows.dtype == kind else self.narrow).take(curved, axis=0), weights.take(curved)
        if values is not Curvature.VARYING and self.vectors.c is None:
            rows = rows if rows.dtype == kind else self.narrow
            square = (rows.T @ rows).astype(np.float64, copy=False)
            if len(rows) and weights[0] != 1.0:
                square *= weights[0]
        else:
            square = self._scaled(rows, np.sqrt(weights), kind)
            square = (square.T @ square).astype(np.float64, copy=False)
        if not self.border:
            return square
        weights = weights.astype(rows.dtype, copy=False)
        H = np.empty((self.size, self.size))
        H[:-1, :-1], H[-1, -1] = square, weights.sum()
        H[-1, :-1] = H[:-1, -1] = weights @ rows
        return H

    def _scaled(self, rows: np.ndarray, factors: np.ndarray, kind: type) -> np.ndarray:
        """Return rows, each times its factor."""
        factors = factors.astype(kind, copy=False)
        if rows.dtype == kind:
            return np.multiply(rows, factors[:, None], out=self.scratch[: len(rows)])
        scaled: np.ndarray = rows.astype(kind)  # with the product in float32 as well, faster than rounding a product
        scaled *= factors[:, None]
        return scaled


def _factor(hessian: Callable[[type], np.ndarray], ridge: np.ndarray, *, single: bool) -> np.ndarray:
    """Return the Cholesky factor of a Hessian, given as a function of the type of its sums; ``single`` as above."""
    factor = _narrow_factor(hessian, ridge) if single else None
    return factorised(hessian(np.float64), ridge) if factor is None else factor


def _narrow_factor(hessian: Callable[[type], np.ndarray], ridge: np.ndarray) -> np.ndarray | None:
    """Return the factor of the Hessian, summed in float32; None if that changes some direction much."""
    H = hessian(np.float32)
    diagonal = H.diagonal() + ridge
    if not np.isfinite(diagonal).all():
        return None
    # L_jj²/H_jj is the part of feature j that the features before it do not explain. Rounding errors of features that are
    # nearly combinations of others, such as those with large means, can make H indefinite.
    factor: np.ndarray | None = factorised(H, ridge, lifted=False)
    if factor is None:
        return None
    explained = NOTICED * np.square(factor.diagonal()) >= SINGLE * math.sqrt(len(H)) * diagonal
    return factor if explained.all() else None
