"""Quadratic losses of several columns with a penalty that joins them: the subproblem, the method, its certificates."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import Crossovers, Sizes
from dualnewton.solvers.prox.joint import JointDescent
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, minimise, sweep_of, sweeps
from tuned import tuned

IN_SETS = tuned(most_together=4, least_set=5, multiply=1.0, sparse_pair=1.0)
COMPILED = tuned(small_entries=0)


def quadratic(seed=0, m=12, K=3, rank=None):
    """A model: H, slopes, a start and a penalty that leaves some features out."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((rank or 2 * m, m))
    H, slopes = A.T @ A, A.T @ (3.0 * rng.standard_normal((len(A), K)))
    threshold = rng.uniform(0.3, 0.9, m) * np.linalg.norm(slopes, axis=1)
    return H, np.ascontiguousarray(slopes.T), np.zeros((K, m)), JointPenalty(rng.uniform(0.0, 1.0, m), threshold)


def make(*, n=60, d=12, K=3, r=1.0, share=0.1, storage=np.asarray, seed=0, dtype=np.float64, **more):
    """Outputs that depend on a few features, and a penalty at a share of the one that leaves nothing in use."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + 0.4) * (rng.random((n, d)) < 0.7)
    Y = X[:, :4] @ rng.standard_normal((4, K)) + rng.standard_normal((n, K)) + 1.0
    top = np.linalg.norm((X - X.mean(axis=0)).T @ (Y - Y.mean(axis=0)), axis=1).max() / n
    lam, g = regularizers.mixed(share * top, r, joint=True)
    return dn.Problem(storage(X.astype(dtype)), Y, losses.SquaredOutputs(K), regularizer=g, lam=lam, **more)


# The subproblem ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "compiled"])
@pytest.mark.parametrize("rank", [None, 5], ids=["full rank", "singular"])
def test_the_minimum_satisfies_the_optimality_conditions(compiled, rank):
    H, slopes, start, penalty = quadratic(rank=rank)
    V = minimise(H, slopes, start, penalty, sweep=sweep_of(compiled=compiled))
    at = slopes + V @ H + penalty.ridge * V
    norms = feature_norms(V)
    used = norms > 0.0
    assert 0 < used.sum() < used.size
    np.testing.assert_allclose(at[:, used], (-penalty.threshold * V / np.where(used, norms, 1.0))[:, used], atol=1e-10)
    assert (feature_norms(at)[~used] <= penalty.threshold[~used]).all()
    assert penalty.violations(V, slopes + V @ H).max() < 1e-10


def test_the_kernel_does_what_the_numpy_sweeps_do():
    H, slopes, V, penalty = quadratic(1)
    twins = [(slopes.copy(), V.copy()), (slopes.copy(), V.copy())]
    for sweep, (s, v) in zip((sweeps, sweep_of(compiled=True)), twins, strict=True):
        assert not sweep(H, s, v, penalty.ridge, penalty.threshold, 3, 0.0)
    np.testing.assert_allclose(*(v for _, v in twins), atol=1e-14)
    np.testing.assert_allclose(*(s for s, _ in twins), atol=1e-12)
    np.testing.assert_allclose(twins[0][0], slopes + twins[0][1] @ H, atol=1e-12)


def test_a_path_has_the_minimum_of_each_penalty():
    from dualnewton.kernels import joint
    from dualnewton.kernels.blas import addresses

    H, slopes, V, _ = quadratic(2)
    top = feature_norms(slopes).max()
    thresholds, ridges = top * np.array([0.9, 0.5, 0.1]), np.array([0.1, 0.2, 0.3])
    models = np.zeros((3, *V.shape))
    squares = 2.0 * np.vdot(slopes, np.linalg.solve(H, slopes.T).T)  # of targets that are not fitted exactly
    arguments = (
        H,
        -slopes,
        squares,
        slopes.copy(),
        V.copy(),
        ridges,
        thresholds,
        1e-14,
        1000,
        addresses(*joint.LAPACK),
        models,
    )
    joint.path.prepare(*arguments)
    assert joint.path(*arguments) == 3
    for model, ridge, threshold in zip(models, ridges, thresholds, strict=True):
        own = JointPenalty(np.full(len(H), ridge), np.full(len(H), threshold))
        np.testing.assert_allclose(model, minimise(H, slopes, V, own), atol=1e-6)


@pytest.mark.parametrize("columns", [1, 4])
def test_newton_steps_of_the_kernel_finish_where_features_nearly_coincide(columns):
    """Without Newton steps the kernel stops on the way; with them it reaches a gap of 1e-8 for each penalty of a path."""
    from dualnewton.kernels import joint
    from dualnewton.kernels.blas import addresses

    rng = np.random.default_rng(4)
    A = rng.standard_normal((40, 1)) + 0.1 * rng.standard_normal((40, 8))
    T = A @ rng.standard_normal((8, columns)) + rng.standard_normal((40, columns))
    H, along = A.T @ A, np.ascontiguousarray(T.T @ A)
    thresholds = feature_norms(along).max() * np.geomspace(0.5, 1e-4, 6)
    models = np.zeros((6, columns, 8))
    for most, is_found in ((0, False), (20, True)):
        start, penalties = np.zeros((columns, 8)), (np.zeros(6), thresholds)
        lapack = addresses(*joint.LAPACK)
        arguments = (H, along, float(np.vdot(T, T)), -along, start, *penalties, 1e-8, most, lapack, models)
        joint.path.prepare(*arguments)
        assert (joint.path(*arguments) == 6) == is_found
    for model, threshold in zip(models, thresholds, strict=True):
        own = JointPenalty(np.zeros(8), np.full(8, threshold))
        exact = minimise(H, -along, np.zeros(model.shape), own)
        np.testing.assert_allclose(model, exact, atol=1e-4)


@pytest.mark.parametrize("seed", [11, 14, 155])
def test_a_path_does_not_diverge_along_negative_eigenvalues_of_a_gram_matrix(seed):
    """Sums of products of rows have them by rounding. Long Newton steps along them had seemed to decrease the objective."""
    from dualnewton.kernels import joint
    from dualnewton.kernels.blas import addresses

    rng = np.random.default_rng(seed)
    rank, d, K = int(rng.integers(3, 8)), int(rng.integers(8, 14)), 3
    B = rng.standard_normal((rank, d))
    T = B @ rng.standard_normal((d, K))
    null = np.linalg.svd(B)[2][rank:]
    H = B.T @ B
    H -= 2.0**-50 * np.linalg.norm(H, 2) * null.T @ null
    along, squares = np.ascontiguousarray((B.T @ T).T), float(np.vdot(T, T))
    thresholds = feature_norms(along).max() * np.geomspace(1.0, 1e-10, 40)
    slopes, V, models = -along, np.zeros((K, d)), np.zeros((40, K, d))
    lapack = addresses(*joint.LAPACK)
    arguments = (H, along, squares, slopes, V, np.zeros(40), thresholds, 1e-4, 20, lapack, models)
    joint.path.prepare(*arguments)
    found = joint.path(*arguments)
    values = 0.5 * np.square(models @ B.T - T.T).sum(axis=(1, 2)) + thresholds * [
        feature_norms(W).sum() for W in models
    ]
    assert found >= 20
    assert np.all(np.diff(values[:found]) <= 0.0)  # the objective falls with the penalty
    assert np.abs(V).max() < 10.0


def test_newton_steps_by_conjugate_gradients_end_at_the_same_minimum():
    H, slopes, start, penalty = quadratic(3, m=20)
    exact = minimise(H, slopes, start, penalty)
    by_products = minimise(H, slopes, start, penalty, crossovers=Crossovers(joint_factor=5))
    np.testing.assert_allclose(by_products, exact, atol=1e-10)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_models_between_two_solved_strengths_are_interpolated_and_meet_the_tolerance(ratio, monkeypatch):
    from dualnewton.solvers.prox import joint_paths

    rng = np.random.default_rng(6)
    A, noise = rng.standard_normal((30, 90)), rng.standard_normal((30, 2))
    T = A[:, :5] @ rng.standard_normal((5, 2)) + noise
    strengths = feature_norms(T.T @ A).max() * np.geomspace(1.0, 1e-2, 40)
    solved: list[int] = []
    knot = joint_paths.JointPath._knot
    monkeypatch.setattr(joint_paths.JointPath, "_knot", lambda *given: (solved.append(given[1]), knot(*given))[1])
    ridges, thresholds = (1.0 - ratio) * strengths, ratio * strengths
    models = joint_paths.JointPath(A, T, ridges, thresholds, 1e-3, sweeps, lambda: False).solve()
    assert len(set(solved)) == len(solved) < 30
    g = dn.regularizers.JointL1() if ratio == 1.0 else dn.regularizers.JointElasticNet(l1=ratio / (1.0 - ratio))
    for W, ridge, threshold in zip(models, ridges, thresholds, strict=True):
        problem = dn.Problem(A, T, dn.losses.SquaredOutputs(2), regularizer=g, lam=(ridge or threshold) / 30)
        assert problem.certify(W).relative_gap <= 1e-3


# The method ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tuning", [tuned(), COMPILED, IN_SETS], ids=["NumPy", "compiled", "working sets"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("r", [1.0, 0.5, 0.0])
def test_it_finds_the_minimum_and_proves_it(r, fit_intercept, tuning):
    rng = np.random.default_rng(5)
    more = {"sample_weight": rng.uniform(0.2, 2.0, 60), "offset": rng.standard_normal((60, 3))}
    problem = make(r=r, d=40, fit_intercept=fit_intercept, **more)
    result = dn.solve(problem, tol=1e-12, tuning=tuning)
    assert result.certificate.relative_gap <= 1e-12
    again = problem.certify(result.w, result.intercept, result.alpha)
    assert again.relative_gap <= 2e-12
    for _ in range(5):
        other = result.w + 1e-3 * rng.standard_normal(result.w.shape)
        assert problem.primal(other, problem.best_intercept(other)) >= result.certificate.dual


@pytest.mark.parametrize("storage", [sp.csr_array, np.asarray], ids=["CSR", "float32"])
def test_storages_agree(storage):
    dtype = np.float32 if storage is np.asarray else np.float64
    ours, dense = make(storage=storage, dtype=dtype, fit_intercept=True), make(fit_intercept=True)
    a, b = (dn.solve(problem, tol=1e-12) for problem in (ours, dense))
    np.testing.assert_allclose(a.w, b.w, atol=1e-5 if dtype is np.float32 else 1e-9)


@pytest.mark.parametrize("r", [1.0, 0.5])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_agrees_with_scikit_learn(r, fit_intercept):
    from sklearn.linear_model import MultiTaskElasticNet

    problem = make(r=r, d=80, n=50, share=0.05, fit_intercept=fit_intercept)
    alpha = problem.lam if r == 1.0 else problem.lam / (1.0 - r)
    theirs = MultiTaskElasticNet(alpha, l1_ratio=r, fit_intercept=fit_intercept, tol=1e-12, max_iter=10**6)
    theirs.fit(problem.X, problem.y)
    ours = dn.solve(problem, tol=1e-14)
    np.testing.assert_allclose(ours.w, theirs.coef_, atol=1e-6)
    assert problem.certify(theirs.coef_, theirs.intercept_ if fit_intercept else None).relative_gap < 1e-8


def test_features_that_the_gap_excludes_are_zero_at_the_optimum():
    problem = make(n=40, d=60, share=0.3, fit_intercept=True)
    best = dn.solve(problem, tol=1e-14).w
    sizes = Sizes(False, 60, 60, Crossovers(largest_matrix=60))  # only the gap leaves features out
    starts = [(np.zeros(best.shape), problem.best_intercept(np.zeros(best.shape)))]
    method = JointDescent([problem], problem.data, starts, tol=1e-12, compiled=False, sizes=sizes)
    excluded = []
    for _ in range(6):
        method.step(np.random.default_rng(0), np.inf, np.inf)
        excluded.append(np.setdiff1d(np.arange(60), method.tasks[0].working_set(method.models[0])))
        assert not best[:, excluded[-1]].any()
    assert excluded[-1].size > 30


def test_equal_weights_and_repeated_rows_are_the_same():
    problem = make(n=30, fit_intercept=True)
    twice = np.repeat(np.arange(30), np.arange(30) % 3)
    weights = (np.arange(30) % 3).astype(float)
    scale = len(twice) / 30
    repeated = dn.Problem(
        problem.X[twice], problem.y[twice], problem.loss, regularizer=problem.regularizer,
        lam=problem.lam, fit_intercept=True,
    )  # fmt: skip
    weighted = dn.Problem(
        problem.X, problem.y, problem.loss, regularizer=problem.regularizer,
        lam=problem.lam * scale, sample_weight=weights, fit_intercept=True,
    )  # fmt: skip
    a, b = (dn.solve(each, tol=1e-14) for each in (repeated, weighted))
    np.testing.assert_allclose(a.w, b.w, atol=1e-10)
    assert a.certificate.primal * scale == pytest.approx(b.certificate.primal, rel=1e-12)


def test_one_column_is_the_lasso():
    problem = make(K=2)
    for r in (1.0, 0.5):
        (lam, joint), (_, plain) = (regularizers.mixed(problem.lam, r, joint=joint) for joint in (True, False))
        both = [
            dn.Problem(problem.X, problem.y[:, 0], losses.Squared(), regularizer=g, lam=lam) for g in (joint, plain)
        ]
        ours, theirs = (dn.solve(each, tol=1e-13) for each in both)
        np.testing.assert_allclose(ours.w, theirs.w, atol=1e-9)
        assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-12)


def test_models_that_are_solved_together_are_those_solved_alone():
    first = make(d=40, fit_intercept=True)
    problems = [
        dn.Problem(first.X, first.y, first.loss, regularizer=first.regularizer, lam=lam, fit_intercept=True)
        for lam in (first.lam, 3.0 * first.lam, 0.3 * first.lam)
    ]
    for together, problem in zip(dn.solve_many(problems, tol=1e-12, tuning=IN_SETS), problems, strict=True):
        np.testing.assert_allclose(together.w, dn.solve(problem, tol=1e-12).w, atol=1e-7)
        assert together.converged


def test_a_deadline_ends_a_step():
    problem = make(n=200, d=40)
    result = dn.solve(problem, tol=1e-12, time_limit=0.0)
    assert result.status is dn.Status.TIME_LIMIT
    assert np.isfinite(result.certificate.gap)


def test_other_penalties_are_refused_in_words():
    problem = make()
    for g in (regularizers.L1(), regularizers.Box(0.0, 1.0), regularizers.L2(np.linspace(1.0, 2.0, 12))):
        other = dn.Problem(problem.X, problem.y, problem.loss, regularizer=g)
        with pytest.raises(ValueError, match=r"regularizer must be L2\(\), JointElasticNet\(\) or JointL1\(\)"):
            dn.solve(other)
    with pytest.raises(ValueError, match=r"y must have shape \(60, 3\)"):
        dn.Problem(problem.X, problem.y[:, :2], problem.loss)
    with pytest.raises(ValueError, match="positive must be False"):
        regularizers.mixed(1.0, 0.5, positive=True, joint=True)


# The regularisers of matrices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [regularizers.JointL1(), regularizers.JointElasticNet(0.4)], ids=repr)
def test_fenchel_and_young_hold_for_matrices(g):
    rng = np.random.default_rng(0)
    points = [scale * rng.standard_normal((3, 5)) for scale in (0.1, 0.5, 1.0, 3.0)]
    for W, S in itertools.product(points, points):
        S = g.reach(S) * S
        assert g.value(W) + g.conjugate(S) >= np.vdot(W, S) - 1e-12
        best = g.grad_conjugate(S)
        assert g.value(best) + g.conjugate(S) == pytest.approx(np.vdot(best, S), abs=1e-12)
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    for W in points:  # the columns of a model count only by the norm of each feature
        assert g.value(rotation @ W) == pytest.approx(g.value(W), rel=1e-12)
        np.testing.assert_allclose(g.grad_conjugate(rotation @ W), rotation @ g.grad_conjugate(W), atol=1e-12)
