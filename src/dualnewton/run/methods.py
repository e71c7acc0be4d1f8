"""From a plan to what the loop drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import prepared
from dualnewton.planning.eligible import has_hessian
from dualnewton.planning.plan import Plan
from dualnewton.planning.small import takes_one_block
from dualnewton.samplings import Sampling, Shuffled
from dualnewton.solvers import METHODS
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.dual.sweeps import Sweeps
from dualnewton.solvers.protocol import Runner


def make_runner(
    plan: Plan,
    starts: Sequence[tuple[Problem, CertifiedPair]],
    sampling: Sampling | None,
    tol: float,
    n_threads: int,
) -> Runner:
    """Build what the plan says, at the points that the pairs say.

    Parameters
    ----------
    plan : Plan
        Method, τ, and whether kernels do the work.
    starts : sequence of (Problem, CertifiedPair)
        The problems, which share X, and where each starts: a dual method from α, a primal one from (w, b).
    sampling : Sampling, optional
        A law for the sets of examples; it asks for rounds, those of the paper's Section 6 if the method is "ihs".
    tol : float
        The relative gap that is wanted.
    n_threads : int
        How many threads may work.
    """
    problems: list[Any] = [problem for problem, _ in starts]
    if plan.is_primal and sampling is None:
        from dualnewton.solvers.primal.newton import Descent
        from dualnewton.solvers.primal.small import SmallNewton
        from dualnewton.solvers.prox.newton import Proximal

        points = [(pair.w, pair.intercept) for _, pair in starts]
        if plan.method == "newton" and takes_one_block(problems[0]):
            return SmallNewton(problems, problems[0].data, points, tol=tol)
        data = prepared(problems[0].data, n_threads, compiled=plan.compiled)
        if not has_hessian(problems[0]):
            return Proximal(problems, data, points, tol=tol, compiled=plan.compiled)
        return Descent(problems, data, points, tol=tol, sketch=plan.tau, newton=plan.method == "newton")
    # Sets of the examples that are awake have another law than the one minibatch SDCA has its v from.
    focus = sampling is None and (plan.method == "sdna" or plan.tau == 1)
    law = Shuffled(problems[0].n, plan.tau) if sampling is None else sampling
    return Sweeps(_engine(plan, starts, law, n_threads), law, len(starts), focus=focus)


def _engine(plan: Plan, starts: Sequence[tuple[Problem, CertifiedPair]], sampling: Sampling, n_threads: int) -> Engine:
    problems: list[Any] = [problem for problem, _ in starts]
    alphas = [pair.alpha for _, pair in starts]
    if not plan.compiled or plan.is_primal:
        return Engine(problems, sampling, METHODS[plan.method], alphas)
    from dualnewton.solvers.dual.compiled import CompiledEngine  # loads Numba

    return CompiledEngine(problems, sampling, alphas, separable_rounds=plan.method == "sdca", n_threads=n_threads)
