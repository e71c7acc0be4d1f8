"""Figures of recorded measurements for the documentation, drawn from the files that the benchmarks write.

``python docs/plots.py`` draws them anew into docs/img.
"""

from __future__ import annotations

import csv
import json
import math
import sys
from collections import defaultdict
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
OURS, OTHERS = "#1f6f8b", "#c05a2e"


def draw_all(folder: Path) -> None:
    """Draw every figure into a folder."""
    for draw in (defaults, cores, workers, kinks, glm):
        figure = draw()
        figure.savefig(folder / f"{draw.__name__}.png", dpi=120)
        plt.close(figure)


def defaults() -> plt.Figure:
    """Our time over scikit-learn's with default settings: geometric mean and range over the tables, for each estimator."""
    ratios = defaultdict(list)
    with (BENCHMARKS / "DEFAULTS.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["ratio"]:
                ratios[row["estimator"]].append(float(row["ratio"]))
    means = {name: math.exp(sum(map(math.log, each)) / len(each)) for name, each in ratios.items()}
    names = sorted(means, key=means.__getitem__)
    figure, axes = plt.subplots(figsize=(7.5, 0.24 * len(names) + 1.2), layout="constrained")
    for place, name in enumerate(names):
        axes.plot([min(ratios[name]), max(ratios[name])], [place, place], color="#bbbbbb", linewidth=3, zorder=1)
        axes.plot(means[name], place, "o", color=OURS if means[name] <= 1.0 else OTHERS, zorder=2)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(xscale="log", yticks=range(len(names)), yticklabels=names, xlabel="our time / scikit-learn's time")
    figure.suptitle("Default settings: geometric mean (dot) and range over tables", fontsize=11)
    return figure


def cores() -> plt.Figure:
    """The speed-up of whole fits with the number of threads."""
    recorded = json.loads((BENCHMARKS / "cores.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    threads = recorded["threads"]
    axes.plot(threads, threads, ":", color="black", label="ideal")
    read = {int(count): rate for count, rate in recorded["read"].items()}
    axes.plot(list(read), [rate / read[1] for rate in read.values()], "--", color="#888888", label="read bandwidth")
    blas = {int(count): rate for count, rate in recorded["blas"].items()}
    axes.plot(list(blas), [rate / blas[1] for rate in blas.values()], "-.", color="#888888", label="matrix products")
    for name, times in fits(recorded).items():
        axes.plot(list(times), [times[1] / seconds for seconds in times.values()], "o-", label=name)
    axes.set(xscale="log", yscale="log", xticks=threads, yticks=threads, xlabel="threads", ylabel="speed-up")
    axes.set(xticklabels=threads, yticklabels=threads)
    axes.legend(fontsize=8)
    axes.set_title("Speed-up with the threads")
    return figure


def workers() -> plt.Figure:
    """The predicted time of a logistic fit on a Dask cluster with the number of its threads, from parts measured on two."""
    sys.path.insert(0, str(BENCHMARKS.parent))
    from benchmarks.dask_scaling import PREDICTED, Cost

    recorded = json.loads((BENCHMARKS / "dask.json").read_text(encoding="utf-8"))
    figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    threads = [10.0 ** (0.05 * k) for k in range(71)]
    for n, d in PREDICTED:
        cost = Cost.of(recorded["overhead"]["found"], recorded["speed"]["found"], n, d)
        (line,) = axes.plot(threads, list(map(cost.seconds, threads)), label=f"{n:.0e} rows of {d} features")
        axes.plot(cost.best, cost.seconds(cost.best), "o", color=line.get_color())
    axes.set(xscale="log", yscale="log", xlabel="threads of the cluster", ylabel="predicted seconds")
    axes.legend(fontsize=8)
    figure.suptitle("Beyond the dot more threads cost more than they save", fontsize=11)
    return figure


def kinks() -> plt.Figure:
    """Our time against LIBLINEAR's on losses with kinks, a point for each problem; at the cap where a solver does not finish."""
    cap = 4.0
    points = defaultdict(list)
    for row in table("KINKS.md"):
        ours, theirs = (float(cell) if cell != "—" else cap for cell in (row['"auto", s'], row["LIBLINEAR, s"]))
        points[float(row["λn"])].append((theirs, ours))
    figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
    axes.plot([1e-3, cap], [1e-3, cap], color="black", linewidth=1)
    axes.axvline(cap, color="#888888", linestyle=":")
    axes.axhline(cap, color="#888888", linestyle=":")
    for strength, each in sorted(points.items(), reverse=True):
        axes.plot(*zip(*each, strict=True), "o", alpha=0.7, label=f"λn = {strength:g}")
    axes.set(xscale="log", yscale="log", xlabel="LIBLINEAR, seconds", ylabel='"auto", seconds')
    axes.legend(fontsize=8)
    figure.suptitle("Below the line ours is faster; on the dotted lines: not in 4 s", fontsize=11)
    return figure


def glm() -> plt.Figure:
    """The time of the best other library over ours for generalised linear models."""
    cells = {row["cell"]: float(row["best other / ours"]) for row in table("GLM.md")}
    figure, axes = plt.subplots(figsize=(7.5, 0.26 * len(cells) + 1.2), layout="constrained")
    for place, ratio in enumerate(reversed(cells.values())):
        axes.plot([1.0, ratio], [place, place], color="#bbbbbb", linewidth=3, zorder=1)
        axes.plot(ratio, place, "o", color=OURS if ratio >= 1.0 else OTHERS, zorder=2)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(xscale="log", yticks=range(len(cells)), yticklabels=list(reversed(cells)))
    axes.set_xlabel("time of the best of scikit-learn and glum / our time")
    figure.suptitle("Generalised linear models to a certified relative gap of 1e-6", fontsize=11)
    return figure


def table(file: str) -> list[dict[str, str]]:
    """Return the rows of the table on a page that a benchmark wrote, by the names of its columns."""
    lines = [line for line in (BENCHMARKS / file).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return [dict(zip(head, row, strict=True)) for row in rows]


def fits(recorded: dict) -> dict[str, dict[int, float]]:
    """Return the seconds of fits with method="auto" on each kind of data, by the number of threads."""
    found = {}
    for data, methods in recorded["fits"].items():
        times = {int(count): seconds for count, seconds in methods.get("auto", {}).items() if seconds}
        if 1 in times and len(times) > 1:
            found[data] = dict(sorted(times.items()))
    return found


if __name__ == "__main__":
    draw_all(Path(__file__).parent / "img")
