"""Plans and predicted costs of the dual methods, SDNA and SDCA."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import DOUBLE
from dualnewton.planning.facts import Facts
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.tuning import DEFAULT, Tuning


def expected_epochs(conditioning: float, tuning: Tuning = DEFAULT) -> float:
    """Predict the epochs of SDNA to a relative gap of 1e-6: the bound of Theorem 5 is proportional to the conditioning."""
    return tuning.epochs_fixed + tuning.epochs_per_conditioning * conditioning


def sdna(facts: Facts, tau: Tau) -> Plan:
    """Plan SDNA."""
    _needs_a_dual_method("sdna", facts.problem)
    obstacle = why_not_compiled(facts, tau)
    size, reason = (tau, "tau given by the user") if tau != "auto" else (_numpy_size if obstacle else _size)(facts)
    return _dual_plan("sdna", facts, size, reason, obstacle)


def sdca(facts: Facts, tau: Tau) -> Plan:
    """Plan minibatch SDCA."""
    _needs_a_dual_method("sdca", facts.problem)
    obstacle = why_not_compiled(facts, tau)
    few = facts.tuning.numpy_sdca_block if obstacle else 1
    reason = "larger sets would cost minibatch SDCA more epochs" if tau == "auto" else "tau given by the user"
    return _dual_plan("sdca", facts, few if tau == "auto" else tau, reason, obstacle)


def _dual_plan(method: str, facts: Facts, size: int, reason: str, obstacle: str) -> Plan:
    size = min(size, facts.costs.n)
    if obstacle:
        return Plan(method, size, f"{reason}; NumPy rounds, {obstacle}", compiled=False, cost=_numpy_cost(facts, size))
    return Plan(method, size, reason, compiled=True, cost=_compiled_cost(facts))


def _needs_a_dual_method(method: str, problem: Problem) -> None:
    if not problem.data.capabilities.random_rows:
        raise DualnewtonError(
            f'method "{method}" visits rows in random order, but {problem.data.capabilities.reason}: use "ihs"'
        )
    if not problem.regularizer.strongly_convex:
        raise DualnewtonError(
            f'method "{method}" needs a strongly convex regularizer, got {problem.regularizer!r}: '
            'use "newton", or regularizers.mixed with l1_ratio < 1'
        )


def sdna_cost(facts: Facts) -> float:
    """Predict the cost of SDNA as "auto" would run it."""
    return _numpy_cost(facts, _numpy_size(facts)[0]) if facts.small else _compiled_cost(facts)


def _compiled_cost(facts: Facts) -> float:
    epochs = expected_epochs(facts.difficulty, facts.tuning)
    return facts.outputs * epochs * facts.costs.epoch + facts.tuning.certificate_passes * facts.data_pass


def _numpy_cost(facts: Facts, size: int) -> float:
    whole = size >= facts.costs.n
    smaller = facts.difficulty / math.sqrt(size)
    newton = whole and facts.has_hessian
    epochs = facts.tuning.last_passes if newton else expected_epochs(smaller, facts.tuning)
    return epochs * _numpy_epoch(facts, size)


def _numpy_epoch(facts: Facts, size: int) -> float:
    rates = facts.tuning.rates
    # A Cholesky factor of τ rows has τ³/6 multiplications.
    a_round = rates.numpy_round + size**2 * min(size, facts.costs.d) / 6.0 / rates.factorise
    return facts.costs.n / size * a_round + facts.tuning.numpy_epoch_passes * facts.costs.data_pass


def dual_epoch(facts: Facts) -> float:
    """Predict the cost of an epoch of SDNA as "auto" would run it."""
    return _numpy_epoch(facts, _numpy_size(facts)[0]) if facts.small else facts.costs.epoch


def why_not_compiled(facts: Facts, tau: Tau = "auto") -> str:
    """Return the reason why NumPy rounds are used; an empty string if kernels are.

    On small data "auto" uses blocks that are large enough for NumPy. With a τ given by the user there may be so many rounds that
    compiled kernels are worth their loading time.
    """
    problem = facts.problem
    if facts.small:
        loading = facts.tuning.rates.kernel_loading
        if tau == "auto" or _numpy_cost(facts, tau) <= loading + _compiled_cost(facts):
            return "since the data are too small to load compiled kernels"
    if tau != "auto" and tau > problem.d:
        return "since LAPACK is faster for blocks of more examples than features"
    from dualnewton.solvers.dual.compiled import why_not  # loads Numba

    return why_not(problem)


def _numpy_size(facts: Facts) -> tuple[int, str]:
    if facts.costs.n <= facts.tuning.numpy_single_block:
        return facts.costs.n, "all examples fit in one block, so each round is a step of Newton's method on the dual"
    return facts.tuning.numpy_block, "larger blocks need fewer epochs, and up to this size a round costs little more"


def _size(facts: Facts) -> tuple[int, str]:
    costs = facts.costs
    if facts.problem.regularizer.form.is_general:
        # Per example, ∇g* costs about d/τ operations and the Gram block about τ/2 entries of a row.
        size = max(facts.tuning.dense_block, round(math.sqrt(2.0 * costs.d * costs.n / max(1, costs.stored))))
        return min(size, costs.d), "blocks that balance the conjugate regularizer's gradient against their Gram matrix"
    if costs.sparse:
        return 1, "sparse rows one at a time: Gram matrices of blocks cost more than the epochs they save"
    if DOUBLE * costs.stored <= facts.tuning.rates.cache_bytes or costs.d < facts.tuning.block_features:
        return 1, "dense rows that are short or fit in the cache: one at a time is cheapest"
    return facts.tuning.dense_block, "long dense rows that exceed the cache: the rows of a block are read once"


def narrows(problem: Problem, plan: Plan, tol: float, tuning: Tuning) -> bool:
    """Whether the rounds of SDNA on long dense rows in float64 read a copy in float32, half as many bytes.

    Where φ′ is Lipschitz, errors δ of the margins leave a gap of δ²/2γ. Rounding the rows by ε changes a margin by at most
    ε‖a‖‖w‖, where ‖w‖² ≤ 2P/λ, and w by about ε‖a‖‖α‖/λn, where α² ≤ 2φ/γ. Together this leaves up to nε²κ²P, with the
    conditioning κ, until a certificate corrects w, and nε²κP from then on. Rounds to larger gaps need as many epochs as with
    exact rows. The copy costs an epoch.
    """
    profile, data, able, gamma = problem.data.profile, problem.data, problem.data.capabilities, problem.loss.gamma
    dense = able.random_rows and able.whole and not profile.sparse and profile.itemsize == DOUBLE
    if not (dense and plan.method == "sdna" and plan.tau > 1):
        return False
    if gamma is None or problem.loss.kinked or problem.regularizer.form.weights is not None:
        return False
    if not tuning.rates.cache_bytes < DOUBLE * profile.stored <= DOUBLE * tuning.narrow_entries:
        return False
    size = data.norm / math.sqrt(profile.n)  # of a row
    if not (tuning.narrow_rows <= size <= 1.0 / tuning.narrow_rows and tol <= tuning.narrow_loosest):
        return False
    largest = 1.0 if problem.sample_weight is None else float(problem.sample_weight.max())
    conditioning = 1.0 + largest * size * size / (gamma * problem.lam * profile.n)
    rounding = 0.5 * float(np.finfo(np.float32).eps) * conditioning
    return profile.n * rounding * rounding <= tuning.narrow_share * tol
