"""The rates of Sections 2 to 4: σ₁, σ₂, σ₃ of the smooth methods, their proximal variants, and θ and σ of the dual of a Problem.

A method with rate σ multiplies its expected suboptimality by at most 1 − σ per iteration, so a smaller rate is slower. The rates
obey 0 < σ₃ ≤ σ₂ ≤ σ₁ ≤ 1 (Theorem 4) and θ ≤ σ₁ᵖʳᵒˣ ≤ σ₁ (Theorem 9).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses import Curvature
from dualnewton.losses.base import require_smooth
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings.base import SUPPORT_LIMIT, Sampling
from dualnewton.theory.eso import eso_from_data, rows_for
from dualnewton.theory.expectations import (
    DRAWS,
    enumerable,
    expected_submatrix,
    inverse_forms,
    inverse_mean,
    law_of,
    symmetric,
)
from dualnewton.theory.spectra import ExpectedGram
from dualnewton.validation import integer, positive, vector

_DENSE = 1_000
"""Largest number of examples n for which the n×n eigenvalue problem of Theorem 7 is solved: LAPACK needs O(n³) operations."""

_WORK = 2e10
"""Largest number of multiplications (sets × size³) spent on the blocks of an enumerated law: it bounds the run time."""


class Estimate(float):
    """A float with a standard error, which is zero where the value is exact.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> sigma = theory.sigma1(M, M, samplings.Nice(2, tau=1))
    >>> round(sigma, 4), sigma.standard_error  # computed exactly here
    (0.25, 0.0)
    """

    standard_error: float

    def __new__(cls, value: float, standard_error: float = 0.0) -> Estimate:
        """Attach the error to the value."""
        self = super().__new__(cls, value)
        self.standard_error = standard_error
        return self


# Section 2: a smooth function, G ⪯ ∇²f ⪯ M ---------------------------------------------------------------------------


def sigma1(
    M: Any, G: Any, sampling: Sampling, *, draws: int | None = None, rng: Any = None, limit: int = SUPPORT_LIMIT
) -> Estimate:
    """σ₁ = λmin(G^½ E[(M_Ŝ)⁻¹] G^½), the rate of Method 1 (Theorem 3).

    Parameters
    ----------
    M, G : arrays of shape (n, n)
        The smoothness and strong convexity matrices; M positive definite, G positive semidefinite.
    sampling : Sampling
        Ŝ.
    draws : int, optional
        The number of draws from which E[(M_Ŝ)⁻¹] is estimated if the law has more than ``limit`` sets; such a law is an
        error without it. The estimate has a ``standard_error`` (to first order) and is biased downwards, because the
        smallest eigenvalue is a concave function of the average.
    rng : numpy.random.Generator or seed, optional
        The random numbers of the draws.
    limit : int
        The largest number of sets to enumerate.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> round(theory.sigma1(M, M, samplings.Nice(2, tau=1)), 4)
    0.25
    """
    M, G = symmetric("M", M, sampling), _semidefinite("G", G, sampling)
    if draws is None and not enumerable(sampling, limit):
        raise DualnewtonError(
            f"sampling: this {type(sampling).__name__} cannot be enumerated within limit={limit} sets, so E[(M_S)^-1] has "
            f"no exact value; pass draws={DRAWS} for an estimate with a standard error, or a larger limit"
        )
    law = law_of(sampling, DRAWS if draws is None else draws, rng, limit)
    mean = np.asarray(inverse_mean(M, law))
    if not mean.diagonal().all():
        raise DualnewtonError(f"draws={draws} are too few: example {int(np.argmin(mean.diagonal()))} was never drawn")
    # G E x = σ x with xᵀ E x = 1. A perturbation dE changes σ by σ xᵀ dE x, which gives the first-order standard error.
    sigma, x = _lowest(G, mean, kind=2)
    return Estimate(sigma, sigma * law.error_of_mean(inverse_forms(M, law, x)))


def sigma2(M: Any, G: Any, sampling: Sampling) -> float:
    """σ₂ = λmin(G^½ D(p) (E[M_Ŝ])⁻¹ D(p) G^½), the rate of Method 2 (Theorem 3).

    Parameters
    ----------
    M, G : arrays of shape (n, n)
        The smoothness and strong convexity matrices; M positive definite, G positive semidefinite.
    sampling : Sampling
        Ŝ.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> round(theory.sigma2(M, M, samplings.Nice(2, tau=1)), 4)
    0.25
    """
    expected, G = expected_submatrix(M, sampling), _semidefinite("G", G, sampling)
    p = _marginals(sampling)
    return _lowest(G, expected / np.outer(p, p))[0]


def sigma3(M: Any, G: Any, sampling: Sampling, v: Any) -> float:
    """σ₃ = λmin(G^½ D(p) D(v⁻¹) G^½), the rate of Method 3 (NSync) with E[M_Ŝ] ⪯ D(p)D(v) (Theorem 3).

    Parameters
    ----------
    M, G : arrays of shape (n, n)
        The smoothness and strong convexity matrices; the rate depends on M through v alone.
    sampling : Sampling
        Ŝ.
    v : array of shape (n,)
        A positive vector with E[M_Ŝ] ⪯ D(p)D(v), from :func:`eso`; :func:`is_eso` checks it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> law = samplings.Nice(2, tau=1)
    >>> round(theory.sigma3(M, M, law, theory.eso(M, law)), 4)
    0.25
    """
    symmetric("M", M, sampling)
    G, v = _semidefinite("G", G, sampling), _positive_vector("v", v, sampling.n)
    return _lowest(G, np.diag(v / _marginals(sampling)))[0]


def sigma2_from_sigma3(sigma3: float, *, beta: float, n: int, tau: int) -> float:
    """σ₂ = βσ₃ / ((1 − r) + (n/τ) r βσ₃) with r = (τ−1)/(n−1): τ-nice sampling, G = M and v = β diag M (Proposition 3).

    Parameters
    ----------
    sigma3 : float
        The rate of Method 3.
    beta : float
        The factor β in v = β diag M.
    n, tau : int
        The number of coordinates, and the size of the sets of the τ-nice sampling.

    Examples
    --------
    >>> from dualnewton import theory
    >>> round(theory.sigma2_from_sigma3(0.1, beta=1.5, n=10, tau=2), 4)
    0.1543
    """
    integer("n", n, 1)
    integer("tau", tau, 1, n)
    scaled = positive("beta", beta) * positive("sigma3", sigma3)
    r = (tau - 1) / (n - 1) if n > 1 else 0.0
    return scaled / ((1.0 - r) + n / tau * r * scaled)


# Section 3: plus a separable term, γ_i-strongly convex ---------------------------------------------------------------


def sigma1_prox(M: Any, G: Any, gamma: Any, sampling: Sampling) -> float:
    """σ₁ᵖʳᵒˣ = (τ/n) min(1, s₁), s₁ = λmin[((n/τ) E[M_Ŝ] + D(γ))⁻¹ (D(γ) + G)]: the proximal Method 1 (Theorem 5).

    Parameters
    ----------
    M, G : arrays of shape (n, n)
        The smoothness and strong convexity matrices of the smooth part, positive semidefinite.
    gamma : float or array of shape (n,)
        γ ≥ 0 of the separable part.
    sampling : Sampling
        Ŝ, with equal marginals τ/n, τ = E|Ŝ| (printed as E[Ŝ] in the paper).

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> round(theory.sigma1_prox(M, M, 1.0, samplings.Nice(2, tau=1)), 4)
    0.3333
    """
    expected, G = expected_submatrix(M, sampling), _semidefinite("G", G, sampling)
    gamma, p = _gamma(gamma, sampling.n), _uniform(_marginals(sampling))
    return p * min(1.0, _lowest(np.diag(gamma) + G, expected / p + np.diag(gamma), name="M + D(gamma)")[0])


def sigma3_prox(M: Any, G: Any, gamma: Any, sampling: Sampling, v: Any) -> float:
    """σ₃ᵖʳᵒˣ = (τ/n) min(1, s₃), s₃ = λmin[D(v + γ)⁻¹ (D(γ) + G)]: PCDM (Proposition 1); never above σ₁ᵖʳᵒˣ (Proposition 2).

    Parameters
    ----------
    M, G : arrays of shape (n, n)
        The smoothness and strong convexity matrices of the smooth part; the rate depends on M through v alone.
    gamma : float or array of shape (n,)
        γ ≥ 0 of the separable part.
    sampling : Sampling
        Ŝ, with equal marginals.
    v : array of shape (n,)
        A positive vector with E[M_Ŝ] ⪯ D(p)D(v).

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> law = samplings.Nice(2, tau=1)
    >>> round(theory.sigma3_prox(M, M, 1.0, law, theory.eso(M, law)), 4)
    0.3333
    """
    symmetric("M", M, sampling)
    G, v = _semidefinite("G", G, sampling), _positive_vector("v", v, sampling.n)
    gamma, p = _gamma(gamma, sampling.n), _uniform(_marginals(sampling))
    return p * min(1.0, _lowest(np.diag(gamma) + G, np.diag(v + gamma))[0])


# Section 4: the dual of a problem ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rates:
    """The rates of SDNA and SDCA on one problem with one sampling; a rate that was not computed is None, with a reason.

    Attributes
    ----------
    theta : float
        θ(Ŝ) of minibatch SDCA (Theorem 8), which by Lemma 5 is a rate of SDNA as well.
    sigma1_prox : float or None
        σ₁ᵖʳᵒˣ of SDNA (Theorem 6), for samplings with equal marginals.
    sigma1 : float or None
        σ₁ of SDNA where loss and regulariser are quadratic (Theorem 7), for few examples and laws that can be enumerated.
    missing : mapping of str to str
        For each attribute that is None, the reason as a sentence.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, samplings, theory
    >>> problem = dn.Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> rates = theory.rates(problem, samplings.Nice(3, tau=2))
    >>> rates.theta <= rates.sigma1_prox <= rates.sigma1  # Theorem 9
    True
    """

    theta: float
    sigma1_prox: float | None
    sigma1: float | None
    missing: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Upper bounds from the theorems on the time until the expected duality gap is below a fraction of the optimum |P*|.

    Attributes
    ----------
    relative_gap : float
        The fraction ε.
    sdna, sdna_quadratic, sdca : float
        Bounds in epochs (passes over the n examples) by Theorems 6, 7 and 8; ``sdna_quadratic`` is None where Theorem 7
        does not apply.
    sdna_iterations, sdna_quadratic_iterations, sdca_iterations : int
        The same bounds in iterations.
    rates : Rates
        The rates from which the bounds were computed.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, samplings, theory
    >>> problem = dn.Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> forecast = theory.epochs_to(problem, samplings.Serial(3), relative_gap=1e-6)
    >>> forecast.sdna <= forecast.sdca
    True
    """

    relative_gap: float
    sdna: float
    sdna_quadratic: float | None
    sdca: float
    sdna_iterations: int
    sdna_quadratic_iterations: int | None
    sdca_iterations: int
    rates: Rates


