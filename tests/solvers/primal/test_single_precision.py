"""Curvature by products in single precision: only where no direction can tell the difference, and then to the same model."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import MemoryData
from dualnewton.planning.sketching import Sketching
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.primal import single_precision
from dualnewton.solvers.primal.curvature import ConjugateGradients
from dualnewton.solvers.primal.newton import Descent
from dualnewton.solvers.primal.sketching import Sketches
from tuned import tuned

N, D = 1500, 60
ALWAYS, NEVER = tuned(single_products=0.0), tuned(single_products=np.inf)
RNG = np.random.default_rng(11)
X = RNG.standard_normal((N, D))
Y = np.sign(X @ RNG.standard_normal(D) + 3.0 * RNG.standard_normal(N))


class Told(MemoryData):
    """Data that remember which precision was asked of each sketch."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.singles = []

    def weighted_gram(self, weights, indices=None, *, single=False, **options):
        self.singles.append(single)
        return super().weighted_gram(weights, indices, single=single, **options)


def precision(X, ridge, size, weights=None, tuning=DEFAULT):
    data = Told(X)
    weights = np.ones(len(X)) if weights is None else weights
    Sketches(data, np.full(X.shape[1], ridge), Sketching.of(data, tuning)).at(weights, size, np.random.default_rng(0))
    return data.singles


def test_it_is_used_where_the_ridge_outweighs_its_noise():
    assert precision(X, 1.0, N, tuning=ALWAYS) == [True]
    assert precision(X, 1e-4, N, tuning=ALWAYS) == [False]
    assert precision(X, 1.0, 1200, tuning=ALWAYS) == [True]
    # A sketch bears more.
    at_the_limit = single_precision.SINGLE * np.sqrt(D) * N / single_precision.EXACT / 3.0
    assert precision(X, at_the_limit, N, tuning=ALWAYS) == [False]
    assert precision(X, at_the_limit, 1200, tuning=ALWAYS) == [True]


def test_it_is_not_used_where_a_feature_is_large_or_the_work_small():
    large = X.copy()
    large[:, 7] *= 1e8
    assert precision(large, 1.0, N) == [False]
    assert precision(X[:500], 1.0, 500) == [False]


@pytest.mark.parametrize("method", ["newton", "ihs"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array, np.float32], ids=["dense", "csr", "float32"])
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Squared(), losses.SquaredHinge()], ids=repr)
@pytest.mark.parametrize("intercept", [False, True])
def test_the_model_is_that_of_double_precision(method, storage, loss, intercept):
    problem = dn.Problem(storage(X), Y, loss, lam=3.0 / N, fit_intercept=intercept)
    single = dn.solve(problem, method=method, tol=1e-12, random_state=0)
    double = dn.solve(problem, method=method, tol=1e-12, random_state=0, tuning=NEVER)
    assert single.status is double.status is dn.Status.CONVERGED
    np.testing.assert_allclose(single.w, double.w, rtol=1e-6, atol=1e-7)
    assert single.n_epochs <= double.n_epochs + 3.0


@pytest.mark.parametrize("lam", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Squared(), losses.SquaredHinge()], ids=repr)
def test_collinear_features_are_no_harder(lam, loss):
    """Where features depend on each other, some directions have no curvature but the ridge: where noise would be seen first."""
    twice = np.hstack([X, X[:, ::-1] + 1e-9 * RNG.standard_normal(X.shape), np.ones((N, 1))])
    problem = dn.Problem(twice, Y, loss, lam=lam / N)
    single = dn.solve(problem, method="newton", tol=1e-10, random_state=0)
    double = dn.solve(problem, method="newton", tol=1e-10, random_state=0, tuning=NEVER)
    assert single.status is double.status is dn.Status.CONVERGED
    assert single.n_epochs <= double.n_epochs + 4.0


@pytest.mark.parametrize(
    ("lam", "expected"),
    [(1.0, [True]), (0.01, [True]), (1e-6, [True])],
    ids=["exact enough", "corrected by conjugate gradients", "corrected since the features are independent"],
)
def test_least_squares_sum_one_matrix_whatever_the_precision_that_the_penalty_allows(lam, expected):
    told = Told(X)
    problem = dn.Problem(told, X @ np.ones(D) + Y, losses.Squared(), lam=lam / N)
    decisions, data = Sketching.of(told, tuned(single_products=0.0, call=0.0)), problem.data
    descent = Descent([problem], data, [(np.zeros(D), 0.0)], tol=1e-7, sketch=N, newton=True, decisions=decisions)
    descent.step(np.random.default_rng(0), np.inf, np.inf)
    assert data.singles == expected
    assert problem.certify(descent.point(0).w).relative_gap <= 1e-7


