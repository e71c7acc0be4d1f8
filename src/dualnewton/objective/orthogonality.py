"""What it costs to make a dual point exactly orthogonal to the features: rounding errors of problems without a penalty.

    P₀(θ) = (1/n) Σ c_i φ(z_i),  z = Ãθ + o        D₀(α) = −(1/n) Σ c_i (φ*(−α_i) + o_i α_i)  if Ãᵀcα = 0, else −∞

In floating-point arithmetic r = Ãᵀcα is small, not zero. The proof uses a dual point near α that is exactly orthogonal. With
weights m_i ≥ 0, G = Σ c_i m_i x̃_i x̃_iᵀ and u = G⁻¹r it is α_i − δ_i, δ_i = m_i x̃_iᵀu. It is not computed, since
G ⪰ c_i m_i x̃_i x̃_iᵀ gives

    Σ c_i δ_i²/m_i = rᵀG⁻¹r ≤ T²,    |δ_i| ≤ T (m_i/c_i)^½,    T = ‖Sr‖ / λ^½,    λ ≤ λ_min(SGS)

for any scaling S. With h_i(v) = φ*(v) + φ(z_i) − v z_i ≥ 0, which is convex in v and whose mean over the examples is the gap,

    n D₀(α) − n D₀(α − δ) = ⟨r, θ⟩ + Σ c_i (h_i(δ_i − α_i) − h_i(−α_i)).

⟨r, θ⟩ is the error that a penalty would have as well. The sum over h is a product of two small numbers: h_i has slope zero at the
optimum. By convexity it is at most 1/F of the same sum for Fδ, for any factor F ≥ 1, which divides the rounding errors of h by F.

λ is proved by a Cholesky factorisation in floating-point arithmetic. If that of B − sI succeeds, then by its backward error
(Demmel; S. M. Rump, Verification of positive definiteness, BIT 46, 2006) λ_min(B) ≥ s − γ_{m+1}/(1 − γ_{m+1}) tr(B) for m × m
matrices. m_i is the distance of −α_i from the boundary of the domain of φ*, so that δ stays inside. A few rows with large c_i m_i
suffice: the other examples keep their dual variables. For K columns δ_ik = m_i x̃_iᵀG⁻¹r_k, and T² is the sum over the columns.

Features that are exact linear combinations of others are left out of G: a point that is orthogonal to those is orthogonal to
them (``objective/relations.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton.losses.rounding import DOUBLE, Roundoff
from dualnewton.matrix import as_data
from dualnewton.objective.relations import spanning_features

if TYPE_CHECKING:
    from dualnewton.losses import Loss
    from dualnewton.matrix.selections import Selection
    from dualnewton.objective.problem import Problem

SHIFTS = tuple(2.0**-power for power in (4, 12, 20, 28, 36))
"""Values s that are tried as lower bounds of the smallest eigenvalue, for a diagonal between ½ and 2."""

ROWS, MORE_ROWS = 2, 128
"""Rows of the first attempt: the first number times the number of coefficients, plus the second. (A certificate sums over all
rows; with 2000 features a second sum of this kind would exceed time limits.)"""

ELSEWHERE = 16
"""Factor by which the second attempt has more rows, if the rows are not in memory: they are copied here."""

LIGHTEST = 1e-6
"""Rows whose c_i m_i is less than this fraction of the largest keep their dual variables."""

FARTHEST = 2.0**20
"""Largest factor F."""

SMALLEST = 1e-280
"""Smallest sum of squares of a feature: products that underflow are then negligible against it."""

OUTSIDE = 4.0
"""Rows whose m_i is less than this many times their distance from the domain of φ* keep their dual variables."""

FLOAT64 = Roundoff()


class Independence(NamedTuple):
    """A proof that the features are linearly independent on some rows, by which dual points are made orthogonal to them.

    Attributes
    ----------
    rows : Selection
        The rows whose δ_i is not zero.
    kept : array of int, or ...
        The features that are neither zero nor linear combinations of others, and the intercept.
    scale : array
        The diagonal of S.
    smallest : float
        λ ≤ λ_min(SGS).
    """

    rows: Selection
    kept: Any
    scale: np.ndarray
    smallest: float

    def length(self, excess: np.ndarray) -> float:
        """Return T for a dual point whose |Ãᵀcα| is at most ``excess``: a row for each column of α, with the intercept last."""
        scaled = self.scale * excess[:, self.kept]
        return 1.01 * math.sqrt(float(np.vdot(scaled, scaled)) / self.smallest)


def room_of(problem: Problem, alpha: Any, away: float = 0.0) -> Any:
    """Return m_i, the distance of −α_i from the boundary of the domain of φ*; one if the domain has no boundary.

    It is zero where it is less than ``OUTSIDE`` times ``away``, a bound of the distance of −α_i from the domain.
    """
    room = problem.loss.room(alpha, problem.y)
    return np.where(room > OUTSIDE * away, room, 0.0)


def independence(problem: Problem, room: Any | None = None, *, one_sided: bool = False) -> Independence | None:
    """Prove that the features are linearly independent, or that some are and the others depend on them exactly.

    None if both proofs fail.

    Parameters
    ----------
    problem : Problem
        The problem, with any penalty.
    room : row array, optional
        m_i; ones by default.
    one_sided : bool
        Whether a dual point needs (Ãᵀcα)_j ≤ 0 only. Then a feature that depends on others has a constraint of its own.
    """
    kept = _varying(problem)
    if kept is None:
        return None
    last = None
    for rows, G in _grams(problem, room):
        size = rows.size
        own = G if kept is Ellipsis else G[np.ix_(kept, kept)]
        # Each entry is a sum of products of three numbers.
        if (found := _scaled(own, FLOAT64.gamma(size + 8))) is not None:
            return Independence(rows, kept, *found)
        last = rows, G, size
    # Relations between features are evaluated on all rows, which are not read again from files or copied here from elsewhere.
    if one_sided or last is None or not problem.data.capabilities.whole:
        return None
    rows, G, size = last
    kept = spanning_features(problem.data, G, np.arange(len(G)) if kept is Ellipsis else kept)
    found = None if kept is None else _scaled(G[np.ix_(kept, kept)], FLOAT64.gamma(size + 8))
    return None if found is None else Independence(rows, kept, *found)


def _grams(problem: Problem, room: Any) -> Iterator[tuple[Selection, np.ndarray]]:
    """Yield G of some of the rows with large c_i m_i, and of more of them, with these rows: all rows, if they are in memory."""
    data, weights = problem.data, problem.c if room is None else problem.weighted(room)
    largest, few = float(weights.max()), ROWS * (problem.d + 1) + MORE_ROWS
    if not 0.0 < largest < math.inf:
        return
    if not data.capabilities.local:
        for most in (few, ELSEWHERE * few) if data.n > few else (few,):
            rows = np.arange(0, data.n, -(-data.n // most))
            own = data.entries(weights, rows)
            rows, own = rows[own >= LIGHTEST * largest], own[own >= LIGHTEST * largest]
            if rows.size:
                yield rows, as_data(data.rows(rows)).weighted_gram(own, intercept=problem.fit_intercept)
        return
    all_rows = data.active(np.where(weights >= LIGHTEST * largest, weights, 0.0))
    attempts = [all_rows[:: -(-all_rows.size // few)]] if all_rows.size > few else []
    for rows in (*attempts, all_rows):
        yield rows, data.weighted_gram(data.take(weights, rows), rows, intercept=problem.fit_intercept)


def _varying(problem: Problem) -> Any:
    """Return the features that are not zero in all rows, for which alone a dual point must be made orthogonal (… if all)."""
    data = problem.data
    if data.feature_norms.all():
        return ...
    zero = data.absolute_sums(data.ones()) == 0.0  # squares may underflow
    if not np.all(data.feature_norms[~zero] > 0.0):
        return None
    return np.append(np.flatnonzero(~zero), np.arange(problem.d, problem.d + problem.fit_intercept))


def _scaled(G: np.ndarray, error: float) -> tuple[np.ndarray, float] | None:
    """Return the diagonal of S and λ; None if no λ > 0 is proved. G_jk has the error (G_jj G_kk)^½ times ``error``."""
    diagonal = G.diagonal()
    if not diagonal.size:
        return diagonal, 1.0
    if not (diagonal.min() > SMALLEST and diagonal.max() < math.inf):
        return None
    scale = np.ldexp(1.0, -(np.frexp(diagonal)[1] >> 1))  # powers of two: the scaled matrix has no new errors
    smallest = smallest_eigenvalue(scale[:, None] * G * scale, error)
    return (scale, smallest) if smallest > 0.0 else None


def smallest_eigenvalue(B: np.ndarray, error: float) -> float:
    """Return a proved lower bound of the smallest eigenvalue of a matrix; zero if none was found.

    Parameters
    ----------
    B : array of shape (m, m)
        The matrix, symmetric up to rounding, with a diagonal between ½ and 2, which is overwritten. Its lower triangle is used.
    error : float
        The entries B_jk have errors of at most (B_jj B_kk)^½ times this: a matrix of norm tr(B) times this.
    """
    from scipy.linalg.lapack import dpotrf

    diagonal = B.diagonal().copy()
    factor = FLOAT64.gamma(len(B) + 2)
    lost = 1.01 * (factor / (1.0 - factor) + error) * float(diagonal.sum()) + 8.0 * DOUBLE
    for shift in SHIFTS:
        if shift <= 2.0 * lost:
            break
        B.flat[:: len(B) + 1] = diagonal - shift
        if dpotrf(B, lower=True, clean=False)[1] == 0:
            return shift - lost
    return 0.0


def growth(
    problem: Problem, rows: Selection, length: float, alpha: Any, room: Any, z: Any, change: float, away: float
) -> float | None:
    """Return a bound of Σ c_i (h_i(δ_i − α_i) − h_i(−α_i)); None if the correction may leave the domain of φ*.

    With K > 1 columns the entries of δ_i add up to zero, as those of α_i do. The ball of radius ρ of such vectors lies in the
    simplex with the vertices ρ(K e_k − 1), and a convex function is largest at a vertex.

    Parameters
    ----------
    problem : Problem
        The problem, with any penalty.
    rows, length
        The rows whose δ_i is not zero, and T.
    alpha, room, z : row arrays
        α, m and the margins, whose errors e are bounded by ``change`` ≥ (Σ c_i e_i²)^½.
    change, away : float
        This bound, and that of the distance of each dual variable from the domain of φ*.
    """
    if length == 0.0:
        return 0.0
    loss, entries = problem.loss, problem.data.entries
    y, c, m, v, z = (entries(values, rows) for values in (problem.y, problem.c, room, -alpha, z))
    factor = min(FARTHEST, 0.5 * math.sqrt(float((c * m).min())) / length)
    if not factor >= 1.0:
        return None
    far, value = factor * length * np.sqrt(m / c), loss.value(z, y)
    h, terms = _one(loss, y, v, z, far) if problem.columns == 1 else _several(loss, y, v, z, far, m, away)
    h, terms = h + value, terms + np.abs(value)
    errors = 2.0 * (FLOAT64.terms + FLOAT64.gamma(rows.size + 8))
    total = max(float(c @ h), 0.0) + errors * float(c @ terms)
    # The h_i of the proof are those of the computed margins: δ times their errors is the rest.
    return total / factor + 1.01 * length * math.sqrt(float(m.max())) * change


def _one(loss: Loss, y: np.ndarray, v: np.ndarray, z: np.ndarray, far: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the larger of φ*(v ± far) − (v ± far)z, and the terms of both, for losses of one column."""
    at = v + np.multiply.outer([1.0, -1.0], far)  # both ends at once: calls dominate the time of a small fit
    conjugates = loss.conjugate(at, y[None])
    terms = (np.abs(v) + far) * (np.abs(z) + 2.0 * np.abs(loss.label_sizes(y)) + 1.0)
    return (conjugates - at * z).max(axis=0), terms + np.abs(conjugates).sum(axis=0)


def _several(
    loss: Loss, y: np.ndarray, v: np.ndarray, z: np.ndarray, far: np.ndarray, m: np.ndarray, away: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the same at the vertices of the simplex of K columns; −α_i may be outside of the domain by ``away``."""
    K, h = z.shape[1], np.full(len(z), -math.inf)
    slopes = np.abs(z).max(axis=1) - np.log(m) + 1.0  # of φ*, and z; m ≤ 1/K
    terms = (np.abs(v).sum(axis=1) + (K * K) * (far + away / FLOAT64.terms)) * slopes
    for vertex in K * np.eye(K) - 1.0:
        at = v + far[:, None] * vertex
        conjugates = loss.conjugate(at, y)
        h, terms = np.maximum(h, conjugates - (at * z).sum(axis=1)), terms + np.abs(conjugates)
    return h, terms