def dual_rows(problem: Problem) -> linear.Matrix:
    """Return the rows √c_i a_i, whose Gram matrix appears in the dual of the weighted problem.

    With weights c, put α̂ = √c α: the loss c_i φ(a_iᵀw) is φ̂_i(â_iᵀw) for â_i = √c_i a_i and φ̂_i(z) = c_i φ(z/√c_i), which
    is 1/γ-smooth as φ is, and ᾱ = Σ c_i α_i a_i/(λn) = Σ α̂_i â_i/(λn). So the weighted problem is the paper's unweighted problem
    with the rows â_i, and steps in α̂ correspond to steps in α. (A row of weight zero becomes a zero row.)

    Parameters
    ----------
    problem : Problem
        The problem, without an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, theory
    >>> problem = dn.Problem(np.eye(2), np.ones(2), losses.Squared(), sample_weight=[4.0, 1.0])
    >>> theory.dual_rows(problem)
    array([[2., 0.],
           [0., 1.]])
    """
    if problem.fit_intercept:
        raise DualnewtonError(
            "fit_intercept must be False: an unpenalised intercept adds the constraint Σ c_i α_i = 0 to the dual, which ties "
            "all coordinates together, and Section 4 of the paper does not cover it"
        )
    _gamma_of(problem)
    if problem.columns > 1:
        raise DualnewtonError(
            f"loss must have one margin per example, as in Section 4 of the paper, got {problem.loss!r} with {problem.columns}"
        )
    rows = problem.data.rows(slice(None))
    return rows if problem.sample_weight is None else linear.scale_rows(rows, np.sqrt(problem.c))


