"""The functions of softmax on rows of margins, and the intercept that balances them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

FEASIBLE = 1e-12
"""Σ c_i α_ik counts as zero below this fraction of Σ c_i |α_ik|, and so does what p_i lacks of a distribution."""

_NUMBERS = 8192
"""Numbers that are worked on at a time: temporaries that outgrow 128 KiB are paged in anew at each use."""

BELOW_ONE = 1.0 - 2.0**-53
"""The largest number below one: so close to it, (1 − m) log(1 − m) is zero for all that float64 can tell."""


# One block of rows ---------------------------------------------------------------------------------------------------


def parts(Z: np.ndarray, least: int = 1) -> Iterator[slice]:
    """Cut rows into blocks that stay in the cache, unless more rows are asked for."""
    step = max(least, _NUMBERS // Z.shape[1])
    return (slice(start, start + step) for start in range(0, len(Z), step))


def softmax(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return p = softmax(z) of each row, where z is largest, that value, and the rest Σ exp(z_k − max z) over all others.

    No exponential overflows. log Σ exp(z_k) is max z + log(1 + rest), and 1 − max p is rest/(1 + rest) to its last digit.
    """
    rows, top = np.arange(len(Z)), Z.argmax(axis=1)
    high = Z[rows, top]
    p = Z - high[:, None]
    np.exp(p, out=p)
    p[rows, top] = 0.0
    rest = p @ np.ones(Z.shape[1])  # several times faster than a sum along short rows
    p[rows, top] = 1.0
    p /= (1.0 + rest)[:, None]
    return p, top, high, rest


def chances(Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return p of any number of rows, and 1 − p to its last digit."""
    p, missed = np.empty(Z.shape), np.empty(Z.shape)
    for part in parts(Z):
        p[part], top, _, rest = softmax(Z[part])
        np.subtract(1.0, p[part], out=missed[part])
        missed[part][np.arange(len(top)), top] = rest / (1.0 + rest)
    return p, missed


def losses(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return log Σ_k exp(z_k) − z_y, p, and 1 − p_y of each row; neither of the differences loses digits."""
    p, top, high, rest = softmax(Z)
    own = (np.arange(len(Z)), y)
    missed = np.where(top == y, rest / (1.0 + rest), 1.0 - p[own])
    return (high - Z[own]) + np.log1p(rest), p, missed


def losses_of(Z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses of any number of rows, and α = e_y − p."""
    values, alpha = np.empty(len(Z)), np.empty(Z.shape)
    for part in parts(Z):
        values[part], p, missed = losses(Z[part], y[part])
        p[np.arange(len(p)), y[part]] = -missed
        np.negative(p, out=alpha[part])
    return values, alpha


def entropy(alpha: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return H(e_y − α) of each row, and whether e_y − α is a distribution but for rounding."""
    own, ones = (np.arange(len(alpha)), y), np.ones(alpha.shape[1])
    missed = alpha[own]
    p = -alpha
    p[own] = 0.0
    inside = (np.abs(p @ ones - missed) <= FEASIBLE) & ((p < -FEASIBLE) @ ones == 0.0) & (missed <= 1.0 + FEASIBLE)
    np.maximum(p, 0.0, out=p)
    entropy = -((p * np.log(np.maximum(p, np.finfo(float).tiny))) @ ones)  # 0 log 0 = 0
    missed = np.clip(missed, 0.0, BELOW_ONE)
    entropy -= (1.0 - missed) * np.log1p(-missed)
    return entropy, inside


# The intercept -------------------------------------------------------------------------------------------------------

_MILD = 16.0
"""Margins up to this size are no trouble for Newton's method."""

_LONGEST = 100.0
"""A longer step is the mark of a flat place, where the quadratic model says nothing."""

_ROUNDS = 300
"""Several times what margins of any use ask for; beyond it :meth:`MultinomialProblem.balanced` does the rest."""


@dataclass(frozen=True)
class _Moments:
    """What an intercept is judged by: S = Σ c_i α_i (minus the slope), Σ c_i p_i p_iᵀ and Σ c_i ‖α_i‖₁."""

    mass: np.ndarray
    pairs: np.ndarray
    weight: float

    @property
    def imbalance(self) -> float:
        """‖S‖₁ as a fraction of what it could be."""
        return float(np.abs(self.mass).sum()) / (self.weight or 1.0)

    def newton_step(self) -> np.ndarray:
        """Solve H δ = S with the last coordinate fixed, since H = D(Σ c_i p_i) − Σ c_i p_i p_iᵀ has rows that sum to zero.

        H's diagonal is taken from that, not from a difference, which would lose its digits where all p_i are close to
        corners of the simplex. There H may be singular; the small ridge leaves a direction of descent.
        """
        H = -self.pairs
        np.fill_diagonal(H, 0.0)
        np.fill_diagonal(H, -H.sum(axis=1))
        H = H[:-1, :-1]
        H[np.diag_indices_from(H)] += 1e-12 * H.diagonal().max() + 1e-200
        step = np.append(np.linalg.solve(H, self.mass[:-1]), 0.0)
        return step * (_LONGEST / max(_LONGEST, np.abs(step).max()))


def _moments(Z: np.ndarray, y: np.ndarray, c: np.ndarray, b: np.ndarray, T: float) -> _Moments:
    K = Z.shape[1]
    mass, pairs, weight = np.zeros(K), np.zeros((K, K)), 0.0
    for part in parts(Z, least=K):  # fewer rows would be dwarfed by their K × K pairs
        _, p, missed = losses(Z[part] / T + b, y[part])
        pairs += (c[part, None] * p).T @ p
        p[np.arange(len(p)), y[part]] = -missed
        mass -= c[part] @ p
        weight += 2.0 * float(c[part] @ missed)
    return _Moments(mass, pairs, weight)


def balancing_intercept(Z: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return the b with Σ_k b_k = 0 that minimises Σ c_i (log Σ_k exp(z_ik + b_k) − b_{y_i}); every class must have weight.

    This is Newton's method with step halving. Wild margins are cooled down: the problem is solved roughly at the margins
    z/T for a T that makes them mild, then from there at T/2, T/4, …, 1.
    """
    N = np.bincount(y, weights=c, minlength=Z.shape[1])
    b = np.log(N / N.sum())  # exact where z = 0
    scale = max(float(Z.max()), -float(Z.min()))
    T = max(1.0, scale / _MILD)
    at_b = _moments(Z, y, c, b, T)
    for _ in range(_ROUNDS):
        settled = at_b.imbalance <= (1e-2 if T > 1.0 else 1e-14)
        if not settled:
            # 1. Halve the step while the way up at its end is more than half as steep as the way down at its start.
            step, resolution = at_b.newton_step(), 1e-15 * (1.0 + scale / T)
            at_end = _moments(Z, y, c, b + step, T)
            while -(at_end.mass @ step) > 0.5 * (at_b.mass @ step) and np.abs(step).max() > resolution:
                step *= 0.5
                at_end = _moments(Z, y, c, b + step, T)
            # 2. Where the imbalance does not halve any more although it is tiny, or the step is, rounding is all there is.
            tiny = at_b.imbalance <= 1e-9 or np.abs(step).max() <= resolution
            settled = tiny and at_end.imbalance > 0.5 * at_b.imbalance
            if at_end.imbalance < at_b.imbalance or not settled:
                b, at_b = b + step, at_end
        # 3. Cool down, or stop.
        if settled and T == 1.0:
            break
        if settled:
            T, before = max(1.0, T / 2.0), T
            b = b * (before / T)
            at_b = _moments(Z, y, c, b, T)
    return T * (b - b.mean())
