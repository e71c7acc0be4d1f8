"""Errors about the user's input have a class of their own, which the command line can tell from faults of the library."""

import ast
from pathlib import Path

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import samplings
from dualnewton.files.archive import BadFileError
from dualnewton.io import DataError, find

SOURCE = Path(__file__).parents[1] / "src" / "dualnewton"


def plain_value_errors(source):
    """Lines that raise a plain ``ValueError`` or derive a class from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id == "ValueError":
                yield node.lineno
        elif isinstance(node, ast.ClassDef) and node.name != "DualnewtonError":
            yield from (base.lineno for base in node.bases if isinstance(base, ast.Name) and base.id == "ValueError")


def test_no_plain_value_error_is_raised():
    lines = {str(path): list(plain_value_errors(path.read_text(encoding="utf-8"))) for path in SOURCE.rglob("*.py")}
    assert len(lines) > 100
    assert {path: found for path, found in lines.items() if found} == {}


def test_a_plain_value_error_would_be_seen():
    assert list(plain_value_errors("raise ValueError('x')\nraise ValueError\nclass E(ValueError): pass")) == [1, 2, 3]
    assert list(plain_value_errors("raise DualnewtonError('x')\ntry:\n    f()\nexcept ValueError:\n    raise")) == []


def small():
    rng = np.random.default_rng(0)
    return dn.Problem(rng.standard_normal((6, 2)), rng.standard_normal(6), loss=dn.losses.Squared(), lam=0.1)


WRONG = {
    "lam": lambda: dn.Problem(np.eye(2), [1.0, 2.0], loss=dn.losses.Squared(), lam=-1.0),
    "not finite": lambda: dn.Problem([[np.nan]], [1.0], loss=dn.losses.Squared(), lam=1.0),
    "method": lambda: dn.solve(small(), method="sdnaa"),
    "seed": lambda: dn.solve(small(), random_state=-1),
    "sampling": lambda: dn.solve(small(), sampling=samplings.Nice(5, 2)),
    "sampling's size": lambda: samplings.Nice(5, 6),
    "theory": lambda: dn.theory.eso(-np.eye(2), samplings.Nice(2, 1)),
    "model": lambda: dn.certify(object(), np.eye(2), [0, 1]),
    "estimator": lambda: dn.ERMRegressor(loss="absolute").fit(np.eye(2), [0.0, 1.0]),
    "data": lambda: find("no_such_set"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_by_it(case):
    with pytest.raises(dn.DualnewtonError):
        WRONG[case]()


def test_whoever_catches_value_errors_catches_it():
    assert issubclass(dn.DualnewtonError, ValueError)
    assert issubclass(DataError, dn.DualnewtonError)
    assert issubclass(BadFileError, dn.DualnewtonError)


@pytest.mark.parametrize("wrong", [np.eye(2), "problem", None, dn.Problem])
def test_what_is_no_problem_is_refused_by_its_type(wrong):
    kind = type(wrong).__name__
    for use in (dn.solve, dn.plan, lambda each: dn.solve_many([each])):
        with pytest.raises(dn.DualnewtonError, match=f"problem must be a problem such as .* type {kind}"):
            use(wrong)


def test_several_problems_are_a_sequence_and_a_callback_is_a_function():
    problem = dn.Problem(np.eye(2), [1.0, -1.0], dn.losses.Logistic(), lam=0.1)
    with pytest.raises(dn.DualnewtonError, match="problems must be a sequence of problems, got a single one"):
        dn.solve_many(problem)
    with pytest.raises(dn.DualnewtonError, match="callback must be a function of the progress, or None, got 3"):
        dn.solve(problem, callback=3)


def test_a_class_weight_is_named_with_its_class():
    X, y = np.eye(4), ["a", "b", "a", "b"]
    for weight, seen in ((-1.0, "-1.0"), (np.nan, "nan"), ("heavy", "'heavy'"), (None, "None")):
        for model in (dn.LogisticRegression, dn.RidgeClassifier, dn.LinearSVC):
            with pytest.raises(
                dn.DualnewtonError, match=rf"class_weight\['b'\] must be a finite number >= 0, got {seen}"
            ):
                model(class_weight={"a": 1.0, "b": weight}).fit(X, y)


def test_text_instead_of_numbers_is_shown():
    with pytest.raises(dn.DualnewtonError, match="values must hold real numbers, got the text 'all'"):
        dn.Lasso().path(np.eye(3), np.arange(3.0), values="all")
    with pytest.raises(dn.DualnewtonError, match="y must hold real numbers, got list with entries that are not"):
        dn.Problem(np.eye(2), ["a", None], dn.losses.Squared())


def test_a_start_of_another_shape_is_named():
    def problem(d):
        return dn.Problem(np.eye(4)[:, :d], np.arange(4.0), dn.losses.Squared())

    with pytest.raises(dn.DualnewtonError, match=r"warm_start must hold a model w of shape \(3,\), got shape \(2,\)"):
        dn.solve(problem(3), warm_start=dn.solve(problem(2)))