def theta(problem: Problem, sampling: Sampling, v: Any = None) -> float:
    """θ(Ŝ) = min_i p_i λγn/(v_i + λγn), the rate of minibatch SDCA (eq. theta, Theorem 8), for any sampling.

    Parameters
    ----------
    problem : Problem
        The problem, without an intercept; weights are allowed (:func:`dual_rows`).
    sampling : Sampling
        Ŝ.
    v : array of shape (n,), optional
        A vector with E[(AAᵀ)_Ŝ] ⪯ D(p)D(v) for A = ``dual_rows(problem)``; :func:`eso_from_data` by default.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, samplings, theory
    >>> problem = dn.Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> round(theory.theta(problem, samplings.Serial(3)), 4)
    0.25
    """
    rows = dual_rows(problem)
    _same_size(problem, sampling)
    v = eso_from_data(rows, sampling) if v is None else vector("v", v, problem.n, low=0.0)
    return _theta_of(problem, sampling.p, v)


def importance(problem: Problem) -> np.ndarray:
    """q with q_i ∝ v_i + λγn, v_i = ‖√c_i a_i‖²: the serial law that maximises θ, ``samplings.Serial(n, q)``.

    θ = min_i q_i λγn/(v_i + λγn) is largest when all these terms are equal; each is then λγn/Σ(v_i + λγn).

    Parameters
    ----------
    problem : Problem
        The problem, without an intercept.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, theory
    >>> problem = dn.Problem(np.diag([3.0, 1.0]), np.ones(2), losses.Squared(), lam=1.0)
    >>> theory.importance(problem).round(4)  # the longer row is drawn more often
    array([0.7857, 0.2143])
    """
    mass = linear.squared_norms(dual_rows(problem)) + _strength(problem)
    return mass / mass.sum()


