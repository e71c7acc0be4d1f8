"""Moments of the rows, from which least squares with few features is solved and certified without further passes over the data.

    Σ_i c_i (x_iᵀw + b − y_i)² = uᵀGu − 2uᵀk + Σ_i c_i t_i²,        G = Σ_i c_i x̃_i x̃_iᵀ,  k = Σ_i c_i x̃_i t_i

with x̃ = (x − o, 1), t = y − ȳ and u = (w, b + oᵀw − ȳ). The sums are sufficient: P, D and the feasibility of the dual point
follow from them, up to rounding errors that are a small multiple of the unit roundoff times Σ c_i t_i² + (Σ_j |u_j| G_jj^½)².
The second term is far more than |uᵀGu| where large coefficients of nearly dependent features cancel. The certificates below
subtract a bound on these errors from D and add it to P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dualnewton.matrix import Data
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import on_host

ROUNDING = 16.0 * np.finfo(float).eps
"""Bound on the rounding errors as a fraction of the terms that cancel. (BLAS adds partial sums, so that errors grow far more
slowly than the number of rows.)"""


SOME = 1024
"""Least number of rows whose mean is the origin of the moments (all rows if there are fewer)."""


EXPANDED = 1 << 17
"""Entries up to which sparse rows are made dense to subtract their mean, so that nearly constant features keep their digits."""


LOST = 64.0 * 2.0**-53
"""A feature is constant if its variance about the mean is below this fraction of Σ c_i x_ij²: the difference is rounding."""


class Centred(NamedTuple):
    """Σ c_i (x_i − m)(x_i − m)ᵀ, Σ c_i (x_i − m)(y_i − ȳ)ᵀ, m and ȳ."""

    second: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    target_mean: np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted sums over rows of x̃ = (x − o, 1) and targets y, about an origin o that avoids cancellation.

    Attributes
    ----------
    gram : array of shape (d + 1, d + 1)
        Σ c_i x̃_i x̃_iᵀ.
    cross : array of shape (d + 1, K)
        Σ c_i x̃_i y_iᵀ.
    origin : array of shape (d,)
        o.
    """

    gram: np.ndarray
    cross: np.ndarray
    origin: np.ndarray

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

    def centred(self, *, fit_intercept: bool) -> Centred:
        """Return the moments about the means, or about zero if there is no intercept.

        Features of sparse rows that are constant up to rounding are zero: a matrix of rounding errors is indefinite.
        """
        second, cross, first = self.gram[:-1, :-1], self.cross[:-1], self.gram[:-1, -1]
        if not fit_intercept:
            return Centred(second, cross, np.zeros_like(first), np.zeros(cross.shape[1]))
        mean, target_mean = first / self.total, self.cross[-1] / self.total
        left, along = second - np.outer(first, mean), cross - np.outer(first, target_mean)
        if (lost := np.diag(left) < LOST * np.diag(second)).any():
            left[lost], left[:, lost], along[lost] = 0.0, 0.0, 0.0
        return Centred(left, along, mean + self.origin, target_mean)

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.cross + other.cross, self.origin)


def origin_of(data: Data, c: np.ndarray, *, shift: bool) -> np.ndarray:
    """Return about the mean of the rows; zero without an intercept, and for many sparse rows, which centring would make dense.

    The mean of some rows suffices: any origin near the mean avoids cancellation.
    """
    if not shift or (data.profile.sparse and data.n * data.d > EXPANDED):
        return np.zeros(data.d)
    some = slice(None, None, max(1, data.n // SOME))
    weights = data.entries(c, some)
    return weights @ data.rows(some) / weights.sum() if weights.any() else data.transposed_times(c) / float(c.sum())


class Verifier:
    """Certifies models of the problems

        min_{W, b}  P(W, b) = (1/n) Σ_i ½ c_i ‖W x_i + b − y_i‖² + λ g(W)

    of one or K outputs, with the dual point α_i = y_i − W x_i − b′, b′ the best intercept for W, scaled until g*(ᾱ) is finite.

    Parameters
    ----------
    moments : Moments
        The moments of the rows, with the weights c and the targets of the problems.
    problem : Problem
        One of the problems, which differ in λ only.
    """

    def __init__(self, moments: Moments, problem: Problem) -> None:
        Y, c = problem.y.reshape(problem.n, -1), problem.c
        self.problem, self.moments = problem, moments
        self.shift = on_host(c @ Y) / float(c.sum()) if problem.fit_intercept else np.zeros(Y.shape[1])
        self.squares = float((c @ np.square(Y - np.asarray(self.shift, like=Y))).sum())
        self.G = moments.gram
        self.k = moments.cross.T - np.outer(self.shift, self.G[:, -1])

    def certificates(self, W: np.ndarray, b: np.ndarray, lams: np.ndarray) -> list[Certificate]:
        """Certify models W, of shape (models, d) or (models, K, d), with the intercepts b, each for the problem with its λ."""
        problem, n, K = self.problem, self.problem.n, len(self.k)
        columns = W.reshape(len(W), K, -1)
        U = np.dstack([columns, b.reshape(len(W), K) + columns @ self.moments.origin - self.shift])
        GU = U @ self.G
        fitted, crossed = np.einsum("akj,akj->a", U, GU), np.einsum("akj,kj->a", U, self.k)
        gradient = GU - self.k  # Σ c_i r_i x̃_i
        r_r, r_t = fitted - 2.0 * crossed + self.squares, crossed - self.squares
        # The products in GU may cancel: |G_ij| ≤ (G_ii G_jj)^½ bounds each of them, and the errors of the sums in G as well.
        roots = np.sqrt(self.G.diagonal())
        size = (np.abs(U) @ roots)[:, :, None] * roots + np.abs(self.k)
        error = ROUNDING * (np.einsum("akj,akj->a", np.abs(U), size) + self.squares)
        unsure = ROUNDING * np.sqrt(np.square(size[:, :, :-1]).sum(axis=1).max(axis=1))  # error of the largest slope
        primal_losses = 0.5 * r_r
        slopes = gradient[:, :, :-1]
        if problem.fit_intercept:  # move to the best intercept, where Σ c_i α_i = 0
            m = gradient[:, :, -1] / self.G[-1, -1]
            r_r = r_r - np.einsum("ak,ak->a", m, gradient[:, :, -1])
            r_t = r_t - m @ self.k[:, -1]
            slopes = slopes - m[:, :, None] * self.G[:-1, -1]
        found = []
        parts = (W, lams, primal_losses, slopes.reshape(W.shape), r_r, r_t, error, unsure)
        for w, lam, losses, slope, own, along, off, wide in zip(*parts, strict=True):
            bar = slope / (-lam * n)
            s = problem.g.reach(bar)
            if not problem.regularizer.strongly_convex:
                s *= max(0.0, 1.0 - wide / (lam * n))
            primal = (losses + 0.5 * off) / n + lam * problem.g.value(w)
            dual = (-0.5 * s * s * own - s * along - off) / n - lam * problem.g.conjugate(s * bar)
            found.append(Certificate(float(primal), float(dual)))
        return found
