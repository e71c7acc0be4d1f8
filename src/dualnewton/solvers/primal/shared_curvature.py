"""One Hessian estimate for several models with similar Hessians, such as the folds of a cross-validation.

The Hessian of a fold differs from the mean over the folds by a fraction of the rows, which L-BFGS corrects.
The outputs of a least-squares fit have the same Hessian. One sketch and one factor then serve all these models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.matrix import count_active
from dualnewton.row_arrays import column_sums, on_host
from dualnewton.solvers.primal.curvature import Curvature, Together
from dualnewton.solvers.primal.model import Model
from dualnewton.solvers.primal.sketching import Enough, Hessian

CLOSE = 0.5
"""Largest relative difference of a model's weights from the mean at which it shares a sketch, which L-BFGS then corrects."""

SAME = 1e-9
"""The same for Newton's method, which has no corrections: only equal weights, up to rounding, are shared."""


def compute_curvature(models: Sequence[Model], rng: np.random.Generator, check: Callable[[], None]) -> float:
    """Compute new curvature for these models; return the work in epochs.

    ``check`` is called before each matrix except the first; it may raise an exception to stop the work.
    """
    epochs, sums = 0.0, dict[int, np.ndarray]()
    groups: Iterable[Any] = (each for group in _alike(models) for each in _close(group))
    if models and models[0].objective.problem.data.capabilities.by_messages:
        groups = list(groups)
        sums = _sums_together(groups)
    for k, (group, weights, shares) in enumerate(groups):
        if k:
            check()
        epochs += _compute(group, weights, rng, shares=shares, total=sums.get(k))
    return epochs


def _sums_together(groups: Sequence[tuple[list[Model], np.ndarray, bool]]) -> dict[int, np.ndarray]:
    """Return Aᵀ D(weights) A of the groups that need it from all rows, by their number, from one operation of the data."""
    wanted = {
        k: np.ascontiguousarray(weights[:, 0], like=weights)
        for k, (group, weights, _) in enumerate(groups)
        if weights.shape[1] == 1 and group[0].hessians[0].sums_all(group[0].policy.rows)
    }
    if len(wanted) < 2:
        return {}
    first: Any = groups[next(iter(wanted))][0][0].hessians[0]
    found = first.data.weighted_grams(list(wanted.values()), intercept=first.intercept)
    return dict(zip(wanted, found, strict=True))


def _alike(models: Sequence[Model]) -> list[list[Model]]:
    """Group models that may share a curvature: by the penalties, the size of the sketch and the number of columns."""
    groups: list[list[Model]] = []
    for model in models:
        for group in groups:
            if model.policy.rows == group[0].policy.rows and np.array_equal(
                model.objective.ridge, group[0].objective.ridge
            ):
                group.append(model)
                break
        else:
            groups.append([model])
    return groups


def _close(models: Sequence[Model]) -> Iterator[tuple[list[Model], np.ndarray, bool]]:
    """Yield models of a group that share a curvature, its weights, and whether these differ from the models' own.

    Those with nearly equal weights share one, and each of the others has its own.
    """
    weights = [model.objective.curvature(model.place.margins) for model in models]
    if len(models) == 1:
        yield list(models), weights[0], False
        return
    mean = sum(weights[1:], start=weights[0]) / len(models)
    apart = [float(np.abs(own - mean).sum()) / (float(mean.sum()) or 1.0) for own in weights]
    # A model that needs a new curvature after a shared one gets its own.
    close = [SAME if model.policy.newton or model.shares else CLOSE for model in models]
    together = [k for k in range(len(models)) if apart[k] <= close[k]]
    shares = max((apart[k] for k in together), default=0.0) > SAME
    if together:
        yield [models[k] for k in together], mean, shares
    for k in range(len(models)):
        if k not in together:
            yield [models[k]], weights[k], False


def _compute(
    models: Sequence[Model],
    weights: np.ndarray,
    rng: np.random.Generator,
    *,
    shares: bool,
    total: np.ndarray | None = None,
) -> float:
    """Compute the curvature for these weights, one of their columns at a time or from a known sum, for these models."""
    policy = models[0].policy
    enough = Enough(
        min(model.negligible for model in models),
        np.stack([model.place.gradient for model in models]),
        np.array([model.place.value for model in models]),
    )
    if total is None:
        each = _each(models[0].hessians, weights, policy.rows, rng, enough)
    else:
        each = [models[0].hessians[0].of_sum(total, weights)]
    curvature = each[0] if len(each) == 1 else Together(tuple(each))
    # A new Hessian of all rows is computed at each step of Newton's method, however many of them have a weight.
    active = len(weights) if policy.newton else max(1, int(count_active(weights) / weights.shape[1]))
    for model in models:
        model.use(curvature, active, shares=shares)
    return sum(hessian.rows_read for hessian in models[0].hessians) / len(each) / len(weights)


def _each(
    hessians: Sequence[Hessian], weights: np.ndarray, size: int, rng: np.random.Generator, enough: Enough
) -> list[Curvature]:
    """Return the curvature of each column."""
    columns = [np.ascontiguousarray(weights[:, k], like=weights) for k in range(weights.shape[1])]
    if hessians[0].joint:
        return [hessians[0].at(columns, size, rng, enough)]
    factors = _multiples_of_first(weights)
    if factors is not None:
        return hessians[0].multiples(columns[0], factors, size, rng, enough)
    return [hessian.at(own, size, rng, enough) for hessian, own in zip(hessians, columns, strict=True)]


def _multiples_of_first(weights: np.ndarray) -> list[float] | None:
    """Return the factors by which the columns are multiples of the first one; None if they are not.

    At the start, where the margins of all rows are the intercepts, those of softmax are: the weight of class k is p_k(1 − p_k) in
    each row. One Gram matrix then serves all classes. Its noise is the same for all of them, too, so that steps keep the sum of
    the coefficients over the classes, on which the losses do not depend: on dense data, steps from a sample of the rows are twice
    as many if each class has a sample of its own.
    """
    if weights.shape[1] == 1:
        return [1.0]
    totals = np.asarray(on_host(column_sums(weights)))
    if not totals[0] > 0.0:
        return None
    factors = totals / totals[0]
    apart = float(np.abs(weights - weights[:, :1] * np.asarray(factors, like=weights)).sum())
    return factors.tolist() if apart <= SAME * float(totals.sum()) else None