def rates(problem: Problem, sampling: Sampling) -> Rates:
    """θ, σ₁ᵖʳᵒˣ and, for quadratic problems, σ₁ of the dual (Theorems 6 to 9).

    σ₁ᵖʳᵒˣ = (τ/n) / (1 + λmax(E[(AAᵀ)_Ŝ])/(τγλ)), which is eq. s_2 with the inverse carried out; the eigenvalue is computed
    from products with the rows and without an n×n matrix, so that n may be large.

    Parameters
    ----------
    problem : Problem
        The problem, without an intercept.
    sampling : Sampling
        Ŝ. If its draws depend on each other (``Shuffled``), the rates are those of independent draws from the same law.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, samplings, theory
    >>> problem = dn.Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> round(theory.rates(problem, samplings.Serial(3)).theta, 4)
    0.25
    """
    A = dual_rows(problem)
    _same_size(problem, sampling)
    v = eso_from_data(A, sampling)
    missing = {}
    sigma_prox = sigma_quadratic = None
    if reason := _not_uniform(sampling.p):
        missing["sigma1_prox"] = (
            f"Theorem 6 is proved for equal marginals, {reason}; theta is a rate of SDNA too (Lemma 5)"
        )
    else:
        # E[(AAᵀ)_S] ⪯ D(p∘v) bounds the eigenvalue, which ensures θ ≤ σ₁ᵖʳᵒˣ in floating point too (Theorem 9, whose proof has
        # a misprint: (n/τ)θ ≤ 1 is meant where 1 ≤ (n/τ)θ is printed).
        expected = ExpectedGram(rows_for(A, sampling), sampling.pair_structure())
        largest = expected.top(np.ones(problem.n), at_most=float((sampling.p * v).max()))
        tau = sampling.expected_size
        s1 = 1.0 / (1.0 + largest / (tau * _gamma_of(problem) * problem.lam))
        sigma_prox = tau / problem.n * s1  # s₁ ≤ 1 always, so the min(1, s₁) of Theorem 6 is s₁
    if reason := _no_theorem_7(problem, sampling):
        missing["sigma1"] = reason
    else:
        hessian = linear.gram(A.astype(np.float64, copy=False)) / (problem.lam * problem.n)
        hessian[np.diag_indices(problem.n)] += _gamma_of(problem)
        sigma_quadratic = min(1.0, float(sigma1(hessian, hessian, sampling)))
    return Rates(
        theta=_theta_of(problem, sampling.p, v), sigma1_prox=sigma_prox, sigma1=sigma_quadratic, missing=missing
    )


