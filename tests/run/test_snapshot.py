"""A graph of objects goes to JSON and arrays and comes back as it was, or is refused by the place of what does not fit."""

import copy
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dualnewton import losses
from dualnewton.files.archive import BadFileError
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem
from dualnewton.run.result import Progress, Status, Trace
from dualnewton.run.snapshot import ROOMS, Anchors, Thawed, freeze
from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.primal.curvature import Diagonal
from dualnewton.solvers.primal.lbfgs import Corrections

NUMBERS = st.sampled_from([np.float64, np.float32, np.int64, np.int32, np.uint8, np.bool_])
ARRAYS = NUMBERS.flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary() | ARRAYS
    | st.sampled_from([Status.CONVERGED, slice(1, None, 2), np.float64(0.1), np.int32(7), np.bool_(True)])
)  # fmt: skip
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text() | st.binary(), inner, max_size=4)
        | inner.map(Diagonal)
    ),
    max_leaves=12,
)


def there_and_back(thing, anchors=None, other=None):
    """Through the text of JSON, as a file would have it; ``other`` are the anchors on the other side."""
    anchors = Anchors() if anchors is None else anchors
    tree, blocks = freeze({"it": thing}, anchors)
    blocks = [block.copy() for block in blocks]
    return Thawed(json.loads(json.dumps(tree)), blocks, anchors if other is None else other).part("it")


def assert_same(one, two):
    assert type(one) is type(two)
    if isinstance(one, np.ndarray):
        assert (one.shape, one.dtype, one.flags.writeable) == (two.shape, two.dtype, two.flags.writeable)
        assert one.size == 0 or one.strides == two.strides
        assert one.tobytes() == two.tobytes()
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            assert_same(one[key], two[key])
    elif type(one).__module__.startswith("dualnewton") and not isinstance(one, Status):
        assert_same(vars(one), vars(two))
    elif isinstance(one, float) and math.isnan(one):
        assert math.isnan(two)
    else:
        assert one == two
        assert not isinstance(one, float) or math.copysign(1.0, one) == math.copysign(1.0, two)


@given(VALUES)
def test_what_goes_in_comes_out(thing):
    assert_same(thing, there_and_back(thing))


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 0.1, np.float32(0.1), 2**127 + 1], ids=str
)
def test_numbers_keep_their_bits_and_their_types(value):
    assert_same(value, there_and_back(value))


def test_strides_order_and_flags_are_kept():
    base = np.arange(24.0).reshape(4, 6)
    windows = [base, base[:, 1:2], base[::2, ::-3], base.T, np.asfortranarray(base), base[1:3].view(np.int64)]
    frozen = base[2]
    frozen.flags.writeable = False
    for one, two in zip([*windows, frozen], there_and_back([*windows, frozen]), strict=True):
        assert_same(one, two)
        assert two.flags.c_contiguous == one.flags.c_contiguous
        assert two.flags.f_contiguous == one.flags.f_contiguous


def test_what_is_shared_stays_shared():
    w = np.zeros(3)
    trace = Trace()
    state = {"w": w, "same": w, "window": w[1:], "traces": [trace, trace], "list": []}
    state["list"].append(state["list"])
    back = there_and_back(state)
    assert back["w"] is back["same"]
    back["window"][0] = 7.0
    assert back["w"].tolist() == [0.0, 7.0, 0.0]
    assert back["traces"][0] is back["traces"][1]
    assert back["list"][0] is back["list"]
    assert w.tolist() == [0.0, 0.0, 0.0]


def test_objects_of_a_run_come_back_as_they_were_frozen_ones_too():
    corrections = Corrections(4, 3)
    rng = np.random.default_rng(0)
    step = rng.standard_normal(4)
    corrections.add(step, 2.0 * step, step)
    rows = [Progress(1.0, 0.5, Certificate(2.0, 1.5), model=3)]
    back_corrections, back = there_and_back([corrections, Trace(rows)])
    assert_same(corrections, back_corrections)
    assert back == Trace(rows)
    assert back.gap.tolist() == [0.5]


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_sparse_matrices_keep_their_indices_and_what_is_known_of_them(kind, index):
    matrix = kind(np.array([[0.0, 1.5, 2.0], [3.0, 0.0, 0.0]]))
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    assert matrix.has_sorted_indices
    back = there_and_back(matrix)
    assert type(back) is kind
    for name in ("data", "indices", "indptr"):
        assert_same(getattr(matrix, name), getattr(back, name))
    assert vars(back)["_has_sorted_indices"] is True
    assert_same(matrix.toarray(), back.toarray())


def test_anchors_are_named_and_not_stored():
    X, y = np.arange(12.0).reshape(6, 2), np.where(np.arange(6) % 2, 1.0, -1.0)
    problem = Problem(X, y, losses.Logistic())
    again = Problem(X.copy(), y.copy(), losses.Logistic())
    state = {"problem": problem, "rows": problem.X[2:4], "y": problem.y[::2], "function": math.sin}
    anchors, other = (
        Anchors.of([one]) | Anchors({"function": f}) for one, f in ((problem, math.sin), (again, math.cos))
    )
    tree, blocks = freeze({"it": state}, anchors)
    assert blocks == []
    assert len(json.dumps(tree)) < 1000
    back = there_and_back(state, anchors, other)
    assert back["problem"] is again
    assert back["function"] is math.cos
    assert np.shares_memory(back["rows"], again.X)
    assert np.shares_memory(back["y"], again.y)
    assert_same(state["y"], back["y"])


