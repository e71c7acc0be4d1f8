"""Bounds on the distance between a model and the minimiser: ellipsoids around the model that are proved to contain it.

Let x = (w, b) be a model, v any subgradient of nP at x, and

    H = Σ c_i φ″(z_i) ã_i ã_iᵀ + nλ D(m, 0),        ã = (a, 1),   m_j the strong convexity of g in w_j.

*Constant curvature* (squared loss): nP − ½‖·‖²_H is convex, so that at the minimiser x*

    ‖x − x*‖_H ≤ ‖v‖_{H⁻¹}        and        ½‖x − x*‖²_H ≤ n(P(x) − P*) ≤ n·gap.

This needs no strongly convex penalty: for the Lasso it holds wherever H is positive definite.

*Generalised self-concordance*, |φ‴| ≤ Mφ″ (logistic loss: M = 1). Along the segment from x to x*, φ″ falls at most by the factor
e^{−M|t|} when a margin moves by t. (Softmax has the same property, |t| being the range max_k t_k − min_k t_k: the third central
moment of t is at most its variance times its range.) Let u = θ(x* − x) with ‖u‖_H = r, and R = max_i ‖ã_i‖_{H⁻¹}, so that
|ã_iᵀu| ≤ rR. Then

    uᵀ(∂(nP)(x + u) − v) ≥ r² (1 − e^{−MRr})/(MRr),        uᵀv ≥ −r‖v‖_{H⁻¹}.

A convex function does not increase along the segment to its minimiser, so that r at any point of the segment is at most

    r* = −log(1 − MR‖v‖_{H⁻¹})/(MR),    if MR‖v‖_{H⁻¹} < 1:    ‖x − x*‖_H ≤ r*.

(F. Bach, Self-concordant analysis for logistic regression, 2010, has the same inequalities.)

Bounds on predictions for other rows follow: Σ ω_s (ã_sᵀ(x − x*))² ≤ r² λ_max(L⁻¹ (Σ ω_s ã_s ã_sᵀ) L⁻ᵀ), where H = LLᵀ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import Data, as_data, linear
from dualnewton.matrix.grams import coupled
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem

ROUNDING = 1e-13
"""Relative rounding error of sums over rows, which is added to each bound."""

SMALL_ERROR = 1e-3
"""Relative error of a matrix up to which a bound by its inverse takes account of it."""

FEW, POWERS, LARGER = 128, 8, (1.1, 1.4, 2.0, 4.0)
"""Rows of a matrix up to which its largest eigenvalue is bounded by its powers, the sharper bound; else the steps of the power
method, and the multiples of its estimate that are tried as bounds."""

SINGULAR = 1e-12
"""H counts as singular if a pivot of its factor is below this fraction of the largest diagonal entry."""

CLOSE = 0.1
"""MR‖v‖ up to which a simple bound on R is used: r* is then at most 6 % larger than for R = 0."""

COLUMNS = 64
"""Columns of L⁻ᵀ that are multiplied by the rows at a time: limits the memory to 64 numbers per row."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows for which a model predicts, with weights ω_s ≥ 0 that sum to one."""

    data: Data  # all rows
    rows: np.ndarray  # rows of the sample, in increasing order
    weights: np.ndarray | None = None  # ω, up to a factor; equal by default

    @cached_property
    def omega(self) -> np.ndarray:
        """ω."""
        given = np.ones(len(self.rows)) if self.weights is None else self.weights
        return given / given.sum()

    @cached_property
    def gram(self) -> np.ndarray:
        """Σ ω_s ã_s ã_sᵀ."""
        return self.data.weighted_gram(self.omega, self.rows, intercept=True)

    def square(self, centre: np.ndarray) -> float:
        """Σ ω_s ‖a_s − centre‖²."""
        rows = self.data.rows(self.rows)
        squares = linear.squared_norms(rows) - 2.0 * (rows @ centre) + centre @ centre
        return float(self.omega @ np.maximum(squares, 0.0))


