"""Capabilities are declared: what a class does not redefine it inherits, and what a loss lacks is never divided by."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers, samplings, theory
from dualnewton.matrix import MemoryData
from dualnewton.objective import certificates
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.planning.eligible import methods_for
from dualnewton.planning.planner import Facts
from tables import WITH_KINKS, AgainstDirection, make_problem, name_of


class PlainRidge(regularizers.L2):
    """An empty subclass."""


class MyLogistic(losses.Logistic):
    """An empty subclass."""


@dataclass(frozen=True)
class Counts(losses.Loss):
    """exp(z) − yz for counts y ≥ 0: smooth, but 1/γ-smooth for no γ."""

    def value(self, z, y):
        return np.exp(z) - y * z

    def derivative(self, z, y):
        return np.exp(z) - y

    def second_derivative(self, z, y):
        return np.exp(z) + 0.0 * y

    def conjugate_inside(self, u, y):
        v = u + y
        return v * np.log(v + (v == 0.0)) - v

    def domain(self, y):
        return -y, 0.0 * y + np.inf

    def valid_labels(self, y):
        return np.isfinite(y) & (y >= 0.0)


def counts(n=300, d=5, *, lam=1e-3, seed=0, storage=np.asarray, **more):
    """Counts with a log-linear mean on bounded data."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n, d))
    y = rng.poisson(np.exp(X @ rng.uniform(-1.0, 1.0, d) + 0.5)).astype(float)
    return dn.Problem(storage(X), y, Counts(), lam=lam, **more)


# Inheritance -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [60, 5000], ids=["NumPy", "compiled"])
@pytest.mark.parametrize("method", ["auto", "sdna", "newton", "ihs"])
def test_an_empty_subclass_of_l2_takes_the_same_way(method, n):
    problem = make_problem(losses.SquaredHinge(), n=n, d=40, lam=1e-3)
    twin = replace(problem, regularizer=PlainRidge())
    assert dn.plan(twin, method=method) == dn.plan(problem, method=method)
    ours, theirs = (dn.solve(each, method=method, random_state=0) for each in (twin, problem))
    assert np.array_equal(ours.w, theirs.w)
    assert np.array_equal(ours.alpha, theirs.alpha)
    assert ours.certificate == theirs.certificate


@pytest.mark.parametrize("weights", [None, np.linspace(1.0, 2.0, 4)], ids=["plain", "weights"])
@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Softmax(3)], ids=name_of)
def test_so_it_does_for_kinks_and_for_classes(loss, weights):
    problem = make_problem(loss, n=60, lam=0.02, fit_intercept=True, regularizer=regularizers.L2(weights))
    ours = dn.solve(replace(problem, regularizer=PlainRidge(weights)), tol=1e-10, random_state=0)
    theirs = dn.solve(problem, tol=1e-10, random_state=0)
    assert np.array_equal(ours.w, theirs.w)
    assert ours.plan == theirs.plan


def test_an_empty_subclass_of_a_loss_takes_the_same_way():
    problem = make_problem(losses.Logistic(), n=200, lam=1e-3, fit_intercept=True)
    ours, theirs = (dn.solve(replace(problem, loss=loss), random_state=0) for loss in (MyLogistic(), losses.Logistic()))
    assert np.array_equal(ours.w, theirs.w)
    assert ours.plan == theirs.plan


def test_the_form_is_made_once():
    for g in (regularizers.L2(), regularizers.L2(np.ones(3)), *WITH_KINKS):
        assert g.form is g.form
    assert regularizers.L2().form is PlainRidge().form
    assert AgainstDirection(np.ones(3)).form.is_general


# Without γ -------------------------------------------------------------------------------------------------------------


def test_a_loss_without_gamma_has_its_other_identities_checked():
    losses.check(Counts())

    class Wrong(Counts):
        def second_derivative(self, z, y):
            return 0.99 * super().second_derivative(z, y)

    with pytest.raises(ValueError, match="second_derivative that is not the slope of derivative"):
        losses.check(Wrong())


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "regularizer", [regularizers.L2(), regularizers.L1(), regularizers.ElasticNet(0.5)], ids=name_of
)
@pytest.mark.parametrize("n", [300, 30_000], ids=["NumPy", "compiled"])
def test_a_loss_without_gamma_is_solved_by_a_primal_method(n, regularizer, fit_intercept, storage):
    problem = counts(n, regularizer=regularizer, fit_intercept=fit_intercept, storage=storage)
    assert "sdna" not in methods_for(problem)
    assert np.isfinite(Facts.of(problem).conditioning)
    assert dn.plan(problem).is_primal
    result = dn.solve(problem, tol=1e-9, random_state=0)
    assert result.converged
    assert result.certificate.relative_gap <= 1e-9


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_it_is_the_model_that_scikit_learn_finds(fit_intercept):
    from sklearn.linear_model import PoissonRegressor

    problem = counts(lam=0.01, fit_intercept=fit_intercept)
    result = dn.solve(problem, tol=1e-12, random_state=0)
    model = PoissonRegressor(alpha=0.01, fit_intercept=fit_intercept, tol=1e-10, solver="newton-cholesky")
    model.fit(problem.X, problem.y)
    np.testing.assert_allclose(result.w, model.coef_, rtol=1e-5, atol=1e-6)
    assert result.intercept == pytest.approx(model.intercept_, abs=1e-6)


