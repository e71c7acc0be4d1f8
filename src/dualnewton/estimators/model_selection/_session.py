"""The budget of a grid of models: ``max_iter`` limits each model, ``time_limit`` all together."""

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
from dualnewton.objective.problem import Problem
from dualnewton.run.result import Progress, Result, Status


@dataclass(frozen=True)
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
