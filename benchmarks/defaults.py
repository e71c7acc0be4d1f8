"""Default against default: every estimator that scikit-learn has too, both as they come, on small tables and on one thread.

    python -m benchmarks.defaults [--write] [--quick] [--sizes 300×10,1000×20] [--estimators Lasso,LinearSVR]
                                  [--kinds correlated,raw] [--tables iris,fair] [--sections fits,looser,rows] [--clock cpu]

Fits alternate between the libraries; a cell (a table and an estimator) compares the medians of their times and shows the
certified relative gap of both models. ``--write`` writes benchmarks/DEFAULTS.md with the table DEFAULTS.csv of all cells, and the
summary in docs/performance.md. Ctrl-C ends the measurement of the fits; what there is by then is reported. The exit status is 1
if a model of ours misses its ``tol`` or a fit fails.
"""

from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import sklearn.linear_model
from benchmarks import defaults_data as data
from benchmarks.defaults_cases import CASES, Case
from benchmarks.defaults_data import Table
from benchmarks.timing import Outcome, from_child
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton.run import warm_up

CAP = 20.0
"""Time limit in seconds of a fit, and of a certificate of a model of scikit-learn."""

REPEATS, ENOUGH_SECONDS = 15, 0.6
"""Most repetitions of a cell, and the total of both libraries' times in seconds after which it is not repeated again."""

FEWEST, PATIENCE = 3, 10.0
"""Fewest repetitions of a cell, unless the repetitions so far took PATIENCE times the seconds that are enough."""

ROUNDING = 1e-14
"""Residuals below this fraction of the largest target are rounding errors."""

CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""Clocks of the fits: elapsed time, or that of the processor, which other work on the machine disturbs less."""


# A cell ---------------------------------------------------------------------------------------------------------------------


@dataclass
class Cell:
    """The result of one estimator on one table: seconds and certified relative gaps; NaN where there is none."""

    estimator: str
    group: str
    table: str
    ours: float = math.nan
    theirs: float = math.nan
    our_gap: float = math.nan
    their_gap: float = math.nan
    tol: float = math.nan
    repeats: int = 0
    note: str = ""
    too_long: str = ""  # "ours" or "theirs": the fit that was stopped
    interpolates: bool = (
        False  # whether the residuals of our model are rounding errors of the targets: so is its objective
    )

    @property
    def ratio(self) -> float:
        """Our time over scikit-learn's."""
        return self.ours / self.theirs

    @property
    def missed(self) -> bool:
        """Whether our model is not certified to its tolerance, or there is none."""
        return not (self.our_gap <= self.tol or self.interpolates)

    def __str__(self) -> str:
        times = f"{1e3 * self.ours:.3g} ms / {1e3 * self.theirs:.3g} ms = {self.ratio:.2f}"
        return (
            f"{self.estimator} on {self.table}: {times}, gaps {self.our_gap:.0e} and {self.their_gap:.0e} {self.note}"
        )


