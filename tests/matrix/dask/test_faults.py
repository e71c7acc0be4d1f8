"""A fit goes on when a worker is killed, and ends with the same bits; nothing of X comes to the client but sampled rows."""

import numpy as np
import pytest

import dask_killer
from dualnewton.matrix.dask.layout import Layout

pytestmark = pytest.mark.xdist_group("dask")


@pytest.mark.parametrize("phase", ["dualnewton-share", "dualnewton-gradients"])
def test_a_killed_worker_changes_no_bit(cluster, phase):
    expected = dask_killer.bits(dask_killer.fit())
    result, killer = dask_killer.fit_with_a_kill(cluster, np.random.default_rng(3), phase, delay=0.1)
    assert killer.killed is not None
    assert dask_killer.bits(result) == expected


def test_no_block_is_gathered_by_the_client(cluster, monkeypatch):
    largest, gathered = [0], Layout.fetched

    def measured(self, futures):
        import pickle

        found = gathered(self, futures)
        largest[0] = max(largest[0], len(pickle.dumps(found)))
        return found

    monkeypatch.setattr(Layout, "fetched", measured)
    result = dask_killer.fit()
    assert result.converged
    assert 0 < largest[0] < 0.25 * dask_killer.N * dask_killer.D * 8  # samples of about a thousand of 6000 rows
