"""The rates θ and σ of the dual of a problem (Section 4), with θ ≤ σ₁ᵖʳᵒˣ ≤ σ₁ (Theorem 9), and the epochs that they bound."""

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
from dualnewton.theory.expectations import enumerable
from dualnewton.theory.sigmas import not_uniform, sigma1
from dualnewton.theory.spectra import ExpectedGram
from dualnewton.validation import positive, vector

_DENSE = 1_000
"""Largest number of examples n for which the n×n eigenvalue problem of Theorem 7 is solved: LAPACK needs O(n³) operations."""

_WORK = 2e10
"""Largest number of multiplications (sets × size³) spent on the blocks of an enumerated law: it bounds the run time."""


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
    if reason := not_uniform(sampling.p):
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
    problem, sampling
        As for :func:`rates`.
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
