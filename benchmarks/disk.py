"""Data on disk: the speed of a pass, the passes of a fit, its peak memory, and other ways to fit what does not fit into memory.

    python -m benchmarks.disk --folder FOLDER

writes benchmarks/DISK.md. Rows are float32 in npy shards. Files are dropped from the system's cache before each cold measurement
(``posix_fadvise``), and read once before each warm one. Passes are measured on more rows than fits. Each fit runs in a process of
its own, whose peak resident memory is that of ``getrusage``. P* is that of a fit of all rows to a relative gap of 1e-10.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SHARDS = 4
GAPS = (1e-2, 1e-4, 1e-6)
BATCH = 10_000  # rows of a call of partial_fit
EPOCHS = 10  # of SGD and Vowpal Wabbit, at most
READINGS = {  # bytes of the buffer, and whether the system is told that the file is read in order
    "plain reading, 64 MiB at a time": (1 << 26, False),
    "plain reading, 1 MiB at a time": (1 << 20, False),
    "plain reading, 1 MiB at a time, announced as in order": (1 << 20, True),
}
REPEATS = 7
PASSES = ("margins Aw", "losses and gradients", "a certificate")
LARGE_FEATURES = 100  # of the rows on which passes are measured


def generate(folder: Path, n: int, d: int) -> None:
    """Write labels and rows with features of different scales, in shards."""
    rng = np.random.default_rng(0)
    w, scale = rng.standard_normal(d) / np.sqrt(d), np.geomspace(0.3, 3.0, d)
    for k in range(SHARDS):
        rows = slice(k * n // SHARDS, (k + 1) * n // SHARDS)
        X = (rng.standard_normal((rows.stop - rows.start, d)) * scale + 0.2).astype(np.float32)
        y = np.where(X @ w + rng.logistic(size=len(X)) > 0.0, 1.0, -1.0)
        np.save(folder / f"part-{k}.npy", X)
        np.save(folder / f"part-{k}.y.npy", y)


def shards(folder: Path) -> list[Path]:
    """Return the files of rows."""
    return [folder / f"part-{k}.npy" for k in range(SHARDS)]


def forget(folder: Path) -> None:
    """Drop the files from the system's cache."""
    for path in shards(folder):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(folder: Path, room: bytearray, in_order: bool) -> None:
    """Read all files into one buffer; ``in_order`` tells the system that they are read so."""
    for path in shards(folder):
        with open(path, "rb", buffering=0) as file:
            if in_order:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while file.readinto(room):
                pass


# In processes of their own -------------------------------------------------------------------------------------------


def speed(folder: Path, lam: float, memory: str) -> dict[str, Any]:
    """Compare passes with plain reading, cold and warm, and with the same passes in memory, one after the other."""
    import dualnewton as dn
    from dualnewton.matrix.workers import threads
    from dualnewton.objective.targets import Derivatives

    data = dn.data.open(folder, memory=memory)
    X = np.concatenate([np.load(path) for path in shards(folder)])
    on_disk, in_memory = (
        dn.Problem(each, data.y, dn.losses.Logistic(), lam=lam, fit_intercept=True) for each in (data.X, X)
    )
    result = dn.solve(in_memory, tol=1e-3, n_threads=os.cpu_count())
    point = result.w, result.intercept
    actions: dict[str, Any] = {
        name: partial(read_all, folder, bytearray(size), in_order) for name, (size, in_order) in READINGS.items()
    }

    def passes(problem: Any, where: str) -> dict[str, Any]:
        W, b, target = result.w[None], np.array([result.intercept]), Derivatives([problem])
        found = (
            lambda: problem.data.times(result.w),
            lambda: problem.data.evaluate(W, b, target, [problem.row_vectors]),
            lambda: problem.certify(*point),
        )
        return {f"{name}{where}": action for name, action in zip(PASSES, found, strict=True)}

    actions, held = actions | passes(on_disk, ""), passes(in_memory, ", rows in memory")
    times: dict[str, list[tuple[float, float]]] = {}
    with threads(os.cpu_count() or 1):
        for action in (actions | held).values():
            action()
        for _ in range(REPEATS):
            for state, some in (("cold", actions), ("warm", actions | held)):
                for name, action in some.items():
                    if state == "cold":
                        forget(folder)
                    start, spent = time.perf_counter(), time.process_time()
                    action()
                    taken = time.perf_counter() - start, time.process_time() - spent
                    times.setdefault(f"{state}: {name}", []).append(taken)
    found = {
        name: [min(wall), float(np.median(wall)), min(spent)]
        for name, (wall, spent) in ((name, zip(*each, strict=True)) for name, each in times.items())
    }
    return {"bytes": sum(path.stat().st_size for path in shards(folder)), "times": found}


