"""Tests of the general methods: small problems take the way of large ones here."""

import pytest

from dualnewton.run import loop
from tuned import GENERAL


@pytest.fixture(autouse=True)
def _general_methods(monkeypatch):
    monkeypatch.setattr(loop, "DEFAULT", GENERAL)
