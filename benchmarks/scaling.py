"""The growth of the time with n, with d and with the number of nonzeros per row, for our library and a few others."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from benchmarks.against_peers import Limits, Row, measured, shown
from benchmarks.data import Cell, Dataset, dense_set
from benchmarks.peers import PEERS
from benchmarks.report import MISSING, Section, Table, number, seconds

IMAGES = Path(__file__).parents[1] / "docs" / "img"
COMPARED = ("snapml", "cyanure", "liblinear dual", "lbfgs", "newton-cholesky")
LOSS, LAM_N = "logistic", 1.0
CAP, CAPS = 4.0, 1.5
"""Time limit in seconds of a run, and of a peer's search as a multiple of it."""

SECONDS = 200.0
"""Time in seconds after which no further size is started."""


@dataclass(frozen=True)
class Axis:
    """One quantity that grows while the others are fixed."""

    symbol: str
    title: str
    sizes: tuple[int, ...]
    data: Callable[[int], Dataset]

    def cells(self, quick: bool) -> list[Cell]:
        """Return the problems in order of size; only the two smallest for a quick run."""
        return [Cell(self.data(size), LOSS, LAM_N) for size in self.sizes[: 2 if quick else None]]


def sparse_set(n: int, d: int, entries: int) -> Dataset:
    """Generate CSR rows of up to ``entries`` Gaussian entries in random columns, labelled by a random hyperplane with noise."""

    def make() -> tuple[sp.csr_matrix, np.ndarray]:
        rng = np.random.default_rng(0)
        columns = rng.integers(0, d, n * entries, dtype=np.int32)
        starts = np.arange(0, n * entries + 1, entries, dtype=np.int32)
        X = sp.csr_matrix((rng.standard_normal(n * entries), columns, starts), shape=(n, d))
        X.sum_duplicates()
        scores = X @ rng.standard_normal(d)
        return X, np.where(scores + 0.1 * scores.std() * rng.standard_normal(n) > 0.0, 1.0, -1.0)

    return Dataset(f"CSR {n}×{d}, {entries} a row", make)


AXES = (
    Axis("n", "examples n, dense, d = 50", (10_000, 100_000, 1_000_000), lambda n: dense_set(n, 50)),
    Axis("d", "features d, dense, n = 20000", (50, 100, 200, 500, 1_000, 2_000), lambda d: dense_set(20_000, d)),
    Axis(
        "nnz",
        "nonzeros a row, CSR, n = 50000, d = 10000",
        (10, 30, 100, 300),
        lambda entries: sparse_set(50_000, 10_000, entries),
    ),
)


def section(quick: bool, say: Callable[[str], None]) -> Section:
    """Measure along every axis, and plot each in a full run."""
    peers = [peer for peer in PEERS[LOSS] if peer.name in COMPARED]
    # The times of all peers are shown here and not only the best one, so a slower peer is not stopped.
    limits = Limits(CAP, search=math.inf, run=math.inf, caps=CAPS)
    end = time.perf_counter() + SECONDS
    result = Section(f"Scaling: time to P − P* ≤ 1e-06·P*, {LOSS}, λn = {LAM_N:g}, 1 thread")
    for axis in AXES:
        rows: list[Row] = []
        for cell in axis.cells(quick):
            if time.perf_counter() < end:
                rows += measured([cell], [1], limits, say, peers=peers)[1]
        picture = "" if quick else f"![{axis.title}](../docs/img/{plot(axis, rows, IMAGES).name}). "
        result.tables.append(table(axis, rows, picture))
    return result


def times(rows: list[Row], name: str) -> list[float]:
    """Return the times of a contender along an axis, NaN where it did not reach the goal."""
    if name == "ours":
        return [row.ours.seconds if row.ours and row.ours.reached else math.nan for row in rows]
    return [row.peers.get(name, math.nan) for row in rows]


def table(axis: Axis, rows: list[Row], picture: str) -> Table:
    """Return the table of all times along an axis."""
    lines = [
        [str(size), seconds(mine), *(shown(row.tried[name]) for name in COMPARED)]
        for size, row, mine in zip(axis.sizes, rows, times(rows, "ours"), strict=False)
    ]
    note = (
        f"{picture}{growth(axis, rows)}A peer's run is stopped after {CAP:g} s and its search after {CAPS * CAP:g} s; the best "
        f"run that sufficed by then counts. {MISSING}: none in that time."
    )
    return Table(f"Time against {axis.title}", [axis.symbol, "ours", *COMPARED], lines, note)


def growth(axis: Axis, rows: list[Row]) -> str:
    """Return a sentence with the exponent of the growth of our time over the whole range."""
    mine = times(rows, "ours")
    if len(mine) < 2 or not math.isfinite(mine[0] * mine[-1]):
        return ""
    exponent = math.log(mine[-1] / mine[0]) / math.log(axis.sizes[len(mine) - 1] / axis.sizes[0])
    return f"Ours grows like {axis.symbol}^{number(exponent)}. "


def plot(axis: Axis, rows: list[Row], folder: Path) -> Path:
    """Draw all contenders along an axis, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name in ("ours", *COMPARED):
        style = {"linewidth": 2.5, "color": "black", "zorder": 3} if name == "ours" else {"linewidth": 1.2}
        axes.loglog(axis.sizes[: len(rows)], times(rows, name), marker="o", label=name, **style)
    axes.set_xlabel(axis.title)
    axes.set_ylabel("seconds to P − P* ≤ 1e-6·P*")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"scaling_{axis.symbol}.png"
    figure.savefig(path, dpi=120)
    return path
