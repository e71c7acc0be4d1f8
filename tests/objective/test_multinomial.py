"""The verifier of softmax regression: the same theorems as for two classes, for K of them."""

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import entr, logsumexp, softmax

from dualnewton import losses
from dualnewton.objective.multinomial import MultinomialProblem
from dualnewton.objective.problem import Problem

EVERYTHING = {"fit_intercept": True, "weights": True, "offset": True}
FORMS = [{}, {"weights": True}, {"offset": True}, {"fit_intercept": True}, EVERYTHING]
SEEDS, CLASSES = st.integers(0, 2**32 - 1), st.integers(2, 6)


def make(*, n=12, d=3, K=4, seed=0, lam=0.3, weights=False, offset=False, dtype=np.float64, **kwargs):
    """A small random problem in which every class has an example."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 1.5, (n, 1))
    y = rng.permutation(np.arange(n) % K)
    if weights:
        kwargs["sample_weight"] = rng.uniform(0.2, 2.0, n)
    if offset:
        kwargs["offset"] = rng.standard_normal((n, K))
    return MultinomialProblem(X.astype(dtype), y, lam=lam, n_classes=K, **kwargs)


def one_hot(problem):
    return np.eye(problem.columns)[problem.y]


def random_model(problem, rng, scale=1.0):
    W = scale * rng.standard_normal((problem.columns, problem.d))
    return W, scale * rng.standard_normal(problem.columns) * problem.fit_intercept


def random_dual_point(problem, rng):
    p = rng.dirichlet(np.full(problem.columns, rng.choice([0.05, 1.0, 20.0])), problem.n)
    return problem.balanced((one_hot(problem) - p) * rng.uniform(0.0, 1.0, (problem.n, 1)))


# The definitions, written a second time ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize(("n", "K"), [(12, 4), (3000, 7), (20, 5000)], ids=["one block", "blocks", "wide rows"])
def test_both_objectives_are_what_they_say(form, n, K):
    rng = np.random.default_rng(1)
    problem = make(n=n, K=K, **form)
    W, b = random_model(problem, rng)
    o = np.zeros((n, K)) if problem.offset is None else problem.offset
    Z = problem.X @ W.T + b + o
    assert np.allclose(problem.margins(W, b), Z, rtol=1e-13, atol=1e-13)
    risk = problem.c @ (logsumexp(Z, axis=1) - Z[np.arange(n), problem.y]) / n
    assert problem.primal(W, b) == pytest.approx(risk + 0.15 * (W**2).sum(), rel=1e-12)
    alpha = problem.alpha_of(W, b)
    if not problem.fit_intercept:
        assert np.allclose(alpha, one_hot(problem) - softmax(Z, axis=1), rtol=1e-12, atol=1e-14)
    mean = (problem.c[:, None] * alpha).T @ problem.X / (0.3 * n)
    assert np.allclose(problem.alpha_bar(alpha), mean, rtol=1e-11, atol=1e-13)
    assert np.array_equal(problem.w_of(alpha), problem.alpha_bar(alpha))
    H = entr(np.maximum(one_hot(problem) - alpha, 0.0)).sum(axis=1)
    expected = problem.c @ (H - (o * alpha).sum(axis=1)) / n - 0.15 * (mean**2).sum()
    assert problem.dual(alpha) == pytest.approx(expected, rel=1e-11, abs=1e-13)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_two_classes_are_logistic_regression(fit_intercept, weights):
    """With W = (−w/2, w/2) the margins differ by aᵀw, and ‖W‖² = ‖w‖²/2 asks for twice the λ."""
    rng = np.random.default_rng(2)
    X, y, o = rng.standard_normal((30, 4)), rng.integers(0, 2, 30), rng.standard_normal(30)
    c = rng.uniform(0.1, 3.0, 30) if weights else None
    two = Problem(X, 2.0 * y - 1.0, losses.Logistic(), lam=0.05, sample_weight=c, offset=o, fit_intercept=fit_intercept)
    many = MultinomialProblem(
        X, y, lam=0.1, sample_weight=c, offset=np.stack([-o / 2, o / 2], axis=1), fit_intercept=fit_intercept
    )
    for w in rng.standard_normal((5, 4)):
        W, b = np.stack([-w / 2, w / 2]), two.best_intercept(w)
        assert many.best_intercept(W) == pytest.approx([-b / 2, b / 2], rel=1e-12, abs=1e-13)
        assert many.primal(W, [-b / 2, b / 2]) == pytest.approx(two.primal(w, b), rel=1e-14)
        alpha = two.alpha_of(w)
        assert np.allclose(many.alpha_of(W), np.stack([-alpha, alpha], axis=1), rtol=1e-10, atol=1e-13)
        assert many.dual(np.stack([-alpha, alpha], axis=1)) == pytest.approx(two.dual(alpha), rel=1e-13)
        ours, theirs = many.certify(W), two.certify(w)
        assert (ours.primal, ours.dual) == pytest.approx((theirs.primal, theirs.dual), rel=1e-9)


# Duality -------------------------------------------------------------------------------------------------------------


@given(SEEDS, st.sampled_from(FORMS), CLASSES, st.sampled_from([1e-4, 0.3, 10.0]), st.sampled_from([0.1, 1.0, 30.0]))
def test_weak_duality(seed, form, K, lam, scale):
    rng = np.random.default_rng(seed)
    problem = make(K=K, seed=seed, lam=lam, **form)
    duals = [problem.dual(random_dual_point(problem, rng)) for _ in range(4)]
    assert np.isfinite(duals).all()
    for _ in range(4):
        W, b = random_model(problem, rng, scale)
        certificate = problem.certify(W, b)
        assert certificate.primal == problem.primal(W, b)
        assert certificate.dual <= certificate.primal * (1.0 + 1e-14)
        assert max(duals) <= certificate.primal * (1.0 + 1e-14)


@given(SEEDS, st.booleans(), st.booleans(), CLASSES)
def test_the_gap_without_an_intercept_is_the_distance_between_the_two_models(seed, weights, offset, K):
    problem = make(K=K, seed=seed, weights=weights, offset=offset)
    W, _ = random_model(problem, np.random.default_rng(seed))
    alpha = problem.alpha_of(W)
    distance = 0.5 * problem.lam * ((W - problem.w_of(alpha)) ** 2).sum()
    assert problem.primal(W) - problem.dual(alpha) == pytest.approx(distance, rel=1e-10)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("name", "solver"), [("iris", "lbfgs"), ("digits", "newton-cg"), ("wine", "newton-cg")])
def test_scikit_learn_reaches_the_optimum_that_the_certificate_proves(name, solver, fit_intercept):
    from sklearn import datasets
    from sklearn.linear_model import LogisticRegression

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    X, y = X[:300] / X.std(), y[:300]
    model = LogisticRegression(
        C=1.0 / (0.01 * len(y)), tol=1e-12, max_iter=100_000, solver=solver, fit_intercept=fit_intercept
    ).fit(X, y)
    problem = MultinomialProblem(X, y, lam=0.01, fit_intercept=fit_intercept)
    pair = problem.certified_pair(model.coef_, model.intercept_)
    assert pair.certificate.relative_gap <= 1e-10
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-13)
    assert pair.intercept == pytest.approx(model.intercept_)
    assert problem.best_intercept(model.coef_) == pytest.approx(model.intercept_, abs=1e-4)
    assert problem.w_of(pair.alpha) == pytest.approx(model.coef_, abs=1e-4)
    assert problem.certify(0.9 * model.coef_).relative_gap >= 1e-5


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_gap_closes_at_a_minimiser_found_by_someone_else(form):
    from scipy.optimize import minimize

    problem = make(n=20, lam=0.1, **form)
    K, d = problem.columns, problem.d

    def split(x):
        return x[: K * d].reshape(K, d), x[K * d :] * problem.fit_intercept

    def objective(x):
        W, b = split(x)
        value, R = problem.row_losses(problem.row_vectors, problem.margins(W, b) - problem.o)
        gradient = np.r_[(R.T @ problem.X / problem.n + problem.lam * W).ravel(), R.mean(axis=0)]
        gradient[K * d :] *= problem.fit_intercept
        return value / problem.n + 0.5 * problem.lam * (W**2).sum(), gradient

    found = minimize(objective, np.zeros(K * d + K), jac=True, method="BFGS", options={"gtol": 1e-10})
    certificate = problem.certify(*split(found.x))
    assert certificate.primal == pytest.approx(found.fun, rel=1e-13)
    assert certificate.relative_gap <= 1e-12
    assert problem.dual(problem.alpha_of(split(found.x)[0])) >= certificate.dual * (1 - 1e-13)


def test_a_dual_point_that_is_given_is_used_where_it_is_better():
    problem = make(fit_intercept=True, weights=True, offset=True)
    W = np.zeros((4, 3))
    for _ in range(300):  # gradient steps towards the optimum
        W = W + 0.5 * problem.lam * (problem.w_of(problem.alpha_of(W)) - W)
    good, far = problem.alpha_of(W), W + np.arange(12).reshape(4, 3)
    rounding = 1e-14 * abs(problem.dual(good))  # the two sum in different orders
    assert problem.certify(far, alpha=good).dual >= problem.dual(good) - rounding
    assert problem.dual(good) > problem.certify(far).dual
    tilted = good - 1e-6 * (np.arange(4) - 1.5)
    assert problem.dual(tilted) == -np.inf
    assert problem.certify(far, alpha=tilted).dual == pytest.approx(problem.dual(good), rel=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_far_from_the_optimum_the_proof_is_no_worse_than_that_of_the_origin(form):
    problem = make(lam=1e-4, **form)
    W, _ = random_model(problem, np.random.default_rng(0), 100.0)
    assert problem.dual(np.zeros((12, 4))) == 0.0
    assert problem.dual(problem.alpha_of(W)) < -1.0
    pair = problem.certified_pair(W)
    assert pair.certificate.dual >= -1e-3
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-13)


# The domain ----------------------------------------------------------------------------------------------------------


def test_a_dual_point_outside_the_domain_is_infeasible_unless_its_weight_is_zero():
    weights = np.ones(12)
    weights[2] = 0.0
    problem, lighter = make(), make(sample_weight=weights)
    inside = problem.alpha_of(np.zeros((4, 3)))
    for row in ([0.5, 0.5, -0.5, -0.5], [1.5, -0.5, -0.5, -0.5], [0.1, 0.0, 0.0, 0.0], [-0.5, 0.5, 0.0, 0.0]):
        alpha = inside.copy()
        alpha[2] = np.roll(row, problem.y[2])
        assert problem.dual(alpha) == -np.inf
        assert np.isfinite(lighter.dual(alpha))


def test_corners_of_the_simplex_are_inside():
    problem = make()
    for k in range(4):
        alpha = one_hot(problem) - np.eye(4)[k]
        expected = -0.5 * problem.lam * (problem.w_of(alpha) ** 2).sum()
        assert problem.dual(alpha) == pytest.approx(expected, rel=1e-14)


def test_an_unbalanced_dual_point_is_infeasible_with_an_intercept():
    rng = np.random.default_rng(0)
    free, bound = make(), make(fit_intercept=True)
    alpha = one_hot(free) - rng.dirichlet(np.ones(4), 12)
    assert np.isfinite(free.dual(alpha))
    assert bound.dual(alpha) == -np.inf
    assert np.isfinite(bound.dual(bound.balanced(alpha)))
    assert free.balanced(alpha) is alpha
    assert not free.best_intercept(np.ones((4, 3))).any()


@given(SEEDS, CLASSES, st.sampled_from([1e-14, 1e-6, 1e-2, 1.0]), st.sampled_from([1e-310, 1e-12, 1.0]), st.booleans())
def test_balancing_moves_by_no_more_than_the_imbalance_asks_for(seed, K, tilt, length, wild):
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-6, 6, 12) if wild else rng.uniform(0.5, 2.0, 12)
    problem = make(K=K, seed=seed, fit_intercept=True, sample_weight=weights)
    nearly = length * problem.alpha_of(random_model(problem, rng)[0])
    nearly = (1.0 - tilt) * nearly + tilt * length * (one_hot(problem) - rng.dirichlet(np.ones(K), 12))
    alpha = problem.balanced(nearly)
    p = one_hot(problem) - alpha
    assert p.min() >= 0.0
    assert p.sum(axis=1) == pytest.approx(1.0, abs=1e-14)
    assert (np.abs(problem.c @ alpha) <= 1e-13 * (problem.c @ np.abs(alpha))).all()
    assert np.isfinite(problem.dual(alpha))
    # p′ = (1 − ε) p + ε q is at most 2ε from p in the 1-norm, with the smallest ε for which N + S (1 − ε)/ε ≥ 0.
    S, N = problem.c @ nearly, np.bincount(problem.y, problem.c, K)
    epsilon = max(0.0, (-S / (N - S)).max())
    assert np.abs(alpha - nearly).sum(axis=1).max() <= 2.0 * epsilon * (1.0 + 1e-9) + 1e-13 * length + 1e-278


def test_balancing_serves_a_class_that_is_well_apart_as_well_as_the_others():
    """What rounding leaves in classes 1 and 2, which are confused, is large beside all there is in class 0."""
    y = np.where(np.arange(400) < 360, 0, 1 + np.arange(400) % 2)
    problem = MultinomialProblem(np.ones((400, 1)), y, lam=0.1, fit_intercept=True)
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = np.where(y[:, None] == 0, [1.0, 1e-9, 1e-9], [1e-8, 0.5, 0.5]) * rng.uniform(
            1.0 - 1e-12, 1.0 + 1e-12, (400, 3)
        )
        alpha = problem.balanced(one_hot(problem) - p / p.sum(axis=1, keepdims=True))
        assert (np.abs(problem.c @ alpha) <= 1e-13 * (problem.c @ np.abs(alpha))).all()


# The intercept -------------------------------------------------------------------------------------------------------


@given(SEEDS, CLASSES, st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e8]), st.booleans(), st.booleans())
def test_the_best_intercept_is_best(seed, K, scale, weights, offset):
    rng = np.random.default_rng(seed)
    problem = make(K=K, n=15, seed=seed, fit_intercept=True, weights=weights, offset=offset)
    W, _ = random_model(problem, rng, scale)
    b = problem.best_intercept(W)
    here = problem.primal(W, b)
    assert abs(b.sum()) <= 1e-13 * (1.0 + np.abs(b).max())
    for step in (1e-6, 1e-3, 1.0, scale):
        for direction in (*np.eye(K), *-np.eye(K), *rng.standard_normal((3, K))):
            assert here <= problem.primal(W, b + step * direction) * (1.0 + 1e-12)
    alpha = problem.alpha_of(W)
    assert (np.abs(problem.c @ alpha) <= 1e-12 * (problem.c @ np.abs(alpha))).all()
    assert np.isfinite(problem.dual(alpha))


def test_rare_classes_and_features_far_from_zero_are_no_trouble_for_the_intercept():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 3)) * 2.0 - np.array([0.0, 50.0, -80.0]), np.r_[[0] * 2990, [1] * 8, 2, 3]
    problem = MultinomialProblem(X, y, lam=0.1, fit_intercept=True)
    W, _ = random_model(problem, rng)
    R = problem.row_losses(problem.row_vectors, problem.margins(W, problem.best_intercept(W)))[1]
    assert np.abs(R.sum(axis=0)).sum() <= 1e-12 * np.abs(R).sum()


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e8])
def test_a_class_without_examples_is_a_class_less_where_there_is_an_intercept(scale):
    """Its intercept would be −∞; the certificate puts it where its probability underflows, which is as good."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), np.array([0, 2, 3])[np.arange(20) % 3]
    some = MultinomialProblem(X, y, lam=0.1, n_classes=6, fit_intercept=True)
    none = MultinomialProblem(X, np.searchsorted([0, 2, 3], y), lam=0.1, fit_intercept=True)
    W, present = np.zeros((6, 3)), [0, 2, 3]
    W[present] = scale * rng.standard_normal((3, 3))
    b = some.best_intercept(W)
    assert np.isfinite(b).all()
    assert b[present] == pytest.approx(none.best_intercept(W[present]), rel=1e-12)
    ours, theirs = some.certified_pair(W), none.certified_pair(W[present])
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-14)
    assert ours.certificate.dual == pytest.approx(theirs.certificate.dual, rel=1e-9)
    assert not ours.alpha[:, [1, 4, 5]].any()
    # A dual point that gives the class a chance is mended, not thrown away.
    leaky = 0.999 * ours.alpha + 0.001 * (np.eye(6)[y] - np.full(6, 1 / 6))
    assert some.dual(leaky) == -np.inf
    assert np.isfinite(some.dual(some.balanced(leaky)))
    assert some.dual(some.balanced(leaky)) == pytest.approx(some.dual(ours.alpha), rel=0.05)


