"""The claims of Section 7 of the paper, each as a test of the measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from dualnewton.lab._numbers import chain, count, seconds
from dualnewton.lab.report import Claim
from dualnewton.lab.sets import Posed
from dualnewton.lab.watched import Watched
from dualnewton.samplings import Nice
from dualnewton.solvers import METHODS

GROWS = 2.0
"""Factor from the smallest to the largest τ above which a cost counts as growing; above the noise of timings."""

HARDLY = 2.0
"""Largest ratio of the costs over all τ > 1 that counts as "hardly growing"; within the noise of timings."""

SAME = 1e-9
"""Largest relative difference of two dual points that counts as rounding error, accumulated over thousands of rounds."""


def fewer_epochs(posed: Posed, runs: Sequence[Watched], level: float) -> Claim:
    """Test the claim "As τ increases, SDNA requires less passes over data"."""
    taken = [run.first(level) for run in runs]
    never_more = all(after <= before for before, after in pairwise(taken))
    return Claim(
        "As τ grows, SDNA needs fewer epochs",
        posed.name,
        None if math.isinf(taken[-1]) else never_more and taken[-1] < taken[0],
        _epochs(runs, taken, level),
        "" if never_more else "the counts are random and differ little: larger sets do not help much on these rows",
    )


def more_epochs(posed: Posed, runs: Sequence[Watched], level: float) -> Claim:
    """Test the claim "while SDCA requires more passes over data"."""
    taken = [run.first(level) for run in runs]
    return Claim(
        "As τ grows, SDCA needs more epochs",
        posed.name,
        None
        if math.isinf(taken[0])
        else all(after >= before for before, after in pairwise(taken)) and taken[-1] > taken[0],
        _epochs(runs, taken, level),
    )


def _epochs(runs: Sequence[Watched], taken: Sequence[float], level: float) -> str:
    shown = (f"{count(value, run.epoch[-1])} (τ = {run.tau})" for run, value in zip(runs, taken, strict=True))
    return f"epochs to a relative gap of {level:g}: {chain(shown)}"


def coincide(posed: Posed, rounds: int, seed: int) -> Claim:
    """Test that the methods coincide for τ = 1: run both reference implementations, whose formulas differ, on equal draws."""
    block = Nice(posed.problem.n, 1).draw(np.random.default_rng(seed), rounds)
    points = []
    for name in ("sdna", "sdca"):
        solver = METHODS[name](posed.problem, Nice(posed.problem.n, 1))
        solver.run(block)
        points.append(solver.alpha)
    apart = float(np.abs(points[0] - points[1]).max() / np.abs(points[0]).max())
    return Claim(
        "SDNA and SDCA coincide for τ = 1",
        posed.name,
        apart <= SAME,
        f"after {rounds} rounds the dual points differ by {apart:.0e}, relatively",
    )


def cost_grows(posed: Posed, costs: Mapping[int, float]) -> Claim:
    """Test the claim that an epoch of SDNA costs more as τ increases."""
    first, last = costs[min(costs)], costs[max(costs)]
    return Claim(
        "An epoch of SDNA costs more as τ grows",
        posed.name,
        last >= GROWS * first,
        f"{_costs(costs)}, a factor of {last / first:.3g} ({GROWS:g} counts as growth)",
    )


def cost_hardly_grows(posed: Posed, costs: Mapping[int, float]) -> Claim:
    """Test the claim that the work of SDCA nearly does not increase with τ."""
    sets = {tau: cost for tau, cost in costs.items() if tau > 1}
    spread = max(sets.values()) / min(sets.values())
    return Claim(
        "An epoch of SDCA hardly costs more as τ grows",
        posed.name,
        spread <= HARDLY and costs[max(costs)] <= 2.0 * HARDLY * costs[min(costs)],
        f"{_costs(costs)}; from τ = {min(sets)} on within a factor of {spread:.3g} ({HARDLY:g} counts as hardly)",
        "τ = 1 uses a different kernel, which does not gather sets" if 1 in costs else "",
    )


def _costs(costs: Mapping[int, float]) -> str:
    some = sorted({min(costs), sorted(costs)[len(costs) // 2], max(costs)})
    return chain(f"{seconds(costs[tau])} (τ = {tau})" for tau in some)


def interior(posed: Posed, how: str, epochs: Mapping[int, float], times: Mapping[int, float]) -> Claim:
    """Test the claim that the runtime of SDNA improves up to some τ and then deteriorates.

    ``how`` names the implementation of the rounds; for each τ, ``epochs`` and ``times`` are those until the gap reached the
    goal.
    """
    statement = f"The runtime of SDNA is best at a τ between the smallest and the largest ({how})"
    if not any(math.isfinite(value) for value in times.values()):
        return Claim(statement, posed.name, None, "no run reached the goal")
    best = min(times, key=times.__getitem__)
    shown = chain(f"{seconds(value)} (τ = {tau})" for tau, value in times.items())
    inside = min(times) < best < max(times)
    return Claim(
        statement,
        posed.name,
        inside,
        f"{shown}; best at τ = {best}",
        "" if inside else _why(posed, epochs, times, best),
    )


def _why(posed: Posed, epochs: Mapping[int, float], times: Mapping[int, float], best: int) -> str:
    """Explain why the best τ is at an end of the grid: compare the epochs of the second best τ, and the cost of each."""
    if best >= posed.problem.d:
        return f"probable reason, not measured: for τ above d = {posed.problem.d} a block is solved in d variables"
    rivals = {tau: value for tau, value in times.items() if tau != best and math.isfinite(value)}
    if not rivals:
        return ""
    rival = min(rivals, key=rivals.__getitem__)
    few, many = epochs[rival], epochs[best]
    cost_ratio = (times[rival] / few) / (times[best] / many)
    less = f"against τ = {best}, τ = {rival} needs {few / many:.2g} times the epochs"
    return f"{less}, and each of them costs {cost_ratio:.2g} times as much"
