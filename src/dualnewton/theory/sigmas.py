"""The rates σ₁, σ₂, σ₃ of the smooth methods (Section 2) and of their proximal variants (Section 3), from matrices M and G.

A method with rate σ multiplies its expected suboptimality by at most 1 − σ per iteration, so a smaller rate is slower. The rates
obey 0 < σ₃ ≤ σ₂ ≤ σ₁ ≤ 1 (Theorem 4).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.samplings.base import SUPPORT_LIMIT, Sampling
from dualnewton.theory.expectations import (
    DRAWS,
    enumerable,
    expected_submatrix,
    inverse_forms,
    inverse_mean,
    law_of,
    symmetric,
)
from dualnewton.validation import integer, positive, vector


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
    M, G, sampling
        As for :func:`sigma1`.

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
    n = integer("n", n, 1)
    tau = integer("tau", tau, 1, n)
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
    gamma, sampling
        As for :func:`sigma1_prox`.
    v : array of shape (n,)
        As for :func:`sigma3`.

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


def not_uniform(p: np.ndarray) -> str:
    """Describe how the marginals differ; return an empty string if they are equal."""
    return "" if np.ptp(p) <= 1e-12 * p.max() else f"and those of this sampling go from {p.min():.3g} to {p.max():.3g}"


def _uniform(p: np.ndarray) -> float:
    if reason := not_uniform(p):
        raise DualnewtonError(f"sampling must be uniform: Section 3 is proved for equal marginals, {reason}")
    return float(p.mean())
