"""State is data: what a run remembers between steps is plain data, a method restored from it takes the same steps, and no object
has many attributes that change."""

import ast
import copy
import json
from collections import defaultdict
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from checkpoint_cases import CASES
from dualnewton.objective import unpenalised
from dualnewton.run import loop
from dualnewton.run.snapshot import decode, encode
from dualnewton.solvers.protocol import Method, OuterMethod, SharedPasses
from test_architecture import FILES, nodes_of, package_of, text_of

MOST_CHANGING = 12
"""Attributes of an object that may change between steps."""

FURTHER = 3
"""Steps that a run and its restored copy take before they are compared."""


class Stopped(Exception):  # noqa: N818
    """The test has seen enough of the run."""


def watched(case, monkeypatch, look, steps=12):
    """Take some steps of a run; before each, ``look`` is given the run and its random numbers."""

    def drive(run, rng, *_):
        for _ in range(steps):
            look(run, rng)
            if run.finished:
                break
            run.step(rng, np.inf, np.inf)
        raise Stopped

    monkeypatch.setattr(loop, "_drive", drive)
    with pytest.raises(Stopped):
        case.solve(callback=lambda _: False)  # small problems, too, are then driven by the loop


def content(state):
    """Plain data as nested tuples that are equal for equal bits, but for seconds."""
    if isinstance(state, np.ndarray):
        return state.shape, state.dtype.str, state.flags.c_contiguous, state.tobytes()
    if is_dataclass(state):
        names = [part.name for part in fields(state) if not part.name.endswith("seconds")]
        return type(state).__name__, *((name, content(getattr(state, name))) for name in names)
    if isinstance(state, dict):
        return tuple((key, content(part)) for key, part in state.items())
    if isinstance(state, tuple):
        return tuple(map(content, state))
    return state.hex() if isinstance(state, float) else state


def restored(run):
    """The run that is read from what a checkpoint would hold; nothing is shared with the run itself."""
    tree, arrays = encode(run.state())
    state = decode(json.loads(json.dumps(tree)), [array.copy(order="K") for array in arrays])
    problems = [replace(track.problem) for track in run.tracks]
    return loop.Run.restored(problems, run.request, state)


def advanced(run, rng):
    """What a run remembers after some further steps."""
    for _ in range(FURTHER):
        if not run.finished:
            run.step(rng, np.inf, np.inf)
    return content(run.state()), rng.bit_generator.state


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_restored_run_takes_the_same_steps_and_its_state_stays_as_it_was(case, monkeypatch):
    turns = iter(range(100))

    def look(run, rng):
        if next(turns) not in (1, 2, 5):
            return
        state = run.state()
        before, other, numbers = content(state), restored(run), copy.deepcopy(rng)
        assert content(other.state()) == before
        assert advanced(other, numbers) == advanced(run, rng)
        assert content(state) == before  # further steps have not changed what was returned

    watched(case, monkeypatch, look)


def test_a_run_by_conjugate_gradients_is_restored(monkeypatch):
    monkeypatch.setattr(unpenalised, "MOST", 0)
    case = next(case for case in CASES if case.name == "no penalty")
    test_a_restored_run_takes_the_same_steps_and_its_state_stays_as_it_was(case, monkeypatch)


# How many attributes change ---------------------------------------------------------------------------------------------


def own(thing):
    """Whether an object is of a class in solvers/, run/ or planning/."""
    return type(thing).__module__.startswith(("dualnewton.solvers", "dualnewton.run", "dualnewton.planning"))


def objects(thing, path="run", seen=None):
    """Yield the objects of a run that are not frozen, with their paths."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple | dict):
        parts = thing.items() if isinstance(thing, dict) else enumerate(thing)
        for name, part in parts:
            yield from objects(part, f"{path}[{name!r}]", seen)
    elif own(thing) and hasattr(thing, "__dict__") and not isinstance(thing, type):
        if not (is_dataclass(thing) and thing.__dataclass_params__.frozen):
            yield path, thing
        for name, part in vars(thing).items():
            yield from objects(part, f"{path}.{name}", seen)


def mark(value):
    """What tells whether a value has changed: the bits of an array, the items of a list, the object itself."""
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    return tuple(map(id, value)) if isinstance(value, list) else value if isinstance(value, float | int) else id(value)


def test_no_object_has_many_attributes_that_change_and_every_method_is_seen(monkeypatch):
    changing, methods = defaultdict(set), set()
    for case in CASES:
        last, alive = {}, []

        def look(run, rng, last=last, alive=alive):
            for path, thing in objects(run):
                attributes = vars(thing)
                alive.append(list(attributes.values()))  # so that no id is used again
                marks = {name: mark(value) for name, value in attributes.items()}
                before = last.get((path, type(thing)), marks)
                changing[type(thing)] |= {name for name, value in marks.items() if before.get(name, value) != value}
                last[path, type(thing)] = marks
                if isinstance(thing, Method):
                    methods.add(type(thing))

        watched(case, monkeypatch, look, steps=5)
    assert {kind.__name__: names for kind, names in changing.items() if len(names) > MOST_CHANGING} == {}
    assert methods == set(concrete(Method))


def assigned_later(kind):
    """The attributes of a class that methods other than ``__init__`` assign, by its source."""
    for method in kind.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            for node in ast.walk(method):
                stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
                if stored and isinstance(node.value, ast.Name) and node.value.id == "self":
                    yield node.attr


def test_no_class_assigns_many_attributes_after_its_construction():
    """As above, for classes that no case here drives through all of its ways."""
    paths = [path for path in FILES if package_of(path) in ("solvers", "run", "planning")]
    kinds = [node for path in paths for node in nodes_of(text_of(path)) if isinstance(node, ast.ClassDef)]
    assert len(kinds) > 100
    found = {kind.name: set(assigned_later(kind)) for kind in kinds}
    assert {name: names for name, names in found.items() if len(names) > MOST_CHANGING} == {}


def test_an_attribute_that_is_assigned_later_would_be_seen():
    methods = "def __init__(self):\n        self.a = 1\n    def f(self):\n        self.b, self.c = 1, 2\n        self.b += self.a"
    assert set(assigned_later(ast.parse(f"class A:\n    {methods}").body[0])) == {"b", "c"}


def concrete(kind):
    """The methods of the library."""
    for each in kind.__subclasses__():
        if each not in (SharedPasses, OuterMethod):
            yield each
        yield from concrete(each)
