"""Fits of Poisson, gamma and Tweedie losses: every method, storage and extreme data."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import memory, over_rows
from dualnewton.matrix.chunked import ChunkedData
from tables import name_of

LOSSES = [losses.Poisson(), losses.Gamma(), losses.Tweedie(1.4)]


def labels_of(loss, mean, rng):
    if isinstance(loss, losses.Poisson):
        return rng.poisson(mean).astype(float)
    y = np.array([rng.gamma(2.0, 0.5, k).sum() for k in rng.poisson(mean)])
    return y + 0.01 if isinstance(loss, losses.Gamma) else y


def posed(loss, n=150, d=5, *, seed=0, storage=np.asarray, dtype=np.float64, extras=True, **more):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    offset = rng.uniform(-0.5, 0.5, n)
    y = labels_of(loss, np.exp(X @ rng.uniform(-1.0, 1.0, d) * np.sqrt(5.0 / d) + offset + 1.0), rng)
    if extras:
        more |= {"offset": offset, "sample_weight": rng.integers(0, 4, n).astype(float), "fit_intercept": True}
    return dn.Problem(storage(X.astype(dtype)), y, loss, **{"lam": 0.05} | more)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_all_methods_find_one_model(loss, dtype, storage):
    problem = posed(loss, storage=storage, dtype=dtype)
    results = [dn.solve(problem, method=name, tol=1e-11, random_state=0) for name in ("auto", "sdna", "newton", "ihs")]
    assert all(result.converged for result in results)
    for result in results[1:]:
        np.testing.assert_allclose(result.w, results[0].w, atol=1e-5)
        assert result.intercept == pytest.approx(results[0].intercept, abs=1e-5)


@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_compiled_rounds_of_single_examples_converge(loss, method):
    problem = posed(loss, n=3000, d=40, storage=sp.csr_array)
    result = dn.solve(problem, method=method, tau=1, tol=1e-8, random_state=0)
    assert result.plan.compiled
    assert result.converged


@pytest.mark.parametrize(
    "regularizer",
    [regularizers.L1(), regularizers.ElasticNet(0.2), regularizers.NonNegative(), regularizers.Box(-0.2, 0.3)],
    ids=name_of,
)
@pytest.mark.parametrize("n", [150, 4000], ids=["one block", "passes"])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_penalties_with_kinks_and_bounds(loss, n, regularizer):
    problem = posed(
        loss, n=n, d=30, regularizer=regularizer, lam=0.01, storage=sp.csr_array if n > 1000 else np.asarray
    )
    result = dn.solve(problem, tol=1e-9, random_state=0)
    assert result.converged
    form = regularizer.form
    assert ((result.w >= form.lower) & (result.w <= form.upper)).all()


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_several_models_share_passes_and_a_run_is_resumed_with_its_bits(loss, tmp_path):
    first = posed(loss, n=500, d=8)
    problems = [dn.Problem(first.data, first.y, loss, lam=lam, fit_intercept=True) for lam in (2.0, 1.0, 0.5)]
    together = dn.solve_many(problems, method="ihs", tol=1e-9, random_state=0)
    assert all(result.converged for result in together)
    settings = {"method": "sdna", "tau": 100, "tol": 1e-9, "random_state": 0}
    alone = dn.solve(problems[2], **settings)
    dn.solve(problems[2], **settings, checkpoint=tmp_path / "run", max_epochs=2)
    resumed = dn.solve(problems[2], **settings, checkpoint=tmp_path / "run")
    assert np.array_equal(resumed.w, alone.w)
    np.testing.assert_allclose(alone.w, together[2].w, atol=1e-4)


# Extreme data ------------------------------------------------------------------------------------------------------------


def extremes(loss, n=120, d=4):
    """Yield the name, X, y and the options of problems at which a careless method overflows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = labels_of(loss, np.exp(0.5 * X[:, 0]), rng)
    if loss.valid_labels(0.0):
        yield "no counts at all", X, np.zeros(n), {}
    yield "one huge count", X, np.where(np.arange(n) == 3, 1e8, y), {}
    groups = (np.arange(n)[:, None] % 2 == [0, 1]).astype(float)
    yield "separated groups", groups, np.where(np.arange(n) % 2, y, 0.0 if loss.valid_labels(0.0) else 1e-9), {}
    yield "tiny and huge exposures", X, y, {"sample_weight": 10.0 ** rng.uniform(-12.0, 12.0, n)}
    yield "offsets of 50", X, y, {"offset": np.full(n, 50.0)}
    yield "offsets of -50", X, y, {"offset": np.full(n, -50.0)}
    yield "offsets of both", X, y, {"offset": rng.choice([-50.0, 50.0], n)}
    yield "one huge row", np.where(np.arange(n)[:, None] == 5, 1e4, 1.0) * X, y, {}


