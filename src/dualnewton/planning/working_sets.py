"""Sizes of the working sets of proximal Newton steps, and whether their matrix is formed."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix.protocol import Data, Profile
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.solvers.crossovers import Sizes


class SetSizes(Sizes):
    """Sizes of working sets, chosen by predicted costs."""

    @classmethod
    def of(
        cls, data: Data, tuning: Tuning = DEFAULT, *, columns: int = 1, once: bool, compiled: bool, models: int = 1
    ) -> SetSizes:
        """Choose the sizes for some data; ``once`` if one matrix serves all steps, as for quadratic losses.

        The matrices that the models keep have at most as many entries as X together, or are those of small sets.
        """
        costs = Costs.of(data.profile, tuning).of_classes(columns)
        kept = max(tuning.least_set, math.isqrt(int(data.profile.stored) // models))
        if takes_all(costs, once=once):
            return cls(True, 0, 0, tuning, kept=kept)
        by_columns = columns == 1 and compiled and is_thin(costs)
        most = costs.d if by_columns else tuning.largest_matrix
        return cls(False, affordable_features(costs), most, tuning, kept=kept)

    @classmethod
    def of_paths(cls, models: int, tuning: Tuning = DEFAULT, profile: Profile | None = None) -> SetSizes:
        """Choose the sizes for a number of models fitted along paths, each of which keeps a matrix.

        Without the profile of the data, no model is solved roughly.
        """
        rough = None
        if profile is not None:
            # A Newton step on m features has m³/6 multiplications.
            rough = math.ceil((6.0 * Costs.of(profile, tuning).data_pass * tuning.rates.factorise) ** (1.0 / 3.0))
        return cls(False, tuning.least_set, math.isqrt(tuning.path_entries // models), tuning, rough)


def affordable_features(costs: Costs) -> int:
    """Return the number of features whose matrix costs about a pass."""
    rates = costs.tuning.rates
    if costs.sparse:
        size = costs.d * math.sqrt(costs.data_pass / max(costs.pairs * rates.sparse_pair, 1e-300))
    else:
        size = math.sqrt(2.0 * rates.multiply * costs.data_pass / costs.n)
    return int(min(costs.d, costs.tuning.largest_matrix, max(costs.tuning.least_set, size)))


def takes_all(costs: Costs, *, once: bool) -> bool:
    """Whether every step is over all features; ``once`` if their matrix is computed once.

    Very sparse features, whose matrix would not be formed, are updated one by one; smaller sets are then better. Of other sparse
    rows, a pair of entries costs ``sparse_pair`` in the matrix of all features and eight times as much, ``gathered_pair``, in
    that of some, whose rows are transposed, scaled and often dense.
    """
    tuning = costs.tuning
    one_by_one = is_thin(costs) and tuning.by_entries(costs.stored, costs.d)
    few = costs.d <= (tuning.least_set if one_by_one else tuning.most_together)
    return few and costs.d <= (tuning.large_set_factor if once or costs.sparse else 1.0) * affordable_features(costs)


def is_thin(costs: Costs) -> bool:
    """Whether the features are sparse enough to stay sparse when they are gathered."""
    return costs.sparse and costs.stored <= costs.tuning.thin_share * costs.n * costs.d


def sums_moments(profile: Profile, tuning: Tuning) -> bool:
    """Whether paths of least squares use the matrix of all features, computed in one pass, instead of that of a working set."""
    return profile.d <= tuning.fold_decomposition and profile.d <= max(tuning.moment_features, profile.n)


def has_cheap_systems(profile: Profile, multiple: float) -> bool:
    """Whether a system with all features costs at most this multiple of a sweep over the stored entries."""
    return profile.d**3 <= multiple * profile.stored


def visits_entries(data: Data, tuning: Tuning, models: int = 1) -> bool:
    """Whether least squares with thresholds may be solved over stored entries, of which each model keeps a copy."""
    few = 2 * models * data.profile.stored <= tuning.path_entries
    return few and data.capabilities.whole and Costs.of(data.profile, tuning).by_entry


def walks_by_entries(data: Data, tuning: Tuning, models: int = 1, *, ridge: bool = False) -> bool:
    """Whether paths of least squares visit the entries of single features, instead of forming matrices of products.

    With few features and many entries, systems with the moments of all features cost less. Of more dense features than rows,
    weak penalties use nearly as many as there are rows; with a ridge term, systems of the rows solve for these almost exactly,
    so that choices among the models can be proved.
    """
    profile = data.profile
    if not profile.sparse:
        few = 2 * models * profile.stored <= tuning.path_entries and data.capabilities.whole
        return few and not ridge and profile.d > profile.n and not sums_moments(profile, tuning)
    thin = is_thin(Costs.of(profile, tuning)) and not has_cheap_systems(profile, tuning.entry_path_cube)
    return visits_entries(data, tuning, models) and (thin or not sums_moments(profile, tuning))


def compiles_paths(features: int, tuning: Tuning) -> bool:
    """Whether paths are computed by a kernel: for few features, NumPy takes less time than loading the kernel."""
    return features > tuning.numpy_path_features


def follows_penalties(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether one least-squares model is fitted along decreasing penalties, on the matrix of its nonzero features.

    Every feature needs a threshold, so that few coefficients are nonzero, usually at most min(n, d). For sparse features,
    gathering a few at a time costs more than it saves.
    """
    profile = problem.data.profile
    # With more than a few features, the nonzero ones are gathered.
    able = problem.data.capabilities.whole or profile.d <= tuning.least_set
    few = min(profile.n, profile.d) <= tuning.repeated_matrix
    return able and not profile.sparse and few and selects_features(problem)


