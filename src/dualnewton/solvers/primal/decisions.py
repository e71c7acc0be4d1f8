"""The decisions of the primal methods that compare costs: when to compute a curvature, and in which form. Planning makes them."""

from __future__ import annotations

from typing import Any, Protocol

from dualnewton.matrix import Data


class Policy(Protocol):
    """When one model computes new curvature, and from how many rows.

    Attributes
    ----------
    tol : float
        The relative gap that is wanted.
    newton : bool
        Whether each step has the curvature of all rows at its start.
    coupled : bool
        Whether the model has columns (classes) whose coupling is in no sketch, only in the gradients.
    state : object
        What the policy remembers, as plain data.
    """

    tol: float
    newton: bool
    coupled: bool
    state: Any

    @property
    def rows(self) -> int:
        """The rows of the sketch that was asked for last; zero for a diagonal."""

    @property
    def most(self) -> int:
        """The rows of the largest sketch that may ever be computed."""

    @property
    def memory(self) -> int:
        """The number of correction pairs (steps and differences of gradients) that are kept."""

    @property
    def age(self) -> int:
        """The number of steps on this sketch."""

    @property
    def next_rows(self) -> int:
        """The rows of the sketch after this one."""

    def start(self, rows: int) -> None:
        """Record that the model starts at its solution on a sample of so many rows, with their curvature."""

    def ask_for(self, rows: int) -> None:
        """Set the rows of the next sketch."""

    def begin(self, decrement: float, active: int) -> None:
        """Record gᵀB⁻¹g of the first step on a new sketch, and how many rows had any curvature when it was computed."""

    def watch(self, decrement: float, value: float, step_length: float) -> None:
        """Record gᵀB⁻¹g of the next step, given n P at its start and the length of the last step."""

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        """Whether the passes that another sketch should save cost more than it does."""

    def ends(self, gap: float, value: float) -> bool:
        """Whether the next step, if it is as fast as the last, leaves clearly less than the gap that is wanted."""


class Decisions(Protocol):
    """In which form, and from how many rows, the curvature of some data is computed."""

    def on(self, data: Data) -> Decisions:
        """Return the decisions for other data, such as a sample of the rows."""

    def policy(self, tol: float, first: int, *, newton: bool, coupled: bool, quadratic: bool) -> Policy:
        """Return the policy of one model whose first sketch has so many rows."""

    def is_matrix_free(self, features: int) -> bool:
        """Whether Newton's method forms no matrix of the size of the rows or of the features."""

    def keeps_rows(self, rows: int, features: int) -> bool:
        """Whether the curvature of so few rows is kept as rows, instead of as a square matrix of the features."""

    def considers_single(self, rows: int) -> bool:
        """Whether a Gram matrix of so many rows is large enough for single precision to be worth a check of its error."""

    @property
    def first_preconditioner(self) -> int:
        """The rows of the first preconditioner of conjugate gradients."""

    def preconditioner(self, rows: int, products: float) -> int:
        """Return the rows of the next preconditioner, after so many products with one of ``rows`` rows."""
