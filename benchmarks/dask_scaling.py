"""Passes and fits on a Dask cluster of processes on one machine: the parts from which the cost on many machines is predicted.

    python -m benchmarks.dask_scaling

writes benchmarks/DASK.md and benchmarks/dask.json. It measures, on two worker processes with one
thread each:

- the overhead of a pass over blocks of a few rows, for several numbers of blocks and of tasks: a fixed time, and times per task
  and per block;
- the processor time of a pass over blocks of 32 MB against that of the same pass in one process, interleaved;
- a logistic fit, against dask-ml's LogisticRegression by each of its solvers where dask-ml is installed, with the gap of each.

Wall times are the best of several repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = 2
BLOCKS = (4, 16, 64)
TASKS = (1, 4, 16)  # shares for each thread of the cluster
LARGE = 32_000_000  # bytes of a block
FEATURES = 100
HERE = Path(__file__).parent
SOLVERS = ("admm", "lbfgs", "newton", "proximal_grad", "gradient_descent")


def rows_of(k: int, n: int, d: int) -> np.ndarray:
    """Return a block of rows, with the label in the last column."""
    rng = np.random.default_rng(k)
    X = rng.standard_normal((n, d)) * np.geomspace(0.3, 3.0, d)
    y = np.where(X @ np.linspace(-1.0, 1.0, d) / np.sqrt(d) + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return np.column_stack([X, y])


def collections(blocks: int, n: int, d: int) -> tuple[Any, Any]:
    """Return X and y in blocks of n rows, on the workers."""
    import dask
    import dask.array as da

    made = [da.from_delayed(dask.delayed(rows_of)(k, n, d), (n, d + 1), float) for k in range(blocks)]
    table = da.concatenate(made)
    X, y = table[:, :d].persist(), table[:, d].persist()
    return X, y


def best(action: Any, repeats: int) -> float:
    """Return the least seconds of a call."""
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        found.append(time.perf_counter() - start)
    return min(found)


def overhead(repeats: int) -> dict[str, Any]:
    """Measure passes over blocks of ten rows: for several numbers of blocks in four tasks, and of tasks for 128 blocks."""
    from dualnewton.matrix.dask import DaskData, sources

    by_blocks, by_tasks, usual = {}, {}, sources.SHARES_PER_THREAD
    for count in BLOCKS:
        data = DaskData(collections(count, 10, FEATURES)[0])
        v = data.ones()
        by_blocks[count] = best(lambda data=data, v=v: data.transposed_times(v), repeats)
    X = collections(BLOCKS[-1], 10, FEATURES)[0]
    for shares in TASKS:
        sources.SHARES_PER_THREAD = shares
        data = DaskData(X)
        v = data.ones()
        by_tasks[len(data.futures)] = best(lambda data=data, v=v: data.transposed_times(v), repeats)
    sources.SHARES_PER_THREAD = usual
    per_block, _ = np.polyfit(list(by_blocks), list(by_blocks.values()), 1)
    per_task, rest = np.polyfit(list(by_tasks), list(by_tasks.values()), 1)
    fixed = rest - per_block * BLOCKS[-1]
    return {"blocks": by_blocks, "tasks": by_tasks, "per_block": per_block, "per_task": per_task, "fixed": fixed}


def speed(client: Any, repeats: int) -> dict[str, float]:
    """Compare the processor time of a pass on the workers with that of the same pass in this process."""
    from dualnewton import Problem, losses
    from dualnewton.objective.certificates import certify_models

    n = LARGE // (8 * FEATURES)
    blocks = 2 * WORKERS
    X, y = collections(blocks, n, FEATURES)
    there = Problem(X, y, losses.Logistic(), lam=1e-4, fit_intercept=True)
    table = np.concatenate([rows_of(k, n, FEATURES) for k in range(blocks)])
    here = Problem(
        np.ascontiguousarray(table[:, :-1]), table[:, -1].copy(), losses.Logistic(), lam=1e-4, fit_intercept=True
    )
    w, found = np.full(FEATURES, 1e-2), []

    def on_workers() -> float:
        return float(sum(client.run(time.process_time).values()))

    def certified(problem: Any) -> None:
        certify_models([problem], [w], [0.0])

    for problem in (here, there):
        certified(problem)
    for _ in range(repeats):
        before = on_workers()
        start = time.perf_counter()
        certified(there)
        wall, spent = time.perf_counter() - start, on_workers() - before
        start, own = time.perf_counter(), time.process_time()
        certified(here)
        found.append((spent, time.process_time() - own, wall, time.perf_counter() - start))
    workers, alone, wall, alone_wall = np.min(found, axis=0).tolist()
    return {
        "bytes": float(table.nbytes),
        "blocks": float(blocks),
        "worker_seconds": workers,
        "alone_seconds": alone,
        "ratio": alone / workers,
        "wall": wall,
        "alone_wall": alone_wall,
        "seconds_per_entry": workers / (blocks * n * FEATURES),
    }


def fits(n: int, d: int) -> list[dict[str, Any]]:
    """Fit ours and dask-ml's logistic regression, and certify the models of both."""
    from dualnewton import Problem, losses
    from dualnewton.dask import LogisticRegression

    X, y = collections(2 * WORKERS, n // (2 * WORKERS), d)
    C = 1.0
    problem = Problem(X, y, losses.Logistic(), lam=1.0 / (C * n), fit_intercept=True)

    def row(name: str, model: Any) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                model.fit(X, y if name.startswith("dualnewton") else (y > 0.0).astype(int))
            taken = time.perf_counter() - start
            proof = problem.certify(np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]))
        except Exception as error:  # of another library: the table names it
            return {"name": name, "error": f"{type(error).__name__}: {error}".splitlines()[0][:100]}
        return {"name": name, "seconds": taken, "primal": proof.primal, "gap": proof.relative_gap}

    LogisticRegression(C=C, tol=1e-6).fit(X, y)  # imports and compiles on the workers
    found = [row("dualnewton.dask", LogisticRegression(C=C, tol=1e-6))]
    try:
        from dask_ml.linear_model import LogisticRegression as Other
    except ImportError as error:
        return [*found, {"name": "dask-ml", "error": f"not installed ({error})"}]
    return found + [row(f"dask-ml, {solver}", Other(C=C, solver=solver)) for solver in SOLVERS]


