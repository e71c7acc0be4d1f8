"""The interface of a sampling: pair probabilities and draws, and the quantities that every sampling derives from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.validation import frozen

SUPPORT_LIMIT = 20_000
"""Default maximum number of sets for enumerating a law: the exact theory factorises one submatrix per set."""


@dataclass(frozen=True)
class IndexBlock:
    """A ragged block of index sets: set k is ``indices[starts[k]:starts[k + 1]]``.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings
    >>> block = samplings.Shuffled(5, tau=2).draw(np.random.default_rng(0), rounds=3)
    >>> block.starts
    array([0, 2, 4, 5])
    """

    indices: np.ndarray
    starts: np.ndarray

    @classmethod
    def from_sizes(cls, indices: np.ndarray, sizes: np.ndarray) -> IndexBlock:
        """Cut ``indices`` into consecutive sets of the given sizes."""
        return cls(indices, np.concatenate([[0], np.cumsum(sizes)]))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, k: int) -> np.ndarray:
        k = range(len(self))[k]
        return self.indices[self.starts[k] : self.starts[k + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.indices[a:b] for a, b in itertools.pairwise(self.starts))

    def pieces(self, rounds: int) -> Iterator[IndexBlock]:
        """Cut the block into blocks of at most ``rounds`` sets."""
        if 0 < len(self) <= rounds:
            yield self
            return
        for first in range(0, len(self), rounds):
            starts = self.starts[first : first + rounds + 1]
            yield IndexBlock(self.indices[starts[0] : starts[-1]], starts - starts[0])

    @property
    def sizes(self) -> np.ndarray:
        """The size of each set."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class PairStructure:
    """P = D(diagonal) + Σ_k weights_k u_k u_kᵀ, with u_k the columns of the sparse matrix ``factors``.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Nice(4, tau=2).pair_structure().diagonal.round(4)
    array([0.3333, 0.3333, 0.3333, 0.3333])
    """

    diagonal: np.ndarray
    factors: sp.csc_array
    weights: np.ndarray

    def marginals(self) -> np.ndarray:
        """Return the diagonal of P."""
        return self.diagonal + self.factors.power(2) @ self.weights

    def dense(self) -> np.ndarray:
        """Return P as an n×n array."""
        u = self.factors.toarray()
        return np.diag(self.diagonal) + (u * self.weights) @ u.T


class Sampling:
    """A random subset of {0, …, n−1}.

    A user-defined sampling defines ``n``, ``pair_structure()`` and ``draw()``; it then works with every solver and in the
    matrix-free theory. If it also defines ``laws()``, the theory can enumerate it. See docs/extending.md.

    Examples
    --------
    >>> from dualnewton import samplings
    >>> samplings.Nice(3, tau=2).pair_probabilities().round(4)
    array([[0.6667, 0.3333, 0.3333],
           [0.3333, 0.6667, 0.3333],
           [0.3333, 0.3333, 0.6667]])
    """

    n: int
    iid: bool = True
    """Whether successive draws are independent, as Assumption 3 requires."""

    # Defined by subclasses -------------------------------------------------------------------------------------------

    def pair_structure(self) -> PairStructure:
        """Return P as a diagonal plus few rank-one terms, which needs no n×n array."""
        raise NotImplementedError(f"{type(self).__name__} has no pair_structure()")

    def draw(self, rng: np.random.Generator, rounds: int) -> IndexBlock:
        """Draw ``rounds`` sets."""
        raise NotImplementedError(f"{type(self).__name__} has no draw(rng, rounds)")

    @property
    def max_size(self) -> int:
        """The size of the largest set of positive probability."""
        return self.n

    @property
    def support_size(self) -> int:
        """The number of sets of positive probability."""
        raise DualnewtonError(f"{type(self).__name__} cannot be enumerated: it does not state its law")

    def laws(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield each set of the support with its probability."""
        raise DualnewtonError(f"{type(self).__name__} cannot be enumerated: it does not state its law")

    # Derived quantities ----------------------------------------------------------------------------------------------

    @cached_property
    def p(self) -> np.ndarray:
        """The marginals p_i = Prob(i ∈ Ŝ)."""
        return frozen(self.pair_structure().marginals())

    @property
    def expected_size(self) -> float:
        """τ = E|Ŝ| = Σ p_i."""
        return float(self.p.sum())

    @property
    def is_uniform(self) -> bool:
        """Whether all marginals are equal, as Sections 3 and 4 require."""
        return bool(np.ptp(self.p) <= 1e-12 * self.p.max())

    @property
    def rounds_per_epoch(self) -> int:
        """The number of draws after which n examples have been visited on average."""
        return max(1, math.ceil(self.n / self.expected_size - 1e-9))

    def pair_probabilities(self) -> np.ndarray:
        """Return P = [Prob(i, j ∈ Ŝ)] as an n×n array."""
        return self.pair_structure().dense()

    def support(self, limit: int = SUPPORT_LIMIT) -> list[tuple[np.ndarray, float]]:
        """Return every set with its probability; raise an error if there are more than ``limit`` sets."""
        if self.support_size > limit:
            raise DualnewtonError(
                f"this {type(self).__name__} over {self.n} examples has more than limit={limit} sets: "
                "too many to enumerate; draw from it instead"
            )
        return list(self.laws())
