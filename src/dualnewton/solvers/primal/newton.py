"""Newton's method and its sketch as the loop drives them, one iteration per step of the loop.

Each iteration takes x⁺ = x − t B⁻¹∇ where B is the curvature of rows (``curvature.py``): of all of them, which is SDNA with τ = n
(Newton's method), or of a sketch of τ (Section 6 of the paper), corrected by the last gradients. A full gradient costs one
pass; :class:`Decisions` says when another sketch is computed, and how large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.matrix.workers import workers
from dualnewton.objective.bounds import Derivatives
from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import is_elsewhere
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
    """Models that move together: their trial points share the passes.

    Parameters
    ----------
    problems : sequence of problems
        They share X.
    data : Data
        The data.
    starts : sequence of (w, intercept)
        Where the models start.
    tol : float
        The relative gap that is wanted.
    sketch : int
        τ, the rows of the first sketch.
    newton : bool
        Whether the curvature is that of all rows, at every step.
    decisions : Decisions
        When curvature is computed, from how many rows and in which form.
    samples : sequence of int
        The sizes of the samples of rows on which problems that start at w = 0 are solved first (``samples.py``).
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        data: Data,
        starts: Sequence[tuple[np.ndarray, Any]],
        *,
        tol: float,
        sketch: int,
        newton: bool,
        decisions: Decisions,
        samples: Sequence[int] = (),
    ) -> None:
        self.data, self.models, self.decisions = data, [], decisions
        self.samples = samples if not any(np.any(w) for w, _ in starts) else ()
        self.hessians: dict[bytes, list[Hessian]] = {}
        for problem, (w, b) in zip(problems, starts, strict=True):
            objective = Objective(problem, joint=newton or bool(samples))
            policy = decisions.policy(
                tol,
                data.n if newton else sketch,
                newton=newton,
                coupled=objective.columns > 1 and not objective.joint,
                quadratic=objective.quadratic,
            )
            hessians = self._hessians(objective, newton=newton)
            self.models.append(Model(objective, policy, hessians, objective.vector(w, b)))

    def _hessians(self, objective: Objective, *, newton: bool) -> list[Hessian]:
        """Return where the curvature of each column comes from; models with the same penalties have the same sources."""
        ridge = objective.column_ridge
        if (key := ridge.tobytes()) not in self.hessians and objective.joint:
            self.hessians[key] = [JointHessian(self.data, ridge, objective.columns, self.decisions)]
        elif key not in self.hessians:
            self.hessians[key] = [
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
        return self.hessians[key]

    def _evaluate(self) -> None:
        parts = [model.objective.parts(model.trial.x) for model in self.models]
        W, b = np.concatenate([W for W, _ in parts]), np.concatenate([b for _, b in parts])
        problems = [model.objective.problem for model in self.models]
        found = self.data.evaluate(W, b, Derivatives(problems), [each.row_vectors for each in problems])
        ends = np.cumsum([model.objective.columns for model in self.models])

        def receive(k: int) -> None:
            model, own = self.models[k], slice(ends[k] - self.models[k].objective.columns, ends[k])
            gradient = model.objective.vector(found.gradients[own], found.slopes[own])
            model.receive(
                float(found.values[k]), gradient, np.ascontiguousarray(found.margins[:, own], like=found.margins)
            )

        self._each(range(len(self.models)), receive)

    def _each(self, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Do the work of each model, in threads if their vectors are long and in memory."""
        x = self.models[0].trial.x
        if x.size < LONG or is_elsewhere(x):
            return [work(item) for item in items]
        return workers().each(items, work)

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        # The models stay where they are if the deadline passes between two of their matrices.
        made, passes = self._passes_made(), 0.0
        if all(model.is_new for model in self.models):
            passes += self._start(rng)
        elif all(model.place.value == math.inf for model in self.models):
            self._evaluate()  # the unevaluated step failed certification: evaluate it
            passes += 1.0
        wanted = self._each(self.models, Model.wants_curvature)
        wanting = [model for model, wants in zip(self.models, wanted, strict=True) if wants]
        try:
            extra = compute_curvature(wanting, rng, Deadline(deadline).check)
        except OutOfTime:
            return passes + (self._passes_made() - made) / len(self.models)
        self._each(self.models, Model.step)
        if all(model.should_end for model in self.models):
            for model in self.models:
                model.skip()
        else:
            self._evaluate()
            passes += 1.0
        return passes + (extra + self._passes_made() - made) / len(self.models)

    def _start(self, rng: np.random.Generator) -> float:
        """Evaluate where the models start, at the solution on samples if there are any; return the passes of these."""
        if not self.samples:
            self._evaluate()
            return 0.0
        found, passes = solve_samples(self, rng)
        for model, one in zip(self.models, found, strict=True):
            model.begin(one)
        self._evaluate()
        return passes

    def _passes_made(self) -> float:
        """The passes that products with the Hessian have taken."""
        return sum(hessian.passes_made / len(each) for each in self.hessians.values() for hessian in each)

    def point(self, k: int) -> PrimalPoint:
        return self.models[k].objective.point(self.models[k].place.x)

    def keep(self, wanted: Sequence[int]) -> None:
        super().keep(wanted)
        used = {model.objective.column_ridge.tobytes() for model in self.models}
        self.hessians = {key: each for key, each in self.hessians.items() if key in used}

    def state(self) -> tuple[tuple[ModelState, tuple[Any, ...]], ...]:
        """Return the state of each model, with those of its Hessians, which it may share with others."""
        return tuple((model.state(), tuple(hessian.state() for hessian in model.hessians)) for model in self.models)

    def restore(self, state: tuple[tuple[ModelState, tuple[Any, ...]], ...]) -> None:
        for model, (own, hessians) in zip(self.models, state, strict=True):
            model.restore(own, self.data)
            for hessian, known in zip(model.hessians, hessians, strict=True):
                hessian.restore(known)
