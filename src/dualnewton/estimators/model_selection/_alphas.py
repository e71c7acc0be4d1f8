"""The search over alpha, and over l1_ratio, by cross-validation: the grids, the errors of all values, and the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Examples, falling_grid, in_unit_interval, strengths
from dualnewton.estimators.model_selection import _routing, choice
from dualnewton.estimators.model_selection._cross_validated import CrossValidated
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._grid import over_folds, walk_values
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.run.result import Result


class Scored(NamedTuple):
    """Outcome and error of the model of each fold for an alpha, and a function that returns the results of all rows."""

    outcomes: Sequence[Outcome]
    errors: Sequence[float] | np.ndarray
    final: Callable[[], list[Result]]


Walk = Callable[[float, np.ndarray], Iterator[Scored]]
"""Fits a decreasing grid of alphas for an l1_ratio, and yields what was found for each alpha."""


class Search:
    """A search: what is fitted, the errors of all models on the rows that their folds hold out, and the best value.

    Attributes
    ----------
    session, data, folds
        The session of all fits, all rows, and the training and test rows of each fold.
    ratios, grids
        The values of l1_ratio, and for each of them those of alpha.
    errors : array of shape (l1_ratios, alphas, folds)
        The errors.
    outcomes : array of Outcome of the same shape
        Certificates and statuses of the models.
    best : (int, int)
        The first index with the least mean error over the folds.
    final : callable
        Returns the results of all rows for the best value.
    moments : FoldMoments, optional
        The moments of the rows, if the fits use them.
    """

    moments: FoldMoments | None = None

    def __init__(
        self,
        session: GridSession,
        data: Examples,
        folds: Folds,
        ratios: Sequence[float],
        grids: Sequence[np.ndarray],
    ) -> None:
        self.session, self.data, self.folds, self.ratios, self.grids = session, data, folds, ratios, grids
        self.errors = np.empty((len(ratios), len(grids[0]), len(folds)))
        self.outcomes = np.empty(self.errors.shape, dtype=object)
        self.best, self.least = (0, 0), np.inf
        self.final: Callable[[], list[Result]] = list

    def fit(self, walk: Walk) -> None:
        """Fit all values, and store what is found for each."""
        for r, (ratio, alphas) in enumerate(zip(self.ratios, self.grids, strict=True)):
            for k, found in enumerate(walk(ratio, alphas)):
                self.errors[r, k], self.outcomes[r, k] = found.errors, found.outcomes
                mean = float(self.errors[r, k].mean())
                if mean < self.least:
                    self.best, self.least, self.final = (r, k), mean, found.final

    def choice(self, ends: np.ndarray, scoring: str, reason: str, *, with_ratio: bool) -> choice.ChoiceCertificate:
        """Return the certificate of the choice, given bounds on the scores, which are the negative errors, of exact fits."""
        named = [
            {"alpha": float(alpha)} | ({"l1_ratio": ratio} if with_ratio else {})
            for ratio, alphas in zip(self.ratios, self.grids, strict=True)
            for alpha in alphas
        ]
        scores = -self.errors.reshape(len(named), -1)
        chosen = int(np.ravel_multi_index(self.best, self.errors.shape[:2]))
        return choice.certificate(named, scores, ends.reshape(*scores.shape, 2), chosen, scoring, reason)


@estimator
class AlphaSearch(CrossValidated):
    """A search over alpha, downwards from the least value at which all coefficients are zero, and over l1_ratio.

    Parameters
    ----------
    l1_ratio : float or sequence of floats
        r, or several values to choose from.
    eps : float
        The smallest alpha of a grid divided by the largest.
    alphas : int or sequence of floats
        The values, or their number; then the grid goes from the least alpha at which all coefficients are zero to ``eps``
        times it.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "l1_ratio": [Interval(Real, 0, 1, closed="both"), "array-like"],
        "eps": [Interval(Real, 0, None, closed="neither")],
        "alphas": [Interval(Integral, 1, None, closed="left"), "array-like"],
    }

    l1_ratio: Any = 0.5
    eps: float = 1e-3
    alphas: Any = 100

    def _values(self) -> list[float]:
        ratios = np.atleast_1d(np.asarray(self.l1_ratio))
        if ratios.ndim != 1 or ratios.size == 0 or not in_unit_interval(ratios):
            raise DualnewtonError(
                f"l1_ratio must be a number between 0 and 1, or a list of such, got {self.l1_ratio!r}"
            )
        return ratios.astype(float).tolist()

    def _first_member(self) -> Any:
        return self._member(alpha=1.0, l1_ratio=self._values()[0])

    # Defined by subclasses ---------------------------------------------------------------------------------------------

    def _walk(self, search: Search) -> Walk:
        """Return the way of fitting that suits the data."""
        raise NotImplementedError

    def _choice(self, search: Search) -> choice.ChoiceCertificate | None:  # noqa: ARG002
        """Return the certificate of the choice; None if the class has none."""
        return None

    def _set_errors(self, errors: np.ndarray) -> None:
        """Set the attribute with the errors of all models."""
        self.mse_path_ = np.squeeze(errors)

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        """Return the strength below which the coefficient of each feature is nonzero, given the slopes at zero."""
        return slopes if getattr(self, "positive", False) else np.abs(slopes)

    # Shared ------------------------------------------------------------------------------------------------------------

    def _search(self, data: Examples, ratios: list[float], params: dict[str, Any]) -> None:
        grids = [self._grid(data, ratio) for ratio in ratios]
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {})
        splits = check_cv(self.cv).split(indexed(data), data.y, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0], data.sample_weight)
        with GridSession(self) as session:
            search = Search(session, data, folds, ratios, grids)
            search.fit(self._walk(search))
            proof = self._choice(search)
            final = search.final()
        r, k = search.best
        self.l1_ratio_, self.alpha_ = ratios[r], float(grids[r][k])
        several = isinstance(self.alphas, Integral) and len(grids) > 1
        self.alphas_ = np.stack(grids) if several else grids[0]
        self._set_errors(search.errors)
        self.certificates_ = of_each(search.outcomes, "certificate")
        if proof is not None:
            self.choice_certificate_ = proof
        self._adopt(data, final)
        values = [*[self.alpha_] * len(final), *np.repeat(np.stack(grids), len(folds))]
        names = [f"alpha = {alpha:.3g}" for alpha in values]
        CertifiedModel._warn_of_misses(self, [*final, *search.outcomes.ravel()], names)

    def _in_passes(
        self, search: Search, ratio: float, alphas: np.ndarray
    ) -> Iterator[tuple[list[Result], list[list[Result]]]]:
        """Yield the results of all rows, and those of each fold, for decreasing alphas; each starts from those before."""
        kind, data, folds = over_folds(self._kind), search.data, search.folds
        members = (
            (f"l1_ratio = {ratio:g}, alpha = {alpha:.3g}", self._member(kind, alpha=float(alpha), l1_ratio=ratio))
            for alpha in alphas
        )
        c = data.sample_weight
        for whole, found in walk_values(search.session, members, data, c, folds.relative_weights(c)):
            count = len(found) // len(folds)
            yield whole, [found[low : low + count] for low in range(0, len(found), count)]

    def _grid(self, data: Examples, ratio: float) -> np.ndarray:
        """Return the values of alpha for an l1_ratio, from the largest to the smallest."""
        if not isinstance(self.alphas, Integral):
            return np.sort(strengths("alphas", self.alphas, or_zero=True))[::-1]
        if ratio == 0.0:
            raise DualnewtonError(
                "Automatic alpha grid generation is not supported for l1_ratio=0. Please supply a grid by providing your "
                f"estimator with the appropriate `alphas=` argument. No alpha leaves all features out there: got {self.alphas!r}"
            )
        c = np.ones(len(data.y)) if data.sample_weight is None else data.sample_weight
        centred = data.y - (c @ data.y / c.sum() if self.fit_intercept else 0.0)
        slopes = data.matrix.transposed_times((c * centred.T).T)
        highest = max(float(self._slope_sizes(slopes).max()), 0.0) / (c.sum() * ratio)
        return falling_grid(highest, self.eps, int(self.alphas))

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` takes metadata."""
        return _routing.router(self, check_cv(self.cv), None)
