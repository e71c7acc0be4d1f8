"""Least squares with r‖w‖₁ + ½(1 − r)‖w‖²: ElasticNet, and Lasso, which is r = 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import MultiOutputMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED

from dualnewton.estimators._base import CertifiedRegressor
from dualnewton.estimators._parameters import estimator
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import elastic_net
from dualnewton.interop.specification import Words
from dualnewton.planning.working_sets import selects_features
from dualnewton.regularizers import mixed
from dualnewton.run.path import solve_path
from dualnewton.run.result import Result


@estimator
class ElasticNetModel(CertifiedRegressor):
    """Base of the elastic net and its cross-validation.

    Parameters
    ----------
    precompute, copy_X, selection
        Accepted and ignored: they are settings of scikit-learn's algorithm.
    positive : bool
        Whether the coefficients must not be negative.

    Attributes
    ----------
    dual_gap_ : float or array of shape (outputs,)
        P − D, in the units of the objective above.
    """

    _words: ClassVar[Words] = staticmethod(elastic_net)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "precompute": ["boolean", "array-like"],
        "copy_X": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "positive": ["boolean"],
        "selection": [StrOptions({"cyclic", "random"})],
    }

    precompute: Any = False
    copy_X: bool = True  # noqa: N815
    positive: bool = False
    selection: str = "cyclic"

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        gaps, alone = [result.certificate.gap for result in results], len(results) == 1
        self.dual_gap_ = gaps[0] if alone else np.array(gaps)
        self.n_iter_ = int(self.n_iter_[0]) if alone else list(map(int, self.n_iter_))

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """The coefficients, one row for each output, stored sparsely."""
        return sp.csr_array(np.atleast_2d(self.coef_))


@estimator
class ElasticNet(MultiOutputMixin, ElasticNetModel):
    """Least squares with a penalty that selects features, with a certificate for each output.

        min_{w, b}  Σ c_i (x_iᵀw + b − y_i)²/(2 Σ c_i) + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    r = l1_ratio,  w ≥ 0 if ``positive``

    Parameters, attributes and shapes are those of ``sklearn.linear_model.ElasticNet``; differences and additions:

    Parameters
    ----------
    alpha : float
        The strength of the penalty. Zero, which is least squares, cannot be combined with ``positive``.
    l1_ratio : float
        r: 0 is ridge regression, 1 the Lasso.
    solver : str
        "auto", "sdna", "sdca", "newton" and "ihs" choose the method ("sdna" and "sdca" need r < 1, "ihs" r = 0).

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.ElasticNet(alpha=0.1, l1_ratio=0.9).fit(X, y)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((10,), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    }
    _multi_output: ClassVar[bool] = True
    __metadata_request__fit: ClassVar[dict[str, str]] = {"check_input": UNUSED}

    alpha: float = field(default=1.0, kw_only=False)
    l1_ratio: float = 0.5

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, check_input: bool = True) -> Self:  # noqa: ARG002
        """Fit the model, and prove how good the fit is.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d), or Dataset
            CSR and C-ordered arrays are not copied; float32 stays float32. A data set that ``data.open`` has opened stays on
            disk.
        y : array of shape (n,) or (n, outputs)
            The targets; if None, those of the data set.
        sample_weight : number or array of shape (n,), optional
            Nonnegative; only their ratios matter.
        check_input : bool
            Accepted and ignored: the arguments are always checked.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    def _path_results(self, data: Examples, values: np.ndarray) -> list[list[Result]] | None:
        if self.solver != "auto" or self.callback is not None or self.verbose or not np.all(values > 0.0):
            return None
        specification = self._specification(data.X.shape[0])
        problems = self._posed(specification.with_some_penalty(), data)
        if not selects_features(problems[0]):
            return None
        lams = [mixed(float(value), self.l1_ratio, positive=self.positive)[0] for value in values]
        limits: dict[str, Any] = {
            "max_epochs": 1000 if self.max_iter is None else self.max_iter,
            "time_limit": self.time_limit,
        }
        each = [solve_path(problem, lams, tol=self.tol, tuning=self._tuning, **limits) for problem in problems]
        return [list(of_value) for of_value in zip(*each, strict=True)]


@estimator
class Lasso(ElasticNet):
    """Least squares with the penalty alpha‖w‖₁: :class:`ElasticNet` with ``l1_ratio=1``, and its other parameters.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.Lasso(alpha=1.0).fit(X, y)
    >>> int((model.coef_ != 0).sum()), model.certificate_.relative_gap <= 1e-4
    (3, True)
    """

    l1_ratio: float = field(default=1.0, init=False)
