"""The budget of a grid of models (``max_iter`` limits each model, ``time_limit`` all together), and their certificates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from dualnewton.estimators._session import Session
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.matrix.workers import threads
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import direct_plan
from dualnewton.run.result import Progress, Result, Status, direct_result

TOGETHER = 1 << 22
"""Number of margins that are in memory at a time while models are certified."""


@dataclass(slots=True, eq=False)  # not frozen, which takes three times as long: a grid has hundreds
class Outcome:
    """The stored outcome of a model of the grid: its certificate, status and epochs."""

    certificate: Certificate
    status: Status
    n_epochs: float

    @classmethod
    def of(cls, result: Result) -> Outcome:
        """Return the outcome of a result, without w and α, which would take too much memory for a whole grid."""
        return cls(result.certificate, result.status, result.n_epochs)

    @classmethod
    def of_all(cls, results: Sequence[Result]) -> Outcome:
        """Return the outcome of several outputs of one model: the certificate of the sum, the worst status, the most epochs."""
        if len(results) == 1:
            return cls.of(results[0])
        worst = max(results, key=lambda result: result.certificate.relative_gap)
        proof = Certificate.of_parts(tuple(result.certificate for result in results))
        return cls(proof, worst.status, max(result.n_epochs for result in results))


of_each = np.vectorize(getattr, otypes=[object])
"""``of_each(outcomes, "certificate")``: an attribute of each entry of an array of outcomes."""


class GridSession(Session):
    """A session with one progress line and one deadline for the whole grid.

    After a stop (by the callback or Ctrl-C) models are certified at their starting points, and nothing else is computed.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.name, self.most = type(model).__name__, self.epochs_left
        self.began = time.perf_counter()

    def __enter__(self) -> GridSession:
        # The last bits of decompositions also depend on the number of threads of BLAS.
        self.contexts = ExitStack()
        self.contexts.enter_context(one_blas_thread)
        self.contexts.enter_context(threads(self.threads))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.contexts.close()
        super().__exit__(kind, error, at)

    @property
    def seconds(self) -> float:
        """Seconds since the grid began."""
        return time.perf_counter() - self.began

    @property
    def ended(self) -> Status | None:
        """Why no further model of the grid is computed: a stop or the time limit; None while neither has come."""
        if self.stopped:
            return Status.STOPPED_BY_CALLBACK
        return Status.TIME_LIMIT if time.perf_counter() >= self.deadline else None

    def begin(self, what: str) -> None:
        """Begin the next part of the grid, with a new budget of epochs; ``what`` is its name in the progress line."""
        self.epochs_left = 0.0 if self.stopped else self.most
        if self.line is not None:
            self.line.name = f"{self.name}, {what}"
            self.line.recent.clear()
            self.line.next_line = 0.0

    def report(self, results: Sequence[Result | Outcome]) -> None:
        """Pass the certificates of models that were not computed by :meth:`solve` to the progress line and the callback."""
        if self.line is None and self.callback is None:
            return
        for k, result in enumerate(results):
            self.stopped |= self.tell(Progress(result.n_epochs, self.seconds, result.certificate, model=k))

    def solve(
        self,
        problems: Sequence[Problem],
        start: Sequence[Result | np.ndarray] | None = None,
        tol: float | None = None,
        method: str | None = None,
    ) -> list[Result]:
        """Solve as a session does; after a stop, models that have not converged have the status of a stopped run."""
        was_stopped = self.stopped
        results = super().solve(problems, start, tol, method)
        if not was_stopped:
            return results
        return [
            result if result.converged else replace(result, status=Status.STOPPED_BY_CALLBACK) for result in results
        ]

    def improved(
        self, problems: Sequence[Problem], results: list[Result], places: Sequence[int], starts: Any = None
    ) -> list[Result]:
        """Return the results, of which those at some places are solved further, from themselves or from given starts.

        After the end of the grid they stay as they are.
        """
        if (ended := self.ended) is not None:
            for k in places:
                results[k] = replace(results[k], status=ended)
        elif places:
            earlier = [results[k] for k in places] if starts is None else starts
            better = self.solve([problems[k] for k in places], earlier)
            for k, result in zip(places, better, strict=True):
                results[k] = result
        return results

    def finished(
        self, problems: Sequence[Problem], models: Sequence[np.ndarray], intercepts: Sequence[Any], reason: str
    ) -> list[Result]:
        """Certify exact solutions, and run the solver on problems whose gap exceeds ``tol`` by rounding."""
        data = problems[0].data
        able = data.capabilities
        # For data in files, more models share a pass.
        most = TOGETHER if able.whole else max(TOGETHER, min(able.gathered, TOGETHER * len(problems)))
        step = max(1, int(most // (data.n * problems[0].columns)))
        results: list[Result] = []
        for low in range(0, len(problems), step):
            part = slice(low, low + step)
            own = [b if np.ndim(b) else float(b) for b in intercepts[part]]
            results += certified(problems[part], models[part], own, self.tol, reason)
        self.report(results)
        return self.improved(problems, results, [k for k, result in enumerate(results) if not result.converged])


def certified(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    tol: float,
    reason: str,
    passes: Sequence[int] | None = None,
) -> list[Result]:
    """Return models w with intercepts b and their certificates, in shared passes over the one X of the problems.

    Nothing is improved: a model has converged if its relative gap is at most ``tol``. ``reason`` states in its plan how it was
    computed, and ``passes`` how many passes over the data that took; by default one, which is the least.
    """
    pairs = certify_models(problems, models, intercepts, enough=tol)
    each = [1] * len(problems) if passes is None else passes
    return [
        direct_result(pair, tol, direct_plan(problem, reason), epochs=float(epochs), model=k)
        for k, (problem, pair, epochs) in enumerate(zip(problems, pairs, each, strict=True))
    ]
