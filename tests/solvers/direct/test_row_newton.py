"""Steps on a variable for each row, for smooth losses with fewer examples than features."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.solvers.direct import newton, row_newton, wide
from dualnewton.solvers.direct.block import Block, Limits
from tuned import DIRECT, GENERAL, tuned

N, D = 60, 600
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.5)
SCORE = X[:, :20] @ RNG.standard_normal(20) / 3.0 + 0.3 * RNG.standard_normal(N)
SIGNS, COUNTS = np.where(SCORE > 0.3, 1.0, -1.0), 1.0 + np.floor(np.exp(np.clip(SCORE, -2.0, 2.0)))
WEIGHTS = RNG.uniform(0.2, 2.0, N)
SCALES = np.geomspace(1e-3, 1e3, D)[RNG.permutation(D)]

CASES = [
    (losses.Logistic(), SIGNS),
    (losses.Poisson(), COUNTS),
    (losses.Poisson(), COUNTS - 1.0),
    (losses.Gamma(), COUNTS),
    (losses.Tweedie(1.5), COUNTS),
]
STORAGES = {"dense": np.asarray, "float32": np.float32, "csr": sp.csr_array}


def solved(problem, tol, most=200):
    block = Block(problem.data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_newton, "_products", counted := Counted(row_newton._products))
        found, done = row_newton.solve(problem, block, Limits(tol), most)
    return found, done, counted


class Counted:
    """Counts the products β ↦ Kβ, and remembers the type of each function that computes them."""

    def __init__(self, made):
        self.made, self.products, self.kinds = made, 0, []

    def __call__(self, rows, penalty, kind):
        product = self.made(rows, penalty, kind)
        self.kinds.append(kind)

        def counting(beta):
            self.products += 1
            return product(beta)

        return counting


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("loss", "y"), CASES, ids=lambda value: type(value).__name__)
def test_the_model_and_its_dual_point_have_the_gap_that_is_wanted(loss, y, storage):
    parts = itertools.product((None, WEIGHTS), (None, 0.2 * SCORE), (False, True), (None, np.linspace(1.0, 4.0, D)))
    for weights, offset, fit_intercept, penalty in parts:
        more = {"sample_weight": weights, "offset": offset, "fit_intercept": fit_intercept}
        problem = dn.Problem(STORAGES[storage](X), y, loss, regularizer=regularizers.L2(penalty), lam=1.0, **more)
        found, done, _ = solved(problem, 1e-6)
        assert done
        (pair,) = found.point().certified([problem], [found.point()], 1e-6)
        assert pair.certificate.relative_gap <= 1e-6
        general = dn.solve(problem, tol=1e-9, tuning=GENERAL)
        assert pair.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-6)


@pytest.mark.parametrize(("case", "most"), [(1, 16), (3, 12), (4, 11)])
def test_features_of_different_scales_take_few_products(case, most):
    """The gap of (w, −φ′) contains K/λn, which is 10⁸ here: to reduce that one takes twice as many products."""
    loss, y = CASES[case]
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((200, 5000)) * 10.0 ** rng.uniform(-3.0, 3.0, 5000)
    problem = dn.Problem(rows, np.resize(y, 200), loss, lam=1.0, fit_intercept=True)
    with one_blas_thread:  # as in a run: the last bits of products depend on the threads of BLAS
        found, done, counted = solved(problem, 1e-4)
    assert done
    assert counted.products <= most
    assert counted.kinds == [np.float32]
    result = dn.solve(problem, tol=1e-4)
    assert np.array_equal(result.w, found.w)
    assert result.certificate.relative_gap <= 1e-4


def test_products_are_in_float64_where_the_tolerance_needs_them():
    problem = dn.Problem(X, COUNTS, losses.Poisson(), lam=1.0, fit_intercept=True)
    found, done, counted = solved(problem, 1e-12)
    assert done
    assert counted.kinds == [np.float32, np.float64]
    assert problem.certify(found.w, found.intercept).relative_gap <= 1e-11
    assert solved(problem, 1e-4)[2].kinds == [np.float32]


@pytest.mark.parametrize("scale", [1e-30, 1e-8, 1e8, 1e30])
def test_units_of_the_features_change_no_step(scale):
    """λ in the unit that the features have: α is the same, while β and K are beyond the range of float32."""
    plain = dn.Problem(X, SIGNS, losses.Logistic(), lam=0.1, fit_intercept=True)
    scaled = dn.Problem(scale * X, SIGNS, losses.Logistic(), lam=0.1 * scale**2, fit_intercept=True)
    (found, done, counted), (other, also, same) = solved(plain, 1e-6), solved(scaled, 1e-6)
    assert done
    assert also
    assert counted.products == same.products
    np.testing.assert_allclose(other.alpha, found.alpha, rtol=1e-4)


def test_rows_that_nearly_depend_on_each_other_are_left_for_their_factor():
    rows = np.vstack([X[:30], X[:30] + 1e-3 * SCALES * X[30:]])
    problem = dn.Problem(rows, SIGNS, losses.Logistic(), lam=1e-6, fit_intercept=True)
    found, done, counted = solved(problem, 1e-6, 40)
    assert not done
    assert found.alpha is None
    assert counted.products <= 40
    block = Block(problem.data)
    exact = wide.solve(problem, block, None, Limits(1e-6, 100), inner=newton.solve, directions=10)
    assert block.cache
    assert problem.certify(exact.w, exact.intercept).relative_gap <= 1e-6


def test_examples_of_weight_zero_are_solved_without_these_steps(monkeypatch):
    monkeypatch.setattr(row_newton, "solve", None)
    weights = WEIGHTS * (np.arange(N) > 3)
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=0.1, sample_weight=weights)
    found = wide.solve(problem, Block(problem.data), None, Limits(1e-6), inner=newton.solve, directions=20)
    assert problem.certify(found.w, found.intercept).relative_gap <= 1e-6


@pytest.mark.parametrize("callback", [None, lambda _: None], ids=["at once", "in the loop"])
def test_models_with_and_without_a_dual_point_are_certified_together(callback, monkeypatch):
    """Of two models, one is left for the factor of all rows, which returns no dual point."""
    problems = [dn.Problem(X, SIGNS, losses.Logistic(), lam=lam, fit_intercept=True) for lam in (0.1, 1e-2)]
    points, solve = [], wide.row_newton.solve

    def some(problem, *rest):
        found, done = solve(problem, *rest)
        points.append(done)
        return (found, done) if problem.lam == 0.1 else (found._replace(alpha=None), False)

    monkeypatch.setattr(row_newton, "solve", some)
    tuning = tuned(fewest_directions=1, **DIRECT)
    for order in (problems, problems[::-1]):
        results = dn.solve_many(order, tol=1e-6, callback=callback, tuning=tuning)
        assert all(result.certificate.relative_gap <= 1e-6 for result in results)
    assert len(points) == 3  # where the factor was computed first, the other model uses it
