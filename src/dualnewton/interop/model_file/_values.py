"""Parameters and fitted attributes of estimators as JSON and arrays, of a fixed set of kinds: reading runs no code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.specification import Specification
from dualnewton.losses import Loss
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.choice import ChoiceCertificate
from dualnewton.planning.plan import Plan
from dualnewton.regularizers import Regularizer
from dualnewton.run.result import Progress, Trace

NUMBERS = "biuf"
"""Kinds of arrays that are stored as arrays: booleans, integers, floats."""


def to_json(value: Any, arrays: dict[str, np.ndarray], where: str) -> Any:
    """Return a value as plain values for JSON; arrays of numbers are added to ``arrays``.

    A value that cannot be stored is a ``ValueError`` with its name ``where``.
    """
    if value is None or isinstance(value, bool) or type(value) in (str, int):
        return value
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, list):
        return [to_json(each, arrays, where) for each in value]
    for tag, kind in KINDS.items():
        if isinstance(value, kind.type) and (words := kind.words(value)) is not None:
            if tag == "array":
                arrays[f"value {len(arrays)}"] = words
                return {tag: f"value {len(arrays) - 1}"}
            return {tag: to_json(words, arrays, where)}
    raise DualnewtonError(f"{where} cannot be written to a file, got an object of the class {type(value).__name__}")


def from_json(words: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """Undo :func:`to_json`; raise a ``ValueError`` if the content represents no value."""
    if isinstance(words, list):
        return [from_json(each, arrays) for each in words]
    if not isinstance(words, dict):
        return words
    tag = next(iter(words)) if len(words) == 1 else None
    if tag not in KINDS:
        raise DualnewtonError(f"a value must be of one of the kinds {', '.join(KINDS)}, got {tag!r:.40}")
    try:
        return arrays[words[tag]] if tag == "array" else KINDS[tag].value(from_json(words[tag], arrays))
    except (TypeError, LookupError, AttributeError, OverflowError) as error:
        raise DualnewtonError(f"a value of the kind {tag} is wrong: {error}") from None


class Kind(NamedTuple):
    """A type, the function that represents its values by simpler ones (or returns None), and the inverse function."""

    type: type
    words: Callable[[Any], Any]
    value: Callable[[Any], Any]


def _loss(value: Loss) -> Any:
    words = Specification(value)
    return [words.loss, dict(words.parameters)] if isinstance(words.loss, str) else None


def _regularizer(value: Regularizer) -> Any:
    words = Specification("squared", penalty=value)
    return [words.penalty, dict(words.penalty_parameters)] if isinstance(words.penalty, str) else None


def _fields(value: Any) -> list[Any]:
    """Return the fields of a data class in order."""
    return [getattr(value, each.name) for each in fields(value)]


def _from_values(kind: type, values: list[Any]) -> Any:
    """Undo :func:`_fields`."""
    return kind(**dict(zip([each.name for each in fields(kind)], values, strict=True)))


def _proof(rounding: float | None = None, reach: float | None = None) -> dict[str, Any]:
    """Return the last entries of a certificate as arguments."""
    return {"rounding": rounding, "reach": math.inf if reach is None else reach}


def _objects(shape: list[int], each: list[Any]) -> np.ndarray:
    made = np.empty(len(each), dtype=object)
    made[:] = each
    return made.reshape(shape)


KINDS: dict[str, Kind] = {
    "float": Kind(float, lambda x: repr(x) if type(x) is float else None, float),
    "tuple": Kind(tuple, lambda x: list(x) if type(x) is tuple else None, tuple),
    "table": Kind(dict, lambda x: [[key, each] for key, each in x.items()], dict),
    "number": Kind(
        np.generic,
        lambda x: [x.dtype.str, x.item()] if x.dtype.kind in NUMBERS else None,
        lambda x: np.dtype(x[0]).type(x[1]),
    ),
    "string": Kind(np.str_, str, np.str_),
    "array": Kind(np.ndarray, lambda x: x if x.dtype.kind in NUMBERS else None, lambda x: x),
    "text": Kind(
        np.ndarray, lambda x: x.tolist() if x.dtype.kind == "U" else None, lambda x: np.array(x, dtype=np.str_)
    ),
    "objects": Kind(
        np.ndarray,
        lambda x: [list(x.shape), x.ravel().tolist()] if x.dtype.kind == "O" else None,
        lambda x: _objects(*x),
    ),
    "certificate": Kind(
        Certificate,
        # Files of earlier versions have neither a bound on rounding errors nor a reach.
        lambda x: [x.primal, x.dual, list(x.parts), x.rounding, x.reach if math.isfinite(x.reach) else None],
        lambda x: Certificate(x[0], x[1], parts=tuple(x[2]), **_proof(*x[3:])),
    ),
    "choice": Kind(ChoiceCertificate, _fields, lambda x: _from_values(ChoiceCertificate, x)),
    "trace": Kind(
        Trace, lambda x: [_fields(row) for row in x.rows], lambda x: Trace([_from_values(Progress, row) for row in x])
    ),
    "plan": Kind(Plan, _fields, lambda x: _from_values(Plan, x)),
    "loss": Kind(Loss, _loss, lambda x: Specification(x[0], parameters=x[1]).loss_object),
    "regularizer": Kind(
        Regularizer,
        _regularizer,
        lambda x: Specification("squared", penalty=x[0], penalty_parameters=x[1]).regularizer[1],
    ),
}
"""Kinds of values by their names in a file; a value is stored by the first kind that can represent it."""