def test_a_loss_without_gamma_has_dual_rounds():
    problem = counts(lam=0.1)
    assert dn.solve(problem, method="sdna", tol=1e-9, random_state=0).converged
    assert dn.solve(problem, sampling=samplings.Nice(problem.n, 5), tol=1e-6, random_state=0).converged
    general = replace(problem, regularizer=AgainstDirection(np.ones(problem.d)))
    result = dn.solve(general, tol=1e-8, random_state=0)
    assert (result.plan.method, result.converged) == ("sdna", True)


def test_rates_that_need_gamma_are_refused_in_words():
    problem = counts()
    with pytest.raises(ValueError, match=r"loss must be smooth for the rates .* which has no gamma.*newton"):
        theory.theta(problem, samplings.Serial(problem.n))


def test_theory_is_for_one_margin():
    with pytest.raises(ValueError, match=r"loss must have one margin per example.*Softmax\(n_classes=3\) with 3"):
        theory.theta(make_problem(losses.Softmax(3)), samplings.Serial(6))


# K columns -------------------------------------------------------------------------------------------------------------


def test_the_multinomial_problem_is_a_problem_with_softmax():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((12, 3)), np.arange(12) % 4
    one = dn.MultinomialProblem(X, y, lam=0.1, fit_intercept=True)
    other = dn.Problem(X, y, losses.Softmax(4), lam=0.1, fit_intercept=True)
    W = rng.standard_normal((4, 3))
    assert repr(one) == repr(other)
    assert one.certify(W) == other.certify(W)


@pytest.mark.parametrize("regularizer", [regularizers.L2(), regularizers.ElasticNet(0.3)], ids=name_of)
def test_problems_of_one_and_of_several_columns_are_certified_in_one_pass(regularizer, monkeypatch):
    X = make_problem(losses.Logistic(), n=50).X
    rng = np.random.default_rng(0)
    problems = [
        dn.Problem(X, rng.permutation(np.arange(50) % 3), losses.Softmax(3), regularizer=regularizer, lam=0.1),
        dn.Problem(
            X,
            rng.choice([-1.0, 1.0], 50),
            losses.Logistic(),
            regularizer=regularizer,
            lam=0.2,
            sample_weight=rng.uniform(0.5, 2.0, 50),
        ),
        dn.Problem(
            X,
            rng.permutation(np.arange(50) % 2),
            losses.Softmax(2),
            regularizer=regularizer,
            lam=0.3,
            offset=np.ones((50, 2)),
        ),
    ]
    models = [rng.standard_normal((3, 4)), rng.standard_normal(4), rng.standard_normal((2, 4))]
    intercepts = [problem.no_intercept() for problem in problems]
    products, passes = [], []
    times, evaluate = MemoryData.times, MemoryData.evaluate
    monkeypatch.setattr(MemoryData, "times", lambda data, W: products.append(W.shape) or times(data, W))
    monkeypatch.setattr(
        MemoryData, "evaluate", lambda data, W, *more: passes.append(W.shape) or evaluate(data, W, *more)
    )
    together = certificates.certify_models(problems, models, intercepts)
    by_dual = certificates.certify_duals(problems, [pair.alpha for pair in together])
    assert (passes, products) == ([(6, 4)], [(4, 6)])
    for problem, w, pair, dual in zip(problems, models, together, by_dual, strict=True):
        assert pair.certificate.primal == pytest.approx(problem.primal(w), rel=1e-13)
        assert pair.certificate.dual == pytest.approx(problem.dual(problem.alpha_of(w)), rel=1e-12)
        assert dual.certificate.dual == pytest.approx(pair.certificate.dual, rel=1e-12)
        assert dual.certificate.primal == pytest.approx(problem.primal(problem.w_of(pair.alpha)), rel=1e-12)
        assert isinstance(dual, CertifiedPair)
        assert np.shape(dual.intercept) == np.shape(pair.intercept)


def test_an_unweighted_softmax_is_the_weighted_one_with_ones():
    problem = make_problem(losses.Softmax(4), n=40, d=3, offset=True, fit_intercept=True)
    ones = replace(problem, sample_weight=np.ones(40))
    W = np.random.default_rng(0).standard_normal((4, 3))
    ours, theirs = problem.certify(50.0 * W), ones.certify(50.0 * W)
    assert (ours.primal, ours.dual) == pytest.approx((theirs.primal, theirs.dual), rel=1e-12)
    Z = problem.X @ W.T
    np.testing.assert_allclose(problem.row_couplings(Z), ones.row_couplings(Z), rtol=1e-14)
    # A row of Σ q_kl (e_k − e_l)(e_k − e_l)ᵀ has the diagonal p_k(1 − p_k): the couplings of a class add up to it.
    pairs = [(k, other) for k in range(4) for other in range(k + 1, 4)]
    touching = np.array([[k in pair for pair in pairs] for k in range(4)], dtype=float)
    np.testing.assert_allclose(problem.row_couplings(Z) @ touching.T, problem.row_curvature(Z), rtol=1e-12)


def test_a_loss_that_overrides_one_function_of_another_is_certified_by_its_own():
    class Raised(losses.Logistic):
        """The logistic loss plus one."""

        def value(self, z, y):
            return super().value(z, y) + 1.0

        def conjugate_inside(self, u, y):
            return super().conjugate_inside(u, y) - 1.0

    plain = make_problem(losses.Logistic(), n=50)
    raised, w = replace(plain, loss=Raised()), np.full(plain.d, 0.1)
    one, other = plain.certify(w), raised.certify(w)
    assert other.primal == pytest.approx(one.primal + 1.0, rel=1e-14)
    assert other.dual == pytest.approx(one.dual + 1.0, rel=1e-14)
    z, y = raised.margins(w), raised.y
    np.testing.assert_array_equal(raised.loss.value_and_derivative(z, y)[1], plain.loss.derivative(z, y))
