"""Writes the index of the API reference from the public names of the package, so that no name can be missing."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import dualnewton as dn

TITLES = {
    "losses": "Losses",
    "regularizers": "Regularisers",
    "samplings": "Samplings",
    "data": "Data",
    "theory": "Theory",
    "methods": "Methods of the paper",
}
"""The headings of public modules; other public modules are listed under their names."""


def write(path: Path) -> None:
    """Write the page: problems and solutions, estimators, then a section for each public module."""
    names = [name for name in dn.__all__ if not inspect.ismodule(getattr(dn, name))]
    estimators = sorted(dn.estimators.__all__)
    parts = [
        "Reference\n=========\n\nEvery public name, with an example that the test suite runs. Other modules are internal.\n",
        section("Problems, solutions, certificates", "dualnewton", [name for name in names if name not in estimators]),
        section("Estimators", "dualnewton", estimators),
    ]
    modules = [name for name in dn.__all__ if inspect.ismodule(getattr(dn, name)) and name != "estimators"]
    for name in sorted(modules, key=lambda each: [*TITLES, each].index(each)):
        full = f"dualnewton.{name}"
        parts.append(section(TITLES.get(name, full), full, sorted(importlib.import_module(full).__all__)))
    path.write_text("\n".join(parts), encoding="utf-8")


def section(title: str, module: str, names: list[str]) -> str:
    """Return a section with a table of these names, which links to a page for each."""
    listed = "\n".join(f"   {name}" for name in names)
    table = f".. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: generated\n\n{listed}\n"
    return f"{title}\n{'-' * len(title)}\n\n{table}"
