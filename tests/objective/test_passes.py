"""A primal point is certified in one pass over the data, and in two where its intercept must be searched."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.losses.base import BALANCING
from dualnewton.matrix import Capabilities, ChunkedData, Data, as_data, memory
from dualnewton.matrix.workers import threads
from dualnewton.objective import bounds
from dualnewton.objective.certificates import certify_duals, certify_models
from dualnewton.planning.eligible import is_joint
from tables import LOSSES, NON_SMOOTH, SEVERAL_COLUMNS, labels_for, make_problem, name_of
from tuned import GENERAL

N = 60
FORMS = [{}, {"weights": True, "offset": True}, {"fit_intercept": True, "weights": True, "offset": True}]
KINDS = {"memory": as_data, "chunked": lambda X: ChunkedData([X[:7], X[7:40], X[40:]])}
PENALTIES = [regularizers.L2(), regularizers.ElasticNet(0.2), regularizers.L1()]


def counted(name):
    def method(self, *arguments, **options):
        self.passes[name] += 1
        return getattr(self.inner, name)(*arguments, **options)

    return method


PRODUCTS = Data.__abstractmethods__ - {"fingerprint", "same_as", "using", "with_constant"}


class CountingData(type("CountedProducts", (Data,), {name: counted(name) for name in PRODUCTS})):
    """Other data, with the number of calls of each product: every one of them reads X."""

    capabilities = Capabilities(random_rows=False, whole=False, reason="only passes are counted")
    fingerprint = same_as = using = with_constant = None

    def __init__(self, inner):
        self.inner, self.profile, self.passes = inner, inner.profile, Counter()


def over(kind, problem):
    """The problem over counting data."""
    return replace(problem, X=CountingData(KINDS[kind](problem.X)))


def optimum(problem, tol=1e-7):
    if is_joint(problem) and not problem.regularizer.form.is_quadratic:
        pytest.skip("each output is a problem of its own")
    found = dn.solve(problem, tol=tol, tuning=GENERAL)  # the gap of a direct solution may be that of rounding
    return found.w, found.intercept


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [*LOSSES, *SEVERAL_COLUMNS], ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("regularizer", PENALTIES, ids=name_of)
def test_a_fitted_model_is_certified_in_one_pass(kind, loss, form, regularizer):
    problem = make_problem(loss, n=N, lam=0.02, regularizer=regularizer, **form)
    w, b = optimum(problem)
    if not (loss.balances_by_direction and regularizer.strongly_convex):
        b = problem.best_intercept(w)  # at the solver's, a little off, a second pass may be needed
    counting = over(kind, problem)
    pair = counting.certified_pair(w, b)
    assert counting.data.passes == {"evaluate": 1}
    assert pair.certificate.relative_gap <= 1e-4
    assert pair.certificate.primal == pytest.approx(problem.primal(w, b), rel=1e-13)
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-12)
    together = certify_models([counting, counting], [w, w], [b, b])
    assert counting.data.passes == {"evaluate": 2}
    for each in together:
        assert each.certificate.primal == pytest.approx(pair.certificate.primal, rel=1e-13)
        assert each.certificate.dual == pytest.approx(pair.certificate.dual, rel=1e-12)


@pytest.mark.parametrize("loss", [*LOSSES, *SEVERAL_COLUMNS], ids=name_of)
@pytest.mark.parametrize("regularizer", PENALTIES, ids=name_of)
def test_an_intercept_far_from_its_best_value_is_searched_in_a_second_pass(loss, regularizer):
    """The dual point is then as good as with the best intercept, whose search takes two passes as well."""
    problem = make_problem(loss, n=N, lam=0.02, regularizer=regularizer, fit_intercept=True, weights=True)
    w, b = optimum(problem)
    off = b + (1.5 if loss.columns == 1 else np.linspace(-1.5, 1.5, loss.columns))
    counting = over("memory", problem)
    pair = counting.certified_pair(w, off)
    assert counting.data.passes == {"evaluate": 1, "transposed_times": 1}
    assert pair.certificate.primal == pytest.approx(problem.primal(w, off), rel=1e-13)
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-12)
    counting.data.passes.clear()
    best = counting.certified_pair(w)
    assert counting.data.passes == {"times": 1, "transposed_times": 1}
    assert pair.certificate.dual == pytest.approx(best.certificate.dual, rel=1e-9)


@pytest.mark.parametrize("loss", [*LOSSES, *SEVERAL_COLUMNS], ids=name_of)
@pytest.mark.parametrize("regularizer", PENALTIES, ids=name_of)
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_without_a_search_the_gap_is_that_of_the_best_intercept(loss, regularizer, shift):
    """Whether the intercept is searched or the dual point balanced: the gap of a point with b a little off is as small."""
    problem = make_problem(loss, n=500, lam=1e-3, regularizer=regularizer, fit_intercept=True, weights=True)
    problem = replace(problem, X=problem.X + shift)
    w = optimum(problem, 1e-5)[0]
    best = problem.certified_pair(w)
    for off in (1e-7, 1e-5, 1e-3, 1e-1):
        pair = problem.certified_pair(w, best.intercept + off * np.linspace(1.0, 2.0, loss.columns).squeeze())
        primal, rounding = pair.certificate.primal, 1e-14 * pair.certificate.primal
        assert primal - pair.certificate.dual <= 1.1 * (primal - best.certificate.dual) + rounding


@pytest.mark.parametrize("loss", [*LOSSES, *SEVERAL_COLUMNS], ids=name_of)
@pytest.mark.parametrize("form", FORMS[:2], ids=str)
def test_far_from_the_optimum_the_best_multiple_takes_no_further_pass(loss, form):
    problem = make_problem(loss, n=N, lam=1e-4, **form)
    w = 30.0 * np.ones((loss.columns, 4) if loss.columns > 1 else 4) * np.linspace(-1.0, 1.0, 4)
    counting = over("memory", problem)
    pair = counting.certified_pair(w)
    assert counting.data.passes == {"evaluate": 1}
    unscaled = certify_models([counting], [w], [problem.no_intercept()])[0]
    assert pair.certificate.dual >= unscaled.certificate.dual
    assert pair.certificate.dual >= problem.dual(problem.no_dual()) - 1e-3
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_dual_point_and_a_given_alpha_take_few_passes(form):
    problem = make_problem(losses.Logistic(), n=N, lam=0.02, **form)
    w, b = optimum(problem)
    alpha, counting = problem.alpha_of(w), over("memory", problem)
    counting.certified_pair(w, b, alpha)
    assert counting.data.passes == {"evaluate": 1, "transposed_times": 1}
    counting.data.passes.clear()
    certify_duals([counting], [alpha])
    assert counting.data.passes == {"times": 1, "transposed_times": 2 if problem.fit_intercept else 1}


@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH], ids=name_of)
def test_the_balancing_direction_stays_in_the_domain_of_the_conjugate(loss):
    rng = np.random.default_rng(0)
    y = labels_for(loss, 200, rng)
    z = 2.0 * rng.standard_normal(200)
    alpha = -loss.derivative(z, y)
    d = loss.balancing_direction(alpha, z, y)
    assert np.all(d >= 0.0)
    for t in (-BALANCING, -0.3 * BALANCING, 0.3 * BALANCING, BALANCING):
        assert np.isfinite(loss.conjugate(-loss.nearest_dual(alpha - t * d, y), y)).all()
        np.testing.assert_allclose(loss.nearest_dual(alpha - t * d, y), alpha - t * d, rtol=0.0, atol=1e-15)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Softmax(3)], ids=name_of)
@pytest.mark.parametrize("sparse", [False, True])
def test_threads_do_not_change_a_bit_of_a_certificate(loss, sparse, monkeypatch):
    for name in ("PART_ENTRIES", "DENSE_PART_ENTRIES", "BLOCK_MARGINS", "COMPILED_FROM"):
        monkeypatch.setattr(memory, name, 64)
    problem = make_problem(loss, n=300, sparse=sparse, fit_intercept=True, weights=True, offset=True)
    w, b = optimum(problem)
    found = []
    for count in (1, 2, 3, 8, 16):
        with threads(count):
            found.append(replace(problem, X=as_data(problem.X)).certified_pair(w, b))
    assert len(problem.data.parts) > 3
    for pair in found[1:]:
        assert pair.certificate == found[0].certificate
        assert np.array_equal(pair.alpha, found[0].alpha)


@pytest.mark.parametrize("lam", [1e-2, 1e-6, 1e-12])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_dual_point_of_the_lasso_is_feasible_however_it_is_summed(lam, form):
    """For small λ the rounding errors of ᾱ are divided by λ: α keeps its distance from the boundary of the domain of g*."""
    for seed in range(5):
        problem = make_problem(losses.Squared(), n=200, d=8, seed=seed, lam=lam, regularizer=regularizers.L1(), **form)
        w = np.random.default_rng(seed).standard_normal(8)
        counting = over("memory", problem)
        pair = counting.certified_pair(w, problem.best_intercept(w))
        assert counting.data.passes == {"evaluate": 1}
        order = np.random.default_rng(1).permutation(200)
        vectors = [None if v is None else v[order] for v in (problem.sample_weight, problem.offset)]
        other = replace(problem, X=problem.X[order], y=problem.y[order], sample_weight=vectors[0], offset=vectors[1])
        for found in (problem.dual(pair.alpha), other.dual(pair.alpha[order])):
            assert found == pytest.approx(pair.certificate.dual, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(("lam", "measured"), [(1e-2, False), (1e-12, True)])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_in_a_run_rounding_errors_of_a_lasso_are_measured_where_their_bound_is_too_large(lam, measured, form):
    """On small data the pass does not sum ᾱ twice; the dual point is feasible however it is summed."""
    for seed in range(3):
        problem = make_problem(losses.Squared(), n=200, d=8, seed=seed, lam=lam, regularizer=regularizers.L1(), **form)
        w, order = np.random.default_rng(seed).standard_normal(8), np.random.default_rng(1).permutation(200)
        counting, b = over("memory", problem), problem.best_intercept(w)
        (pair,) = certify_models([counting], [w], [b], tol=1e-4)
        assert counting.data.passes["evaluate"] == 1
        if not problem.fit_intercept:
            assert counting.data.passes["transposed_times"] == measured
        assert pair.certificate.dual == pytest.approx(
            problem.certified_pair(w, b).certificate.dual, rel=1e-6, abs=1e-15
        )
        vectors = [None if v is None else v[order] for v in (problem.sample_weight, problem.offset)]
        other = replace(problem, X=problem.X[order], y=problem.y[order], sample_weight=vectors[0], offset=vectors[1])
        assert other.dual(pair.alpha[order]) == pytest.approx(pair.certificate.dual, rel=1e-9, abs=1e-15)


def test_small_residuals_of_least_squares_are_balanced_without_a_second_pass(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 200))
    y = rng.standard_normal(30) + 5.0
    problem = dn.Problem(X, y, losses.Squared(), lam=1e-6, fit_intercept=True)
    H = np.block([[X.T @ X + 3e-5 * np.eye(200), X.sum(axis=0)[:, None]], [X.sum(axis=0), np.array([30.0])]])
    x = np.linalg.solve(H, np.append(X.T @ y, y.sum()))
    assert np.abs(problem.margins(x[:-1], x[-1]) - y).max() < 1e-5
    monkeypatch.setattr(bounds, "dual_sums", None)  # the second pass
    ((primal, bound, _),) = bounds.primal_bounds([problem], [x[:-1]], [x[-1]])
    assert primal - bound.value <= 1e-6 * primal


def test_an_intercept_is_not_searched_where_half_of_the_tolerance_is_met_without_it(monkeypatch):
    """The dual bound is then that of the balanced point: a bound all the same, and less sharp."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 4)) + 1.0, rng.poisson(2.0, 80).astype(float)
    problem = dn.Problem(X, y, losses.Poisson(), lam=0.1, fit_intercept=True)
    best = dn.solve(problem, tol=1e-12)
    w, b = best.w, best.intercept + 3e-3
    ((primal, sharp, _),) = bounds.primal_bounds([problem], [w], [b])
    search, searches = dn.Problem.best_intercept_at, []
    monkeypatch.setattr(dn.Problem, "best_intercept_at", lambda *args: searches.append(1) or search(*args))
    for (tol, expected), name in product(((1e-9, 1), (1e-3, 0)), ("tol", "enough")):
        searches.clear()
        (pair,) = certify_models([problem], [w], [b], **{name: tol})
        assert len(searches) == expected
        assert pair.certificate.primal == primal
        assert pair.certificate.dual <= sharp.value
        assert (pair.certificate.rounding is None) is (name == "enough")
        assert pair.certificate.dual - (pair.certificate.rounding or 0.0) <= best.certificate.primal
        assert pair.certificate.gap <= max(0.5 * tol * primal, primal - sharp.value)
