"""Interior points for convex piecewise linear losses as a method of the loop, for any kind of data.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,      z_i = ã_iᵀx + o_i,  ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

A penalty t_j |w_j| is one of the φ_i (:mod:`~dualnewton.solvers.primal.kinked_view`), and the ridge may be zero: then this is a
linear program, and n(P − D) is finite only once Σ c_i ã_i α_i = ridge ∘ x. Each of 10 to 30 steps
(:mod:`~dualnewton.solvers.primal.interior_steps`) factorises one weighted Gram matrix, whatever λ is.

When rounding ends the steps early, or the certificate misses ``tol``, the linear system of the examples on a kink
(:mod:`~dualnewton.solvers.dual.kink_system`) finishes. Without a ridge the nearest vertex is always tried
(:mod:`~dualnewton.solvers.primal.vertex`), which has coefficients that are exactly zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.dual.kink_system import solved_on_kinks
from dualnewton.solvers.primal.interior_search import Search, SearchState
from dualnewton.solvers.primal.interior_steps import Directions
from dualnewton.solvers.primal.kinked_view import View, root_mean_squares
from dualnewton.solvers.primal.step_systems import System
from dualnewton.solvers.primal.vertex import vertex_near
from dualnewton.solvers.protocol import Method, SinglePoint

NEAR = 1e-3
"""Relative gap above which the examples on a kink are not known well enough for their linear system."""

NEARLY = 100.0
"""A model with zeros is nearly accurate enough if its gap is within this factor of the tolerance."""


class InteriorPoint(Method):
    """Models over the same data, each with its own steps."""

    def __init__(
        self,
        # Problems that share X, with a piecewise linear loss and a penalty Σ ½ v_j w_j² + t_j |w_j|, which may be zero,
        # and their starting points.
        starts: Sequence[tuple[Problem, CertifiedPair]],
        # The linear system of the data for a ridge and the units of x.
        system_of: Callable[[np.ndarray, np.ndarray], System],
        *,
        tol: float,  # wanted relative gap
        # Limit on centrality corrections per step: each costs two or three products with the data, and saves some
        # steps.
        corrections: int,
        largest_system: int,  # limit on the examples in the linear system of the kinks
        crossovers: Crossovers = USUAL,  # from which size on examples are left out
        single: bool = False,  # whether the first matrices are computed in float32
    ) -> None:
        self.tol, self.corrections, self.largest_system, first = tol, corrections, largest_system, starts[0][0]
        self.problems = [problem for problem, _ in starts]
        weights = [problem.unit.sample_weight for problem in self.problems]
        # Rows that have no weight in any problem may be of any size.
        used = None if any(c is None for c in weights) else np.any([c > 0.0 for c in weights], axis=0)
        sizes = root_mean_squares(first.data, used, intercept=first.fit_intercept)
        self.views = [View(problem, sizes, system_of) for problem in self.problems]
        self.searches = [
            Search(view.terms, view.start(pair, single=single), view.losses, crossovers, restricts=view.is_ridge)
            for view, (_, pair) in zip(self.views, starts, strict=True)
        ]

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        epochs, check = 0.0, Deadline(deadline).check
        try:
            for search in self.searches:
                with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
                    epochs = max(epochs, self._advance(search, check, most))
        except OutOfTime:
            return max(epochs, 1.0)
        return epochs

    def _advance(self, search: Search, check: Callable[[], None], most: float) -> float:
        """Take a step of a model, and return the number of passes over the data; beyond ``most``, only necessary ones."""
        share = search.share
        passes = share * search.advance(fine=True, most=most / share, corrections=self.corrections, check=check)
        if search.kept is not None:
            search.is_over(self.tol)
        return passes

    # The interface of the loop ------------------------------------------------------------------------------------------------

    def point(self, k: int) -> KinkedPoint | VertexPoint:
        view, search = self.views[k], self.searches[k]
        if not view.has_ridge:
            return self._vertex_point(view, search, NEARLY if view.thresholds and not search.is_stuck else 1.0)
        w, alpha = search.best.x[: view.rows.d], view.dual_point(search.all_p())
        if view.thresholds:
            return KinkedPoint(w, alpha)
        at, vertices = view.nearest_vertices(search.boxes())
        if np.count_nonzero(~np.isnan(at)) > self.largest_system:
            return KinkedPoint(w, alpha)
        return KinkedPoint(w, alpha, (self.tol, math.inf if search.is_stuck else NEAR), at, vertices)

    def _vertex_point(self, view: View, search: Search, nearly: float) -> VertexPoint:
        """Return w, b and α, with p moved by the Newton step that removes the remaining imbalance, and the vertex."""
        terms, state = view.terms, search.best
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            directions = Directions(terms, state)
            moved = directions.balancing()
            if not np.isfinite(moved).all():  # both slacks of a kink are zero, and its curvature is infinite
                moved = np.zeros_like(moved)
            balanced = np.clip(state.boxes[0] + moved, 0.0, terms.jumps)
            vertex = vertex_near(view, state.x, state.boxes[0], directions.D)
        points = [] if vertex is None else [vertex]
        if vertex is None and view.thresholds:
            points.append((view.with_zeros(state), balanced))
        points.append((state.x, balanced))
        return VertexPoint(tuple((*terms.system.model(x), view.dual_point(p)) for x, p in points), self.tol, nearly)

    def residual(self, k: int) -> float:
        return self.searches[k].gap / self.problems[k].n

    def is_stuck(self, k: int) -> bool:
        return self.searches[k].is_stuck

    def keep(self, wanted: Sequence[int]) -> None:
        for name in ("problems", "views", "searches"):
            setattr(self, name, [getattr(self, name)[k] for k in wanted])

    def state(self) -> tuple[SearchState, ...]:
        return tuple(search.known() for search in self.searches)

    def restore(self, state: tuple[SearchState, ...]) -> None:
        for search, known in zip(self.searches, state, strict=True):
            search.restore(known)


@dataclass(frozen=True, eq=False)
class KinkedPoint(SinglePoint):
    """w and α, and the examples that seem to lie on a kink, whose linear system is tried if w and α miss the tolerance."""

    w: np.ndarray
    alpha: np.ndarray
    tried: tuple[float, float] = (math.inf, math.inf)  # range of relative gaps
    at: np.ndarray | None = None
    vertices: np.ndarray | None = None

    @property
    def parts(self) -> tuple[Any, ...]:
        return (self.w, self.alpha)

    def certified_by(self, problem: Problem) -> CertifiedPair:
        """Have the problem certify w and α and, if their gap is too large, the solution of the linear system of the kinks."""
        pair, (least, most) = problem.certified_pair(self.w, alpha=self.alpha), self.tried
        if not least < pair.certificate.relative_gap <= most or self.at is None or self.vertices is None:
            return pair
        found = solved_on_kinks(problem, self.vertices, self.at)
        return pair if found is None else problem.certified_pair(found[0], alpha=found[1]).joined_with(pair)


@dataclass(frozen=True, eq=False)
class VertexPoint(SinglePoint):
    """A vertex of a linear program, or a point with zeros for small coefficients, and the interior point: w, b and α of each.

    If the first meets the tolerance, or nearly does (within a factor), the second is not certified, since a few more steps then
    give a model with zeros.
    """

    points: tuple[tuple[np.ndarray, float, np.ndarray], ...]
    tol: float
    nearly: float

    @property
    def parts(self) -> tuple[Any, ...]:
        return tuple(chain.from_iterable(self.points))

    def certified_by(self, problem: Problem) -> CertifiedPair:
        """Have the problem certify the first point and, if its relative gap is too large, the interior point."""
        first, *others = self.points
        pair = problem.certified_pair(*first)
        if others and pair.certificate.relative_gap > self.nearly * self.tol:
            pair = pair.joined_with(problem.certified_pair(*others[0]))
        return pair
