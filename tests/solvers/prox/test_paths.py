"""Walks along falling penalties: each model meets the optimality conditions, however the features were gathered."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import as_data
from dualnewton.objective.alike import like
from dualnewton.objective.moments import Moments, Residuals, Verifier, origin_of
from dualnewton.objective.outputs import certify_path
from dualnewton.planning.working_sets import SetSizes
from dualnewton.solvers.prox import together
from dualnewton.solvers.prox.paths import FromColumns, FromMoments, Groups
from dualnewton.solvers.prox.subproblem import Penalty, rounds_of
from tuned import tuned

STORAGES = {
    "dense": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
}

REGULARIZERS = {
    "lasso": regularizers.L1(),
    "elastic net": regularizers.ElasticNet(2.0),
    "nonnegative": regularizers.ElasticNet(2.0, positive=True),
}


def problem_of(storage, regularizer, n=60, d=90, weighted=True, fit_intercept=True):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, d)) + 1.0) * (rng.random((n, d)) < 0.5)
    X = X.astype(np.float32).astype(float)
    y = X @ np.r_[np.linspace(2.0, -2.0, 8), np.zeros(d - 8)] + 0.3 * rng.standard_normal(n) + 3.0
    c = rng.integers(0, 3, n).astype(float) if weighted else None
    c = None if c is None else c / c.mean()
    more = {"regularizer": REGULARIZERS[regularizer], "sample_weight": c, "fit_intercept": fit_intercept}
    return dn.Problem(STORAGES[storage](X), y, losses.Squared(), lam=1.0, **more)


def walk_of(problem, way, compiled):
    c, free = problem.c, problem.fit_intercept
    if way == "moments":
        moments = Moments.of(problem.data, problem.y[:, None], c, origin_of(problem.data, c, shift=free))
        return FromMoments.of([moments], problem.y, c[None], fit_intercept=free, compiled=compiled)
    rows = np.flatnonzero(c > 0.0)
    groups = Groups([rows], [c[rows]], np.ones((1, 1)))
    sizes = SetSizes.of_paths(1, tuned(least_set=4, thin_share=0.6))
    return FromColumns(problem.data, problem.y, groups, fit_intercept=free, compiled=compiled, sizes=sizes)


@pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "kernels"])
@pytest.mark.parametrize("way", ["moments", "columns"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("storage", STORAGES)
def test_each_model_meets_the_optimality_conditions(storage, regularizer, fit_intercept, way, compiled):
    problem = problem_of(storage, regularizer, fit_intercept=fit_intercept)
    base = Penalty.of(problem)
    strengths = np.geomspace(3.0, 0.01, 12)
    penalties = [base.times(t) for t in strengths]
    goals = [1e-8 * float(each.threshold.max()) for each in penalties]
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X.astype(float)
    done, used = 0, []
    for stretch in walk_of(problem, way, compiled).along(penalties, goals):
        for W, b in zip(stretch.W, stretch.b, strict=True):
            w, penalty, goal = W[0], penalties[done], goals[done]
            missed = problem.c * (X @ w + b[0] - problem.y)
            own = replace(problem, lam=float(strengths[done]))
            small = compiled and own.certify(w, float(b[0])).relative_gap <= 1e-8
            assert small or penalty.violations(w, X.T @ missed).max() <= goal + 1e-9
            assert not fit_intercept or abs(missed.sum()) <= 1e-9
            assert fit_intercept or b[0] == 0.0
            used.append(np.count_nonzero(w))
            done += 1
    assert done == len(strengths)
    assert used[-1] > used[0]


@pytest.mark.parametrize("regularizer", ["elastic net", "nonnegative"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_models_that_use_more_features_than_rows(regularizer, fit_intercept):
    """Systems of the rows lead to the minima, up to a relative gap of 1e-13; a walk restored among them has the same bits."""
    problem = problem_of("float32", regularizer, n=40, d=300, fit_intercept=fit_intercept)
    base = Penalty.of(problem)
    base = replace(base, ridge=400.0 * base.ridge)
    penalties = [base.times(t) for t in np.geomspace(0.3, 1e-3, 30)]
    goals = [1e-13 * float(each.threshold.max()) for each in penalties]
    walk, done, X = walk_of(problem, "columns", False), 0, problem.X.astype(float)
    walk.begin()
    while done < len(penalties):
        state = walk.state()
        found = walk.advance(penalties[done:], goals[done:])
        if walk.systems is not None and state.sums:
            again = walk_of(problem, "columns", False)
            again.restore(state)
            np.testing.assert_array_equal(again.advance(penalties[done:], goals[done:]), found)
        for V, b in zip(found, walk.intercepts(found), strict=True):
            w = np.zeros(problem.d)
            w[walk.inside] = V[0]
            missed = problem.c * (X @ w + b[0] - problem.y)
            violation = penalties[done].violations(w, X.T @ missed).max()
            assert violation <= 1e-5 * float(penalties[done].threshold.max())
            done += 1
    assert np.count_nonzero(walk.V) > np.count_nonzero(problem.c)
    assert walk.systems is not None
    walk.begin()  # the next path begins with the matrix of the features again
    assert walk.systems is None


def test_groups_of_rows_give_the_models_of_their_own_rows():
    """Folds as groups that models share, and folds that overlap in many ways, find what each finds alone."""
    problem = problem_of("dense", "lasso", weighted=False)
    n, rng = problem.n, np.random.default_rng(1)
    disjoint = np.repeat(np.arange(3), n // 3)
    kinds = np.array([[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    overlapping = rng.integers(0, 2, (3, n)).astype(float) + np.eye(3, n)
    patterns, group = np.unique(overlapping, axis=1, return_inverse=True)
    base = Penalty.of(problem)
    penalties, goals = [base.times(t) for t in (1.0, 0.3, 0.1)], [1e-10] * 3
    for own, which in ((kinds, disjoint), (patterns, group.ravel())):
        groups = Groups.of(np.ones(n), own, which)
        sizes = SetSizes.of_paths(3, tuned())
        walk = FromColumns(problem.data, problem.y, groups, fit_intercept=True, compiled=False, sizes=sizes)
        W = np.concatenate([stretch.W for stretch in walk.along(penalties, goals)])
        for f, counts in enumerate(own[:, which]):
            alone = dn.Problem(problem.X, problem.y, losses.Squared(), regularizer=regularizers.L1(), lam=0.1,
                               sample_weight=counts / counts.mean(), fit_intercept=True)  # fmt: skip
            np.testing.assert_allclose(W[-1, f], dn.solve(alone, tol=1e-13).w, atol=1e-6)


def test_the_kernel_and_numpy_find_the_same_minima(monkeypatch):
    rng = np.random.default_rng(0)
    for n, m in ((80, 20), (80, 50), (30, 60)):
        A = rng.standard_normal((2, n, m)) + 0.5
        y = A[:, :, :5].sum(axis=2) + rng.standard_normal((2, n))
        H, along = np.einsum("fni,fnj->fij", A, A), np.einsum("fni,fn->fi", A, y)
        one = np.ones(m)
        penalties = [Penalty(0.1 * t * one, t * one, -np.inf * one, one) for t in np.geomspace(300.0, 1.0, 10)]
        by = [
            together.minima_along(
                H, (along, np.full(2, np.nan)), np.zeros((2, m)), penalties, [1e-9] * 10, compiled=compiled
            )
            for compiled in (False, True)
        ]
        np.testing.assert_allclose(by[0], by[1], atol=1e-8)
        monkeypatch.setattr(
            together, "MOST_STEPS", 1
        )  # what the active set method does not reach is minimised all the same
        again = together.minima_along(
            H, (along, np.full(2, np.nan)), np.zeros((2, m)), penalties, [1e-9] * 10, compiled=False
        )
        monkeypatch.undo()
        np.testing.assert_allclose(again, by[1], atol=1e-8)


def lasso_moments(n=200, m=30, signals=30):
    rng = np.random.default_rng(4)
    A = rng.standard_normal((n, m))
    y = A[:, :signals].sum(axis=1) + rng.standard_normal(n)
    return A, y, (A.T @ A)[None], (A.T @ y)[None]


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_the_kernel_ends_at_a_small_relative_gap(ridge):
    """Of an elastic net, the gap is proportional to squared violations: to continue until these are small takes many sweeps."""
    A, y, H, along = lasso_moments(n=60, m=50, signals=10)
    one, goal = np.ones(50), 1e-3
    penalties = [Penalty(ridge * t * one, t * one, -np.inf * one, np.inf * one) for t in np.geomspace(30.0, 1.0, 12)]
    goals = [goal * float(each.threshold[0]) for each in penalties]
    ended, exact = (
        together.minima_along(H, (along, squares), np.zeros((1, 50)), penalties, goals, compiled=True)[:, 0]
        for squares in (np.array([y @ y]), np.array([np.nan]))
    )
    beyond = 0
    for v, w, penalty, most in zip(ended, exact, penalties, goals, strict=True):
        t = float(penalty.threshold[0])
        g, lam = (regularizers.ElasticNet(1.0 / ridge), ridge * t) if ridge else (regularizers.L1(), t)
        gap = dn.Problem(A, y, losses.Squared(), regularizer=g, lam=lam / 60).certify(v).relative_gap
        assert gap <= goal * (1.0 + 1e-6) or penalty.violations(v, A.T @ (A @ v - y)).max() <= most
        assert penalty.violations(w, A.T @ (A @ w - y)).max() <= most
        beyond += penalty.violations(v, A.T @ (A @ v - y)).max() > most
    assert beyond > 0 or not ridge


def test_the_kernel_goes_ahead_on_the_line_through_the_last_two_minima():
    """The minima of a Lasso are linear in the strength while no feature enters or leaves: the third is known from two."""
    _, _, H, along = lasso_moments()
    one, strengths = np.ones(30), (3.0, 2.5, 2.0)
    penalties = [Penalty(0.0 * one, t * one, -np.inf * one, np.inf * one) for t in strengths]
    found = together.minima_along(
        H, (along, np.array([np.nan])), np.zeros((1, 30)), penalties, [1e-10] * 3, compiled=True
    )
    assert np.count_nonzero(found) == 90
    trail = np.zeros((1, 2, 31))
    trail[0, 0, :30], trail[0, 1, :30] = found[0, 0], H[0] @ found[0, 0] - along[0]
    trail[0, :, 30] = 30 * strengths[0], 30 * strengths[1]
    V, slopes = found[1].copy(), found[1] @ H[0] - along
    left = np.empty((1, 1, 30)), np.zeros(1, dtype=np.intp)
    rounds_of(H, slopes, V, penalties[2:], np.array([[1e-10]]), 0, 0, *left, trail=trail)
    np.testing.assert_allclose(V, found[2], atol=1e-9)
    np.testing.assert_allclose(slopes[0], H[0] @ V[0] - along[0], atol=1e-9 * np.abs(along).max())


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_certificates_from_moments_bound_those_from_the_data(regularizer, fit_intercept):
    problem = problem_of("dense", regularizer, n=90, d=12, fit_intercept=fit_intercept)
    c, rng = problem.c, np.random.default_rng(2)
    moments = Moments.of(problem.data, problem.y[:, None], c, origin_of(problem.data, c, shift=fit_intercept))
    W, b = np.abs(rng.standard_normal((5, 12))), rng.standard_normal(5) * fit_intercept
    W[0] = 0.0
    lams = np.array([10.0, 1.0, 0.1, 1e-3, 1e-6])
    for w, own, lam, found in zip(W, b, lams, Verifier(moments, problem).certificates(W, b, lams), strict=True):
        alone = dn.Problem(problem.X, problem.y, losses.Squared(), regularizer=problem.regularizer, lam=lam,
                           sample_weight=c, fit_intercept=fit_intercept)  # fmt: skip
        primal, dual = alone.primal(w, own), alone.dual(alone.alpha_of(w))
        assert found.primal >= primal * (1.0 - 1e-15)
        assert found.primal == pytest.approx(primal, rel=1e-11)
        assert found.dual <= dual + 1e-13 * abs(dual)
        assert found.dual == pytest.approx(dual, rel=1e-8, abs=1e-11 * primal)


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("folds", [1, 3])
def test_several_problems_are_certified_from_their_moments_as_each_alone(regularizer, fit_intercept, folds):
    rng, lams = np.random.default_rng(2), np.array([10.0, 0.1, 1e-3])
    problem = problem_of("dense", regularizer, n=90, d=12, fit_intercept=fit_intercept)
    problems = [like(problem, sample_weight=rng.uniform(0.0, 2.0, 90)) for _ in range(folds)]
    W, b = np.abs(rng.standard_normal((folds, 3, 12))), rng.standard_normal((folds, 3)) * fit_intercept
    each = [Moments.of(p.data, p.y[:, None], p.c, origin_of(p.data, p.c, shift=fit_intercept)) for p in problems]
    together = Residuals.stacked([Residuals.of(*pair) for pair in zip(each, problems, strict=True)])
    found = Verifier(together, problem).certificates(W, b, lams)
    alone = (Verifier(*pair).certificates(W[f], b[f], lams) for f, pair in enumerate(zip(each, problems, strict=True)))
    for one, other in zip(found, chain.from_iterable(alone), strict=True):
        assert (one.rounding, one.reach, one.parts) == (0.0, np.inf, ())
        assert one.primal == pytest.approx(other.primal, rel=1e-13)
        assert one.dual == pytest.approx(other.dual, rel=1e-9, abs=1e-13 * other.primal)


def test_moments_are_about_zero_where_means_are_small_and_the_rows_many():
    rng = np.random.default_rng(0)
    X, c = rng.standard_normal((5000, 3)) + 0.5, np.ones(5000)
    assert not origin_of(as_data(X), c, shift=True).any()
    X[:, 1] += 5.0
    np.testing.assert_allclose(origin_of(as_data(X), c, shift=True), X.mean(axis=0), atol=0.2)


@pytest.mark.parametrize("size", [1e6, 1e10, 1e14])
def test_certificates_from_moments_hold_for_models_that_cancel(size):
    """Far along the null space of X products with its moments cancel: their rounding errors exceed what they leave."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 30)), rng.standard_normal(20)
    null = np.linalg.svd(X)[2][-1]
    problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=1e-3)
    moments = Moments.of(problem.data, y[:, None], problem.c, np.zeros(30))
    (found,) = Verifier(moments, problem).certificates(size * null[None], np.zeros(1), np.array([1e-3]))
    assert found.primal >= problem.primal(size * null)
    assert found.dual <= dn.solve(problem, tol=1e-9).certificate.primal


