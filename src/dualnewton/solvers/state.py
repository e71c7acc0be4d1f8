"""Conversion between the attributes of an object and a frozen dataclass with fields of the same names."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def record(kind: type[Record], thing: Any, /, **others: Any) -> Record:
    """Return a dataclass whose fields are the attributes of an object, except ``others``, which are given."""
    names = [part.name for part in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: others[name] if name in others else getattr(thing, name) for name in names})


def assign(thing: Any, state: Any, /, **others: Any) -> None:
    """Set the attributes of an object to the fields of a dataclass, except ``others``, which are given."""
    for part in fields(state):
        setattr(thing, part.name, others[part.name] if part.name in others else getattr(state, part.name))
