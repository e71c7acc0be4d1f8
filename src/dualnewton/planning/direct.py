"""Whether a direct solution (a decomposition, a linear system, one exact step) costs less than iterations."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix.protocol import Data, Profile
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.eligible import has_hessian
from dualnewton.planning.plan import Plan
from dualnewton.planning.small_products import multiplies_entries
from dualnewton.planning.tuning import DEFAULT, Tuning


def direct_plan(problem: Problem, reason: str) -> Plan:
    """Return the plan of a direct solution."""
    return Plan("direct", problem.n, reason)


def decomposes(n: int, d: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether ridge regression is solved by a decomposition of the n×n or d×d matrix, whichever is smaller."""
    return n * d * min(n, d) <= tuning.direct_multiplications


def shares_coordinates(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether all models of a logistic grid are fitted in the coordinates of the span of the rows, fewer than the features."""
    n, d = profile.n, profile.d
    return n < d and n * n * d <= tuning.grid_multiplications and not multiplies_entries(profile, tuning)


def sums_normal_equations(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether least squares without a penalty sums d×d normal equations; else X, made dense, is decomposed."""
    n, d = profile.n, profile.d
    if d > min(n, tuning.largest_matrix):
        return False
    if profile.sparse:
        return n * d > tuning.small_entries
    return d >= tuning.fewest_squared or (n >= tuning.fewest_rows * d and n * d > tuning.small_entries)


def multiplies_rows(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether least squares without a penalty multiplies dense rows with each other, which are fewer than the features."""
    return not profile.sparse and tuning.fewest_squared <= profile.n < profile.d


def begins_by_products(profile: Profile, tuning: Tuning = DEFAULT, *, expands: bool, last: bool) -> int:
    """Return the number of conjugate gradients with which least squares without a penalty begins; 0 for small and for dense data.

    They cost as much as the normal equations or, if X may be made dense (``expands``), its decomposition, which follow where
    these conjugate gradients do not suffice. ``last`` says that nothing can follow.
    """
    n, d, most = profile.n, profile.d, tuning.squares_products
    if last:
        return most
    if not profile.sparse or is_small(tuning, n, d):
        return 0
    costs, seconds = Costs.of(profile, tuning), math.inf
    if sums_normal_equations(profile, tuning):
        seconds = tuning.normal_equations * costs.added(n)
    elif expands:
        seconds = tuning.decomposition * n * d * min(n, d) / costs.tuning.rates.multiply
    products = min(seconds / costs.data_pass, most)
    return int(products) if products >= tuning.fewest_products else 0


def decomposes_folds(smaller: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether cross-validation of least squares solves each fold from a moment matrix of size ``smaller``.

    For larger matrices, passes over the data cost less than a decomposition for every fold.
    """
    return smaller <= tuning.fold_decomposition


def factorises_each(values: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether ridge regression factorises a matrix for each strength instead of computing its eigenvalues for all of them."""
    return values <= tuning.spectrum_factors


def inverts_each(values: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether leave-one-out errors are computed from the inverse of a matrix for each strength, instead of its eigenvalues.

    An inverse has three times the multiplications of a Cholesky factor.
    """
    return factorises_each(3 * values, tuning)


def keeps_moments(d: int, folds: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether cross-validation of multi-task models keeps the d×d moments of all folds in memory."""
    return folds * d * d <= tuning.fold_moments


def gathers_columns(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether paths of multi-task models gather columns of rows, made dense, as features enter: these are more than the rows.

    The moments of few features cost less, and their path is compiled.
    """
    many = profile.d > max(profile.n, tuning.joint_moment_features)
    return many and profile.n * profile.d <= tuning.fold_moments


def fits_values_together(data: Data, models: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether cross-validation fits all values of a penalty in shared passes instead of each from the one before.

    Warm starts save few steps, and where each pass is an exchange of messages, ten values take ten times as many of them one
    after the other (benchmarks/DASK.md). Shared passes cost less as long as the margins of all models fit into memory.
    """
    small = models * data.n <= tuning.shared_margins and models * data.d**2 <= tuning.fold_moments
    return data.capabilities.by_messages and small


def steps_to_folds(data: Data, groups: int, folds: int, tuning: Tuning = DEFAULT, classes: int = 1) -> bool:
    """Whether the models of a value and of its folds take steps from a Hessian that is kept from one value to the next.

    Where each fold has its own, these are sums over groups of rows that are in the same training sets: there must be about as
    many groups as folds. The Hessians must cost no more than the passes that they replace. With more features than rows, other
    methods solve n×n systems, and on small sparse data conjugate gradients need no Hessian at all.
    """
    costs = Costs.of(data.profile, tuning)
    affordable = costs.sketch(costs.n) <= tuning.fold_hessian_passes * costs.data_pass
    few = groups <= folds + 1 or not has_hessian_of_each_fold(data, folds, tuning)
    if multiplies_entries(data.profile, tuning):
        joint = classes > 1 and has_hessian_of_each_fold(data, folds, tuning, classes)
        seconds = sum(_hessians(costs, folds, classes)) if classes > 1 else costs.sketch(costs.n)
        most = tuning.fold_thin_hessian * costs.with_columns(classes * folds).data_pass
        affordable = seconds <= most and (joint or classes == 1)
    return few and costs.d <= min(tuning.repeated_matrix, costs.n) and affordable


def has_hessian_of_each_fold(data: Data, folds: int, tuning: Tuning = DEFAULT, classes: int = 1) -> bool:
    """Whether each fold has a Hessian of its own, of all classes: if the factors take less time than the sums over the rows.

    Those of several classes must cost no more than some passes over all folds. The classes share one otherwise.
    """
    costs = Costs.of(data.profile, tuning)
    sums, factors = _hessians(costs, folds, classes)
    every = costs.with_columns(classes * folds).data_pass
    cheap = factors <= sums if classes == 1 else sums + factors <= tuning.fold_joint_hessians * every
    return classes * costs.d <= tuning.repeated_matrix and cheap


def _hessians(costs: Costs, folds: int, classes: int) -> tuple[float, float]:
    """Return the seconds of the sums over rows for a Hessian of each fold, of all classes, and of their factors."""
    sums = max(1, classes * (classes - 1) // 2) * costs.outer(costs.n, costs.pairs)[0]
    return sums, folds * costs.factor(classes * costs.d)


def has_hessian_of_each_class(data: Data, folds: int, tuning: Tuning, classes: int) -> bool:
    """Whether each class has a Hessian of its own, which all folds share: if they cost no more than a few passes of all folds.

    With many features for each row, the curvatures change from value to value, so that the Hessians are computed again often.
    """
    costs = Costs.of(data.profile, tuning)
    every = costs.with_columns(classes * folds).data_pass
    return classes * costs.sketch(costs.n) <= tuning.fold_class_hessians * every


def method_of_folds(profile: Profile, plan: Plan, tuning: Tuning = DEFAULT) -> str | None:
    """Return the method of the folds, given the plan of the model of all rows; None if it is planned as for any other model.

    If passes over sparse rows were chosen for that model, rounds of single examples are slow for the folds as well; the plan of
    several models would try them first. A sketch of rows serves all folds, unlike the Hessian of Newton's method. If a direct
    solver fitted that model, it fits the folds as well.
    """
    one_by_one = profile.sparse and not multiplies_entries(profile, tuning) and plan.family is None
    return "ihs" if one_by_one and plan.is_primal else None


def sums_in_single(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether the Hessians of the values and folds of a grid are summed in single precision, which takes less time."""
    return not profile.sparse and profile.d >= tuning.fold_single_features


def keeps_hessian(profile: Profile, weights: np.ndarray, now: np.ndarray, tuning: Tuning = DEFAULT) -> bool:
    """Whether the Hessian for given curvatures of the rows still serves other ones: L-BFGS corrects a small difference."""
    thin = multiplies_entries(profile, tuning)  # a Hessian of sparse rows costs less than a pass over all folds
    most = tuning.fold_thin_change if thin else tuning.fold_hessian_change
    return bool(np.abs(now - weights).sum() <= most * weights.sum())


def starts_cold(profile: Profile, tuning: Tuning = DEFAULT) -> bool:
    """Whether the models of a grid start at w = 0: a direct solver of small dense data then ends with one certificate of all.

    Starts from other models are certified before the first step. With few rows for each feature they save more: the models of
    weak penalties are far from w = 0.
    """
    many_rows = profile.n >= tuning.cold_rows * profile.d
    return not profile.sparse and many_rows and profile.n * profile.d <= tuning.cold_entries


def combines(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether the models of a grid start at the lowest combination of those that are known: P must be smooth, and in memory.

    Those of several classes need about as many steps from there, except with products of sparse rows.
    """
    smooth = problem.loss.curvature is Curvature.VARYING and problem.loss.gamma is not None
    able = smooth and has_hessian(problem) and problem.data.capabilities.whole and problem.data.capabilities.local
    return able and (problem.columns == 1 or multiplies_entries(problem.data.profile, tuning, problem.columns))


def bounds_choice(size: int, tuning: Tuning = DEFAULT) -> bool:
    """Whether cross-validation bounds the distance to exact models by a Hessian of this size (about three Newton steps)."""
    return size <= tuning.repeated_matrix


def solves_kinks(
    problem: Problem, free: int, relative_gap: float, stage: Plan, n_epochs: float, tuning: Tuning = DEFAULT
) -> bool:
    """Whether the linear system of the examples on kinks is solved, after a stage of ``n_epochs`` epochs.

    Above ``late_kink_gap`` more free examples than unknowns in w and b mean that the set was guessed too early: they can all lie
    on kinks only if rows are repeated or linearly dependent.
    """
    late = relative_gap <= tuning.late_kink_gap
    if free > tuning.repeated_matrix or (not late and free > problem.d + problem.fit_intercept):
        return False
    costs = Costs.of(problem.data.profile, tuning)
    spent = n_epochs * costs.data_pass + (costs.sketch(stage.tau) if stage.is_primal else 0.0)
    return costs.gram(free) <= (tuning.late_kink_factor if late else 1.0) * spent


def steps_jointly(n: int, d: int, tuning: Tuning) -> bool:
    """Whether Newton steps of Huber's regression in all variables, its scale included, save more time than their d×d matrix
    takes.

    With more features than examples the matrix is singular without the penalty, and solving with it takes 20 times as long.
    """
    return d <= (tuning.joint_scale_features if d <= n else tuning.joint_scale_wide_features)


def scale_is_small(problem: Problem, tuning: Tuning) -> bool:
    """Whether the best scale of Huber's regression is expected to be nearly zero: hardly more examples than features.

    A weak penalty then lets the model fit most residuals exactly. With far more features than examples the fit at the scale zero
    is one on the span of the rows, and cheap.
    """
    n, d = problem.n, problem.d
    few = n / tuning.joint_scale_rows < d <= tuning.joint_scale_rows * n
    weak = tuning.round_conditioning * problem.lam * n
    return few and float((problem.c * problem.norms).mean()) >= weak


def steps_inside(problem: Problem, tuning: Tuning) -> bool:
    """Whether interior-point steps of Huber's regression in all variables, its scale included, can factorise a d×d matrix."""
    able = problem.data.capabilities
    return able.whole and able.local and problem.d <= min(tuning.largest_matrix, tuning.joint_scale_rows * problem.n)
