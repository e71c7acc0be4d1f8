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
matrices. m_i is the distance of −α_i from the ends of the domain of φ*, so that δ stays inside. A few rows with large c_i m_i
suffice: the other examples keep their dual variables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton.losses.rounding import DOUBLE, Roundoff

if TYPE_CHECKING:
    from dualnewton.matrix.selections import Selection
    from dualnewton.objective.problem import Problem

SHIFTS = tuple(2.0**-power for power in (4, 12, 20, 28, 36))
"""Values s that are tried as lower bounds of the smallest eigenvalue, for a diagonal between ½ and 2."""

ROWS, MORE_ROWS = 8, 64
"""Rows of the first attempt: the first number times the number of coefficients, plus the second."""

LIGHTEST = 1e-6
"""Rows whose c_i m_i is less than this fraction of the largest keep their dual variables."""

FARTHEST = 2.0**20
"""Largest factor F."""

SMALLEST = 1e-280
"""Smallest sum of squares of a feature: products that underflow are then negligible against it."""

FLOAT64 = Roundoff()


class Independence(NamedTuple):
    """A proof that the features are linearly independent on some rows, by which dual points are made orthogonal to them.

    Attributes
    ----------
    rows : Selection
        The rows whose δ_i is not zero.
    kept : array of int, or ...
        The features that are not zero, and the intercept.
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
        """Return T for a dual point whose |Ãᵀcα| is at most ``excess``, of the features and, last, of the intercept."""
        scaled = self.scale * excess[self.kept]
        return 1.01 * math.sqrt(float(scaled.dot(scaled)) / self.smallest)


def room_of(problem: Problem, alpha: Any) -> Any:
    """Return m_i, the distance of −α_i from the ends of the domain of φ*; one if the domain has no ends."""
    low, high = problem.loss.domain(problem.y)
    room = np.minimum(-alpha - low, high + alpha)
    return np.where(np.isinf(room), 1.0, np.maximum(room, 0.0))


def independence(problem: Problem, room: Any | None = None) -> Independence | None:
    """Prove that the features are linearly independent; None if the proof fails.

    Parameters
    ----------
    problem : Problem
        The problem, with any penalty.
    room : row array, optional
        m_i; ones by default.
    """
    kept = _varying(problem)
    if kept is None:
        return None
    data, weights = problem.data, problem.c if room is None else problem.weighted(room)
    if room is None and problem.sample_weight is None:
        all_rows = np.arange(problem.n)
    else:
        largest = float(weights.max())
        if not 0.0 < largest < math.inf:
            return None
        all_rows = data.active(np.where(weights >= LIGHTEST * largest, weights, 0.0))
    few = ROWS * (problem.d + 1) + MORE_ROWS
    for most in (few, all_rows.size) if all_rows.size > few else (few,):
        rows = all_rows[:: -(-all_rows.size // most)]
        G = data.weighted_gram(data.take(weights, rows), rows, intercept=problem.fit_intercept)
        if kept is not Ellipsis:
            G = G[np.ix_(kept, kept)]
        # Each entry is a sum of products of three numbers.
        if (found := _scaled(G, FLOAT64.gamma(rows.size + 8))) is not None:
            return Independence(rows, kept, *found)
    return None


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
        np.fill_diagonal(B, diagonal - shift)
        if dpotrf(B, lower=True, clean=False)[1] == 0:
            return shift - lost
    return 0.0


def growth(
    problem: Problem, rows: Selection, length: float, alpha: Any, room: Any, z: Any, change: float
) -> float | None:
    """Return a bound of Σ c_i (h_i(δ_i − α_i) − h_i(−α_i)); None if the correction may leave the domain of φ*.

    Parameters
    ----------
    problem : Problem
        The problem, with any penalty.
    rows, length
        The rows whose δ_i is not zero, and T.
    alpha, room, z : row arrays
        α, m and the margins, whose errors e are bounded by ``change`` ≥ (Σ c_i e_i²)^½.
    """
    if length == 0.0:
        return 0.0
    loss, take = problem.loss, problem.data.take
    y, c, m, v, z = (take(values, rows) for values in (problem.y, problem.c, room, -alpha, z))
    factor = min(FARTHEST, 0.5 * math.sqrt(float((c * m).min())) / length)
    if not factor >= 1.0:
        return None
    far = factor * length * np.sqrt(m / c)
    value, ends = loss.value(z, y), [(v + move, loss.conjugate(v + move, y)) for move in (far, -far)]
    h = np.maximum(*(conjugate - at * z for at, conjugate in ends)) + value
    terms = np.abs(value) + (np.abs(v) + far) * (np.abs(z) + 2.0 * np.abs(loss.label_sizes(y)) + 1.0)
    for _, conjugate in ends:
        terms = terms + np.abs(conjugate)
    errors = 2.0 * (FLOAT64.terms + FLOAT64.gamma(rows.size + 8))
    total = max(float(c @ h), 0.0) + errors * float(c @ terms)
    # The h_i of the proof are those of the computed margins: δ times their errors is the rest.
    return total / factor + 1.01 * length * math.sqrt(float(m.max())) * change
