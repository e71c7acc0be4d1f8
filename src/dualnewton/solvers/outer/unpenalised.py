"""Without a penalty (C = ∞, alpha = 0): what the dual proves then, and the steps that get there.

    min_{w, b}  P₀(w, b) = (1/n) Σ c_i φ(z_i; y_i)        max_α  D₀(α) = −(1/n) Σ c_i φ*(−α_i; y_i),  Σ c_i α_i x̃_i = 0,

where x̃_i is x_i, and a one beside it for an intercept. A dual point has to be orthogonal to every feature, as with an intercept
it has to be balanced; α_i = −φ′(z_i) is not, before the optimum. The step of Newton's method knows the remedy: with
H = Σ c_i φ″_i x̃_i x̃_iᵀ and u = H⁺Σ c_i α_i x̃_i the point α_i − φ″_i x̃_iᵀu is orthogonal, and φ* changes little on the way to
it, since φ″_i is small near an end of its domain. So each step brings its own certificate. With softmax φ″_i is the matrix
diag(p_i) − p_i p_iᵀ.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses import Curvature
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.run.result import Progress, Result, Status, Trace

FIRST, ROUGHLY = 1e-6, 1e-3
"""The penalty of the fit where the steps start, relative to the mean of c_i‖x_i‖², and the relative gap that is enough there."""

MOST = 2000
"""Coefficients up to which H is worth its factors; beyond, a weak penalty has to do."""

STEPS, HALVINGS = 60, 30
"""The most steps, and how often each is halved."""

PASSES = 2.0
"""Passes over the data that a step counts for."""

ORTHOGONAL = 1e-12
"""Σ c_i α_i x_ij counts as zero below this fraction of the norms of the two vectors: what rounding leaves of it."""

FINEST = 1e-15
"""The relative gap that the one step of a quadratic problem is taken for, whatever ``tol`` asks."""

WIDENED = 1 << 20
"""Entries of X that are in use at a time."""

SINGULAR, SMALLEST = 1e-13, 1e-200
"""Eigenvalues below this fraction of the largest, or this small, are zero but for rounding."""

NOTHING = 1e-26
"""Squared residuals below this fraction of the largest target's square are rounding, and count as zero."""


def fit_unpenalised(
    session: Any, problems_with: Callable[[float], Sequence[Problem]], before: Sequence[Result] | None
) -> list[Result]:
    """Fit with a weak penalty, then take steps of Newton's method without any, each result with a certificate of P₀.

    Earlier results take the place of the fit with a weak penalty, which would lead away from a minimum of P₀.

    Parameters
    ----------
    session : Session
        Of the fit: what solves on behalf of an estimator, within its limits.
    problems_with : callable
        The problems for a given λ; their penalty is (λ/2)‖w‖².
    before : results, optional
        To start from.
    """
    probe = problems_with(1.0)[0]
    size = probe.columns * (probe.d + 1)
    if size > MOST:
        raise DualnewtonError(
            f"without a penalty at most {MOST} coefficients can be fitted, got {size}: use a large finite C or a small alpha > 0"
        )
    scale = float(np.mean(probe.c * probe.norms)) or 1.0
    problems = problems_with(FIRST * scale)
    if (given := starts(problems, before)) is None:
        begun = session.solve(problems, tol=max(session.tol, ROUGHLY))
    else:
        begun = [_anew(result) for result in given]
    return [
        _Steps(session, problem, k).run(result) for k, (problem, result) in enumerate(zip(problems, begun, strict=True))
    ]


def _anew(result: Result) -> Result:
    """Return an earlier result as the start of a run that has done nothing yet."""
    return replace(
        result, status=Status.EPOCH_LIMIT, n_epochs=0.0, trace=Trace([Progress(0.0, 0.0, result.certificate)])
    )


