"""The Hessians of the primal methods: the curvature of a sketch of the rows, or of all rows.

Section 6 of the paper takes the curvature of a step from a random set S of examples. Here the set is drawn with
probabilities proportional to c_i φ″_i, the weight of a row in the Hessian, times an estimate of its leverage. Rows of weight zero
(squared hinge) are not drawn, and rows with rare features are.
Features that are rare in a sketch take their diagonal entry from all rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import Data, count_active, linear
from dualnewton.row_arrays import on_host
from dualnewton.solvers.deadline import NEVER, Deadline
from dualnewton.solvers.primal.curvature import Cholesky, ConjugateGradients, Curvature, Diagonal, Woodbury, gram_of
from dualnewton.solvers.primal.decisions import Decisions
from dualnewton.solvers.primal.dominant_rows import DominantRows
from dualnewton.solvers.primal.incremental_gram import IncrementalGram, Sum
from dualnewton.solvers.primal.single_precision import (
    EXACT,
    FEW,
    REFINED,
    ROUGH,
    TOO_LARGE,
    bears_noise,
    estimated_diagonal,
    gap_left,
    noise_of,
    noise_of_factor,
    noise_of_means,
)

RARE = 16
"""A feature with fewer nonzero entries in a sketch takes its diagonal entry from all rows instead."""

TINY = 1e-200
"""The curvature of a feature counts as zero at this fraction of the largest curvature of a feature."""

ENOUGH = 3
"""Number of distinct rows per feature above which a sketch needs no shrinkage towards its diagonal."""

WIDE = 1 << 22
"""Number of entries of sketched rows that are squared at a time."""

EVEN = 4.0
"""If no leverage exceeds this multiple of their mean, leverages are ignored when rows are drawn."""

RESIDUAL, FINE, MOST_PRODUCTS = 0.05, 1e-3, 300
"""Relative residual at which conjugate gradients stop, since the next Newton step corrects the rest; the same for quadratic
objectives, where the next step would only repeat the solve; and the limit on products."""


class Enough(NamedTuple):
    """The n(P − D) that a solve may leave, zero unless the Hessian is constant; the gradients, one per row; and n P there."""

    left: float
    gradients: np.ndarray
    values: np.ndarray


ALL = Enough(0.0, np.empty((0, 0)), np.empty(0))
"""Solves must be exact to rounding."""


class Hessian(ABC):
    """The source of the Hessian of a model; by default without a state, and not computed from a sum over all rows."""

    passes_made = 0  # passes over the data for products so far
    deadline: Deadline = NEVER  # time after which solves by products end early
    rows_read: int  # number of rows whose outer products are in the last Hessian
    # Whether the columns of a model have one joint Hessian, so that :meth:`at` takes a sequence of row arrays as
    # weights.
    joint = False

    @abstractmethod
    def at(self, weights: Any, size: int, rng: np.random.Generator, enough: Enough = ALL) -> Curvature:
        """Return Aᵀ D(weights) A + D(ridge), from about ``size`` rows; an estimate of its diagonal if ``size`` is zero.

        If the Hessian is constant, a solve is exact enough if it leaves at most ``enough.left`` of n(P − D).
        """

    def multiples(
        self, weights: Any, factors: Sequence[float], size: int, rng: np.random.Generator, enough: Enough = ALL
    ) -> list[Curvature]:
        """Return :meth:`at` for these multiples of the weights, from the same rows."""
        return [self.at(factor * weights, size, rng, enough) for factor in factors]

    def sums_all(self, size: int) -> bool:  # noqa: ARG002
        """Whether :meth:`at` factorises the sum of all rows, in double precision, which :meth:`of_sum` then takes as well."""
        return False

    def of_sum(self, H: np.ndarray, weights: Any) -> Curvature:
        """Return what :meth:`at` does, given Aᵀ D(weights) A, which is overwritten."""
        raise NotImplementedError(f"{type(self).__name__} is not computed from a sum over all rows")

    def state(self) -> Any:
        """Return the state between two calls, as plain data."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027 (there is none by default)
        """Restore this state."""


