"""Least squares of several outputs that share their features: MultiTaskElasticNet, and MultiTaskLasso, which is r = 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar

import scipy.sparse as sp
from sklearn.base import MultiOutputMixin
from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedRegressor, stacked
from dualnewton.estimators._parameters import estimator
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import multi_task
from dualnewton.interop.specification import Words
from dualnewton.run.result import Result


@estimator
class MultiTaskModel(MultiOutputMixin, CertifiedRegressor):
    """Base of the multi-task estimators: a matrix of targets, and ``coef_`` of shape (outputs, d) for any number of them.

    Parameters
    ----------
    copy_X, selection
        Accepted and ignored: they are settings of scikit-learn's algorithm.
    random_state : int, RandomState, Generator or None
        Accepted and ignored: the method uses no random numbers.
    solver : str
        "auto" or "newton": the one method for these problems is block coordinate descent with Newton steps.

    Attributes
    ----------
    dual_gap_ : float
        P − D, in the units of the objective above.
    eps_ : float
        tol · P, the gap that was allowed.
    """

    _words: ClassVar[Words] = staticmethod(multi_task)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "copy_X": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "selection": [StrOptions({"cyclic", "random"})],
    }
    _multi_output: ClassVar[bool] = True

    copy_X: bool = True  # noqa: N815
    selection: str = "cyclic"

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        data = super()._checked(X, y, sample_weight)
        if data.y.ndim == 1:
            name = type(self).__name__.removeprefix("MultiTask")
            raise DualnewtonError(
                f"y must have shape (n, outputs), got {data.y.shape}. For mono-task outputs, use {name}"
            )
        return data

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        # One result for all outputs; without a penalty, which alone joins them, one for each.
        self.coef_, intercept = stacked(results, data.X.dtype)
        self.intercept_ = intercept if self.fit_intercept else 0.0  # a number, as in scikit-learn
        self.dual_coef_ = self.dual_coef_.reshape(len(data.y), -1)
        self.dual_gap_ = sum([result.certificate.gap for result in results])
        self.eps_ = self.tol * sum([abs(result.certificate.primal) for result in results])
        self.n_iter_ = max(self.n_iter_.tolist())

    @property
    def sparse_coef_(self) -> sp.csr_array:
        """The coefficients, one row for each output, stored sparsely."""
        return sp.csr_array(self.coef_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.single_output = False
        return tags


@estimator
class MultiTaskElasticNet(MultiTaskModel):
    """Least squares of several outputs with a penalty that selects features for all of them, with a certificate.

        min_{W, b}  Σ c_i ‖W x_i + b − y_i‖²/(2 Σ c_i) + alpha (r Σ_j ‖W_j‖ + ½(1 − r)‖W‖²),    r = l1_ratio,

    where ‖W_j‖ is the Euclidean norm of the coefficients of feature j in all outputs. One certificate covers all outputs
    together.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.MultiTaskElasticNet``; differences and additions:

    Parameters
    ----------
    alpha : float
        The strength of the penalty. Zero is least squares for each output, each with its certificate.
    l1_ratio : float
        r: 0 is ridge regression, 1 the multi-task Lasso.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_linnerud
    >>> X, y = load_linnerud(return_X_y=True)  # three outputs
    >>> model = dn.MultiTaskElasticNet(alpha=1.0, l1_ratio=0.5).fit(X, y)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((3, 3), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
    }

    alpha: float = field(default=1.0, kw_only=False)
    l1_ratio: float = 0.5


@estimator
class MultiTaskLasso(MultiTaskElasticNet):
    """Least squares of several outputs with the penalty alpha Σ_j ‖W_j‖: :class:`MultiTaskElasticNet` with ``l1_ratio=1``.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_linnerud
    >>> X, y = load_linnerud(return_X_y=True)  # three outputs
    >>> model = dn.MultiTaskLasso(alpha=1.0).fit(X, y)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((3, 3), True)
    """

    l1_ratio: float = field(default=1.0, init=False)
