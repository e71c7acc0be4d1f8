"""Newton's method on sparse rows with few features works on the stored entries, in one call."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.memory import MemoryData
from dualnewton.objective.certificates import certify_pairs
from dualnewton.planning.tuning import DEFAULT
from dualnewton.run import loop
from dualnewton.solvers.crossovers import USUAL
from dualnewton.solvers.direct import newton
from dualnewton.solvers.direct.block import Block, Limits
from tuned import GENERAL

N, D = 4000, 90
RNG = np.random.default_rng(3)
X = sp.random_array((N, D), density=0.1, rng=RNG, data_sampler=RNG.standard_normal, format="csr")
SCORE = X @ RNG.standard_normal(D) + RNG.standard_normal(N) + 3.0
WEIGHTS = RNG.uniform(0.0, 2.0, N) * (RNG.random(N) < 0.9)
SINGLE = sp.csr_array(X.astype(np.float32))


def solved_as_stored(problem, monkeypatch):
    """Solve by one call of the direct solver, without a dense copy of the rows."""
    with monkeypatch.context() as alone:
        alone.setattr(Block, "rows", property(lambda _: pytest.fail("sparse rows were made dense")))
        alone.setattr(loop, "_drive", lambda *_: pytest.fail("the loop was started"))
        found = dn.solve(problem, tol=1e-10)
    assert found.plan.family == "stored"
    assert found.converged
    return found


@pytest.mark.parametrize("matrix", [X, SINGLE])
@pytest.mark.parametrize("penalty", [None, np.linspace(1.0, 4.0, D)])
def test_it_finds_what_the_loop_finds_without_a_dense_copy(matrix, penalty, monkeypatch):
    for weights, offset, free in itertools.product((None, WEIGHTS), (None, 0.3 * SCORE), (False, True)):
        problem = dn.Problem(
            matrix,
            SCORE,
            losses.Squared(),
            regularizer=regularizers.L2(penalty),
            lam=1e-4,
            sample_weight=weights,
            offset=offset,
            fit_intercept=free,
        )
        found = solved_as_stored(problem, monkeypatch)
        general = dn.solve(problem, tol=1e-10, tuning=GENERAL)
        assert general.plan.family is None
        np.testing.assert_allclose(found.w, general.w, rtol=0.0, atol=1e-7 * np.abs(general.w).max())
        assert found.intercept == pytest.approx(general.intercept, rel=1e-7)


def test_one_matrix_and_three_passes_suffice(monkeypatch):
    """The step takes Xᵀα, and the certificate a product with X and one with Xᵀ."""
    seen, sums = [], MemoryData.weighted_gram
    monkeypatch.setattr(MemoryData, "weighted_gram", lambda *a, **k: seen.append(a) or sums(*a, **k))
    assert dn.solve(dn.Problem(X, SCORE, losses.Squared(), lam=1e-4), tol=1e-10).n_epochs == 2.0
    assert len(seen) == 1


def test_threads_and_a_chosen_method_leave_it_to_the_loop():
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1e-4)
    for settings in ({"n_threads": 2}, {"method": "newton"}):
        assert dn.plan(problem, **settings).family is None


def test_rows_with_many_pairs_of_entries_and_several_models_are_left_to_other_methods():
    full = sp.csr_array(np.asarray(RNG.standard_normal((N, D))))
    assert dn.plan(dn.Problem(full, SCORE, losses.Squared(), lam=1e-4)).family != "stored"
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1e-4)
    assert dn.plan(problem, models=3).family != "stored"
    assert dn.plan(problem).family == "stored"


@pytest.mark.parametrize(("lam_n", "family"), [(1e5, "conjugate"), (30.0, "stored"), (0.1, "stored")])
def test_products_are_left_to_strong_penalties(lam_n, family):
    """Three to ten conjugate gradients cost less than the matrix; with 30 they took up to three times as long as it."""
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=lam_n / N)
    assert dn.plan(problem).family == family
    assert dn.solve(problem).converged


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(1.0)])
def test_products_for_losses_of_several_hessians_are_left_to_stronger_penalties(loss):
    """Their first Hessians are summed over few rows, and the number of their products is predicted too low."""
    labels, wrong, taken = (
        np.where(SCORE > 3.0, 1.0, -1.0),
        replace(DEFAULT, fewer_products=DEFAULT.few_products),
        set(),
    )
    for lam_n in 10.0 ** np.arange(0.0, 5.0, 0.25):
        problem = dn.Problem(X, labels, loss, lam=lam_n / N)
        family = dn.plan(problem).family
        assert family in ("stored", "conjugate")
        taken.add((family, dn.plan(problem, tuning=wrong).family))
    assert taken == {("stored", "stored"), ("stored", "conjugate"), ("conjugate", "conjugate")}


POINTS = {
    losses.Logistic(): np.where(SCORE > 3.0, 1.0, -1.0),
    losses.SquaredHinge(): np.where(SCORE > 3.0, 1.0, -1.0),
    losses.Huber(0.5): SCORE,
    losses.Poisson(): np.random.default_rng(4).poisson(np.exp(0.2 * SCORE)).astype(float),
}


@pytest.mark.parametrize("matrix", [X, SINGLE])
@pytest.mark.parametrize("loss", POINTS)
def test_losses_that_need_several_steps_have_the_solution_of_the_loop(loss, matrix, monkeypatch):
    for weights, offset, free in ((None, None, False), (None, None, True), (WEIGHTS, 0.1 * SCORE, True)):
        problem = dn.Problem(
            matrix, POINTS[loss], loss, lam=1e-4, sample_weight=weights, offset=offset, fit_intercept=free
        )
        found = solved_as_stored(problem, monkeypatch)
        general = dn.solve(problem, tol=1e-10, tuning=GENERAL)
        np.testing.assert_allclose(found.w, general.w, rtol=0.0, atol=1e-4 * np.abs(general.w).max())


def sums_of(problem, monkeypatch):
    """The numbers of rows of all Gram matrices of a fit."""
    seen, sums = [], MemoryData.weighted_gram
    with monkeypatch.context() as watched:
        watched.setattr(
            MemoryData, "weighted_gram", lambda self, w, *a, **k: seen.append(w.size) or sums(self, w, *a, **k)
        )
        assert dn.solve(problem, tol=1e-8).plan.family == "stored"
    return seen


def test_later_hessians_of_a_piecewise_quadratic_loss_read_the_rows_that_changed(monkeypatch):
    labels = np.where(SCORE > 3.0, 1.0, -1.0)
    _, *later = sums_of(dn.Problem(X, labels, losses.SquaredHinge(), lam=1e-4), monkeypatch)
    assert later
    assert max(later) < 0.5 * N
    assert min(later) < 0.05 * N


def test_few_rows_of_unequal_lengths_are_not_sampled(monkeypatch):
    """A sample would miss most of the long rows, such as those with rare features."""
    n = 8 * 600
    rows = sp.random_array((n, D), density=0.1, rng=np.random.default_rng(5), format="csr")
    labels = np.where(rows @ np.random.default_rng(6).standard_normal(D) > 0.0, 1.0, -1.0)
    norms = np.sqrt(rows.multiply(rows).sum(axis=1))
    for lengths, first in ((np.ones(n), n // 8), (np.resize([10.0] + 39 * [1.0], n), n)):
        scaled = sp.csr_array(sp.diags_array(lengths / norms) @ rows)
        assert sums_of(dn.Problem(scaled, labels, losses.Logistic(), lam=1e-6), monkeypatch)[0] == first


def test_hessians_that_cost_many_passes_are_left_to_other_methods():
    wide = sp.random_array((N, 800), density=0.01, rng=RNG, format="csr")
    labels = np.where(SCORE > 3.0, 1.0, -1.0)
    assert dn.plan(dn.Problem(wide, labels, losses.Logistic(), lam=1e-4)).family != "stored"
    assert dn.plan(dn.Problem(X, labels, losses.Logistic(), lam=1e-4)).family == "stored"


@pytest.mark.parametrize(
    ("loss", "tol"), [(losses.Poisson(), 1e-2), (losses.Poisson(), 3e-8), (losses.Logistic(), 1e-8)]
)
@pytest.mark.parametrize("most", [0.0, np.inf])
def test_rows_in_the_order_of_their_lengths_keep_their_dual_values(loss, tol, most):
    """Rows are sorted for the steps; a dual point that is not −φ′ at the end is returned at the places of the rows."""
    problem = dn.Problem(X, POINTS[loss], loss, lam=1e-4)
    block = Block(problem.data, replace(USUAL, sorted_entries=most))
    found = newton.solve(problem, block, None, Limits(tol), as_stored=True)
    assert found.alpha is not None
    (pair,) = certify_pairs([problem], [found.w], [0.0], [found.alpha])
    assert pair.certificate.relative_gap <= tol


def test_curvature_and_changed_rows_are_computed_once_at_each_point(monkeypatch):
    """The cost of a Hessian is predicted at the point where it is then summed."""
    labels, seen = np.where(SCORE > 3.0, 1.0, -1.0), []
    one, changed = losses.SquaredHinge.second_derivative, MemoryData.changed
    with monkeypatch.context() as watched:
        watched.setattr(losses.SquaredHinge, "second_derivative", lambda *a: seen.append(a[1]) or one(*a))
        watched.setattr(MemoryData, "changed", lambda *a: seen.append(a[1]) or changed(*a))
        assert dn.solve(dn.Problem(X, labels, losses.SquaredHinge(), lam=1e-4), tol=1e-8).plan.family == "stored"
    assert len({id(each) for each in seen}) == len(seen) > 4
