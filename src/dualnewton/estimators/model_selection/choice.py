"""Proofs of a choice by cross-validation: intervals that contain the scores of the exact fits.

A model of a fold is within a known distance of its minimiser (``objective/distance.py``), and so its margins z_s on the held-out
rows are known up to Σ ω_s (z_s − z_s*)² ≤ ρ². The score of the minimiser then lies in an interval, and a value whose upper
end is below the lower end of another cannot be the best one, however exactly its models are fitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.objective.choice import ChoiceCertificate

SLACK = 1e-12
"""Relative widening of an interval that covers rounding in its ends."""

Interval = tuple[float, float]

UNKNOWN: Interval = (-math.inf, math.inf)
"""Nothing is proved."""


# Scores ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Held:
    """Predictions for the held-out rows of a fold, with their targets."""

    margins: np.ndarray  # (rows,) z
    y: np.ndarray  # (rows,) targets; for two classes −1 and +1
    omega: np.ndarray  # (rows,) weights that sum to one
    steepness: float = 1.0  # largest change of a loss per unit of change of the margins

    @classmethod
    def of_classes(cls, margins: np.ndarray, labels: np.ndarray, omega: np.ndarray) -> Held:
        """Reduce K margins of each row to one: the sign of this margin changes before the predicted class does.

        The difference of two margins moves by at most √2‖z − z*‖, and so does the logarithm of a probability.
        """
        top = np.argmax(margins, axis=1)
        ordered = np.partition(margins, -2, axis=1)
        lead = np.maximum((ordered[:, -1] - ordered[:, -2]) / math.sqrt(2.0), np.finfo(float).tiny)
        return cls(lead, np.where(top == labels, 1.0, -1.0), omega, math.sqrt(2.0))


def _accuracy(held: Held, score: float, spread: float) -> Interval:
    """A row changes its class if its margin moves by |z_s| or more, which uses ω_s z_s² of ρ² = Σ ω_s (z_s − z_s*)²."""
    right = (held.margins > 0.0) == (held.y > 0.0)
    lost, won = (_most_weight(held, rows, spread) for rows in (right, ~right))
    return score - lost, score + won


def _most_weight(held: Held, rows: np.ndarray, spread: float) -> float:
    """Return the largest total weight of rows that can change their class together."""
    squares, omega = np.square(held.margins[rows]), held.omega[rows]
    order = np.argsort(squares, kind="stable")
    spent = np.cumsum(omega[order] * squares[order])
    count = int(np.searchsorted(spent, spread**2 * (1.0 + SLACK), side="right"))
    if count == 0:
        return 0.0
    part = 0.0
    if count < len(order) and not np.all(omega == omega[0]):
        # Rows of different weights: the bound of the linear relaxation, which includes a fraction of the next row.
        part = float(omega[order[count]])
    return (float(omega[order[:count]].sum()) + part) * (1.0 + SLACK)


def _squared(held: Held, score: float, spread: float) -> Interval:  # noqa: ARG001
    low, high = squared_ends(np.array(score), np.array(spread))
    return float(low), float(high)


def squared_ends(scores: np.ndarray, spreads: np.ndarray, slack: float = SLACK) -> np.ndarray:
    """Return the ends of the intervals of several negative mean squared errors, known up to the fraction ``slack``.

    √MSE is a norm of the errors, which changes by at most ρ.
    """
    roots = np.sqrt(np.maximum(-scores, 0.0))
    with np.errstate(over="ignore"):  # a bound may be infinite
        worst, best = np.square(roots + spreads), np.square(np.maximum(roots - spreads, 0.0))
    return np.stack([-worst * (1.0 + slack), -best * (1.0 - slack)], axis=-1)


def _r2(held: Held, score: float, spread: float) -> Interval:
    mean = float(held.omega @ held.y)
    variance = float(held.omega @ np.square(held.y - mean))
    if not variance > 0.0:
        return UNKNOWN
    low, high = _squared(held, (score - 1.0) * variance, spread)
    return 1.0 + low / variance, 1.0 + high / variance


def _lipschitz(held: Held, score: float, spread: float) -> Interval:
    """Means of losses with bounded slopes: Σ ω_s ‖z_s − z_s*‖ ≤ ρ."""
    reach = held.steepness * spread * (1.0 + SLACK)
    return score - reach, min(score + reach, 0.0)


BOUNDS: dict[str, Callable[[Held, float, float], Interval]] = {
    "accuracy": _accuracy,
    "neg_log_loss": _lipschitz,
    "neg_mean_absolute_error": _lipschitz,
    "neg_root_mean_squared_error": _lipschitz,  # a norm of the errors
    "neg_mean_squared_error": _squared,
    "r2": _r2,
}
"""Scores, by scikit-learn's names, for which an interval follows from a bound on the predictions."""


def interval(scoring: str, held: Held, score: float, spread: float | None) -> Interval:
    """Return an interval that contains the score of the exact fit, given the score of the model; a spread of None is unknown."""
    bound = BOUNDS.get(scoring)
    if bound is None or spread is None or not math.isfinite(spread) or math.isnan(score):
        return UNKNOWN
    return bound(held, score, spread)


def certificate(
    parameters: Sequence[dict[str, Any]],  # values, in the order of preference among equal scores
    scores: np.ndarray,  # (values, folds) scores of the models
    ends: np.ndarray,  # (values, folds, 2) lower and upper ends of the intervals
    chosen: int,  # index of the chosen value
    scoring: str,  # name of the score
    reason: str = "",  # reason why some intervals are unknown, if any
) -> ChoiceCertificate:
    """Return the certificate of the choice: scores and intervals, averaged over the folds."""
    known = bool(np.isfinite(ends).all())
    mean = ends.mean(axis=1)
    return ChoiceCertificate(
        tuple(parameters), scores.mean(axis=1), mean[:, 0], mean[:, 1], chosen, scoring, "" if known else reason
    )
