"""Newton's method for softmax: the Hessian with all that joins the classes, and the models it leads to."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton.losses.simplex import pair_products, probabilities
from dualnewton.matrix import MemoryData
from dualnewton.planning.sketching import Sketching
from dualnewton.solvers.primal import joint_softmax as joint
from dualnewton.solvers.primal.joint_softmax import JointHessian
from tuned import GENERAL

N, D, K = 120, 4, 3
RNG = np.random.default_rng(8)
X = RNG.standard_normal((N, D))
Y = np.argmax(X @ RNG.standard_normal((D, K)) + RNG.gumbel(size=(N, K)), axis=1)
STORAGES = pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
INTERCEPT = pytest.mark.parametrize("intercept", [False, True])


def hessian_of(data, ridge):
    return JointHessian(data, ridge, K, Sketching.of(data))


def whole_hessian(X, p, c, ridge):
    """Σ c_i (diag(p_i) − p_i p_iᵀ) ⊗ a_i a_iᵀ + D, by its definition."""
    Q = np.einsum("ik,kl->ikl", p, np.eye(p.shape[1])) - np.einsum("ik,il->ikl", p, p)
    size = p.shape[1] * X.shape[1]
    return np.einsum("i,ikl,ia,ib->kalb", c, Q, X, X).reshape(size, size) + np.diag(np.tile(ridge, p.shape[1]))


@STORAGES
def test_the_matrix_is_the_hessian(storage):
    p, c, ridge = probabilities(RNG.standard_normal((N, K)))[0], RNG.uniform(0.5, 2.0, N), np.full(D, 0.3)
    found = hessian_of(MemoryData(storage(X)), ridge).at((c[:, None] * pair_products(p)).T, N, np.random.default_rng(0))
    g = RNG.standard_normal(K * D)
    np.testing.assert_allclose(found.solve(g), np.linalg.solve(whole_hessian(X, p, c, ridge), g), rtol=1e-9)


@STORAGES
def test_pairs_of_classes_with_equal_weights_share_one_sum(storage, monkeypatch):
    """At w = 0 all pairs do: one product of the rows instead of K(K − 1)/2."""
    p, c, ridge, counted = np.full((N, K), 1.0 / K), RNG.uniform(0.5, 2.0, N), np.full(D, 0.3), []
    data = MemoryData(storage(X))
    monkeypatch.setattr(
        data, "weighted_gram", lambda *a, **b: counted.append(1) or MemoryData.weighted_gram(data, *a, **b)
    )
    found = hessian_of(data, ridge).at((c[:, None] * pair_products(p)).T, N, np.random.default_rng(0))
    g = RNG.standard_normal(K * D)
    np.testing.assert_allclose(found.solve(g), np.linalg.solve(whole_hessian(X, p, c, ridge), g), rtol=1e-9)
    assert len(counted) == 1


def test_intercepts_are_moved_apart_but_never_together():
    p, ridge = probabilities(RNG.standard_normal((N, K)))[0], np.append(np.full(D, 0.3), 0.0)
    found = hessian_of(MemoryData(X), ridge).at(pair_products(p).T, N, np.random.default_rng(0))
    g = RNG.standard_normal((K, D + 1))
    g[:, -1] -= g[:, -1].mean()  # as that of softmax is
    step = found.solve(g.ravel())
    whole = whole_hessian(np.column_stack([X, np.ones(N)]), p, np.ones(N), ridge)
    np.testing.assert_allclose(whole @ step, g.ravel(), atol=1e-9)
    assert abs(step.reshape(K, D + 1)[:, -1].sum()) <= 1e-9 * np.abs(step).max()


def test_rows_far_from_both_classes_of_a_pair_are_left_out():
    class Counted(MemoryData):
        read = 0

        def weighted_gram(self, weights, indices=None, **options):
            self.read += indices.size
            return super().weighted_gram(weights, indices, **options)

    margins = 12.0 * np.eye(K)[Y] + RNG.standard_normal((N, K))
    weights, counted = pair_products(probabilities(margins)[0]).T, Counted(X)
    hessian_of(counted, np.full(D, 0.3)).at(weights, N, np.random.default_rng(0))
    assert counted.read <= 2.1 * N  # of 3N: each pair needs the rows of its two classes
    left = [own[own <= joint.NEGLIGIBLE * own.mean()].sum() / own.sum() for own in weights]
    assert max(left) <= joint.NEGLIGIBLE


@STORAGES
@INTERCEPT
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", [1e-1, 1e-3, 1e-6])
def test_newton_and_the_sketch_agree(storage, intercept, weighted, lam):
    weight = RNG.uniform(0.2, 3.0, N) if weighted else None
    offset = 0.3 * RNG.standard_normal((N, K)) if weighted else None
    problem = dn.MultinomialProblem(
        storage(X), Y, lam=lam, fit_intercept=intercept, sample_weight=weight, offset=offset
    )
    newton, sketch = (
        dn.solve(problem, method=method, tol=1e-11, max_epochs=3000, random_state=0) for method in ("newton", "ihs")
    )
    assert newton.status is dn.Status.CONVERGED
    assert newton.plan.method == "newton"
    assert newton.n_epochs < 60
    assert problem.certify(newton.w, newton.intercept, newton.alpha).relative_gap <= 1e-10
    if sketch.converged:
        # P is λ-strongly convex: both are within √(2 gap/λ) of the optimum.
        apart = sum(np.sqrt(2.0 * max(result.certificate.gap, 1e-16) / lam) for result in (newton, sketch))
        assert np.linalg.norm(newton.w - sketch.w) <= apart


@pytest.mark.parametrize("C", [1.0, 1e2, 1e6])
@pytest.mark.parametrize("scaled", [1.0, 1e-6, 1e6])
def test_classes_that_can_be_told_apart_take_few_steps(C, scaled):
    centres = 6.0 * np.eye(K, D)
    separable = (centres[Y] + 0.3 * X) * scaled
    problem = dn.MultinomialProblem(separable, Y, lam=1.0 / (C * N * scaled**-2), fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-6, random_state=0)
    assert result.status is dn.Status.CONVERGED
    assert result.n_epochs < 80


def test_two_classes_and_a_class_that_never_occurs():
    two = dn.solve(
        dn.MultinomialProblem(X, (Y > 0).astype(int), lam=0.01, fit_intercept=True), method="newton", tol=1e-11
    )
    assert two.status is dn.Status.CONVERGED
    absent = dn.MultinomialProblem(X, Y, lam=0.01, n_classes=K + 1, fit_intercept=False)
    found = dn.solve(absent, method="newton", tol=1e-10, random_state=0)
    assert found.status is dn.Status.CONVERGED
    assert found.w.shape == (K + 1, D)
    c = (Y > 0) * 1.0  # a class whose examples weigh nothing
    weightless = dn.MultinomialProblem(X, Y, lam=0.01, fit_intercept=True, sample_weight=c)
    assert dn.solve(weightless, method="newton", tol=1e-6, random_state=0).certificate.relative_gap <= 1e-6


def test_several_models_have_a_matrix_each():
    problems = [dn.MultinomialProblem(X, (Y + shift) % K, lam=lam) for shift, lam in ((0, 0.1), (1, 0.01))]
    together = dn.solve_many(problems, method="newton", tol=1e-11, random_state=0)
    for problem, one in zip(problems, together, strict=True):
        alone = dn.solve(problem, method="newton", tol=1e-11, random_state=0)
        np.testing.assert_allclose(one.w, alone.w, rtol=1e-6, atol=1e-9)


def test_auto_forms_the_matrix_where_it_is_small_and_only_there():
    assert dn.plan(dn.MultinomialProblem(X, Y, lam=1e-2)).method == "newton"
    wide = RNG.standard_normal((60, 2500))
    assert dn.plan(dn.MultinomialProblem(wide, Y[:60], lam=1e-2), tuning=GENERAL).method == "ihs"
    with pytest.raises(ValueError, match='method must be "auto" or "ihs" for Softmax'):
        dn.solve(dn.MultinomialProblem(wide, Y[:60], lam=1e-2), method="newton")
    assert dn.plan(dn.MultinomialProblem(X, Y, lam=1e-2), tau=30).method == "ihs"
