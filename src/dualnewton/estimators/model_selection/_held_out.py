"""The rows that folds hold out, as arguments of scorers: the rows themselves, or margins if rows cannot be selected.

Rows on disk and on a cluster are read in order, so that one pass computes the margins of all rows for the models of all folds.
Scorers that are given by name use the predictions of a model only: they receive the margins instead of the rows, and a model
that returns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.interop.parts import Examples
from dualnewton.row_arrays import on_host

Key = TypeVar("Key")

TOGETHER = 1 << 21
"""Rows times models whose margins are computed in one pass, if there are several (16 MiB)."""


class HeldOut:
    """The held-out rows of all folds."""

    def __init__(
        self,
        data: Examples,  # all rows
        folds: Folds,  # which of them each fold holds out
        # The score. A user's own function may read the rows, and therefore needs rows in memory.
        scoring: Any = None,
    ) -> None:
        self.data, self.folds = data, folds
        able = data.matrix.capabilities
        self.selects = able.whole
        if callable(scoring) and not self.selects:
            raise DualnewtonError(
                f"scoring must be a name, such as 'accuracy', got {scoring!r}, which reads the rows that each fold holds out, "
                f"but {able.reason}"
            )

    def seen(self, models: Mapping[Key, Sequence[Any]]) -> Iterator[tuple[Key, int, Any, Any]]:
        """Yield the key, the fold, the rows and the model, as arguments of a scorer, for all models.

        ``models`` has a fitted model for each fold under each key. In memory, rows are selected once for all keys; otherwise
        there is a pass for some keys at a time.
        """
        if self.selects:
            for fold, rows in enumerate(self.folds.tests):
                X = self.data.X[rows]
                for key, own in models.items():
                    yield key, fold, X, own[fold]
            return
        step = max(1, TOGETHER // (self.data.matrix.n * len(self.folds)))
        keys = list(models)
        for some in (keys[k : k + step] for k in range(0, len(keys), step)):
            # For each fold, the coefficients of all keys one after the other.
            W, b = (
                np.stack([np.concatenate([each(models[key][fold]) for key in some]) for fold in range(len(self.folds))])
                for each in (_coefficients, _intercepts)
            )
            columns = W.shape[1] // len(some)
            for fold, margins in enumerate(self.margins(W, b)):
                for key, part in zip(some, np.split(margins, len(some), axis=1), strict=True):
                    yield key, fold, np.ascontiguousarray(part), _returning(models[key][fold], columns)

    def margins(self, W: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
        """Return the margins of the held-out rows of each fold, given M models of each fold: W (folds, M, d) and b (folds, M)."""
        folds, count, d = W.shape
        Z = on_host(self.data.matrix.times(W.reshape(-1, d).T)).reshape(-1, folds, count)
        return [Z[rows, fold] + b[fold] for fold, rows in enumerate(self.folds.tests)]

    def together(self, most: int) -> int:
        """Return how many of the models of each fold have their margins computed in one pass, within the allowed memory."""
        able, n = self.data.matrix.capabilities, self.data.matrix.n
        return int(max(1, min(most, able.gathered / (n * len(self.folds)))))


def _coefficients(model: Any) -> np.ndarray:
    return np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))


def _intercepts(model: Any) -> np.ndarray:
    return np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(_coefficients(model)))


def _returning(model: Any, margins: int) -> Any:
    """Turn a model into one that predicts from margins: X holds the margins, and the coefficients are the identity."""
    model.coef_ = np.eye(margins) if model.coef_.ndim == 2 else np.ones(1)
    model.intercept_ = np.zeros(margins) if np.ndim(model.intercept_) else 0.0
    model.n_features_in_ = margins
    vars(model).pop("feature_names_in_", None)
    return model