def ours(folder: Path, lam: float, memory: str) -> dict[str, Any]:
    """Fit on disk; return when each gap was certified, passes and peak memory."""
    import dualnewton as dn

    data = dn.data.open(folder, memory=memory)
    problem = dn.Problem(data.X, data.y, dn.losses.Logistic(), lam=lam, fit_intercept=True)
    return _ours(problem) | {"reads": data.X.source.bytes_read / (4.0 * problem.n * problem.d)}


def kinks(folder: Path, lam: float, memory: str) -> dict[str, Any]:
    """Fit losses with kinks by interior points and as "auto" chooses; return the reads of each, and its processor time."""
    import dualnewton as dn

    data, rows = dn.data.open(folder, memory=memory), []
    for loss in (dn.losses.Hinge(), dn.losses.Quantile(0.3)):
        for own in (1e-3, lam):
            problem = dn.Problem(data.X, data.y, loss, lam=own, fit_intercept=True)
            for method in ("interior", "auto"):
                before, spent, start = data.X.source.bytes_read, time.process_time(), time.perf_counter()
                result = dn.solve(problem, method=method, tol=1e-4, n_threads=os.cpu_count(), random_state=0)
                times = time.process_time() - spent, time.perf_counter() - start
                reads = (data.X.source.bytes_read - before) / (4.0 * problem.n * problem.d)
                rows.append([repr(loss), own, method, str(result.plan)[:40], reads, *times, result.status.name])
    return {"rows": rows}


def in_memory(folder: Path, lam: float, memory: str) -> dict[str, Any]:  # noqa: ARG001
    """Fit in memory."""
    import dualnewton as dn

    X = np.concatenate([np.load(path) for path in shards(folder)])
    return _ours(dn.Problem(X, _labels(folder), dn.losses.Logistic(), lam=lam, fit_intercept=True))


def _ours(problem: Any) -> dict[str, Any]:
    import dualnewton as dn

    start, seen = time.perf_counter(), []
    result = dn.solve(
        problem,
        tol=1e-6,
        n_threads=os.cpu_count(),
        random_state=0,
        callback=lambda progress: seen.append((time.perf_counter() - start, progress.certificate.primal)) and None,
    )
    return {"trace": seen, "epochs": result.n_epochs, "method": result.plan.method, "primal": result.certificate.primal}


def best(folder: Path, lam: float, memory: str) -> dict[str, Any]:  # noqa: ARG001
    """Return P*, by a fit to 1e-10."""
    import dualnewton as dn

    data = dn.data.open(folder)
    problem = dn.Problem(data.X, data.y, dn.losses.Logistic(), lam=lam, fit_intercept=True)
    return {"primal": dn.solve(problem, tol=1e-10, n_threads=os.cpu_count()).certificate.dual}


def sklearn_map(folder: Path, lam: float, memory: str) -> dict[str, Any]:  # noqa: ARG001
    """scikit-learn's LogisticRegression (L-BFGS) on one memory map, at several tolerances."""
    from sklearn.linear_model import LogisticRegression

    y, n = _labels(folder), len(_labels(folder))
    whole = folder.with_name(f"{folder.name}-whole.npy")
    if not whole.exists():
        parts = [np.load(path, mmap_mode="r") for path in shards(folder)]
        X = np.lib.format.open_memmap(whole, "w+", np.float32, (n, parts[0].shape[1]))
        at = 0
        for part in parts:
            X[at : at + len(part)] = part
            at += len(part)
        X.flush()
    X, seen = np.load(whole, mmap_mode="r"), []
    for tol in (1e-1, 1e-3, 1e-5):
        start = time.perf_counter()
        model = LogisticRegression(C=1.0 / (lam * n), tol=tol, max_iter=300).fit(X, y)
        taken = time.perf_counter() - start
        seen.append((taken, _primal(folder, lam, model.coef_[0], float(model.intercept_[0]))))
    return {"trace": seen}


def sgd(folder: Path, lam: float, memory: str, **steps: Any) -> dict[str, Any]:  # noqa: ARG001
    """SGDClassifier.partial_fit over the shards, with its default schedule of steps or another."""
    from sklearn.linear_model import SGDClassifier

    model, seen, taken = SGDClassifier(loss="log_loss", alpha=lam, random_state=0, **steps), [], 0.0
    for _ in range(EPOCHS):
        start = time.perf_counter()
        for path in shards(folder):
            X, y = np.load(path, mmap_mode="r"), np.load(path.with_name(f"{path.stem}.y.npy"))
            for low in range(0, len(y), BATCH):
                model.partial_fit(np.asarray(X[low : low + BATCH]), y[low : low + BATCH], classes=[-1.0, 1.0])
        taken += time.perf_counter() - start
        seen.append((taken, _primal(folder, lam, model.coef_[0], float(model.intercept_[0]))))
    return {"trace": seen}


