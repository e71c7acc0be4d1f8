"""The interface between the loop and the methods: K models over the same data that are updated step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.certificates import certify_duals, certify_models, certify_pairs
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling


class Point(ABC):
    """A point that a method returns for certification."""

    @property
    def parts(self) -> tuple[Any, ...]:
        """The model, the dual point, or both."""
        return tuple(vars(self).values())

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are finite; points of a method whose arithmetic has overflowed are not certified."""
        return all(bool(np.isfinite(part).all()) for part in self.parts if part is not None)

    @staticmethod
    @abstractmethod
    def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:
        """Have the problems certify points of this class, in shared passes if possible.

        If ``tol`` is given, certificates also have bounds of their rounding errors where these take less time together. A bound
        need not be sharp where gap and rounding errors are at most tol|P|.
        """


def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:
    """Have each problem certify its point, those of one class together: some models have a dual point of their own."""
    kinds: list[type[Point]] = list(dict.fromkeys(map(type, points)))
    if len(kinds) == 1:
        return list(kinds[0].certified(problems, points, tol))
    found: dict[int, CertifiedPair] = {}
    for kind in kinds:
        own = [k for k, point in enumerate(points) if type(point) is kind]
        pairs = kind.certified([problems[k] for k in own], [points[k] for k in own], tol)
        found.update(zip(own, pairs, strict=True))
    return [found[k] for k in range(len(points))]


class SinglePoint(Point):
    """A point that shares no passes with others when it is certified."""

    @staticmethod
    def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:  # noqa: ARG004
        return [point.certified_by(problem) for problem, point in zip(problems, points, strict=True)]

    @abstractmethod
    def certified_by(self, problem: Any) -> CertifiedPair:
        """Have the problem certify this point."""


@dataclass(frozen=True, eq=False)
class DualPoint(Point):
    """α, returned by a dual method for certification."""

    alpha: np.ndarray

    @staticmethod
    def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:  # noqa: ARG004
        return certify_duals(problems, [point.alpha for point in points])


@dataclass(frozen=True, eq=False)
class PrimalPoint(Point):
    """(w, b), returned by a primal method for certification."""

    w: np.ndarray
    intercept: Any

    @staticmethod
    def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:
        return certify_models(problems, [point.w for point in points], [point.intercept for point in points], tol=tol)


@dataclass(frozen=True, eq=False)
class PairPoint(Point):
    """(w, b) and α, returned together for certification by a method that computes both."""

    w: np.ndarray
    intercept: Any
    alpha: np.ndarray

    @staticmethod
    def certified(problems: Sequence[Any], points: Sequence[Any], tol: float | None = None) -> list[CertifiedPair]:
        models, intercepts = [point.w for point in points], [point.intercept for point in points]
        return certify_pairs(problems, models, intercepts, [point.alpha for point in points], tol=tol)


@dataclass(frozen=True, eq=False)
class WholePoint(SinglePoint):
    """A model with its dual point, returned by an outer scheme for certification."""

    arguments: dict[str, Any]  # arguments of the objective's ``certified_pair``

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(self.arguments.values())

    def certified_by(self, problem: Any) -> CertifiedPair:
        pair: CertifiedPair = problem.certified_pair(**self.arguments)
        return pair


class Method(ABC):
    """K models and the method that updates them.

    An outer scheme (smoothing, a scale, no penalty) is also a method: its steps are those of a run on other problems, ``inner``.
    It returns a point only when that run has ended.
    """

    certificates_are_cheap = False  # whether a certificate is cheap compared with a step
    expected_ratio = 1.0  # gap divided by :meth:`residual`, before the first certificate measures it
    inner: Any = None  # current inner run

    @abstractmethod
    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Update the models; return the work in epochs, about ``most`` at most."""

    @abstractmethod
    def point(self, k: int) -> Any:
        """Return the point of model k, an object whose ``certified`` has the problems certify it."""

    def offers(self, k: int) -> bool:  # noqa: ARG002
        """Whether :meth:`point` of model k is available after this step."""
        return True

    def certified_last(self, k: int) -> bool:  # noqa: ARG002
        """Whether the inner run certified model k in its last step: the callback is then called, with the last certificate."""
        return False

    def unfinished(self, k: int) -> Any | None:  # noqa: ARG002
        """Return the best point of model k in the inner run so far, for a run that ends before the inner run does."""
        return None

    def residual(self, k: int) -> float:  # noqa: ARG002
        """Return a number that decreases with the gap of model k, as of the last step; NaN if unknown."""
        return np.nan

    def objective(self, k: int) -> float:  # noqa: ARG002
        """Return P of model k as of the last step, or D near the end; NaN if unknown."""
        return np.nan

    def gap(self, k: int) -> float:  # noqa: ARG002
        """Return an estimate of the gap of model k after the last step, better than by the residual; NaN if unknown."""
        return np.nan

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        """Whether model k can make no further progress, because of rounding."""
        return False

    def restart(self) -> bool:
        """Drop a warm start, if the next step then begins cold; return whether there was one."""
        return False

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:  # noqa: B027 (most methods need nothing)
        """Receive the certified pair of the last point of model k, and the best pair so far."""

    def adapt(self, k: int, gap: float, residual: float) -> None:  # noqa: B027
        """Receive the expected gap and the residual of model k, which may determine the accuracy of a step."""

    @abstractmethod
    def keep(self, wanted: Sequence[int]) -> None:
        """Continue with these models only."""

    def reported(self, plan: Any) -> Any:
        """Return the plan as reported to the user; an outer scheme adds its inner runs."""
        return plan

    @abstractmethod
    def state(self) -> Any:
        """Return the state of the method between two steps, as plain data (see :mod:`dualnewton.run.snapshot`).

        Values that follow from the problems alone are not part of it. Later steps do not change the returned object.
        """

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Restore the state of a method with the same problems, plan and request: further steps have the same bits."""


