"""A small interface: beyond the first few, parameters are given by name, so that they may be added to and reordered."""

import enum
import inspect

import numpy as np
import pytest

import dualnewton as dn
import dualnewton.interop.model_file

MOST = 3
"""Parameters that may be given by position."""

FIXED = {
    "dn.methods.Smooth": ("value", "gradient", "M", "G"),
    "dn.methods.method1": ("f", "sampling", "x0", "iterations", "rng"),
    "dn.methods.method2": ("f", "sampling", "x0", "iterations", "rng"),
    "dn.methods.nsync": ("f", "sampling", "x0", "iterations", "rng"),
    "dn.methods.pcdm": ("F", "sampling", "x0", "iterations", "rng"),
    "dn.methods.prox_method1": ("F", "sampling", "x0", "iterations", "rng"),
    "dn.theory.sigma1_prox": ("M", "G", "gamma", "sampling"),
    "dn.theory.sigma3": ("M", "G", "sampling", "v"),
    "dn.theory.sigma3_prox": ("M", "G", "gamma", "sampling", "v"),
}
"""The paper's quantities and methods, whose arguments have the order in which it names them."""

COMPILED = "_by_columns"
"""How the names of a loss's functions end that kernels call for blocks of several columns."""

LEADING = {
    "dn.Problem": ("X", "y", "loss"),
    "dn.MultinomialProblem": ("X", "y"),
    "dn.solve": ("problem",),
    "dn.solve_many": ("problems",),
    "dn.plan": ("problem",),
    "dn.certify": ("model", "X", "y"),
    "dn.ERMClassifier": ("loss", "regularizer", "lam"),
    "dn.ERMRegressor": ("loss", "regularizer", "lam"),
}
"""What the most used names take by position."""


def public(name, thing, seen):
    """Yield every public callable with its name: functions, classes, and the methods that classes have from this library."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if inspect.ismodule(thing):
        for member in thing.__all__:
            yield from public(f"{name}.{member}", getattr(thing, member), seen)
    elif inspect.isclass(thing) and not issubclass(
        thing, np.ndarray | Exception | enum.Enum
    ):  # made by their own rules
        yield name, thing, 0
        for member in [member for member in dir(thing) if not member.startswith("_")]:
            found = inspect.getattr_static(thing, member)
            function = getattr(found, "__func__", found)
            if inspect.isfunction(function) and function.__module__.startswith("dualnewton"):
                yield f"{name}.{member}", function, 0 if isinstance(found, staticmethod) else 1
    elif inspect.isfunction(thing):
        yield name, thing, 0


def by_position(thing, bound=0):
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [each.name for each in inspect.signature(thing).parameters.values() if each.kind in kinds]
    return tuple(names[bound:])


PUBLIC = {
    name: by_position(thing, bound)
    for root, module in (("dn", dn), ("model_file", dualnewton.interop.model_file))
    for name, thing, bound in public(root, module, set())
}


def test_few_parameters_go_by_position():
    """Kernels call the functions of several columns, and have no parameters by name."""
    called_by_name = {name: names for name, names in PUBLIC.items() if not name.endswith(COMPILED)}
    assert len(called_by_name) > 500
    assert {name: names for name, names in called_by_name.items() if len(names) > MOST} == FIXED


@pytest.mark.parametrize("name", LEADING)
def test_what_goes_by_position(name):
    assert PUBLIC[name] == LEADING[name]


OF_OUR_OWN = {"ERMClassifier", "ERMRegressor", "PoissonRegressorCV", "GammaRegressorCV", "TweedieRegressorCV"}


@pytest.mark.parametrize("name", sorted(set(dn.estimators.__all__) - OF_OUR_OWN))
def test_estimators_take_by_position_what_those_of_scikit_learn_take(name):
    from sklearn import linear_model, svm

    theirs = by_position(getattr(linear_model, name, None) or getattr(svm, name))
    ours = by_position(getattr(dn.estimators, name))
    assert ours == theirs[: len(ours)]


def test_every_fixed_name_is_there():
    assert set(FIXED) | set(LEADING) <= set(PUBLIC)
