"""Multi-task models on small data: the optimum that the general method and scikit-learn find, on degenerate data too."""

import itertools
import warnings

import numpy as np
import pytest
import sklearn.linear_model as skl

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import NEVER
from dualnewton.solvers.direct import joint, joint_points
from dualnewton.solvers.direct.block import Block, Limits
from dualnewton.solvers.prox.gaps import value_and_gap
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, _Newton, minimise
from tuned import GENERAL


def rows_of(n, d, K=3, *, correlated=0.0):
    """Rows, and K targets that depend on a few of the features."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + correlated * rng.standard_normal((n, 1)) + 0.5
    return X, 3.0 * X[:, : min(d, 6)] @ rng.standard_normal((min(d, 6), K)) + rng.standard_normal((n, K))


def strongest(X, Y):
    """The smallest alpha for which all features are zero."""
    return float(np.linalg.norm((X - X.mean(axis=0)).T @ (Y - Y.mean(axis=0)), axis=1).max()) / len(Y)


SHAPES = {
    "few features": rows_of(80, 7),
    "correlated": rows_of(90, 30, 2, correlated=3.0),
    "many outputs": rows_of(60, 20, 12),
    "more features than rows": rows_of(40, 70),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.3, 0.01])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_it_finds_what_the_general_method_finds(shape, share, ratio, monkeypatch):
    seen, solve = [], joint.solve
    monkeypatch.setattr(joint, "solve", lambda *args, **rest: seen.append(args) or solve(*args, **rest))
    X, Y = SHAPES[shape]
    lam, g = regularizers.mixed(share * strongest(X, Y), ratio, joint=True)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(Y))
    weights[::7] = 0.0
    for fit_intercept, c, offset in itertools.product((True, False), (None, weights), (None, 0.3 * Y)):
        more = {"lam": lam, "sample_weight": c, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(X, Y, losses.SquaredOutputs(Y.shape[1]), regularizer=g, **more)
        found = dn.solve(problem, tol=1e-9)
        assert seen
        assert found.certificate.relative_gap <= 1e-9
        seen.clear()
        general = dn.solve(problem, tol=1e-9, tuning=GENERAL)
        assert not seen
        assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=3e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_scikit_learn_finds_the_same_at_any_scale(shape, scale):
    X, Y = SHAPES[shape]
    X, Y = scale * X, 1e3 * Y
    alpha = 0.1 * strongest(X, Y)
    ours = dn.MultiTaskLasso(alpha=alpha, tol=1e-6).fit(X, Y)
    theirs = skl.MultiTaskLasso(alpha=alpha, tol=1e-12, max_iter=100_000).fit(X, Y)
    size = np.abs(theirs.coef_).max()
    np.testing.assert_allclose(ours.coef_ / size, theirs.coef_ / size, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=0.1)


def degenerate():
    """Data that leave matrices singular, by name."""
    X, Y = rows_of(60, 8)
    yield "duplicated columns", np.hstack([X, X, -X]), Y
    yield "constant columns", np.hstack([X, np.full((60, 2), 3.0), np.zeros((60, 1))]), Y
    yield "one output", X, Y[:, :1]
    yield "equal outputs", X, Y[:, [0, 0]]
    yield "constant targets", X, np.full((60, 2), 2.5)
    yield "far from the origin", X + 1e2, Y
    yield "mixed scales", X * np.geomspace(1e-8, 1e8, 8), Y
    yield "exact fit", X, X @ np.arange(16.0).reshape(8, 2)


@pytest.mark.parametrize(("X", "Y"), [case[1:] for case in degenerate()], ids=[case[0] for case in degenerate()])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("share", [1.5, 0.5, 1e-3])
def test_degenerate_data_are_certified_without_warnings(X, Y, ratio, share):
    alpha = max(share * strongest(X, Y), 1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fit_intercept in (True, False):
            options = {"alpha": alpha, "l1_ratio": ratio, "fit_intercept": fit_intercept}
            assert dn.MultiTaskElasticNet(**options).fit(X, Y).certificate_.relative_gap <= 1e-4


@pytest.mark.parametrize(("factorised", "by_features"), [(1, False), (1, True), (1000, False)])
def test_all_ways_to_solve_a_newton_system_agree_with_the_dense_matrix(factorised, by_features, monkeypatch):
    sizes = Crossovers(factorised_unknowns=factorised)
    monkeypatch.setattr(joint_points, "INEXACT", 1e-12)
    if not by_features:
        monkeypatch.setattr(joint_points, "solved_by_factors", lambda *_: None)
    rng = np.random.default_rng(0)
    K, m = 3, 6
    A, units, right = rng.standard_normal((20, m)), rng.standard_normal((K, m)), rng.standard_normal((K, m))
    units /= np.linalg.norm(units, axis=0)
    bend, ridge, H = rng.uniform(0.5, 2.0, m), np.full(m, 0.1), A.T @ A
    M = np.kron(np.eye(K), H + np.diag(ridge + bend))
    for j in range(m):
        rows = np.arange(K) * m + j
        M[np.ix_(rows, rows)] -= bend[j] * np.outer(units[:, j], units[:, j])
    expected = np.linalg.solve(M, right.ravel()).reshape(K, m)
    way = joint_points._direction(H, ridge + bend, bend, units, right, sizes)
    np.testing.assert_allclose(way, expected, rtol=1e-8)


def norm_model(m=5, K=2, *, ridge=0.1):
    """ψ of a random problem, with thresholds that differ."""
    rng = np.random.default_rng(3)
    A, q = rng.standard_normal((12, m)), 20.0 * rng.standard_normal((K, m))
    penalty = JointPenalty(np.full(m, ridge), rng.uniform(1.0, 5.0, m))
    return joint.NormModel.of(A.T @ A, q, penalty)


def own_of(model):
    """H + D(ridge)."""
    return model.right[len(model.q) :]


def psi(model, norms):
    """ψ(ν) = ½ Σ threshold_j ν_j − ½⟨Q, W⟩."""
    return 0.5 * float(model.penalty.threshold @ norms) - 0.5 * float(np.vdot(model.q, model.at(norms).model()))


@pytest.mark.parametrize("zeros", [(), (1, 4)])
@pytest.mark.parametrize("small", [0, 16])
def test_the_model_of_given_norms_is_the_minimiser_of_the_weighted_squares(zeros, small, monkeypatch):
    """W minimises ½⟨W, W(H + D(ridge))⟩ − ⟨Q, W⟩ + ½ Σ threshold_j ‖W_j‖²/ν_j; features with ν_j = 0 are zero."""
    monkeypatch.setattr(joint, "SMALL", small)
    model, norms = norm_model(), np.array([0.3, 1.0, 2.0, 0.1, 0.7])
    norms[list(zeros)] = 0.0
    at, used = model.at(norms), norms > 0.0
    M = own_of(model) + np.diag(model.penalty.threshold / np.where(used, norms, 1.0))
    expected = np.zeros((2, 5))
    expected[:, used] = np.linalg.solve(M[np.ix_(used, used)], model.q[:, used].T).T
    np.testing.assert_allclose(at.model(), expected, rtol=1e-10, atol=1e-12)
    slopes = expected @ own_of(model) - model.q  # with the ridge
    np.testing.assert_allclose(at.lengths, feature_norms(slopes) / model.penalty.threshold, rtol=1e-9)


@pytest.mark.parametrize("raised", [False, True])
def test_a_step_is_the_same_with_and_without_the_features_that_are_zero(raised, monkeypatch):
    model, norms, found = norm_model(), np.array([0.3, 0.0, 2.0, 0.0, 0.7]), []
    for small in (0, 16):
        monkeypatch.setattr(joint, "SMALL", small)
        found.append(model.stepped(model.at(norms), raised=raised))
    np.testing.assert_allclose(*found, rtol=1e-10)


def test_lengths_and_curvature_are_the_derivatives_of_psi():
    """The gradient is ½ threshold_j(1 − ‖Z_j‖²); a Newton step of ψ meets the equations of its second derivatives."""
    model, norms, h = norm_model(), np.array([1.3, 1.0, 2.0, 0.8, 0.7]), 1e-4

    def gradient(norms):
        return 0.5 * model.penalty.threshold * (1.0 - model.at(norms).lengths ** 2)

    units = h * np.eye(5)
    slopes = [(psi(model, norms + e) - psi(model, norms - e)) / (2.0 * h) for e in units]
    np.testing.assert_allclose(gradient(norms), slopes, rtol=1e-5, atol=1e-6)
    hessian = np.array([(gradient(norms + e) - gradient(norms - e)) / (2.0 * h) for e in units])
    step = model.stepped(model.at(norms), raised=True) - norms
    np.testing.assert_allclose(hessian @ step, -gradient(norms), rtol=1e-4, atol=1e-4)


def test_one_step_is_exact_for_features_that_do_not_depend_on_each_other():
    model = norm_model()
    own = np.diag(own_of(model).diagonal())
    model = joint.NormModel.of(own - np.diag(model.penalty.ridge), model.q, model.penalty)
    start = np.full(5, 1e-3)
    at = model.at(model.stepped(model.at(start), raised=False))
    alone = np.maximum(feature_norms(model.q) - model.penalty.threshold, 0.0) / own.diagonal()
    np.testing.assert_allclose(at.norms, alone, rtol=1e-8)
    assert at.violation() <= 1e-8


@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_the_gap_at_given_norms_is_that_of_their_model(ridge):
    model, norms = norm_model(ridge=ridge), np.array([0.3, 0.0, 2.0, 0.1, 0.7])
    at = model.at(norms)
    W = at.model()
    slopes = W @ own_of(model) - model.penalty.ridge * W - model.q
    losses = 7.0 + 0.5 * float(np.vdot(W, slopes - model.q))
    expected = model.penalty.value_and_gap(feature_norms(W), float(np.vdot(W, slopes)), feature_norms(slopes), losses)
    np.testing.assert_allclose(model.value_and_gap(at, W, 7.0), expected, rtol=1e-9)


def test_a_start_is_continued_and_limits_end_the_steps():
    X, Y = SHAPES["more features than rows"]
    lam, g = regularizers.mixed(0.05 * strongest(X, Y), 1.0, joint=True)
    problem = dn.Problem(X, Y, losses.SquaredOutputs(3), regularizer=g, lam=lam, fit_intercept=True)
    block = Block(problem.data)
    found = joint.solve(problem, block, None, Limits(1e-9))
    again = joint.solve(problem, block, (found.w, found.intercept), Limits(1e-8))
    np.testing.assert_array_equal(again.w, found.w)
    short = joint.solve(problem, block, None, Limits(1e-9, 1))
    late = joint.solve(problem, block, None, Limits(1e-9, deadline=0.0))
    assert short.steps == 1
    assert not late.w.any()
    assert problem.primal(found.w, found.intercept) < problem.primal(short.w, short.intercept)


def test_rows_are_evaluated_again_only_where_the_tolerance_is_tiny(monkeypatch):
    """The minimum over all features is certified as it is; rounding errors of their products matter for tiny tolerances."""
    evaluations, evaluate = [], joint.Rows.evaluate
    monkeypatch.setattr(joint.Rows, "evaluate", lambda *args: evaluations.append(1) or evaluate(*args))
    X, Y = SHAPES["few features"]
    for tol, expected in ((1e-4, 1), (1e-10, 2)):
        evaluations.clear()
        model = dn.MultiTaskLasso(0.1, tol=tol).fit(X, Y)
        assert model.certificate_.relative_gap <= tol
        assert len(evaluations) == expected


def kinds_of_rows():
    """Rows whose features depend on each other, are exclusive, or differ in scale by six orders; more features than some."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(60, 300)), int(rng.integers(5, 40))
        common = rng.standard_normal((n, 1))
        yield 0.9 * common + 0.5 * rng.standard_normal((n, d))
        yield np.eye(d)[rng.integers(d, size=n)]
        yield (rng.standard_normal((n, d)) + rng.standard_normal(d)) * 10.0 ** rng.uniform(-3.0, 3.0, d)
        yield rng.standard_normal((n, 3)) @ rng.standard_normal((3, d)) + 0.1 * rng.standard_normal((n, d))


