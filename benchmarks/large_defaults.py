"""Default settings against scikit-learn's default settings on large data: one thread, certified gaps beside the times.

    python -m benchmarks.large_defaults [--sets "sparse 200000x20000" …] [--models Ridge …] [--repeats 3] [--cap 20]
    python -m benchmarks.large_defaults --table

Each line of the results file (``--results``) is one measurement, so that cells can be measured one by one; ``--table`` writes
``LARGE_DEFAULTS.md`` from them. Times are processor seconds of one thread, the shortest of some repeats (a fit of more than
``LONG`` seconds runs once), and "tol=1e-2" is the time of this library with that tolerance. The gap is that of ``certify``.
Fits that take longer than the cap, or more memory than allowed, are shown as such.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.report import number
from benchmarks.timing import Outcome, from_child, geometric_mean
from threadpoolctl import threadpool_limits

import dualnewton as dn

HERE = Path(__file__).resolve().parent
TABLE = HERE / "LARGE_DEFAULTS.md"
LONG = 3.0
"""Seconds of a fit from which it is not repeated."""

LARGEST, MEAN = 0.7, 0.5
"""Targets: our time over scikit-learn's, in every cell and in the geometric mean."""

HARD = {"LinearSVC hinge", "LinearSVR"}
"""Models of losses with kinks: a certificate of scikit-learn's takes about as long as a fit."""


@lru_cache(maxsize=1)
def data_of(name: str) -> tuple[Any, np.ndarray, np.random.Generator]:
    """Return features, the margins of a planted model, and a generator for labels."""
    kind, _, size = name.partition(" ")
    rng = np.random.default_rng(0)
    if kind in ("gaussian", "correlated"):
        n, d = map(int, size.split("x"))
        X = rng.standard_normal((n, d))
        if kind == "correlated":  # neighbouring features have correlation 0.95
            for j in range(1, d):
                X[:, j] = 0.95 * X[:, j - 1] + math.sqrt(1.0 - 0.95**2) * X[:, j]
        return X, X @ rng.standard_normal(d) / math.sqrt(d), rng
    n, d = map(int, size.split("x"))
    stored, decay = (30, 0.5) if kind == "sparse" else (80, 1.0)
    chances = 1.0 / np.arange(1.0, d + 1.0) ** decay
    columns = rng.choice(d, size=(n, stored), p=chances / chances.sum())
    rows = np.repeat(np.arange(n), stored)
    counts = sp.csr_array((np.ones(rows.size), (rows, columns.ravel())), shape=(n, d))
    counts.sum_duplicates()
    counts.indices, counts.indptr = (
        counts.indices.astype(np.int32),
        counts.indptr.astype(np.int32),
    )  # as liblinear needs
    if kind == "tf-idf":  # logarithmic counts times inverse document frequencies, rows of length one
        often = np.bincount(counts.indices, minlength=d)
        counts.data = (1.0 + np.log(counts.data)) * (1.0 + np.log((1.0 + n) / (1.0 + often)))[counts.indices]
        lengths = np.sqrt(counts.power(2).sum(axis=1))
        counts.data /= np.repeat(lengths, np.diff(counts.indptr))
    w = rng.standard_normal(d) * (1.0 if kind == "sparse" else 5.0)
    margins = counts @ w
    return counts, margins / margins.std() * (1.0 if kind == "sparse" else 3.0), rng


def targets(name: str, classes: int) -> np.ndarray:
    """Return noisy labels of so many classes; of a regression if there are none."""
    _, margins, _ = data_of(name)
    rng = np.random.default_rng(1)
    if classes == 0:
        noise = rng.standard_normal(margins.size)
        noise[rng.random(margins.size) < 0.02] *= 10.0
        return np.asarray(margins + 0.5 * noise)
    noisy = margins + rng.logistic(size=margins.size)
    if classes == 2:
        return (noisy > 0.0).astype(int)
    if not name.startswith("tf-idf"):
        return np.digitize(noisy, np.quantile(noisy, np.linspace(0, 1, classes + 1)[1:-1]))
    X, _, _ = data_of(name)
    scores = X @ rng.standard_normal((X.shape[1], classes)) * 5.0 + rng.gumbel(size=(margins.size, classes))
    return np.asarray(scores.argmax(axis=1))


def pair(name: str, **parameters: Any) -> Callable[[str], tuple[Any, Any]]:
    """Return how to make both libraries' estimators of this name."""

    def made(_: str) -> tuple[Any, Any]:
        from sklearn import linear_model, svm

        theirs = getattr(linear_model, name, None) or getattr(svm, name)
        return getattr(dn, name)(**parameters), theirs(**parameters)

    return made


