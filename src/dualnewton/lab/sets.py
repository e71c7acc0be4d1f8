"""The two data sets of Section 7, and the problems on them.

The paper gives their sizes, λ = 1/n and g(w) = ½‖w‖². It names neither the loss nor the distribution of the synthetic set. Here
the loss is the squared loss by default, for which all of the paper's theorems hold; the logistic loss is an option. The synthetic
set is ``io.generated.uncentred``, whose rows have a common mean direction. On centred rows (``dense``) the number of epochs
hardly depends on τ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io import Dataset, load
from dualnewton.losses import Logistic, Loss, Squared
from dualnewton.objective.problem import Problem

MUSHROOMS, SYNTHETIC = "mushrooms", "synthetic"

LOSSES: dict[str, Loss] = {"squared": Squared(), "logistic": Logistic()}

SMALL = "uncentred:640x256"
"""The synthetic set of a quick run."""

SMALL_ROWS = 1500
"""Number of rows of mushrooms in a quick run."""


@dataclass(frozen=True, eq=False)
class Posed:
    """A problem with the name of its data set."""

    name: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.name} ({self.problem.n} × {self.problem.d})"


def mushrooms() -> Dataset:
    """Load mushrooms in float64 with labels ±1; if it cannot be downloaded, ``DataError`` says where to put the file."""
    found = load(MUSHROOMS)
    labels = np.asarray(found.y)
    return Dataset(found.X.astype(np.float64), np.where(labels == labels.max(), 1.0, -1.0), name=MUSHROOMS)


def few_mushrooms() -> Dataset:
    """Return SMALL_ROWS random rows of mushrooms."""
    whole = mushrooms()
    n = whole.X.shape[0]
    rows = np.sort(np.random.default_rng(0).choice(n, min(SMALL_ROWS, n), replace=False))
    return Dataset(whole.X[rows], np.asarray(whole.y)[rows], name=MUSHROOMS)


SETS: dict[str, tuple[Callable[[], Dataset], Callable[[], Dataset]]] = {
    MUSHROOMS: (mushrooms, few_mushrooms),
    SYNTHETIC: (partial(load, SYNTHETIC), partial(load, SMALL)),
}
"""The functions that load each set, whole and for a quick run."""


def posed(loss: str = "squared", *, quick: bool = False) -> tuple[list[Posed], list[str]]:
    """Return the problems with λ = 1/n and the squared or logistic loss, and a message for each set that could not be loaded.

    ``quick`` takes smaller sets.
    """
    if loss not in LOSSES:
        raise DualnewtonError(f"loss must be one of {', '.join(LOSSES)} here, got {loss!r}")
    found, missing = [], []
    for name, makers in SETS.items():
        try:
            dataset = makers[quick]()
        except (DualnewtonError, OSError) as error:
            missing.append(f"The {name} data are missing, so that no figure shows them: {' '.join(str(error).split())}")
            continue
        found.append(Posed(name, Problem(dataset.X, dataset.y, LOSSES[loss], lam=1.0 / dataset.X.shape[0])))
    return found, missing
