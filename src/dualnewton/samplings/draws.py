"""Exact random draws at the price of their output: the machinery behind the samplings, vectorised over all rounds."""

from __future__ import annotations

import math

import numpy as np


class Categorical:
    """Draws from {0, …, len(q)−1} with probabilities q: inverts the distribution function from a guide table on."""

    def __init__(self, q: np.ndarray) -> None:
        self.cdf = np.cumsum(q)
        self.total = float(self.cdf[-1])
        self.cdf[-1] = np.inf  # so that rounding cannot lead past the last
        self.guide = np.searchsorted(self.cdf, np.arange(q.size) / q.size * self.total, side="right")

    def draw(self, rng: np.random.Generator, rounds: int) -> np.ndarray:
        """Draw ``rounds`` indices."""
        u = rng.random(rounds)
        x = u * self.total
        found = self.guide[(u * self.cdf.size).astype(np.int64)]
        late = np.flatnonzero(self.cdf[found] <= x)
        for _ in range(4):  # one step settles most; an uneven law leaves a few to the search
            found[late] += 1
            late = late[self.cdf[found[late]] <= x[late]]
        found[late] = np.searchsorted(self.cdf, x[late], side="right")
        return found


def subsets_together(rng: np.random.Generator, n: int, tau: int, rounds: int) -> np.ndarray:
    """Draw uniform τ-subsets for all rounds at once by Floyd's algorithm: τ draws each, and a look back for repeats."""
    picked = np.empty((tau, rounds), dtype=np.int64)
    for k in range(tau):
        top = n - tau + k
        candidate = rng.integers(top + 1, size=rounds)
        repeated = (picked[:k] == candidate).any(axis=0)
        picked[k] = np.where(repeated, top, candidate)
    return np.ascontiguousarray(picked.T)


def subsets_one_by_one(rng: np.random.Generator, n: int, tau: int, rounds: int) -> np.ndarray:
    """Draw uniform τ-subsets round by round: for large τ the interpreter costs nothing and Floyd's look back would."""
    picked = np.empty((rounds, tau), dtype=np.int64)
    for row in picked:
        row[:] = rng.choice(n, size=tau, replace=False, shuffle=False)
    return picked


def heads(
    rng: np.random.Generator, coins: np.ndarray, classes: list[np.ndarray], rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    """Toss all coins ``rounds`` times; return (round, coin) of the heads by round, in time proportional to the heads.

    In each class of similar coins the tosses are run through with geometric leaps for the largest coin c of the class,
    and each landing is accepted with probability coin/c ≥ ½: exact, and almost no tails are looked at.
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
        # A geometric leap is an exponential one, rounded up; one past the end is cut there, lest it pass every integer.
        leaps = np.minimum(scale * rng.standard_exponential(size), length)
        landings = position + np.cumsum(leaps.astype(np.int64) + 1)
        found.append(landings)
        position = int(landings[-1])
    landings = np.concatenate(found)
    return landings[: np.searchsorted(landings, length)]
