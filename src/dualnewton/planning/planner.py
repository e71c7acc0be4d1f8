"""Which method, which τ and which code, what that should cost, and why: asked for, printed, overridable.

Everything here follows from sizes, sparsity and conditioning, never from a clock: equal seeds give equal runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import CACHE, ENTRY, FACTOR, MULTIPLY, Costs
from dualnewton.planning.eligible import has_hessian, methods_for, primal_methods
from dualnewton.planning.plan import PRIMAL, Plan, Tau
from dualnewton.planning.tuning import (
    APART,
    BOUNDED,
    CHANGED,
    COLUMN_SWEEPS,
    COMPILING,
    COUPLED_PASSES,
    FEW_SKETCHES,
    IN_USE,
    INEXACT,
    JOINT_STEPS,
    JUDGED,
    LITTLE,
    MISSED,
    NEAR_PASSES,
    NEEDED,
    NUMPY_BLOCK,
    NUMPY_ROUND,
    PASSES,
    RESTLESS,
    ROUNDS,
    SAMPLE,
    SKETCHES,
    TRIAL,
    TURNS,
    UNAIDED,
    WARY,
    WHOLE,
    WORST,
)
from dualnewton.planning.tuning import SMALL as SMALL  # others ask the planner what is small
from dualnewton.solvers.primal import joint_softmax as joint
from dualnewton.solvers.primal.model import is_dear
from dualnewton.solvers.primal.sketching import PLENTY, is_matrix_free
from dualnewton.solvers.prox.column_descent import CHEAPER
from dualnewton.solvers.prox.working_set import LARGE, affordable, of_classes, take_all
from dualnewton.validation import integer


@dataclass(frozen=True)
class Facts:
    """What the costs of a problem are made of.

    Attributes
    ----------
    problem : Problem
        It.
    costs : Costs
        Of its data.
    conditioning : float
        1 + R/(γλn), where R is the mean of c_i‖a_i‖²: the epochs in which a dual method gains a factor e (Theorem 5, τ = 1).
        Of a loss without γ, R is the mean of c_i φ″_i‖a_i‖² at w = 0, and γ is left out.
    near : bool
        Whether the run starts from a model that was fitted to a problem like this.
    """

    problem: Any
    costs: Costs
    conditioning: float
    near: bool = False

    @classmethod
    def of(cls, problem: Problem, *, near: bool = False) -> Facts:
        """Measure the problem, cheaply."""
        some = slice(None, None, max(1, problem.n // SAMPLE))
        sizes, gamma = problem.c[some] * linear.squared_norms(problem.data.rows(some)), problem.loss.gamma
        if gamma is None:
            curvature = problem.loss.second_derivative(problem.o[some], problem.y[some])
            sizes, gamma = sizes * curvature.reshape(sizes.size, -1).max(axis=1), 1.0
        mean, scale = float(sizes.mean()), gamma * problem.lam * problem.n
        # Squares may overflow to infinity or NaN.
        conditioning = 1.0 + mean / scale if mean < WORST * scale else WORST
        return cls(problem, Costs.of(problem.data.profile), conditioning, near)

    @property
    def difficulty(self) -> float:
        """The conditioning as a dual method meets it: where ∇g* is not linear, its model of g* is a bound: short steps."""
        return self.conditioning if has_hessian(self.problem) else BOUNDED * self.conditioning

    @property
    def columns(self) -> int:
        """The classes whose features are coordinates of one model with kinks or bounds; one for all other problems."""
        return 1 if has_hessian(self.problem) else self.problem.columns

    @property
    def small(self) -> bool:
        """Whether nothing is to be compiled."""
        return self.problem.n * self.problem.d * self.columns <= SMALL

    @property
    def quadratic(self) -> bool:
        """Whether the curvature is the same everywhere."""
        return self.problem.loss.curvature is Curvature.CONSTANT

    @property
    def in_pieces(self) -> bool:
        """Whether a row has some curvature or none, so that Newton's method ends once it knows which rows have any."""
        return self.problem.loss.curvature is Curvature.PIECEWISE

    @property
    def data_pass(self) -> float:
        """The cost of a pass: margins, losses and gradients of all columns of the model."""
        K = self.problem.columns
        return self.costs.data_pass if K == 1 else joint.pass_cost(self.costs, K)

    @property
    def matrix_free(self) -> bool:
        """Whether Newton's method works by conjugate gradients."""
        return is_matrix_free(self.problem.n, self.problem.d) and has_hessian(self.problem)

    def may_be_kind(self, cost: float) -> bool:
        """Whether a few epochs of SDNA are worth a trial before a primal method of this cost.

        The curvature of quadratic losses is had once and for all; without compiled rounds an epoch is dear, and dense rows are
        multiplied faster in order than one by one.
        """
        able = (
            "sdna" in methods_for(self.problem)
            and has_hessian(self.problem)
            and self.costs.sparse
            and not self.quadratic
            and not self.small
        )
        return able and not self.near and TRIAL * self.costs.epoch <= LITTLE * cost

    def predicted(self) -> dict[str, float]:
        """Predict the cost of each method that "auto" may choose."""
        return {name: _PREDICTIONS[name](self) for name in methods_for(self.problem)}


