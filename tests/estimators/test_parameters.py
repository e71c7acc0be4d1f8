"""Estimators declare parameters as fields: the nearest declaration counts, in signatures, checks and help."""

from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import pytest

import dualnewton as dn
import dualnewton.estimators
from dualnewton.estimators._base import CertifiedModel, CertifiedRegressor
from dualnewton.estimators._parameters import estimator


@estimator
class Family(CertifiedModel):
    """A family with another limit.

    Parameters
    ----------
    strength : float
        Of the family.
    tol : float
        Tolerance of the family.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"strength": [float], "max_iter": [int]}

    strength: float = field(default=1.0, kw_only=False)
    max_iter: int | None = 7


@estimator
class Search(CertifiedModel):
    """Something that the family does not know.

    Parameters
    ----------
    cv : int
        Folds.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"cv": [int]}

    cv: int = 5
    warm_start: bool = field(default=False, init=False)


@estimator
class Both(Search, Family, CertifiedRegressor):
    """Both, of which the base of both is the farthest."""


def test_the_nearest_class_that_declares_a_parameter_gives_its_default():
    model = Both(2.0)
    assert (model.strength, model.max_iter, model.cv, model.tol) == (2.0, 7, 5, CertifiedModel.tol)


def test_a_parameter_that_is_not_in_the_signature_keeps_its_value():
    assert "warm_start" not in Both().get_params()
    assert Both().warm_start is False
    with pytest.raises(TypeError, match="warm_start"):
        Both(warm_start=True)


def test_constraints_and_descriptions_are_those_of_the_nearest_class_for_exactly_the_parameters():
    assert set(Both._parameter_constraints) == set(Both().get_params())
    assert Both._parameter_constraints["max_iter"] == [int]
    assert "Tolerance of the family." in Both.__doc__
    assert Both.__doc__.count("tol : float") == 1
    assert "warm_start" not in Both.__doc__


def test_a_parameter_without_a_constraint_is_an_error():
    with pytest.raises(KeyError, match="extra"):

        @estimator
        class Unchecked(CertifiedModel):
            """Forgets the constraint."""

            extra: int = 0


@pytest.mark.parametrize("name", [name for name in dualnewton.estimators.__all__ if name[0].isupper()])
def test_each_default_is_allowed(name):
    """So that only parameters with another value are examined at each fit."""
    kind = getattr(dualnewton.estimators, name)
    for parameter, default in kind._parameter_defaults:
        assert any(check.is_satisfied_by(default) for check in kind._parameter_checks[parameter]), parameter


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (dn.Ridge(), list("abcabc"), "y must hold numbers for Ridge, got the text 'a'"),
        (
            dn.Lasso(),
            np.array([1.0, "b", 2.0, 3.0, 4.0, 5.0], dtype=object),
            "y must hold numbers for Lasso, got the text 'b'",
        ),
        (dn.RidgeClassifier(), np.linspace(0.0, 1.0, 6), "Unknown label type: continuous"),
        (dn.Ridge(n_jobs=0), np.arange(6.0), "'n_jobs' parameter of Ridge must be an int"),
    ],
    ids=["text", "text among numbers", "numbers as classes", "no thread"],
)
def test_an_error_names_the_argument(model, y, message):
    with pytest.raises(ValueError, match=message):
        model.fit(np.eye(6), y)


def test_targets_that_are_numbers_in_text_are_accepted_as_by_scikit_learn():
    fitted = [dn.Ridge().fit(np.eye(6), y).coef_ for y in (list("123456"), np.arange(1.0, 7.0))]
    assert np.array_equal(*fitted)


@pytest.mark.parametrize(
    "model", [dn.Lasso(solver="sdna"), dn.ElasticNet(solver="ihs"), dn.Ridge(solver="interior")], ids=str
)
def test_an_error_about_the_method_names_no_parameter(model):
    """The parameter is ``solver`` here and ``method`` in ``solve``."""
    with pytest.raises(dn.DualnewtonError, match=f'^method "{model.solver}" needs') as raised:
        model.fit(np.eye(6), np.arange(6.0))
    assert "method=" not in str(raised.value)
