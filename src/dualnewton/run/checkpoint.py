"""Checkpoints: the state of a run in a file, the description of the run to which it belongs, and the times of writing.

A checkpoint changes nothing about a run. It holds the state between two steps of the loop (:mod:`dualnewton.run.snapshot`), so
that a resumed run ends as if it had never stopped, bit for bit. See docs/checkpoints.md.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.files import archive as _archive
from dualnewton.files.archive import BadFileError
from dualnewton.row_arrays import on_host
from dualnewton.run.result import Status
from dualnewton.run.snapshot import FAULTS, decode, encode
from dualnewton.solvers.protocol import Request
from dualnewton.validation import positive

KIND, VERSION = "checkpoint", 4

SECONDS, SPACING = 0.25, 20.0
"""Least seconds between two writes, and the same as a multiple of the duration of a write: at most 5 % of the time is writing."""

HASHED = 1 << 24
"""Bytes of the data that are hashed at a time, so that data on disk are never completely in memory."""

LONG = 200
"""Length beyond which a description is truncated and its hash appended."""

SOFTWARE = ("dualnewton", "numpy", "scipy", "numba")
"""Packages whose versions are part of the description: another version may round differently."""

ENDED = frozenset({None, Status.CONVERGED, Status.ROUNDING, Status.NO_PROGRESS})
"""Statuses that do not depend on limits and callbacks; only states with these are saved."""


@dataclass(frozen=True)
class Checkpoint:
    """The file for the state of a run, and how often it is written.

    Parameters
    ----------
    path : path
        The file. If it exists, the run continues from it; it must be of the same problem and settings.
    seconds : float
        The least time between two writes.
    spacing : float
        The least time between two writes as a multiple of the duration of the last one.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problem = dn.Problem(data.X, data.y, dn.losses.Squared(), lam=0.01)
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "run.checkpoint"
    >>> result = dn.solve(problem, checkpoint=dn.Checkpoint(place, seconds=0.0))
    >>> result.converged
    True
    """

    path: str | os.PathLike[str]
    _: KW_ONLY
    seconds: float = SECONDS
    spacing: float = SPACING

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike) or not os.fspath(self.path):
            raise DualnewtonError(f"checkpoint must be None, the path of a file or a Checkpoint, got {self.path!r}")
        positive("seconds", self.seconds, or_zero=True)
        positive("spacing", self.spacing, or_zero=True)
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise DualnewtonError(f"checkpoint must be a file in a folder that exists, got {os.fspath(self.path)!r}")
        if not os.access(folder, os.W_OK):
            raise DualnewtonError(
                f"checkpoint must be a file in a folder that may be written, got {os.fspath(self.path)!r}"
            )


class Keeper:
    """Stores the state of a run and of its random generator in a file."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        identity: Mapping[str, str],
        rng: np.random.Generator,
        placed: Callable[[np.ndarray], Any] = lambda array: array,
    ) -> None:
        self.checkpoint, self.identity, self.rng, self.placed = checkpoint, dict(identity), rng, placed
        self.written, self.took = time.perf_counter(), 0.0
        self.found = self._read() if os.path.lexists(checkpoint.path) else None

    def _read(self) -> Any:
        path = self.checkpoint.path
        try:
            content, arrays = _archive.read(path, KIND, VERSION)
            theirs, text = dict(content["run"]), arrays.pop("state")
            if content["digest"] != _digest_of_state(theirs, text, arrays):
                raise DualnewtonError("its digest does not match its content")
        except BadFileError:
            raise
        except FAULTS as error:
            raise self.damaged(error) from None
        self._compare(theirs)
        try:
            stored = [arrays[str(k)] for k in range(len(arrays))]
            state = decode(json.loads(text.tobytes()), stored, placed=self.placed)
            self.rng.bit_generator.state = state["random"]
            return state["run"]
        except FAULTS as error:
            raise self.damaged(error) from None

    def damaged(self, error: Exception) -> BadFileError:
        """Return the error for a file that is not a valid checkpoint."""
        return BadFileError(f"{self.checkpoint.path} is a damaged {KIND} ({str(error) or type(error).__name__})")

    def _compare(self, theirs: Mapping[str, Any]) -> None:
        """Raise an error if the checkpoint is of another run, and name the difference."""
        names = [*self.identity, *(name for name in theirs if name not in self.identity)]
        differ = [name for name in names if self.identity.get(name) != theirs.get(name)]
        if not differ:
            return
        theirs_words, our_words = (
            ", ".join(f"{name}={run.get(name, 'nothing')}" for name in differ[:3]) for run in (theirs, self.identity)
        )
        raise DualnewtonError(
            f"checkpoint {os.fspath(self.checkpoint.path)!r} was written with {theirs_words}, this run has {our_words}: "
            "use the same setting to continue from it, or another path to start again"
        )

    def take(self) -> Any:
        """Return the state to continue from, or None; only once, so that its memory can be released."""
        found, self.found = self.found, None
        return found

    def is_due(self, statuses: Collection[Status | None]) -> bool:
        """Whether the state must be saved now, between two steps or at the end, given the status of each model."""
        rest = max(self.checkpoint.seconds, self.checkpoint.spacing * self.took)
        due = None not in statuses or time.perf_counter() - self.written >= rest
        return due and ENDED.issuperset(statuses)

    def save(self, state: Any, epochs: float, finished: bool = False) -> None:
        """Write the state of the run, which is plain data."""
        began = time.perf_counter()
        tree, found = encode({"run": state, "random": self.rng.bit_generator.state})
        text = np.frombuffer(json.dumps(tree, separators=(",", ":")).encode(), np.uint8)
        arrays = {str(k): array for k, array in enumerate(found)}
        content = {
            "run": self.identity,
            "epochs": float(epochs),
            "finished": finished,
            "digest": _digest_of_state(self.identity, text, arrays),
        }
        _archive.write(self.checkpoint.path, KIND, VERSION, content, {"state": text, **arrays})
        self.written = time.perf_counter()
        self.took = self.written - began


