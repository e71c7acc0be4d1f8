"""The samplings: serial, tau-nice, independent, partitions, permutations, and any law given by its sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.samplings.base import IndexBlock, PairStructure, Sampling
from dualnewton.samplings.draws import Categorical, heads, subsets_one_by_one, subsets_together
from dualnewton.validation import frozen, integer, probabilities, vector


@dataclass(frozen=True, eq=False)
class Serial(Sampling):
    """One example at a time, example i with probability q_i (uniform by default).

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Serial(3, q=[0.5, 0.25, 0.25]).p
    array([0.5 , 0.25, 0.25])
    """

    n: int
    q: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", integer("n", self.n, 1))
        if self.q is not None:
            object.__setattr__(self, "q", _proper("q", probabilities("q", self.q, self.n)))

    def pair_structure(self) -> PairStructure:
        q = np.full(self.n, 1.0 / self.n) if self.q is None else self.q
        return PairStructure(q, sp.csc_array((self.n, 0)), np.empty(0))

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        indices = rng.integers(self.n, size=rounds) if self.q is None else self._law.draw(rng, rounds)
        return IndexBlock(indices, np.arange(rounds + 1))

    @cached_property
    def _law(self) -> Categorical:
        return Categorical(self.q)

    @property
    def max_size(self) -> int:
        return 1

    @property
    def support_size(self) -> int:
        return self.n

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        return ((np.array([i]), float(p)) for i, p in enumerate(self.p))


@dataclass(frozen=True)
class _OfSize(Sampling):
    """A sampling whose sets have at most τ of n examples."""

    n: int
    tau: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", integer("n", self.n, 1))
        object.__setattr__(self, "tau", integer("tau", self.tau, 1, self.n))

    @property
    def max_size(self) -> int:
        return self.tau


@dataclass(frozen=True)
class Nice(_OfSize):
    """τ-nice: every set of exactly τ examples is equally likely.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> law = samplings.Nice(4, tau=2)
    >>> law.p, law.expected_size
    (array([0.5, 0.5, 0.5, 0.5]), 2.0)
    """

    def pair_structure(self) -> PairStructure:
        return _exchangeable(self.n, self.tau / self.n, _both(self.n, self.tau))

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        pick = subsets_together if self.tau <= 64 else subsets_one_by_one
        return IndexBlock(pick(rng, self.n, self.tau, rounds).ravel(), np.arange(rounds + 1) * self.tau)

    @property
    def support_size(self) -> int:
        return math.comb(self.n, self.tau)

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        probability = 1.0 / self.support_size
        return ((np.array(s), probability) for s in itertools.combinations(range(self.n), self.tau))


@dataclass(frozen=True, eq=False, init=False)
class Independent(Sampling):
    """Each example is included independently with its own probability, conditional on the set not being empty.

    Parameters
    ----------
    p : sequence of floats in (0, 1]
        The inclusion probabilities, stored as ``coins``. Given Ŝ ≠ ∅ the marginals ``p`` are coins/c and the pair
        probabilities coins_i coins_j / c with c = Prob(at least one is included) = 1 − Π(1 − coins_i), which rounds to 1
        once the coins sum to more than 40.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Independent([0.5, 0.5]).p.round(4)  # conditional on a set that is not empty
    array([0.6667, 0.6667])
    """

    coins: np.ndarray

    def __init__(self, p: Any) -> None:
        size = np.size(p)
        if size == 0:
            raise DualnewtonError("p must have at least one probability, got none")
        coins = _proper("p", vector("p", p, size, low=0.0))
        if coins.max() > 1.0:
            raise DualnewtonError(f"p must be <= 1 everywhere, got {coins.max()!r} at index {int(np.argmax(coins))}")
        object.__setattr__(self, "coins", coins)

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of examples."""
        return int(self.coins.size)

    @cached_property
    def nonempty(self) -> float:
        """The probability that at least one coin shows heads."""
        with np.errstate(divide="ignore"):
            return float(-np.expm1(np.log1p(-self.coins).sum()))

    @cached_property
    def _classes(self) -> list[np.ndarray]:
        """The coins in classes (2⁻ᵏ⁻¹, 2⁻ᵏ]: within a class, probabilities differ by less than a factor of two."""
        k = np.floor(-np.log2(self.coins))
        return [np.flatnonzero(k == level) for level in np.unique(k)]

    def pair_structure(self) -> PairStructure:
        coins = self.coins
        return PairStructure(
            coins * (1.0 - coins) / self.nonempty, sp.csc_array(coins[:, None]), np.array([1.0 / self.nonempty])
        )

    @cached_property
    def _first(self) -> Categorical:
        """The law of the smallest member of a nonempty set: proportional to coins_i Π_{j<i} (1 − coins_j)."""
        with np.errstate(divide="ignore"):
            tails_before = np.exp(np.concatenate([[0.0], np.log1p(-self.coins).cumsum()[:-1]]))
        weights = self.coins / self.coins.max() * tails_before
        return Categorical(weights / weights.sum())

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        # Draw the smallest member from its law and the larger ones by their coins: exact, without rejecting empty sets.
        first = self._first.draw(rng, rounds)
        owner, member = heads(rng, self.coins, self._classes, rounds)
        larger = member > first[owner]
        owner = np.concatenate([np.arange(rounds), owner[larger]])
        member = np.concatenate([first, member[larger]])[np.argsort(owner, kind="stable")]
        return IndexBlock.from_sizes(member, np.bincount(owner, minlength=rounds))

    @property
    def support_size(self) -> int:
        sure = int(np.count_nonzero(self.coins == 1.0))
        return 2 ** (self.n - sure) - (sure == 0)

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        for outcome in itertools.product((False, True), repeat=self.n):
            mask = np.array(outcome)
            probability = float(np.prod(np.where(mask, self.coins, 1.0 - self.coins))) / self.nonempty
            if mask.any() and probability > 0.0:
                yield np.flatnonzero(mask), probability


