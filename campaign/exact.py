"""The claim of a certificate, checked by code of its own: P and D in other numbers, from the formulas of the documentation.

Nothing here calls a loss or a penalty of the library; only their parameters are read. ``claim`` returns P(w, b) − D(α) in 80-bit
numbers or in 50 digits, with α moved into the dual feasible set by no more than rounding explains, and how far float64 may have
been from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from campaign.parts import Defect

U = 2.0**-53
"""Unit roundoff of float64."""

INF = np.inf
BALANCED = 1e-12
"""Tolerance of Σ c_i α_i = 0, as a fraction of Σ c_i |α_i|: the one that the library states."""

EXPONENT = 690.0
"""Margins beyond this are left out for losses with e^z, which the library replaces by a tangent there (documented)."""

NEGLIGIBLE = 1000
"""e to the minus this is nothing in 50 digits; 1 + e^(−10⁴⁰) would take all memory in mpmath."""

LOG_RANGE = 800.0
"""|log x| is below this for every positive float64 x."""


class OutOfRange(Exception):  # noqa: N818 (it reports no error)
    """A margin lies where the documentation promises nothing."""


def extended(values: Any) -> Any:
    """Return numbers as an array of 80-bit numbers."""
    return np.asarray(values, dtype=np.longdouble)


@cache
def _fifty() -> Any:
    """Return the context of mpmath, whose numbers have the methods that NumPy's functions call on arrays of objects."""
    import mpmath

    context = mpmath.mp.clone()
    context.dps = 50
    for name in ("exp", "log", "log1p", "sqrt"):
        function = getattr(context, name)
        setattr(context.mpf, name, lambda x, function=function: function(x))
    return context


def digits(values: Any) -> Any:
    """Return numbers as an array of objects: numbers of 50 digits."""
    return np.asarray(np.frompyfunc(_fifty().mpf, 1, 1)(np.asarray(values, dtype=np.float64)), dtype=object)


class LossFormula(NamedTuple):
    """φ(z; y), φ*(u; y) inside its domain, and the ends of the domain; ``p`` has the parameters of the loss."""

    value: Callable[[Any, Any, Any], Any]
    conjugate: Callable[[Any, Any, Any], Any]
    domain: Callable[[Any, Any], tuple[Any, Any]] = lambda y, p: (-INF + 0 * y, INF + 0 * y)
    log_link: bool = False


def _xlogx(x: Any) -> Any:
    return x * np.log(np.where(x > 0, x, 1 + 0 * x))


def _log_of_one_and_exp(t: Any) -> Any:
    return np.maximum(t, 0) + np.log1p(np.exp(-np.minimum(np.abs(t), 0 * t + NEGLIGIBLE)))