@pytest.mark.parametrize("share", [0.3, 0.03, 0.003])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_steps_in_the_norms_suffice(share, ratio, monkeypatch):
    """Neither proximal points nor sweeps are needed, and a dozen steps suffice, on any of these rows."""
    monkeypatch.setattr(joint, "by_proximal_points", lambda *_: pytest.fail("proximal points"))
    steps, stepped = [], joint.NormModel.stepped
    monkeypatch.setattr(joint.NormModel, "stepped", lambda *args, **rest: steps.append(1) or stepped(*args, **rest))
    for X in kinds_of_rows():
        rng = np.random.default_rng(len(X))
        W = rng.standard_normal((X.shape[1], 3)) / np.maximum(X.std(axis=0), 1e-12)[:, None]
        Y = X @ W + rng.standard_normal((len(X), 3))
        steps.clear()
        model = dn.MultiTaskElasticNet(share * strongest(X, Y), l1_ratio=ratio).fit(X, Y)
        assert model.certificate_.relative_gap <= 1e-4
        assert len(steps) <= 16


@pytest.mark.parametrize("m", [1, 5, 12])
def test_features_that_the_strongest_explains_start_at_zero(m):
    model = norm_model(m, ridge=0.0)
    own, threshold = own_of(model), model.penalty.threshold
    beyond = np.maximum(np.linalg.norm(model.q, axis=0) - threshold, 0.0)
    i, W = int(beyond.argmax()), np.zeros(model.q.shape)
    W[:, i] = model.q[:, i] / np.linalg.norm(model.q[:, i]) * beyond[i] / own[i, i]
    kept = (np.linalg.norm(model.q - W @ own, axis=0) > threshold) | (np.arange(m) == i)
    alone, explained = joint.strongest_alone(own, model.q, beyond, threshold)
    np.testing.assert_array_equal(explained, ~kept)
    assert (alone is None) == (np.count_nonzero(kept) > 1)
    if alone is not None:
        np.testing.assert_allclose(alone, W, rtol=1e-12)


