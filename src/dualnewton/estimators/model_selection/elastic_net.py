"""Least squares with r‖w‖₁ + ½(1 − r)‖w‖² whose alpha, and r if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import StrOptions

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Examples
from dualnewton.estimators.elastic_net import ElasticNet, ElasticNetModel
from dualnewton.estimators.model_selection import choice
from dualnewton.estimators.model_selection._alphas import AlphaSearch, Scored, Search, Walk
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._grid import over_folds
from dualnewton.estimators.model_selection._held_out import HeldOut
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection._proofs import LeastSquaresProofs
from dualnewton.estimators.model_selection._quadratic_paths import Fitted, quadratic_paths
from dualnewton.objective.moments import Residuals
from dualnewton.planning.working_sets import sums_moments

SCORE = "neg_mean_squared_error"
"""scikit-learn's name of the score."""

TRUSTED = 1e-8
"""Largest proved rounding error, as a fraction of a mean squared error, with which it is computed from moments of the rows."""

MOST_RIVALS = 16
"""Number of values that may be the best up to which each is bounded by the curvature of its own penalty."""


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

    def _member(self, kind: type[CertifiedModel] | None = None, **values: Any) -> Any:
        return super()._member(kind, precompute=False, **values)

    def _choice(self, search: Search) -> choice.ChoiceCertificate:
        """Bound the errors of exact fits by the curvature of the weakest penalty.

        Values that may be best are bounded by that of the weakest of these, and what is still open by the penalty of each value:
        a bound factorises matrices of all features.
        """
        data, folds = search.data, search.folds
        given = data.matrix, folds, data.sample_weight, search.session.tuning
        free, moments = self.fit_intercept, search.moments
        proofs = LeastSquaresProofs(*given, fit_intercept=free, normalised=True, moments=moments)
        slack = choice.SLACK if moments is None else TRUSTED
        ends = np.full((*search.errors.shape, 2), choice.UNKNOWN)

        def bound(r: int, places: Any, weakest: float) -> None:
            factors = [proofs.factor(fold, weakest * (1.0 - search.ratios[r])) for fold in range(len(folds))]
            known = [fold for fold, factor in enumerate(factors) if factor is not None]
            own = np.ix_(np.arange(len(search.grids[r]))[places], known)
            spreads = np.array([factors[fold] for fold in known]) * np.sqrt(search.gaps[r][own])
            ends[r][own] = choice.squared_ends(-search.errors[r][own], spreads, slack)

        def compared() -> choice.ChoiceCertificate:
            reason = "the Lasso has no bound if the features outnumber the rows or are linearly dependent"
            return search.choice(ends, SCORE, reason, with_ratio=len(search.ratios) > 1)

        for r, alphas in enumerate(search.grids):
            bound(r, slice(None), float(alphas.min()))
        found = compared()
        # Models from moments are exact but for rounding, which leaves the same values open when they are fitted again.
        if moments is None and 0 < found.rivals.size < MOST_RIVALS and np.isfinite(ends).all():
            search.refine([found.chosen, *found.rivals.tolist()])
            for each in (False, True):
                ratios, places = np.divmod([found.chosen, *found.rivals.tolist()], search.errors.shape[1])
                for r in np.unique(ratios):
                    own = places[ratios == r]
                    for some in own[:, None] if each else [own]:
                        bound(r, some, float(search.grids[r][some].min()))
                found = compared()
                if not found.rivals.size:
                    break
        return found

    def _walk(self, search: Search) -> Walk:
        session, data, folds, able = search.session, search.data, search.folds, search.data.matrix.capabilities
        by_paths = session.method == "auto" and (able.whole or sums_moments(data.matrix.profile, session.tuning))
        paths = quadratic_paths(session, data, folds, self._posing) if by_paths else None
        search.moments = None if paths is None else paths.moments
        errors = _Errors(data, folds, search.moments)

        def in_passes(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            for whole, of_folds in self._in_passes(search, ratio, alphas):
                yield errors.scored(Fitted.of([result for own in of_folds for result in own], whole))

        if paths is None:  # columns of rows on disk cannot be selected
            return in_passes
        search.again = paths.again(errors.scored)
        return paths.walk(errors.scored, in_passes)

    def _posing(self, ratio: float) -> Any:
        """Return the estimator of an l1_ratio, which has one problem per fold."""
        return self._member(over_folds(ElasticNet), alpha=1.0, l1_ratio=ratio)


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


class _Errors:
    """The weighted mean squared errors on the rows that each fold holds out."""

    def __init__(self, data: Examples, folds: Folds, moments: FoldMoments | None = None) -> None:
        self.data, self.tests = data, list(map(np.sort, folds.tests))
        self.held_out = HeldOut(data, Folds(folds.counts, self.tests))
        self.residuals = [self._residuals(moments, fold) for fold in range(len(folds))]

    def _residuals(self, moments: FoldMoments | None, fold: int) -> Residuals | None:
        """Return the residuals on held-out rows from their moments, if there are fewer of these than rows."""
        own, rows = None if moments is None else moments.held_out(fold), self.tests[fold]
        if own is None or rows.size <= len(own.gram):
            return None
        y, c = self.data.y[rows, None], self.data.sample_weight
        return Residuals(own, y, np.ones(rows.size) if c is None else c[rows], shift=True)

    def scored(self, found: Fitted) -> Scored:
        """Return the models of each alpha with their errors."""
        errors, rest = np.empty(found.b.shape), []
        for fold, residuals in enumerate(self.residuals):
            if residuals is None:
                rest.append(fold)
                continue
            errors[:, fold], rounding = residuals.mean_squares(found.W[:, fold, None], found.b[:, fold, None])
            if np.any(rounding > TRUSTED * errors[:, fold]):
                rest.append(fold)
        if rest:
            self._on_rows(found, rest, errors)
        return Scored(found.outcomes, errors, found.final, found.starts)

    def _on_rows(self, found: Fitted, folds: Sequence[int], errors: np.ndarray) -> None:
        """Compute the errors of some folds from their rows."""
        weights = self.data.sample_weight
        for fold, missed in self._in_memory(found, folds) if self.held_out.selects else self._in_passes(found):
            rows = self.tests[fold]
            missed -= self.data.y[rows, None]
            own = None if weights is None else weights[rows]
            errors[:, fold] = np.average(np.square(missed), axis=0, weights=own)

    def _in_memory(self, found: Fitted, folds: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
        """Yield folds with the margins of their held-out rows, in increasing order, for all alphas."""
        for fold in folds:
            rows = self.tests[fold]
            used = np.flatnonzero(found.W[:, fold].any(axis=0))
            held_out = self.data.matrix.rows(rows)
            part = held_out if used.size == found.W.shape[2] else held_out[:, used]
            yield fold, np.asarray(part @ found.W[:, fold, used].T) + found.b[:, fold]

    def _in_passes(self, found: Fitted) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the same for all folds from passes over all rows, each for as many alphas as memory allows."""
        W, b = np.swapaxes(found.W, 0, 1), found.b.T
        step = self.held_out.together(len(found))
        parts = [self.held_out.margins(W[:, k : k + step], b[:, k : k + step]) for k in range(0, len(found), step)]
        yield from enumerate(np.hstack(own) for own in zip(*parts, strict=True))
