"""Direct solvers of penalties with a threshold for each feature: which problems each of them takes."""

from __future__ import annotations

from typing import Any

from dualnewton.losses import Curvature
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.eligible import is_joint
from dualnewton.planning.tuning import Tuning
from dualnewton.planning.working_sets import has_cheap_systems, is_thin, visits_entries


def takes_thresholds(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: least squares with a threshold for each feature.

    For sparse features :func:`takes_entries` costs less, except for data so small that nothing is compiled. With more features
    than examples the limit of such small data is lower, since many linear systems in NumPy would be needed.
    """
    share = tuning.wide_walk_share if problem.d > problem.n else 1.0
    if problem.data.profile.sparse and problem.n * problem.d > share * tuning.small_entries:
        return False
    return problem.loss.curvature is Curvature.CONSTANT and takes_proximal(problem, tuning)


def takes_entries(problem: Any, tuning: Tuning) -> bool:
    """Whether coordinate descent visits the stored entries of sparse features: least squares with a threshold for each feature.

    The matrix of few features costs less than the sweeps that correlated ones need.
    """
    profile = problem.data.profile
    few = problem.columns == 1 and profile.stored <= tuning.entry_fit
    quadratic = problem.loss.curvature is Curvature.CONSTANT and problem.regularizer.form.has_thresholds
    swept = few and quadratic and visits_entries(problem.data, tuning)
    return swept and not has_cheap_systems(profile, tuning.entry_fit_cube)


def takes_large(problem: Any, tuning: Tuning) -> bool:
    """Whether dense features beyond one block are gathered or updated one by one: least squares with a threshold for each."""
    n, d, form = problem.n, problem.d, problem.regularizer.form
    if problem.columns > 1 or not tuning.direct_entries < n * d <= tuning.swept_entries:
        return False
    return problem.loss.curvature is Curvature.CONSTANT and problem.data.capabilities.whole and form.has_thresholds


def takes_proximal(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: a smooth loss with a threshold for each feature."""
    return problem.columns == 1 and _expands(problem, tuning) and problem.regularizer.form.has_thresholds


def _expands(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: sparse ones only of small data, or if they are not thin."""
    small = is_small(tuning, problem.n, problem.d) or not is_thin(Costs.of(problem.data.profile, tuning))
    return small and problem.data.capabilities.whole


def takes_joint(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: several outputs with a threshold for each feature."""
    if not is_joint(problem) or problem.n * problem.d > tuning.direct_entries:
        return False
    form = problem.regularizer.form
    return bool(form.joint and form.has_thresholds and _expands(problem, tuning))
