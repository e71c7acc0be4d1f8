"""The methods that can solve a problem, by the declarations of its loss, regulariser and data."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses import Curvature, Loss
from dualnewton.objective.problem import Problem
from dualnewton.planning.tuning import DEFAULT, Tuning


def is_joint(problem: Problem) -> bool:
    """Whether the losses are quadratic in several columns, whose coefficients of a feature are updated jointly
    (``solvers/prox/joint.py``).
    """
    return problem.columns > 1 and problem.loss.curvature is Curvature.CONSTANT


def has_hessian(problem: Problem) -> bool:
    """Whether the penalty is (λ/2) Σ v_j w_j² (with v = 1 for several columns), as Newton's method and its sketch need."""
    form = problem.regularizer.form
    if is_joint(problem):
        return False
    return form.is_quadratic if problem.columns == 1 else form.is_plain


def is_piecewise_linear(loss: Loss) -> bool:
    """Whether a loss of one column has ``pieces``, whatever the label."""
    try:
        return _has_pieces(loss)
    except TypeError:  # a loss with parameters that have no hash, such as arrays
        return _has_pieces.__wrapped__(loss)


@lru_cache
def _has_pieces(loss: Loss) -> bool:
    """Compute it once for each loss: every small fit needs it, and the pieces take longer than its other decisions."""
    return loss.pieces(np.ones(1)) is not None


def methods_for(problem: Problem, tuning: Tuning = DEFAULT) -> tuple[str, ...]:
    """Return the methods among which "auto" may choose, for this loss, this penalty and these data.

    The predicted rate of dual methods needs γ: without it they are chosen only if no primal method applies.
    """
    form = problem.regularizer.form
    able = problem.loss.has_dual_rounds and problem.data.capabilities.random_rows
    able = able and (problem.loss.gamma is not None or form.is_general)
    if problem.columns > 1 and (form.joint or is_joint(problem)):
        return ("newton",) if is_joint(problem) and (form.joint or form.is_plain) else ()
    dual = ("sdna",) if able and problem.regularizer.strongly_convex else ()
    if has_hessian(problem):
        fits = problem.columns == 1 or (problem.d + 1) * problem.columns <= tuning.largest_matrix
        return (*dual, "newton", "ihs") if fits else (*dual, "ihs")
    return dual if form.is_general else (*dual, "newton")


def primal_methods(problem: Problem) -> tuple[str, ...]:
    """Return the methods for a problem whose loss has several columns; raise an error if no method can solve it."""
    if not (own := methods_for(problem)):
        raise DualnewtonError(
            "regularizer must be L2(), JointElasticNet() or JointL1() for SquaredOutputs (with others, each output is a "
            "separate problem), and must not "
            f"join the columns of other losses, got {problem.regularizer!r} for {problem.loss!r}"
        )
    return own
