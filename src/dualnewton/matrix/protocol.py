"""The operations on a data matrix that the library uses, for every storage: memory, pieces on disk, other machines, a GPU.

Solvers, planner and verifier never access X directly. They pass models and receive products and sums over rows. Vectors with one
entry per row (labels, weights, offsets, margins, dual variables) stay with their rows: a pass gives a ``Target`` the entries of
one block at a time, and a target does not receive the index of a row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.grams import coupled
from dualnewton.matrix.selections import Selection, Selections

Rows = Selection | slice
"""Rows in increasing order: a selection (for rows in memory an array of indices), or a slice."""


@dataclass(frozen=True)
class Profile:
    """Size and sparsity of a data matrix, from which the planner predicts costs."""

    n: int  # rows (examples)
    d: int  # columns (features)
    stored: int  # number of stored entries; n·d if dense
    pairs: float  # number of pairs of stored entries within a row, summed over the rows: the multiplications of AᵀA
    sparse: bool  # whether the rows are stored sparsely
    itemsize: int  # bytes per entry
    on_gpu: bool = False  # whether a GPU reads the rows, instead of the processor's cores
    on_disk: bool = False  # whether each pass reads the rows from files
    streamed: bool = False  # whether each pass copies the rows to the GPU

    def with_constant(self) -> Profile:
        """Return the profile with an appended constant column: with one more entry in each row."""
        pairs = self.pairs + self.stored + 0.5 * self.n
        return replace(self, d=self.d + 1, stored=self.stored + self.n, pairs=pairs)


@dataclass(frozen=True)
class Capabilities:
    """The operations that a kind of data supports efficiently; the planner excludes methods that need others."""

    # Whether reading a few random rows takes time proportional to their size, as dual methods (SDNA, SDCA) require.
    random_rows: bool = True
    whole: bool = True  # whether all rows fit in memory at once, so that a method may gather them
    # Whether row arrays are NumPy arrays, as required by methods that work on all dual variables at once.
    local: bool = True
    # Whether a sample of the rows is gathered in a time proportional to its size (:meth:`Data.subset`).
    subsets: bool = True
    gathered: float = math.inf  # largest number of entries of a sample of the rows that a method may gather
    # Whether each operation takes an exchange of messages, so that many small ones should be asked for together.
    by_messages: bool = False
    reason: str = ""  # reason why one of these is False, for the plan

    def require_local(self, what: str) -> None:
        """Raise an error if row arrays are not NumPy arrays, which ``what`` needs."""
        if not self.local:
            raise DualnewtonError(f"{what} needs rows in the memory of this process, but {self.reason}")


class RowVectors(NamedTuple):
    """The vectors of one problem that have an entry per row: of all rows, or of one block."""

    y: np.ndarray  # (m,) labels
    c: np.ndarray | None = None  # (m,) weights; ones if None
    o: np.ndarray | None = None  # (m,) or (m, K) offsets of the margins; zeros if None

    def part(self, rows: Any) -> RowVectors:
        """Return the entries of these rows."""
        c, o = self.c, self.o
        return RowVectors(self.y[rows], None if c is None else c[rows], None if o is None else o[rows])

    def placed(self, place: Callable[[Any], Any]) -> RowVectors:
        """Return the vectors moved elsewhere by a function of an array."""
        c, o = (None if each is None else place(each) for each in (self.c, self.o))
        return RowVectors(place(self.y), c, o)

    def weighted(self, values: np.ndarray) -> np.ndarray:
        """Multiply the values of each row by its weight."""
        return values if self.c is None else (values.T * self.c).T

    def shifted(self, z: np.ndarray) -> np.ndarray:
        """Add the offsets."""
        return z if self.o is None else z + self.o


class BlockLosses(NamedTuple):
    """The result of a target for a block of m rows."""

    values: np.ndarray  # Σ c_i φ_i of each model
    # (m, M) R, of which the pass computes Σ_i R_ik a_i and Σ_i R_ik: for instance the derivatives c_i ∂φ_i/∂z_ik.
    factors: np.ndarray
    # (m, L) entries of per-row vectors that the pass returns for all rows: for instance dual variables.
    kept: np.ndarray | None = None


class RowForm(NamedTuple):
    """A description of what a target computes for one model, for compiled passes."""

    loss: Any  # φ; the value is Σ c_i φ_i
    # Whether the first factor is −cφ′ and the dual variable −φ′ is kept, instead of the factor cφ′ alone.
    dual: bool = False
    direction: bool = False  # whether the balancing direction d of the dual point is kept as well, with the factor cd
    thirds: bool = False  # whether the factors divided by three are appended


class Target(Protocol):
    """The losses that a pass evaluates at the margins of a block of rows: K columns, of one model or several."""

    @property
    def forms(self) -> Sequence[RowForm]:
        """What :meth:`losses` computes, as a form for each model; empty if no form describes it."""

    def losses(self, rows: Sequence[RowVectors], Z: np.ndarray) -> BlockLosses:
        """Return sums and factors of a block with margins Z (m × K), given its own entries of the per-row vectors."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of one pass."""

    values: np.ndarray  # Σ c_i φ_i of each model
    gradients: np.ndarray  # (M, d) Σ_i R_ik a_i
    slopes: np.ndarray  # (M,) Σ_i R_ik; for R_ik = c_i ∂φ_i/∂z_ik the derivatives with respect to the intercepts
    margins: np.ndarray  # (n, K) a_iᵀw_k + b_k
    kept: np.ndarray | None = None  # (n, L) entries that the target keeps for each row


