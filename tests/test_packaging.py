"""What is said about the package in several places is the same in all of them."""

import re
import tomllib
from pathlib import Path

import dualnewton as dn
import typing_user

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_has_one_source():
    assert "version" not in PROJECT
    assert PROJECT["dynamic"] == ["version"]
    assert f"## {dn.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f'"{dn.__version__}"' in (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    assert f"version: {dn.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_recipe_for_conda_asks_for_what_the_project_asks_for():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8")
    python = f"python{PROJECT['requires-python']}"
    host, run = (
        re.findall(r"- (\S+) ?(\S*)", recipe.split(f"  {part}:\n")[1].split(":")[0]) for part in ("host", "run")
    )
    assert {"".join(each) for each in run} == {python, *PROJECT["dependencies"]}
    assert {"".join(each) for each in host} == {python, "pip", *build}
    assert all(f"- {command} = {called}" in recipe for command, called in PROJECT["scripts"].items())


def test_the_extras_of_developers_hold_those_of_users():
    extras = PROJECT["optional-dependencies"]
    (own,) = [each for each in extras["dev"] if each.startswith("dualnewton[")]
    assert set(re.search(r"\[(.*)\]", own).group(1).split(",")) >= {"plot", "pandas", "report", "dask"}


def test_the_typed_file_of_a_user_runs(tmp_path):
    assert typing_user.solved().certificate.relative_gap <= 1e-8
    assert typing_user.fitted(tmp_path) > 0.9
    assert 0.0 < typing_user.predicted() < 1.0


def test_the_types_of_the_package_are_published():
    assert (ROOT / "src" / "dualnewton" / "py.typed").is_file()
    assert "mypy --strict --config-file= tests/typing_user.py" in (ROOT / "Makefile").read_text(encoding="utf-8")
