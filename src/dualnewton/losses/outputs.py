"""The squared loss of several outputs at once: K margins and K targets per example."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.losses.base import Curvature, LabelForm, Loss
from dualnewton.losses.rounding import Sizes
from dualnewton.row_arrays import by_columns, on_host, ones, product
from dualnewton.validation import data_matrix, frozen, integer


@dataclass(frozen=True)
class SquaredOutputs(Loss):
    """½‖z − y‖² for K outputs; a label is a vector of K targets.

    The Hessian is the identity, so that the outputs are coupled by the penalty alone. With a penalty that does not couple them,
    one :class:`Squared` problem for each output is the same.

    Parameters
    ----------
    n_outputs : int
        K ≥ 2.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.SquaredOutputs(2).value(np.array([[1.0, 2.0]]), np.zeros((1, 2)))
    array([2.5])
    """

    n_outputs: int = 2
    gamma = 1.0
    curvature = Curvature.CONSTANT
    nonnegative = True
    label_domain: ClassVar[str] = "finite real numbers, one column for each output"
    label_form: ClassVar[LabelForm] = LabelForm.VECTOR
    balances_by_mean = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_outputs", integer("n_outputs", self.n_outputs, 2))

    @cached_property
    def columns(self) -> int:  # type: ignore[override]
        """K."""
        return self.n_outputs

    @property
    def label_columns(self) -> int:  # type: ignore[override]
        """K."""
        return self.n_outputs

    # The functions of one example --------------------------------------------------------------------------------------

    def value(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _half_squares(z - y)

    def derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return z - y

    def value_and_derivative(self, z: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        missed = z - y
        return _half_squares(missed), missed

    def sum_and_derivative(self, z: np.ndarray, y: np.ndarray, c: np.ndarray | None) -> tuple[float, np.ndarray]:
        """Return ½ Σ c_i ‖z_i − y_i‖², a product, and the differences; a subclass may have another φ."""
        if type(self) is not SquaredOutputs or c is not None:
            return super().sum_and_derivative(z, y, c)
        missed = z - y
        return 0.5 * float(product(missed, missed)), missed

    def second_derivative(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        return ones(z.shape, z)

    def curvature_times(self, z: np.ndarray, y: np.ndarray, t: np.ndarray) -> np.ndarray:
        return t

    def conjugate(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.einsum("ik,ik->i", u, 0.5 * u + y)

    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return ½ Σ c_i ‖α_i‖² − Σ c_i ⟨α_i, y_i⟩, two products; a subclass may have another φ*."""
        if type(self) is not SquaredOutputs or type(alpha) is not np.ndarray:
            return super().conjugates(alpha, y, weights)
        mass = alpha if weights is None else (weights * alpha.T).T
        total = 0.5 * float(product(alpha, mass)) - float(product(mass, y))
        return math.inf if math.isnan(total) else total  # NaN proves nothing

    # Rounding errors ---------------------------------------------------------------------------------------------------

    def sizes_at_zero(self, weight: float, labels: float) -> float | None:
        """Return ½ Σ c_i ‖y_i‖²; a subclass may have another value."""
        return 0.5 * labels if type(self) is SquaredOutputs else None

    def rebalanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Subtract the weighted mean of each column."""
        return alpha - c @ alpha / c.sum()

    def balancing_cost(self, sizes: Sizes, y: np.ndarray, c: np.ndarray | None, *, error: float) -> tuple[float, float]:
        """Bound what :meth:`rebalanced` costs: with sums s and C = Σ c_i, Σ c_i φ* grows by at most ‖s‖(‖√c y‖/√C + ‖s‖/C)."""
        each = zip(sizes.sums.tolist(), sizes.absolute.tolist(), strict=True)
        size = math.hypot(*[abs(total) + error * absolute for total, absolute in each])
        return 2.0 * size * (sizes.labels / math.sqrt(sizes.weight) + size / sizes.weight), size

    # The same by columns, for compiled passes ----------------------------------------------------------------------------

    def losses_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        for i in range(values.size):
            values[i] = 0.0
        for k in range(len(z)):
            for i in range(values.size):
                missed = z[k, i] - y[k, i]
                slopes[k, i] = missed
                values[i] += 0.5 * missed * missed

    def curvature_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, diagonal: np.ndarray) -> None:
        for k in range(len(z)):
            for i in range(values.size):
                diagonal[k, i] = 1.0

    def conjugates_by_columns(self, u: np.ndarray, y: np.ndarray, values: np.ndarray, scratch: np.ndarray) -> None:
        for i in range(values.size):
            values[i] = 0.0
        for k in range(len(u)):
            for i in range(values.size):
                values[i] += u[k, i] * (0.5 * u[k, i] + y[k, i])

    # Operations on all examples of a problem -----------------------------------------------------------------------------

    def labels(self, y: Any, n: int) -> np.ndarray:
        shape = y.shape if type(y) is np.ndarray else np.shape(y)
        if shape != (n, self.n_outputs):
            raise DualnewtonError(f"y must have shape {(n, self.n_outputs)} for {self!r}, got {shape}")
        return frozen(by_columns(data_matrix("y", y).astype(np.float64, copy=False)))

    def nearest_dual(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return α: φ* is finite everywhere."""
        return alpha

    def balanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Subtract the weighted mean of each column; twice, which removes the rounding error of the first mean."""
        for _ in range(2):
            alpha = alpha - c @ alpha / c.sum()
        return alpha

    def best_intercept(
        self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0
    ) -> np.ndarray:
        """Return the weighted mean of y − z in each column."""
        return np.asarray(on_host(np.average(y - margins, axis=0, weights=weights)))

    def conjugates_along(
        self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, at_one: float
    ) -> Callable[[float], float]:
        """Return s ↦ Σ c_i φ*(−sα_i) = s²A − sB, where A = ½ Σ c_i ‖α_i‖² and A − B is the value at s = 1."""
        squares = np.einsum("ik,ik->i", alpha, alpha)
        half = 0.5 * float(squares.sum() if weights is None else weights @ squares)
        return lambda s: s * s * half + s * (at_one - half)


def _half_squares(missed: np.ndarray) -> np.ndarray:
    """½‖r_i‖² of each row. (Within a small fit einsum takes 20 µs, and the two ufuncs 11.)"""
    if type(missed) is not np.ndarray:
        return 0.5 * np.einsum("ik,ik->i", missed, missed)
    return 0.5 * np.add.reduce(missed * missed, axis=1)
