"""Plans and predicted costs of the primal methods: Newton's method and its sketch ("ihs")."""

from __future__ import annotations

import math

from dualnewton.errors import DualnewtonError
from dualnewton.planning.eligible import is_joint
from dualnewton.planning.facts import Facts, sketch_speed
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.working_sets import (
    affordable_features,
    compiles_walk,
    follows_penalties,
    sums_at_once,
    takes_all,
)


def newton(facts: Facts, tau: Tau) -> Plan:
    """Plan Newton's method, with proximal steps if the penalty has kinks or bounds."""
    if "newton" not in facts.methods:
        raise DualnewtonError(
            f'method "newton" needs a regularizer that is a sum over features, got {facts.problem.regularizer!r}: use "sdna"'
        )
    if tau not in ("auto", facts.costs.n):
        other = ': use "ihs"' if facts.has_hessian else ""
        raise DualnewtonError(f'tau must be "auto" or n = {facts.costs.n} with method "newton", got {tau}{other}')
    compiled = not facts.small or compiles_walk(facts.problem, facts.tuning)
    samples, reason = () if facts.has_hessian else _proximal_samples(facts), _newton_reason(facts)
    if samples:
        reason += f", solved first on {samples[0]} sampled rows"
    return Plan("newton", facts.costs.n, reason, compiled=compiled, cost=newton_cost(facts), samples=samples)


def _newton_reason(facts: Facts) -> str:
    if not facts.has_hessian:
        joint = is_joint(facts.problem)
        steps = "block coordinate descent" if joint else "proximal Newton steps"
        return f"{steps} over {'all features' if _takes_all(facts) else 'working sets of features'}"
    if facts.classes > 1:
        return "Newton's method: the Hessian of all classes together is cheap here"
    if facts.matrix_free:
        return "Newton's method by conjugate gradients, preconditioned by the rows of largest weight"
    if facts.costs.n < facts.costs.d and facts.problem.data.capabilities.whole:
        return "Newton's method: the n×n Gram matrix of the examples is cheap here"
    return "Newton's method: the d×d Hessian is cheap here"


def newton_cost(facts: Facts) -> float:
    """Predict the cost of Newton's method."""
    costs, tuning = facts.costs, facts.tuning
    if not facts.has_hessian:
        return _proximal_cost(facts)
    if (K := facts.classes) > 1:
        steps = tuning.softmax_steps + tuning.softmax_steps_per_log * math.log(facts.conditioning)
        return steps * costs.class_step(K)
    steps = 1.0 if facts.quadratic else (tuning.near_passes if facts.near else tuning.newton_passes) - 1.0
    if facts.matrix_free:
        passes = sketched_passes(facts, costs.first_sketch)
        return newton_by_products(facts, steps, passes) + tuning.certificate_passes * costs.data_pass
    every = facts.matrix_costs.sketch(costs.n)
    later = costs.added(tuning.changed_rows * costs.n) if facts.in_pieces and costs.n >= costs.d else every
    return (steps + tuning.certificate_passes) * facts.data_pass + every + (steps - 1.0) * later


def newton_by_products(facts: Facts, steps: float, passes: float) -> float:
    """Predict the cost of ``steps`` Newton steps by conjugate gradients, which take ``passes`` passes."""
    costs, rows = facts.costs, facts.costs.first_sketch
    return passes * (costs.data_pass + costs.applied(rows)) + steps * (costs.data_pass + costs.sketch(rows))


def _takes_all(facts: Facts) -> bool:
    """Whether the steps of a proximal Newton method are over all features."""
    if follows_penalties(facts.problem, facts.tuning):
        return sums_at_once(facts.problem, facts.tuning)
    columns = 1 if is_joint(facts.problem) else facts.columns
    return takes_all(facts.costs.of_classes(columns), once=facts.quadratic)


def _proximal_cost(facts: Facts) -> float:
    """Predict the cost of proximal Newton steps, which may begin at the solution on a sample of the rows."""
    tuning, (matrix, rest) = facts.tuning, _proximal_step(facts)
    data_pass = facts.costs.of_classes(facts.columns).data_pass
    steps, sampled = tuning.newton_passes if _takes_all(facts) else tuning.working_set_steps, 0.0
    if samples := _proximal_samples(facts):
        steps, sampled = tuning.near_passes, _proximal_sample_cost(facts, *samples)
    # The last step uses the matrix of the one before.
    curvature = (1.0 if facts.quadratic else steps - 1.0) * matrix + steps * rest
    return sampled + (steps + tuning.certificate_passes) * data_pass + curvature


