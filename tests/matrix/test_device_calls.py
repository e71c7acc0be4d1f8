"""The calls of a fit on a device: each takes the interpreter about as long as the device takes for some thousand rows.

Waits are copies to the host and conversions to numbers of Python's; operations are all other calls that start work on the device
or make arrays there. The bounds are what a fit takes: a change that adds a call to a pass or a step exceeds them.
"""

from collections import Counter

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, row_arrays
from dualnewton.matrix.device import DeviceData
from fake_device import FakeArray, FakeModule, on_device, row_function
from tuned import tuned

WAITS = ("get", "__float__", "__int__", "__bool__")
OPERATIONS = ("__array_ufunc__", "__array_function__", "__getitem__", "__setitem__", "__getattr__")

SAMPLED = tuned(one_block_features=0, sample_rows=64)
"""Samples pay for problems of a few thousand rows."""


@pytest.fixture
def calls(monkeypatch):
    """Numbers of calls of each kind; functions of rows, which a GPU has compiled, are a wait each and no operation."""
    seen = Counter()

    def counted(kind, function):
        def call(*args, **more):
            seen[kind] += 1
            return function(*args, **more)

        return call

    for kind, names in (("waits", WAITS), ("operations", OPERATIONS)):
        for name in names:
            monkeypatch.setattr(FakeArray, name, counted(kind, getattr(FakeArray, name)))
    monkeypatch.setattr(FakeModule, "__getattr__", counted("operations", FakeModule.__getattr__))
    functions = lambda name, loss: (found := row_function(name, loss)) and counted("waits", found)  # noqa: E731
    monkeypatch.setitem(row_arrays._FUNCTIONS, FakeArray, functions)
    monkeypatch.setitem(row_arrays._TO_HOST, FakeArray, lambda array: array.get())
    return seen


def test_the_calls_of_a_fit_of_many_features_are_few(calls, monkeypatch):
    monkeypatch.setattr(DeviceData, "many", 1)  # vectors over features are on the device
    rng, n, d = np.random.default_rng(0), 2000, 400
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.05)
    y = np.sign(X @ rng.standard_normal(d) + rng.logistic(size=n))
    copied = Counter()

    def to_host(array):
        copied[array.size] += 1
        return array.get()

    monkeypatch.setitem(row_arrays._TO_HOST, FakeArray, to_host)
    # A diagonal with the corrections of L-BFGS, as on sparse rows of many features.
    posed = dn.Problem(on_device(X), y, losses.Logistic(), lam=10.0 / n)
    calls.clear()
    found = dn.solve(posed, method="ihs", tau=8, tol=1e-6, random_state=0)
    assert found.converged
    assert found.n_epochs <= 8.0
    assert type(found.w) is np.ndarray
    assert copied[d] <= 3  # the model at the end, norms of the features, and the diagonal, from few rows
    assert calls["operations"] <= 500


@pytest.mark.parametrize(("method", "waits", "operations"), [("newton", 34, 300), ("ihs", 36, 335)])
def test_the_calls_of_a_fit_are_few(method, waits, operations, calls):
    rng, n = np.random.default_rng(0), 8000
    X = rng.standard_normal((n, 5))
    y = np.sign(X @ rng.standard_normal(5) + rng.logistic(size=n))
    posed = dn.Problem(on_device(X), y, losses.Logistic(), lam=1.0 / n, fit_intercept=True)
    calls.clear()
    found = dn.solve(posed, method=method, tol=1e-6, tuning=SAMPLED, random_state=0)
    assert found.converged
    assert found.n_epochs <= 8.0
    assert calls["waits"] <= waits
    assert calls["operations"] <= operations
