"""Moments of the rows, from which least squares with few features is solved and certified without further passes over the data.

    Σ_i c_i (x_iᵀw + b − y_i)² = uᵀGu − 2uᵀk + Σ_i c_i t_i²,        G = Σ_i c_i x̃_i x̃_iᵀ,  k = Σ_i c_i x̃_i t_i

with x̃ = (x − o, 1), t = y − ȳ and u = (w, b + oᵀw − ȳ). The sums are sufficient: P, D and the feasibility of the dual point
follow from them, up to rounding errors. The certificates below subtract a proved bound on these errors from D and add it to P.

The proof. Let η = γ_m (``objective/rounding.py`` has γ) for more operations m than any order of these sums takes; N_j = G_jj^½,
of which the last one is N = (Σ c_i)^½. By Cauchy–Schwarz the errors are at most η N_j N_l for G_jl, at most η N_j V for k_j, the
difference of Σ c_i x̃_ij y_i and ȳ Σ c_i x̃_ij, and at most ε for the last entry of u. With r̄ the mean of the residuals r_i and,
for each output,

    A ≥ Σ_j |u_j| N_j,    Q² = Σ c_i t_i²,    V = Q + 2|ȳ|N,    h = |r̄|N,    κ = |Σ c_i t_i|/N,
    ε = γ_{d+4}(|b| + Σ_j |o_j w_j| + |ȳ|),

the errors are at most

    e N_j,  e = η(A + V) + εN                              for Σ c_i r_i x̃_ij,
    E = η(A² + 2AV + Q²) + 2εN(A + Q)                      for Σ c_i r_i² and Σ c_i r_i t_i,
    E + 2he + 3e² + ηh²  and  E + (e + ηh)(κ + ηV) + ηhV   for these at the best intercept, where r̄ times a sum is subtracted,
    2(e + ηh) N_j                                          for the slopes Σ c_i α_i x_ij at the best intercept.

A² is far more than uᵀGu where large coefficients of nearly dependent features cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualnewton.losses.rounding import DOUBLE
from dualnewton.matrix import Data
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem
from dualnewton.objective.rounding import FLOAT64, gauge
from dualnewton.row_arrays import on_host

SOME = 1024
"""Least number of rows whose mean is the origin of the moments (all rows if there are fewer)."""

EXPANDED = 1 << 17
"""Entries up to which sparse rows are made dense to subtract their mean, so that nearly constant features keep their digits."""

NEAR = 1.0
"""Mean of a feature, in units of its standard deviation, up to which sums about zero lose no more than one bit."""

LOST = 64.0 * 2.0**-53
"""A feature is constant if its variance about the mean is below this fraction of Σ c_i x_ij²: the difference is rounding."""

LAST = 8.0 * DOUBLE
"""Relative error of the last few operations of P and D."""


class Centred(NamedTuple):
    """Σ c_i (x_i − m)(x_i − m)ᵀ, Σ c_i (x_i − m)(y_i − ȳ)ᵀ, m and ȳ."""

    second: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    target_mean: np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted sums over rows of x̃ = (x − o, 1) and targets y, about an origin o that avoids cancellation."""

    gram: np.ndarray  # (d + 1, d + 1) Σ c_i x̃_i x̃_iᵀ
    cross: np.ndarray  # (d + 1, K) Σ c_i x̃_i y_iᵀ
    origin: np.ndarray  # (d,) o

    @classmethod
    def of(cls, data: Data, Y: np.ndarray, c: np.ndarray, origin: np.ndarray) -> Moments:
        """Sum over the rows of positive weight."""
        if not data.capabilities.local or c.all():  # selecting rows would copy them
            return cls(*data.moments(c, Y, origin), origin)
        rows = data.active(c)
        return cls(*data.moments(data.take(c, rows), data.take(Y, rows), origin, rows), origin)

    @property
    def total(self) -> float:
        """Σ c_i."""
        return float(self.gram[-1, -1])

    def times(self, factor: float) -> Moments:
        """Return the moments of rows repeated the given number of times."""
        return self if factor == 1.0 else Moments(factor * self.gram, factor * self.cross, self.origin)

    def centred(self, *, fit_intercept: bool, out: np.ndarray | None = None) -> Centred:
        """Return the moments about the means, or about zero if there is no intercept; the matrix in ``out`` if that is given.

        Features of sparse rows that are constant up to rounding are zero: a matrix of rounding errors is indefinite.
        """
        second, cross, first = self.gram[:-1, :-1], self.cross[:-1], self.gram[:-1, -1]
        if not fit_intercept:
            if out is not None:
                out[:] = second
            return Centred(second, cross, np.zeros_like(first), np.zeros(cross.shape[1]))
        mean, target_mean = first / self.total, self.cross[-1] / self.total
        left = np.outer(first, mean, out=out)
        np.subtract(second, left, out=left)
        along = self.slopes(fit_intercept=True)
        if (lost := np.diag(left) < LOST * np.diag(second)).any():
            left[lost], left[:, lost], along[lost] = 0.0, 0.0, 0.0
        return Centred(left, along, mean + self.origin, target_mean)

    def slopes(self, *, fit_intercept: bool) -> np.ndarray:
        """Return Σ c_i (x_i − m)(y_i − ȳ)ᵀ, of shape (d, K); about zero if there is no intercept."""
        return self.cross[:-1] - fit_intercept * np.outer(self.gram[:-1, -1], self.cross[-1] / self.total)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.cross + other.cross, self.origin)


