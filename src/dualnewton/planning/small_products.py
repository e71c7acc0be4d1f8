"""Direct solvers by products with X: which problems they take, and how many products cost as much as other methods."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from dualnewton.losses import Curvature
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.costs import DOUBLE, SINGLE, Costs, is_small
from dualnewton.planning.dual import expected_epochs
from dualnewton.planning.eligible import has_hessian
from dualnewton.planning.facts import evenly_spaced, first_margins, mean_squared_cosine
from dualnewton.planning.plan import Plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.solvers.primal.single_precision import mean_noise

LARGE = 1e15
"""Norm of X up to which, and inverse of that from which on, products with dense rows in float32 neither overflow nor vanish."""


def multiplies_entries(profile: Profile, tuning: Tuning = DEFAULT, columns: int = 1, hessians: float = 0.0) -> bool:
    """Whether sparse rows are so few, and so thin, that a fit by products with them costs less than one with matrices.

    For several classes and fewer examples than features, the other methods have n×n matrices for each class. ``hessians`` are
    the multiplications of all Hessians of a fit with few features.
    """
    factor = tuning.product_growth if columns > 1 and profile.n < profile.d else 1
    many = profile.d > tuning.product_features or hessians > tuning.product_hessians
    return many and _is_thin(profile, tuning) and profile.stored <= factor * tuning.product_entries


def _is_thin(profile: Profile, tuning: Tuning) -> bool:
    """Whether few entries of the rows are stored."""
    return profile.sparse and profile.stored <= tuning.expanded_share * profile.n * profile.d


def _hessians(problem: Any, tuning: Tuning) -> float:
    """Multiplications of the Hessians of Newton's method on all rows of small data.

    More rows are sampled first, and losses without γ start from their labels, so that one or two Hessians suffice.
    """
    n, d, loss = problem.n, problem.d, problem.loss
    every = problem.columns == 1 and loss.gamma is not None and is_small(tuning, n, d)
    return newton_steps(problem, tuning) * n * d * d if every else 0.0


def takes_products(problem: Any, tuning: Tuning) -> bool:
    """Whether Newton's method by products with sparse rows is expected to cost less than with matrices.

    With fewer examples than features, a weak penalty and a kink in φ′ (squared hinge), dual rounds cost less, but they are
    compiled.
    """
    n, d, data = problem.n, problem.d, problem.data
    multiplies = multiplies_entries(data.profile, tuning, problem.columns, _hessians(problem, tuning))
    if not (multiplies and has_hessian(problem) and data.capabilities.whole):
        return False
    kinked = n * tuning.round_features <= d and problem.loss.curvature is Curvature.PIECEWISE
    if kinked and is_weak(problem, tuning) and not is_small(tuning, n, d):
        return False
    cost, others = products_cost(problem, tuning), _without_products(problem, tuning)
    if cost <= others or n < d or problem.columns > 1:
        return cost <= others
    if problem.loss.curvature is Curvature.CONSTANT:
        return cost <= tuning.quadratic_optimism * others
    if cost > tuning.product_optimism * others:
        return False
    if is_small(tuning, n, d) or _rounds_cost(problem, tuning) <= tuning.product_rounds * others:
        return True
    return d * mean_squared_cosine(problem, tuning) <= tuning.isotropic_rows


def _rounds_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of dual rounds on no fewer rows than features; their epochs may be three times as many or few as predicted."""
    return expected_epochs(conditioning_of(problem, tuning), tuning) * Costs.of(problem.data.profile, tuning).epoch


def conditioning_of(problem: Any, tuning: Tuning) -> float:
    """1 + R/(γλn) for the mean R of ‖a_i‖²: the epochs in which a dual method divides the gap by e."""
    return float(1.0 + problem.data.norm**2 * _curvature(problem, tuning) / (problem.lam * problem.n**2))