def sgd_chosen(folder: Path, lam: float, memory: str) -> dict[str, Any]:
    """SGDClassifier with steps 0.1/√t, averaged from the second epoch on."""
    average = len(_labels(folder))
    return sgd(folder, lam, memory, learning_rate="invscaling", eta0=0.1, power_t=0.5, average=average)


def vowpal(folder: Path, lam: float, memory: str) -> dict[str, Any]:  # noqa: ARG001
    """Vowpal Wabbit with its default steps, from its own text format; the time of writing the text does not count.

    Its penalty shrinks the weights after each example, which need not be near the optimum for λ: it is run with and without.
    """
    from vowpalwabbit import Workspace

    text = folder.with_name(f"{folder.name}.vw")
    with open(text, "w", encoding="ascii") as file:
        for path in shards(folder):
            for row, label in zip(np.load(path), np.load(path.with_name(f"{path.stem}.y.npy")), strict=True):
                file.write(f"{label:g} | " + " ".join(f"{j}:{x:.6g}" for j, x in enumerate(row.tolist())) + "\n")
    seen, cache, d = [], text.with_suffix(".cache"), np.load(shards(folder)[0], mmap_mode="r").shape[1]
    for l2, passes in itertools.product((0.0, lam), (1, 3, EPOCHS)):
        cache.unlink(missing_ok=True)
        start = time.perf_counter()
        model = Workspace(
            f"-d {text} --cache_file {cache} -k --passes {passes} --holdout_off --loss_function logistic --l2 {l2} --quiet"
        )
        taken = time.perf_counter() - start
        # The weights that it stores lack a common factor of the penalty: predictions show those that it uses.
        b = model.predict("|")
        w = np.array([model.predict(f"| {j}:1") for j in range(d)]) - b
        seen.append((taken, _primal(folder, lam, w, b)))
        model.finish()
    return {"trace": sorted(seen)}


def _labels(folder: Path) -> np.ndarray:
    return np.concatenate([np.load(path.with_name(f"{path.stem}.y.npy")) for path in shards(folder)])


def _primal(folder: Path, lam: float, w: np.ndarray, b: float) -> float:
    """P at a model, by NumPy, shard by shard."""
    losses = 0.0
    for path in shards(folder):
        X, y = np.load(path, mmap_mode="r"), np.load(path.with_name(f"{path.stem}.y.npy"))
        for low in range(0, len(y), 100_000):
            z = np.asarray(X[low : low + 100_000], dtype=np.float64) @ w.astype(np.float64) + b
            losses += float(np.logaddexp(0.0, -y[low : low + 100_000] * z).sum())
    return losses / len(_labels(folder)) + 0.5 * lam * float(w.astype(np.float64) @ w.astype(np.float64))


JOBS = {
    "speed": speed,
    "best": best,
    "ours": ours,
    "in memory": in_memory,
    "sgd": sgd,
    "sgd chosen": sgd_chosen,
    "sklearn": sklearn_map,
    "vowpal": vowpal,
    "kinks": kinks,
}


