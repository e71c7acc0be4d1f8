"""The verifier catches a lying solver: numbers inside a method are corrupted, and no run may end with a false claim.

Four kinds of fault are injected, always between the solver and what it computes, never in the verifier:

* *state*: what a method remembers between two steps (w, α, ᾱ, margins, gradients, working sets) is changed at a random place;
* *points*: the point that a method offers for certification is changed;
* *passes*: the results of passes over the data are changed while a method makes a step;
* *checkpoint*: a number or an array in the file from which a run continues is changed, and its digest made right again.

A run with a fault may end in any status, or by an exception; what it claims must be true of what it returns.
"""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import dualnewton as dn
from campaign.exact import Objective
from campaign.fits import checked
from campaign.parts import Defect
from campaign.problems import CLASSES, COUNTS, LOSSES, PENALTIES, Drawn, labels, power
from dualnewton.files import archive
from dualnewton.matrix import MemoryData
from dualnewton.run.checkpoint import KIND, VERSION, _digest_of_state
from dualnewton.run.loop import Run
from dualnewton.solvers.protocol import Method

Rng = np.random.Generator
PASSES = ("times", "transposed_times", "evaluate", "weighted_products", "weighted_gram", "row_gram", "rows")
"""Operations of data whose results are changed."""


def _some(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


def corrupted(array: np.ndarray, rng: Rng) -> np.ndarray:
    """Return a copy with one or all entries changed: another sign, scale or value, noise, not a number."""
    if array.dtype.kind != "f" or not array.size:
        return array
    changed = array.copy()
    kind, where = rng.integers(6), tuple(int(rng.integers(size)) for size in array.shape)
    if kind == 0:
        changed[where] = -changed[where]
    elif kind == 1:
        changed[where] = changed[where] * power(rng, -3, 6) + power(rng, -8, 1)
    elif kind == 2:
        changed = changed * (1.0 + power(rng, -8, 0))
    elif kind == 3:
        changed = changed + power(rng, -8, 0) * rng.standard_normal(changed.shape)
    elif kind == 4:
        changed[where] = _some(rng, [np.nan, np.inf, -np.inf, 0.0])
    else:
        changed = np.roll(changed, 1, axis=0)
    return changed.astype(array.dtype)


def _arrays(tree: Any) -> int:
    """Count the arrays in plain data."""
    return 1 if isinstance(tree, np.ndarray) else sum(map(_arrays, _children(tree)))


def _children(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return list(tree.values())
    if is_dataclass(tree) and not isinstance(tree, type):
        return [getattr(tree, field.name) for field in fields(tree)]
    return list(tree) if isinstance(tree, list | tuple) else []


def with_changed(tree: Any, change: Callable[[np.ndarray], np.ndarray], number: list[int]) -> Any:
    """Return plain data in which the array with this number, counted down in ``number``, is changed."""
    if isinstance(tree, np.ndarray):
        number[0] -= 1
        return change(tree) if number[0] == -1 else tree
    if isinstance(tree, dict):
        return {key: with_changed(each, change, number) for key, each in tree.items()}
    if is_dataclass(tree) and not isinstance(tree, type):
        # Fields that a constructor does not take follow from the others.
        found = {each.name: getattr(tree, each.name) for each in fields(tree) if each.init}
        return replace(tree, **{key: with_changed(each, change, number) for key, each in found.items()})
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(with_changed(each, change, number) for each in tree))
    return type(tree)(with_changed(each, change, number) for each in tree) if isinstance(tree, list | tuple) else tree


class Fault:
    """Faults of one run: which kind, how often, and how many were injected."""

    def __init__(self, rng: Rng) -> None:
        self.rng = rng
        self.kind, self.rate = (
            _some(rng, ["state", "points", "passes", "checkpoint"]),
            float(_some(rng, [0.1, 0.5, 1.0])),
        )
        self.last = int(_some(rng, [1, 3, 1000]))  # so many, and the solver is honest afterwards
        self.injected, self.inside = 0, 0

    def strikes(self) -> bool:
        """Whether to inject a fault now."""
        now = self.injected < self.last and self.rng.random() < self.rate
        self.injected += now
        return now

    def change(self, array: np.ndarray) -> np.ndarray:
        """Return a corrupted array."""
        return corrupted(array, self.rng)

    def changed_tree(self, tree: Any) -> Any:
        """Return plain data with one corrupted array."""
        count = _arrays(tree)
        return with_changed(tree, self.change, [int(self.rng.integers(count))]) if count else tree

    @contextlib.contextmanager
    def injected_into_runs(self) -> Iterator[None]:
        """Patch the loop and the data for the time of a run."""
        make, fault = Run._new_method, self

        def new_method(run: Run, moving: Any) -> Method:
            method = make(run, moving)
            step, point = method.step, method.point

            def lying_step(*arguments: Any) -> float:
                fault.inside += 1
                try:
                    spent = step(*arguments)
                finally:
                    fault.inside -= 1
                if fault.kind == "state" and method.inner is None and fault.strikes():
                    method.restore(fault.changed_tree(method.state()))
                return spent

            def lying_point(k: int) -> Any:
                true = point(k)
                return fault.changed_tree(true) if fault.kind == "points" and fault.strikes() else true

            method.step, method.point = lying_step, lying_point  # type: ignore[method-assign]
            return method

        with contextlib.ExitStack() as patches:
            patches.enter_context(mock.patch.object(Run, "_new_method", new_method))
            for name in PASSES if self.kind == "passes" else ():
                patches.enter_context(mock.patch.object(MemoryData, name, self._pass(getattr(MemoryData, name))))
            yield

    def _pass(self, true: Callable[..., Any]) -> Callable[..., Any]:
        def lying(*arguments: Any, **options: Any) -> Any:
            found = true(*arguments, **options)
            # An inner run has its verifier inside a step of the outer one; the outer point is certified outside.
            return self.changed_tree(found) if self.inside and self.strikes() else found

        return lying


def drawn(seed: int) -> tuple[Drawn, Rng]:
    """Draw a problem that an honest solver solves in a moment."""
    rng = np.random.default_rng([seed, 50])
    name = _some(rng, list(LOSSES))
    loss = LOSSES[name](rng)
    n, d = int(_some(rng, [10, 30, 60])), int(_some(rng, [2, 4, 8]))
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 2.0, d)
    y = labels(rng, name if name in (*CLASSES, *COUNTS, "Softmax", "SquaredOutputs") else "Poisson", loss, X)
    lam, intercept = power(rng, -3, 0), bool(rng.integers(2))
    regularizer = PENALTIES[_some(rng, list(PENALTIES))](rng, d)
    exact = Objective(X, y, loss, regularizer, lam, None, None, intercept)
    options = {
        "method": _some(rng, ["auto", "newton", "ihs", "sdna", "sdca", "interior"]),
        "tol": float(_some(rng, [1e-3, 1e-6, 1e-9])),
        "max_epochs": 300,
        "time_limit": 0.15,
        "random_state": seed,
        "callback": lambda progress: False,  # the loop drives direct solvers, too
    }
    title = f"{loss!r} + {regularizer!r:.40}, {n}x{d}, lam {lam:.2g}, b {intercept}, {options['method']}"

    def make(lam: float = lam) -> Any:
        return dn.Problem(X, y, loss, regularizer=regularizer, lam=lam, fit_intercept=intercept)

    return Drawn(title, make, exact, options, (lam,)), rng


