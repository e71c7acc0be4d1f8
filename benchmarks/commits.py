"""Compare two commits of this repository on the same fits, in one run: ``python -m benchmarks.commits OLD [NEW]``.

Each commit is checked out to a temporary folder and runs in a process of its own. The processes take turns, cell by cell, so
that a change of the machine's speed affects both. The time of a cell is the least of its repeats; the ratio new/old is the
result. The table has the certified relative gap of each fit beside its time. BLAS is limited to one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

REPEATS, LONG = 7, 1.0
"""Repeats of a cell, and the seconds from which on a cell is repeated twice only."""

CHILD = r"""
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.sparse as sp
import dualnewton as dn
from dualnewton import losses, regularizers
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

def dense(n, d, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) @ np.diag(np.geomspace(1.0, 0.05, d))
    return X, X @ rng.standard_normal(d) + rng.standard_normal(n)

def sparse(n, d, stored, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=stored / d, rng=rng, format="csr")
    return X, X @ rng.standard_normal(d) + 0.1 * rng.standard_normal(n)

def solve(X, y, loss, regularizer=None, lam_n=1.0, **more):
    regularizer = regularizer or regularizers.L2()
    problem = dn.Problem(X, y, loss=loss, regularizer=regularizer, lam=lam_n / X.shape[0])
    return lambda: dn.solve(problem, tol=1e-6, random_state=0, **more).certificate.relative_gap

def fit(model, X, y):
    return lambda: model.fit(X, y).certificate_.relative_gap

def cells():
    Xb, yb = load_breast_cancer(return_X_y=True); Xb = StandardScaler().fit_transform(Xb)
    Xd, yd = load_diabetes(return_X_y=True)
    Xg, yg = load_digits(return_X_y=True); Xg = Xg / 16.0
    X, y = dense(20000, 100); S, t = sparse(20000, 5000, 40); W, v = dense(200, 3000)
    Xl, yl = dense(200000, 50)
    sign = lambda z: np.where(z > 0.0, 1.0, -1.0)
    yield "LogisticRegression, breast_cancer", fit(dn.LogisticRegression(), Xb, yb)
    yield "Ridge, diabetes", fit(dn.Ridge(), Xd, yd)
    yield "Lasso(0.1), diabetes", fit(dn.Lasso(alpha=0.1), Xd, yd)
    yield "LinearSVC, breast_cancer", fit(dn.LinearSVC(), Xb, yb)
    yield "LinearSVC(hinge), breast_cancer", fit(dn.LinearSVC(loss="hinge"), Xb, yb)
    yield "HuberRegressor, diabetes", fit(dn.HuberRegressor(), Xd, yd)
    yield "LogisticRegression, digits", fit(dn.LogisticRegression(), Xg, yg)
    yield "logistic, dense 20000x100", solve(X, sign(y), losses.Logistic())
    yield "squared hinge, dense 20000x100", solve(X, sign(y), losses.SquaredHinge())
    yield "Huber, dense 20000x100", solve(X, y, losses.Huber(1.0))
    yield "elastic net, dense 20000x100", solve(X, y, losses.Squared(), regularizers.ElasticNet(0.5), 20.0)
    yield "lasso, dense 200x3000", solve(W, v, losses.Squared(), regularizers.L1(), 0.05 * np.abs(W.T @ v).max())
    yield "logistic, dense 200x3000", solve(W, sign(v), losses.Logistic())
    yield "logistic, CSR 20000x5000", solve(S, sign(t), losses.Logistic())
    yield "squared hinge, CSR 20000x5000, sdna", solve(S, sign(t), losses.SquaredHinge(), method="sdna")
    yield "logistic, dense 20000x100, sdna tau 8", solve(X, sign(y), losses.Logistic(), lam_n=200.0, method="sdna", tau=8)
    yield "logistic, dense 200000x50", solve(Xl, sign(yl), losses.Logistic())
    yield "ridge, dense 200000x50", solve(Xl, yl, losses.Squared())

found = dict(cells())
print(json.dumps(list(found)), flush=True)
for line in sys.stdin:
    run, began = found[json.loads(line)], time.perf_counter()
    gap = run()
    print(json.dumps([time.perf_counter() - began, gap]), flush=True)
"""
"""What the process of a commit runs: it names its cells, then runs those that it is asked for, by keywords that both know."""


class Commit:
    """A commit, checked out, and the process that runs its cells."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", folder, name], check=True)
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        environment = os.environ | threads | {"PYTHONPATH": str(folder / "src")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.cells: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def run(self, cell: str) -> tuple[float, float]:
        """Return the seconds of one fit and its certified relative gap."""
        assert self.process.stdin is not None
        print(json.dumps(cell), file=self.process.stdin, flush=True)
        seconds, gap = self._answer()
        return seconds, gap

    def close(self) -> None:
        """End the process and remove the checkout."""
        self.process.terminate()
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", self.folder], check=True)


def compared(old: Commit, new: Commit, cell: str) -> tuple[float, float, float, float]:
    """Return the least seconds of both commits, taken in turns after a first run of each, and the gaps."""
    first = [commit.run(cell) for commit in (old, new)]
    repeats = 2 if max(seconds for seconds, _ in first) > LONG else REPEATS
    times = [[commit.run(cell)[0] for commit in (old, new)] for _ in range(repeats)]
    best = [min(each) for each in zip(*times, strict=True)]
    return best[0], best[1], first[0][1], first[1][1]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commits = [Commit(asked.old, Path(folder) / "old"), Commit(asked.new, Path(folder) / "new")]
        try:
            print(
                f"{asked.old} against {asked.new}; {platform.processor() or platform.machine()}, {platform.python_version()}"
            )
            print("| fit | old, ms | new, ms | new/old | gap old | gap new |\n|---|---|---|---|---|---|")
            logs = []
            for cell in commits[0].cells:
                before, after, gap, new_gap = compared(*commits, cell)
                logs.append(math.log(after / before))
                print(
                    f"| {cell} | {1e3 * before:.1f} | {1e3 * after:.1f} | {after / before:.2f} | {gap:.0e} | {new_gap:.0e} |",
                    flush=True,
                )
            print(f"\ngeometric mean of new/old: {math.exp(sum(logs) / len(logs)):.2f} over {len(logs)} fits")
        finally:
            for commit in commits:
                commit.close()


if __name__ == "__main__":
    main()
