"""The walk of ``paths.py`` over sparse features by their stored entries: no matrix of products is formed.

A sweep over the features costs their entries, while their products fill a matrix, whose Cholesky factors cost more than hundreds
of sweeps. Each model walks by itself, from every fourth strength to the next, beginning where the last two models point to; those
between start where the two around them interpolate them. Their gaps are of second order in the distance of the strengths, so that
many of these need no sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dualnewton.matrix import Data, linear
from dualnewton.solvers.deadline import OutOfTime, Until
from dualnewton.solvers.prox.column_descent import ColumnModel
from dualnewton.solvers.prox.paths import AHEAD, CHECKED, Paths
from dualnewton.solvers.prox.subproblem import Penalty, minimise, sweep_of

MOST_SWEEPS = 5000
"""Sweeps for one strength; beyond them the features in use are so correlated that their matrix is formed once."""

TOGETHER = 1 << 16
"""Entries of models that are returned together: their certificates share calls, and stay in the cache."""

APART = 4
"""Distance of the strengths that are solved for first."""

LOOSELY = 3.0
"""Relative gap at which a model is done, as a multiple of the goal over the threshold. (Goals are 0.3 of the wanted gap, since
violations of ε times the threshold may leave a gap of 2ε; the gap itself need not be so far below.)"""


class FromEntries(Paths):
    """Models of all features that have entries; these are sparse.

    Parameters
    ----------
    data : Data
        The rows.
    y : array of shape (n,)
        The targets.
    c : array of shape (F, n)
        The weights of the rows, for each model.
    fit_intercept : bool
        Whether there is an intercept.
    largest : int
        Number of features up to which the matrix of those in use is formed if sweeps do not converge.
    """

    def __init__(self, data: Data, y: np.ndarray, c: np.ndarray, *, fit_intercept: bool, largest: int) -> None:
        columns = data.columns(np.arange(data.d))
        self.d, self.features = data.d, np.flatnonzero(np.diff(columns.indptr))  # others stay at zero
        if not self.features.size:
            self.features = np.zeros(1, dtype=np.intp)  # a walk needs a feature
        columns = columns if self.features.size == data.d else columns[self.features]
        self.models = [EntryModel(columns, y, own, fit_intercept=fit_intercept, largest=largest) for own in c]
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
        size = self.gradient.size
        count = min(len(penalties), max(1, CHECKED // size), max(AHEAD, TOGETHER // size))
        inner = [each.only(self.features) for each in penalties[:count]]
        found, before = np.empty((count, *self.V.shape)), sum(model.sweeps for model in self.models)
        for f, model in enumerate(self.models):
            found[:, f] = model.walk(inner, goals[:count], is_over)
        self._stand()
        self.passes += count + (sum(model.sweeps for model in self.models) - before) // len(self.models)
        return found

    def intercepts(self, V: np.ndarray) -> np.ndarray:
        return np.asarray(self.target_mean - np.einsum("afj,fj->af", V, self.means))


class EntryModel:
    """One model: rows and targets times the roots of their weights, and the last points of its walk."""

    def __init__(
        self, columns: linear.Matrix, y: np.ndarray, c: np.ndarray, *, fit_intercept: bool, largest: int
    ) -> None:
        roots, total, d = np.sqrt(c), float(c.sum()), columns.shape[0]
        A = columns
        if np.any(c != 1.0):
            A = linear.scale_columns(columns, roots)
            A.eliminate_zeros()  # rows that a fold leaves out
        self.mean = np.asarray(A @ roots) / total if fit_intercept else np.zeros(d)
        self.target_mean = float(c @ y) / total if fit_intercept else 0.0
        targets = roots * (y - self.target_mean)
        self.squares, self.largest, self.most = float(targets @ targets), largest, MOST_SWEEPS
        self.columns = ColumnModel(A, np.sqrt(total) * self.mean, -(A @ targets), np.zeros(d), 0.5 * self.squares)
        self.begin(None)

    @property
    def sweeps(self) -> int:
        """Sweeps so far."""
        return int(self.columns.sweeps[0])

    @property
    def losses(self) -> float:
        """½ Σ c (x_iᵀw + b − y_i)² at the current point."""
        columns = self.columns
        quadratic = float(columns.moved @ columns.moved) - float(columns.along_q[0] ** 2)
        return max(columns.constant + float(columns.slopes @ columns.v) + 0.5 * quadratic, 0.0)

    def begin(self, w: np.ndarray | None) -> None:
        """Go to a point, zero if none is given, from which a walk begins."""
        self.columns.stand(np.zeros(self.columns.v.size) if w is None else w)
        self.trail: list[tuple[float, np.ndarray]] = []  # the last two models, with the threshold of each

    def walk(self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool]) -> np.ndarray:
        """Return the models of some penalties, of shape (penalties, d); once it is over, those left equal the last one."""
        found = np.empty((len(penalties), self.columns.v.size))
        strengths = [float(each.threshold.max()) for each in penalties]
        knots = [*range(APART - 1 if self.trail else 0, len(penalties), APART)]
        if not knots or knots[-1] < len(penalties) - 1:
            knots.append(len(penalties) - 1)
        last = -1
        for knot in knots:
            found[knot] = self.minimum(self._ahead(strengths[knot]), penalties[knot], goals[knot], is_over)
            here = strengths[knot], found[knot].copy()
            for k in range(last + 1, knot):
                start = _on_line(self.trail[-1], here, strengths[k])
                found[k] = self.minimum(start, penalties[k], goals[k], is_over)
                self.trail.append((strengths[k], found[k].copy()))
            self.trail, last = [*self.trail, here][-2:], knot
        self.columns.stand(found[-1])
        return found

    def _ahead(self, strength: float) -> np.ndarray:
        """Return where the last two models point to, without features that come into use or change their sign."""
        if len(self.trail) < 2:
            return self.trail[-1][1] if self.trail else self.columns.v.copy()
        before, last = self.trail[0], self.trail[-1][1]
        there = _on_line(before, self.trail[-1], strength)
        return np.where(there * last > 0.0, there, 0.0)

    def minimum(self, start: np.ndarray, penalty: Penalty, goal: float, is_over: Callable[[], bool]) -> np.ndarray:
        """Go from a start to the minimum and return it; once it is over, the current point."""
        columns, gap, until = self.columns, LOOSELY * goal / float(penalty.threshold.max()), Until(ended=is_over)
        try:
            until.check()
            start = penalty.nearest(start)
            if not columns.descend(start, penalty, goal, gap, self.most, until):
                columns.descend(self._by_matrix(penalty, goal, until), penalty, goal, gap, self.most, until)
        except OutOfTime:
            pass
        return columns.v

    def _by_matrix(self, penalty: Penalty, goal: float, until: Until) -> np.ndarray:
        """Return the minimum over the features in use and those that violate the optimality conditions, by their matrix."""
        columns = self.columns
        new, here = columns.v.copy(), columns.here
        inside = np.flatnonzero((new != 0.0) | (penalty.violations(new, here) > 0.0))
        if inside.size <= self.largest:
            H = linear.gram(columns.A[inside]) - np.outer(columns.q[inside], columns.q[inside])
            own = penalty.only(inside)
            new[inside] = minimise(H, here[inside], new[inside], own, goal, sweep_of(compiled=True), until)
        return new


def _on_line(left: tuple[float, np.ndarray], right: tuple[float, np.ndarray], strength: float) -> np.ndarray:
    """Return the point for a strength on the line through two models, each with its own."""
    way = left[0] - right[0]
    f = (left[0] - strength) / way if way else 1.0
    return (1.0 - f) * left[1] + f * right[1]
