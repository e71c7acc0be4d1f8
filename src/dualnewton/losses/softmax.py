"""Softmax: the loss of multinomial logistic regression, a function of K margins per example.

    φ(z; y) = log Σ_k exp(z_k) − z_y,      φ′ = p − e_y with p = softmax(z),      φ*(u) = −H(e_y + u),  e_y + u ∈ Δ,

where Δ is the simplex of distributions on K classes and H(p) = −Σ_k p_k log p_k. With α = −φ′ the distribution is p = e_y − α.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses.base import LabelForm, Loss
from dualnewton.losses.rounding import Roundoff, Sizes
from dualnewton.losses.simplex import (
    BELOW_ONE,
    FEASIBLE,
    SMALLEST,
    entropy,
    losses,
    pair_products,
    probabilities,
    softmax,
)
from dualnewton.row_arrays import WIDE_BLOCK, at_labels, blocks, is_elsewhere, on_host, ones
from dualnewton.validation import as_array, frozen, integer, vector

UNDERFLOW = 800.0
"""Distance below the largest margin at which a class has probability zero in float64: exp(−746) underflows to zero."""

SLIGHT, SMALL = 1e-2, 0.25
"""Imbalance ‖Σ c_i α_i‖₁ as a fraction of Σ c_i, and spread of t, up to which :func:`_shift` balances dual points."""

TINY = 1e-280
"""Absolute value below which dual variables are set to zero, so that quotients of their sums do not overflow."""


@dataclass(frozen=True)
class Softmax(Loss):
    """log Σ_k exp(z_k) − z_y over K classes; labels are class numbers 0, …, K − 1.

    The eigenvalues of the Hessian diag(p) − ppᵀ are at most ½, so that γ = 2. φ depends on differences of margins only; hence
    the dual variables of an example sum to zero.

    Parameters
    ----------
    n_classes : int
        K ≥ 2. A class may have no example.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Softmax(3).value(np.zeros((2, 3)), np.array([0, 2])).round(4)
    array([1.0986, 1.0986])
    """

    n_classes: int
    gamma = 2.0
    nonnegative = True
    self_concordance = 1.0  # along t: the third central moment is at most the variance times the range of t
    dual_curvature = 8.0 / 3.0  # the Hessian of Σ p_k log p_k is diag(1/p_k), where p_k ≥ (3/8)m
    wrong = math.log(2.0)  # the probability of the label is then at most ½
    label_domain: ClassVar[str] = "whole class numbers"
    label_form: ClassVar[LabelForm] = LabelForm.CLASS

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_classes", integer("n_classes", self.n_classes, 2))

    @property
    def columns(self) -> int:  # type: ignore[override]
        """K."""
        return self.n_classes

    # The functions of one example --------------------------------------------------------------------------------------

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return Softmax.value_and_derivative(self, z, y)[0]  # a subclass's version may call this method

    def derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return Softmax.value_and_derivative(self, z, y)[1]

    def value_and_derivative(self, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if z.size <= WIDE_BLOCK:
            return losses(z, y)
        values, slopes = np.empty(len(z), z.dtype, like=z), np.empty(z.shape[::-1], z.dtype, like=z).T
        for part in blocks(z, z.shape[1]):
            values[part], slopes[part] = losses(z[part], y[part])
        return values, slopes

    def second_derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        curvature = np.empty(z.shape[::-1], like=z).T
        for part in blocks(z, z.shape[1]):
            p, largest, rest = softmax(z[part])
            # 1 − p would cancel for p close to one.
            curvature[part] = np.where(largest, (rest / (1.0 + rest) ** 2)[:, None], p * (1.0 - p))
        return curvature

    def curvature_times(self, z: np.ndarray, y: np.ndarray, t: np.ndarray) -> np.ndarray:
        return self.curvature_at(z, y)(t)

    def curvature_at(self, z: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        p = softmax(z)[0]
        return lambda t: p * (t - np.einsum("ik,ik->i", p, t)[:, None])

    def couplings(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return pair_products(probabilities(z)[0])

    def conjugate(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        entropies, inside = entropy(-u, y)
        return np.where(inside, -entropies, np.inf)

    # Rounding errors ---------------------------------------------------------------------------------------------------

    def label_sizes(self, y: np.ndarray) -> np.ndarray:
        """Return zeros: a label selects a margin, and is not used in arithmetic."""
        return 0.0 * y

    def domain_distance(self, alpha: np.ndarray, y: np.ndarray, roundoff: Roundoff) -> float:
        """Return (K + 2)η, where Σ_k p_k = 1 and p ≥ 0 hold up to η: negative entries become zero, then p is normalised."""
        missed = np.abs(alpha @ ones(self.n_classes, alpha))
        negative = -_distributions(alpha.T.copy(), y)
        worst = max(float(missed.max()), float(negative.max()), 0.0)
        return (self.n_classes + 2.0) * (worst + (self.n_classes + 2.0) * roundoff.unit)

    def room(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return min_k p_k: a move by at most this, whose entries add up to zero, leaves p a distribution."""
        return np.maximum(_distributions(alpha.T.copy(), y).min(axis=0), 0.0)

    def closed(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return the nearest point whose rows sum to zero, with p ≥ 0."""
        columns = np.ascontiguousarray(alpha.T)
        columns = np.where(np.arange(self.n_classes)[:, None] == y, columns, np.minimum(columns, 0.0))
        _close(columns, y)
        return columns.T

    def rebalanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Mix α with β_i = e_y − q, where one distribution q for all examples has the opposite sums: (1 − τ)α + τβ.

        With the sums s of cα and the weights N_k of the classes, Σ c_i β_i = −t for q = (N + t)/ΣN, and t = (1 − τ)s/τ. τ is the
        smallest for which q ≥ 0.
        """
        s, N = (c[:, None] * alpha).sum(axis=0), class_weights(y, c, self.n_classes)
        share = 2.0 * np.max(np.where(N > 0.0, -s / np.where(N > 0.0, N, 1.0), 0.0), initial=0.0)
        if not 0.0 < share < 1.0:
            return alpha
        q = (N + s * ((1.0 - share) / share)) / N.sum()
        beta = np.zeros_like(alpha) - q
        beta[np.arange(len(y)), y] += 1.0
        return (1.0 - share) * alpha + share * beta

    def balancing_cost(self, sizes: Sizes, y: np.ndarray, c: np.ndarray | None, *, error: float) -> tuple[float, float]:
        """Bound what :meth:`rebalanced` costs: φ* lies between −log K and 0, and |β_ik − α_ik| ≤ 2."""
        sums = np.abs(sizes.sums) + error * sizes.absolute
        N = class_weights(y, c, self.n_classes)
        if np.any(sums[N == 0.0] > 0.0):  # no dual point has the opposite sum
            return np.inf, np.inf
        # Rows that are moved into the simplex change the sums as well.
        sums = np.where(N > 0.0, sums + sizes.away * sizes.weight, 0.0)
        share = 2.0 * float(np.max(sums / np.where(N > 0.0, N, 1.0)))
        if not share < 1.0:
            return np.inf, np.inf
        moves = 2.0 * share * math.sqrt(self.n_classes * sizes.squared_weight)
        return share * sizes.weight * math.log(self.n_classes), moves

    # The same by columns, for compiled passes ----------------------------------------------------------------------------

    def losses_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        top, high, rest = softmax_by_columns(z, slopes)
        for i in range(y.size):
            values[i] = np.log1p(rest[i])
        for i in range(y.size):
            own = y[i]
            values[i] += high[i] - z[own, i]
            slopes[own, i] = -rest[i] / (1.0 + rest[i]) if top[i] == own else slopes[own, i] - 1.0

    def curvature_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, diagonal: np.ndarray) -> None:
        top, _, rest = softmax_by_columns(z, diagonal)
        for i in range(y.size):
            values[i] = rest[i] / (1.0 + rest[i]) ** 2
        for k in range(len(z)):
            for i in range(y.size):
                p = diagonal[k, i]
                diagonal[k, i] = values[i] if top[i] == k else p * (1.0 - p)

    def couplings_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, pairs: np.ndarray) -> None:
        p = np.empty(z.shape)
        softmax_by_columns(z, p)
        place = 0
        for k in range(len(z)):
            for other in range(k + 1, len(z)):
                for i in range(y.size):
                    pairs[place, i] = p[k, i] * p[other, i]
                place += 1

    def conjugates_by_columns(self, u: np.ndarray, y: np.ndarray, values: np.ndarray, scratch: np.ndarray) -> None:
        missed, total, least = np.empty(y.size), np.empty(y.size), np.empty(y.size)
        for k in range(len(u)):
            for i in range(y.size):
                scratch[k, i] = u[k, i]
        for i in range(y.size):
            total[i] = least[i] = values[i] = 0.0
            missed[i], scratch[y[i], i] = -u[y[i], i], 0.0
        for k in range(len(u)):
            for i in range(y.size):
                p = max(scratch[k, i], 0.0)
                values[i] += p * np.log(max(p, SMALLEST))  # 0 log 0 = 0
            for i in range(y.size):
                total[i] += scratch[k, i]
                least[i] = min(least[i], scratch[k, i])
        for i in range(y.size):
            own = min(max(missed[i], 0.0), BELOW_ONE)
            inside = (abs(total[i] - missed[i]) <= FEASIBLE) & (least[i] >= -FEASIBLE) & (missed[i] <= 1.0 + FEASIBLE)
            values[i] = values[i] + (1.0 - own) * np.log1p(-own) if inside else np.inf

    # Operations on all examples of a problem -----------------------------------------------------------------------------

    def labels(self, y: Any, n: int) -> np.ndarray:
        return class_numbers(y, n, self.n_classes)

    def nearest_dual(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return a point near α with every e_y − α_i in the simplex."""
        # 1. Set negative probabilities of the other classes to zero; scale them where their sum exceeds one.
        alpha, own = np.minimum(alpha, 0.0), (np.arange(len(y), like=y), y)
        alpha[own] = 0.0
        missed = -(alpha @ ones(self.n_classes, alpha))
        alpha /= np.maximum(missed, 1.0)[:, None]
        # 2. The row sums to zero: α_y equals the total probability of the other classes.
        alpha[own] = np.minimum(missed, 1.0)
        return alpha

    def balanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Make Σ c_i α_i = 0: first by the effect of a small change of the intercept, if that suffices, then by mixing all p_i
        with one q.

        1. With t such that Σ c_i Q_i t = Σ c_i α_i, Q = diag(p) − ppᵀ, the points α_i − Q_i t are balanced, up to rounding. Each
        p_ik is multiplied by 1 + t_k − p_iᵀt, which is positive for small t.
        2. With N_k = Σ c_i over the examples of class k, S = Σ c_i α_i and C = Σ c_i, p′_i = (1 − ε) p_i + ε q is balanced for
        q = (N + S (1 − ε)/ε)/C. ε is the smallest for which q ≥ 0. A class without examples must have probability zero
        in every row; its probability is first moved to the class of the row's label.
        """
        N, columns = class_weights(y, c, self.n_classes), alpha.astype(np.float64, copy=False).T.copy()
        for absent in np.flatnonzero(N == 0.0):
            columns[absent] = 0.0
        columns[np.abs(columns) < TINY] = 0.0
        _close(columns, y)
        _shift(columns, y, c, N)
        S, weight = on_host(columns @ c), on_host(np.abs(columns) @ c)
        S -= S.sum() * (weight / (weight.sum() or 1.0))  # removes the rounding error of Σ_k S_k = 0
        if not (S < 0.0).any():
            return columns.T
        ratio = float((N[S < 0.0] / -S[S < 0.0]).min())  # (1 − ε)/ε
        columns *= ratio / (1.0 + ratio)
        columns -= np.asarray(np.maximum(N + ratio * S, 0.0) / (N.sum() * (1.0 + ratio)), like=alpha)[:, None]  # εq
        _close(columns, y)
        return columns.T

    def best_intercept(
        self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = None
    ) -> np.ndarray:
        """Return the best intercepts, which are unique up to a common constant.

        The intercepts of the classes with examples sum to zero. The best intercept of a class without examples is −∞; it gets
        the largest value at which its probability underflows to zero in every row.
        """
        c = ones(len(y), margins) if weights is None else weights
        present = class_weights(y, c, self.n_classes) > 0.0
        if present.all():
            return balancing_intercept(margins, y, c, None if near is None or np.ndim(near) == 0 else near)
        # A row of weight zero may have the label of an absent class; any present class may replace it.
        numbers, b = np.maximum(np.cumsum(present) - 1, 0), np.zeros(self.n_classes)
        y, there = np.asarray(numbers, like=y)[y], _some_columns(margins, present)
        b[present] = balancing_intercept(there, y, c)
        highest = (there + np.asarray(b[present], like=there)).max(axis=1)
        b[~present] = on_host((highest[:, None] - _some_columns(margins, ~present)).min(axis=0)) - UNDERFLOW
        return b

    def conjugates_along(
        self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, at_one: float
    ) -> Callable[[float], float]:
        """Return s ↦ Σ c_i φ*(−sα_i), evaluated from n numbers instead of n × K.

        With m_i = 1 − p_{i,y_i} the conjugate of row i at −sα_i is s log(s) m_i + (1 − s m_i) log(1 − s m_i) plus a multiple
        of s; the sum of these multiples follows from the value at s = 1.
        """
        c = ones(len(y), alpha) if weights is None else weights
        missed = np.clip(alpha[np.arange(len(y), like=y), y], 0.0, BELOW_ONE)
        total = float(c @ missed)

        def own(s: float) -> float:
            return float(c @ ((1.0 - s * missed) * np.log1p(-s * missed)))

        multiple = at_one - own(1.0)
        return lambda s: own(s) + s * (float(np.log(s)) * total + multiple)


def class_numbers(y: Any, n: int, K: int | None) -> np.ndarray:
    """Return y as integers; raise an error unless all are in 0, …, K − 1, or nonnegative integers if K is None."""
    allowed = f"whole class numbers {'0, 1, 2, ...' if K is None else f'in 0, ..., {K - 1}'}"
    remedy = "np.unique(y, return_inverse=True) numbers any labels"
    if (dtype := as_array(y).dtype).kind not in "fiub":
        raise DualnewtonError(f"y must hold {allowed}, got labels of type {dtype}; {remedy}")
    numbers = vector("y", y, n)
    valid = (numbers >= 0.0) & (numbers == np.floor(numbers)) & (numbers < (2.0**31 if K is None else K))
    if not valid.all():
        at = int(np.argmin(valid))
        raise DualnewtonError(f"y must hold {allowed}, got {numbers[at]:g} at index {at}; {remedy}")
    return frozen(numbers.astype(np.intp))


def class_weights(y: np.ndarray, c: np.ndarray | None, K: int) -> np.ndarray:
    """Return Σ c_i over the examples of each class. (On a GPU, ``bincount`` adds in an order that changes from call to call.)"""
    if is_elsewhere(y):
        return np.array([float((y == k).sum() if c is None else c @ (y == k)) for k in range(K)])
    return np.bincount(y, weights=c, minlength=K)


def _some_columns(Z: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return Z[:, np.asarray(np.flatnonzero(wanted), like=Z)]


# Dual points by columns, of shape (K, n) and contiguous: NumPy is several times faster along long rows than along short ones.


def _close(columns: np.ndarray, y: np.ndarray) -> None:
    """Set α_{i,y_i} to minus the sum of the other entries of its example, so that these sum to zero without cancellation."""
    entries, own = at_labels(columns, y)
    entries[own] = 0.0
    entries[own] = -columns.sum(axis=0)


def _shift(columns: np.ndarray, y: np.ndarray, c: np.ndarray, N: np.ndarray) -> None:
    """Subtract Q_i t from each α_i, with t as in :meth:`Softmax.balanced`, unless t is large."""
    mass = on_host(columns @ c)
    if not N.all() or np.abs(mass).sum() > SLIGHT * N.sum():
        return
    K = len(N)
    parts, pairs = list(blocks(y, K, least=K)), np.zeros((K, K))
    for part in parts:
        p = _distributions(columns[:, part].copy(), y[part])
        pairs += on_host((c[part] * p) @ p.T)
    t = _Moments(mass, pairs, 1.0).newton_step()
    if not np.ptp(t) <= SMALL:
        return
    t = np.asarray(t, like=columns)
    for part in parts:
        p = _distributions(columns[:, part].copy(), y[part])
        columns[:, part] -= p * (t[:, None] - t @ p)
    _close(columns, y)


def _distributions(columns: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return p_i = e_y − α_i by columns, given α, which is overwritten."""
    p = np.negative(columns, out=columns)
    entries, own = at_labels(p, y)
    entries[own] += 1.0
    return p


def softmax_by_columns(z: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Write softmax(z) of margins of shape (K, m) to p; return the other results of :func:`softmax`, for compiled passes."""
    K, m = z.shape
    top, high, rest = np.empty(m), np.empty(m), np.empty(m)  # np.zeros would take longer to compile
    for i in range(m):
        top[i], high[i], rest[i] = 0.0, z[0, i], 0.0
    for k in range(1, K):
        for i in range(m):
            top[i] = k if z[k, i] > high[i] else top[i]
        for i in range(m):
            high[i] = max(high[i], z[k, i])
    for k in range(K):
        for i in range(m):
            p[k, i] = np.exp(z[k, i] - high[i])
        for i in range(m):
            rest[i] += 0.0 if top[i] == k else p[k, i]
    for k in range(K):
        for i in range(m):
            p[k, i] = (1.0 if top[i] == k else p[k, i]) / (1.0 + rest[i])
    return top, high, rest


# The intercept -------------------------------------------------------------------------------------------------------

_MILD = 16.0
"""Largest |z| at which Newton's method for the intercept starts without continuation: all probabilities exceed about 1e-14."""

_CLOSE = 1e-2
"""Imbalance, as a fraction of its upper bound, below which Newton's method continues from a point."""

_LONGEST = 100.0
"""Largest allowed entry of a Newton step, in units of margins: longer steps arise only where the Hessian is nearly singular."""

_ROUNDS = 300
"""Maximum number of Newton steps, several times what practical margins need. :meth:`Softmax.balanced` removes the imbalance
that remains."""


@dataclass(frozen=True)
class _Moments:
    """Sums over the examples at one intercept: S = Σ c_i α_i (the negative gradient), Σ c_i p_i p_iᵀ and Σ c_i ‖α_i‖₁."""

    mass: np.ndarray
    pairs: np.ndarray
    weight: float

    @property
    def imbalance(self) -> float:
        """‖S‖₁ as a fraction of its upper bound Σ c_i ‖α_i‖₁."""
        return float(np.abs(self.mass).sum()) / (self.weight or 1.0)

    def newton_step(self) -> np.ndarray:
        """Solve H δ = S with the last coordinate fixed, since H = D(Σ c_i p_i) − Σ c_i p_i p_iᵀ has rows that sum to zero.

        The diagonal of H is computed from its zero row sums, since the difference would cancel where all p_i are close to
        corners of the simplex. There H may be singular; the small ridge keeps the step a descent direction.
        """
        K = len(self.mass)
        H = -self.pairs
        diagonal = H.reshape(-1)[:: K + 1]  # a view
        diagonal[:] = 0.0
        diagonal[:] = -H.sum(axis=1)
        diagonal += 1e-12 * diagonal[:-1].max() + 1e-200
        H = H[:-1, :-1]
        step = np.append(np.linalg.solve(H, self.mass[:-1]), 0.0)
        return step * (_LONGEST / max(_LONGEST, np.abs(step).max()))


def _moments(Z: np.ndarray, y: np.ndarray, c: np.ndarray, b: np.ndarray, T: float) -> _Moments:
    K = Z.shape[1]
    mass, pairs, weight = np.zeros(K), np.zeros((K, K)), 0.0
    b = np.asarray(b, like=Z)
    for part in blocks(Z, K, least=K):  # with fewer than K rows, adding the K × K matrices would dominate
        p, largest, rest = softmax(Z[part] / T + b)
        own = (np.arange(len(p), like=p), y[part])
        missed = np.where(largest[own], rest / (1.0 + rest), 1.0 - p[own])
        pairs += on_host((c[part, None] * p).T @ p)
        p[own] = -missed
        mass -= on_host(c[part] @ p)
        weight += 2.0 * float(c[part] @ missed)
    return _Moments(mass, pairs, weight)


def balancing_intercept(Z: np.ndarray, y: np.ndarray, c: np.ndarray, near: np.ndarray | None = None) -> np.ndarray:
    """Return the b with Σ_k b_k = 0 that minimises Σ c_i (log Σ_k exp(z_ik + b_k) − b_{y_i}); every class must have weight.

    This is Newton's method with step halving. Large margins are treated by continuation: the problem is solved roughly for
    the margins z/T with a temperature T for which |z|/T ≤ 16, then warm-started at T/2, T/4, …, 1. If the imbalance at ``near``
    is small already, Newton's method starts there.
    """
    N = class_weights(y, c, Z.shape[1])
    b = np.log(N / N.sum())  # exact where z = 0
    scale = max(float(Z.max()), -float(Z.min()))
    T = max(1.0, scale / _MILD)
    at_b = None if near is None else _moments(Z, y, c, near, 1.0)
    if near is not None and at_b is not None and at_b.imbalance <= _CLOSE:
        b, T = near, 1.0
    else:
        at_b = _moments(Z, y, c, b, T)
    for _ in range(_ROUNDS):
        settled = at_b.imbalance <= (_CLOSE if T > 1.0 else 1e-14)
        if not settled:
            # 1. Halve the step while the slope at its end is positive and more than half as steep as the descent at its start.
            step, resolution = at_b.newton_step(), 1e-15 * (1.0 + scale / T)
            at_end = _moments(Z, y, c, b + step, T)
            while -(at_end.mass @ step) > 0.5 * (at_b.mass @ step) and np.abs(step).max() > resolution:
                step *= 0.5
                at_end = _moments(Z, y, c, b + step, T)
            # 2. Rounding level is reached if the imbalance or the step is tiny and the imbalance no longer halves.
            tiny = at_b.imbalance <= 1e-9 or np.abs(step).max() <= resolution
            settled = tiny and at_end.imbalance > 0.5 * at_b.imbalance
            if at_end.imbalance < at_b.imbalance or not settled:
                b, at_b = b + step, at_end
        # 3. Lower the temperature, or stop at T = 1.
        if settled and T == 1.0:
            break
        if settled:
            T, before = max(1.0, T / 2.0), T
            b = b * (before / T)
            at_b = _moments(Z, y, c, b, T)
    return T * (b - b.mean())