def takes_many_products(problem: Any, tuning: Tuning) -> bool:
    """Whether the penalty is so strong that few products are needed, which cost less than other methods also with more entries.

    Other methods use kernels, which read entries faster, in all threads and for several models at a time.
    """
    n, d, profile = problem.n, problem.d, problem.data.profile
    few = _is_thin(profile, tuning) and profile.stored <= tuning.product_growth * tuning.product_entries
    few = few and problem.columns == 1 and n >= d > tuning.product_features
    if not (few and has_hessian(problem) and problem.data.capabilities.whole):
        return False
    return products_cost(problem, tuning) <= _without_products(problem, tuning)


def takes_few_products(problem: Any, tuning: Tuning) -> bool:
    """Whether the penalty on sparse rows is so strong that products cost less than the sums of Hessians."""
    constant = problem.loss.curvature is Curvature.CONSTANT
    share = tuning.few_products if constant else tuning.fewer_products
    return products_cost(problem, tuning) < share * _without_products(problem, tuning)


def takes_large_products(problem: Any, tuning: Tuning) -> bool:
    """Whether dense rows that make a large block have so many features that other methods cost more than products with it.

    Other methods use kernels, in all threads and for several models at a time, and begin with the diagonal of the Hessian or a
    sample. For a quadratic loss a sample saves no Hessian, and one system is enough.
    """
    few = not problem.data.profile.sparse and problem.n * problem.d <= tuning.product_block
    if not (few and takes_block_products(problem, tuning)):
        return False
    return problem.loss.curvature is Curvature.CONSTANT or _directions(problem, tuning) >= tuning.block_products


def takes_block_products(problem: Any, tuning: Tuning) -> bool:
    """Whether a dense block has so many features that its Hessian costs more than some products with it in float32.

    With few rows for each feature, the curvature of many rows changes from step to step with a piecewise quadratic loss, and
    changes much with a loss without γ. Newton's method has one Hessian for a quadratic loss, and several for others.
    """
    if problem.data.profile.sparse or is_small(tuning, problem.n, problem.d):
        return False
    uneven = problem.loss.curvature is Curvature.PIECEWISE or problem.loss.gamma is None
    least = tuning.product_rows if uneven else 1.0
    if problem.columns > 1 or problem.n < least * problem.d:
        return False
    if not (has_hessian(problem) and problem.data.capabilities.whole):
        return False
    if not 1.0 / LARGE <= problem.data.norm <= LARGE or _loses_digits(problem, tuning):
        return False
    quadratic = problem.loss.curvature is Curvature.CONSTANT
    fewest = tuning.quadratic_products if quadratic else tuning.fewest_products
    return _directions(problem, tuning) >= fewest


def _loses_digits(problem: Any, tuning: Tuning) -> bool:
    """Whether the rounding errors of products in float32 exceed the ridge of least squares: then no method with them would
    converge.
    """
    ratio = problem.data.norm**2 / (problem.lam * problem.n * problem.d)
    return problem.loss.curvature is Curvature.CONSTANT and mean_noise(ratio, problem.d) > tuning.single_noise


def shares_products(problem: Any, models: int, tuning: Tuning) -> bool:
    """Whether conjugate gradients of several models multiply X with all their vectors at once: if these fit into memory."""
    return bool(models * problem.columns * max(problem.n, problem.d) <= tuning.shared_margins)


def with_directions(plan: Plan, problem: Any, tuning: Tuning) -> Plan:
    """Return the plan with the number of conjugate gradients after which other methods continue."""
    return replace(plan, directions=_directions(problem, tuning))


def _directions(problem: Any, tuning: Tuning) -> int:
    """Return the conjugate gradients that cost as much as a Hessian and the steps of L-BFGS from it, or several times as much.

    On dense rows the products are in float32. There is no limit, 0, for several classes and for fewer examples than features:
    conjugate gradients are chosen there without ``product_optimism``.
    """
    n, d, rates = problem.n, problem.d, tuning.rates
    if problem.data.profile.sparse:
        if n < d or problem.columns > 1:
            return 0
        others = rates.run + tuning.product_patience * _without_products(problem, tuning)
        return int(others / _sparse_product(problem, tuning))
    bandwidth = rates.cache_bandwidth if n * d <= tuning.direct_entries else rates.memory_bandwidth
    product = rates.product_call + SINGLE * n * d / bandwidth + (n + d) * rates.margin
    kind = "products", problem.data.profile, problem.loss.curvature
    found: int = tuning.kept(kind, lambda: int(_descent_cost(problem, tuning) / product))
    return found


