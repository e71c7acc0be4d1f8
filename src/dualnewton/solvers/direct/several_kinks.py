"""Interior-point steps for several small models over the same rows at once, such as the classes of a one-vs-rest SVM.

The sum of K objectives that share no variable is one objective, whose matrix has K blocks. Its steps are those of ``kinks.py``:
on small data a NumPy call takes longer than its arithmetic, and here each call computes all models. Since the models share the
length of a step, they take about one step more than the slowest of them would alone; they end when the gap of each is small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg.lapack import dpotrs

from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct import squares
from dualnewton.solvers.direct.block import Block, Found, Limits, Solver, Start, one_by_one
from dualnewton.solvers.direct.kinks import FINE
from dualnewton.solvers.primal.interior_search import CLOSE, NEAR, TIGHTER, Search
from dualnewton.solvers.primal.interior_steps import Terms, starting_state
from dualnewton.solvers.primal.step_systems import Check, System, cholesky


def solve(
    problems: Sequence[Problem],
    block: Block,
    starts: Sequence[Start | None],
    limits: Limits,
    *,
    alone: Solver,  # direct solver of one model, for models that differ in more than labels and penalty
) -> list[Found]:
    """Take steps until the gap of every model is small enough, or rounding stops them."""
    first, d = problems[0], problems[0].d
    like = all(each.loss == first.loss and each.fit_intercept == first.fit_intercept for each in problems)
    if not like or any(each.sample_weight is not None or each.offset is not None for each in problems):
        return one_by_one(alone, problems, block, starts, limits)
    y, columns = np.concatenate([each.y for each in problems]), np.ones((d + first.fit_intercept, first.n))
    columns[:d] = block.rows.T
    kinks = first.loss.kinks(y)
    positions, jumps = np.array([k.position for k in kinks]), np.array([k.right - k.left for k in kinks])
    alike = len({each.lam for each in problems}) == 1
    system = Models(columns, d, squares.ridges(problems), block.crossovers.joined_unknowns, alike)
    steps = 1  # the start is a step
    with np.errstate(all="ignore"):  # the certificate would show a point that overflow has made wrong
        terms = Terms(system, positions, jumps, kinks[0].left, None)
        if (at := starting_state(terms)) is None:
            return one_by_one(alone, problems, block, starts, limits)
        search = Search(terms, at, lambda z: first.loss.value(z, y), block.crossovers)
        while steps < limits.most and not search.is_stuck and not limits.is_late():
            search.advance(fine=search.state.gap < FINE * search.value)
            steps += 1
            if search.best.gap <= NEAR * limits.tol * search.value and _all_end(search, CLOSE * limits.tol):
                break
        alpha = first.loss.nearest_dual(-terms.least - terms.fold(search.best.boxes[0]), y)
    parts = zip(search.best.x.reshape(len(problems), -1), alpha.reshape(len(problems), -1), strict=True)
    return [Found(x[:d].copy(), float(x[d]) if len(x) > d else 0.0, steps, own) for x, own in parts]


def _all_end(search: Search, tol: float) -> bool:
    """Whether the gap of each model is at most ``tol`` of its value."""
    terms, best, system = search.whole, search.best, search.whole.system
    z = system.margins(best.x)
    r = z - terms.kinks
    over = terms.fold(terms.jumps * np.maximum(r, 0.0) - best.boxes[0] * r)
    values = system.by_model(search.losses(z)) + system.by_model(0.5 * system.ridge * best.x * best.x)
    search.value = float(values.sum())
    imbalance = terms.imbalance(best.x, best.boxes[0])
    gaps = system.by_model(over) + TIGHTER * system.gaps(imbalance, best.unit)
    return bool((gaps <= tol * values).all())


class Models(System):
    """K models over the same rows: x has the variables of one model after the other, and so have the examples."""

    def __init__(
        self,
        columns: np.ndarray,  # (m, n) Ãᵀ in C order
        d: int,  # number of features
        ridges: np.ndarray,  # (K, m) λn v_j, and 0 for the intercept
        joined: int,  # unknowns of all models up to which their systems are solved as one
        alike: bool,  # whether all models have the same ridges
    ) -> None:
        super().__init__(d, ridges.reshape(-1))
        self.K, self.columns, self.rows = len(ridges), columns, np.ascontiguousarray(columns.T)
        self.scaled, self.H = np.empty((self.K, *columns.shape)), np.empty((self.K, len(columns), len(columns)))
        self.flat = self.scaled.reshape(-1, self.rows.shape[0]), self.H.reshape(-1, len(columns))  # views
        self.diagonals, self.alike = self.H.reshape(self.K, -1)[:, :: len(columns) + 1], alike
        size, self.joined = self.K * len(columns), None
        if size <= joined:
            self.joined = np.zeros((size, size))
            self.blocks = np.einsum("kikj->kij", self.joined.reshape(self.K, len(columns), self.K, -1))  # a view

    def margins(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(self.K, -1).dot(self.columns).reshape(-1)

    def sums(self, mass: np.ndarray) -> np.ndarray:
        return mass.reshape(self.K, -1).dot(self.rows).reshape(-1)

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        right = self.sums(mass)
        right += imbalance
        dx = self.solved(np.negative(right, out=right))
        return dx, self.margins(dx)

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float, *, single: bool) -> np.ndarray | None:
        if not self.alike:
            return super().fitted(targets, c, width, single=single)
        H = self.columns.dot(self.rows)  # the matrix of each model, since no example has a weight
        H.reshape(-1)[:: len(H) + 1] += width * self.ridge[: len(H)]
        factor = cholesky(H.T)
        return (
            None if factor is None else dpotrs(factor, self.sums(targets).reshape(self.K, -1).T, lower=1)[0].T.ravel()
        )

    def curve(self, weights: np.ndarray, ridge: np.ndarray, *, check: Check, single: bool) -> bool:  # noqa: ARG002
        np.multiply(weights.reshape(self.K, 1, -1), self.columns, out=self.scaled)
        self.flat[0].dot(self.rows, out=self.flat[1])
        self.diagonals += ridge.reshape(self.K, -1)
        if self.joined is not None:
            self.blocks[...] = self.H
            self.factors = [cholesky(self.joined.T)]
        else:
            self.factors = [cholesky(H.T) for H in self.H]
        return all(factor is not None for factor in self.factors)

    def solved(self, right: np.ndarray) -> np.ndarray:
        if self.joined is not None:
            return np.asarray(dpotrs(self.factors[0], right, lower=1, overwrite_b=1)[0])
        parts = zip(self.factors, right.reshape(self.K, -1), strict=True)
        return np.concatenate([dpotrs(factor, own, lower=1)[0] for factor, own in parts])

    def by_model(self, values: np.ndarray) -> np.ndarray:
        """Return the sum over the entries of each model."""
        return np.add.reduce(values.reshape(self.K, -1), axis=1)

    def gaps(self, imbalance: np.ndarray, unit: float) -> np.ndarray:
        """What an imbalance adds to n(P − D) of each model: see :meth:`System.gap`."""
        own = self.halves * imbalance * imbalance
        return self.by_model(own if self.loose is None else own + unit * self.loose * np.abs(imbalance))