def test_features_that_the_strongest_explains_take_no_steps(monkeypatch):
    """Steps are needed if all features beyond their thresholds start as if they did not depend on each other."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1)) + 0.3 * rng.standard_normal((200, 6))
    Y = X[:, :1] * [1.0, 2.0] + 0.1 * rng.standard_normal((200, 2))
    systems, at = [], joint.NormModel.at
    monkeypatch.setattr(joint.NormModel, "at", lambda *args, **rest: systems.append(1) or at(*args, **rest))
    model = dn.MultiTaskLasso(0.5 * strongest(X, Y)).fit(X, Y)
    assert np.count_nonzero(model.coef_.any(axis=0)) == 1
    assert model.certificate_.relative_gap <= 1e-12
    assert not systems


@pytest.mark.parametrize("ratio", [0.9, 0.5])
def test_the_gap_says_when_a_point_is_good_enough(ratio, monkeypatch):
    """The gap may be small long before the violations are: fewer steps are taken than these ask for, and the tolerance is met."""
    steps, stepped = [], joint.NormModel.stepped
    monkeypatch.setattr(joint.NormModel, "stepped", lambda *args, **rest: steps.append(1) or stepped(*args, **rest))
    counts = {0.0: [], joint.CLOSE: []}
    for close, shape, tol in itertools.product(counts, ("few features", "correlated"), (1e-2, 1e-3, 1e-4, 1e-6)):
        monkeypatch.setattr(joint, "CLOSE", close)
        X, Y = SHAPES[shape]
        steps.clear()
        model = dn.MultiTaskElasticNet(0.03 * strongest(X, Y), l1_ratio=ratio, tol=tol).fit(X, Y)
        assert model.certificate_.relative_gap <= tol
        counts[close].append(len(steps))
    by_violations, by_gap = counts.values()
    assert all(one <= other for one, other in zip(by_gap, by_violations, strict=True))
    assert sum(by_gap) < sum(by_violations)


def test_the_gap_of_a_model_is_that_of_its_problem():
    """With all features gathered, P and the gap of the quadratic model are those that the rows give."""
    X, Y = SHAPES["few features"]
    for ratio in (1.0, 0.4):
        lam, g = regularizers.mixed(0.1 * strongest(X, Y), ratio, joint=True)
        problem = dn.Problem(X, Y, losses.SquaredOutputs(3), regularizer=g, lam=lam, fit_intercept=True)
        rows = joint.Rows(problem, Block(problem.data))
        rows.gather(np.arange(problem.d))
        W = np.random.default_rng(0).standard_normal((3, problem.d))
        loss, slopes = rows.evaluate(W.T)
        sizes = feature_norms(W), float(np.vdot(W, slopes)), feature_norms(slopes)
        found = JointPenalty.of(problem).value_and_gap(*sizes, loss)
        np.testing.assert_allclose(found, value_and_gap(problem, W, loss, slopes), rtol=1e-10)


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(6))
def test_proximal_points_converge_for_singular_matrices(seed, ridge):
    """Three factors explain most of twelve features, of which two are equal: the active set of a Newton step may cycle."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 12)) + 0.05 * rng.standard_normal((40, 12))
    A[:, 1] = A[:, 0]
    T = A @ rng.standard_normal((12, 4)) + rng.standard_normal((40, 4))
    H, q, K = A.T @ A, T.T @ A, 4
    penalty = JointPenalty(np.full(12, ridge), np.full(12, 5.0))
    V, done = joint.by_proximal_points(H, q, np.zeros((K, 12)), penalty, 1e-6, np.inf)
    assert done
    assert penalty.violations(V, V @ H - q).max() <= 1e-6
    other = minimise(H, -q, np.zeros((K, 12)), penalty, 1e-8)
    values = [0.5 * np.vdot(W, W @ H) - np.vdot(q, W) + penalty.value(W) for W in (V, other)]
    assert values[0] <= values[1] + 1e-9 * abs(values[1])


