"""The search over alpha, and over l1_ratio, by cross-validation: the grids, the errors of all values, and the choice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
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
from dualnewton.estimators.model_selection._proofs import gaps_of
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.matrix import linear
from dualnewton.run.result import Result

DOUBT, OPEN = 2.0, 1e-8
"""Error of predictions for held-out rows that is considered possible, as a multiple of the error that a gap allows for training
rows; and the least relative gap of models that are fitted again."""

EXACT = 1e-14
"""Gap, as a fraction of an error, above which the models of values that may be the best are fitted again to prove the choice."""

BATCH, FARTHER = 8, 4.0
"""Number of values that are fitted again at a time, the best first. A further value is fitted again if its error exceeds the
least by at most this multiple of the largest change of an error in such fits."""

KEPT = 1 << 23
"""Number of coefficients of models that are kept until the choice; of more models, the nonzero ones count."""


class Scored(NamedTuple):
    """Outcome and error of the model of each fold for some alphas, and a function that returns the results of all rows for one.

    ``starts`` has the models from which a more accurate fit of each alpha starts, if there are any; as sparse arrays if features
    are many.
    """

    outcomes: Sequence[Sequence[Outcome]]
    errors: np.ndarray
    final: Callable[[int], list[Result]]
    starts: Sequence[linear.Matrix] | np.ndarray | None = None


Walk = Callable[[float, np.ndarray], Iterator[Scored]]
"""Fits a decreasing grid of alphas for an l1_ratio, and yields what was found for consecutive alphas."""


class Search:
    """A search: what is fitted, the errors of all models on the rows that their folds hold out, and the best value."""

    moments: FoldMoments | None = None  # moments of the rows, if the fits use them
    # Fits some decreasing alphas for an l1_ratio almost exactly, from the start of the first.
    again: Callable[[float, np.ndarray, np.ndarray], Iterator[Scored]] | None = None

    def __init__(
        self,
        session: GridSession,
        data: Examples,
        folds: Folds,
        ratios: Sequence[float],  # values of l1_ratio
    ) -> None:
        self.session, self.data, self.folds, self.ratios = session, data, folds, ratios
        # The best value with what was found for it, and all values if their models fit into some memory: what was found for some
        # alphas, and the place of this one among them.
        self.found: dict[tuple[int, int], tuple[Scored, int]] = {}

    def _begin(self, grids: Sequence[np.ndarray]) -> None:
        self.grids, ratios, folds = grids, self.ratios, self.folds
        self.errors = np.empty((len(ratios), len(grids[0]), len(folds)))
        # Certificates and statuses of the models, and their gaps with the rounding errors of these.
        self.outcomes, self.gaps = np.empty(self.errors.shape, dtype=object), np.empty(self.errors.shape)
        self.met = np.zeros(self.errors.shape, dtype=bool)  # where a gap is far below the tolerance
        self.best, self.least = (0, 0), np.inf  # first index with the least mean error over the folds, and this error

    def final(self) -> list[Result]:
        """Return the results of all rows for the best value."""
        scored, place = self.found[self.best]
        return scored.final(place)

    def _start(self, place: tuple[int, int]) -> linear.Matrix | None:
        """Return the models from which a more accurate fit of a value starts, if there are any."""
        scored, k = self.found[place]
        return None if scored.starts is None else scored.starts[k]

    def fit(self, walk: Walk, grids: Sequence[np.ndarray]) -> None:
        """Fit all values, a grid of alphas for each ratio, and those among which the gaps leave the choice open once more."""
        self._begin(grids)
        kept, many = 0, self.errors.size * self.data.X.shape[1] > KEPT
        for r, (ratio, alphas) in enumerate(zip(self.ratios, self.grids, strict=True)):
            places = iter(range(len(alphas)))
            for found in walk(ratio, alphas):
                if many and found.starts is not None:
                    found = found._replace(starts=[sp.csr_array(start) for start in found.starts])
                self._store(r, list(islice(places, len(found.errors))), found)
                kept += 0 if found.starts is None else sum(start.size for start in found.starts)
                if self.again is None or kept > KEPT:
                    self.found = {self.best: self.found[self.best]}
        if self.again is not None and kept <= KEPT and not self.session.is_over:
            self._compare_again(self.again)

    def _store(self, r: int, places: Sequence[int], scored: Scored) -> None:
        """Store what was found for some alphas, given their numbers in grid r."""
        self.errors[r, places], self.outcomes[r, places] = scored.errors, scored.outcomes
        proofs = [outcome.certificate for of_folds in scored.outcomes for outcome in of_folds]
        primal, dual = np.array([(proof.primal, proof.dual) for proof in proofs]).T
        self.gaps[r, places] = gaps_of(primal, dual).reshape(scored.errors.shape)
        self.met[r, places] = (primal - dual < 0.5 * self.session.tol * np.abs(primal)).reshape(scored.errors.shape)
        self.found |= {(r, place): (scored, k) for k, place in enumerate(places)}
        means = scored.errors.mean(axis=1)
        least = int(np.argmin(np.where(np.isnan(means), np.inf, means)))
        if means[least] < self.least:
            self.best, self.least = (r, places[least]), float(means[least])

    def _compare_again(self, again: Callable[[float, np.ndarray, np.ndarray], Iterator[Scored]]) -> None:
        """Fit the values that may be the best almost exactly, as far as such fits change errors enough."""
        close, change = self._contenders(), np.inf
        while not self.session.is_over:
            means = self.errors.mean(axis=2)
            near = np.flatnonzero(close & (means - means.min() <= FARTHER * change))
            if near.size == 0:
                break
            batch = np.zeros_like(close)
            batch.flat[near[np.argsort(means.flat[near], kind="stable")[:BATCH]]] = True
            close &= ~batch
            self._fit_again(batch, again)
            change = max(float(np.abs(self.errors.mean(axis=2) - means).max()), change if change < np.inf else 0.0)
        self._choose()

    def refine(self, places: Sequence[int]) -> None:
        """Fit the values with these numbers almost exactly, and choose again, if their models can be continued."""
        rough, batch = np.any(self.gaps > EXACT * self.errors, axis=2), np.zeros(self.gaps.shape[:2], dtype=bool)
        batch.flat[list(places)] = True
        batch &= rough
        if (
            self.again is not None
            and not self.session.is_over
            and all(map(self.found.get, map(tuple, np.argwhere(batch))))
        ):
            self._fit_again(batch, self.again)
            self._choose()

    def _choose(self) -> None:
        """Find the best value again."""
        means = self.errors.mean(axis=2)
        place = np.unravel_index(np.argmin(np.where(np.isnan(means), np.inf, means)), means.shape)
        self.best = int(place[0]), int(place[1])

    def _fit_again(self, batch: np.ndarray, again: Callable[[float, np.ndarray, np.ndarray], Iterator[Scored]]) -> None:
        for r, (ratio, alphas) in enumerate(zip(self.ratios, self.grids, strict=True)):
            if (places := np.flatnonzero(batch[r]).tolist()) and (start := self._start((r, places[0]))) is not None:
                numbers = iter(places)
                for found in again(ratio, alphas[places], linear.to_dense(start)):
                    self._store(r, list(islice(numbers, len(found.errors))), found)

    def _contenders(self) -> np.ndarray:
        """Return whether each value may be the best one of exact fits, given the gaps of its models, which are not tiny.

        A gap leaves an error of √(2 gap) in the root of the mean square of the predictions for the training rows. No value is
        returned if one alone may be the best.
        """
        roots, spread = np.sqrt(self.errors), DOUBT * np.sqrt(2.0 * self.gaps)
        low, high = np.square(np.maximum(roots - spread, 0.0)), np.square(roots + spread)
        close = low.mean(axis=2) <= high.mean(axis=2).min()
        if np.count_nonzero(close) <= 1:
            return np.zeros_like(close)
        able = [self.found[place][0].starts is not None for place in np.ndindex(close.shape)]
        rough = np.any(self.gaps > OPEN * np.square(roots), axis=2) & np.reshape(able, close.shape)
        return close & rough

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
        """Return the function that fits the models of a grid, chosen by the data."""
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
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {})
        splits = check_cv(self.cv).split(indexed(data), data.y, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0], data.sample_weight)
        with GridSession(self) as session:
            search = Search(session, data, folds, ratios)
            walk = self._walk(search)
            grids = [self._grid(search, ratio) for ratio in ratios]
            search.fit(walk, grids)
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
        if search.met.all() and all(result.certificate.relative_gap <= self.tol for result in final):
            return  # asking hundreds of certificates for their gaps takes longer
        named = [f"alpha = {alpha:.3g}" for alpha in np.concatenate(grids).tolist()]
        names = [f"alpha = {self.alpha_:.3g}"] * len(final) + [name for name in named for _ in range(len(folds))]
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

    def _grid(self, search: Search, ratio: float) -> np.ndarray:
        """Return the values of alpha for an l1_ratio, from the largest to the smallest."""
        if not isinstance(self.alphas, Integral):
            return np.sort(strengths("alphas", self.alphas, or_zero=True))[::-1]
        if ratio == 0.0:
            raise DualnewtonError(
                "Automatic alpha grid generation is not supported for l1_ratio=0. Please supply a grid by providing your "
                f"estimator with the appropriate `alphas=` argument. No alpha leaves all features out there: got {self.alphas!r}"
            )
        slopes, total = self._slopes_at_zero(search)
        highest = max(float(self._slope_sizes(slopes).max()), 0.0) / (total * ratio)
        return falling_grid(highest, self.eps, int(self.alphas))

    def _slopes_at_zero(self, search: Search) -> tuple[np.ndarray, float]:
        """Return Σ c_i x_i (y_i − ȳ), from the moments of the rows if these are known, and Σ c_i."""
        data, free = search.data, self.fit_intercept
        if search.moments is not None:
            every = search.moments.training[-1]  # all rows
            return every.slopes(fit_intercept=free)[:, 0], every.total
        c = np.ones(len(data.y)) if data.sample_weight is None else data.sample_weight
        centred = data.y - (c @ data.y / c.sum() if free else 0.0)
        return data.matrix.transposed_times((c * centred.T).T), float(c.sum())

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` takes metadata."""
        return _routing.router(self, check_cv(self.cv), None)
