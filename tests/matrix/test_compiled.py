"""Compiled passes agree with the NumPy expressions that specify them, and have the same bits for any number of threads."""

from dataclasses import dataclass

import numba
import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.kernels import elementary
from dualnewton.matrix import MemoryData, compiled, memory, over_rows, selections
from dualnewton.matrix.workers import threads, workers
from dualnewton.objective.targets import Derivatives, PrimalPoints
from tables import LOSSES, NON_SMOOTH, SEVERAL_COLUMNS, labels_for, name_of

N, D = 400, 13
STORAGES = pytest.mark.parametrize("storage", ["dense", "csr"])
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
FORMS = {"plain": {}, "intercept, weights, offset": {"fit_intercept": True, "weights": True, "offset": True}}


@dataclass(frozen=True)
class LogCosh(losses.Loss):
    """scale² log cosh((z − y)/scale), as a user would write it."""

    scale: float = 2.0
    gamma = 1.0

    def value(self, z, y):
        r = np.abs(z - y) / self.scale
        return self.scale**2 * (r + np.log1p(np.exp(-2.0 * r)) - np.log(2.0))

    def derivative(self, z, y):
        return self.scale * np.tanh((z - y) / self.scale)

    def second_derivative(self, z, y):
        return 1.0 - np.tanh((z - y) / self.scale) ** 2

    def domain(self, y):
        return 0.0 * y - self.scale, 0.0 * y + self.scale


FACTORS = {"half": 0.5}


@dataclass(frozen=True)
class Interpreted(losses.Squared):
    """½(z − y)², in a way that only the interpreter understands."""

    def value(self, z, y):
        return FACTORS["half"] * (z - y) ** 2


@pytest.fixture(autouse=True)
def _many_parts(monkeypatch):
    """Parts and blocks so small that there are many of each."""
    monkeypatch.setattr(memory, "COMPILED_FROM", 1)
    monkeypatch.setattr(memory, "PART_ENTRIES", D * 7)
    monkeypatch.setattr(memory, "DENSE_PART_ENTRIES", D * 20)
    monkeypatch.setattr(compiled, "LARGE_GRAM", 1)
    monkeypatch.setattr(memory, "LEAST_PAIRS", 1)
    monkeypatch.setattr(compiled, "BLOCK_BYTES", 1)
    monkeypatch.setattr(over_rows, "PART_ROWS", 17)
    monkeypatch.setattr(compiled, "SUMMED", 5)


def matrix(storage, dtype=np.float64):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.6)).astype(dtype)
    return sp.csr_array(X) if storage == "csr" else X


def dense(X):
    return (X.toarray() if sp.issparse(X) else X).astype(np.float64)


def problems(loss, X, K, *, regularizer=None, weights=False, offset=False, fit_intercept=False):
    rng = np.random.default_rng(8)
    return [
        dn.Problem(
            X,
            labels_for(loss, N, rng),
            loss,
            regularizer=regularizer or regularizers.L2(),
            sample_weight=rng.uniform(0.0, 2.0, N) if weights else None,
            offset=rng.standard_normal((N, loss.columns) if loss.columns > 1 else N) if offset else None,
            fit_intercept=fit_intercept,
        )
        for _ in range(K)
    ]


def specified(data, *arguments):
    """The pass by NumPy expressions over blocks."""
    data.is_large = False
    return data.evaluate(*arguments)


def fields(found):
    return {name: getattr(found, name) for name in ("values", "gradients", "slopes", "margins", "kept")}


def assert_agree(found, exact):
    for name, value in fields(exact).items():
        mine = getattr(found, name)
        if value is None:
            assert mine is None
        else:
            np.testing.assert_allclose(
                mine, value, rtol=1e-11, atol=1e-12 * np.abs(value).max(initial=1e-9), err_msg=name
            )


@STORAGES
@DTYPES
@pytest.mark.parametrize("K", [1, 2, 3, 10])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("regularizer", [regularizers.L2(), regularizers.L1()], ids=name_of)
def test_passes_agree_with_their_specification(storage, dtype, K, form, regularizer):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    several = problems(losses.Logistic(), X, K, regularizer=regularizer, **FORMS[form])
    vectors = [problem.row_vectors for problem in several]
    for W in (rng.standard_normal((K, D)), np.zeros((K, D))):
        b = rng.standard_normal(K)
        for target in (Derivatives(several), PrimalPoints(several)):
            data = MemoryData(X)
            assert len(data.parts) > 3
            assert data.compiled.takes(target.forms)
            assert_agree(data.evaluate(W, b, target, vectors), specified(MemoryData(X), W, b, target, vectors))