def epochs_to(problem: Problem, sampling: Sampling, relative_gap: float, *, optimum: float | None = None) -> Forecast:
    """Bound the epochs until the expected gap is at most ε P*, from α⁰ = 0 (Theorems 6, 7 and 8).

    Each theorem states E[P(w^k) − D(α^k)] ≤ (1−σ)^k/θ · (D* − D(0)). As D* = P*, this is at most ε P* once

        k ≥ ln(ρ/(θε)) / −ln(1−σ),     ρ = (P* − D(0))/P*,

    and ρ ≤ 1 if D(0) ≥ 0, which holds for every nonnegative loss and regulariser. For unequal marginals, Theorem 6 does not apply
    and ``sdna`` uses θ (Lemma 5). For dependent draws the bounds are those of independent draws from the same law.

    Parameters
    ----------
    problem : Problem
        The problem, without an intercept.
    sampling : Sampling
        Ŝ.
    relative_gap : float
        ε > 0.
    optimum : float, optional
        P*; required if D(0) < 0.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, samplings, theory
    >>> problem = dn.Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> round(theory.epochs_to(problem, samplings.Serial(3), relative_gap=1e-6).sdna, 1)
    17.7
    """
    positive("relative_gap", relative_gap)
    found = rates(problem, sampling)
    wanted = _relative_start(problem, optimum) / (found.theta * relative_gap)

    def iterations(sigma: float) -> int:
        if wanted <= 1.0:
            return 0
        return 1 if sigma >= 1.0 else math.ceil(math.log(wanted) / -math.log1p(-sigma))

    def epochs(count: int) -> float:
        return count * sampling.expected_size / problem.n

    sdca = iterations(found.theta)
    sdna = sdca if found.sigma1_prox is None else iterations(found.sigma1_prox)
    quadratic = None if found.sigma1 is None else iterations(found.sigma1)
    return Forecast(
        relative_gap=float(relative_gap),
        sdna=epochs(sdna),
        sdna_quadratic=None if quadratic is None else epochs(quadratic),
        sdca=epochs(sdca),
        sdna_iterations=sdna,
        sdna_quadratic_iterations=quadratic,
        sdca_iterations=sdca,
        rates=found,
    )


# Shared pieces -------------------------------------------------------------------------------------------------------


def _lowest(a: np.ndarray, b: np.ndarray, *, kind: int = 1, name: str = "M") -> tuple[float, np.ndarray]:
    """Return the smallest eigenvalue and its eigenvector of b⁻¹a (kind 1) or of ab (kind 2), for a ⪰ 0 and b ≻ 0.

    These are the paper's λmin(a^½ b⁻¹ a^½) and λmin(a^½ b a^½) without a square root of a, so that a may be singular.
    """
    from scipy.linalg import eigh

    try:
        values, vectors = eigh(a, b, type=kind, subset_by_index=(0, 0))
    except np.linalg.LinAlgError:
        raise DualnewtonError(f"{name} must be positive definite, got a matrix that is not, to rounding") from None
    return max(float(values[0]), 0.0), vectors[:, 0]


