"""Certificates of models that were computed outside the loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import direct_plan
from dualnewton.run.result import Progress, Result, Status, Trace

TOGETHER = 1 << 22
"""Number of margins that are in memory at a time while models are certified."""


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
    results = []
    for k, pair in enumerate(certify_models(problems, models, intercepts)):
        met = pair.certificate.relative_gap <= tol
        epochs = 1.0 if passes is None else float(passes[k])
        trace = Trace([Progress(epochs, 0.0, pair.certificate, model=k)])
        status = Status.CONVERGED if met else Status.NO_PROGRESS
        results.append(Result.of(pair, status, trace=trace, plan=direct_plan(problems[k], reason)))
    return results


def finished(
    session: GridSession,
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    reason: str,
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
        results += certified(problems[part], models[part], own, session.tol, reason)
    session.report(results)
    missed = [k for k, result in enumerate(results) if not result.converged]
    if missed:
        better = session.solve([problems[k] for k in missed], [results[k] for k in missed])
        for k, result in zip(missed, better, strict=True):
            results[k] = result
    return results
