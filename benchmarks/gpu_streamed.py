"""Rows in the host's memory that a GPU computes with: ``python -m benchmarks.gpu_streamed [--scale 1.0]`` writes GPU_STREAMED.md.

For each problem: gigabytes per second at which the pieces of X are copied to the GPU without further work, seconds of a fit to a
certified relative gap of 1e-6 that copies them for each pass, the same with X on the GPU, and with X in memory on up to 16 cores.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import scipy.sparse as sp
from benchmarks.gpu_data import dense, labels, sparse
from benchmarks.report import Section, Table, Target, markdown, seconds
from benchmarks.timing import cores

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.cuda import as_cuda
from dualnewton.matrix.cuda_copies import streamed
from dualnewton.matrix.cuda_library import cupy
from dualnewton.matrix.streamed import StreamedData
from dualnewton.run.checkpoint import installed_version

FILE = Path(__file__).parent / "GPU_STREAMED.md"
GOAL = 1e-6
THREADS = min(16, len(cores()))

COLUMNS = [
    "data (float32)",
    "GB",
    "copies alone",
    "fit, streamed",
    "passes",
    "copied in the fit",
    "gap",
    "fit, on the GPU",
    f"fit, {THREADS} cores",
]

NOTE = (
    "Logistic regression with λn = 1, dense rows with an intercept. copies alone: all pieces of X are copied to the GPU and "
    "dropped; copied in the fit: bytes that the fit has copied, divided by its time; passes: over all rows. Each fit "
    "after one that compiles."
)


def timed(work: Any) -> tuple[float, Any]:
    """Return the seconds of a call and its result, after one that compiles."""
    work()
    began = time.perf_counter()
    found = work()
    cupy().cuda.Device().synchronize()
    return time.perf_counter() - began, found


class Counting:
    """Copies pieces, and counts their bytes."""

    def __init__(self, data: StreamedData) -> None:
        self.place, self.bytes = data.place, 0
        data.place = self

    def __call__(self, rows: Any) -> Any:
        self.bytes += size(rows)
        return self.place(rows)


def size(rows: Any) -> int:
    """Return the bytes of the entries and indices of a matrix."""
    return rows.data.nbytes + rows.indices.nbytes if sp.issparse(rows) else rows.nbytes


def copied(data: StreamedData) -> None:
    """Copy all pieces to the GPU."""
    with data._computing() as shares:
        for _ in shares:
            pass


def measure(name: str, there: Any, y: Any) -> tuple[list[str], float, float]:
    """Return the row of a table, and the rates of copies alone and of those in a fit, in GB/s."""
    X = sp.csr_array(there.get()) if hasattr(there, "indptr") else there.get()
    here, n = y.get(), X.shape[0]
    more = {"lam": 1.0 / n, "fit_intercept": not sp.issparse(X)}
    solve = partial(dn.solve, tol=GOAL, random_state=0, time_limit=60.0)
    on_gpu, _ = timed(partial(solve, dn.Problem(as_cuda(there), y, losses.Logistic(), **more)))
    del there, y
    cupy().get_default_memory_pool().free_all_blocks()
    data = streamed(X)
    alone, _ = timed(partial(copied, data))
    counting = Counting(data)
    fit, result = timed(partial(solve, dn.Problem(data, here, losses.Logistic(), **more)))
    rates = 1e-9 * size(X) / alone, 1e-9 * counting.bytes / 2 / fit
    in_memory, _ = timed(partial(solve, dn.Problem(X, here, losses.Logistic(), **more), n_threads=THREADS))
    row = [
        name,
        f"{1e-9 * size(X):.1f}",
        f"{rates[0]:.0f} GB/s",
        seconds(fit),
        f"{result.n_epochs:.1f}",
        f"{rates[1]:.0f} GB/s",
        f"{result.certificate.relative_gap:.1e}",
        seconds(on_gpu),
        seconds(in_memory),
    ]
    print(" | ".join(row), flush=True)
    return row, *rates


def main() -> None:
    """Parse the options, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of rows")
    scale = parser.parse_args().scale
    found = []
    for n, d, condition in ((50_000_000, 100, 1e6), (4_000_000, 1000, 1e6)):
        X, z = dense(int(scale * n), d, condition)
        y = labels(z)
        del z
        found.append(measure(f"{X.shape[0]:,}×{d}, condition {condition:g}", X, y))
        del X, y
        cupy().get_default_memory_pool().free_all_blocks()
    X, y = sparse(int(scale * 10_000_000), 200_000, 50)
    found.append(measure(f"CSR {X.shape[0]:,}×200,000, 50 a row", X, y))
    name = cupy().cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = ", ".join(
        f"{one} {own}" for one in ("cupy-cuda12x", "cupy-cuda13x", "cupy") if (own := installed_version(one))
    )
    target = Target.at_least(
        "dense fits copy at 80 % of the rate of copies alone", [fit / alone for _, alone, fit in found[:2]], 0.8, ""
    )
    table = Table("Logistic regression", COLUMNS, [row for row, *_ in found], NOTE)
    section = Section("Rows in the host's memory, copied to a GPU for each pass", [table], [target])
    FILE.write_text(
        markdown([section], f"python -m benchmarks.gpu_streamed --scale {scale:g}", [f"GPU: {name}, {versions}"])
    )


if __name__ == "__main__":
    main()