def plan(problem: Problem, *, method: str = "auto", tau: Tau = "auto", models: int = 1, near: bool = False) -> Plan:
    """Choose what is left to choose; a method or a τ that is given is kept.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : {"auto", "sdna", "sdca", "newton", "ihs"}
        The method.
    tau : int or "auto"
        The number of examples per round, or of rows in a sketch; given with method "auto", it asks for SDNA.
    models : int
        How many problems like this one are solved together.
    near : bool
        Whether the run starts from a model that was fitted to a problem like this.
    """
    if method not in ("auto", *PLANS):
        allowed = ", ".join(map(repr, ("auto", *PLANS)))
        raise DualnewtonError(f"method must be one of {allowed}, got {method!r}")
    tau = tau if tau == "auto" else integer("tau", tau, 1, problem.n)
    if problem.loss.kinked:
        first = plan(
            replace(problem, loss=problem.loss.smoothed(1.0)), method=method, tau=tau, models=models, near=near
        )
        name = type(problem.loss).__name__
        return replace(first, reason=f"{name} by smooth neighbours; in the first: {first.reason}")
    facts = Facts.of(problem, near=near)
    if not problem.loss.has_dual_rounds:
        own = primal_methods(problem)
        if method not in ("auto", *own):
            others = ", ".join(f'"{name}"' for name in ("auto", *own[:-1]))
            what = f"{problem.loss!r} with {problem.regularizer!r}"
            raise DualnewtonError(f'method must be {others} or "{own[-1]}" for {what}, got {method!r}')
        if method == "auto":
            method = "ihs" if tau != "auto" and "ihs" in own else min(facts.predicted().items(), key=itemgetter(1))[0]
        return PLANS[method](facts, tau)
    if method == "auto":
        method = "sdna" if tau != "auto" else min(facts.predicted().items(), key=itemgetter(1))[0]
        if method in PRIMAL and facts.may_be_kind(PLANS[method](facts, "auto").cost):
            return replace(_sdna(facts, "auto"), reason="a few epochs cost little, and tell whether more are worth it")
        if models > 1 and method == "newton" and has_hessian(problem) and not facts.quadratic:
            why = "the curvature of all rows is affordable, and shared by models that are close together"
            return replace(_ihs_plan(facts, problem.n), reason=why)
    chosen = PLANS[method](facts, tau)
    if not (able := problem.data.capabilities).random_rows:
        chosen = replace(chosen, reason=f"{chosen.reason}; dual methods are left out, since {able.reason}")
    return chosen


# The dual methods ----------------------------------------------------------------------------------------------------


def expected_epochs(conditioning: float) -> float:
    """Guess the epochs of SDNA to a relative gap of 1e-6: the bound is proportional to the conditioning, data are kinder."""
    return 4.0 + 2.5 * conditioning


def _sdna(facts: Facts, tau: Tau) -> Plan:
    _needs_a_dual_method("sdna", facts.problem)
    obstacle = why_not_compiled(facts, tau)
    size, reason = (tau, "tau as asked") if tau != "auto" else (_numpy_size if obstacle else _size)(facts)
    return _dual_plan("sdna", facts, size, reason, obstacle)


