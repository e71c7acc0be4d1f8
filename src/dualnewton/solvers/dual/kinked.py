"""SDNA and SDCA on a piecewise linear loss without smoothing: rounds, joint steps of free examples, a linear system."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.dual.face import face_step
from dualnewton.solvers.dual.kink_system import solved_on_kinks
from dualnewton.solvers.dual.piecewise import free_kinks
from dualnewton.solvers.dual.proximal_step import proximal_step
from dualnewton.solvers.dual.sweeps import FOCUSED_RESIDUAL, PIECE, Sweeps

PRODUCTS, LEAST_PRODUCTS, MOST_PRODUCTS = 20, 5, 320
"""Products with the Gram matrix of the free examples in the first joint step of theirs, at least and at most."""

GOOD, POOR = 0.75, 0.25
"""The number of products doubles after a joint step of at least the success ``GOOD``, or if the free examples stay the same, and
is halved after one of less than ``POOR``, as trust regions grow and shrink: longer steps are clipped more (Nocedal and Wright,
Numerical Optimization, Algorithm 4.1)."""

NARROWEST = 1e-3
"""The first width of a proximal step, at least, as a fraction of the mean of c_i‖a_i‖²/(λn): with a smaller one its linear
systems are badly conditioned."""

EASY, NARROWER, WIDER = 20, 0.3, 10.0
"""After a proximal step whose Newton steps took at most ``EASY`` conjugate gradients in the mean, the width is multiplied by
``NARROWER``; after one that would have lowered D, by ``WIDER``."""

LEAST_EPOCHS = 30.0
"""A proximal step begins no Newton step after so many epochs, or as many as all steps before took."""


@dataclass(frozen=True)
class Face:
    """The state of the free examples of one model."""

    free: np.ndarray  # indices, as of the last joint step
    residual: float = math.nan  # of all examples, in the sweep of the last step over all of them
    products: int = PRODUCTS  # products of the next joint step on a face
    width: float = math.nan  # μ of the next proximal step; NaN before the first
    proximal: bool = False  # whether the next joint step is proximal
    refused: bool = False  # whether the last proximal step was not taken, since it would have lowered D
    # ln(factor) by which an epoch divided the residual around the last joint step on a face, and the last proximal one.
    paces: tuple[float, float] = (math.inf, math.inf)
    solved: bool = False  # whether their linear system has been tried
    slow: bool = False  # whether joint steps are needed: a step left the residual unknown (NumPy rounds) or too large


@dataclass(frozen=True, eq=False)
class KinkedState:
    """The state of the sweeps and of the free examples of each model; the epochs so far decide whether a system is solved."""

    sweeps: Any
    faces: tuple[Face, ...]
    epochs: float


class KinkedSweeps(Sweeps):
    """Sweeps with shrinking for piecewise linear losses; between two full sweeps all free examples move together.

    Where the engine shrinks, a step of a model is a joint step if sweeps are slow, a sweep over all examples and sweeps over its
    active ones: it ends where the gap is smallest, and each model has active examples of its own.
    """

    # The mean residual is the gap, but that each term is computed at the w of its visit, and that of active examples only.
    expected_ratio = 2.0
    focused_sweeps, focused_epochs, least_visits = 200, 4.0, 4096

    def __init__(
        self,
        problems: Sequence[Problem],  # models
        # As in :class:`Sweeps`. Without ``focus`` only the rounds of the sampling are done.
        engine: Engine,
        sampling: Sampling,
        *,
        focus: bool,
        solves_system: Callable[
            [int, float], bool
        ],  # whether to solve that of so many free examples, after so many epochs
        crossovers: Crossovers = USUAL,
    ) -> None:
        super().__init__(engine, sampling, len(problems), focus=focus, crossovers=crossovers)
        self.problems, self.solves_system = list(problems), solves_system
        self.pieces: list[Any] = [problem.pieces for problem in problems]
        self.faces = [Face(np.empty(0, dtype=np.int64)) for _ in problems]
        self.epochs = 0.0

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        if not self.focus:
            return super().step(rng, deadline, most)
        if self.engine.shrinks:
            spent = self._shrinking_sweeps(rng, deadline, most)
        else:
            spent = super().step(rng, deadline, most)
            for k, residual in enumerate(self.residuals):
                self._note_speed(k, residual, spent)
        self.epochs += spent
        for k in range(len(self.problems)):
            self._solve_system(k)
        return spent

    def _shrinking_sweeps(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Move each model by sweeps of its own; return the mean number of epochs."""
        spent = [0.0] * len(self.problems)
        for k, problem in enumerate(self.problems):
            before, joint = self.residuals[k], self.faces[k].slow and time.perf_counter() <= deadline
            if joint:
                proximal = self.faces[k].proximal
                spent[k] = self._proximal_step(k, most, deadline) if proximal else self._joint_step(k, most)
            visits = self.engine.visits(k)
            left = math.ceil(min(most - spent[k], 1.0 + self.focused_epochs) * problem.n)
            while left > 0 and not visits.ended and time.perf_counter() <= deadline:
                draws = rng.integers(0, 1 << 32, size=min(PIECE, left), dtype=np.uint32)
                done = self.engine.shrink(k, visits, draws, FOCUSED_RESIDUAL)
                spent[k] += done / problem.n
                left -= done
            self.residuals[k] = visits.residual / problem.n
            self._note_speed(k, visits.first_residual / problem.n, spent[k])
            if joint:
                self._choose_steps(k, before, spent[k])
        return float(np.mean(spent))

    def _note_speed(self, k: int, residual: float, spent: float) -> None:
        """Record the residual of all examples, and whether it decreases too slowly without joint steps."""
        face, factor = self.faces[k], math.exp(-self.crossovers.quick_rounds * spent)
        quick = residual <= (math.inf if math.isnan(face.residual) else face.residual * factor)
        self.faces[k] = replace(face, residual=residual, slow=face.slow or not quick)

    def _choose_steps(self, k: int, before: float, spent: float) -> None:
        """Choose the kind of the next joint step: proximal ones where those on a face are slow, then the faster kind."""
        problem, face, now = self.problems[k], self.faces[k], self.residuals[k]
        known = 0.0 < before < math.inf and 0.0 < now < math.inf
        pace = math.log(before / now) / spent if known else math.inf
        if face.proximal:
            # After a step that was not taken, one on a face follows, and then a wider one.
            chosen = not face.refused and face.paces[0] < pace
            paces = (face.paces[0], math.inf if face.refused else pace)
        else:
            paces, limit = (pace, face.paces[1]), min(self.crossovers.slow_face, face.paces[1])
            able = problem.n >= self.crossovers.proximal_rows * problem.d
            chosen = able and pace < limit and not self.solves_system(face.free.size, self.epochs)
        self.faces[k] = replace(face, paces=paces, proximal=chosen)

    def _proximal_step(self, k: int, most: float, deadline: float) -> float:
        """Take a proximal step of a model; return the number of epochs that this cost, about ``most`` at most."""
        problem, face, pieces = self.problems[k], self.faces[k], self.pieces[k]
        width = self._first_width(k) if math.isnan(face.width) else face.width
        limits = {"most": min(most, max(LEAST_EPOCHS, self.epochs)), "deadline": deadline}
        found = proximal_step(problem, pieces, self.engine.alpha(k), self.engine.model(k), width, **limits)
        taken = found.increase > 0.0
        if taken:
            self.engine.move(k, found.moved, problem.data.rows(found.moved), found.alpha, found.intercept)
            width *= NARROWER if found.products <= EASY * found.steps else 1.0
        else:
            width *= WIDER
        self.faces[k] = replace(face, free=found.free, width=width, refused=not taken)
        return found.epochs

    def _first_width(self, k: int) -> float:
        """Return the width for which the proximal term of a step across a whole domain is about half the gap, or a larger one."""
        problem, pieces = self.problems[k], self.pieces[k]
        lengths = pieces[:, -1] - pieces[:, 0]
        curvature = float((problem.c * problem.norms).mean()) / (problem.lam * problem.n)
        return max(self.residuals[k] * problem.n / float(problem.c @ np.square(lengths)), NARROWEST * curvature)

    def _focused_sweeps(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        epochs = super()._focused_sweeps(rng, deadline, most)
        for k in range(len(self.problems)):
            if self.faces[k].slow and epochs < most and time.perf_counter() <= deadline:
                epochs += self._joint_step(k, most - epochs)
        return epochs

    def _joint_step(self, k: int, most: float) -> float:
        """Move the free examples of a model together; return the number of epochs that this cost, about ``most`` at most."""
        problem, face, pieces = self.problems[k], self.faces[k], self.pieces[k]
        at = self.engine.alpha(k), self.engine.model(k)
        free, rows, beta, products, success = face_step(problem, pieces, *at, face.products, most)
        if free.size:
            self.engine.move(k, free, rows, beta)
        same, wanted = np.array_equal(free, face.free), face.products
        if same or success >= GOOD:
            wanted = min(2 * wanted, MOST_PRODUCTS)
        elif success < POOR:
            wanted = max(wanted // 2, LEAST_PRODUCTS)
        self.faces[k] = replace(face, free=free, products=wanted, solved=same and face.solved)
        return products * free.size / problem.n

    def _solve_system(self, k: int) -> None:
        """Solve for the free examples exactly, once they have stayed the same since the last joint step."""
        problem, face, pieces, alpha = self.problems[k], self.faces[k], self.pieces[k], self.engine.alpha(k)
        if face.solved or not face.slow or not problem.regularizer.form.is_quadratic:
            return
        at = free_kinks(pieces, alpha)
        free = np.flatnonzero(~np.isnan(at) & (problem.c > 0.0))
        if not np.array_equal(free, face.free) or not self.solves_system(free.size, self.epochs):
            return
        self.faces[k] = replace(face, solved=True)
        found = solved_on_kinks(problem, alpha, at)
        if found is not None and problem.dual(problem.feasible(found[1])) > problem.dual(problem.feasible(alpha)):
            self.engine.restart(k, found[1])
            self.residuals[k] = 0.0  # the gap is expected to be rounding: certify it

    def keep(self, wanted: Sequence[int]) -> None:
        super().keep(wanted)
        self.problems, self.pieces = [self.problems[k] for k in wanted], [self.pieces[k] for k in wanted]
        self.faces = [self.faces[k] for k in wanted]

    def state(self) -> KinkedState:  # type: ignore[override]
        return KinkedState(super().state(), tuple(self.faces), self.epochs)

    def restore(self, state: KinkedState) -> None:  # type: ignore[override]
        super().restore(state.sweeps)
        self.faces, self.epochs = list(state.faces), state.epochs
