"""Data on a device: the rest of the library handles their row arrays by NumPy's dispatch alone.

The arrays of :mod:`fake_device` behave as CuPy's do: they refuse to become NumPy arrays, and to be mixed with them.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.gpu import checks

import dualnewton as dn
from dualnewton import losses, regularizers, row_arrays
from dualnewton.losses import nonsmooth
from dualnewton.matrix import MemoryData, RowVectors, count_active, device
from dualnewton.matrix.device import DeviceData
from dualnewton.objective.targets import Derivatives, PrimalPoints
from dualnewton.row_arrays import on_host
from fake_device import ROW_FUNCTIONS, FakeArray, on_device, row_function

N, D, TOL = 300, 5, 1e-8
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)) * [10.0, 1.0, 1.0, 1.0, 0.1]
MARGINS = X @ RNG.standard_normal(D) + RNG.logistic(size=N)
SIGNS, TARGETS = np.where(MARGINS > 0.3, 1.0, -1.0), MARGINS + 2.0
CLASSES = np.argmax(X @ RNG.standard_normal((D, 3)) + RNG.gumbel(size=(N, 3)), axis=1)
C = RNG.uniform(0.2, 2.0, N)
LOSSES = {
    "logistic": (losses.Logistic(), SIGNS),
    "squared hinge": (losses.SquaredHinge(), SIGNS),
    "squared": (losses.Squared(), TARGETS),
    "huber": (losses.Huber(), TARGETS),
    "softmax": (losses.Softmax(3), CLASSES),
    "hinge": (losses.Hinge(), SIGNS),
    "quantile": (losses.Quantile(0.3), TARGETS),
}
PENALTIES = {
    "L2": regularizers.L2(),
    "L1": regularizers.L1(),
    "elastic net": regularizers.ElasticNet(0.5),
    "nonnegative": regularizers.NonNegative(),
}


def posed(data, loss, penalty="L2", *, full=True, lam=0.01):
    loss, y = LOSSES[loss]
    offset = 0.3 * np.random.default_rng(1).standard_normal((N, loss.columns))
    more = {"sample_weight": C, "offset": offset if loss.columns > 1 else offset[:, 0], "fit_intercept": True}
    return dn.Problem(data, y, loss, regularizer=PENALTIES[penalty], lam=lam, **(more if full else {}))


CASES = [
    *((loss, "L2", method) for loss, method in itertools.product(LOSSES, ("newton", "ihs"))),
    *((loss, penalty, "newton") for loss, penalty in itertools.product(LOSSES, PENALTIES) if penalty != "L2"),
]


@pytest.mark.parametrize("full", [False, True], ids=["plain", "weights, offsets and intercept"])
@pytest.mark.parametrize(("loss", "penalty", "method"), CASES)
def test_a_fit_on_a_device_is_that_in_memory(loss, penalty, method, full):
    if loss == "quantile" and penalty == "L1":
        pytest.skip("a linear program, for which smoothed losses take many stages")
    there = posed(on_device(X), loss, penalty, full=full)
    here = posed(X, loss, penalty, full=full)
    found = dn.solve(there, method=method, tol=TOL, random_state=0)
    assert found.converged, found
    assert type(there.y) is type(found.alpha) is FakeArray
    assert type(found.w) is np.ndarray
    # The verifier in memory confirms the certificate.
    assert here.certify(found.w, found.intercept, found.alpha.get()).relative_gap <= 2.0 * TOL
    again = dn.solve(there, method=method, tol=TOL, random_state=0)
    assert np.array_equal(found.w, again.w)


@pytest.mark.parametrize("loss", LOSSES)
def test_auto_leaves_out_what_needs_the_dual_variables_in_memory(loss):
    plan = dn.plan(posed(on_device(X), loss))
    assert plan.method in ("newton", "ihs")
    for method in ("sdna", "interior"):
        with pytest.raises(dn.errors.DualnewtonError, match=r"on a device|method must be|piecewise"):
            dn.solve(posed(on_device(X), loss), method=method)


def test_models_share_passes_and_a_run_resumes_with_the_same_bits(tmp_path: Path):
    first = posed(on_device(X), "logistic", lam=0.1)
    problems = [first, replace(first, lam=0.01)]
    whole = dn.solve_many(problems, method="newton", tol=1e-10, random_state=0)
    place = dn.Checkpoint(tmp_path / "run", seconds=0.0, spacing=0.0)
    stopped = dn.solve_many(problems, method="newton", tol=1e-10, random_state=0, max_epochs=2, checkpoint=place)
    assert not all(each.converged for each in stopped)
    resumed = dn.solve_many(problems, method="newton", tol=1e-10, random_state=0, checkpoint=place)
    for one, other in zip(whole, resumed, strict=True):
        assert np.array_equal(one.w, other.w)
        assert np.array_equal(one.alpha.get(), other.alpha.get())


def test_some_features_are_data_of_their_own():
    features = np.array([4, 1])
    some = on_device(X).with_features(features)
    assert some.shape == (N, 2)
    np.testing.assert_array_equal(some.matrix.get(), X[:, features])


def test_a_time_limit_and_a_callback_end_a_fit_on_a_device():
    problem = posed(on_device(X), "logistic")
    assert dn.solve(problem, method="newton", tol=1e-12, time_limit=0.0).status is dn.Status.TIME_LIMIT
    seen = []
    found = dn.solve(problem, method="newton", tol=1e-12, callback=lambda progress: seen.append(progress) or True)
    assert found.status is dn.Status.STOPPED_BY_CALLBACK
    assert seen


@pytest.mark.parametrize("few", [0, 200], ids=["factor on the device", "factor on the host"])
def test_gram_matrices_may_be_factorised_on_the_device(few, monkeypatch):
    monkeypatch.setattr(device, "FEW", few)
    for loss in ("logistic", "squared hinge", "squared"):
        found = dn.solve(posed(on_device(X), loss), method="newton", tol=TOL)
        assert found.converged


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("chunk", [1 << 27, 200], ids=["one chunk", "chunks"])
def test_operations_on_a_device_are_those_in_memory(loss, chunk, monkeypatch):
    monkeypatch.setattr(device, "CHUNK", chunk)
    A = X.astype(np.float32)
    there, here, rng = on_device(A), MemoryData(A), np.random.default_rng(2)
    problem = posed(A, loss, "L1")
    K = problem.columns
    W, b, rows = rng.standard_normal((K, D)), rng.standard_normal(K), problem.row_vectors
    moved = RowVectors(*(None if each is None else there.placed(each) for each in rows))
    for target in (Derivatives([problem]), PrimalPoints([problem])):
        found, expected = there.evaluate(W, b, target, [moved]), here.evaluate(W, b, target, [rows])
        for part in ("values", "gradients", "slopes", "margins", "kept"):
            mine, theirs = getattr(found, part), getattr(expected, part)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                np.testing.assert_allclose(on_host(mine), theirs, rtol=1e-9, atol=1e-9)
    some, weights = np.arange(0, N, 3), rng.standard_normal(N)
    for own, own_rows in ((weights, None), (weights[some], some)):
        expected = here.weighted_gram(own, own_rows, intercept=True)
        np.testing.assert_allclose(
            there.weighted_gram(there.placed(own), own_rows, intercept=True), expected, rtol=1e-9
        )
        for origin in (np.zeros(D), np.ones(D)):
            given = own, rng.standard_normal((len(own), 2)), origin, own_rows
            mine = there.moments(*map(there.placed, given[:2]), *given[2:])
            for one, other in zip(mine, here.moments(*given), strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    pairs = list(rng.random((6, N)))
    for intercept in (False, True):
        expected = here.coupled_gram(pairs, 4, intercept=intercept)
        mine = there.coupled_gram(list(map(there.placed, pairs)), 4, intercept=intercept)
        np.testing.assert_allclose(mine, expected, rtol=1e-9, atol=1e-9)
    assert np.array_equal(there.nonzeros(), here.nonzeros())
    np.testing.assert_allclose(there.row_gram(some, np.ones(D)), here.row_gram(some, np.ones(D)), rtol=1e-9)
    np.testing.assert_allclose(there.absolute_sums(there.placed(weights)), here.absolute_sums(weights), rtol=1e-9)
    np.testing.assert_allclose(there.row_scores(np.ones(D)).get(), here.row_scores(np.ones(D)), rtol=1e-9)
    assert np.array_equal(there.rows(some), here.rows(some))
    assert np.array_equal(there.columns(np.array([1, 3])), here.columns(np.array([1, 3])))
    assert there.fingerprint() == here.fingerprint()


def test_rows_are_drawn_in_proportion_to_their_weights():
    weights = RNG.uniform(0.0, 1.0, N) * (RNG.random(N) < 0.7)
    weights[7] = 40.0
    data, total, draws = on_device(X), np.zeros(N), 300
    for seed in range(draws):
        rows, scaled = data.draw(np.random.default_rng(seed), data.placed(weights), 60)
        assert np.isclose(float(scaled.sum()), weights.sum())
        total[rows.get()] += scaled.get()
    assert not total[weights == 0.0].any()
    stratum = weights.sum() / 60
    assert np.all(np.abs(total / draws - weights) <= 6.0 * np.sqrt(stratum * weights / draws) + 1e-12)
    rows, scaled = data.draw(np.random.default_rng(0), data.placed(weights), N)
    assert rows.size == count_active(weights)
    assert np.array_equal(scaled.get(), weights[weights > 0.0])


def test_an_array_of_the_device_never_becomes_a_numpy_array_by_itself():
    array = FakeArray(np.ones(3))
    for attempt in (lambda: np.asarray(array), lambda: array + np.ones(3), lambda: np.stack([array, np.ones(3)])):
        with pytest.raises(TypeError):
            attempt()
    assert type(np.exp(array) + np.float64(1.0)) is type(np.zeros(2, like=array)) is FakeArray
    assert float(array @ array) == 3.0


def with_row_functions(monkeypatch):
    """Let the device have compiled functions of rows, as a GPU has; return the names of those that are called."""
    called = set()

    def functions(name, loss):
        called.add(name)
        return row_function(name, loss)

    monkeypatch.setitem(row_arrays._FUNCTIONS, FakeArray, functions)
    return called


def test_sums_over_rows_are_by_the_compiled_functions_of_the_device(monkeypatch):
    called = with_row_functions(monkeypatch)
    monkeypatch.setattr(checks, "cuda", on_device)
    monkeypatch.setattr(nonsmooth, "FEW_KINKS", 64)  # so that an intercept of a kinked loss is searched
    checks.check_row_functions()
    assert called >= ROW_FUNCTIONS - {"active_of", "label_weights_of"}


@pytest.mark.parametrize(("loss", "full"), [("logistic", False), ("hinge", True)])
def test_a_fit_by_compiled_functions_of_rows_is_that_in_memory(loss, full, monkeypatch):
    called = with_row_functions(monkeypatch)
    monkeypatch.setattr(DeviceData, "many", 1)  # vectors over features are on the device, too
    here, there = (dn.solve(posed(of(X), loss, full=full), tol=TOL, random_state=0) for of in (MemoryData, on_device))
    assert there.converged
    assert abs(there.certificate.primal - here.certificate.primal) <= 2.0 * TOL * here.certificate.primal
    assert called >= {"inner_products_of", "dual_terms_of", "signed_sums_of" if full else "label_weights_of"}
    assert "penalised_of" in called
    # Rows are counted where their curvature may be zero.
    assert ("active_of" in called) == (loss == "hinge")
