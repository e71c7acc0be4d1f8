"""The Iterative Hessian Sketch, which is SDNA in the primal variables (Section 6)."""

from __future__ import annotations

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling
from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.block import MAX_NEWTON_STEPS, ROUNDING, TOLERANCE, halve_until_descent


class IterativeHessianSketch(Solver):
    """Take the same steps as SDNA, computed in the d primal variables (Theorem 10).

        w⁺ = argmin (1/n) Σ_{i∈S} c_i φ_i(a_iᵀw + o_i) + (λ/2)‖w − w̃‖²,        w̃ = w − (1/λn) Σ_{i∈S} c_i α_i a_i

    For the squared loss this is the sketched least-squares problem of Theorem 10, one d×d solve; for any other loss it is the
    dual of the block subproblem, solved by Newton's method. It is cheaper than the dual form if |S| > d.
    g must be ½‖w‖²: the theorem requires that ∇g* is the identity.
    """

    def __init__(self, problem: Problem, sampling: Sampling) -> None:
        if not problem.regularizer.form.is_plain:
            raise DualnewtonError(
                f'method="ihs" needs regularizer L2(), got {problem.regularizer!r}: Theorem 10 requires g = ½‖w‖²; '
                'use method="sdna"'
            )
        super().__init__(problem, sampling)

    def round(self, S: np.ndarray) -> None:
        problem, c = self.problem, self.problem.c[S]
        lam_n = problem.lam * problem.n
        # The intercept is one more coefficient, whose feature is the constant √ρ.
        feature = np.sqrt(self.intercept_curvature * lam_n)
        rows = linear.to_dense(problem.data.rows(S))
        model = self.w
        if problem.fit_intercept:
            rows = linear.with_constant(rows, feature)
            model = np.append(model, self.intercept / feature)
        centre = model - rows.T @ (c * self.alpha[S]) / lam_n

        model = _minimise(problem, rows, S, centre, model)

        # At the minimum w⁺ − w̃ = −(1/λn) Σ c_i φ′(z_i) a_i: the new dual variables are −φ′ at the new margins.
        self.alpha[S] = -problem.loss.derivative(rows @ model + problem.o[S], problem.y[S])
        self.alpha_bar = model[: problem.d]
        self.intercept = float(model[-1] * feature) if problem.fit_intercept else 0.0


def _minimise(problem: Problem, rows: np.ndarray, S: np.ndarray, centre: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Minimise Σ c_i φ_i(rows m) + (λn/2)‖m − centre‖² by Newton's method with step halving."""
    from scipy.linalg import cho_factor, cho_solve

    loss, y, c, o = problem.loss, problem.y[S], problem.c[S], problem.o[S]
    lam_n = problem.lam * problem.n

    def value(m: np.ndarray) -> float:
        away = m - centre
        return float(c @ loss.value(rows @ m + o, y) + 0.5 * lam_n * away @ away)

    now = value(model)
    for _ in range(MAX_NEWTON_STEPS):
        z = rows @ model + o
        push = rows.T @ (c * loss.derivative(z, y))
        pull = lam_n * (model - centre)
        if np.abs(push + pull).max() <= TOLERANCE * max(np.abs(push).max(), np.abs(pull).max()):
            break
        hessian = (rows.T * (c * loss.second_derivative(z, y))) @ rows
        hessian[np.diag_indices_from(hessian)] += lam_n
        step = cho_solve(cho_factor(hessian), -(push + pull))
        t, found = halve_until_descent(now, ROUNDING * abs(now), lambda t: (value(model + t * step),))  # noqa: B023
        if found is None:
            break
        (now,) = found
        model = model + t * step
    return model
