"""Matrices that stand for the Hessian Σ c_i φ″_i ã_i ã_iᵀ + D of a primal method, from all rows or a sketch of them.

Section 6 of the paper takes the curvature of a step from a random set S of examples. Here the set is drawn with
probabilities proportional to c_i φ″_i, the weight of a row in the Hessian, so that rows that have none (squared hinge) are not
drawn, times an estimate of its leverage, so that rows with rare features are.
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

TINY = 1e-200
"""Of the largest curvature of a feature: no more than that counts as none."""

PLENTY, ENOUGH = 4, 3
"""Times the features: so many rows are asked for, and so many, where some were drawn twice, need no help."""

WIDE = 1 << 22
"""Numbers of sketched rows that are squared at a time."""

EVEN = 4.0
"""Rows whose leverages differ by no more than this factor of the mean are drawn alike."""

FEW = 256
"""Rows that give the diagonal well enough."""

SPANNED = 1e-8
"""Of the mean squared norm of rows: what tells a direction that they span from rounding."""

ALWAYS_SQUARE = 128
"""Up to so many features a d×d matrix is cheap, however few the rows."""

LARGE = 4000
"""Beyond so many rows and features no matrix of the size of either is factorised."""

RESIDUAL, FINE, MOST_PRODUCTS = 0.05, 1e-3, 300
"""Where conjugate gradients stop: the next step of Newton's method corrects what they leave. Where the curvature is the same
everywhere it would only begin them anew."""

GAIN = 0.4
"""With fewer rows than features, the speed of conjugate steps grows by about this power of the rows; so it was seen."""

DEAREST = 100.0
"""Passes that a preconditioner may cost."""


class Curvature(Protocol):
    """A positive definite matrix B.

    Attributes
    ----------
    scaled_well : bool
        Whether B is made of enough rows to be trusted with its scale; else that is learned from the gradients.
    exact : bool
        Whether B is the curvature of all rows, and its solves are exact but for rounding.
    """

    scaled_well: bool
    exact: bool

    def solve(self, g: np.ndarray) -> np.ndarray:
        """B⁻¹ g."""


class Cholesky:
    """B = H + D(diagonal), factorised: for up to a few thousand features."""

    def __init__(self, H: np.ndarray, diagonal: np.ndarray, *, scaled_well: bool = True, exact: bool = False) -> None:
        from scipy.linalg import LinAlgError, cho_factor

        self.scaled_well, self.exact = scaled_well, exact
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
    """B = D: all that is known before any sketch is bought."""

    scaled_well = exact = False

    def __init__(self, diagonal: np.ndarray) -> None:
        self.diagonal = diagonal

    def solve(self, g: np.ndarray) -> np.ndarray:
        return g / self.diagonal


class Woodbury:
    """B = D + Aᵀ W A for fewer rows than features, by a matrix of the size of the rows:

        B⁻¹g = D⁻¹g − D⁻¹Aᵀ W^½ E⁻¹ W^½ A D⁻¹g,        E = I + W^½ A D⁻¹ Aᵀ W^½

    With an intercept, which has no D of its own, B is bordered by AᵀW1 and 1ᵀW1. What is left of the border once the features
    have been eliminated is σ = 1ᵀW^½ E⁻¹ W^½1, which is positive as it stands: nothing cancels.

    Parameters
    ----------
    rows : matrix of shape (m, d)
        A.
    weights : array of shape (m,)
        The diagonal of W.
    diagonal : array of shape (d,)
        D > 0.
    gram : array of shape (m, m), optional
        A D⁻¹ Aᵀ, where it is known.
    intercept : bool
        Whether the last entry of a vector is that of an intercept.
    """

    def __init__(
        self,
        rows: Any,
        weights: np.ndarray,
        diagonal: np.ndarray,
        gram: np.ndarray | None = None,
        *,
        intercept: bool = False,
        scaled_well: bool = True,
        exact: bool = False,
    ) -> None:
        self.scaled_well, self.exact, self.intercept = scaled_well, exact, intercept
        self.rows, self.roots, self.diagonal = rows, np.sqrt(weights), diagonal
        gram = gram_of(rows, diagonal) if gram is None else gram
        self.inner = Cholesky(self.roots[:, None] * gram * self.roots, np.ones(len(weights)))
        if intercept:
            inside = self.inner.solve(self.roots)
            self.border = (rows.T @ (self.roots * inside)) / diagonal
            self.left = float(self.roots @ inside) or 1.0

    def solve(self, g: np.ndarray) -> np.ndarray:
        if not self.intercept:
            return self._of_features(g)
        b = (g[-1] - float(self.border @ g[:-1])) / self.left
        return np.append(self._of_features(g[:-1]) - b * self.border, b)

    def _of_features(self, g: np.ndarray) -> np.ndarray:
        u = g / self.diagonal
        inside = self.inner.solve(self.roots * (self.rows @ u))
        return np.asarray(u - (self.rows.T @ (self.roots * inside)) / self.diagonal)


class Together:
    """Several curvatures, each for its own part of the vector."""

    scaled_well = exact = False  # what couples the parts is missing

    def __init__(self, each: Sequence[Curvature]) -> None:
        self.each = each

    def solve(self, g: np.ndarray) -> np.ndarray:
        parts = g.reshape(len(self.each), -1)
        return np.concatenate([one.solve(part) for one, part in zip(self.each, parts, strict=True)])


def gram_of(rows: Any, diagonal: np.ndarray) -> np.ndarray:
    """Return A D⁻¹ Aᵀ."""
    if np.ptp(diagonal) == 0.0:
        return _linear.gram(rows) / diagonal[0]
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

    Attributes
    ----------
    products : int
        How many the last solve took.
    """

    scaled_well, exact = True, False

    def __init__(
        self, product: Callable[[np.ndarray], np.ndarray], near: Curvature, fraction: float, most: int
    ) -> None:
        self.product, self.near, self.fraction, self.most = product, near, fraction, most
        self.products = 0

    def solve(self, g: np.ndarray) -> np.ndarray:
        self.products = 0
        x, r = np.zeros_like(g), g.copy()
        z = self.near.solve(r)
        p, rz = z, float(r @ z)
        enough = self.fraction**2 * rz
        for _ in range(self.most):
            if rz <= enough:
                break
            q = self.product(p)
            self.products += 1
            t = rz / float(p @ q)
            x, r = x + t * p, r - t * q
            z = self.near.solve(r)
            rz, last = float(r @ z), rz
            p = z + (rz / last) * p
        return x if x.any() else self.near.solve(g)