def origin_of(data: Data, c: np.ndarray, *, shift: bool) -> np.ndarray:
    """Return about the mean of the rows; zero without an intercept, and for many sparse rows, which centring would make dense.

    The mean of some rows suffices: any origin near the mean avoids cancellation. Zero is near enough if all means are small
    against the deviations, and needs no copies of the rows.
    """
    if not shift or (data.profile.sparse and data.n * data.d > EXPANDED):
        return np.zeros(data.d)
    some = slice(None, None, max(1, data.n // SOME))
    weights = data.entries(c, some)
    if not weights.any():
        return data.transposed_times(c) / float(c.sum())
    rows = data.rows(some)
    mean = weights @ rows / weights.sum()
    if data.profile.sparse or len(weights) == data.n:
        return mean
    squares = weights @ np.square(rows, dtype=np.float64) / weights.sum()
    return np.zeros(data.d) if np.all((1.0 + NEAR**-2) * np.square(mean) <= squares) else mean


class Sums(NamedTuple):
    """Sums over the rows of the residuals r of some models, with bounds on their rounding errors."""

    squares: np.ndarray  # (…, models) Σ c_i ‖r_i‖²
    along: np.ndarray  # (…, models) Σ c_i ⟨r_i, t_i⟩
    gradient: np.ndarray  # (…, models, K, d + 1) Σ c_i r_i x̃_iᵀ
    # A, εN and E of each model and output, of shape (…, models, K).
    weighted: np.ndarray
    last: np.ndarray
    error: np.ndarray


class Residuals:
    """The residuals of models on rows of which the moments are known, or on each of several sets of rows (:meth:`stacked`).

    Y (n, K) and c (n,) are their targets and weights; ȳ is the mean of the targets if ``shift``, else zero. The arrays of several
    sets have one more axis, the first, and so have those of the models: each set has its own.
    """

    def __init__(self, moments: Moments, Y: np.ndarray, c: np.ndarray, *, shift: bool) -> None:
        (n, K), d = Y.shape, len(moments.origin)
        self.origin, self.G = moments.origin, moments.gram
        self.shift = on_host(c @ Y) / float(c.sum()) if shift else np.zeros(K)
        self.squares = on_host(c @ np.square(Y - np.asarray(self.shift, like=Y)))  # of each output
        self.k = moments.cross.T - np.outer(self.shift, self.G[:, -1])
        # Weights are divided by their sum, and moments of folds are added: three sums over the rows.
        self.eta = FLOAT64.gamma(3 * n + 4 * d + 64)
        self.norms = np.sqrt(self.G.diagonal()) * (1.0 + self.eta)
        self.Q = np.sqrt(self.squares)
        self.V = self.Q + 2.0 * self.norms[-1] * np.abs(self.shift)

    @classmethod
    def of(cls, moments: Moments, problem: Problem) -> Residuals:
        """Return the residuals on the rows of a problem, with its weights."""
        return cls(moments, problem.y.reshape(problem.n, -1), problem.c, shift=problem.fit_intercept)

    @classmethod
    def stacked(cls, sets: Sequence[Residuals]) -> Residuals:
        """Return the residuals on several sets of rows, with the largest of their bounds η."""
        found = object.__new__(cls)
        found.eta = max(own.eta for own in sets)
        for name in ("origin", "G", "shift", "squares", "k", "norms", "Q", "V"):
            each = [getattr(own, name) for own in sets]
            setattr(found, name, each[0][None] if len(each) == 1 else np.stack(each))
        return found

    @property
    def sets(self) -> tuple[int, ...]:
        """The shape of the first axes: empty, or the number of sets."""
        return self.G.shape[:-2]

    def sums(self, W: np.ndarray, b: np.ndarray) -> Sums:
        """Return the sums for models W, of shape (…, models, K, d), with intercepts b, of shape (…, models, K)."""
        eta, Q, V, shift = self.eta, *(each[..., None, :] for each in (self.Q, self.V, self.shift))
        U = np.concatenate([W, (b + _times(W, self.origin) - shift)[..., None]], axis=-1)
        GU = (U.reshape(*self.sets, -1, U.shape[-1]) @ self.G).reshape(U.shape)
        fitted, crossed = np.einsum("...akj,...akj->...a", U, GU), np.einsum("...akj,...kj->...a", U, self.k)
        own = self.squares.sum(axis=-1)[..., None]
        size = np.abs(b) + _times(np.abs(W), np.abs(self.origin)) + np.abs(shift)
        last = self.norms[..., -1, None, None] * FLOAT64.gamma(W.shape[-1] + 4) * size
        A = _times(np.abs(U), self.norms) + last
        error = eta * (A * (A + 2.0 * V) + np.square(Q)) + 2.0 * last * (A + Q)
        return Sums(fitted - 2.0 * crossed + own, crossed - own, GU - self.k[..., None, :, :], A, last, error)

    def mean_squares(self, W: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ c_i ‖r_i‖²/(K Σ c_i) of each model, and bounds on their rounding errors."""
        found, scale = self.sums(W, b), 1.0 / (self.k.shape[-2] * self.G[..., -1, -1, None])
        return scale * found.squares, 1.01 * scale * found.error.sum(axis=-1)


class Verifier:
    """Certifies models of the problems

        min_{W, b}  P(W, b) = (1/n) Σ_i ½ c_i ‖W x_i + b − y_i‖² + λ g(W)

    of one or K outputs, with the dual point α_i = y_i − W x_i − b′, b′ the best intercept for W, scaled until g*(ᾱ) is finite.

    The moments have the weights c and the targets of the problems, which differ from ``problem`` in λ only. Given the residuals
    of several problems with other weights or targets (folds), it certifies the models of all of them by the same array
    operations; ``problem`` is any of them.
    """

    def __init__(self, moments: Moments | Residuals, problem: Problem) -> None:
        self.problem = problem
        self.of = Residuals.of(moments, problem) if isinstance(moments, Moments) else moments
        norms = self.of.norms[..., :-1]
        gauges = [gauge(problem.regularizer, own) for own in norms.reshape(-1, norms.shape[-1])]
        self.gauge = np.array(gauges).reshape(*self.of.sets, 1)

    def certificates(self, W: np.ndarray, b: np.ndarray, lams: np.ndarray) -> list[Certificate]:
        """Certify models W, of shape (…, models, d) or (…, models, K, d), with intercepts b, each for the problem with its λ.

        Return the certificates of the first problem, then those of the next.
        """
        problem, n, of = self.problem, self.problem.n, self.of
        K, sets = of.k.shape[-2], of.sets
        found = of.sums(W.reshape(*sets, len(lams), K, -1), b.reshape(*sets, len(lams), K))
        r_r, r_t, gradient, slopes = found.squares, found.along, found.gradient, found.gradient[..., :-1]
        if problem.fit_intercept:  # move to the best intercept, where Σ c_i α_i = 0
            m = gradient[..., -1] / of.G[..., -1, -1, None, None]
            r_r = r_r - np.einsum("...ak,...ak->...a", m, gradient[..., -1])
            r_t = r_t - _times(m, of.k[..., -1])
            slopes = slopes - m[..., None] * of.G[..., None, None, :-1, -1]
        below, wide = self._errors(found)
        scale, shape = lams * n, W.shape[len(sets) + 1 :]
        values = problem.g.values(W.reshape(-1, *shape)).reshape(r_r.shape)
        s, conjugates = self._conjugates(slopes.reshape(W.shape) / -scale.reshape(-1, *[1] * len(shape)), wide / scale)
        primal = 0.5 * (found.squares + 1.01 * found.error.sum(axis=-1)) / n + lams * values * (1.0 + of.eta)
        dual = (-0.5 * s * s * r_r - s * r_t - below) / n - lams * conjugates
        primal, dual = primal + LAST * np.abs(primal), dual - LAST * np.abs(dual)
        # D is not a number where sums exceed the range of float64, which proves nothing.
        return Certificate.of_values(primal.ravel(), np.where(dual < np.inf, dual, -np.inf).ravel(), rounding=0.0)

    def _errors(self, found: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds on the errors of each model, of all outputs together.

        They are those of the sums over rows in the dual value, and the factor of N_j in that of the slopes.
        """
        of, A, E = self.of, found.weighted, found.error
        eta, N, V = of.eta, of.norms[..., -1, None, None], of.V[..., None, :]
        e = eta * (A + V) + found.last
        h, kappa = np.zeros(()), np.zeros(())
        if self.problem.fit_intercept:
            h, kappa = np.abs(found.gradient[..., -1]) / N, np.abs(of.k[..., None, :, -1]) / N
        own = E + h * (2.0 * e + eta * h) + 3.0 * np.square(e)
        along = E + (e + eta * h) * (kappa + eta * V) + eta * h * V
        wide = 2.0 * (e + eta * h)
        bounds = (0.5 * own + along).sum(axis=-1), np.sqrt(np.square(wide).sum(axis=-1))
        return 1.01 * bounds[0], 1.01 * bounds[1]  # for products of several η, and the arithmetic of this function

    def _conjugates(self, bars: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return an s for which g*(sᾱ) is finite and a bound on it, for each ᾱ, whose entries have errors of N_j ``errors``."""
        g, N, shape = self.problem.g, self.of.norms[..., :-1], errors.shape
        each = bars.reshape(-1, *bars.shape[len(shape) :])  # of all models, one after the other
        if not self.problem.regularizer.strongly_convex:
            s = g.reaches(each).reshape(shape)
            s /= 1.0 + s * errors * self.gauge + LAST
            return s, g.conjugates(_per_model(s.ravel(), each) * each).reshape(shape)
        # g* is finite and 1-smooth; its terms are at most those of ⟨ᾱ, ∇g*(ᾱ)⟩.
        values, slopes = g.conjugates(each).reshape(shape), np.abs(g.grad_conjugates(each))
        terms = np.einsum("ai,ai->a", np.abs(each).reshape(len(each), -1), slopes.reshape(len(each), -1)).reshape(shape)
        lengths = slopes if slopes.ndim == 2 else np.sqrt(np.square(slopes).sum(axis=1))
        moved = _times(lengths.reshape(*shape, -1), N) + 0.5 * errors * np.square(N).sum(axis=-1)[..., None]
        return np.ones(shape), values + 1.01 * errors * moved + self.of.eta * (np.abs(values) + 4.0 * terms)


def _times(arrays: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """Return the products of the last axis of arrays with a vector, one for each set of rows if these have a first axis."""
    sets, size = vectors.shape[:-1], vectors.shape[-1]
    return (arrays.reshape(*sets, -1, size) @ vectors[..., None]).reshape(arrays.shape[:-1])


def _per_model(numbers: np.ndarray, arrays: np.ndarray) -> np.ndarray:
    """Return one number for each model in a shape that multiplies arrays with an entry per model."""
    return numbers.reshape(-1, *[1] * (arrays.ndim - 1))