@dataclass(frozen=True, eq=False)
class Region:
    """The ellipsoid ‖Lᵀ(x − x*)‖ ≤ radius, which contains the minimiser x*."""

    # L, the lower Cholesky factor of H, of size K(d + 1): the entries of x are (w_1, b_1), …, (w_K, b_K).
    factor: np.ndarray
    radius: float  # in units of √(nP); infinite if no bound is proved
    columns: int = 1  # K
    with_intercept: bool = True  # whether there are intercepts b_k; else the size of L is Kd

    def spread(self, sample: Sample) -> float:
        """Return a bound on √(Σ ω_s ‖z_s − z_s*‖²), z and z* the margins of the model and of the minimiser.

        For K > 1 columns, a constant may be added to all margins of a row: no prediction depends on it.
        """
        if not math.isfinite(self.radius):
            return math.inf
        gram = sample.gram if self.with_intercept else sample.gram[:-1, :-1]
        if self.columns > 1:
            gram = np.kron(np.eye(self.columns) - 1.0 / self.columns, gram)
        return self.spread_of(gram)

    def spread_of(self, gram: np.ndarray) -> float:
        """Return the bound for a sample whose Gram matrix is given in the coordinates of x."""
        from scipy.linalg.blas import dtrsm  # scipy's checks take longer than the solution of a small system

        half = dtrsm(1.0, self.factor, gram, lower=1)
        S = dtrsm(1.0, self.factor, half.T, lower=1)
        return self.radius * math.sqrt(_largest_eigenvalue(S))


def _largest_eigenvalue(S: np.ndarray) -> float:
    """Return ‖S⁴‖_F^¼, a bound on the largest eigenvalue of a positive semidefinite matrix, at most size^⅛ times as large.

    Three matrix products cost less than an eigenvalue computation, and iterations would give a lower bound.
    """
    size = float(np.linalg.norm(S))
    if size == 0.0:
        return 0.0
    square = (S / size) @ (S / size)
    return size * float(np.linalg.norm(square @ square)) ** 0.25 * (1.0 + ROUNDING * len(S))


@dataclass(frozen=True, eq=False)
class Ball:
    """‖w − w*‖ ≤ radius around the model of a squared loss, and |b − b̂| ≤ shift, b̂ the best intercept for w.

    By strong convexity of P(w, b̂(w)), (λ/2)‖w − w*‖² + (mean c/2)(b − b̂)² ≤ gap. The best intercept is ȳ − x̄ᵀw, so that
    predictions differ by (a − x̄)ᵀ(w − w*) + b − b̂. It needs only products with X; :class:`Region` needs a d×d matrix.
    """

    centre: np.ndarray
    radius: float
    shift: float

    def spread(self, sample: Sample) -> float:
        """Return a bound on √(Σ ω_s (z_s − z_s*)²)."""
        return self.radius * math.sqrt(sample.square(self.centre)) + self.shift


def ball(problem: Problem, certificate: Certificate) -> Ball | None:
    """Return a ball around the certified model that contains the minimiser; None unless P has the required curvature."""
    form = problem.regularizer.form
    if problem.loss.self_concordance != 0.0 or problem.columns > 1 or not problem.regularizer.strongly_convex:
        return None
    modulus = problem.lam * (1.0 if form.is_general else float(np.min(1.0 / np.asarray(form.factor))))
    gap = certificate.gap + ROUNDING * abs(certificate.primal)
    radius = math.sqrt(2.0 * gap / modulus)
    if not problem.fit_intercept:
        return Ball(np.zeros(problem.d), radius, 0.0)
    total = float(problem.c.sum())
    return Ball(problem.data.transposed_times(problem.c) / total, radius, math.sqrt(2.0 * gap * problem.n / total))


