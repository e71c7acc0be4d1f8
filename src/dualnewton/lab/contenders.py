"""The contenders of a comparison: our methods and other libraries, each run at a sequence of decreasing tolerances."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.interop.specification import Specification
from dualnewton.lab.peers import (
    ANY,
    PEERS,
    SPARSE,
    Fitted,
    Glum,
    Peer,
    Task,
    forms_hessian,
    sklearn_elastic_net,
    sklearn_glm,
    sklearn_svc,
)
from dualnewton.objective.problem import Problem
from dualnewton.run.loop import solve
from dualnewton.run.result import Result

LADDER = tuple(10.0**-k for k in range(1, 11))
"""The tolerances of the runs of a contender, in this order, until its suboptimality reaches the goal."""

REPEATS, ENOUGH = 3, 0.2
"""A short fit is repeated up to REPEATS times, until the repetitions take ENOUGH seconds together; the shortest time counts."""

STALLED = 3
"""Number of successive tolerances without a better model after which a contender is stopped."""

WARM_ROWS = 400
"""Number of rows in the warm-up of another library, which only imports its modules and starts its threads."""


def _deviance(loss: str) -> list[Peer]:
    """Return the solvers of a generalised linear model."""
    kind = f"{loss.capitalize()}Regressor"
    return [
        Peer("glum", "glum", partial(Glum, loss), True, forms_hessian, penalties=ANY, intercept=True),
        Peer("newton-cholesky", "sklearn", sklearn_glm(kind, "newton-cholesky"), True, forms_hessian, intercept=True),
        Peer("lbfgs", "sklearn", sklearn_glm(kind, "lbfgs"), threaded=True, intercept=True),
    ]


ALL_PEERS: dict[str, Sequence[Peer]] = {
    "logistic": PEERS["logistic"],
    "squared_hinge": PEERS["squared hinge"],
    "squared": [
        *PEERS["squared"],
        Peer("coordinate descent", "sklearn", sklearn_elastic_net, penalties=SPARSE, intercept=True),
    ],
    "hinge": [Peer("liblinear dual", "sklearn", sklearn_svc(loss="hinge"))],
    **{loss: _deviance(loss) for loss in ("poisson", "gamma")},
}
"""Solvers of other libraries by the command line's name of the loss; for other losses none is known."""

RATIOS = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.5}
"""The share of the l1 norm in each penalty of a comparison, where the user gives none."""

SHOWN = {"sklearn": "scikit-learn"}
"""Distribution names of packages whose import name differs, for the tables."""


@dataclass(frozen=True)
class Attempt:
    """One fit of a contender."""

    tol: float  # tolerance passed to the solver
    seconds: float  # time of the fit, including its checks of the data
    iterations: float  # epochs for our methods; the solver's own count of iterations for the others
    suboptimality: float  # certified (P(w) − D)/|P|, with the dual value D of the reference solution


@dataclass(frozen=True, eq=False)
class Match:
    """The problem that all contenders solve, and the dual point that certifies their models."""

    problem: Problem
    objective: Specification
    dual_point: np.ndarray  # (n,) dual point of the reference solution
    goal: float  # suboptimality at which a contender is stopped
    threads: int = 1
    seed: int = 0

    @property
    def l1_ratio(self) -> float:
        """The share of the l1 norm in the penalty."""
        return float(self.objective.penalty_parameters.get("l1_ratio", RATIOS[self.objective.penalty]))

    def excuse(self, peer: Peer) -> str:
        """Return the reason why another solver cannot take part, or an empty string."""
        if not peer.installed:
            return "not installed"
        if self.objective.penalty not in peer.penalties:
            return f"no penalty {self.objective.penalty}"
        if self.objective.fit_intercept and not peer.intercept:
            return "no intercept without a penalty"
        return peer.refuses(self.problem.X)

    def suboptimality(self, w: np.ndarray, intercept: float = 0.0) -> float:
        """Return the certified relative suboptimality of any model."""
        return self.problem.certify(w, intercept, alpha=self.dual_point).relative_gap

    def warm_up_task(self) -> Match:
        """Return the same task on a few rows that cover all labels, for a warm-up."""
        order = np.argsort(self.problem.y, kind="stable")
        rows = np.sort(order[np.linspace(0, len(order) - 1, min(WARM_ROWS, len(order))).astype(int)])
        small = replace(self.problem, X=self.problem.X[rows], y=self.problem.y[rows], lam=self.problem.lam)
        return replace(self, problem=small, dual_point=self.dual_point[rows])


