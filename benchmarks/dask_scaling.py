"""Passes and fits on a Dask cluster of processes on one machine: the parts from which the cost on many machines is predicted.

    python -m benchmarks.dask_scaling                       # all parts
    python -m benchmarks.dask_scaling --parts overhead speed

writes benchmarks/DASK.md and benchmarks/dask.json, in which parts that are not measured keep their figures. On two worker
processes with one thread each, the parts are:

- ``overhead``: passes over blocks of a few rows, for several numbers of blocks and of tasks, interleaved with as many tasks that
  do nothing: wall time, and processor time of the client (with the scheduler, which runs in its process) and of the workers;
- ``speed``: the processor time of a certificate and of a fit on blocks of 32 MB, against that of one process, interleaved;
- ``losses``: passes, exchanges of messages and time of fits with a smooth loss and with losses that have kinks;
- ``search``: passes, exchanges of messages and time of a search of the penalty by folds, in two ways;
- ``fits``: a logistic fit beside those of dask-ml's LogisticRegression by each of its solvers, where it is installed, with gaps.

The page also has what these parts predict for more workers; ``python docs/plots.py`` draws it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

WORKERS = 2
BLOCKS = (4, 16, 64)
TASKS = (1, 4, 16)  # shares for each thread of the cluster
LARGE = 32_000_000  # bytes of a block
LARGE_BLOCKS = 16
FEATURES = 100
HERE = Path(__file__).parent
PREDICTED = ((10**7, 100), (10**8, 100), (10**9, 100))
SOLVERS = ("admm", "lbfgs", "newton", "proximal_grad", "gradient_descent")


def rows_of(k: int, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a block of rows, and their labels."""
    rng = np.random.default_rng(k)
    X = rng.standard_normal((n, d)) * np.geomspace(0.3, 3.0, d)
    y = np.where(X @ np.linspace(-1.0, 1.0, d) / np.sqrt(d) + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, y


def collections(blocks: int, n: int, d: int) -> tuple[Any, Any]:
    """Return X and y in blocks of n rows, on the workers."""
    import dask
    import dask.array as da

    made = [dask.delayed(rows_of, nout=2)(k, n, d) for k in range(blocks)]
    X = da.concatenate([da.from_delayed(rows, (n, d), float) for rows, _ in made])
    y = da.concatenate([da.from_delayed(labels, (n,), float) for _, labels in made])
    found: tuple[Any, Any] = dask.persist(X, y)
    return found


class Meter:
    """Measures calls: wall time, and processor time of this process, of the workers, and of their event loops alone."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def _workers(self) -> np.ndarray:
        return np.array(list(self.client.run(processor_times).values())).sum(axis=0)

    def __call__(self, action: Callable[[], Any]) -> np.ndarray:
        """Return seconds of the wall clock, of this process, of all workers and of their event loops, for one call."""
        there, here, wall = self._workers(), time.process_time(), time.perf_counter()
        action()
        wall, here = time.perf_counter() - wall, time.process_time() - here
        return np.array([wall, here, *(self._workers() - there)])


def processor_times() -> tuple[float, float]:
    """Return the processor time of a worker, and of its event loop, in whose thread Dask calls this."""
    return time.process_time(), time.thread_time()


def overhead(client: Any, repeats: int) -> dict[str, Any]:
    """Measure passes over blocks of ten rows, interleaved with as many tasks of Dask that do nothing."""
    from dualnewton.matrix.dask import DaskData, sources

    meter, usual, rows = Meter(client), sources.SHARES_PER_THREAD, []
    for blocks, shares in [*((count, usual) for count in BLOCKS), *((BLOCKS[-1], count) for count in TASKS[1:])]:
        sources.SHARES_PER_THREAD = shares
        data = DaskData(collections(blocks, 10, FEATURES)[0])
        v, tasks = data.ones(), len(data.futures)

        def nothing(data: Any = data, tasks: int = tasks) -> None:
            data.layout.fetched(data.layout.submit("nothing", int, [[0]] * tasks))

        def one_pass(data: Any = data, v: Any = v) -> None:
            data.transposed_times(v)

        found = np.array([[meter(one_pass), meter(nothing)] for _ in range(repeats + 2)])[2:]
        least, middle = found.min(axis=0), np.median(found, axis=0)
        rows.append({"blocks": blocks, "tasks": tasks, "least": least.tolist(), "median": middle.tolist()})
    sources.SHARES_PER_THREAD = usual
    sizes = np.array([[1.0, each["tasks"], each["blocks"]] for each in rows])
    passes, empty = (np.array([each["least"][k] for each in rows]) for k in range(2))
    fixed, per_task, per_block = np.linalg.lstsq(sizes, passes, rcond=None)[0].tolist()
    raw_fixed, raw_per_task = np.linalg.lstsq(sizes[:, :2], empty, rcond=None)[0].tolist()
    names = ("fixed", "per_task", "per_block", "raw_fixed", "raw_per_task")
    return {"rows": rows, **dict(zip(names, (fixed, per_task, per_block, raw_fixed, raw_per_task), strict=True))}


def speed(client: Any, repeats: int) -> dict[str, Any]:
    """Compare the processor time of a certificate, and of a fit, with that of the same in this process."""
    from dualnewton import Problem, losses, solve
    from dualnewton.objective.certificates import certify_models

    n, meter = LARGE // (8 * FEATURES), Meter(client)
    there = Problem(*collections(LARGE_BLOCKS, n, FEATURES), losses.Logistic(), lam=1e-6, fit_intercept=True)
    X, y = np.empty((LARGE_BLOCKS * n, FEATURES)), np.empty(LARGE_BLOCKS * n)
    for k in range(LARGE_BLOCKS):
        X[k * n : (k + 1) * n], y[k * n : (k + 1) * n] = rows_of(k, n, FEATURES)
    here, w = Problem(X, y, losses.Logistic(), lam=1e-6, fit_intercept=True), np.full(FEATURES, 1e-2)
    actions: dict[str, Callable[[Any], Any]] = {
        "certificate": lambda problem: certify_models([problem], [w], [0.0]),
        "fit": lambda problem: solve(problem, tol=1e-6, random_state=0),
    }
    found: dict[str, Any] = {"bytes": X.nbytes, "blocks": LARGE_BLOCKS, "entries": X.size}
    waited = meter(lambda: time.sleep(5.0))
    idle = float(waited[3] / waited[0])  # of the event loops of all workers, for each second without a task
    found["idle"] = idle
    for name, action in actions.items():
        times = [
            [meter(lambda action=action, problem=problem: action(problem)) for problem in (there, here)]
            for _ in range(repeats + 1)
        ]
        (wall, client_time, workers, loops), (alone_wall, alone, *_) = np.median(times[1:], axis=0).tolist()
        found[name] = {
            "wall": wall, "client": client_time, "workers": workers, "loops": loops, "alone": alone, "alone_wall": alone_wall,
            "ratio": alone / workers, "ratio_of_tasks": alone / (workers - loops),
            "ratio_without_idle": alone / (workers - idle * wall),
        }  # fmt: skip
    epochs = {name: actions["fit"](problem).n_epochs for name, problem in (("there", there), ("here", here))}
    return {**found, "epochs": epochs, "counts": counted(lambda: actions["fit"](there))}


def counted(action: Callable[[], Any]) -> dict[str, int]:
    """Return how many passes over X, exchanges of messages and tasks a call takes."""
    from dualnewton.matrix.dask.layout import Layout

    found, (submit, run) = {"passes": 0, "exchanges": 0, "tasks": 0}, (Layout._futures, Layout.run)

    def submitted(self: Any, graph: Any, keys: Any) -> Any:
        found["exchanges"] += 1
        found["tasks"] += len(graph)
        return submit(self, graph, keys)

    def passed(self: Any, *given: Any, data: Any = None, **more: Any) -> Any:
        found["passes"] += data is not None
        return run(self, *given, data=data, **more)

    Layout._futures, Layout.run = submitted, passed  # type: ignore[method-assign]
    try:
        action()
    finally:
        Layout._futures, Layout.run = submit, run  # type: ignore[method-assign]
    return found


@dataclass(frozen=True)
class Cost:
    """The seconds of a fit on W threads of a cluster: ``fixed`` + ``per_thread`` W + ``work``/W.

    ``fixed`` is that of all exchanges of messages, ``per_thread`` that of the client and the scheduler for the tasks of a thread,
    and ``work`` that of all passes on one thread.
    """

    fixed: float
    per_thread: float
    work: float

    @classmethod
    def of(cls, over: dict[str, Any], rate: dict[str, Any], n: float, d: float) -> Cost:
        """Combine the measured parts for a logistic fit of n rows and d features."""
        counts = rate["counts"]
        exchange = min(each["least"][0][0] for each in over["rows"] if each["tasks"] == WORKERS)
        each_entry = (rate["certificate"]["workers"] - rate["certificate"]["loops"]) / rate["entries"]
        tasks = counts["tasks"] / WORKERS
        return cls(counts["exchanges"] * exchange, tasks * over["per_task"][1], counts["passes"] * each_entry * n * d)

    def seconds(self, threads: float) -> float:
        """Return the predicted time."""
        return self.fixed + self.per_thread * threads + self.work / threads

    @property
    def best(self) -> float:
        """The number of threads beyond which more of them cost more than they save."""
        return math.sqrt(self.work / self.per_thread)


def kinks(client: Any, n: int, d: int) -> list[dict[str, Any]]:
    """Fit a smooth loss and losses with kinks to a relative gap of 1e-4; the labels are the targets of the quantile loss."""
    from dualnewton import Problem, losses, solve

    X, y = collections(2 * WORKERS, n // (2 * WORKERS), d)
    meter, found = Meter(client), []
    for loss in (losses.Logistic(), losses.Hinge(), losses.Quantile(0.3)):
        problem = Problem(X, y, loss, lam=1e-3, fit_intercept=True)

        def fit(problem: Any = problem) -> Any:
            return solve(problem, tol=1e-4, random_state=0)

        counts = counted(fit)  # imports and compiles on the workers
        wall, here, there, _ = meter(fit).tolist()
        found.append({"loss": repr(loss), **counts, "wall": wall, "client": here, "workers": there})
    return found


def search(client: Any, n: int, d: int) -> list[dict[str, Any]]:
    """Choose C of a logistic regression by five folds, with all values in shared passes and with each from the one before."""
    from dualnewton.dask import LogisticRegressionCV
    from dualnewton.estimators.model_selection import _logistic_grid as grid

    meter, chosen, found = Meter(client), grid.fits_values_together, []
    for rows in (n // 5, n):
        X, y = collections(2 * WORKERS, rows // (2 * WORKERS), d)
        for together in (True, False):
            grid.fits_values_together = lambda *_, together=together: together
            counts: dict[str, int] = {}

            def fit(X: Any = X, y: Any = y) -> Any:
                return LogisticRegressionCV(Cs=10, cv=5, scoring="neg_log_loss").fit(X, y)

            wall, here, there, _ = meter(lambda fit=fit, counts=counts: counts.update(counted(fit))).tolist()
            way = "shared passes" if together else "one after the other"
            found.append({"n": rows, "values": way, **counts, "wall": wall, "client": here, "workers": there})
    grid.fits_values_together = chosen
    return found


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
    lines = [
        "# Dask on one machine",
        "",
        f"`python -m benchmarks.dask_scaling`: {WORKERS} worker processes of one thread, the scheduler in the client's process, "
        "with the settings of `dualnewton fit --dask local` (`matrix/dask/settings.py`); `--plain` measures with Dask's own.",
    ]
    sections = {
        "overhead": _overhead_lines, "speed": _speed_lines, "losses": _losses_lines, "search": _search_lines, "fits": _fits_lines
    }  # fmt: skip
    for part, section in sections.items():
        if part not in found:
            continue
        lines += ["", *section(found[part]["found"]), "", f"({found[part]['machine']}.)"]
    lines += ["", *_prediction_lines(found["overhead"]["found"], found["speed"]["found"])]
    return "\n".join(lines) + "\n"


def _prediction_lines(over: dict[str, Any], rate: dict[str, Any]) -> list[str]:
    counts = rate["counts"]
    lines = [
        "## Prediction for more workers",
        "",
        f"Not measured: the fit of the second section, with {counts['passes']} passes, {counts['exchanges']} "
        f"exchanges of messages and {counts['tasks'] / WORKERS:g} tasks per thread, at the least time of an "
        "exchange, the processor time of client and scheduler per task and the tasks' time per entry of a "
        "certificate, as measured above: T(W) = fixed + per thread · W + work / W.",
        "",
        "| rows × features | fixed, s | per thread, s | work, s | 10 threads | 100 | 1000 | best number of threads |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for n, d in PREDICTED:
        cost = Cost.of(over, rate, n, d)
        times = " | ".join(f"{cost.seconds(threads):.3g} s" for threads in (10, 100, 1000))
        parts = f"{cost.fixed:.2f} | {cost.per_thread:.4f} | {cost.work:.3g}"
        lines.append(f"| {n:.0e} × {d} | {parts} | {times} | {cost.best:.0f} |")
    return lines


def _overhead_lines(over: dict[str, Any]) -> list[str]:
    lines = [
        "## Overhead of a pass",
        "",
        "Passes (Aᵀv) over blocks of 10 rows and 100 features, and as many tasks of Dask that do nothing, interleaved. Each cell "
        "has wall time / processor time of client and scheduler / of both workers, in ms, the least of all repeats.",
        "",
        "| blocks | tasks | a pass | tasks that do nothing | ratio of wall times, median |",
        "|---|---|---|---|---|",
    ]
    for each in over["rows"]:
        cells = [" / ".join(f"{1e3 * t:.1f}" for t in side[:3]) for side in each["least"]]
        ratio = each["median"][0][0] / each["median"][1][0]
        lines.append(f"| {each['blocks']} | {each['tasks']} | {cells[0]} | {cells[1]} | {ratio:.2f} |")
    (a, own_a, *_), (t, own_t, *_), (c, own_c, *_) = (
        np.array(over[name]) * 1e3 for name in ("fixed", "per_task", "per_block")
    )
    (raw, *_), (raw_t, *_) = (np.array(over[name]) * 1e3 for name in ("raw_fixed", "raw_per_task"))
    return [
        *lines,
        "",
        f"Least squares, wall time: a pass takes {a:.1f} ms + {t:.2f} ms per task + {c:.3f} ms per block (the target is 10 ms + "
        f"1 ms per block); tasks that do nothing take {raw:.1f} ms + {raw_t:.2f} ms per task. Processor time of client and "
        f"scheduler for a pass: {own_a:.1f} ms + {own_t:.2f} ms per task + {own_c:.3f} ms per block.",
    ]


def _speed_lines(rate: dict[str, Any]) -> list[str]:
    lines = [
        "## Speed per core",
        "",
        f"Logistic regression on {rate['blocks']} blocks of 32 MB, {rate['bytes'] / 1e6:.0f} MB together, an "
        "intercept, λ = 10⁻⁶: a certificate of a point, and a fit to a relative gap of 10⁻⁶, on the workers and in "
        "one process, interleaved; medians in seconds. The workers' processor time is that of tasks and that of "
        "Dask's event loops, which also run while a worker waits: those of all workers took "
        f"{1e3 * rate['idle']:.0f} ms in each second without a task, so that a loaded machine, on which a fit lasts longer, has "
        "more of it. The speed per core is the processor time of one process by that of the workers (the target is 0.8): with "
        "all of the event loops, without what they take when there is nothing to do, and without any of them. The client "
        "solves the fit's sample of the rows, which is part of the time of one process.",
        "",
        "| | tasks | event loops | client and scheduler | wall | one process | wall | speed per core | without idle loops "
        "| of tasks |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ("certificate", "fit"):
        each = rate[name]
        cells = [
            each["workers"] - each["loops"],
            *(each[key] for key in ("loops", "client", "wall", "alone", "alone_wall")),
        ]
        shown = " | ".join(f"{cell:.3f}" for cell in cells)
        ratios = " | ".join(f"{each[key]:.2f}" for key in ("ratio", "ratio_without_idle", "ratio_of_tasks"))
        lines.append(f"| {name} | {shown} | {ratios} |")
    epochs = rate["epochs"]
    return [
        *lines,
        "",
        f"The fit takes {epochs['there']:.2f} epochs on the workers and {epochs['here']:.2f} in one process.",
    ]


def _losses_lines(given: dict[str, Any]) -> list[str]:
    return [
        "## Losses with kinks",
        "",
        f"Fits of {given['n']} rows of {given['d']} features to a certified relative gap of 10⁻⁴, λ = 10⁻³, an intercept, after "
        "a first fit. Times in seconds.",
        "",
        "| loss | passes | exchanges of messages | tasks | wall | client and scheduler | workers |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {each['loss']} | {each['passes']} | {each['exchanges']} | {each['tasks']} | {each['wall']:.2f} | "
            f"{each['client']:.2f} | {each['workers']:.2f} |"
            for each in given["rows"]
        ),
    ]


def _search_lines(given: dict[str, Any]) -> list[str]:
    return [
        "## A search of the penalty",
        "",
        f"`LogisticRegressionCV` of ten values of C by five folds, {given['d']} features: all values in shared passes, or each "
        "from the solutions of the one before. Times in seconds; the first fit includes imports and compilation on the workers.",
        "",
        "| rows | values | passes | exchanges of messages | wall | client and scheduler | workers |",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {each['n']} | {each['values']} | {each['passes']} | {each['exchanges']} | {each['wall']:.2f} | "
            f"{each['client']:.2f} | {each['workers']:.2f} |"
            for each in given["rows"]
        ),
    ]


def _fits_lines(given: dict[str, Any]) -> list[str]:
    lines = [
        "## A fit beside dask-ml's",
        "",
        f"Logistic regression on {given['n']} rows of {given['d']} features, C = 1, an intercept. P and gaps are those of this "
        "library's objective. Ours was fitted once before, so that its time holds no imports or compilation; dask-ml's were not.",
        "",
        "| | seconds | P | relative gap |",
        "|---|---|---|---|",
    ]
    for each in given["rows"]:
        cells = (each["error"], "", "") if "error" in each else (
            f"{each['seconds']:.2f}", f"{each['primal']:.8g}", f"{each['gap']:.1e}"
        )  # fmt: skip
        lines.append(f"| {each['name']} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure, and write the page."""
    import dask
    from distributed import Client, LocalCluster

    from dualnewton.matrix.dask.settings import LOCAL_CLUSTER

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--parts",
        nargs="+",
        choices=(all_parts := ("overhead", "speed", "losses", "search", "fits")),
        default=all_parts,
    )
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--plain", action="store_true", help="with the settings that Dask has by default")
    parser.add_argument("--out", type=Path, default=HERE)
    asked = parser.parse_args()
    place = asked.out / "dask.json"
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8")) if place.exists() else {}
    parts: dict[str, Callable[[Any], dict[str, Any]]] = {
        "overhead": lambda client: overhead(client, asked.repeats),
        "speed": lambda client: speed(client, max(3, asked.repeats // 5)),
        "losses": lambda client: {
            "n": asked.rows,
            "d": asked.features,
            "rows": kinks(client, asked.rows, asked.features),
        },
        "search": lambda client: {"d": asked.features, "rows": search(client, asked.rows, asked.features)},
        "fits": lambda _: {"n": asked.rows, "d": asked.features, "rows": fits(asked.rows, asked.features)},
    }
    with (
        dask.config.set({} if asked.plain else LOCAL_CLUSTER),
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        for part in asked.parts:
            before = os.getloadavg()[0]
            measured = parts[part](client)
            machine = (
                f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, load averages {before:.1f} before and "
                f"{os.getloadavg()[0]:.1f} after, Python {platform.python_version()}, NumPy {np.__version__}, "
                f"Dask {dask.__version__}"
            )
            found[part] = {"machine": machine, "found": measured}
    (asked.out / "DASK.md").write_text(report(found), encoding="utf-8")
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(report(found))


if __name__ == "__main__":
    main()
