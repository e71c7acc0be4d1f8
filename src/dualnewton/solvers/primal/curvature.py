"""Approximations of the Hessian Σ c_i φ″_i ã_i ã_iᵀ + D of a primal method, with which a step solves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from dualnewton.matrix import Data, few_rows, linear
from dualnewton.matrix.factors import factorised, solved
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.row_arrays import on_host
from dualnewton.solvers.deadline import NEVER, Deadline


class Curvature(Protocol):
    """A positive definite matrix B."""

    @property
    def scaled_well(self) -> bool:
        """Whether B is computed from enough rows for a correct scale; otherwise the gradients set the scale."""

    @property
    def exact(self) -> bool:
        """Whether B is the curvature of all rows, and its solves are exact up to rounding."""

    def solve(self, g: np.ndarray) -> np.ndarray:
        """B⁻¹ g."""

    def state(self) -> Any:
        """Return plain data whose method ``on(data)`` restores this curvature; None if it is used for one step only."""


class Plain:
    """A curvature that is plain data itself: it needs no rows to solve."""

    def state(self) -> Any:
        """Return itself."""
        return self

    def on(self, data: Data) -> Any:  # noqa: ARG002
        """Return itself."""
        return self


@dataclass(frozen=True, eq=False, init=False)
class Cholesky(Plain):
    """B = H + D(diagonal) times ``scale``, factorised: for up to a few thousand features."""

    factor: np.ndarray
    scaled_well: bool
    exact: bool
    scale: float

    def __init__(
        self,
        H: np.ndarray,  # (m, m) in memory or on the device of the data; overwritten
        diagonal: np.ndarray,  # (m,) D
        *,
        scaled_well: bool = True,
        exact: bool = False,
        # Called between blocks of a large factor; it may raise an exception to stop the work.
        check: Callable[[], None] | None = None,
    ) -> None:
        factor = factorised(H, diagonal, check)
        vars(self).update(factor=factor, scaled_well=scaled_well, exact=exact, scale=1.0)

    def solve(self, g: np.ndarray) -> np.ndarray:
        if type(g) is np.ndarray:  # called in each step of small fits, whose time is dominated by Python calls
            return solved(self.factor, g) if self.scale == 1.0 else solved(self.factor, g) / self.scale
        return np.asarray(solved(self.factor, on_host(g)) / self.scale, like=g)

    def times(self, number: float) -> Cholesky:
        """Return a multiple of B, as an estimate for all rows if B is computed from a sample."""
        made = object.__new__(Cholesky)
        vars(made).update(factor=self.factor, scaled_well=True, exact=False, scale=number * self.scale)
        return made


@dataclass(frozen=True, eq=False)
class Diagonal(Plain):
    """B = D, the curvature that is used before the first sketch."""

    diagonal: np.ndarray

    scaled_well = exact = False

    def solve(self, g: np.ndarray) -> np.ndarray:
        return g / self.diagonal


@dataclass(frozen=True, eq=False, init=False)
class Woodbury:
    """B = D + Aᵀ W A for fewer rows than features, by an m×m matrix:

        B⁻¹g = D⁻¹g − D⁻¹Aᵀ W^½ E⁻¹ W^½ A D⁻¹g,        E = I + W^½ A D⁻¹ Aᵀ W^½

    With an intercept, which has no entry in D, B is bordered by AᵀW1 and 1ᵀW1. Eliminating the features leaves
    σ = 1ᵀW^½ E⁻¹ W^½1 (``left``), a positive number in which nothing cancels.
    """

    rows: ClassVar[Any]  # not a field: gathered again, not stored
    chosen: np.ndarray | None
    roots: np.ndarray
    diagonal: np.ndarray
    inner: Cholesky
    border: np.ndarray | None
    left: float
    scaled_well: bool
    exact: bool

    def __init__(
        self,
        rows: Any,  # (m, d) A
        weights: np.ndarray,  # (m,) diagonal of W
        diagonal: np.ndarray,  # (d,) D > 0
        gram: np.ndarray | None = None,  # (m, m) A D⁻¹ Aᵀ, if known
        *,
        intercept: bool = False,  # whether the last entry of a vector belongs to an intercept
        scaled_well: bool = True,
        exact: bool = False,
        chosen: np.ndarray | None = None,  # (m,) indices of the rows in the data; all rows by default
    ) -> None:
        roots, reused = np.sqrt(weights), None
        if gram is None:
            gram = reused = gram_of(rows, diagonal)
        scaled = linear.scaled_both(gram, roots, out=reused)
        inner, border, left = Cholesky(scaled, np.ones(len(weights))), None, 1.0
        if intercept:
            inside = inner.solve(roots)
            border, left = (rows.T @ (roots * inside)) / diagonal, float(roots @ inside) or 1.0
        vars(self).update(chosen=chosen, roots=roots, diagonal=diagonal, inner=inner, border=border, left=left)
        vars(self).update(rows=rows, scaled_well=scaled_well, exact=exact)

    def state(self) -> Woodbury:
        """Return the state without the rows."""
        return self._with_rows(None)

    def on(self, data: Data) -> Woodbury:
        """Gather the rows again."""
        chosen = slice(None) if self.chosen is None else self.chosen
        return self._with_rows(data.as_factor(data.rows(chosen), chosen, self.diagonal))

    def placed(self, data: Data) -> Woodbury:
        """Return the same curvature on the device on which the data keep vectors over features."""
        border = None if self.border is None else data.feature_array(self.border)
        chosen = slice(None) if self.chosen is None else self.chosen
        rows = data.as_factor(self.rows, chosen, self.diagonal)
        return self._with_rows(rows, diagonal=data.feature_array(self.diagonal), border=border)

    def _with_rows(self, rows: Any, **others: Any) -> Woodbury:
        made = object.__new__(Woodbury)
        vars(made).update(vars(self) | {"rows": rows} | others)
        return made

    def solve(self, g: np.ndarray) -> np.ndarray:
        if self.border is None:
            return self._of_features(g)
        b = (float(g[-1]) - float(self.border @ g[:-1])) / self.left
        return np.concatenate([self._of_features(g[:-1]) - b * self.border, np.asarray([b], like=g)])

    def _of_features(self, g: np.ndarray) -> np.ndarray:
        solution = self.inner.solve(few_rows.inside(self.rows, self.roots, g, self.diagonal))
        return few_rows.outside(self.rows, self.roots * solution, g, self.diagonal)


@dataclass(frozen=True, eq=False)
class Together:
    """Several curvatures, each for its own part of the vector."""

    each: tuple[Any, ...]

    scaled_well = exact = False  # the coupling between the parts is missing

    def state(self) -> Together:
        """Return the states of the parts."""
        return Together(tuple(one.state() for one in self.each))

    def on(self, data: Data) -> Together:
        """Return the curvatures of the states."""
        return Together(tuple(one.on(data) for one in self.each))

    def solve(self, g: np.ndarray) -> np.ndarray:
        parts = g.reshape(len(self.each), -1)
        return np.concatenate([one.solve(part) for one, part in zip(self.each, parts, strict=True)])


def gram_of(rows: Any, diagonal: np.ndarray) -> np.ndarray:
    """Return A D⁻¹ Aᵀ."""
    if np.ptp(diagonal) == 0.0:
        gram = linear.gram(rows)
        gram /= diagonal[0]  # in place, since the memory of a new large matrix takes longer than the division
        return gram
    return linear.gram(linear.scale_columns(rows, 1.0 / np.sqrt(diagonal)))


@dataclass(eq=False)
class ConjugateGradients:
    """B given by its products, solved to a fraction of ‖g‖ with another curvature as preconditioner."""

    product: Callable[[np.ndarray], np.ndarray]  # v ↦ Bv, a pass over the data
    near: Curvature  # preconditioner
    fraction: float  # of g that the residual may be, both in the norm of the preconditioner
    most: int  # largest number of products
    units: np.ndarray | None = None  # a residual r with Σ units_j r_j² ≤ 1 is small enough
    deadline: Deadline = NEVER  # a solve ends there with the solution so far, which decreases the quadratic model
    products: int = 0  # of the last solve

    scaled_well, exact = True, False

    def state(self) -> None:
        """Return None: Newton's method computes a new one at its next step."""

    def solve(self, g: np.ndarray) -> np.ndarray:
        x, self.products = conjugate_gradients(
            self.product, g, self.near.solve, fraction=self.fraction, most=self.most, is_enough=self._is_enough
        )
        return x if x.any() else self.near.solve(g)

    def _is_enough(self, r: np.ndarray) -> bool:
        return self.deadline.is_over() or (self.units is not None and float(self.units @ np.square(r)) <= 1.0)
