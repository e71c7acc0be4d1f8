"""Paths of elastic nets over all folds, and their certificates.

    n P(w, b) = (n/Σc) Σ_i ½ c_i (x_iᵀw + b − y_i)² + nλ g(w)

The models of all folds are fitted together for decreasing alphas (:mod:`dualnewton.solvers.prox.paths`), the model
of all rows for the chosen alpha only. With few features the models are computed from the moments of the rows, and the verifier
certifies those of the folds from the same moments (:mod:`dualnewton.objective.moments`). With many features, shared passes over
the data certify several at a time. A model whose certificate misses the tolerance is solved again separately.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.estimators.model_selection._alphas import Scored, Walk
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection._session import TOGETHER, GridSession, Outcome
from dualnewton.interop.parts import Examples
from dualnewton.objective.alike import like
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.moments import Residuals, Verifier
from dualnewton.objective.outputs import certify_path
from dualnewton.objective.problem import Problem
from dualnewton.planning.working_sets import SetSizes, compiles_paths, sums_moments, walks_by_entries
from dualnewton.run.result import Result, Status
from dualnewton.solvers.prox.entry_paths import FromEntries
from dualnewton.solvers.prox.paths import FromColumns, FromMoments, Groups, Paths, Stretch
from dualnewton.solvers.prox.subproblem import Penalty

BY_MOMENTS = "paths over all features, from the moments of the rows, computed in one pass"
BY_COLUMNS = "paths over a growing set of features, checked by shared passes over the data"
BY_ENTRIES = "paths by extrapolated coordinate descent over the entries of the features"
"""The reasons in the plans of models from paths."""

WELL_BELOW = 0.3
"""Violation of the optimality conditions at which a fit stops, as a fraction of the l1 threshold times the wanted gap. A
violation of ε times the threshold makes a relative gap of at most 2ε."""


CACHED = 1 << 14
"""Coefficients of the models that are certified by the same array operations: with more, these leave the cache."""

FINE = 1e-11
"""Relative gap of models that are fitted again, since the gaps of the first fits left the choice open."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """The models of the folds for some alphas."""

    # (alphas, folds, d) The models.
    W: np.ndarray
    b: np.ndarray
    outcomes: list[list[Outcome]]  # their certificates
    final: Callable[[int], list[Result]]  # returns the results of all rows for one of the alphas
    starts: np.ndarray | None = None  # (alphas, folds, d) from where the paths of each alpha may begin again

    def __len__(self) -> int:
        return len(self.W)

    @classmethod
    def of(cls, of_folds: Sequence[Result], whole: Sequence[Result]) -> Fitted:
        """Return the models of one alpha from its results."""
        W, b = np.stack([result.w for result in of_folds]), np.array([result.intercept for result in of_folds])
        return cls(W[None], b[None], [list(map(Outcome.of, of_folds))], lambda _: list(whole))


@dataclass(frozen=True, eq=False)
class _Models:
    """The models of all folds at some λ."""

    problems: Sequence[Problem]  # problem of each fold, with some λ
    lams: np.ndarray  # (values,) values of λ
    # (values, folds, d) The models; a model that misses the tolerance is replaced.
    W: np.ndarray
    b: np.ndarray


class _Aim(NamedTuple):
    """What a model of all rows is fitted to, and where it starts."""

    penalty: Penalty
    goal: float  # violation of the optimality conditions at which the fit stops
    start: np.ndarray  # (d,) the mean of the models of the folds, which is near


class QuadraticPaths(ABC):
    """The paths of all folds, and the model of all rows: see :func:`quadratic_paths`."""

    reason: str  # how models are computed, for their plans
    moments: FoldMoments | None = None  # moments of the rows, if they are computed

    def __init__(self, session: GridSession, data: Examples, folds: Folds, pose: Callable[[float], Any]) -> None:
        self.session, self.data, self.pose = session, data, pose
        self._posed = dict[float, Sequence[Problem]]()
        self.weightings = folds.and_all_rows().relative_weights(data.sample_weight)
        c = np.ones(len(data.y)) if data.sample_weight is None else data.sample_weight
        self._prepare(folds, c, fit_intercept=pose(0.5).fit_intercept)

    @abstractmethod
    def _prepare(self, folds: Folds, c: np.ndarray, *, fit_intercept: bool) -> None:
        """Prepare the path solvers; c are the weights of the rows."""

    @abstractmethod
    def _paths(self, *, ridge: bool) -> Paths:
        """Return the path solver for penalties with or without a ridge term."""

    @abstractmethod
    def _certificates(self, models: _Models) -> list[list[Certificate]]:
        """Return the certificates of the models of each fold."""

    @abstractmethod
    def _of_all_rows(self, problem: Problem, aim: _Aim) -> list[Result]:
        """Return the model of all rows, whose problem is given."""

    def walk(self, scored: Callable[[Fitted], Scored], in_passes: Walk) -> Walk:
        """Return a function that fits the alphas of a grid along paths, and in passes those that the paths leave out."""

        def along(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            done = 0
            for found in self.along(ratio, alphas[alphas > 0.0]):
                yield scored(found)
                done += len(found)
            yield from in_passes(ratio, alphas[done:])  # alpha = 0, which has another dual, or too many features

        return along

    def again(self, scored: Callable[[Fitted], Scored]) -> Callable[[float, np.ndarray, np.ndarray], Iterator[Scored]]:
        """Return a function that fits some alphas almost exactly, from the models of the first of them."""

        def finely(ratio: float, alphas: np.ndarray, start: np.ndarray) -> Iterator[Scored]:
            for found in self.along(ratio, alphas, start, min(FINE, self.session.goal)):
                yield scored(found)

        return finely

    def _problems(self, ratio: float) -> Sequence[Problem]:
        """Return the problems of the folds, and that of all rows, for an l1_ratio and alpha = 1."""
        if ratio not in self._posed:
            poser = self.pose(ratio)
            poser.weightings = self.weightings
            self._posed[ratio] = poser._problems(self.data)
        return self._posed[ratio]

    def along(
        self, ratio: float, alphas: np.ndarray, start: np.ndarray | None = None, goal: float | None = None
    ) -> Iterator[Fitted]:
        """Yield the models of several alphas at a time; the alphas must be positive and decrease, and the last may be missing.

        The paths begin at ``start``, or zero, and have relative gaps of at most ``goal``, or that of the session.
        """
        problems, done = self._problems(ratio), 0
        base = Penalty.of(problems[0])
        factors = alphas.tolist()
        lams = problems[0].lam * alphas
        penalties = [base.times(factor) for factor in factors]
        goal = WELL_BELOW * (self.session.goal if goal is None else goal) * float(base.threshold.max())
        goals = [goal * factor for factor in factors]
        if not len(alphas):
            return
        for stretch in batches(
            self._paths(ridge=ratio < 1.0).along(penalties, goals, lambda: self.session.is_over, start)
        ):
            own = slice(done, done + len(stretch.W))
            self.session.begin(f"l1_ratio = {ratio:g}, alpha = {alphas[own][0]:.3g} to {alphas[own][-1]:.3g}")
            yield self._fitted(problems, stretch, lams[own], penalties[own], goals[own])
            done += len(stretch.W)

    def _fitted(
        self,
        problems: Sequence[Problem],
        stretch: Stretch,
        lams: np.ndarray,
        penalties: Sequence[Penalty],
        goals: Sequence[float],
    ) -> Fitted:
        """Certify the models of the folds; that of all rows is fitted when ``final`` is called."""
        *of_folds, whole = problems
        models = _Models(of_folds, lams, np.array(stretch.W), np.array(stretch.b))
        outcomes = self._certified(models)
        means = stretch.W.mean(axis=1)  # kept longer than the models

        def final(k: int) -> list[Result]:
            return self._of_all_rows(like(whole, lam=float(lams[k])), _Aim(penalties[k], goals[k], means[k]))

        return Fitted(models.W, models.b, outcomes, final, stretch.W)

    def _certified(self, models: _Models) -> list[list[Outcome]]:
        """Certify the models of the folds for each λ; replace those that miss the tolerance."""
        each, tol = self._certificates(models), self.session.tol
        outcomes = [[Outcome(own, Status.CONVERGED, 1.0) for own in of_folds] for of_folds in zip(*each, strict=True)]
        missed = [(k, f) for f, own in enumerate(each) for k, found in enumerate(own) if found.relative_gap > tol]
        if (ended := self.session.ended) is not None:
            # Certificates on the data would take as long as those of the whole grid.
            better = [Outcome(each[f][k], ended, 1.0) for k, f in missed]
        else:
            better = self._better(models, missed) if missed else []
        for (k, f), outcome in zip(missed, better, strict=True):
            outcomes[k][f] = outcome
        self.session.report([outcome for of_folds in outcomes for outcome in of_folds])
        return outcomes

    def _better(self, models: _Models, places: Sequence[tuple[int, int]]) -> list[Outcome]:
        """Certify models on the data, improve those that miss the tolerance, and store them."""
        W, b = models.W, models.b
        results = self.session.finished(
            [like(models.problems[f], lam=float(models.lams[k])) for k, f in places],
            [W[place] for place in places],
            [float(b[place]) for place in places],
            self.reason,
        )
        for place, result in zip(places, results, strict=True):
            W[place], b[place] = result.w, result.intercept
        return [Outcome.of(result) for result in results]


def batches(stretches: Iterable[Stretch]) -> Iterator[Stretch]:
    """Join consecutive stretches as long as their models fit into some memory, since their certificates share products."""
    batch, size = list[Stretch](), 0
    for stretch in stretches:
        if batch and size + stretch.W.size > TOGETHER:
            yield Stretch.joined(batch)
            batch, size = [], 0
        batch.append(stretch)
        size += stretch.W.size
    if batch:
        yield Stretch.joined(batch)


class _ByMoments(QuadraticPaths):
    reason = BY_MOMENTS

    def _prepare(self, folds: Folds, c: np.ndarray, *, fit_intercept: bool) -> None:
        data, folds = self.data, folds.and_all_rows()
        n, d = data.X.shape
        self.moments = FoldMoments(data.matrix, data.y[:, None], c, folds, self.session.tuning, shift=fit_intercept)
        self.residuals = list[Residuals]()
        self.scaled = [each.times(n / each.total) for each in self.moments.training]
        given: dict[str, Any] = {"fit_intercept": fit_intercept, "compiled": compiles_paths(d, self.session.tuning)}
        self.paths = FromMoments.of(self.scaled[:-1], data.y, self.weightings[:-1], **given)
        self.path_of_all_rows = FromMoments.of(self.scaled[-1:], data.y, self.weightings[-1:], **given)

    def _paths(self, *, ridge: bool) -> Paths:  # noqa: ARG002
        return self.paths

    def _certificates(self, models: _Models) -> list[list[Certificate]]:
        W, b, lams = models.W.swapaxes(0, 1), models.b.T, models.lams
        step, found = max(1, CACHED // max(1, W[0].size)), list[Certificate]()
        self.residuals = self.residuals or [
            Residuals.of(*each) for each in zip(self.scaled, models.problems, strict=False)
        ]
        for low in range(0, len(W), step):
            own = slice(low, min(low + step, len(W)))
            verifier = Verifier(Residuals.stacked(self.residuals[own]), models.problems[0])
            found += verifier.certificates(W[own], b[own], lams)
        return [found[k : k + len(lams)] for k in range(0, len(found), len(lams))]

    def _of_all_rows(self, problem: Problem, aim: _Aim) -> list[Result]:
        along, is_over = self.path_of_all_rows.along, lambda: self.session.is_over
        (found,) = along([aim.penalty], [aim.goal], is_over, aim.start[None])
        return self.session.finished([problem], [found.W[0, 0]], [float(found.b[0, 0])], self.reason)


class _ByColumns(QuadraticPaths):
    reason = BY_COLUMNS

    def _prepare(self, folds: Folds, c: np.ndarray, *, fit_intercept: bool) -> None:
        self.folds, self.c, self.free = folds, c, fit_intercept

    def _paths(self, *, ridge: bool) -> Paths:
        by_entries = walks_by_entries(self.data.matrix, self.session.tuning, len(self.folds), ridge=ridge)
        self.reason = BY_ENTRIES if by_entries else BY_COLUMNS
        return self._by_entries if by_entries else self._gathering

    @cached_property
    def _gathering(self) -> Paths:
        data, tuning = self.data, self.session.tuning
        return FromColumns(
            data.matrix,
            data.y,
            Groups.of(self.c, *self.folds.patterns),
            fit_intercept=self.free,
            compiled=compiles_paths(data.X.shape[1], tuning),
            sizes=SetSizes.of_paths(len(self.folds), tuning),
        )

    @cached_property
    def _by_entries(self) -> Paths:
        data, own = self.data, self.folds.counts * self.c
        own *= (own.shape[1] / own.sum(axis=1))[:, None]
        given = data.matrix, data.y, own, lambda: self._gathering, self.session.tuning
        return FromEntries(*given, fit_intercept=self.free)

    def _certificates(self, models: _Models) -> list[list[Certificate]]:
        W, b, lams = models.W, models.b, models.lams
        return [certify_path(problem, lams, W[:, f, None], b[:, f, None]) for f, problem in enumerate(models.problems)]

    def _of_all_rows(self, problem: Problem, aim: _Aim) -> list[Result]:  # noqa: ARG002
        return self.session.solve([problem])


def quadratic_paths(session: GridSession, data: Examples, folds: Folds, pose: Callable[[float], Any]) -> QuadraticPaths:
    """Return the paths of all folds, from moments or from columns, whichever suits the data.

    ``pose`` returns the estimator (:class:`OverFolds`) that poses the problems for an l1_ratio and some alpha.
    """
    summed = sums_moments(data.matrix.profile, session.tuning)
    by_entries = walks_by_entries(data.matrix, session.tuning, len(folds))
    kind = _ByMoments if summed and not by_entries else _ByColumns
    return kind(session, data, folds, pose)
