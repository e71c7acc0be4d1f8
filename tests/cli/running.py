"""What a command said, and commands in processes of their own."""

import os
import subprocess
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def process(*arguments, **options):
    """Start a command as users do."""
    return subprocess.Popen(
        [sys.executable, "-m", "dualnewton", *map(str, arguments)],
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
        **options,
    )


def refused(said):
    """Whether a command ended with one line that says why, and nothing else."""
    assert said.code == 2, said
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("dualnewton: ")
    return said.err
