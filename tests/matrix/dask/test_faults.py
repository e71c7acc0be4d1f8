"""A fit goes on when a worker is killed, and ends with the same bits; nothing of X comes to the client but sampled rows."""

import pickle

import numpy as np
import pytest

import dask_killer
import dualnewton as dn
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask.layout import Layout
from dualnewton.run.checkpoint import Keeper


@pytest.fixture(scope="module")
def whole(cluster):
    """A fit that nothing disturbs."""
    return dask_killer.fit()


def test_killed_workers_change_no_bit(cluster, whole):
    left, rng = ["dualnewton-share", "dualnewton-gradients"], np.random.default_rng(3)
    for _ in range(8):  # a fit may end before the killer has seen a task of each phase
        result, killed = dask_killer.fit_with_kills(cluster, rng, left)
        assert dask_killer.bits(result) == dask_killer.bits(whole)
        left = [phase for phase in left if phase not in killed]
        if not left:
            break
    assert not left


def test_a_lost_scheduler_is_an_error_in_words_and_a_new_cluster_continues(whole, tmp_path, monkeypatch):
    from distributed import Client

    place, save, saved = dn.Checkpoint(tmp_path / "run", seconds=0.0, spacing=0.0), Keeper.save, []

    def last_save(self, state, epochs, finished=False):
        save(self, state, epochs, finished)
        saved.append(epochs)
        if len(saved) == 3:
            process.kill()
            process.wait()

    with monkeypatch.context() as patch, dask_killer.scheduler() as (process, address), Client(address, timeout=5):
        patch.setattr(Keeper, "save", last_save)
        with pytest.raises(DualnewtonError, match=r"was lost during the fit\. With checkpoint=path"):
            dask_killer.fit(checkpoint=place)
    assert 0.0 < saved[-1] < whole.n_epochs
    assert dask_killer.bits(dask_killer.fit(checkpoint=place)) == dask_killer.bits(whole)


def test_no_block_is_gathered_by_the_client(cluster, monkeypatch):
    largest = [0]

    def measured(wait):
        def measuring(*given):
            found = wait(*given)
            largest[0] = max(largest[0], len(pickle.dumps(found)))
            return found

        return measuring

    for name in ("fetched", "received"):
        monkeypatch.setattr(Layout, name, measured(getattr(Layout, name)))
    result = dask_killer.fit()
    assert result.converged
    assert 0 < largest[0] < 0.25 * dask_killer.N * dask_killer.D * 8  # samples of about a thousand of 6000 rows
