"""Direct solvers for problems so small that the interpreter takes longer than the arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from dualnewton.losses import Curvature
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.dual import expected_epochs
from dualnewton.planning.eligible import has_hessian, is_piecewise_linear
from dualnewton.planning.interior import interior_cost
from dualnewton.planning.kinked_dual import rounds_cost, takes_rounds
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.small_products import (
    conditioning_of,
    factor_cost,
    is_weak,
    products_cost,
    shares_products,
    takes_block_products,
    takes_few_products,
    takes_large_products,
    takes_many_products,
    takes_products,
    with_directions,
)
from dualnewton.planning.small_thresholds import (
    takes_entries,
    takes_joint,
    takes_large,
    takes_proximal,
    takes_thresholds,
)
from dualnewton.planning.tuning import DEFAULT, Tuning


class Family(NamedTuple):
    """The problems that a direct solver can solve (:mod:`dualnewton.solvers.direct`)."""

    # Whether it solves a problem of its scheme: a function of the declarations of loss, penalty and data, and of their sizes.
    takes: Callable[[Any, Tuning], bool]
    method: str  # method that the plan reports; the solver is used for this method and "auto"
    reason: str  # what it does, in the words of the plan
    # The outer schemes (``scheme`` of a problem) in whose place it solves problems; None for problems that need none.
    schemes: tuple[str | None, ...] = (None,)
    # Whether it takes the steps of this number of models together, where that is faster; None if it never does.
    together: Callable[[Any, int, Tuning], bool] | None = None
    # True: for rows of which one dense block is made, so that the number of entries of X is limited; None: for dense rows of any
    # number; False: for sparse rows.
    dense: bool | None = True
    several_columns: bool | None = False  # whether it is for problems of several columns; None: of any number
    quadratic: bool = True  # whether it is for quadratic penalties; False: for penalties that have thresholds
    alone: bool = False  # whether it leaves several models that share one Hessian to other families
    # Whether it evaluates a start at once and takes no step from one that is good enough, so that starts need no certificate.
    warm: bool = False
    # Predicted seconds, for a solver without limits on rows and features: other plans are compared with it.
    cost: Callable[[Any, Tuning], float] | None = None
    # Whether it is used for "auto" alone: its steps are no rounds of the method that are certified one by one, or its choice
    # depends on the number of threads.
    automatic: bool = False
    single: bool = False  # whether it is for one model alone
    serial: bool = False  # whether it is for one thread alone
    # Whether "auto" leaves a problem that it could solve to the general methods, which are expected to be faster.
    yields: Callable[[Any, Tuning], bool] | None = None
    # Returns a plan with the further parameters of the solver.
    completed: Callable[[Plan, Any, Tuning], Plan] | None = None
    solver: str = ""  # family whose solver it uses, if that is not its own

    def suits(self, one_block: bool, sparse: bool) -> bool:
        """Whether it is for rows that are sparse, or of which one dense block may be made."""
        return not sparse if self.dense is None else one_block if self.dense else sparse


def _takes_newton(problem: Any, tuning: Tuning) -> bool:
    """Whether Newton's method works on one dense block of all rows.

    Beyond small data the d×d Hessians take most of the time. For dense rows with many features an earlier family, "block
    products", uses conjugate gradients; for sparse rows with many features, or few stored entries, sketches and dual rounds cost
    less.
    """
    n, d, profile = problem.n, problem.d, problem.data.profile
    few = problem.columns == 1 and d <= tuning.one_block_features
    if profile.sparse and not is_small(tuning, n, d):
        thin = profile.pairs < tuning.dense_pairs * 0.5 * n * d * d
        few = few and n * d * d <= (tuning.thin_hessian if thin else tuning.direct_hessian)
    return few and has_hessian(problem) and problem.data.capabilities.whole


def _takes_stored(problem: Any, tuning: Tuning) -> bool:
    """Whether Hessians of sparse rows are summed over pairs of stored entries, and cost a few passes.

    The loop would sum the same matrices; its calls, certificates and samples take as long as the sums of some ten thousand rows.
    Conjugate gradients cost less if the penalty is strong, or there are few rows for each feature and several Hessians would be
    needed; and a dense block if it is so small that no kernel needs to be loaded for its products.
    """
    n, d, profile = problem.n, problem.d, problem.data.profile
    few = profile.sparse and profile.stored <= tuning.product_growth * tuning.product_entries
    few = few and problem.columns == 1 and n >= d and n * d * d > tuning.thin_hessian and not is_small(tuning, n, d)
    if not (few and has_hessian(problem) and problem.data.capabilities.whole):
        return False
    constant, costs = problem.loss.curvature is Curvature.CONSTANT, Costs.of(profile, tuning)
    most = tuning.newton_passes if constant else tuning.stored_passes
    if not (costs.by_pairs(n, profile.pairs) and costs.added(n) <= most * costs.data_pass):
        return False
    if takes_few_products(problem, tuning):
        return False
    if constant:
        return True
    if n * d <= tuning.direct_entries and _takes_newton(problem, tuning):
        return False
    return n >= tuning.stored_rows * d or not takes_products(problem, tuning)


def _takes_rounds(problem: Any, tuning: Tuning) -> bool:
    """Whether dual rounds over single examples of sparse rows are expected to need few epochs, each of some microseconds.

    The losses are piecewise linear or have a kink in φ′ (squared hinge). With few examples and a weak penalty, the margins of
    most examples are near the kink, and move across it from one Newton step to the next. Rounds are slow where the penalty is
    weak and examples are not fewer than features. Nothing is compiled for the smallest data.
    """
    n, d, data, loss = problem.n, problem.d, problem.data, problem.loss
    if not data.profile.sparse or data.profile.stored > tuning.round_entries or is_small(tuning, n, d):
        return False
    if not (problem.columns == 1 and problem.regularizer.form.is_plain and data.capabilities.random_rows):
        return False
    fewer, weak = n * tuning.round_features <= d, is_weak(problem, tuning)
    if not loss.kinked:
        return fewer and weak and loss.curvature is Curvature.PIECEWISE
    return (fewer or not weak) and is_piecewise_linear(loss)


def _takes_many_rounds(problem: Any, tuning: Tuning) -> bool:
    """Whether the penalty is so strong that few epochs of rounds over sparse rows, fewer than features, suffice.

    The loop would do the same rounds; its plan, certificates and comparisons take as long as some of the epochs.
    """
    n, d, data, loss = problem.n, problem.d, problem.data, problem.loss
    few = (
        data.profile.sparse
        and n <= d
        and data.profile.stored <= tuning.many_round_entries
        and not is_small(tuning, n, d)
    )
    if not (few and problem.columns == 1 and problem.regularizer.form.is_plain and data.capabilities.random_rows):
        return False
    if loss.kinked or loss.gamma is None or loss.curvature is Curvature.CONSTANT or not loss.has_dual_rounds:
        return False
    if expected_epochs(conditioning_of(problem, tuning), tuning) > tuning.many_round_epochs:
        return False
    from dualnewton.solvers.dual.compiled import why_not  # loads Numba

    return not why_not(problem)


def _takes_classes(problem: Any, tuning: Tuning) -> bool:
    """Whether L-BFGS for several classes works on one dense block of all rows.

    Beyond small data, rows with few stored entries are left to the methods that use these alone, and so are so many rows for each
    unknown that the problem of a sample of them is solved first. With fewer examples than features, Newton's method on the Kn
    coordinates of their span costs less if these are few.
    """
    n, d, K = problem.n, problem.d, problem.columns
    few = K > 1 and d <= tuning.class_features
    few = few and (d <= n or K * n > max(tuning.class_coordinates * d, tuning.class_newton))
    if not is_small(tuning, n, d):
        few = few and not problem.data.profile.sparse and n * tuning.sample_share <= tuning.sample_rows * K * d
    return few and has_hessian(problem) and problem.data.capabilities.whole


def _with_passes(plan: Plan, problem: Any, tuning: Tuning) -> Plan:
    """Return the plan with the number of passes that cost as much as a Hessian of "classes".

    One of each class costs about as much as d/``class_hessian`` passes, in single precision; the joint one costs more, the more
    classes there are, but few steps follow it.
    """
    K, d = problem.columns, min(problem.n, problem.d)  # coordinates of the span of fewer examples than features
    whole = K * d <= tuning.one_block_features and problem.n * d * (K * (K - 1) // 2) <= tuning.direct_entries
    separate = tuning.class_passes + round(d / tuning.class_hessian)
    joint = max(tuning.joint_passes, round(0.5 * (K - 1) * d / tuning.joint_hessian))
    return replace(plan, passes=joint if whole else separate, whole=whole)


def _takes_kinks(problem: Any, tuning: Tuning) -> bool:
    """Whether interior-point steps work on one dense block of all rows, or on the Gram matrix of fewer rows than features.

    Many sparse rows are left to dual rounds, which visit the stored entries only and are tried before interior points.
    """
    if problem.columns > 1 or not problem.regularizer.form.is_quadratic:
        return False
    if problem.data.profile.sparse and problem.n >= problem.d and not is_small(tuning, problem.n, problem.d):
        return False
    most = min(tuning.one_block_features, tuning.largest_matrix)
    few = min(problem.n, problem.d) <= most and problem.data.capabilities.whole
    return few and is_piecewise_linear(problem.loss)


def _yields_to_rounds(problem: Any, tuning: Tuning) -> bool:
    """Whether dual rounds, which are compiled, are expected to be faster than interior-point steps on one dense block.

    That is so for strong penalties and many features. The time of a visit is proportional to the number of kinks of the loss.
    """
    if is_small(tuning, problem.n, problem.d) or not takes_rounds(problem, "sdna"):
        return False
    kinks = len(problem.loss.kinks(problem.y[:1]))
    return kinks * rounds_cost(problem, tuning) < interior_cost(problem, tuning) / tuning.direct_gain


def _takes_huber(problem: Any, tuning: Tuning) -> bool:
    """Whether Newton's method in all variables, the scale of the residuals included, works on one dense block of all rows.

    The search for the scale solves several problems of the same size: d×d Hessians cost less even with many features. With hardly
    more rows than features the scale is nearly zero, and either method takes many steps.
    """
    n, d = problem.n, problem.d
    if problem.epsilon <= 1.0 or not problem.data.capabilities.whole:
        return False
    return d <= max(tuning.one_block_features, min(n / tuning.joint_scale_rows, tuning.joint_scale_features))


def _steps_together(problem: Any, models: int, tuning: Tuning) -> bool:
    """Whether several models of one column are so small that they take their steps at once, or have one Hessian for all.

    Losses without γ may need shorter steps, which differ between models. Losses with kinks are solved by interior-point steps,
    which leave out examples far from their kinks: from some size on, that makes each model faster alone.
    """
    few = models * problem.n * problem.d <= tuning.together_entries
    if problem.scheme == "smoothing":
        return few and problem.d <= problem.n and problem.n * problem.d <= tuning.kinks_together
    return (few or _share_hessian(problem)) and problem.columns == 1 and problem.loss.gamma is not None


def _share_hessian(problem: Any) -> bool:
    """Whether problems that differ in labels alone have one Hessian: several outputs then cost little more than one."""
    return problem.loss.curvature is Curvature.CONSTANT and problem.sample_weight is None


WIDE = "Newton's method on the span of the rows: there are fewer examples than features"
WIDE_CLASSES = (
    "L-BFGS from a Hessian that the classes share, on the span of the rows: there are fewer examples than features"
)
"""The reasons in the plan of a direct solution on n coordinates."""

FAMILIES = {
    "rounds": Family(
        _takes_rounds,
        "sdna",
        "dual rounds on single examples, which visit the stored entries alone, in one call",
        schemes=(None, "smoothing"),
        dense=False,
        automatic=True,
    ),
    "kinks": Family(
        _takes_kinks,
        "interior",
        "interior-point steps on one dense block of rows",
        schemes=("smoothing",),
        together=_steps_together,
        yields=_yields_to_rounds,
    ),
    "huber": Family(
        _takes_huber,
        "newton",
        "a joint scale by Newton's method in all variables, on one dense block of rows",
        schemes=("scale",),
    ),
    "stored": Family(
        _takes_stored,
        "newton",
        "Newton's method: the d×d Hessian is cheap here, and is summed over pairs of stored entries",
        dense=False,
        automatic=True,
        single=True,
        serial=True,
    ),
    "conjugate": Family(
        takes_products,
        "newton",
        "Newton's method by conjugate gradients, whose products use the stored entries alone",
        dense=False,
        several_columns=None,
        warm=True,
        cost=products_cost,
        together=shares_products,
        completed=with_directions,
    ),
    "many products": Family(
        takes_many_products,
        "newton",
        "Newton's method by a few conjugate gradients, whose products use the stored entries alone",
        dense=False,
        automatic=True,
        serial=True,
        warm=True,
        cost=products_cost,
        together=shares_products,
        completed=with_directions,
        solver="conjugate",
    ),
    "block products": Family(
        takes_block_products,
        "newton",
        "Newton's method by conjugate gradients, or L-BFGS from a Hessian if many are needed, on one dense block",
        alone=True,
        warm=True,
        together=shares_products,
        completed=with_directions,
        solver="conjugate",
    ),
    "classes": Family(
        _takes_classes,
        "newton",
        "L-BFGS from a Hessian that the classes share, on one dense block of rows",
        several_columns=True,
        completed=_with_passes,
    ),
    "newton": Family(_takes_newton, "newton", "Newton's method on one dense block of rows", together=_steps_together),
    "thresholds": Family(
        takes_thresholds,
        "newton",
        "Newton's method on the nonzero features, or coordinate descent, on one dense block of rows",
        quadratic=False,
    ),
    "large thresholds": Family(
        takes_large,
        "newton",
        "Newton's method on the nonzero features, or coordinate descent, on one large dense block of rows",
        dense=None,
        quadratic=False,
        alone=True,
        solver="thresholds",
    ),
    "entries": Family(
        takes_entries,
        "newton",
        "extrapolated coordinate descent over the stored entries of the features",
        dense=False,
        quadratic=False,
    ),
    "proximal": Family(
        takes_proximal, "newton", "proximal Newton steps on the nonzero features of one dense block", quadratic=False
    ),
    "joint": Family(
        takes_joint,
        "newton",
        "Newton's method on the nonzero features of all outputs, on one dense block of rows",
        several_columns=True,
        quadratic=False,
    ),
    "large products": Family(
        takes_large_products,
        "newton",
        "Newton's method by conjugate gradients, or L-BFGS from a Hessian if many are needed, on one large dense block",
        dense=None,
        automatic=True,
        single=True,
        serial=True,
        warm=True,
        completed=with_directions,
        solver="conjugate",
    ),
    "many rounds": Family(
        _takes_many_rounds,
        "sdna",
        "dual rounds on single examples, which visit the stored entries alone, in one call",
        dense=False,
        automatic=True,
        single=True,
        serial=True,
        solver="rounds",
    ),
}
"""The direct solvers, by the name of their family; the first that can solve a problem is used."""


def small_plan(
    problem: Any, method: str, tau: Tau, models: int = 1, tuning: Tuning = DEFAULT, n_threads: int = 1
) -> Plan | None:
    """Return the plan of the direct solver for this number of similar problems, if there is one."""
    # Entries of X for which problems are solved on one dense block, at most.
    most = tuning.direct_entries * (tuning.class_blocks if problem.columns > 1 else 1)
    asked, scheme, sparse = tau in ("auto", problem.n), problem.scheme, problem.data.profile.sparse
    # Models with kinks take their own steps in either way; those of one Hessian share it. Passes over several classes are
    # products of matrices, which are no faster for several models at a time.
    apart = scheme == "smoothing" or (scheme is None and (_share_hessian(problem) or problem.columns > 1))
    share = 1 if models > 1 and apart else models
    one_block = problem.n * problem.d <= max(most // share, min(most, tuning.small_entries))
    several = models > 1 and scheme is None and _share_hessian(problem)
    quadratic = scheme is not None or problem.regularizer.form.is_quadratic
    kinds = scheme, method, one_block, sparse, problem.columns > 1, quadratic, several, models == 1, n_threads == 1
    for name, family in _candidates(*kinds) if asked else ():
        if family.takes(problem, tuning):
            if method == "auto" and family.yields is not None and family.yields(problem, tuning):
                return None
            together = models > 1 and family.together is not None and family.together(problem, models, tuning)
            size, compiled = 1 if family.method == "sdna" else problem.n, family.dense is not True
            plan = _plan(family.method, size, family.reason, compiled, family.solver or name, together)
            if family.cost is not None:
                plan = replace(plan, cost=family.cost(problem, tuning))
            return plan if family.completed is None else family.completed(plan, problem, tuning)
    return wide_plan(problem, method, tau, models, tuning)


@lru_cache
def _candidates(
    scheme: str | None,
    method: str,
    one_block: bool,
    sparse: bool,
    columns: bool,
    quadratic: bool,
    several: bool,
    single: bool,
    serial: bool,
) -> tuple[tuple[str, Family], ...]:
    """Return the families, with their names, of a scheme and a method, for data that fit into one block, or are sparse.

    ``columns`` says that problems have several columns, ``quadratic`` that their penalty is quadratic, ``several`` that several
    models share one Hessian, ``single`` that there is one model, ``serial`` that there is one thread.
    """
    return tuple(
        (name, family)
        for name, family in FAMILIES.items()
        if scheme in family.schemes
        and method in ("auto", family.method)
        and family.suits(one_block, sparse)
        and family.several_columns in (None, columns)
        and family.quadratic == quadratic
        and not (family.automatic and method != "auto")
        and not (family.alone and several)
        and not (family.single and not single)
        and not (family.serial and not serial)
    )


@lru_cache
def _plan(method: str, size: int, reason: str, compiled: bool, family: str, together: bool) -> Plan:
    """Return a plan; small fits of one size share it, since making one takes as long as a product with X."""
    return Plan(method, size, reason, compiled=compiled, family=family, together=together)


def takes_starts(plan: Plan) -> bool:
    """Whether the direct solver of a plan needs no certificates of its starts."""
    return plan.family in FAMILIES and FAMILIES[plan.family].warm


def wide_plan(problem: Any, method: str, tau: Tau, models: int = 1, tuning: Tuning = DEFAULT) -> Plan | None:
    """Return the plan of a direct solution on n coordinates, for a number of similar problems with more features than examples.

    Gradients are tried first as long as they cost no more than the Cholesky factor of the n×n Gram matrix.
    """
    n, d, K = problem.n, problem.d, problem.columns
    by_classes = K > 1 and K * n > tuning.class_newton
    # A step of softmax costs several passes of all classes, so that the n×n matrix is worth its cost for more rows.
    few = n <= tuning.class_rows if by_classes else n * n * d <= tuning.direct_multiplications
    if n >= d or not few or problem.scheme is not None:
        return None
    asked = method in ("auto", "newton") and tau in ("auto", n)
    if not (asked and has_hessian(problem) and problem.data.capabilities.whole):
        return None
    if by_classes:
        return _with_passes(Plan("newton", n, WIDE_CLASSES, family="wide", inner="classes"), problem, tuning)
    together = models > 1 and problem.columns == 1 and _share_hessian(problem)
    tried = tuning.kept(
        ("directions", problem.data.profile, problem.loss.curvature, K, models, together),
        lambda: _directions(problem, models, tuning, together=together),
    )
    return _wide_plan(n, tried, together=together and not tried)


def _directions(problem: Any, models: int, tuning: Tuning, *, together: bool) -> int:
    """Return how many gradients cost as much as the Cholesky factor of the n×n Gram matrix; 0 if they are few."""
    factors = factor_cost(problem, 1 if together else models, tuning)
    directions = int(factors / (models * _gradient_cost(problem, tuning)))
    return directions if directions >= tuning.fewest_directions else 0


@lru_cache
def _wide_plan(n: int, directions: int, *, together: bool) -> Plan:
    """Return a plan, which small fits of one size share."""
    return Plan("newton", n, WIDE, family="wide", inner="newton", directions=directions, together=together)


def _gradient_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of a gradient over all features, of the margins along it, and of the minimiser in the span of all gradients."""
    costs = Costs.of(problem.data.profile, tuning)
    every = costs.with_columns(problem.columns).data_pass
    return every + tuning.rates.call


def fits_one_block(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether all rows, as one dense block, are so few that the calls of passes would take longer than the arithmetic."""
    few = problem.n * problem.d <= tuning.direct_entries
    return few and problem.d <= tuning.one_block_features and problem.data.capabilities.whole
