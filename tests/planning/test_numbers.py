"""Tuned numbers are fields of ``Tuning``: what else has a number in the code of the planner or of a solver is listed here.

A number that decides which of two ways costs less is tuned. It belongs into the record that a run is given, where a test can
replace it and ``benchmarks/calibrate.py`` can measure it. Numbers of other kinds may stand in the code.
"""

import ast
from dataclasses import fields, replace

import pytest

from dualnewton.planning.rates import Rates
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run import checkpoint
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
    },
    "direct.py": {3: "an inverse has three times the multiplications of a Cholesky factor"},
    "dual.py": {6: "a Cholesky factor of m rows has m³/6 multiplications"},
    "interior.py": {3: "the exponent 2/3 at which two fits have the same size"},
    "sketching.py": {
        6: "vectors that are read for each pair of L-BFGS",
        700: "the exponential of larger numbers overflows",
        1e-300: "the logarithm of a number that may be zero",
    },
    "small_products.py": {
        3: "the pairs of entries of n rows with n coordinates are n³/2",
        1e15: "products of larger numbers overflow in float32",
    },
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


# Constants of solvers -----------------------------------------------------------------------------------------------------------

ALLOWED = {
    "rounding: what is smaller is none, a diagonal is increased by so much, digits were lost by cancellation": """
        CANCELLED CURVED DEPENDENT EXACT FINEST FLAT FLOAT32_RATIO LEAST_VARIANCE LEVEL LIFT LITTLE LIFTS LOOSEST MARGINS
        NARROW_ROUNDING NEGLIGIBLE NOISE NOTHING OUTSIDE RESIDUALS ROUNDED ROUNDING SAME SETTLED SHORTEST SINGLE SINGULAR
        SMALL_PART SNAP SPANNED TIE RIGHT TIGHTEST TINY TOLERANCE TRUSTED ZERO""",
    "counts that end a loop, and trials in vain after which the rest is rounding": """
        HALVINGS IDLE IN_VAIN MAX_NEWTON_STEPS MAX_SWEEPS MOST MOST_EXCHANGES MOST_IN_VAIN MOST_NEWTON MOST_PAIRS MOST_PENALTIES
        MOST_PRODUCTS MOST_PROXIMAL MOST_REFINEMENTS MOST_SETS MOST_STEPS MOST_SWEEPS MOST_TRIALS PATIENCE PRODUCTS
        REFINED ROUNDS SECANTS SHORTENED SHORTER SLOW STEPS TRIALS""",
    "accuracy that an inner problem needs, as a fraction of what is left of the outer one": """
        BELOW BETWEEN CORRECTED EASY ENOUGH FINE FINER FOCUSED_RESIDUAL FRACTION INEXACT INNER KNOT LOOSELY NEAR NEARLY PREDICTED
        REDUCTION RESIDUAL ROUGHLY SAMPLED SAMPLE_GAP SHARE SHARPER TIGHTER UNNOTICED VIOLATION WELL_BELOW""",
    "rules of steps: line searches, damping, centrality, extrapolation, shrinking, growing sets": """
        APART BOUNDARY CENTRAL CLOSE COLD DAMPING DECIDED ENTERING EXPECTED FALL FALLS FAR FEWEST FEW_FREE FIRST FULL
        GAIN GOOD GROWTH HALVED INACTIVE INSIDE KEPT LAST LEAST LEAST_DAMPING LEAST_PRODUCTS LEAST_SECANT LEAST_SLOPE LONGEST
        LOWER MEMORY MORE MOST_SLOPE MULTIPLES MULTIPLE_INSIDE NARROWER NARROWEST NEARER POOR RAISED REACH RELAXED RESTRICTED_FROM
        RISE SHORT SHRINK SHRINKS SLOWLY SMALL_MOVE SPREAD START STEEP STRICTER STRONG SUFFICIENT SWEEPS WIDER WIDTH WORSE
        WORTHWHILE""",
    "statistics: how many samples estimate a mean, when estimates are trusted": """
        CANDIDATES ENOUGH ESTIMATED EVEN EXACT FEW LIFTED MANY NOTICED OBSERVED OBSERVED_JOINT OBSERVED_SPARSE RARE RECENT REFINED
        MAJORITY ROUGH SERVED SEVERAL TOO_LARGE UNDECIDED""",
    "bounds that are theorems, and marks": "GOLDEN KEEP LARGEST MEDIAN",
    "work that is counted, in epochs": "LEAST_EPOCHS PASSES STEP_EPOCHS",
    "pieces of work between two looks at the deadline, or in a cache": """
        AHEAD AT_ONCE BETWEEN_CHECKS CHECKED DRAWN PIECE ROUNDS_AT_ONCE SLOTS TOGETHER WIDE""",
    "sizes of samples and blocks of Newton's method on small data, which it is not given yet": """
        COPIED CURVED_ROWS LEAST_SAMPLE PASSED PER_UNKNOWN SAMPLED SAMPLE_STEPS UNEVEN""",
    "layout of arrays: lengths from which another order of the same operations is faster in NumPy": """
        FEW_REFINEMENTS LONG SHORT SMALL""",
}
"""Names of the numbers that may stand in the modules of solvers, by what they are. A number that decides which of two methods of
computing the same costs less belongs into :class:`dualnewton.solvers.crossovers.Crossovers` instead."""