def test_one_class_with_an_intercept_is_fitted_by_the_intercept_alone():
    problem = MultinomialProblem(
        np.random.default_rng(0).standard_normal((5, 2)), np.zeros(5), lam=0.1, fit_intercept=True
    )
    certificate = problem.certify(np.zeros((2, 2)))
    assert certificate.primal == 0.0
    assert certificate.relative_gap == 0.0


# The same answer for the same question -------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_weights_are_repetitions_and_zero_weights_are_absences(fit_intercept):
    rng = np.random.default_rng(3)
    X, y, o = rng.standard_normal((8, 3)), np.array([0, 1, 2, 0, 1, 2, 0, 3]), rng.standard_normal((8, 4))
    times = np.array([1, 3, 1, 2, 0, 1, 1, 0])  # class 3 is absent but for a row of weight zero
    common = {"n_classes": 4, "fit_intercept": fit_intercept}
    repeated = MultinomialProblem(
        np.repeat(X, times, axis=0), np.repeat(y, times), lam=0.3 * 8 / 9, offset=np.repeat(o, times, axis=0), **common
    )
    weighted = MultinomialProblem(X, y, lam=0.3, sample_weight=times, offset=o, **common)
    W = rng.standard_normal((4, 3))
    ours, theirs = weighted.certify(W), repeated.certify(W)
    assert (8 * ours.primal, 8 * ours.dual) == pytest.approx((9 * theirs.primal, 9 * theirs.dual), rel=1e-11)
    assert weighted.best_intercept(W)[:3] == pytest.approx(repeated.best_intercept(W)[:3], rel=1e-9, abs=1e-12)


