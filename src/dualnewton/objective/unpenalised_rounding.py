"""Bounds on the rounding errors of P₀ − D₀ of problems without a penalty (``objective/orthogonality.py`` has the proof)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.losses.rounding import DOUBLE, Roundoff
from dualnewton.objective.orthogonality import boundary_distances, growth, independence, smooth_growth, within_reach
from dualnewton.objective.rounding import FLOAT64, _Analysis
from dualnewton.objective.row_sums import DualSizes, dual_sizes

if TYPE_CHECKING:
    from dualnewton.losses.rounding import Sizes
    from dualnewton.objective.certificate import CertifiedPair
    from dualnewton.objective.unpenalised import Unpenalised


class Sums(NamedTuple):
    """Sums over a dual point that its value and the bound on rounding errors share."""

    sizes: DualSizes  # of the dual variables alone
    along: np.ndarray  # (d,) or (d, K) Σ c_i α_i x_i


def unpenalised_bound(
    problem: Unpenalised,
    pair: CertifiedPair,
    *,
    roundoff: Roundoff = FLOAT64,
    conjugates: float | None = None,
    off: np.ndarray | None = None,
) -> tuple[float | None, float]:
    """Return R and ρ such that P₀(w, b) − P₀(v) ≤ P₀ − D₀ + R in exact arithmetic for every model v with Σ_j N_j |v_j| ≤ ρ.

    ρ is infinite where the features are proved to be independent, or to depend on others exactly. Otherwise, and where there are
    too many features for that proof, the dual point need not be near one that is orthogonal in exact arithmetic. R is None if no
    bound is known.

    P₀ and D₀ of the pair were computed from the data in the arithmetic ``roundoff``. ``conjugates`` is Σ c_i |φ*(−α_i)|, if
    it is known; ``off`` is Σ c_i α_ik x̃_i in this arithmetic, of shape (K, d) or (K, d + 1), computed in float64 by default.
    """
    primal, dual = pair.certificate.primal, pair.certificate.dual
    if not (math.isfinite(primal) and math.isfinite(dual)):
        return None, math.inf
    with np.errstate(over="ignore", invalid="ignore"):
        bound, reach = _bound(problem, pair, roundoff, conjugates, off)
    return (bound if bound is None or bound < math.inf else math.inf), reach


def _bound(
    problem: Unpenalised, pair: CertifiedPair, roundoff: Roundoff, conjugates: float | None, off: np.ndarray | None
) -> tuple[float | None, float]:
    unit, w, b, alpha = problem.unit, pair.w, pair.intercept, pair.alpha
    n, loss, primal, dual = unit.n, unit.loss, float(pair.certificate.primal), float(pair.certificate.dual)
    nothing = max(problem.view.zero, 0.0) if primal == 0.0 else 0.0
    known_sums: Sums | None = pair.sizes
    of_alpha = known_sums and known_sums.sizes
    of_alpha = of_alpha or dual_sizes(loss, alpha, unit.row_vectors, masses=unit.fit_intercept)
    analysis = _Analysis.of(unit, w, b, alpha, roundoff, of_alpha, unit.data.feature_norms)
    analysis.penalty = 0.0
    sizes = analysis._sizes(primal + nothing, dual, conjugates)
    if (change := loss.value_change(sizes, unit.y)) is None:
        return None, math.inf
    # 1. The errors of Σ c_i φ(z_i), Σ c_i φ*(−α_i) and Σ c_i o_i α_i, with α in the domain of φ*.
    linear = sizes.margins * sizes.dual if unit.offset is not None else 0.0
    orthogonal = of_alpha.squares == 0.0 and not alpha.any()  # α = 0 is orthogonal to everything, and −φ*(0) = min φ
    terms = loss.conjugate_terms(sizes) + unit.columns * linear
    if orthogonal and loss.nonnegative and dual <= 0.0:
        terms = 0.0
    error = (roundoff.terms + analysis.sums) * (loss.value_terms(sizes) + terms)
    known = nothing + (change + error) / n + 8.0 * DOUBLE * (abs(primal) + abs(dual))
    if orthogonal:
        return known, math.inf
    costs, moves = analysis.into_domain(sizes)
    if unit.offset is not None:
        costs += 1.01 * moves * math.sqrt(unit.label_sums.offsets)
    known += costs / n
    # 2. r = Σ c_i α_i x̃_i; sums in extended precision lose less than 1 % when they are rounded to float64.
    error, d = min(analysis.in_parts, _in_features(problem, roundoff)) * analysis.mass + moves, unit.d
    excess, theta = np.empty((unit.columns, d + unit.fit_intercept)), problem.view.joined(w, b)
    if off is not None:
        along = off[:, :d]
    elif known_sums is not None:
        along = known_sums.along.reshape(d, -1).T
    else:
        along = unit.data.transposed_times(unit.weighted(alpha)).reshape(d, -1).T
    excess[:, :d] = problem.excess(along) + error * unit.data.feature_norms
    if unit.fit_intercept:
        excess[:, d] = np.abs(of_alpha.sums if off is None else off[:, d]) + error * math.sqrt(n)
    if problem.one_sided:
        np.maximum(excess, 0.0, out=excess)
    # 3. The cost of a point that is exactly orthogonal; without a proof that one is near, ⟨r, v⟩ for the models v.
    total = 1.01 * float(np.vdot(excess, np.abs(theta))) / n
    further = _growth(problem, pair, excess, n * (max(primal - dual, 0.0) + known + total), sizes, roundoff)
    if further is not None:
        return known + total + further / n, math.inf
    found = within_reach(unit, theta, excess)
    return (None, math.inf) if found is None else (known + found[0] / n, found[1])


def _in_features(problem: Unpenalised, roundoff: Roundoff) -> float:
    """Return γ of Σ c_i α_i x_i for sparse features that are not proved to be independent; zeros add no rounding errors.

    It is that of one sum: here α is never the difference of two points with sums of their own, as it is where γ is tripled.
    Their number is counted where errors matter most: all of them are multiplied by the reach of the bound.
    """
    data = problem.unit.data
    if problem.view.is_small or not data.profile.sparse:
        return math.inf
    return roundoff.gamma(int(data.nonzeros().max(initial=0)) + 8)


def _growth(
    problem: Unpenalised, pair: CertifiedPair, excess: np.ndarray, gaps: float, sizes: Sizes, roundoff: Roundoff
) -> float | None:
    """Bound the growth of Σ c_i h_i ≤ gaps if α is made orthogonal; None if no orthogonal point is near."""
    unit, loss, alpha = problem.unit, problem.unit.loss, pair.alpha
    if loss.curvature is Curvature.CONSTANT:  # h is a quadratic function of v, whose second derivative is 1/φ″
        if (proof := problem.known_independence) is None:
            return None
        T = proof.length(excess)
        return T * (math.sqrt(2.0 * gaps) + 0.5 * T)
    if not problem.view.is_small:
        return None
    distances = boundary_distances(unit, alpha, sizes.away)
    if (proof := independence(unit, distances, one_sided=problem.one_sided)) is None:
        return None
    T = proof.length(excess)
    if loss.dual_curvature is not None:
        return smooth_growth(T, gaps, loss.dual_curvature, proof.lightest)
    if unit.columns > 1:
        return None
    change = 1.01 * (FLOAT64.unit / roundoff.unit) * sizes.change  # h is evaluated in float64
    return growth(unit, proof.rows, T, alpha, distances, unit.margins(pair.w, pair.intercept), change)
