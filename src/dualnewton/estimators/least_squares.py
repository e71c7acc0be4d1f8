"""Least squares without a penalty: LinearRegression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedRegressor
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.estimators._validation import Examples
from dualnewton.interop.sklearn_objectives import linear_regression
from dualnewton.interop.specification import Words
from dualnewton.losses import Squared
from dualnewton.matrix import linear
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.moments import Moments, origin_of
from dualnewton.objective.unpenalised import NonNegativeUnpenalised, Unpenalised
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import direct_plan, sums_normal_equations
from dualnewton.row_arrays import on_host, some_columns
from dualnewton.run.result import Result, direct_result
from dualnewton.run.track import proved
from dualnewton.solvers.direct.active_set import solution
from dualnewton.solvers.direct.nonnegative import nonnegative

EXPANDED = 1 << 24
"""Largest number of entries of a sparse X that is made dense and decomposed; a larger X is solved by Newton's method."""

DECOMPOSED, SUMMED, ACTIVE = (
    "least squares by a singular value decomposition of X",
    "least squares by the normal equations of well-conditioned features, refined once",
    "nonnegative least squares by an active set",
)
"""The reasons in the plan."""

CENTRED = 1e-6
"""Sum of squares of a centred feature, as a fraction of that of the feature, below which normal equations lose its digits."""

WELL, ACCURATE = 1e-9, 1e-8
"""Smallest reciprocal condition number, in the 1-norm, of normal equations with unit diagonal, and of X without its scaling: a
decomposition of their factor computes the singular values up to a multiple of the unit roundoff times the largest."""

BLOCK = 64
"""Columns of Householder reflections that LAPACK applies together: the workspace has room for this many."""


