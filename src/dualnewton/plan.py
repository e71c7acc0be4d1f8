"""Which method, which block size and which engine, and why: asked for, printed, overridable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dualnewton import _linear
from dualnewton._validate import integer
from dualnewton.problem import Problem

METHOD_NAMES = ("sdna", "sdca", "ihs")

SMALL = 100_000
"""Entries of X up to which the NumPy rounds serve: a first fit must not wait for a compiler."""

WHOLE = 512
"""Up to this many examples one NumPy round takes all: its Cholesky factor costs less than the rounds it saves."""

NUMPY_BLOCK = 256
"""Beyond, the τ at which a NumPy round's own arithmetic has outgrown the interpreter that calls it."""

CACHE = 1 << 21
"""Bytes of data that a core keeps close: beyond, a row should be used for more than one example while it is there."""


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
    obstacle = why_not_compiled(problem, chosen)
    if tau != "auto":
        return Plan(chosen, integer("tau", tau, 1, problem.n), "tau as asked", not obstacle)
    size, reason = (_NUMPY_SIZE if obstacle else _COMPILED_SIZE)[chosen](problem)
    return Plan(chosen, min(size, problem.n), f"{reason} ({obstacle})" if obstacle else reason, not obstacle)


def why_not_compiled(problem: Problem, method: str) -> str:
    """Say why the NumPy rounds are to be used; an empty string if the kernels are."""
    if method not in _COMPILED_SIZE:
        return f"{method} has no compiled rounds"
    if problem.n * problem.d <= SMALL:
        return "too small to wait for a compiler"
    from dualnewton.solvers.compiled import why_not  # loads Numba

    return why_not(problem)


def _numpy_sdna(problem: Problem) -> tuple[int, str]:
    if problem.n <= WHOLE:
        return problem.n, "all examples fit in one block, so each round is a step of Newton's method on the whole dual"
    return NUMPY_BLOCK, "the larger the block the fewer the epochs, and up to this size a round costs little more"


def _numpy_ihs(problem: Problem) -> tuple[int, str]:
    return max(NUMPY_BLOCK, 2 * problem.d), "a sketch of a few times d examples repays its d×d factorisation"


def _sdna(problem: Problem) -> tuple[int, str]:
    difficulty = _difficulty(problem)
    if _linear.is_sparse(problem.X):
        if difficulty <= 8.0:
            return 1, "short sparse rows and a penalty that is not small against them: one at a time is cheapest"
        return 8, "the penalty is small against the rows, so the curvature between examples pays for its products"
    if 8 * problem.n * problem.d <= CACHE and difficulty <= 8.0:
        return 4, "dense data that stay in the cache: small blocks already make each product worth its call"
    if difficulty <= 8.0:
        return 8, "dense rows out of the cache: a block of them is multiplied while it is near"
    return 16, "dense rows and a penalty that is small against them: the curvature between examples pays"


def _sdca(_: Problem) -> tuple[int, str]:
    return 1, "larger sets would cost minibatch SDCA more epochs"


def _difficulty(problem: Problem) -> float:
    """Return ‖a_i‖²/(γλn), averaged: how far the dual is from a separable problem that one step per example solves."""
    return float(np.mean(problem.norms * problem.c)) / (problem.loss.gamma * problem.lam * problem.n)


_NUMPY_SIZE = {
    "sdna": _numpy_sdna,
    "sdca": lambda _: (16, "larger sets would cost minibatch SDCA more epochs"),
    "ihs": _numpy_ihs,
}
_COMPILED_SIZE = {"sdna": _sdna, "sdca": _sdca}
