"""Least squares without a penalty: LinearRegression."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, NoReturn

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedRegressor
from dualnewton.estimators._linear_systems import (
    CENTRED,
    ByProducts,
    Decomposition,
    NormalEquations,
    RowEquations,
    Solved,
)
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.estimators._validation import Examples
from dualnewton.interop.sklearn_objectives import linear_regression
from dualnewton.interop.specification import Words
from dualnewton.losses import Squared
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.unpenalised import NonNegativeUnpenalised, Unpenalised
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import begins_by_products, direct_plan, multiplies_rows, sums_normal_equations
from dualnewton.row_arrays import some_columns
from dualnewton.run.result import Result, direct_result
from dualnewton.run.track import proved
from dualnewton.solvers.direct.active_set import solution
from dualnewton.solvers.direct.nonnegative import nonnegative

EXPANDED = 1 << 24
"""Largest number of entries of a sparse X that is made dense and decomposed."""

DECOMPOSED, SUMMED, BY_ROWS, MULTIPLIED, ACTIVE = (
    "least squares by a singular value decomposition of X",
    "least squares by the normal equations of well-conditioned features, refined once",
    "least squares by the products of all pairs of rows, fewer than features, refined once",
    "least squares by conjugate gradients on the normal equations",
    "nonnegative least squares by an active set",
)
"""The reasons in the plan."""


@estimator
class LinearRegression(MultiOutputMixin, CertifiedRegressor):
    """Least squares, with a certificate for each output.

        min_{w, b}  Σ c_i (x_iᵀw + b − y_i)²,    w ≥ 0 if ``positive``

    Where several w attain the minimum (features that depend on each other, more features than rows) the one with the smallest
    norm is returned. Data with at least as many rows as features are solved by their normal equations, and dense ones with fewer
    by the products of their rows, if these are well-conditioned; others, and small data, by a decomposition of X, for which
    sparse data are made dense if n·d ≤ 2²⁴. Sparse data for which a d×d matrix costs
    more are first solved by conjugate gradients, as are all data for which neither is possible (at most 1000 of them).

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

    def _fit(self, data: Examples, before: Sequence[Result] | None) -> Any:
        with one_blas_thread:  # decompositions outside of runs: their last bits depend on the number of threads of BLAS
            return super()._fit(data, before)

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
        if sparse:
            matrix = prepared(matrix, compiled=not is_small(session.tuning, n, d), tuning=session.tuning)
        first = kind(matrix, some_columns(targets, 0), loss, **more)
        others = range(1, targets.shape[1])
        objectives = [first, *(first.with_target(some_columns(targets, k)) for k in others)]
        given, data = data, data._replace(X=matrix, y=matrix.placed(targets), sample_weight=first.unit.sample_weight)
        if self.positive:
            return self._nonnegative(data, objectives)
        sums = sums_normal_equations(matrix.profile, session.tuning)
        expands = whole and (not sparse or n * d <= EXPANDED)
        last = not (sums or expands or first.view.is_small)
        if most := begins_by_products(matrix.profile, session.tuning, expands=expands, last=last):
            products = ByProducts(data, objectives, most)
            if last or products.met:
                found = self._solutions(objectives, products, MULTIPLIED, projects=False)
                if last or all(result.converged for result in found):
                    return found
        summed: NormalEquations | RowEquations | None = None
        by_rows = whole and multiplies_rows(matrix.profile, session.tuning)
        if sums or by_rows:
            summed = NormalEquations.of(data, first) if sums else RowEquations.of(data, fit_intercept=free)
        if summed is None and not expands:
            return super()._results(session, given, before)
        system = summed or Decomposition.of(data, fit_intercept=free)
        if not sparse:
            self.rank_, self.singular_ = system.rank, system.singular.astype(data.X.dtype)
        found = self._solutions(objectives, system, (BY_ROWS if by_rows else SUMMED) if summed else DECOMPOSED)
        if summed and expands and not all(result.converged for result in found):
            found = self._solutions(objectives, Decomposition.of(data, fit_intercept=free), DECOMPOSED)
        return found

    def _solutions(
        self,
        objectives: Sequence[Unpenalised],
        system: Solved | Decomposition,
        reason: str,
        *,
        projects: bool = True,
    ) -> list[Result]:
        """Certify the solution of each output by its residuals.

        They are orthogonal to the features up to rounding errors of large means and scales. Where these matter, a projection of
        the residuals of rows in memory removes them, if ``projects``.
        """
        models = [system.model(w, k) for k, w in enumerate(system.shortest())]
        found = list[Result]()
        for objective, model, alpha in zip(objectives, models, system.duals(), strict=True):
            result = self._result(objective, objective.certified_pair(*model, alpha), reason)
            if projects and not result.converged and objective.data.capabilities.whole:
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
                system = system or Decomposition.of(data, fit_intercept=self.fit_intercept)
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
