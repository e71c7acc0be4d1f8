"""Row arrays on a cluster are NumPy's arrays to whoever computes with them."""

from unittest import mock

import numpy as np
import pytest

from dualnewton.matrix.dask import DaskData, RowBlocks, local
from dualnewton.row_arrays import is_elsewhere, on_host

N, SIZES = 50, (20, 1, 0, 22, 7)
RNG = np.random.default_rng(1)
Z, Y = RNG.standard_normal((N, 3)), RNG.integers(0, 3, N)


@pytest.fixture(scope="module", params=["on workers", "gathered"])
def data(request, cluster):
    import dask.array as da

    with mock.patch.object(local, "FEW_ROWS", 0 if request.param == "on workers" else N):
        return DaskData(da.from_array(RNG.standard_normal((N, 4)), chunks=(SIZES, 2)))


@pytest.fixture(scope="module")
def rows(data):
    return data.placed(Z), data.placed(Y)


def cleared(z, y):
    made = z.copy()
    made[np.abs(made) < 0.5] = 0.0
    made[np.arange(len(y), like=y), y] += 1.0
    made *= 2.0
    part = made[slice(0, len(made))]
    part[:, 1] = -1.0
    np.exp(part, out=part)
    return made


EXPRESSIONS = {
    "ufuncs": lambda z, y: np.log1p(np.exp(-z)) * 2.0 + y[:, None],
    "columns": lambda z, y: z[:, 1] * y,
    "several columns": lambda z, y: z[:, 1:] @ np.array([1.0, 2.0]),  # noqa: ARG005
    "transposed": lambda z, y: (z.T * y).T,
    "row of the transpose": lambda z, y: z.T[2] - y,
    "joined": lambda z, y: np.column_stack([z, y]),
    "stacked": lambda z, y: np.concatenate([z, z / 3.0], axis=1),  # noqa: ARG005
    "where": lambda z, y: np.where(z[:, 0] > 0.0, y, -1.0),
    "own column": lambda z, y: z[np.arange(len(y), like=y), y],
    "largest column": lambda z, y: z.argmax(axis=1) == y,
    "largest of a row": lambda z, y: z.max(axis=1) - z.sum(axis=1),  # noqa: ARG005
    "numbered": lambda z, y: np.unique(y * 2, return_inverse=True)[1],  # noqa: ARG005
    "made": lambda z, y: np.ones(len(z), like=z) + np.zeros_like(y),
    "reshaped": lambda z, y: y.reshape(len(y), -1) + z.reshape(-1, 3),
    "assigned": cleared,
    "deep": lambda z, y: sum((z[:, 0] * k for k in range(40)), start=y * 1.0),
}
REDUCTIONS = {
    "sum": lambda z, y: z.sum(),  # noqa: ARG005
    "sum of columns": lambda z, y: (z * y[:, None]).sum(axis=0),
    "mean": lambda z, y: z.mean(axis=0),  # noqa: ARG005
    "product": lambda z, y: y @ z,
    "gram": lambda z, y: (y[:, None] * z).T @ z,
    "vdot": lambda z, y: np.vdot(z, z + 1.0),  # noqa: ARG005
    "extremes": lambda z, y: z.max() - z.min(),  # noqa: ARG005
    "extremes of columns": lambda z, y: z.min(axis=0),  # noqa: ARG005
    "count": lambda z, y: np.count_nonzero(y == 1) + (z > 0).sum(),
    "all and any": lambda z, y: [(z < 9.0).all(), (y > 5).any()],
    "first of the least": lambda z, y: np.argmin(z[:, 0] > -1.0),  # noqa: ARG005
    "average": lambda z, y: np.average(z, axis=0, weights=y),
    "equal": lambda z, y: [np.array_equal(y, y + 0), np.array_equal(y, y + 1)],  # noqa: ARG005
    "some rows": lambda z, y: z[5:25],  # noqa: ARG005
    "rows by index": lambda z, y: y[np.array([41, 3, 20])],  # noqa: ARG005
    "rows of a mask": lambda z, y: z[y == 1],
    "distinct": lambda z, y: np.unique(y),  # noqa: ARG005
    "one row": lambda z, y: z[-1],  # noqa: ARG005
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_stay_on_the_workers_and_have_numpys_values(rows, name):
    found, expected = EXPRESSIONS[name](*rows), EXPRESSIONS[name](Z.copy(), Y.copy())
    assert is_elsewhere(found)
    assert (found.shape, found.dtype, len(found)) == (expected.shape, expected.dtype, len(expected))
    np.testing.assert_allclose(on_host(found), expected, rtol=1e-14)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_come_to_the_client(rows, name):
    found, expected = REDUCTIONS[name](*rows), REDUCTIONS[name](Z, Y)
    assert not is_elsewhere(found)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_assignments_leave_other_arrays_as_they_are(rows):
    z, _ = rows
    other = z.copy()
    other += 1.0
    np.testing.assert_array_equal(z.compute(), Z)
    np.testing.assert_array_equal(other.to_dask().compute(), Z + 1.0)


def test_nothing_is_gathered_silently(rows):
    z, y = rows
    with pytest.raises(TypeError, match=r"compute\(\) gathers"):
        np.asarray(z)
    with pytest.raises(TypeError, match="cannot be joined along their rows"):
        np.concatenate([y, y])
    with pytest.raises(TypeError, match="cannot be assigned"):
        z[3] = 0.0
    with pytest.raises(TypeError, match="no implementation"):
        np.sort(y)
    assert isinstance(z, RowBlocks)
    assert "blocks=4" in repr(z)  # one of five has no rows


def test_single_rows_are_taken_with_all_their_columns(rows):
    z, _ = rows
    np.testing.assert_array_equal(z[[3, 1]], Z[[3, 1]])
    np.testing.assert_array_equal(z[:, 1][5], Z[5, 1])
    with pytest.raises(TypeError, match="columns first, then rows"):
        z[5, 1]


def test_an_array_that_was_sent_does_not_follow_changes_of_its_original(data):
    values = np.arange(float(N))
    sent = data.placed(values)
    values[:] = -1.0
    assert float(sent.sum()) == N * (N - 1) / 2