def test_sums_over_pairs_of_entries_have_no_single_precision():
    rows = sp.random_array((4000, 200), density=0.02, format="csr", random_state=0)
    assert not Sketching.of(MemoryData(rows)).considers_single(4000)
    assert Sketching.of(MemoryData(rows.toarray())).considers_single(4000)


@pytest.mark.parametrize("scale", [1e-25, 1e18, 1e30])
def test_sums_beyond_the_range_of_single_precision_are_not_tried(scale):
    """The scale of X and λ changes the model by a factor and nothing else; in float32 the sums would overflow or vanish."""
    problem = dn.Problem(scale * X, Y, losses.Squared(), lam=1e-3 * scale**2)
    result = dn.solve(problem, method="newton", tol=1e-6, tuning=ALWAYS)
    assert result.certificate.relative_gap <= 1e-6
    usual = dn.solve(dn.Problem(X, Y, losses.Squared(), lam=1e-3), method="newton", tol=1e-6, tuning=ALWAYS)
    assert result.certificate.primal == pytest.approx(usual.certificate.primal, rel=1e-5)


@pytest.fixture
def asked(monkeypatch):
    """The precision of each Gram matrix that a run asks for."""
    found, usual = [], MemoryData.weighted_gram

    def told(self, weights, indices=None, *, single=False, **options):
        found.append(single)
        return usual(self, weights, indices, single=single, **options)

    monkeypatch.setattr(MemoryData, "weighted_gram", told)
    return found


def solved(rows, y, tol=1e-6):
    problem = dn.Problem(rows, y, losses.Squared(), lam=1.0 / len(y), fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=tol)
    assert result.converged
    return result


def test_features_of_different_scales_are_summed_in_single_precision_and_corrected(asked):
    """The ridge is far below the noise of single precision there; independent features need it not."""
    rng = np.random.default_rng(2)
    rows = np.exp(rng.standard_normal((3000, 500))) * 10.0 ** rng.integers(-2, 5, 500)
    y = rows @ (rng.standard_normal(500) / rows.std(axis=0)) + rng.standard_normal(3000)
    w = solved(rows, y).w
    assert asked == [True]
    centred = rows - rows.mean(axis=0)
    scale = rows.std(axis=0)
    exact = np.linalg.lstsq(np.vstack([centred / scale, np.diag(1.0 / scale)]), np.append(y - y.mean(), np.zeros(500)))
    np.testing.assert_allclose(w * scale, exact[0], atol=1e-3)


@pytest.mark.parametrize("mean", [300.0, 2000.0])
def test_features_that_are_nearly_constant_are_not_left_to_single_precision(mean, asked):
    """Its noise makes the matrix indefinite: no number of steps with it, corrected or not, would end."""
    rng = np.random.default_rng(2)
    solved(rng.standard_normal((3000, 500)) + mean, rng.standard_normal(3000))
    assert not asked[-1]


def test_a_matrix_in_single_precision_near_its_limit_is_corrected_instead_of_computed_again(asked):
    """Features of few factors, as in spectra, have a diagonal of n times their number."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((4000, 70)) @ rng.standard_normal((70, 700)) + 0.01 * rng.standard_normal((4000, 700))
    solved(rows, rows @ rng.standard_normal(700) / rows.std() + rng.standard_normal(4000), tol=1e-4)
    assert asked == [True]


def test_corrections_that_fail_are_followed_by_double_precision(asked, monkeypatch):
    """Conjugate gradients may need more products than were predicted: the next step has the exact matrix."""
    rng = np.random.default_rng(2)
    rows = np.exp(rng.standard_normal((3000, 500))) * 10.0 ** rng.integers(-2, 5, 500)
    monkeypatch.setattr(ConjugateGradients, "solve", lambda self, g: 0.5 * self.near.solve(g))
    solved(rows, rng.standard_normal(3000))
    assert asked == [True, False]