def _proximal_step(facts: Facts) -> tuple[float, float]:
    """Predict the seconds of a matrix, and of the rest of a proximal Newton step besides a pass.

    The last steps are over ``used_features`` features. For softmax each class has its own features, and their matrix is always
    formed. A model that is fitted along penalties solves systems of the rows once it uses more features than there are rows.
    """
    tuning, costs = facts.tuning, facts.costs.of_classes(facts.columns)
    every, used = _takes_all(facts), facts.used_features
    if follows_penalties(facts.problem, tuning):
        used = min(used, float(costs.n))
    # A working set has up to twice as many features as are in use.
    size = costs.d if every else min(max(2.0 * used, affordable_features(costs)), costs.d, tuning.largest_matrix)
    entries = costs.stored * size / costs.d
    if costs.sparse and not every and facts.columns == 1 and tuning.by_entries(entries, size):
        return 0.0, tuning.column_sweeps * entries * tuning.rates.sparse_entry
    if every:
        matrix = costs.outer(costs.n, costs.pairs)[0]
    else:  # for gathered features
        matrix = 0.5 * costs.n * size**2 / tuning.rates.multiply
        pairs = costs.pairs * (size / costs.d) ** 2 * tuning.rates.gathered_pair
        matrix = min(matrix, pairs) if costs.sparse else matrix
    return matrix, costs.factor(min(size, 2.0 * used))


def _proximal_samples(facts: Facts) -> tuple[int, ...]:
    """Return the rows of the sample on which proximal Newton steps begin, in a tuple; none if they cost more than they save."""
    problem, tuning = facts.problem, facts.tuning
    able, joint = problem.data.capabilities, is_joint(problem)
    if facts.near or facts.quadratic or joint or not able.subsets:
        return ()
    most = min(tuning.sample_share * problem.n, able.gathered / problem.d)
    used = facts.used_features + facts.classes * problem.fit_intercept
    size = int(min(tuning.sample_rows * used, most))
    matrix, rest = _proximal_step(facts)
    step = facts.costs.of_classes(facts.columns).data_pass + matrix + rest
    saved = (tuning.newton_passes - tuning.near_passes) * step
    few = size < tuning.fewest_sample_rows * used or _proximal_sample_cost(facts, size) > saved
    return () if few else (size,)


def _proximal_sample_cost(facts: Facts, size: int) -> float:
    """Predict the seconds of proximal Newton steps on a sample of so many rows."""
    costs, (matrix, rest) = facts.costs.of_classes(facts.columns), _proximal_step(facts)
    calls = facts.tuning.proximal_calls * facts.tuning.rates.call
    return facts.tuning.first_sample_steps * (calls + size / costs.n * (costs.data_pass + matrix) + rest)


def ihs(facts: Facts, tau: Tau) -> Plan:
    """Plan sketched Newton."""
    if not facts.has_hessian:
        raise DualnewtonError(
            f'method "ihs" needs regularizer L2(), got {facts.problem.regularizer!r}: use another method'
        )
    return ihs_plan(facts, tau)


def ihs_plan(facts: Facts, tau: Tau) -> Plan:
    """Plan sketched Newton for a penalty that is known to be quadratic."""
    if tau == "auto" and facts.samples:
        reason = (
            f"sketched Newton: full gradients, solved first on {' and '.join(map(str, facts.samples))} sampled rows"
        )
        cost, samples = facts.sampled_cost(facts.samples), facts.samples
        return Plan("ihs", samples[-1], reason, compiled=not facts.small, cost=cost, samples=samples)
    rows = ihs_size(facts) if tau == "auto" else tau
    cost = expected_ihs_cost(facts, rows) if facts.classes > 1 else _ihs_cost(facts, rows)
    reason = _ihs_reason(facts, rows) if tau == "auto" else "tau given by the user"
    return Plan("ihs", rows, reason, compiled=not facts.small, cost=cost)


def _ihs_reason(facts: Facts, rows: int) -> str:
    of_class = " of each class" if facts.classes > 1 else ""
    source = f"Hessian{of_class} from {rows} sampled rows"
    if (first := facts.sketch_costs.begun_sketch(rows)) < rows:
        source += f" ({'fewer' if first else 'a diagonal at first'}, while steps are fast enough)"
    return f"sketched Newton: full gradients, {source}"


