"""The parameters of estimators, declared as fields of a class: its ``__init__``, checks and docstring are generated from them.

An estimator declares only the parameters that it adds to those of its bases, or whose default it changes: as annotated class
attributes, with their allowed values in ``_parameter_constraints`` and a description in the docstring. The rest is inherited.
"""

from __future__ import annotations

import inspect
import re
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

from sklearn.utils._param_validation import make_constraint

Class = TypeVar("Class", bound=type)

ENTRY = re.compile(r"^\S.*(?:\n .*)*", flags=re.MULTILINE)
"""One parameter or attribute in a section of a numpydoc docstring."""

HEADING = re.compile(r"\n\n(\w+)\n-+\n")
"""A line with the title of a section of a numpydoc docstring."""

ORDER = {"": 0, "Parameters": 1, "Attributes": 2, "Examples": 4}
"""Positions of sections in the order of numpydoc; sections not listed have position 3."""


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
def estimator(cls: Class) -> Class:
    """Turn a class with annotated parameters into an estimator that follows scikit-learn's rules.

    Parameters are given by name, except those declared by ``field(kw_only=False)``. A parameter that a base has and the class
    does not is declared by ``field(init=False)``.
    """
    made: Any = cls
    made._types = {name: kind for name, kind in inspect.get_annotations(cls).items() if "ClassVar" not in str(kind)}
    made._defaults = {name: vars(cls)[name] for name in made._types}
    made._description = inspect.cleandoc(cls.__doc__ or "")
    made._allowed = vars(cls).get("_parameter_constraints", {})
    # If bases have a common base, a dataclass may take the default of the farther one: declare the default of the nearest again.
    types = _nearest(cls, "_types")
    made.__annotations__ = dict.fromkeys(types, Any)  # a dataclass would evaluate strings in the module of the class
    for name, default in _nearest(cls, "_defaults").items():
        setattr(made, name, copy(default))
    dataclass(eq=False, repr=False, kw_only=True)(made)
    made.__annotations__ = made.__init__.__annotations__ = types
    names, allowed = [each.name for each in fields(made) if each.init], _nearest(cls, "_allowed")
    made._parameter_constraints = {name: allowed[name] for name in names}
    made._parameter_names = sorted(names)
    made._parameter_checks = {name: [make_constraint(each) for each in allowed[name]] for name in names}
    made._parameter_defaults = [(each.name, each.default) for each in fields(made) if each.init]
    if made._description:  # python -OO removes docstrings
        _inherit_descriptions(cls, "Parameters", names)
        _inherit_descriptions(cls, "Attributes")
    return cls


def are_allowed(model: Any) -> bool:
    """Whether each parameter meets one of its constraints, which are built once per class (scikit-learn builds them at each fit).

    Default values always do, and are not checked.
    """
    for name, default in model._parameter_defaults:
        value = getattr(model, name)
        if value is not default and not any(check.is_satisfied_by(value) for check in model._parameter_checks[name]):
            return False
    return True


def _nearest(cls: type, attribute: str) -> dict[str, Any]:
    """Merge the dictionaries that a class and its bases have as an attribute; the entry of the nearest class takes precedence."""
    merged: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        merged |= vars(base).get(attribute, {})
    return merged


def _inherit_descriptions(cls: type, title: str, names: list[str] | None = None) -> None:
    """Complete a section of the docstring from the docstrings of the bases; if ``names`` is given, only for these names."""
    entries: list[str] = []
    seen: set[str] = set()
    for base in cls.__mro__:
        for entry in ENTRY.findall(_sections(vars(base).get("_description", "")).get(title, "")):
            of_entry = set(re.split(" : |\n", entry)[0].split(", "))
            new = of_entry - seen if names is None else of_entry & set(names) - seen
            if new:
                entries.append(entry)
                seen |= new
    sections = _sections(inspect.cleandoc(cls.__doc__ or "")) | {title: "\n".join(entries)}
    ordered = sorted(sections, key=lambda each: ORDER.get(each, 3))
    cls.__doc__ = "\n\n".join(
        f"{each}\n{'-' * len(each)}\n{sections[each]}" if each else sections[each] for each in ordered
    )


def _sections(description: str) -> dict[str, str]:
    """Return the sections of a numpydoc docstring by their titles; the text before the first section has the title ""."""
    first, *rest = HEADING.split(description)
    return {"": first} | dict(zip(rest[::2], rest[1::2], strict=True))
