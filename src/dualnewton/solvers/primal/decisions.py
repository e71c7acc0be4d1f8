"""Decisions of the primal methods that compare costs (when to compute a Hessian, in which form); see ``planning``."""

from __future__ import annotations

from typing import Any, Protocol

from dualnewton.matrix import Data


class Policy(Protocol):
    """When one model computes new curvature, and from how many rows."""

    tol: float  # wanted relative gap
    newton: bool  # whether each step uses the Hessian of all rows at its starting point
    coupled: bool  # whether the model has columns (classes) whose coupling no sketch contains
    state: Any  # state of the policy, as plain data

    @property
    def rows(self) -> int:
        """The rows of the last requested sketch; zero for a diagonal."""

    @property
    def most(self) -> int:
        """The largest number of rows of any sketch."""

    @property
    def memory(self) -> int:
        """The number of correction pairs (steps and differences of gradients) that are kept."""

    @property
    def age(self) -> int:
        """The number of steps on this sketch."""

    @property
    def next_rows(self) -> int:
        """The number of rows of the next sketch."""

    def start(self, rows: int) -> None:
        """Record that the model starts at its solution on a sample of ``rows`` rows, with their Hessian."""

    def ask_for(self, rows: int) -> None:
        """Set the rows of the next sketch."""

    def begin(self, decrement: float, active: int) -> None:
        """Record gᵀB⁻¹g of the first step on a new sketch, and the number of rows with nonzero curvature."""

    def watch(self, decrement: float, value: float, step_length: float) -> None:
        """Record gᵀB⁻¹g of the next step, given n P at its start and the length of the last step."""

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        """Whether another sketch costs less than the passes that it is expected to save."""

    def ends(self, gap: float, value: float) -> bool:
        """Whether the next step, if it is as fast as those before, leaves clearly less than the wanted gap."""


class Decisions(Protocol):
    """Choices of the form of a Hessian estimate, and of its number of rows, for some data."""

    def on(self, data: Data) -> Decisions:
        """Return the decisions for other data, such as a sample of the rows."""

    def policy(self, tol: float, first: int, *, newton: bool, columns: int) -> Policy:
        """Return the policy of one model whose first sketch has the given number of rows.

        Several ``columns`` (classes) have a curvature each, without the coupling between them.
        """

    def is_matrix_free(self, features: int) -> bool:
        """Whether Newton's method forms neither an n×n nor a d×d matrix."""

    def keeps_rows(self, rows: int, features: int) -> bool:
        """Whether the curvature of ``rows`` rows is stored as these rows instead of a d×d matrix."""

    def keeps_products(self, multiplied: float) -> bool:
        """Whether the products of all rows are computed and kept, after this many products of two rows."""

    def considers_single(self, rows: int) -> bool:
        """Whether a Gram matrix of this many rows is large enough to consider single precision."""

    def refines(self, rows: int, products: int) -> bool:
        """Whether this many products with the Hessian of all rows cost less than its sum over ``rows`` rows."""

    def corrects(self, outputs: int) -> bool:
        """Whether products that correct solves with a matrix in single precision, for each output, cost less than it saves."""

    @property
    def updated_share(self) -> float:
        """The share of the rows up to which a sum over all rows is updated by those whose weight has changed."""

    @property
    def first_preconditioner(self) -> int:
        """The number of rows of the first preconditioner of conjugate gradients."""

    def preconditioner(self, rows: int, products: float) -> int:
        """Return the number of rows of the next preconditioner, after a number of products with one of ``rows`` rows."""
