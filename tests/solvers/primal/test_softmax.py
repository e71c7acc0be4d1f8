"""Multinomial logistic regression, fitted by the sketch: what scikit-learn finds, with a proof."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton.run.result import Status


def classes(n=400, d=6, K=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.argmax(X @ rng.standard_normal((d, K)) + rng.gumbel(size=(n, K)), axis=1)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("method", ["newton", "ihs"])
def test_it_finds_what_scikit_learn_finds(fit_intercept, storage, method):
    from sklearn.linear_model import LogisticRegression

    X, y = classes()
    problem = dn.MultinomialProblem(storage(X), y, lam=0.5 / len(y), fit_intercept=fit_intercept)
    result = dn.solve(problem, method=method, tol=1e-13, random_state=0)
    assert result.status is Status.CONVERGED
    assert result.w.shape == (4, 6)
    assert result.alpha.shape == (400, 4)
    assert result.plan.method == method
    theirs = LogisticRegression(C=2.0, fit_intercept=fit_intercept, tol=1e-10, solver="newton-cg", max_iter=1000).fit(
        X, y
    )
    np.testing.assert_allclose(result.w, theirs.coef_, atol=1e-5)
    # Only differences of intercepts matter.
    np.testing.assert_allclose(
        result.intercept - result.intercept.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-5
    )
    assert problem.certify(result.w, result.intercept, result.alpha).relative_gap <= 1e-9


def test_two_classes_are_the_logistic_loss():
    X, y = classes(K=2)
    two = dn.solve(dn.MultinomialProblem(X, y, lam=0.02), tol=1e-11, random_state=0)
    # softmax(z₀, z₁) is the logistic function of z₁ − z₀; at the optimum w₁ = −w₀, and ‖W‖² = ½‖w₁ − w₀‖².
    one = dn.solve(dn.Problem(X, 2.0 * y - 1.0, dn.losses.Logistic(), lam=0.01), tol=1e-11, random_state=0)
    np.testing.assert_allclose(two.w[1] - two.w[0], one.w, atol=1e-5)
    assert two.certificate.primal == pytest.approx(one.certificate.primal, rel=1e-9)


def test_a_later_run_goes_on_from_an_earlier_one():
    X, y = classes()
    problem = dn.MultinomialProblem(X, y, lam=0.01, fit_intercept=True)
    first = dn.solve(problem, tol=1e-3, random_state=0)
    second = dn.solve(problem, tol=1e-9, warm_start=first, random_state=0)
    assert second.converged
    assert second.trace.gap[0] <= 1.5 * first.certificate.gap
    rough = problem.dual_near(np.random.default_rng(0).standard_normal((400, 4)))
    assert np.isfinite(problem.dual(rough))


def test_several_of_them_share_passes_and_threads_do_not_matter():
    X, y = classes(n=3000)
    problems = [dn.MultinomialProblem(X, (y + shift) % 4, lam=lam) for shift, lam in ((0, 0.1), (1, 0.001))]
    one, three = (dn.solve_many(problems, tol=1e-8, n_threads=threads, random_state=0) for threads in (1, 3))
    for mine, its in zip(one, three, strict=True):
        assert mine.converged
        assert np.array_equal(mine.w, its.w)


def test_what_it_cannot_do_is_said():
    X, y = classes(n=50)
    problem = dn.MultinomialProblem(X, y, lam=0.1)
    with pytest.raises(ValueError, match='method must be "auto", "newton" or "ihs" for Softmax'):
        dn.solve(problem, method="sdna")
    with pytest.raises(ValueError, match="problems must share loss"):
        dn.solve_many([problem, dn.Problem(problem.X, np.ones(50), dn.losses.Squared())])
    with pytest.raises(ValueError, match="sampling must be None"):
        dn.solve(problem, sampling=dn.samplings.Nice(50, 3))
    with pytest.raises(ValueError, match="warm_start must have shape"):
        dn.solve(problem, warm_start=np.zeros(50))
