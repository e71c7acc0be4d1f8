"""The deadline of a run, for the inner loops of a long step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


class OutOfTime(Exception):  # noqa: N818 (it reports no error)
    """Raised by :meth:`Deadline.check`: the step ends at its current point."""


@dataclass(frozen=True)
class Deadline:
    """A time after which a step must end.

    The clock only decides when the work stops. The pieces of work between two checks depend on sizes alone, so that a run which
    stops before its deadline has the same bits as a run without one.
    """

    at: float = math.inf  # time, by ``time.perf_counter``

    def is_over(self) -> bool:
        """Whether the time has passed."""
        return time.perf_counter() > self.at

    def check(self) -> None:
        """Raise :class:`OutOfTime` if the time has passed."""
        if self.is_over():
            raise OutOfTime


@dataclass(frozen=True)
class Until(Deadline):
    """A deadline given by a function, for callers with other reasons to stop."""

    ended: Callable[[], bool] = lambda: False

    def is_over(self) -> bool:
        return self.ended()


NEVER = Deadline()