def compiles_walk(problem: Problem, tuning: Tuning) -> bool:
    """Whether such a path uses kernels even on small data.

    With more features than examples it has many linear systems, and NumPy takes ten times as long for them.
    """
    n, d = problem.n, problem.d
    large = n * d > tuning.wide_walk_share * tuning.small_entries
    return tuning.wide_walk < n < d and large and follows_penalties(problem, tuning)


def selects_features(problem: Problem) -> bool:
    """Whether the problem is least squares with a threshold for each feature, and zero within the bounds."""
    form = problem.regularizer.form
    if problem.loss.curvature is not Curvature.CONSTANT or form.is_general:
        return False
    return bool(np.all(form.threshold > 0.0) and np.all(form.lower <= 0.0) and np.all(form.upper >= 0.0))


def sums_at_once(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether one model uses the matrix of all features, computed in one pass: if they are few, or most may be nonzero.

    The matrix of some features is gathered column by column, which takes about twice the time per entry. A feature may be
    nonzero if its slope at w = 0 exceeds its threshold; where many do, few may be used in the end, which is why the matrix of
    more than ``summed_features`` is computed at once only if they explain the targets independently of each other.
    """
    profile, form = problem.data.profile, problem.regularizer.form
    if profile.d <= tuning.least_set:
        return True
    if profile.d >= profile.n:
        return False
    pull = -problem.slopes_at_zero
    allowed = np.where(pull > 0.0, form.upper, -form.lower) > 0.0
    used = allowed & (np.abs(pull) > problem.lam * problem.n * form.threshold)
    if profile.d <= tuning.summed_features:
        return bool(np.count_nonzero(used) >= tuning.walk_share * profile.d)
    return problem.columns == 1 and are_used(problem, pull, used, tuning)


def are_used(problem: Problem, slopes: np.ndarray, pulled: np.ndarray, tuning: Tuning) -> bool:
    """Whether most features of least squares are likely to be nonzero, given their slopes at w = 0 and which exceed thresholds.

    Where several features explain the same part of the targets, the first ones in the model leave little for the others.
    """
    if problem.d > problem.n or np.count_nonzero(pulled) < tuning.walk_share * problem.d:
        return False
    return explained(problem, slopes) <= tuning.shared_share


def explained(problem: Problem, slopes: np.ndarray) -> float:
    """Return the sum of what each feature explains alone, slope_j²/Σ c_i x_ij², as a fraction of Σ c_i t_i²."""
    c, data = problem.sample_weight, problem.data
    squares = np.square(data.feature_norms) if c is None else data.column_norms(c)
    t = problem.y - problem.o
    t = t - problem.fit_intercept * float(problem.c @ t) / float(problem.c.sum())
    each = np.divide(np.square(slopes), squares, out=np.zeros(problem.d), where=squares > 0.0)
    return float(each.sum()) / (float(problem.c @ np.square(t)) or 1.0)


def penalty_ratio(profile: Profile, tuning: Tuning) -> float:
    """Return the ratio of consecutive penalties for one model; with n > d it starts at the wanted penalty."""
    return tuning.path_ladder if profile.d > profile.n else 0.0
