"""Any loss and any regulariser, of the library or your own: ERMClassifier and ERMRegressor."""

from __future__ import annotations

from dataclasses import field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import (
    CertifiedClassifier,
    CertifiedModel,
    CertifiedRegressor,
    log_probabilities,
    probabilities,
)
from dualnewton.estimators._devices import computed_on_host
from dualnewton.estimators._parameters import estimator
from dualnewton.interop.names import PENALTIES
from dualnewton.interop.specification import CLASSES, NUMBERS, RELATIVE, REST, Specification, among
from dualnewton.losses import Logistic, Loss
from dualnewton.regularizers import Regularizer


@estimator
class ERMModel(CertifiedModel):
    """Base of ERMClassifier and ERMRegressor: the parameters and the problem that they define.

    P(w, b) = Σ c_i φ(a_iᵀw + b; y_i) / Σ c_i + λ g(w). Only ratios of weights matter: a weight of two equals a repeated row, a
    weight of zero a removed row.

    Parameters
    ----------
    regularizer : Regularizer or str
        g: an object, such as ``regularizers.ElasticNet(0.3)`` or your own, or the name of one of the library's, such as "l2".
    lam : float, optional
        λ > 0; 1/Σ c_i by default, which is 1/n without weights.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "loss": [str, Loss],
        "regularizer": [str, Regularizer],
        "lam": [Interval(Real, 0, None, closed="neither"), None],
    }
    _strength: ClassVar[str] = "lam"
    _targets: ClassVar[str] = NUMBERS

    loss: Any = field(default="squared", kw_only=False)
    regularizer: Any = field(default="l2", kw_only=False)
    lam: float | None = field(default=None, kw_only=False)
    tol: float = 1e-6

    def _specification(self, n: int) -> Specification:  # noqa: ARG002
        if isinstance(self.regularizer, str):
            among("regularizer", self.regularizer, PENALTIES)
        columns = getattr(self.loss, "columns", 1)
        if columns > 1:
            raise DualnewtonError(
                f"loss must have one margin per example, got {self.loss!r} with {columns}: use LogisticRegression for softmax"
            )
        several = len(getattr(self, "classes_", ())) > 2
        return Specification(
            self.loss,
            self.lam,
            self.regularizer,
            fit_intercept=self.fit_intercept,
            multiclass=REST if several else None,
            targets=self._targets,
            weights=RELATIVE,
            class_weight=getattr(self, "class_weight", None),
        )


@estimator
class ERMClassifier(ERMModel, CertifiedClassifier):
    """Empirical risk minimisation for classification, with a certificate for each class against the rest.

        min_{w, b}  Σ c_i φ(x_iᵀw + b; y_i) / Σ c_i + λ g(w),    y_i = ±1

    Parameters
    ----------
    loss : Loss or str
        φ: an object, such as ``losses.SmoothHinge(0.5)`` or your own, or the name of one of the library's, such as
        "logistic", "squared_hinge" or "hinge".
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.ERMClassifier("smooth_hinge", lam=0.01).fit(X, y)
    >>> model.score(X, y) > 0.95, model.certificate_.relative_gap <= 1e-6
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _targets: ClassVar[str] = CLASSES

    loss: Any = field(default="logistic", kw_only=False)
    class_weight: Any = None

    def _has_probabilities(self) -> bool:
        if self.loss != "logistic" and not isinstance(self.loss, Logistic):
            raise AttributeError(f"only the logistic loss has probabilities, got loss={self.loss!r}")
        return True

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, if the loss is logistic; normalised for more than two classes."""
        return probabilities(self.decision_function(X))

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of :meth:`predict_proba`."""
        return computed_on_host(log_probabilities, self.decision_function(X))


@estimator
class ERMRegressor(ERMModel, MultiOutputMixin, CertifiedRegressor):
    """Empirical risk minimisation for regression, with a certificate for each output.

        min_{w, b}  Σ c_i φ(x_iᵀw + b; y_i) / Σ c_i + λ g(w)

    Parameters
    ----------
    loss : Loss or str
        φ: an object, such as ``losses.Huber(0.5)`` or your own, or the name of one of the library's, such as "squared",
        "huber" or "epsilon_insensitive".

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.ERMRegressor(dn.losses.Huber(delta=50.0), lam=0.001).fit(X, y)
    >>> model.certificate_.relative_gap <= 1e-6
    True
    """

    _multi_output: ClassVar[bool] = True
