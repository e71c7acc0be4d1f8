"""``dualnewton fit``: fit a model to a file, and certify it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualnewton.cli import _options as options

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.io import Dataset
    from dualnewton.run.result import Result

SIGNALS = (signal.SIGINT, signal.SIGTERM)

REMEDIES = {
    "EPOCH_LIMIT": "raise --max-epochs or --tol",
    "TIME_LIMIT": "raise --time-limit or --tol",
    "INTERRUPTED": "repeat the command",
    "NO_PROGRESS": "raise --tol, or bring the features to about equal scale",
}
"""Advice for each status in which a run ends above --tol."""

DONE = ("CONVERGED", "NO_PROGRESS")
"""Statuses after which the checkpoint is removed; after the others a run with a higher limit resumes from it."""

Test = Annotated[str | None, options.option("--test", "DATA", "Other data, for a score.", options.FROM)]
Out = Annotated[str | None, options.option("--out", "MODEL", "The file to save the model in.")]
Checkpoint = Annotated[
    str | None,
    options.option(
        "--checkpoint",
        "FILE",
        "Keep the state of the run here: the same command goes on from it after a crash or Ctrl-C. "
        "It is removed once the fit is done and the model is saved.",
        options.RUN,
    ),
]


@options.with_objective
def fit(
    ctx: typer.Context,
    data: options.Data,
    out: Out = None,
    target: options.Target = None,
    weights: options.Weights = None,
    test: Test = None,
    objective: options.Objective = options.UNASKED,
    tol: options.Tol = 1e-6,
    time_limit: options.TimeLimit = None,
    max_epochs: options.MaxEpochs = 1000,
    method: options.Method = "auto",
    threads: options.Cores = None,
    seed: options.Seed = 0,
    checkpoint: Checkpoint = None,
) -> None:
    """Fit a linear model to DATA, and prove how good the fit is.

    The model minimises P(w, b) = (1/n) sum of losses + lambda * penalty. The run stops when a certificate, a primal and a
    dual value computed from the data, proves that P is within the relative gap --tol of its minimum. Ctrl-C and the limits end
    it earlier, with the best model so far and the gap that is proved for it.

    For example:

        dualnewton fit breast_cancer --out cancer.model
        dualnewton fit iris --loss squared_hinge -C 10 --test iris
        dualnewton fit diabetes --penalty elasticnet --lam 0.1 --tol 1e-8
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import loaded
    from dualnewton.cli._problems import problems_from
    from dualnewton.matrix.workers import physical_cores
    from dualnewton.run.result import Status

    _output.ready(out)
    with ended_by_signals():
        dataset = loaded(data, target=target, weights=weights)
        task = problems_from(dataset, **objective)
        # Errors in the test data are reported before the fit.
        tested = None if test is None else other_data(task, dataset, test, target)
        n_threads = physical_cores() if threads is None else threads
        settings = {"method": method, "time_limit": time_limit, "max_epochs": max_epochs, "n_threads": n_threads}
        more = {} if checkpoint is None else {"checkpoint": checkpoint}
        results = solved(task, tol=tol, random_state=seed, **settings, **more)
    with unmoved_by_signals():
        model = model_of(task, dataset, results, target, ctx.obj)
        if out is not None:
            with _output.writing(out):
                model.save(out)
            if checkpoint is not None and all(result.status.name in DONE for result in results):
                Path(checkpoint).unlink(missing_ok=True)
    describe(task, dataset, results)
    _output.say("train", score(model, dataset))
    if tested is not None:
        _output.say("test", f"{score(model, tested)} on {tested.X.shape[0]} other examples")
    _output.say("model", f"saved in {out}" if out else "not saved; --out FILE would do so")
    if checkpoint is not None and Path(checkpoint).exists():
        _output.say("checkpoint", f"{checkpoint}, from which the same command goes on")
    if any(result.status is Status.INTERRUPTED for result in results):
        raise typer.Exit(130)


def solved(task: Task, *, tol: float, **settings: Any) -> list[Result]:
    """Solve with a progress bar."""
    from dualnewton.cli._progress import progress
    from dualnewton.run.loop import solve_many

    with progress("fit", tol) as bar:
        return solve_many(task.problems, tol=tol, callback=bar, **settings)


def model_of(task: Task, dataset: Dataset, results: Sequence[Result], target: str | None, command: str) -> SavedModel:
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
        n=dataset.X.shape[0],
        feature_names=dataset.feature_names,
        target=target,
        command=command or "",
    )


def other_data(task: Task, dataset: Dataset, source: str, target: str | None) -> Dataset:
    """Read and check the data for the test score."""
    from dualnewton.cli._data import Columns
    from dualnewton.cli._problems import problems_of

    tested = Columns(dataset.X.shape[1], dataset.feature_names, target).read(source)
    problems_of(task.objective, tested, task.classes)
    return tested


def describe(task: Task, dataset: Dataset, results: Sequence[Result]) -> None:
    """Print the problem, the status, the certificate and the plan."""
    from dualnewton.cli._output import certificate_lines, say

    n, d = dataset.X.shape
    classes = "" if task.classes is None else f", {len(task.classes)} classes"
    say("data", f"{dataset.name}: {n} examples, {d} features{classes}")
    say("objective", f"{task.objective} ({task.objective.loss} {task.why})")
    worst = max(results, key=lambda result: result.certificate.relative_gap)
    remedy = REMEDIES.get(worst.status.name)
    closer = f"; to get closer, {remedy}" if remedy else ""
    say("status", f"{worst.status.name}: {worst.status.message}{closer}")
    for key, line in certificate_lines([result.certificate for result in results], task.names):
        say(key, line)
    seconds = max(result.trace.rows[-1].seconds for result in results)
    say("effort", f"{max(result.n_epochs for result in results):.4g} epochs, {seconds:.3g} s")
    say("plan", results[0].plan)


def score(model: SavedModel, dataset: Dataset) -> str:
    """Return the score in words."""
    value = model.score(dataset.X, dataset.y, dataset.sample_weight)
    return f"{'R2' if model.classes is None else 'accuracy'} {value:.4f}"


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Handle SIGTERM as Ctrl-C; a process that ignores Ctrl-C (nohup) still ignores it."""
    with handled(signal.default_int_handler, signal.SIGTERM):
        yield


@contextlib.contextmanager
def unmoved_by_signals() -> Iterator[None]:
    """Ignore signals, so that a second Ctrl-C does not interrupt the writing of the model."""
    with handled(signal.SIG_IGN, *SIGNALS):
        yield


@contextlib.contextmanager
def handled(handler: Any, *signals: signal.Signals) -> Iterator[None]:
    """Install a handler of signals, and restore the earlier ones at the end."""
    before = {each: signal.signal(each, handler) for each in signals}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)
