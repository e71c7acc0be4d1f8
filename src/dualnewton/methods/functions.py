"""The functions that the methods minimise: f between two quadratics (Section 2), and F = f + Σ ψ_i (Section 3).

A custom function is either a :class:`Smooth` built from two callables and two matrices, or any object with the same four
attributes; a custom separable term is a subclass of :class:`Separable` that implements its value and its prox.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.methods.separable import ConjugateLoss, Separable
from dualnewton.validation import frozen, vector

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

_EPS = float(np.finfo(float).eps)


@runtime_checkable
class SmoothFunction(Protocol):
    """f with f(x) + ⟨∇f(x), h⟩ + ½hᵀGh ≤ f(x + h) ≤ f(x) + ⟨∇f(x), h⟩ + ½hᵀMh for all x and h (Assumptions 1 and 2)."""

    @property
    def M(self) -> np.ndarray:
        """The matrix of the upper bound."""

    @property
    def G(self) -> np.ndarray:
        """The matrix of the lower bound."""

    def value(self, x: np.ndarray) -> float:
        """f(x)."""

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """∇f(x)."""


@dataclass(frozen=True, eq=False)
class Smooth:
    """A convex function given by its value, its gradient and its quadratic bounds (Assumptions 1 and 2).

    Parameters
    ----------
    value, gradient : callables
        x ↦ f(x) and x ↦ ∇f(x).
    M, G : arrays of shape (n, n)
        The bounds, 0 ≼ G ≼ M. Methods 1 and 2 need M ≻ 0. The rates of Theorem 3 are positive only for G ≻ 0; with a
        strongly convex separable term, the rates of Section 3 are positive for G = 0 too (Lemma 3).

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Smooth(lambda x: 0.5 * float(x @ x), lambda x: x, M=np.eye(2), G=np.eye(2))
    >>> f.value(np.ones(2))
    1.0
    """

    value: Callable[[np.ndarray], float]
    gradient: Callable[[np.ndarray], np.ndarray]
    M: Any
    G: Any

    def __post_init__(self) -> None:
        for name in ("value", "gradient"):
            if not callable(getattr(self, name)):
                raise DualnewtonError(f"{name} must be a function of x, got {getattr(self, name)!r}")
        M, G = symmetric("M", self.M), symmetric("G", self.G)
        if M.shape != G.shape:
            raise DualnewtonError(f"M and G must have one shape, got {M.shape} and {G.shape}")
        _nonnegative_definite("G", G, scale=M)
        # The two assumptions imply G ≼ M.
        _nonnegative_definite("M - G", M - G, scale=M)
        object.__setattr__(self, "M", M)
        object.__setattr__(self, "G", G)


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(x) = ½xᵀMx − bᵀx, for which both bounds are equalities: G = M.

    Parameters
    ----------
    M : array of shape (n, n)
        The Hessian, M ≽ 0.
    b : float or array of shape (n,)
        The linear term.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> f = methods.Quadratic(np.diag([1.0, 2.0]), b=np.array([1.0, 2.0]))
    >>> f.value(np.ones(2)), f.gradient(np.ones(2))
    (-1.5, array([0., 0.]))
    """

    M: Any
    b: Any = 0.0

    def __post_init__(self) -> None:
        M = symmetric("M", self.M)
        _nonnegative_definite("M", M, scale=M)
        b = np.full(len(M), self.b) if np.ndim(self.b) == 0 else self.b
        object.__setattr__(self, "M", M)
        object.__setattr__(self, "b", vector("b", b, len(M)))

    @property
    def G(self) -> np.ndarray:
        """The matrix of the lower bound, M itself."""
        return self.M

    def value(self, x: np.ndarray) -> float:
        """f(x)."""
        return float(x @ (0.5 * (self.M @ x) - self.b))

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """∇f(x)."""
        return self.M @ x - self.b

    @cached_property
    def minimiser(self) -> np.ndarray:
        """The solution of Mx = b, which is unique for M ≻ 0."""
        return frozen(np.linalg.solve(positive_definite("M", self.M, "the minimiser to be one point"), self.b))


