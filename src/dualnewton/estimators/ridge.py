"""Least squares with ½‖w‖²: Ridge, and RidgeClassifier on labels ±1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import MultiOutputMixin
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier, CertifiedModel, CertifiedRegressor, solver_names
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session, starts
from dualnewton.estimators._validation import Examples, checked, distinct
from dualnewton.estimators.least_squares import LinearRegression
from dualnewton.interop.sklearn_objectives import ridge, ridge_classifier
from dualnewton.interop.specification import Specification, Words
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.planning.direct import decomposes
from dualnewton.run.result import Result

SOLVERS = ("svd", "cholesky", "lsqr", "sparse_cg", "sag", "saga", "lbfgs")
"""scikit-learn's names, which all mean "auto"."""

UNCOUNTED = ("auto", "svd", "cholesky", "sparse_cg", "lbfgs")
"""Names for which scikit-learn's ``n_iter_`` is None."""


@estimator
class RidgeModel(CertifiedModel):
    """Base of the regressor and the classifier: the parameters, and least squares for each output or class.

    P(w, b) = (1/n) Σ ½ c_i (a_iᵀw + b − y_i)² + (alpha/2n)‖w‖², which is scikit-learn's objective divided by 2n.

    Parameters
    ----------
    alpha : float or array of shape (outputs,)
        The strength of the penalty.
    copy_X : bool
        Accepted and ignored: X is never changed.
    solver : str
        "auto", "sdna", "sdca", "newton" and "ihs" choose the method; scikit-learn's names mean "auto".
    positive : bool
        Whether the coefficients must not be negative.

    Attributes
    ----------
    n_iter_ : None or array of shape (outputs,)
        The epochs of each output if ``solver`` is a method of this library or one of scikit-learn's that counts iterations
        ("lsqr", "sag", "saga"); otherwise None, as in scikit-learn. ``trace_`` always has the epochs.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left"), "array-like"],
        "copy_X": ["boolean"],
        "max_iter": [Interval(Integral, 1, None, closed="left"), None],
        "positive": ["boolean"],
        "solver": solver_names(*SOLVERS),
    }
    _words: ClassVar[Words] = staticmethod(ridge)
    """The function from the parameters to the specification."""

    alpha: Any = field(default=1.0, kw_only=False)
    copy_X: bool = True  # noqa: N815
    max_iter: int | None = None
    positive: bool = False

    def _specification(self, n: int) -> Specification:
        if not (isinstance(self.alpha, float) and 0.0 <= self.alpha < np.inf):
            alphas = np.ravel(np.asarray(self.alpha, dtype=np.float64))
            if not np.all((alphas >= 0.0) & (alphas < np.inf)):
                raise DualnewtonError(f"alpha must be finite and >= 0, got {self.alpha!r}")
        return super()._specification(n)

    def _fit(self, data: Examples, before: Sequence[Result] | None) -> Any:
        super()._fit(data, before)
        # The name that the user gave, if any; plan_ has the method that ran.
        self.solver_ = self.plan_.method if self.solver == "auto" else self.solver
        if self.solver in UNCOUNTED:
            self.n_iter_ = None
        return self

    def _solved(self, session: Session, problems: Sequence[Any], before: Sequence[Result] | None) -> list[Result]:
        """Solve problems that have a penalty: directly, with one certificate, if that is cheap."""
        n, d = problems[0].n, problems[0].d
        if self.positive or session.method != "auto" or not decomposes(n, d, session.tuning):
            return session.solve(problems, starts(problems, before))
        return session.solve(problems, starts(problems, before), method="newton")

    def _solved_freely(
        self, session: Session, data: Examples, problems: Sequence[Any], before: Sequence[Result] | None
    ) -> list[Result]:
        """Solve problems without their penalty as LinearRegression does: more accurately for features that nearly depend."""
        unlimited = session.deadline == np.inf and session.callback is None  # that solution is not interrupted
        if session.method != "auto" or not (unlimited and data.matrix.capabilities.whole):
            return super()._solved_freely(session, data, problems, before)
        free = LinearRegression(fit_intercept=self.fit_intercept, tol=self.tol)
        targets = np.column_stack([problem.y for problem in problems])
        with one_blas_thread:
            return free._results(session, data._replace(y=targets, sample_weight=problems[0].sample_weight), None)


@estimator
class Ridge(RidgeModel, MultiOutputMixin, CertifiedRegressor):
    """Ridge regression, with a certificate for each output.

        min_{w, b}  Σ c_i (x_iᵀw + b − y_i)² + alpha ‖w‖²,    w ≥ 0 if ``positive``

    Parameters, attributes and shapes are those of ``sklearn.linear_model.Ridge``.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.Ridge(alpha=1.0).fit(X, y)
    >>> round(model.score(X, y), 3), model.certificate_.relative_gap <= 1e-4
    (0.451, True)
    """

    _multi_output: ClassVar[bool] = True


@estimator
class RidgeClassifier(RidgeModel, CertifiedClassifier):
    """Ridge regression on labels ±1, one class against the rest; with several labels per row, one model per label.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.RidgeClassifier``; differences and additions:

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.RidgeClassifier().fit(X, y)
    >>> model.score(X, y) > 0.95, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    class_weight: Any = None
    _words: ClassVar[Words] = staticmethod(ridge_classifier)

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        data = checked(self, X, y, sample_weight, multi_output=True)
        if data.y.ndim == 1 and data.y.dtype.kind == "i":
            classes, numbers = distinct(data.y)
            # scikit-learn warns of more classes, which may be targets of a regression.
            if 2 * len(classes) <= len(numbers):
                self.classes_, self.multilabel_ = classes, False
                return data._replace(y=numbers)
        check_classification_targets(data.y)
        labels = LabelBinarizer().fit(data.y)
        self.classes_, self.multilabel_ = labels.classes_, labels.y_type_.startswith("multilabel")
        if self.multilabel_:
            return data
        return data._replace(y=np.searchsorted(self.classes_, column_or_1d(data.y, warn=True)))

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        if not self.fit_intercept:
            self.intercept_: Any = 0.0  # one number for all classes, as in scikit-learn

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row; with several labels per row, a row of zeros and ones."""
        check_is_fitted(self)
        return (self.decision_function(X) > 0.0).astype(int) if self.multilabel_ else super().predict(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags
