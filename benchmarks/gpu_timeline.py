"""Where the time of a fit on a GPU goes: ``python -m benchmarks.gpu_timeline [--only WORD …] [--out FOLDER]``.

For each problem: the milliseconds of a fit, those in which the GPU computes or copies, the number of kernels, copies and waits,
the kernels that take longest, and the functions of the library in the order of their calls, with the time since the start, the
time that the host spends in each, and the time of the kernels that it starts. PyTorch's profiler observes the kernels of all
libraries of the process. With ``--out`` the whole trace is written as JSON, for chrome://tracing.
"""

from __future__ import annotations

import argparse
import functools
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.gpu_data import dense, labels, others, sparse, timed

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import cuda
from dualnewton.matrix.cuda_library import cupy
from dualnewton.objective import certificates
from dualnewton.objective.problem import Problem
from dualnewton.run import loop
from dualnewton.solvers.primal import curvature, newton, samples, sketching
from dualnewton.solvers.primal.model import Model

TOL, REPEATS = 1e-6, 5

WATCHED: dict[Any, tuple[str, ...]] = {
    loop: ("solved_directly", "run_plan", "starting_pairs"),
    loop.Run: ("step", "_certify", "_better"),
    cuda.CudaData: (
        "evaluate", "weighted_gram", "draw", "subset", "rows", "entries", "nonzeros", "column_norms", "row_scores", "times",
        "transposed_times", "weighted_products", "coupled_gram",
    ),
    newton.Descent: ("__init__", "evaluate", "_start"),
    newton: ("compute_curvature",),
    Model: ("receive", "wants_curvature", "use"),
    samples: ("represents", "on_rows", "_is_settled"),
    sketching: ("leverages", "count_active"),
    curvature: ("factorised", "solved"),
    certificates: ("primal_bounds", "dual_sums", "label_weights"),
    Problem: ("bounded", "dual_at", "row_curvature", "row_couplings", "best_intercept_at", "balanced", "slopes_at"),
}  # fmt: skip
"""Functions whose calls are shown, by the module or class that they are looked up in."""


def problems(only: list[str]) -> Iterator[tuple[str, float, dn.Problem]]:
    """Yield the name of each problem that contains one of the words, milliseconds of a read of X, and the problem."""
    for n, d, condition in ((10_000_000, 100, 1e6), (1_000_000, 1000, 1e6), (1_000_000, 100, 1e4)):
        name = f"{n}x{d}"
        if only and not any(word in name for word in only):
            continue
        X, z = dense(n, d, condition)
        y, read = labels(z), timed(X.sum)
        yield f"{name} logistic", read, dn.Problem(X, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True)
        if d * n <= 100_000_000:
            for task, problem in others(X, z, y):
                yield f"{name} {task}", read, problem
        del X, z, y
        cupy().get_default_memory_pool().free_all_blocks()
    for n, d in ((2_000_000, 200_000), (10_000_000, 1_000_000)):
        name = f"csr {n}x{d}"
        if only and not any(word in name for word in only):
            continue
        X, y = sparse(n, d, 50)
        read = timed(lambda X=X: (X.data.sum(), X.indices.sum()))
        yield f"{name} logistic", read, dn.Problem(X, y, losses.Logistic(), lam=1.0 / n)
        del X, y
        cupy().get_default_memory_pool().free_all_blocks()


def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, whose calls the profiler records under this name."""
    from torch.profiler import record_function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        size = getattr(args[0], "n", "") if args and "." in name else ""
        with record_function(f"# {name} {size}"):
            return function(*args, **kwargs)

    return call


def traced(work: Callable[[], Any]) -> list[dict[str, Any]]:
    """Return the profiler's events of some work, with the watched functions among them."""
    from torch.profiler import ProfilerActivity, profile

    own_before = [(owner, name, vars(owner).get(name)) for owner, names in WATCHED.items() for name in names]
    for owner, name, _ in own_before:
        own = f"{owner.__name__}.{name}" if isinstance(owner, type) else name
        setattr(owner, name, watched(own, getattr(owner, name)))
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            work()
            cupy().cuda.Device().synchronize()
    finally:
        for owner, name, function in own_before:
            if function is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, function)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        found.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def busy(kernels: list[dict[str, Any]]) -> float:
    """Return the milliseconds in which at least one kernel or copy runs."""
    total, end = 0.0, 0.0
    for each in sorted(kernels, key=lambda event: event["ts"]):
        start, stop = max(each["ts"], end), each["ts"] + each["dur"]
        total, end = total + max(0.0, stop - start), max(end, stop)
    return total / 1e3


def show(events: list[dict[str, Any]]) -> None:
    """Print the kernels that take longest, and the watched calls in order."""
    kernels = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    starts = {
        event["args"]["correlation"]: event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    waits = Counter(event["name"] for event in starts.values() if "ynchronize" in event["name"])
    kinds = Counter(event["cat"] for event in kernels)
    print(f"  GPU busy {busy(kernels):.2f} ms; {dict(kinds)}; waits {dict(waits)}")
    by_name: dict[str, list[float]] = defaultdict(list)
    for event in kernels:
        by_name[event["name"]].append(event["dur"] / 1e3)
    for name, each in sorted(by_name.items(), key=lambda item: -sum(item[1]))[:14]:
        print(f"    {sum(each):8.3f} ms {len(each):5d} {name[:110]}")
    calls = sorted(
        (event for event in events if event["name"].startswith("# ") and event["cat"] == "user_annotation"),
        key=lambda event: event["ts"],
    )
    if not calls:
        return
    launched = sorted(
        (starts[event["args"]["correlation"]]["ts"], event["dur"])
        for event in kernels
        if event["args"].get("correlation") in starts
    )
    zero, open_calls = calls[0]["ts"], []
    print("  since start, host, kernels started inside: ms, number, call")
    for event in calls:
        first, last = event["ts"], event["ts"] + event["dur"]
        open_calls = [end for end in open_calls if end > first]
        inside = [length for at, length in launched if first <= at <= last]
        line = f"{(first - zero) / 1e3:9.3f} {event['dur'] / 1e3:8.3f} {sum(inside) / 1e3:8.3f} {len(inside):4d}"
        print(f"  {line} {'  ' * len(open_calls)}{event['name'][2:]}")
        open_calls.append(last)


def main() -> None:
    """Parse the options and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words, one of which the name of the data contains")
    parser.add_argument("--out", type=Path, help="folder for the traces")
    options = parser.parse_args()
    for name, read, problem in problems(options.only):
        fit = functools.partial(dn.solve, problem, tol=TOL, random_state=0)
        times = []
        for _ in range(1 + REPEATS):
            cupy().cuda.Device().synchronize()
            began = time.perf_counter()
            result = fit()
            times.append(1e3 * (time.perf_counter() - began))
        best, gap = min(times), result.certificate.relative_gap
        print(
            f"== {name}: {best:.2f} ms, {best / read:.1f} reads of {read:.3f} ms; first {times[0]:.0f} ms; gap {gap:.1e}"
        )
        print(f"  {result.n_epochs:.2f} epochs; {result.plan.reason}", flush=True)
        events = traced(fit)
        show(events)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{name.replace(' ', '_')}.json").write_text(json.dumps({"traceEvents": events}))


if __name__ == "__main__":
    main()
