"""Which method and which block size, and why: asked for, printed, overridable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualnewton._validate import integer
from dualnewton.problem import Problem

METHOD_NAMES = ("sdna", "sdca", "ihs")

WHOLE = 512
"""Up to this many examples one block takes all: its Cholesky factor costs less than the rounds it saves."""

BLOCK = 256
"""Beyond, the τ at which a round's own arithmetic has outgrown the interpreter that calls it."""


@dataclass(frozen=True)
class Plan:
    """A method, a block size τ, and the reason in a sentence."""

    method: str
    tau: int
    reason: str

    def __str__(self) -> str:
        return f"{self.method}, tau = {self.tau}: {self.reason}"


def plan(problem: Problem, method: str = "auto", tau: int | Literal["auto"] = "auto") -> Plan:
    """Choose what is left to choose; a method or a τ that is given is kept.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : {"auto", "sdna", "sdca", "ihs"}
        The method.
    tau : int or "auto"
        The number of examples per round.
    """
    if method not in ("auto", *METHOD_NAMES):
        allowed = ", ".join(map(repr, ("auto", *METHOD_NAMES)))
        raise ValueError(f"method must be one of {allowed}, got {method!r}")
    chosen = "sdna" if method == "auto" else method
    if tau != "auto":
        return Plan(chosen, integer("tau", tau, 1, problem.n), "tau as asked")
    size, reason = _BLOCK_SIZE[chosen](problem)
    return Plan(chosen, min(size, problem.n), reason)


def _sdna_size(problem: Problem) -> tuple[int, str]:
    if problem.n <= WHOLE:
        return (
            problem.n,
            f"n = {problem.n} fits in one block, so each round is a step of Newton's method on the whole dual",
        )
    return BLOCK, "the larger the block the fewer the epochs, and up to this size a round costs little more"


def _sdca_size(_: Problem) -> tuple[int, str]:
    return 16, "larger sets would cost minibatch SDCA more epochs"


def _ihs_size(problem: Problem) -> tuple[int, str]:
    return max(BLOCK, 2 * problem.d), "a sketch of a few times d examples repays its d×d factorisation"


_BLOCK_SIZE = {"sdna": _sdna_size, "sdca": _sdca_size, "ihs": _ihs_size}