@dataclass(frozen=True)
class Effort:
    """How often a cell is repeated, and by which clock it is timed."""

    repeats: int = REPEATS
    enough: float = ENOUGH_SECONDS
    clock: Callable[[], float] = time.perf_counter

    def timed(self, run: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
        """Return the seconds of a call, and its value."""
        start = self.clock()
        value = run(*arguments)
        return self.clock() - start, value

    def medians(self, runs: list[Any], *arguments: Any) -> tuple[float, float, int]:
        """Return the median time of two functions, called in turn, and the number of calls of each."""
        times: list[list[float]] = [[], []]
        total = 0.0
        fewest = min(FEWEST, self.repeats)
        while len(times[0]) < self.repeats and (
            total < self.enough or (len(times[0]) < fewest and total < PATIENCE * self.enough)
        ):
            for run, found in zip(runs, times, strict=True):
                found.append(self.timed(run, *arguments)[0])
            total += times[0][-1] + times[1][-1]
        return statistics.median(times[0]), statistics.median(times[1]), len(times[0])


def measure(case: Case, table: Table, effort: Effort, begun: Cell | None = None) -> Iterator[Cell]:
    """Yield the cell after the first fit of each library, after the repetitions, and after the certificates.

    The first fits load or compile what later ones need and are not counted. ``begun`` is a cell of which one fit was too long: it
    is left out.
    """
    X, y = table.task(case.task)
    cell = begun or Cell(case.label, table.group, table.label)
    fits = [case.fitter(ours) for ours in (True, False)]
    models: list[Any] = [None, None]
    for i, attribute in enumerate(("ours", "theirs")):
        if begun is not None and begun.too_long == attribute:
            continue
        try:
            seconds, models[i] = effort.timed(fits[i], X, y)
            setattr(cell, attribute, seconds)
        except Exception as error:
            cell.note += f" {attribute}: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
        yield cell
    if None not in models:
        cell.ours, cell.theirs, cell.repeats = effort.medians(fits, X, y)
        yield cell
    for attribute, gap, model in zip(("ours", "theirs"), ("our_gap", "their_gap"), models, strict=True):
        if model is not None:
            try:
                setattr(cell, gap, gap_of(case, model, X, y, ours=attribute == "ours"))
            except Exception as error:
                cell.note += f" certifying {attribute}: {type(error).__name__}: {str(error).splitlines()[0][:120]}"
    cell.tol = tolerance(case, models[0])
    if cell.missed and models[0] is not None and case.task == "regression" and not case.is_path:
        cell.interpolates = float(np.abs(models[0].predict(X) - y).max()) <= ROUNDING * float(np.abs(y).max())
        cell.note += " the residuals are rounding errors" if cell.interpolates else ""
    yield cell


def tolerance(case: Case, model: Any) -> float:
    """Return the relative gap that our fit promises."""
    return 1e-4 if case.is_path else float(model.tol) if model is not None else math.nan


def gap_of(case: Case, model: Any, X: np.ndarray, y: np.ndarray, ours: bool) -> float:
    """Return the certified relative gap; the largest of its parts (classes, outputs, penalties of a path).

    A fit of ours has its certificate, recomputed from data, model and dual point; models of scikit-learn are certified here.
    """
    if case.is_path:
        ratio = 1.0 if case.name == "lasso_path" else 0.5
        return max(_path_gap(X, y, alpha, ratio, w) for alpha, w in zip(model[0], model[1].T, strict=True))
    if ours and hasattr(model, "certificate_"):
        found = model.certificate_
        certificates = found if isinstance(found, list | tuple) else [found]
    else:
        certificates = [dn.certify(model, X, y)]
    parts = [part for whole in certificates for part in (whole.parts or (whole,))]
    return max(part.relative_gap for part in parts)


def _path_gap(X: np.ndarray, y: np.ndarray, alpha: float, ratio: float, w: np.ndarray) -> float:
    model = sklearn.linear_model.ElasticNet(alpha=alpha, l1_ratio=ratio, fit_intercept=False)
    model.coef_, model.intercept_, model.n_features_in_ = w, 0.0, X.shape[1]
    return dn.certify(model, X, y).relative_gap


# All cells, in a child process -------------------------------------------------------------------------------------------


def measure_all(pairs: list[tuple[Case, Table]], effort: Effort, cap: float) -> Iterator[Cell]:
    """Yield all cells. A fit that takes longer than ``cap`` is stopped with its process, and counts as ``cap`` seconds."""
    done, begun = 0, None
    while done < len(pairs):
        cell = None
        work = partial(_work, pairs[done:], effort, begun)
        for found in from_child(work, math.inf, single_thread, patience=cap):
            if isinstance(found, tuple):
                cell, finished = found
                if finished:
                    yield cell
                    done, cell, begun = done + 1, None, None
            elif found != Outcome.DONE:
                case, table = pairs[done]
                begun = _stopped(cell or begun or Cell(case.label, table.group, table.label), cap, found)
                if not begun.too_long:
                    yield begun
                    done, begun = done + 1, None


def _work(pairs: list[tuple[Case, Table]], effort: Effort, begun: Cell | None) -> Iterator[tuple[Cell, bool]]:
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for i, (case, table) in enumerate(pairs):
        gc.collect()
        gc.disable()
        for cell in measure(case, table, effort, begun if i == 0 else None):
            yield cell, False
        gc.enable()
        yield cell, True


def _stopped(cell: Cell, cap: float, ending: str) -> Cell:
    """Return the cell of a process that was stopped or crashed: the call under way took ``cap`` seconds."""
    late = next((name for name in ("ours", "theirs") if math.isnan(getattr(cell, name))), "")
    if late and not cell.too_long:
        return replace(cell, **{late: cap}, too_long=late, note=f"{late} {ending}")
    return replace(cell, too_long="", note=f"{cell.note} {late or 'certificate'} {ending}".strip())


@contextmanager
def single_thread() -> Iterator[None]:
    """Restrict BLAS and OpenMP to one thread."""
    with threadpool_limits(limits=1):
        yield


# Small and looser is faster -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Looser:
    """Time ratios of one case: half of the rows against all, and tol=1e-2 against tol=1e-4; of both libraries."""

    estimator: str
    table: str
    half: tuple[float, float]
    loose: tuple[float, float]


def measure_looser(case: Case, n: int, d: int, effort: Effort) -> Looser:
    """Compare fits of n and n/2 rows, and of the two tolerances on n rows."""
    whole, half = (data.generate(rows, d, "correlated") for rows in (n, n // 2))
    ratios: dict[str, list[float]] = {"half": [], "loose": []}
    for ours in (True, False):
        large, small = whole.task(case.task), half.task(case.task)
        tight, loose, plain = case.fitter(ours, tol=1e-4), case.fitter(ours, tol=1e-2), case.fitter(ours)
        for name, fits in {
            "half": [lambda fit=plain, at=small: fit(*at), lambda fit=plain, at=large: fit(*at)],
            "loose": [lambda fit=loose, at=large: fit(*at), lambda fit=tight, at=large: fit(*at)],
        }.items():
            for fit in fits:
                fit()
            less, more, _ = effort.medians(fits)
            ratios[name].append(less / more)
    return Looser(
        case.label, f"{n}×{d}", (ratios["half"][0], ratios["half"][1]), (ratios["loose"][0], ratios["loose"][1])
    )


# One row ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneRow:
    """Seconds of a method of a fitted model with one row of data."""

    estimator: str
    method: str
    ours: float
    theirs: float

    @property
    def ratio(self) -> float:
        """Our time over scikit-learn's."""
        return self.ours / self.theirs


ONE_ROW = (
    "LogisticRegression",
    "LogisticRegression, 3 classes",
    "LinearSVC",
    "RidgeClassifier",
    "Ridge",
    "Lasso",
    "LinearSVR",
)


def measure_row(case: Case, effort: Effort) -> Iterator[OneRow]:
    """Time predict, decision_function and predict_proba of one row, where the estimator has them."""
    X, y = data.generated("300×10", "gaussian").task(case.task)
    models = [case.fitter(ours)(X, y) for ours in (True, False)]
    for method in ("predict", "decision_function", "predict_proba"):
        if all(hasattr(model, method) for model in models):
            calls = [getattr(model, method) for model in models]
            ours, theirs, _ = effort.medians(calls, X[:1])
            yield OneRow(case.label, method, ours, theirs)


# The command ------------------------------------------------------------------------------------------------------------------

SECTIONS = ("fits", "looser", "rows")
QUICK_TABLES = (("300×10", "gaussian"), ("1000×20", "ill-scaled"), (data.SKLEARN, "raw"))


@dataclass
class Results:
    """Everything that a run measured."""

    cells: list[Cell] = field(default_factory=list)
    looser: list[Looser] = field(default_factory=list)
    rows: list[OneRow] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)


def chosen_tables(asked: argparse.Namespace) -> tuple[list[Table], dict[str, str]]:
    """Return the tables of the options, and those left out with reasons."""
    if asked.quick and not asked.tables and not asked.sizes:
        few = [data.tables((group,), (kind,), ("diabetes",))[0] for group, kind in QUICK_TABLES]
        return [table for part in few for table in part], {}
    groups = tuple(group for group in (*data.GROUPS, data.FURTHER) if _asked(group, asked.sizes or data.GROUPS))
    return data.tables(
        groups, tuple(kind for kind in (*data.KINDS, *data.FORMS) if _asked(kind, asked.kinds)), asked.tables
    )


def _asked(name: str, words: tuple[str, ...]) -> bool:
    return not words or any(word in (name, name.replace("×", "x")) or name.startswith(word) for word in words)


def prepare() -> None:
    """Compile or load the kernels, which the child processes inherit: the time limit of a fit is not one of the compiler."""
    for step in warm_up.steps(("dense",), ("float64",)):
        print(step.name, file=sys.stderr, flush=True)
        step.prepare()


def run(asked: argparse.Namespace) -> Results:
    """Measure the chosen sections, with a line per cell on stderr."""
    clock = CLOCKS[asked.clock]
    effort = Effort(3, 0.05, clock) if asked.quick else Effort(asked.repeats, asked.seconds, clock)
    results = Results()
    cases = [case for case in CASES if not asked.estimators or {case.name, case.label} & set(asked.estimators)]
    if "fits" in asked.sections:
        tables, results.left_out = chosen_tables(asked)
        pairs = [(case, table) for table in tables for case in cases]
        prepare()
        try:
            for i, cell in enumerate(measure_all(pairs, effort, asked.cap)):
                results.cells.append(cell)
                print(f"[{i + 1}/{len(pairs)}] {cell}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            missing = len(pairs) - len(results.cells)
            results.left_out[f"the last {missing} of {len(pairs)} cells"] = "the run was ended before them"
    warnings.simplefilter("ignore")
    with single_thread():
        if "looser" in asked.sections:
            sizes = [(1000, 20)] if asked.quick else [(1000, 20), (5000, 50)]
            for case in cases:
                if not (
                    case.is_path or case.name.endswith("CV") or case.name in ("LinearRegression", "QuantileRegressor")
                ):
                    for n, d in sizes:
                        results.looser.append(measure_looser(case, n, d, effort))
                        print(results.looser[-1], file=sys.stderr, flush=True)
        if "rows" in asked.sections:
            for case in cases:
                if case.label in ONE_ROW:
                    for row in measure_row(case, Effort(50 if asked.quick else 1000, math.inf, clock)):
                        results.rows.append(row)
                        print(row, file=sys.stderr, flush=True)
    return results


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def options() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write DEFAULTS.md, DEFAULTS.csv and docs/performance.md")
    parser.add_argument("--quick", action="store_true", help="few tables and repetitions, under a minute")
    parser.add_argument(
        "--sizes", type=_words, default=(), help=f"of {', '.join(data.GROUPS)}; x for ×, or a beginning"
    )
    parser.add_argument("--kinds", type=_words, default=(), help=f"of {', '.join((*data.KINDS, *data.FORMS))}")
    parser.add_argument("--tables", type=_words, default=(), help="names of bundled tables")
    parser.add_argument("--estimators", type=_words, default=(), help="names; a name stands for all its cases")
    parser.add_argument("--sections", type=_words, default=SECTIONS, help="of fits, looser, rows")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--seconds", type=float, default=ENOUGH_SECONDS, help="per cell")
    parser.add_argument("--clock", choices=list(CLOCKS), default="wall")
    parser.add_argument("--cap", type=float, default=CAP, help="limit of a fit in seconds")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the summary, write it where asked."""
    from benchmarks import defaults_report as report

    asked = options().parse_args(arguments)
    start = time.perf_counter()
    results = run(asked)
    text = report.summary(results)
    print(text)
    print(f"{time.perf_counter() - start:.0f} s", file=sys.stderr)
    if asked.write:
        report.write(results, " ".join(["python -m benchmarks.defaults", *(arguments or sys.argv[1:])]))
    return 1 if any(cell.missed for cell in results.cells) else 0


if __name__ == "__main__":
    sys.exit(main())