def _without_products(problem: Any, tuning: Tuning) -> float:
    """Seconds of the other methods on sparse rows."""
    if problem.n >= problem.d and problem.columns == 1:
        return _descent_cost(problem, tuning)
    return factor_cost(problem, 1, tuning) if problem.n < problem.d else _hessian_cost(problem, tuning)


def _descent_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of one Hessian and the steps of L-BFGS from it."""
    costs = Costs.of(problem.data.profile, tuning)
    passes = tuning.last_passes if problem.loss.curvature is Curvature.CONSTANT else tuning.newton_passes
    return costs.added(problem.n) + passes * costs.data_pass


def products_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of Newton's method by products with sparse rows, of which a system takes √(1 + h/λn).

    h, a mean eigenvalue of the Hessian, is the sum of the squares of all entries, times the curvature of the loss, over
    min(n, d). Logistic losses of fewer examples than features have little curvature at the minimum: all examples are fitted.
    """
    n, d = problem.n, problem.d
    h = problem.data.norm**2 * _curvature(problem, tuning) / min(n, d)
    products = math.sqrt(1.0 + h / (problem.lam * n))
    if n < d and problem.loss.curvature is Curvature.VARYING and problem.loss.gamma is not None:
        products = min(products, tuning.fitted_products)
    systems = 1.0 if problem.loss.curvature is Curvature.CONSTANT else tuning.product_systems
    return systems * products * _sparse_product(problem, tuning)


def _sparse_product(problem: Any, tuning: Tuning) -> float:
    """Seconds of a conjugate gradient on sparse rows."""
    rates, rows = tuning.rates, problem.n + problem.d
    return rates.product_call + problem.columns * (
        problem.data.profile.stored * rates.sparse_entry + rows * rates.margin
    )


def _hessian_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of Newton's method with d×d matrices, step by step in the loop."""
    costs = Costs.of(problem.data.profile, tuning)
    step = costs.added(problem.n) if problem.columns == 1 else costs.class_step(problem.columns)
    steps, every = newton_steps(problem, tuning), costs.with_columns(problem.columns).data_pass
    return steps * (step + every) + tuning.certificate_passes * every


def is_weak(problem: Any, tuning: Tuning) -> bool:
    """Whether the penalty is weak: the mean of ‖a_i‖² is more than ``round_conditioning`` times λn."""
    return bool(problem.data.norm**2 > tuning.round_conditioning * problem.lam * problem.n**2)


def _curvature(problem: Any, tuning: Tuning) -> float:
    """Return 1/γ, or for losses without γ the mean of φ″ of some rows at w = 0 and the best intercept."""
    if (gamma := problem.loss.gamma) is not None:
        return 1.0 / float(gamma)
    some = evenly_spaced(problem.n, tuning.norm_sample)
    at, y = first_margins(problem, some), problem.data.entries(problem.y, some)
    return float(problem.loss.second_derivative(at, y).mean())


def factor_cost(problem: Any, models: int, tuning: Tuning) -> float:
    """Seconds of the n×n Gram matrix, and of Newton's method on n coordinates for each model."""
    n = problem.n
    few = Costs(n, n, n * n, 0.5 * n**3, False, DOUBLE, tuning=tuning)
    step = few.added(n) if problem.columns == 1 else few.class_step(problem.columns)
    return Costs.of(problem.data.profile, tuning).gram(n) + models * newton_steps(problem, tuning) * step


def newton_steps(problem: Any, tuning: Tuning) -> float:
    """Predict the steps of Newton's method from w = 0."""
    steps = {Curvature.CONSTANT: 1.0, Curvature.PIECEWISE: tuning.near_passes}
    return steps.get(problem.loss.curvature, tuning.newton_passes)