class SharedPasses(Method):
    """A primal method: models with a known objective n P (``value``) and gap n(P − D), which share passes."""

    data: Any
    models: list[Any]  # models, in the order of the problems

    def residual(self, k: int) -> float:
        return float(self.models[k].gap) / int(self.data.n)

    def objective(self, k: int) -> float:
        return float(self.models[k].value) / int(self.data.n)

    def is_stuck(self, k: int) -> bool:
        return bool(self.models[k].stuck)

    def keep(self, wanted: Sequence[int]) -> None:
        self.models = [self.models[k] for k in wanted]


@dataclass(frozen=True, eq=False)
class Request:
    """The settings of a run except problems and limits: parameters of :func:`dualnewton.solve`."""

    method: str
    tau: Any
    sampling: Sampling | None
    tol: float
    certify_every: int | None
    n_threads: int
    callback: Callable[[Any], Any] | None
    near: bool = False  # whether the run starts from earlier models
    cold: bool = True  # whether it has no warm start
    tuning: Any = None  # the planner's tuned numbers
    proved: bool = True  # whether the gap includes rounding errors; False in inner runs


class OuterMethod(Method):
    """A method whose steps are those of inner runs."""

    certificates_are_cheap = True

    def __init__(
        self,
        models: list[Any],  # one object for each model
        request: Request,  # settings of the outer run
        # Starts an inner run (``start``), given its problems, its request and its starting points, or restores one
        # (``restored``).
        runs: Any,
    ) -> None:
        self.models, self.request, self.runs = models, request, runs
        self.places = list(range(len(models)))  # indices of the models in the inner run

    @abstractmethod
    def inner_task(self) -> tuple[list[Problem], Request]:
        """Return the problems and the request of the inner run."""

    @abstractmethod
    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:
        """Return the arguments by which the objective of model k certifies the result of the inner run."""

    def advance(self, starts: Sequence[Any] | None, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Take a step of the inner run; if there is none, start one at these points."""
        if self.inner is None:
            self.inner = self.runs.start(*self._warm_task(), starts)
        return float(self.inner.step(rng, deadline, most))

    def _warm_task(self) -> tuple[list[Problem], Request]:
        """Return the inner task with a warm start, whether or not the outer run has one, and without rounding bounds."""
        problems, request = self.inner_task()
        return problems, replace(request, cold=False, proved=False)

    def track(self, k: int) -> Any:
        """Return the record of model k in the inner run."""
        return self.inner.tracks[self.places[k]]

    @property
    def is_over(self) -> bool:
        """Whether the inner run has ended."""
        return self.inner is not None and bool(self.inner.finished)

    def offers(self, k: int) -> bool:  # noqa: ARG002
        return self.is_over

    def point(self, k: int) -> Any:
        return self.unfinished(k)

    def certified_last(self, k: int) -> bool:
        return self.inner is not None and bool(self.inner.certified_last(self.places[k]))

    def unfinished(self, k: int) -> WholePoint | None:
        return None if self.inner is None else WholePoint(self.outer_point(k, self.track(k).best))

    def keep(self, wanted: Sequence[int]) -> None:
        self.models, self.places = [self.models[k] for k in wanted], [self.places[k] for k in wanted]
        if self.inner is not None:
            self.inner.keep(self.places)

    @abstractmethod
    def own_state(self) -> Any:
        """Return the state of the scheme without the inner run."""

    @abstractmethod
    def restore_own(self, state: Any) -> None:
        """Restore this state."""

    def state(self) -> tuple[Any, tuple[int, ...], Any]:
        """Return the state of the scheme, the indices of its models in the inner run, and the state of that run.

        The points of an inner run that has ended are certified: it is no longer needed.
        """
        inner = None if self.inner is None or self.is_over else self.inner.state()
        return self.own_state(), tuple(self.places), inner

    def restore(self, state: tuple[Any, tuple[int, ...], Any]) -> None:
        own, places, inner = state
        self.restore_own(own)
        self.places = list(places)
        if inner is not None:
            self.inner = self.runs.restored(*self._warm_task(), inner)