def _able(problem: Any, method: str) -> str:
    """Return the method if it can solve the problem, else "auto"."""
    try:
        dn.plan(problem, method=method)
    except dn.DualnewtonError:
        return "auto"
    return method


def forge(path: Path, rng: Rng) -> None:
    """Change one array, or one number, of the state in a checkpoint."""
    content, arrays = archive.read(path, KIND, VERSION)
    text = arrays.pop("state")
    if arrays and rng.random() < 0.5:
        name = _some(rng, list(arrays))
        arrays[name] = corrupted(arrays[name], rng)
    else:
        words = text.tobytes().decode()
        numbers = list(re.finditer(r"-?\d+\.\d+(e-?\d+)?", words))
        if numbers:
            chosen = numbers[int(rng.integers(len(numbers)))]
            other = repr(
                float(chosen[0]) * float(_some(rng, [0.0, 0.5, -1.0, 1.0 + 1e-6, 1e3])) + float(_some(rng, [0.0, 1e-3]))
            )
            words = words[: chosen.start()] + other + words[chosen.end() :]
        text = np.frombuffer(words.encode(), np.uint8)
    digest = _digest_of_state(content["run"], text, arrays)
    archive.write(path, KIND, VERSION, content | {"digest": digest}, {"state": text, **arrays})


def resumed(problem: Any, options: dict[str, Any], path: Path, rng: Rng) -> Any:
    """Stop a run on its way, forge its checkpoint, and continue."""
    often = dn.Checkpoint(path, seconds=0.0, spacing=0.0)
    early = options | {"max_epochs": int(_some(rng, [2, 5, 20, 300]))}
    dn.solve(problem, checkpoint=often, **early)
    if path.exists():
        forge(path, rng)
    return dn.solve(problem, checkpoint=often, **options)


def case(seed: int, folder: Path) -> Counter[str]:
    """Try one lying solver."""
    given, rng = drawn(seed)
    fault = Fault(rng)
    path = folder / "run.checkpoint"
    with warnings.catch_warnings(action="ignore"):
        try:
            problem = given.make()
            options = given.options | {"method": _able(problem, given.options["method"])}
            if fault.kind == "checkpoint":
                fault.injected = 1
                result = resumed(problem, options, path, rng)
            else:
                with fault.injected_into_runs():
                    result = dn.solve(problem, **options)
        except dn.DualnewtonError:
            return Counter(["ended by DualnewtonError" if fault.injected else "refused"])
        except Exception as error:
            if not fault.injected:
                raise Defect(f"{given.title}: {type(error).__name__}: {error}") from error
            return Counter([f"ended by {type(error).__name__}"])
    if not fault.injected:
        return Counter(["no fault"])
    try:
        unlimited = replace(
            given, options=given.options | {"max_epochs": math.inf}
        )  # a forged count of epochs is no claim
        # A forged certificate is believed if it differs from the true one by twice the bound of their rounding errors at most.
        return Counter([checked(unlimited, result, given.several[0], 3.0)])
    except Defect as error:
        raise Defect(f"{given.title}, {fault.injected} faults in {fault.kind}: {error}") from error