MODELS: dict[str, tuple[Callable[[str], tuple[Any, Any]], int]] = {
    "Ridge": (pair("Ridge"), 0),
    "LinearRegression": (pair("LinearRegression"), 0),
    "RidgeCV": (pair("RidgeCV"), 0),
    "RidgeClassifier": (pair("RidgeClassifier"), 2),
    "Lasso": (pair("Lasso"), 0),
    "ElasticNet": (pair("ElasticNet"), 0),
    "HuberRegressor": (pair("HuberRegressor"), 0),
    "LogisticRegression": (pair("LogisticRegression"), 2),
    "LogisticRegression, 4 classes": (pair("LogisticRegression"), 4),
    "LogisticRegression, 8 classes": (pair("LogisticRegression"), 8),
    "LinearSVC": (pair("LinearSVC"), 2),
    "LinearSVC, 8 classes": (pair("LinearSVC"), 8),
    "LinearSVC hinge": (pair("LinearSVC", loss="hinge"), 2),
    "LinearSVR": (pair("LinearSVR"), 0),
}
DENSE = [name for name in MODELS if "8 classes" not in name]
TEXT = ["RidgeClassifier", "LogisticRegression", "LogisticRegression, 8 classes", "LinearSVC", "LinearSVC, 8 classes",
        "LinearSVC hinge"]  # fmt: skip
CELLS = {
    "gaussian 500000x50": DENSE,
    "correlated 500000x50": DENSE,
    "gaussian 1000000x100": DENSE,
    "correlated 1000000x100": DENSE,
    "sparse 200000x20000": DENSE,
    "tf-idf 20000x50000": TEXT,
}


def fits(make: Callable[[], Any], X: Any, y: np.ndarray, repeats: int) -> Iterator[tuple[float, Any]]:
    """Fit some times; after each fit, yield the shortest time so far and the model."""
    best = math.inf
    for _ in range(repeats):
        model = make()
        start = time.process_time()
        model.fit(X, y)
        best = min(best, time.process_time() - start)
        yield best, model
        if best > LONG:
            break


def gap_of(model: Any, X: Any, y: np.ndarray) -> float:
    """Return the certified relative gap of a model, NaN where none is found."""
    try:
        return float(dn.certify(model, X, y).relative_gap)
    except ValueError:
        return math.nan


