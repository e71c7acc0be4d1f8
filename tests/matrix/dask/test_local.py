"""Few rows: the client gathers row arrays and sums over them itself, with the bits of the workers and without messages."""

from unittest import mock

import numpy as np
import pytest

import dask_killer
import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.dask import local


def problem(few, loss):
    with mock.patch.object(local, "FEW_ROWS", 1 << 16 if few else 0):
        return dn.Problem(*dask_killer.collections(), loss, lam=1e-2, fit_intercept=True)


@pytest.mark.parametrize(
    ("loss", "method", "tol"), [(losses.Logistic(), "newton", 1e-3), (losses.Quantile(0.3), "ihs", 3e-2)], ids=str
)
def test_fits_have_the_bits_of_sums_on_the_workers_and_fewer_messages(cluster, messages, loss, method, tol):
    found = []
    for few in (True, False):
        messages[0] = 0
        result = dn.solve(problem(few, loss), method=method, tol=tol, random_state=0)
        assert result.converged
        found.append((dask_killer.bits(result), result.alpha.compute().tobytes(), messages[0]))
    assert found[0][:2] == found[1][:2]
    assert found[0][2] <= 27
    assert 4 * found[0][2] < 3 * found[1][2]


def test_sums_over_margins_that_are_here_take_no_messages(cluster, messages):
    ours = problem(True, losses.Logistic())
    z = ours.margins(np.ones(dask_killer.D))
    assert np.isfinite(ours.best_intercept_at(z))
    messages[0] = 0
    b = ours.best_intercept_at(z)
    assert np.isfinite(ours.primal_at(z + b, np.ones(dask_killer.D)))
    np.testing.assert_array_equal(ours.data.entries(z, np.array([5000, 3])), z.compute()[[5000, 3]])
    assert messages[0] == 0