def test_offsets_are_a_model_that_is_already_there_and_a_shift_of_a_whole_row_is_none():
    rng = np.random.default_rng(4)
    plain = make(lam=0.3)
    W, V = rng.standard_normal((2, 4, 3))
    shifted = MultinomialProblem(plain.X, plain.y, lam=0.3, offset=plain.X @ V.T + 5.0 * rng.standard_normal((12, 1)))
    penalty = 0.15 * ((W**2).sum() - ((W + V) ** 2).sum())
    assert shifted.primal(W) - plain.primal(W + V) == pytest.approx(penalty, rel=1e-12)
    alpha = plain.alpha_of(W + V)
    assert shifted.alpha_of(W) == pytest.approx(alpha, rel=1e-11)
    # The offsets' term is −λ⟨V, Ā⟩.
    assert shifted.dual(alpha) - plain.dual(alpha) == pytest.approx(-0.3 * (V * plain.w_of(alpha)).sum(), rel=1e-11)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_storage_and_precision_do_not_matter_to_the_judge(fit_intercept):
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.5)).astype(np.float32)
    y, W = np.arange(40) % 3, rng.standard_normal((3, 6))
    expected = MultinomialProblem(X.astype(float), y, lam=0.1, fit_intercept=fit_intercept).certify(W)
    for storage in (X, np.asfortranarray(X), sp.csr_array(X), sp.csc_array(X), sp.csr_matrix(X.astype(float))):
        found = MultinomialProblem(storage, y, lam=0.1, fit_intercept=fit_intercept).certify(W)
        assert (found.primal, found.dual) == pytest.approx((expected.primal, expected.dual), rel=1e-12)


