"""Sums of blocks have the same bits however the blocks are shared out."""

import numpy as np
import pytest

from dualnewton.matrix.dask.sums import folded, total

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 13, 64, 100])
def test_any_order_and_any_shares_give_the_bits_of_one_worker(count):
    values = RNG.standard_normal((count, 3)) * np.exp(4.0 * RNG.standard_normal((count, 1)))
    nodes = [((0, k), (values[k],)) for k in range(count)]
    (alone,) = total(folded(nodes, count))
    for _ in range(5):
        shares = RNG.integers(0, 4, count)
        partial = [folded([nodes[k] for k in RNG.permutation(count) if shares[k] == s], count) for s in range(4)]
        (found,) = total(folded([item for s in RNG.permutation(4) for item in partial[s].items()], count))
        np.testing.assert_array_equal(found, alone)
    np.testing.assert_allclose(alone, values.sum(axis=0), rtol=1e-12, atol=1e-9)


def test_a_share_of_consecutive_blocks_has_few_nodes():
    nodes = folded([((0, k), (1.0,)) for k in range(37, 700)], 1000)
    assert len(nodes) <= 2 * 10
    assert sum(value for (value,) in nodes.values()) == 663.0


def test_blocks_that_contribute_nothing_change_nothing():
    nodes = [((0, k), (float(k),) if k % 3 == 0 else ()) for k in range(8)]
    assert total(folded(nodes, 8)) == (9.0,)
    assert total(folded([((0, k), ()) for k in range(5)], 5)) == ()


def test_other_ways_to_join():
    nodes = [((0, k), (float(x),)) for k, x in enumerate([3, -1, 7, 2, 5])]
    assert total(folded(nodes, 5, np.maximum)) == (7.0,)
