"""The base of all estimators: X, y and parameters become problems, and results become a model with its certificate."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, log_expit
from sklearn import get_config
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import LinearClassifierMixin, SparseCoefMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from dualnewton._warning import warn
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._devices import computed_on_host, keep_beside, library_of
from dualnewton.estimators._parameters import are_allowed, estimator
from dualnewton.estimators._path import Path, walk
from dualnewton.estimators._session import METHODS, Session, starts
from dualnewton.estimators._validation import Examples, checked, class_numbers, margins_of, opened
from dualnewton.interop.parts import Objective, Part, parts_of
from dualnewton.interop.specification import Specification, Words
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective.problem import Problem
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.row_arrays import on_host, side_by_side
from dualnewton.run.result import Result, Status

REMEDIES = {
    Status.EPOCH_LIMIT: "To get closer, raise max_iter (now {max_iter}); features of about equal scale often help",
    Status.TIME_LIMIT: "To get closer, raise time_limit (now {time_limit} s)",
    Status.STOPPED_BY_CALLBACK: "With warm_start=True another fit continues from here",
    Status.INTERRUPTED: "With warm_start=True another fit continues from here",
    Status.NO_PROGRESS: "Features of about equal scale, or float64 instead of float32, often help",
    Status.ROUNDING: "Features of about equal scale, float64 data or a larger tol help",
    Status.CONVERGED: "A larger tol accepts this gap",
}
"""Advice for each status in which a fit ends with a gap above ``tol``."""

SLOW = (Status.EPOCH_LIMIT, Status.TIME_LIMIT, Status.NO_PROGRESS)
"""Statuses after which another method may help: rounds of SDNA and SDCA need many epochs if features differ much in scale."""

USELESS = 0.5
"""Relative gap above which a certificate proves little: the minimum may be as low as half of the objective."""


NO_MINIMUM = (
    "The model separates the classes, so that without a penalty no finite optimum exists: larger coefficients always lower the "
    "loss. A finite C gives the problem a minimum."
)
"""The warning if the objective has no minimum."""


def meaning(gap: float) -> str:
    """Return a sentence that says what a relative gap (P − D)/|P| proves about the objective."""
    if gap >= USELESS:
        return "This bound proves little: the minimum may be far below the objective of this model."
    return f"The objective of this model is proved to exceed the minimum by at most {100.0 * gap:.2g} % of its value."


NAMED_VALUES = 5
"""Number of values of a grid that a warning lists."""


def solver_names(*foreign: str) -> list[Any]:
    """Return the constraint on ``solver``: the names of our methods, and scikit-learn's names, which mean "auto"."""
    return [StrOptions({*METHODS, *foreign})]


