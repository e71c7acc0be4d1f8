"""Bounds on the rounding errors of P − D of Huber's regression with a scale (``objective/huber_scale.py``).

P(w, b, σ) is a mean of losses whose slopes in the residuals r_i are at most ε, plus the penalty. The dual problem has three
constraints. A dual point that violates them by rounding is moved to one that satisfies them exactly:

- Σ c_i α_i = 0 with an intercept: the entries of one sign are scaled down, as for any loss (``Loss.balancing_cost``). If λ = 0,
  the point is made orthogonal to all features and the intercept instead (``objective/orthogonality.py``).
- |α_i| ≤ ε and Σ c_i α_i² ≤ Σ c_i: α is divided by 1 + η. D is concave and D(0) = 0, so that D falls by at most η D(α).

u, γ and the bounds on sums by norms are those of ``objective/rounding.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.losses.rounding import DOUBLE, Roundoff
from dualnewton.objective.orthogonality import boundary_distances, independence, within_reach
from dualnewton.objective.rounding import FLOAT64, sums_in_parts
from dualnewton.objective.row_sums import DualSizes, dual_sizes

if TYPE_CHECKING:
    from dualnewton.objective.certificate import CertifiedPair
    from dualnewton.objective.huber_scale import HuberScaleProblem


def scale_bound(
    problem: HuberScaleProblem, pair: CertifiedPair, *, roundoff: Roundoff = FLOAT64, along: np.ndarray | None = None
) -> tuple[float | None, float]:
    """Return R such that P(w, b, σ) − P* ≤ P − D + R in exact arithmetic, or None if no bound is known, and ρ.

    ρ is infinite unless λ = 0 and features are linearly dependent up to rounding, but not exactly: R is then a bound in
    comparison with models v whose Σ_j N_j |v_j| is at most ρ (``objective/orthogonality.py``).

    P and D of the pair were computed from the data in the arithmetic ``roundoff``. ``along`` is Σ c_i α_i a_i in this
    arithmetic; computed in float64 by default.
    """
    primal, dual = pair.certificate.primal, pair.certificate.dual
    if not (math.isfinite(primal) and math.isfinite(dual)):
        return None, math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        if along is None:
            along = problem.unit.data.transposed_times(problem.unit.weighted(pair.alpha))
        (lower, reach), upper = _dual_errors(problem, pair, along, roundoff), _primal_errors(problem, pair, roundoff)
        bound = None if lower is None else upper + lower + 8.0 * DOUBLE * (abs(primal) + abs(dual))
    return (bound if bound is None or bound < math.inf else math.inf), reach


def _primal_errors(problem: HuberScaleProblem, pair: CertifiedPair, roundoff: Roundoff) -> float:
    """Return a bound on the error of P."""
    unit = problem.unit
    change = (
        problem.epsilon * math.sqrt(1.01 * unit.label_sums.squared_weight) * _residual_errors(problem, pair, roundoff)
    )
    relative = roundoff.terms + roundoff.gamma(unit.n + 8) + roundoff.gamma(unit.d + 8)
    nothing = max(problem.zero, 0.0) if pair.certificate.primal == 0.0 else 0.0
    return nothing + change / unit.n + 2.0 * relative * (float(pair.certificate.primal) + nothing)


def _residual_errors(problem: HuberScaleProblem, pair: CertifiedPair, roundoff: Roundoff) -> float:
    """Return a bound on the Euclidean norm of the errors of the residuals."""
    unit = problem.unit
    size = float(np.abs(pair.w) @ unit.data.feature_norms) + math.sqrt(unit.n) * abs(pair.intercept)
    return 1.01 * roundoff.gamma(unit.d + 12) * (size + math.sqrt(unit.label_sums.own))


def _dual_errors(
    problem: HuberScaleProblem, pair: CertifiedPair, along: np.ndarray, roundoff: Roundoff
) -> tuple[float | None, float]:
    """Return by how much D(α) as computed may exceed the value of a dual point that is feasible in exact arithmetic, and ρ."""
    unit, dual, alpha = problem.unit, float(pair.certificate.dual), pair.alpha
    if not alpha.any():  # D(0) = 0
        return 0.0, math.inf
    sizes = dual_sizes(unit.loss, alpha, unit.row_vectors, masses=True)
    n, sums, norms, of_labels = unit.n, roundoff.gamma(unit.n + 8), unit.data.feature_norms, unit.label_sums
    in_parts = sums_in_parts(unit, alpha, roundoff)
    size, mass = 1.01 * math.sqrt(sizes.weighted), 1.01 * math.sqrt(sizes.squares)
    linear = 1.01 * size * math.sqrt(of_labels.labels) / n  # (1/n) Σ c_i |α_i y_i|
    squares, reach = sizes.weighted * (1.0 + 2.0 * sums), math.inf
    if problem.lam > 0.0:
        share = _unbalanced(sizes, in_parts) if unit.fit_intercept else 0.0
        moved = (min(share, 1.0) + in_parts) * mass
        quadratic = float(along @ along) / (2.0 * problem.lam * n * n)
        error = (sums + share) * linear + 2.0 * roundoff.gamma(unit.d + 8) * quadratic
        error += 1.01 * moved * float((np.abs(along) + 0.5 * moved * norms) @ norms) / (problem.lam * n * n)
    else:
        excess, theta = np.abs(along) + in_parts * mass * norms, np.abs(pair.w)
        if unit.fit_intercept:
            excess = np.append(excess, abs(sizes.sums) + in_parts * mass * math.sqrt(n))
            theta = np.append(theta, abs(pair.intercept))
        excess = excess.astype(np.float64)
        if (further := _orthogonal(problem, pair, excess)) is not None:
            squares += further[1]
            error = sums * linear + (1.01 * float(excess @ theta) + further[0]) / n
        elif (found := within_reach(unit, theta[None], excess[None])) is not None:
            error, reach = sums * linear + found[0] / n, found[1]
        else:
            return None, math.inf
    ratio = squares / (of_labels.weight * (1.0 - 2.0 * FLOAT64.gamma(n + 8)))
    largest = float(np.abs(alpha).max()) / problem.epsilon
    eta = max(math.sqrt(ratio) - 1.0, largest - 1.0, 0.0) + 8.0 * DOUBLE
    return error + eta * max(dual, 0.0), reach


def _unbalanced(sizes: DualSizes, sums: float) -> float:
    """Return the fraction τ by which the entries of one sign are scaled down until Σ c_i α_i = 0."""
    smaller = 0.5 * (sizes.absolute - abs(sizes.sums)) - 2.0 * sums * sizes.absolute
    return (abs(sizes.sums) + 4.0 * sums * sizes.absolute) / smaller if smaller > 0.0 else math.inf


def _orthogonal(problem: HuberScaleProblem, pair: CertifiedPair, excess: np.ndarray) -> tuple[float, float] | None:
    """Bound Σ c_i |δ_i r_i| and the growth of Σ c_i α_i² for the correction δ that makes α orthogonal; None if there is none.

    Σ c_i δ_i y_i = ⟨Σ c_i δ_i x̃_i, θ⟩ − Σ c_i δ_i r_i. By Cauchy–Schwarz Σ c_i |δ_i r_i| ≤ T (Σ c_i m_i r_i²)^½.
    """
    unit, alpha = problem.unit, pair.alpha
    distances = boundary_distances(unit, alpha)
    if (proof := independence(unit, distances)) is None:
        return None
    entries, T = unit.data.entries, proof.length(excess[None])
    r = unit.margins(pair.w, pair.intercept) - unit.y
    c, m, a, r = (entries(values, proof.rows) for values in (unit.c, distances, alpha, r))
    if not 0.25 * float((c * m).min()) >= T * T:
        return None
    of_r, of_alpha = (1.01 * T * math.sqrt(float((c * m) @ np.square(each))) for each in (r, a))
    errors = 1.01 * T * math.sqrt(float((c * m).max())) * _residual_errors(problem, pair, FLOAT64)
    return of_r + errors, 2.0 * of_alpha + 1.01 * float(m.max()) * T * T
