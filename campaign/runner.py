"""Cases in a child process, one after the other: a crash or a hang is recorded as the defect of its seed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from campaign.parts import PARTS, Part

ROOT = Path(__file__).parents[1]


def tried(part: Part, seed: int) -> dict[str, Any]:
    """Run one case here, in a folder of its own; return its line of the log."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"campaign-{part.name}-"))
    found: dict[str, Any] = {"seed": seed}
    try:
        found["counts"] = dict(part.case(seed, folder))
    except Exception as error:
        found["defect"] = f"{type(error).__name__}: {error}"[:2000]
        found["where"] = traceback.format_exc()[-3000:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found | {"seconds": round(time.monotonic() - began, 3)}


def serve(part: Part) -> None:
    """Read seeds from standard input, and write a line of the log for each to what was standard output."""
    import resource

    if part.memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (part.memory, part.memory))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a case prints must not come between the answers
    for line in sys.stdin:
        answers.write(json.dumps(tried(part, int(line))) + "\n")
        answers.flush()


class Child:
    """A process that tries the cases of one part."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        command = [sys.executable, "-m", "campaign", "serve", part.name]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.errors}
        # A group of its own: interrupts that a case sends to itself stay there, and a hanging case is killed with its children.
        self.process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes)

    def answer(self, seed: int) -> dict[str, Any]:
        """Return the line of the log for a seed; after a crash or a hang the process is gone."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended, which the empty answer tells
            self.process.stdin.write(f"{seed}\n".encode())
            self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], self.part.seconds)
        line = self.process.stdout.readline() if ready else b""
        if line:
            return json.loads(line)
        self.errors.seek(0)
        told = self.errors.read()[-3000:].decode(errors="replace")
        self.end()
        what = f"the process ended with {self.process.returncode}" if ready else f"no end in {self.part.seconds:g} s"
        return {"seed": seed, "defect": what, "where": told}

    @property
    def alive(self) -> bool:
        """Whether the process can take another seed."""
        return self.process.poll() is None

    def end(self) -> None:
        """Kill the process and all that it has started."""
        if self.alive:
            os.killpg(self.process.pid, 9)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.errors):
            with contextlib.suppress(BrokenPipeError):  # what was not sent is lost
                pipe.close()  # type: ignore[union-attr]


def finished(log: Path) -> dict[int, dict[str, Any]]:
    """Return the last line of each seed; a line that a killed campaign left incomplete is not counted."""
    found = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[entry["seed"]] = entry
    return found


class Campaign:
    """The seeds of one part, shared by threads that have a child process each; the log has a line for each seed that ended.

    Parameters
    ----------
    name : str
        The part.
    seeds : iterable of int
        The seeds, in the order in which they are tried.
    log : Path
        The file of the log.
    until : float
        The moment of ``time.monotonic`` after which no seed is begun.
    """

    def __init__(self, name: str, seeds: Iterable[int], log: Path, until: float) -> None:
        self.part, self.log, self.until, self.defects = PARTS[name], log, until, []
        done = finished(log)
        self.seeds = iter([seed for seed in seeds if "counts" not in done.get(seed, {})])
        self.lock = threading.Lock()

    def work(self) -> None:
        """Try seeds in a child process until there are none, or no time, left."""
        child = None
        try:
            while time.monotonic() <= self.until and (seed := self._next()) is not None:
                child = child if child is not None and child.alive else Child(self.part)
                self._record(child.answer(seed))
        finally:
            if child is not None:
                child.end()

    def _next(self) -> int | None:
        with self.lock:
            return next(self.seeds, None)

    def _record(self, entry: dict[str, Any]) -> None:
        name, seed = self.part.name, entry["seed"]
        with self.lock:
            with self.log.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            if "defect" in entry:
                self.defects.append(entry)
                print(f"{name} {seed}: {entry['defect']}\n  again: python -m campaign again {name} {seed}", flush=True)


def run(name: str, seeds: Iterable[int], log: Path, until: float, workers: int = 1) -> list[dict[str, Any]]:
    """Try the seeds of a part that the log does not hold as passed, in so many processes at a time; return the defects."""
    log.parent.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(name, seeds, log, until)
    with ThreadPoolExecutor(workers) as threads:
        for each in [threads.submit(campaign.work) for _ in range(workers)]:
            each.result()
    return campaign.defects
