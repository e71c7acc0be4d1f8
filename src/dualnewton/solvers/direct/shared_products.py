"""Newton's method by products with X for several models over the same rows, such as the folds of a cross-validation.

Each model takes the steps of ``conjugate.py``. The vectors with which their systems are to be multiplied next are columns of one
matrix, so that a product reads each entry of X once for all models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualnewton.matrix import Data
from dualnewton.matrix.protocol import Work
from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct import conjugate
from dualnewton.solvers.direct.block import Block, Found, Limits, Solver, Start
from dualnewton.solvers.direct.conjugate import Asked

FEW = 3
"""Number of columns up to which they are multiplied one by one: SciPy takes longer for two columns than for a vector twice."""


def solve(
    problems: Sequence[Problem],
    block: Block,
    starts: Sequence[Start | None],
    limits: Limits,
    *,
    alone: Solver,  # noqa: ARG001 (no model leaves the others)
    directions: int = 0,
) -> list[Found]:
    """Solve each problem; ``directions`` is that of :func:`conjugate.search`."""
    searches = [
        conjugate.search(problem, block, start, limits, directions)
        for problem, start in zip(problems, starts, strict=True)
    ]
    products = _Products.of(block, len(problems))
    asked, found, answers = dict[int, Asked](), dict[int, Found](), dict[int, np.ndarray | None]()
    answers.update(dict.fromkeys(range(len(problems))))
    while answers:
        for k, answer in answers.items():
            try:
                asked[k] = searches[k].send(answer)  # type: ignore[arg-type]  # None begins a search
            except StopIteration as end:
                found[k] = end.value
                asked.pop(k, None)
        answers = dict(zip(asked, products.of_all(list(asked.values())), strict=True))
    return [found[k] for k in range(len(problems))]


@dataclass(frozen=True)
class _Products:
    """Products of X with the vectors of several systems: those of sparse rows by kernels, if the rows are many."""

    data: Data | None  # None for dense rows, which are multiplied in float32

    @classmethod
    def of(cls, block: Block, models: int) -> _Products:
        """Return the products for up to this number of models; kernels are used if they save more than their loading time."""
        data = block.data
        return cls(data.using(Work(compiled=True, whole=models * data.profile.stored)) if data.profile.sparse else None)

    def of_all(self, asked: Sequence[Asked]) -> list[np.ndarray]:
        """Return the products of all systems with their vectors."""
        K = asked[0].system.risk.loss.columns if asked else 0
        if K * len(asked) <= FEW:
            return [system.times(p) for system, p in asked]
        images, sums = asked[0].system.risk.products
        if self.data is not None:
            images, sums = self.data.times, self.data.transposed_times
        T = images(np.concatenate([p.reshape(-1, K) for _, p in asked], axis=1))
        for k, (system, _) in enumerate(asked):
            own = T[:, k] if K == 1 else T[:, k * K : (k + 1) * K]
            own[...] = system.between(own)
        S, found = sums(T), []
        for k, (system, p) in enumerate(asked):
            own = np.ascontiguousarray(S[:, k * K : (k + 1) * K])
            found.append(system.ridged(own.reshape(-1), p))
        return found
