"""Piecewise linear losses by dual rounds without smoothing: eligibility and predicted cost."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.planning.tuning import DEFAULT, Tuning

METHODS = ("sdna", "sdca")
"""The methods whose rounds solve a piecewise linear loss without smoothing; all others solve smoothed losses."""


def takes_rounds(problem: Problem, method: str) -> bool:
    """Whether dual rounds solve the problem without smoothing its kinked loss."""
    able = problem.data.capabilities.random_rows and problem.regularizer.strongly_convex
    return method in METHODS and problem.loss.kinked and able and problem.pieces is not None


def expected_rounds(problem: Problem, tuning: Tuning = DEFAULT) -> float:
    """Predict the epochs of dual rounds on a piecewise linear loss to a relative gap of 1e-4.

    The conditioning is R/(λn), R the mean of c_i‖a_i‖²: an error of one in a margin changes a dual variable by λn/(c_i‖a_i‖²).
    With joint steps by conjugate gradients the epochs grow with its square root.
    """
    with np.errstate(over="ignore"):
        # The norms of all rows, not of a sample: the rounds need them, too.
        sizes = problem.norms if problem.sample_weight is None else problem.c * problem.norms
        conditioning = min(float(sizes.mean()) / (problem.lam * problem.n), tuning.largest_conditioning)
    return tuning.kinked_rounds_fixed + tuning.kinked_rounds_per_root * math.sqrt(conditioning)


def rounds_cost(problem: Problem, tuning: Tuning = DEFAULT) -> float:
    """Predict the seconds of dual rounds on a piecewise linear loss to a relative gap of 1e-4.

    An epoch includes its share of joint steps, which read their rows in order and cost about as much as the visits.
    """
    costs = Costs.of(problem.data.profile, tuning)
    return expected_rounds(problem, tuning) * costs.epoch + tuning.certificate_passes * costs.data_pass


def solves_system(costs: Costs, free: int, epochs: float) -> bool:
    """Whether the linear system of the free examples costs no more than ``late_kink_factor`` times the epochs so far."""
    tuning = costs.tuning
    return free <= tuning.repeated_matrix and costs.gram(free) <= tuning.late_kink_factor * epochs * costs.epoch