class Stranger:
    pass


def stranger_inside():
    solver = object.__new__(Solver)
    solver.problem = [Stranger()]
    return solver


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (Stranger(), "cannot hold it, which is a .*Stranger"),
        ([1, {"a": Stranger()}], r"cannot hold it\[1\]\['a'\], which is a .*Stranger"),
        (stranger_inside(), r"cannot hold it.problem\[0\], which is a .*Stranger"),
        ([len], r"it\[0\], which is a builtins.builtin_function_or_method"),
        ([lambda: 0], r"it\[0\], which is a builtins.function"),
        ({1, 2}, "which is a builtins.set"),
        (np.array([Stranger()]), "it, which is an array of object"),
        (np.array(["text"]), "it, which is an array of <U4"),
        (np.broadcast_to(1.0, (3,)), "it, which is an array with the strides"),
        (Status, "it, which is a enum.EnumType"),
        (losses.Logistic(), "it, which is a dualnewton.losses.smooth.Logistic"),
        (np.random.default_rng(0), "it, which is a numpy.random.*Generator"),
        (sp.coo_array(np.eye(2)), "it, which is a scipy.sparse.*coo_array"),
    ],
    ids=[*map(str, range(13))],
)  # fmt: skip
def test_what_cannot_be_stored_is_refused_by_its_place(thing, message):
    with pytest.raises(TypeError, match=message):
        freeze({"it": thing}, Anchors())


def test_the_rooms_are_there_and_problems_and_passes_are_not_among_them():
    import importlib

    for room in ROOMS:
        importlib.import_module(f"dualnewton.{room}")
    assert not {"objective", "objective.problem", "losses", "regularizers", "samplings", "matrix", "kernels"} & set(
        ROOMS
    )


BAD_NODES = [
    ["object", 0],  # of the class below
    ["named", "os:stat_result", 1],
    ["named", "result:Status", 1],
    ["named", "kernels.models:Models", 1],
    ["member", "result:Status", "MISSING"],
    ["member", "result:Trace", "rows"],
    ["member", "builtins:print", "x"],
    ["anchor", "nobody"],
    ["unknown", 1],
    ["list", [0], [1], [99]],
    ["list", [-1]],
    ["list", [0.0]],
    ["list", {"a": 1}],
    ["tuple", [0]],
    ["dict", [[1], 2]],  # a list as a key
    ["dict", 3],
    ["array", 0, 0, [3], [8], "<f8", True],  # longer than its memory
    ["array", 0, 8, [2], [8], "<f8", True],
    ["array", 0, -8, [1], [8], "<f8", True],
    ["array", 0, 0, [10**12], [0], "<f8", True],
    ["array", 0, 0, [2], [8], "|O", True],
    ["array", 0, 0, [2], [8], "<f8,<f8", True],
    ["array", 0, 0, [-2], [8], "<f8", True],
    ["array", 1, 0, [2], [8], "<f8", True],
    ["array", "X", 0, [2], [8], "<f8", True],
    ["array", None, 0, [2], [8], "<f8", True],
    ["sparse", "csr_array", [1, 1], [1], [1], [1], {}],
    ["scalar", "<f8", [0]],
    ["scalar", "|O", 1],
    ["bytes", 1],
    [],
    7,
]


@pytest.mark.parametrize(
    "room", ["os:system", "builtins:object", "solve:solve", "solve:time", "result:Nobody", "solve", "", "cli:main"]
)
def test_a_class_from_outside_the_rooms_is_never_made(room):
    tree = {"parts": {"it": [0]}, "layouts": [[room, []]], "nodes": [["object", 0]]}
    with pytest.raises(BadFileError, match="the state is damaged"):
        Thawed(tree, [], Anchors()).part("it")


@pytest.mark.parametrize("node", BAD_NODES, ids=str)
def test_a_node_that_makes_no_sense_is_refused(node):
    tree = {"parts": {"it": [0]}, "layouts": [["result:Status", []]], "nodes": [node, ["list"]]}
    with pytest.raises(BadFileError, match="the state is damaged"):
        Thawed(tree, [np.zeros(2)], Anchors()).part("it")


def test_sparse_indices_out_of_range_and_endless_graphs_are_refused():
    tree, blocks = freeze({"it": sp.csr_array(np.eye(3))}, Anchors())
    place = next(k for k, block in enumerate(blocks) if block.tolist() == [0, 1, 2])
    blocks[place] = np.array([0, 1, 99], blocks[place].dtype)
    with pytest.raises(BadFileError):
        Thawed(tree, blocks, Anchors()).part("it")
    deep = {"parts": {"it": [0]}, "layouts": [], "nodes": [["list", [k + 1]] for k in range(10**5)]}
    with pytest.raises(BadFileError):
        Thawed(deep, [], Anchors()).part("it")
    for nothing in (None, [], {}, {"parts": 1, "layouts": [], "nodes": []}, "text"):
        with pytest.raises(BadFileError):
            Thawed(copy.deepcopy(nothing), [], Anchors())
    with pytest.raises(BadFileError, match="damaged: a dict was expected, and there is a list"):
        Thawed({"parts": {"it": [0]}, "layouts": [], "nodes": [["list"]]}, [], Anchors()).part("it", dict)
