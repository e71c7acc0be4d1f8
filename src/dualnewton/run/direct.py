"""Small problems without the loop: one call of a direct solver, one certificate for all models."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dualnewton.run.methods import direct_solver
from dualnewton.run.result import Progress, Result, Status, Trace
from dualnewton.run.start import direct_plan_for
from dualnewton.run.track import proved
from dualnewton.solvers.direct.block import MOST_STEPS, STEP_EPOCHS, Block
from dualnewton.solvers.protocol import Request


def solved_directly(
    problems: Sequence[Any], request: Request, max_epochs: float, deadline: float
) -> list[Result] | None:
    """Return the results if a direct solver takes the problems and every certificate meets the tolerance, else None.

    Otherwise the loop repeats the steps (:class:`~dualnewton.solvers.direct.method.Direct`), with the same bits, and continues
    from there. The loop is also used if a callback needs each certificate, if a limit may end the steps early, or if there is a
    warm start.
    """
    began = time.perf_counter()
    if not request.cold or request.callback is not None or max_epochs < STEP_EPOCHS * MOST_STEPS or began >= deadline:
        return None
    if (plan := direct_plan_for(problems, request)) is None:
        return None
    block, solve = Block(problems[0].data, request.tuning), direct_solver(plan)
    found = solve(problems, block, [None] * len(problems), tol=request.tol, most=MOST_STEPS, deadline=deadline)
    points = [each.point() for each in found]
    worked = time.perf_counter() - began
    pairs, proofs = points[0].certified_within(problems, points, request.tol), []
    for problem, pair in zip(problems, pairs, strict=True):
        proof = pair
        if pair.certificate.rounding is None or not pair.certificate.meets(request.tol):
            if pair.certificate.relative_gap > request.tol:
                return None
            proof = proved(problem, pair, request.tol)
            if not proof.certificate.meets(request.tol):
                return None
        proofs.append(proof)
    seconds, epochs, results = time.perf_counter() - began, STEP_EPOCHS * max(each.steps for each in found), []
    for k, (pair, proof) in enumerate(zip(pairs, proofs, strict=True)):
        row = Progress(epochs, seconds, pair.certificate, model=k, latest=pair.certificate, work_seconds=worked)
        results.append(Result.of(proof, Status.CONVERGED, trace=Trace([row]), plan=plan))
    return results
