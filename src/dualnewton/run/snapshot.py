"""Plain data as JSON and arrays, and back, bit for bit: the format of the state in a checkpoint.

Plain data are None, booleans, numbers, strings, arrays of numbers, tuples and dicts (with strings as keys) of plain data, and
frozen dataclasses whose fields are plain data. Types that JSON does not have are represented by lists:

    ["array", 3, true]              array number 3, which may be written
    ["rows", 4]                     array number 4, a row array that the data keep elsewhere (see ``row_arrays.py``)
    ["scalar", "<f4", 0.5]          a NumPy number
    ["tuple", …]  ["dict", [key, value], …]
    ["planning.plan:Plan", …]       a frozen dataclass, with its fields in order

An array keeps its dtype and its order, C or Fortran, on which the last bits of products depend. An array that occurs twice is
stored once. Reading makes frozen dataclasses from the packages in ``PACKAGES`` only, and calls none of their code.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files.archive import BadFileError
from dualnewton.row_arrays import is_elsewhere, on_host

PACKAGES = ("objective.certificate", "planning", "run", "solvers")
"""Modules, or packages of modules, whose frozen dataclasses a state may contain."""

ROOT = __name__.partition(".")[0]

NUMBERS = "biuf"
"""Kinds of dtypes that an array may have: booleans, integers, floats."""

PLAIN = (bool, int, float, str)

FAULTS = (
    ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, RecursionError, TypeError, ValueError
)  # fmt: skip
"""Exceptions that a malformed state may raise."""


def encode(state: Any, name: str = "the state") -> tuple[Any, list[np.ndarray]]:
    """Return plain data as values that JSON can represent, and the arrays to which these refer.

    What is not plain data is a ``TypeError`` that says where it is.
    """
    arrays: list[np.ndarray] = []
    numbers: dict[int, int] = {}

    def represented(value: Any, path: str) -> Any:
        if value is None or type(value) in PLAIN:
            return value
        kind = type(value)
        if kind is np.ndarray and value.dtype.kind in NUMBERS and value.flags.forc:
            if id(value) not in numbers:
                numbers[id(value)] = len(arrays)
                arrays.append(value)
            return ["array", numbers[id(value)], bool(value.flags.writeable)]
        if is_elsewhere(value):
            if id(value) not in numbers:
                numbers[id(value)] = len(arrays)
                arrays.append(on_host(value))
            return ["rows", numbers[id(value)]]
        if isinstance(value, np.generic) and value.dtype.kind in NUMBERS and value.dtype.itemsize <= 8:
            return ["scalar", value.dtype.str, value.item()]
        if kind is tuple:
            return ["tuple", *(represented(part, f"{path}[{k}]") for k, part in enumerate(value))]
        if kind is dict and all(type(key) is str for key in value):
            return ["dict", *([key, represented(part, f"{path}[{key!r:.20}]")] for key, part in value.items())]
        if _is_record(kind):
            names = [part.name for part in fields(value)]
            return [_name(kind), *(represented(getattr(value, part), f"{path}.{part}") for part in names)]
        raise TypeError(f"a checkpoint cannot hold {path}, which is a {kind.__module__}.{kind.__qualname__}")

    return represented(state, name), arrays


def decode(
    tree: Any,
    arrays: Sequence[np.ndarray],
    placed: Callable[[np.ndarray], Any] = lambda array: array,
) -> Any:
    """Return the plain data that :func:`encode` has represented; ``placed`` moves a row array to the place of the data.

    Values that do not represent plain data are a ``BadFileError``.
    """
    try:
        return _read(tree, arrays, placed)
    except FAULTS as error:
        raise BadFileError(f"the state is damaged: {str(error) or type(error).__name__}") from None


def _read(tree: Any, arrays: Sequence[np.ndarray], placed: Callable[[np.ndarray], Any]) -> Any:
    if tree is None or type(tree) in PLAIN:
        return tree
    kind, *parts = tree
    if kind == "array":
        number, writeable = parts
        if type(number) is not int or number < 0 or type(writeable) is not bool:
            raise DualnewtonError(f"{parts!r} is no array")
        array = arrays[number]
        if array.dtype.kind not in NUMBERS:
            raise DualnewtonError(f"array {number} is of {array.dtype}")
        array.flags.writeable = writeable
        return array
    if kind == "rows":
        (number,) = parts
        if type(number) is not int or number < 0 or arrays[number].dtype.kind not in NUMBERS:
            raise DualnewtonError(f"{parts!r} is no row array")
        return placed(arrays[number])
    if kind == "scalar":
        dtype, value = parts
        if type(value) not in (bool, int, float) or not re.fullmatch(rf"[<>|=][{NUMBERS}][1-8]", dtype):
            raise DualnewtonError(f"{value!r} is no number of {dtype!r}")
        return np.dtype(dtype).type(value)
    if kind == "tuple":
        return tuple(_read(part, arrays, placed) for part in parts)
    if kind == "dict":
        pairs = [(key, _read(part, arrays, placed)) for key, part in parts]
        if not all(type(key) is str for key, _ in pairs):
            raise DualnewtonError("the keys of a dict are not all strings")
        return dict(pairs)
    record = _record(kind)
    made: Any = object.__new__(record)
    names = [part.name for part in fields(record)]
    vars(made).update(zip(names, (_read(part, arrays, placed) for part in parts), strict=True))
    return made


def _is_record(kind: type) -> bool:
    """Whether a class is a frozen dataclass of the packages."""
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen and _is_known(kind.__module__.removeprefix(f"{ROOT}."))


def _is_known(module: str) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in PACKAGES)


def _name(kind: type) -> str:
    return f"{kind.__module__.removeprefix(f'{ROOT}.')}:{kind.__qualname__}"


def _record(name: Any) -> type:
    module, _, kind = name.partition(":")
    found = vars(importlib.import_module(f"{ROOT}.{module}"))[kind] if _is_known(module) else None
    if not (isinstance(found, type) and _is_record(found) and _name(found) == name):
        raise DualnewtonError(f"{name!r} is no class of a state")
    return found