EXTREMES = [(loss, *case) for loss in LOSSES for case in extremes(loss)]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.ElasticNet(0.5)], ids=name_of)
@pytest.mark.parametrize(("loss", "name", "X", "y", "more"), EXTREMES, ids=[f"{c[0]!r} {c[1]}" for c in EXTREMES])
def test_extreme_data_end_with_a_true_certificate(loss, name, X, y, more, penalty, fit_intercept):
    problem = dn.Problem(X, y, loss, lam=1e-2, regularizer=penalty, fit_intercept=fit_intercept, **more)
    result = dn.solve(problem, tol=1e-7, random_state=0)
    # Without an intercept, losses of e^50 against λ = 0.01 leave rounding errors that no dual point removes.
    beyond_rounding = not fit_intercept and "offsets" in name
    assert result.certificate.relative_gap <= (1e-4 if beyond_rounding else 1e-7)
    assert result.converged or result.status is dn.Status.NO_PROGRESS or beyond_rounding
    # Weak duality against other models: no primal value lies below the dual one.
    rng = np.random.default_rng(1)
    for w in (result.w, result.w + 0.1 * rng.standard_normal(problem.d), np.zeros(problem.d)):
        P = problem.primal(w, problem.best_intercept(w))
        assert result.certificate.dual <= P + 1e-9 * abs(P) + 1e-300


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_a_model_far_from_the_optimum_is_certified_by_a_shortened_dual_point(loss):
    problem = posed(loss, extras=False, fit_intercept=True)
    best = dn.solve(problem, tol=1e-10)
    for far in (1.0, 5.0, 20.0):
        certificate = problem.certify(best.w + far, best.intercept)
        saturated = -loss.conjugates(np.zeros(problem.n), problem.y, None) / problem.n
        assert saturated - 1e-9 <= certificate.dual <= best.certificate.primal


PENALTIES = [regularizers.L2(), regularizers.ElasticNet(0.3)]


@pytest.mark.parametrize("penalty", PENALTIES, ids=name_of)
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_data_in_pieces_give_the_model_of_data_in_memory(loss, penalty):
    whole = posed(loss, regularizer=penalty)
    pieces = posed(loss, regularizer=penalty, storage=lambda X: ChunkedData([X[:40], X[40:41], X[41:]]))
    one, other = (dn.solve(problem, tol=1e-11, random_state=0) for problem in (whole, pieces))
    assert other.converged
    np.testing.assert_allclose(other.w, one.w, atol=1e-5)
    assert other.intercept == pytest.approx(one.intercept, abs=1e-5)
    # Each certificate holds for the other's objective: the pieces are the same rows.
    assert whole.certify(other.w, other.intercept).relative_gap <= 1e-10


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_threads_change_no_bit(loss, monkeypatch):
    monkeypatch.setattr(memory, "COMPILED_FROM", 1)
    monkeypatch.setattr(memory, "DENSE_PART_ENTRIES", 30)
    monkeypatch.setattr(over_rows, "PART_ROWS", 7)
    problem = posed(loss)
    alone, several = (
        dn.solve(problem, method="newton", tol=1e-9, random_state=0, n_threads=threads, callback=lambda _: False)
        for threads in (1, 3)
    )
    assert alone.converged
    assert several.w.tobytes() == alone.w.tobytes()
    assert several.alpha.tobytes() == alone.alpha.tobytes()
    assert several.certificate == alone.certificate
