"""Sweeps over single examples with shrinking: a first sweep over all examples, then sweeps over those that are still active.

    shrinking(*rows, curvature, models, k, loss, visits, draws, fraction)       of model k; returns the number of visits

An example without a residual at its visit becomes inactive. The sweeps end when the residual of one is at most ``fraction`` of
that of the first, or no example is active. Each visit uses one of the random numbers ``draws``, so that a call does at most as
many visits; the next call continues where it ended, and the clock is read between two calls. LIBLINEAR orders its visits in the
same way (Hsieh et al., 2008), with another rule of shrinking.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualnewton.kernels._jit import lean
from dualnewton.kernels.gradients import call_gradient
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.separable import singles_of_one

NEXT, KEPT, SIZE = 0, 1, 2
"""Parts of ``Visits.place``."""

FIRST, LAST, NOW, MASS = 0, 1, 2, 3
"""Parts of ``Visits.sums``."""


class Visits(NamedTuple):
    """The examples that a model visits, and sums over its visits so far."""

    order: np.ndarray  # (n,) the active examples first; those that the present sweep has visited before the others
    place: np.ndarray  # (3,) the next visit, how many examples before it stay active, the size of the sweep
    sums: np.ndarray  # (4,) residuals of the first, of the last complete and of the present sweep; Σ c_i α_i

    @classmethod
    def of_all(cls, n: int, mass: float) -> Visits:
        """Begin with a sweep over all examples."""
        return cls(np.arange(n), np.array([0, 0, n]), np.array([np.nan, np.nan, 0.0, mass]))

    @property
    def first_residual(self) -> float:
        """The sum of the residuals of the first sweep, over all examples; NaN before its end."""
        return float(self.sums[FIRST])

    @property
    def residual(self) -> float:
        """The sum of the residuals of the last complete sweep; NaN before the end of the first."""
        return float(self.sums[LAST])

    @property
    def ended(self) -> bool:
        """Whether the residual is small enough, or no example is active."""
        return bool(self.place[SIZE] == 0)


@lean
def _draw(order, first, last, size, draws, used):
    """Exchange each place from ``first`` to ``last`` with a random one of itself and those after it (Fisher and Yates).

    A number below 2³² times the number of these places, divided by 2³², gives the place.
    """
    for p in range(first, last):
        q = p + np.intp((np.uint64(draws[used + p - first]) * np.uint64(size - p)) >> np.uint64(32))
        order[p], order[q] = order[q], order[p]


@lean
def _shrinking(data, columns, row_starts, curvature, models, k, loss, visits, draws, fraction):
    order, place, sums, used = visits.order, visits.place, visits.sums, 0
    whole = models.gradient.size > 0
    while used < draws.size and place[SIZE] > 0:
        first = place[NEXT]
        last = min(place[SIZE], first + (1 if whole else draws.size - used))
        _draw(order, first, last, place[SIZE], draws, used)
        b = models.b[k]
        models.b[k], residual = singles_of_one(
            data, columns, row_starts, curvature[k], order, first, last,
            models.w[k], models.w_bar[k], models.alpha[k], models.y[k], models.c[k], models.o[k],
            b, models.b_curvature[k], models.scale[k], models.limits,
            models.tolerance[k], models.inactive_below[k], models.active[k], loss,
        )  # fmt: skip
        if whole:
            call_gradient(models.gradient, models.w_bar[k], models.w[k])
        if models.b_curvature[k] > 0.0:
            sums[MASS] += (models.b[k] - b) / models.b_curvature[k]
        sums[NOW] += residual
        kept = place[KEPT]
        for p in range(first, last):
            i = order[p]
            order[kept] = i
            kept += models.active[k, i]
        used += last - first
        place[NEXT], place[KEPT] = last, kept
        if last == place[SIZE]:
            _end_sweep(place, sums, fraction)
            # The centre of the proximal term moves to the intercept (see Solver in solvers/dual/base.py).
            models.b[k] += models.b_curvature[k] * sums[MASS]
    return used


@lean
def _end_sweep(place, sums, fraction):
    if np.isnan(sums[FIRST]):
        sums[FIRST] = sums[NOW]
    sums[LAST] = sums[NOW]
    place[SIZE] = 0 if sums[LAST] <= fraction * sums[FIRST] else place[KEPT]
    place[NEXT], place[KEPT], sums[NOW] = 0, 0, 0.0


shrinking = Kernel(_shrinking)