def ihs_size(facts: Facts) -> int:
    """Return the number of rows of the first sketch for which the predicted cost of the run is smallest."""
    costs = facts.sketch_costs
    n, first = costs.n, costs.first_sketch
    enough = min(n, facts.tuning.sketch_rows * costs.d)
    if first >= n:
        return n
    # Either at least `enough` rows or at most d/2: numbers in between cost a d×d matrix that estimates the Hessian badly.
    sizes = {max(enough, first)} | {min(n, first << doublings) for doublings in range(facts.tuning.doublings)}
    useful = [rows for rows in sorted(sizes) if rows >= enough or rows <= costs.d // 2]
    return min(useful, key=lambda rows: _ihs_cost(facts, rows))


def _ihs_cost(facts: Facts, rows: int) -> float:
    costs, tuning = facts.sketch_costs, facts.tuning
    sketches = tuning.settled_sketches if facts.quadratic or facts.near else tuning.sketches
    passes = sketched_passes(facts, rows)
    steps = passes * costs.applied(rows)
    if costs.is_dear(rows):  # the sketch is computed only if steps with a diagonal Hessian turn out to be slow
        by_diagonal = _diagonal_passes(facts)
        needed = tuning.sketch_needed if _needs_sketch(facts) else 0.0
        least = min(tuning.diagonal_passes, _separate_passes(facts))
        passes, sketches, steps = max(passes if needed else by_diagonal, least), needed, needed * steps
    every = facts.data_pass
    return (passes + tuning.certificate_passes) * every + sketches * facts.matrix_costs.sketch(rows) + steps


def expected_ihs_cost(facts: Facts, rows: int) -> float:
    """Predict the cost of sketched Newton for "auto", with conjugate gradient steps if it has few rows."""
    tuning = facts.tuning
    if facts.samples:
        return facts.sampled_cost(facts.samples)
    if facts.classes > 1:
        K, costs = facts.classes, facts.costs
        slower = tuning.softmax_slowdown + tuning.softmax_spread * facts.feature_spread
        slower *= math.log(facts.conditioning) * math.sqrt(K * costs.d / costs.n)
        passes = tuning.softmax_passes_per_root * math.sqrt(K) + slower
        passes *= 1.0 + passes / tuning.softmax_hard
        return passes * tuning.softmax_step * facts.data_pass
    if facts.matrix_free:
        dear = facts.costs.is_dear(rows)
        if (rows < facts.costs.d or dear) and (not dear or _needs_sketch(facts)):
            return math.inf
    return _ihs_cost(facts, rows)


def _diagonal_passes(facts: Facts) -> float:
    """Bound the passes with a diagonal Hessian, as for conjugate gradients: ½√κ ln(1/ε) for the condition number κ."""
    return 0.5 * math.sqrt(facts.conditioning) * -math.log(facts.tuning.predicted_gap)


def _separate_passes(facts: Facts) -> float:
    """Predict the passes with a diagonal Hessian of all rows if features have little correlation; infinite otherwise.

    The eigenvalues relative to the diagonal have a variance of d/n for independent features, as on a sketch of n rows, and of the
    excess of the overlap over one.
    """
    if facts.costs.n <= facts.costs.d:
        return math.inf
    variance = max(facts.feature_overlap - 1.0, 0.0) + facts.costs.d / facts.costs.n
    if not variance < 1.0:
        return math.inf
    return _first_passes(facts) + facts.starting_logarithm / sketch_speed(1.0 / variance, 1.0, facts.tuning)


def _needs_sketch(facts: Facts) -> bool:
    """Whether steps with a diagonal Hessian may turn out to be slow."""
    return _diagonal_passes(facts) > facts.tuning.slow_diagonal * facts.tuning.diagonal_passes


def sketched_passes(facts: Facts, rows: int) -> float:
    """Predict the passes from w = 0, with a sketch of ``rows`` rows."""
    return _first_passes(facts) + facts.starting_logarithm / speed_per_pass(facts, rows)


def _first_passes(facts: Facts) -> float:
    """Predict the passes of sketched Newton before its steps have the speed of its sketch."""
    last = facts.tuning.last_passes
    return last if facts.quadratic or facts.near else facts.tuning.newton_passes - last


def speed_per_pass(facts: Facts, rows: int) -> float:
    """Predict the logarithm of the factor by which a pass divides the gap, with a sketch of ``rows`` rows.

    With fewer rows than features, the directions that the sketch does not span have a curvature of at most trace/rows each. If
    n ≥ d, the diagonal is known exactly: relative to it, the largest eigenvalue is at most the number of stored entries per row.
    Conjugate gradients take about ½√κ steps for each factor e of the error, κ the ratio of the eigenvalues.
    """
    if rows > facts.costs.d:
        return sketch_speed(rows, facts.costs.d, facts.tuning)
    if facts.matrix_free and facts.costs.n >= facts.costs.d:
        return 1.0 / max(1.0, 0.5 * math.sqrt(facts.costs.stored / facts.costs.n))
    missed = (facts.conditioning - 1.0) * facts.costs.n / rows
    return 1.0 / max(1.0, 0.5 * math.sqrt(1.0 + missed))