@estimator
class LinearRegression(MultiOutputMixin, CertifiedRegressor):
    """Least squares, with a certificate for each output.

        min_{w, b}  Σ c_i (x_iᵀw + b − y_i)²,    w ≥ 0 if ``positive``

    Where several w attain the minimum (features that depend on each other, more features than rows) the one with the smallest
    norm is returned. Data with many more rows than features, and sparse data, are solved by their normal equations if these are
    well-conditioned, other data, sparse ones with n·d ≤ 2²⁴, by a decomposition of X.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.LinearRegression``; differences and additions:

    Parameters
    ----------
    copy_X : bool
        Accepted and ignored: X is never changed.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit has converged; usually the gap is of the order of rounding.
        (scikit-learn leaves out singular values below ``tol`` times the largest; here only those of the order of rounding are
        left out.)
    positive : bool
        Whether the coefficients must not be negative.

    Attributes
    ----------
    rank_ : int
        The rank of the (centred, weighted) X, if X was decomposed.
    singular_ : array of shape (min(n, d),)
        Its singular values.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.LinearRegression().fit(X, y)
    >>> round(model.score(X, y), 3), model.certificate_.relative_gap <= 1e-6
    (0.518, True)
    """

    _words: ClassVar[Words] = staticmethod(linear_regression)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"copy_X": ["boolean"], "positive": ["boolean"]}
    _multi_output: ClassVar[bool] = True
    _keeps_dense: ClassVar[bool] = True  # rank_ and singular_ are those of dense rows

    copy_X: bool = True  # noqa: N815
    tol: float = 1e-6
    positive: bool = False
    # Inherited parameters that this estimator does not have.
    solver: str = field(default="auto", init=False)
    max_iter: int | None = field(default=None, init=False)
    time_limit: float | None = field(default=None, init=False)
    callback: Any = field(default=None, init=False)
    random_state: Any = field(default=None, init=False)
    verbose: int = field(default=0, init=False)
    warm_start: bool = field(default=False, init=False)

    def _results(self, session: Session, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        n, d = data.X.shape
        for name in ("rank_", "singular_"):  # left by an earlier fit
            self.__dict__.pop(name, None)
        matrix = data.matrix
        sparse, whole = matrix.profile.sparse, matrix.capabilities.whole
        if self.positive and not whole:
            raise DualnewtonError(
                f"positive=True decomposes all rows at once, but {matrix.capabilities.reason}: "
                "use Ridge(alpha, positive=True) with a small alpha"
            )
        free, kind = self.fit_intercept, NonNegativeUnpenalised if self.positive else Unpenalised
        more: dict[str, Any] = {"sample_weight": data.sample_weight, "fit_intercept": free}
        loss, targets = Squared(), data.y.reshape(n, -1)
        sums = not self.positive and sums_normal_equations(matrix.profile, session.tuning)
        if sums and sparse:
            matrix = prepared(matrix, compiled=not is_small(session.tuning, n, d), tuning=session.tuning)
        first = kind(matrix, some_columns(targets, 0), loss, **more)
        others = range(1, targets.shape[1])
        objectives = [first, *(first.with_target(some_columns(targets, k)) for k in others)]
        if self.positive:
            return self._nonnegative(data, objectives)
        summed = _NormalEquations.of(data._replace(X=matrix), first) if sums else None
        if summed is None and (not whole or (sparse and n * d > EXPANDED)):
            return super()._results(session, data, before)
        system = summed or _System.of(data, fit_intercept=free)
        if not sparse:
            self.rank_, self.singular_ = system.rank, system.singular.astype(data.X.dtype)
        found = self._solutions(objectives, system, SUMMED if summed else DECOMPOSED)
        if summed and whole and n * d <= EXPANDED and not all(result.converged for result in found):
            found = self._solutions(objectives, _System.of(data, fit_intercept=free), DECOMPOSED)
        return found

    def _solutions(
        self, objectives: Sequence[Unpenalised], system: _NormalEquations | _System, reason: str
    ) -> list[Result]:
        """Certify the solution of each output by its residuals.

        They are orthogonal to the features up to rounding errors of large means and scales. Where these matter, a projection of
        the residuals of rows in memory removes them.
        """
        models = [system.model(w, k) for k, w in enumerate(system.shortest())]
        found = list[Result]()
        for objective, model, alpha in zip(objectives, models, system.duals(), strict=True):
            result = self._result(objective, objective.certified_pair(*model, alpha), reason)
            if not result.converged and objective.data.capabilities.whole:
                result = self._result(objective, objective.certified_pair(*model), reason)
            found.append(result)
        return found

    def _nonnegative(self, data: Examples, objectives: Sequence[Unpenalised]) -> list[Result]:
        """Solve by normal equations, or where these have lost too many digits by a factor of X."""
        found, system = list[Result](), None
        for k, objective in enumerate(objectives):
            model, result = _nonnegative_model(objective), None
            # The residuals are orthogonal to the features in use, but for rounding, which a projection reduces.
            for given in () if model is None else (model, model[:2]):
                result = self._result(objective, objective.certified_pair(*given), ACTIVE)
                if result.converged:
                    break
            if result is None or not result.converged:
                system = system or _System.of(data, fit_intercept=self.fit_intercept)
                result = self._result(objective, objective.certified_pair(*system.nonnegative(k)), ACTIVE)
            found.append(result)
        return found

    def _result(self, objective: Unpenalised, pair: CertifiedPair, reason: str) -> Result:
        return direct_result(proved(objective, pair, self.tol), self.tol, direct_plan(objective.unit, reason))

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if data.y.ndim == 2:  # even if it has one column, as in scikit-learn
            self.coef_ = np.atleast_2d(self.coef_)

    def path(self, X: Any, y: Any, values: Any, *, sample_weight: Any = None) -> NoReturn:  # noqa: ARG002
        """Raise an error: there is no penalty to vary."""
        raise DualnewtonError("path needs a penalty, which LinearRegression does not have: use Ridge or Lasso")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not self.positive
        return tags

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        if self.positive and sp.issparse(X):
            raise TypeError(
                "Sparse data was passed for X, but dense data is required with positive=True: use X.toarray()"
            )
        return super()._checked(X, y, sample_weight)


def _nonnegative_model(objective: Unpenalised) -> tuple[np.ndarray, float, np.ndarray] | None:
    """Return nonnegative w with its intercept and residuals, from the normal equations, refined once.

    None if these have lost too many digits.
    """
    view, unit, d = objective.view, objective.unit, objective.d
    G = view.constant_hessian
    edge, corner = (G[:d, d], float(G[d, d])) if view.with_one else (np.zeros(d), 1.0)
    H = G[:d, :d] - np.outer(edge, edge / corner)
    if not np.all(H.diagonal() > CENTRED * G.diagonal()[:d]):
        return None

    def sides(values: np.ndarray) -> tuple[np.ndarray, float]:
        """Σ c_i (x_i − m) v_i, and the mean of v."""
        sums = view.gradient(values)[0]
        mean = float(sums[d]) / corner if view.with_one else 0.0
        return sums[:d] - mean * edge, mean

    q, mean = sides(unit.y)
    if (w := nonnegative(H, q)) is None:
        return None
    used = w.nonzero()[0]
    if used.size:
        rest, _ = sides(unit.y - unit.margins(w, mean - float(edge @ w) / corner))
        w[used] = np.maximum(w[used] + solution(H[np.ix_(used, used)], rest[used]), 0.0)
    intercept = mean - float(edge @ w) / corner
    return w, intercept, unit.y - unit.margins(w, intercept)


class _NormalEquations:
    """Σ c_i (x_i − m)(x_i − m)ᵀw = Σ c_i (x_i − m)(y_i − ȳ), for many more rows than features: one pass sums both sides.

    Rounding errors in w are those of the decomposition of X, times its condition number. A second solve with the residuals as
    right-hand side removes them; this needs a moderate condition number (``WELL``). The scales of the features do not count: the
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
        factor: _Factor,
        singular: np.ndarray,
    ) -> None:
        X, c, Y = data.matrix, data.sample_weight, data.y.reshape(len(data.y), -1)
        self.means, self.rank, self.singular = means, len(factor.scale), singular
        W = factor.solved(cross)
        rest = (Y - np.asarray(means[1], like=Y)) - (X.times(W) - np.asarray(means[0] @ W, like=Y))
        mass = rest if c is None else c[:, None] * rest
        more = factor.solved(X.transposed_times(mass) - np.multiply.outer(means[0], on_host(mass.sum(axis=0))))
        self.W, self.rest = W + more, rest - (X.times(more) - np.asarray(means[0] @ more, like=Y))

    @classmethod
    def of(cls, data: Examples, objective: Unpenalised) -> _NormalEquations | None:
        """Sum over the rows; return None if the features are nearly dependent, or depend on others without a proof.

        The certificate of the solution needs the same proof.
        """
        X, n, free = data.matrix, len(data.y), objective.fit_intercept
        kept = np.arange(X.d)
        if X.capabilities.whole:
            if (proof := objective.independence) is None:
                return None
            kept = kept if proof.kept is ... else proof.kept[proof.kept < X.d]
        c = X.ones() if data.sample_weight is None else data.sample_weight
        moments = Moments.of(X, data.y.reshape(n, -1), c, origin_of(X, c, shift=free))
        second, cross, mean, target_mean = moments.centred(fit_intercept=free)
        if not np.all(second.diagonal()[kept] > CENTRED * moments.gram.diagonal()[kept]):
            return None
        if (factor := _Factor.of(second, kept)) is None:
            return None
        singular = np.zeros(0) if X.profile.sparse else factor.singular()
        if singular.size and not singular[len(kept) - 1] > ACCURATE * singular[0]:
            return None
        return cls(data, (mean, target_mean), cross, factor, singular)

    def shortest(self) -> np.ndarray:
        """Return the least-squares solution w of each output."""
        return self.W.T

    def duals(self) -> list[np.ndarray]:
        """Return α of each output: the residuals, orthogonal to all features."""
        return [some_columns(self.rest, k) for k in range(self.rest.shape[1])]

    def model(self, w: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """Return w of output k with its intercept."""
        return w, float(self.means[1][k] - self.means[0] @ w)


class _Factor(NamedTuple):
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
    def of(cls, H: np.ndarray, kept: np.ndarray) -> _Factor | None:
        """Factorise H; return None if H_S is nearly singular."""
        from scipy.linalg.lapack import dpocon, dpotrf

        others = np.setdiff1d(np.arange(len(H)), kept, assume_unique=True)
        own = H[np.ix_(kept, kept)] if others.size else H
        scale = 1.0 / np.sqrt(own.diagonal())
        scaled = own * np.outer(scale, scale)
        L, failed = dpotrf(scaled, lower=True, clean=True)
        if failed or not dpocon(L, float(np.abs(scaled).sum(axis=0).max(initial=0.0)), uplo="L")[0] > WELL:
            return None
        made = cls(L, scale, kept, others, np.zeros((len(kept), 0)), np.zeros((0, 0)))
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

    def singular(self) -> np.ndarray:
        """Return the roots of the eigenvalues of H, with zeros for the features in T."""
        root = self.L.T / self.scale  # the factor of H_S itself
        found = np.zeros(len(self.kept) + len(self.others))
        found[: len(root)] = np.linalg.svd(np.hstack([root, root @ self.combined]), compute_uv=False)
        return found


class _Spectrum(NamedTuple):
    """UΣVᵀ without the singular values that are rounding, which ``singular`` has as well."""

    U: np.ndarray
    singular: np.ndarray
    V: np.ndarray


class _System:
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
            self.R = np.triu(self.reflectors[0][:columns])[:, first:] if tall else self._turned(self.R, "T")
        if first:
            self._remove_constants()
        self.right = self._turned(B, "T")

    def _remove_constants(self) -> None:
        """Remove the part of each feature along √c from R.

        Only rounding errors are left of a constant feature: of those of its mean, which are a multiple of √c. They would count as
        a feature of their own if no other one had a larger singular value.
        """
        sizes = np.linalg.norm(self.R, axis=0)
        self.R[0] = 0.0
        self.R[:, np.linalg.norm(self.R, axis=0) <= self._roundoff * sizes] = 0.0

    @property
    def _roundoff(self) -> float:
        """Rounding errors of R, as a fraction of its norm."""
        return float(np.finfo(float).eps) * max(self.rows, self.R.shape[1])

    @cached_property
    def spectrum(self) -> _Spectrum:
        """The singular value decomposition of R."""
        U, values, V = np.linalg.svd(self.R[self.first :], full_matrices=False)
        padded, singular = np.zeros((len(U) + self.first, U.shape[1])), np.zeros(min(self.R.shape))
        padded[self.first :], singular[: len(values)] = U, values
        level = self._roundoff * float(singular.max(initial=0.0))
        rank = int(np.count_nonzero(singular > level))
        return _Spectrum(padded[:, :rank], singular, V[:rank])

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
    def of(cls, data: Examples, *, fit_intercept: bool) -> _System:
        """Build the system; with an intercept the rows are centred by their weighted mean."""
        rows, Y = linear.to_dense(data.matrix.rows(slice(None))), data.y.reshape(len(data.y), -1)
        (n, d), c = rows.shape, data.sample_weight
        means = np.zeros(d), np.zeros(Y.shape[1])
        if fit_intercept:
            shares = np.full(n, 1.0 / n) if c is None else c / c.sum()
            means = shares @ rows, shares @ Y
        A, B = np.ones((n, d + fit_intercept), order="F"), np.subtract(Y, means[1], order="F")
        np.subtract(rows, means[0], out=A[:, int(fit_intercept) :])
        s = None if c is None else np.sqrt(c)
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
        """Return the nonnegative least-squares solution of output k with its intercept, from R, since RᵀR = AᵀA."""
        from scipy.optimize import nnls

        return self.model(np.asarray(nnls(self.R, self.right[: len(self.R), k])[0]), k)

    def model(self, w: np.ndarray, k: int) -> tuple[np.ndarray, float]:
        """Return w of output k with its intercept."""
        return w, float(self.means[1][k] - self.means[0] @ w)