def _between(low: Any, high: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    return lambda y, p: (low(p) + 0 * y, high(p) + 0 * y)


def _rounded(t: Any, width: Any) -> Any:
    """0 for t ≤ 0, t − width/2 for t ≥ width, t²/(2 width) between."""
    return np.where(t <= 0, 0 * t, np.where(t >= width, t - width / 2, t * t / (2 * width)))


def _of_class(y: Any, p: Any) -> tuple[Any, Any]:  # noqa: ARG001
    """0 ≤ −yu ≤ 1."""
    return np.minimum(-y, 0), np.maximum(-y, 0)


def _half_line(y: Any, p: Any) -> tuple[Any, Any]:  # noqa: ARG001
    """−yu ≥ 0."""
    return np.where(y > 0, -INF, 0), np.where(y > 0, 0, INF)


def _pinball(z: Any, y: Any, p: Any) -> Any:
    q, r = p.q, y - z
    return np.maximum(q * r, (q - 1) * r)


def _smooth_pinball(z: Any, y: Any, p: Any) -> Any:
    q, h, r = p.q, p.width, z - y
    inside = np.clip(r, -q * h, (1 - q) * h)
    return inside * (r - inside / 2) / h


def _tweedie(z: Any, y: Any, p: Any) -> Any:
    a, b = 2 - p.power, p.power - 1
    return np.exp(a * z) / a + y * np.exp(-b * z) / b


def _tweedie_conjugate(u: Any, y: Any, p: Any) -> Any:
    """sup_z uz − φ(z), by bisection of φ′(z) = u."""
    a, b = 2 - p.power, p.power - 1
    low, high = 0 * u - 5000, 0 * u + 5000
    for _ in range(100):
        z = (low + high) / 2
        over = np.exp(a * z) - y * np.exp(-b * z) > u
        low, high = np.where(over, low, z), np.where(over, z, high)
    z = (low + high) / 2
    return u * z - _tweedie(z, y, p)


LOSSES = {
    "Squared": LossFormula(lambda z, y, p: (z - y) ** 2 / 2, lambda u, y, p: u * u / 2 + u * y),
    "Logistic": LossFormula(
        lambda z, y, p: _log_of_one_and_exp(-y * z), lambda u, y, p: _xlogx(-y * u) + _xlogx(1 + y * u), _of_class
    ),
    "SquaredHinge": LossFormula(
        lambda z, y, p: np.maximum(1 - y * z, 0) ** 2 / 2, lambda u, y, p: u * u / 2 + u * y, _half_line
    ),
    "SmoothHinge": LossFormula(
        lambda z, y, p: _rounded(1 - y * z, p.width), lambda u, y, p: p.width * u * u / 2 + u * y, _of_class
    ),
    "Hinge": LossFormula(lambda z, y, p: np.maximum(1 - y * z, 0), lambda u, y, p: u * y, _of_class),
    "Huber": LossFormula(
        lambda z, y, p: _rounded(np.abs(z - y), p.delta) * p.delta,
        lambda u, y, p: u * u / 2 + u * y,
        _between(lambda p: -p.delta, lambda p: p.delta),
    ),
    "SquaredEpsilonInsensitive": LossFormula(
        lambda z, y, p: np.maximum(np.abs(z - y) - p.epsilon, 0) ** 2 / 2,
        lambda u, y, p: u * u / 2 + u * y + p.epsilon * np.abs(u),
    ),
    "SmoothEpsilonInsensitive": LossFormula(
        lambda z, y, p: _rounded(np.abs(z - y) - p.epsilon, p.width),
        lambda u, y, p: p.width * u * u / 2 + u * y + p.epsilon * np.abs(u),
        _between(lambda p: -1, lambda p: 1),
    ),
    "EpsilonInsensitive": LossFormula(
        lambda z, y, p: np.maximum(np.abs(z - y) - p.epsilon, 0),
        lambda u, y, p: u * y + p.epsilon * np.abs(u),
        _between(lambda p: -1, lambda p: 1),
    ),
    "Quantile": LossFormula(_pinball, lambda u, y, p: u * y, _between(lambda p: -p.q, lambda p: 1 - p.q)),
    "SmoothQuantile": LossFormula(
        _smooth_pinball,
        lambda u, y, p: p.width * u * u / 2 + u * y,
        _between(lambda p: -p.q, lambda p: 1 - p.q),
    ),
    "Poisson": LossFormula(
        lambda z, y, p: np.exp(z) - y * z,
        lambda u, y, p: _xlogx(u + y) - (u + y),
        lambda y, p: (-y, INF + 0 * y),
        log_link=True,
    ),
    "Gamma": LossFormula(
        lambda z, y, p: z + y * np.exp(-z),
        lambda u, y, p: _xlogx(1 - u) - (1 - u) * (1 + np.log(y)),
        lambda y, p: (-INF + 0 * y, 1 + 0 * y),
        log_link=True,
    ),
    "Tweedie": LossFormula(
        _tweedie, _tweedie_conjugate, lambda y, p: (np.where(y > 0, -INF, 0), INF + 0 * y), log_link=True
    ),
}
"""Losses of one margin, by the names of their classes. Softmax and SquaredOutputs have functions of their own below."""


def _norms(W: Any) -> Any:
    return np.sqrt((W * W).sum(axis=0))


@dataclass(frozen=True)
class Penalty:
    """g(W), g*(S) and ∇g*(S) of a regulariser of the library, for W of shape (K, d) in the given numbers."""

    g: Any
    numbers: Callable[[Any], Any] = extended

    @property
    def name(self) -> str:
        """The name of its class."""
        return type(self.g).__name__

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The ends of each coordinate."""
        if self.name == "Box":
            return self.numbers(self.g.lower), self.numbers(self.g.upper)
        return (0 if self.name == "NonNegative" or getattr(self.g, "positive", False) else -INF), INF

    def _weighted(self) -> Any:
        return self.numbers(1.0 if getattr(self.g, "weights", None) is None else self.g.weights)

    def _groups(self, W: Any) -> tuple[Any, Any]:
        """Return the thresholds of the groups, and their norms."""
        sizes = np.bincount(self.g.groups)
        norms = np.array([np.sqrt((W[:, self.g.groups == k] ** 2).sum()) for k in range(len(sizes))])
        return self.numbers(self.g.strength) * np.sqrt(self.numbers(sizes)), norms

    def value(self, W: Any) -> Any:
        """g(W)."""
        low, high = self.bounds
        if (np.maximum(low, np.minimum(W, high)) != W).any():
            return INF
        if self.name == "L1":
            return np.abs(W).sum()
        if self.name == "JointL1":
            return _norms(W).sum()
        square = (self._weighted() * W * W).sum() / 2
        if self.name == "ElasticNet":
            return square + self.numbers(self.g.l1) * np.abs(W).sum()
        if self.name == "JointElasticNet":
            return square + self.numbers(self.g.l1) * _norms(W).sum()
        if self.name == "GroupElasticNet":
            thresholds, norms = self._groups(W)
            return square + (thresholds * norms).sum()
        return square

    def reach(self, S: Any) -> Any:
        """Return the largest r ≤ 1 with g*(rS) finite."""
        if self.name == "L1":
            return 1 / np.maximum((S if self.g.positive else np.abs(S)).max(), 1)
        return 1 / np.maximum(_norms(S).max(), 1) if self.name == "JointL1" else 1

    def best(self, S: Any) -> Any:
        """∇g*(S); zero for penalties without strong convexity."""
        if self.name in ("L1", "JointL1"):
            return 0 * S
        if self.name == "ElasticNet":
            shrunk = np.sign(S) * np.maximum(np.abs(S) - self.numbers(self.g.l1), 0)
        elif self.name == "JointElasticNet":
            norms = _norms(S)
            shrunk = S * np.maximum(norms - self.numbers(self.g.l1), 0) / np.where(norms > 0, norms, 1)
        elif self.name == "GroupElasticNet":
            thresholds, norms = self._groups(S)
            shrunk = S * (np.maximum(norms - thresholds, 0) / np.where(norms > 0, norms, 1))[self.g.groups]
        else:
            shrunk = S / self._weighted()
        return np.clip(shrunk, *self.bounds)

    def conjugate(self, S: Any) -> Any:
        """g*(S), for S within reach."""
        if self.name in ("L1", "JointL1"):
            return 0
        W = self.best(S)
        return (S * W).sum() - self.value(W)


@dataclass(frozen=True)
class Objective:
    """A problem as plain arrays: X dense, everything else as it was given; ``numbers`` makes the numbers of its arithmetic."""

    X: np.ndarray
    y: np.ndarray
    loss: Any
    regularizer: Any
    lam: float
    sample_weight: np.ndarray | None
    offset: np.ndarray | None
    fit_intercept: bool
    numbers: Callable[[Any], Any] = extended

    @property
    def columns(self) -> int:
        """K."""
        return self.loss.columns

    @property
    def _parameters(self) -> Any:
        own = vars(self.loss).items()
        return SimpleNamespace(**{name: self.numbers(value)[()] for name, value in own if isinstance(value, float)})

    def _columns_of(self, values: Any, rows: int) -> Any:
        return self.numbers(values).reshape(rows, self.columns)

    def losses(self, Z: Any) -> Any:
        """φ of each row."""
        name, y = type(self.loss).__name__, self.y
        if name == "Softmax":
            top = Z.max(axis=1, keepdims=True)
            return (
                np.log(np.exp(np.maximum(Z - top, 0 * Z - NEGLIGIBLE)).sum(axis=1))
                + top[:, 0]
                - Z[np.arange(len(y)), y.astype(int)]
            )
        if name == "SquaredOutputs":
            return ((Z - y) ** 2).sum(axis=1) / 2
        if LOSSES[name].log_link and np.abs(Z).max() > EXPONENT:
            raise OutOfRange
        return LOSSES[name].value(Z[:, 0], self.numbers(y), self._parameters)

    def conjugates(self, A: Any) -> Any:
        """φ*(−α) of each row, with −α moved to the nearest point of the domain, and how far it was moved."""
        name, y = type(self.loss).__name__, self.y
        if name == "SquaredOutputs":
            return (A * A / 2 - A * y).sum(axis=1), 0 * A[:, 0]
        if name == "Softmax":
            given = -A
            given[np.arange(len(y)), y.astype(int)] += 1
            p = np.maximum(given, 0)
            p = p / p.sum(axis=1, keepdims=True)
            return _xlogx(p).sum(axis=1), np.abs(p - given).max(axis=1)
        formula, y, p = LOSSES[name], self.numbers(y), self._parameters
        low, high = formula.domain(y, p)
        u = np.clip(-A[:, 0], low, high)
        return formula.conjugate(u, y, p), np.abs(u + A[:, 0])

    def claim(self, w: Any, intercept: Any, alpha: Any) -> tuple[float, float]:
        """Return P(w, b) − D(α), and a bound of the error of its evaluation in float64."""
        n, K = len(self.X), self.columns
        X, W, A = self.numbers(self.X), self.numbers(w).reshape(K, -1), self._columns_of(alpha, n)
        b = np.broadcast_to(self.numbers(intercept), (K,))
        c = self.numbers(np.ones(n) if self.sample_weight is None else self.sample_weight)
        o = self._columns_of(np.zeros((n, K)) if self.offset is None else self.offset, n)
        penalty, lam = Penalty(self.regularizer, self.numbers), self.numbers(self.lam)[()]
        scale = lam * n
        given, A = A, self._balanced(A, c) if self.fit_intercept else A
        primal, primal_error = self._primal(X, W, b, c, o, penalty)
        # The dual point, as far as rounding allows: each −α_i into the domain of φ*, ᾱ into that of g*.
        bar, spread = (c[:, None] * A).T @ X / scale, (c[:, None] * np.abs(A)).T @ np.abs(X) / scale
        shift = (n + 6) * U * spread + (c[:, None] * np.abs(A - given)).T @ np.abs(X) / scale  # by sums, by balancing
        r = penalty.reach(bar)
        if 1 / r - 1 > 4 * shift.max() + BALANCED:
            raise Defect(f"the dual point is outside the domain of g* by {float(1 / r - 1):.3g}")
        values, moved = self.conjugates(r * A)
        moved = np.where(c > 0, moved, 0)  # D does not depend on the dual variables of rows without a weight
        if (moved > 16 * U * (1 + np.abs(A).max(axis=1)) * (n if K > 1 else 1)).any():
            raise Defect(f"the dual point is outside the domain of φ* by {float(moved.max()):.3g}")
        linear = (c[:, None] * A * o).sum()
        dual = -((c * values).sum() + r * linear) / n - lam * penalty.conjugate(r * bar)
        dual_error = (
            self._dual_error(A, c, o, values, moved)
            + self.lam * (np.abs(penalty.best(bar)) * shift + shift * shift).sum()
        )
        dual_error += 16 * (n + 10) * U * np.abs(self.lam * penalty.conjugate(r * bar))
        if r < 1:  # the value at the dual point as given, which the library may have taken for feasible
            unscaled = -((c * self.conjugates(A)[0]).sum() + linear) / n
            dual_error += np.abs(unscaled - dual)
        if self.fit_intercept:
            mass, size = np.abs((c[:, None] * given).sum(axis=0)), (c[:, None] * np.abs(given)).sum(axis=0)
            if (mass > 2 * BALANCED * size).any():
                raise Defect(f"Σ c_i α_i is {float(mass.max()):.3g} for Σ c_i |α_i| = {float(size.max()):.3g}")
            dual_error += (mass * (np.abs(b) + np.abs(o).max(initial=0) + 1)).sum() / n
        return float(primal - dual), float(primal_error + dual_error)

    def _balanced(self, A: Any, c: Any) -> Any:
        """Return a point near α with Σ c_i α_i = 0: what the sums of float64 leave of them is no claim of the library.

        Of one column the entries of the sign with the larger sum are scaled down; outputs lose their means; the classes of
        softmax are mixed with one distribution for all rows, which has the opposite sums.
        """
        name = type(self.loss).__name__
        if name == "SquaredOutputs":
            return A - c @ A / c.sum()
        if name != "Softmax":
            up, down = c @ np.maximum(A, 0), c @ np.maximum(-A, 0)
            least = np.minimum(up, down)
            return np.where(A > 0, least / np.where(up > 0, up, 1), least / np.where(down > 0, down, 1)) * A
        rows, y = np.arange(len(A)), self.y.astype(int)
        sums, weights = c @ A, np.array([(c * (y == k)).sum() for k in range(A.shape[1])])
        share = 2 * np.where(weights > 0, -sums / np.where(weights > 0, weights, 1), 0).max()
        if not 0 < share < 1:
            return A
        other = np.tile(-(weights + sums * (1 - share) / share) / weights.sum(), (len(A), 1))
        other[rows, y] += 1
        return (1 - share) * A + share * other

    def _primal(self, X: Any, W: Any, b: Any, c: Any, o: Any, penalty: Penalty) -> tuple[Any, Any]:
        n, d = X.shape
        Z = X @ W.T + b + o
        error = (d + 6) * U * (np.abs(X) @ np.abs(W).T + np.abs(b) + np.abs(o)) + 4 * U * (
            np.abs(Z) + np.abs(np.reshape(self.y, (n, -1)))
        )
        value = self.losses(Z)
        off = np.maximum(np.abs(self.losses(Z + error) - value), np.abs(self.losses(Z - error) - value))
        if self.columns > 1:  # both signs in every direction: the losses are 1-Lipschitz or quadratic in each margin
            off = off + error.sum(axis=1) * (1 + np.abs(Z - (self.y if np.ndim(self.y) == 2 else 0)).max(axis=1))
        size = np.abs(value) + np.abs(Z).max(axis=1) * (1 + (np.abs(self.y) if np.ndim(self.y) == 1 else 0))
        g = self.numbers(self.lam)[()] * penalty.value(W)
        total = (c * value).sum() / n + g
        return total, (c * (off + 16 * (n + 10) * U * size)).sum() / n + 16 * (d + 10) * U * np.abs(g)

    def _dual_error(self, A: Any, c: Any, o: Any, values: Any, moved: Any) -> Any:
        n = len(self.X)
        y, size = np.abs(np.reshape(self.y, (n, -1))), np.abs(A)
        formula = LOSSES.get(type(self.loss).__name__)
        logs = LOG_RANGE if formula is None or formula.log_link or formula is LOSSES["Logistic"] else 1
        extra = abs(getattr(self.loss, "epsilon", 0.0)) + 1
        each = np.abs(values) + (size * (size + y + extra + np.abs(o))).sum(axis=1)
        rows = 16 * (n + 10) * U * each + 4 * U * logs * (size + y + 1).sum(axis=1) * (logs > 1)
        return (c * (rows + moved * (1 + y.max(axis=1) + extra + logs * (logs > 1)))).sum() / n