def _semidefinite(name: str, value: Any, sampling: Sampling) -> np.ndarray:
    matrix = symmetric(name, value, sampling)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-10 * max(abs(values[0]), values[-1]):
        raise DualnewtonError(f"{name} must be positive semidefinite, got an eigenvalue of {values[0]:.3g}")
    return matrix


def _positive_vector(name: str, value: Any, length: int) -> np.ndarray:
    array = vector(name, value, length)
    if array.min() <= 0.0:
        raise DualnewtonError(f"{name} must be > 0 everywhere, got {array.min()!r} at index {int(np.argmin(array))}")
    return array


def _gamma(value: Any, n: int) -> np.ndarray:
    return vector("gamma", np.full(n, value) if np.ndim(value) == 0 else value, n, low=0.0)


def _marginals(sampling: Sampling) -> np.ndarray:
    """Return p = diag P; here a custom sampling needs to implement only ``pair_probabilities()``."""
    return sampling.pair_probabilities().diagonal()


def _not_uniform(p: np.ndarray) -> str:
    """Describe how the marginals differ; return an empty string if they are equal."""
    return "" if np.ptp(p) <= 1e-12 * p.max() else f"and those of this sampling go from {p.min():.3g} to {p.max():.3g}"


def _uniform(p: np.ndarray) -> float:
    if reason := _not_uniform(p):
        raise DualnewtonError(f"sampling must be uniform: Section 3 is proved for equal marginals, {reason}")
    return float(p.mean())


def _same_size(problem: Problem, sampling: Sampling) -> None:
    if sampling.n != problem.n:
        raise DualnewtonError(f"sampling must be over the problem's {problem.n} examples, got one over {sampling.n}")


def _strength(problem: Problem) -> float:
    """λγn."""
    return problem.lam * _gamma_of(problem) * problem.n


def _gamma_of(problem: Problem) -> float:
    return require_smooth(problem.loss, "the rates of Section 4, which are made of its gamma")


def _theta_of(problem: Problem, p: np.ndarray, v: np.ndarray) -> float:
    return float((p * _strength(problem) / (v + _strength(problem))).min())


def _no_theorem_7(problem: Problem, sampling: Sampling) -> str:
    """Return the reason why σ₁ of Theorem 7 is not computed; an empty string if it is computed."""
    if problem.loss.curvature is not Curvature.CONSTANT:
        return f"Theorem 7 is for a quadratic loss, and {type(problem.loss).__name__} is not"
    if not problem.regularizer.form.is_plain:
        return f"Theorem 7 is for the regulariser L2, and this is {type(problem.regularizer).__name__}"
    if problem.n > _DENSE:
        return f"an eigenvalue problem of n = {problem.n} is too large; the limit is {_DENSE} examples"
    if not enumerable(sampling, SUPPORT_LIMIT):
        return f"the law of this {type(sampling).__name__} cannot be enumerated within {SUPPORT_LIMIT} sets"
    if sampling.support_size * sampling.max_size**3 > _WORK:
        return f"inverting {sampling.support_size} blocks of up to {sampling.max_size} examples is too much work"
    return ""


def _relative_start(problem: Problem, optimum: float | None) -> float:
    """Bound (D* − D(0))/|P*| from above."""
    start = problem.dual(np.zeros(problem.n))
    if optimum is None:
        if start < 0.0:
            raise DualnewtonError(
                f"optimum must be given: D(0) = {start:g} is negative for this loss and regulariser, so the first dual gap "
                "is not bounded by P*; pass the optimal value P* as optimum="
            )
        return 1.0
    if not math.isfinite(optimum) or optimum == 0.0 or optimum < start:
        raise DualnewtonError(f"optimum must be finite, not zero and at least D(0) = {start:g}, got {optimum!r}")
    return (optimum - start) / abs(optimum)
