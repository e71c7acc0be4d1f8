"""Newton's method and its sketch in the interface of the loop, one iteration per step.

Each iteration takes x⁺ = x − t B⁻¹∇ where B is the curvature of rows (``curvature.py``): of all of them, which is SDNA with τ = n
(Newton's method), or of a sketch of τ (Section 6 of the paper), corrected by the last gradients. A full gradient costs one
pass; :class:`Decisions` decides when another sketch is computed, and of how many rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.matrix.workers import workers
from dualnewton.objective.problem import Problem
from dualnewton.objective.targets import Derivatives
from dualnewton.row_arrays import is_elsewhere, some_columns
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.primal.decisions import Decisions
from dualnewton.solvers.primal.joint_softmax import JointHessian
from dualnewton.solvers.primal.model import Model, ModelState
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.primal.samples import solve_samples
from dualnewton.solvers.primal.shared_curvature import compute_curvature
from dualnewton.solvers.primal.sketching import Hessian, Sketches, hessian_of_all_rows
from dualnewton.solvers.protocol import PrimalPoint, SharedPasses

LONG = 1 << 14
"""Length of the vectors of a model from which threads take its work between two passes (about a millisecond)."""


class Descent(SharedPasses):
    """Models whose trial points share passes over the data."""

    def __init__(
        self,
        problems: Sequence[Problem],
        data: Data,
        starts: Sequence[tuple[np.ndarray, Any]],  # starting points of the models
        *,
        tol: float,  # wanted relative gap
        sketch: int,  # τ, the rows of the first sketch
        newton: bool,  # whether every step uses the Hessian of all rows
        decisions: Decisions,  # decide when a Hessian is computed, from how many rows and in which form
        # The sizes of the samples of rows on which problems that start at w = 0 are solved first (``samples.py``).
        samples: Sequence[int] = (),
    ) -> None:
        self.data, self.models, self.decisions = data, [], decisions
        self.samples = samples if samples and not any(np.any(w) for w, _ in starts) else ()
        self.hessians: list[tuple[np.ndarray, list[Hessian]]] = []
        for problem, (w, b) in zip(problems, starts, strict=True):
            objective = Objective(problem, joint=newton or bool(samples))
            columns = 1 if objective.joint else objective.columns
            policy = decisions.policy(tol, data.n if newton else sketch, newton=newton, columns=columns)
            hessians = self._hessians(objective, newton=newton)
            self.models.append(Model(objective, policy, hessians, objective.vector(w, b)))

    def _hessians(self, objective: Objective, *, newton: bool) -> list[Hessian]:
        """Return the source of the Hessian of each column; models with equal penalties share it."""
        ridge = objective.column_ridge
        for known, hessians in self.hessians:
            if np.array_equal(known, ridge):
                return hessians
        if objective.joint:
            made: list[Hessian] = [JointHessian(self.data, ridge, objective.columns, self.decisions)]
        else:
            made = [
                hessian_of_all_rows(
                    self.data,
                    ridge,
                    self.decisions,
                    quadratic=objective.quadratic,
                    in_pieces=objective.in_pieces,
                )
                if newton
                else Sketches(self.data, ridge, self.decisions, in_pieces=objective.in_pieces)
                for _ in range(objective.columns)
            ]
        self.hessians.append((ridge, made))
        return made

    def evaluate(self) -> None:
        """Evaluate the trial points in one pass."""
        parts = [model.objective.parts(model.trial.x) for model in self.models]
        W, b = parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        W = np.ascontiguousarray(W, like=W)
        problems = [model.objective.problem for model in self.models]
        found = self.data.evaluate(W, b, Derivatives(problems), [each.row_vectors for each in problems])
        ends = list(itertools.accumulate(model.objective.columns for model in self.models))

        def receive(k: int) -> Any:
            model, own = self.models[k], slice(ends[k] - self.models[k].objective.columns, ends[k])
            gradient = model.objective.vector(found.gradients[own], found.slopes[own])
            margins = found.margins if len(self.models) == 1 else some_columns(found.margins, own)
            return model.receive(float(found.values[k]), gradient, margins)

        rejected = zip(self.models, self._each(range(len(self.models)), receive), strict=True)
        long = [(model, place) for model, place in rejected if place is not None]
        self._each(long, lambda pair: pair[0].shorten(pair[1]), self.data.n)

    def _each(self, items: Sequence[Any], work: Callable[[Any], Any], length: int = 0) -> list[Any]:
        """Do the work of each model, in threads if their vectors, or others of this length, are long and in memory."""
        x = self.models[0].trial.x
        if max(x.size, length) < LONG or is_elsewhere(x) or not items:
            return [work(item) for item in items]
        return workers().each(items, work)

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        made = self._passes_made()
        in_time, passes = self.advance(rng, deadline)
        if in_time and all(model.should_end for model in self.models):
            for model in self.models:
                model.skip()
        elif in_time:
            self.evaluate()
            passes += 1.0
        return passes + (self._passes_made() - made) / len(self.models)

    def advance(self, rng: np.random.Generator, deadline: float = math.inf) -> tuple[bool, float]:
        """Set the next trial points; return False if the deadline passes before, and the passes so far.

        The models do not move if it passes between two of their matrices.
        """
        passes = 0.0
        for hessian in itertools.chain.from_iterable(each for _, each in self.hessians):
            hessian.deadline = Deadline(deadline)
        if all(model.is_new for model in self.models):
            passes += self._start(rng)
        elif all(model.place.value == math.inf for model in self.models):
            self.evaluate()  # the unevaluated step failed certification: evaluate it
            passes += 1.0
        wanted = self._each(self.models, Model.wants_curvature)
        wanting = [model for model, wants in zip(self.models, wanted, strict=True) if wants]
        try:
            extra = compute_curvature(wanting, rng, Deadline(deadline).check) if wanting else 0.0
        except OutOfTime:
            return False, passes
        self._each(self.models, Model.step)
        return True, passes + extra / len(self.models)

    def _start(self, rng: np.random.Generator) -> float:
        """Evaluate the starting points, at the solution on samples if there are any; return the passes of these."""
        if not self.samples:
            self.evaluate()
            return 0.0
        found, passes = solve_samples(self, rng)
        for model, one in zip(self.models, found, strict=True):
            model.begin(one)
        self.evaluate()
        return passes

    def _passes_made(self) -> float:
        """The passes that products with the Hessian have taken."""
        return sum(hessian.passes_made / len(each) for _, each in self.hessians for hessian in each)

    def point(self, k: int) -> PrimalPoint:
        return self.models[k].objective.point(self.models[k].place.x)

    def keep(self, wanted: Sequence[int]) -> None:
        super().keep(wanted)
        used = {id(model.hessians) for model in self.models}
        self.hessians = [(ridge, each) for ridge, each in self.hessians if id(each) in used]

    def state(self) -> tuple[tuple[ModelState, tuple[Any, ...]], ...]:
        """Return the state of each model, with those of its Hessians, which several models may share."""
        return tuple((model.state(), tuple(hessian.state() for hessian in model.hessians)) for model in self.models)

    def restore(self, state: tuple[tuple[ModelState, tuple[Any, ...]], ...]) -> None:
        for model, (own, hessians) in zip(self.models, state, strict=True):
            model.restore(own, self.data)
            for hessian, known in zip(model.hessians, hessians, strict=True):
                hessian.restore(known)
