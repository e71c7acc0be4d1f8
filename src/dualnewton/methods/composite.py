"""Proximal Method 1 and PCDM of Section 3: min F(x) = f(x) + Σ ψ_i(x_i) for uniform samplings.

By Theorem 5 and Proposition 1 both contract in expectation, E[F(x^{k+1}) − F*] ≤ (1 − σ) E[F(x^k) − F*], with
σ = ``theory.sigma1_prox`` and ``theory.sigma3_prox`` respectively; the first is at least the second (Proposition 2). For ψ = 0
they are Methods 1 and 3 of :mod:`dualnewton.methods.smooth`, and for |Ŝ| = 1 they coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.methods.functions import Composite
from dualnewton.methods.separable import Separable
from dualnewton.methods.smooth import eso_vector, starting_point, trajectory
from dualnewton.samplings import Sampling

_EPS = float(np.finfo(float).eps)

_SLACK = 32.0
"""Largest residual of a converged block, in units of the rounding error of its own terms; a sum of terms loses a few units."""

_RIDGE = 1e-14
"""Multiple of the identity added to the Newton matrix, which is singular where Q is singular and ψ is flat. Later steps correct
the error that it causes."""

_FAR = 1e8
"""Distance from the start, in units of the first residual, beyond which a block with a singular Newton matrix counts as
unbounded."""

_NEWTON_STEPS = 300
"""Largest number of Newton steps on a block: about 5 are usual, and 60 were the most seen on ill-conditioned test blocks."""


def prox_method1(F: Composite, sampling: Sampling, x0: Any, iterations: int, rng: Any) -> np.ndarray:
    """Minimise F by steps that use the whole block M_{S_k} of the curvature (Section 3, the proximal version of Method 1).

        h^k = argmin_h ⟨∇f(x^k), h_{S_k}⟩ + ½ hᵀM_{S_k}h + Σ_{i∈S_k} ψ_i(x_i^k + h_i),    x^{k+1} = x^k + h^k

    Each block is solved to rounding error by :func:`minimise_block`. On ``dual_of(problem)`` the method is SDNA (Section 4).

    Parameters
    ----------
    F : Composite
        The function.
    sampling : Sampling
        The law of the sets S_k; it must be uniform (Section 3).
    x0, iterations, rng
        These parameters, and the result, are those of :func:`dualnewton.methods.method1`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), b=np.ones(2))
    >>> F = methods.Composite(f, methods.Absolute(0.1))
    >>> methods.prox_method1(F, samplings.Nice(2, tau=2), np.zeros(2), 40, np.random.default_rng(0))[-1].round(4)
    array([0.3, 0.3])
    """
    x0 = _starting_point(F, sampling, x0)
    f, psi = F.f, F.psi

    def move(x: np.ndarray, S: np.ndarray) -> np.ndarray:
        return minimise_block(f.gradient(x)[S], f.M[np.ix_(S, S)], x[S], psi, S)

    return trajectory(move, sampling, x0, iterations, rng)


def pcdm(F: Composite, sampling: Sampling, x0: Any, iterations: int, rng: Any, *, v: Any = None) -> np.ndarray:
    """Minimise F by separate steps on the coordinates of a set (Section 3, the Parallel Coordinate Descent Method).

        h_i^k = argmin_h ∇_i f(x^k) h + (v_i/2) h² + ψ_i(x_i^k + h)    for i ∈ S_k,    x^{k+1} = x^k + h^k

    Each of these steps is one evaluation of the prox of ψ_i.

    Parameters
    ----------
    F, sampling, x0, iterations, rng
        The parameters, and the result, are those of :func:`prox_method1`.
    v : array of shape (n,), optional
        A positive vector with E[M_Ŝ] ≼ D(p)D(v) (an ESO; smaller is faster); ``theory.eso(F.f.M, sampling)`` by default.
        A vector that violates the inequality is an error, since the steps may then diverge.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), b=np.ones(2))
    >>> F = methods.Composite(f, methods.Absolute(0.1))
    >>> methods.pcdm(F, samplings.Nice(2, tau=1), np.zeros(2), 60, np.random.default_rng(0))[-1].round(4)
    array([0.3, 0.3])
    """
    x0 = _starting_point(F, sampling, x0)
    f, psi = F.f, F.psi
    v = eso_vector(f.M, sampling, v)

    def move(x: np.ndarray, S: np.ndarray) -> np.ndarray:
        return psi.prox(x[S] - f.gradient(x)[S] / v[S], 1.0 / v[S], S)

    return trajectory(move, sampling, x0, iterations, rng)


@dataclass(frozen=True)
class _Residual:
    """The residual R(β) of the proximal gradient step of :func:`minimise_block`, and the terms that it consists of."""

    u: np.ndarray
    Q: np.ndarray
    x: np.ndarray
    psi: Separable
    S: np.ndarray
    d: np.ndarray
    step: np.ndarray

    def __call__(self, beta: np.ndarray) -> np.ndarray:
        return beta - self.prox(beta)

    def prox(self, beta: np.ndarray) -> np.ndarray:
        return self.psi.prox(self._gradient_step(beta), self.step, self.S)

    def slopes(self, beta: np.ndarray) -> np.ndarray:
        """Return π, the slopes of the prox."""
        return self.psi.prox_slope(self._gradient_step(beta), self.step, self.S)

    def rounding(self, beta: np.ndarray) -> np.ndarray:
        """Return a bound on the rounding error of each entry of R(β)."""
        return _EPS * (np.abs(beta) + self.step * (np.abs(self.u) + np.abs(self.Q) @ np.abs(beta - self.x)))

    def norm(self, R: np.ndarray) -> float:
        return float(np.sqrt(self.d @ (R * R)))

    def _gradient_step(self, beta: np.ndarray) -> np.ndarray:
        return beta - self.step * (self.u + self.Q @ (beta - self.x))


def minimise_block(u: np.ndarray, Q: np.ndarray, x: np.ndarray, psi: Separable, S: np.ndarray) -> np.ndarray:
    """Return argmin_β m(β) + Σ_{i∈S} ψ_i(β_i), m(β) = ⟨u, β − x⟩ + ½(β − x)ᵀQ(β − x), to rounding, for any ψ with a prox.

    Coordinate descent would be simpler, but needs 10⁵ sweeps on blocks as ill-conditioned as those of Example 2.3. This is a
    Newton method on the residual of the proximal gradient step,

        R(β) = β − prox(β − D⁻¹∇m(β)),    d_i = Q_ii + 2 Σ_{j≠i} |Q_ij|,    D = D(d) ≽ Q,

    which is zero exactly at the solution. Its derivative is I − D(π)(I − D⁻¹Q) with the slopes π of the prox; one step is
    exact for ψ = 0, and finitely many steps suffice where the prox is piecewise linear. The method converges globally because
    (D − Q)R is the gradient of the forward–backward envelope of the objective (Patrinos, Stella and Bemporad, 2014). The
    envelope has the same minimiser, is convex because m is a convex quadratic and D ≽ Q, and decreases along the Newton step:

    1. take the full Newton step if it halves the residual of the last full step, which can happen only finitely often;
    2. otherwise, or if R is within its rounding error, stop if R is zero up to ``_SLACK`` times the rounding of its terms;
    3. otherwise move along the step to just before the minimum of the envelope, found by bisection of its slope.

    No objective values are compared, so the method reaches rounding accuracy and also works outside the domain of ψ.

    u is ∇_S f(x), Q is M_S, and x the block x_S of the current point; ψ is given the indices S of the block.
    """
    d = 2.0 * np.abs(Q).sum(axis=1) - np.diag(Q)
    d[d == 0.0] = d.max() or 1.0  # without curvature any step length is valid, and ψ must bound the coordinate
    step = 1.0 / d
    contraction = np.eye(len(x)) - step[:, None] * Q
    residual = _Residual(u, Q, x, psi, S, d, step)
    norm = residual.norm
    beta, R = x, residual(x)
    first = record = norm(R)
    for _ in range(_NEWTON_STEPS):
        rounding = residual.rounding(beta)
        # 1. The full step.
        matrix = (1.0 + _RIDGE) * np.eye(len(x)) - residual.slopes(beta)[:, None] * contraction
        # Least squares also works where rounding cancels the ridge, and its singular values show a singular matrix.
        newton, _, _, spectrum = np.linalg.lstsq(matrix, -R, rcond=None)
        full = residual(beta + newton)
        if norm(full) < 0.5 * record and (np.abs(R) > rounding).any():
            beta, R, record = beta + newton, full, norm(full)
            continue
        # 2. The test of convergence.
        if (np.abs(R) <= _SLACK * rounding).all():
            if spectrum[-1] < 10.0 * _RIDGE and norm(beta - x) > _FAR * first:
                break
            return residual.prox(beta)  # equals β − R, but inside the domain of ψ
        # 3. A shorter step.
        # (d − Q) newton @ R(β) is the slope of the envelope along the step.
        length, R = _bisected(lambda t: residual(beta + t * newton), d * newton - Q @ newton, R, full)  # noqa: B023
        beta = beta + length * newton
    raise RuntimeError(
        f"no minimiser of the subproblem on the coordinates {S.tolist()} was found, the residual is {np.abs(R).max():.2e}: "
        f"either there is none (M_S singular where psi does not bound it), or {type(psi).__name__}.prox is not the prox of a "
        "closed convex function"
    )


def _bisected(
    residual: Callable[[float], np.ndarray], uphill: np.ndarray, R: np.ndarray, full: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return a step length t ≤ 1 just before the sign change of the slope uphill @ residual(t), and the residual there.

    R and ``full`` are the residuals at t = 0 and t = 1.
    """
    if uphill @ full <= 0.0:
        return 1.0, full
    low, high = 0.0, 1.0
    while high - low > 0.1 * low and high > _RIDGE:
        middle = 0.5 * (low + high)
        trial = residual(middle)
        low, high, R = (middle, high, trial) if uphill @ trial <= 0.0 else (low, middle, R)
    return low, R


def _starting_point(F: Composite, sampling: Sampling, x0: Any) -> np.ndarray:
    if not isinstance(F, Composite):
        raise DualnewtonError(f"F must be a methods.Composite, such as Composite(f, Zero()), got {F!r}")
    x0 = starting_point(F.f, sampling, x0)
    if not sampling.is_uniform:
        raise DualnewtonError(
            "sampling must be uniform (the same probability for every coordinate), as Section 3 of the paper assumes, "
            f"got probabilities from {sampling.p.min():.3g} to {sampling.p.max():.3g}"
        )
    return x0