def exact_ridge(X, y, lam, *theta):
    """Return P at θ = (w, b) and the minimum of P in exact arithmetic."""
    exact = np.vectorize(Fraction, otypes=[object])
    A, y, theta, n, d = exact(np.column_stack([X, np.ones(len(y))])), exact(y), exact(np.hstack(theta)), *X.shape
    penalty = np.diag(exact(np.append(np.full(d, lam), 0.0)))
    S = np.column_stack([A.T @ A / n + penalty, A.T @ y / n])
    for j in range(d + 1):  # Gauss–Jordan elimination
        S[j] = S[j] / S[j, j]
        S -= np.outer(np.where(np.arange(d + 1) == j, 0, S[:, j]), S[j])
    return [((A @ t - y) @ (A @ t - y) / n + t @ penalty @ t) / 2 for t in (theta, S[:, -1])]


@pytest.mark.parametrize("far", [0.0, 1e4])
def test_mean_squares_from_moments_have_at_most_the_errors_that_are_proved(far):
    rng = np.random.default_rng(0)
    X, W, b = rng.standard_normal((50, 6)) + far, rng.standard_normal((4, 2, 6)), rng.standard_normal((4, 2))
    W[0] *= 1e-9
    Y, c = X @ W[1].T + b[1] + 1e-6 * rng.standard_normal((50, 2)), rng.uniform(0.5, 2.0, 50)
    data, exact = as_data(X), np.vectorize(Fraction, otypes=[object])
    found, errors = Residuals(Moments.of(data, Y, c, origin_of(data, c, shift=True)), Y, c, shift=True).mean_squares(
        W, b
    )
    for k in range(4):
        missed = exact(X) @ exact(W[k]).T + exact(b[k]) - exact(Y)
        true = sum(exact(c) @ (missed * missed)) / (2 * sum(exact(c)))
        assert abs(Fraction(found[k]) - true) <= errors[k]
    assert errors[2] <= 1e-9 * found[2] * (1.0 + far)


