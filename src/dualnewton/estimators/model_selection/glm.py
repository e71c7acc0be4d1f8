"""Generalised linear models whose alpha, and l1_ratio if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import _fit_context
from sklearn.metrics import mean_tweedie_deviance
from sklearn.utils.metadata_routing import _raise_for_params

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Examples, falling_grid, strengths
from dualnewton.estimators.glm import (
    GammaRegressor,
    GeneralizedLinearRegressor,
    PoissonRegressor,
    TweedieRegressor,
    means_of,
    with_offset,
)
from dualnewton.estimators.model_selection import choice
from dualnewton.estimators.model_selection._alphas import AlphaSearch, Scored, Search, Walk
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._session import Outcome
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

    def _walk(self, search: Search) -> Walk:
        def walk(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            for whole, of_folds in self._in_passes(search, ratio, alphas):
                found = [result for own in of_folds for result in own]
                errors = np.array([self._deviances(search.data, search.folds, found)])
                yield Scored([[Outcome.of(result) for result in found]], errors, [whole].__getitem__)

        return walk

    def _choice(self, search: Search) -> choice.ChoiceCertificate:
        ends = np.full((*search.errors.shape, 2), choice.UNKNOWN)
        return search.choice(ends, "neg_mean_deviance", NO_BOUND, with_ratio=True)

    def _set_errors(self, errors: np.ndarray) -> None:
        self.deviance_path_ = errors

    def _deviances(self, data: Examples, folds: Folds, results: Sequence[Result]) -> list[float]:
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

    def _grid(self, search: Search, ratio: float) -> np.ndarray:
        if not isinstance(self.alphas, Integral):
            return np.sort(strengths("alphas", self.alphas, or_zero=False))[::-1]
        (problem,) = self._first_member()._problems(search.data)
        b = problem.best_intercept(np.zeros(problem.d))
        slopes = problem.data.transposed_times(problem.c * problem.slopes_at(problem.o + b)) / problem.n
        highest = max(float(self._slope_sizes(slopes).max()), 0.0) / max(ratio, LEAST_RATIO)
        return falling_grid(highest, self.eps, int(self.alphas))


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
