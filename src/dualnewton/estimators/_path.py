"""A regularisation path: one estimator fitted for many strengths of its penalty, each fit started from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from dualnewton.errors import DualnewtonError
from dualnewton.objective.certificate import Certificate
from dualnewton.run.result import Result, Status
from dualnewton.validation import vector


@dataclass(frozen=True, eq=False)
class Path:
    """The models of a path, in the order in which their values were given; if it was interrupted, those fitted so far."""

    values: np.ndarray  # (m,) strengths of the penalty
    coef: np.ndarray  # (m, …) ``coef_`` of each model
    intercept: np.ndarray  # (m, …) ``intercept_`` of each model
    certificates: list[Certificate | list[Certificate]]  # ``certificate_`` of each model
    models: list[Any]  # fitted estimators

    def __repr__(self) -> str:
        low, high = self.values.min(), self.values.max()
        return f"Path({len(self.values)} models, values {low:.3g} to {high:.3g}, coef {self.coef.shape})"


def walk(model: Any, X: Any, y: Any, values: Any, sample_weight: Any) -> Path:
    """Fit copies of ``model``, from the strongest penalty to the weakest; the data are checked once."""
    values = vector("values", values, np.size(values))
    if values.size == 0:
        raise DualnewtonError(f"values must hold at least one value of {model._strength}, got none")
    fitted: dict[int, Any] = {}
    before: Sequence[Result] | None = None
    first = clone(model)
    data = first._checked(X, y, sample_weight)
    # The penalty increases with alpha and decreases with C.
    order = np.argsort(values if model._weakens else -values, kind="stable")
    at_once = first._path_results(data, values[order])
    for k, place in enumerate(order):
        one = clone(model).set_params(**{model._strength: float(values[place])})
        one._validate_params()
        vars(one).update({name: value for name, value in vars(first).items() if name.endswith("_")})
        fitted[int(place)] = one._fit(data, before) if at_once is None else one._adopt(data, at_once[k])
        before = one._fitted
        if any(result.status is Status.INTERRUPTED for result in before):
            break  # Ctrl-C ends the path; the models fitted so far are returned
    done = sorted(fitted)
    models = [fitted[place] for place in done]
    return Path(
        values[done],
        np.stack([one.coef_ for one in models]),
        np.stack([one.intercept_ for one in models]),
        [one.certificate_ for one in models],
        models,
    )
