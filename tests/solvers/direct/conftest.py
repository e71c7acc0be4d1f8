"""The tests of this folder are of the direct solvers."""

import pytest


@pytest.fixture(autouse=True)
def _general_methods():
    """Leave the tuning as it is."""
