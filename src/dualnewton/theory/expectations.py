"""E[M_Ŝ] and E[(M_Ŝ)⁻¹], the two expectations that Section 2 of the paper is built on.

The first follows from the pair probabilities alone: E[M_Ŝ] = P ∘ M. The second needs the law of Ŝ: it is summed exactly where
the law has few sets; otherwise it is averaged over random draws and returned with its standard error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.samplings.base import SUPPORT_LIMIT, Sampling
from dualnewton.validation import integer

DRAWS = 10_000
"""Default number of draws of a Monte Carlo average, chosen for a relative standard error of about one percent."""

_CHUNK = 1 << 20
"""Matrix entries inverted in one batch: 8 MiB of float64, which bounds the memory of the batched Cholesky factorisations."""


class Expectation(np.ndarray):
    """The matrix E[(M_Ŝ)⁻¹] as an array with its standard error as an attribute.

    The result of any operation on it is an ordinary array without these attributes, since the error would no longer be right.

    Attributes
    ----------
    standard_error : array of shape (n, n)
        The standard error of each entry; zeros where the law was enumerated.
    exact : bool
        True if the law was enumerated.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> float(theory.expected_inverse(M, samplings.Nice(2, tau=1)).standard_error.max())  # computed exactly here
    0.0
    """

    standard_error: np.ndarray
    exact: bool

    @classmethod
    def of(cls, mean: np.ndarray, standard_error: np.ndarray, exact: bool) -> Expectation:
        """Attach the error to the mean."""
        self = mean.view(cls)
        self.standard_error = standard_error
        self.exact = exact
        return self

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = np.asarray(array)
        return plain[()] if return_scalar else plain

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(self)[key]


@dataclass(frozen=True)
class Law:
    """Finitely many sets with weights that sum to one: the exact law of a sampling, or the empirical law of i.i.d. draws."""

    sets: Sequence[np.ndarray]
    weights: np.ndarray
    exact: bool

    def error_of_mean(self, values: np.ndarray) -> float:
        """Return the standard error of the mean of one number per set."""
        return float(self.error(self.weights @ values, self.weights @ values**2))

    def error(self, mean: Any, mean_square: Any) -> Any:
        """Return the standard error of a mean, or of an array of means; zero for the exact law."""
        if self.exact:
            return 0.0 * mean
        # The sample variance K/(K−1)·(mean square − mean²), divided by K; the maximum removes negative rounding errors.
        return np.sqrt(np.maximum(mean_square - mean**2, 0.0) / (len(self.sets) - 1))


def law_of(sampling: Sampling, draws: int, rng: Any, limit: int) -> Law:
    """Enumerate the sampling if it has at most ``limit`` sets, else draw from it."""
    if enumerable(sampling, limit):
        sets, weights = zip(*sampling.support(limit), strict=True)
        return Law(sets, np.array(weights), exact=True)
    integer("draws", draws, 2)
    return Law(
        _independent_draws(sampling, draws, np.random.default_rng(rng)), np.full(draws, 1.0 / draws), exact=False
    )


def enumerable(sampling: Sampling, limit: int) -> bool:
    """Return True if the sampling can list its law and the law has at most ``limit`` sets."""
    try:
        return bool(sampling.support_size <= limit)
    except DualnewtonError:  # a sampling that can only be drawn from
        return False


def expected_submatrix(M: Any, sampling: Sampling) -> np.ndarray:
    """E[M_Ŝ] = P ∘ M, where P_ij = Prob(i, j ∈ Ŝ); positive definite if M is (Lemma 1).

    Parameters
    ----------
    M : array of shape (n, n)
        A symmetric matrix.
    sampling : Sampling
        Ŝ.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> theory.expected_submatrix(M, samplings.Nice(2, tau=1))
    array([[1., 0.],
           [0., 1.]])
    """
    M = symmetric("M", M, sampling)
    return sampling.pair_probabilities() * M


def expected_inverse(
    M: Any, sampling: Sampling, *, draws: int = DRAWS, rng: Any = None, limit: int = SUPPORT_LIMIT
) -> Expectation:
    """E[(M_Ŝ)⁻¹], each inverse taken on its block and padded with zeros (eq. inverses of the paper).

    The expectation is summed exactly if the law has at most ``limit`` sets; otherwise it is the average over ``draws``
    independent draws. The result has the attributes ``exact`` and ``standard_error``.

    Parameters
    ----------
    M : array of shape (n, n)
        A symmetric matrix whose blocks M_S are positive definite.
    sampling : Sampling
        Ŝ; if the draws of an epoch depend on each other, the law is that of one draw at a uniformly random position.
    draws : int
        The number of draws to average over where the law is not enumerated.
    rng : numpy.random.Generator or seed, optional
        The random numbers of those draws.
    limit : int
        The largest number of sets to enumerate.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> np.asarray(theory.expected_inverse(M, samplings.Nice(2, tau=1))).round(4)
    array([[0.25, 0.  ],
           [0.  , 0.25]])
    """
    M = symmetric("M", M, sampling)
    return inverse_mean(M, law_of(sampling, draws, rng, limit))


def inverse_mean(M: np.ndarray, law: Law) -> Expectation:
    """Σ_k weight_k (M_{S_k})⁻¹ with its standard error."""
    mean, mean_square = np.zeros_like(M), np.zeros_like(M)
    for chosen, members, root in _inverse_roots(M, law.sets):
        inverse = np.swapaxes(root, 1, 2) @ root
        where = (members[:, :, None], members[:, None, :])
        weights = law.weights[chosen, None, None]
        np.add.at(mean, where, weights * inverse)
        if not law.exact:
            np.add.at(mean_square, where, weights * inverse**2)
    return Expectation.of(mean, law.error(mean, mean_square), law.exact)


def inverse_forms(M: np.ndarray, law: Law, x: np.ndarray) -> np.ndarray:
    """xᵀ(M_{S_k})⁻¹x for each set of the law."""
    forms = np.empty(len(law.sets))
    for chosen, members, root in _inverse_roots(M, law.sets):
        forms[chosen] = ((root @ x[members][:, :, None]) ** 2).sum(axis=(1, 2))
    return forms


def symmetric(name: str, value: Any, sampling: Sampling) -> np.ndarray:
    """Return ``value`` as a symmetric float64 matrix of order ``sampling.n``."""
    n = sampling.n
    try:
        if np.iscomplexobj(value):
            raise TypeError
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise DualnewtonError(f"{name} must be an array of real numbers, got {type(value).__name__}") from None
    if matrix.shape != (n, n):
        raise DualnewtonError(f"{name} must have shape ({n}, {n}), the size of the sampling, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise DualnewtonError(f"{name} must be finite, got {matrix[~np.isfinite(matrix)][0]!r}")
    skew = np.abs(matrix - matrix.T).max()
    if skew > 1e-10 * np.abs(matrix).max():
        raise DualnewtonError(f"{name} must be symmetric, got entries (i, j) and (j, i) that differ by {skew:.3g}")
    return 0.5 * (matrix + matrix.T)


def _independent_draws(sampling: Sampling, draws: int, rng: np.random.Generator) -> list[np.ndarray]:
    if sampling.iid:
        return list(sampling.draw(rng, draws))
    # The draws of one epoch depend on each other, so each new epoch contributes one set, at a random position.
    epoch = sampling.rounds_per_epoch
    return [sampling.draw(rng, epoch)[int(place)].copy() for place in rng.integers(epoch, size=draws)]


def _inverse_roots(M: np.ndarray, sets: Sequence[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield batches of sets of one size: their numbers, their members, and R_S = L⁻¹ with M_S = LLᵀ, so (M_S)⁻¹ = R_SᵀR_S."""
    sizes = np.array([s.size for s in sets])
    for size in np.unique(sizes):
        here = np.flatnonzero(sizes == size)
        for chosen in np.array_split(here, math.ceil(here.size * size**2 / _CHUNK)):
            members = np.stack([sets[k] for k in chosen])
            yield chosen, members, _inverse_root(M[members[:, :, None], members[:, None, :]])


def _inverse_root(blocks: np.ndarray) -> np.ndarray:
    size = blocks.shape[-1]
    singular = f"M must be positive definite, got a block M_S of size {size} that is not, to rounding"
    try:
        root = np.linalg.cholesky(blocks)
    except np.linalg.LinAlgError:
        raise DualnewtonError(singular) from None
    # L_jj²/M_jj is the fraction of column j not explained by the columns before it; values up to size · eps are rounding.
    left = np.diagonal(root, axis1=1, axis2=2) ** 2 / np.diagonal(blocks, axis1=1, axis2=2)
    if (left <= size * np.finfo(float).eps).any():
        raise DualnewtonError(singular)
    return np.linalg.inv(root)
