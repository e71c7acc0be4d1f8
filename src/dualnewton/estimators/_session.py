"""All solver runs of one fit: they share a budget, a random generator and a progress line."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any

import joblib  # type: ignore[import-untyped]
import joblib.parallel  # type: ignore[import-untyped]
import numpy as np
from joblib import effective_n_jobs

from dualnewton._cached import cached_property
from dualnewton.estimators._progress import ProgressLine
from dualnewton.matrix.workers import threads
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.planning.planner import METHODS
from dualnewton.planning.tuning import Tuning
from dualnewton.run.loop import solved
from dualnewton.run.result import Progress, Result, Status
from dualnewton.run.start import has_model
from dualnewton.solvers.protocol import Request
from dualnewton.validation import positive

TINY, FINEST = 1e-9, 1e-15
"""The ``tol`` below which the solver aims at a smaller gap than ``tol``, and the smallest gap that it aims at."""

MAX_EPOCHS = 1000
"""Limit on epochs where ``max_iter`` is None."""


def _has_settings() -> bool:
    """Whether ``joblib.parallel_config`` or a worker of joblib may have set another number of threads than one.

    Where joblib keeps them is private to it: if it is not found there, joblib is asked, which takes as long as six products.
    """
    return bool(vars(getattr(joblib.parallel, "_backend", joblib)))


class Session:
    """Runs the solver for an estimator, within ``max_iter`` and ``time_limit`` over all runs of a fit together.

    The parameters of the estimator are read once, at the start. Most fits have one run. Those with several (values of λ,
    outputs with and without a penalty) stop when ``is_over`` says that the budget is spent or the callback has asked to stop.
    """

    def __init__(self, model: Any) -> None:
        self.method = model.solver if model.solver in METHODS else "auto"  # all of scikit-learn's names mean "auto"
        self.tol = positive("tol", model.tol, or_zero=True)
        self.tuning: Tuning = model._tuning
        iterations = MAX_EPOCHS if model.max_iter is None else model.max_iter
        self.epochs_left: float = iterations * model._iteration_epochs
        self.deadline = math.inf if model.time_limit is None else time.perf_counter() + model.time_limit
        # None means one thread; inside joblib's workers, which share the cores, any number means one.
        self.threads = 1 if model.n_jobs is None and not _has_settings() else effective_n_jobs(model.n_jobs)
        self.seed = seed_of(model.random_state)
        self.callback = model.callback
        self.line = ProgressLine(type(model).__name__, self.tol) if model.verbose else None
        self.stopped = False
        self.pool: threads | None = None

    def __enter__(self) -> Session:
        # Also for passes between the runs, such as the Hessians and certificates of cross-validation.
        if self.threads > 1:
            self.pool = threads(self.threads)
            self.pool.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.pool is not None:
            self.pool.__exit__(kind, error, at)
        if self.line is not None:
            self.line.close()

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of all runs; most small fits use none."""
        return np.random.default_rng(self.seed)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent, or the callback or Ctrl-C has asked to stop."""
        return self.stopped or self.epochs_left <= 0 or time.perf_counter() >= self.deadline

    def solve(
        self,
        problems: Sequence[Any],
        start: Sequence[Result | np.ndarray] | None = None,
        tol: float | None = None,
        method: str | None = None,
    ) -> list[Result]:
        """Solve problems over the same X in shared passes, by default with the estimator's ``tol`` and method."""
        request = Request(
            self.method if method is None else method,
            "auto",
            None,
            self.goal if tol is None else tol,
            None,
            self.threads,
            None if self.line is None and self.callback is None else self.tell,
            near=start is not None and all(map(has_model, start)),
            cold=start is None,
            tuning=self.tuning,
        )
        limit = max(0, math.ceil(self.epochs_left))
        results = solved(list(problems), request, start, lambda: self.rng, limit, self.deadline)
        spent, converged = 0.0, True
        for result in results:
            spent, converged = max(spent, result.n_epochs), converged and result.status is Status.CONVERGED
        self.epochs_left -= spent
        if converged:
            return results
        self.stopped |= any(result.status in (Status.STOPPED_BY_CALLBACK, Status.INTERRUPTED) for result in results)
        return [self.converged_by_tol(result) for result in results]

    def solve_unpenalised(self, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result]:
        """Solve problems without their penalty, from earlier results, if there are any."""
        risks = [Unpenalised.of(problem) for problem in problems]
        # One Newton step solves a quadratic problem: it is taken even if the start already meets ``tol``.
        return self.solve(risks, starts(problems, before), FINEST if risks[0].view.quadratic else None)

    @property
    def goal(self) -> float:
        """Return the relative gap that the solver aims at, which is ``tol`` or less.

        A tiny ``tol`` is set for accurate coefficients, and a relative gap of ε leaves an error of about √ε in them. A gap
        smaller by a factor of 100 costs one or two more passes. Rounding limits the gap that can be reached.
        """
        less = self.tol / 100.0 if self.tol < TINY else self.tol
        return min(self.tol, max(less, FINEST))

    def converged_by_tol(self, result: Result) -> Result:
        """Return a result that meets ``tol`` as converged, even if a limit ended the run before it reached :meth:`goal`."""
        ended = result.status in (Status.EPOCH_LIMIT, Status.TIME_LIMIT, Status.NO_PROGRESS)
        return (
            replace(result, status=Status.CONVERGED)
            if ended and result.certificate.relative_gap <= self.tol
            else result
        )

    def tell(self, progress: Progress) -> bool:
        """Pass a certificate to the progress line and the callback; return True if the callback asks to stop."""
        if self.line is not None:
            self.line(progress)
        return self.callback is not None and bool(self.callback(progress))


def seed_of(random_state: Any) -> Any:
    """Return the argument of ``numpy.random.default_rng``; None becomes a fixed seed, so that equal fits are equal."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    return 0 if random_state is None else random_state


def starts(problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
    """Return earlier results as warm starts: w and α if both have the right shapes, else w and α(w) on the new examples."""
    if before is None or len(before) != len(problems):
        return None
    points = []
    for problem, result in zip(problems, before, strict=True):
        K = () if problem.columns == 1 else (problem.columns,)
        if np.shape(result.w) != (*K, problem.d):
            return None
        points.append(
            result if result.alpha.shape == (problem.n, *K) else replace(result, alpha=problem.alpha_of(result.w))
        )
    return points
