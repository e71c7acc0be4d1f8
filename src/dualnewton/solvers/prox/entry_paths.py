"""The models of ``paths.py`` by coordinate descent over the entries of the features: products are formed of those in use only.

A sweep over sparse features costs their entries, while the matrix of their products has a Cholesky factor that costs tens of
sweeps. The same holds with more dense features than rows: a Lasso may use nearly as many features as there are rows, and most
Newton steps then exchange one feature for another. Each model is solved for every fourth strength, starting at the extrapolation
of the last two models; the models between start at an interpolation. The gaps of interpolated models are of second order in the
distance of the strengths, so that many of these need no sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from dualnewton.matrix import Data, linear
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.deadline import OutOfTime, Until
from dualnewton.solvers.prox.column_descent import ColumnModel
from dualnewton.solvers.prox.paths import AHEAD, CHECKED, Paths
from dualnewton.solvers.prox.subproblem import Penalty

TOGETHER = 1 << 16
"""Entries of models that are returned together: their certificates share calls, and stay in the cache."""

APART = 4
"""Distance of the strengths that are solved for first."""

LOOSELY = 3.0
"""Relative gap at which a model is done, as a multiple of the goal over the threshold. (Goals are 0.3 of the wanted gap, since
violations of ε times the threshold may leave a gap of 2ε; the gap itself need not be so far below.)"""


class FromEntries(Paths):
    """Models of all features that are not zero."""

    def __init__(
        self,
        data: Data,
        y: np.ndarray,  # (n,) targets
        c: np.ndarray,  # (F, n) weights of the rows, for each model
        # Makes paths with matrices, which continue from the first strength for which sweeps do not suffice.
        gathering: Callable[[], Paths],
        crossovers: Crossovers,  # how many sweeps these are
        *,
        fit_intercept: bool,  # whether there is an intercept
    ) -> None:
        columns = data.columns(np.arange(data.d))
        self.d, self.features = data.d, np.flatnonzero(linear.squared_norms(columns))  # others stay at zero
        if not self.features.size:
            self.features = np.zeros(1, dtype=np.intp)  # a walk needs a feature
        self._gathering, most = gathering, crossovers.path_sweeps
        columns = columns if self.features.size == data.d else columns[self.features]
        self.models = [
            EntryModel(columns, y, own, most, crossovers.largest_matrix, fit_intercept=fit_intercept) for own in c
        ]
        self.means = np.stack([model.mean for model in self.models])
        self.target_mean = np.array([model.target_mean for model in self.models])

    @property
    def inside(self) -> np.ndarray:
        return self.features

    def begin(self, W: np.ndarray | None = None, gradient: np.ndarray | None = None) -> None:  # noqa: ARG002
        for f, model in enumerate(self.models):
            model.begin(None if W is None else W[f, self.features])
        self._stand()

    def _stand(self) -> None:
        self.V = np.stack([model.columns.v for model in self.models])
        self.gradient = np.zeros((len(self.models), self.d))
        self.gradient[:, self.features] = [model.columns.here for model in self.models]
        self.losses = np.array([model.losses for model in self.models])

    def advance(
        self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool] = lambda: False
    ) -> np.ndarray | None:
        # Without thresholds all features are in use.
        if any(model.is_slow for model in self.models) or not penalties[0].threshold.any():
            return None
        size = self.gradient.size
        count = min(len(penalties), max(1, CHECKED // size), max(AHEAD, TOGETHER // size))
        inner = [each.only(self.features) for each in penalties[:count]]
        found, before = np.empty((count, *self.V.shape)), sum(model.sweeps for model in self.models)
        for f, model in enumerate(self.models):
            own = model.walk(inner[:count], goals[:count], is_over)
            count = len(own)  # that of the first model which is slow
            found[:count, f] = own
            if count == 0:
                return None
        self.passes += count + (sum(model.sweeps for model in self.models) - before) // len(self.models)
        for f, model in enumerate(self.models):
            model.columns.move_to(found[count - 1, f])
        self._stand()
        return found[:count]

    @cached_property
    def _successor(self) -> Paths | None:
        return self._gathering()

    def intercepts(self, V: np.ndarray) -> np.ndarray:
        return np.asarray(self.target_mean - np.einsum("afj,fj->af", V, self.means))


class EntryModel:
    """One model: rows and targets times the roots of their weights, and its solutions for the last two strengths.

    It takes at most ``most`` sweeps for a strength, and Newton steps over at most ``most_free`` features.
    """

    def __init__(
        self, columns: linear.Matrix, y: np.ndarray, c: np.ndarray, most: int, most_free: int, *, fit_intercept: bool
    ) -> None:
        total, d, A = float(c.sum()), columns.shape[0], columns
        if np.any(c != 1.0):
            inside = np.flatnonzero(c)  # a fold leaves rows out
            y, c = y[inside], c[inside]
            A = linear.scale_columns(linear.some_columns(columns, inside), np.sqrt(c))
        roots = np.sqrt(c)
        self.mean = np.asarray(A @ roots) / total if fit_intercept else np.zeros(d)
        self.target_mean = float(c @ y) / total if fit_intercept else 0.0
        residuals, self.most, self.most_free = roots * (self.target_mean - y), most, most_free
        self.columns = ColumnModel(A, np.sqrt(total) * self.mean, np.zeros(d), np.zeros(d), 0.0, residuals)
        self.begin(None)

    @property
    def sweeps(self) -> int:
        """Sweeps so far."""
        return int(self.columns.sweeps[0])

    @property
    def losses(self) -> float:
        """½ Σ c (x_iᵀw + b − y_i)² at the current point."""
        columns = self.columns
        return max(0.5 * float(columns.moved @ columns.moved) - 0.5 * float(columns.along_q[0] ** 2), 0.0)

    def begin(self, w: np.ndarray | None) -> None:
        """Set the point from which a path begins; zero if none is given."""
        self.is_slow = False  # whether sweeps did not suffice for a strength of the walk
        self.columns.move_to(np.zeros(self.columns.v.size) if w is None else w)
        self.trail: list[tuple[float, np.ndarray]] = []  # the last two models, with the threshold of each

    def walk(self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool]) -> np.ndarray:
        """Return the models of some penalties, of shape (penalties, d); once ``is_over``, the remaining ones equal the last one.

        Only the first of them, if sweeps do not suffice for the next one.
        """
        found = np.empty((len(penalties), self.columns.v.size))
        strengths = [float(each.threshold.max()) for each in penalties]
        knots = [*range(APART - 1 if self.trail else 0, len(penalties), APART)]
        if not knots or knots[-1] < len(penalties) - 1:
            knots.append(len(penalties) - 1)
        last = -1
        for knot in knots:
            found[knot] = self.minimum(self._ahead(strengths[knot]), penalties[knot], goals[knot], is_over)
            if self.is_slow:
                return found[: last + 1]
            here = strengths[knot], found[knot].copy()
            for k in range(last + 1, knot):
                start = _on_line(self.trail[-1], here, strengths[k])
                found[k] = self.minimum(start, penalties[k], goals[k], is_over)
                self.trail.append((strengths[k], found[k].copy()))
                if self.is_slow:
                    return found[:k]
            self.trail, last = [*self.trail, here][-2:], knot
        self.columns.move_to(found[-1])
        return found

    def _ahead(self, strength: float) -> np.ndarray:
        """Return the extrapolation of the last two models, without features that come into use or change their sign."""
        if len(self.trail) < 2:
            return self.trail[-1][1] if self.trail else self.columns.v.copy()
        before, last = self.trail[0], self.trail[-1][1]
        there = _on_line(before, self.trail[-1], strength)
        return np.where(there * last > 0.0, there, 0.0)

    def minimum(self, start: np.ndarray, penalty: Penalty, goal: float, is_over: Callable[[], bool]) -> np.ndarray:
        """Go from a start to the minimum and return it; once it is over, the current point."""
        gap, until = LOOSELY * goal / float(penalty.threshold.max()), Until(ended=is_over)
        try:
            until.check()
            given = penalty.nearest(start), penalty, goal, gap, self.most, until
            self.is_slow = not self.columns.descend(*given, most_free=self.most_free)
        except OutOfTime:
            pass
        return self.columns.v


def _on_line(left: tuple[float, np.ndarray], right: tuple[float, np.ndarray], strength: float) -> np.ndarray:
    """Return the point for a strength on the line through two models, each with its own."""
    way = left[0] - right[0]
    f = (left[0] - strength) / way if way else 1.0
    return (1.0 - f) * left[1] + f * right[1]