def spread_per_root_gap(gram: np.ndarray, sample_gram: np.ndarray, ridge: np.ndarray) -> float | None:
    """Return f with √(Σ ω_s (z_s − z_s*)²) ≤ f √(n·gap) for least squares; None if H is singular.

    ½‖x − x*‖²_H ≤ n·gap with H = Σ c_i ã_i ã_iᵀ + D(ridge), ridge_j the curvature of nλg. It holds for all models with these
    rows and a penalty of at least this curvature.

    ``gram`` is Σ c_i ã_i ã_iᵀ of the training rows, ``sample_gram`` Σ ω_s ã_s ã_sᵀ of the sample; the ridge of an intercept
    is zero.
    """
    H = gram.copy()
    H.ravel()[:: len(H) + 1] += ridge
    if (L := _factor(H)) is None:
        return None
    largest = _largest_quotient(H, L, sample_gram) if len(H) > FEW else None
    return Region(L, math.sqrt(2.0)).spread_of(sample_gram) if largest is None else math.sqrt(2.0 * largest)


def _largest_quotient(H: np.ndarray, L: np.ndarray, G: np.ndarray) -> float | None:
    """Return a bound τ of the largest uᵀGu/uᵀHu, H = LLᵀ and G positive semidefinite; None if none is found.

    The power method estimates the largest one, and a Cholesky factor of τH − G proves that τ is larger: two factors cost a tenth
    of the products of :func:`_largest_eigenvalue`. A factor M̃ that is computed proves M + E ⪰ 0 for |E_ij| ≤ ε√(M_ii M_jj), and
    so that M + mεD(M) ⪰ 0 for m rows: that much is subtracted from the diagonal before.
    """
    from scipy.linalg.blas import dtrsv

    v = np.sqrt(np.maximum(G.diagonal(), 0.0))
    if not v.any():
        return 0.0
    for _ in range(POWERS):
        half = dtrsv(L, v / np.linalg.norm(v), lower=1)  # L is stored by columns
        u = dtrsv(L, half, lower=1, trans=1)
        v = G @ u
        estimate = float(u @ v) / float(half @ half)
    least = 1.0 / (1.0 - ROUNDING * len(H))
    for factor in LARGER:
        M = (factor * estimate) * H - G
        M.ravel()[:: len(M) + 1] -= ROUNDING * len(H) * ((factor * estimate) * H.diagonal() + G.diagonal())
        if _is_positive(M):
            return factor * estimate * least
    return None


def _is_positive(M: np.ndarray) -> bool:
    """Whether M has a Cholesky factor in floating-point arithmetic."""
    from scipy.linalg.lapack import dpotrf

    return bool(np.all(M.diagonal() > 0.0)) and dpotrf(M.T, lower=1, overwrite_a=1)[1] == 0


def spread_by_rows(K: np.ndarray, c: np.ndarray, omega: np.ndarray, ridge: float, *, intercept: bool) -> float | None:
    """Return f of :func:`spread_per_root_gap` where all features have one ridge > 0, from products of the rows, which are fewer.

    About the means of the fitted rows, let A be these rows times √c_i and B those of the sample times √ω_s. Then

        Σ ω_s (z_s − z_s*)² ≤ 2n·gap ‖B(AᵀA + ridge)⁻¹Bᵀ + √ω√ωᵀ/Σc‖,        ridge (AᵀA + ridge)⁻¹ = I − Aᵀ(AAᵀ + ridge)⁻¹A,

    the second term for the intercept. None if rounding errors of K are not small against the ridge.

    K has a product for each pair of rows, about any origin; c and ω are zero for rows that are not in the fit or the sample;
    the ridge is the curvature of nλg. Without an intercept everything is about zero.
    """
    from scipy.linalg import solve_triangular

    fitted, sample, size = np.flatnonzero(c), np.flatnonzero(omega), float(np.abs(K).max())
    error = ROUNDING * len(K) * float(c.max()) * size / ridge  # of AAᵀ + ridge, as a fraction of its least eigenvalue
    if intercept:
        along = K @ c / c.sum()
        K = K - along - along[:, None] + float(c @ along) / c.sum()
    roots, shares = np.sqrt(c[fitted]), np.sqrt(omega[sample])
    M = K[np.ix_(fitted, fitted)] * (roots * roots[:, None])
    M[np.diag_indices(len(M))] += ridge
    L = _factor(M) if error <= SMALL_ERROR else None
    if L is None:
        return None
    across = K[np.ix_(fitted, sample)] * (roots[:, None] * shares)
    within = K[np.ix_(sample, sample)] * (shares * shares[:, None])
    half = solve_triangular(L, across, lower=True, check_finite=False)
    S = (within - half.T @ half) / ridge
    if intercept:
        S += shares * shares[:, None] / c.sum()
    return math.sqrt(2.0 * (_largest_eigenvalue(S) + 2.0 * error * size / ridge))


