"""Logistic regression: two classes, several by softmax, or one class against the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.special import log_softmax, softmax
from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton._warning import warn
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier, log_probabilities, probabilities, solver_names
from dualnewton.estimators._devices import computed_on_host
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import NAMED, logistic_regression
from dualnewton.interop.specification import Specification, Words
from dualnewton.planning.eligible import methods_for
from dualnewton.planning.planner import METHODS
from dualnewton.run.result import Result

SOLVERS = ("lbfgs", "liblinear", "newton-cg", "newton-cholesky", "sag", "saga")
"""scikit-learn's names, which all mean "auto"."""


@estimator
class LogisticRegression(CertifiedClassifier):
    """Logistic regression, with a certificate.

        min_{w, b}  C Σ c_i log(1 + exp(−y_i (x_iᵀw + b))) + ½(1 − r)‖w‖² + r‖w‖₁,    r = ``l1_ratio``, c_i the weights

    for two classes. For more the loss is log Σ_k exp(z_ik) − z_{i,y_i} (softmax) and the penalty that of all w_k together, or it
    is this problem for each class against the rest. P is the objective divided by Cn.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.LogisticRegression``; differences and additions:

    Parameters
    ----------
    penalty : {"l1", "l2", "elasticnet", None}
        The parameter of scikit-learn up to 1.7; by default ``l1_ratio`` and ``C`` define the penalty.
    C : float
        The inverse of the strength of the penalty; infinity means no penalty.
    l1_ratio : float
        r ∈ [0, 1], the share of ‖w‖₁ in the penalty.
    dual : bool
        Accepted and ignored: primal and dual are always solved together.
    fit_intercept : bool
        Whether b is free (unpenalised, also with ``solver="liblinear"``) or zero.
    intercept_scaling : float
        Accepted and ignored: the intercept is not penalised.
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows.
    solver : str
        "auto", "sdna", "sdca", "newton" and "ihs" choose the method; scikit-learn's names mean "auto". Softmax has "ihs" if
        ``l1_ratio`` = 0, and "newton" if ``l1_ratio`` > 0 or there are at most 4000 coefficients in all.
    multi_class : {"auto", "multinomial", "ovr"}
        The model of more than two classes: softmax ("auto", "multinomial") or one class against the rest ("ovr").

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.LogisticRegression(C=1.0).fit(X, y)
    >>> round(model.score(X, y), 3), model.certificate_.relative_gap <= 1e-4
    (0.988, True)
    """

    _words: ClassVar[Words] = staticmethod(logistic_regression)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "deprecated"}), None],
        "C": [Interval(Real, 0, None, closed="right")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), None],
        "dual": ["boolean"],
        "intercept_scaling": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "solver": solver_names(*SOLVERS),
        "multi_class": [StrOptions({"auto", "multinomial", "ovr"})],
    }
    _strength: ClassVar[str] = "C"
    _weakens: ClassVar[bool] = True

    penalty: str | None = field(default="deprecated", kw_only=False)
    C: float = 1.0
    l1_ratio: float | None = 0.0
    dual: bool = False
    intercept_scaling: float = 1.0
    class_weight: Any = None
    solver: str = "lbfgs"
    max_iter: int | None = 100
    multi_class: str = "auto"

    def _results(self, session: Session, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        """Warn of values of ``penalty``, ``C`` and ``l1_ratio`` that contradict each other, and solve."""
        if self.penalty == "elasticnet" and self.l1_ratio is None:
            raise DualnewtonError('l1_ratio must be a number in [0, 1] with penalty="elasticnet", got None')
        if self.penalty is None and self.C != 1.0:
            warn(f"Setting penalty=None will ignore the C parameter, got C={self.C:g}: it means C=inf")
        if self.penalty in NAMED and self.l1_ratio not in (None, 0, NAMED[self.penalty]):
            warn(
                f"l1_ratio parameter is only used when penalty is 'elasticnet'. Got (penalty={self.penalty}) with "
                f"l1_ratio={self.l1_ratio:g}"
            )
        return super()._results(session, data, before)

    def _sums_to_zero(self) -> bool:
        """Whether the best coefficients of softmax sum to zero over the classes: true if the penalty has no ‖w‖₁."""
        words = logistic_regression(self, 1)
        return words.lam == 0.0 or words.penalty == "l2"

    def _posed(self, specification: Specification, data: Examples) -> Sequence[Any]:
        problems = super()._posed(specification, data)
        if specification.is_softmax:
            (problem,) = problems[:1]
            own = ("auto", *methods_for(problem))
            if self.solver in METHODS and self.solver not in own:
                ridge = problem.regularizer.form.is_quadratic
                share = "l1_ratio = 0" if ridge else "l1_ratio > 0"
                other = ', or multi_class="ovr", which also has "sdna" and "sdca"' if ridge else ""
                raise DualnewtonError(
                    f"solver must be one of {', '.join(map(repr, own))} for {len(self.classes_)} classes of {problem.d} features "
                    f"with the softmax loss and {share}, got {self.solver!r}: use one of these{other}"
                )
        return problems

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if self._is_softmax:
            # The losses depend on differences between classes only. As in scikit-learn, intercepts sum to zero, and
            # coefficients do if the penalty is smallest there.
            self.intercept_ -= self.intercept_.mean()
            if self._sums_to_zero():
                self.coef_ -= self.coef_.mean(axis=0)

    @property
    def _is_softmax(self) -> bool:
        return len(self.classes_) > 2 and self.multi_class != "ovr"

    # Probabilities -----------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class, by the logistic function or softmax; normalised for one against the rest."""
        z = self.decision_function(X)
        return computed_on_host(partial(softmax, axis=1), z) if self._is_softmax else probabilities(z)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of :meth:`predict_proba`, in which tiny probabilities keep their relative accuracy."""
        z = self.decision_function(X)
        return computed_on_host(partial(log_softmax, axis=1) if self._is_softmax else log_probabilities, z)
