"""Who takes part in a comparison: our methods and the peers, each asked for one accuracy after the other."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.lab.peers import PEERS, Peer, Task
from dualnewton.objective.problem import Problem
from dualnewton.run.loop import solve

METHODS = ("auto", "sdna", "sdca", "newton", "ihs")
"""Of ours."""

LADDER = tuple(10.0**-k for k in range(1, 11))
"""The tolerances that a contender is given, until its model is good enough."""

REPEATS, ENOUGH = 3, 0.2
"""Short runs are repeated: so often at most, and until they have taken so many seconds together."""

STALLED = 3
"""So many tolerances without a better model end it."""

WARM_ROWS = 400


def _hinge(task: Task) -> Any:
    """liblinear's hinge through scikit-learn's LinearSVC: C Σ max(0, ·) + ½‖w‖², so C = 1/(λn)."""
    from sklearn.svm import LinearSVC

    return LinearSVC(
        loss="hinge", C=1.0 / task.lam_n, fit_intercept=False, tol=task.tol, max_iter=100_000, random_state=0
    )


ALL_PEERS: dict[str, Sequence[Peer]] = {
    "logistic": PEERS["logistic"],
    "squared_hinge": PEERS["squared hinge"],
    "squared": PEERS["squared"],
    "hinge": [Peer("liblinear dual", "sklearn", _hinge)],
}
"""By the names that the command line has for losses; of the others no peer is known."""

SHOWN = {"sklearn": "scikit-learn"}


@dataclass(frozen=True)
class Attempt:
    """A model that a contender has made.

    Attributes
    ----------
    tol : float
        What it was told.
    seconds : float
        How long it took: checks of the data and all.
    iterations : float
        Epochs of ours; whatever a peer calls an iteration.
    suboptimality : float
        Certified: (P(w) − D)/|P|, with the best dual point known.
    """

    tol: float
    seconds: float
    iterations: float
    suboptimality: float


@dataclass(frozen=True, eq=False)
class Match:
    """What all contenders are to solve, and how their models are judged.

    Attributes
    ----------
    problem : Problem
        With L2 and without an intercept.
    loss : str
        The name of its loss.
    proof : array of shape (n,)
        The best dual point known.
    goal : float
        The suboptimality at which a contender may rest.
    threads, seed : int
        For all.
    """

    problem: Problem
    loss: str
    proof: np.ndarray
    goal: float
    threads: int = 1
    seed: int = 0

    def judged(self, w: np.ndarray) -> float:
        """Prove how good a model is, whoever made it."""
        certificate = self.problem.certify(w, alpha=self.proof)
        return certificate.relative_gap

    def again(self) -> Problem:
        """Build the problem anew, as each fit does: checking the data is part of what is timed."""
        old = self.problem
        return Problem(old.X, old.y, old.loss, regularizer=old.regularizer, lam=old.lam)

    def few(self) -> Match:
        """Return a few of its rows, of all labels, for a warm-up."""
        order = np.argsort(self.problem.y, kind="stable")
        rows = np.sort(order[np.linspace(0, len(order) - 1, min(WARM_ROWS, len(order))).astype(int)])
        small = replace(self.problem, X=self.problem.X[rows], y=self.problem.y[rows], lam=self.problem.lam)
        return replace(self, problem=small, proof=self.proof[rows])


@dataclass(frozen=True, eq=False)
class Ours:
    """One of our methods."""

    match: Match
    method: str

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"dualnewton {self.method}"

    def prepare(self) -> None:
        """Compile what it will need."""
        solve(
            self.match.problem,
            method=self.method,
            max_epochs=2,
            tol=1e-12,
            n_threads=self.match.threads,
            random_state=self.match.seed,
        )

    def attempt(self, tol: float) -> tuple[np.ndarray, float]:
        """Return a model, and the epochs it took."""
        match = self.match
        result = solve(
            match.again(),
            method=self.method,
            tol=tol,
            n_threads=match.threads,
            random_state=match.seed,
            max_epochs=100_000,
        )
        return result.w, result.n_epochs

    def work(self) -> Iterator[Attempt]:
        """Yield its attempts."""
        yield from climbed(self.match, self.attempt, LADDER)


@dataclass(frozen=True, eq=False)
class Theirs:
    """A peer, by its place in the table, so that it can be sent to another process."""

    match: Match
    name: str

    @property
    def peer(self) -> Peer:
        """Who it is."""
        return next(peer for peer in ALL_PEERS[self.match.loss] if peer.name == self.name)

    def prepare(self) -> None:
        """Import it, and let it start its threads."""
        with contextlib.suppress(Exception):  # what is wrong will show in the work
            self.attempts(self.match.few())(1e-2)

    def attempts(self, match: Match) -> Callable[[float], tuple[np.ndarray, float]]:
        """Return what fits at a tolerance. Some peers know SciPy's matrices, but not its newer arrays."""
        problem, peer = match.problem, self.peer
        X = sp.csr_matrix(problem.X) if sp.issparse(problem.X) else problem.X
        return lambda tol: peer.fitted(X, problem.y, problem.lam * problem.n, tol, match.threads)

    def work(self) -> Iterator[Attempt]:
        """Yield its attempts; one that factorises has only one."""
        ladder = LADDER[5:6] if self.peer.direct else LADDER
        yield from climbed(self.match, self.attempts(self.match), ladder)


def climbed(
    match: Match, attempt: Callable[[float], tuple[np.ndarray, float]], ladder: Sequence[float]
) -> Iterator[Attempt]:
    """Ask for one accuracy after the other, until a model is good enough or none gets better.

    Parameters
    ----------
    match : Match
        The judge.
    attempt : callable
        Takes a tolerance; returns w and the number of iterations.
    ladder : sequence of float
        The tolerances.
    """
    best, stalled = math.inf, 0
    for tol in ladder:
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < ENOUGH:
            began = time.perf_counter()
            w, iterations = attempt(tol)
            times.append(time.perf_counter() - began)
        found = match.judged(w) if np.isfinite(w).all() else math.inf
        yield Attempt(tol, min(times), iterations, found)
        stalled = 0 if found < best else stalled + 1
        best = min(best, found)
        if best <= match.goal or stalled >= STALLED:
            return
