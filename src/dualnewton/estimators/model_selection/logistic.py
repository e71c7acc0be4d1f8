"""Logistic regression whose C (and share of ‖w‖₁) cross-validation chooses."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED, _raise_for_params
from sklearn.utils.validation import _check_method_params

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.estimators._validation import in_unit_interval
from dualnewton.estimators._warning import warn
from dualnewton.estimators.logistic import LogisticRegression
from dualnewton.estimators.model_selection import _routing
from dualnewton.estimators.model_selection._cross_validated import CrossValidated
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._grid import OverFolds, walk_values
from dualnewton.estimators.model_selection._judged import judged
from dualnewton.estimators.model_selection._neighbours import Neighbours
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.interop.parts import Data
from dualnewton.interop.sklearn_objectives import NAMED
from dualnewton.interop.specification import Specification
from dualnewton.run.result import Result

POWERS = (-4.0, 4.0)
"""The powers of ten between which values of C are spread where only their number is given."""

FINAL = 1e-14
"""The relative gap of the final model on small data."""

LARGEST = 1e300
"""In the place of an infinite C, where a mean of models is judged: the proof is true, and says nothing."""


@estimator
class LogisticRegressionCV(CrossValidated, LogisticRegression):
    """Logistic regression, with C chosen by cross-validation, and a certificate for each model on the way.

    For each l1_ratio and C it fits :class:`LogisticRegression` on all rows and on those of each fold. The models of a value are
    fitted in shared passes, and those of the folds start from that of all rows; the one that is chosen needs no refit.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.LogisticRegressionCV``; what differs or is
    new:

    Parameters
    ----------
    Cs : int or sequence of floats
        The values, or their number between 1e-4 and 1e4.
    l1_ratios : sequence of floats, optional
        Shares of ‖w‖₁ in the penalty to choose from; left alone, there is none of it.
    cv : int, splitter, iterable of splits or None
        The folds: 5 stratified ones by default.
    scoring : str, callable or None
        What is best; left alone, accuracy.
    refit : bool
        Whether the final model is that of all rows for the values with the best mean score, or the mean of each fold's best.
    use_legacy_attributes : bool
        Whether attributes have the shapes of scikit-learn up to 1.9 (dicts by class; left alone, this is so) or those after.

    Attributes
    ----------
    certificates_ : array of Certificate of shape (l1_ratios, Cs, folds, fits)
        The proof of each model; there is one fit for two classes or softmax, and one for each class against the rest.
    certificate_ : Certificate or list of Certificate
        Of the final model; with ``refit=False``, of the mean of models, which need not be near the optimum for the mean of C.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "deprecated"})],
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "l1_ratios": ["array-like", None, StrOptions({"warn"})],
        "scoring": [StrOptions({*get_scorer_names(), "warn"}), callable, None],
        "refit": ["boolean"],
        "use_legacy_attributes": ["boolean", StrOptions({"warn"})],
    }
    _kind: ClassVar[type[CertifiedModel]] = LogisticRegression
    __metadata_request__score: ClassVar[dict[str, str]] = {"sample_weight": UNUSED}  # it goes to the scorer

    penalty: str | None = "deprecated"
    C: float = field(default=1.0, init=False)
    l1_ratio: float | None = field(default=0.0, init=False)
    Cs: Any = 10
    l1_ratios: Any = "warn"
    scoring: Any = "warn"
    refit: bool = True
    use_legacy_attributes: Any = "warn"

    def _search(self, data: Data, values: tuple[np.ndarray, list[float]], params: dict[str, Any]) -> None:
        weights = {} if data.sample_weight is None else {"sample_weight": data.sample_weight}
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {**params, **weights})
        labels = self.classes_[data.y]
        splits = check_cv(self.cv, labels, classifier=True).split(data.X, labels, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0])
        grid = self._fitted_grid(data, folds, *values)
        self._choose(data, grid, self._scores(data, folds, grid, given.scorer.score))
        of_rows = [result for results in grid.whole.values() for result in results]
        CertifiedModel._warn_of_misses(self, [*of_rows, *grid.outcomes.ravel()])

    # What is to be tried -----------------------------------------------------------------------------------------------

    def _values(self) -> tuple[np.ndarray, list[float]]:
        """Return the values of C and of the share of ‖w‖₁."""
        if isinstance(self.Cs, Integral):
            Cs = np.logspace(*POWERS, int(self.Cs))
        else:
            Cs = np.asarray(self.Cs, dtype=np.float64)
            if Cs.ndim != 1 or Cs.size == 0 or not (Cs > 0.0).all():
                raise DualnewtonError(f"Cs must be a number of values or a list of values > 0, got {self.Cs!r}")
        named = NAMED.get(str(self.penalty))
        if named is not None and self._has_ratios:
            warn(f"l1_ratios={self.l1_ratios!r} has no effect with penalty={self.penalty!r}")
        if named is not None or not (self._has_ratios or self.penalty == "elasticnet"):
            return Cs, [named or 0.0]
        ratios = np.asarray(self.l1_ratios if self._has_ratios else [])
        if ratios.ndim != 1 or ratios.size == 0 or ratios.dtype.kind not in "fiu" or not in_unit_interval(ratios):
            raise DualnewtonError(f"l1_ratios must be a list of numbers between 0 and 1, got {self.l1_ratios!r}")
        return Cs, ratios.astype(float).tolist()

    @property
    def _has_ratios(self) -> bool:
        return not (self.l1_ratios is None or isinstance(self.l1_ratios, str))

    def _at(self, C: float, ratio: float, kind: type[LogisticRegression] = LogisticRegression) -> Any:
        """Return the estimator of one value, not yet fitted."""
        model = self._member(kind, C=C, l1_ratio=ratio, penalty="deprecated")
        if hasattr(self, "classes_"):
            model.classes_ = self.classes_
        return model

    def _first_member(self) -> Any:
        return self._at(1.0, self._values()[1][0])

    def _fitted_grid(self, data: Data, folds: Folds, Cs: np.ndarray, ratios: list[float]) -> _Grid:
        """Fit every value, for each share from the strongest penalty to the weakest."""
        words = Specification("logistic", class_weight=self.class_weight)
        c = words.row_weights(data.y, self.classes_, data.sample_weight)
        order = [int(k) for k in np.argsort(Cs, kind="stable")]
        fits = 1 if self._is_softmax or len(self.classes_) == 2 else len(self.classes_)
        grid, of_folds = _Grid(Cs, ratios, (len(folds), fits)), folds.weights(c)
        with GridSession(self) as session, contextlib.ExitStack() as stack:
            softmax, tuning = self._is_softmax, session.tuning
            near = session.method in ("auto", "newton") and not softmax and Neighbours.pay(data.matrix, folds, tuning)
            steps = Neighbours(data.matrix, folds, c, session.threads, tuning) if near else None
            neighbours = None if steps is None else stack.enter_context(steps)
            for r, ratio in enumerate(ratios):
                members = [self._at(float(Cs[k]), ratio, _OverFolds) for k in order]
                for member in members:
                    member.class_weight, member.neighbours = None, neighbours  # the weights of classes are in c
                named = [(f"C = {member.C:.3g}", member) for member in members]
                each = walk_values(session, named, data, c, of_folds)
                for k, member, (whole, found) in zip(order, members, each, strict=True):
                    grid.take((r, k), member, data, whole, found)
        return grid

    # What came of it ---------------------------------------------------------------------------------------------------

    def _scores(self, data: Data, folds: Folds, grid: _Grid, params: dict[str, Any]) -> np.ndarray:
        """Return the score of each model on the rows that its fold holds out, of shape (l1_ratios, Cs, folds)."""
        scorer = None if self.scoring in (None, "warn") else _routing.knowing_the_classes(self._scorer(), self.classes_)
        scores = np.empty((len(grid.ratios), len(grid.Cs), len(folds)))
        for fold, rows in enumerate(folds.tests):
            X, y = data.X[rows], self.classes_[data.y[rows]]
            more = _check_method_params(data.X, params, indices=rows)
            for r, k in np.ndindex(scores.shape[:2]):
                model = self._at(float(grid.Cs[k]), grid.ratios[r], _Fitted)
                model.set_coefs(grid.coefs[r, k][fold])
                if (
                    scorer is None
                ):  # accuracy; that of scikit-learn checks its arguments, which takes longer than the models
                    scores[r, k, fold] = np.average(y == model.predict(X), weights=more.get("sample_weight"))
                else:
                    scores[r, k, fold] = scorer(model, X, y, **more)
        return scores

    def _choose(self, data: Data, grid: _Grid, scores: np.ndarray) -> None:
        """Take the best and set all attributes; ties go to the first C, and for one C to the first share."""
        if self.refit:
            k, r = first_best(scores.sum(axis=2).T)
            C, ratio = float(grid.Cs[k]), grid.ratios[r]
            final = self._refined(data, grid.whole[r, k], self._at(C, ratio))
        else:
            best = [first_best(of_fold.T) for of_fold in np.moveaxis(scores, 2, 0)]
            C = float(np.mean([grid.Cs[k] for k, _ in best]))
            ratio = float(np.mean([grid.ratios[r] for _, r in best]))
            mean = np.mean([grid.coefs[r, k][fold] for fold, (k, r) in enumerate(best)], axis=0)
            final = self._judged(data, mean, self._at(C, ratio))
        self._final = self._at(C, ratio)
        self._fit(data, final)
        self._set_attributes(C, ratio, grid, scores)

    def _refined(self, data: Data, found: list[Result], member: Any) -> list[Result]:
        """Take another step where that costs nothing: the model that is used has coefficients as good as can be."""
        finite = member.penalty is not None and not math.isinf(member.C)
        if not finite or not all(result.converged for result in found):
            return found
        problems = member._problems(data)
        with Session(self) as session:
            small = session.goal(problems[0]) < session.tol
            return session.solve(problems, found, tol=FINAL) if small else found

    def _judged(self, data: Data, coefs: np.ndarray, member: Any) -> list[Result]:
        """Certify coefficients that are the mean of others, as a model with the penalty of ``member``."""
        member.C = min(member.C, LARGEST)
        problems = member._problems(data)
        w, b = _parted(coefs, fit_intercept=self.fit_intercept)
        models, intercepts = ([w], [b]) if self._is_softmax else (list(w), [float(each) for each in b])
        return judged(problems, models, intercepts, self.tol, "the mean of the best model of each fold")

    def _sums_to_zero(self) -> bool:
        return bool(self._final._sums_to_zero())

    def _set_attributes(self, C: float, ratio: float, grid: _Grid, scores: np.ndarray) -> None:
        """Set what scikit-learn's class has, in the shapes of the time."""
        self.Cs_ = grid.Cs
        self.l1_ratios_ = np.asarray(grid.ratios if self._has_ratios else [None])
        outcomes = grid.outcomes
        self.certificates_ = of_each(outcomes, "certificate")
        n_iter = np.ceil(of_each(outcomes, "n_epochs").astype(float)).astype(int).max(axis=3)
        coefs = np.array([[grid.coefs[r, k] for k in range(len(grid.Cs))] for r in range(len(grid.ratios))])
        # Of shape (l1_ratios, Cs, folds, …) so far.
        if self.use_legacy_attributes in (False, np.False_):
            self.C_: Any = C
            self.l1_ratio_: Any = ratio
            self.scores_, self.n_iter_, self.coefs_paths_ = (
                np.moveaxis(each, 2, 0) for each in (scores, n_iter, coefs)
            )
            return
        classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        shares: Any = slice(None) if self._has_ratios else 0  # their axis is there if they were asked for
        of_fold = scores.transpose(2, 1, 0)[:, :, shares]
        self.C_ = np.full(len(classes), C)
        self.l1_ratio_ = np.full(len(classes), ratio if self._has_ratios or not self.refit else None)
        self.scores_ = {label: of_fold.copy() for label in classes}
        self.n_iter_ = n_iter.transpose(2, 1, 0)[None, :, :, shares]
        self.coefs_paths_ = dict(zip(classes, coefs.transpose(3, 2, 1, 0, 4)[:, :, :, shares], strict=True))

    # Scores, paths and metadata ----------------------------------------------------------------------------------------

    def score(self, X: Any, y: Any, sample_weight: Any = None, **score_params: Any) -> float:
        """Return the score of the final model on other data, by ``scoring``."""
        _raise_for_params(score_params, self, "score")
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        given = _routing.routed(self, "score", {**score_params, **weights}, weights)
        return self._scorer()(self, X, y, **given.scorer.score)

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring in (None, "warn") else self.scoring)

    def get_metadata_routing(self) -> Any:
        """Return who takes which metadata: the splitter of ``fit``, and the scorer of ``fit`` and ``score``."""
        return _routing.router(self, self.cv, self._scorer(), "fit", "score")


