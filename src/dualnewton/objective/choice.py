"""The certificate of a choice among models: intervals for the scores of exact fits, and whether these prove the choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class ChoiceCertificate:
    """Intervals for the mean scores that exact fits would have, and whether these prove the choice."""

    parameters: tuple[dict[str, Any], ...]  # the values that were tried, in order of preference among equal scores
    scores: np.ndarray  # (values,) mean scores over the folds; larger is better
    # (values,) bounds on the mean score if every model were the exact minimiser
    lower: np.ndarray
    upper: np.ndarray
    chosen: int  # index of the chosen value
    scoring: str  # name of the score
    reason: str = ""  # why nothing is proved about some values, if that is so

    @property
    def rivals(self) -> np.ndarray:
        """Indices of the values that exact fits might choose instead."""
        places = np.arange(len(self.scores))
        least = self.lower[self.chosen]
        beaten = np.where(places < self.chosen, self.upper < least, self.upper <= least)
        return places[~beaten & (places != self.chosen)]

    @property
    def proved(self) -> bool:
        """Whether exact fits choose the same value."""
        return self.rivals.size == 0

    def to_pandas(self) -> Any:
        """Return a table with one row for each value."""
        import pandas as pd

        bounds = {"score": self.scores, "lower": self.lower, "upper": self.upper}
        possible = np.isin(np.arange(len(self.scores)), [*self.rivals, self.chosen])
        return pd.DataFrame(list(self.parameters)).assign(**bounds, may_be_best=possible)

    def __str__(self) -> str:
        best = f"{_words(self.parameters[self.chosen])} has the mean {self.scoring} {self.scores[self.chosen]:.6g}"
        ends = f"exact fits: {self.lower[self.chosen]:.6g} to {self.upper[self.chosen]:.6g}"
        if self.proved:
            others = np.delete(self.upper, self.chosen)
            beyond = f"; every other value has at most {others.max():.6g}" if others.size else ""
            return f"{best} ({ends}). Proved: exact fits choose the same value{beyond}."
        if not np.isfinite([self.lower[self.chosen], self.upper[self.chosen]]).any() and self.reason:
            return f"{best}. Not proved: exact fits might choose another value ({self.reason})."
        shown = [_words(self.parameters[place]) for place in self.rivals[:3]]
        more = f" and {self.rivals.size - 3} more" if self.rivals.size > 3 else ""
        why = f" ({self.reason})" if self.reason else ""
        return f"{best} ({ends}). Not proved: exact fits might choose {', '.join(shown)}{more}{why}."


def _words(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} = {value:.4g}" for name, value in parameters.items())
