"""Bounds on the rounding errors of P₀ − D₀ of problems without a penalty (``objective/orthogonality.py`` has the proof)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.losses.rounding import DOUBLE, Roundoff
from dualnewton.objective.orthogonality import growth, independence, room_of
from dualnewton.objective.rounding import FLOAT64, _Analysis
from dualnewton.objective.row_sums import dual_sizes

if TYPE_CHECKING:
    from dualnewton.objective.certificate import CertifiedPair
    from dualnewton.objective.unpenalised import Unpenalised


def unpenalised_bound(
    problem: Unpenalised,
    pair: CertifiedPair,
    *,
    roundoff: Roundoff = FLOAT64,
    conjugates: float | None = None,
    off: np.ndarray | None = None,
) -> float | None:
    """Return R such that P₀(w, b) − P₀* ≤ P₀ − D₀ + R in exact arithmetic; None if no bound is known.

    None where features are linearly dependent up to rounding, but not exactly: a dual point that is orthogonal in exact
    arithmetic need not be near.

    Parameters
    ----------
    problem : Unpenalised
        The problem.
    pair : CertifiedPair
        The model and the dual point, with P₀ and D₀ as computed from the data.
    roundoff : Roundoff
        The arithmetic in which they were computed; float64 by default.
    conjugates : float, optional
        Σ c_i |φ*(−α_i)|, if it is known.
    off : array of shape (K, d) or (K, d + 1), optional
        Σ c_i α_ik x̃_i in this arithmetic; computed in float64 by default.
    """
    primal, dual = pair.certificate.primal, pair.certificate.dual
    if not (math.isfinite(primal) and math.isfinite(dual)):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        bound = _bound(problem, pair, roundoff, conjugates, off)
    return bound if bound is None or bound < math.inf else math.inf


def _bound(
    problem: Unpenalised, pair: CertifiedPair, roundoff: Roundoff, conjugates: float | None, off: np.ndarray | None
) -> float | None:
    unit, w, b, alpha = problem.unit, pair.w, pair.intercept, pair.alpha
    n, loss, primal, dual = unit.n, unit.loss, float(pair.certificate.primal), float(pair.certificate.dual)
    nothing = max(problem.view.zero, 0.0) if primal == 0.0 else 0.0
    of_alpha = dual_sizes(loss, alpha, unit.row_vectors, masses=unit.fit_intercept)
    analysis = _Analysis.of(unit, w, b, alpha, roundoff, of_alpha, unit.data.feature_norms)
    analysis.penalty = 0.0
    sizes = analysis._sizes(primal + nothing, dual, conjugates)
    if (change := loss.value_change(sizes, unit.y)) is None:
        return None
    # 1. The errors of Σ c_i φ(z_i), Σ c_i φ*(−α_i) and Σ c_i o_i α_i, with α in the domain of φ*.
    linear = sizes.margins * sizes.dual if unit.offset is not None else 0.0
    orthogonal = not alpha.any()  # α = 0 is orthogonal to everything, and −φ*(0) = min φ
    terms = loss.conjugate_terms(sizes) + unit.columns * linear
    if orthogonal and loss.nonnegative and dual <= 0.0:
        terms = 0.0
    error = (roundoff.terms + analysis.sums) * (loss.value_terms(sizes) + terms)
    known = nothing + (change + error) / n + 8.0 * DOUBLE * (abs(primal) + abs(dual))
    if orthogonal:
        return known
    costs, moves = analysis.into_domain(sizes)
    if unit.offset is not None:
        costs += 1.01 * moves * math.sqrt(unit.label_sums.offsets)
    # 2. ⟨r, θ⟩ for r = Σ c_i α_i x̃_i; sums in extended precision lose less than 1 % when they are rounded to float64.
    error, d = analysis.sums * analysis.mass + moves, unit.d
    excess = np.empty((unit.columns, d + unit.fit_intercept))
    along = unit.data.transposed_times(unit.weighted(alpha)).reshape(d, -1).T if off is None else off[:, :d]
    excess[:, :d] = np.maximum(problem.excess(along) + error * unit.data.feature_norms, 0.0)
    total = float(np.vdot(excess[:, :d], np.abs(w)))
    if unit.fit_intercept:
        excess[:, d] = np.abs(analysis.sizes.sums if off is None else off[:, d]) + error * math.sqrt(n)
        total += float(np.vdot(excess[:, d], np.abs(b)))
    known += (costs + 1.01 * total) / n
    # 3. The growth of h.
    if loss.curvature is Curvature.CONSTANT:  # h is a quadratic function of v, whose second derivative is 1/φ″
        if (proof := problem.independence) is None:
            return None
        T = proof.length(excess)
        return known + T * (math.sqrt(2.0 * n * (max(primal - dual, 0.0) + known)) + 0.5 * T) / n
    room = room_of(unit, alpha, sizes.away)
    if (proof := independence(unit, room, one_sided=problem.one_sided)) is None:
        return None
    change = 1.01 * (FLOAT64.unit / roundoff.unit) * sizes.change  # h is evaluated in float64
    further = growth(unit, proof.rows, proof.length(excess), alpha, room, unit.margins(w, b), change, sizes.away)
    return None if further is None else known + further / n
