"""Every public name has an example in its docstring, and each example prints what it says."""

import doctest
import importlib
import inspect

import pytest

import dualnewton as dn

MODULES = ["dualnewton", *(f"dualnewton.{name}" for name in dn.__all__ if inspect.ismodule(getattr(dn, name)))]


NUMPYDOC = ["Parameters", "Attributes", "Examples"]
"""Sections of a docstring, in the order of numpydoc."""


def public_names():
    """Yield each public object once, with the shortest name that a user writes for it."""
    seen = set()
    for module in map(importlib.import_module, MODULES):
        for name in module.__all__:
            thing = getattr(module, name)
            if not inspect.ismodule(thing) and id(thing) not in seen:
                seen.add(id(thing))
                yield pytest.param(thing, id=f"{module.__name__.removeprefix('dualnewton.')}.{name}")


@pytest.mark.parametrize("thing", list(public_names()))
def test_the_example_of_a_public_name_prints_what_it_says(thing):
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False)
    test = parser.get_doctest(inspect.getdoc(thing) or "", {}, thing.__name__, None, None)
    assert test.examples, f"the docstring of {thing.__name__} has no example"
    failures = []
    runner.run(test, out=failures.append)
    assert not failures, "".join(failures)


def sections_of(thing):
    """The sections of a docstring, in its order."""
    text = inspect.getdoc(thing)
    places = {name: text.find(f"\n{name}\n---") for name in NUMPYDOC}
    return sorted((name for name, place in places.items() if place >= 0), key=places.get)


def test_a_docstring_keeps_the_order_of_numpydoc():
    found = {param.id: sections_of(*param.values) for param in public_names()}
    assert len(found) > 100
    assert {name: order for name, order in found.items() if order != sorted(order, key=NUMPYDOC.index)} == {}
