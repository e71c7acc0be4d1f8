"""Least squares with a separable penalty along falling strengths of it, for several weightings of the same rows (folds).

    n P_f(w, b) = ½ Σ_i c_fi (x_iᵀw + b − y_i)² + Σ_j ½ ridge_j w_j² + threshold_j |w_j|,      lower ≤ w ≤ upper

With few features (:class:`FromMoments`) one pass over the data sums the matrices of all of them, and nothing else reads the rows.
With many (:class:`FromColumns`) the models use the features gathered so far; passes over the data check all the others for
several models and strengths at once, and those that violate the optimality conditions are gathered, too. Gathered features are
kept: for falling strengths the models use more and more features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dualnewton.matrix import Data, grams, linear
from dualnewton.objective.moments import Moments
from dualnewton.solvers.crossovers import Sizes
from dualnewton.solvers.prox.row_systems import RowSum, RowSystems
from dualnewton.solvers.prox.subproblem import Penalty
from dualnewton.solvers.prox.together import minima_along
from dualnewton.solvers.prox.working_set import Gathered

AHEAD = 16
"""Largest number of strengths that are solved between two checks of the features outside."""

CHECKED = 1 << 23
"""Gradient entries that a check holds at a time (64 MiB)."""

STRONG = 0.8
"""Features outside whose slope is at least twice the threshold less the last threshold are gathered beforehand (the sequential
strong rule), but none with a slope below this fraction of the threshold: few of them become nonzero."""

ENOUGH = 0.1
"""Fraction of the largest violation outside that a solution may leave inside, since the next one is over more features."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """The models of some consecutive strengths: W of shape (strengths, F, d) and b of shape (strengths, F)."""

    W: np.ndarray
    b: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence[Stretch]) -> Stretch:
        """Return the models of several stretches, one after the other."""
        each = ([getattr(part, name) for part in parts] for name in ("W", "b"))
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, each))


@dataclass(frozen=True, eq=False)
class PathsState:
    """The state of the models: all that later steps depend on."""

    # As in :class:`Paths`.
    V: np.ndarray
    gradient: np.ndarray
    losses: np.ndarray
    passes: int
    # The features of each gathering, in order: the last bits of their matrices depend on it.
    gathered: tuple[np.ndarray, ...] = ()
    last: Penalty | None = None  # last one
    ahead: int = 1  # strengths of the next walk
    sums: tuple[RowSum, ...] = ()  # of each model, once the systems of the rows are smaller than those of the features


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows within which the weights of the models are proportional: c_fi = factors[f, g] c_i for i in group g."""

    rows: list[np.ndarray]  # rows of each group; a row may be in several
    c: list[np.ndarray]  # their weights
    factors: np.ndarray  # (F, groups) of each model

    @classmethod
    def of(cls, c: np.ndarray, kinds: np.ndarray, group: np.ndarray) -> Groups:
        """Make groups from the weights of the rows, how often each model counts each group, and the group of each row.

        The weights of each model are divided by their mean. If there are many more groups than models, each model is a group.
        """
        if kinds.shape[1] > len(kinds) + 1:
            counts = kinds[:, group]
            rows = [np.flatnonzero(own * c > 0.0) for own in counts]
            weights = [counts[f, own] * c[own] for f, own in enumerate(rows)]
            kinds = np.eye(len(kinds))
        else:
            rows = [np.flatnonzero((group == g) & (c > 0.0)) for g in range(kinds.shape[1])]
            weights = [c[own] for own in rows]
        totals = kinds @ [own.sum() for own in weights]
        return cls(rows, weights, kinds * (len(c) / totals)[:, None])

    def summed(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return Σ_g factors[f, g] parts[g] for each model f."""
        if self.factors.shape == (1, 1) and self.factors[0, 0] == 1.0:
            return np.asarray(parts[0])[None]
        return np.tensordot(self.factors, np.stack(parts), axes=1)


class Paths(ABC):
    """F models, solved for falling strengths of a penalty.

    Attributes
    ----------
    V : array of shape (F, m)
        Where the models are: the coefficients of the features ``inside``; all others are zero.
    gradient : array of shape (F, d)
        Σ_i c_fi (x_iᵀw + b − y_i) x_i there, with b at its best.
    losses : array of shape (F,)
        ½ Σ_i c_fi (x_iᵀw + b − y_i)² there.
    passes : int
        Passes over the data so far.
    ahead : int
        The most penalties of the next step, if a step costs a pass.
    """

    V: np.ndarray
    gradient: np.ndarray
    losses: np.ndarray
    passes: int = 0
    ahead: int = 1
    by_gap: bool = True  # whether a small relative gap ends a model, too
    # Linear terms, of shape (F, m), and Σ_i c_fi (y_i − ȳ_f)² of each model.
    cross: np.ndarray
    squares: np.ndarray

    @property
    def _targets(self) -> tuple[np.ndarray, np.ndarray]:
        """The targets of :func:`minima_along`, without squares where gaps are not to end models."""
        return self.cross, self.squares if self.by_gap else np.full(len(self.squares), np.nan)

    @property
    def _successor(self) -> Paths | None:
        """The paths that go on where these cannot."""
        return None

    @property
    @abstractmethod
    def inside(self) -> np.ndarray:
        """The features whose coefficients may be nonzero, in the order of V."""

    @abstractmethod
    def begin(self, W: np.ndarray | None = None, gradient: np.ndarray | None = None) -> None:
        """Go to the models W, of shape (F, d); to zero if there are none. The gradient there may be known."""

    @abstractmethod
    def advance(
        self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool] = lambda: False
    ) -> np.ndarray | None:
        """Go on to the models of the first few penalties, which fall; return them as V of shape (strengths, F, m).

        Each model is done when no violation of its optimality conditions exceeds the goal of the penalty, or when its relative
        gap is at most the goal as a fraction of the threshold. Once ``is_over``, the models stay where they are. None if more
        features would be needed than fit into a matrix.
        """

    @abstractmethod
    def intercepts(self, V: np.ndarray) -> np.ndarray:
        """Return the best intercepts of models V, of shape (strengths, F, m)."""

    def state(self) -> PathsState:
        """Return what later steps depend on, as plain data."""
        return PathsState(self.V, self.gradient, self.losses, self.passes)

    def restore(self, state: PathsState) -> None:
        """Take the state of paths over the same data."""
        self.V, self.gradient, self.losses, self.passes = state.V, state.gradient, state.losses, state.passes

    def along(
        self,
        penalties: Sequence[Penalty],
        goals: Sequence[float],
        is_over: Callable[[], bool] = lambda: False,
        start: np.ndarray | None = None,
    ) -> Iterator[Stretch]:
        """Yield the models of the penalties, some at a time, from zero or a start of shape (F, d) on.

        Gaps end no models: to prove the choice of a penalty, most gaps must be far below the wanted one. Where these paths cannot
        go on, their successor does; without one, the last models are missing.
        """
        self.begin(start)
        # Features that the models near a start use have mostly been gathered.
        self.by_gap, self.ahead, done = False, 1 if start is None else AHEAD, 0
        while done < len(penalties) and (found := self.advance(penalties[done:], goals[done:], is_over)) is not None:
            W = np.zeros((*found.shape[:2], self.gradient.shape[1]))
            W[:, :, self.inside] = found
            yield Stretch(W, self.intercepts(found))
            done += len(found)
        if done < len(penalties) and self._successor is not None:
            last = np.zeros(self.gradient.shape)
            last[:, self.inside] = self.V
            yield from self._successor.along(penalties[done:], goals[done:], is_over, last)


class FromMoments(Paths):
    """Models of all features, from given moments.

    Parameters
    ----------
    H, cross : arrays of shape (F, d, d) and (F, d)
        Σ_i c_fi (x_i − m_f)(x_i − m_f)ᵀ and Σ_i c_fi (x_i − m_f)(y_i − ȳ_f).
    mean, target_mean : arrays of shape (F, d) and (F,)
        m_f and ȳ_f; zeros without an intercept.
    squares : array of shape (F,)
        Σ_i c_fi (y_i − ȳ_f)².
    compiled : bool
        Whether kernels may be used.
    """

    def __init__(
        self,
        H: np.ndarray,
        cross: np.ndarray,
        mean: np.ndarray,
        target_mean: np.ndarray,
        squares: np.ndarray,
        *,
        compiled: bool,
    ) -> None:
        self.H, self.cross, self.mean, self.target_mean, self.compiled = H, cross, mean, target_mean, compiled
        self.squares = squares

    @property
    def inside(self) -> np.ndarray:
        return np.arange(self.H.shape[1])

    @classmethod
    def of(
        cls, moments: Sequence[Moments], y: np.ndarray, c: Sequence[np.ndarray], *, fit_intercept: bool, compiled: bool
    ) -> FromMoments:
        """Take moments of the rows with one target y; c are the weights of the rows, for each of the F models."""
        second = np.empty((len(moments), *np.subtract(moments[0].gram.shape, 1)))
        centred = [
            each.centred(fit_intercept=fit_intercept, out=own) for each, own in zip(moments, second, strict=True)
        ]
        cross, mean, target_mean = (np.stack(parts) for parts in list(zip(*centred, strict=True))[1:])
        squares = np.array([float(own @ np.square(y - float(m[0]))) for own, m in zip(c, target_mean, strict=True)])
        return cls(second, cross[:, :, 0], mean, target_mean[:, 0], squares, compiled=compiled)

    def begin(self, W: np.ndarray | None = None, gradient: np.ndarray | None = None) -> None:  # noqa: ARG002
        self._move_to(np.zeros(self.cross.shape) if W is None else W)

    def _move_to(self, V: np.ndarray) -> None:
        self.V, self.gradient = V, np.stack([own @ v for own, v in zip(self.H, V, strict=True)]) - self.cross
        self.losses = 0.5 * (self.squares + np.einsum("fj,fj->f", V, self.gradient - self.cross))

    def advance(
        self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool] = lambda: False
    ) -> np.ndarray | None:
        found = minima_along(self.H, self._targets, self.V, penalties, goals, compiled=self.compiled, is_over=is_over)
        self._move_to(found[-1])
        return found

    def along(
        self,
        penalties: Sequence[Penalty],
        goals: Sequence[float],
        is_over: Callable[[], bool] = lambda: False,
        start: np.ndarray | None = None,
    ) -> Iterator[Stretch]:
        """Yield the models of all penalties at once; nothing is left outside, so that no gradient is computed."""
        start = np.zeros(self.cross.shape) if start is None else start
        targets = self.cross, np.full(len(self.H), np.nan)
        found = minima_along(self.H, targets, start, penalties, goals, compiled=self.compiled, is_over=is_over)
        yield Stretch(found, self.intercepts(found))

    def intercepts(self, V: np.ndarray) -> np.ndarray:
        return np.asarray(self.target_mean - np.einsum("afj,fj->af", V, self.mean))


class FromColumns(Paths):
    """Models of the features gathered so far.

    Parameters
    ----------
    data : Data
        The rows.
    y : array of shape (n,)
        The targets.
    groups : Groups
        The weights of the models.
    fit_intercept : bool
        Whether there is an intercept.
    compiled : bool
        Whether kernels may be used.
    sizes : Sizes
        How many features are gathered at a time at least, how many at most, and how they are stored.
    """

    def __init__(
        self,
        data: Data,
        y: np.ndarray,
        groups: Groups,
        *,
        fit_intercept: bool,
        compiled: bool,
        sizes: Sizes,
    ) -> None:
        self.data, self.groups, self.compiled, self.sizes = data, groups, compiled, sizes
        self.fit_intercept, F = fit_intercept, len(groups.factors)
        c = groups.summed([_spread(data.n, *each) for each in zip(groups.rows, groups.c, strict=True)])
        self.c, self.totals = c, c.sum(axis=1)
        self.target_mean = c @ y / self.totals if fit_intercept else np.zeros(F)
        self.squares = np.array([float(own @ np.square(y - m)) for own, m in zip(c, self.target_mean, strict=True)])
        self.y, self.ahead = y, 1
        self.last: Penalty | None = None
        self._clear()

    def _clear(self) -> None:
        """Remove all features."""
        F, shifted = len(self.totals), self.fit_intercept and not self.data.profile.sparse
        self.gathered = Gathered(self.data, self.sizes, self.c[0] / self.totals[0] if shifted else None)
        self.parts = list[linear.Matrix]()
        self.H, self.cross, self.first = np.zeros((F, 0, 0)), np.zeros((F, 0)), np.zeros((F, 0))
        self.V, self.gradient, self.losses = np.zeros((F, 0)), np.zeros((F, self.data.d)), np.zeros(F)
        self.systems: RowSystems | None = None

    def state(self) -> PathsState:
        sums = () if self.systems is None else self.systems.sums
        return replace(super().state(), gathered=self.gathered.state(), last=self.last, ahead=self.ahead, sums=sums)

    def restore(self, state: PathsState) -> None:
        self._clear()
        for features in state.gathered:
            self.gather(features)
        super().restore(state)
        self.last, self.ahead = state.last, state.ahead
        if state.sums:
            self.systems = self._turned_to_rows()
            self.systems.sums = state.sums

    # The features gathered ---------------------------------------------------------------------------------------------

    @property
    def inside(self) -> np.ndarray:
        return self.gathered.features

    def gather(self, features: np.ndarray) -> None:
        """Add features, and their products with those that are there."""
        if features.size == 0:
            return
        old = self.inside.size
        self.gathered.places(features)
        self.first = np.append(self.first, np.asarray(self.gathered.rows[old:] @ self.c.T).T, axis=1)
        if self.systems is None:
            self._multiply(old)
        else:
            self.systems.add(np.array(linear.to_dense(self.gathered.rows[old:]), dtype=float))

    def _turned_to_rows(self) -> RowSystems:
        """Drop the matrices of the features, and return the linear systems of the rows."""
        self.H, self.parts = np.zeros((len(self.c), 0, 0)), []
        A, y = np.array(linear.to_dense(self.gathered.rows), dtype=float), self.y - self.target_mean[:, None]
        return RowSystems(A, self.c, y, fit_intercept=self.fit_intercept)

    def _multiply(self, old: int) -> None:
        """Compute the products of the features from a place on with themselves and those before."""
        rows, size = self.gathered.rows, self.inside.size
        if len(self.groups.rows) == 1 and self.groups.rows[0].size == self.data.n:
            self.parts = [rows]
        else:
            parts, dense = self.parts or [None] * len(self.groups.rows), not linear.is_sparse(rows)
            each = zip(parts, (rows[old:, own] for own in self.groups.rows), strict=True)
            self.parts = [more if part is None else linear.stacked([part, more], dense=dense) for part, more in each]
        products = [grams.last_products(part, old, c) for part, c in zip(self.parts, self.groups.c, strict=True)]
        targets = [c * self.y[rows] for c, rows in zip(self.groups.c, self.groups.rows, strict=True)]
        cross = [np.asarray(part[old:] @ own) for part, own in zip(self.parts, targets, strict=True)]
        first = self.first[:, old:]
        self.cross = np.append(self.cross, self.groups.summed(cross) - first * self.target_mean[:, None], axis=1)
        H = self.groups.summed(products)
        if self.fit_intercept:
            H -= (first / self.totals[:, None])[:, :, None] * self.first[:, None, :]
        self._grow(size)
        self.H[:, old:size, :size] = H
        self.H[:, :old, old:size] = np.swapaxes(H[:, :, :old], 1, 2)

    def _grow(self, size: int) -> None:
        """Enlarge the arrays of matrices to this size and some more."""
        if size > (held := self.H.shape[1]):
            capacity = min(max(size, 2 * held), max(self.sizes.most, size))
            H = np.zeros((len(self.H), capacity, capacity))
            H[:, :held, :held] = self.H
            self.H = H

    def _gather_worst(self, scores: np.ndarray) -> float:
        """Gather the features outside with the highest positive scores, at most about as many as there are inside.

        Return the highest score of those that stay outside, zero if none is positive.
        """
        scores = np.where(self.gathered.place < 0, scores, 0.0)
        wanted, rest = np.flatnonzero(scores > 0.0), 0.0
        if wanted.size > (most := max(self.sizes.least, self.inside.size)):
            order = np.argpartition(-scores[wanted], most - 1)
            rest = float(scores[wanted[order[most:]]].max())
            wanted = np.sort(wanted[order[:most]])
        self.gather(wanted)
        return rest

    # The walk ----------------------------------------------------------------------------------------------------------

    def begin(self, W: np.ndarray | None = None, gradient: np.ndarray | None = None) -> None:
        W = np.zeros((len(self.totals), self.data.d)) if W is None else W
        if self.systems is not None and not self._is_wide(W):
            self._clear()
        self.gather(np.flatnonzero(W.any(axis=0) & (self.gathered.place < 0)))
        self.V, self.last, self.ahead = W[:, self.inside], None, 1
        gradients, losses = self._evaluated(self.V[None], None if gradient is None else gradient[None])
        self.gradient, self.losses = gradients[0], losses[0]

    def advance(
        self, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool] = lambda: False
    ) -> np.ndarray | None:
        rest, penalty = np.zeros(self.data.d), penalties[0]
        bound = penalty.threshold
        if self.last is not None:
            bound = np.maximum(2.0 * bound - self.last.threshold, STRONG * bound)
        nearly = replace(penalty, threshold=bound).violations(rest, self.gradient).max(axis=0)
        left = self._gather_worst(nearly)  # the largest violation outside, as far as it is known
        if self.systems is not None and 2 * self.inside.size >= self.data.d:
            # A feature adds little cost to a system of the rows, while a check for violations costs as much as several systems.
            self.gather(np.flatnonzero(self.gathered.place < 0))
        while self.inside.size <= (self.sizes.most if self.systems is None else self.data.d):
            slack = ENOUGH * left if self.sizes.is_rough(self.inside.size) else 0.0
            some = slice(1 if slack > 0.0 else min(self.ahead, max(1, CHECKED // self.gradient.size)))
            start = np.pad(self.V, ((0, 0), (0, self.inside.size - self.V.shape[1])))
            inner = [each.only(self.inside) for each in penalties[some]]
            found = self._walked(start, inner, [max(goal, slack) for goal in goals[some]], is_over)
            gradients, losses = self._evaluated(found)
            pairs = zip(penalties[some], gradients, strict=True)
            worst = np.stack([each.violations(rest, own).max(axis=0) for each, own in pairs])
            worst[:, self.inside] = 0.0
            if slack > goals[0]:  # the goal may have been reached all the same
                own = inner[0].violations(found[0], gradients[0][:, self.inside])
                worst[0, self.inside] = own.max(axis=0)
            fine = (worst.max(axis=1) <= goals[some]) | is_over()
            good = len(fine) if fine.all() else int(np.argmin(fine))
            if good:
                last = good - 1
                self.V, self.gradient, self.losses = found[last], gradients[last], losses[last]
                self.last = penalties[last]
                self.ahead = min(AHEAD, 2 * self.ahead) if good == len(fine) else max(1, good)
                return found[:good]
            self.V, self.ahead = found[0], max(1, self.ahead // 2)
            worst[0, self.inside] = 0.0
            left = float(worst[0].max())
            self._gather_worst(worst[0])
        return None

    def _walked(
        self, start: np.ndarray, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool]
    ) -> np.ndarray:
        """Return the models of the features inside for some penalties, as V of shape (strengths, F, m).

        Once a model uses more features than it has rows, systems of the rows are smaller.
        """
        dense = not linear.is_sparse(self.gathered.rows)
        if dense and self._is_wide(start) and self.systems is None and RowSystems.can_take(penalties[0]):
            self.systems = self._turned_to_rows()
        if self.systems is not None:
            return self.systems.walk(start, penalties, goals, is_over)
        return minima_along(self.H, self._targets, start, penalties, goals, compiled=self.compiled, is_over=is_over)

    def _is_wide(self, V: np.ndarray) -> bool:
        """Whether a model uses more features than it has rows."""
        return bool(np.any(np.count_nonzero(V, axis=1) > np.count_nonzero(self.c, axis=1)))

    def _evaluated(self, V: np.ndarray, gradients: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return gradients, of shape (strengths, F, d), and losses of models; the intercepts are at their best."""
        (A, F, m), rows = V.shape, self.gathered.rows
        b = self._best(V, self.first / self.totals[:, None])
        fitted = np.zeros((self.data.n, A * F)) if rows is None else np.asarray(rows.T @ V.reshape(-1, m).T)
        missed = fitted.reshape(-1, A, F) + b - self.y[:, None, None]
        R = missed * self.c.T[:, None, :]
        losses = 0.5 * np.einsum("iaf,iaf->af", missed, R)
        if gradients is not None:
            return gradients, losses
        self.passes += 1
        columns = R.reshape(-1) if A * F == 1 else R.reshape(-1, A * F)
        return self.data.transposed_times(columns).T.reshape(A, F, -1), losses

    def intercepts(self, V: np.ndarray) -> np.ndarray:
        return self._best(V, self.first / self.totals[:, None] + self.gathered.means)

    def _best(self, V: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return the best intercepts for features with these means."""
        return np.asarray(self.target_mean - np.einsum("afj,fj->af", V, mean) * self.fit_intercept)


def _spread(n: int, rows: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a vector of n entries with c at these rows and zero elsewhere."""
    whole = np.zeros(n)
    whole[rows] = c
    return whole
