"""Construction of the method that the loop drives, from a plan."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import Data
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, prepared
from dualnewton.planning.dual import narrows
from dualnewton.planning.eligible import has_hessian, is_joint
from dualnewton.planning.interior import by_rows, corrections, in_single, sample_size
from dualnewton.planning.kinked_dual import solves_system
from dualnewton.planning.plan import Plan
from dualnewton.planning.sketching import Sketching
from dualnewton.planning.small import fits_one_block
from dualnewton.planning.tuning import Tuning
from dualnewton.planning.working_sets import SetSizes, follows_penalties, penalty_ratio, sums_at_once
from dualnewton.samplings import Sampling, Shuffled
from dualnewton.solvers import METHODS
from dualnewton.solvers.direct.block import Block, Found, Solvers, one_by_one
from dualnewton.solvers.direct.method import Direct
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.dual.kinked import KinkedSweeps
from dualnewton.solvers.dual.sweeps import Sweeps
from dualnewton.solvers.outer.aggregation import Aggregation
from dualnewton.solvers.outer.proximal_point import ProximalPoint
from dualnewton.solvers.outer.scale_search import ScaleSearch
from dualnewton.solvers.outer.unpenalised import NewtonWithoutPenalty
from dualnewton.solvers.protocol import Method, Request

if TYPE_CHECKING:
    from dualnewton.objective.moments import Moments
    from dualnewton.solvers.prox.paths import Paths

SCHEMES: dict[str | None, Any] = {
    "smoothing": ProximalPoint, "scale": ScaleSearch, "no penalty": NewtonWithoutPenalty
}  # fmt: skip
"""Outer schemes by the name in ``scheme`` of an objective; None for a problem that needs none."""


TOGETHER: dict[str | None, str] = {
    "newton": "together",
    "kinks": "several_kinks",
    "conjugate": "shared_products",
}
"""The module in which several models of a family take their steps together."""


def direct_solver(plan: Plan) -> Solvers:
    """Return the function of the plan's direct solver for several problems; its module is loaded on first use."""
    solve = _direct(plan.inner or plan.family).solve
    if plan.passes:
        solve = partial(solve, passes=plan.passes, whole=plan.whole)
    more = {"directions": plan.directions} if plan.directions else {}
    if plan.together:
        together = partial(_direct(TOGETHER[plan.inner or plan.family]).solve, alone=solve, **more)
        return together if plan.inner is None else partial(_direct(plan.family).solve_together, inner=together)
    if plan.inner is not None:
        solve = partial(_direct(plan.family).solve, inner=solve)
    return partial(one_by_one, partial(solve, **more))


@cache
def _direct(name: str | None) -> Any:
    """Return a module of direct solvers."""
    return import_module(f"dualnewton.solvers.direct.{name}")


def scheme_of(problem: Any, plan: Plan) -> Any | None:
    """Return the outer scheme of a run, if it needs one.

    A loss with kinks needs one if the plan smooths it. A direct solver needs none, nor does the interior-point method without a
    penalty.
    """
    if plan.family is not None:
        return None
    if problem.scheme == "smoothing":
        return ProximalPoint if plan.smoothed else None
    return None if problem.scheme == "no penalty" and plan.method == "interior" else SCHEMES.get(problem.scheme)


def make_method(
    plan: Plan,
    starts: Sequence[tuple[Any, CertifiedPair]],
    request: Request,
    runs: Any,
    known: Sequence[Found] = (),
) -> Method:
    """Build the method of a plan, started at the given points.

    The problems share X; α is the starting point of a dual method, (w, b) that of a primal one. A sampling in the request
    selects rounds, those of the paper's Section 6 if the method is "ihs". ``runs`` is the class by which an outer scheme
    starts and restores its inner runs, and ``known`` what the direct solver of the plan has returned without limits.
    """
    problems: list[Any] = [problem for problem, _ in starts]
    sampling, tol = request.sampling, request.tol
    if plan.family is not None:
        points = [(pair.w, pair.intercept) for _, pair in starts]
        own = None if request.cold else points
        return Direct(direct_solver(plan), problems, own, tol=tol, crossovers=request.tuning, known=known)
    if (scheme := scheme_of(problems[0], plan)) is not None:
        return scheme(starts, request, runs)
    if plan.method == "interior":
        return _interior(plan, starts, request, runs)
    if plan.is_primal and sampling is None:
        from dualnewton.solvers.primal.newton import Descent
        from dualnewton.solvers.prox.joint import JointDescent
        from dualnewton.solvers.prox.newton import Proximal

        points = [(pair.w, pair.intercept) for _, pair in starts]
        first, compiled, newton = problems[0], plan.compiled, plan.method == "newton"
        data = prepared(first.data, compiled=compiled, tuning=request.tuning)
        if not has_hessian(first):
            once = first.loss.curvature is Curvature.CONSTANT
            joint = is_joint(first)
            if len(problems) == 1 and not joint and follows_penalties(first, request.tuning):
                return _walk(first, data, points[0], request, compiled=compiled)
            columns = 1 if joint else first.columns
            apart, models = compiled and not joint, len(problems)
            sizes = SetSizes.of(data, request.tuning, columns=columns, once=once, compiled=apart, models=models)
            if joint:
                return JointDescent(problems, data, points, tol=tol, compiled=compiled, sizes=sizes)
            (sample,) = plan.samples or (0,)
            return Proximal(problems, data, points, tol=tol, compiled=compiled, sizes=sizes, sample=sample)
        decisions = Sketching.of(data, request.tuning)
        return Descent(
            problems, data, points, tol=tol, sketch=plan.tau, newton=newton, decisions=decisions, samples=plan.samples
        )
    # Sets of active examples have another law than the one that defines the ESO vector v of minibatch SDCA.
    focus = sampling is None and (plan.method == "sdna" or plan.tau == 1)
    law = Shuffled(problems[0].n, plan.tau) if sampling is None else sampling
    engine = _engine(plan, starts, law, request)
    if not problems[0].loss.kinked:
        return Sweeps(engine, law, len(starts), focus=focus, crossovers=request.tuning, tol=tol)
    system = partial(solves_system, Costs.of(problems[0].data.profile, request.tuning))
    return KinkedSweeps(problems, engine, law, focus=focus, solves_system=system, crossovers=request.tuning)


