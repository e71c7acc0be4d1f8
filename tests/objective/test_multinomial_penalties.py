"""The verifier of softmax regression with other penalties than ½‖W‖²: kinks, bounds, and g* that is finite on a bounded set."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import entr, logsumexp

from dualnewton import losses, regularizers
from dualnewton.losses.simplex import probabilities
from dualnewton.objective.multinomial import MultinomialProblem
from dualnewton.objective.problem import Problem
from dualnewton.regularizers.base import OverRows
from tables import AgainstDirection, name_of

D = 3
REGULARIZERS = [
    regularizers.L1(),
    regularizers.L1(positive=True),
    regularizers.ElasticNet(0.4),
    regularizers.ElasticNet(0.1, positive=True),
    regularizers.NonNegative(),
    regularizers.Box(-0.3, 0.5),
    regularizers.Box(np.array([-1.0, 0.1, -np.inf]), np.array([0.2, 0.4, 0.0])),
    regularizers.L2(np.array([1.0, 2.0, 5.0])),
]
FORMS = [{}, {"fit_intercept": True}, {"fit_intercept": True, "weights": True, "offset": True}]
SEEDS = st.integers(0, 2**32 - 1)


def make(regularizer, *, n=12, K=4, seed=0, lam=0.1, weights=False, offset=False, **more):
    """A small random problem in which every class has an example."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, D)) * rng.uniform(0.3, 1.5, (n, 1))
    if weights:
        more["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if offset:
        more["offset"] = rng.standard_normal((n, K))
    return MultinomialProblem(
        X, rng.permutation(np.arange(n) % K), lam=lam, n_classes=K, regularizer=regularizer, **more
    )


def random_model(problem, rng, scale=1.0):
    """A point that the penalty allows, and an intercept where there is one."""
    _, _, lower, upper = limits(problem)
    W = np.clip(scale * rng.standard_normal((problem.columns, D)), lower, upper)
    return W, scale * rng.standard_normal(problem.columns) * problem.fit_intercept


def limits(problem):
    return problem.regularizer.form.limits(D)


def random_dual_point(problem, rng):
    p = rng.dirichlet(np.full(problem.columns, rng.choice([0.05, 1.0, 20.0])), problem.n)
    alpha = (np.eye(problem.columns)[problem.y] - p) * rng.uniform(0.0, 1.0, (problem.n, 1))
    return problem.within_reach(problem.balanced(alpha))


# The definitions, written a second time ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=name_of)
def test_both_objectives_are_what_they_say(regularizer, form):
    rng = np.random.default_rng(1)
    problem = make(regularizer, **form)
    W, b = random_model(problem, rng)
    n, o = problem.n, np.zeros((12, 4)) if problem.offset is None else problem.offset
    Z = problem.X @ W.T + b + o
    risk = problem.c @ (logsumexp(Z, axis=1) - Z[np.arange(n), problem.y]) / n
    penalty = sum(regularizer.value(w) for w in W)
    assert np.isfinite(penalty)
    assert problem.primal(W, b) == pytest.approx(risk + 0.1 * penalty, rel=1e-12)
    alpha = random_dual_point(problem, rng)
    bar = (problem.c[:, None] * alpha).T @ problem.X / (0.1 * n)
    H = entr(np.maximum(np.eye(4)[problem.y] - alpha, 0.0)).sum(axis=1)
    conjugate = sum(regularizer.conjugate(s) for s in bar)
    expected = problem.c @ (H - (o * alpha).sum(axis=1)) / n - 0.1 * conjugate
    assert problem.dual(alpha) == pytest.approx(expected, rel=1e-11, abs=1e-13)
    assert np.allclose(problem.w_of(alpha), [regularizer.grad_conjugate(s) for s in bar], rtol=1e-10, atol=1e-12)


def test_half_the_squared_norm_is_the_default_and_its_neighbours_agree_with_it():
    rng = np.random.default_rng(2)
    default, named = make(None), make(regularizers.L2())
    shown = "Problem(n=12, d=3, loss=Softmax(n_classes=4), regularizer=L2(weights=None), lam=0.1)"
    assert repr(default) == repr(named) == shown
    W = rng.standard_normal((4, D))
    assert default.certify(W) == named.certify(W)
    for near in (regularizers.ElasticNet(0.0), regularizers.Box(-np.inf, np.inf), regularizers.L2(np.ones(D))):
        found, expected = make(near).certify(W), default.certify(W)
        assert (found.primal, found.dual) == pytest.approx((expected.primal, expected.dual), rel=1e-6)
    assert repr(make(regularizers.L1())).endswith("n_classes=4), regularizer=L1(positive=False), lam=0.1)")


# Two classes are one column --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Twin:
    """λ Σ_k g(w_k) at the best W with w₁ − w₀ = u is λ ``times`` g′(u)."""

    g: regularizers.Regularizer
    times: float
    other: regularizers.Regularizer
    halves: bool = True
    """Whether W = (−u/2, u/2) is best; else it is (max(−u, 0), max(u, 0))."""

    def __str__(self):
        return name_of(self.g)


TWINS = [
    # w₁ = −w₀ = u/2 is best for squares, and as good as any other way for absolute values.
    Twin(regularizers.L2(), 0.5, regularizers.L2()),
    Twin(regularizers.ElasticNet(0.3), 0.5, regularizers.ElasticNet(0.6)),
    Twin(regularizers.L1(), 1.0, regularizers.L1()),
    Twin(regularizers.Box(-0.2, 0.2), 0.5, regularizers.Box(-0.4, 0.4)),
    # Of two coefficients that may not be negative, one is zero.
    Twin(regularizers.NonNegative(), 1.0, regularizers.L2(), halves=False),
    Twin(regularizers.ElasticNet(0.3, positive=True), 1.0, regularizers.ElasticNet(0.3), halves=False),
    Twin(regularizers.L1(positive=True), 1.0, regularizers.L1(), halves=False),
]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_two_classes_are_logistic_regression_with_another_penalty(twin, fit_intercept):
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((30, D)), rng.integers(0, 2, 30)
    two = MultinomialProblem(X, y, lam=0.1, fit_intercept=fit_intercept, regularizer=twin.g)
    one = Problem(
        X, 2.0 * y - 1.0, losses.Logistic(), regularizer=twin.other, lam=0.1 * twin.times, fit_intercept=fit_intercept
    )
    for u in np.clip(0.5 * rng.standard_normal((5, D)), -0.4, 0.4):
        W = np.stack([-u / 2, u / 2] if twin.halves else [np.maximum(-u, 0.0), np.maximum(u, 0.0)])
        b = one.best_intercept(u)
        assert two.primal(W, [-b / 2, b / 2]) == pytest.approx(one.primal(u, b), rel=1e-13)
        alpha = one.alpha_of(u)
        pair = np.stack([-alpha, alpha], axis=1)
        assert two.dual(pair) == pytest.approx(one.dual(alpha), rel=1e-12)
        ours, theirs = two.certify(W), one.certify(u)
        assert (ours.primal, ours.dual) == pytest.approx((theirs.primal, theirs.dual), rel=1e-9)


# Duality -------------------------------------------------------------------------------------------------------------


@given(
    SEEDS, st.sampled_from(REGULARIZERS), st.sampled_from(FORMS), st.integers(2, 6), st.sampled_from([1e-4, 0.3, 10.0])
)
def test_weak_duality(seed, regularizer, form, K, lam):
    rng = np.random.default_rng(seed)
    problem = make(regularizer, K=K, seed=seed, lam=lam, **form)
    duals = [problem.dual(random_dual_point(problem, rng)) for _ in range(4)]
    assert np.isfinite(duals).all()
    for scale in (0.1, 1.0, 30.0):
        W, b = random_model(problem, rng, scale)
        pair = problem.certified_pair(W, b)
        certificate = pair.certificate
        assert certificate.primal == problem.primal(W, b)
        assert certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-13)
        assert max(*duals, certificate.dual) <= certificate.primal * (1.0 + 1e-13)
        assert certificate.dual >= problem.dual(problem.no_dual()) - 1e-3 * abs(certificate.primal)