def starts(problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
    """Make earlier results points to start from: w and α if both fit, or w and the α that belongs to it on new examples."""
    if before is None or len(before) != len(problems):
        return None
    points = []
    for problem, result in zip(problems, before, strict=True):
        nothing = problem.no_dual()
        if np.shape(result.w) != np.shape(problem.w_of(nothing)):
            return None
        points.append(
            result if result.alpha.shape == nothing.shape else replace(result, alpha=problem.alpha_of(result.w))
        )
    return points


class Unpenalised:
    """P₀ and D₀ of a problem whose penalty is left out, and the certificate that connects them."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.columns, self.view = problem, problem.columns, _View(problem)

    def certify(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> Certificate:
        """Prove how good (w, b) is, with the orthogonal point near α_i = −φ′(z_i), or with α if that is better."""
        theta = self.view.joined(w, intercept)
        Z = self.view.margins(theta)
        own = self.orthogonal(Z, self.view.alpha(Z), self.view.inverse(self.view.hessian(Z)))
        points = [point for point in (own, alpha, self.problem.no_dual()) if point is not None]
        return Certificate(self.view.primal(theta), max(map(self.dual, points)))

    def judged(self, theta: np.ndarray, alpha: np.ndarray) -> CertifiedPair:
        """Return θ = (w, b) and α with the certificate that the two make."""
        w, b = self.view.parted(theta)
        return CertifiedPair(w, b, alpha, Certificate(self.view.primal(theta), self.dual(alpha)))

    def dual(self, alpha: np.ndarray) -> float:
        """D₀(α), −∞ where α is not orthogonal to the features."""
        mass = self.view.weighted(alpha)
        along = np.abs(self.problem.data.transposed_times(mass))
        allowed = ORTHOGONAL * np.multiply.outer(self.view.norms, np.sqrt(np.square(mass).sum(axis=0)))
        return -math.inf if np.any(along > allowed) else self.view.dual(alpha)

    def orthogonal(self, Z: np.ndarray, alpha: np.ndarray, inverse: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the orthogonal point near α; once more each time, for what rounding has left."""
        for _ in range(3):
            alpha = alpha - self.view.curved(Z, self.view.times(inverse(self.view.gradient(alpha))))
        return self.problem.balanced(alpha)


class _Steps:
    """Newton's method on P₀ for one problem, from a result of the penalised problem, with a certificate at each step."""

    def __init__(self, session: Any, problem: Problem, number: int) -> None:
        self.session, self.problem, self.number = session, problem, number
        self.objective = Unpenalised(problem)
        self.view = self.objective.view
        self.began, self.trace, self.taken = time.perf_counter(), Trace(), 0

    def run(self, start: Result) -> Result:
        """Take steps until the certificate meets ``tol`` or nothing is gained any more; Ctrl-C ends them, too."""
        theta = self.view.joined(start.w, start.intercept)
        self.best = self.objective.judged(theta, self.problem.no_dual())  # α = 0 is orthogonal to everything
        self.trace.rows.append(self._progress(start))
        stopped = start.status in (Status.INTERRUPTED, Status.STOPPED_BY_CALLBACK)
        status: Status | None = start.status if stopped else None
        try:
            while status is None:
                status, theta = self._step(start, theta)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return self.session.content(Result.of(self.best, status, trace=self.trace, plan=start.plan))

    def _step(self, start: Result, theta: np.ndarray) -> tuple[Status | None, np.ndarray]:
        """Judge a point and, unless there is a reason to stop, return a better one."""
        Z = self.view.margins(theta)
        alpha, inverse = self.view.alpha(Z), self.view.inverse(self.view.hessian(Z))
        orthogonal = self.objective.orthogonal(Z, alpha, inverse)
        self.best = self.objective.judged(theta, orthogonal).joined_with(self.best)
        self.trace.rows.append(self._progress(start))
        # One step solves a quadratic problem: it is taken even where the start would do.
        goal = FINEST if self.view.quadratic else self.session.goal(self.problem)
        done = self.best.certificate.relative_gap <= goal
        told_to_stop = self.session.tell(self.trace.rows[-1])
        moved = None if done else self._moved(theta, alpha, inverse)
        reasons = (
            (done, Status.CONVERGED),
            (told_to_stop, Status.STOPPED_BY_CALLBACK),
            (self.session.is_late, Status.TIME_LIMIT),
            (moved is None or len(self.trace) > STEPS, Status.NO_PROGRESS),
            (self.session.epochs_left <= 0, Status.EPOCH_LIMIT),
        )
        status = next((reason for holds, reason in reasons if holds), None)
        if status is not None or moved is None:
            return status, theta
        self.session.spend(PASSES)
        self.taken += 1
        return None, moved

    def _progress(self, start: Result) -> Progress:
        """Return what has been done by now, the penalised fit included."""
        seconds = start.trace.rows[-1].seconds + time.perf_counter() - self.began
        return Progress(start.n_epochs + PASSES * self.taken, seconds, self.best.certificate, model=self.number)

    def _moved(
        self, theta: np.ndarray, alpha: np.ndarray, inverse: Callable[[np.ndarray], np.ndarray]
    ) -> np.ndarray | None:
        """Take the longest of the steps 1, ½, ¼, … by which P₀ falls; None if there is none."""
        step, here = inverse(self.view.gradient(alpha)), self.view.primal(theta)
        for halvings in range(HALVINGS):
            there = theta + 0.5**halvings * step
            if self.view.primal(there) < here:
                return there
        return None


class _View:
    """The models of a problem as matrices: θ = (w, b), or w alone, with one row for each column of margins."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.columns, self.with_one = problem, problem.columns, problem.fit_intercept
        self.quadratic = problem.loss.curvature is Curvature.CONSTANT

    def joined(self, w: np.ndarray, intercept: Any) -> np.ndarray:
        """θ."""
        w = np.atleast_2d(w)
        return np.column_stack([w, np.ravel(intercept)]) if self.with_one else w

    def parted(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return w and b as the problem has them."""
        W, b = theta[:, : self.problem.d], theta[:, -1] if self.with_one else np.zeros(self.columns)
        return (W[0].copy(), float(b[0])) if self.columns == 1 else (W.copy(), b.copy())

    def times(self, theta: np.ndarray) -> np.ndarray:
        """θ x̃_i, for each row."""
        d = self.problem.d
        products = self.problem.data.times(np.ascontiguousarray(theta[:, :d].T))
        return products + theta[:, d] if self.with_one else products

    def gradient(self, alpha: np.ndarray) -> np.ndarray:
        """Σ c_i α_i x̃_i, in the shape of θ."""
        mass = self.weighted(alpha).reshape(len(alpha), -1)
        along = self.problem.data.transposed_times(mass).T
        return np.column_stack([along, mass.sum(axis=0)]) if self.with_one else along

    def weighted(self, alpha: np.ndarray) -> np.ndarray:
        """c_i α_i."""
        return (alpha.T * self.problem.c).T

    def moments(self, weights: np.ndarray) -> np.ndarray:
        """Σ v_i x̃_i x̃_iᵀ."""
        return self.problem.data.weighted_gram(weights, intercept=self.with_one)

    @cached_property
    def norms(self) -> np.ndarray:
        """The norm of each feature."""
        return np.sqrt(np.diag(self.moments(np.ones(self.problem.n)))[: self.problem.d])

    def margins(self, theta: np.ndarray) -> np.ndarray:
        """z_i."""
        return self._own(self.times(theta))

    def alpha(self, z: np.ndarray) -> np.ndarray:
        """−φ′(z_i)."""
        return self.problem.slopes_at(z)

    def curved(self, z: np.ndarray, t: np.ndarray) -> np.ndarray:
        """φ″_i t_i, for t of shape (n, K)."""
        return self.problem.loss.curvature_times(z, self.problem.y, self._own(t))

    def hessian(self, z: np.ndarray) -> np.ndarray:
        """Σ c_i φ″_i ⊗ x̃_i x̃_iᵀ: a block for each two columns."""
        c, units = self.problem.c, np.eye(self.columns)
        # φ″_i is symmetric: its column l is the product with the unit vector of l.
        of = [self.curved(z, np.tile(unit, (self.problem.n, 1))).reshape(-1, self.columns) for unit in units]
        return np.block([[self.moments(c * column[:, k]) for column in of] for k in range(self.columns)])

    def _own(self, columns: np.ndarray) -> np.ndarray:
        """Return n × K numbers as the loss takes them: a vector for K = 1."""
        return columns[:, 0] if self.columns == 1 else columns

    def inverse(self, H: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the product with H⁻¹; where H is singular, the one that leaves w as short as it can be."""
        V, reciprocal, scale = _decomposed(H, scaled=True)
        # Of several columns H is always singular: nothing changes where the same is added to all of them.
        if V.shape[0] == V.shape[1] or self.columns > 1:
            return lambda g: (scale * (V @ (reciprocal * (V.T @ (scale * g.ravel()))))).reshape(g.shape)
        d = self.problem.d
        # Without any curvature (all rows far on the right side) there is nothing to divide by, and no step.
        edge, corner = (H[:d, d], H[d, d] or 1.0) if self.with_one else (np.zeros(d), 1.0)
        V, reciprocal, _ = _decomposed(H[:d, :d] - np.outer(edge, edge) / corner, scaled=False)  # of centred features

        def product(g: np.ndarray) -> np.ndarray:
            along, one = g[0, :d], g[0, d:]
            w = V @ (reciprocal * (V.T @ (along - edge * (one.sum() / corner))))
            return np.concatenate([w, (one - edge @ w) / corner])[None, :]

        return product

    def primal(self, theta: np.ndarray) -> float:
        """P₀."""
        value = self.problem.primal_at(self.margins(theta), self.parted(0.0 * theta)[0])
        return 0.0 if self.quadratic and value <= NOTHING * float(np.square(self.problem.y).max()) else value

    def dual(self, alpha: np.ndarray) -> float:
        """D₀ of an orthogonal point."""
        return self.problem.dual_at(alpha, self.problem.w_of(self.problem.no_dual()))


def _decomposed(H: np.ndarray, *, scaled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the eigenvectors of H that are not in its null space, the reciprocals of their eigenvalues, and a scale.

    With H scaled to a unit diagonal, features of any scale are alike.
    """
    from scipy.linalg import eigh

    diagonal = np.diag(H) if scaled else np.ones(len(H))
    scale = 1.0 / np.sqrt(np.where(diagonal > SMALLEST, diagonal, 1.0))
    values, vectors = eigh(H * np.outer(scale, scale))
    kept = values > max(SINGULAR * values[-1], SMALLEST)
    return vectors[:, kept], 1.0 / values[kept], scale
