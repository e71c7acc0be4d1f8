"""The deadline of a run, for the inner loops of a long step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 (it reports no error)
    """Raised by :meth:`Deadline.check`: the step ends with the point it has reached."""


@dataclass(frozen=True)
class Deadline:
    """A moment after which a step is to end.

    The clock decides only whether the work stops. Work is cut into pieces between two checks by its size alone, so that a run
    which stops before its deadline has the same bits as a run without one.

    Attributes
    ----------
    at : float
        By ``time.perf_counter``.
    """

    at: float = math.inf

    def is_over(self) -> bool:
        """Whether the moment has passed."""
        return time.perf_counter() > self.at

    def check(self) -> None:
        """Raise :class:`OutOfTime` where the moment has passed."""
        if self.is_over():
            raise OutOfTime


@dataclass(frozen=True)
class Until(Deadline):
    """The end that a function tells, for work whose caller has its own reasons to stop."""

    ended: Callable[[], bool] = lambda: False

    def is_over(self) -> bool:
        return self.ended()


NEVER = Deadline()