def draw_rows(
    rng: np.random.Generator, weights: np.ndarray, size: int, scores: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw about ``size`` rows with probabilities proportional to weight times score; return weights that keep the mean.

    One point is drawn in each of ``size`` equal strata of the total, so a row of more than a stratum is surely there. If
    no more than ``size`` rows have a weight, all of them are taken as they are.
    """
    (active,) = np.nonzero(weights)
    if active.size == 0:
        active = np.zeros(1, dtype=np.intp)  # a row of no weight stands for none
    if active.size <= size:
        return active, weights[active]
    chances = weights if scores is None else weights * scores
    ends = np.cumsum(chances if active.size == weights.size else chances[active])
    stratum = ends[-1] / size
    points = (np.arange(size) + rng.random(size)) * stratum
    places = np.minimum(np.searchsorted(ends, points), active.size - 1)  # in order, since the points are
    firsts = np.flatnonzero(np.diff(places, prepend=-1))
    times, drawn = np.diff(firsts, append=size), active[places[firsts]]
    return drawn, times * stratum if scores is None else times * stratum / scores[drawn]


def leverages(passes: Passes, weights: np.ndarray) -> np.ndarray | None:
    """Return how much each row matters where features are on one scale, mixed with one; None if all matter about as much.

    ℓ_i = Σ_j a_ij²/D_j with D_j = Σ_i weights_i a_ij² bounds the leverage of row i from below. A row with a feature that few
    others have has a large one: a sketch without it would know nothing of that feature.
    """
    some = np.linspace(0, passes.n - 1, min(4 * FEW, passes.n)).astype(int)
    squares = _linear.squared(passes.take(some))
    scale = np.asarray(weights[some] @ squares)
    if (rare := np.flatnonzero(_linear.nonzeros(squares) < RARE)).size:
        scale[rare] = passes.diagonal(weights, rare) * (some.size / passes.n)
    inverse = 1.0 / np.where(scale > TINY * scale.max(), scale, np.inf)
    sample = squares @ inverse
    if rare.size == 0 and sample.max() <= EVEN * sample.mean():
        return None
    scores = passes.row_scores(inverse)
    return 0.5 + 0.5 * scores / scores.mean() if scores.any() else None


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
        self.scores: np.ndarray | None = None
        self.norms: np.ndarray | None = None
        self.scored = False

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:
        passes, diagonal = self.passes, self.ridge.copy()
        active = max(1, int(np.count_nonzero(weights)))
        if 0 < min(size, active) < diagonal.size and diagonal.size > ALWAYS_SQUARE:
            return self._of_the_heaviest(weights, min(size, active))
        if 0 < size < active and not self.scored:
            self.scores, self.scored = leverages(passes, weights), True
        indices, scaled = draw_rows(rng, weights, size or FEW, self.scores)
        exact = indices.size == np.count_nonzero(weights)
        # Where rows are drawn by their leverage, those of rare features are there.
        if not exact and self.scores is None and (rare := self._rare(indices)).size:
            diagonal[rare] += passes.diagonal(weights, rare)
        if size == 0:
            diagonal[: passes.d] += np.asarray(scaled @ _linear.squared(passes.take(indices)))
            diagonal[passes.d :] += scaled.sum()
            return Diagonal(np.where(diagonal > 0.0, diagonal, 1.0))
        scaled_well = exact or indices.size >= ENOUGH * passes.d
        if not scaled_well:
            scaled = self._shrunk(indices, scaled, diagonal)
        H = passes.sketch(indices, scaled, intercept=self.intercept)
        return Cholesky(H, diagonal, scaled_well=scaled_well, exact=exact)

    def _of_the_heaviest(self, weights: np.ndarray, size: int) -> Curvature:
        """Return the curvature of the rows that have the most of it, and for that of the others a diagonal.

        A sketch of fewer rows than features leaves most directions out, whichever rows are drawn. To count those that are
        drawn for those that are not, as a larger sketch does, would make up curvature along the former: their own weights
        are a lower bound of the Hessian, and conjugate steps need not care what they miss but for its spread. The heaviest rows
        leave the least of that. What is left is taken as the same in all directions but theirs, or by the scale of the features.
        """
        passes, ridge = self.passes, self.ridge[: self.passes.d]
        (active,) = np.nonzero(weights)
        if active.size <= size:  # all there are
            chosen = active if active.size else np.zeros(1, dtype=np.intp)  # a row of no weight stands for none
            return Woodbury(passes.take(chosen), weights[chosen], ridge, intercept=self.intercept, exact=True)
        # Fewer rows than features span few directions. Else their curvature is spread over all, by the scale of the features.
        wide = passes.n < passes.d
        features = np.arange(passes.d)
        if self.norms is None:
            scale = ridge if wide else ridge + passes.diagonal(np.ones(passes.n), features)
            self.norms = passes.row_scores(1.0 / scale)
        order = active[np.argsort(-weights[active] * self.norms[active], kind="stable")]
        chosen, others = np.sort(order[:size]), order[size:]
        rows, own = passes.take(chosen), weights[chosen]
        if wide:
            gram = gram_of(rows, ridge)
            lift = 1.0 + self._missed(rows, gram, others, weights)
            return Woodbury(rows, own, ridge * lift, gram / lift, intercept=self.intercept, scaled_well=False)
        left = passes.diagonal(weights, features) - np.asarray(own @ _linear.squared(rows))
        return Woodbury(rows, own, ridge + np.maximum(left, 0.0), intercept=self.intercept, scaled_well=False)

    def _missed(self, rows: Any, gram: np.ndarray, others: np.ndarray, weights: np.ndarray) -> float:
        """Return the mean curvature of other rows in the directions which these do not span, as a multiple of the ridge."""
        some = others[np.linspace(0, others.size - 1, min(FEW, others.size)).astype(int)]
        across = _linear.to_dense(
            rows @ _linear.scale_columns(self.passes.take(some), 1.0 / self.ridge[: self.passes.d]).T
        )
        inside = Cholesky(gram.copy(), np.full(len(gram), SPANNED * float(gram.diagonal().mean())))
        outside = self.norms[some] - (across * inside.solve(across)).sum(axis=0)  # type: ignore[index]
        return float((weights[some] * np.maximum(outside, 0.0)).mean()) * others.size / (self.passes.d - len(gram))

    def _shrunk(self, indices: np.ndarray, scaled: np.ndarray, diagonal: np.ndarray) -> np.ndarray:
        """Move part of a sketch of few rows to the diagonal; return the weights that are left.

        Rows that are not many times the features make some directions look far too flat, those that they do not span at all
        the flattest. Where the features are on one scale, a sketch (1 − ρ)H_S + ρ diag(H_S) errs least for
        ρ = β²/(β² + ‖H‖² − d), β² = (E‖u‖⁴ − ‖H‖²)/m, in the Frobenius norm (Ledoit and Wolf, 2004); ‖H‖² is the mean of
        (u_iᵀu_j)² over pairs of rows, and a few hundred rows tell it.
        """
        d, m = self.passes.d, indices.size
        on_diagonal = np.zeros(d)
        for part in np.array_split(np.arange(m), max(1, m * d // WIDE)):
            on_diagonal += np.asarray(scaled[part] @ _linear.squared(self.passes.take(indices[part])))
        some = np.linspace(0, m - 1, min(FEW, m)).astype(int)
        inverse = 1.0 / np.sqrt(np.where(on_diagonal > 0.0, on_diagonal, np.inf))
        rows = _linear.scale_columns(self.passes.take(indices[some]), inverse)
        gram = _linear.gram(rows) * np.sqrt(np.outer(scaled[some], scaled[some])) * m
        norms, pairs = np.square(gram.diagonal()).mean(), np.square(gram).sum()
        square = (pairs - norms * some.size) / max(1, some.size * (some.size - 1))
        noise = max(norms - square, 0.0) / m
        rho = noise / (noise + max(square - np.count_nonzero(on_diagonal), 0.0)) if noise > 0.0 else 0.0
        diagonal[:d] += rho * on_diagonal
        diagonal[d:] += rho * scaled.sum()
        return (1.0 - rho) * scaled

    def _rare(self, indices: np.ndarray) -> np.ndarray:
        """Return the features that have few nonzero entries in these rows."""
        few = np.flatnonzero(_linear.nonzeros(self.passes.take(indices[: 4 * RARE])) < RARE)
        return few[_linear.nonzeros(self.passes.take(indices))[few] < RARE] if few.size else few


class FromGram:
    """The curvature of all rows where they are fewer than the features: their Gram matrix is computed once."""

    passes_made = 0

    def __init__(self, passes: Passes, ridge: np.ndarray) -> None:
        self.rows, self.diagonal = passes.take(slice(None)), ridge[: passes.d]
        self.intercept = ridge.size > passes.d
        self.gram = gram_of(self.rows, self.diagonal)

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:  # noqa: ARG002
        return Woodbury(self.rows, weights, self.diagonal, self.gram, intercept=self.intercept, exact=True)


class MatrixFree:
    """The curvature of all rows where both they and the features are many: conjugate gradients, near a sketch.

    Parameters
    ----------
    passes : Passes
        The data.
    ridge : array
        As for :class:`Sketches`.
    sketch : int
        Rows of the first preconditioner; twice as many where the products that this should save cost more.
    fraction : float
        Of the gradient: what a solve may leave.
    """

    def __init__(self, passes: Passes, ridge: np.ndarray, sketch: int, fraction: float) -> None:
        self.passes, self.ridge, self.sketch, self.fraction = passes, ridge, sketch, fraction
        self.sketches = Sketches(passes, ridge)
        self.passes_made = 0
        self.last: ConjugateGradients | None = None
        self.weights = np.empty(0)

    def at(self, weights: np.ndarray, size: int, rng: np.random.Generator) -> Curvature:  # noqa: ARG002
        rows = self.sketch if self.last is None else self._worthwhile(self.last.products)
        if self.last is not None and rows == self.sketch and np.array_equal(weights, self.weights):
            near = self.last.near
        else:
            near = self.sketches.at(weights, rows, rng)
        self.sketch, self.weights = rows, weights
        self.last = ConjugateGradients(Product(self, weights), near, self.fraction, MOST_PRODUCTS)
        return self.last

    def _worthwhile(self, products: float) -> int:
        """Return the rows of a preconditioner whose cost is less than it saves, after so many products with this one."""
        costs, rows = self.passes.costs, self.sketch
        most = min(costs.n, LARGE, costs.affordable_sketch(DEAREST))
        while 2 * rows <= most and costs.sketch(2 * rows) < (1.0 - 2.0**-GAIN) * products * costs.data_pass:
            rows, products = 2 * rows, products * 2.0**-GAIN
        return rows

    def times(self, weights: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Return the matrix with these weights times v."""
        self.passes_made += 1
        d = self.passes.d
        constant = v[d:] if v.size > d else np.zeros(1)
        (result,), sums = self.passes.weighted_products(v[None, :d], constant, weights[:, None])
        return (np.append(result, sums) if v.size > d else result) + self.ridge * v


class Product:
    """v ↦ Bv for fixed weights; an object, since a checkpoint cannot hold a function."""

    def __init__(self, hessian: MatrixFree, weights: np.ndarray) -> None:
        self.hessian, self.weights = hessian, weights

    def __call__(self, v: np.ndarray) -> np.ndarray:
        return self.hessian.times(self.weights, v)


def is_matrix_free(n: int, d: int) -> bool:
    """Whether Newton's method forms no matrix of the size of the rows or of the features."""
    return min(n, d) > LARGE


def hessian_of_all_rows(passes: Passes, ridge: np.ndarray, sketch: int, *, quadratic: bool) -> Hessian:
    """Choose by the sizes how Newton's method solves with the Hessian: d×d, n×n, or by its products."""
    if is_matrix_free(passes.n, ridge.size):
        return MatrixFree(passes, ridge, sketch, FINE if quadratic else RESIDUAL)
    return FromGram(passes, ridge) if passes.n < ridge.size else Sketches(passes, ridge)