class _Listed(Sampling):
    """A law given by a list of sets, ``_block``, and the probability of each, ``_weights``."""

    _block: IndexBlock
    _weights: np.ndarray

    def pair_structure(self) -> PairStructure:
        block = self._block
        ones = np.ones(block.indices.size)
        members = sp.csc_array((ones, block.indices, block.starts), shape=(self.n, len(block)))
        return PairStructure(np.zeros(self.n), members, self._weights)

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        return _ragged_gather(self._block.indices, self._block.starts, self._law.draw(rng, rounds))

    @cached_property
    def _law(self) -> Categorical:
        return Categorical(self._weights)

    @property
    def max_size(self) -> int:
        return int(self._block.sizes.max())

    @property
    def support_size(self) -> int:
        return len(self._block)

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        return zip(self._block, map(float, self._weights), strict=True)


@dataclass(frozen=True, eq=False)
class Partition(_Listed, _OfSize):
    """Fixed blocks of τ consecutive examples (the last may be smaller), block k with probability q_k (uniform if None).

    This is the sampling of block coordinate descent. For solving, prefer :class:`Shuffled`: a partition that stays fixed
    for all epochs can be many times slower.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Partition(4, tau=2).support()
    [(array([0, 1]), 0.5), (array([2, 3]), 0.5)]
    """

    q: Any = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.q is not None:
            object.__setattr__(self, "q", _proper("q", probabilities("q", self.q, len(self._block))))

    @cached_property
    def _block(self) -> IndexBlock:  # type: ignore[override]
        return IndexBlock(np.arange(self.n), np.append(np.arange(0, self.n, self.tau), self.n))

    @cached_property
    def _weights(self) -> np.ndarray:  # type: ignore[override]
        blocks = len(self._block)
        return np.full(blocks, 1.0 / blocks) if self.q is None else self.q


