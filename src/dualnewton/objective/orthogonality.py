"""What it costs to make a dual point exactly orthogonal to the features: rounding errors of problems without a penalty.

    P₀(θ) = (1/n) Σ c_i φ(z_i),  z = Ãθ + o        D₀(α) = −(1/n) Σ c_i (φ*(−α_i) + o_i α_i)  if Ãᵀcα = 0, else −∞

In floating-point arithmetic r = Ãᵀcα is small, not zero. The proof uses a dual point near α that is exactly orthogonal. With
weights m_i ≥ 0, G = Σ c_i m_i x̃_i x̃_iᵀ and u = G⁻¹r it is α_i − δ_i, δ_i = m_i x̃_iᵀu. It is not computed, since
G ⪰ c_i m_i x̃_i x̃_iᵀ gives

    Σ c_i δ_i²/m_i = rᵀG⁻¹r ≤ T²,    |δ_i| ≤ T (m_i/c_i)^½,    T = ‖Sr‖ / λ^½,    λ ≤ λ_min(SGS)

for any scaling S. With h_i(v) = φ*(v) + φ(z_i) − v z_i ≥ 0, which is convex in v and whose mean over the examples is the gap,

    n D₀(α) − n D₀(α − δ) = ⟨r, θ⟩ + Σ c_i (h_i(δ_i − α_i) − h_i(−α_i)).

⟨r, θ⟩ is the error that a penalty would have as well. The sum over h is a product of two small numbers, since h_i has slope zero
at the optimum (:func:`smooth_growth`, :func:`growth`).

λ is proved by a Cholesky factorisation in floating-point arithmetic. If that of B − sI succeeds, then by its backward error
(Demmel; S. M. Rump, Verification of positive definiteness, BIT 46, 2006) λ_min(B) ≥ s − γ_{m+1}/(1 − γ_{m+1}) tr(B) for m × m
matrices. m_i is the distance of −α_i from the boundary of the domain of φ*, so that δ stays inside. A few rows with large c_i m_i
suffice: the other examples keep their dual variables. For K columns δ_ik = m_i x̃_iᵀG⁻¹r_k, and T² is the sum over the columns.

- Features that are exact linear combinations of others are left out of G: a point that is orthogonal to those is orthogonal to
  them (``objective/relations.py``).
- S need not be diagonal: G = AᵀA has rᵀG⁻¹r ≤ ‖Sᵀr‖²/λ with λ ≤ λ_min(SᵀAᵀAS) for any matrix S. With S near R⁻¹ of A = QR the
  product AS has condition number one, and its rounding errors are those of A times the condition number of A, not its square.
- Without a proof there may be no orthogonal point near α at all: features that depend on each other up to rounding differ in a
  direction of rounding errors, and models with coefficients of 10¹⁶ use it as another feature. For the other models weak
  duality suffices: P₀(v) ≥ D₀(α) − ⟨r, v⟩/n for every v, and |⟨r, v⟩| is at most max_j |r_j|/N_j times Σ_j N_j |v_j|.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton.losses.rounding import DOUBLE, Roundoff
from dualnewton.matrix import as_data, linear
from dualnewton.objective.relations import spanning_features

if TYPE_CHECKING:
    from dualnewton.matrix.selections import Selection
    from dualnewton.objective.problem import Problem

SHIFTS = tuple(2.0**-power for power in (4, 12, 20, 28, 36))
"""Values s that are tried as lower bounds on the smallest eigenvalue, for a diagonal between ½ and 2: the first for a matrix near
the identity. A Gram matrix begins with the second, which is large enough: features that are not centred often have smaller
eigenvalues than the first, and each attempt takes a factor."""

COPIED = 64
"""Order of a matrix up to which attempts factorise copies (32 KiB): restoring the matrix takes longer than a small factor."""

ROWS, MORE_ROWS = 2, 128
"""Rows of the first attempt: the first number times the number of coefficients, plus the second. (A certificate sums over all
rows; with 2000 features a second sum of this kind would exceed time limits.)"""

FEW_MORE = 4
"""Largest ratio of all rows to those of the first attempt for which the known Gram matrix of all rows is used instead."""

ELSEWHERE = 16
"""Factor by which the second attempt has more rows, if the rows are not in memory: they are copied here."""

MOST_FACTORED = 500
"""Largest number of features whose rows are factorised (A = QR), which takes a tenth of a second."""

LIGHTEST = 1e-6
"""Rows whose c_i m_i is less than this fraction of the largest keep their dual variables."""

FARTHEST = 2.0**20
"""Largest factor F."""

SMALLEST = 1e-280
"""Smallest sum of squares of a feature: products that underflow are then negligible against it."""

OUTSIDE = 8.0
"""Rows whose m_i is less than this many times their distance from the domain of φ* keep their dual variables."""

REACH = 2.0**10
"""Without a proof of independence a model is compared with models whose Σ_j N_j |v_j| is at most this many times its own plus the
norm of the labels."""

FLOAT64 = Roundoff()


class Independence(NamedTuple):
    """A proof that the features are linearly independent on some rows, by which dual points are made orthogonal to them."""

    rows: Selection  # rows whose δ_i is not zero
    kept: Any  # features that are neither zero nor linear combinations of others, and the intercept
    scale: np.ndarray  # diagonal of S, or the absolute values of S
    smallest: float  # λ ≤ λ_min(SGS)
    lightest: float  # smallest c_i m_i of the rows

    def length(self, excess: np.ndarray) -> float:
        """Return T for a dual point whose |Ãᵀcα| is at most ``excess``: a row for each column of α, with the intercept last."""
        own = excess[:, self.kept]
        scaled = own * self.scale if self.scale.ndim == 1 else own @ self.scale
        return 1.01 * math.sqrt(float(np.vdot(scaled, scaled)) / self.smallest)


def boundary_distances(problem: Problem, alpha: Any, away: float = 0.0) -> Any:
    """Return m_i, the distance of −α_i from the boundary of the domain of φ*; one if the domain has no boundary.

    It is zero where it is less than ``OUTSIDE`` times ``away``, a bound on the distance of −α_i from the domain.
    """
    distances = problem.loss.room(alpha, problem.y)
    return distances if away == 0.0 else np.where(distances > OUTSIDE * away, distances, 0.0)


def independence(
    problem: Problem,
    distances: Any | None = None,
    *,
    one_sided: bool = False,
    gram: Callable[[], np.ndarray] | None = None,
) -> Independence | None:
    """Prove that the features are linearly independent, or that some are and the others depend on them exactly.

    None if all proofs fail. ``distances`` from the boundary are m, ones by default. If ``one_sided``, a dual point needs
    (Ãᵀcα)_j ≤ 0 only: a feature that depends on others then has a constraint of its own. ``gram`` returns G of all rows, which is
    used instead of that of a few rows if all rows are not many more.
    """
    kept = varying(problem)
    if kept is None:
        return None
    last, whole = None, problem.data.capabilities.whole
    if gram is not None and whole and problem.n <= FEW_MORE * _few(problem):
        attempts = iter([(np.arange(problem.n), problem.c, gram())])
    else:
        attempts = _grams(problem, distances)
    for rows, weights, G in attempts:
        last, error = (rows, weights), FLOAT64.gamma(rows.size + 8)  # each entry is a sum of products of three numbers
        if (found := _scaled(G if kept is Ellipsis else _rows_and_columns(G, kept), error)) is not None:
            return Independence(rows, kept, *found, float(weights.min()))
        # Relations between features are evaluated on all rows, which are not read again from files or from elsewhere.
        if one_sided or not whole:
            continue
        spanning, close = spanning_features(problem.data, G, np.arange(len(G)) if kept is Ellipsis else kept)
        if spanning is None and close:  # the features depend on each other up to rounding
            return None
        if spanning is not None and (found := _scaled(_rows_and_columns(G, spanning), error)) is not None:
            return Independence(rows, spanning, *found, float(weights.min()))
    if last is None or not whole or problem.d > MOST_FACTORED:
        return None
    step = -(-last[0].size // (ELSEWHERE * _few(problem)))
    return _factored(problem, last[0][::step], last[1][::step], kept)


def _rows_and_columns(G: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the rows and columns of some features."""
    return G.take(features, axis=0).take(features, axis=1)


