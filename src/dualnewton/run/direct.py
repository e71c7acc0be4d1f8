"""Problems without the loop: small ones by one call of a direct solver, constant targets by their intercept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.certificates import certify_cold_starts, certify_models
from dualnewton.planning.plan import Plan
from dualnewton.planning.small import takes_starts
from dualnewton.run.methods import direct_solver
from dualnewton.run.result import Progress, Result, Status, Trace, direct_result
from dualnewton.run.start import Start, direct_plan_for, has_model
from dualnewton.run.track import proved
from dualnewton.solvers.direct.block import MOST_STEPS, STEP_EPOCHS, Block, Found, Limits
from dualnewton.solvers.protocol import Request, certified


def solved_directly(
    problems: Sequence[Any],
    request: Request,
    warm_start: Sequence[Start] | None,
    max_epochs: float,
    deadline: float,
) -> tuple[list[Result], list[Found]]:
    """Return the results if a direct solver takes the problems and every certificate meets the tolerance.

    Otherwise there are none, but what the solver has found, from which the loop continues
    (:class:`~dualnewton.solvers.direct.method.Direct`). Nothing is found, and the loop takes all steps, if a callback needs each
    certificate, if a limit may end the steps early, or if a warm start must be certified before the solver is called.
    """
    if _is_constant(problems[0], request) and (results := _solved_by_constants(problems, request)):
        return results, []
    began = time.perf_counter()
    starts = [None] * len(problems) if request.cold else _models(problems, warm_start)
    if not starts or request.callback is not None or max_epochs < STEP_EPOCHS * MOST_STEPS or began >= deadline:
        return [], []
    plan = direct_plan_for(problems, request)
    if plan is None:
        return (_solved_at_zero(problems, request) if request.cold else []), []
    if not (request.cold or takes_starts(plan)):
        return [], []
    block, solve = Block(problems[0].data, request.tuning), direct_solver(plan)
    found = solve(problems, block, starts, Limits(request.tol, deadline=deadline))
    if True in [each.given_up for each in found]:
        return [], found
    points = [each.point() for each in found]
    worked = time.perf_counter() - began
    certify = certified if len(points) > 1 else points[0].certified
    try:
        pairs, proofs = certify(problems, points, request.tol), []
    except DualnewtonError:
        if all(point.is_finite for point in points):
            raise
        return [], found  # arithmetic that has overflowed: the loop certifies no such point
    for problem, pair in zip(problems, pairs, strict=True):
        proof = pair
        if pair.certificate.rounding is None or not pair.certificate.meets(request.tol):
            if pair.certificate.relative_gap > request.tol:
                return [], found
            proof = proved(problem, pair, request.tol)
            if not proof.certificate.meets(request.tol):
                return [], found
        proofs.append(proof)
    seconds, epochs, results = time.perf_counter() - began, STEP_EPOCHS * max([each.steps for each in found]), []
    for k, (pair, proof) in enumerate(zip(pairs, proofs, strict=True)):
        row = Progress(epochs, seconds, pair.certificate, model=k, latest=pair.certificate, work_seconds=worked)
        results.append(Result.of(proof, Status.CONVERGED, trace=Trace([row]), plan=plan))
    return results, found


def _solved_by_constants(problems: Sequence[Any], request: Request) -> list[Result] | None:
    """Return the results if all targets of each problem are one number, which the intercept fits without an error; else None.

    P = D = 0 there. At any other start P is at the level of rounding errors, relative to which no gap would be small.
    """
    if not all(_is_constant(problem, request) for problem in problems):
        return None
    pairs = certify_cold_starts(problems)
    if not all(pair.certificate.primal == pair.certificate.dual == 0.0 for pair in pairs):
        return None
    plan = Plan("none", 0, "the starting point meets tol")
    proofs = [proved(problem, pair, request.tol) for problem, pair in zip(problems, pairs, strict=True)]
    return [direct_result(proof, request.tol, plan, epochs=0.0, model=k) for k, proof in enumerate(proofs)]


def _solved_at_zero(problems: Sequence[Any], request: Request) -> list[Result]:
    """Return the results if w = 0 meets the tolerance for all problems, since no slope exceeds its threshold; else none.

    A plan and the first step of any method would cost more than the slopes, which are kept for them, and the certificate.
    """
    first = problems[0]
    if request.method != "auto" or request.tau != "auto" or first.scheme is not None:
        return []
    able = first.data.capabilities.whole and first.data.capabilities.local
    if not (able and first.regularizer.form.has_thresholds and all(map(_is_zero, problems))):
        return []
    intercepts = [problem.best_intercept_without_features() for problem in problems]
    zeros = [np.zeros((each.columns, each.d) if each.columns > 1 else each.d) for each in problems]
    pairs = certify_models(problems, zeros, intercepts, tol=request.tol)
    if not all(pair.certificate.rounding is not None and pair.certificate.meets(request.tol) for pair in pairs):
        return []
    plan = Plan("none", 0, "the starting point meets tol")
    return [direct_result(pair, request.tol, plan, epochs=0.0, model=k) for k, pair in enumerate(pairs)]


def _is_zero(problem: Any) -> bool:
    """Whether w = 0 with its best intercept b is a minimiser, up to rounding: g*(ᾱ) = 0 = g(0) for α_i = −φ′(b + o_i)."""
    return bool(problem.g.conjugate(problem.slopes_at_zero.T / (-problem.lam * problem.n)) == 0.0)


def _is_constant(problem: Any, request: Request) -> bool:
    """Whether a problem with an intercept has one target for all examples, no offsets, and no chosen method or callback."""
    y = problem.y
    if not (request.method == request.tau == "auto" and problem.fit_intercept and problem.data.capabilities.local):
        return False
    if y.ndim > 1 or y[0] != y[-1] or problem.scheme is not None:
        return False
    return problem.offset is None and request.callback is None and bool((y == y[0]).all())


def _models(problems: Sequence[Any], warm_start: Sequence[Any] | None) -> list[Any]:
    """Return (w, b) of each start; nothing if some are dual points, or do not fit the problems."""
    starts = warm_start or ()
    if len(starts) != len(problems) or not all(map(has_model, starts)):
        return []
    shape = (problems[0].d,) if problems[0].columns == 1 else (problems[0].columns, problems[0].d)
    return [(start.w, start.intercept) for start in starts] if all(start.w.shape == shape for start in starts) else []
