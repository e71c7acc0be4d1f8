"""The two data sets of Section 7, and the problem that is posed on them.

The paper gives their sizes, λ = 1/n and g(w) = ½‖w‖². It names neither the loss nor the law of the synthetic set. Here the
loss is the squared one, for which all of the paper's theorems hold (the logistic loss can be asked for), and the synthetic set
is the catalog's (``data.generated.uncentred``), whose rows have a direction in common. On centred rows (``dense``) sets of any
size need about as many epochs.
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
"""The synthetic law for a quick look."""

SMALL_ROWS = 1500
"""Rows of mushrooms for a quick look."""


@dataclass(frozen=True, eq=False)
class Posed:
    """A data set with the problem on it."""

    name: str
    problem: Problem

    def __str__(self) -> str:
        return f"{self.name} ({self.problem.n} × {self.problem.d})"


def mushrooms() -> Dataset:
    """Load mushrooms, with labels ±1 and in float64; a ``DataError`` says what to do where it is not to be had."""
    found = load(MUSHROOMS)
    labels = np.asarray(found.y)
    return Dataset(found.X.astype(np.float64), np.where(labels == labels.max(), 1.0, -1.0), name=MUSHROOMS)


def few_mushrooms() -> Dataset:
    """Some rows of it."""
    whole = mushrooms()
    n = whole.X.shape[0]
    rows = np.sort(np.random.default_rng(0).choice(n, min(SMALL_ROWS, n), replace=False))
    return Dataset(whole.X[rows], np.asarray(whole.y)[rows], name=MUSHROOMS)


SETS: dict[str, tuple[Callable[[], Dataset], Callable[[], Dataset]]] = {
    MUSHROOMS: (mushrooms, few_mushrooms),
    SYNTHETIC: (partial(load, SYNTHETIC), partial(load, SMALL)),
}
"""How to come by each set, whole and for a quick look."""


def posed(loss: str = "squared", *, quick: bool = False) -> tuple[list[Posed], list[str]]:
    """Return the problems, λ = 1/n, and a sentence for each set that is not to be had.

    Parameters
    ----------
    loss : {"squared", "logistic"}
        φ.
    quick : bool
        Whether smaller sets will do.
    """
    if loss not in LOSSES:
        raise DualnewtonError(f"loss must be one of {', '.join(LOSSES)} here, got {loss!r}")
    found, missing = [], []
    for name, makers in SETS.items():
        try:
            dataset = makers[quick]()
        except (DualnewtonError, OSError) as error:
            missing.append(f"{name} is missing, and with it half of every figure: {' '.join(str(error).split())}")
            continue
        found.append(Posed(name, Problem(dataset.X, dataset.y, LOSSES[loss], lam=1.0 / dataset.X.shape[0])))
    return found, missing
