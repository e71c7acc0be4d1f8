"""What the one loop drives, whatever the method: K models over the same data that move a turn at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.certificates import judge_duals, judge_models
from dualnewton.objective.problem import Problem


@dataclass(frozen=True, eq=False)
class DualPoint:
    """α, put before the judge by a dual method."""

    alpha: np.ndarray

    @staticmethod
    def judged(problems: Sequence[Problem], points: Sequence[DualPoint]) -> list[CertifiedPair]:
        """Have the problems certify the points, in shared passes."""
        return judge_duals(problems, [point.alpha for point in points])


@dataclass(frozen=True, eq=False)
class PrimalPoint:
    """(w, b), put before the judge by a primal method."""

    w: np.ndarray
    intercept: Any

    @staticmethod
    def judged(problems: Sequence[Problem], points: Sequence[PrimalPoint]) -> list[CertifiedPair]:
        """Have the problems certify the points, in shared passes."""
        return judge_models(problems, [point.w for point in points], [point.intercept for point in points])


class Runner(ABC):
    """K models and the method that moves them.

    Attributes
    ----------
    certificates_are_cheap : bool
        Whether a certificate costs little against a turn.
    expected_ratio : float
        Of the gap to what :meth:`surprise` says, before the first certificate tells.
    """

    certificates_are_cheap = False
    expected_ratio = 1.0

    @abstractmethod
    def turn(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Move the models on; return how many epochs of work that was, ``most`` at most if it can be helped."""

    @abstractmethod
    def candidate(self, k: int) -> DualPoint | PrimalPoint:
        """Return where model k is."""

    @abstractmethod
    def surprise(self, k: int) -> float:
        """Return a number that falls as the gap of model k does, as of the last turn; NaN if it is not known."""

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        """Whether model k has found that rounding lets it go no further."""
        return False

    def learn(self, k: int, found: CertifiedPair) -> None:  # noqa: B027 (most have nothing to learn)
        """Take what the judge has found for model k."""

    def adapt(self, k: int, gap: float, surprise: float) -> None:  # noqa: B027
        """Learn the expected gap of model k and what the last turn had to say, to which the work may be tied."""

    @abstractmethod
    def keep(self, wanted: Sequence[int]) -> None:
        """Go on with these models only."""

    def anchors(self) -> dict[str, Any]:
        """Name what follows from the problems alone: a checkpoint does not store it, another runner for them has it, too."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Give back what the runner holds."""


class SharedPasses(Runner):
    """A primal method: models that know their gap and whether they are stuck, over the same passes.

    Attributes
    ----------
    data : Data
        The data.
    models : list
        In the order of the problems.
    """

    data: Any
    models: list[Any]

    def surprise(self, k: int) -> float:
        return float(self.models[k].gap) / int(self.data.n)

    def is_stuck(self, k: int) -> bool:
        return bool(self.models[k].stuck)

    def keep(self, wanted: Sequence[int]) -> None:
        self.models = [self.models[k] for k in wanted]

    def anchors(self) -> dict[str, Any]:
        return {"data": self.data}

    def close(self) -> None:
        self.data.close()