def region(problem: Problem, w: np.ndarray, intercept: Any, *, outside: float = 0.0) -> Region | None:
    """Return an ellipsoid around the model that contains the minimiser; None if none is proved.

    The problem must have a loss with a declared ``self_concordance``, and a penalty that is a sum over features. Everything is
    computed from the data and the model.

    ``outside`` is the norm of the component of w that is orthogonal to all rows, see :class:`Rotation`.
    """
    from scipy.linalg import solve_triangular

    loss, form = problem.loss, problem.regularizer.form
    if loss.self_concordance is None or form.is_general:
        return None
    z = problem.margins(w, intercept)
    slopes = problem.weighted(loss.derivative(z, problem.y))
    if (L := _factor(_hessian(problem, z))) is None:
        return None
    v = _least_subgradient(problem, w, problem.data.transposed_times(slopes).T)
    if problem.fit_intercept:
        v = np.column_stack([np.atleast_2d(v), slopes.sum(axis=0)])
    size = float(np.linalg.norm(solve_triangular(L, v.ravel(), lower=True, check_finite=False)))
    size = math.hypot(size, math.sqrt(problem.n * problem.lam) * outside)
    # ‖Ãᵀs‖_{H⁻¹} ≤ ‖D(cφ″)^{−½}s‖, so that this is the scale of the rounding error of v.
    curvature = problem.weighted(loss.second_derivative(z, problem.y))
    inside = curvature > 0.0
    size += ROUNDING * float(np.linalg.norm(slopes[inside] / np.sqrt(curvature[inside])))
    scale = loss.self_concordance
    if scale:
        # c_i φ″_i ã_i ã_iᵀ ⪯ H gives R² ≤ 1/min c_i φ″_i, which is enough near the minimiser.
        simple = scale / math.sqrt(curvature[inside].min()) if problem.columns == 1 else math.inf
        scale = simple if simple * size <= CLOSE else scale * _largest_form(problem, L)
    return Region(L, _radius(scale, size), problem.columns, problem.fit_intercept)


@dataclass(frozen=True, eq=False)
class Rotation:
    """The same rows with n coordinates each, for more features than rows: Xᵀ = QRᵀ, so that x_iᵀw = r_iᵀ(Qᵀw).

    With the penalty ½‖w‖² the problem in these coordinates has the same minimiser, which lies in the span of the rows.
    """

    data: Data  # R
    basis: np.ndarray  # (d, n) Q, with orthonormal columns

    @classmethod
    def of(cls, data: Data) -> Rotation:
        """Factorise the rows."""
        basis, R = np.linalg.qr(linear.to_dense(data.rows(slice(None))).T)
        return cls(as_data(np.ascontiguousarray(R.T)), basis)

    def region(self, problem: Problem, w: np.ndarray, intercept: Any) -> Region | None:
        """Do the same as :func:`region` with a matrix of size n instead of d; the samples are rows of ``data``."""
        inside = w @ self.basis
        outside = float(np.linalg.norm(w - inside @ self.basis.T))
        return region(replace(problem, X=self.data), inside, intercept, outside=outside)


