"""Matrices that stand for the Hessian Σ c_i φ″_i ã_i ã_iᵀ + D of a primal method, from all rows or a sketch of them.

Section 6 of the paper takes the curvature of a step from a random set S of examples. Here the set is drawn with
probabilities proportional to c_i φ″_i, the weight of a row in the Hessian: rows that have none (squared hinge) are not drawn.
What a sketch cannot see, a feature that is absent from it or nearly so, is put in exactly, on the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from dualnewton import _linear
from dualnewton.solvers.passes import Passes

RARE = 16
"""A feature with fewer nonzero entries in a sketch takes its curvature from all rows instead."""

FEW = 256
"""Rows that give the diagonal well enough."""

ALWAYS_SQUARE = 128
"""Up to so many features a d×d matrix is cheap, however few the rows."""

LARGE = 4000
"""Beyond so many rows and features no matrix of the size of either is factorised."""

RESIDUAL, MOST_PRODUCTS = 0.05, 200
"""Where conjugate gradients stop: the next step of Newton's method corrects what they leave."""

LITTLE = 1e-3
"""Of its curvature is what an unpenalised intercept is given where a positive diagonal is needed."""


class Curvature(Protocol):
    """A positive definite matrix B."""

    def solve(self, g: np.ndarray) -> np.ndarray:
        """B⁻¹ g."""


class Cholesky:
    """B = H + D(diagonal), factorised: for up to a few thousand features."""

    def __init__(self, H: np.ndarray, diagonal: np.ndarray) -> None:
        from scipy.linalg import LinAlgError, cho_factor

        places = np.diag_indices_from(H)
        H[places] += diagonal
        lift = np.finfo(float).eps * float(np.abs(H[places]).max()) or 1.0
        while True:
            try:
                self.factor = cho_factor(H, lower=True, check_finite=False)
                return
            except LinAlgError:  # rounding has made it indefinite
                H[places] += lift
                lift *= 100.0

    def solve(self, g: np.ndarray) -> np.ndarray:
        from scipy.linalg import cho_solve

        return np.asarray(cho_solve(self.factor, g, check_finite=False))


class Diagonal:
    """B = D, of which the scale is left to the gradients: all that is known before any sketch is bought."""

    def __init__(self, diagonal: np.ndarray) -> None:
        self.diagonal = diagonal

    def solve(self, g: np.ndarray) -> np.ndarray:
        return g / self.diagonal


class Woodbury:
    """B = D + Aᵀ D(weights) A for fewer rows than features, by a matrix of the size of the rows:

        B⁻¹g = D⁻¹g − D⁻¹Aᵀ W^½ (I + W^½ A D⁻¹ Aᵀ W^½)⁻¹ W^½ A D⁻¹g

    Parameters
    ----------
    rows : matrix of shape (m, d)
        A.
    weights : array of shape (m,)
        W.
    diagonal : array of shape (d,)
        D > 0.
    gram : array of shape (m, m), optional
        A D⁻¹ Aᵀ, where it is known.
    """

    def __init__(self, rows: Any, weights: np.ndarray, diagonal: np.ndarray, gram: np.ndarray | None = None) -> None:
        self.rows, self.roots, self.diagonal = rows, np.sqrt(weights), diagonal
        gram = gram_of(rows, diagonal) if gram is None else gram
        self.inner = Cholesky(self.roots[:, None] * gram * self.roots, np.ones(len(weights)))

    def solve(self, g: np.ndarray) -> np.ndarray:
        u = g / self.diagonal
        inside = self.inner.solve(self.roots * (self.rows @ u))
        return np.asarray(u - (self.rows.T @ (self.roots * inside)) / self.diagonal)


class Together:
    """Several curvatures, each for its own part of the vector."""

    def __init__(self, each: Sequence[Curvature]) -> None:
        self.each = each

    def solve(self, g: np.ndarray) -> np.ndarray:
        parts = g.reshape(len(self.each), -1)
        return np.concatenate([one.solve(part) for one, part in zip(self.each, parts, strict=True)])


def gram_of(rows: Any, diagonal: np.ndarray) -> np.ndarray:
    """Return A D⁻¹ Aᵀ."""
    return _linear.gram(_linear.scale_columns(rows, 1.0 / np.sqrt(diagonal)))


class ConjugateGradients:
    """B by its products alone, solved to a fraction of ‖g‖ with another curvature as preconditioner.

    Parameters
    ----------
    product : callable
        v ↦ Bv: a pass over the data.
    near : Curvature
        The preconditioner.
    fraction : float
        Of the residual, in the norm of the preconditioner, at which to stop.
    most : int
        Products at most.
    """

    def __init__(
        self, product: Callable[[np.ndarray], np.ndarray], near: Curvature, fraction: float, most: int
    ) -> None:
        self.product, self.near, self.fraction, self.most = product, near, fraction, most

    def solve(self, g: np.ndarray) -> np.ndarray:
        x, r = np.zeros_like(g), g.copy()
        z = self.near.solve(r)
        p, rz = z, float(r @ z)
        enough = self.fraction**2 * rz
        for _ in range(self.most):
            if rz <= enough:
                break
            q = self.product(p)
            t = rz / float(p @ q)
            x, r = x + t * p, r - t * q
            z = self.near.solve(r)
            rz, last = float(r @ z), rz
            p = z + (rz / last) * p
        return x if x.any() else self.near.solve(g)


