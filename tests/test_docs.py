"""What the README and the docs show works as it is printed."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")])


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_code_on_a_page_runs_as_it_stands(page, capsys):
    namespace = {"__name__": "page"}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), namespace)
    assert {"dn"} <= set(namespace)


def test_the_pages_with_code_are_those_expected():
    assert {page.name for page in PAGES if blocks(page)} >= {"README.md", "estimators.md", "extending.md"}


def test_links_between_pages_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_figures_are_drawn_from_the_pages_of_the_benchmarks(tmp_path):
    plots = runpy.run_path(str(ROOT / "docs" / "plots.py"))
    plots["draw_all"](tmp_path)
    drawn = {file.name for file in tmp_path.iterdir()}
    assert drawn == {"defaults.png", "cores.png", "workers.png", "kinks.png", "glm.png"}
    assert all((ROOT / "docs" / "img" / name).is_file() for name in drawn)
    assert len(plots["table"]("KINKS.md")) == 48
    assert {row["λn"] for row in plots["table"]("KINKS.md")} == {"10", "1", "0.1", "0.01"}
