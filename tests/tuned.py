"""Planners with other numbers than the default ones, so that small problems take the way of large ones."""

from dataclasses import fields, replace

from dualnewton.planning.rates import Rates
from dualnewton.planning.tuning import DEFAULT

RATES = {field.name for field in fields(Rates)}


NOT_DIRECT = {
    "direct_entries": 0,
    "direct_multiplications": 0.0,
    "grid_multiplications": 0.0,
    "direct_rows": 0,
    "product_entries": 0,
    "product_block": 0,
    "round_entries": 0,
    "entry_fit": 0,
    "swept_entries": 0,
}
"""No direct solvers."""

DIRECT = {name: getattr(DEFAULT, name) for name in ("direct_entries", "direct_multiplications", "direct_rows")}
"""Direct solvers of dense blocks and of few rows as usual, beside other changes."""


def tuned(**changes):
    """The default tuning but for these fields, of the record itself or of its rates; where there are any, no direct solvers."""
    changes = {**NOT_DIRECT, **changes} if changes else {}
    rates = {name: value for name, value in changes.items() if name in RATES}
    others = {name: value for name, value in changes.items() if name not in RATES}
    return replace(DEFAULT, rates=replace(DEFAULT.rates, **rates), **others)


GENERAL = tuned(one_block_features=0, direct_entries=0, direct_multiplications=0.0, class_rows=0, entry_fit=0)
"""No direct solvers: methods by passes over the data, however small these are."""
