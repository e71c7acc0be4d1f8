"""Models that are close together share their curvature, others do not, and all of them converge."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.costs import Costs
from dualnewton.planning.sketching import Sketching, SketchPolicy
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.primal import shared_curvature
from dualnewton.solvers.primal import sketching as hessians
from tuned import tuned

N, D = 600, 12


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    return rng, X, np.where(X @ rng.standard_normal(D) + 0.5 * rng.standard_normal(N) > 0.0, 1.0, -1.0)


def folds(X, y, loss, count=5):
    for k in range(count):
        yield dn.Problem(X, y, loss, lam=1.0 / N, sample_weight=np.where(np.arange(N) % count == k, 0.0, 1.0))


@pytest.fixture
def bought(monkeypatch):
    """The weights of every curvature that was made."""
    made, given = [], hessians.Sketches.multiples
    monkeypatch.setattr(
        hessians.Sketches, "multiples", lambda self, w, *more: (made.append(w), given(self, w, *more))[1]
    )
    return made


def agree_with_their_own_fits(problems, results, atol=1e-5):
    for problem, result in zip(problems, results, strict=True):
        assert result.converged
        np.testing.assert_allclose(result.w, dn.solve(problem, tol=1e-13).w, atol=atol)


def test_outputs_of_least_squares_have_one_hessian(bought):
    rng, X, _ = data()
    problems = [dn.Problem(X, rng.standard_normal(N), losses.Squared(), lam=1.0 / N) for _ in range(6)]
    results = dn.solve_many(problems, method="newton", tol=1e-12)
    assert len(bought) == 1
    agree_with_their_own_fits(problems, results)


def test_other_penalties_have_their_own(bought):
    rng, X, _ = data()
    y = rng.standard_normal(N)
    problems = [dn.Problem(X, y, losses.Squared(), lam=lam / N) for lam in (0.1, 1.0, 1.0, 10.0)]
    results = dn.solve_many(problems, method="newton", tol=1e-12)
    assert len(bought) == 3
    agree_with_their_own_fits(problems, results)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge()])
def test_folds_share_sketches(loss, bought):
    _, X, y = data()
    problems = list(folds(X, y, loss))
    results = dn.solve_many(problems, method="ihs", tau=N, tol=1e-11)
    together = len(bought)
    agree_with_their_own_fits(problems, results)
    bought.clear()
    for problem in problems:
        dn.solve(problem, method="ihs", tau=N, tol=1e-11)
    assert together < 0.8 * len(bought)


def test_newton_does_not_mix_folds(bought):
    _, X, y = data()
    problems = list(folds(X, y, losses.Logistic()))
    dn.solve_many(problems, method="newton", tol=1e-9)
    assert all(np.count_nonzero(weights) == N - N // 5 for weights in bought)


def test_classes_part_as_their_curvatures_do(bought):
    rng, X, _ = data()
    kinds = np.argmax(X[:, :3] * [3.0, 1.0, 0.3] + rng.standard_normal((N, 3)), axis=1)
    problems = [dn.Problem(X, np.where(kinds == k, 1.0, -1.0), losses.Logistic(), lam=0.01 / N) for k in range(3)]
    results = dn.solve_many(problems, method="newton", tol=1e-11)
    agree_with_their_own_fits(problems, results)
    # At w = 0 all have the same curvature, and later each its own.
    assert np.ptp(bought[0]) == 0.0
    assert len(bought) >= 1 + 3


def unbalanced_classes(n=N):
    """Classes of very different sizes, on correlated features."""
    rng = np.random.default_rng(3)
    X = np.cumsum(rng.standard_normal((n, D)), axis=1)
    return X, rng.choice(4, n, p=[0.7, 0.2, 0.07, 0.03])


def test_classes_of_softmax_share_one_matrix_at_the_start(bought):
    """Each row has the class frequencies as its probabilities there: the weights of a class are multiples of another's."""
    X, y = unbalanced_classes()
    problem = dn.MultinomialProblem(X, y, lam=1.0 / N, fit_intercept=True)
    result = dn.solve(problem, method="ihs", tau=N // 2, tol=1e-8, tuning=tuned(renewal_margin=np.inf))
    assert result.converged
    assert len(bought) == 1


@pytest.mark.parametrize("size", [0, D // 2, 3 * D, N])
@pytest.mark.parametrize("intercept", [False, True])
def test_multiples_are_the_curvatures_of_multiplied_weights(size, intercept):
    X, _ = unbalanced_classes()
    problem = dn.Problem(X, np.ones(N), losses.Logistic(), lam=1.0 / N)
    ridge, weights = np.full(D + intercept, 0.1), np.random.default_rng(0).random(N)
    ridge[D:] = 0.0
    factors, g = (1.0, 0.25, 1.0, 3.0), np.ones(ridge.size)

    def sketches():
        return hessians.Sketches(problem.data, ridge, Sketching.of(problem.data))

    found = sketches().multiples(weights, factors, size, np.random.default_rng(5))
    for factor, curvature in zip(factors, found, strict=True):
        alone = sketches().at(factor * weights, size, np.random.default_rng(5))
        np.testing.assert_allclose(curvature.solve(g), alone.solve(g), rtol=1e-9)


def test_weights_that_are_no_multiples_are_noticed():
    weights = np.random.default_rng(0).random((50, 1)) * [1.0, 0.5, 2.0]
    assert shared_curvature._multiples_of_first(weights) == pytest.approx([1.0, 0.5, 2.0])
    weights[7, 2] *= 1.0 + 1e-4
    assert shared_curvature._multiples_of_first(weights) is None
    assert shared_curvature._multiples_of_first(np.zeros((5, 2))) is None


def test_slow_steps_of_softmax_get_new_curvature(bought):
    """Rare classes: their probabilities end far from those of the start, whose curvature takes several times the steps."""
    rng, K, d = np.random.default_rng(0), 8, 40
    y = rng.choice(K, N, p=0.5 ** np.arange(K) / (2.0 - 0.5 ** (K - 1)))
    X = rng.standard_normal((N, d)) + rng.standard_normal((K, d))[y] * 2.0 / np.sqrt(d)
    problem = dn.MultinomialProblem(X, y, lam=1e-2 / N, fit_intercept=True)

    def steps(**options):
        bought.clear()
        result = dn.solve(problem, method="ihs", tau=N, tol=1e-6, **options)
        assert result.converged
        return result.trace.rows[-1].epoch

    with_new = steps()
    assert len(bought) > K  # one at the start, then one for each class
    assert steps(tuning=tuned(renewal_margin=np.inf)) > 2.0 * with_new
    assert len(bought) == 1


def test_new_curvature_of_softmax_has_the_rows_whose_cost_was_compared():
    """Sparse rows, 5000 features: a noisy sketch of 1000 rows is renewed for 10 passes, and not doubled for 400."""
    costs = Costs.of(Profile(100_000, 5_000, 2_000_000, 2e7, True, 8), DEFAULT).with_columns(4)
    policy = SketchPolicy(costs, 1e-4, 1000, newton=False)
    policy.ask_for(1000)
    policy.begin(1.0, 100_000)
    policy.watch(0.99, 1.0, 1.0)
    assert policy.next_rows > 2000
    while not policy.wants_another(1.0, 1.0, 1.0):
        policy.watch(0.99 * policy.state.decrements[-1], 1.0, 1.0)
    paid = costs.tuning.renewal_margin * costs.columns * costs.with_columns(1).sketch(policy.next_rows)
    assert policy.next_rows == 1000
    assert paid <= policy.age * costs.data_pass