@estimator
class CertifiedModel(BaseEstimator):
    """A linear model that is fitted by ``solve`` and certified by a duality gap.

    A subclass declares its parameters (see ``_parameters``) and how they are translated into a specification of the objective
    (``_words``); everything else is inherited.

    Parameters
    ----------
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit has converged.
    max_iter : int, optional
        Limit on the epochs (passes over the data); 1000 if None.
    solver : str
        "auto" chooses the method by predicted cost; "sdna", "sdca", "newton", "ihs" and, for piecewise linear losses, "interior"
        name one (docs/choosing-a-method.md).
    time_limit : float, optional
        Limit in seconds; the fit then ends with the best model so far and its proven gap.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the fit.
    verbose : int
        1 shows a progress line.
    warm_start : bool
        Start from the model and the dual point of the last fit, whose penalty may have had another strength.
    random_state : int, RandomState, Generator or None
        None means a fixed seed, so that equal fits give equal models.
    n_jobs : int, optional
        Number of threads. A given solver returns the same bits for any number; "auto" may choose another method for another
        number.
    device : {"cuda"}, optional
        Copy X to an NVIDIA GPU and fit there. Arrays already on a GPU are fitted there without this parameter.

    Attributes
    ----------
    certificate_ : Certificate or list of Certificate
        P, D and the gap of each class or output. The objective is the one in the docstring of the class, divided by a constant;
        values are in double precision, before ``coef_`` is rounded to the precision of X.
    trace_ : Trace or list of Trace
        The certificates computed during the fit.
    dual_coef_ : array of shape (n,) or (n, K)
        The dual point of the certificate.
    plan_ : Plan
        The method that was used, and the reason.
    n_iter_ : array of integers
        Epochs of each class or output, rounded up.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left"), None],
        "solver": solver_names(),
        "time_limit": [Interval(Real, 0, None, closed="left"), None],
        "callback": [callable, None],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "random_state": ["random_state", np.random.Generator],
        "n_jobs": [Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right"), None],
        "device": [StrOptions({"cuda"}), None],
    }
    _iteration_epochs: ClassVar[int] = 1  # epochs for each iteration that max_iter allows
    _keeps_dense: ClassVar[bool] = False  # whether dense rows stay dense, however few entries are nonzero

    fit_intercept: bool = True
    tol: float = 1e-4
    max_iter: int | None = 1000
    solver: str = "auto"
    time_limit: float | None = None
    callback: Any = None
    verbose: int = 0
    warm_start: bool = False
    random_state: Any = None
    n_jobs: int | None = None
    device: str | None = None

    _strength: ClassVar[str] = "alpha"
    """The parameter that varies in :meth:`path`; ``_weakens`` is True if a larger value penalises less."""

    _weakens: ClassVar[bool] = False

    _tuning: ClassVar[Tuning] = DEFAULT
    """The measured rates by which the planner predicts costs; not a parameter."""

    @classmethod
    def _get_param_names(cls) -> list[str]:
        # scikit-learn inspects the signature at each call.
        return list(cls._parameter_names)

    def _validate_params(self) -> None:
        if not are_allowed(self):
            super()._validate_params()  # raises the error in scikit-learn's words

    # Defined by subclasses ---------------------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        """Check the arguments of ``fit``, and set the attributes that depend on them alone (``n_features_in_``, ``classes_``)."""
        raise NotImplementedError

    _words: ClassVar[Words]

    def _specification(self, n: int) -> Specification:
        """Return the specification of the objective on n rows."""
        return type(self)._words(self, n)

    def _path_results(self, data: Examples, values: np.ndarray) -> list[list[Result]] | None:  # noqa: ARG002
        """Return the results for decreasing penalties at once, or None if each must be fitted from the one before."""
        return None

    def _posed(self, specification: Specification, data: Examples) -> Sequence[Any]:
        """Return the problems of a specification on these data, one for each class or output; all share ``data.X``."""
        classes = getattr(self, "classes_", None)
        more = {"sample_weight": data.sample_weight, "offset": data.offset}
        return specification.problems(data.matrix, data.y, classes, **more)

    def _problems(self, data: Examples) -> Sequence[Any]:
        """Return the problems of the estimator, which must have a penalty."""
        return self._posed(self._specification(data.X.shape[0]), data)

    def _results(self, session: Session, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        """Solve the problems, and return one result with a certificate for each.

        ``before`` holds the results of an earlier fit or of a neighbour on a path, if there are any.
        """
        specification = self._specification(data.X.shape[0])
        posed = self._posed(specification.with_some_penalty(), data)
        if specification.is_penalised:
            return self._solved(session, posed, before)
        free = specification.unpenalised(len(posed))
        if getattr(self, "positive", False):
            raise DualnewtonError(
                f"alpha must be > 0 with positive=True, got {self.alpha!r}: without a penalty there is no dual bound"
            )
        # Problems without a penalty have another dual and are solved separately; those with a penalty share passes.
        fits = before is not None and len(before) == len(posed)
        own = [[k for k, is_free in enumerate(free) if is_free == wanted] for wanted in (True, False)]
        without, rest = ([posed[k] for k in places] for places in own)
        earlier = [[before[k] for k in places] if fits and before else None for places in own]
        found = iter(self._solved_freely(session, data, without, earlier[0]))
        others = iter(self._solved(session, rest, earlier[1]) if rest else [])
        return [next(found if is_free else others) for is_free in free]

    def _solved(self, session: Session, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result]:
        """Solve problems that have a penalty."""
        return session.solve(problems, self._starts(problems, before))

    def _solved_freely(
        self,
        session: Session,
        data: Examples,  # noqa: ARG002
        problems: Sequence[Problem],
        before: Sequence[Result] | None,
    ) -> list[Result]:
        """Solve problems without their penalty."""
        return session.solve_unpenalised(problems, before)

    def _starts(self, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
        """Return the warm start of each problem, made from earlier results; None starts at w = 0."""
        return starts(problems, before)

    def _objectives(self, data: Examples) -> Sequence[Objective]:
        """Return the objectives that the certificates bound, one for each class or output."""
        classes, scale = getattr(self, "classes_", None), getattr(self, "scale_", None)
        words = self._specification(data.X.shape[0])
        more: dict[str, Any] = {"sample_weight": data.sample_weight, "offset": data.offset, "scale": scale}
        return words.objectives(data.X, data.y, classes, **more)

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        """Set ``coef_`` and ``intercept_`` in the shapes of the class."""
        raise NotImplementedError

    # Shared ------------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model, and prove how good the fit is.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d), or Dataset
            CSR and C order are not copied; float32 stays float32. A data set that ``data.open`` has opened stays on disk. Arrays
            and CSR matrices of CuPy and tensors of PyTorch stay on their GPU, where the fit is then computed.
        y : array of shape (n,), or (n, outputs) where the class takes several
            Labels or targets; if None, those of the data set.
        sample_weight : number or array of shape (n,), optional
            Nonnegative; a weight of two equals a repeated row, a weight of zero a removed row.

        Returns
        -------
        self
        """
        # scikit-learn's decorator of fit is not used: it would also change and restore its configuration, for estimators that
        # fit others.
        if not (are_allowed(self) or get_config()["skip_parameter_validation"]):
            self._validate_params()
        with one_blas_thread:  # around sums of the checks and the run, which would each set the threads of BLAS
            return self._fit_beside(X, self._checked(X, y, sample_weight))

    def _fit_beside(self, X: Any, data: Examples) -> Self:
        """Fit on checked data, as :meth:`fit` does; move the fitted arrays to the device of X as it was given."""
        self._fit(data, getattr(self, "_fitted", None) if self.warm_start else None)
        return self._beside(X)

    def _beside(self, X: Any) -> Self:
        """Move the fitted arrays to the library and the device of X, if the rows are on one."""
        if self.device is not None or library_of(X) is not None:
            keep_beside(self, X)
        return self

    def _fit(self, data: Examples, before: Sequence[Result] | None) -> Any:
        """Fit on checked data, as :meth:`fit` does, from earlier results if there are any."""
        with Session(self) as session:
            results = self._results(session, data, before)
        return self._adopt(data, results)

    def _adopt(self, data: Examples, results: Sequence[Result]) -> Any:
        """Set what follows from the results: lists for several outputs."""
        self._fitted = results
        first, alone = results[0], len(results) == 1
        self.certificate_: Any = first.certificate if alone else [result.certificate for result in results]
        self.trace_ = first.trace if alone else [result.trace for result in results]
        self.dual_coef_ = first.alpha if alone else side_by_side([result.alpha for result in results])
        self.plan_ = first.plan
        self.n_iter_: Any = np.array([math.ceil(result.n_epochs) for result in results], dtype=np.int32)
        self._take(data, results)
        if True in [result.certificate.relative_gap > self.tol for result in results]:
            self._warn_of_misses(results, unbounded=self._separates(data))
        return self

    def _separates(self, data: Examples) -> bool:
        """Return True if there is no penalty and the model classifies every row rightly with the logistic loss.

        The loss then decreases to 0 along (t w, t b) as t grows, and has no minimum. Called if a certificate misses ``tol``.
        """
        words = self._specification(data.X.shape[0])
        if not words.has_probabilities or words.lam != 0.0:
            return False
        margins = on_host(data.matrix.times(np.atleast_2d(self.coef_).T)) + self.intercept_
        predicted = margins[:, 0] > 0.0 if margins.shape[1] == 1 else margins.argmax(axis=1)
        return data.y.ndim == 1 and bool(np.all(predicted == data.y))

    def _warn_of_misses(self, results: Sequence[Any], names: Sequence[str] = (), *, unbounded: bool = False) -> None:
        """Warn exactly when a certificate misses ``tol``: name the gap, what it proves, the reason, and a remedy.

        ``names`` are the values of a grid, one for each result, which the warning lists; ``unbounded`` means that the
        objective has no minimum.
        """
        gaps = [result.certificate.relative_gap for result in results]
        missed = [k for k, gap in enumerate(gaps) if gap > self.tol]
        if not missed:
            return
        worst = results[max(missed, key=gaps.__getitem__)]
        which = "" if len(results) == 1 else f" in {len(missed)} of {len(results)} fits"
        if values := list(dict.fromkeys(names[k] for k in missed if k < len(names))):
            more = f" and {len(values) - NAMED_VALUES} more" if len(values) > NAMED_VALUES else ""
            which += f" ({', '.join(values[:NAMED_VALUES])}{more})"
        why, gap = worst.status.message.replace("max_epochs", "max_iter"), worst.certificate.relative_gap
        remedy = REMEDIES[worst.status].format(**self.get_params(deep=False))
        if worst.status in SLOW and (solver := getattr(self, "solver", "auto")) in METHODS[1:]:
            remedy += f'. solver="auto" may choose a faster method than "{solver}"'
        warn(
            f"{type(self).__name__} has a certified relative gap of {gap:.2e}, more than tol={self.tol:g}{which}, since {why}. "
            f"{NO_MINIMUM if unbounded else f'{meaning(gap)} {remedy}.'}",
            ConvergenceWarning,
        )

    def path(self, X: Any, y: Any, values: Any, *, sample_weight: Any = None) -> Path:
        """Fit the model for several strengths of its penalty, each started from the previous model, and certify each.

        The estimator itself is not changed.

        Parameters
        ----------
        X, y, sample_weight
            As for :meth:`fit`.
        values : sequence of floats
            Values of ``C`` or ``alpha``, whichever the estimator has, in any order. They are fitted from the strongest penalty to
            the weakest.

        Returns
        -------
        Path
            Coefficients, intercepts and certificates in the order of ``values``.
        """
        return walk(self, X, y, values, sample_weight)

    def _parts(self, X: Any, y: Any, sample_weight: Any, offset: Any = None) -> list[Part]:
        """Return the parts that :func:`dualnewton.certify` certifies: ``coef_`` and ``intercept_``, and the dual point.

        Parameters have their current values; parameters that cross-validation chose have the chosen values.
        """
        twin = copy.copy(self)
        data = twin._checked(X, y, sample_weight)._replace(offset=offset)
        if hasattr(self, "classes_") and not np.array_equal(twin.classes_, self.classes_):
            raise DualnewtonError(
                f"y must hold the labels that {type(self).__name__} was fitted on, {self.classes_.tolist()}, "
                f"got {twin.classes_.tolist()}"
            )
        return list(parts_of(self, data.X, twin._objectives(data)))


