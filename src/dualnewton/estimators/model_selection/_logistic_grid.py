"""The models of logistic regression for all values and folds: how they are fitted, scored and compared."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import _check_method_params

from dualnewton.estimators._session import starts
from dualnewton.estimators.logistic import LogisticRegression
from dualnewton.estimators.model_selection import _routing, choice
from dualnewton.estimators.model_selection._few_coordinates import FewCoordinates
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._grid import OverFolds, fit_together, walk_values
from dualnewton.estimators.model_selection._held_out import HeldOut
from dualnewton.estimators.model_selection._neighbours import Neighbours
from dualnewton.estimators.model_selection._proofs import Model, Proofs
from dualnewton.estimators.model_selection._session import GridSession, Outcome
from dualnewton.interop.parts import Examples
from dualnewton.interop.specification import Specification
from dualnewton.objective.certificate import Certificate
from dualnewton.planning.direct import fits_values_together, method_of_folds
from dualnewton.run.result import Result

Place = tuple[int, int]
"""Indices of l1_ratio and of C in the grid."""


class Grid:
    """The fitted models of the grid, and their scores."""

    def __init__(self, Cs: np.ndarray, ratios: list[float], folds: int, fits: int) -> None:
        self.Cs, self.ratios, self.folds = Cs, ratios, folds
        self.whole: dict[Place, list[Result]] = {}  # models of all rows
        self.of_folds: dict[Place, list[Result]] = {}  # those of one fold after the other, if they may be fitted again
        # (folds, rows, coefficients) One row for two classes and K for K, with the intercepts in the last column, if any.
        self.coefs: dict[Place, np.ndarray] = {}
        self.scores = np.empty((len(ratios), len(Cs), folds))  # on the held-out rows
        self.outcomes = np.full((*self.scores.shape, fits), None, dtype=object)  # of the models of the folds
        self.ends = np.full((*self.scores.shape, 2), choice.UNKNOWN)  # bounds on the scores of exact fits

    def places(self) -> list[Place]:
        """Return all indices in the order of preference among equal scores: by C, then by l1_ratio."""
        return [(r, k) for k in range(len(self.Cs)) for r in range(len(self.ratios))]

    def best(self, fold: int | slice = slice(None)) -> Place:
        """Return the first index with the largest mean score, over all folds or one."""
        scores = self.scores[:, :, fold]
        return max(self.places(), key=lambda place: float(np.mean(scores[place])))

    def choice(self, scored: Scored) -> choice.ChoiceCertificate:
        """Compare the intervals of all values."""
        places = self.places()
        several = len(self.ratios) > 1
        named = [{"C": float(self.Cs[k])} | ({"l1_ratio": self.ratios[r]} if several else {}) for r, k in places]
        scores, ends = (np.stack([array[place] for place in places]) for array in (self.scores, self.ends))
        return choice.certificate(named, scores, ends, places.index(self.best()), scored.name, scored.proofs.reason)

    def take(self, place: Place, member: Any, data: Examples, of_folds: list[Result], *, again: bool) -> None:
        """Store the models of the folds for a value, with coefficients if they may be fitted again, and add their epochs."""
        before = self.outcomes[place].ravel()
        spent = [0.0 if outcome is None else outcome.n_epochs for outcome in before]
        found = [
            replace(Outcome.of(result), n_epochs=result.n_epochs + epochs)
            for result, epochs in zip(of_folds, spent, strict=True)
        ]
        self.outcomes[place] = np.array(found, dtype=object).reshape(self.folds, -1)
        if again:
            self.of_folds[place] = of_folds
        fits = len(of_folds) // self.folds
        each = [of_folds[k : k + fits] for k in range(0, len(of_folds), fits)]
        self.coefs[place] = np.stack([_with_intercepts(member, data, results) for results in each])

    def everything(self) -> tuple[list[str], list[Any]]:
        """Return the outcomes of all fits, on all rows and on folds, and the names of their values."""
        of_rows = [(k, result) for (_, k), results in self.whole.items() for result in results]
        of_folds = [(place[1], outcome) for place, outcome in np.ndenumerate(self.outcomes)]
        each = [*of_rows, *of_folds]
        return [f"C = {self.Cs[k]:.3g}" for k, _ in each], [outcome for _, outcome in each]


class GridFits:
    """Fits the models of values, with the parameters of a LogisticRegressionCV, to the tolerance of its session."""

    def __init__(self, search: Any, session: GridSession, data: Examples, folds: Folds) -> None:
        self.search, self.session, self.data = search, session, data
        words = Specification("logistic", class_weight=search.class_weight)
        self.c = words.row_weights(data.y, search.classes_, data.sample_weight)
        self.weightings = folds.weights(self.c)
        self.again = search.certify_choice
        newton = session.method in ("auto", "newton") and data.matrix.capabilities.local
        few = newton and FewCoordinates.is_cheaper(data, session.tuning)
        self.few = FewCoordinates(data) if few else None
        rows = data.matrix if self.few is None else self.few.factor.matrix
        self.neighbours: Neighbours | None = None
        classes = len(search.classes_) if search._is_softmax else 1
        if newton and Neighbours.is_cheaper(rows, folds, session.tuning, classes=classes):
            self.neighbours = Neighbours(rows, folds, self.c, session.tuning, classes=classes)

    def member(self, grid: Grid, place: Place) -> Any:
        """Return the estimator of a value, which has one problem per fold and class."""
        r, k = place
        member = self.search._at(float(grid.Cs[k]), grid.ratios[r], _OverFolds)
        member.class_weight, member.weightings = None, self.weightings  # c includes the class weights
        member.few = self.few
        return member

    def _together(self, members: Sequence[Any]) -> bool:
        """Whether all values are fitted in shared passes; those with a threshold or without a penalty have other methods."""
        smooth = bool(members) and all(math.isfinite(member.C) and not member.l1_ratio for member in members)
        models = len(members) * (len(self.weightings) + 1) * self.search._fits
        return smooth and fits_values_together(self.data.matrix, models, self.session.tuning)

    def fit(self, grid: Grid, wanted: Sequence[Place]) -> None:
        """Fit values for the first time, from the strongest penalty to the weakest, or continue earlier fits."""
        for r in range(len(grid.ratios)):
            places = sorted((place for place in wanted if place[0] == r), key=lambda place: grid.Cs[place[1]])
            members = [self.member(grid, place) for place in places]
            names = [f"C = {member.C:.3g}" for member in members]
            again, together = bool(places) and places[0] in grid.of_folds, self._together(members)
            if again and together:
                self.session.begin(f"{len(members)} values, {grid.folds} folds, to {self.session.tol:.0e}")
                before = [grid.of_folds[place] for place in places]
                each = fit_together(self.session, members, self.data, self.weightings, before)
                for place, member, found in zip(places, members, each, strict=True):
                    grid.take(place, member, self.data, found, again=True)
            elif again:
                for place, member, name in zip(places, members, names, strict=True):
                    self.session.begin(f"{name}, {grid.folds} folds, to {self.session.tol:.0e}")
                    found = member._results(self.session, self.data, grid.of_folds[place])
                    grid.take(place, member, self.data, found, again=True)
            else:
                walk = self._all_together(members) if together else self._one_by_one(names, members)
                for place, member, (whole, found) in zip(places, members, walk, strict=True):
                    grid.whole[place] = whole
                    grid.take(place, member, self.data, found, again=self.again)

    def _one_by_one(self, names: Sequence[str], members: Sequence[Any]) -> Iterator[tuple[list[Result], list[Result]]]:
        """Yield the models of all rows and of the folds for each value, each from the one before."""
        for member in members:
            member.neighbours = self.neighbours
        return walk_values(self.session, zip(names, members, strict=True), self.data, self.c, self.weightings)

    def _all_together(self, members: Sequence[Any]) -> Iterator[tuple[list[Result], list[Result]]]:
        """Yield the same from shared passes."""
        self.session.begin(f"{len(members)} values, all rows and {len(self.weightings)} folds")
        for found in fit_together(self.session, members, self.data, [self.c, *self.weightings]):
            whole = len(found) // (len(self.weightings) + 1)
            yield found[:whole], found[whole:]


class Scored:
    """Scores models on the rows that their folds hold out, and bounds the scores of exact fits.

    ``params`` are the metadata for the scorer.
    """

    def __init__(self, search: Any, session: GridSession, data: Examples, folds: Folds, params: dict[str, Any]) -> None:
        self.search, self.data, self.folds = search, data, folds
        self.held_out = HeldOut(data, folds, search.scoring)
        own = search.scoring in (None, "warn", "accuracy")
        self.scorer = None if own else _routing.knowing_the_classes(search._scorer(), search.classes_)
        self.params = [_check_method_params(indexed(data), params, indices=rows) for rows in folds.tests]
        self.name = "accuracy" if own else search.scoring if isinstance(search.scoring, str) else "score"
        weights = [more.get("sample_weight") for more in self.params]
        self.proofs = Proofs(data.matrix, folds, weights, self.name, session.tuning, session.deadline)

    def score(self, grid: Grid, wanted: Sequence[Place], fits: GridFits) -> None:
        """Score the models of these values."""
        problems = {place: self._problems(grid, place, fits) for place in wanted}
        models = {place: [self._model(grid, place, fold) for fold in range(grid.folds)] for place in wanted}
        for place, fold, X, model in self.held_out.seen(models):
            labels, more = self.data.y[self.folds.tests[fold]], self.params[fold]
            y = self.search.classes_[labels]
            if self.scorer is None:  # accuracy; the checks in scikit-learn's function take longer than the fits
                score = float(np.average(y == model.predict(X), weights=more.get("sample_weight")))
            else:
                score = self.scorer(model, X, y, **more)
            grid.scores[(*place, fold)] = score
            own = problems[place]
            if own is not None:
                certificate = grid.outcomes[(*place, fold, 0)].certificate
                grid.ends[(*place, fold)] = self._interval(fold, own[fold], model, certificate, score)

    def _model(self, grid: Grid, place: Place, fold: int) -> Any:
        """Return the model of a fold."""
        model = self.search._at(float(grid.Cs[place[1]]), grid.ratios[place[0]], _Fitted)
        model.set_coefs(grid.coefs[place][fold])
        return model

    def _interval(self, fold: int, problem: Any, model: Any, certificate: Certificate, score: float) -> choice.Interval:
        """Return an interval that contains the score of the exact fit."""
        rows = self.folds.tests[fold]
        z, labels = model.decision_function(self.data.X[rows]), self.data.y[rows]
        w, b = model.coef_.astype(float), model.intercept_.astype(float)
        if problem.columns == 1:
            w, b, labels = w[0], float(b[0]), 2.0 * labels - 1.0
        held = self.proofs.held(fold, z, labels)
        return self.proofs.interval(fold, problem, Model(w, b, certificate), held, score)

    def _problems(self, grid: Grid, place: Place, fits: GridFits) -> Sequence[Any] | None:
        """Return the problems of the folds; None if no bound is known."""
        member, reason = fits.member(grid, place), ""
        if not self.search.certify_choice:
            reason = "certify_choice=True computes a proof"
        elif not self.held_out.selects:
            reason = f"a proof selects the rows that each fold holds out, but {self.data.matrix.capabilities.reason}"
        elif self.search._fits > 1:
            reason = "no bound is known for one class against the rest"
        elif math.isinf(member.C):
            reason = "no bound is known without a penalty"
        self.proofs.reason = self.proofs.reason or reason
        problems: Sequence[Any] | None = None if reason else member._problems(self.data)
        return problems


class _OverFolds(OverFolds, LogisticRegression):
    """The models of several folds, for one value."""

    neighbours: Neighbours | None = None  # steps from the model of all rows, if these are cheaper
    few: FewCoordinates | None = None  # coordinates of the rows, if there are more features than rows

    @property
    def _log_strength(self) -> float:
        return -math.log(self.C)

    def _results(self, session: Any, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        if self.few is None or self.l1_ratio or math.isinf(self.C):
            return self._fitted_results(session, data, before)
        last, self.last = self.last, self.few.starts(self.last)
        found = self._fitted_results(session, self.few.of(data), self.few.starts(before))
        self.last = last
        return self.few.lifted(session, self._problems(data), found)

    def _solved(self, session: Any, problems: Sequence[Any], before: Sequence[Result] | None) -> list[Result]:
        method = None
        if before and len(self.weightings) > 1 and session.method == "auto" and not self.l1_ratio:
            method = method_of_folds(problems[0].data.profile, before[0].plan, session.tuning)
        return session.solve(problems, self._starts(problems, before), method=method)

    def _fitted_results(self, session: Any, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        if self.neighbours is None or before is None or math.isinf(self.C) or self.l1_ratio:
            return super()._results(session, data, before)
        problems: Any = self._problems(data)
        folds = len(self.weightings) > 1
        near = starts(problems, self.last if folds and self.last is not None else before) or before
        return self.neighbours.fit(session, problems, near, folds=folds)


class _Fitted(LogisticRegression):
    """A model of a fold, to be scored on rows that need no check."""

    def set_coefs(self, coefs: np.ndarray) -> None:
        """Take coefficients, with intercepts in the last column if there are any."""
        self.coef_, self.intercept_ = parted(coefs, fit_intercept=self.fit_intercept)

    def decision_function(self, X: Any) -> np.ndarray:
        scores = safe_sparse_dot(X, self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores


def _with_intercepts(member: Any, data: Examples, results: Sequence[Result]) -> np.ndarray:
    """Return coefficients and intercepts side by side, in the shapes and the precision of the class."""
    member._take(data, results)
    return np.column_stack([member.coef_, member.intercept_]) if member.fit_intercept else member.coef_


def parted(coefs: np.ndarray, *, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Undo :func:`_with_intercepts`."""
    return (coefs[:, :-1], coefs[:, -1]) if fit_intercept else (coefs, np.zeros(len(coefs)))