@dataclass(frozen=True, eq=False)
class Composite:
    """F(x) = f(x) + Σ ψ_i(x_i) (Section 3).

    Parameters
    ----------
    f : Smooth, Quadratic or another SmoothFunction
        The smooth part.
    psi : Separable
        The separable part.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods, samplings
    >>> F = methods.Composite(methods.Quadratic(np.eye(2)), methods.Absolute())
    >>> F.value(np.array([1.0, -1.0]))
    3.0
    """

    f: SmoothFunction
    psi: Separable

    def __post_init__(self) -> None:
        if not isinstance(self.f, SmoothFunction):
            raise DualnewtonError(f"f must have value, gradient, M and G, as methods.Smooth does, got {self.f!r}")
        if not isinstance(self.psi, Separable):
            raise DualnewtonError(
                f"psi must be an instance of methods.Separable, such as methods.Zero(), got {self.psi!r}"
            )
        if self.psi.size not in (None, len(self.f.M)):
            raise DualnewtonError(f"psi is made for {self.psi.size} coordinates, f has {len(self.f.M)}")

    @cached_property
    def gamma(self) -> np.ndarray:
        """γ, the strong convexity constant of each ψ_i."""
        return frozen(np.broadcast_to(np.asarray(self.psi.gamma, dtype=float), (len(self.f.M),)))

    def value(self, x: np.ndarray) -> float:
        """F(x), +∞ outside the domain of ψ."""
        return float(self.f.value(x) + np.sum(self.psi.value(x, np.arange(len(x)))))


def dual_of(problem: Problem) -> Composite:
    """Return F = −D, the negative dual of a regularised risk, as a composite function to minimise (Section 4).

    f(α) = λ g*(ᾱ) + (1/n) Σ c_i o_i α_i with ᾱ = (1/λn) Σ c_i α_i a_i, and ψ_i(t) = (c_i/n) φ*(−t; y_i). Since g* is
    1-smooth, f obeys Assumption 1 with M = D(c) A Aᵀ D(c)/(λn²), which may be singular. G = 0 as in Lemma 3: ψ alone is
    strongly convex, with γ_i = c_i γ/n.

    Parameters
    ----------
    problem : Problem
        A problem without an intercept and with positive weights.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> from dualnewton import losses, methods
    >>> problem = dn.Problem(np.eye(2), np.ones(2), losses.Squared(), lam=1.0)
    >>> alpha = np.array([0.5, 0.25])
    >>> bool(np.isclose(methods.dual_of(problem).value(alpha), -problem.dual(alpha)))
    True
    """
    if problem.fit_intercept:
        raise DualnewtonError(
            "problem must have fit_intercept=False: an intercept adds Σ c_i α_i = 0 to the dual, which is not separable"
        )
    if problem.c.min() <= 0.0:
        raise DualnewtonError(
            f"problem must have positive weights, got sample_weight 0 at index {int(np.argmin(problem.c))}: "
            "such a row has no dual variable, leave it out"
        )
    n, c = problem.n, problem.c
    rows = problem.data.rows(np.arange(n))
    M = c[:, None] * linear.gram(rows) * c / (problem.lam * n**2)

    def value(alpha: np.ndarray) -> float:
        conjugate = problem.regularizer.conjugate(problem.alpha_bar(alpha))
        return float(problem.lam * conjugate + (c * problem.o) @ alpha / n)

    def gradient(alpha: np.ndarray) -> np.ndarray:
        return c * problem.margins(problem.w_of(alpha)) / n

    f = Smooth(value, gradient, 0.5 * (M + M.T), np.zeros((n, n)))
    return Composite(f, ConjugateLoss(problem.loss, problem.y, n, weight=c))


# Shared checks -------------------------------------------------------------------------------------------------------


def symmetric(name: str, value: Any) -> np.ndarray:
    """Return ``value`` as a read-only symmetric float64 matrix."""
    try:
        matrix = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise DualnewtonError(f"{name} must be a matrix of numbers, got {type(value).__name__}") from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise DualnewtonError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise DualnewtonError(f"{name} must be finite, got an entry that is not")
    if (asymmetry := float(np.abs(matrix - matrix.T).max())) > 1e-12 * np.abs(matrix).max():
        raise DualnewtonError(f"{name} must be symmetric, got entries (i, j) and (j, i) that differ by {asymmetry:.2e}")
    return frozen(0.5 * (matrix + matrix.T))


def positive_definite(name: str, matrix: np.ndarray, purpose: str) -> np.ndarray:
    """Return ``matrix`` if it is positive definite beyond rounding error; ``purpose`` appears in the error message."""
    eigenvalues = np.linalg.eigvalsh(matrix)
    if eigenvalues[0] <= len(matrix) * _EPS * eigenvalues[-1]:
        raise DualnewtonError(
            f"{name} must be positive definite for {purpose}, got a smallest eigenvalue of {eigenvalues[0]:.2e}"
        )
    return matrix


def _nonnegative_definite(name: str, matrix: np.ndarray, scale: np.ndarray) -> None:
    smallest = float(np.linalg.eigvalsh(matrix)[0])
    if smallest < -1e-12 * np.abs(scale).sum(axis=1).max():
        raise DualnewtonError(f"{name} must be positive semidefinite, got a smallest eigenvalue of {smallest:.2e}")
