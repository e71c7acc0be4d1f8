"""The contenders of a comparison: our methods and other libraries, each run at a sequence of decreasing tolerances."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.lab.peers import PEERS, Peer, sklearn_svc
from dualnewton.objective.problem import Problem
from dualnewton.run.loop import solve
from dualnewton.run.result import Result

METHODS = ("auto", "sdna", "sdca", "newton", "ihs")
"""The methods of this library."""

LADDER = tuple(10.0**-k for k in range(1, 11))
"""The tolerances that a contender is run with, in this order, until its suboptimality reaches the goal."""

REPEATS, ENOUGH = 3, 0.2
"""A short fit is repeated up to REPEATS times, until the repetitions take ENOUGH seconds together; the shortest time counts."""

STALLED = 3
"""Number of successive tolerances without a better model after which a contender is stopped."""

WARM_ROWS = 400
"""Number of rows in the warm-up of another library, which only imports its modules and starts its threads."""

ALL_PEERS: dict[str, Sequence[Peer]] = {
    "logistic": PEERS["logistic"],
    "squared_hinge": PEERS["squared hinge"],
    "squared": PEERS["squared"],
    "hinge": [Peer("liblinear dual", "sklearn", sklearn_svc(loss="hinge"))],
}
"""Solvers of other libraries by the command line's name of the loss; for other losses none is known."""

SHOWN = {"sklearn": "scikit-learn"}
"""Distribution names of packages whose import name differs, for the tables."""


@dataclass(frozen=True)
class Attempt:
    """One fit of a contender.

    Attributes
    ----------
    tol : float
        The tolerance passed to the solver.
    seconds : float
        The time of the fit, including its checks of the data.
    iterations : float
        Epochs for our methods; the solver's own count of iterations for the others.
    suboptimality : float
        The certified (P(w) − D)/|P|, with the dual value D of the reference solution.
    """

    tol: float
    seconds: float
    iterations: float
    suboptimality: float


@dataclass(frozen=True, eq=False)
class Match:
    """The problem that all contenders solve, and the dual point that certifies their models.

    Attributes
    ----------
    problem : Problem
        A problem with the regulariser L2 and without an intercept.
    loss : str
        The name of its loss.
    dual_point : array of shape (n,)
        The dual point of the reference solution.
    goal : float
        The suboptimality at which a contender is stopped.
    threads, seed : int
        The number of threads and the random seed of all contenders.
    """

    problem: Problem
    loss: str
    dual_point: np.ndarray
    goal: float
    threads: int = 1
    seed: int = 0

    def suboptimality(self, w: np.ndarray) -> float:
        """Return the certified relative suboptimality of any model."""
        return self.problem.certify(w, alpha=self.dual_point).relative_gap

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

    def attempt(self, tol: float) -> tuple[np.ndarray, float]:
        """Return a model and its number of epochs; a new problem makes the time include the checks of the data."""
        old = self.match.problem
        problem = Problem(old.X, old.y, old.loss, regularizer=old.regularizer, lam=old.lam)
        result = self._solve(problem, tol=tol, max_epochs=100_000)
        return result.w, result.n_epochs

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
        return next(peer for peer in ALL_PEERS[self.match.loss] if peer.name == self.name)

    def prepare(self) -> None:
        """Import the library and start its threads."""
        with contextlib.suppress(Exception):  # the timed fits will raise and report the same error
            self.attempts(self.match.warm_up_task())(1e-2)

    def attempts(self, match: Match) -> Callable[[float], tuple[np.ndarray, float]]:
        """Return the function from a tolerance to a fit; X becomes a SciPy matrix, since some solvers reject SciPy's arrays."""
        problem, peer = match.problem, self.peer
        X = sp.csr_matrix(problem.X) if sp.issparse(problem.X) else problem.X
        return lambda tol: peer.fitted(X, problem.y, problem.lam * problem.n, tol, match.threads)

    def work(self) -> Iterator[Attempt]:
        """Yield the attempts of the solver; a direct solver makes only one."""
        ladder = LADDER[5:6] if self.peer.direct else LADDER
        yield from attempts_at(self.match, self.attempts(self.match), ladder)


def attempts_at(
    match: Match, attempt: Callable[[float], tuple[np.ndarray, float]], ladder: Sequence[float]
) -> Iterator[Attempt]:
    """Yield a fit for each tolerance, until the suboptimality reaches the goal or stops improving.

    ``attempt`` returns w and the number of iterations for a tolerance.
    """
    best, stalled = math.inf, 0
    for tol in ladder:
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < ENOUGH:
            began = time.perf_counter()
            w, iterations = attempt(tol)
            times.append(time.perf_counter() - began)
        found = match.suboptimality(w) if np.isfinite(w).all() else math.inf
        yield Attempt(tol, min(times), iterations, found)
        stalled = 0 if found < best else stalled + 1
        best = min(best, found)
        if best <= match.goal or stalled >= STALLED:
            return
