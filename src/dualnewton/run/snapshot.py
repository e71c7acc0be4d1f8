"""The state of a run as JSON and arrays, and back, bit for bit: what a checkpoint holds.

The objects that can be reached from a few named ones become a table of nodes that refer to each other by number, so that what
was one object before is one object after:

    {"parts": {"loop": [3]}, "layouts": [["run.loop:Run", ["tracks", "steps"]]], "nodes": [["list", 1.5, [2]], …]}

A number, a string, true, false and null stand for themselves; [k] stands for node k. An array is a window into a block of
memory, with its strides and whether it may be written: BLAS adds a strided vector in another order, and kernels are
compiled for the one or the other. Arrays that share memory still do afterwards.

What both sides have is not stored but named (:class:`Anchors`): the data, and whatever is rebuilt from them.

Reading makes objects of the classes in ``ROOMS`` only, without running anything of theirs, and of a few plain types. Writing
refuses everything else, by its place in the graph: nothing can be forgotten.
"""

from __future__ import annotations

import enum
import importlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.files.archive import BadFileError

ROOMS = ("objective.certificate", "planning", "run.loop", "run.result", "solvers", "kernels.models", "kernels.rows")
"""The modules, or packages of modules, whose classes a run is made of. Problems, passes over the data and kernels are not among
them: they are anchors."""

PACKAGE = __name__.partition(".")[0]

SPARSE = {kind.__name__: kind for kind in (sp.csr_array, sp.csc_array, sp.csr_matrix, sp.csc_matrix)}

SPARSE_FLAGS = ("_has_sorted_indices", "_has_canonical_format")
"""What SciPy has found out about a matrix, or been told, and by which it chooses how to add."""

NUMBERS = "biuf"
"""Kinds of arrays: booleans, integers, floats."""

PLAIN = (bool, int, float, str)


@dataclass
class Anchors:
    """What is there before a state is read: objects by name, and arrays into whose memory others may look.

    Attributes
    ----------
    objects : dict
        Each stands for itself.
    memory : dict of arrays
        In C order. An array within the memory of one is stored as the place where it looks.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, problems: Sequence[Any], name: str = "problem") -> Anchors:
        """Name problems that share X, and the arrays they are made of."""
        memory = {f"X {part}".strip(): array for part, array in problems[0].data.arrays().items()}
        for k, problem in enumerate(problems):
            arrays = {part.name: getattr(problem, part.name) for part in fields(problem) if part.name != "X"}
            memory |= {f"{name} {k} {part}": array for part, array in arrays.items() if isinstance(array, np.ndarray)}
        whole = {part: array for part, array in memory.items() if array.flags.c_contiguous and array.size}
        return cls({f"{name} {k}": problem for k, problem in enumerate(problems)}, whole)

    def __or__(self, other: Anchors) -> Anchors:
        return Anchors(self.objects | other.objects, self.memory | other.memory)


# Writing -------------------------------------------------------------------------------------------------------------


def freeze(parts: Mapping[str, Any], anchors: Anchors) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the graph behind the named parts, as JSON can say it, and the blocks of memory that its arrays look into.

    Raises
    ------
    TypeError
        If something in it can be neither stored nor found among the anchors; the message says where it is.
    """
    writer = _Writer(anchors)
    named = {name: writer.value(part, name) for name, part in parts.items()}
    layouts = [[kind, list(names)] for kind, names in writer.layouts]
    return {"parts": named, "layouts": layouts, "nodes": writer.nodes}, writer.blocks