def test_the_data_are_neither_copied_nor_changed():
    X = np.random.default_rng(0).standard_normal((8, 3))
    before, W, alpha = X.copy(), np.ones((2, 3)), np.zeros((8, 2))
    problem = MultinomialProblem(X, np.arange(8) % 2, fit_intercept=True)
    assert problem.X is X
    assert problem.lam == 1 / 8
    problem.certify(W, [1.0, 2.0], alpha)
    problem.balanced(alpha)
    assert np.array_equal(X, before)
    assert np.array_equal(W, np.ones((2, 3)))
    assert not alpha.any()
    with pytest.raises(AttributeError):
        problem.lam = 2.0
    with pytest.raises(ValueError, match="read-only"):
        problem.y[0] = 1
    shown = "Problem(n=8, d=3, loss=Softmax(n_classes=2), regularizer=L2(weights=None), lam=0.125, fit_intercept=True)"
    assert repr(problem) == shown


# Row blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [False, True])
def test_row_blocks_add_up_to_the_whole(weights):
    rng = np.random.default_rng(6)
    problem = make(n=5000, K=5, weights=weights, offset=True, fit_intercept=True)
    W, b = random_model(problem, rng, 2.0)
    Z, without = problem.margins(W, b), problem.margins(W, b) - problem.o  # the problem adds its offsets itself
    value, R = problem.row_losses(problem.row_vectors, without)
    assert value / 5000 + 0.15 * (W**2).sum() == pytest.approx(problem.primal(W, b), rel=1e-13)
    assert np.allclose(R, problem.c[:, None] * (softmax(Z, axis=1) - one_hot(problem)), rtol=1e-12, atol=1e-15)
    parts = [slice(start, start + 700) for start in range(0, 5000, 700)]
    blocks = [problem.row_losses(problem.row_vectors.part(part), without[part]) for part in parts]
    assert sum(block[0] for block in blocks) == pytest.approx(value, rel=1e-13)
    assert np.allclose(np.concatenate([block[1] for block in blocks]), R, rtol=1e-14, atol=0.0)
    p = softmax(Z, axis=1)
    assert np.allclose(problem.row_curvature(without), problem.c[:, None] * p * (1 - p), rtol=1e-10)


