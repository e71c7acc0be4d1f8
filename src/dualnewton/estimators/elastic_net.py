"""Least squares with r‖w‖₁ + ½(1 − r)‖w‖²: ElasticNet, and Lasso, which is r = 1."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED

from dualnewton.estimators._base import CertifiedModel, CertifiedRegressor
from dualnewton.interop.parts import Data
from dualnewton.interop.sklearn_objectives import elastic_net
from dualnewton.interop.specification import Specification
from dualnewton.run.result import Result


class ElasticNet(MultiOutputMixin, CertifiedRegressor):
    """Least squares with a penalty that selects features, with a certificate for each output.

        min_{w, b}  Σ c_i (x_iᵀw + b − y_i)²/(2 Σ c_i) + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    r = l1_ratio,  w ≥ 0 if ``positive``

    Parameters, attributes and shapes are those of ``sklearn.linear_model.ElasticNet``; what differs or is new:

    Parameters
    ----------
    alpha : float
        The strength of the penalty. Zero, which is least squares, cannot be combined with ``positive``.
    l1_ratio : float
        r: 0 is ridge regression, 1 the Lasso.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    precompute, copy_X, selection
        Accepted and not needed: they choose between ways to run scikit-learn's algorithm.
    max_iter : int, optional
        The most epochs (passes over the data); 1000 if None.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit is done.
    warm_start : bool
        Start from the model and the dual point of the last fit.
    positive : bool
        Whether the coefficients must not be negative.
    random_state : int, RandomState, Generator or None
        None is a fixed seed: equal fits give equal models.
    solver : str
        "auto", "sdna", "sdca", "newton" and "ihs" choose the method. ("sdna" and "sdca" need r < 1, "ihs" r = 0.)
    time_limit : float, optional
        Stop after so many seconds, with the best model so far and its proven gap.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the fit.
    verbose : int
        Show a progress line.
    n_jobs : int, optional
        Threads; the model does not depend on their number.

    Attributes
    ----------
    dual_gap_ : float or array of shape (outputs,)
        P − D, in the units of the objective above.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CertifiedModel._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "precompute": ["boolean", "array-like"],
        "copy_X": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "positive": ["boolean"],
        "selection": [StrOptions({"cyclic", "random"})],
    }
    _multi_output: ClassVar[bool] = True
    __metadata_request__fit: ClassVar[dict[str, str]] = {"check_input": UNUSED}

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        precompute: Any = False,
        max_iter: int | None = 1000,
        copy_X: bool = True,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        solver: str = "auto",
        time_limit: float | None = None,
        callback: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.precompute = precompute
        self.max_iter = max_iter
        self.copy_X = copy_X
        self.tol = tol
        self.warm_start = warm_start
        self.positive = positive
        self.random_state = random_state
        self.selection = selection
        self.solver = solver
        self.time_limit = time_limit
        self.callback = callback
        self.verbose = verbose
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any, sample_weight: Any = None, *, check_input: bool = True) -> ElasticNet:  # noqa: ARG002
        """Fit the model, and prove how good the fit is.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
            CSR and C order are not copied; float32 stays float32.
        y : array of shape (n,) or (n, outputs)
            The targets.
        sample_weight : number or array of shape (n,), optional
            Nonnegative; they count relative to each other.
        check_input : bool
            Accepted and not needed: what is given is always checked.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def _specification(self, n: int) -> Specification:
        return elastic_net(self, n)

    def _take(self, data: Data, results: Sequence[Result]) -> None:
        super()._take(data, results)
        gaps = np.array([result.certificate.gap for result in results])
        alone = len(results) == 1
        self.dual_gap_ = float(gaps[0]) if alone else gaps
        self.n_iter_ = int(self.n_iter_[0]) if alone else list(map(int, self.n_iter_))  # type: ignore[assignment]

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """The coefficients, one row for each output, stored sparsely."""
        return sp.csr_array(np.atleast_2d(self.coef_))


class Lasso(ElasticNet):
    """Least squares with the penalty alpha‖w‖₁: :class:`ElasticNet` with ``l1_ratio=1``, and its other parameters."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {**ElasticNet._parameter_constraints}
    _parameter_constraints.pop("l1_ratio")

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        precompute: Any = False,
        copy_X: bool = True,
        max_iter: int | None = 1000,
        tol: float = 1e-4,
        warm_start: bool = False,
        positive: bool = False,
        random_state: Any = None,
        selection: str = "cyclic",
        solver: str = "auto",
        time_limit: float | None = None,
        callback: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            alpha,
            l1_ratio=1.0,
            fit_intercept=fit_intercept,
            precompute=precompute,
            max_iter=max_iter,
            copy_X=copy_X,
            tol=tol,
            warm_start=warm_start,
            positive=positive,
            random_state=random_state,
            selection=selection,
            solver=solver,
            time_limit=time_limit,
            callback=callback,
            verbose=verbose,
            n_jobs=n_jobs,
        )
