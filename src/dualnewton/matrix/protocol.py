"""What the library may ask of a data matrix, wherever it lies: in memory, in pieces on a disk, on other machines, on a GPU.

Solvers, planner and verifier never see X. They hand over models and get products and sums over rows back. Vectors with one
entry per row (labels, weights, offsets, margins, dual variables) stay with their rows: a pass gets those of a block beside it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Rows = np.ndarray | slice
"""Which rows: their indices in increasing order, or a range."""


@dataclass(frozen=True)
class Profile:
    """Size and sparsity of a data matrix, from which the cost of work on it is predicted.

    Attributes
    ----------
    n, d : int
        Rows (examples) and columns (features).
    stored : int
        Stored entries; n·d if dense.
    pairs : float
        Pairs of stored entries within a row, summed over the rows: the multiplications of AᵀA.
    sparse : bool
        Whether the rows are stored sparsely.
    itemsize : int
        Bytes of an entry.
    """

    n: int
    d: int
    stored: int
    pairs: float
    sparse: bool
    itemsize: int


@dataclass(frozen=True)
class Capabilities:
    """What a kind of data can do at a reasonable price; the planner leaves out methods that need more.

    Attributes
    ----------
    random_rows : bool
        A few rows in random order cost about their own size. Dual methods (SDNA, SDCA) visit rows like that.
    whole : bool
        All rows fit in memory at once, so that a method may gather them.
    reason : str
        Why one of these is False, for the plan.
    """

    random_rows: bool = True
    whole: bool = True
    reason: str = ""


class Target(Protocol):
    """What a pass makes of the margins of a block of rows: K columns of them, of one model or several."""

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ c_i φ_i for each model, and R of the shape of Z, the derivatives c_i ∂φ_i/∂z_ik."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one pass returns.

    Attributes
    ----------
    values : array
        Σ c_i φ_i of each model.
    gradients : array of shape (K, d)
        Σ_i R_ik a_i.
    slopes : array of shape (K,)
        Σ_i R_ik, the derivatives by the intercepts.
    margins : array of shape (n, K)
        a_iᵀw_k + b_k.
    """

    values: np.ndarray
    gradients: np.ndarray
    slopes: np.ndarray
    margins: np.ndarray


@dataclass(frozen=True)
class Work:
    """How the passes of a run are carried out; the planner chooses it, and no choice changes what a pass means.

    Attributes
    ----------
    n_threads : int
        Threads that may work. The results have the same bits for any number.
    compiled : bool
        Whether kernels may be used.
    dense : bool
        Whether sparse rows are expanded to dense ones first.
    by_pairs : callable, optional
        Whether the weighted Gram matrix of m sparse rows with p pairs of entries is summed pair by pair, ``by_pairs(m, p)``,
        instead of by products of expanded rows, which is the default.
    """

    n_threads: int = 1
    compiled: bool = False
    dense: bool = False
    by_pairs: Callable[[int, float], bool] | None = None


class Data(ABC):
    """A matrix A of n rows a_i and d columns. Sums are accumulated in float64, whatever the storage.

    Attributes
    ----------
    profile : Profile
        Size and sparsity.
    capabilities : Capabilities
        What can be asked for at a reasonable price.
    """

    profile: Profile
    capabilities: Capabilities = Capabilities()

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.profile.n

    @property
    def d(self) -> int:
        """The number of columns."""
        return self.profile.d

    # Identity ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def fingerprint(self) -> str:
        """Return a hash of the content, its type and its storage: equal data have equal fingerprints in every process."""

    @abstractmethod
    def same_as(self, other: Data) -> bool:
        """Whether the other reads the same memory (or files) in the same way; the content is not compared."""

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays in memory that hold the entries, by name, for whoever must recognise views into them."""
        return {}

    @property
    def stored(self) -> Any:
        """Return the matrix as kernels read it, where ``capabilities.random_rows``."""
        raise TypeError(f"{type(self).__name__} has no random access to rows: {self.capabilities.reason}")

    @abstractmethod
    def with_constant(self, value: float) -> Data:
        """Return the same rows with one more column, which is constant."""

    # Work --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def using(self, work: Work) -> Data:
        """Return the same data, set up for the passes of a run; whoever asks for it closes it."""

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Release threads and files."""

    # Products, one pass each -------------------------------------------------------------------------------------

    @abstractmethod
    def times(self, w: np.ndarray) -> np.ndarray:
        """A w, for a vector w or a matrix with one column per model."""

    @abstractmethod
    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """Aᵀ v, for a vector v or a matrix with one column per model."""

    @abstractmethod
    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target) -> Evaluation:
        """Margins, losses and gradients at the K models with coefficients W (K×d) and intercepts b, in one pass."""

    @abstractmethod
    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Aᵀ D(weights_k) (A V_k + v_k) for each k, and the column sums of what Aᵀ is applied to, in one pass."""

    @abstractmethod
    def weighted_gram(
        self, weights: np.ndarray, indices: np.ndarray | None = None, *, intercept: bool = False, single: bool = False
    ) -> np.ndarray:
        """Σ_s weights_s ã_s ã_sᵀ over the rows with these indices (all by default); ã ends in a constant 1 if ``intercept``.

        Weights may be negative. Products in float32 are accurate enough for the caller where ``single``.
        """

    @abstractmethod
    def moments(
        self, weights: np.ndarray, targets: np.ndarray, origin: np.ndarray, indices: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Σ_s weights_s ã_s ã_sᵀ and Σ_s weights_s ã_s t_sᵀ with ã = (a − origin, 1), over these rows (all by default).

        ``targets`` has a row t_s for each index. An origin near the mean keeps the digits of rows far from zero; any other than
        zero expands sparse rows.
        """

    @abstractmethod
    def row_gram(self, indices: Rows = slice(None)) -> np.ndarray:
        """Return the products a_sᵀ a_t of the rows with these indices, A Aᵀ by default, where ``capabilities.whole``."""

    @abstractmethod
    def column_norms(self, weights: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        """Σ_i weights_i a_ij² for the given features j, all by default."""

    @abstractmethod
    def absolute_sums(self, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i |a_ij| for each feature, where weights has one entry per row or one column per model."""

    @abstractmethod
    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        """Σ_j scale_j a_ij² for each row i."""

    # Parts, gathered in memory -----------------------------------------------------------------------------------

    @abstractmethod
    def rows(self, indices: Rows) -> Any:
        """Return some rows as float64: an array, or a CSR array if the data are sparse."""

    @abstractmethod
    def columns(self, features: np.ndarray) -> Any:
        """Return some columns as float64, one row per feature: an array, or a CSR array if the data are sparse."""
