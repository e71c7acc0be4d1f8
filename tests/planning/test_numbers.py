"""Tuned numbers are fields of ``Tuning``: what else has a number in the code of the planner or of a solver is listed here.

A number that decides which of two ways costs less is tuned. It belongs into the record that a run is given, where a test can
replace it and ``benchmarks/calibrate.py`` can measure it. Numbers of other kinds may stand in the code.
"""

import ast
from dataclasses import fields

import pytest

from dualnewton.planning.rates import Rates
from dualnewton.planning.tuning import Tuning
from test_architecture import FILES, SOURCE, nodes_of, text_of

PLANNING = sorted((SOURCE / "planning").glob("*.py"))

RECORDS = {"tuning.py", "rates.py"}
"""The files of tuned numbers."""

PLAIN = {0, 0.5, 1, 2}
"""Halves, doubles and counts; a symmetric matrix has half of its entries to compute."""

OTHERS = {
    "costs.py": {
        3: "a Cholesky factor of m rows has m³/6 multiplications",
        6: "the same",
        4: "bytes of a column index",
        8: "bytes of a number in float64",
        16: "tunings whose rates on a GPU are remembered",
    },
    "direct.py": {3: "an inverse has three times the multiplications of a Cholesky factor"},
    "dual.py": {6: "a Cholesky factor of m rows has m³/6 multiplications"},
    "interior.py": {3: "the exponent 2/3 at which two fits have the same size"},
    "sketching.py": {
        6: "vectors that are read for each pair of L-BFGS",
        700: "the exponential of larger numbers overflows",
        1e-300: "the logarithm of a number that may be zero",
    },
    "small.py": {3: "a Cholesky factor of m rows has m³/6 multiplications", 6: "the same"},
    "switching.py": {128: "steps that a history keeps at most", 1e-15: "relative rounding of a gap"},
    "working_sets.py": {
        3: "a Newton step on m features has m³/6 multiplications",
        6: "the same",
        1e-300: "a denominator that may be zero",
    },
}
"""The numbers in the other files of the planner that are not plain, with the reason why they are not tuned."""


def numbers_in(source):
    """The numbers in a module that are not plain, each with its line."""
    for node in nodes_of(source):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value not in PLAIN:
            yield node.value, node.lineno


def test_the_planner_has_no_numbers_but_those_of_its_tuning():
    others = [path for path in PLANNING if path.name not in RECORDS]
    assert len(others) > 10
    found = {path.name: {number for number, _ in numbers_in(text_of(path))} for path in others}
    assert {name: numbers for name, numbers in found.items() if numbers} == {
        name: set(reasons) for name, reasons in OTHERS.items()
    }


def test_a_number_in_the_planner_would_be_seen():
    assert list(numbers_in("def f(costs):\n    return 1.3 * costs.d > 2 * costs.n - 1")) == [(1.3, 2)]


@pytest.mark.parametrize("record", [Rates, Tuning])
def test_every_tuned_number_is_used(record):
    """A number that nothing reads would be tuned in vain."""
    nodes = (node for path in FILES for node in nodes_of(text_of(path)) if path.name != "tuning.py")
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert {each.name for each in fields(record)} - used == set()