AnyCheckpoint = str | os.PathLike[str] | Checkpoint | None


def keeper_of(
    checkpoint: AnyCheckpoint,
    identity: Callable[[], Mapping[str, str]],
    rng: np.random.Generator,
    placed: Callable[[np.ndarray], Any] = lambda array: array,
) -> Keeper | None:
    """Return the keeper of a run's state; an existing file is read, and refused if it belongs to another run.

    The description of the run is made only if there is a checkpoint. The state of the random generator is set from the file;
    ``placed`` moves a row array to the place of the data (a GPU, a cluster).
    """
    if checkpoint is None:
        return None
    return Keeper(checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint(checkpoint), identity(), rng, placed)


# The identity of a run -----------------------------------------------------------------------------------------


SHARED = ("loss", "regularizer", "fit_intercept")
"""Attributes that problems solved together have in common."""

SETTINGS = ("tol", "method", "tau", "sampling", "certify_every", "tuning")
"""Settings of the user that determine the steps of a run."""


def identity_of(
    problems: Sequence[Any],
    warm_start: Sequence[Any] | None,
    rng: np.random.Generator | None,
    request: Request,
) -> dict[str, str]:
    """Describe a run by strings and hashes: two runs with the same description take the same steps.

    Limits, threads and callbacks are not part of it: they decide when a run stops, not which steps it takes.

    The state of ``rng`` counts as it is at the start; None if the user gave no seed.
    """
    first, starts = problems[0], list(() if warm_start is None else warm_start)
    found = {"software": ", ".join(f"{name} {installed_version(name) or 'unknown'}" for name in SOFTWARE)}
    found["problems"] = f"{len(problems)} {type(first).__name__}"
    names = [part.name for part in dataclasses.fields(first)]
    found |= {name: described(getattr(first, name)) for name in names if name in SHARED}
    found["X"] = first.data.fingerprint()
    for k, problem in enumerate(problems):
        of = f" of problem {k}" if len(problems) > 1 else ""
        found |= {f"{name}{of}": described(getattr(problem, name)) for name in names if name not in ("X", *SHARED)}
        start = starts[k] if k < len(starts) else None
        parts = [getattr(start, name) for name in ("w", "intercept", "scale", "alpha") if hasattr(start, name)]
        found[f"warm_start{of}"] = described(tuple(part for part in parts if part is not None) or start)
    found |= {name: described(getattr(request, name)) for name in SETTINGS}
    state = None if rng is None else rng.bit_generator.state
    found["random_state"] = "None" if state is None else f"{state['bit_generator']} {_digest([_text(state).encode()])}"
    return found


def described(thing: Any) -> str:
    """Describe a number, an array, a loss, a sampling …: equal descriptions mean equal values."""
    text = _text(thing)
    return text if len(text) <= LONG else f"{text[: LONG // 2]}… {_digest([text.encode()])}"


def _text(thing: Any) -> str:
    thing = on_host(thing)
    if isinstance(thing, np.generic) or (isinstance(thing, np.ndarray) and thing.ndim == 0):
        thing = thing.item()
    if thing is None or isinstance(thing, bool | int | float | str):
        return repr(thing)
    if sp.issparse(thing):
        parts = (thing.data, thing.indices, thing.indptr)
        return f"{_shape(thing)} {thing.format} {_digest(octets for part in parts for octets in _octets(part))}"
    if isinstance(thing, np.ndarray):
        return f"{_shape(thing)} {_digest(_octets(thing))}"
    if isinstance(thing, dict):
        return f"{{{', '.join(f'{_text(key)}: {_text(value)}' for key, value in thing.items())}}}"
    if isinstance(thing, list | tuple):
        return f"({', '.join(map(_text, thing))})"
    if isinstance(thing, set | frozenset):
        return f"{{{', '.join(sorted(map(_text, thing)))}}}"
    kind = type(thing)
    if isinstance(thing, type) or callable(getattr(thing, "__get__", None)):
        return f"{thing.__module__}.{thing.__qualname__}"
    # Cached properties of an object are not part of its description.
    cached = {name for base in kind.__mro__ for name, part in vars(base).items() if isinstance(part, cached_property)}
    own = {name: value for name, value in getattr(thing, "__dict__", {}).items() if name not in cached}
    return (
        f"{kind.__module__}.{kind.__qualname__}({', '.join(f'{name}={_text(value)}' for name, value in own.items())})"
    )


def _shape(array: Any) -> str:
    return f"{'x'.join(map(str, array.shape))} {array.dtype}"


def _octets(array: np.ndarray) -> Iterator[Any]:
    """Yield the bytes of an array in order, a part at a time, without a copy of it."""
    rows = np.atleast_1d(array)
    step = max(1, HASHED * len(rows) // max(1, rows.nbytes))
    if rows.dtype.hasobject:
        yield repr(rows.tolist()).encode()
        return
    for start in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8)


def _digest(pieces: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _digest_of_state(identity: Mapping[str, str], tree: np.ndarray, arrays: Mapping[str, np.ndarray]) -> str:
    def pieces() -> Iterator[Any]:
        yield json.dumps([identity, {name: [str(array.dtype), array.shape] for name, array in arrays.items()}]).encode()
        for array in (tree, *arrays.values()):
            yield from _octets(array)

    return _digest(pieces())


@cache  # reading the metadata of a package takes milliseconds
def installed_version(name: str) -> str:
    """Return the version of a package; an empty string if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return ""
