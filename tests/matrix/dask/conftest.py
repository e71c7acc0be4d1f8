from unittest import mock

import pytest

from dualnewton.matrix.dask import local
from dualnewton.matrix.dask.layout import Layout


@pytest.fixture(scope="module", autouse=True)
def rows_stay_on_the_workers():
    """Let tests with few rows take the path of many rows, unless they say otherwise."""
    with mock.patch.object(local, "FEW_ROWS", 0):
        yield


@pytest.fixture
def messages(monkeypatch):
    """Count the exchanges of messages."""
    count = [0]

    def counted(wait):
        def counting(*given):
            count[0] += 1
            return wait(*given)

        return counting

    for name in ("fetched", "received"):
        monkeypatch.setattr(Layout, name, counted(getattr(Layout, name)))
    return count