@given(SEEDS, st.sampled_from([g for g in REGULARIZERS if g.strongly_convex]), st.booleans(), st.integers(2, 6))
def test_the_gap_without_an_intercept_is_what_the_penalty_misses_of_fenchels_equality(seed, regularizer, weights, K):
    problem = make(regularizer, K=K, seed=seed, weights=weights)
    W, _ = random_model(problem, np.random.default_rng(seed))
    alpha = problem.alpha_of(W)
    bar = problem.alpha_bar(alpha)
    missed = sum(regularizer.value(w) + regularizer.conjugate(s) - w @ s for w, s in zip(W, bar, strict=True))
    assert problem.primal(W) - problem.dual(alpha) == pytest.approx(0.1 * missed, rel=1e-9, abs=1e-14)


@given(SEEDS, st.sampled_from(REGULARIZERS))
def test_the_penalty_of_all_rows_and_its_conjugate_belong_together(seed, regularizer):
    rng = np.random.default_rng(seed)
    g, S = OverRows(regularizer), rng.standard_normal((4, D))
    S *= g.reach(S)
    W = np.clip(rng.standard_normal((4, D)), *regularizer.form.limits(D)[2:])
    assert g.value(W) + g.conjugate(S) >= (W * S).sum() - 1e-12
    at = g.grad_conjugate(S)
    assert g.value(at) + g.conjugate(S) == pytest.approx((at * S).sum(), abs=1e-12)


