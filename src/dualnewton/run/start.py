"""The start of a run: checks of the problems, the plan, and the first certified points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.certificate import POOR, CertifiedPair
from dualnewton.objective.certificates import certify_cold_starts, certify_duals, certify_models
from dualnewton.objective.groups import for_each
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import on_threads
from dualnewton.planning.interior import takes_interior
from dualnewton.planning.plan import Plan
from dualnewton.planning.planner import check_names, general_plan, require_problem
from dualnewton.planning.small import small_plan
from dualnewton.planning.switching import Switching
from dualnewton.planning.tuning import Tuning
from dualnewton.run.checkpoint import SHARED
from dualnewton.run.methods import scheme_of
from dualnewton.run.result import Result
from dualnewton.samplings import Sampling
from dualnewton.solvers.protocol import Request

Start = Result | CertifiedPair | np.ndarray
"""A model with its dual point, or a dual point."""

Seed = int | np.random.Generator | Callable[[], np.random.Generator] | None
"""Source of the random numbers of a run; a function is called only if the run uses any."""


def direct_plan_for(problems: Sequence[Any], request: Request) -> Plan | None:
    """Return the plan of the direct solver that takes these problems, if one does."""
    if request.sampling is not None:
        return None
    return small_plan(problems[0], request.method, request.tau, len(problems), request.tuning, request.n_threads)


def plan_for(problem: Problem, request: Request, models: int) -> Plan:
    """Return the plan of a run on this number of similar problems; reject a sampling that is incompatible with other settings."""
    method, tau, sampling = request.method, request.tau, request.sampling
    if sampling is None:
        method, tau = check_names(problem, method, tau)
        tuning = tuning_for(problem, request, models)
        return general_plan(problem, method=method, tau=tau, models=models, near=request.near, tuning=tuning)
    if not isinstance(sampling, Sampling):
        raise DualnewtonError(f"sampling must be a samplings.Sampling, such as samplings.Nice(n, 8), got {sampling!r}")
    if sampling.n != problem.n:
        raise DualnewtonError(
            f"sampling must be over the {problem.n} examples of the problem, got one over {sampling.n}"
        )
    if tau != "auto":
        raise DualnewtonError(
            f"tau must be 'auto' if a sampling is given, since the sampling defines it; got tau={tau!r} and {sampling!r}"
        )
    if method in ("newton", "interior") or not (problem.loss.kinked or problem.loss.has_dual_rounds):
        what = f'method="{method}"' if method in ("newton", "interior") else repr(problem.loss)
        raise DualnewtonError(
            f"sampling must be None with {what}: only dual methods draw sets of examples; got {sampling!r}"
        )
    tau = max(1, round(sampling.expected_size))
    chosen = general_plan(problem, method=check_names(problem, method, tau)[0], tau=tau, tuning=request.tuning)
    return replace(chosen, reason=chosen.reason.replace("tau given by the user", "sampling given by the user"))


def run_plan(problem: Any, request: Request, models: int) -> Plan:
    """Return the plan of a run that the loop drives step by step."""
    plan = Plan("none", 0, "the starting point meets tol")
    if problem.scheme in (None, "smoothing") or takes_interior(problem, request.method, request.tau):
        wanted = plan_for(problem, request, models)
        return replace(plan, smoothed=True) if wanted.smoothed else wanted
    return plan


def tuning_for(problem: Problem, request: Request, models: int) -> Tuning:
    """Return the tuning by which methods are compared; adjusted to threads and models if the method is "auto"."""
    if request.n_threads == 1 or request.method != "auto" or request.tau != "auto":
        return request.tuning
    return on_threads(request.tuning, problem.data.profile, request.n_threads, 1 if problem.loss.kinked else models)


def has_model(start: Any) -> bool:
    """Whether a warm start has a model in addition to its dual point."""
    return isinstance(start, Result | CertifiedPair)


def starting_pairs(
    problems: Sequence[Any], warm_start: Sequence[Start] | None, *, primal: bool = False, shared: bool = True
) -> list[CertifiedPair]:
    """Certify the starting points of a run: α = 0, dual points, or the models and dual points of earlier results.

    A primal method starts at the model of an earlier result, not at the model ∇g*(ᾱ) of its dual point; but not if a cold start
    is better, as it may be where the earlier result is that of other rows. If passes are not shared, each objective certifies its
    own start.
    """
    if warm_start is not None and len(warm_start) != len(problems):
        raise DualnewtonError(
            f"warm_start must have one entry for each of {len(problems)} problems, got {len(warm_start)}"
        )
    if not shared:
        if not all(map(has_model, warm_start or ())):
            raise DualnewtonError(f"warm_start must hold results for {type(problems[0]).__name__}, got a dual point")
        return [problem.starting_pair(warm_start and warm_start[k]) for k, problem in enumerate(problems)]
    if warm_start is None:
        return certify_cold_starts(problems)
    results: list[tuple[int, Any]] = [(k, start) for k, start in enumerate(warm_start) if has_model(start)]
    for k, start in results:
        K, d = problems[k].columns, problems[k].d
        if np.shape(start.w) != (shape := (d,) if K == 1 else (K, d)):
            raise DualnewtonError(f"warm_start must hold a model w of shape {shape}, got shape {np.shape(start.w)}")
    pairs: dict[int, CertifiedPair] = {}
    if results:
        own = [problems[k] for k, _ in results]
        # The intercept of the earlier result, if this problem has one.
        intercepts = [start.intercept * problem.fit_intercept for problem, (_, start) in zip(own, results, strict=True)]
        duals = for_each(own[0], results, lambda result: problems[result[0]].dual_near(result[1].alpha))
        certified = certify_models(own, [start.w for _, start in results], intercepts, duals)
        pairs = {k: pair for (k, _), pair in zip(results, certified, strict=True)}
        poor = [k for k, pair in pairs.items() if not pair.certificate.relative_gap <= POOR]
        for k, cold in zip(poor, certify_cold_starts([problems[k] for k in poor]) if poor else (), strict=True):
            pairs[k] = pairs[k].joined_with(cold)
    points: dict[int, Any] = {
        k: getattr(start, "alpha", start) for k, start in enumerate(warm_start) if not (primal and k in pairs)
    }
    if points:
        duals = for_each(problems[0], list(points.items()), lambda point: problems[point[0]].dual_near(point[1]))
        for k, pair in zip(points, certify_duals([problems[k] for k in points], duals), strict=True):
            pairs[k] = pairs[k].joined_with(pair) if k in pairs else pair
    return [pairs[k] for k in range(len(problems))]


def checked_problems(problems: Sequence[Any]) -> list[Any]:
    """Return the problems of a run as a list; raise an error if they do not share X, loss, regulariser and intercept."""
    try:
        problems = list(problems)
    except TypeError:
        require_problem(problems)
        raise DualnewtonError("problems must be a sequence of problems, got a single one: use solve for it") from None
    for problem in problems:
        require_problem(problem)
    if not problems:
        raise DualnewtonError("problems must hold at least one problem, got none")
    first = problems[0]
    if len(problems) == 1:
        return problems
    names = _shared_names(first.__class__)
    for k, problem in enumerate(problems):
        if type(problem) is not type(first) or not problem.data.same_as(first.data):
            raise DualnewtonError(f"problems must share X: problem {k} has another than problem 0")
        for name in names:
            mine, its = getattr(problem, name), getattr(first, name)
            if not (mine is its or mine == its):
                raise DualnewtonError(f"problems must share {name}: problem {k} has another than problem 0")
    return problems


@cache
def _shared_names(kind: Any) -> list[str]:
    """Return the names of the fields that the problems of a run share."""
    return [part.name for part in fields(kind) if part.name in SHARED]


def checked_callback(callback: Any) -> Any:
    """Return a callback, which must be a function or None."""
    if callback is not None and not callable(callback):
        raise DualnewtonError(f"callback must be a function of the progress, or None, got {callback!r:.60}")
    return callback


def without_float_warnings() -> np.errstate:
    """Return the context of NumPy's error handling in a run, its planning included.

    Sums may overflow, for data near the ends of the range of float64 and at trial points of losses that grow exponentially: a
    line search shortens such steps, and the certificate states what is proved. (BLAS has one thread in a run: after a product,
    further threads would keep a core busy for a while, waiting for the next one.)
    """
    return np.errstate(over="ignore", invalid="ignore")


class _Generator:
    """Function that returns a generator, which its first call makes. (``functools.cache`` takes longer to make.)"""

    __slots__ = ("made", "seed")

    def __init__(self, seed: int | None) -> None:
        self.seed = seed
        self.made: np.random.Generator | None = None

    def __call__(self) -> np.random.Generator:
        if self.made is None:
            self.made = np.random.default_rng(self.seed)
        return self.made


def generator_source(random_state: Seed) -> Callable[[], np.random.Generator]:
    """Return a function that returns the generator of a run, always the same object; an invalid seed raises an error here."""
    if callable(random_state):
        return random_state
    # A valid seed. The generator is made when it is first used: numbers from the operating system take longer than the planning
    # of the smallest fits.
    if random_state is None or (type(random_state) is int and random_state >= 0):
        return _Generator(random_state)
    try:
        made = np.random.default_rng(random_state)
        return lambda: made
    except (TypeError, ValueError):
        raise DualnewtonError(
            f"random_state must be None, a nonnegative integer or a numpy.random.Generator, got {random_state!r}"
        ) from None


def switching_of(problem: Any, plan: Plan, request: Request, models: int) -> Switching | None:
    """Return the object that may change the method; None for a direct solver or an outer scheme (inner runs switch)."""
    if plan.family is not None or scheme_of(problem, plan) is not None:
        return None
    all_auto = request.method == request.tau == "auto" and request.sampling is None
    free = all_auto and problem.scheme != "no penalty"
    return Switching(problem, plan, request.tol, free=free, tuning=tuning_for(problem, request, models))
