"""A fit that nobody is left to compute ends with an error in words instead of waiting without limit."""

import pytest

import dask_killer
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask import waiting


@pytest.fixture
def alone(monkeypatch):
    """A cluster without workers, of threads of this process, and its client."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(waiting, "PATIENCE", 0.4)
    monkeypatch.setattr(waiting, "LOOK", 0.1)
    with (
        distributed.LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=None) as made,
        distributed.Client(made) as client,
    ):
        yield made, client


def fit_until(event):
    """Fit, and let something happen after the first step."""
    calls = []

    def callback(*_):
        calls.append(None)
        if len(calls) == 2:
            event()

    return dask_killer.fit(callback=callback)


def test_lost_workers_and_closed_clients_are_errors_in_words(alone):
    cluster, client = alone
    with pytest.raises(DualnewtonError, match=r"has no workers, and none came within 0\.4 seconds"):
        dask_killer.fit()
    cluster.scale(1)
    client.wait_for_workers(1)
    with pytest.raises(DualnewtonError, match=r"no workers for 0\.4 seconds during the fit.* With checkpoint=path"):
        fit_until(lambda: cluster.scale(0))
    cluster.scale(1)
    client.wait_for_workers(1)
    with pytest.raises(DualnewtonError, match=r"connection to the Dask cluster was lost.* With checkpoint=path"):
        fit_until(client.close)