@pytest.mark.parametrize("shape", [(10, 300, 3), (30, 300, 5), (40, 60, 2)])
def test_interior_points_end_where_thresholds_are_tiny_and_features_many(shape, monkeypatch):
    """The model nearly fits the targets: proximal points and sweeps would take thousands of passes."""
    n, d, K = shape
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    Y = X @ rng.standard_normal((d, K)) + rng.standard_normal((n, K))
    alpha = 1e-7 * np.linalg.norm(X.T @ (Y - Y.mean(axis=0)), axis=1).max() / n
    steps, by_interior_points = [], joint.by_interior_points
    monkeypatch.setattr(joint, "by_interior_points", lambda *given: steps.append(given) or by_interior_points(*given))
    model = dn.MultiTaskLasso(alpha=alpha).fit(X, Y)
    assert steps
    assert model.certificate_.relative_gap <= model.tol
    assert model.n_iter_ <= 50


def test_newton_steps_of_a_proximal_step_reach_its_optimality_conditions(monkeypatch):
    monkeypatch.setattr(joint_points, "SHARPER", 1e-9)
    monkeypatch.setattr(joint_points, "MOST_NEWTON", 8)  # enough for steps that converge quadratically
    rng = np.random.default_rng(3)
    A, center = rng.standard_normal((30, 5)), rng.standard_normal((2, 5))
    H, q, kappa = A.T @ A, 10.0 * rng.standard_normal((2, 5)), np.full(5, 2.0)
    penalty = JointPenalty(np.full(5, 0.1), np.full(5, 4.0))
    W = joint_points.proximal_point(H, q, center, penalty, kappa, np.inf)
    assert penalty.violations(W, W @ H - q + kappa * (W - center)).max() <= 1e-8


