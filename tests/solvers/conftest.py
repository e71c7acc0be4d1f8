"""Tests of the general methods: small problems take the way of large ones here."""

import pytest

from dualnewton.matrix.memory import MemoryData
from dualnewton.run import loop
from tuned import GENERAL


@pytest.fixture(autouse=True)
def _general_methods(monkeypatch):
    monkeypatch.setattr(loop, "DEFAULT", GENERAL)


@pytest.fixture
def passes(monkeypatch):
    """The number of rows of each pass that evaluates losses and gradients."""
    seen, evaluate = [], MemoryData.evaluate

    def counted(self, *args):
        seen.append(self.n)
        return evaluate(self, *args)

    monkeypatch.setattr(MemoryData, "evaluate", counted)
    return seen
