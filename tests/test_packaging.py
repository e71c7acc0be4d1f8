"""What is said about the package in several places is the same in all of them."""

import re
import tomllib
from pathlib import Path

import pytest

import dualnewton as dn

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_has_one_source():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {dn.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f'"{dn.__version__}"' in (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f"version: {dn.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize("dependency", PROJECT["dependencies"])
def test_the_recipe_for_conda_has_the_dependencies_of_the_project(dependency):
    name, least = re.fullmatch(r"([\w-]+)>=([\d.]+)", dependency).groups()
    assert f"- {name} >={least}" in (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")


def test_the_extras_of_developers_hold_those_of_users():
    extras = PROJECT["optional-dependencies"]
    (own,) = [each for each in extras["dev"] if each.startswith("dualnewton[")]
    assert set(re.search(r"\[(.*)\]", own).group(1).split(",")) >= {"plot", "pandas", "report", "dask"}
