"""The optimum P*, computed by a Newton method that is independent of the library's solvers, and certified by the gap."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from benchmarks.data import Cell
from benchmarks.peers import WIDEST_HESSIAN
from benchmarks.timing import cores, in_child
from benchmarks.wide import dual_newton
from scipy.sparse.linalg import LinearOperator, cg

import dualnewton as dn

GOAL = 1e-6
"""The relative suboptimality (P − P*)/P* that all contenders must reach."""

TIGHT = 1e-10
"""The relative duality gap at which the search for P* ends."""

REFERENCE_CAP = 90.0
NEWTON_SECONDS = 45.0
OURS_SECONDS = 15.0
"""Time limits in seconds: of the whole search for P*, of the Newton method, and of the library if that is not certified."""

CERTIFIED = GOAL / 100
"""The relative accuracy to which P* must be certified, a hundredth of the accuracy required of the contenders."""

DOMINANT = 3_000
"""Number of columns that the preconditioner treats exactly if the whole Hessian is too large; their block takes 72 MB."""

KEPT = Path(tempfile.gettempdir()) / "dualnewton-optima"
"""The folder in which the points are kept as starting points of later runs; every run certifies them again."""


@dataclass(frozen=True)
class Optimum:
    """P*, bounded from above by the best primal value found and from below by the best dual value.

    Parameters
    ----------
    primal, dual : float
        The upper and the lower bound.
    point : array
        A starting point for a further search: w, or the vector u of w = Xᵀu.
    """

    primal: float
    dual: float
    point: np.ndarray = field(repr=False, compare=False)

    @property
    def uncertainty(self) -> float:
        """The relative gap between the two bounds."""
        return (self.primal - self.dual) / abs(self.primal)

    @property
    def certified(self) -> bool:
        """True if the bounds are close enough to test the contenders against."""
        return self.uncertainty <= CERTIFIED

    def reached_by(self, primal: float) -> bool:
        """Return True if P − P* ≤ 1e-6·P*."""
        if primal < self.dual - GOAL * CERTIFIED * abs(
            self.dual
        ):  # impossible beyond rounding if the certificate is right
            raise ArithmeticError(f"P = {primal:.17g} lies below the dual value {self.dual:.17g} that bounds it")
        return primal - self.primal <= GOAL * abs(self.primal)


def optimum_of(cell: Cell, neighbour: Optimum | None = None) -> Optimum:
    """Compute P* in a child process with all cores, untimed; start from a kept point or that of a neighbouring λ."""
    kept = KEPT / (re.sub(r"\W+", "-", str(cell)) + ".npy")
    shape = (cell.data.X.shape[0 if is_wide(cell) else 1],)
    start = neighbour.point if neighbour else np.zeros(shape)
    if kept.exists() and (earlier := np.load(kept)).shape == shape:
        start = earlier

    def search() -> Iterator[Optimum]:
        return find_optimum(cell, start)

    found = in_child(search, REFERENCE_CAP, threads=len(cores())).values
    if not found:
        raise RuntimeError(f"no optimum could be found for {cell}")
    KEPT.mkdir(exist_ok=True)
    np.save(kept, found[-1].point)
    return Optimum(min(one.primal for one in found), max(one.dual for one in found), found[-1].point)


def is_wide(cell: Cell) -> bool:
    """Return True if X is sparse and both of its sizes are too large to form a Hessian or a Gram matrix."""
    return not cell.data.is_dense and min(cell.data.X.shape) > WIDEST_HESSIAN


def find_optimum(cell: Cell, point: np.ndarray) -> Iterator[Optimum]:
    """Yield the result of Newton's method and, only if it is not certified, that of the library too."""
    problem = cell.problem()
    if is_wide(cell):
        point = dual_newton(problem, point, TIGHT, NEWTON_SECONDS)
        certificate = problem.certify(problem.X.T @ point, alpha=problem.lam * problem.n * point)
    else:
        point = newton(problem, point, NEWTON_SECONDS)
        certificate = problem.certify(point)
    yield (found := Optimum(certificate.primal, certificate.dual, point))
    if not found.certified:
        ours = dn.solve(problem, tol=TIGHT, random_state=0, time_limit=OURS_SECONDS).certificate
        yield Optimum(ours.primal, ours.dual, point)


def newton(problem: dn.Problem, w: np.ndarray, seconds: float) -> np.ndarray:
    """Minimise P by Newton's method with step halving until ‖∇P‖²/(2λ) ≤ 1e-10·P, or until the time limit.

    That quantity is the duality gap of w and α_i = −φ′(z_i) for the L2 penalty, so the certificate will be as small. The
    method uses only the scalar functions of the loss from the library.
    """
    X, y, lam, n, phi = problem.X, problem.y, problem.lam, problem.n, problem.loss
    end = time.perf_counter() + seconds

    def value(z: np.ndarray, w: np.ndarray) -> float:
        return float(phi.value(z, y).mean()) + 0.5 * lam * float(w @ w)

    z = X @ w
    P = value(z, w)
    while time.perf_counter() < end:
        gradient = X.T @ phi.derivative(z, y) / n + lam * w
        if gradient @ gradient <= 2.0 * lam * TIGHT * P:
            break
        step = -newton_step(X, phi.second_derivative(z, y) / n, lam, gradient)
        along, slope, length = X @ step, float(gradient @ step), 1.0
        while (lower := value(z + length * along, w + length * step)) > P + 1e-4 * length * slope and length > 1e-10:
            length *= 0.5
        if lower >= P:  # rounding error prevents a further decrease
            break
        w = w + length * step
        z, P = X @ w, lower
    return w


def newton_step(X: Any, h: np.ndarray, lam: float, gradient: np.ndarray) -> np.ndarray:
    """Solve (Xᵀ diag(h) X + λI) p = ∇P by Cholesky, or by preconditioned conjugate gradients if d is large.

    The preconditioner is the block of the columns with the largest diagonal entries and the diagonal of the others: in text
    data a few thousand words account for most of the matrix.
    """
    d = X.shape[1]
    if d <= WIDEST_HESSIAN:
        return la.cho_solve(hessian_factor(X, h, lam), gradient)
    diagonal = (X.multiply(X).T if sp.issparse(X) else (X * X).T) @ h + lam
    dominant = np.argsort(-diagonal)[:DOMINANT]
    factor = hessian_factor(X[:, dominant], h, lam)

    def precondition(v: np.ndarray) -> np.ndarray:
        scaled = v / diagonal
        scaled[dominant] = la.cho_solve(factor, v[dominant])
        return scaled

    product = LinearOperator((d, d), lambda v: X.T @ (h * (X @ v)) + lam * v, dtype=np.float64)
    return cg(product, gradient, rtol=1e-2, maxiter=1000, M=LinearOperator((d, d), precondition, dtype=np.float64))[0]


def hessian_factor(X: Any, h: np.ndarray, lam: float) -> tuple[np.ndarray, bool]:
    """Factorise Xᵀ diag(h) X + λI."""
    if sp.issparse(X):
        H = (X.T @ sp.diags_array(h) @ X).toarray(order="F")
    else:
        active = h > 0.0
        H = la.blas.dsyrk(
            1.0, (X[active] * np.sqrt(h[active])[:, None]).T, lower=1
        )  # half the work of a general product
    H[np.diag_indices(len(H))] += lam
    return la.cho_factor(H, lower=True, overwrite_a=True)