class _OverFolds(OverFolds, LogisticRegression):
    """The models of several folds, for one value.

    Attributes
    ----------
    neighbours : Neighbours, optional
        Steps from the model of all rows, where these pay.
    """

    neighbours: Neighbours | None = None

    def _results(self, session: Any, data: Data, before: Sequence[Result] | None) -> list[Result]:
        several = len(self.weightings) > 1
        if self.neighbours is None or before is None or not several or math.isinf(self.C) or self.l1_ratio:
            return super()._results(session, data, before)
        problems: Any = self._problems(data)
        return self.neighbours.fit(session, problems, before[: len(before) // len(self.weightings)])


class _Fitted(LogisticRegression):
    """A model of a fold, to be scored on rows that need no check."""

    def set_coefs(self, coefs: np.ndarray) -> None:
        """Take coefficients, with intercepts in the last column if there are any."""
        self.coef_, self.intercept_ = _parted(coefs, fit_intercept=self.fit_intercept)

    def decision_function(self, X: Any) -> np.ndarray:
        scores = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores


class _Grid:
    """The models of all values: those of all rows, and of those of the folds what is asked for later.

    Attributes
    ----------
    whole : dict of lists of Result
        By the places of the share and of C.
    coefs : dict of arrays of shape (folds, rows, coefficients)
        One row for two classes and K for K, with the intercepts in the last column if there are any.
    outcomes : array of Outcome of shape (l1_ratios, Cs, folds, fits)
        Of each model of a fold.
    """

    def __init__(self, Cs: np.ndarray, ratios: list[float], shape: tuple[int, int]) -> None:
        self.Cs, self.ratios = Cs, ratios
        self.whole: dict[tuple[int, int], list[Result]] = {}
        self.coefs: dict[tuple[int, int], np.ndarray] = {}
        self.outcomes = np.empty((len(ratios), len(Cs), *shape), dtype=object)

    def take(
        self, place: tuple[int, int], member: Any, data: Data, whole: list[Result], of_folds: list[Result]
    ) -> None:
        """Keep what was found for a value."""
        each = [of_folds[k : k + len(whole)] for k in range(0, len(of_folds), len(whole))]
        self.whole[place] = whole
        self.outcomes[place] = [[Outcome.of(result) for result in results] for results in each]
        self.coefs[place] = np.stack([_joined(member, data, results) for results in each])


def _joined(member: Any, data: Data, results: Sequence[Result]) -> np.ndarray:
    """Return coefficients and intercepts side by side, in the shapes and the precision of the class."""
    member._take(data, results)
    return np.column_stack([member.coef_, member.intercept_]) if member.fit_intercept else member.coef_


def _parted(coefs: np.ndarray, *, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Undo :func:`_joined`."""
    return (coefs[:, :-1], coefs[:, -1]) if fit_intercept else (coefs, np.zeros(len(coefs)))


def first_best(scores: np.ndarray) -> tuple[int, int]:
    """Return the place of the first of the largest numbers, row by row."""
    row, column = np.unravel_index(np.argmax(scores), scores.shape)
    return int(row), int(column)