def _sdca(facts: Facts, tau: Tau) -> Plan:
    _needs_a_dual_method("sdca", facts.problem)
    obstacle = why_not_compiled(facts, tau)
    few = 16 if obstacle else 1
    size, reason = (
        (few, "larger sets would cost minibatch SDCA more epochs") if tau == "auto" else (tau, "tau as asked")
    )
    return _dual_plan("sdca", facts, size, reason, obstacle)


def _dual_plan(method: str, facts: Facts, size: int, reason: str, obstacle: str) -> Plan:
    size = min(size, facts.problem.n)
    if obstacle:
        return Plan(method, size, f"{reason}; NumPy rounds, {obstacle}", compiled=False, cost=_numpy_cost(facts, size))
    return Plan(method, size, reason, compiled=True, cost=_compiled_cost(facts))


def _needs_a_dual_method(method: str, problem: Problem) -> None:
    if not problem.data.capabilities.random_rows:
        raise DualnewtonError(
            f'method={method!r} visits rows in random order, but {problem.data.capabilities.reason}: use method="ihs"'
        )
    if not problem.regularizer.strongly_convex:
        raise DualnewtonError(
            f"method={method!r} needs a strongly convex regularizer, got {problem.regularizer!r}: "
            'use method="newton", or regularizers.mixed with l1_ratio < 1'
        )


def _sdna_cost(facts: Facts) -> float:
    return _numpy_cost(facts, _numpy_size(facts)[0]) if facts.small else _compiled_cost(facts)


def _compiled_cost(facts: Facts) -> float:
    return expected_epochs(facts.difficulty) * facts.costs.epoch + JUDGED * facts.costs.data_pass


def _numpy_cost(facts: Facts, size: int) -> float:
    whole = size >= facts.problem.n
    epochs = 3.0 if whole and has_hessian(facts.problem) else expected_epochs(facts.difficulty / math.sqrt(size))
    return epochs * _numpy_epoch(facts, size)


def _numpy_epoch(facts: Facts, size: int) -> float:
    a_round = NUMPY_ROUND + size**2 * min(size, facts.problem.d) / 6.0 / FACTOR
    return facts.problem.n / size * a_round + 10.0 * facts.costs.data_pass


def dual_epoch(facts: Facts) -> float:
    """Predict the cost of an epoch of SDNA as "auto" would run it."""
    return _numpy_epoch(facts, _numpy_size(facts)[0]) if facts.small else facts.costs.epoch


def why_not_compiled(facts: Facts, tau: Tau = "auto") -> str:
    """Say why the NumPy rounds are to be used; an empty string if the kernels are.

    On small data "auto" takes blocks that are large enough for NumPy. With a τ that was asked for, the rounds may be so many
    that kernels are worth waiting for.
    """
    problem = facts.problem
    if facts.small and (tau == "auto" or _numpy_cost(facts, tau) <= COMPILING + _compiled_cost(facts)):
        return "since the data are too small to wait for a compiler"
    if tau != "auto" and tau > problem.d:
        return "since blocks of more examples than features are best left to LAPACK"
    from dualnewton.solvers.dual.compiled import why_not  # loads Numba

    return why_not(problem)


def _numpy_size(facts: Facts) -> tuple[int, str]:
    if facts.problem.n <= WHOLE:
        return facts.problem.n, "all examples fit in one block, so each round is a step of Newton's method on the dual"
    return NUMPY_BLOCK, "the larger the block the fewer the epochs, and up to this size a round costs little more"


def _size(facts: Facts) -> tuple[int, str]:
    regularizer = facts.problem.regularizer
    if regularizer.form.is_general:
        # For each example ∇g* costs about d/τ and its part of the Gram block τ/2 entries of a row.
        size = max(8, round(math.sqrt(2.0 * facts.problem.d * facts.problem.n / max(1, facts.costs.stored))))
        return min(size, facts.problem.d), "the gradient of the conjugate regulariser, of all features, once a round"
    if facts.costs.sparse:
        return 1, "sparse rows: one at a time is cheapest, since Gram blocks cost more than the epochs they save"
    if 8 * facts.costs.stored <= CACHE:
        return 1, "dense rows that stay in the cache: one at a time is cheapest"
    return 8, "dense rows out of the cache: a block of them is multiplied while it is near"


