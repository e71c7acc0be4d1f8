from unittest import mock

import pytest

from dualnewton.matrix.dask import local


@pytest.fixture(scope="module", autouse=True)
def rows_stay_on_the_workers():
    """Let tests with few rows take the path of many rows, unless they say otherwise."""
    with mock.patch.object(local, "FEW_ROWS", 0):
        yield
