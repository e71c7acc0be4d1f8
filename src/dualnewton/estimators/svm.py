"""Support vector machines: LinearSVC and LinearSVR, with the plain and the squared losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier, CertifiedModel, CertifiedRegressor
from dualnewton.interop.parts import Data
from dualnewton.interop.sklearn_objectives import linear_svc, linear_svr
from dualnewton.interop.specification import Specification
from dualnewton.run.result import Result

SHARED: dict[str, list[Any]] = {
    **CertifiedModel._parameter_constraints,
    "C": [Interval(Real, 0, None, closed="neither")],
    "dual": ["boolean", StrOptions({"auto"})],
    "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
}


class LinearSVC(CertifiedClassifier):
    """Linear support vector classification, with a certificate for each class against the rest.

        min_{w, b}  C Σ c_i max(0, 1 − y_i (x_iᵀw + b))^p + ½‖w‖²  or  + ‖w‖₁,    p = 1 for "hinge", 2 for "squared_hinge"

    P is this divided by pCn. The intercept b is *not* penalised. That of scikit-learn is, by ½(b/intercept_scaling)²; the two
    tend to each other as ``intercept_scaling`` grows there, and agree without an intercept. The hinge is followed by smooth
    neighbours until the certificate of the hinge itself meets ``tol``.

    Parameters, attributes and shapes are those of ``sklearn.svm.LinearSVC``; what differs or is new:

    Parameters
    ----------
    penalty : {"l2", "l1"}
        ½‖w‖² or ‖w‖₁, with either loss.
    loss : {"squared_hinge", "hinge"}
        The loss.
    dual : bool or "auto"
        Accepted and not needed: primal and dual are always solved together.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit is done.
    C : float
        The inverse of the strength of the penalty.
    multi_class : {"ovr"}
        One class against the rest; "crammer_singer" is refused.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    intercept_scaling : float
        Accepted and not needed: the intercept is not penalised.
    class_weight : dict, "balanced" or None
        Weights of the classes, times those of the rows. With more than two classes the weight of a class counts
        where it stands against the rest, as in scikit-learn; the rest has weight one.
    max_iter : int
        The most epochs (passes over the data).
    solver : str
        "auto", "sdna", "sdca", "newton" or "ihs".
    random_state : int, RandomState, Generator or None
        None is a fixed seed: equal fits give equal models.
    time_limit : float, optional
        Stop after so many seconds, with the best model so far and its proven gap.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the fit.
    verbose : int
        Show a progress line.
    warm_start : bool
        Start from the model and the dual point of the last fit, which may have had another C.
    n_jobs : int, optional
        Threads; the model does not depend on their number.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SHARED,
        "penalty": [StrOptions({"l1", "l2"})],
        "loss": [StrOptions({"hinge", "squared_hinge"})],
        "multi_class": [StrOptions({"ovr", "crammer_singer"})],
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _strength: ClassVar[str] = "C"
    _weakens: ClassVar[bool] = True

    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: bool | str = "auto",
        tol: float = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        solver: str = "auto",
        time_limit: float | None = None,
        callback: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.penalty = penalty
        self.loss = loss
        self.dual = dual
        self.tol = tol
        self.C = C
        self.multi_class = multi_class
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.solver = solver
        self.time_limit = time_limit
        self.callback = callback
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def _specification(self, n: int) -> Specification:
        if self.multi_class == "crammer_singer":
            raise DualnewtonError(
                'multi_class must be "ovr", got "crammer_singer": its loss couples the classes and has no certificate here; '
                "use the softmax loss of LogisticRegression for classes that are fitted jointly"
            )
        return linear_svc(self, n)

    def _take(self, data: Data, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if not self.fit_intercept:
            self.intercept_: Any = 0.0  # one number for all classes, as in scikit-learn
        self.n_iter_ = _one_number(results, self.max_iter)


class LinearSVR(CertifiedRegressor):
    """Linear support vector regression, with a certificate.

        min_{w, b}  C Σ c_i max(0, |x_iᵀw + b − y_i| − epsilon)^p + ½‖w‖²,    p = 1, or 2 for "squared_epsilon_insensitive"

    P is this divided by pCn. The intercept b is *not* penalised; that of scikit-learn is, by ½(b/intercept_scaling)². The plain
    loss is approximated by smoothed losses until the certificate of the loss itself meets ``tol``; with epsilon = 0 it is the
    absolute error.

    Parameters, attributes and shapes are those of ``sklearn.svm.LinearSVR``; see :class:`LinearSVC` for what differs.

    Parameters
    ----------
    epsilon : float
        Half the width of the tube in which residuals cost nothing.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}
        The loss.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SHARED,
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "loss": [StrOptions({"epsilon_insensitive", "squared_epsilon_insensitive"})],
    }
    _strength: ClassVar[str] = "C"
    _weakens: ClassVar[bool] = True

    def __init__(
        self,
        *,
        epsilon: float = 0.0,
        tol: float = 1e-4,
        C: float = 1.0,
        loss: str = "epsilon_insensitive",
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        dual: bool | str = "auto",
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        solver: str = "auto",
        time_limit: float | None = None,
        callback: Any = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.tol = tol
        self.C = C
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.dual = dual
        self.verbose = verbose
        self.random_state = random_state
        self.max_iter = max_iter
        self.solver = solver
        self.time_limit = time_limit
        self.callback = callback
        self.warm_start = warm_start
        self.n_jobs = n_jobs

    def _specification(self, n: int) -> Specification:
        return linear_svr(self, n)

    def _take(self, data: Data, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if self.fit_intercept:
            self.intercept_ = np.atleast_1d(self.intercept_)  # of shape (1,), as in scikit-learn
        self.n_iter_ = _one_number(results, self.max_iter)


def _one_number(results: Sequence[Result], max_iter: int | None) -> Any:
    """Return the most epochs of a fit, as scikit-learn has it: one number, and at most ``max_iter``."""
    most = max(math.ceil(result.n_epochs) for result in results)
    return most if max_iter is None else min(most, max_iter)  # the part of an epoch that a sketch takes does not count
