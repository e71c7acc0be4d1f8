"""Tests under the oldest supported dependencies and under other versions of Python: `python -m benchmarks.versions`.

Each environment is a folder with its own packages. ``--oldest`` installs the least versions that pyproject.toml allows, exactly;
``--python 3.12`` takes another interpreter with the newest versions. The tests given after these options run there, by default
SLICE: every room once, without those that take long. One line per environment says what was run and how it ended.

    python -m benchmarks.versions --oldest --python python3.12 --python python3.13
    python -m benchmarks.versions --oldest tests/losses
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "typer", "rich", "threadpoolctl")
"""Packages whose versions are reported."""

TOOLS = (
    "hypothesis",
    "mpmath",
    "polars",
    "pytest<9",  # scikit-learn 1.5 gives it what 9 refuses
    "pytest-xdist",
    "pandas",
    "matplotlib",
    "plotly",
    "dask[dataframe]",
    "distributed",
)
"""What the tests need beside the library."""

SLICE = (
    "tests/losses",
    "tests/regularizers",
    "tests/samplings",
    "tests/preprocessing",
    "tests/interop/test_model_file.py",
    "tests/kernels/test_gram.py",
    "tests/cli/test_tables.py",
    "tests/cli/test_glm.py",
    "tests/cli/test_fit.py",
    "tests/estimators/test_as_scikit_learn.py",
    "tests/estimators/test_glm.py",
    "tests/run/test_statuses.py",
    "tests/test_packaging.py",
)


def floors() -> list[str]:
    """Return the least version of each dependency, as requirements of exactly this version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [requirement.replace(">=", "==") for requirement in project["dependencies"]]


def environment(folder: Path, python: str, requirements: Sequence[str]) -> Path:
    """Make an environment with the library and these requirements, unless it exists, and return its interpreter."""
    inside = folder / "bin" / "python"
    if not inside.exists():
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
    pip = [str(inside), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *requirements, *TOOLS, "--editable", str(ROOT)], check=True)
    return inside


def versions(python: Path) -> str:
    """Return the versions of an environment in one line."""
    code = "import importlib.metadata as m, platform; print('Python', platform.python_version(), end='')"
    code += f"\nfor name in {PACKAGES!r}: print(f', {{name}} {{m.version(name)}}', end='')"
    return subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout


def tested(python: Path, tests: Sequence[str]) -> str:
    """Run tests in an environment and return the last line of pytest, after the names of those that failed."""
    command = [str(python), "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip().splitlines()
    failed = [line for line in said if re.match(r"(FAILED|ERROR) ", line)]
    return "\n".join([*failed, said[-1] if said else "no output"])


def main() -> None:
    """Make the environments, run the tests and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oldest", action="store_true", help="the least versions of all dependencies")
    parser.add_argument("--python", action="append", default=[], help="another interpreter; may be repeated")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "versions", help="where the environments are made"
    )
    parser.add_argument("tests", nargs="*", default=SLICE)
    given = parser.parse_args()
    wanted = [("oldest", sys.executable, floors())] if given.oldest else []
    wanted += [(f"other-{k}", python, []) for k, python in enumerate(given.python)]
    if not wanted:
        parser.error("name --oldest or --python")
    for name, python, requirements in wanted:
        inside = environment(given.folder / name, python, requirements)
        print(f"{versions(inside)}\n    {tested(inside, given.tests)}", flush=True)


if __name__ == "__main__":
    main()
