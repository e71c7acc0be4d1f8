"""Data on a cluster do what data in memory do, block by block, and refuse in words what they cannot."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import MemoryData, RowVectors, as_data
from dualnewton.matrix.dask import DaskData
from dualnewton.row_arrays import on_host

N, D, SIZES = 90, 6, (30, 0, 11, 49)
RNG = np.random.default_rng(2)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.7)
WEIGHTS = RNG.uniform(0.1, 2.0, N) * (RNG.random(N) < 0.8)
COLUMNS = np.column_stack([WEIGHTS, RNG.standard_normal(N)])


def csr_blocks():
    import dask

    ends = np.cumsum([0, *SIZES])
    return [dask.delayed(sp.csr_array)(X[low:high]) for low, high in itertools.pairwise(ends)]


def array():
    import dask.array as da

    return da.from_array(X, chunks=(SIZES, 4))


@pytest.fixture(scope="module", params=["array", "delayed CSR blocks"])
def both(request, cluster):
    sparse = request.param != "array"
    return as_data(csr_blocks() if sparse else array()), MemoryData(sp.csr_array(X) if sparse else X)


PRODUCTS = {
    "times": lambda data, w: data.times(w),
    "times columns": lambda data, w: data.times(np.column_stack([w, -w])),
    "transposed": lambda data, w: data.transposed_times(data.placed(WEIGHTS)),  # noqa: ARG005
    "transposed columns": lambda data, w: data.transposed_times(data.placed(COLUMNS)),  # noqa: ARG005
    "weighted products": lambda data, w: np.concatenate(
        [np.ravel(each) for each in data.weighted_products(np.stack([w, 2 * w]), np.ones(2), data.placed(COLUMNS))]
    ),
    "gram": lambda data, w: data.weighted_gram(data.placed(WEIGHTS), intercept=True),  # noqa: ARG005
    "gram of some rows": lambda data, w: data.weighted_gram(np.ones(3), np.array([2, 40, 89])),  # noqa: ARG005
    "gram of active rows": lambda data, w: gram_of_active(data, data.placed(WEIGHTS)),  # noqa: ARG005
    "gram of changes": lambda data, w: gram_of_changes(data, data.placed(WEIGHTS)),  # noqa: ARG005
    "several grams": lambda data, w: np.stack(  # noqa: ARG005
        data.weighted_grams([data.placed(WEIGHTS), data.placed(COLUMNS[:, 1].copy())], intercept=True)
    ),
    "moments": lambda data, w: np.concatenate(data.moments(data.placed(WEIGHTS), data.placed(COLUMNS), w), axis=1),
    "norms": lambda data, w: data.column_norms(data.placed(WEIGHTS)),  # noqa: ARG005
    "norms of features": lambda data, w: data.column_norms(data.placed(WEIGHTS), np.array([1, 3])),  # noqa: ARG005
    "absolute sums": lambda data, w: data.absolute_sums(data.placed(COLUMNS)),  # noqa: ARG005
    "scores": lambda data, w: data.row_scores(w * w),
    "nonzeros": lambda data, w: data.nonzeros(),  # noqa: ARG005
    "constant column": lambda data, w: data.with_constant(2.0).times(np.append(w, 1.0)),
    "entries": lambda data, w: data.entries(data.placed(COLUMNS), np.array([80, 3])),  # noqa: ARG005
    "only at": lambda data, w: data.only_at(data.placed(WEIGHTS), np.array([4, 77]), 2.0),  # noqa: ARG005
    "dominant": lambda data, w: np.sort(data.dominant(data.placed(WEIGHTS), data.row_scores(w * w), 7, 0)[0]),
}


def gram_of_active(data, weights):
    active = data.active(weights)
    assert active.size == np.count_nonzero(WEIGHTS)
    return data.weighted_gram(data.take(weights, active), active)


def gram_of_changes(data, weights):
    others = data.placed(np.where(np.arange(N) % 5 == 0, 0.0, WEIGHTS))
    changed = data.changed(weights, others)
    difference = data.take(weights, changed) - data.take(others, changed)
    return data.weighted_gram(difference, changed, intercept=True)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_those_of_memory(both, name):
    w = np.linspace(-1.0, 2.0, D)
    found, expected = (on_host(PRODUCTS[name](data, w)) for data in both)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def test_rows_come_to_the_client_in_the_order_asked_for(both):
    ours, theirs = (data.rows(np.array([88, 2, 35])) for data in both)
    assert sp.issparse(ours) == sp.issparse(theirs)
    np.testing.assert_array_equal(*((each.toarray() if sp.issparse(each) else each) for each in (ours, theirs)))


def test_draws_with_their_labels_come_in_one_exchange_of_messages(both, messages):
    data, memory = both
    draws, y = [np.array([1, 40, 88]), np.array([5, 88])], data.placed(WEIGHTS)
    messages[0] = 0
    found = list(data.subsets(draws, [y]))
    assert messages[0] == 1
    for (ours, (entries,)), (theirs, (expected,)) in zip(found, memory.subsets(draws, [WEIGHTS]), strict=True):
        np.testing.assert_array_equal(ours.rows(slice(None)) @ np.eye(6), theirs.rows(slice(None)) @ np.eye(6))
        np.testing.assert_array_equal(entries, expected)


def test_entries_of_a_few_rows_are_remembered(both, messages):
    y = both[0].placed(WEIGHTS)
    messages[0] = 0
    for _ in range(2):
        np.testing.assert_array_equal(y[:7], WEIGHTS[:7])
    assert messages[0] == 1


def test_a_certificate_with_its_rounding_bound_takes_two_exchanges(cluster, messages):
    """Sums over the dual point come with the dual value, for the bound as well; ``label_sums`` and norms of X stay known."""
    problem = dn.Problem(array(), np.where(X[:, 0] > 0.0, 1.0, -1.0), losses.Logistic(), lam=0.1, fit_intercept=True)
    result = dn.solve(problem, tol=1e-6)
    messages[0] = 0
    assert problem.certify(result.w, result.intercept) == result.certificate
    assert messages[0] == 2


@pytest.mark.parametrize("scored", [False, True])
def test_drawn_rows_keep_the_mean_and_do_not_depend_on_the_blocks(both, scored):
    data, memory = both
    scores = np.linspace(0.5, 1.5, N) if scored else None
    ours = data.draw(
        np.random.default_rng(5), data.placed(WEIGHTS), 20, None if scores is None else data.placed(scores)
    )
    theirs = memory.draw(np.random.default_rng(5), WEIGHTS, 20, scores)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-12)


def test_sizes_and_identity(both):
    data, memory = both
    assert data.profile == memory.profile
    assert data.fingerprint() == as_data(csr_blocks() if data.profile.sparse else array()).fingerprint()
    assert data.same_as(data)
    assert not data.same_as(memory)
    assert data.subset(np.array([1, 50])).n == 2
    assert RowVectors(data.ones()).y.sum() == N


def test_what_cannot_be_used_is_refused_in_words(cluster):
    import dask
    import dask.array as da

    def fails():
        raise OSError("the disk is gone")

    blocks = [dask.delayed(X[:40]), dask.delayed(fails)()]
    with pytest.raises(DualnewtonError, match=r"block 1 of X cannot be computed.*fails.*OSError: the disk is gone"):
        DaskData(blocks)
    with pytest.raises(DualnewtonError, match="block 0 has 6, block 1 has 5"):
        DaskData([dask.delayed(X[:40]), dask.delayed(X[40:, 1:])])
    with pytest.raises(DualnewtonError, match="blocks 0 and 1 differ"):
        DaskData([dask.delayed(X[:40]), dask.delayed(sp.csr_array(X[40:]))])
    with pytest.raises(DualnewtonError, match="at least one row"):
        DaskData(da.zeros((0, 3), chunks=2))
    with pytest.raises(DualnewtonError, match="X must have 2 axes, got 1"):
        DaskData(da.zeros(7))
    with pytest.raises(DualnewtonError, match=r"X, block 1 .* must be finite, got nan at index \(3, 0\)"):
        DaskData(da.from_array(np.where(np.arange(N)[:, None] == 33, np.nan, X), chunks=(30, 6)))
    data = DaskData(array())
    with pytest.raises(DualnewtonError, match="y must have an entry for each of the 90 rows of X, got 89"):
        data.adopted("y", da.zeros(89, chunks=10))
    with pytest.raises(TypeError, match="columns cannot be gathered"):
        data.columns(np.array([0]))


def test_without_a_cluster_the_error_says_how_to_make_one(cluster, monkeypatch):
    import distributed

    monkeypatch.setattr(distributed, "default_client", lambda: (_ for _ in ()).throw(ValueError("no client")))
    with pytest.raises(DualnewtonError, match=r"make one first, for instance by dask\.distributed\.Client\(\)"):
        DaskData(array())