# The primal methods --------------------------------------------------------------------------------------------------


def _newton(facts: Facts, tau: Tau) -> Plan:
    if "newton" not in methods_for(facts.problem):
        raise DualnewtonError(
            f"method='newton' needs a regularizer that is a sum over features, got {facts.problem.regularizer!r}: "
            'use method="sdna"'
        )
    if tau not in ("auto", facts.problem.n):
        other = ': use method="ihs"' if has_hessian(facts.problem) else ""
        raise DualnewtonError(f'tau must be "auto" or n = {facts.problem.n} with method="newton", got {tau}{other}')
    if not has_hessian(facts.problem):
        reason = "steps over the features in use, with the curvature of all rows"
    elif facts.matrix_free:
        reason = "conjugate gradients, near the curvature of the heaviest rows, need no matrix of the features"
    else:
        reason = "the curvature of all rows, at every step, is affordable"
    return Plan("newton", facts.problem.n, reason, compiled=not facts.small, cost=_newton_cost(facts))


def _newton_cost(facts: Facts) -> float:
    if not has_hessian(facts.problem):
        return _proximal_cost(facts)
    if (K := facts.problem.columns) > 1:
        return (JOINT_STEPS + math.log(facts.conditioning)) * joint.step_cost(facts.costs, K)
    steps = 1.0 if facts.quadratic else (NEAR_PASSES if facts.near else PASSES) - 1.0
    if facts.matrix_free:
        rows = facts.costs.affordable_sketch()
        return newton_by_products(facts, steps, sketched_passes(facts, rows)) + JUDGED * facts.costs.data_pass
    costs, every = facts.costs, facts.costs.sketch(facts.problem.n)
    later = costs.added(CHANGED * costs.n) if facts.in_pieces and costs.n >= costs.d else every
    return (steps + JUDGED) * costs.data_pass + every + (steps - 1.0) * later


def newton_by_products(facts: Facts, steps: float, passes: float) -> float:
    """Predict the cost of so many steps by conjugate gradients, which take so many passes where the losses are quadratic."""
    costs, rows = facts.costs, facts.costs.affordable_sketch()
    passes *= 1.0 if facts.quadratic else INEXACT
    return passes * (costs.data_pass + costs.applied(rows)) + steps * (costs.data_pass + costs.sketch(rows))


def _proximal_cost(facts: Facts) -> float:
    """Predict the cost of ``solvers/proximal.py``: in the end about ``IN_USE`` of the features take part in its steps.

    For softmax each feature of a class counts, and its matrix is always formed.
    """
    costs, once = of_classes(facts.costs, facts.columns), facts.quadratic
    every = take_all(costs, once=once)
    used = min(costs.n, costs.d) * IN_USE
    size = costs.d if every else min(max(2.0 * used, affordable(costs)), costs.d, LARGE)
    turns = (PASSES if every else TURNS) * (1.0 if once else 2.0)
    entries = costs.stored * size / costs.d
    if costs.sparse and not every and facts.columns == 1 and CHEAPER * entries < size**2:
        curvature = turns * COLUMN_SWEEPS * entries * ENTRY
    else:
        matrix = min(costs.outer(costs.n, costs.pairs)[0] * (size / costs.d) ** 2, costs.n * size**2 / MULTIPLY)
        factor = min(size, 2.0 * used) ** 3 / 6.0 / FACTOR
        curvature = (1.0 if once else turns) * matrix + turns * ROUNDS * factor
    return (turns + JUDGED) * costs.data_pass + curvature


def _ihs(facts: Facts, tau: Tau) -> Plan:
    if not has_hessian(facts.problem):
        raise DualnewtonError(
            f"method='ihs' needs regularizer L2(), got {facts.problem.regularizer!r}: use another method"
        )
    return _ihs_plan(facts, tau)


def _ihs_plan(facts: Facts, tau: Tau) -> Plan:
    rows = _ihs_size(facts) if tau == "auto" else tau
    why = "passes over the rows in order, with the curvature of a sketch of them, cost less than visits in random order"
    cost = expected_ihs_cost(facts, rows) if facts.problem.columns > 1 else _ihs_cost(facts, rows)
    return Plan("ihs", rows, why if tau == "auto" else "tau as asked", compiled=not facts.small, cost=cost)