@pytest.mark.parametrize("share", [0.1, 0.01])
def test_models_of_many_features_are_left_to_coordinate_descent(share, monkeypatch):
    """Their linear systems would take several times as long as sweeps over the features."""
    rng, sizes = np.random.default_rng(0), []
    X, W = rng.standard_normal((200, 800)), np.zeros((800, 3))
    W[:80] = rng.standard_normal((80, 3))
    Y = X @ W + rng.standard_normal((200, 3))
    minimum = joint.minimum
    monkeypatch.setattr(joint, "minimum", lambda H, *rest, **more: sizes.append(len(H)) or minimum(H, *rest, **more))
    alpha = share * strongest(X, Y)
    model = dn.MultiTaskLasso(alpha, tol=1e-6).fit(X, Y)
    assert max(sizes, default=0) <= USUAL.persistent_features
    assert np.count_nonzero(model.coef_.any(axis=0)) > USUAL.persistent_features
    assert "block coordinate descent" in str(model.plan_)
    assert model.certificate_.relative_gap <= 1e-6
    reference = skl.MultiTaskLasso(alpha, tol=1e-10, max_iter=100_000).fit(X, Y)
    assert model.certificate_.primal == pytest.approx(dn.certify(reference, X, Y).primal, rel=3e-6)


@pytest.mark.parametrize(("kind", "share"), [("few", 0.5), ("correlated", 0.1), ("many", 0.1)])
def test_a_ridge_and_more_features_than_rows_are_left_to_coordinate_descent_if_many_are_used(kind, share, monkeypatch):
    """After the first features, most others still violate the optimality conditions only if many are used in the end."""
    rng, sizes = np.random.default_rng(1), []
    X = rng.standard_normal((80, 1500))
    if kind == "correlated":
        X = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 1500)) + 0.3 * X
    used = 1500 if kind == "many" else 3
    Y = X[:, :used] @ rng.standard_normal((used, 3)) + 0.1 * rng.standard_normal((80, 3))
    minimum = joint.minimum
    monkeypatch.setattr(joint, "minimum", lambda H, *rest, **more: sizes.append(len(H)) or minimum(H, *rest, **more))
    model = dn.MultiTaskElasticNet(share * strongest(X, Y), l1_ratio=0.5).fit(X, Y)
    assert model.certificate_.relative_gap <= 1e-4
    assert ("block coordinate descent" in str(model.plan_)) == (kind == "many")
    assert len(sizes) == 1 if kind == "many" else 0 < max(sizes) <= USUAL.persistent_features


