"""``dualnewton fit``: fit a model to a file, and certify it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task
    from dualnewton.cli._tables import Training
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.interop.offsets import OffsetColumn
    from dualnewton.io import Dataset
    from dualnewton.objective.choice import ChoiceCertificate
    from dualnewton.run.result import Result

REMEDIES = {
    "EPOCH_LIMIT": "a higher --max-epochs gets closer; features of about equal scale and --method auto often help",
    "TIME_LIMIT": "a higher --time-limit gets closer",
    "ROUNDING": "features of about equal scale, float64 data or a larger --tol help",
    "NO_PROGRESS": "rounding prevents a smaller gap; features of about equal scale help",
}
"""Advice for each status in which a run ends above --tol."""

DONE = ("CONVERGED", "ROUNDING", "NO_PROGRESS")
"""Statuses after which the checkpoint is removed; after the others a run with a higher limit resumes from it."""

Test = Annotated[str | None, options.option("--test", "DATA", "Other data, for a score.", options.DATA)]
TestSize = Annotated[
    float | None,
    options.option(
        "--test-size", "SHARE", "Hold out this share of the rows, chosen at random, for a score.", options.DATA
    ),
]
Folds = Annotated[
    int | None,
    options.option(
        "--cv",
        "FOLDS",
        "Choose lambda by cross-validation with this number of folds, and certify the choice (losses logistic and squared; "
        "a choice for poisson, gamma and tweedie is made, but cannot be proved).",
        options.OBJECTIVE,
    ),
]
Out = Annotated[str | None, options.option("--out", "MODEL", "The file to save the model in.")]
Checkpoint = Annotated[
    str | None,
    options.option(
        "--checkpoint",
        "FILE",
        "Keep the state of the run here: the same command continues from it after a crash or Ctrl-C. "
        "It is removed when the fit has ended and the model is saved.",
        options.RUN,
    ),
]


@options.with_groups
def fit(
    ctx: typer.Context,
    data: options.Data,
    out: Out = None,
    roles: options.Roles = options.ROLE_DEFAULTS,
    test: Test = None,
    test_size: TestSize = None,
    table: options.Table = options.TABLE_DEFAULTS,
    objective: options.Objective = options.OBJECTIVE_DEFAULTS,
    cv: Folds = None,
    tol: options.Tol = 1e-6,
    time_limit: options.TimeLimit = None,
    max_epochs: options.MaxEpochs = 1000,
    method: options.Method = "auto",
    threads: options.Cores = None,
    seed: options.Seed = 0,
    checkpoint: Checkpoint = None,
    dask: options.Dask = None,
) -> None:
    """Fit a linear model to DATA, and prove how good the fit is.

    The model minimises P(w, b) = (1/n) sum of losses + lambda * penalty. The run stops when a certificate, a primal and a
    dual value computed from the data, proves that P is within the relative gap --tol of its minimum. Ctrl-C and the limits end
    it earlier, with the best model so far and the gap that is proved for it.

    DATA may be a table (CSV, Parquet) with columns of any kind. Numbers and dates are standardised, categories become columns
    of 0 and 1, missing values are replaced and marked; identifiers are left out. The certificate is about the fit on this encoded
    matrix. The model file holds the encoding, which `predict`, `evaluate` and `certify` apply again.

    For example:

        dualnewton fit breast_cancer --out cancer.model
        dualnewton fit iris --loss squared_hinge -C 10 --test iris
        dualnewton fit diabetes --penalty elasticnet --lam 0.1 --tol 1e-8
        dualnewton fit motor:2000 --loss poisson --lam 1e-3
    """
    from dualnewton.cli import _cluster, _output, _tables
    from dualnewton.cli._data import read_options
    from dualnewton.cli._problems import problems_from
    from dualnewton.matrix.workers import physical_cores
    from dualnewton.run.result import Status

    if test is not None and test_size is not None:
        raise DualnewtonError(
            f"--test and --test-size both name the data of the score: give one of them, got {test} and {test_size:g}"
        )
    _output.ready(out)
    with _cluster.connected(dask) as cluster:
        with ended_by_signals():
            wanted, added = read_options(roles)
            training = _tables.training_data(data, wanted, table, added, test_size, seed)
            training = replace(training, dataset=cluster.placed(training.dataset))
            dataset = training.dataset
            task = problems_from(dataset, **objective)
            # Errors in the test data are reported before the fit.
            tested = (
                training.held_out if test is None else other_data(task, training, test, roles["target"], added, table)
            )
            n_threads = physical_cores() if threads is None else threads
            choice = None
            if cv is not None:
                given = cv, n_threads, seed, cluster.estimators
                task, choice = with_chosen_lam(task, dataset, objective, *given)
            settings = {"method": method, "time_limit": time_limit, "max_epochs": max_epochs, "n_threads": n_threads}
            more = {} if checkpoint is None else {"checkpoint": checkpoint}
            results = solved(task, tol=tol, random_state=seed, **settings, **more)
        with unmoved_by_signals():
            model = model_of(task, training, results, roles["target"], added, ctx.obj)
            if out is not None:
                save(model, out, checkpoint)
        _tables.describe(training)
        if dask is not None:
            _output.say("cluster", cluster)
        describe(task, training, results, choice, offset=added, checkpoint=checkpoint)
        _output.say("train", score(model, dataset))
    if tested is not None:
        _output.say("test", f"{score(model, tested)} on {tested.X.shape[0]} {'other' if test else 'held-out'} examples")
    describe_files(out, checkpoint)
    if any(result.status is Status.INTERRUPTED for result in results):
        raise typer.Exit(130)


def solved(task: Task, *, tol: float, **settings: Any) -> list[Result]:
    """Solve with a progress bar."""
    from dualnewton.cli._progress import progress
    from dualnewton.run.loop import solve_many

    with progress("fit", tol) as bar:
        load_compiler(task, settings["method"])
        return solve_many(task.problems, tol=tol, callback=bar, **settings)


def load_compiler(task: Task, method: str) -> None:
    """Import Numba if the plan has compiled kernels, before the time of the fit begins."""
    import importlib

    from dualnewton.planning.planner import plan

    problem = task.problems[0] if task.objective.is_penalised else task.problems[0].weak  # with which a fit begins
    if plan(problem, method=method, models=len(task.problems)).compiled:
        importlib.import_module("dualnewton.kernels._compiler")


def with_chosen_lam(
    task: Task, dataset: Dataset, objective: options.Objective, cv: int, threads: int, seed: int, estimators: Any
) -> tuple[Task, ChoiceCertificate]:
    """Return the task with the lambda that cross-validation chooses, and the certificate of the choice."""
    from dualnewton.cli._problems import problems_from
    from dualnewton.cli._selection import chosen_lam
    from dualnewton.cli._transfer import stage

    if objective["C"] is not None or objective["lam"] is not None:
        raise DualnewtonError("--cv chooses lambda: leave out -C and --lam")
    with stage(f"choosing lambda by {cv}-fold cross-validation"):
        lam, choice = chosen_lam(task, dataset, cv, threads, seed, estimators)
    return problems_from(dataset, **{**objective, "lam": lam}), choice


def model_of(
    task: Task,
    training: Training,
    results: Sequence[Result],
    target: str | None,
    offset: OffsetColumn | None,
    command: str,
) -> SavedModel:
    """Return the model to be saved."""
    import numpy as np

    from dualnewton.interop.model_file import SavedModel

    return SavedModel(
        coef=np.vstack([result.w for result in results]).astype(np.float64),
        intercept=np.hstack([result.intercept for result in results]).astype(np.float64),
        objective=task.objective,
        classes=task.classes,
        certificates=tuple(result.certificate for result in results),
        status=tuple(result.status.name for result in results),
        plan=str(results[0].plan),
        n=training.dataset.X.shape[0],
        feature_names=training.dataset.feature_names,
        target=target,
        offset=offset,
        table=training.encoding,
        command=command or "",
    )


def save(model: SavedModel, out: str, checkpoint: str | None) -> None:
    """Save the model, and remove the checkpoint if no higher limit could improve the model."""
    from dualnewton.cli._output import writing

    with writing(out):
        model.save(out)
    if checkpoint is not None and all(status in DONE for status in model.status):
        Path(checkpoint).unlink(missing_ok=True)


def other_data(
    task: Task,
    training: Training,
    source: str,
    target: str | None,
    offset: OffsetColumn | None,
    table: options.Table,
) -> Dataset:
    """Read and check the data for the test score."""
    from dualnewton.cli._data import Columns
    from dualnewton.cli._problems import problems_of
    from dualnewton.cli._tables import data_for
    from dualnewton.io.source import ReadOptions

    columns = Columns(training.dataset.X.shape[1], training.dataset.feature_names, offset=offset)
    tested = data_for(training.encoding, columns, source, ReadOptions(target), table).dataset
    problems_of(task.objective, tested, task.classes)
    return tested


def describe(
    task: Task,
    training: Training,
    results: Sequence[Result],
    choice: ChoiceCertificate | None,
    *,
    offset: OffsetColumn | None,
    checkpoint: str | None,
) -> None:
    """Print the problem, the status, the certificate and the plan."""
    from dualnewton.cli._output import certificate_lines, count, say

    dataset = training.dataset
    n, d = dataset.X.shape
    classes = "" if task.classes is None else f", {len(task.classes)} classes"
    say("data", f"{dataset.name}: {count(n, 'example')}, {count(d, 'feature')}{classes}")
    say("target", target_line(task, dataset))
    if offset is not None:
        say("offset", offset)
    say("objective", f"{task.objective} ({task.objective.loss} {task.why})")
    if choice is not None:
        say("choice", choice)
    worst = max(results, key=lambda result: result.certificate.relative_gap)
    remedy = REMEDIES.get(worst.status.name)
    if worst.status.name == "INTERRUPTED":
        remedy = continuation(checkpoint)
    say("status", f"{worst.status.name}: {worst.status.message}" + (f"; {remedy}" if remedy else ""))
    for key, line in certificate_lines([result.certificate for result in results], task.names):
        say(key, line)
    if training.encoding is not None:
        say("", "it covers the fit on the encoded matrix: columns as described above")
    seconds = max(result.trace.rows[-1].seconds for result in results)
    say("effort", f"{count(max(result.n_epochs for result in results), 'epoch')}, {seconds:.3g} s")
    say("plan", results[0].plan)


def continuation(checkpoint: str | None) -> str:
    """Return what a repetition of an interrupted command will do."""
    if checkpoint is None:
        return "the same command starts again from the beginning; with --checkpoint FILE it would continue"
    if not Path(checkpoint).exists():
        return "no checkpoint was written yet, so that the same command starts again from the beginning"
    return "the same command continues from the checkpoint"


def describe_files(out: str | None, checkpoint: str | None) -> None:
    """Print where the model and the checkpoint are."""
    from dualnewton.cli._output import say

    say(
        "model",
        f"saved in {out}; `dualnewton coefficients {out}` lists it" if out else "not saved; --out FILE saves it",
    )
    if checkpoint is not None and Path(checkpoint).exists():
        say("checkpoint", f"{checkpoint}, from which the same command continues")


def target_line(task: Task, dataset: Dataset) -> str:
    """Return a description of the target: its column, and its classes with their numbers of examples, or its range."""
    import numpy as np

    from dualnewton.interop.labels import listed, tidy

    name = "" if dataset.target is None else f"{dataset.target}: "
    y = tidy(dataset.y)
    if task.classes is None:
        return f"{name}numbers from {np.min(y):g} to {np.max(y):g}"
    counts = dict(zip(*(each.tolist() for each in np.unique(y, return_counts=True)), strict=True))
    return f"{name}classes " + listed([f"{label} ({counts[label]})" for label in task.names])


def score(model: SavedModel, dataset: Dataset) -> str:
    """Return the score as text."""
    value = model.score(dataset.X, dataset.y, dataset.sample_weight, offset=dataset.offset)
    name = "accuracy" if model.classes is not None else "R2" if model.objective.power is None else "D2"
    return f"{name} {value:.4f}"


@contextlib.contextmanager
def handled(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """Install a handler of signals, and restore the earlier ones at the end."""
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)


ended_by_signals = partial(handled, signal.default_int_handler, signal.SIGTERM)
"""Handle SIGTERM as Ctrl-C; a process that ignores Ctrl-C (nohup) still ignores it."""

unmoved_by_signals = partial(handled, signal.SIG_IGN, signal.SIGINT, signal.SIGTERM)
"""Ignore signals, so that a second Ctrl-C does not interrupt the writing of the model."""
