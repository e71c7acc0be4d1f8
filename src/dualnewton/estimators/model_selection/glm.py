"""Generalised linear models whose alpha, and l1_ratio if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.metrics import mean_tweedie_deviance
from sklearn.model_selection import check_cv
from sklearn.utils.metadata_routing import _raise_for_params

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Data, falling_grid, strengths
from dualnewton.estimators.glm import (
    GammaRegressor,
    GeneralizedLinearRegressor,
    PoissonRegressor,
    TweedieRegressor,
    means_of,
    with_offset,
)
from dualnewton.estimators.model_selection import _routing, choice
from dualnewton.estimators.model_selection._alphas import AlphaSearch
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._grid import OverFolds, walk_values
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.row_arrays import on_host
from dualnewton.run.result import Result

LEAST_RATIO = 1e-3
"""The least ``l1_ratio`` with which the largest alpha of an automatic grid is computed."""

NO_BOUND = "deviances have no bounded slope, so that a distance of the predictions does not bound the score"


@estimator
class DevianceSearch(AlphaSearch, GeneralizedLinearRegressor):
    """A search over alpha and l1_ratio by the mean deviance on held-out rows; the models of all folds share their passes.

    Parameters
    ----------
    l1_ratio : float or sequence of floats
        r, or several values to choose from.
    alphas : int or sequence of floats
        The values, or their number; then the grid goes from the least alpha at which all coefficients are zero (for r at least
        0.001) to ``eps`` times it.

    Attributes
    ----------
    alpha_, l1_ratio_ : float
        The chosen values.
    alphas_ : array of shape (alphas,) or (l1_ratios, alphas)
        The values of alpha that were tried.
    deviance_path_ : array of shape (l1_ratios, alphas, folds)
        The mean deviance of each model on the held-out rows of its fold, weighted.
    certificates_ : array of Certificate of shape (l1_ratios, alphas, folds)
        The certificate of each model.
    choice_certificate_ : ChoiceCertificate
        States that the choice is not proved, and the reason.
    """

    _kind: ClassVar[type[CertifiedModel]]
    _folded: ClassVar[type[CertifiedModel]]
    """The class of the grid's models with one problem per fold."""

    alpha: float = field(default=1.0, init=False)
    l1_ratio: Any = 0.0
    alphas: Any = 20
    eps: float = 1e-4

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None, **params: Any) -> Self:
        """Fit all models, choose the best, and prove how good each is.

        Parameters
        ----------
        X, y, sample_weight, offset
            As for the model without cross-validation; weights are also used in the scores.
        **params
            For the splitter, if metadata routing is enabled.

        Returns
        -------
        self
        """
        _raise_for_params(params, self, "fit")
        ratios = self._values()
        self._search(with_offset(self._checked_for_folds(X, y, sample_weight), offset), ratios, params)
        return self._beside(X)

    def _search(self, data: Data, ratios: list[float], params: dict[str, Any]) -> None:
        grids = [self._grid(data, ratio) for ratio in ratios]
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {})
        folds = Folds.of(
            check_cv(self.cv).split(indexed(data), data.y, **given.splitter.split), data.X.shape[0], data.sample_weight
        )
        # Only ratios of weights matter: the objective of a fold is divided by their sum, and P by n.
        weightings = [each / each.mean() for each in folds.weights(data.sample_weight)]
        shape = len(ratios), len(grids[0]), len(folds)
        scores, outcomes, best = np.empty(shape), np.empty(shape, dtype=object), (np.inf, 0, 0, list[Result]())
        with GridSession(self) as session:
            for r, (ratio, alphas) in enumerate(zip(ratios, grids, strict=True)):
                names = [f"l1_ratio = {ratio:g}, alpha = {alpha:.3g}" for alpha in alphas]
                members = [self._member(self._folded, alpha=float(alpha), l1_ratio=ratio) for alpha in alphas]
                walk = walk_values(session, zip(names, members, strict=True), data, data.sample_weight, weightings)
                for k, (whole, found) in enumerate(walk):
                    scores[r, k] = self._deviances(data, folds, found)
                    outcomes[r, k] = [Outcome.of(result) for result in found]
                    best = min(best, (float(scores[r, k].mean()), r, k, whole), key=lambda each: each[0])
        _, r, k, final = best
        self._set_chosen(grids, ratios[r], float(grids[r][k]))
        self.deviance_path_ = scores
        self.certificates_ = of_each(outcomes, "certificate")
        named = [
            {"alpha": float(alpha), "l1_ratio": ratio}
            for ratio, alphas in zip(ratios, grids, strict=True)
            for alpha in alphas
        ]
        ends = np.full((len(named), len(folds), 2), choice.UNKNOWN)
        chosen, each = r * shape[1] + k, -scores.reshape(len(named), -1)
        self.choice_certificate_ = choice.certificate(named, each, ends, chosen, "neg_mean_deviance", NO_BOUND)
        self._adopt(data, final)
        names = [f"alpha = {alpha:.3g}" for alpha in (self.alpha_, *np.repeat(np.stack(grids), len(folds)))]
        CertifiedModel._warn_of_misses(self, [*final, *outcomes.ravel()], names)

    def _deviances(self, data: Data, folds: Folds, results: Sequence[Result]) -> list[float]:
        """Return the mean deviance of the model of each fold on the rows that it holds out."""
        margins = on_host(data.matrix.times(np.column_stack([result.w for result in results])))
        margins = margins + np.array([result.intercept for result in results])
        if data.offset is not None:
            margins = margins + data.offset[:, None]
        power, found = self._log_power or 0.0, []
        for fold, rows in enumerate(folds.tests):
            z = margins[rows, fold]
            c = None if data.sample_weight is None else data.sample_weight[rows]
            # The deviance of a mean that underflows to zero is not defined.
            mean = np.maximum(means_of(z), np.finfo(float).tiny) if power else z
            with np.errstate(over="ignore"):  # a deviance beyond the range of float64 is infinite, and is not chosen
                found.append(float(mean_tweedie_deviance(data.y[rows], mean, sample_weight=c, power=power)))
        return found

    def _grid(self, data: Data, ratio: float) -> np.ndarray:
        if not isinstance(self.alphas, Integral):
            return np.sort(strengths("alphas", self.alphas, or_zero=False))[::-1]
        (problem,) = self._first_member()._problems(data)
        b = problem.best_intercept(np.zeros(problem.d))
        slopes = problem.data.transposed_times(problem.c * problem.slopes_at(problem.o + b)) / problem.n
        highest = max(float(self._slope_sizes(slopes).max()), 0.0) / max(ratio, LEAST_RATIO)
        return falling_grid(highest, self.eps, int(self.alphas))

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        return slopes if self.positive else np.abs(slopes)

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` takes metadata."""
        return _routing.router(self, check_cv(self.cv), None)


class _PoissonOverFolds(OverFolds, PoissonRegressor):
    """The models of several folds, for one value."""


class _GammaOverFolds(OverFolds, GammaRegressor):
    """The models of several folds, for one value."""


class _TweedieOverFolds(OverFolds, TweedieRegressor):
    """The models of several folds, for one value."""


@estimator
class PoissonRegressorCV(DevianceSearch, PoissonRegressor):
    """Poisson regression whose alpha cross-validation chooses: :class:`PoissonRegressor` with its other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> model = dn.PoissonRegressorCV(alphas=5, cv=3).fit(X, rng.poisson(np.exp(0.5 * X[:, 0])))
    >>> model.alpha_ > 0, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _kind: ClassVar[type[CertifiedModel]] = PoissonRegressor
    _folded: ClassVar[type[CertifiedModel]] = _PoissonOverFolds


@estimator
class GammaRegressorCV(DevianceSearch, GammaRegressor):
    """Gamma regression whose alpha cross-validation chooses: :class:`GammaRegressor` with its other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> model = dn.GammaRegressorCV(alphas=5, cv=3).fit(X, rng.gamma(2.0, np.exp(0.5 * X[:, 0])))
    >>> model.alpha_ > 0, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _kind: ClassVar[type[CertifiedModel]] = GammaRegressor
    _folded: ClassVar[type[CertifiedModel]] = _GammaOverFolds


@estimator
class TweedieRegressorCV(DevianceSearch, TweedieRegressor):
    """Tweedie regression whose alpha cross-validation chooses: :class:`TweedieRegressor` with its other parameters.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 3))
    >>> costs = np.array([rng.gamma(2.0, 1.0, k).sum() for k in rng.poisson(np.exp(0.3 * X[:, 0]))])
    >>> model = dn.TweedieRegressorCV(power=1.5, alphas=5, cv=3).fit(X, costs)
    >>> model.alpha_ > 0, model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _kind: ClassVar[type[CertifiedModel]] = TweedieRegressor
    _folded: ClassVar[type[CertifiedModel]] = _TweedieOverFolds
