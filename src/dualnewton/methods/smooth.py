"""Methods 1, 2 and 3 of Section 2: min f(x) by steps on random sets of coordinates.

All have the form x^{k+1} = x^k + h^k with h^k zero outside S_k. They differ in how much of the curvature M they use:
Method 1 uses the block M_{S_k}, Method 2 its expectation, Method 3 a diagonal upper bound on the expectation. By Theorem 3 each
contracts in expectation, E[f(x^{k+1}) − f*] ≤ (1 − σ_m) E[f(x^k) − f*], and by Theorem 4 σ₃ ≤ σ₂ ≤ σ₁
(``theory.sigma1``, ``theory.sigma2``, ``theory.sigma3``). All three coincide when |Ŝ| = 1.

These are reference implementations and not fast: they compute the whole gradient in every step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton import theory
from dualnewton.errors import DualnewtonError
from dualnewton.methods.functions import SmoothFunction, positive_definite
from dualnewton.samplings import Sampling
from dualnewton.validation import integer, vector

Move = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(x, S) ↦ the new values of the coordinates in S."""


def method1(f: SmoothFunction, sampling: Sampling, x0: Any, iterations: int, rng: Any) -> np.ndarray:
    """Minimise f by exact Newton-like steps on random blocks: h^k = −(M_{S_k})⁻¹ ∇f(x^k)  (Method 1).

    Parameters
    ----------
    f : Smooth, Quadratic or another SmoothFunction
        The function, with M ≻ 0 (Assumption 1).
    sampling : Sampling
        The law of the sets S_k; any proper sampling (Assumption 3).
    x0 : array of shape (n,)
        The starting point.
    iterations : int
        The number of steps.
    rng : numpy.random.Generator or seed
        The sets are ``sampling.draw(rng, iterations)``, so all methods use equal sets for equal seeds.

    Returns
    -------
    array of shape (iterations + 1, n)
        The iterates x^0, x^1, ….

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), b=np.ones(2))
    >>> methods.method1(f, samplings.Nice(2, tau=2), np.zeros(2), 1, np.random.default_rng(0))[-1].round(4)
    array([0.3333, 0.3333])
    """
    x0 = starting_point(f, sampling, x0)
    M = positive_definite("f.M", f.M, "Method 1, which inverts its blocks (Assumption 1)")

    def move(x: np.ndarray, S: np.ndarray) -> np.ndarray:
        return x[S] - np.linalg.solve(M[np.ix_(S, S)], f.gradient(x)[S])

    return trajectory(move, sampling, x0, iterations, rng)


def method2(f: SmoothFunction, sampling: Sampling, x0: Any, iterations: int, rng: Any) -> np.ndarray:
    """Minimise f with the expected curvature of the blocks: h^k = −I_{S_k} (E[M_Ŝ])⁻¹ D(p) ∇f(x^k)  (Method 2).

    The method is of theoretical interest only, since inverting E[M_Ŝ] costs as much as inverting M.

    Parameters
    ----------
    f, sampling, x0, iterations, rng
        The parameters, and the result, are those of :func:`method1`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), b=np.ones(2))
    >>> methods.method2(f, samplings.Nice(2, tau=1), np.zeros(2), 60, np.random.default_rng(0))[-1].round(4)
    array([0.3333, 0.3333])
    """
    x0 = starting_point(f, sampling, x0)
    M = positive_definite("f.M", f.M, "Method 2, which inverts E[M_S] (Lemma 1)")
    step = np.linalg.inv(theory.expected_submatrix(M, sampling)) * sampling.p  # (E[M_Ŝ])⁻¹ D(p)

    def move(x: np.ndarray, S: np.ndarray) -> np.ndarray:
        return x[S] - step[S] @ f.gradient(x)

    return trajectory(move, sampling, x0, iterations, rng)


def nsync(f: SmoothFunction, sampling: Sampling, x0: Any, iterations: int, rng: Any, *, v: Any = None) -> np.ndarray:
    """Minimise f by separate steps on the coordinates of a set: h^k = −I_{S_k} D(v)⁻¹ ∇f(x^k)  (Method 3, NSync).

    Parameters
    ----------
    f, sampling, x0, iterations, rng
        The parameters, and the result, are those of :func:`method1`; M may be singular.
    v : array of shape (n,), optional
        A positive vector with E[M_Ŝ] ≼ D(p)D(v) (an ESO; smaller is faster); ``theory.eso(f.M, sampling)`` by default.
        A vector that violates the inequality is an error, since the steps may then diverge.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), b=np.ones(2))
    >>> methods.nsync(f, samplings.Nice(2, tau=1), np.zeros(2), 60, np.random.default_rng(0))[-1].round(4)
    array([0.3333, 0.3333])
    """
    x0 = starting_point(f, sampling, x0)
    v = eso_vector(f.M, sampling, v)

    def move(x: np.ndarray, S: np.ndarray) -> np.ndarray:
        return x[S] - f.gradient(x)[S] / v[S]

    return trajectory(move, sampling, x0, iterations, rng)


# Shared by all methods, including the proximal ones ------------------------------------------------------------------


def trajectory(move: Move, sampling: Sampling, x0: np.ndarray, iterations: int, rng: Any) -> np.ndarray:
    """Draw S_0, S_1, …, apply ``move`` to the coordinates of each set, and return all iterates."""
    sets = sampling.draw(np.random.default_rng(rng), integer("iterations", iterations, 0))
    x = np.empty((len(sets) + 1, len(x0)))
    x[0] = x0
    for k, S in enumerate(sets):
        x[k + 1] = x[k]
        x[k + 1, S] = move(x[k], S)
    return x


def starting_point(f: SmoothFunction, sampling: Sampling, x0: Any) -> np.ndarray:
    """Check that f, the sampling and x0 have matching sizes, and return x0 as a vector."""
    if not isinstance(f, SmoothFunction):
        raise DualnewtonError(
            f"f must have value, gradient, M and G, as methods.Smooth does, got {f!r} "
            "(a methods.Composite goes to prox_method1 or pcdm)"
        )
    n = len(f.M)
    if not isinstance(sampling, Sampling):
        raise DualnewtonError(f"sampling must be an instance of samplings.Sampling, got {sampling!r}")
    if sampling.n != n:
        raise DualnewtonError(f"sampling must choose among the {n} coordinates of f, got one for n={sampling.n}")
    if sampling.p.min() <= 0.0:
        raise DualnewtonError(
            f"sampling must be proper (Assumption 3), got probability 0 for coordinate {int(np.argmin(sampling.p))}"
        )
    x0 = vector("x0", x0, n)
    if np.shape(f.gradient(x0)) != (n,):
        raise DualnewtonError(f"f.gradient(x) must have shape ({n},), got {np.shape(f.gradient(x0))}")
    return x0


def eso_vector(M: np.ndarray, sampling: Sampling, v: Any) -> np.ndarray:
    """Return a positive v with E[M_Ŝ] ≼ D(p)D(v): the given one after a check, or that of ``theory.eso``."""
    if np.diag(M).min() <= 0.0:
        raise DualnewtonError(
            f"M must have a positive diagonal for steps of length 1/v, got 0 at index {np.argmin(np.diag(M))}"
        )
    if v is None:
        return theory.eso(M, sampling)
    v = vector("v", v, len(M))
    if not theory.is_eso(M, sampling, v):
        raise DualnewtonError(
            f"v must satisfy E[M_S] <= D(p)D(v) for this sampling, as theory.eso(M, sampling) does, got {v!r}, "
            "with which the steps may diverge"
        )
    return v