def draw_rows(rng: np.random.Generator, weights: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw about ``size`` rows with probabilities proportional to their weights; return them and weights that keep the mean.

    One point is drawn in each of ``size`` equal strata of the total weight, so a row of more than a stratum is surely there. If
    no more than ``size`` rows have a weight, all of them are taken as they are.
    """
    (active,) = np.nonzero(weights)
    if active.size == 0:
        active = np.zeros(1, dtype=np.intp)  # a row of no weight stands for none
    if active.size <= size:
        return active, weights[active]
    ends = np.cumsum(weights[active])
    stratum = ends[-1] / size
    points = (np.arange(size) + rng.random(size)) * stratum
    places = np.minimum(np.searchsorted(ends, points), active.size - 1)  # in order, since the points are
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    times = np.diff(firsts, append=size)
    return active[places[firsts]], times * stratum


class Hessian(Protocol):
    """Where a model takes its curvature from."""

    passes_made: int

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:
        """Return Aᵀ D(weights) A + D(ridge), from about ``size`` rows; its diagonal from a few if ``size`` is zero."""


class Sketches:
    """The curvature of rows drawn anew each time; of all rows, if so many are asked for.

    Parameters
    ----------
    passes : Passes
        The data.
    ridge : array of shape (d,) or (d + 1,)
        The penalties; with one more where a constant feature, the intercept, is appended to the rows.
    """

    passes_made = 0

    def __init__(self, passes: Passes, ridge: np.ndarray) -> None:
        self.passes, self.ridge, self.intercept = passes, ridge, ridge.size > passes.d

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:
        passes, diagonal = self.passes, self.ridge.copy()
        indices, scaled = draw_rows(rng, weights, size or FEW)
        if indices.size < np.count_nonzero(weights) and (rare := self._rare(indices)).size:
            diagonal[rare] += passes.diagonal(weights, rare)
        if size == 0:
            rows = passes.take(indices)
            diagonal[: passes.d] += scaled @ np.square(_linear.to_dense(rows))
            diagonal[passes.d :] += scaled.sum()
            return Diagonal(np.where(diagonal > 0.0, diagonal, 1.0))
        if diagonal.size <= max(indices.size, ALWAYS_SQUARE):
            return Cholesky(passes.sketch(indices, scaled, intercept=self.intercept), diagonal)
        rows = passes.take(indices)
        if self.intercept:
            rows = _linear.with_constant(rows, 1.0)
            diagonal[-1] += LITTLE * float(scaled.sum()) or 1.0
        return Woodbury(rows, scaled, diagonal)

    def _rare(self, indices: np.ndarray) -> np.ndarray:
        """Return the features that have few nonzero entries in these rows."""
        few = np.flatnonzero(_linear.nonzeros(self.passes.take(indices[: 4 * RARE])) < RARE)
        return few[_linear.nonzeros(self.passes.take(indices))[few] < RARE] if few.size else few


class FromGram:
    """The curvature of all rows where they are fewer than the features: their Gram matrix is computed once."""

    passes_made = 0

    def __init__(self, passes: Passes, ridge: np.ndarray) -> None:
        self.rows, self.diagonal = passes.take(np.arange(passes.n)), ridge.copy()
        if ridge.size > passes.d:
            self.rows = _linear.with_constant(self.rows, 1.0)
            self.diagonal[-1] = LITTLE * passes.n
        self.gram = gram_of(self.rows, self.diagonal)

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:  # noqa: ARG002
        return Woodbury(self.rows, weights, self.diagonal, self.gram)


class MatrixFree:
    """The curvature of all rows where both they and the features are many: conjugate gradients, near a sketch."""

    def __init__(self, passes: Passes, ridge: np.ndarray, sketch: int) -> None:
        self.passes, self.ridge, self.sketch = passes, ridge, sketch
        self.sketches = Sketches(passes, ridge)
        self.passes_made = 0

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:  # noqa: ARG002
        def product(v: np.ndarray) -> np.ndarray:
            self.passes_made += 1
            d = self.passes.d
            constant = v[d:] if v.size > d else np.zeros(1)
            (result,), sums = self.passes.weighted_products(v[None, :d], constant, weights[:, None])
            return (np.append(result, sums) if v.size > d else result) + self.ridge * v

        near = self.sketches.at(weights, self.sketch, rng)
        return ConjugateGradients(product, near, RESIDUAL, MOST_PRODUCTS)


def hessian_of_all_rows(passes: Passes, ridge: np.ndarray, sketch: int) -> Hessian:
    """Choose by the sizes how Newton's method solves with the Hessian: d×d, n×n, or by its products."""
    if min(passes.n, ridge.size) > LARGE:
        return MatrixFree(passes, ridge, sketch)
    return FromGram(passes, ridge) if passes.n < ridge.size else Sketches(passes, ridge)
