"""Checks of the fields of a model file: each field is validated before it is used."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.offsets import OffsetColumn
from dualnewton.interop.specification import Specification
from dualnewton.objective.certificate import Certificate
from dualnewton.preprocessing import Encoding
from dualnewton.run.result import Status

Check = Callable[[str, Any], Any]
"""A function of the name and the value of a field, which returns the checked value or raises an error."""

OBJECTIVE = tuple(each.name for each in fields(Specification))

FIRST_OBJECTIVE = ("loss", "lam", "penalty", "l1_ratio", "fit_intercept", "parameters", "multiclass")
"""Fields of an objective in version 1 of the format, which had a separate field ``l1_ratio``."""


def checked(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields of a header; raise a ``DualnewtonError`` that names the first invalid field."""
    absent = [name for name in FIELDS if name not in content]
    if absent:
        raise DualnewtonError(f"it has no field {absent[0]!r}")
    unknown = [name for name in content if name not in FIELDS]
    if unknown:
        raise DualnewtonError(f"it has a field {unknown[0]!r} that is unknown to this version")
    return {name: check(name, content[name]) for name, check in FIELDS.items()}


def of_this_version(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a header in the form of this version; earlier versions are converted."""
    content = {"table": None, "offset": None, **content}  # versions 1 and 2 had none of these, 3 had no offset
    if "estimator" in content or "objective" not in content:
        return dict(content)
    words = dict(_table("objective", content["objective"], FIRST_OBJECTIVE))
    ratio = words.pop("l1_ratio")
    words["penalty_parameters"] = {"l1_ratio": ratio} if words["penalty"] in ("elasticnet", "nonnegative") else {}
    defaults = Specification("squared").to_dict() | {"targets": None}
    return {**content, "objective": defaults | words, "scale": None, "estimator": None}


def version() -> str:
    """Return the version of this library, which need not be installed: it may be on the path, or in a bundle."""
    import dualnewton

    return dualnewton.__version__


def now() -> str:
    """Return the current date and time in UTC (ISO 8601)."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def parameters(coef: Any, intercept: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return coefficients and intercepts if they are finite float64 and have matching shapes."""
    for name, array, axes in (("coef", coef, 2), ("intercept", intercept, 1)):
        if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != axes or array.size == 0:
            raise DualnewtonError(f"{name} must be an array of float64 with {axes} axis(es) and at least one entry")
        if not np.isfinite(array).all():
            raise DualnewtonError(f"{name} must be finite everywhere")
    if len(coef) != len(intercept):
        raise DualnewtonError(
            f"intercept must have one entry for each of {len(coef)} rows of coef, got {len(intercept)}"
        )
    return np.ascontiguousarray(coef).astype(float), intercept.astype(float)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise DualnewtonError(f"{name} must be text, got {value!r:.40}")
    return value


def _or_none(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise DualnewtonError(f"{name} must be a whole number >= 1, got {value!r:.40}")
    return value


def _number(name: str, value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:
        pass
    raise DualnewtonError(f"{name} must be a finite number, got {value!r:.40}")


def _list(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DualnewtonError(f"{name} must be a list, got {value!r:.40}")
    return value


def _table(name: str, value: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(keys):
        raise DualnewtonError(f"{name} must have exactly the fields {', '.join(keys)}")
    return value


def _objective(name: str, value: Any) -> Specification:
    words = dict(_table(name, value, OBJECTIVE))
    for key in ("parameters", "penalty_parameters"):
        if not isinstance(words[key], dict):
            raise DualnewtonError(f"{key} must be a table, got {words[key]!r:.40}")
        words[key] = {each: _parameter(each, one) for each, one in words[key].items()}
    if words["lam"] is not None:
        lams = words["lam"] if isinstance(words["lam"], list) else [words["lam"]]
        words["lam"] = [_number("lam", lam) for lam in lams]
    if not isinstance(words["class_weight"], str | None):
        words["class_weight"] = [_pair(each) for each in _list("class_weight", words["class_weight"])]
    try:
        return Specification(**words)
    except TypeError as error:
        raise DualnewtonError(f"{name} has a value of the wrong kind: {error}") from None


def _parameter(name: str, value: Any) -> Any:
    """Return a number (bounds may be infinite), true or false, or a list of such."""
    if isinstance(value, list):
        return [_parameter(name, each) for each in value]
    if isinstance(value, bool) or value in (math.inf, -math.inf):
        return value
    return _number(name, value)


def _pair(value: Any) -> list[Any]:
    """Return a label and its weight."""
    if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str | int | float):
        raise DualnewtonError(f"class_weight must hold labels with their weights, got {value!r:.40}")
    return [value[0], _number("class_weight", value[1])]


def _estimator(name: str, value: Any) -> dict[str, Any]:
    words = _table(name, value, ("class", "parameters", "fitted"))
    if not (isinstance(words["parameters"], dict) and isinstance(words["fitted"], dict)):
        raise DualnewtonError(f"parameters and fitted of {name} must be tables")
    return {**words, "class": _text("class", words["class"])}


def _classes(name: str, value: Any) -> np.ndarray:
    """Return labels of one kind, in order and each once."""
    labels = _list(name, value)
    if len(labels) < 2:
        raise DualnewtonError(f"{name} must hold two labels at least, got {len(labels)}")
    kinds = {type(label) for label in labels}
    if len(kinds) > 1 or not kinds <= {int, float, str}:
        raise DualnewtonError(f"{name} must hold labels of one kind, integers, numbers or text")
    if kinds != {str}:
        labels = [label if isinstance(label, int) else _number(name, label) for label in labels]
    if labels != sorted(set(labels)):
        raise DualnewtonError(f"{name} must be in order, each label once")
    try:
        return np.array(labels, dtype=np.int64 if kinds == {int} else None)
    except OverflowError:
        raise DualnewtonError(f"{name} must be integers of 64 bits") from None


def _certificates(name: str, value: Any) -> tuple[Certificate, ...]:
    # Files of earlier versions have no bound on rounding errors; a bound that holds for all models has no reach.
    rest = {"rounding": None, "reach": None}
    tables = [rest | each if isinstance(each, dict) else each for each in _list(name, value)]
    return tuple(_certificate(_table(name, each, ("primal", "dual", "rounding", "reach"))) for each in tables)


def _certificate(table: dict[str, Any]) -> Certificate:
    rounding = None if table["rounding"] is None else _number("rounding", table["rounding"])
    reach = math.inf if table["reach"] is None else _number("reach", table["reach"])
    values = _number("primal", table["primal"]), _number("dual", table["dual"])
    return Certificate(*values, rounding=rounding, reach=reach)


def _status(name: str, value: Any) -> tuple[str, ...]:
    words = [_text(name, each) for each in _list(name, value)]
    for word in words:
        if word not in Status.__members__:
            raise DualnewtonError(f"{name} must be one of {', '.join(Status.__members__)}, got {word!r:.40}")
    return tuple(words)


def _names(name: str, value: Any) -> tuple[str, ...]:
    names = tuple(_text(name, each) for each in _list(name, value))
    if len(set(names)) != len(names):
        raise DualnewtonError(f"{name} must be different from each other")
    return names


def _offset(name: str, value: Any) -> OffsetColumn:
    words = _table(name, value, ("name", "exposure"))
    if not isinstance(words["exposure"], bool):
        raise DualnewtonError(f"exposure of {name} must be true or false, got {words['exposure']!r:.40}")
    return OffsetColumn(_text(f"name of {name}", words["name"]), words["exposure"])


def _moment(name: str, value: Any) -> str:
    text = _text(name, value)
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        raise DualnewtonError(f"{name} must be a date and time (ISO 8601), got {text!r:.40}") from None
    return text


FIELDS: dict[str, Check] = {
    "objective": _objective,
    "classes": _or_none(_classes),
    "certificates": _certificates,
    "status": _status,
    "plan": _text,
    "n": _count,
    "d": _count,
    "feature_names": _or_none(_names),
    "target": _or_none(_text),
    "offset": _or_none(_offset),
    "table": _or_none(lambda _, value: Encoding.from_dict(value)),
    "library": _text,
    "created": _moment,
    "command": _text,
    "scale": _or_none(_number),
    "estimator": _or_none(_estimator),
}
"""The check of each field, in the order of the file; every file has all fields."""