class CertifiedClassifier(LinearClassifierMixin, SparseCoefMixin, CertifiedModel):
    """A classifier with ``coef_`` of shape (1, d) for two classes and (K, d) for K."""

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        self.classes_, data = class_numbers(self, checked(self, X, y, sample_weight))
        return data

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        self.coef_, self.intercept_ = stacked(results, data.X.dtype)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins Xw + b, of shape (n,) for two classes and (n, K) for K."""
        check_is_fitted(self)
        return decisions(self, X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row."""
        return decided(self, self.decision_function(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions; ``y`` and the weights default to those of the data set, if X is one."""
        from sklearn.metrics import accuracy_score

        return scored(accuracy_score, self, *opened(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def decisions(model: Any, X: Any) -> np.ndarray:
    """Return the margins of a classifier: a vector if there are two classes."""
    margins = margins_of(model, X)
    return margins[:, 0] if margins.shape[1] == 1 else margins


def decided(model: Any, margins: np.ndarray) -> np.ndarray:
    """Return the class for the margins of each row."""
    last = min(1, len(model.classes_) - 1)  # 0 if a regression on labels has only one class
    numbers = (margins > 0.0) * last if margins.ndim == 1 else margins.argmax(axis=1)
    return computed_on_host(lambda each: np.asarray(model.classes_[each]), numbers)


def scored(score: Any, model: Any, X: Any, y: Any, sample_weight: Any) -> float:
    """Return a score of the predictions by one of scikit-learn's functions."""
    return float(score(on_host(y), on_host(model.predict(X)), sample_weight=on_host(sample_weight)))


def stacked(results: Sequence[Result], dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the models as rows, and their intercepts: the same for one problem per class and for one with all classes."""
    if len(results) == 1 and type(results[0].intercept) is np.ndarray:  # all outputs or classes are one problem
        return results[0].w.astype(dtype, order="C"), results[0].intercept.astype(dtype)
    coef = np.array([result.w for result in results], dtype)
    return coef.reshape(-1, coef.shape[-1]), np.array([result.intercept for result in results], dtype).reshape(-1)


def probabilities(margins: Any) -> Any:
    """Return the probabilities of the classes by the logistic function, normalised for more than two classes."""
    return computed_on_host(_probabilities, margins)


def _probabilities(margins: np.ndarray) -> np.ndarray:
    found = expit(margins)
    if margins.ndim == 1:
        return np.stack([1.0 - found, found], axis=1)
    found[found.sum(axis=1) == 0.0] = 1.0  # all have underflowed: equal probabilities
    return found / found.sum(axis=1, keepdims=True)


def log_probabilities(margins: np.ndarray) -> np.ndarray:
    """Return the logarithms of :func:`probabilities`; for two classes, tiny probabilities keep their relative accuracy."""
    return log_expit(np.stack([-margins, margins], axis=1)) if margins.ndim == 1 else np.log(_probabilities(margins))


class CertifiedRegressor(RegressorMixin, SparseCoefMixin, CertifiedModel):
    """A regressor with ``coef_`` of shape (d,) for one output and (K, d) for K."""

    _multi_output: ClassVar[bool] = False

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        data = checked(self, X, y, sample_weight, y_numeric=True, multi_output=self._multi_output)
        return data if data.y.dtype == np.float64 else data._replace(y=data.y.astype(np.float64))

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        coef, intercept = stacked(results, data.X.dtype)
        self.coef_ = coef[0] if len(coef) == 1 else coef
        # Without an intercept the intercept is the number 0.0 for any number of outputs, as in scikit-learn.
        self.intercept_ = 0.0 if not self.fit_intercept else intercept if data.y.ndim == 2 else intercept[0]

    def predict(self, X: Any) -> np.ndarray:
        """Return Xw + b, of shape (n,) or (n, outputs)."""
        check_is_fitted(self)
        return margins_of(self, X, accept_sparse=["csr", "csc"])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R² of the predictions; ``y`` and the weights default to those of the data set, if X is one."""
        from sklearn.metrics import r2_score

        return scored(r2_score, self, *opened(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = self._multi_output
        tags.target_tags.single_output = True
        return tags
