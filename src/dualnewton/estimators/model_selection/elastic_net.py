"""Least squares with r‖w‖₁ + ½(1 − r)‖w‖² whose alpha, and r if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Data
from dualnewton.estimators.elastic_net import ElasticNet, ElasticNetModel
from dualnewton.estimators.model_selection import _routing, choice
from dualnewton.estimators.model_selection._alphas import AlphaSearch
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._grid import OverFolds, walk_values
from dualnewton.estimators.model_selection._held_out import HeldOut
from dualnewton.estimators.model_selection._proofs import LeastSquaresProofs
from dualnewton.estimators.model_selection._quadratic_paths import Fitted, QuadraticPaths
from dualnewton.estimators.model_selection._session import GridSession, of_each
from dualnewton.planning.working_sets import sums_moments
from dualnewton.run.result import Result


@estimator
class ElasticNetCV(AlphaSearch, ElasticNetModel):
    """Least squares with a penalty that selects features, chosen by cross-validation, with a certificate for each model.

    With few features the moments of all folds come from one pass over the data, and the models of a fold are computed along the
    grid from them; then all models are certified. With many features, the models of all folds are fitted together over a growing
    set of features, which shared passes check, and the model of all rows for the chosen value only.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.ElasticNetCV``; differences and additions:

    Attributes
    ----------
    choice_certificate_ : ChoiceCertificate
        Bounds on the mean score of exact fits for each value, and whether exact fits would choose the same value.
    certificates_ : array of Certificate of shape (l1_ratios, alphas, folds)
        The certificate of each model.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.ElasticNetCV(l1_ratio=0.9, alphas=20, cv=3).fit(X, y)
    >>> model.alpha_ > 0, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "precompute": [StrOptions({"auto"}), "boolean", "array-like"],
    }
    _kind: ClassVar[type[CertifiedModel]] = ElasticNet

    precompute: Any = "auto"

    def _search(self, data: Data, ratios: list[float], params: dict[str, Any]) -> None:
        grids = [self._grid(data, ratio) for ratio in ratios]
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {})
        splits = check_cv(self.cv).split(indexed(data), data.y, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0], data.sample_weight)
        search = _Search(data, folds, (len(ratios), len(grids[0])))
        with GridSession(self) as session:
            fits = self._found(session, data, folds)
            for r, (ratio, alphas) in enumerate(zip(ratios, grids, strict=True)):
                done = 0
                for found in fits(ratio, alphas):
                    search.take(r, done, found)
                    done += len(found)
            r, k = search.best
            self.choice_certificate_ = self._choice(session, search, ratios, grids)
            final = search.final()
        self._set_chosen(grids, ratios[r], float(grids[r][k]))
        self.mse_path_ = np.squeeze(search.errors)
        self.certificates_ = of_each(search.outcomes, "certificate")
        self._adopt(data, final)
        names = [f"alpha = {alpha:.3g}" for alpha in (self.alpha_, *np.repeat(np.stack(grids), len(folds)))]
        CertifiedModel._warn_of_misses(self, [*final, *search.outcomes.ravel()], names)

    def _choice(
        self, session: GridSession, search: _Search, ratios: list[float], grids: list[np.ndarray]
    ) -> choice.ChoiceCertificate:
        """Bound the errors of exact fits."""
        data, folds, errors = search.data, search.folds, search.errors
        proofs = LeastSquaresProofs(
            data.matrix, folds, data.sample_weight, session.tuning, fit_intercept=self.fit_intercept, normalised=True
        )
        ends = np.full((*errors.shape, 2), choice.UNKNOWN)
        for r, (ratio, alphas) in enumerate(zip(ratios, grids, strict=True)):
            for fold in range(len(folds)):
                factor = proofs.factor(fold, float(alphas.min()) * (1.0 - ratio))
                for k in range(len(alphas)):
                    proof, score = search.outcomes[r, k, fold].certificate, -float(errors[r, k, fold])
                    ends[r, k, fold] = proofs.interval("neg_mean_squared_error", factor, proof, score)
        named = [
            {"alpha": float(alpha)} | ({"l1_ratio": ratio} if len(ratios) > 1 else {})
            for ratio, alphas in zip(ratios, grids, strict=True)
            for alpha in alphas
        ]
        chosen = int(np.ravel_multi_index(search.best, errors.shape[:2]))
        scores = -errors.reshape(-1, len(folds))
        reason = "the Lasso has no bound if the features outnumber the rows or are linearly dependent"
        return choice.certificate(
            named, scores, ends.reshape(*scores.shape, 2), chosen, "neg_mean_squared_error", reason
        )

    # The grid ---------------------------------------------------------------------------------------------------------

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        return slopes if self.positive else np.abs(slopes)

    def _first_member(self) -> Any:
        return self._posing(1.0, self._values()[0], ElasticNet)

    # Fits ---------------------------------------------------------------------------------------------------------------

    def _found(self, session: GridSession, data: Data, folds: Folds) -> Callable[[float, np.ndarray], Iterator[Fitted]]:
        """Return a function that fits a decreasing grid of alphas for an l1_ratio, several at a time."""
        c = data.sample_weight
        # Only ratios of weights matter: the objective of a fold is divided by their sum, and P by n.
        weightings = [each / each.mean() for each in folds.weights(c)]

        def in_passes(ratio: float, alphas: np.ndarray) -> Iterator[Fitted]:
            members = [(f"l1_ratio = {ratio:g}, alpha = {alpha:.3g}", self._posing(alpha, ratio)) for alpha in alphas]
            for whole, of_folds in walk_values(session, members, data, c, weightings):
                yield Fitted.of(of_folds, whole)

        able = data.matrix.capabilities
        if session.method != "auto" or not (able.whole or sums_moments(data.matrix.profile, session.tuning)):
            return in_passes  # columns of rows on disk cannot be selected
        whole = np.ones(len(data.y)) if c is None else c / c.mean()
        paths = QuadraticPaths(session, data, folds, [*weightings, whole], self._posing)

        def along_paths(ratio: float, alphas: np.ndarray) -> Iterator[Fitted]:
            done = 0
            for found in paths.along(ratio, alphas[alphas > 0.0]):
                yield found
                done += len(found)
            yield from in_passes(ratio, alphas[done:])  # alpha = 0, which has another dual, or too many features

        return along_paths

    def _posing(self, alpha: float, ratio: float, kind: type[ElasticNet] | None = None) -> Any:
        """Return the estimator of one value, which has one problem per fold."""
        return self._member(kind or _OverFolds, alpha=alpha, l1_ratio=ratio, precompute=False)

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` takes metadata."""
        return _routing.router(self, check_cv(self.cv), None)


@estimator
class LassoCV(ElasticNetCV):
    """The Lasso whose alpha cross-validation chooses: :class:`ElasticNetCV` with ``l1_ratio=1``, with the same other parameters.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.LassoCV(alphas=20, cv=3).fit(X, y)
    >>> model.alpha_ > 0, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    l1_ratio: Any = field(default=1.0, init=False)


class _OverFolds(OverFolds, ElasticNet):
    """The models of several folds, for one value."""


class _Search:
    """The errors of all models on the rows that their folds hold out, and the best value so far.

    Attributes
    ----------
    errors : array of shape (l1_ratios, alphas, folds)
        The weighted mean squared errors.
    outcomes : array of Outcome of the same shape
        Certificates and statuses of the models.
    best : (int, int)
        The first index with the least mean over the folds.
    """

    def __init__(self, data: Data, folds: Folds, shape: tuple[int, int]) -> None:
        self.data, self.folds = data, folds
        self.held_out = HeldOut(data, Folds(folds.counts, list(map(np.sort, folds.tests))))
        self.errors = np.empty((*shape, len(folds)))
        self.outcomes = np.empty(self.errors.shape, dtype=object)
        self.best, self.least = (0, 0), np.inf
        self.final: Callable[[], list[Result]] = list

    def take(self, ratio: int, first: int, found: Fitted) -> None:
        """Store the models of several alphas, starting at an index."""
        own = slice(first, first + len(found))
        for fold, missed in enumerate(self._in_memory(found) if self.held_out.selects else self._in_passes(found)):
            rows = np.sort(self.folds.tests[fold])
            missed -= self.data.y[rows, None]
            weights = None if self.data.sample_weight is None else self.data.sample_weight[rows]
            self.errors[ratio, own, fold] = np.average(np.square(missed), axis=0, weights=weights)
        for place, outcomes in enumerate(found.outcomes, first):
            self.outcomes[ratio, place] = outcomes
        for place, mean in enumerate(self.errors[ratio, own].mean(axis=1), first):
            if mean < self.least:
                self.best, self.least, self.final = (ratio, place), mean, partial(found.final, place - first)

    def _in_memory(self, found: Fitted) -> Iterator[np.ndarray]:
        """Yield the margins of the held-out rows of each fold, in increasing order, for all alphas."""
        for fold, rows in enumerate(map(np.sort, self.folds.tests)):
            used = np.flatnonzero(found.W[:, fold].any(axis=0))
            held_out = self.data.matrix.rows(rows)
            part = held_out if used.size == found.W.shape[2] else held_out[:, used]
            yield np.asarray(part @ found.W[:, fold, used].T) + found.b[:, fold]

    def _in_passes(self, found: Fitted) -> list[np.ndarray]:
        """Return the same from passes over all rows, each for as many alphas as memory allows."""
        W, b = np.swapaxes(found.W, 0, 1), found.b.T
        step = self.held_out.together(len(found))
        parts = [self.held_out.margins(W[:, k : k + step], b[:, k : k + step]) for k in range(0, len(found), step)]
        return [np.hstack(own) for own in zip(*parts, strict=True)]
