"""Grids of alpha, and of l1_ratio, for cross-validation."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Data, falling_grid, in_unit_interval, strengths
from dualnewton.estimators.model_selection._cross_validated import CrossValidated


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

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        """Return the strength below which the coefficient of each feature is nonzero, given the slopes at zero."""
        raise NotImplementedError

    def _grid(self, data: Data, ratio: float) -> np.ndarray:
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

    def _set_chosen(self, grids: list[np.ndarray], ratio: float, alpha: float) -> None:
        """Set the attributes with the grid and the chosen values."""
        self.l1_ratio_, self.alpha_ = ratio, alpha
        several = isinstance(self.alphas, Integral) and len(grids) > 1
        self.alphas_ = np.stack(grids) if several else grids[0]
