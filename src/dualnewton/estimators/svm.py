"""Support vector machines: LinearSVC and LinearSVR, with the plain and the squared losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier, CertifiedModel, CertifiedRegressor
from dualnewton.estimators._parameters import estimator
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import linear_svc, linear_svr
from dualnewton.interop.specification import Specification, Words
from dualnewton.run.result import Result


@estimator
class SupportVectorMachine(CertifiedModel):
    """Base of the classifier and the regressor.

    Parameters
    ----------
    C : float
        The inverse of the strength of the penalty.
    dual : bool or "auto"
        Accepted and ignored: primal and dual are always solved together.
    intercept_scaling : float
        Accepted and ignored: the intercept is not penalised.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "dual": ["boolean", StrOptions({"auto"})],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
    }
    _strength: ClassVar[str] = "C"
    _weakens: ClassVar[bool] = True

    C: float = 1.0
    dual: bool | str = "auto"
    intercept_scaling: float = 1.0

    def _fit(self, data: Examples, before: Sequence[Result] | None) -> Any:
        super()._fit(data, before)
        # One integer, as in scikit-learn, at most max_iter: the fraction of an epoch that a sketch takes is not counted.
        most = int(self.n_iter_.max())
        self.n_iter_ = most if self.max_iter is None else min(most, self.max_iter)
        return self


@estimator
class LinearSVC(SupportVectorMachine, CertifiedClassifier):
    """Linear support vector classification, with a certificate for each class against the rest.

        min_{w, b}  C Σ c_i max(0, 1 − y_i (x_iᵀw + b))^p + ½‖w‖²  or  + ‖w‖₁,    p = 1 for "hinge", 2 for "squared_hinge"

    P is this objective divided by pCn. The intercept b is *not* penalised. scikit-learn adds ½(b/intercept_scaling)²; the two
    models converge to each other as ``intercept_scaling`` grows, and agree without an intercept.

    Parameters, attributes and shapes are those of ``sklearn.svm.LinearSVC``; differences and additions:

    Parameters
    ----------
    penalty : {"l2", "l1"}
        ½‖w‖² or ‖w‖₁, with either loss.
    loss : {"squared_hinge", "hinge"}
        The loss.
    multi_class : {"ovr"}
        One class against the rest; "crammer_singer" is refused.
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows. With more than two classes the weight of a class applies to the
        problem of this class against the rest, as in scikit-learn; the rest has weight one.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.LinearSVC(loss="hinge", C=0.1).fit(X, y)
    >>> model.score(X, y) > 0.95, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [StrOptions({"l1", "l2"})],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "multi_class": [StrOptions({"ovr", "crammer_singer"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    penalty: str = field(default="l2", kw_only=False)
    loss: str = field(default="squared_hinge", kw_only=False)
    multi_class: str = "ovr"
    class_weight: Any = None

    def _specification(self, n: int) -> Specification:
        if self.multi_class == "crammer_singer":
            raise DualnewtonError(
                'multi_class must be "ovr", got "crammer_singer": its loss couples the classes and has no certificate here; '
                "use the softmax loss of LogisticRegression for classes that are fitted jointly"
            )
        return linear_svc(self, n)

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if not self.fit_intercept:
            self.intercept_: Any = 0.0  # one number for all classes, as in scikit-learn


@estimator
class LinearSVR(SupportVectorMachine, CertifiedRegressor):
    """Linear support vector regression, with a certificate.

        min_{w, b}  C Σ c_i max(0, |x_iᵀw + b − y_i| − epsilon)^p + ½‖w‖²,    p = 1, or 2 for "squared_epsilon_insensitive"

    P is this objective divided by pCn. The intercept b is *not* penalised; scikit-learn adds ½(b/intercept_scaling)². With
    epsilon = 0 the plain loss is the absolute error.

    Parameters, attributes and shapes are those of ``sklearn.svm.LinearSVR``; differences and additions:

    Parameters
    ----------
    epsilon : float
        Half the width of the tube in which residuals cost nothing.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}
        The loss.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.LinearSVR(C=10.0, epsilon=5.0).fit(X, y)
    >>> model.certificate_.relative_gap <= 1e-4
    True
    """

    _words: ClassVar[Words] = staticmethod(linear_svr)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "loss": [StrOptions({"epsilon_insensitive", "squared_epsilon_insensitive"})],
    }

    epsilon: float = 0.0
    loss: str = "epsilon_insensitive"

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if self.fit_intercept:
            self.intercept_ = np.atleast_1d(self.intercept_)  # of shape (1,), as in scikit-learn