def report(found: dict[str, Any]) -> str:
    """Return the page."""
    over, rate = found["overhead"], found["speed"]
    lines = [
        "# Dask on one machine",
        "",
        f"`python -m benchmarks.dask_scaling --rows {found['n']} --features {found['d']} --repeats {found['repeats']}`, "
        f"{found['machine']}. {WORKERS} worker processes of one thread.",
        "",
        "## Overhead of a pass",
        "",
        "Passes (Aᵀv) over blocks of 10 rows and 100 features, best of many: what remains is graph, scheduler and messages.",
        "",
        "| blocks, in 4 tasks | " + " | ".join(map(str, over["blocks"])) + " |",
        "|---|" + "---|" * len(over["blocks"]),
        "| ms | " + " | ".join(f"{1e3 * t:.1f}" for t in over["blocks"].values()) + " |",
        "",
        f"| tasks, for {BLOCKS[-1]} blocks | " + " | ".join(map(str, over["tasks"])) + " |",
        "|---|" + "---|" * len(over["tasks"]),
        "| ms | " + " | ".join(f"{1e3 * t:.1f}" for t in over["tasks"].values()) + " |",
        "",
        f"Least squares: {1e3 * over['fixed']:.1f} ms + {1e3 * over['per_task']:.2f} ms per task + {1e3 * over['per_block']:.3f} "
        "ms per block (the target is 10 ms + 1 ms per block).",
        "",
        "## Speed per core",
        "",
        f"A certificate (one pass and a few sums over rows) of {rate['blocks']:.0f} blocks of 32 MB. Processor time of both "
        f"workers: {rate['worker_seconds']:.3f} s; of the same pass in one process: {rate['alone_seconds']:.3f} s: per core "
        f"{rate['ratio']:.2f} of the speed of one process (the target is 0.8). Wall time: {rate['wall']:.3f} s on the workers, "
        f"{rate['alone_wall']:.3f} s alone.",
        "",
        "## A fit",
        "",
        f"Logistic regression on {found['n']} rows of {found['d']} features, C = 1, an intercept. P and gaps are those of this "
        "library's objective. Ours was fitted once before, so that its time holds no imports or compilation; dask-ml's were not.",
        "",
        "| | seconds | P | relative gap |",
        "|---|---|---|---|",
    ]
    for each in found["fits"]:
        cells = (each["error"], "", "") if "error" in each else (
            f"{each['seconds']:.2f}", f"{each['primal']:.8g}", f"{each['gap']:.1e}"
        )  # fmt: skip
        lines.append(f"| {each['name']} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page."""
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--out", type=Path, default=HERE)
    asked = parser.parse_args()
    import dask

    loads = [os.getloadavg()[0]]
    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        found: dict[str, Any] = {"n": asked.rows, "d": asked.features, "repeats": asked.repeats}
        found["overhead"] = overhead(asked.repeats)
        found["speed"] = speed(client, max(3, asked.repeats // 4))
        found["fits"] = fits(asked.rows, asked.features)
    loads.append(os.getloadavg()[0])
    found["machine"] = (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load averages {loads[0]:.1f} before and {loads[1]:.1f} after, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, Dask {dask.__version__}"
    )
    (asked.out / "DASK.md").write_text(report(found), encoding="utf-8")
    (asked.out / "dask.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(report(found))


if __name__ == "__main__":
    main()
