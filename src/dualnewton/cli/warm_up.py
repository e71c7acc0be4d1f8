"""``dualnewton warm-up``: compile all kernels ahead."""

from __future__ import annotations

import os
import time
from typing import Annotated

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError


def warm_up(
    storage: Annotated[str, options.option("--storage", "NAMES", "Kinds of data: dense, csr, or both.")] = "dense,csr",
    dtype: Annotated[
        str, options.option("--dtype", "NAMES", "Types of data: float64, float32, or both.")
    ] = "float64,float32",
    json: options.Json = False,
) -> None:
    """Compile all kernels ahead, so that no later process waits for a compiler.

    A fit compiles the kernels that it needs when it first needs them, and keeps them on disk: in the folder **NUMBA_CACHE_DIR**,
    or beside the installed library, or in the cache folder of the user, whichever can be written. This command does it for all
    kernels, for example when a container is built. Kernels that are there already are only loaded.

    For example:

        dualnewton warm-up --storage csr --dtype float64
    """
    from dualnewton.cli import _output
    from dualnewton.run.warm_up import DTYPES, STORAGES

    chosen = _names("--storage", storage, STORAGES), _names("--dtype", dtype, DTYPES)
    folder = _folder()
    start = time.perf_counter()
    made, found = _compile(*chosen)
    facts = {"cache": folder, "compiled": made, "loaded": found, "seconds": round(time.perf_counter() - start, 1)}
    if json:
        _output.as_json(facts)
    else:
        for key, value in facts.items():
            _output.say(key, value)


def _names(name: str, text: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(","))
    if unknown := [word for word in words if word not in allowed]:
        raise DualnewtonError(f"{name} takes {' and '.join(allowed)}, separated by a comma, got {unknown[0]!r}")
    return words


def _folder() -> str:
    """Return the folder of compiled kernels; it must be writable, and the one in NUMBA_CACHE_DIR, if set."""
    from numba import config

    from dualnewton.kernels._compiler import cache_folder

    asked, folder = config.CACHE_DIR, cache_folder()  # type: ignore[attr-defined]
    if folder is None or (asked and not os.path.realpath(folder).startswith(os.path.realpath(asked))):
        place = f"NUMBA_CACHE_DIR={asked}" if asked else "the folder of compiled kernels"
        raise DualnewtonError(f"{place} cannot be written: set NUMBA_CACHE_DIR to a folder that can")
    return folder


def _compile(storages: tuple[str, ...], dtypes: tuple[str, ...]) -> tuple[int, int]:
    """Compile the kernels, with a bar on terminals; return the numbers of those compiled and of those found."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    from dualnewton.cli._transfer import display
    from dualnewton.io.svmlight import by_kernel
    from dualnewton.kernels._compiler import SO_FAR
    from dualnewton.run.warm_up import Step, steps

    todo = [*steps(storages, dtypes), Step("parser of svmlight files", lambda: by_kernel(b"1 1:1\n", 1))]
    SO_FAR.announced = True  # by the bar
    columns = BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with display(*columns, transient=False, expand=False) as progress:
        task = progress.add_task("", total=len(todo))
        for step in todo:
            progress.update(task, description=step.name)
            step.prepare()
            progress.advance(task)
        progress.update(task, description="")
    return SO_FAR.compiled, SO_FAR.loaded
