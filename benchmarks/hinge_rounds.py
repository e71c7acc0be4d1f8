"""Dual rounds on the hinge and ε-insensitive losses themselves against LIBLINEAR: seconds to a relative gap of 1e-4.

Ours is timed until the gap is certified. LIBLINEAR has no certificate: what counts is its time at the loosest tolerance at which
P lies within 1e-4 of the best dual value known, after 2000 iterations at most. Both run on one thread without an intercept; CPU
seconds, the least of some runs.

    python -m benchmarks.hinge_rounds --data news20,a9a --lam-n 10,1,0.1,0.01 --loss hinge
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.data import FOLDER

import dualnewton as dn
from dualnewton import losses

GOAL = 1e-4
TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
LOSSES: dict[str, losses.Loss] = {"hinge": losses.Hinge(), "epsilon": losses.EpsilonInsensitive(0.1)}


def load(name: str) -> tuple[Any, np.ndarray]:
    """Return X and scores, of which the labels are made, of a real or a generated set."""
    if name in ("sparse", "dense"):
        rng = np.random.default_rng(0)
        n, d = (20000, 5000) if name == "sparse" else (20000, 500)
        X = sp.random_array((n, d), density=0.01, rng=rng, format="csr") if name == "sparse" else None
        X = rng.standard_normal((n, d)) if X is None else X
        z = X @ rng.standard_normal(d)
        return X, z / z.std() + 0.5 * rng.standard_normal(n)
    file = np.load(FOLDER / f"{name}.npz")
    X = file["X"] if "X" in file else sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=file["shape"])
    return X, file["y"].astype(float)


def problem_of(X: Any, scores: np.ndarray, loss: str, lam_n: float) -> dn.Problem:
    """Return the problem: the upper half of the scores against the lower one, or a regression on the scores of unit spread."""
    ends = np.unique(scores)
    y = np.where(scores > (ends[0] if ends.size == 2 else np.median(scores)), 1.0, -1.0)
    target = y if loss == "hinge" else (scores - scores.mean()) / scores.std()
    return dn.Problem(X, target, LOSSES[loss], lam=lam_n / len(y))


def seconds(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the least CPU seconds of some runs, and what the last one returned."""
    best, value = math.inf, None
    for _ in range(repeats):
        start = time.process_time()
        value = run()
        best = min(best, time.process_time() - start)
    return best, value


def liblinear(problem: dn.Problem, loss: str, dual: float, repeats: int, limit: float) -> tuple[float, float]:
    """Return the time of the loosest tolerance that reaches the goal, infinite if none does, and the least excess of P."""
    from sklearn.svm import LinearSVC, LinearSVR

    C, best, least = 1.0 / (problem.lam * problem.n), math.inf, math.inf
    for tol in TOLERANCES:
        own = {"C": C, "fit_intercept": False, "tol": tol, "max_iter": 2000, "dual": True, "random_state": 0}
        model = (
            LinearSVC(loss="hinge", **own)
            if loss == "hinge"
            else LinearSVR(epsilon=problem.loss.epsilon, loss="epsilon_insensitive", **own)
        )
        spent, fitted = seconds(lambda: model.fit(problem.X, problem.y), repeats)  # noqa: B023
        excess = (problem.primal(fitted.coef_.ravel()) - dual) / abs(dual)
        least = min(least, excess)
        if excess <= GOAL:
            best = spent
        if excess <= GOAL or spent > limit:
            break
    return best, least


def main() -> None:
    """Print a line for each cell, and the geometric mean of the ratios of the cells that both solve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="news20,a9a,w8a,mushrooms,phishing,sparse,dense")
    parser.add_argument("--lam-n", default="10,1,0.1,0.01")
    parser.add_argument("--loss", default="hinge", choices=list(LOSSES))
    parser.add_argument("--tau", default="auto")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument(
        "--limit",
        type=float,
        default=20.0,
        help="seconds for one fit of ours; no tighter tolerance is tried once LIBLINEAR takes longer",
    )
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    tau, ratios = asked.tau if asked.tau == "auto" else int(asked.tau), []
    for name in asked.data.split(","):
        X, scores = load(name)
        for lam_n in map(float, asked.lam_n.split(",")):
            problem = problem_of(X, scores, asked.loss, lam_n)
            settings = {"method": "sdna", "tau": tau, "max_epochs": 10000, "time_limit": asked.limit, "random_state": 0}
            dn.solve(problem, **{**settings, "max_epochs": 1})  # compiles
            ours, result = seconds(lambda: dn.solve(problem, tol=GOAL, **settings), asked.repeats)  # noqa: B023
            tight = dn.solve(problem, tol=1e-6, warm_start=result, **settings)
            dual = max(result.certificate.dual, tight.certificate.dual)
            theirs, excess = liblinear(problem, asked.loss, dual, asked.repeats, asked.limit)
            gap = result.certificate.relative_gap
            ratio = ours / theirs if gap <= GOAL else math.inf
            if gap <= GOAL and theirs < math.inf:
                ratios.append(ratio)
            print(
                f"{name:10s} lam n = {lam_n:<5g} ours {ours:7.3f} s ({result.n_epochs:5.0f} epochs, gap {gap:.0e})   "
                f"LIBLINEAR {theirs:7.3f} s (excess {excess:.0e})   ratio {ratio:.2f}",
                flush=True,
            )
    if ratios:
        print(f"geometric mean of {len(ratios)} cells that both solve: {np.exp(np.mean(np.log(ratios))):.2f}")


if __name__ == "__main__":
    main()