def child(job: str, folder: Path, lam: float, memory: str) -> dict[str, Any]:
    """Run a job in a process of its own; return what it found, and its peak resident memory in bytes."""
    words = [sys.executable, "-m", "benchmarks.disk", "--job", job, "--folder", str(folder), "--lam", str(lam)]
    done = subprocess.run([*words, "--memory", memory], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


# The report ----------------------------------------------------------------------------------------------------------


def reached(found: dict[str, Any], optimum: float) -> list[str]:
    """Return the first time at which P was within each gap of P*, relative to P*."""
    if "trace" not in found:
        return [found.get("failed", "-")] * len(GAPS)
    times = [next((t for t, P in found["trace"] if P - optimum <= gap * optimum), None) for gap in GAPS]
    return ["not reached" if t is None else f"{t:.2f} s" for t in times]


def speed_lines(found: dict[str, Any], n: int, d: int) -> list[str]:
    """Return the section on passes."""
    size, times = found["bytes"], found["times"]
    lines = [
        "## A pass against reading the same files",
        "",
        f"{n} rows of {d} features, {size / 1e6:.0f} MB. Wall times of {REPEATS} repeats, all actions one after the other in "
        f"each, {os.cpu_count()} threads for passes. Losses and gradients are what a step of a fit reads the rows for. A "
        "certificate is one pass for margins, losses, dual point and two gradients, and a sum over the rows. Cold: the files are "
        "not in the system's cache.",
        "",
        "| | best | median | processor time |",
        "|---|---|---|---|",
        *(
            f"| {name} | {size / best / 1e9:.2f} GB/s | {size / usual / 1e9:.2f} GB/s | {spent:.3f} s |"
            for name, (best, usual, spent) in times.items()
        ),
        "",
    ]
    for state in ("cold", "warm"):
        ratios = [
            [min(times[f"{state}: {each}"][k] for each in READINGS) / times[f"{state}: {name}"][k] for k in (0, 1)]
            for name in PASSES
        ]
        words = (f"{name} run at {best:.0%} ({usual:.0%})" for name, (best, usual) in zip(PASSES, ratios, strict=True))
        lines.append(f"{state.capitalize()}, of the speed of the fastest plain reading (medians): {', '.join(words)}.")
    return [*lines, ""]


def report(folder: Path, given: argparse.Namespace) -> str:
    """Run all jobs and return the page."""
    found, before, n, d, lam, memory = {}, os.getloadavg()[0], given.rows, given.features, given.lam, given.memory
    for job in JOBS:
        print(f"{job} …", file=sys.stderr, flush=True)
        found[job] = child(job, folder / ("large" if job == "speed" else "small"), lam, memory)
    optimum = found["best"]["primal"]
    lines = [
        "# Data on disk",
        "",
        f"`python -m benchmarks.disk --rows {n} --features {d} --large-rows {given.large_rows} --memory {memory}`, "
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores of {_processor()}, load averages {before:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after, Python {platform.python_version()}, NumPy {np.__version__}. "
        f"Rows are float32 in {SHARDS} npy shards; logistic loss, λ = {lam:g}, an intercept.",
        "",
        *speed_lines(found["speed"], given.large_rows, LARGE_FEATURES),
        "## Fits",
        "",
        f"{n} rows of {d} features. Seconds until P was within 1e-2, 1e-4 and 1e-6 of P*, relative to P*. For this library P is "
        "that of its certificates. The default steps of SGDClassifier begin with 1/√(√α), 18 here, far beyond the 0.01 that rows "
        "of this length allow; its penalty is that of the others.",
        "",
        "| | 1e-2 | 1e-4 | 1e-6 | peak memory |",
        "|---|---|---|---|---|",
    ]
    names = {
        "ours": f"dualnewton, on disk, memory={memory}",
        "in memory": "dualnewton, in memory",
        "sgd": f"SGDClassifier.partial_fit, {EPOCHS} epochs, default steps",
        "sgd chosen": f"SGDClassifier.partial_fit, {EPOCHS} epochs, steps 0.1/√t, averaged from the second on",
        "sklearn": "LogisticRegression (L-BFGS) on a memory map",
        "vowpal": f"Vowpal Wabbit, up to {EPOCHS} passes",
    }
    for job, name in names.items():
        peak = f"{found[job]['peak'] / 2**20:.0f} MiB" if "peak" in found[job] else "-"
        lines.append(f"| {name} | {' | '.join(reached(found[job], optimum))} | {peak} |")
    disk, memory_run = found["ours"], found["in memory"]
    lines += [
        "",
        f"Epochs to a certified relative gap of 1e-6: {disk['epochs']:.2f} on disk, {memory_run['epochs']:.2f} in memory "
        f"({disk['method']}, {memory_run['method']}). On disk the files were read {disk['reads']:.2f} times in all: "
        "beside the epochs also for row norms, samples and the certificate. Relative difference of the objectives: "
        f"{abs(disk['primal'] - memory_run['primal']) / optimum:.1e}.",
        "",
        "## Losses with kinks",
        "",
        "Fits to a certified relative gap of 1e-4 (the labels are the targets of the quantile loss). The planner adds the time "
        "of reading to that of the arithmetic, and chooses smoothed losses.",
        "",
        "| loss | λ | method | times that the files were read | processor time | wall |",
        "|---|---|---|---|---|---|",
        *(
            f"| {loss} | {own:g} | {method}: {plan} … | {reads:.0f} | {spent:.2f} s | {wall:.2f} s |"
            for loss, own, method, plan, reads, spent, wall, _ in found["kinks"]["rows"]
        ),
        "",
    ]
    return "\n".join(lines)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Run one job, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=JOBS)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--large-rows", type=int, default=2_000_000)
    parser.add_argument("--lam", type=float, default=1e-5)
    parser.add_argument("--memory", default="512M")
    given = parser.parse_args()
    if given.job is not None:
        found = JOBS[given.job](given.folder, given.lam, given.memory)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(found | {"peak": peak}))
        return
    for name, n, d in (("small", given.rows, given.features), ("large", given.large_rows, LARGE_FEATURES)):
        (given.folder / name).mkdir(parents=True, exist_ok=True)
        # In another process: the peak memory of this one would count for those that it starts.
        making = multiprocessing.get_context("spawn").Process(target=generate, args=(given.folder / name, n, d))
        making.start()
        making.join()
    page = report(given.folder, given)
    (Path(__file__).parent / "DISK.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
