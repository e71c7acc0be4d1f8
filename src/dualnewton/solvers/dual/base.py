"""Base class of the dual solvers in NumPy: the dual point α, its image ᾱ and the intercept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np

from dualnewton.losses.base import require_smooth
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling


def intercept_weight(problem: Problem) -> float:
    """ρ, the square of the constant feature: n^(−1/3) times a, the mean ‖a_i‖².

    Between orthogonal rows of equal length, a visit of one example leaves ρ/(a + ρ) of its error, since b changes its margin too,
    and a move of the centre of the proximal term leaves 1/(1 + nρ/a) of the error of b: ρ = a/√n balances the two. Rows with a
    large mean µ leave 1/(1 + ρ/‖µ‖²) instead, for which ρ should be larger. The exponent −1/3 lies between −1/2 and 0.
    """
    size = problem.data.norm
    return size * size * problem.n ** (-4 / 3) or 1.0


def intercept_curvature(problem: Problem) -> float:
    """ρ/(λn), the curvature that the constant feature adds to the dual; zero without an intercept."""
    return intercept_weight(problem) / (problem.lam * problem.n) if problem.fit_intercept else 0.0


class Solver:
    """A dual iterate that is updated by rounds on sets of examples; subclasses define the round.

    Attributes
    ----------
    alpha, alpha_bar : arrays
        The dual point α and ᾱ = (1/λn) Σ c_i α_i a_i.
    intercept : float
        b. It is unpenalised, which adds the constraint Σ c_i α_i = 0 to the dual. The solver uses the proximal point method:
        with the proximal term (λ/2ρ)(b − b₀)² the intercept is one more feature with the constant value √ρ, so that
        b = b₀ + (ρ/λn) Σ c_i α_i, and every round is the paper's. After each epoch b₀ moves to b, so that the term
        vanishes in the limit. Certificates do not contain it.
    """

    takes_pieces = False  # whether the rounds also solve piecewise linear losses
    deadline = math.inf  # of the rounds of :meth:`run`, by ``time.perf_counter``

    def __init__(self, problem: Problem, sampling: Sampling) -> None:
        self.pieces = problem.pieces if self.takes_pieces else None
        if self.pieces is None and problem.loss.kinked:
            require_smooth(problem.loss, f"the rounds of {type(self).__name__}, which solve for its derivative")
        self.problem = problem
        self.sampling = sampling
        self.intercept_curvature = intercept_curvature(problem)
        self.start_from(np.zeros(problem.n))

    @classmethod
    def for_each(cls, problems: Sequence[Problem], sampling: Sampling) -> list[Self]:
        """Return a solver for each of several problems that share X."""
        return [cls(problem, sampling) for problem in problems]

    def start_from(self, alpha: np.ndarray) -> None:
        """Set the iterate to a feasible dual point."""
        self.alpha = alpha.copy()
        self.refresh()
        self.intercept = self.problem.best_intercept(self.w)  # b₀ = b, since Σ c_i α_i = 0

    @property
    def state(self) -> tuple[np.ndarray, np.ndarray, float]:
        """The iterate: α, ᾱ and b."""
        return self.alpha.copy(), self.alpha_bar, self.intercept

    @state.setter
    def state(self, state: tuple[np.ndarray, np.ndarray, float]) -> None:
        alpha, self.alpha_bar, self.intercept = state
        self.alpha = alpha.copy()

    def round(self, S: np.ndarray) -> None:
        """Update the dual variables of the examples in S, and ᾱ and b accordingly."""
        raise NotImplementedError(f"{type(self).__name__} has no round(S)")

    def run(self, block: Iterable[np.ndarray], deadline: float = math.inf) -> None:
        """Do one round for each set of an index block; after the deadline, rounds leave their blocks unfinished."""
        self.deadline = deadline
        for S in block:
            self.round(S)

    def end_epoch(self) -> None:
        """Move the proximal centre b₀ to b, and recompute ᾱ to remove accumulated rounding errors."""
        self.intercept += self.intercept_curvature * float(self.problem.c @ self.alpha)
        self.refresh()

    def refresh(self) -> None:
        """Recompute ᾱ from α."""
        self.alpha_bar = self.problem.alpha_bar(self.alpha)

    @property
    def w(self) -> np.ndarray:
        """w = ∇g*(ᾱ)."""
        return self.problem.regularizer.grad_conjugate(self.alpha_bar)

    def move(self, S: np.ndarray, rows: linear.Matrix, beta: np.ndarray) -> None:
        """Set α_S = β and add the contribution of c∘(β − α_S) to ᾱ and b."""
        mass = self.problem.c[S] * (beta - self.alpha[S])
        self.alpha[S] = beta
        self.alpha_bar = self.alpha_bar + rows.T @ mass / (self.problem.lam * self.problem.n)
        self.intercept += self.intercept_curvature * float(mass.sum())
