"""The theory on the user's problem: rates, bounds on the epochs, and measured epochs."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from dualnewton import theory
from dualnewton.errors import DualnewtonError
from dualnewton.files.replacing import replacing
from dualnewton.lab._numbers import MISSING, count
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Table
from dualnewton.lab.watched import NICE, Limits, watch
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Nice
from dualnewton.validation import integer


@dataclass(frozen=True)
class Row:
    """The rates, bounds and measurements for one τ."""

    tau: int
    # The rates of ``theory.rates``; σ₁ for quadratic losses and few examples only.
    theta: float
    sigma1_prox: float | None
    sigma1: float | None
    # Upper bounds on the epochs to the relative gap by Theorems 6 and 8.
    sdna_bound: float
    sdca_bound: float
    # Measured epochs until the certified gap was reached; None if it was not.
    sdna_epochs: float | None
    sdca_epochs: float | None


def taus_of(text: str, n: int) -> list[int]:
    """Parse a comma-separated list of τ ≤ n, such as "1,8,32"."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        raise DualnewtonError(
            f"--tau must be whole numbers with commas between them, such as 1,8,32, got {text!r}"
        ) from None
    return [integer("--tau", tau, 1, n) for tau in dict.fromkeys(found)]


def forecast(problem: Problem, taus: Sequence[int], limits: Limits, seed: int = 0) -> list[Row]:
    """Compute the rates for τ-nice samplings, and run both methods with them.

    The problem has a smooth loss and no intercept. The goal of the limits is the certified relative gap ε of
    ``theory.epochs_to``.
    """
    rows, goal = [], limits.goal
    with Steps(3.0 * len(taus)) as steps:
        for tau in taus:
            steps.begin(f"rates for τ = {tau}")
            bound = theory.epochs_to(problem, Nice(problem.n, tau), goal)
            epochs = {}
            for method in ("sdna", "sdca"):
                tell = steps.begin(f"{method.upper()}, τ = {tau}", goal)
                taken = watch(problem, method, tau, NICE, limits, seed, tell).first(goal)
                epochs[method] = taken if math.isfinite(taken) else None
            rates = bound.rates
            rows.append(
                Row(
                    tau,
                    rates.theta,
                    rates.sigma1_prox,
                    None if rates.sigma1 is None else float(rates.sigma1),
                    bound.sdna,
                    bound.sdca,
                    epochs["sdna"],
                    epochs["sdca"],
                )
            )
    return rows


MEANING = (
    "θ and σ₁ᵖʳᵒˣ are proved lower bounds on the fraction by which one round of SDCA and of SDNA reduces the expected error; "
    "a round visits τ examples. A bound is the number of epochs (n visits) after which Theorem 6 (SDNA) or 8 (SDCA) guarantees "
    "the gap in expectation. Measured is the number of epochs after which the certificate of a run with i.i.d. τ-nice sets "
    "reached the gap. Measured epochs are often far below the bounds."
)


def table(rows: Sequence[Row], relative_gap: float) -> Table:
    """Return the rows as a table of text."""

    def rate(value: float | None) -> str:
        return MISSING if value is None else f"{value:.3g}"

    def epochs(value: float | None) -> str:
        return "not reached" if value is None else count(value)

    quadratic = any(row.sigma1 is not None for row in rows)
    columns = ["τ", "θ", "σ₁ᵖʳᵒˣ", *(["σ₁"] if quadratic else [])]
    return Table(
        f"Epochs to a relative gap of {relative_gap:g}",
        (*columns, "SDNA bound", "SDNA measured", "SDCA bound", "SDCA measured"),
        [
            [
                str(row.tau),
                rate(row.theta),
                rate(row.sigma1_prox),
                *([rate(row.sigma1)] if quadratic else []),
                count(row.sdna_bound),
                epochs(row.sdna_epochs),
                count(row.sdca_bound),
                epochs(row.sdca_epochs),
            ]
            for row in rows
        ],
        MEANING,
    )


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows as values for JSON."""
    return [asdict(row) for row in rows]


def write(rows: Sequence[Row], path: str) -> None:
    """Write the rows as CSV; a value that is None stays empty."""
    with replacing(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows(asdict(row).values() for row in rows)
