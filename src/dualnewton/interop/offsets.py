"""The column of the data that a model adds to its margins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    # Files -----------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the column as values for JSON."""
        return {"name": self.name, "exposure": self.exposure}

    @classmethod
    def from_dict(cls, words: Any) -> OffsetColumn:
        """Undo :meth:`to_dict`; raise a ``DualnewtonError`` if the fields are invalid."""
        fields = {"name": str, "exposure": bool}
        if not isinstance(words, dict) or set(words) != set(fields):
            raise DualnewtonError(f"offset must have exactly the fields {', '.join(fields)}")
        for key, kind in fields.items():
            if not isinstance(words[key], kind):
                raise DualnewtonError(f"{key} of offset must be of the type {kind.__name__}, got {words[key]!r:.40}")
        return cls(**words)
