"""All kernels of fits, compiled in advance: the steps of ``dualnewton warm-up``.

Each step runs the code of a fit on data of two rows, which compiles the kernels for the types that fits use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton import losses
from dualnewton.losses import Loss
from dualnewton.matrix import RowVectors
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Shuffled
from dualnewton.validation import frozen

STORAGES, DTYPES = ("dense", "csr"), ("float64", "float32")

SMOOTH: tuple[Loss, ...] = (
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.Squared(),
    losses.Huber(),
    losses.SmoothHinge(),
    losses.SquaredEpsilonInsensitive(),
)
"""The losses that are compiled into the rounds of single examples; all other losses share one kernel."""

BY_ADDRESS: tuple[Loss, ...] = (losses.Poisson(), losses.Gamma(), losses.Tweedie())
"""Losses that rounds of single examples call through addresses; these losses share one kernel."""

OTHERS = (
    losses.Hinge(),
    losses.EpsilonInsensitive(),
    losses.Quantile(),
    losses.SmoothEpsilonInsensitive(),
    losses.SmoothQuantile(),
)
"""Further losses of one column, which are compiled for passes only."""

OF_COLUMNS = losses.Softmax(2), losses.SquaredOutputs(2)
"""Losses of several columns, which are compiled for passes, once for any number of columns."""


@dataclass(frozen=True)
class Step:
    """The compilation of a few kernels: its purpose, and a function that does it."""

    name: str
    prepare: Callable[[], Any]


def steps(storages: tuple[str, ...] = STORAGES, dtypes: tuple[str, ...] = DTYPES) -> Iterator[Step]:
    """Yield the compilation of all kernels for these storages and types of data, starting with those that most fits use."""
    kinds = [(storage, dtype) for storage in storages for dtype in dtypes]
    for storage, dtype in kinds:
        X = _matrix(storage, dtype)
        yield Step(f"{storage} {dtype}: passes", partial(_passes, X))
        for loss in (*SMOOTH, losses.Hinge(), BY_ADDRESS[0]):
            yield Step(f"{storage} {dtype}: rounds, {type(loss).__name__}", partial(_rounds, X, loss, 1))
        for loss in SMOOTH if storage == "csr" else ():
            if loss.curvature is not losses.Curvature.CONSTANT:
                name = f"{storage} {dtype}: rounds that shrink, {type(loss).__name__}"
                yield Step(name, partial(_rounds, X, loss, 1, shrinks=True))
    yield Step("coordinate descent", _coordinate_descent)
    for loss in (*SMOOTH, *BY_ADDRESS):
        yield Step(f"loss {type(loss).__name__}", partial(_pointers, loss))
    yield Step("linear functions of rows", _linear_functions)
    yield Step("linear algebra", _linear_algebra)
    for each in (*SMOOTH, *BY_ADDRESS, *OTHERS, *OF_COLUMNS):
        yield Step(f"loss {type(each).__name__} in passes", partial(_row_functions, each))
    for storage, dtype in kinds:
        X, name = _matrix(storage, dtype), f"{storage} {dtype}: rounds of blocks"
        for loss, what in ((SMOOTH[0], "smooth losses"), (losses.Hinge(), "piecewise linear losses")):
            yield Step(f"{name}, {what}, minibatch SDCA", partial(_rounds, X, loss, 2, separable_rounds=True))
        yield Step(f"{name}, piecewise linear losses, SDNA", partial(_rounds, X, losses.Hinge(), 2))
    # Rounds of SDNA on long dense rows in float64 may read a copy in float32 (``planning.dual.narrows``).
    copies = {("dense", "float32")} if ("dense", "float64") in kinds else set()
    for storage, dtype in sorted({*kinds, *copies}):
        X, name = _matrix(storage, dtype), f"{storage} {dtype}: rounds of blocks"
        yield Step(f"{name}, smooth losses, SDNA", partial(_rounds, X, SMOOTH[0], 2))
        if storage != "csr":
            yield Step(f"{name}, several models", partial(_rounds, X, SMOOTH[0], 2, models=2))


def _matrix(storage: str, dtype: str) -> Any:
    X = np.eye(2, dtype=dtype)
    return sp.csr_array(X) if storage == "csr" else X


def _rounds(X: Any, loss: Loss, tau: int, *, models: int = 1, **options: bool) -> None:
    from dualnewton.solvers.dual.compiled import CompiledEngine

    problems = [Problem(X, np.ones(2), loss, lam=1.0)] * models
    CompiledEngine(problems, Shuffled(2, tau), [np.zeros(2)] * models, **{"separable_rounds": False} | options)


def _passes(X: Any) -> None:
    from dualnewton.kernels import columns, passes
    from dualnewton.kernels.rows import Rows
    from dualnewton.matrix import linear
    from dualnewton.matrix.compiled import CompiledPasses

    rows, vector, matrix = Rows.of(X), np.zeros(2), np.zeros((2, 2))
    compiled = CompiledPasses(X, [slice(0, 2)])
    compiled.times(vector)
    compiled.transposed_times(vector)
    compiled.diagonal(vector)
    compiled.row_scores(vector)
    if compiled.sparse:
        compiled.ranges(2)
    for single in (False, True):
        compiled.gram(vector, np.arange(2), single=single)
    passes.curvature.prepare(*rows, frozen(np.arange(2)), frozen(vector), matrix, vector)
    wide = sp.csr_array(np.eye(2))  # gathered features, and the rows of direct solutions, are float64
    linear.sums_of_rows(wide)
    number, sparse = np.zeros(1, dtype=np.intp), Rows.of(wide)
    columns.column_rounds.prepare(*sparse, *[vector] * 11, 0.0, 0.0, 0.0, 1, number, vector, 1, vector, vector, number)


def _coordinate_descent() -> None:
    from dualnewton.kernels import joint, quadratic

    vector, matrix, several = np.zeros(1), np.zeros((1, 1)), np.zeros((1, 1, 1))
    addresses = np.zeros(1, dtype=np.intp)
    quadratic.sweeps.prepare(matrix, *[vector] * 6, 1, 0.0)
    quadratic.minima.prepare(
        several, matrix, vector, matrix, matrix, 1, matrix, matrix, vector, vector, matrix, 1, 1, addresses, matrix,
        several, several, addresses,
    )  # fmt: skip
    joint.sweeps.prepare(matrix, matrix, matrix, vector, vector, 1, 0.0)
    joint.path.prepare(matrix, matrix, 0.0, matrix, matrix, vector, vector, 0.0, 1, addresses, several)


def _pointers(loss: Loss) -> None:
    from dualnewton.kernels.losses import compiled

    compiled(loss)


def _linear_functions() -> None:
    from dualnewton.kernels import row_functions
    from dualnewton.matrix.over_rows import dual_sums, sum_over_rows
    from dualnewton.matrix.selections import find_places

    zero = np.zeros(2)
    find_places(zero, zero)
    dual_sums(None, SMOOTH[0], zero, RowVectors(zero, None, None))
    sum_over_rows(row_functions.weighted(), SMOOTH[0], zero, RowVectors(zero, None, None), factors=zero)


def _linear_algebra() -> None:
    from dualnewton.kernels import part_sums, team
    from dualnewton.matrix import factors, few_rows, linear, vectors

    team.prepare()
    matrix = np.zeros((1, 1))
    part_sums.totals.prepare(np.zeros(1, dtype=np.int64), 1, 1, matrix, matrix)
    part_sums.gram_totals.prepare(np.zeros(1, dtype=np.int64), 1, np.zeros((1, 1, 1)), matrix)
    part_sums.interleaved.prepare(np.zeros(1, dtype=np.int64), 1, matrix, matrix)
    long = np.ones(vectors.LONG)
    vectors.combination(vectors.products([(long, long)]), [long])
    vectors.penalised(*[long] * 4)
    vectors.combination_along(np.ones(1), [long], long)
    vectors.pair([long] * 3, [long] * 3, [long], long)
    linear.gram(sp.csr_array((linear.MANY + 1, 2)))
    shared = few_rows.SharedRows(sp.csr_array(np.eye(2)), np.ones(2))
    shared.outside(shared.inside(np.ones(2), np.ones(2)), np.ones(2))
    factor, _ = factors.by_tiles(np.eye(2))
    factors.solved_by_tiles(factor, np.ones(2))


def _row_functions(loss: Loss) -> None:
    from dualnewton.kernels import row_functions

    for function in row_functions.OF_LOSSES:
        function(loss)