@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH, *SEVERAL_COLUMNS, LogCosh(1.5)], ids=name_of)
@pytest.mark.parametrize("form", FORMS)
def test_every_loss_is_compiled_from_its_own_methods(loss, form):
    X, rng = matrix("dense"), np.random.default_rng(1)
    (problem,) = problems(loss, X, 1, **FORMS[form])
    W, b, data = 3.0 * rng.standard_normal((loss.columns, D)), rng.standard_normal(loss.columns), MemoryData(X)
    for target in (Derivatives([problem]), PrimalPoints([problem])):
        assert data.compiled.takes(target.forms)
        arguments = W, b, target, [problem.row_vectors]
        assert_agree(data.evaluate(*arguments), specified(MemoryData(X), *arguments))


@STORAGES
@DTYPES
@pytest.mark.parametrize("regularizer", [regularizers.L2(), regularizers.L1()], ids=name_of)
def test_losses_of_several_columns_share_passes_with_others(storage, dtype, regularizer):
    """Softmax of four classes, a loss of three outputs and one of a single margin; equal bits for any number of threads."""
    X, rng, several = matrix(storage, dtype), np.random.default_rng(5), []
    for loss in (losses.Softmax(4), losses.Logistic(), losses.SquaredOutputs(3)):
        several += problems(loss, X, 1, regularizer=regularizer, **FORMS["intercept, weights, offset"])
    vectors = [problem.row_vectors for problem in several]
    W, b = rng.standard_normal((8, D)), rng.standard_normal(8)
    for target in (Derivatives(several), PrimalPoints(several)):
        found = MemoryData(X).evaluate(W, b, target, vectors)
        assert_agree(found, specified(MemoryData(X), W, b, target, vectors))
        for count in (2, 3, 8, 16):
            with threads(count):
                again = MemoryData(X).evaluate(W, b, target, vectors)
            for name, value in fields(found).items():
                assert np.array_equal(getattr(again, name), value) if value is not None else True, (name, count)


@dataclass(frozen=True)
class Halved(losses.Softmax):
    """Half of softmax's value, with its slopes: not a loss, but a function that compiled passes must not ignore."""

    def value(self, z, y):
        return 0.5 * super().value(z, y)


def test_a_loss_that_overrides_a_function_of_softmax_is_evaluated_by_its_own():
    X = matrix("dense")
    own, whole = (problems(loss, X, 1)[0] for loss in (Halved(4), losses.Softmax(4)))
    assert not MemoryData(X).compiled.takes(Derivatives([own]).forms)
    W = np.random.default_rng(0).standard_normal((4, D))
    values = [
        MemoryData(X).evaluate(W, np.zeros(4), Derivatives([each]), [each.row_vectors]).values[0]
        for each in (own, whole)
    ]
    assert values[0] == pytest.approx(0.5 * values[1], rel=1e-12)


def test_a_loss_that_cannot_be_compiled_is_evaluated_by_numpy():
    X = matrix("dense")
    problem = dn.Problem(X, np.random.default_rng(0).standard_normal(N), Interpreted(), lam=0.1)
    assert not MemoryData(X).compiled.takes(Derivatives([problem]).forms)
    result = dn.solve(problem, method="newton", tol=1e-9)
    assert result.converged


def every_pass(X, K):
    """What each kind of pass returns, as a list of arrays."""
    rng, data = np.random.default_rng(2), MemoryData(X)
    several = problems(losses.Logistic(), X, K, fit_intercept=True, weights=True, regularizer=regularizers.L1())
    W, b, weights = rng.standard_normal((K, D)), rng.standard_normal(K), rng.random((N, K))
    vectors = [problem.row_vectors for problem in several]
    evaluated = [data.evaluate(W, b, target(several), vectors) for target in (Derivatives, PrimalPoints)]
    return [
        *(value for found in evaluated for value in fields(found).values() if value is not None),
        *data.weighted_products(W, b, weights),
        data.weighted_gram(weights[:, 0]),
        data.times(W.T),
        data.transposed_times(weights),
        data.column_norms(weights[:, 0]),
        data.row_scores(np.square(W[0])),
    ]


@STORAGES
@DTYPES
@pytest.mark.parametrize("K", [1, 4])
def test_no_pass_has_other_bits_with_another_number_of_threads(storage, dtype, K):
    X = matrix(storage, dtype)
    alone = every_pass(X, K)
    for count in (2, 3, 8, 16):
        with threads(count):
            assert workers().helpers == count - 1
            together = every_pass(X, K)
        assert all(map(np.array_equal, alone, together)), count


