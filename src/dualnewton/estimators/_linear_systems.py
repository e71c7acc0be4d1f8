"""Linear systems of least squares without a penalty: normal equations, a decomposition of X, products with X.

Each class has ``shortest`` (w of each output), ``duals`` (α of each output: the residuals) and ``model`` (w with its intercept).
Targets have one column for each output, and are where the rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.estimators._validation import Examples
from dualnewton.losses.rounding import DOUBLE
from dualnewton.matrix import linear
from dualnewton.objective.conjugate_gradients import Effort
from dualnewton.objective.moments import Moments, origin_of
from dualnewton.objective.newton_systems import CentredSystems
from dualnewton.objective.unpenalised import CLOSE, ORTHOGONAL, Unpenalised, unit_factor
from dualnewton.row_arrays import column_sums, on_host, some_columns

CENTRED = 1e-6
"""Sum of squares of a centred feature, as a fraction of that of the feature, below which normal equations lose its digits."""

ACCURATE = 1e-8
"""Smallest reciprocal condition number of X: a decomposition of the factor of its normal equations computes the singular values
up to a multiple of the unit roundoff times the largest."""

PLAIN = 1e-6
"""Ratio of the smallest to the largest eigenvalue of a matrix from which on their roots are accurate singular values."""

BLOCK = 64
"""Columns of Householder reflections that LAPACK applies together: the workspace has room for this many."""

TOGETHER = 8
"""Outputs whose conjugate gradients share passes: each needs a column of margins."""

REFINED = 3
"""Systems that are solved at most by conjugate gradients, each for what the one before has left."""

UNMET = 0.25
"""Fraction of what the dual constraint allows up to which residuals are orthogonal to the features."""


class Solved:
    """The solution of each output, with the residuals."""

    W: np.ndarray  # (K, d)
    rest: Any  # (n, K)
    means: tuple[np.ndarray, np.ndarray]  # of the features and of the targets; zero without an intercept

    def shortest(self) -> np.ndarray:
        """Return the least-squares solution w of each output."""
        return self.W

    def duals(self) -> list[np.ndarray]:
        """Return α of each output: the residuals, orthogonal to all features."""
        return [some_columns(self.rest, k) for k in range(self.rest.shape[1])]

    def model(self, w: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """Return w of output k with its intercept."""
        return w, float(self.means[1][k] - self.means[0] @ w)


class NormalEquations(Solved):
    """Σ c_i (x_i − m)(x_i − m)ᵀw = Σ c_i (x_i − m)(y_i − ȳ), for many more rows than features: one pass sums both sides.

    Rounding errors in w are those of the decomposition of X, times its condition number. A second solve with the residuals as
    right-hand side removes them; this needs a moderate condition number. The scales of the features do not count: the
    matrix is factorised with a unit diagonal.

    Features that are linear combinations of others, X = X_S (I C) up to their order, are left out of the equations. Of all w with
    the same predictions, those of w_S + C w_T = v, the shortest is (I C)ᵀ(I + CCᵀ)⁻¹v.

    Attributes
    ----------
    singular : array of shape (d,)
        The singular values of the centred, weighted X; empty if X is sparse.
    rank : int
        The number of those that are not zero.
    """

    def __init__(
        self,
        data: Examples,
        means: tuple[np.ndarray, np.ndarray],
        cross: np.ndarray,
        factor: Factor,
        singular: np.ndarray,
    ) -> None:
        X, c, Y = data.matrix, data.sample_weight, data.y
        self.means, self.rank, self.singular = means, len(factor.scale), singular
        W = factor.solved(cross)
        rest = (Y - np.asarray(means[1], like=Y)) - (X.times(W) - np.asarray(means[0] @ W, like=Y))
        mass = rest if c is None else c[:, None] * rest
        more = factor.solved(X.transposed_times(mass) - np.multiply.outer(means[0], on_host(mass.sum(axis=0))))
        self.W, self.rest = (W + more).T, rest - (X.times(more) - np.asarray(means[0] @ more, like=Y))

    @classmethod
    def of(cls, data: Examples, objective: Unpenalised) -> NormalEquations | None:
        """Sum over the rows; return None if the features are nearly dependent, or depend on others without a proof.

        The certificate of the solution needs the same proof.
        """
        X, free = data.matrix, objective.fit_intercept
        kept = np.arange(X.d)
        if X.capabilities.whole:
            if (proof := objective.independence) is None:
                return None
            kept = kept if proof.kept is ... else proof.kept[proof.kept < X.d]
        c = X.ones() if data.sample_weight is None else data.sample_weight
        moments = Moments.of(X, data.y, c, origin_of(X, c, shift=free))
        second, cross, mean, target_mean = moments.centred(fit_intercept=free)
        if not np.all(second.diagonal()[kept] > CENTRED * moments.gram.diagonal()[kept]):
            return None
        if (factor := Factor.of(second, kept)) is None:
            return None
        own = second.diagonal()[kept]
        if not X.profile.sparse and not own.min(initial=np.inf) > ACCURATE**2 * own.max(initial=0.0):
            return None
        singular = np.zeros(0) if X.profile.sparse else factor.singular(second)
        if singular.size and not singular[len(kept) - 1] > ACCURATE * singular[0]:
            return None
        return cls(data, (mean, target_mean), cross, factor, singular)


class RowEquations(Solved):
    """The shortest solution w = Xᵀv for fewer rows than features, from XXᵀ of centred rows: X then fits all targets.

    Rounding errors are those of :class:`NormalEquations`, and so is the condition.

    Attributes
    ----------
    singular : array of shape (n,)
        The singular values of the centred, weighted X; the last is zero with an intercept.
    rank : int
        The number of those that are not zero.
    """

    def __init__(self, dense: _Dense, singular: np.ndarray, rank: int) -> None:
        self.means, self.singular, self.rank, self.rest = dense.means, singular, rank, dense.Y
        self.W = np.zeros((dense.Y.shape[1], dense.rows.shape[1]))

    @classmethod
    def of(cls, data: Examples, *, fit_intercept: bool) -> RowEquations | None:
        """Multiply the rows with each other and solve; return None if they are nearly dependent."""
        from scipy.linalg.lapack import dpotrf, dpotrs

        dense = _Dense.of(data, fit_intercept=fit_intercept)
        A, Y, s = dense.rows - dense.means[0] if fit_intercept else dense.rows, dense.Y - dense.means[1], dense.s
        K = A @ A.T if s is None else s[:, None] * (A @ A.T) * s
        singular, rank = np.zeros(len(K)), len(K) - fit_intercept
        values = np.linalg.eigvalsh(K)[::-1]
        if not (rank and values[rank - 1] > PLAIN * values[0]):
            return None
        singular[:rank] = np.sqrt(values[:rank])
        if fit_intercept:  # the centred rows depend on each other: Aᵀ√c = 0
            along = np.ones(len(K)) if s is None else s
            K += np.outer(along, values[0] / float(along @ along) * along)
        L, made = dpotrf(K, lower=True)[0], cls(dense, singular, rank)
        made.rest = Y
        for _ in range(2):  # the second solution removes the rounding errors of the first
            v = dpotrs(L, made.rest if s is None else s[:, None] * made.rest, lower=True)[0]
            made.W += (v if s is None else s[:, None] * v).T @ A
            made.rest = Y - A @ made.W.T
        return made


class Factor(NamedTuple):
    """A factor of the matrix H of normal equations, from some features S of which all others are combinations."""

    # The Cholesky factor of D(scale) H_S D(scale), whose diagonal is one.
    L: np.ndarray
    scale: np.ndarray
    # S, and the other features T.
    kept: np.ndarray
    others: np.ndarray
    combined: np.ndarray  # (|S|, |T|) C
    inner: np.ndarray  # Cholesky factor of I + CCᵀ

    @classmethod
    def of(cls, H: np.ndarray, kept: np.ndarray) -> Factor | None:
        """Factorise H; return None if H_S is nearly singular."""
        from scipy.linalg.lapack import dpotrf

        others = np.setdiff1d(np.arange(len(H)), kept, assume_unique=True)
        own = H[np.ix_(kept, kept)] if others.size else H
        if (factor := unit_factor(own)) is None:
            return None
        made = cls(*factor, kept, others, np.zeros((len(kept), 0)), np.zeros((0, 0)))
        if not others.size:
            return made
        C = made._independent(H[np.ix_(kept, others)])
        return made._replace(combined=C, inner=dpotrf(np.eye(len(kept)) + C @ C.T, lower=True)[0])

    def _independent(self, right: np.ndarray) -> np.ndarray:
        """Return the solution of H_S v = right."""
        from scipy.linalg.lapack import dpotrs

        return np.asarray(self.scale[:, None] * dpotrs(self.L, self.scale[:, None] * right, lower=True)[0])

    def solved(self, right: np.ndarray) -> np.ndarray:
        """Return the shortest solution of Hw = right."""
        from scipy.linalg.lapack import dpotrs

        if not self.others.size:
            return self._independent(right)
        v = dpotrs(self.inner, self._independent(right[self.kept]), lower=True)[0]
        w = np.empty(right.shape)
        w[self.kept], w[self.others] = v, self.combined.T @ v
        return w

    def singular(self, H: np.ndarray) -> np.ndarray:
        """Return the roots of the eigenvalues of H, with zeros for the features in T."""
        own = H.diagonal()  # between the smallest and the largest eigenvalue
        if not self.others.size and own.min() > PLAIN * own.max():
            values = np.linalg.eigvalsh(H)[::-1]
            if values[-1] > PLAIN * values[0]:
                return np.sqrt(values)
        root = self.L.T / self.scale  # the factor of H_S itself
        found = np.zeros(len(self.kept) + len(self.others))
        found[: len(root)] = np.linalg.svd(np.hstack([root, root @ self.combined]), compute_uv=False)
        return found


class _Dense(NamedTuple):
    """All rows as a dense array, the targets, the roots of the weights, and the weighted means of rows and targets."""

    rows: np.ndarray
    Y: np.ndarray
    s: np.ndarray | None
    means: tuple[np.ndarray, np.ndarray]  # zero without an intercept

    @classmethod
    def of(cls, data: Examples, *, fit_intercept: bool) -> _Dense:
        """Gather the rows in memory."""
        rows, Y, c = linear.to_dense(data.matrix.rows(slice(None))), on_host(data.y), on_host(data.sample_weight)
        s = None if c is None else np.sqrt(c)
        if not fit_intercept:
            return cls(rows, Y, s, (np.zeros(rows.shape[1]), np.zeros(Y.shape[1])))
        shares = np.empty(len(rows))
        shares[:] = 1.0 / len(rows) if c is None else c / c.sum()
        return cls(rows, Y, s, (shares @ rows, shares @ Y))


class Spectrum(NamedTuple):
    """UΣVᵀ without the singular values that are rounding, which ``singular`` has as well."""

    U: np.ndarray
    singular: np.ndarray
    V: np.ndarray


class Decomposition:
    """The equations √c_i (x_i − m)ᵀw = √c_i (y_i − ȳ), and the decomposition QUΣVᵀ of their matrix A = Q R.

    With an intercept the first column of Q is √c, scaled to norm one, so that the columns of QU are orthogonal to it. Subtracting
    the means m is not enough: it leaves rounding errors along √c, which division by small singular values would magnify.

    The decomposition of R is computed when it is asked for: nonnegative solutions do not need it.
    """

    def __init__(
        self, A: np.ndarray, B: np.ndarray, s: np.ndarray | None, means: tuple[np.ndarray, np.ndarray], *, first: int
    ) -> None:
        """Factorise A, whose first column is √c if ``first`` is 1."""
        self.s, self.means, self.first, self.reflectors, self.rows = s, means, first, None, len(A)
        columns, tall, self.R = A.shape[1], A.shape[0] >= A.shape[1], A[:, first:]
        if tall or first:
            from scipy.linalg.lapack import dgeqrf

            self.reflectors = dgeqrf(A if tall else A[:, :first], lwork=BLOCK * columns, overwrite_a=tall)[:2]
            self.R = _upper(self.reflectors[0][:columns])[:, first:] if tall else self._turned(self.R, "T")
        if first:
            self._remove_constants()
        self.right = self._turned(B, "T")

    def _remove_constants(self) -> None:
        """Remove the part of each feature along √c from R.

        Only rounding errors are left of a constant feature: of those of its mean, which are a multiple of √c. They would count as
        a feature of their own if no other one had a larger singular value.
        """
        squares, along = np.add.reduce(np.square(self.R[1:])), np.square(self.R[0])
        self.R[0] = 0.0
        # NaN and ∞ count as features.
        if np.count_nonzero(rounding := np.sqrt(squares) <= self._roundoff * np.sqrt(squares + along)):
            self.R[:, rounding] = 0.0

    @property
    def _roundoff(self) -> float:
        """Rounding errors of R, as a fraction of its norm."""
        return 2.0 * DOUBLE * max(self.rows, self.R.shape[1])

    @cached_property
    def spectrum(self) -> Spectrum:
        """The singular value decomposition of R."""
        U, values, V = np.linalg.svd(self.R[self.first :], full_matrices=False)
        padded, singular = np.zeros((len(U) + self.first, U.shape[1])), np.zeros(min(self.R.shape))
        padded[self.first :], singular[: len(values)] = U, values
        level = self._roundoff * float(singular.max(initial=0.0))
        rank = int(np.count_nonzero(singular > level))
        return Spectrum(padded[:, :rank], singular, V[:rank])

    @property
    def singular(self) -> np.ndarray:
        """The singular values Σ."""
        return self.spectrum.singular

    @property
    def rank(self) -> int:
        """The number of singular values above rounding."""
        return len(self.spectrum.V)

    def _turned(self, columns: np.ndarray, which: str) -> np.ndarray:
        """Return Qᵀ ("T") or Q ("N") times columns, where Q is stored as a product of n×n reflections.

        With more features than rows the only reflection, if any, is that of √c.
        """
        if self.reflectors is None:
            return columns.copy()
        from scipy.linalg.lapack import dormqr

        return np.asarray(dormqr("L", which, *self.reflectors, columns, BLOCK * (columns.shape[1] + BLOCK + 1))[0])

    @classmethod
    def of(cls, data: Examples, *, fit_intercept: bool) -> Decomposition:
        """Build the system; with an intercept the rows are centred by their weighted mean."""
        rows, Y, s, means = _Dense.of(data, fit_intercept=fit_intercept)
        A = np.ones((len(rows), rows.shape[1] + fit_intercept), order="F")
        B = np.subtract(Y, means[1], order="F")
        np.subtract(rows, means[0], out=A[:, int(fit_intercept) :])
        if s is not None:
            A, B = np.multiply(s[:, None], A, out=A), s[:, None] * B
        return cls(A, B, s, means, first=int(fit_intercept))

    def shortest(self) -> np.ndarray:
        """Return the least-squares solution of smallest norm for each output.

        A second solution, for what the first leaves, removes its rounding errors: where features of different scales fit all
        targets, these would otherwise be most of the residuals.
        """
        right = self.right[: len(self.R)]
        W = self._solved(right)
        return W + self._solved(right - self.R @ W.T)

    def _solved(self, right: np.ndarray) -> np.ndarray:
        """Return VΣ⁻¹Uᵀ times each column, as a row."""
        U, singular, V = self.spectrum
        return np.asarray(((U.T @ right).T / singular[: len(V)]) @ V)

    def duals(self) -> np.ndarray:
        """Return α of each output: the residuals, orthogonal to all features."""
        rest, U = self.right.copy(), self.spectrum.U
        rest[: self.first] = 0.0
        spanned = rest[: len(U)]
        for _ in range(2):  # the second projection removes the rounding errors of the first
            spanned -= U @ (U.T @ spanned)
        rest = self._turned(rest, "N")
        if self.s is None:
            return np.ascontiguousarray(rest.T)
        roots = np.where(self.s > 0.0, self.s, 1.0)[:, None]  # a row of weight zero has no effect
        return np.ascontiguousarray((rest * (self.s > 0.0)[:, None] / roots).T)

    def nonnegative(self, k: int) -> tuple[np.ndarray, float]:
        """Return the nonnegative least-squares solution of output k with its intercept, from R, since RᵀR = AᵀA.

        Features are scaled to norms in [1/2, 1) by powers of two, without rounding: with very different norms ``nnls`` may
        exchange features for ever, and raises ``RuntimeError``.
        """
        from scipy.optimize import nnls

        scales = np.ldexp(1.0, -np.frexp(np.linalg.norm(self.R, axis=0))[1])
        return self.model(scales * nnls(self.R * scales, self.right[: len(self.R), k])[0], k)

    def model(self, w: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """Return w of output k with its intercept."""
        return w, float(self.means[1][k] - self.means[0] @ w)


def _upper(M: np.ndarray) -> np.ndarray:
    """Return the upper triangle of a square matrix, with zeros below; ``np.triu`` takes several times as long for a small one."""
    each = np.arange(len(M))
    return np.where(each[:, None] <= each, M, 0.0)


class ByProducts(Solved):
    """The normal equations by conjugate gradients, which need no matrix of the features.

    Like those of :class:`NormalEquations` the solutions are refined by the residuals of the rows themselves.

    Attributes
    ----------
    met : bool
        Whether these are orthogonal to the features.
    """

    def __init__(self, data: Examples, objectives: Sequence[Unpenalised], most: int) -> None:
        """Solve by at most so many conjugate gradients; ``objectives`` has one for each output."""
        X, c, Y = data.matrix, data.sample_weight, data.y
        systems = CentredSystems.of(X, c, intercept=objectives[0].fit_intercept)
        target = on_host(column_sums(Y if c is None else c[:, None] * Y)) / (systems.mass or np.inf)
        self.means, self.W, self.rest = (systems.mean, target), np.zeros((Y.shape[1], X.d)), Y
        effort, nothing = Effort(most), X.n * np.array([each.view.zero for each in objectives])
        for solved in range(REFINED + 1):
            centre = target - self.W @ systems.mean
            self.rest = Y - np.asarray(centre, like=Y) - (X.times(np.ascontiguousarray(self.W.T)) if solved else 0.0)
            mass = self.rest if c is None else c[:, None] * self.rest
            right = X.transposed_times(mass).T - np.multiply.outer(on_host(column_sums(mass)), systems.mean)
            sizes = np.sqrt(on_host(column_sums(np.square(mass))))
            allowed = np.multiply.outer(sizes, X.feature_norms)
            fits = 0.5 * on_host(column_sums(mass * self.rest)) <= nothing
            unmet = (np.abs(right) > UNMET * ORTHOGONAL * allowed).any(axis=1) & ~fits
            self.met = not (
                unmet.any() or effort.is_over()
            )  # limits may end a system before its solution is the shortest
            if self.met or solved == REFINED or effort.is_over():
                break
            for low in range(0, len(right), TOGETHER):
                own = np.flatnonzero(unmet[low : low + TOGETHER]) + low
                self.W[own] += systems.centred(right[own], CLOSE * allowed[own], effort)