def _hessian(problem: Problem, z: np.ndarray) -> np.ndarray:
    """H at the margins z; for several columns Σ_{k<l} (e_k − e_l)(e_k − e_l)ᵀ ⊗ Σ_i c_i q_ikl ã_i ã_iᵀ, plus the Hessian of
    the penalty.

    For several columns, a constant added to all intercepts changes nothing. A curvature is added in this direction; x* is then
    the minimiser with the same sum of intercepts as x.
    """
    K, with_one = problem.columns, problem.fit_intercept
    weights = problem.loss.couplings(z, problem.y) if K > 1 else problem.loss.second_derivative(z, problem.y)[:, None]
    grams = [_gram(problem, q) for q in problem.weighted(weights).T]
    size = len(grams[0])
    if K == 1:
        (H,) = grams
    else:
        blocks = coupled(grams, K)
        if with_one:
            blocks[:, -1, :, -1] += sum(gram[-1, -1] for gram in grams) / K
        H = blocks.reshape(K * size, K * size)
    ridge = np.zeros(size)
    ridge[: problem.d] = problem.n * problem.lam / problem.regularizer.form.factor
    H[np.diag_indices(len(H))] += np.tile(ridge, K)
    return H


def _factor(H: np.ndarray) -> np.ndarray | None:
    """Return the lower Cholesky factor of H; None if H is singular up to rounding."""
    from scipy.linalg.lapack import dpotrf

    L: np.ndarray
    L, failed = dpotrf(H.T, lower=1, clean=1)
    return None if failed or np.diagonal(L).min() ** 2 <= SINGULAR * np.diagonal(H).max() else L


def _radius(scale: float, size: float) -> float:
    """Return r*, given MR and ‖v‖_{H⁻¹}; its limit for MR = 0 is ‖v‖_{H⁻¹}."""
    if scale == 0.0:
        return size
    return -math.log1p(-scale * size) / scale if scale * size < 1.0 else math.inf


def _gram(problem: Problem, weights: np.ndarray) -> np.ndarray:
    inside = np.flatnonzero(weights)
    return problem.data.weighted_gram(weights[inside], inside, intercept=problem.fit_intercept)


def _largest_form(problem: Problem, L: np.ndarray) -> float:
    """Return R, the largest range max_kl (e_k − e_l ⊗ ã_i)ᵀu over the rows of positive weight and ‖u‖_H ≤ 1.

    It is max_i ‖ã_i‖_{H⁻¹} for one column. The squared range for classes k and l is ã_iᵀBã_i with a matrix B of size d + 1,
    made of blocks of H⁻¹; with B = CCᵀ it is the squared norm of a row of ÃC, computed for a few columns at a time.
    """
    from scipy.linalg import cholesky, solve_triangular

    K, d = problem.columns, problem.d
    inverse = solve_triangular(L, np.eye(len(L)), lower=True, check_finite=False).T.reshape(K, -1, len(L))
    pairs = [inverse[k] - inverse[other] for k, other in combinations(range(K), 2)] if K > 1 else [inverse[0]]
    largest = 0.0
    for pair in pairs:
        C = pair if K == 1 else cholesky(pair @ pair.T, lower=True, check_finite=False)
        forms = np.zeros(problem.n)
        for low in range(0, C.shape[1], COLUMNS):
            part = C[:, low : low + COLUMNS]
            images = problem.data.times(np.ascontiguousarray(part[:d]))
            if problem.fit_intercept:
                images = images + part[-1]
            forms += np.einsum("ij,ij->i", images, images)
        largest = max(largest, float(forms[problem.c > 0.0].max()))
    return math.sqrt(largest)


def _least_subgradient(problem: Problem, w: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Return the element of ∂(nP) with the smallest entries, given the gradient of the losses."""
    threshold, factor, lower, upper = problem.regularizer.form.limits(problem.d)
    strength = problem.n * problem.lam
    smooth = slopes + strength * w / factor
    least = strength * threshold * np.where(w > 0.0, 1.0, -1.0)
    most = strength * threshold * np.where(w < 0.0, -1.0, 1.0)
    return smooth + np.clip(-smooth, np.where(w <= lower, -np.inf, least), np.where(w >= upper, np.inf, most))