def test_the_curvature_is_the_derivative_of_the_gradient():
    problem = make(weights=True)
    Z = problem.margins(random_model(problem, np.random.default_rng(7))[0])
    for k in range(4):
        step = 1e-5 * np.eye(4)[k]
        up, down = (problem.row_losses(problem.row_vectors, Z + s * step)[1][:, k] for s in (1.0, -1.0))
        assert problem.row_curvature(Z)[:, k] == pytest.approx((up - down) / 2e-5, rel=1e-8)


def test_small_numbers_keep_their_digits():
    """Of a row that is fitted well, the loss, α and the curvature are tiny, and right to the last digits."""
    problem = MultinomialProblem(np.ones((2, 1)), [0, 2], lam=1.0, n_classes=3)
    Z = np.array([[40.0, 0.0, -1.0], [-100.0, 3.0, 60.0]])
    value, R = problem.row_losses(problem.row_vectors.part(slice(0, 2)), Z)
    curvature = problem.row_curvature(Z)
    with mpmath.workdps(60):
        total = mpmath.mpf(0)
        for i, y in enumerate([0, 2]):
            E = [mpmath.exp(mpmath.mpf(z)) for z in Z[i]]
            p = [e / sum(E) for e in E]
            total -= mpmath.log(p[y])
            assert R[i] == pytest.approx([float(p[k] - (k == y)) for k in range(3)], rel=1e-14, abs=0.0)
            assert curvature[i] == pytest.approx([float(q * (1 - q)) for q in p], rel=1e-14, abs=0.0)
            alpha = np.zeros((2, 3))
            alpha[i] = -R[i]
            entropy = float(-sum(q * mpmath.log(q) for q in p))
            penalty = 0.5 * (problem.w_of(alpha) ** 2).sum()
            assert problem.dual(alpha) + penalty == pytest.approx(entropy / 2, rel=1e-13, abs=0.0)
        assert value == pytest.approx(float(total), rel=1e-14, abs=0.0)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("size", [1e8, 1e150])