def leverages(data: Data, weights: np.ndarray) -> np.ndarray | None:
    """Return a score for each row, the mean of 1 and its relative leverage; None if the leverages are about equal.

    ℓ_i = Σ_j a_ij²/D_j with D_j = Σ_i weights_i a_ij² bounds the leverage of row i from below. A row with a feature that few
    others have has a large leverage: a sketch without it would miss that feature.
    """
    some = np.linspace(0, data.n - 1, min(4 * FEW, data.n)).astype(int)
    squares = linear.squared(data.rows(some))
    scale = np.asarray(data.entries(weights, some) @ squares)
    if (rare := np.flatnonzero(linear.nonzeros(squares) < RARE)).size:
        scale[rare] = data.column_norms(weights, rare) * (some.size / data.n)
    inverse = 1.0 / np.where(scale > TINY * scale.max(), scale, np.inf)
    sample = squares @ inverse
    if rare.size == 0 and sample.max() <= EVEN * sample.mean():
        return None
    scores = data.row_scores(inverse)
    return 0.5 + 0.5 * scores / float(scores.mean()) if scores.any() else None


class Products(Hessian):
    """Products with Aᵀ D(weights) A + D(ridge), each of them a pass, and solves by them."""

    data: Data
    # (d,) or (d + 1,) The penalties; with one more entry if a constant feature, the intercept, is appended to the rows.
    ridge: np.ndarray

    @cached_property
    def feature_ridge(self) -> Any:
        """The penalties as a feature array."""
        return self.data.feature_array(self.ridge)

    def solver(
        self, weights: np.ndarray, near: Curvature, fraction: float, enough: Enough, most: int = MOST_PRODUCTS
    ) -> ConjugateGradients:
        """Return a solver by conjugate gradients, preconditioned by another curvature; see there."""
        # For α = −φ′ the gap is Σ r_j²/(2 ridge_j), where the residual r is the gradient at the new point.
        d = self.data.d
        units = None
        if enough.left:
            each = np.append(0.5 / self.ridge[:d], np.zeros(self.ridge.size - d)) / enough.left
            units = self.data.feature_array(each)
        return ConjugateGradients(partial(self.times, weights), near, fraction, most, units, self.deadline)

    def times(self, weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return the matrix with these weights times v."""
        self.passes_made += 1
        d = self.data.d
        constant = on_host(v[d:]) if v.size > d else np.zeros(1)
        (result,), sums = self.data.weighted_products(v[None, :d], constant, weights[:, None])
        whole = np.concatenate([result, np.asarray(sums, like=result)]) if v.size > d else result
        return whole + self.feature_ridge * v


@dataclass(frozen=True, eq=False)
class SketchesState:
    """Whether leverages were computed, the leverages (None if about equal), the last sum over all rows, and ``refined``."""

    scored: bool
    scores: np.ndarray | None
    kept: Sum | None
    multiplied: float = 0.0  # products of two rows in exact curvatures of fewer rows than features
    refined: bool = False  # whether corrections of a matrix in single precision have failed


class Sketches(Products):
    """The Hessian of a new sample of rows each time, or of all rows."""

    rows_read = 0

    def __init__(
        self,
        data: Data,
        # (d,) or (d + 1,) The penalties; with one more entry if a constant feature, the intercept, is appended to the
        # rows.
        ridge: np.ndarray,
        decisions: Decisions,  # choose the form and the precision of the Hessian
        *,
        # Whether most rows have the same weight each time, so that the sum over all rows is kept and updated.
        in_pieces: bool = False,
        # Whether conjugate gradients may correct solves with the sum over all rows in single precision.
        refines: bool = False,
    ) -> None:
        self.data, self.ridge, self.intercept, self.decisions = data, ridge, ridge.size > data.d, decisions
        self.refines = refines
        self.kept = (
            IncrementalGram(data, intercept=self.intercept, ridge=ridge, updated_share=decisions.updated_share)
            if in_pieces
            else None
        )
        self.dominant = DominantRows(data, ridge, decisions)
        self.scores: np.ndarray | None = None
        self.scored = self.refined = False

    def state(self) -> SketchesState:
        """Return what later steps depend on."""
        kept = None if self.kept is None else self.kept.last
        return SketchesState(self.scored, self.scores, kept, self.dominant.multiplied, self.refined)

    def restore(self, state: SketchesState) -> None:
        """Restore this state."""
        self.scored, self.scores, self.refined = state.scored, state.scores, state.refined
        self.dominant.multiplied = state.multiplied
        if self.kept is not None:
            self.kept.last = state.kept

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator, enough: Enough = ALL) -> Curvature:
        return self.multiples(weights, (1.0,), size, rng, enough)[0]

    def multiples(
        self, weights: np.ndarray, factors: Sequence[float], size: int, rng: np.random.Generator, enough: Enough = ALL
    ) -> list[Curvature]:
        if size == 0:
            squares = self._diagonal(weights, rng)
            return [Diagonal(self._positive(factor * squares)) for factor in factors]
        data, diagonal = self.data, np.zeros_like(self.ridge)
        # Data that are read in order are read completely: rows without a weight cost less than counting the others.
        whole = self.kept is None and size >= data.n >= self.ridge.size and not data.capabilities.random_rows
        count = data.n if whole else count_active(weights)
        active = max(1, count)
        if self.decisions.keeps_rows(min(size, active), diagonal.size):
            self.rows_read = min(size, active)
            return [self.dominant.at(factor * weights, self.rows_read) for factor in factors]
        if self.kept is not None and size >= active:
            H, self.rows_read = self.kept.at(weights, single=self._single(weights, active, EXACT))
            return self._factorised(H, diagonal, factors, exact=True)
        if size < active and not self.scored:
            self.scores, self.scored = leverages(data, weights), True
        every = count == data.n <= size
        indices: Any
        indices, scaled = (None, weights) if every else data.draw(rng, weights, size, self.scores)
        rows = self.rows_read = data.n if indices is None else indices.size
        exact = rows == count
        # If rows are drawn by their leverage, the sketch contains those of rare features.
        if not exact and self.scores is None and (rare := self._rare(indices)).size:
            diagonal[rare] += data.column_norms(weights, rare)
        scaled_well = exact or rows >= ENOUGH * data.d
        if not scaled_well:
            scaled = self._shrunk(indices, scaled, diagonal)
        if (
            exact
            and len(factors) == 1
            and enough.left > 0.0
            and not self.refined  # corrections of an earlier matrix in single precision have failed
            and self.decisions.considers_single(rows)
            and (found := self._in_single(weights, indices, scaled, enough)) is not None
        ):
            return [found]
        single = self._single(weights, rows, EXACT if exact else ROUGH)
        H = data.weighted_gram(scaled, indices, intercept=self.intercept, single=single, keep=True)
        return self._factorised(H, diagonal, factors, scaled_well=scaled_well, exact=exact)

    def _factorised(
        self, H: np.ndarray, diagonal: np.ndarray, factors: Sequence[float], *, exact: bool, scaled_well: bool = True
    ) -> list[Curvature]:
        """Return the multiples of H + D(diagonal), each plus the ridge; H may be overwritten."""
        found: dict[float, Curvature] = {}
        for factor in dict.fromkeys(factors):
            own = H if len(factors) == 1 and factor == 1.0 else factor * H
            found[factor] = Cholesky(own, self.ridge + factor * diagonal, scaled_well=scaled_well, exact=exact)
        return [found[factor] for factor in factors]

    def _in_single(self, weights: np.ndarray, indices: Any, scaled: np.ndarray, enough: Enough) -> Curvature | None:
        """Return the sum over all rows, in single precision, if solves with it leave little enough, or are corrected cheaply.

        ``scaled`` are the weights of the rows ``indices`` (None: of all), those with a weight.
        """
        data, d, ridge = self.data, self.data.d, self.ridge[: self.data.d]
        if (noise := noise_of(diagonal := estimated_diagonal(data, weights), self.ridge)) > REFINED:
            guess = on_host(enough.gradients)[:, :d] / (diagonal + ridge)
            tried = self.refines and self.decisions.corrects(len(guess)) and noise_of_means(data) <= REFINED
            if math.isinf(noise) or not (tried or gap_left(guess, diagonal, ridge) <= TOO_LARGE * enough.left):
                return None
        H = data.weighted_gram(scaled, indices, intercept=self.intercept, single=True, keep=True)
        diagonal = on_host(H.diagonal()).copy()
        B = Cholesky(H, self.ridge.copy(), exact=True)
        steps = np.stack([on_host(B.solve(each)) for each in enough.gradients])
        # The gap is compared with P at the end of the step, which may be far below P at its start.
        ends = 1.0 - 0.5 * (on_host(enough.gradients) * steps).sum(axis=1) / enough.values
        allowed, left = enough.left * max(float(ends.min()), 0.0), gap_left(steps, diagonal, ridge)
        if left <= allowed:
            return B
        noise = min(noise_of(diagonal[:d], self.ridge), noise_of_factor(B.factor, diagonal + self.ridge))
        self.refined = True
        if not (self.refines and allowed > 0.0 and left < math.inf and noise <= REFINED):  # any of them may be NaN
            return None
        # Each product multiplies the error, the root of the gap, by about this noise; it halves it if the estimate is too large.
        products = math.ceil(0.5 * math.log(left / allowed) / -math.log(min(noise, 0.5)))
        if not self.decisions.refines(self.rows_read, products * len(enough.gradients)):
            return None
        return self.solver(weights, B, 0.0, enough._replace(left=allowed), most=2 * products + 2)

    def sums_all(self, size: int) -> bool:
        kept = self.decisions.keeps_rows(size, self.ridge.size) or self.decisions.considers_single(size)
        return self.kept is None and size >= self.data.n and not kept

    def of_sum(self, H: np.ndarray, weights: np.ndarray) -> Curvature:
        self.rows_read = max(1, count_active(weights))
        return Cholesky(H, self.ridge.copy(), exact=True)

    def _diagonal(self, weights: np.ndarray, rng: np.random.Generator) -> Any:
        """Return the diagonal of Aᵀ D(weights) A, a feature array; few rows give it, and all rows for features rare in these."""
        data, self.rows_read = self.data, 0
        if FEW * data.profile.stored < RARE * data.d * data.n:  # the mean feature is rare
            found = self._column_norms(weights)
        else:
            indices, scaled = data.draw(rng, weights, FEW)
            few, self.rows_read = np.asarray(on_host(scaled) @ linear.squared(data.rows(indices))), indices.size
            if indices.size < count_active(weights) and (rare := self._rare(indices)).size:
                few[rare] = data.column_norms(weights, rare)
            found = data.feature_array(few)
        return np.concatenate([found, np.asarray([float(weights.sum())], like=found)]) if self.intercept else found

    def _positive(self, squares: Any) -> Any:
        """Return a diagonal, a feature array, with the ridge added; features without curvature and ridge have one."""
        diagonal = self.feature_ridge + squares
        diagonal[diagonal <= 0.0] = 1.0
        return diagonal

    def _column_norms(self, weights: np.ndarray) -> Any:
        """Σ_i weights_i a_ij², a feature array; for equal weights, as at w = 0, by the norms that certificates need as well."""
        least = float(weights.min())
        if least < float(weights.max()):
            return self.data.feature_array(self.data.column_norms(weights))
        return least * self.data.squared_feature_norms

    def _single(self, weights: np.ndarray, rows: int, most: float) -> bool:
        return self.decisions.considers_single(rows) and bears_noise(self.data, self.ridge, weights, most)

    def _shrunk(self, indices: np.ndarray, scaled: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """Move part of a sketch of few rows to the diagonal; return the remaining weights.

        With few rows per feature, a sketch underestimates the curvature of some directions, most of those that it does not
        span. If the features have equal scales, the error of a sketch (1 − ρ)H_S + ρ diag(H_S) is least for
        ρ = β²/(β² + ‖H‖² − d), β² = (E‖u‖⁴ − ‖H‖²)/m, in the Frobenius norm (Ledoit and Wolf, 2004); ‖H‖² is the mean of
        (u_iᵀu_j)² over pairs of rows, estimated from a few hundred rows.
        """
        d, m = self.data.d, indices.size
        on_diagonal = np.zeros(d)
        weights = on_host(scaled)
        for part in np.array_split(np.arange(m), max(1, m * d // WIDE)):
            own = slice(part[0], part[-1] + 1)
            on_diagonal += np.asarray(weights[own] @ linear.squared(self.data.rows(indices[own])))
        some = np.linspace(0, m - 1, min(FEW, m)).astype(int)
        inverse = 1.0 / np.sqrt(np.where(on_diagonal > 0.0, on_diagonal, np.inf))
        rows = linear.scale_columns(self.data.rows(on_host(indices)[some]), inverse)
        gram = linear.gram(rows) * np.sqrt(np.outer(weights[some], weights[some])) * m
        norms, pairs = np.square(gram.diagonal()).mean(), np.square(gram).sum()
        square = (pairs - norms * some.size) / max(1, some.size * (some.size - 1))
        noise = max(norms - square, 0.0) / m
        rho = noise / (noise + max(square - np.count_nonzero(on_diagonal), 0.0)) if noise > 0.0 else 0.0
        diagonal[:d] += rho * on_diagonal
        diagonal[d:] += rho * weights.sum()
        return (1.0 - rho) * scaled

    def _rare(self, indices: np.ndarray) -> np.ndarray:
        """Return the features that have few nonzero entries in these rows."""
        few = np.flatnonzero(linear.nonzeros(self.data.rows(indices[: 4 * RARE])) < RARE)
        return few[linear.nonzeros(self.data.rows(indices))[few] < RARE] if few.size else few


class FromGram(Hessian):
    """The Hessian of all rows for fewer rows than features: the n×n Gram matrix is computed once."""

    def __init__(self, data: Data, ridge: np.ndarray) -> None:
        self.rows, self.diagonal, self.rows_read = data.rows(slice(None)), ridge[: data.d], data.n
        self.intercept = ridge.size > data.d
        self.gram = gram_of(self.rows, self.diagonal)

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator, enough: Enough = ALL) -> Curvature:  # noqa: ARG002
        return Woodbury(self.rows, weights, self.diagonal, self.gram, intercept=self.intercept, exact=True)


@dataclass(frozen=True, eq=False)
class MatrixFreeState:
    """The state of :class:`MatrixFree`: its last preconditioner, of ``size`` rows, and the products of its last solve."""

    size: int
    weights: Any
    near: Any
    products: int
    sketches: SketchesState


class MatrixFree(Products):
    """The Hessian of all rows if rows and features are many: conjugate gradients, preconditioned by a sketch.

    Attributes
    ----------
    size : int
        The rows of the last preconditioner, or of the first one if there is none yet.
    weights, last : array, ConjugateGradients
        The last weights, and the solver for them; empty and None before the first.
    """

    def __init__(
        self,
        data: Data,
        ridge: np.ndarray,  # as for :class:`Sketches`
        decisions: Decisions,  # choose the number of rows of the preconditioners
        fraction: float,  # residual that a solve may leave, as a fraction of the gradient
    ) -> None:
        self.data, self.ridge, self.decisions, self.fraction = data, ridge, decisions, fraction
        self.sketches, self.size = Sketches(data, ridge, decisions), decisions.first_preconditioner
        self.rows_read = 0
        self.weights: Any = None
        self.last: ConjugateGradients | None = None

    def state(self) -> MatrixFreeState:
        """Return the last preconditioner, its weights, and the number of products of its last solve."""
        near, products = (None, 0) if self.last is None else (self.last.near.state(), self.last.products)
        return MatrixFreeState(self.size, self.weights, near, products, self.sketches.state())

    def restore(self, state: MatrixFreeState) -> None:
        """Restore this state."""
        self.size, self.weights = state.size, state.weights
        self.sketches.restore(state.sketches)
        if state.near is not None:
            self.last = self.solver(state.weights, state.near.on(self.data), self.fraction, ALL)
            self.last.products = state.products

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator, enough: Enough = ALL) -> Curvature:  # noqa: ARG002
        rows = self.size if self.last is None else self.decisions.preconditioner(self.size, self.last.products)
        if self.last is not None and rows == self.size and bool(np.array_equal(weights, self.weights)):
            near, self.rows_read = self.last.near, 0
        else:
            near = self.sketches.at(weights, rows, rng)
            self.rows_read = self.sketches.rows_read
        self.size, self.weights, self.last = rows, weights, self.solver(weights, near, self.fraction, enough)
        return self.last


def hessian_of_all_rows(
    data: Data, ridge: np.ndarray, decisions: Decisions, *, quadratic: bool, in_pieces: bool = False
) -> Hessian:
    """Choose the form of the Hessian of Newton's method by sizes: d×d, n×n, or products only."""
    if decisions.is_matrix_free(ridge.size):
        return MatrixFree(data, ridge, decisions, FINE if quadratic else RESIDUAL)
    return (
        FromGram(data, ridge)
        if data.n < ridge.size and data.capabilities.whole
        else Sketches(data, ridge, decisions, in_pieces=in_pieces, refines=quadratic)
    )
