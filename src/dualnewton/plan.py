"""Which method, which block size and which engine, and why: asked for, printed, overridable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dualnewton import _linear
from dualnewton._validate import integer
from dualnewton.problem import Problem
from dualnewton.solvers import METHODS

METHOD_NAMES = tuple(METHODS)

SMALL = 100_000
"""Entries of X up to which the NumPy rounds serve: a first fit must not wait for a compiler."""

WHOLE = 512
"""Up to this many examples one NumPy round takes all: its Cholesky factor costs less than the rounds it saves."""

NUMPY_BLOCK = 256
"""Beyond, the τ at which a NumPy round's own arithmetic has outgrown the interpreter that calls it."""

CACHE = 1 << 24
"""Bytes of data that stay in the cache from epoch to epoch."""


@dataclass(frozen=True)
class Plan:
    """A method, a block size τ, whether the rounds are compiled, and the reason in a sentence."""

    method: str
    tau: int
    reason: str
    compiled: bool = False

    def __str__(self) -> str:
        return f"{self.method}, tau = {self.tau}{', compiled' if self.compiled else ''}: {self.reason}"


def plan(problem: Problem, method: str = "auto", tau: int | Literal["auto"] = "auto") -> Plan:
    """Choose what is left to choose; a method or a τ that is given is kept.

    The choice follows from sizes, sparsity and conditioning alone, never from a clock, so that equal seeds give equal runs.

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
        size, reason = integer("tau", tau, 1, problem.n), "tau as asked"
        obstacle = why_not_compiled(problem, chosen, size)
    else:
        obstacle = why_not_compiled(problem, chosen)
        size, reason = (_NUMPY_SIZE if obstacle else _COMPILED_SIZE)[chosen](problem)
        size = min(size, problem.n)
        obstacle = obstacle or why_not_compiled(problem, chosen, size)
    return Plan(chosen, size, f"{reason}; NumPy rounds, {obstacle}" if obstacle else reason, not obstacle)


def why_not_compiled(problem: Problem, method: str, tau: int = 1) -> str:
    """Say why the NumPy rounds are to be used; an empty string if the kernels are."""
    if method not in _COMPILED_SIZE:
        return f"since {method} has no others"
    if problem.n * problem.d <= SMALL:
        return "since the data are too small to wait for a compiler"
    if method == "sdna" and tau > problem.d:
        return "since blocks of more examples than features are best left to LAPACK"
    from dualnewton.solvers.compiled import why_not  # loads Numba

    return why_not(problem)


def _numpy_sdna(problem: Problem) -> tuple[int, str]:
    if problem.n <= WHOLE:
        return problem.n, "all examples fit in one block, so each round is a step of Newton's method on the whole dual"
    return NUMPY_BLOCK, "the larger the block the fewer the epochs, and up to this size a round costs little more"


def _numpy_ihs(problem: Problem) -> tuple[int, str]:
    return max(NUMPY_BLOCK, 2 * problem.d), "a sketch of a few times d examples repays its d×d factorisation"


def _sdna(problem: Problem) -> tuple[int, str]:
    if _linear.is_sparse(problem.X):
        return 1, "sparse rows: one at a time is cheapest, since Gram blocks cost more than the epochs they save"
    if 8 * problem.n * problem.d <= CACHE:
        return 1, "dense rows that stay in the cache: one at a time is cheapest"
    return 8, "dense rows out of the cache: a block of them is multiplied while it is near"


def _sdca(_: Problem) -> tuple[int, str]:
    return 1, "larger sets would cost minibatch SDCA more epochs"


_NUMPY_SIZE = {
    "sdna": _numpy_sdna,
    "sdca": lambda _: (16, "larger sets would cost minibatch SDCA more epochs"),
    "ihs": _numpy_ihs,
}
_COMPILED_SIZE = {"sdna": _sdna, "sdca": _sdca}
