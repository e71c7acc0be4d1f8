"""The column of the data that a model adds to its margins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualnewton.errors import DualnewtonError


@dataclass(frozen=True)
class OffsetColumn:
    """The column of the offsets o in the margins x'w + b + o."""

    name: str  # a column, or a file with one number for each row
    exposure: bool = False  # whether it holds exposures > 0, whose logarithm is the offset

    def offsets(self, values: np.ndarray) -> np.ndarray:
        """Return the offsets for the values of the column."""
        if not self.exposure:
            return values
        if not (values > 0.0).all():
            raise DualnewtonError(
                f"--exposure must name a column of numbers > 0, got {values.min():g} in {self.name!r}"
            )
        return np.log(values)

    def __str__(self) -> str:
        return f"the logarithm of {self.name}" if self.exposure else self.name