def test_conjugate_gradients_end_at_a_flat_direction(monkeypatch):
    """At features that depend on each other, a norm is linear along its own unit vector, and the matrix is zero there."""
    monkeypatch.setattr(joint_points, "solved_by_factors", lambda *_: None)
    bend, units = np.ones(3), np.tile([[1.0], [0.0]], 3)
    sizes = Crossovers(factorised_unknowns=1)
    assert not joint_points._direction(np.zeros((3, 3)), bend, bend, units, units.copy(), sizes).any()
    newton = _Newton(np.zeros((3, 3)), JointPenalty(np.zeros(3), bend), units)
    assert not newton._by_products(newton.units.copy(), NEVER).any()


@pytest.mark.parametrize("seed", [21, 49])
def test_features_that_are_nearly_a_constant_do_not_end_proximal_steps_early(seed):
    # Without an intercept, all features are nearly multiples of one vector: only small weights of the proximal term see the rest.
    rng = np.random.default_rng(seed)
    X = 1e3 + rng.standard_normal((30, 30)) * (rng.random((30, 30)) < 0.3)
    Y = 3.0 * X @ rng.standard_normal((30, 2)) / 1e3 + rng.gumbel(size=(30, 2))
    model = dn.MultiTaskLasso(alpha=0.3, fit_intercept=False, max_iter=200).fit(X, Y)
    assert model.certificate_.relative_gap <= model.tol
    assert model.plan_.family == "joint"


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_losses_and_slopes_of_a_moved_model_are_those_of_its_rows(weighted, intercept):
    X, Y = rows_of(50, 12)
    rng, c = np.random.default_rng(3), np.random.default_rng(4).uniform(0.5, 2.0, 50) if weighted else None
    problem = dn.Problem(
        X, Y, losses.SquaredOutputs(3), regularizer=regularizers.JointL1(), sample_weight=c, fit_intercept=intercept
    )
    rows = joint.Rows(problem, Block(problem.data))
    rows.gather(np.array([3, 8]))
    rows.gather(np.array([1]))
    V, change = rng.standard_normal((2, 3, 3))
    losses_there, slopes = rows.moved(*rows.evaluate(V), change)
    expected, wanted = rows.evaluate(V + change)
    assert losses_there == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(slopes, wanted, atol=1e-11 * np.abs(wanted).max())


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_features_that_are_nearly_used_are_gathered_in_the_first_turn(ratio, monkeypatch):
    """40 features of a larger block, 24 of them used, take one turn and one evaluation of the rows by the solver."""
    rng, gathered, evaluations = np.random.default_rng(0), [], []
    X = rng.standard_normal((4000, 40))
    Y = X[:, :24] @ (1.0 + rng.random((24, 3))) + rng.standard_normal((4000, 3))
    assert X.size > USUAL.small_entries
    gather, evaluate = joint.Rows.gather, joint.Rows.evaluate
    monkeypatch.setattr(joint.Rows, "gather", lambda self, some: gathered.append(some.size) or gather(self, some))
    monkeypatch.setattr(joint.Rows, "evaluate", lambda *given: evaluations.append(1) or evaluate(*given))
    model = dn.MultiTaskElasticNet(alpha=1.0, l1_ratio=ratio).fit(X, Y)
    assert model.certificate_.relative_gap <= model.tol
    assert np.count_nonzero(model.coef_.any(axis=0)) == 24
    assert gathered == [24]
    assert len(evaluations) == 1
