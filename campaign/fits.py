"""Random adversarial problems, solved twice: a true certificate, a named status or a named argument, within the limits."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import dualnewton as dn
from campaign.exact import OutOfRange
from campaign.parts import Defect
from campaign.problems import Drawn, drawn
from dualnewton.row_arrays import on_host
from dualnewton.solvers.direct.block import MOST_STEPS, STEP_EPOCHS

LATE, MORE = 1.1, 0.05
"""A fit may take this multiple of its time limit, and so many seconds more."""

STEP, ONE_CALL = 10.0, 400.0
"""A step that has begun is completed; the most epochs that a step takes on small data, and a call that solves all of a fit."""

EXTENDED = 2.0**-10
"""Rounding of sums in 80-bit numbers, by which a proved bound is compared, as a fraction of that in float64."""

TRIES = 4
"""A first fit compiles kernels, which no limit interrupts: a limit counts as missed if it is missed so many times.

A limit may end each try before a kernel that the next one compiles: a fit without a limit comes first.
"""

ARGUMENTS = (
    "X", "y", "loss", "regularizer", "lam", "sample_weight", "offset", "fit_intercept", "method", "tau", "sampling", "tol",
    "max_epochs", "time_limit", "weights", "labels",
)  # fmt: skip
"""A message about an argument has one of these words."""


def refused(error: dn.DualnewtonError) -> str:
    """Check that a refusal names an argument."""
    words = set(str(error).replace("(", " ").replace("=", " ").replace("'", " ").replace(",", " ").split())
    if not words & set(ARGUMENTS):
        raise Defect(f"a refusal names no argument: {error}") from error
    return "refused"


def checked(case: Drawn, result: Any, lam: float, times: float = 1.0) -> str:
    """Check what a result claims; return its status. P − D may exceed the gap by so many times the rounding errors."""
    certificate, tol = result.certificate, case.options["tol"]
    if not (np.isfinite(result.w).all() and np.isfinite(result.intercept).all()):
        raise Defect("the model is not finite")
    if result.status is dn.Status.CONVERGED and not certificate.meets(tol):
        raise Defect(f"CONVERGED with {certificate} for tol {tol:g}")
    if result.status not in (dn.Status.CONVERGED, dn.Status.ROUNDING) and certificate.meets(tol):
        raise Defect(f"{result.status.name} with the relative gap {certificate.relative_gap:.3g} for tol {tol:g}")
    most = case.options["max_epochs"]
    if result.n_epochs > max(most + STEP, ONE_CALL if most >= STEP_EPOCHS * MOST_STEPS else 0.0):
        raise Defect(f"{result.n_epochs:g} epochs for max_epochs {most}")
    if not np.isfinite([certificate.primal, certificate.dual]).all():
        if certificate.primal == np.inf or certificate.dual == -np.inf:
            return "no finite bound"
        raise Defect(f"the certificate is {certificate}")
    objective = replace(case.exact, lam=lam)
    try:
        with np.errstate(all="ignore"):
            true, rounding = objective.claim(result.w, result.intercept, on_host(result.alpha))
    except OutOfRange:
        return "beyond e^690"
    if certificate.rounding is not None:
        rounding = certificate.rounding + EXTENDED * rounding
    if not true <= certificate.gap + times * rounding:
        raise Defect(
            f"P − D is {true:.6g}, the certificate says {certificate.gap:.6g}, rounding explains {rounding:.3g}"
        )
    return result.status.name


def solved(case: Drawn) -> tuple[list[Any], float]:
    """Solve the drawn problem; return the results and the seconds."""
    first = case.make()
    problems = [first if lam == case.several[0] else case.make(lam) for lam in case.several]
    if len(problems) > 1:  # the same X object
        problems = [first, *(replace(first, lam=lam) for lam in case.several[1:])]
    # By processor time, which other processes on a busy machine do not change.
    with mock.patch("time.perf_counter", time.process_time):
        began = time.perf_counter()
        results = dn.solve_many(problems, **case.options)
        return results, time.perf_counter() - began


def bits(results: list[Any]) -> list[bytes]:
    """Return everything that a repeated fit must reproduce."""
    return [
        b"".join(
            np.asarray(on_host(part)).tobytes()
            for part in (found.w, found.intercept, found.alpha, found.certificate.primal)
        )
        for found in results
    ]


def explained_by_the_clock(given: Drawn, took: list[float]) -> bool:
    """Whether a fit reached its time limit and two fits without one have equal bits.

    The point at which the limit ends a fit may meet the tolerance: the status is then CONVERGED, or ROUNDING.
    """
    if max(took) < given.options["time_limit"]:
        return False
    one, other = (bits(solved(unlimited(given))[0]) for _ in range(2))
    return one == other


def unlimited(given: Drawn) -> Drawn:
    """Return the problem without a time limit."""
    return replace(given, options=given.options | {"time_limit": None})


def case(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001
    """Try one random problem in memory or in pieces."""
    return attempted(drawn(seed))


def attempted(given: Drawn, late: float = MORE) -> Counter[str]:
    """Solve a problem twice, and check what is claimed; ``late`` is the excess of a time limit that is allowed, in seconds."""
    allowed = LATE * given.options["time_limit"] + late
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            results, seconds = solved(given)
            again, seconds_again = solved(given)
            took = [seconds, seconds_again]
            if min(took) > allowed:
                solved(unlimited(given))
            while min(took) > allowed and len(took) < TRIES:
                took.append(solved(given)[1])
        except dn.DualnewtonError as error:
            return Counter([refused(error)])
        except Exception as error:
            raise Defect(f"{given.title}: {type(error).__name__}: {error}") from error
    try:
        if min(took) > allowed:
            raise Defect(f"{min(took):.2f} s for time_limit {given.options['time_limit']:g}")
        statuses = [checked(given, result, lam) for result, lam in zip(results, given.several, strict=True)]
        timed = any(result.status is dn.Status.TIME_LIMIT for result in (*results, *again))
        if not timed and bits(results) != bits(again) and not explained_by_the_clock(given, took[:2]):
            raise Defect("two equal fits have different bits")
    except Defect as error:
        raise Defect(f"{given.title}: {error}") from error
    return Counter(statuses)
