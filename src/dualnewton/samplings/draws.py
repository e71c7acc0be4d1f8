"""Exact random draws in time proportional to their output, vectorised over all rounds: the algorithms of the samplings."""

from __future__ import annotations

import math

import numpy as np


class Categorical:
    """Draws from {0, …, len(q)−1} with probabilities q: inversion of the distribution function with a guide table."""

    def __init__(self, q: np.ndarray) -> None:
        self.cdf = np.cumsum(q)
        self.total = float(self.cdf[-1])
        self.cdf[-1] = np.inf  # so that rounding cannot select an index beyond the last
        self.guide = np.searchsorted(self.cdf, np.arange(q.size) / q.size * self.total, side="right")

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Draw ``rounds`` indices."""
        u = rng.random(rounds)
        x = u * self.total
        found = self.guide[(u * self.cdf.size).astype(np.int64)]
        late = np.flatnonzero(self.cdf[found] <= x)
        for _ in range(4):  # most draws need at most one step; for uneven q a few are left to the binary search
            found[late] += 1
            late = late[self.cdf[found[late]] <= x[late]]
        found[late] = np.searchsorted(self.cdf, x[late], side="right")
        return found


def subsets_together(rng: np.random.Generator, n: int, tau: int, rounds: int) -> np.ndarray:
    """Draw uniform τ-subsets for all rounds at once by Floyd's algorithm: τ draws each, and a comparison with earlier ones."""
    picked = np.empty((tau, rounds), dtype=np.int64)
    for k in range(tau):
        top = n - tau + k
        candidate = rng.integers(top + 1, size=rounds)
        repeated = (picked[:k] == candidate).any(axis=0)
        picked[k] = np.where(repeated, top, candidate)
    return np.ascontiguousarray(picked.T)


def subsets_one_by_one(rng: np.random.Generator, n: int, tau: int, rounds: int) -> np.ndarray:
    """Draw uniform τ-subsets round by round: for large τ this is faster than the O(τ²) comparisons of Floyd's algorithm."""
    picked = np.empty((rounds, tau), dtype=np.int64)
    for row in picked:
        row[:] = rng.choice(n, size=tau, replace=False, shuffle=False)
    return picked


def heads(
    rng: np.random.Generator, coins: np.ndarray, classes: list[np.ndarray], rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Toss all coins ``rounds`` times; return (round, coin) of the heads by round, in time proportional to their number.

    In each class of similar coins a Bernoulli process with the largest probability c of the class proposes heads, and a
    proposal is accepted with probability coin/c ≥ ½. This thinning is exact and does no work for most tails.
    """
    owners, members = [], []
    for here in classes:
        largest = float(coins[here].max())
        owner, place = np.divmod(_bernoulli_process(rng, largest, rounds * here.size), here.size)
        member = here[place]
        accepted = rng.random(member.size) * largest < coins[member]
        owners.append(owner[accepted])
        members.append(member[accepted])
    if len(classes) == 1:
        return owners[0], members[0]
    owner, member = np.concatenate(owners), np.concatenate(members)
    order = np.argsort(owner, kind="stable")  # merges a few sorted runs
    return owner[order], member[order]


def _bernoulli_process(rng: np.random.Generator, probability: float, length: int) -> np.ndarray:
    """Return the positions of heads among ``length`` tosses of one coin."""
    if probability == 1.0:
        return np.arange(length)
    scale = -1.0 / math.log1p(-probability)
    found: list[np.ndarray] = []
    position = -1
    while position < length:
        expected = (length - position) * probability
        size = int(expected + 4.0 * math.sqrt(expected)) + 16
        # A geometric gap is an exponential one rounded up; gaps are cut at ``length`` to avoid integer overflow.
        gaps = np.minimum(scale * rng.standard_exponential(size), length)
        positions = position + np.cumsum(gaps.astype(np.int64) + 1)
        found.append(positions)
        position = int(positions[-1])
    positions = np.concatenate(found)
    return positions[: np.searchsorted(positions, length)]
