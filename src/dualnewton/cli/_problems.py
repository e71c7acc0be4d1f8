"""The problems that the options of a command and a data set define."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.labels import are_classes, codes_of, tidy
from dualnewton.interop.names import LOSSES
from dualnewton.interop.specification import REST, SOFTMAX, Specification, among
from dualnewton.validation import positive

if TYPE_CHECKING:
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.io import Dataset


FEW = 10
"""Number of rows up to which each may have a class of its own."""

OFFERED = ("l2", "l1", "elasticnet", "nonnegative")
"""The penalties whose parameters are options of the command line."""


@dataclass(frozen=True, eq=False)
class Task:
    """The problems of a command."""

    problems: list[Any]  # problems for ``solve_many``, which share one X; for a saved model, its objectives
    objective: Specification
    # (K,) labels in order; None if the targets are numbers. With two classes, the second has the label +1.
    classes: np.ndarray | None
    why: str  # reason for the choice of the loss

    @property
    def names(self) -> list[Any]:
        """The labels of the classes, in order; empty if the targets are numbers."""
        return [] if self.classes is None else self.classes.tolist()


def problems_from(
    dataset: Dataset,
    *,
    loss: str | None = None,
    penalty: str = "l2",
    C: float | None = None,
    lam: float | None = None,
    l1_ratio: float | None = None,
    intercept: bool = True,
    multiclass: str | None = None,
    **parameters: float | None,
) -> Task:
    """Return the problems that the options of a command define.

    By default the labels choose the loss, C = 1 with λ = 1/(Cn), several classes have softmax if the loss has it, and
    parameters of the loss that are None have their defaults.
    """
    if multiclass is not None:
        among("multiclass", multiclass, (SOFTMAX, REST))
    among("penalty", penalty, OFFERED)
    labels = labels_of(dataset)
    chosen = among("loss", loss, LOSSES) if loss is not None else ("logistic" if are_classes(labels) else "squared")
    classes = np.unique(labels) if Specification(chosen).classifies else None
    refuse_useless(labels, classes)
    several = classes is not None and len(classes) > 2
    default = SOFTMAX if Specification(chosen).has_softmax else REST
    objective = Specification(
        chosen,
        strength(C, lam, dataset.X.shape[0]),
        penalty,
        fit_intercept=intercept,
        parameters={name: value for name, value in parameters.items() if value is not None},
        penalty_parameters={} if l1_ratio is None else {"l1_ratio": l1_ratio},
        multiclass=(multiclass or default) if several else None,
    )
    return Task(problems_of(objective, dataset, classes), objective, classes, why(loss, chosen, labels))


def penalised(task: Task, command: str) -> Task:
    """Return a task for a command about methods for problems with a penalty; raise an error if it has none."""
    if not task.objective.is_penalised:
        raise DualnewtonError(f"{command} needs a penalty: give a finite -C, or --lam > 0")
    return task


def problems_of(objective: Specification, dataset: Dataset, classes: np.ndarray | None) -> list[Any]:
    """Return the problems of an objective on a data set with labels of these classes, or numbers if there are no classes."""
    labels = labels_of(dataset)
    y = numbers(labels, objective.loss) if classes is None else codes_of(labels, classes)
    rest: dict[str, Any] = {"sample_weight": dataset.sample_weight, "offset": dataset.offset}
    return list(objective.objectives(dataset.X, y, classes, **rest))


def objectives_of(model: SavedModel, dataset: Dataset) -> list[Any]:
    """Return the objectives of a saved model on a data set."""
    if model.classes is None and len(model.coef) > 1:
        raise DualnewtonError(
            f"the model has {len(model.coef)} targets, and data have one: use dualnewton.certify and score"
        )
    labels = labels_of(dataset)
    y = numbers(labels, model.objective.loss) if model.classes is None else labels
    return list(model.objectives(dataset.X, y, dataset.sample_weight, offset=dataset.offset))


def labels_of(dataset: Dataset) -> np.ndarray:
    """Return the target of a data set, which must have one."""
    if dataset.y is None:
        raise DualnewtonError(f"{dataset.name} has no target: name its column by --target")
    return tidy(dataset.y)


def numbers(labels: np.ndarray, loss: str) -> np.ndarray:
    """Return targets as numbers, which they must be."""
    if labels.dtype.kind not in "if":
        raise DualnewtonError(f"the target must hold numbers for the loss {loss}, got text such as {str(labels[0])!r}")
    return labels.astype(np.float64)


def refuse_useless(labels: np.ndarray, classes: np.ndarray | None) -> None:
    """Raise an error if the target is constant, or names each of many rows, as an identifier does."""
    if np.all(labels == labels[0]):
        what = "holds a single class" if classes is not None else "is constant"
        raise DualnewtonError(f"the target {what}, {labels[0]} on all {len(labels)} rows: there is nothing to fit")
    if classes is not None and len(classes) == len(labels) > FEW:
        raise DualnewtonError(
            f"the target has another class on each of the {len(labels)} rows, such as {labels[0]}: name a column whose values "
            "repeat by --target, or fit numbers with --loss squared"
        )


def strength(C: float | None, lam: float | None, n: int) -> float:
    """Return λ; 0, without a penalty, for C = ∞ (inf on the command line)."""
    if C is not None and lam is not None:
        raise DualnewtonError(
            f"-C and --lam both set the penalty, lambda = 1/(C n): give one of them, got C={C:g} and lam={lam:g}"
        )
    if lam is not None:
        return positive("lam", lam, or_zero=True)
    given = 1.0 if C is None else C
    if not given > 0.0:
        raise DualnewtonError(f"C must be a number > 0, or inf for no penalty, got {given:g}")
    return 0.0 if math.isinf(given) else 1.0 / (given * n)


def why(asked: str | None, chosen: str, labels: np.ndarray) -> str:
    """Return the reason for the choice of the loss."""
    if asked is not None:
        return "as asked"
    count = len(np.unique(labels))
    return (
        f"since the target has {count} distinct {'labels' if chosen == 'logistic' else 'values'}; "
        "--loss chooses another"
    )