class _Writer:
    def __init__(self, anchors: Anchors) -> None:
        self.anchors = {id(thing): name for name, thing in anchors.objects.items()}
        self.memory = [(name, *_extent(array)) for name, array in anchors.memory.items()]
        self.nodes: list[Any] = []
        self.blocks: list[np.ndarray] = []
        self.layouts: dict[tuple[str, tuple[str, ...]], int] = {}
        self.known: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self.alive: list[Any] = []  # for as long as their ids are known

    def value(self, thing: Any, path: str) -> Any:
        if thing is None or type(thing) in PLAIN:
            return thing
        if id(thing) not in self.known:
            self.alive.append(thing)
            self.known[id(thing)] = place = len(self.nodes)
            self.nodes.append(None)  # known before what it holds is looked at: that may hold it, too
            self.nodes[place] = self._node(thing, path)
        return [self.known[id(thing)]]

    def _node(self, thing: Any, path: str) -> list[Any]:
        if id(thing) in self.anchors:
            return ["anchor", self.anchors[id(thing)]]
        for kind, write in _WRITERS:
            if isinstance(thing, kind):
                node = write(self, thing, path)
                if node is not None:
                    return node
                break
        room = _room(type(thing))
        if room is None or not hasattr(thing, "__dict__") or isinstance(thing, type):
            raise TypeError(f"a checkpoint cannot hold {path}, which is a {_full_name(type(thing))}")
        attributes = vars(thing)
        values = [self.value(value, f"{path}.{name}") for name, value in attributes.items()]
        layout = self.layouts.setdefault((room, tuple(attributes)), len(self.layouts))
        return ["object", layout, *values]

    def _each(self, values: Sequence[Any], path: str) -> list[Any]:
        return [self.value(value, f"{path}[{k}]") for k, value in enumerate(values)]

    def _list(self, thing: list[Any], path: str) -> list[Any] | None:
        return ["list", *self._each(thing, path)] if type(thing) is list else None

    def _tuple(self, thing: tuple[Any, ...], path: str) -> list[Any] | None:
        if type(thing) is tuple:
            return ["tuple", *self._each(thing, path)]
        names, room = getattr(type(thing), "_fields", None), _room(type(thing))
        if names is None or room is None:
            return None
        both = zip(names, thing, strict=True)
        return ["named", room, *[self.value(value, f"{path}.{name}") for name, value in both]]

    def _dict(self, thing: dict[Any, Any], path: str) -> list[Any] | None:
        if type(thing) is not dict:
            return None
        items = enumerate(thing.items())
        return [
            "dict",
            *[[self.value(a, f"{path} key {k}"), self.value(b, f"{path}[{a!r:.20}]")] for k, (a, b) in items],
        ]

    def _bytes(self, thing: bytes, path: str) -> list[Any]:
        return ["bytes", self.value(np.frombuffer(thing, np.uint8), path)]

    def _slice(self, thing: slice, path: str) -> list[Any]:
        return ["slice", *self._each((thing.start, thing.stop, thing.step), path)]

    def _member(self, thing: enum.Enum, path: str) -> list[Any] | None:  # noqa: ARG002
        room = _room(type(thing))
        return None if room is None else ["member", room, thing.name]

    def _scalar(self, thing: np.generic, path: str) -> list[Any] | None:  # noqa: ARG002
        if thing.dtype.kind not in NUMBERS or thing.dtype.itemsize > 8:
            return None
        return ["scalar", thing.dtype.str, thing.item()]

    def _sparse(self, thing: Any, path: str) -> list[Any] | None:
        if SPARSE.get(type(thing).__name__) is not type(thing):
            return None
        parts = [self.value(getattr(thing, name), f"{path}.{name}") for name in ("data", "indices", "indptr")]
        flags = {name: bool(vars(thing)[name]) for name in SPARSE_FLAGS if name in vars(thing)}
        return ["sparse", type(thing).__name__, list(map(int, thing.shape)), *parts, flags]

    def _array(self, thing: np.ndarray, path: str) -> list[Any] | None:
        if thing.dtype.kind not in NUMBERS:
            raise TypeError(f"a checkpoint cannot hold {path}, which is an array of {thing.dtype}")
        start, length = _extent(thing)
        shape, strides = list(thing.shape), list(thing.strides)
        looks = [shape, strides, thing.dtype.str, bool(thing.flags.writeable)]
        if thing.size == 0:
            return ["array", None, 0, *looks]
        for name, begin, size in self.memory:
            if begin <= start and start + length <= begin + size:
                return ["array", name, start - begin, *looks]
        root = thing
        while isinstance(root.base, np.ndarray):
            root = root.base
        if not root.flags.forc or any(s == 0 and size > 1 for s, size in zip(strides, shape, strict=True)):
            raise TypeError(f"a checkpoint cannot hold {path}, which is an array with the strides {thing.strides}")
        if id(root) not in self.places:
            self.alive.append(root)
            self.places[id(root)] = len(self.blocks)
            self.blocks.append(np.asarray(root).ravel(order="K"))
        return ["array", self.places[id(root)], _address(thing) - _address(root), *looks]