OTHER_PARTS = (ast.JoinedStr, ast.Dict, ast.Set, ast.List, ast.Lambda, ast.Subscript, ast.comprehension)
"""Parts of expressions that are no numbers."""


def constants_in(source):
    """The names that a module gives to numbers, such as ``A, B = 1 << 14, math.log(2.0)``."""
    for node in ast.parse(source).body:
        parts = list(ast.walk(node.value)) if isinstance(node, ast.Assign) else []
        values = [type(part.value) for part in parts if isinstance(part, ast.Constant)]
        made = bool(parts) and isinstance(parts[0], ast.Call) and ast.unparse(parts[0].func).split(".")[0] != "math"
        others = made or any(isinstance(part, OTHER_PARTS) for part in parts)
        if values and set(values) <= {int, float} and not others:
            names = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
            yield from (name.id for name in names)


def test_solvers_have_no_tuned_numbers_of_their_own():
    allowed = {name for names in ALLOWED.values() for name in names.split()}
    paths = sorted((SOURCE / "solvers").rglob("*.py"))
    found = {path.relative_to(SOURCE).as_posix(): set(constants_in(text_of(path))) for path in paths}
    assert len(set.union(*found.values())) > 100
    assert {path: names - allowed for path, names in found.items() if not names <= allowed} == {}


def test_a_number_of_a_solver_would_be_seen():
    source = "WIDE, TALL = 36.0, 1 << 10\nWORDS = ('a', 2)\nREACH = math.log(1e3)\nEMPTY = np.zeros(3)"
    assert list(constants_in(source)) == ["WIDE", "TALL", "REACH"]


# All of them -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [Rates, Tuning])
def test_every_tuned_number_is_used(record):
    """A number that nothing reads would be tuned in vain."""
    nodes = (node for path in FILES for node in nodes_of(text_of(path)))
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    assert {each.name for each in fields(record)} - used == set()


def test_what_is_kept_with_a_tuning_is_no_setting():
    """A process that made other fits before continues from a checkpoint of one that made none."""
    fresh, used = replace(DEFAULT), replace(DEFAULT)
    used.kept(("any", 3), lambda: 5)
    used.on_gpu(0)
    assert used.kept(("any", 3), lambda: 6) == 5
    assert checkpoint.described(used) == checkpoint.described(fresh)
    assert checkpoint.described(used) != checkpoint.described(replace(DEFAULT, small_entries=1))