@pytest.mark.parametrize("regularizer", REGULARIZERS)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("storage", STORAGES)
def test_the_certificates_of_a_path_of_one_output_are_those_of_each_model(storage, regularizer, fit_intercept):
    problem = problem_of(storage, regularizer, fit_intercept=fit_intercept)
    rng, lams = np.random.default_rng(2), np.array([10.0, 0.1, 1e-3])
    W, b = np.abs(rng.standard_normal((3, problem.d))), rng.standard_normal(3) * fit_intercept
    for w, own, lam, found in zip(W, b, lams, certify_path(problem, lams, W[:, None], b[:, None]), strict=True):
        alone = like(problem, lam=float(lam))
        primal, dual = alone.primal(w, own), alone.dual(alone.alpha_of(w))
        assert found.primal == pytest.approx(primal, rel=1e-12)
        assert found.dual == pytest.approx(dual, rel=1e-9, abs=1e-11 * primal)
        assert found.dual <= dual + 1e-12 * abs(dual)


@pytest.mark.parametrize("seed", range(8))
def test_certificates_from_moments_hold_in_exact_arithmetic(seed):
    """Targets and features far from zero: sums about the means are differences of much larger sums."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((20, 2)) + 10.0 ** rng.uniform(0.0, 6.0)
    y = X[:, 0] + rng.standard_normal(20) + 10.0 ** rng.uniform(3.0, 8.0)
    problem = dn.Problem(X, y, losses.Squared(), lam=1e-4, fit_intercept=True)
    result, origin = dn.solve(problem, tol=1e-12), origin_of(problem.data, problem.c, shift=True)
    verifier = Verifier(Moments.of(problem.data, y[:, None], problem.c, origin), problem)
    (found,) = verifier.certificates(result.w[None], np.array([result.intercept]), np.array([1e-4]))
    primal, lowest = exact_ridge(X, y, 1e-4, result.w, result.intercept)
    assert found.primal >= primal
    assert found.dual <= lowest
    assert found.relative_gap <= 1e-4


def test_a_walk_that_needs_too_many_features_ends_early():
    problem = problem_of("dense", "lasso")
    groups = Groups([np.arange(problem.n)], [np.ones(problem.n)], np.ones((1, 1)))
    sizes = SetSizes.of_paths(1, tuned(least_set=4, path_entries=64))
    walk = FromColumns(as_data(problem.X), problem.y, groups, fit_intercept=True, compiled=False, sizes=sizes)
    penalties = [Penalty.of(problem).times(t) for t in np.geomspace(1.0, 0.01, 9)]
    found = list(walk.along(penalties, [1e-6] * 9))
    assert 0 < sum(len(stretch.W) for stretch in found) < 9


@pytest.mark.parametrize("centred", [False, True])
def test_a_singular_matrix_does_not_stop_the_other_models(centred, monkeypatch):
    """The columns of a categorical variable sum to one: systems of all of them are singular, those of strong penalties not.

    From the minimum of a neighbouring strength they do not all become free at once. With an intercept each variable is singular.
    """
    rng = np.random.default_rng(0)
    levels = rng.choice(5, size=(200, 2), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    X = (levels[:, :, None] == np.arange(5)).reshape(200, 10) * 1.0
    y = X @ rng.standard_normal(10) + rng.standard_normal(200)
    X, y = (X - X.mean(axis=0), y - y.mean()) if centred else (X, y)
    H, along = (X.T @ X)[None], (X.T @ y)[None]
    wide, strengths = np.full(10, np.inf), np.abs(along).max() * np.geomspace(1.0, 1e-3, 40)
    penalties = [Penalty(np.zeros(10), np.full(10, strength), -wide, wide) for strength in strengths]
    left, minimum = [], together._minimum
    monkeypatch.setattr(together, "_minimum", lambda *given, **more: left.append(1) or minimum(*given, **more))
    found = together.minima_along(
        H, (along, np.full(1, np.nan)), np.zeros((1, 10)), penalties, 1e-6 * strengths, compiled=False
    )
    assert not left
    for k, penalty in enumerate(penalties):
        assert penalty.violations(found[k, 0], H[0] @ found[k, 0] - along[0]).max() <= 2e-6 * strengths[k]


def test_features_of_sparse_rows_that_are_constant_up_to_rounding_have_no_moments():
    # About the mean, the squares of 1e8 + noise are rounding errors of either sign: an indefinite matrix.
    rng = np.random.default_rng(0)
    X = np.column_stack([1e8 + 1e-3 * rng.standard_normal((40, 3)), rng.standard_normal((40, 2))])
    y = rng.standard_normal((40, 1))
    moments = Moments.of(as_data(sp.csr_array(X)), y, np.ones(40), np.zeros(5))
    second, cross, mean, _ = moments.centred(fit_intercept=True)
    assert not second[:3].any()
    assert not cross[:3].any()
    np.testing.assert_allclose(mean, X.mean(axis=0), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(second[3:, 3:], 40 * np.cov(X[:, 3:].T, bias=True), rtol=1e-12)
    assert np.linalg.eigvalsh(second).min() >= 0.0


def test_moments_of_nearly_constant_features_keep_their_digits_in_few_sparse_rows():
    rng = np.random.default_rng(7)
    X = (1.0 + 1e-8 * rng.standard_normal((60, 4))) * [1e-3, 1.0, 1.0, 1e4]
    y, c = rng.standard_normal(60), np.ones(60)
    for data in (dn.Problem(kind(X), y, dn.losses.Squared(), lam=1.0).data for kind in (np.asarray, sp.csr_array)):
        moments = Moments.of(data, y[:, None], c, origin_of(data, c, shift=True))
        exact = np.asarray(X.astype(np.longdouble) - X.astype(np.longdouble).mean(axis=0), dtype=float)
        np.testing.assert_allclose(moments.centred(fit_intercept=True).second, exact.T @ exact, rtol=1e-6, atol=0.0)