def test_extreme_margins_stay_finite(form, size):
    problem = make(**form)
    W, b = random_model(problem, np.random.default_rng(8), size)
    value, R = problem.row_losses(problem.row_vectors, problem.margins(W, b) - problem.o)
    assert np.isfinite(value)
    assert np.isfinite(R).all()
    assert np.isfinite(problem.row_curvature(problem.margins(W, b) - problem.o)).all()
    for certificate in (problem.certify(W), problem.certify(W, b)):
        assert np.isfinite((certificate.primal, certificate.dual)).all()
        assert certificate.gap > 0.0


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("X", [[[1.0]], [[0.0]] * 5, [[1.0, 1.0]] * 6, [[1e8], [1e-8], [0.0], [1.0]]], ids=str)
def test_degenerate_data_have_honest_certificates(X, fit_intercept):
    for y in (np.zeros(len(X)), np.arange(len(X)) % 3):
        problem = MultinomialProblem(X, y, lam=0.1, n_classes=3, fit_intercept=fit_intercept)
        certificate = problem.certify(np.zeros((3, problem.d)))
        assert np.isfinite((certificate.primal, certificate.dual)).all()
        assert certificate.dual <= certificate.primal * (1 + 1e-14)


# Errors that teach ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[1.0, np.nan], [0.0, 1.0]]}, r"X must be finite, got .*nan.* at index \(0, 1\)"),
        ({"y": [0, 1, 2]}, r"y must have shape \(2,\), got \(3,\)"),
        ({"y": [0, -1]}, r"y must hold whole class numbers 0, 1, 2, \.\.\., got -1 at index 1; np.unique"),
        ({"y": [0.5, 1]}, r"y must hold whole class numbers 0, 1, 2, \.\.\., got 0.5 at index 0"),
        ({"y": [0, 1e300]}, "y must hold whole class numbers .*, got 1e\\+300 at index 1"),
        ({"y": [0, 3], "n_classes": 3}, r"y must hold whole class numbers in 0, \.\.\., 2, got 3 at index 1"),
        (
            {"y": ["cat", "dog"]},
            r"y must hold whole class numbers .*got labels of type <U3; np.unique\(y, return_inverse",
        ),
        ({"y": [0, np.nan]}, "y must be finite"),
        ({"n_classes": 1}, "n_classes must be an integer >= 2, got 1"),
        ({"n_classes": 2.5}, "n_classes must be an integer >= 2, got 2.5"),
        ({"lam": 0.0}, "lam must be a finite number > 0, got 0.0"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight must be >= 0 everywhere, got -1.0 at index 1"),
        ({"sample_weight": [0.0, 0.0]}, "sample_weight must have a positive entry"),
        ({"offset": [1.0, 2.0]}, r"offset must have shape \(2, 2\), got \(2,\)"),
        ({"offset": [[1.0, np.inf], [0.0, 0.0]]}, r"offset must be finite, got inf at index \(0, 1\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_input_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        MultinomialProblem(**{"X": [[1.0, 0.0], [0.0, 1.0]], "y": [0, 1], "lam": 0.1, **change})


def test_bad_points_are_named():
    problem, free = make(), make(fit_intercept=True)
    with pytest.raises(ValueError, match=r"W must have shape \(4, 3\), got \(3, 4\)"):
        problem.primal(np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"W must be finite, got nan at index \(0, 0\)"):
        problem.certify(np.full((4, 3), np.nan))
    with pytest.raises(ValueError, match=r"alpha must have shape \(12, 4\), got \(12,\)"):
        problem.dual(np.zeros(12))
    with pytest.raises(ValueError, match=r"intercept must be 0 in a problem with fit_intercept=False, got \[1.0, 0.0"):
        problem.certify(np.zeros((4, 3)), [1.0, 0.0, 0.0, 0.0])
    with pytest.raises(ValueError, match=r"intercept must have shape \(4,\), got \(\)"):
        free.certify(np.zeros((4, 3)), 0.0)
    with pytest.raises(ValueError, match="intercept must be finite"):
        free.primal(np.zeros((4, 3)), [np.inf, 0.0, 0.0, 0.0])
