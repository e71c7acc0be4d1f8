"""Least squares along a path: one problem, many penalty strengths, a certificate for each model."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np

from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective.alike import like
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.moments import Verifier
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import direct_plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.planning.working_sets import compiles_paths, sums_moments, walks_by_entries
from dualnewton.run.loop import solve
from dualnewton.run.methods import paths_of
from dualnewton.run.result import Result, direct_result
from dualnewton.run.track import proved
from dualnewton.solvers.prox.paths import Stretch
from dualnewton.solvers.prox.subproblem import Penalty

WELL_BELOW = 0.3
"""Violation of the optimality conditions at which a fit stops, as a fraction of the threshold times the wanted gap."""

REASON = "a path of least-squares models, each started from the one before"
"""The reason in the plan of a model of a path."""


def solve_path(
    problem: Problem,
    lams: Sequence[float] | np.ndarray,
    *,
    tol: float,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    tuning: Tuning = DEFAULT,
    duals: bool = True,
) -> list[Result]:
    """Solve a problem for each of several λ.

    The problem has the squared loss and a penalty with a threshold > 0 for each feature and zero within the bounds; λ
    decreases. A model whose certified relative gap misses ``tol`` is solved separately by :func:`solve`, with at most
    ``max_epochs``. The time limit is for all models; a model not fitted by then equals the one before it. Unless ``duals``,
    the dual points of models that are certified from moments of the rows are left out (empty), since each would cost a pass
    over the data.
    """
    deadline = math.inf if time_limit is None else time.perf_counter() + time_limit
    base, results = Penalty.of(problem), list[Result]()
    factors = (np.asarray(lams) / problem.lam).tolist()
    penalties = [base.times(factor) for factor in factors]
    goal = WELL_BELOW * tol * float(base.threshold.min())
    goals = [goal * factor for factor in factors]
    with one_blas_thread:
        data, compiled = problem.data, compiles_paths(problem.d, tuning)
        summed = sums_moments(data.profile, tuning)
        by_entries = walks_by_entries(data, tuning, ridge=problem.regularizer.strongly_convex)
        paths, moments = paths_of(problem, data, tuning, summed=summed, by_entries=by_entries, compiled=compiled)
        # Models are certified from the moments, without passes over the data, if these suffice.
        plain = problem.offset is None and not duals
        verifier = Verifier(moments, problem) if plain and moments is not None else None
        for stretch in paths.along(penalties, goals, lambda: time.perf_counter() > deadline):
            own = np.asarray(lams[len(results) : len(results) + len(stretch.W)], dtype=float)
            results += _certified(problem, own, stretch, tol, verifier)
    for k, lam in enumerate(lams):  # the last ones are missing if they use too many features for a matrix
        if k < len(results) and results[k].converged:
            continue
        start = results[k] if k < len(results) else results[-1] if results else None
        rest = None if time_limit is None else max(0.0, deadline - time.perf_counter())
        found = solve(
            like(problem, lam=float(lam)),
            tol=tol,
            max_epochs=max_epochs,
            time_limit=rest,
            warm_start=start,
            tuning=tuning,
        )
        results[k : k + 1] = [found]
    return results


def _certified(
    problem: Problem, lams: np.ndarray, stretch: Stretch, tol: float, verifier: Verifier | None
) -> Iterator[Result]:
    """Yield the models of consecutive λ with their certificates."""
    W, b, plan = stretch.W[:, 0], stretch.b[:, 0].tolist(), direct_plan(like(problem, lam=float(lams[0])), REASON)
    if verifier is not None:  # its certificates include rounding errors
        proofs, none = verifier.certificates(W, stretch.b[:, 0], lams), np.zeros(0)
        if all(proof.relative_gap <= tol for proof in proofs):
            for k, (w, own, proof) in enumerate(zip(W, b, proofs, strict=True)):
                yield direct_result(CertifiedPair(w, own, none, proof), tol, plan, model=k)
            return
    problems = [like(problem, lam=float(lam)) for lam in lams]
    for k, (one, pair) in enumerate(zip(problems, certify_models(problems, list(W), b), strict=True)):
        pair = proved(one, pair, tol) if pair.certificate.relative_gap <= tol else pair
        yield direct_result(pair, tol, plan, model=k)