def our_figures(name: str, model: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Yield our time with its gap and plan, then the time with ``tol=1e-2``."""
    (X, _, _), (made, classes) = data_of(name), MODELS[model]
    y = targets(name, classes)
    next(fits(lambda: made(model)[0], X[:2000], y[:2000], 1))  # imports and compiles
    for seconds, ours in fits(lambda: made(model)[0], X, y, repeats):
        gap = max(float(each.relative_gap) for each in np.atleast_1d(ours.certificate_))
        yield {"ours": seconds, "gap": gap, "plan": str(getattr(ours, "plan_", ""))}
    if "tol" in ours.get_params():
        for seconds, _ in fits(lambda: made(model)[0].set_params(tol=1e-2), X, y, repeats):
            yield {"loose": seconds}


def their_figures(name: str, model: str, repeats: int, *, hard: bool) -> Iterator[dict[str, Any]]:
    """Yield scikit-learn's time, then the certified gap of its model."""
    (X, _, _), (made, classes) = data_of(name), MODELS[model]
    y = targets(name, classes)
    for seconds, theirs in fits(lambda: made(model)[1], X, y, repeats):  # noqa: B007 (used after the loop)
        yield {"theirs": seconds}
    if hard or model not in HARD:
        yield {"their gap": gap_of(theirs, X, y)}


def measure(name: str, model: str, options: Any) -> dict[str, Any]:
    """Measure one cell, each library in a child process that is ended if a fit takes too long: ``--cap`` seconds, ours thrice.

    What a child found before counts; "ours ended" and "theirs ended" say how it ended, if not by itself.
    """
    data_of(name)  # once, for all child processes
    row: dict[str, Any] = {"set": name, "model": model, "cap": options.cap}
    parts = {"ours": partial(our_figures, name, model, options.repeats)}
    if not options.ours:
        parts["theirs"] = partial(their_figures, name, model, options.repeats, hard=options.hard)
    for side, work in parts.items():
        patience = options.cap * (3.0 if side == "ours" else 1.0)
        *found, ending = from_child(work, math.inf, partial(limited, options.memory), patience=patience)
        for figures in found:
            row |= figures
        if ending != Outcome.DONE:
            row[f"{side} ended"] = ending
    return row


@contextlib.contextmanager
def limited(gibibytes: float) -> Iterator[None]:
    """Work on one thread, in so much memory beyond that of the data: an allocation of more raises MemoryError."""
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + int(gibibytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with threadpool_limits(limits=1):
        yield


HEADER = f"""\
# Default settings on large data, against scikit-learn

Written by `python -m benchmarks.large_defaults --table`. Processor seconds of one thread, float64: the shortest of some fits.
The gap is the certified one, relative to the objective; scikit-learn's models of losses with kinks are certified with `--hard`
only. Fits of scikit-learn are ended after a time limit, shown as "> 20": the ratio is then an upper bound, counted as it
stands in the geometric mean. A fit that a library refuses, or that needs too much memory, is shown as "–" with the reason
below the table. Targets: a ratio of at most {LARGEST} in every cell and of at most {MEAN} in the geometric mean.
"""


def ratio_of(row: dict[str, Any]) -> float:
    """Return our time over scikit-learn's, an upper bound if that was cut, NaN if either has no time."""
    cut = row["cap"] if row.get("theirs ended") == Outcome.CUT else math.nan
    return row.get("ours", math.nan) / row.get("theirs", cut)


def line_of(row: dict[str, Any]) -> str:
    """Return the line of a cell in the table."""
    ratio, cut = ratio_of(row), "theirs" not in row and row.get("theirs ended") == Outcome.CUT
    shown = "–" if math.isnan(ratio) else f"{'< ' if cut else ''}{number(ratio)}"
    theirs = f"> {row['cap']:g}" if cut else figure(row, "theirs", ".3f")
    return (
        f"| {row['model']} | {figure(row, 'ours', '.3f')} | {theirs} | {shown} | {figure(row, 'loose', '.3f')} "
        f"| {figure(row, 'gap', '.0e')} | {figure(row, 'their gap', '.0e')} |"
    )


def figure(row: dict[str, Any], key: str, form: str) -> str:
    """Return a figure as text, a dash where there is none."""
    return f"{row[key]:{form}}" if math.isfinite(row.get(key, math.nan)) else "–"


def write_table(rows: list[dict[str, Any]]) -> None:
    """Write the table of all measurements; the last one of a cell counts."""
    last = {(row["set"], row["model"]): row for row in rows if {"theirs", "theirs ended"} & row.keys()}
    lines, above, means = [HEADER], [], []
    for name, models in CELLS.items():
        own = [last[name, model] for model in models if (name, model) in last]
        ratios = {row["model"]: ratio for row in own if not math.isnan(ratio := ratio_of(row))}
        above += [f"{model} on {name} {ratio:.2f}" for model, ratio in ratios.items() if ratio > LARGEST]
        means.append(geometric_mean(ratios.values()))
        lines += [f"## {name}, geometric mean {means[-1]:.2f}", ""]
        lines += ["| model | ours | scikit-learn | ratio | ours, tol=1e-2 | our gap | scikit-learn's gap |"]
        lines += ["|---|---|---|---|---|---|---|", *map(line_of, own), ""]
        for row in own:
            for side, whose in (("ours", "ours"), ("theirs", "scikit-learn's")):
                if side not in row and row[f"{side} ended"] != Outcome.CUT:
                    lines += [f"{row['model']}, {whose}: {row[f'{side} ended']}.", ""]
        if left_out := [model for model in models if (name, model) not in last]:
            lines += [f"Not run: {', '.join(left_out)}.", ""]
    lines[1:1] = [f"Cells above {LARGEST}: {'; '.join(above) or 'none'}.", ""]
    TABLE.write_text("\n".join(lines))


def main() -> None:
    """Measure the cells that are asked for, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(CELLS))
    parser.add_argument("--models", nargs="*")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--results", type=Path, default=Path("large_defaults.jsonl"))
    parser.add_argument("--cap", type=float, default=20.0, help="seconds after which a fit is ended, thrice for ours")
    parser.add_argument("--memory", type=float, default=6.0, help="GiB that a fit may take beside the data")
    parser.add_argument("--ours", action="store_true", help="leave scikit-learn out")
    parser.add_argument("--hard", action="store_true", help="certify scikit-learn's models of losses with kinks, too")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    if options.table:
        write_table([json.loads(line) for line in options.results.read_text().splitlines()])
        return
    warnings.simplefilter("ignore")
    for name in options.sets:
        for model in options.models or CELLS.get(name, DENSE):
            row = measure(name, model, options)
            print(f"{name:24s} {line_of(row)}", flush=True)
            with options.results.open("a") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
