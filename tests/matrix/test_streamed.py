"""Rows on the host that a device computes with: fits are those in memory, and pieces are copied ahead, in order."""

import copy
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import MemoryData, cuda_copies, linear
from dualnewton.matrix.device import DeviceData
from dualnewton.matrix.read_ahead import NAME
from dualnewton.matrix.streamed import StreamedData
from dualnewton.planning.costs import Costs
from fake_device import on_device

N, D, TOL = 400, 6, 1e-8
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) * [5.0, 1.0, 1.0, 1.0, 1.0, 0.2]
MARGINS = X @ RNG.standard_normal(D) + RNG.logistic(size=N)
SIGNS, CLASSES = np.where(MARGINS > 0.0, 1.0, -1.0), np.digitize(MARGINS, [-1.0, 1.0])
SIZE = 8 * D * 90
"""Bytes of a piece: of five pieces the last is shorter."""

FITS = {
    "newton": (losses.Logistic(), SIGNS, regularizers.L2(), "newton"),
    "sketched": (losses.Logistic(), SIGNS, regularizers.L2(), "ihs"),
    "sparse": (losses.Logistic(), SIGNS, regularizers.L1(), "newton"),
    "least squares": (losses.Squared(), MARGINS, regularizers.L2(), "newton"),
    "lasso": (losses.Squared(), MARGINS, regularizers.L1(), "newton"),
    "smoothed": (losses.Hinge(), SIGNS, regularizers.L2(), "newton"),
    "softmax": (losses.Softmax(3), CLASSES, regularizers.L2(), "newton"),
}


def streamed(rows=X, place=on_device):
    return StreamedData(linear.cut(rows, SIZE), place)


@pytest.mark.parametrize("name", FITS)
def test_a_fit_of_streamed_rows_is_that_in_memory(name):
    loss, y, penalty, method = FITS[name]
    more = {"regularizer": penalty, "lam": 0.01, "sample_weight": RNG.uniform(0.5, 2.0, N), "fit_intercept": True}
    there, here = dn.Problem(streamed(), y, loss, **more), dn.Problem(X, y, loss, **more)
    found = dn.solve(there, method=method, tol=TOL, random_state=0)
    assert found.converged, found
    assert type(found.alpha) is np.ndarray
    # The verifier in memory confirms the certificate.
    assert here.certify(found.w, found.intercept, found.alpha).relative_gap <= 2.0 * TOL
    again = dn.solve(there, method=method, tol=TOL, random_state=0)
    np.testing.assert_array_equal(found.w, again.w)


def test_estimators_fit_rows_that_are_too_many_for_the_device(monkeypatch):
    monkeypatch.setattr(cuda_copies, "on_gpu", streamed)
    for model, y in (
        (dn.LogisticRegression(tol=1e-8), SIGNS),
        (dn.Lasso(alpha=0.01, tol=1e-8), MARGINS),
        (dn.RidgeCV(cv=3, tol=1e-8), MARGINS),
    ):
        here, there = (copy.copy(model).set_params(device=device).fit(X, y) for device in (None, "cuda"))
        assert type(there.coef_) is np.ndarray
        np.testing.assert_allclose(there.coef_, here.coef_, atol=1e-3 * np.abs(here.coef_).max())
        np.testing.assert_allclose(there.predict(X), here.predict(X), atol=1e-2)


def test_sums_and_parts_agree_with_those_in_memory():
    data, here = streamed(), MemoryData(X)
    weights, w, some = RNG.uniform(0.5, 2.0, N), RNG.standard_normal(D), np.arange(0, N, 7)
    for operation, given in {
        "times": (w,),
        "transposed_times": (weights,),
        "column_norms": (weights,),
        "absolute_sums": (weights,),
        "row_scores": (np.abs(w),),
        "nonzeros": (),
        "rows": (some,),
        "columns": (np.array([1, 4]),),
        "weighted_gram": (weights,),
    }.items():
        np.testing.assert_allclose(getattr(data, operation)(*given), getattr(here, operation)(*given), rtol=1e-12)
    own = weights[some]
    np.testing.assert_allclose(data.weighted_gram(own, some), here.weighted_gram(own, some), rtol=1e-12)
    targets, origin = RNG.standard_normal((N, 2)), X.mean(axis=0)
    for mine, theirs in zip(
        data.moments(weights, targets, origin), here.moments(weights, targets, origin), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)
    wider, narrower = data.with_constant(2.0), data.with_features(np.array([0, 3]))
    np.testing.assert_allclose(wider.times(np.append(w, 1.0)), X @ w + 2.0, rtol=1e-12)
    np.testing.assert_allclose(narrower.transposed_times(weights), X[:, [0, 3]].T @ weights, rtol=1e-12)


def test_pieces_are_copied_by_a_thread_in_order_and_few_of_them_exist_at_a_time():
    alive, most, firsts, threads = [0], [0], [], set()

    def place(rows):
        threads.add(threading.current_thread().name)
        firsts.append(float(rows[0, 0]))
        data = on_device(rows)
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        data.closing = Counted(alive)
        return data

    streamed(place=place).transposed_times(np.ones(N))
    assert threads == {NAME}
    assert firsts == [float(piece[0, 0]) for piece in linear.cut(X, SIZE)]
    # One that is computed with, one that is ready and one that is being copied.
    assert most[0] <= 3


class Counted:
    """Counts what exists."""

    def __init__(self, alive):
        self.alive = alive

    def __del__(self):
        self.alive[0] -= 1


def test_rows_that_are_gathered_are_not_copied_to_the_device():
    def refuse(rows):
        raise AssertionError("copied")

    data = streamed(place=refuse)
    assert data.rows(np.array([3, 200])).shape == (2, D)
    assert data.fingerprint() == streamed().fingerprint()
    with pytest.raises(AssertionError, match="copied"):
        data.times(np.ones(D))


def test_a_sample_is_data_on_the_device():
    found = streamed().subset(np.array([3, 200]))
    assert isinstance(found, DeviceData)
    np.testing.assert_array_equal(found.rows(slice(None)), X[[3, 200]])


def test_few_rows_of_a_gram_matrix_are_copied_alone():
    sizes = []
    data = streamed(place=lambda rows: sizes.append(len(rows)) or on_device(rows))
    some = np.array([1, 2, 100, 399])
    data.weighted_gram(np.ones(4), some)
    assert sizes == [2, 1, 1]


def test_passes_of_streamed_rows_cost_their_copy():
    profile = streamed().profile
    assert profile.on_gpu
    assert profile.streamed
    large = MemoryData(np.empty((10**6, 100))).profile
    there, here = (Costs.of(type(large)(**vars(large) | {"on_gpu": True, "streamed": each})) for each in (False, True))
    assert here.data_pass > 10.0 * there.data_pass
    assert here.outer(1e6, large.pairs)[0] > 2.0 * there.outer(1e6, large.pairs)[0]


def test_pieces_of_sparse_rows_share_their_entries():
    rows = sp.random_array((500, 30), density=0.2, format="csr", rng=np.random.default_rng(1))
    pieces = [segment.matrix for segment in StreamedData(linear.cut(rows, 2000), on_device).source.segments]
    assert len(pieces) > 3
    assert all(np.shares_memory(piece.data, rows.data) for piece in pieces)
    np.testing.assert_array_equal(sp.vstack(pieces).toarray(), rows.toarray())
