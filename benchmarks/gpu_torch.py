"""PyTorch's L-BFGS on the objective of a problem whose rows are on the GPU, until it is within a goal of the minimum."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.report import seconds

import dualnewton as dn
from dualnewton import losses, regularizers

STEPS, HISTORY = 2000, 10


@dataclass(frozen=True)
class Ended:
    """The seconds of a run, and the (P − P*)/P* at which it ended, evaluated in float64 by the problem itself."""

    seconds: float
    excess: float

    def words(self, goal: float) -> str:
        """Return the time, and the accuracy where it missed the goal (of which half is left to rounding)."""
        return seconds(self.seconds) + ("" if self.excess <= 1.5 * goal else f" to {self.excess:.0e}")


class _Reached(Exception):  # noqa: N818 (not an error)
    pass


def lbfgs(problem: Any, least: float, goal: float, limit: float) -> Ended | None:
    """Minimise by L-BFGS until P − ``least`` ≤ ``goal`` · ``least`` or for ``limit`` seconds, after a short run that warms up.

    None for objectives that are not smooth, or whose loss has no formula here.
    """
    if type(problem.loss) not in FORMULAS or not isinstance(problem.regularizer, regularizers.L2):
        return None
    import torch

    objective = _Objective(torch, problem)
    _run(torch, objective, 0.0, 0.2)
    began = time.perf_counter()
    theta = _run(torch, objective, least * (1.0 + goal), limit)
    took = time.perf_counter() - began
    W, b = objective.parted(theta)
    w = W.T.double().cpu().numpy()
    offset = b.double().cpu().numpy()
    primal = problem.primal(w if problem.columns > 1 else w[0], offset if problem.columns > 1 else float(offset[0]))
    return Ended(took, (primal - least) / least)


def _run(torch: Any, objective: _Objective, target: float, limit: float) -> Any:
    """Return the best variables when the value is at most the target, or at the end."""
    theta = torch.zeros(objective.size, dtype=torch.float32, device="cuda", requires_grad=True)
    solver = torch.optim.LBFGS(
        [theta], max_iter=STEPS, max_eval=2 * STEPS, history_size=HISTORY, line_search_fn="strong_wolfe",
        tolerance_grad=0.0, tolerance_change=0.0,
    )  # fmt: skip
    end, best = time.perf_counter() + limit, [math.inf, theta.detach().clone()]

    def closure() -> Any:
        with torch.no_grad():
            value, gradient = objective.at(theta)
            theta.grad = gradient
            if float(value) < best[0]:
                best[:] = float(value), theta.detach().clone()
            if best[0] <= target or time.perf_counter() > end:
                raise _Reached
        return value

    with contextlib.suppress(_Reached):
        solver.step(closure)
    torch.cuda.synchronize()
    return best[1]


class _Objective:
    """P(W, b) and its gradient: margins in float32, sums over rows in float64; Xᵀ of sparse rows is kept."""

    def __init__(self, torch: Any, problem: dn.Problem) -> None:
        X: Any = problem.data.matrix  # type: ignore[attr-defined]
        self.torch, self.lam, self.n, self.K = torch, problem.lam, problem.n, problem.columns
        self.with_one, self.d = problem.fit_intercept, problem.d
        self.X, self.Xt = (self._csr(X), self._csr(X.T.tocsr())) if hasattr(X, "indptr") else self._both(X)
        self.y, self.formula = torch.as_tensor(problem.y, device="cuda"), FORMULAS[type(problem.loss)]
        self.size = self.K * (self.d + self.with_one)

    def _both(self, X: Any) -> tuple[Any, Any]:
        tensor = self.torch.as_tensor(X, device="cuda")
        return tensor, tensor.T

    def _csr(self, X: Any) -> Any:
        parts = [self.torch.as_tensor(each, device="cuda") for each in (X.indptr, X.indices, X.data)]
        return self.torch.sparse_csr_tensor(*parts, size=X.shape, check_invariants=False)

    def parted(self, theta: Any) -> tuple[Any, Any]:
        """Return W, of shape (d, K), and b."""
        W = theta[: self.K * self.d].reshape(self.d, self.K)
        return W, theta[self.K * self.d :] if self.with_one else theta.new_zeros(self.K)

    def at(self, theta: Any) -> tuple[Any, Any]:
        """Return the value in float64 and the gradient in float32."""
        W, b = self.parted(theta)
        value, slopes = self.formula(self.torch, (self.X @ W + b).double(), self.y)
        value = value / self.n + 0.5 * self.lam * W.double().square().sum()
        of_W = (self.Xt @ slopes.float()) / self.n + self.lam * W
        parts = [of_W.reshape(-1), (slopes.sum(dim=0) / self.n).float()] if self.with_one else [of_W.reshape(-1)]
        return value, self.torch.cat(parts)


def _logistic(torch: Any, z: Any, y: Any) -> tuple[Any, Any]:
    own = y[:, None] * z
    return torch.nn.functional.softplus(-own).sum(), -y[:, None] * torch.sigmoid(-own)


def _squared(torch: Any, z: Any, y: Any) -> tuple[Any, Any]:  # noqa: ARG001
    r = z - y[:, None]
    return 0.5 * r.square().sum(), r


def _huber(torch: Any, z: Any, y: Any) -> tuple[Any, Any]:  # noqa: ARG001
    r = z - y[:, None]
    slope = r.clamp(-1.0, 1.0)
    return (slope * (r - 0.5 * slope)).sum(), slope


def _softmax(torch: Any, z: Any, y: Any) -> tuple[Any, Any]:
    classes = y.long()[:, None]
    logarithms = torch.log_softmax(z, dim=1)
    slopes = logarithms.exp()
    slopes.scatter_add_(1, classes, -torch.ones_like(slopes[:, :1]))
    return -logarithms.gather(1, classes).sum(), slopes


FORMULAS: dict[type, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    losses.Logistic: _logistic,
    losses.Squared: _squared,
    losses.Huber: _huber,
    losses.Softmax: _softmax,
}
"""The sum of a loss over the margins, of shape (n, K), and its derivatives."""