@STORAGES
@DTYPES
@pytest.mark.parametrize("K", [1, 3])
def test_products(storage, dtype, K):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    data, A = MemoryData(X), dense(X)
    W, V, v = rng.standard_normal((D, K)), rng.standard_normal((K, D)), rng.standard_normal(K)
    R, weights = rng.standard_normal((N, K)), rng.random((N, K))
    for given in (R, R[:, 0]):
        np.testing.assert_allclose(data.transposed_times(given), A.T @ given, rtol=1e-11, atol=1e-11)
    for given in (W, W[:, 0], 0.0 * W):
        np.testing.assert_allclose(data.times(given), A @ given, rtol=1e-11, atol=1e-12)
    inside = weights * (A @ V.T + v)
    products, sums = data.weighted_products(V, v, weights)
    np.testing.assert_allclose(products, inside.T @ A, rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(sums, inside.sum(axis=0), rtol=1e-11)


@DTYPES
@pytest.mark.parametrize("d", [3, 8, 13, 16])
@pytest.mark.parametrize("K", [2, 3, 4, 7, 12, 13])
def test_dense_rows_with_any_number_of_columns(dtype, d, K):
    """Margins by groups of four columns and sums by pairs, the columns left, and many columns by BLAS."""
    rng = np.random.default_rng(6)
    A = rng.standard_normal((N - 2, d)).astype(dtype)
    data, W, R = MemoryData(A), rng.standard_normal((d, K)), rng.standard_normal((N - 2, K))
    R[: N // 2, 1] = 0.0  # rows may be skipped
    np.testing.assert_allclose(data.times(W), A.astype(float) @ W, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(data.transposed_times(R), A.astype(float).T @ R, rtol=1e-11, atol=1e-11)
    z = A.astype(float) @ W + 0.5
    products, sums = data.weighted_products(np.ascontiguousarray(W.T), np.full(K, 0.5), np.square(R))
    np.testing.assert_allclose(products, (np.square(R) * z).T @ A.astype(float), rtol=1e-11, atol=1e-10)
    np.testing.assert_allclose(sums, (np.square(R) * z).sum(axis=0), rtol=1e-11)


@DTYPES
@pytest.mark.parametrize("K", [5, 9, 16, 21])
def test_sparse_rows_with_any_number_of_columns(dtype, K, monkeypatch):
    """One to four vector registers at a time, and more than one group of them; as few parts as their sums require."""
    X, rng = matrix("csr", dtype), np.random.default_rng(6)
    data, A = MemoryData(X), dense(X)
    W, R = rng.standard_normal((D, K)), rng.standard_normal((N, K))
    np.testing.assert_allclose(data.times(W), A @ W, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(data.transposed_times(R), A.T @ R, rtol=1e-11, atol=1e-11)
    monkeypatch.setattr(compiled, "CACHED", 3 * D * 24)
    assert len(data.compiled._layout(24).parts) - 1 == 2 < len(data.parts)
    np.testing.assert_allclose(data.transposed_times(R), A.T @ R, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("in_order", [False, True])
def test_ranges_of_features_change_no_bit(in_order, monkeypatch):
    """Where threads outnumber the gradients of parts, they share the features of the same rows, if the columns are in order.

    Some rows have no entry.
    """
    X, rng = matrix("csr").tolil(), np.random.default_rng(0)
    X[:40:3] = 0.0
    X = sp.csr_array(X) if in_order else sp.csr_array(X)[:, rng.permutation(D)]
    monkeypatch.setattr(compiled, "CACHED", 2 * D * 24)
    monkeypatch.setattr(compiled, "APART_BYTES", 0)
    data, several = MemoryData(X), problems(losses.Logistic(), X, 10, **FORMS["intercept, weights, offset"])
    arguments = rng.standard_normal((10, D)), rng.standard_normal(10), PrimalPoints(several)
    vectors, found, R = [problem.row_vectors for problem in several], [], rng.standard_normal((N, 10))
    for count, ranges in ((1, 1), (2, 1), (3, 2), (16, 8)):
        with threads(count):
            assert len(data.compiled._layout(20).parts) - 1 == 2
            assert len(data.compiled._ranges(20, 2).bounds) - 1 == (ranges if in_order else 1)
            found.append(fields(data.evaluate(*arguments, vectors)) | {"transposed": data.transposed_times(R)})
    np.testing.assert_allclose(found[0]["transposed"], dense(X).T @ R, rtol=1e-11, atol=1e-11)
    for name, value in found[0].items():
        assert all(np.array_equal(other[name], value) for other in found), name


@pytest.mark.parametrize("name", ["exp", "log", "log1p"])
def test_elementary_functions_are_those_of_numpy(name):
    """To two units in the last place; exactly at zero, infinity, NaN and outside the domain."""
    sizes = 10.0 ** np.linspace(-320.0, 308.0, 20_001)
    middle = np.linspace(-800.0, 800.0, 20_001)
    special = np.array([0.0, -0.0, -1.0, 1.0, np.inf, -np.inf, np.nan, 709.7, 709.9, -745.1, -745.2, 5e-324, -0.5])
    x = np.concatenate([sizes, -sizes, middle, 1.0 + 1e-3 * middle, special])
    function = getattr(elementary, name)

    @numba.njit
    def each(x):
        found = np.empty(x.size)
        for i in range(x.size):
            found[i] = function(x[i])
        return found

    with np.errstate(all="ignore"):
        found, exact = each(x), getattr(np, name)(x)
        close = np.abs(found - exact) <= 2.0 * np.spacing(np.abs(exact))
    wrong = ~(close | (found == exact) | (np.isnan(found) & np.isnan(exact)))
    assert not wrong.any(), (x[wrong][:5], found[wrong][:5], exact[wrong][:5])


def test_rows_are_drawn_by_the_kernel_as_by_numpy(monkeypatch):
    rng = np.random.default_rng(5)
    chances = rng.exponential(size=500) * (rng.random(500) < 0.7)
    points = np.sort(rng.random(200)) * chances.sum()
    points[-1] = chances.sum() * (1.0 + 1e-15)  # beyond the last sum by rounding
    found = []
    for many in (1, 1000):
        monkeypatch.setattr(selections, "MANY_CHANCES", many)
        found.append(selections.places_of(points, chances))
    assert np.array_equal(*found)
    assert (chances[found[0][:-1]] > 0.0).all()


def test_sums_of_two_parts_have_no_cache_line_in_common():
    """Else threads that add to them for each row would wait for each other: transposed products in two threads took as long as
    in one."""
    buffer = []
    for numbers in (1, D, 100, 500):
        sums = compiled._take(buffer, 3, compiled._whole_lines(numbers))
        assert sums.shape[1] >= numbers
        places = [each.ctypes.data for each in sums]
        assert all(place % (8 * compiled.LINES) == 0 for place in places)
        compiled._give_back(buffer, sums)


@DTYPES
@pytest.mark.parametrize("K", [1, 2, 3, 10])
def test_gradients_after_all_margins_have_the_same_bits(dtype, K, monkeypatch):
    X, rng = matrix("csr", dtype), np.random.default_rng(4)
    several = problems(losses.Logistic(), X, K, **FORMS["intercept, weights, offset"])
    W, b, weights = rng.standard_normal((K, D)), rng.standard_normal(K), rng.random((N, K))
    found = []
    for fused in (True, False):
        monkeypatch.setattr(compiled, "APART_BYTES", 1 << 20 if fused else 0)
        for count in (1, 3):
            data = MemoryData(X)
            with threads(count):
                assert data.compiled._is_apart(K, K) != fused
                each = [
                    value
                    for target in (Derivatives(several), PrimalPoints(several))
                    for value in fields(data.evaluate(W, b, target, [own.row_vectors for own in several])).values()
                    if value is not None
                ]
                found.append([*each, *data.weighted_products(W, b, weights), data.transposed_times(weights)])
    for other in found[1:]:
        for mine, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(mine, same)


@pytest.mark.parametrize("K", [3, 5, 10])
def test_columns_of_padding_add_up_to_zero(K):
    """They are multiplied with the others: numbers that memory happens to contain would make passes slow, if subnormal."""
    data = MemoryData(matrix("csr"))
    data.transposed_times(np.random.default_rng(0).standard_normal((N, K)))
    layout, width = data.compiled._layout(K), data.compiled._padded(K)
    sums = data.compiled._sums(K, layout)[:, : D * width].reshape(-1, D, width)
    assert width > K
    assert sums[:, :, :K].any()
    assert not sums[:, :, K:].any()


def test_few_sums_of_gram_matrices_are_added_as_by_the_kernel(monkeypatch):
    X, weights = np.random.default_rng(0).standard_normal((20_000, 40)), np.linspace(-1.0, 3.0, 20_000)
    own, indices = MemoryData(X).compiled, np.arange(20_000)
    assert compiled.gram_parts(20_000, 40) > 1
    H, border = own.gram(weights, indices, single=False)
    monkeypatch.setattr(compiled, "FEW_GRAM", 0)
    again, border_again = own.gram(weights, indices, single=False)
    assert np.array_equal(H, again)
    assert np.array_equal(border, border_again)
    np.testing.assert_allclose(H, (X.T * weights) @ X, rtol=1e-9, atol=1e-9)
