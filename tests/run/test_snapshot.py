"""Plain data go to JSON and arrays and come back as they were; what is not plain data is refused, by its place."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from checkpoint_cases import CASES
from dualnewton import Checkpoint, losses, regularizers
from dualnewton.files.archive import BadFileError
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem
from dualnewton.planning.plan import Plan
from dualnewton.run import checkpoint
from dualnewton.run.result import Progress, Status, Trace
from dualnewton.run.snapshot import PACKAGES, decode, encode
from dualnewton.solvers.primal.curvature import Cholesky, Diagonal
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.model import Trial

NUMBERS = st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_])
ARRAYS = NUMBERS.flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | ARRAYS
    | st.sampled_from([np.float64(0.1), np.float32(0.1), np.int32(7), np.bool_(True)])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(), inner, max_size=4)
        | inner.map(Diagonal)
        | st.builds(Trial, inner, st.floats(allow_nan=False), st.integers())
    ),
    max_leaves=12,
)


def there_and_back(thing):
    """Through the text of JSON, as a file would have it."""
    tree, arrays = encode(thing, "it")
    return decode(json.loads(json.dumps(tree)), [array.copy(order="K") for array in arrays])


def assert_same(one, two):
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert (one.shape, one.dtype, one.flags.writeable) == (two.shape, two.dtype, two.flags.writeable)
        assert (one.flags.c_contiguous, one.flags.f_contiguous) == (two.flags.c_contiguous, two.flags.f_contiguous)
        assert one.tobytes() == two.tobytes()
    elif isinstance(one, tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif type(one).__module__.startswith("dualnewton"):
        assert_same(vars(one), vars(two))
    elif isinstance(one, float) and math.isnan(one):
        assert math.isnan(two)
    else:
        assert one == two
        assert not isinstance(one, float) or math.copysign(1.0, one) == math.copysign(1.0, two)


@pytest.mark.slow
@given(VALUES)
def test_what_goes_in_comes_out(thing):
    assert_same(thing, there_and_back(thing))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, np.float32(0.1), np.float64(-0.0), 2**127 + 1], ids=str
)
def test_numbers_keep_their_bits_and_their_types(value):
    assert_same(value, there_and_back(value))


def test_order_and_flags_are_kept():
    base = np.arange(24.0).reshape(4, 6)
    frozen = base[2]
    frozen.flags.writeable = False
    for one in (base, base.T, np.asfortranarray(base), base[1:3], base[1:3].view(np.int64), frozen, np.empty((0, 3))):
        assert_same(one, there_and_back(one))


def test_an_array_that_occurs_twice_is_stored_once_and_is_one_array_again():
    w = np.zeros(3)
    tree, arrays = encode({"w": w, "model": Diagonal(w), "other": w.copy()})
    assert len(arrays) == 2
    back = decode(tree, [array.copy() for array in arrays])
    assert back["w"] is back["model"].diagonal
    assert back["other"] is not back["w"]


def test_frozen_dataclasses_come_back_without_running_their_code(monkeypatch):
    step = np.random.default_rng(0).standard_normal(4)
    corrections = Corrections.none().with_pair(step, 2.0 * step, step, 3)
    factor = Cholesky(np.eye(4) * 3.0, np.ones(4), exact=True)
    plan = Plan("sdna", 3, "because", before=Plan("ihs", 5, "first"))
    rows = (Progress(1.0, 0.5, Certificate(2.0, 1.5, parts=(Certificate(1.0, 0.5),)), model=3),)
    state = (corrections, factor, plan, rows)
    tree, arrays = encode(state)

    def never(*_, **__):
        raise AssertionError

    for kind in (Corrections, Cholesky, Plan, Progress, Certificate):
        monkeypatch.setattr(kind, "__init__", never)
    back = decode(json.loads(json.dumps(tree)), [array.copy(order="K") for array in arrays])
    assert_same(state, back)
    assert back[3][0].certificate.gap == 0.5
    np.testing.assert_array_equal(back[1].solve(step), factor.solve(step))


class Stranger:
    pass


X = np.arange(12.0).reshape(6, 2)
PROBLEM = Problem(X, np.where(np.arange(6) % 2, 1.0, -1.0), losses.Logistic())


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Stranger(), "cannot hold it, which is a .*Stranger"),
        ((1, {"a": Stranger()}), r"cannot hold it\[1\]\['a'\], which is a .*Stranger"),
        (Diagonal((Stranger(),)), r"cannot hold it.diagonal\[0\], which is a .*Stranger"),
        ((len,), r"it\[0\], which is a builtins.builtin_function_or_method"),
        ((lambda: 0,), r"it\[0\], which is a builtins.function"),
        ({1, 2}, "which is a builtins.set"),
        ([1, 2], "which is a builtins.list"),
        (b"octets", "which is a builtins.bytes"),
        ({1: 2}, "which is a builtins.dict"),
        (slice(1), "which is a builtins.slice"),
        (np.array([Stranger()]), "it, which is a numpy.ndarray"),
        (np.array(["text"]), "it, which is a numpy.ndarray"),
        (X[:, ::2].T[::1, ::2], "it, which is a numpy.ndarray"),  # neither in C order nor in Fortran's
        (np.ma.array([1.0]), "it, which is a numpy.ma.*MaskedArray"),
        (np.longdouble(1.0), "it, which is a numpy.longdouble"),
        (np.complex128(1.0), "it, which is a numpy.complex128"),
        (Status, "it, which is a enum.EnumType"),
        (Status.CONVERGED, "it, which is a dualnewton.run.result.Status"),
        (losses.Logistic(), "it, which is a dualnewton.losses.smooth.Logistic"),
        (PROBLEM, "it, which is a dualnewton.objective.problem.Problem"),
        (PROBLEM.data, "it, which is a dualnewton.matrix.*MemoryData"),
        (Trace(), "it.rows, which is a builtins.list"),
        (np.random.default_rng(0), "it, which is a numpy.random.*Generator"),
        (sp.csr_array(np.eye(2)), "it, which is a scipy.sparse.*csr_array"),
    ],
    ids=[*map(str, range(24))],
)
def test_what_is_not_plain_data_is_refused_by_its_place(thing, message):
    with pytest.raises(TypeError, match=message):
        encode(thing, "it")


def test_the_packages_are_there_and_problems_and_data_are_not_among_them():
    import importlib

    for package in PACKAGES:
        importlib.import_module(f"dualnewton.{package}")
    assert not {"objective", "objective.problem", "losses", "regularizers", "samplings", "matrix", "kernels"} & set(
        PACKAGES
    )


PLAN = ["sdna", 3, "because", False, 1.0, None, False, None]

BAD_TREES = [
    ["planning.plan:Plan", *PLAN[:-1]],  # a field is missing
    ["planning.plan:Plan", *PLAN, None],
    ["planning.plan:Plan", *PLAN[:-1], ["unknown", 1]],
    ["run.result:Status", "CONVERGED"],  # no dataclass
    ["run.loop:Run", *[None] * 11],  # not frozen
    ["solvers.protocol:Method"],
    ["unknown", 1],
    ["tuple", {"a": 1}],
    ["tuple", []],
    ["dict", ["a"]],
    ["dict", [["tuple"], 2]],  # a tuple as a key
    ["dict", [1, 2]],
    ["dict", 3],
    ["array", 1, True],
    ["array", -1, True],
    ["array", 0.0, True],
    ["array", True, True],
    ["array", 0, 1],
    ["array", 0],
    ["array", "X", True],
    ["array", [0], True],
    ["array", 2, True],  # of text
    ["scalar", "<f8", [0]],
    ["scalar", "<f8", "1.0"],
    ["scalar", "<f16", 1.0],
    ["scalar", "|O", 1],
    ["scalar", "<f8,<f8", 1],
    ["scalar", 8, 1],
    ["scalar", "|u1", 999],
    [],
    [["tuple"]],
    {"a": 1},
    {},
]


@pytest.mark.parametrize("tree", BAD_TREES, ids=str)
def test_a_tree_that_makes_no_sense_is_refused(tree):
    arrays = [np.zeros(2), np.array(["text"])]
    for nested in (tree, ["tuple", 1, ["dict", ["a", tree]]]):
        with pytest.raises(BadFileError, match="the state is damaged"):
            decode(nested, arrays[:1] if tree != ["array", 2, True] else [*arrays[:1], *arrays])


@pytest.mark.parametrize(
    "name",
    [
        "os:system", "builtins:object", "run.loop:solve", "run.loop:time", "run.result:Nobody", "run.loop", "", "cli:main",
        "losses.smooth:Logistic", "objective.problem:Problem", "run.loop:Plan", "run.track:Track", "run.nowhere:Plan",
        "run..loop:Plan", "runs:Run", "run.snapshot:np.ndarray", ":", "planning.plan:Plan.__init__",
    ],
)  # fmt: skip
def test_only_frozen_dataclasses_of_the_packages_are_made(name):
    with pytest.raises(BadFileError, match="the state is damaged"):
        decode([name], [])


def test_trees_without_end_are_refused():
    deep = None
    for _ in range(10**5):
        deep = ["tuple", deep]
    with pytest.raises(BadFileError):
        decode(deep, [])


def test_a_state_of_another_kind_is_refused_where_it_is_restored(tmp_path, monkeypatch):
    """Plain data that are not the state of this run: the error is that of a damaged file, in one line."""
    case = next(case for case in CASES if case.name == "sdna")
    path = tmp_path / "run.checkpoint"
    case.solve(checkpoint=Checkpoint(path, seconds=0.0, spacing=0.0))
    written, read = path.read_bytes(), checkpoint.decode
    for wrong in (3, "text", ("a",), {"tracks": ()}, Plan("sdna", 3, "because")):
        monkeypatch.setattr(
            checkpoint, "decode", lambda *file, wrong=wrong, **more: {**read(*file, **more), "run": wrong}
        )
        with pytest.raises(BadFileError, match="is a damaged checkpoint") as caught:
            case.solve(checkpoint=path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == written


@pytest.mark.parametrize("thing", [regularizers.L2(), regularizers.ElasticNet(), regularizers.JointL1()], ids=repr)
def test_a_property_that_was_computed_is_no_part_of_a_description(thing):
    fresh = checkpoint.described(replace(thing))
    assert thing.form is not None
    assert checkpoint.described(thing) == fresh
