"""plan: what would be done, and why."""

import json
import math

import pytest

import dualnewton as dn
from cli.running import refused
from dualnewton import data
from dualnewton.cli._problems import problems_from


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("breast_cancer", {}),
        ("diabetes", {"penalty": "l1"}),
        ("iris", {}),
        ("iris", {"loss": "hinge"}),
        ("breast_cancer", {"loss": "squared_hinge", "penalty": "elasticnet"}),
    ],
)
def test_it_is_the_plan_of_the_fit(command, name, words):
    options = [word for key, value in words.items() for word in (f"--{key}", value)]
    said = json.loads(command("plan", name, *options, "--json").out)
    problems = problems_from(data.find(name), **words).problems
    expected = dn.plan(problems[0], models=len(problems))
    assert said["plan"] == {
        "method": expected.method,
        "tau": expected.tau,
        "compiled": expected.compiled,
        "cost": None if math.isnan(expected.cost) else expected.cost,  # a direct solver has none
        "reason": expected.reason,
    }
    assert [each["method"] for each in said["alternatives"]] == ["sdna", "sdca", "newton", "ihs", "interior"]
    text = command("plan", name, *options).out
    assert expected.reason in text


def test_a_method_that_cannot_serve_says_why(command):
    text = command("plan", "diabetes", "--penalty", "l1").out
    assert 'not applicable: method "sdna" needs a strongly convex regularizer' in text
    assert '"sdna" needs' in refused(command("plan", "diabetes", "--penalty", "l1", "--method", "sdna"))


def test_a_method_that_is_asked_for_is_kept(command):
    assert json.loads(command("plan", "diabetes", "--method", "sdca", "--json").out)["plan"]["method"] == "sdca"
    refused(command("plan", "diabetes", "--method", "magic"))


def test_several_problems_are_counted(command):
    assert "3, one for each class against the rest" in command("plan", "iris", "--loss", "hinge").out
