"""``dualnewton evaluate``: scores of a saved model on data."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.io import Dataset


@options.with_groups
def evaluate(
    model: options.Model,
    data: options.Data,
    roles: options.Roles = options.ROLE_DEFAULTS,
    table: options.Table = options.FILE_DEFAULTS,
    json: options.Json = False,
) -> None:
    """Score a MODEL that `fit` has saved on DATA, whose target is known.

    The scores of a classifier are the accuracy, the log loss if the model has probabilities, and the area under the ROC curve if
    there are two classes. Those of a regression are R2 (for poisson, gamma and tweedie D2, the share of the deviance that is
    explained), the root mean squared error and the mean absolute error. --weights gives each row its weight in them. A model that
    was fitted with --offset or --exposure needs the same column here.

    For example:

        dualnewton fit breast_cancer --out cancer.model
        dualnewton evaluate cancer.model breast_cancer --json
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import read_options
    from dualnewton.cli._tables import model_data
    from dualnewton.interop.model_file import SavedModel

    fitted = SavedModel.load(model)
    wanted, added = read_options(roles)
    dataset, _, notes = model_data(fitted, data, wanted, table, added)
    _output.warn(notes)
    scores = measured(fitted, dataset)
    if json:
        _output.as_json({"n": dataset.X.shape[0], **{name: _output.finite_or_none(x) for name, x in scores.items()}})
        return
    _output.say("data", f"{dataset.name}: {_output.count(dataset.X.shape[0], 'example')}")
    _output.table(("score", "value"), [(NAMES[name], f"{value:.6g}") for name, value in scores.items()])


NAMES = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "auc": "area under the ROC curve",
    "r2": "R2",
    "d2": "D2",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
}
"""The names of the scores in tables."""


def measured(model: SavedModel, dataset: Dataset) -> dict[str, float]:
    """Return the scores by name; a score that is undefined on these data is nan."""
    from dualnewton.cli._problems import objectives_of

    objectives_of(model, dataset)  # raises an error if the data do not match the model
    return of_values(model, dataset) if model.classes is None else of_classes(model, dataset)


def of_classes(model: SavedModel, dataset: Dataset) -> dict[str, float]:
    """Return the scores of a classifier."""
    import numpy as np
    from sklearn import metrics

    from dualnewton.interop.labels import codes_of

    assert model.classes is not None
    codes, c, o = codes_of(dataset.y, model.classes), dataset.sample_weight, dataset.offset
    scores = {"accuracy": model.score(dataset.X, dataset.y, c, offset=o)}
    if model.objective.has_probabilities:
        right = model.predict_proba(dataset.X, offset=o)[np.arange(len(codes)), codes]
        scores["log_loss"] = float(-np.average(np.log(np.maximum(right, np.finfo(float).tiny)), weights=c))
    if len(model.classes) == 2:
        both = len(np.unique(codes)) == 2
        margins = model.decision_function(dataset.X, offset=o)
        try:
            scores["auc"] = float(metrics.roc_auc_score(codes, margins, sample_weight=c)) if both else math.nan
        except ValueError as error:  # scikit-learn's validation, such as of margins that overflow
            raise DualnewtonError(f"{dataset.name}: the AUC cannot be computed: {error}") from error
    return scores


def of_values(model: SavedModel, dataset: Dataset) -> dict[str, float]:
    """Return the scores of a regression."""
    import numpy as np

    c, o = dataset.sample_weight, dataset.offset
    errors: Any = model.predict(dataset.X, offset=o) - np.asarray(dataset.y, dtype=float)
    return {
        "r2" if model.objective.power is None else "d2": model.score(dataset.X, dataset.y, c, offset=o),
        "rmse": math.sqrt(np.average(errors**2, weights=c)),
        "mae": float(np.average(np.abs(errors), weights=c)),
    }
