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
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from campaign.parts import PARTS, Part

ROOT = Path(__file__).parents[1]
MEMORY = 8 << 30
"""Bytes of address space that a child may use: a case that would take all memory fails by itself."""


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

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
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


def run(name: str, seeds: Iterable[int], log: Path, until: float) -> list[dict[str, Any]]:
    """Try the seeds of a part that the log does not hold as passed, until a moment of ``time.monotonic``; return the defects."""
    part, done, defects = PARTS[name], finished(log), []
    log.parent.mkdir(parents=True, exist_ok=True)
    child = None
    try:
        for seed in seeds:
            if "counts" in done.get(seed, {}):
                continue
            if time.monotonic() > until:
                break
            child = child if child is not None and child.alive else Child(part)
            entry = child.answer(seed)
            with log.open("a") as file:
                file.write(json.dumps(entry) + "\n")
            if "defect" in entry:
                defects.append(entry)
                print(f"{name} {seed}: {entry['defect']}\n  again: python -m campaign again {name} {seed}", flush=True)
    finally:
        if child is not None:
            child.end()
    return defects