@dataclass(frozen=True)
class Shuffled(_OfSize):
    """A new random permutation for each epoch, cut into consecutive chunks of τ (the last may be smaller).

    This is the practical default: it usually needs fewer epochs than independent draws. ``draw`` starts a new permutation at
    each call, so draw whole epochs, ``rounds_per_epoch`` sets each. Marginals, pairs and laws are those of one draw at a
    uniformly random position of an epoch (τ-nice exactly if τ divides n). The draws of one epoch depend on each other, so
    that theorems about independent draws do not cover it.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings
    >>> block = samplings.Shuffled(4, tau=2).draw(np.random.default_rng(0), rounds=2)
    >>> sorted(block.indices.tolist())  # two sets, one epoch: each example once
    [0, 1, 2, 3]
    """

    iid = False

    @cached_property
    def _sizes(self) -> np.ndarray:
        full, rest = divmod(self.n, self.tau)
        return np.append(np.full(full, self.tau), [rest] * (rest > 0)).astype(int)

    def pair_structure(self) -> PairStructure:
        full, rest = divmod(self.n, self.tau)
        both = (full * _both(self.n, self.tau) + _both(self.n, rest)) / self._sizes.size
        return _exchangeable(self.n, 1.0 / self._sizes.size, both)

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        epochs, rest = divmod(rounds, self._sizes.size)
        sizes = np.concatenate([np.tile(self._sizes, epochs), self._sizes[:rest]])
        orders = [rng.permutation(self.n) for _ in range(epochs + (rest > 0))]
        return IndexBlock.from_sizes(np.concatenate([*orders, np.empty(0, int)])[: sizes.sum()], sizes)

    @property
    def support_size(self) -> int:
        return sum(math.comb(self.n, int(size)) for size in set(self._sizes))

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        for size, times in zip(*np.unique(self._sizes, return_counts=True), strict=True):
            probability = times / self._sizes.size / math.comb(self.n, int(size))
            for s in itertools.combinations(range(self.n), int(size)):
                yield np.array(s), float(probability)


@dataclass(frozen=True, eq=False)
class Explicit(_Listed):
    """Any law on subsets of {0, …, n−1}, given by the sets and their probabilities.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Explicit(3, [[0, 1], [2]], [0.25, 0.75]).p
    array([0.25, 0.25, 0.75])
    """

    n: int
    sets: Any
    probabilities: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", integer("n", self.n, 1))
        sets = tuple(_index_set(self.n, k, s) for k, s in enumerate(self.sets))
        weights = probabilities("probabilities", self.probabilities, len(sets))
        for k, (s, weight) in enumerate(zip(sets, weights, strict=True)):
            if s.size == 0 and weight > 0.0:
                raise DualnewtonError(f"sets must not be empty (the sampling would be vacuous), got [] at index {k}")
        possible = np.flatnonzero(weights > 0.0)
        object.__setattr__(self, "sets", tuple(sets[k] for k in possible))
        object.__setattr__(self, "probabilities", frozen(weights[possible]))
        _proper("sets", self.p, "every example must be in a set of positive probability")

    @cached_property
    def _block(self) -> IndexBlock:  # type: ignore[override]
        return IndexBlock.from_sizes(np.concatenate(self.sets), np.array([s.size for s in self.sets]))

    @property
    def _weights(self) -> np.ndarray:  # type: ignore[override]
        return self.probabilities


# Shared functions ----------------------------------------------------------------------------------------------------


def _both(n: int, size: int) -> float:
    """Prob(i, j ∈ Ŝ) for i ≠ j if Ŝ is uniformly distributed over the sets of the given size."""
    return size * (size - 1) / (n * (n - 1)) if n > 1 else 0.0


def _exchangeable(n: int, single: float, both: float) -> PairStructure:
    """Return P = (single − both) I + both 11ᵀ."""
    return PairStructure(np.full(n, single - both), sp.csc_array(np.ones((n, 1))), np.array([both]))


def _proper(name: str, p: np.ndarray, allowed: str = "every example must have a positive probability") -> np.ndarray:
    if (p <= 0.0).any():
        raise DualnewtonError(f"{name} is not proper: {allowed}, got 0 for example {int(np.argmin(p))}")
    return p


def _index_set(n: int, k: int, members: Sequence[int]) -> np.ndarray:
    found = np.asarray(members)
    if found.size == 0:
        return np.empty(0, dtype=np.int64)
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise DualnewtonError(f"sets[{k}] must be a flat sequence of integers, got {members!r}")
    if found.min() < 0 or found.max() >= n:
        raise DualnewtonError(f"sets[{k}] must have indices in [0, {n - 1}], got {members!r}")
    if np.unique(found).size != found.size:
        raise DualnewtonError(f"sets[{k}] must not contain an example twice, got {members!r}")
    return np.sort(found).astype(np.int64)


def _ragged_gather(indices: np.ndarray, starts: np.ndarray, chosen: np.ndarray) -> IndexBlock:
    """Concatenate the chosen sets of a ragged block."""
    sizes = np.diff(starts)[chosen]
    block = IndexBlock.from_sizes(np.empty(0, np.int64), sizes)
    within = np.arange(block.starts[-1]) - np.repeat(block.starts[:-1], sizes)
    return IndexBlock(indices[np.repeat(starts[:-1][chosen], sizes) + within], block.starts)
