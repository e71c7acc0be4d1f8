"""What the primal methods ask before they compute a curvature. The answers compare costs, so they are given from outside."""

from __future__ import annotations

from typing import Protocol


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
    size : int
        The rows of the last sketch, or of the next where there is none; zero while a diagonal is used.
    active : int
        The rows that had any curvature when the last sketch was made.
    """

    tol: float
    newton: bool
    coupled: bool
    size: int
    active: int

    @property
    def most(self) -> int:
        """The rows of the largest sketch that may ever be computed."""

    @property
    def memory(self) -> int:
        """The pairs of steps and gradient differences that correct the curvature."""

    @property
    def age(self) -> int:
        """The number of steps on this sketch."""

    @property
    def next_size(self) -> int:
        """The rows of the sketch after this one."""

    def begin(self, decrement: float) -> None:
        """Start to watch a new sketch; gᵀB⁻¹g of the first step on it is given."""

    def watch(self, decrement: float, value: float, step_length: float) -> None:
        """Take gᵀB⁻¹g of the next step, n P at its start and the length of the last step."""

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        """Whether the passes that another sketch should save cost more than it does."""


class Decisions(Protocol):
    """In which form, and from how many rows, the curvature of some data is computed."""

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