def _ihs_size(facts: Facts) -> int:
    n, first = facts.problem.n, facts.costs.affordable_sketch()
    enough = min(n, PLENTY * facts.problem.d)
    # Many rows, or few: those in between make a matrix of full size that knows little.
    sizes = {max(enough, first)} | {min(n, first << doublings) for doublings in range(6)}
    useful = [rows for rows in sorted(sizes) if rows >= enough or rows <= facts.problem.d // 2]
    return min(useful, key=lambda rows: _ihs_cost(facts, rows))


def _ihs_cost(facts: Facts, rows: int) -> float:
    costs, sketches = facts.costs, 1.5 if facts.quadratic or facts.near else SKETCHES
    sketches *= RESTLESS if facts.in_pieces else 1.0
    passes = sketched_passes(facts, rows)
    steps = passes * costs.applied(rows)
    if is_dear(costs, rows):  # and is bought only where the steps on a diagonal turn out to be slow
        few = 1.0 if facts.quadratic else FEW_SKETCHES
        passes, sketches, steps = max(passes, UNAIDED), NEEDED * few, NEEDED * steps
    return (passes + JUDGED) * costs.data_pass + sketches * costs.sketch(rows) + steps


def expected_ihs_cost(facts: Facts, rows: int) -> float:
    """Predict the cost of a sketch for "auto"; conjugate gradients make more of few rows than single steps do."""
    if (K := facts.problem.columns) > 1:
        n, d = facts.problem.n, facts.problem.d
        passes = COUPLED_PASSES + APART * math.log(facts.conditioning) * min(1.0, K * d / n)
        return (passes + JUDGED) * joint.pass_cost(facts.costs, K)
    few = rows < facts.problem.d
    if facts.matrix_free and (few or is_dear(facts.costs, rows)):
        return math.inf
    return (WARY if few else 1.0) * _ihs_cost(facts, rows)


def sketched_passes(facts: Facts, rows: int) -> float:
    """Guess the passes to a relative gap of 1e-6 with a sketch of so many rows."""
    begin = 2.0 if facts.quadratic or facts.near else PASSES - 2.0
    return begin + (math.log(facts.conditioning / 1e-6) + 3.0) / speed(facts, rows)  # from w = 0


def speed(facts: Facts, rows: int) -> float:
    """Guess the logarithm of what a pass divides the gap by, with a sketch of so many rows.

    With more rows than features the eigenvalues of H_S⁻¹H lie about in (1 ± e)² for e = √(d/rows), so that conjugate steps
    leave the fraction e of the error. With fewer rows, the curvature that the sketch misses is spread over the directions that
    it does not see, at most trace/rows in each. Where there are more examples than features, it is known up to their
    correlations: with the diagonal as unit, the largest eigenvalue is at most the number of entries of a row.
    """
    error = math.sqrt(facts.problem.d / rows)
    if error < 0.9:
        return -1.5 * math.log(error)
    if facts.matrix_free and facts.problem.n >= facts.problem.d:
        return 1.0 / max(1.0, 0.5 * math.sqrt(facts.costs.stored / facts.problem.n))
    missed = (facts.conditioning - 1.0) * facts.problem.n / rows
    return 1.0 / max(1.0, MISSED * math.sqrt(1.0 + missed))


def offered(facts: Facts, *, primal: bool) -> list[Plan]:
    """Return the plans of the primal, or of the dual, methods that "auto" may choose for a problem, as it would run them."""
    return [PLANS[name](facts, "auto") for name in methods_for(facts.problem) if (name in PRIMAL) == primal]


_PREDICTIONS: dict[str, Callable[[Facts], float]] = {
    "sdna": _sdna_cost,
    "newton": _newton_cost,
    "ihs": lambda facts: expected_ihs_cost(facts, _ihs_size(facts)),
}
PLANS: dict[str, Callable[[Facts, Tau], Plan]] = {"sdna": _sdna, "sdca": _sdca, "newton": _newton, "ihs": _ihs}