_WRITERS: tuple[tuple[type | tuple[type, ...], Any], ...] = (
    (np.ndarray, _Writer._array),
    (np.generic, _Writer._scalar),
    (list, _Writer._list),
    (tuple, _Writer._tuple),
    (dict, _Writer._dict),
    (bytes, _Writer._bytes),
    (slice, _Writer._slice),
    (enum.Enum, _Writer._member),
    ((sp.sparray, sp.spmatrix), _Writer._sparse),
)


# Reading -------------------------------------------------------------------------------------------------------------


class Thawed:
    """A graph that is being read back, a part at a time.

    Attributes
    ----------
    anchors : Anchors
        May grow between two parts: what is read first may be what is needed to rebuild more.

    Raises
    ------
    BadFileError
        Here and by :meth:`part`, if the graph is not one.
    """

    def __init__(self, tree: Any, blocks: Sequence[np.ndarray], anchors: Anchors, name: str = "the state") -> None:
        self.anchors, self.name, self._blocks = anchors, name, blocks
        try:
            self._parts, self._layouts, self._nodes = dict(tree["parts"]), list(tree["layouts"]), list(tree["nodes"])
        except (TypeError, KeyError, ValueError) as error:
            raise BadFileError(f"{name} is damaged: it is not a table of nodes ({error})") from None
        self._made: dict[int, Any] = {}
        self._making: set[int] = set()

    def __contains__(self, name: str) -> bool:
        return self._parts.get(name) is not None

    def part(self, name: str, kind: type = object) -> Any:
        """Return a part, which has to be of this kind."""
        try:
            return self._checked(self._parts[name], kind)
        except (
            ArithmeticError,
            AttributeError,
            ImportError,
            LookupError,
            MemoryError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise BadFileError(f"{self.name} is damaged: {str(error) or type(error).__name__}") from None

    def _value(self, told: Any) -> Any:
        if told is None or type(told) in PLAIN:
            return told
        (place,) = told
        if type(place) is not int or not 0 <= place < len(self._nodes):
            raise DualnewtonError(f"there is no node {place!r}")
        if place not in self._made:
            if place in self._making:
                raise DualnewtonError(f"node {place} is made of itself")
            self._making.add(place)
            kind, *rest = self._nodes[place]
            if kind in _HOLDERS:
                making = _HOLDERS[kind](self, *rest)
                self._made[place] = next(making)
                list(making)
            else:
                self._made[place] = _READERS[kind](self, *rest)
        return self._made[place]

    # What may hold itself, by way of others, is known before it is filled: these yield it first.

    def _list(self, *values: Any) -> Iterator[Any]:
        made: list[Any] = []
        yield made
        made.extend(map(self._value, values))

    def _dict(self, *items: Any) -> Iterator[Any]:
        made: dict[Any, Any] = {}
        yield made
        for key, value in items:
            made[self._value(key)] = self._value(value)

    def _object(self, layout: int, *values: Any) -> Iterator[Any]:
        room, names = self._layouts[_index(layout)]
        kind = _class(room)
        if issubclass(kind, tuple | enum.Enum) or not all(isinstance(name, str) for name in names):
            raise DualnewtonError(f"{room} is not made of attributes")
        made = object.__new__(kind)
        yield made
        vars(made).update({name: self._value(value) for name, value in zip(names, values, strict=True)})

    # The others are made of what is known.

    def _anchor(self, name: str) -> Any:
        return self.anchors.objects[name]

    def _tuple(self, *values: Any) -> tuple[Any, ...]:
        return tuple(map(self._value, values))

    def _named(self, room: str, *values: Any) -> Any:
        kind = _class(room)
        if not issubclass(kind, tuple) or len(values) != len(kind._fields):  # type: ignore[attr-defined]
            raise DualnewtonError(f"{room} is not a tuple of {len(values)}")
        return tuple.__new__(kind, map(self._value, values))

    def _bytes(self, octets: Any) -> bytes:
        return bytes(self._checked(octets, np.ndarray).tobytes())

    def _slice(self, *ends: Any) -> slice:
        return slice(*map(self._value, ends))

    def _member(self, room: str, name: str) -> Any:
        kind = _class(room)
        if not issubclass(kind, enum.Enum):
            raise DualnewtonError(f"{room} has no members")
        return kind[name]

    def _scalar(self, dtype: str, value: Any) -> Any:
        if type(value) not in PLAIN:
            raise DualnewtonError(f"{value!r} is not a number")
        return _dtype(dtype).type(value)

    def _sparse(self, kind: str, shape: Any, data: Any, indices: Any, indptr: Any, flags: dict[str, Any]) -> Any:
        rows, columns = _whole_numbers(shape)
        made = SPARSE[kind]((rows, columns), dtype=np.float64)
        # One by one: SciPy's own way would choose the kind of the indices anew.
        made.data, made.indices, made.indptr = (self._checked(part, np.ndarray) for part in (data, indices, indptr))
        made.check_format(full_check=True)
        vars(made).update({name: bool(flags[name]) for name in SPARSE_FLAGS if name in flags})
        return made

    def _array(
        self, block: int | str | None, offset: int, shape: Any, strides: Any, dtype: str, writeable: bool
    ) -> np.ndarray:
        shape, strides, kind = _whole_numbers(shape), _whole_numbers(strides, low=None), _dtype(dtype)
        if block is None:
            if 0 not in shape:
                raise DualnewtonError(f"an array of shape {shape} has no memory")
            made = np.empty(shape, kind)
        else:
            memory = self.anchors.memory[block] if isinstance(block, str) else self._blocks[_index(block)]
            if math.prod(shape) * kind.itemsize > memory.nbytes:
                raise DualnewtonError(f"an array of shape {shape} is larger than its memory")
            made = np.ndarray(shape, kind, memory, _index(offset), strides)
        made.flags.writeable = bool(writeable) and made.flags.writeable
        return made

    def _checked(self, told: Any, kind: type) -> Any:
        value = self._value(told)
        if not isinstance(value, kind):
            raise DualnewtonError(f"a {kind.__name__} was expected, and there is a {type(value).__name__}")
        return value


_HOLDERS: dict[str, Any] = {"dict": Thawed._dict, "list": Thawed._list, "object": Thawed._object}
_READERS: dict[str, Any] = {
    "anchor": Thawed._anchor,
    "array": Thawed._array,
    "bytes": Thawed._bytes,
    "member": Thawed._member,
    "named": Thawed._named,
    "scalar": Thawed._scalar,
    "slice": Thawed._slice,
    "sparse": Thawed._sparse,
    "tuple": Thawed._tuple,
}


# Names and places ----------------------------------------------------------------------------------------------------


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _room(kind: type) -> str | None:
    """Return "module:Class" for a class of the rooms, by which :func:`_class` finds it."""
    module = kind.__module__.removeprefix(f"{PACKAGE}.")
    return f"{module}:{kind.__qualname__}" if _is_known(module) and kind.__module__ != module else None


def _is_known(module: str) -> bool:
    return any(f"{module}.".startswith(f"{room}.") for room in ROOMS)


def _class(room: str) -> type:
    module, _, name = room.partition(":")
    if not _is_known(module):
        raise DualnewtonError(f"{room!r} is no class of a run")
    kind = vars(importlib.import_module(f"{PACKAGE}.{module}"))[name]
    if not (isinstance(kind, type) and _room(kind) == room):
        raise DualnewtonError(f"{room!r} is no class of a run")
    return kind


def _dtype(name: str) -> np.dtype[Any]:
    if not isinstance(name, str) or re.fullmatch(rf"[<>|][{NUMBERS}]\d{{1,2}}", name) is None:
        raise DualnewtonError(f"{name!r} is no kind of numbers")
    return np.dtype(name)


def _index(value: Any) -> int:
    (number,) = _whole_numbers([value])
    return number


def _whole_numbers(values: Any, low: int | None = 0) -> tuple[int, ...]:
    numbers = tuple(values)
    if not all(type(number) is int and (low is None or number >= low) for number in numbers):
        raise DualnewtonError(f"{values!r} are not whole numbers")
    return numbers


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _extent(array: np.ndarray) -> tuple[int, int]:
    """Return where the memory that an array looks at begins, and how long it is."""
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)] if array.size else []
    below, above = sum(span for span in spans if span < 0), sum(span for span in spans if span > 0)
    return _address(array) + below, above - below + (array.itemsize if array.size else 0)