def within_reach(problem: Problem, theta: np.ndarray, excess: np.ndarray) -> tuple[float, float] | None:
    """Return a bound on |⟨r, v⟩| for all models v with Σ_j N_j |v_j| ≤ ρ, and ρ; None if squares of features underflow.

    N_j are the norms of the features, that of the intercept is √n. ``theta`` is the model with its intercept, and ``excess``
    a bound on |r|, both of shape (K, d) or (K, d + 1).
    """
    if varying(problem) is None:
        return None
    norms = problem.data.feature_norms
    norms = np.append(norms, math.sqrt(problem.n)) if problem.fit_intercept else norms
    reach = REACH * (float(np.abs(theta).sum(axis=0) @ norms) + math.sqrt(problem.label_sums.own))
    largest = float(np.divide(excess, norms, out=np.zeros(excess.shape), where=norms > 0.0).max(initial=0.0))
    return 1.01 * largest * reach, reach


def _few(problem: Problem) -> int:
    """Return the number of rows of a first attempt."""
    return ROWS * (problem.d + 1) + MORE_ROWS


def _grams(problem: Problem, distances: Any) -> Iterator[tuple[Selection, np.ndarray, np.ndarray]]:
    """Yield some of the rows with large c_i m_i, these products, and G of these rows; then the same of more of them.

    The first attempt has a few rows, the second one all rows, if they are in memory or in files.
    """
    data, weights = problem.data, problem.c if distances is None else problem.weighted(distances)
    n, local, few, heaviest = data.n, data.capabilities.local, _few(problem), float(weights.max())
    if not 0.0 < heaviest < math.inf:
        return
    for most in (few, n if local else ELSEWHERE * few) if n > few else (n,):
        rows = np.arange(0, n, -(-n // most))
        own = data.entries(weights, rows)
        if not (heavy := own >= LIGHTEST * heaviest).all():
            rows, own = rows[heavy], own[heavy]
        if rows.size:
            part, places = (data, rows) if local else (as_data(data.rows(rows)), None)
            yield rows, own, part.weighted_gram(own, places, intercept=problem.fit_intercept)


def _factored(problem: Problem, rows: np.ndarray, weights: np.ndarray, kept: Any) -> Independence | None:
    """Prove independence by S near R⁻¹, where √(c_i m_i) x̃_i are the rows of A = QR; None if that fails, too."""
    from scipy.linalg.lapack import dtrtri

    A = linear.to_dense(problem.data.rows(rows))
    if problem.fit_intercept:
        A = np.column_stack([A, np.ones(len(A))])
    A = np.sqrt(weights)[:, None] * A[:, kept]
    if len(A) < A.shape[1] or not np.isfinite(A).all():
        return None
    S, failed = dtrtri(np.linalg.qr(A, mode="r"))
    sizes = np.abs(S)
    with np.errstate(over="ignore", invalid="ignore"):  # R⁻¹ is huge where R is singular up to rounding
        size = float(np.linalg.norm(np.abs(A) @ sizes))
    error = 1.01 * FLOAT64.gamma(A.shape[1] + 8) * size  # of AS, in any norm
    if failed or not error < 0.5:
        return None
    product = A @ S
    B = product.T @ product
    if not (B.diagonal().min() >= 0.5 and B.diagonal().max() <= 2.0):
        return None
    root = 0.999 * math.sqrt(smallest_eigenvalue(B, FLOAT64.gamma(len(A) + 8))) - error
    return Independence(rows, kept, sizes, root * root, float(weights.min())) if root > 0.0 else None


def varying(problem: Problem) -> Any:
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
    if not np.minimum.reduce(diagonal) > SMALLEST:
        return None
    scale = 1.0 / np.sqrt(diagonal)
    B = scale[:, None] * G
    B *= scale
    smallest = smallest_eigenvalue(B, error + 4.0 * DOUBLE, SHIFTS[1:])  # an infinite G has no factor
    return (scale, smallest) if smallest > 0.0 else None


def smallest_eigenvalue(B: np.ndarray, error: float, shifts: tuple[float, ...] = SHIFTS) -> float:
    """Return a proved lower bound on the smallest eigenvalue of a matrix; zero if none was found.

    B is symmetric up to rounding, with a diagonal between ½ and 2, and its upper triangle may be overwritten. Its entries
    B_jk have errors of at most (B_jj B_kk)^½ times ``error``: a matrix of norm tr(B) times this.
    """
    from scipy.linalg.lapack import dpotrf

    diagonal = B.diagonal().copy()
    factor = FLOAT64.gamma(len(B) + 2)
    lost = 1.01 * (factor / (1.0 - factor) + error) * float(np.add.reduce(diagonal)) + 8.0 * DOUBLE
    for shift in shifts:
        if shift <= 2.0 * lost:
            break
        B.flat[:: len(B) + 1] = diagonal - shift
        # Lᵀ replaces the upper triangle: the lower one of the transpose, whose order is LAPACK's, so that nothing is copied.
        if dpotrf(B.T, lower=True, clean=False, overwrite_a=len(B) > COPIED)[1] == 0:
            return shift - lost
        if len(B) > COPIED:
            B = np.tril(B)
            B += np.tril(B, -1).T
    return 0.0


def smooth_growth(length: float, gaps: float, curvature: float, lightest: float) -> float | None:
    """Return the bound of :func:`growth` for a loss that declares κ (``Loss.dual_curvature``): h_i″ ≤ κ/m_i near −α_i.

    Where |h_i′| ≤ (3/8)κ, a step of |h_i′|m_i/κ ≤ (3/8)m_i shows that h_i′² ≤ 2κh_i/m_i, because h_i ≥ 0. Elsewhere a step of
    (3/8)m_i shows that |h_i′|m_i ≤ (16/3)h_i. With |δ_i| ≤ τm_i and Taylor's theorem the sum is at most

        T(2κ Σ c_i h_i)^½ + (16/3)τ Σ c_i h_i + ½κT².

    ``length`` is T; ``gaps`` a bound on Σ c_i h_i(−α_i), which is n times the gap; ``curvature`` κ; and ``lightest`` the
    smallest c_i m_i of the rows whose δ_i is not zero: τ = T/(c_i m_i)^½ must be at most 3/8.
    """
    tau = length / math.sqrt(lightest)
    if not tau <= 0.375:
        return None
    return 1.01 * (length * (math.sqrt(2.0 * curvature * gaps) + 0.5 * curvature * length) + 16.0 / 3.0 * tau * gaps)


def growth(
    problem: Problem, rows: Selection, length: float, alpha: Any, distances: Any, z: Any, change: float
) -> float | None:
    """Return a bound on Σ c_i (h_i(δ_i − α_i) − h_i(−α_i)); None if the correction may leave the domain of φ*.

    By convexity it is at most 1/F of the same sum for Fδ, for any factor F ≥ 1, which divides the rounding errors of h by F.

    ``rows`` are those whose δ_i is not zero, ``length`` is T, ``distances`` are m, and the errors e of the margins z are bounded
    by ``change`` ≥ (Σ c_i e_i²)^½. The loss has one column.
    """
    if length == 0.0:
        return 0.0
    loss, entries = problem.loss, problem.data.entries
    y, c, m, v, z = (entries(values, rows) for values in (problem.y, problem.c, distances, -alpha, z))
    factor = min(FARTHEST, 0.5 * math.sqrt(float((c * m).min())) / length)
    if not factor >= 1.0:
        return None
    far, value = factor * length * np.sqrt(m / c), loss.value(z, y)
    at = v + np.multiply.outer([1.0, -1.0], far)  # both ends at once: calls dominate the time of a small fit
    conjugates = loss.conjugate(at, y[None])
    h = (conjugates - at * z).max(axis=0) + value
    terms = (np.abs(v) + far) * (np.abs(z) + 2.0 * np.abs(loss.label_sizes(y)) + 1.0)
    terms = terms + np.abs(conjugates).sum(axis=0) + np.abs(value)
    errors = 2.0 * (FLOAT64.terms + FLOAT64.gamma(rows.size + 8))
    total = max(float(c @ h), 0.0) + errors * float(c @ terms)
    # The h_i of the proof are those of the computed margins: δ times their errors is the rest.
    return total / factor + 1.01 * length * math.sqrt(float(m.max())) * change
