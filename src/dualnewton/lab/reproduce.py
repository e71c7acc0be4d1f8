"""The reproduction of Example 2.3 and Section 7 as one report."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence

from dualnewton.errors import DualnewtonError
from dualnewton.lab import example, figure1, figure2, figure3
from dualnewton.lab.figures import Grid
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Report
from dualnewton.lab.report.environment import environment
from dualnewton.lab.sets import Posed, posed
from dualnewton.lab.watched import DEFAULT, NICE, Limits, watch

FIGURES = {"figure1": figure1, "figure2": figure2, "figure3": figure3}

PARTS = ("example", *FIGURES)
"""The parts that can be reproduced, in the order of the paper."""


def chosen_parts(part: str) -> Sequence[str]:
    """Return the parts that the argument names."""
    if part not in (*PARTS, "all"):
        raise DualnewtonError(f"the part to reproduce must be one of {', '.join((*PARTS, 'all'))}, got {part!r}")
    return PARTS if part == "all" else (part,)


def reproduce(
    part: str = "all", *, quick: bool = False, seed: int = 0, loss: str = "squared", command: str = ""
) -> Report:
    """Run one or all of the paper's experiments.

    The paper does not name the loss. ``quick`` makes data and runs small; ``command`` is the command line that repeats the
    report.
    """
    parts = chosen_parts(part)
    began = time.perf_counter()
    wanted = [name for name in parts if name in FIGURES]
    sets, missing = posed(loss, quick=quick) if wanted else ([], [])
    grids = {name: FIGURES[name].QUICK if quick else FIGURES[name].FULL for name in wanted}
    total = sum(grid.weight(sets) for grid in grids.values()) + example.weight(quick) * ("example" in parts)
    with Steps(total) as steps:
        if wanted:
            steps.begin("compiling kernels", weight=0.0)
            warm_up(sets, grids.values())
        sections = [
            FIGURES[name].run(sets, steps, seed, quick=quick)
            if name in FIGURES
            else example.run(steps, seed, quick=quick)
            for name in parts
        ]
    if quick:
        missing.append("A quick run with small data and few epochs. Without --quick the sizes are those of the paper.")
    return Report(
        "Stochastic Dual Newton Ascent: the paper's experiments",
        "Example 2.3 and Section 7 of Qu, Richtárik, Takáč and Fercoq (ICML 2016), run in "
        f"{time.perf_counter() - began:.0f} s. "
        f"λ = 1/n, g(w) = ½‖w‖², {loss} loss (the paper does not name its loss), seed {seed}, one thread.",
        sections,
        command,
        missing,
        environment(),
    )


def warm_up(sets: Sequence[Posed], grids: Iterable[Grid]) -> None:
    """Run an epoch of every kernel that will be timed, so that it is compiled: every method, with τ = 1 and with τ > 1."""
    methods = dict.fromkeys(method for grid in grids for method in grid.methods)
    for one, method, order, tau in itertools.product(sets, methods, (NICE, DEFAULT), (1, 4)):
        watch(one.problem, method, tau, order, Limits(0.0, 1))