@dataclass(frozen=True, eq=False)
class Ours:
    """One of our methods."""

    match: Match
    method: str

    @property
    def name(self) -> str:
        """The name in tables."""
        return f"dualnewton {self.method}"

    def prepare(self) -> None:
        """Compile the kernels of the method."""
        self._solve(self.match.problem, tol=1e-12, max_epochs=2)

    def attempt(self, tol: float) -> Fitted:
        """Return a model and its number of epochs; a new problem makes the time include the checks of the data."""
        old = self.match.problem
        how: dict[str, Any] = {"regularizer": old.regularizer, "lam": old.lam, "fit_intercept": old.fit_intercept}
        result = self._solve(Problem(old.X, old.y, old.loss, **how), tol=tol, max_epochs=100_000)
        return Fitted(result.w, float(result.intercept), result.n_epochs)

    def _solve(self, problem: Problem, **stop: Any) -> Result:
        match = self.match
        return solve(problem, method=self.method, n_threads=match.threads, random_state=match.seed, **stop)

    def work(self) -> Iterator[Attempt]:
        """Yield the attempts of the method."""
        yield from attempts_at(self.match, self.attempt, LADDER)


@dataclass(frozen=True, eq=False)
class Theirs:
    """A solver of another library, referred to by name so that the object can be pickled."""

    match: Match
    name: str

    @property
    def peer(self) -> Peer:
        """The solver."""
        return next(peer for peer in ALL_PEERS[self.match.objective.loss] if peer.name == self.name)

    def prepare(self) -> None:
        """Import the library and start its threads."""
        with contextlib.suppress(Exception):  # the timed fits will raise and report the same error
            self.attempts(self.match.warm_up_task())(1e-2)

    def attempts(self, match: Match) -> Callable[[float], Fitted]:
        """Return the function from a tolerance to a fit; X becomes a SciPy matrix, since some solvers reject SciPy's arrays."""
        problem, peer = match.problem, self.peer
        X = sp.csr_matrix(problem.X) if sp.issparse(problem.X) else problem.X
        lam = match.objective.lam
        assert isinstance(lam, float)
        given: dict[str, Any] = {"l1_ratio": match.l1_ratio, "fit_intercept": problem.fit_intercept}
        return lambda tol: peer.fitted(X, problem.y, Task(problem.n, lam * problem.n, tol, match.threads, **given))

    def work(self) -> Iterator[Attempt]:
        """Yield the attempts of the solver; a direct solver makes only one."""
        ladder = LADDER[5:6] if self.peer.direct else LADDER
        yield from attempts_at(self.match, self.attempts(self.match), ladder)


def attempts_at(match: Match, attempt: Callable[[float], Fitted], ladder: Sequence[float]) -> Iterator[Attempt]:
    """Yield a fit for each tolerance, until the suboptimality reaches the goal or stops improving.

    ``attempt`` returns the model for a tolerance.
    """
    best, stalled = math.inf, 0
    for tol in ladder:
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < ENOUGH:
            began = time.perf_counter()
            w, b, iterations = attempt(tol)
            times.append(time.perf_counter() - began)
        found = match.suboptimality(w, b) if np.isfinite([*w, b]).all() else math.inf
        yield Attempt(tol, min(times), iterations, found)
        stalled = 0 if found < best else stalled + 1
        best = min(best, found)
        if best <= match.goal or stalled >= STALLED:
            return
