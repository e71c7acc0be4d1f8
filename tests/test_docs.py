"""What the README, the docs and the examples show works as it is printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_code_on_a_page_runs_as_it_stands(page, capsys):
    namespace = {"__name__": "page"}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), namespace)
    assert {"dn"} <= set(namespace)


def test_the_pages_with_code_are_those_expected():
    assert {page.name for page in PAGES if blocks(page)} >= {"README.md", "extending.md"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.name)
def test_an_example_runs(script, tmp_path):
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script)],
        cwd=tmp_path,
        env=os.environ | {"MPLCONFIGDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "relative gap" in run.stdout


def test_the_demo_draws_its_plot(tmp_path):
    subprocess.run([sys.executable, str(ROOT / "examples" / "demo.py")], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "demo_gap.png").stat().st_size > 10_000


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