def _interior(plan: Plan, starts: Sequence[tuple[Problem, CertifiedPair]], request: Request, runs: Any) -> Method:
    from dualnewton.solvers.primal.curvature import gram_of
    from dualnewton.solvers.primal.interior_point import InteriorPoint
    from dualnewton.solvers.primal.step_systems import Passes, Rows, WidePasses

    problem, tuning = starts[0][0], request.tuning
    if (sample := sample_size(problem, tuning)) is not None:
        return Aggregation(starts, request, runs, sample=sample)
    data, intercept = problem.data, problem.unit.fit_intercept
    system_of: Any
    if by_rows(problem):
        form = problem.regularizer.form
        penalty = np.ones(data.d) if form.weights is None else form.weights
        gram = gram_of(data.rows(slice(None)), penalty) if form.is_quadratic else None
        system_of = partial(WidePasses, data, gram=gram, penalty=penalty, most_small=tuning.largest_matrix)
    elif fits_one_block(problem, tuning):
        block = Block(data)
        system_of = partial(Rows.of, block.extended if intercept else block.rows, data.d)
    else:
        system_of = partial(Passes, prepared(data, compiled=plan.compiled, tuning=tuning))
    return InteriorPoint(
        starts,
        system_of,
        tol=request.tol,
        corrections=corrections(problem, tuning),
        crossovers=tuning,
        largest_system=tuning.repeated_matrix,
        single=in_single(problem, tuning),
    )


def _walk(problem: Problem, data: Data, start: tuple[Any, Any], request: Request, *, compiled: bool) -> Method:
    """Build the method that solves one least-squares model along decreasing penalties."""
    from dualnewton.solvers.prox.least_squares import LeastSquares

    tuning = request.tuning
    summed = sums_at_once(problem, tuning)
    paths, _ = paths_of(problem, data, tuning, summed=summed, by_entries=False, compiled=compiled)
    return LeastSquares(problem, paths, start, tol=request.tol, ladder=penalty_ratio(data.profile, tuning))


def paths_of(
    problem: Problem, data: Data, tuning: Tuning, *, summed: bool, by_entries: bool, compiled: bool
) -> tuple[Paths, Moments | None]:
    """Return the models of one least-squares problem that is solved along decreasing penalties; with moments if ``summed``."""
    from dualnewton.objective.moments import Moments, origin_of
    from dualnewton.solvers.prox.entry_paths import FromEntries
    from dualnewton.solvers.prox.paths import FromColumns, FromMoments, Groups

    c, free = problem.c, problem.fit_intercept
    y = problem.y if problem.offset is None else problem.y - problem.offset
    if summed and not by_entries:
        moments = Moments.of(data, y[:, None], c, origin_of(data, c, shift=free))
        return FromMoments.of([moments], y, [c], fit_intercept=free, compiled=compiled), moments
    rows = np.flatnonzero(c > 0.0)
    groups = Groups([rows], [c[rows]], np.ones((1, 1)))
    sizes = SetSizes.of_paths(1, tuning, data.profile)
    gathering = partial(FromColumns, data, y, groups, fit_intercept=free, compiled=compiled, sizes=sizes)
    return FromEntries(data, y, c[None], gathering, tuning, fit_intercept=free) if by_entries else gathering(), None


def _engine(
    plan: Plan, starts: Sequence[tuple[Problem, CertifiedPair]], sampling: Sampling, request: Request
) -> Engine:
    problems: list[Any] = [problem for problem, _ in starts]
    alphas = [pair.alpha for _, pair in starts]
    if not plan.compiled or plan.is_primal:
        return Engine(problems, sampling, METHODS[plan.method], alphas)
    from dualnewton.solvers.dual.compiled import CompiledEngine  # loads Numba

    # A warm start may need too few epochs for a copy of the rows.
    narrow = request.cold and all(narrows(problem, plan, request.tol, request.tuning) for problem in problems)
    separable, n_threads = plan.method == "sdca", request.n_threads
    return CompiledEngine(problems, sampling, alphas, separable_rounds=separable, n_threads=n_threads, narrow=narrow)