@dataclass(frozen=True)
class Work:
    """Options of the passes of a run, chosen by the planner; they affect the time of a pass, not its mathematical result."""

    compiled: bool = False  # whether kernels may be used
    dense: bool = False  # whether sparse rows are converted to dense ones first
    # ``by_pairs(m, p)`` says whether the weighted Gram matrix of m sparse rows with p pairs of entries is summed pair
    # by pair instead of by products of dense copies of the rows, which is the default.
    by_pairs: Callable[[int, float], bool] | None = None
    # Stored entries of the data set of which the rows are a piece, 0 if they are not a piece: whether compiling is worth its time
    # depends on all pieces together.
    whole: int = 0


class Data(Selections, ABC):
    """A matrix A of n rows a_i and d columns. Sums are accumulated in float64 for every storage type.

    Arrays with an entry per row are row arrays (:mod:`dualnewton.row_arrays`), which stay with the rows. Everything else that
    methods take and return (models, gradients, Gram matrices, a few rows or columns) is NumPy arrays, except that a method may
    keep its vectors over many features where the rows are (:meth:`feature_array`).
    """

    profile: Profile  # size and sparsity
    capabilities: Capabilities = Capabilities()  # operations that are efficient

    @cached_property
    def n(self) -> int:
        """The number of rows."""
        return self.profile.n

    @cached_property
    def d(self) -> int:
        """The number of columns."""
        return self.profile.d

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d), as for arrays."""
        return self.n, self.d

    @property
    def dtype(self) -> np.dtype:
        """The type of the entries, float32 or float64."""
        return np.dtype(f"f{self.profile.itemsize}")

    @cached_property
    def feature_norms(self) -> np.ndarray:
        """‖A_j‖ of each feature, computed in one pass and kept."""
        return np.sqrt(self.column_norms(self.ones()))

    @property
    def additions(self) -> int:
        """Upper bound on the additions through which a row's term enters a sum over all rows (a gradient, or Aᵀv).

        The rounding error of the sum is at most about this multiple of its terms' absolute values, whatever the order of the
        additions. Data whose parts have sums of their own declare fewer than n.
        """
        return self.n

    @cached_property
    def squared_feature_norms(self) -> Any:
        """‖A_j‖² of each feature, on the device on which arithmetic with vectors over features is fastest."""
        return self.feature_array(np.square(self.feature_norms))

    @cached_property
    def norm(self) -> float:
        """An upper bound on (Σ_ij A_ij²)^½ that exceeds it by rounding errors alone."""
        return math.sqrt(float(self.feature_norms @ self.feature_norms)) * (1.0 + (self.n + self.d) * 2.0**-52)

    # Identity ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of content, type and storage: equal data have equal fingerprints in every process."""

    @abstractmethod
    def same_as(self, other: Data) -> bool:
        """Whether ``other`` uses the same memory (or files) with the same layout; the content is not compared."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays in memory that hold the entries, by name, whose addresses :meth:`same_as` compares."""
        return {}

    @property
    def stored(self) -> Any:
        """Return the matrix as kernels read it, if ``capabilities.random_rows``."""
        raise TypeError(f"{type(self).__name__} has no random access to rows: {self.capabilities.reason}")

    @abstractmethod
    def with_constant(self, value: float) -> Data:
        """Return the same rows with an appended constant column."""

    def with_features(self, features: np.ndarray) -> Data:  # noqa: ARG002
        """Return the same rows with only these columns, in this order; not available if ``capabilities.whole``."""
        raise TypeError(f"{type(self).__name__} has no parts of its columns: {self.capabilities.reason}")

    # Work --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def using(self, work: Work) -> Data:
        """Return the same data with the given options for passes."""

    # Vectors over features ---------------------------------------------------------------------------------------

    def feature_array(self, x: np.ndarray) -> Any:
        """Return a vector with an entry per feature (or several) on the device on which arithmetic with it is fastest.

        It follows the rules of row arrays. A vector of equal numbers may be given as ``np.broadcast_to`` makes it, without
        memory for each. :meth:`evaluate` and :meth:`weighted_products` also take models of this kind, and
        then return gradients of this kind.
        """
        return np.ascontiguousarray(x)

    def as_factor(self, rows: Any, indices: Rows, diagonal: Any) -> Any:  # noqa: ARG002
        """Return ``rows``, the rows with these indices, in the form in which ``few_rows`` multiplies them repeatedly with feature
        arrays that are divided by ``diagonal``.

        Vectors with an entry for each of these rows are NumPy arrays.
        """
        return rows

    # Products, one pass each -------------------------------------------------------------------------------------

    @abstractmethod
    def times(self, w: np.ndarray) -> np.ndarray:
        """A w, for a vector w or a matrix with one column per model."""

    @abstractmethod
    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """Aᵀ v, for a vector v or a matrix with one column per model."""

    @abstractmethod
    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        """Compute margins, losses and gradients of K models with coefficients W (K×d) and intercepts b, in one pass.

        ``vectors`` holds the per-row vectors that the target needs; each block is evaluated with its own entries of them.
        """

    @abstractmethod
    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Aᵀ u_k with u_k = D(weights_k) (A V_k + v_k) for each k, and the sums of the entries of u_k, in one pass."""

    @abstractmethod
    def weighted_gram(
        self,
        weights: np.ndarray,
        indices: np.ndarray | None = None,
        *,
        intercept: bool = False,
        single: bool = False,
        keep: bool = False,
    ) -> np.ndarray:
        """Σ_s weights_s ã_s ã_sᵀ over the rows ``indices`` (all by default); ã has an appended constant 1 if ``intercept``.

        Weights may be negative. If ``single``, products in float32 are accurate enough for the caller. If ``keep``, the matrix
        may stay on the device of the rows: the caller only adds these matrices and factorises the sum (``matrix/factors.py``).
        """

    def weighted_grams(self, weights: Sequence[np.ndarray], *, intercept: bool = False) -> list[np.ndarray]:
        """Return :meth:`weighted_gram` of all rows for each of several weights."""
        return [self.weighted_gram(own, intercept=intercept) for own in weights]

    def coupled_gram(
        self,
        weights: Sequence[np.ndarray],
        classes: int,
        *,
        intercept: bool = False,
        single: bool = False,
        negligible: float = 0.0,
        keep: bool = False,  # noqa: ARG002
    ) -> np.ndarray:
        """Σ_{k<l} (e_k − e_l)(e_k − e_l)ᵀ ⊗ Σ_i weights_i,kl ã_i ã_iᵀ, of shape (K, m, K, m); a row array for each two classes.

        Rows whose weight is no more than ``negligible`` times the mean of their pair may be left out. The other arguments are
        those of :meth:`weighted_gram`.
        """

        def grams() -> Iterator[np.ndarray]:
            last, found = weights[0], None
            for own in weights:
                # At w = 0 all pairs have the same weights; comparing rows elsewhere would wait for them.
                same = type(own) is np.ndarray and own[:1] == last[:1] and np.array_equal(own, last)
                if found is None or not same:
                    rows = self.active(own > negligible * float(own.mean()))
                    found = self.weighted_gram(self.take(own, rows), rows, intercept=intercept, single=single)
                last = own
                yield found

        return coupled(grams(), classes)

    @abstractmethod
    def moments(
        self, weights: np.ndarray, targets: np.ndarray, origin: np.ndarray, indices: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σ_s weights_s ã_s ã_sᵀ and Σ_s weights_s ã_s t_sᵀ with ã = (a − origin, 1), over these rows (all by default).

        ``targets`` has a row t_s for each index. An origin near the mean avoids cancellation for rows far from zero; an origin
        other than zero makes sparse rows dense.
        """

    @abstractmethod
    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        """Return a_sᵀ D(scale) a_t for the rows with these indices, A Aᵀ by default, if ``capabilities.whole``; scale > 0."""

    @abstractmethod
    def column_norms(self, weights: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        """Σ_i weights_i a_ij² for the given features j, all by default."""

    @abstractmethod
    def absolute_sums(self, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i |a_ij| for each feature, where weights has one entry per row or one column per model."""

    @abstractmethod
    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        """Σ_j scale_j a_ij² for each row i."""

    def squared_norms(self, rows: slice) -> np.ndarray:
        """Σ_j a_ij² for a few rows i."""
        return linear.squared_norms(self.rows(rows))

    @abstractmethod
    def nonzeros(self) -> np.ndarray:
        """Return the number of nonzero entries of each feature."""

    def has_each(self, least: int) -> bool:
        """Whether each feature has at least ``least`` nonzero entries."""
        return bool((self.nonzeros() >= least).all())

    # Parts, gathered in memory -----------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, indices: Rows) -> Any:
        """Return some rows as float64: an array, or a CSR array if the data are sparse."""

    @abstractmethod
    def columns(self, features: np.ndarray) -> Any:
        """Return some columns as float64, one row per feature: an array, or a CSR array if the data are sparse."""
