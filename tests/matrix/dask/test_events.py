"""Small results come to the client as events; results that are large, or whose event is lost, are gathered."""

import numpy as np
import pytest

from dualnewton.matrix.dask import DaskData, events, waiting
from dualnewton.matrix.dask.layout import Layout

N, WIDE = 12, 5000


@pytest.fixture
def gathered(monkeypatch):
    """Count the results that are gathered."""
    count, fetched = [0], Layout.fetched

    def counted(self, futures):
        count[0] += 1
        return fetched(self, futures)

    monkeypatch.setattr(Layout, "fetched", counted)
    return count


@pytest.mark.parametrize(("columns", "requests"), [(3, 0), (WIDE, 1)])
def test_only_large_sums_are_gathered(cluster, gathered, columns, requests):
    import dask.array as da

    X = np.random.default_rng(0).standard_normal((N, columns))
    data = DaskData(da.from_array(X, chunks=(5, columns)))
    gathered[0] = 0
    found = data.transposed_times(data.ones())
    np.testing.assert_allclose(found, X.sum(axis=0), atol=1e-12)
    assert gathered[0] == requests
    found += 1.0  # belongs to the caller


def test_a_lost_event_delays_a_result_and_nothing_else(cluster, gathered, monkeypatch):
    import dask.array as da

    monkeypatch.setattr(waiting, "LOOK", 0.05)
    monkeypatch.setattr(events.Expected, "put", lambda *_: None)
    data = DaskData(da.ones((N, 2), chunks=(5, 2)))
    gathered[0] = 0
    np.testing.assert_array_equal(data.transposed_times(data.ones()), [N, N])
    assert gathered[0] == 1


def test_events_of_tasks_that_nobody_expects_are_dropped():
    inbox = events.Inbox()
    expected = inbox.expect([("task", 0), ("task", 1)])
    inbox._received((0.0, ("task", 1, b"")))
    inbox._received((0.0, ("task", 1, b"")))  # a task that ran twice
    inbox._received((0.0, ("other", 0, b"")))
    with pytest.raises(TimeoutError):
        expected.wait(0.0)
    inbox._received((0.0, ("task", 0, None)))
    expected.wait(0.0)
    assert expected.results() is None  # one must be gathered
