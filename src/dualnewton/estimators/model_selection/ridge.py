"""Ridge regression whose alpha cross-validation chooses: by leave-one-out errors, from a formula, or by folds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import pairwise, product
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin, is_classifier
from sklearn.metrics import check_scoring, get_scorer, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metadata_routing import _routing_enabled
from sklearn.utils.validation import _check_method_params

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedModel, CertifiedRegressor
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.estimators._validation import Examples, strengths
from dualnewton.estimators.model_selection import _routing, choice
from dualnewton.estimators.model_selection._cross_validated import CrossValidated
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._held_out import HeldOut
from dualnewton.estimators.model_selection._least_squares import (
    ByExamples,
    LeaveOneOut,
    leave_one_out,
    models_of,
    moments_of_folds,
)
from dualnewton.estimators.model_selection._proofs import LeastSquaresProofs
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.estimators.ridge import Ridge
from dualnewton.interop.sklearn_objectives import ridge
from dualnewton.interop.specification import Words
from dualnewton.losses import Squared
from dualnewton.objective.alike import like
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import decomposes_folds, factorises_each
from dualnewton.run.result import Result

DECOMPOSED = "least squares for all alphas by one eigendecomposition of the moments or of the Gram matrix"
SINGULAR = "least squares for all alphas by one singular value decomposition of the rows"
FACTORISED = "least squares by a factor of the moments or of the Gram matrix for each alpha"
"""The reasons in the plan of a direct solution."""

ALIKE = 100.0
"""Ratio of two alphas up to which the smaller one bounds the scores of both: the bound is a multiple of √alpha at most."""


@estimator
class RidgeSearch(CrossValidated):
    """Base of the regressor and the classifier: least squares with ½‖w‖², whose alpha cross-validation chooses.

    Parameters
    ----------
    alphas : float or sequence of floats
        The values; zero, which is least squares, is allowed only with ``cv``.
    scoring : str, callable or None
        The score; None is the squared error without ``cv``, and R² with it.
    cv : int, splitter, iterable of splits or None
        The folds; None leaves one row out at a time.
    gcv_mode : str or None
        Accepted and ignored: the smaller of the two decompositions is used.
    store_cv_results : bool
        Without ``cv``: keep the errors or predictions of each row in ``cv_results_``.
    alpha_per_target : bool
        Without ``cv``: choose an alpha for each output.
    solver : str
        As in :class:`Ridge`; a method of this library is run in passes instead of decompositions.

    Attributes
    ----------
    choice_certificate_ : ChoiceCertificate
        With ``cv``: bounds on the mean score of exact fits for each value, and whether exact fits would choose the same.
    certificates_ : array of Certificate of shape (alphas, folds, outputs)
        The certificate of each model. Without ``cv`` there is one fold, that of all rows, from which the errors are derived.
    scores_ : array of shape (alphas, folds)
        With ``cv``: the score of each model.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_iter": CertifiedModel._parameter_constraints["max_iter"],
        "solver": Ridge._parameter_constraints["solver"],
        "alphas": ["array-like", Interval(Real, 0, None, closed="left")],
        "scoring": [StrOptions(set(get_scorer_names())), callable, None],
        "gcv_mode": [StrOptions({"auto", "svd", "eigen"}), None],
        "store_cv_results": ["boolean"],
        "alpha_per_target": ["boolean"],
    }
    _score: ClassVar[str]
    """The score of models of folds, if ``scoring`` is None."""

    alphas: Any = field(default=(0.1, 1.0, 10.0), kw_only=False)
    scoring: Any = None
    gcv_mode: str | None = None
    store_cv_results: bool = False
    alpha_per_target: bool = False
    max_iter: int | None = None

    def _search(self, data: Examples, values: np.ndarray, params: dict[str, Any]) -> None:
        posed = self._as_numbers(data)
        if posed.sample_weight is not None:
            params["sample_weight"] = posed.sample_weight
        unrouted = params if params and _routing.takes_weights(self._scorer()) else {}
        given = _routing.routed(self, "fit", params, unrouted)
        if self.cv is None:
            self._by_leaving_one_out(posed, values, given.scorer.score)
        else:
            labels = self._truth(posed.y)
            cv = check_cv(self.cv, labels, classifier=is_classifier(self))
            splits = cv.split(indexed(data), labels, **given.splitter.split)
            self._by_folds(posed, values, Folds.of(splits, len(labels), data.sample_weight), given.scorer.score)

    def _as_numbers(self, data: Examples) -> Examples:
        """Return the data of the least-squares problems: numbers as targets, and all weights of the rows."""
        return data

    @property
    def _by_folds_alone(self) -> bool:
        return self.cv is not None  # leave-one-out errors need blocks of rows in memory

    def _values(self) -> np.ndarray:
        """Return the values of alpha."""
        lone = self.cv is None
        why = ", since cv=None leaves out one row at a time" if lone else ""
        values = strengths("alphas", self.alphas, or_zero=not lone, why=why)
        for name in ("store_cv_results", "alpha_per_target"):
            if getattr(self, name) and not lone:
                raise DualnewtonError(
                    f"cv!=None and {name}=True are incompatible: cv defines folds, got cv={self.cv!r}"
                )
        return values

    def _posed_at(self, data: Examples, alpha: float, weightings: Sequence[np.ndarray | None]) -> list[Problem]:
        """Return the problems of one value, for each weighting of the rows and each output."""
        first, *others = weightings
        n, loss, targets = len(data.y), Squared(), np.ascontiguousarray(data.y.reshape(len(data.y), -1).T)
        more: dict[str, Any] = {"sample_weight": first, "fit_intercept": self.fit_intercept}
        problems = [Problem(data.matrix, target, loss, lam=alpha / n, **more) for target in targets]
        placed = [None if c is None else data.matrix.placed(c) for c in others]
        return [*problems, *(like(problem, sample_weight=c) for c in placed for problem in problems)]

    # One row at a time -------------------------------------------------------------------------------------------------

    def _by_leaving_one_out(self, data: Examples, alphas: np.ndarray, params: dict[str, Any]) -> None:
        Y = data.y.reshape(len(data.y), -1)
        c = np.ones(len(Y)) if data.sample_weight is None else data.sample_weight
        with GridSession(self) as session:
            found = leave_one_out(data.matrix, Y, c, alphas, session.tuning, fit_intercept=self.fit_intercept)
            session.begin(f"alpha = {alphas.min():.3g} to {alphas.max():.3g}")
            posed = self._posed_at(data, alphas[0], [data.sample_weight])
            problems = [like(problem, lam=alpha / problem.n) for alpha in alphas for problem in posed]
            models = [list(each.reshape(len(problems), -1)) for each in (found.W, found.b)]
            reason = SINGULAR if found.singular else DECOMPOSED if found.decomposed else FACTORISED
            results = session.finished(problems, models[0], [float(b[0]) for b in models[1]], reason)
            each = [results[low : low + len(posed)] for low in range(0, len(results), len(posed))]
        scores = self._scores_of_rows(data, Y, c, found, params)  # (alphas, outputs or one)
        best = np.argmax(scores, axis=0)  # the first of equal ones
        self.alpha_ = alphas[best] if best.size > 1 else float(alphas[best[0]])
        top = scores[best, np.arange(scores.shape[1])]
        self.best_score_ = top if best.size > 1 else float(top[0])
        outcomes = [[[Outcome.of(result) for result in results]] for results in each]
        chosen = np.broadcast_to(best, Y.shape[1])
        self._finish(data, [each[place][k] for k, place in enumerate(chosen)], outcomes)

    def _scores_of_rows(
        self, data: Examples, Y: np.ndarray, c: np.ndarray, found: LeaveOneOut, params: dict[str, Any]
    ) -> np.ndarray:
        apart = self.alpha_per_target and Y.shape[1] > 1
        if self.scoring is None:
            kept = c[:, None] * np.square(found.errors)
            scores = -kept.mean(axis=1) if apart else -kept.mean(axis=(1, 2))[:, None]
        else:
            kept, scorer, identity = Y - found.errors, self._scorer(), self._identity()
            columns = range(Y.shape[1]) if apart else [slice(None) if data.y.ndim == 2 else 0]
            scores = np.array(
                [[scorer(identity, one[:, k], self._truth(Y[:, k]), **params) for k in columns] for one in kept]
            )
        if self.store_cv_results:
            stored = np.moveaxis(kept, 0, 2).astype(data.X.dtype)
            self.cv_results_ = stored if data.y.ndim == 2 else stored[:, 0]
        return scores

    # Folds -------------------------------------------------------------------------------------------------------------

    def _by_folds(self, data: Examples, alphas: np.ndarray, folds: Folds, params: dict[str, Any]) -> None:
        scores, scorer = np.empty((len(alphas), len(folds))), self._scorer()
        outcomes: dict[int, list[list[Outcome]]] = {}
        K = data.y.shape[1] if data.y.ndim == 2 else 1
        with GridSession(self) as session:
            n, d = data.X.shape
            exact = session.method == "auto" and decomposes_folds(min(n, d), session.tuning)
            exact = exact and (n > d or data.matrix.capabilities.whole)  # the Gram matrix needs all rows
            held_out = HeldOut(data, folds, self.scoring)
            solutions = (_Exact if exact else _ByPasses)(self, session, data, folds, alphas)
            for place, results in solutions.of_folds():
                each = [results[k * K : (k + 1) * K] for k in range(len(folds))]
                outcomes[place] = [[Outcome.of(result) for result in own] for own in each]
                models = {place: [self._fitted_model(data, own) for own in each]}
                for _, fold, X, model in held_out.seen(models):
                    rows = folds.tests[fold]
                    more = _check_method_params(indexed(data), params, indices=rows)
                    scores[place, fold] = float(scorer(model, X, self._truth(data.y[rows]), **more))
            means = np.average(scores, axis=1)
            best = int(np.argmax(np.where(np.isnan(means), -np.inf, means)))
            final = solutions.of_all_rows(best)
            self.choice_certificate_ = self._choice(session, data, folds, alphas, scores, outcomes, best)
        self.alpha_, self.best_score_, self.scores_ = float(alphas[best]), float(means[best]), scores
        self._finish(data, final, [outcomes[place] for place in range(len(alphas))])

    def _choice(
        self,
        session: GridSession,
        data: Examples,
        folds: Folds,
        alphas: np.ndarray,
        scores: np.ndarray,
        outcomes: dict[int, list[list[Outcome]]],
        chosen: int,
    ) -> choice.ChoiceCertificate:
        """Bound the scores of exact fits, of one output with equal weights."""
        scoring = self._score if self.scoring is None else self.scoring if isinstance(self.scoring, str) else "score"
        named, ends = [{"alpha": float(alpha)} for alpha in alphas], np.full((*scores.shape, 2), choice.UNKNOWN)
        reason = f"no bound is known for the score {scoring!r}, weights of rows or several outputs"
        if data.y.ndim == 1 and data.sample_weight is None and scoring in choice.BOUNDS:
            reason = "without a penalty, linearly dependent features leave the models unbounded"
            given = data.matrix, folds, None, session.tuning
            proofs = LeastSquaresProofs(*given, fit_intercept=self.fit_intercept, normalised=False)
            # A bound for an alpha holds for larger ones. The gaps of exact solutions are rounding: the first usually suffices.
            some = _representatives(alphas)
            for factor_of, bounded in ((proofs.rough, some), (proofs.factor, some), (proofs.factor, alphas)):
                known = {
                    (fold, alpha): factor_of(fold, alpha / len(data.y))
                    for fold, alpha in product(range(len(folds)), set(bounded.tolist()))
                }
                for k, fold in np.ndindex(scores.shape):
                    proof, y = outcomes[k][fold][0].certificate, data.y[folds.tests[fold]]
                    factor = known[fold, float(bounded[k])]
                    ends[k, fold] = proofs.interval(scoring, factor, proof, float(scores[k, fold]), y)
                found = choice.certificate(named, scores, ends, chosen, scoring, reason)
                if found.proved:
                    return found
        return choice.certificate(named, scores, ends, chosen, scoring, reason)

    def _fitted_model(self, data: Examples, results: Sequence[Result]) -> Any:
        """Return the model of a fold, for a scorer."""
        raise NotImplementedError

    def _identity(self) -> Any:
        """Return a model that returns its input as predictions or decision values, for a scorer."""
        raise NotImplementedError

    def _truth(self, y: np.ndarray) -> np.ndarray:
        """Return the targets with which predictions are compared."""
        return y

    # Both --------------------------------------------------------------------------------------------------------------

    def _finish(self, data: Examples, final: list[Result], outcomes: list[list[list[Outcome]]]) -> None:
        self._adopt(data, final)
        each = np.array(outcomes, dtype=object)
        self.certificates_ = of_each(each, "certificate")
        fits = list(each.ravel())
        CertifiedModel._warn_of_misses(self, fits if self.cv is None else [*final, *fits])

    def _scorer(self) -> Any:
        if self.scoring is None and _routing_enabled():
            return get_scorer(self._score).set_score_request(sample_weight=True)
        return check_scoring(self, scoring=self.scoring, allow_none=True)

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter and the scorer of ``fit`` take metadata."""
        return _routing.router(self, self.cv, self._scorer(), "fit")


@estimator
class RidgeCV(RidgeSearch, MultiOutputMixin, CertifiedRegressor):
    """Ridge regression, with alpha chosen by cross-validation, and a certificate for each model.

    Without ``cv`` one row is left out at a time: the errors of these models follow from one decomposition. With folds, the
    moments of all folds come from one pass over the data, and the models of a fold for all values from one decomposition, or from
    a factor for each value if these are few; if both features and examples are many, the models are fitted in shared passes.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.RidgeCV``; differences and additions:

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.RidgeCV(alphas=[0.01, 0.1, 1.0]).fit(X, y)
    >>> model.alpha_, model.certificate_.relative_gap <= 1e-4
    (0.01, True)
    """

    _words: ClassVar[Words] = staticmethod(ridge)
    _multi_output: ClassVar[bool] = True
    _kind: ClassVar[type[CertifiedModel]] = Ridge
    _score: ClassVar[str] = "r2"

    def _fitted_model(self, data: Examples, results: Sequence[Result]) -> Any:
        return _Fitted()._taking(data, results)

    def _identity(self) -> Any:
        return _Identity()


class _Exact:
    """The models of folds for all values from a decomposition for each fold, and one for all rows."""

    def __init__(
        self, model: RidgeSearch, session: GridSession, data: Examples, folds: Folds, alphas: np.ndarray
    ) -> None:
        self.model, self.session, self.data, self.folds, self.alphas = model, session, data, folds, alphas
        n, d = data.X.shape
        Y = data.y.reshape(n, -1)
        everybody = folds.and_all_rows()
        c = np.ones(n) if data.sample_weight is None else data.sample_weight
        each = self._by_features(Y, c, everybody) if n > d else self._by_examples(Y, everybody.weights(c))
        pairs = list(each)
        self.W, self.b = np.stack([W for W, _ in pairs]), np.stack([b for _, b in pairs])  # (folds + 1, alphas, …)

    def _by_features(self, Y: np.ndarray, c: np.ndarray, folds: Folds) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        fit_intercept = self.model.fit_intercept
        tuning = self.session.tuning
        for moments in moments_of_folds(self.data.matrix, Y, c, folds, tuning, shift=fit_intercept):
            yield models_of(moments, self._positive, tuning, fit_intercept=fit_intercept)

    def _by_examples(self, Y: np.ndarray, weightings: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        K = self.data.matrix.row_gram()
        for c in weightings:
            inside = np.flatnonzero(c > 0.0)
            own = K[np.ix_(inside, inside)]
            found = ByExamples(own, Y[inside], c[inside], fit_intercept=self.model.fit_intercept)
            yield found.models(self.data.matrix, inside, Y[inside], self._positive, self.session.tuning)

    @property
    def _positive(self) -> np.ndarray:
        """The values, with 1 instead of 0, which is solved separately."""
        return np.where(self.alphas > 0.0, self.alphas, 1.0)

    def of_folds(self) -> Iterator[tuple[int, list[Result]]]:
        """Yield the index of each value and the results of its folds."""
        weightings = self.folds.weights(self.data.sample_weight)
        for place in range(len(self.alphas)):
            yield place, self._at(place, weightings, slice(len(weightings)))

    def of_all_rows(self, place: int) -> list[Result]:
        """Return the results of all rows for a value."""
        return self._at(place, [self.data.sample_weight], slice(len(self.folds), None))

    def _at(self, place: int, weightings: Sequence[np.ndarray | None], which: slice) -> list[Result]:
        alpha, session = float(self.alphas[place]), self.session
        session.begin(f"alpha = {alpha:.3g}")
        if alpha == 0.0:
            return unpenalised(self.model, session, self.data, weightings)
        W, b = self.W[which, place], self.b[which, place]
        problems = self.model._posed_at(self.data, alpha, weightings)
        reason = FACTORISED if factorises_each(len(self._positive), session.tuning) else DECOMPOSED
        return session.finished(problems, list(W.reshape(-1, W.shape[-1])), list(b.ravel()), reason)


class _ByPasses:
    """The models of a value in shared passes, by decreasing penalty; folds start from the model of all rows."""

    def __init__(
        self, model: RidgeSearch, session: GridSession, data: Examples, folds: Folds, alphas: np.ndarray
    ) -> None:
        self.model, self.session, self.data, self.folds, self.alphas = model, session, data, folds, alphas
        self.whole: dict[int, list[Result]] = {}

    def of_folds(self) -> Iterator[tuple[int, list[Result]]]:
        """Yield the index of each value and the results of its folds."""
        before: list[Result] | None = None
        for place in map(int, np.argsort(-self.alphas, kind="stable")):
            before = self.whole[place] = self._at(place, [self.data.sample_weight], before)
            yield place, self._at(place, self.folds.weights(self.data.sample_weight), before * len(self.folds))

    def of_all_rows(self, place: int) -> list[Result]:
        """Return the results of all rows for a value."""
        return self.whole[place]

    def _at(self, place: int, weightings: Sequence[np.ndarray | None], before: list[Result] | None) -> list[Result]:
        alpha = float(self.alphas[place])
        self.session.begin(f"alpha = {alpha:.3g}")
        if alpha == 0.0:
            return unpenalised(self.model, self.session, self.data, weightings)
        return self.session.solve(self.model._posed_at(self.data, alpha, weightings), before)


def _representatives(alphas: np.ndarray) -> np.ndarray:
    """Return for each alpha the least of those that are at most ``ALIKE`` times smaller, if all are put into such groups."""
    order, found = np.argsort(alphas, kind="stable"), alphas.copy()
    for before, place in pairwise(order):
        if alphas[place] <= ALIKE * found[before]:
            found[place] = found[before]
    return found


def unpenalised(
    model: RidgeSearch, session: Session, data: Examples, weightings: Sequence[np.ndarray | None]
) -> list[Result]:
    """Return least squares without a penalty, as :class:`Ridge` does it, for each weighting of the rows."""
    member = Ridge(alpha=0.0, fit_intercept=model.fit_intercept)
    return [result for c in weightings for result in member._results(session, data._replace(sample_weight=c), None)]


class _Fitted(Ridge):
    """A model of a fold, to be scored on rows that need no check."""

    def _taking(self, data: Examples, results: Sequence[Result]) -> _Fitted:
        self._take(data, results)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return safe_sparse_dot(X, self.coef_.T) + self.intercept_


class _Identity(RegressorMixin, BaseEstimator):
    """A model that returns its input as predictions, for a scorer."""

    def predict(self, predictions: np.ndarray) -> np.ndarray:
        """Return the input."""
        return predictions