def someone_elses_minimum(problem):
    """W = U − V with U, V ≥ 0, by L-BFGS-B with bounds: absolute values become sums."""
    K, (threshold, factor, lower, upper) = problem.columns, limits(problem)
    ridge = 1.0 / factor

    def split(x):
        U, V, b = x[: K * D].reshape(K, D), x[K * D : 2 * K * D].reshape(K, D), x[2 * K * D :]
        return U, V, b * problem.fit_intercept

    def objective(x):
        U, V, b = split(x)
        value, R = problem.row_losses(problem.row_vectors, problem.margins(U - V, b) - problem.o)
        penalty = (0.5 * ridge * (U - V) ** 2 + threshold * (U + V)).sum()
        G, own = R.T @ problem.X / problem.n, problem.lam * ridge * (U - V)
        parts = G + own + problem.lam * threshold, problem.lam * threshold - G - own
        gradient = np.r_[parts[0].ravel(), parts[1].ravel(), R.mean(axis=0) * problem.fit_intercept]
        return value / problem.n + problem.lam * penalty, gradient

    # U takes what is positive and V what is negative; a bound on one side of zero leaves nothing to the other.
    bounds = [*zip(np.maximum(lower, 0.0), np.maximum(upper, 0.0), strict=True)] * K
    bounds += [*zip(np.maximum(-upper, 0.0), np.maximum(-lower, 0.0), strict=True)] * K
    start = np.r_[np.array([low for low, _ in bounds]), np.zeros(K)]
    options = {"ftol": 0.0, "gtol": 1e-12, "maxiter": 10**5, "maxfun": 10**6, "maxls": 100}
    found = minimize(objective, start, jac=True, bounds=[*bounds, *[(None, None)] * K], options=options)
    U, V, b = split(found.x)
    return U - V, b, found.fun


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("regularizer", REGULARIZERS, ids=name_of)
def test_the_gap_closes_at_a_minimiser_found_by_someone_else(regularizer, form):
    problem = make(regularizer, n=20, lam=0.03, **form)
    W, b, value = someone_elses_minimum(problem)
    certificate = problem.certify(W, b)
    assert certificate.primal == pytest.approx(value, rel=1e-9)
    # A slope of 1e-8 shortens α by as much where ‖Ā‖∞ = 1, and that is the gap; elsewhere it counts as a square.
    assert certificate.relative_gap <= (1e-10 if regularizer.strongly_convex else 1e-5)
    other = np.clip(W + 0.05 * np.random.default_rng(0).random(W.shape), *limits(problem)[2:])
    assert problem.certify(other, b).gap >= (1.0 - 1e-9) * (problem.primal(other, b) - value) > 1e-7


# Where g* is finite ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("lam", [1e-9, 1e-3, 1.0])
def test_a_dual_point_is_shortened_until_it_is_within_reach_and_stays_feasible(lam, form):
    problem = make(regularizers.L1(), lam=lam, **form)
    whole = problem.balanced(np.eye(4)[problem.y] - np.random.default_rng(0).dirichlet(np.ones(4), 12))
    alpha = problem.within_reach(whole)
    largest = np.abs(problem.alpha_bar(whole)).max()
    if largest > 1.0:
        assert problem.dual(whole) == -np.inf
    assert np.abs(problem.alpha_bar(alpha)).max() == pytest.approx(min(largest, 1.0), rel=1e-6)
    assert np.isfinite(problem.dual(alpha))
    assert np.allclose(alpha * max(largest, 1.0), whole, rtol=1e-5, atol=1e-12)
    assert problem.within_reach(alpha) is alpha or np.allclose(problem.within_reach(alpha), alpha, rtol=1e-9, atol=0.0)
    free = make(regularizers.ElasticNet(1.0), lam=lam, **form)
    assert free.within_reach(whole) is whole


def test_where_the_penalty_leaves_nothing_the_intercepts_are_the_optimum():
    problem = make(regularizers.L1(), lam=100.0, n=13, fit_intercept=True)
    pair = problem.certified_pair(np.zeros((4, D)))
    assert pair.certificate.relative_gap <= 1e-14
    assert np.exp(pair.intercept) / np.exp(pair.intercept).sum() == pytest.approx(np.bincount(problem.y) / 13)


def test_what_a_chance_lacks_of_one_keeps_its_digits():
    Z = np.array([[40.0, 0.0, -1.0], [1.0, 1.0, 1.0], [-700.0, 0.0, 0.0]])
    p, missed = probabilities(Z)
    assert missed[0] == pytest.approx([np.exp(-40.0) * (1.0 + np.exp(-1.0)), 1.0, 1.0], rel=1e-14, abs=0.0)
    assert p + missed == pytest.approx(np.ones((3, 3)), rel=1e-15)
    assert p.sum(axis=1) == pytest.approx(np.ones(3), rel=1e-15)


# Errors that teach ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("regularizer", "message"),
    [
        (regularizers.GroupElasticNet([0, 0, 1]), r"regularizer must be a sum over features .* L1\(\).*got GroupElas"),
        (AgainstDirection(np.ones(3)), "regularizer must be a sum over features .*got AgainstDirection"),
        (regularizers.Box([0.0, 0.0], 1.0), "regularizer is made for 2 features, X has 3"),
        ("l1", "regularizer must be a regularizers.Regularizer, such as .*, got 'l1'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_penalty_that_is_no_sum_over_features_is_refused_by_name(regularizer, message):
    with pytest.raises(ValueError, match=message):
        make(regularizer)


def test_a_model_outside_the_bounds_has_no_value():
    problem = make(regularizers.Box(-0.1, 0.1))
    assert problem.primal(np.full((4, D), 0.2)) == np.inf
    assert problem.certify(np.full((4, D), 0.2)).gap == np.inf
