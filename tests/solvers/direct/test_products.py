"""Small sparse data: conjugate gradients and dual rounds in one call find what the general methods find, in every storage."""

import itertools
import math
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.matrix import memory
from dualnewton.objective.alike import like
from dualnewton.planning.planner import kinked_plans
from dualnewton.planning.small_products import _without_products, multiplies_entries, products_cost
from dualnewton.planning.tuning import DEFAULT
from dualnewton.run import loop
from dualnewton.solvers.direct import conjugate, descent, rounds
from dualnewton.solvers.direct.block import Block, Limits
from dualnewton.solvers.direct.risk import Risk
from dualnewton.solvers.protocol import PrimalPoint
from tables import load
from tuned import GENERAL, tuned

N, D = 200, 700
RNG = np.random.default_rng(5)
FULL = np.where(RNG.random((N, D)) < 0.03, np.round(RNG.random((N, D)), 2) + 0.25, 0.0)
FULL[:, 0] = 1.0  # a frequent feature
FULL[3], FULL[:, 7] = 0.0, 0.0
X = sp.csr_array(FULL)
SCORE = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
SIGNS = np.where(SCORE > 0.3, 1.0, -1.0)
LEVELS = np.digitize(SCORE, np.quantile(SCORE, [0.3, 0.6]))
COUNTS = np.round(np.exp(SCORE / SCORE.std()))
WEIGHTS = RNG.uniform(0.0, 2.0, N) * (RNG.random(N) < 0.9)


def unsorted(matrix):
    """The same matrix with the entries of each row in reverse order."""
    parts = [np.arange(low, high)[::-1] for low, high in itertools.pairwise(matrix.indptr)]
    order = np.concatenate(parts)
    return sp.csr_array((matrix.data[order], matrix.indices[order], matrix.indptr), shape=matrix.shape)


def with_zeros(matrix):
    """The same matrix with stored zeros."""
    some = matrix.tocoo()
    rows, columns = np.append(some.row, [3, 5]), np.append(some.col, [9, 7])
    return sp.csr_array((np.append(some.data, [0.0, 0.0]), (rows, columns)), shape=matrix.shape)


def long_indices(matrix):
    """The same matrix with indices of 64 bits."""
    parts = matrix.data, matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
    return sp.csr_array(parts, shape=matrix.shape)


STORAGES = {
    "csr": lambda matrix: matrix,
    "csc": sp.csc_array,
    "float32": lambda matrix: matrix.astype(np.float32),
    "long indices": long_indices,
    "unsorted": unsorted,
    "stored zeros": with_zeros,
}
SMOOTH = [
    (losses.Squared(), SCORE),
    (losses.Logistic(), SIGNS),
    (losses.SquaredHinge(), SIGNS),
    (losses.Huber(0.5), SCORE),
    (losses.Poisson(), COUNTS),
    (losses.Softmax(3), LEVELS),
]
EITHER = [False, True]
CELLS = all_pairs(itertools.product(range(len(SMOOTH)), [1e-2, 1e-3]), STORAGES, EITHER, EITHER, EITHER, EITHER)
PRODUCTS = tuned(product_entries=1 << 19, small_entries=1 << 18)
"""Products also for losses with a kink in φ′, as if the data were smaller; of direct solvers, these alone."""


@pytest.mark.parametrize(("model", "storage", "fit_intercept", "scaled", "weights", "offset"), CELLS, ids=str)
def test_conjugate_gradients_find_what_the_general_method_finds(model, storage, fit_intercept, scaled, weights, offset):
    """Every loss with every λ meets every storage and every other part of a problem, and these meet each other."""
    (loss, y), lam = SMOOTH[model[0]], model[1]
    several = loss.columns > 1
    shift = 0.3 * SCORE / SCORE.std()
    problem = dn.Problem(
        STORAGES[storage](X),
        y,
        loss,
        regularizer=regularizers.L2(np.linspace(1.0, 4.0, D) if scaled and not several else None),
        lam=lam,
        sample_weight=WEIGHTS if weights else None,
        offset=(np.column_stack([shift, -shift, 0.0 * shift]) if several else shift) if offset else None,
        fit_intercept=fit_intercept,
    )
    found = dn.solve(problem, tol=1e-9, tuning=PRODUCTS)
    assert found.plan.family == "conjugate"
    assert "conjugate gradients" in found.plan.reason
    assert found.certificate.relative_gap <= 1e-9
    general = dn.solve(problem, tol=1e-9, tuning=GENERAL)
    assert general.plan.family is None
    assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=4e-9)


@pytest.mark.parametrize(("loss", "y"), SMOOTH, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("fit_intercept", EITHER)
def test_a_system_solved_to_rounding_is_the_newton_step_of_the_dense_hessian(loss, y, fit_intercept):
    problem = dn.Problem(X, y, loss, lam=1e-2, sample_weight=WEIGHTS, fit_intercept=fit_intercept)
    block = Block(problem.data)
    risk, dense = Risk.of(problem, block, as_stored=True), Risk.of(problem, block)
    x = 0.1 * np.random.default_rng(0).standard_normal(risk.ridge.size)
    at = risk.at(x, risk.margins(x))
    np.testing.assert_allclose(at.gradient, dense.at(x, dense.margins(x)).gradient, rtol=1e-10, atol=1e-10)
    way = conjugate.System.of(risk, at, block, None).solved(1e-26 * risk.gap(at), 0.0, 1000)
    H = dense.hessian(at.margins)
    H.ravel()[:: len(H) + 1] += risk.ridge
    exact = np.linalg.solve(H, -at.gradient)
    if loss.columns > 1 and fit_intercept:  # a number that is added to all intercepts changes no loss
        for step in (way.x, exact):
            step.reshape(3, -1)[:, -1] -= step.reshape(3, -1)[:, -1].mean()
    np.testing.assert_allclose(way.x, exact, rtol=1e-6, atol=1e-8 * np.abs(exact).max())
    np.testing.assert_allclose(way.margins, risk.margins(way.x), atol=1e-6 * np.abs(exact).max())


def test_a_deadline_ends_a_system():
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1e-6, fit_intercept=True)
    found = conjugate.solve(problem, Block(problem.data), None, Limits(1e-9, deadline=time.perf_counter()))
    assert found.steps <= 1
    assert not found.w.any()


def test_least_squares_takes_one_system_and_the_gap_that_it_expects():
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1e-2, fit_intercept=True)
    found = conjugate.solve(problem, Block(problem.data), None, Limits(1e-4, 1))
    assert problem.certify(found.w, found.intercept).relative_gap <= 1e-4


def test_a_good_start_takes_no_step_and_is_certified_once(monkeypatch):
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-2, fit_intercept=True)
    start = dn.solve(problem, tol=1e-8)
    assert start.plan.family == "conjugate"
    monkeypatch.setattr(loop.Run, "start", None)  # the loop would certify the start
    again = dn.solve(problem, tol=1e-6, warm_start=start)
    assert again.n_epochs == 0.0
    np.testing.assert_array_equal(again.w, start.w)
    near = dn.Problem(X, SIGNS, losses.Logistic(), lam=0.9e-2, fit_intercept=True)
    cold, warm = dn.solve(near, tol=1e-6), dn.solve(near, tol=1e-6, warm_start=start)
    assert 0.0 < warm.n_epochs < cold.n_epochs


def test_a_start_of_another_shape_is_refused_as_usual():
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-2)
    start = dn.solve(dn.Problem(X[:, :500], SIGNS, losses.Logistic(), lam=1e-2))
    with pytest.raises(ValueError, match="warm_start must hold a model w of shape"):
        dn.solve(problem, warm_start=start)


# Dual rounds -------------------------------------------------------------------------------------------------------------------

KINKED = [
    (losses.Hinge(), SIGNS),
    (losses.EpsilonInsensitive(0.0), SCORE),
    (losses.EpsilonInsensitive(0.5), SCORE),
    (losses.SquaredHinge(), SIGNS),
]
ROUNDS = tuned(round_entries=1 << 17, small_entries=0)


@pytest.mark.parametrize(
    ("model", "storage", "fit_intercept", "weights"), all_pairs(range(len(KINKED)), STORAGES, EITHER, EITHER), ids=str
)
def test_rounds_in_one_call_find_what_the_general_method_finds(model, storage, fit_intercept, weights):
    loss, y = KINKED[model]
    c = WEIGHTS if weights else None
    problem = dn.Problem(STORAGES[storage](X), y, loss, lam=1.0 / N, sample_weight=c, fit_intercept=fit_intercept)
    found = dn.solve(problem, tol=1e-4, tuning=ROUNDS)
    assert found.plan.family == "rounds"
    assert (found.plan.method, found.plan.tau, found.plan.compiled) == ("sdna", 1, True)
    assert found.certificate.relative_gap <= 1e-4
    general = dn.solve(problem, tol=1e-4, tuning=GENERAL)
    assert general.plan.family is None
    assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=2e-4)


def test_rounds_that_would_take_too_long_are_given_up_and_other_methods_finish():
    """As many examples as features, and a weak penalty: the residual hardly decreases."""
    rng = np.random.default_rng(0)
    rows = sp.random_array((250, 310), density=0.1, rng=rng, format="csr")
    problem = dn.Problem(rows, rows @ rng.standard_normal(310), losses.EpsilonInsensitive(0.0), lam=1e-7)
    assert (
        rounds.solve(problem, Block(problem.data), None, Limits(1e-4)).steps <= 15
    )  # five steps of five epochs, in pairs
    assert dn.solve(problem, tol=1e-4, tuning=ROUNDS).converged


@pytest.mark.parametrize("name", ["w8a", "a9a", "phishing"])
@pytest.mark.parametrize("strength", [10.0, 30.0])
def test_the_gap_that_ends_rounds_in_one_call_is_certified(name, strength):
    """The sweep over all examples, with which they end, predicts the gap: no other method has to continue."""
    rows, labels = load(name)
    few = np.sort(np.random.default_rng(0).permutation(len(labels))[:20_000])
    problem = dn.Problem(rows[few], np.where(labels[few] > 0, 1.0, -1.0), losses.Hinge(), lam=strength / few.size)
    found = dn.solve(problem, tol=1e-4)
    assert found.converged
    assert found.plan.family == "rounds"


def test_a_method_that_is_asked_for_is_not_replaced_by_rounds_in_one_call():
    problem = dn.Problem(X, SIGNS, losses.Hinge(), lam=1.0 / N)
    assert dn.plan(problem, tuning=ROUNDS).family == "rounds"
    assert dn.plan(problem, method="sdna", tuning=ROUNDS).family is None


STRONG = [(losses.Logistic(), True), (losses.SquaredHinge(), True), (losses.Huber(1.0), False)]


@pytest.mark.parametrize(("loss", "signs"), STRONG, ids=lambda value: str(value))
@pytest.mark.parametrize("fit_intercept", EITHER)
@pytest.mark.parametrize("weights", EITHER)
def test_a_strong_penalty_on_fewer_sparse_rows_than_features_takes_rounds_in_one_call(
    loss, signs, fit_intercept, weights
):
    """The gap is estimated from some of the examples; the certificate confirms it, so that no other method continues."""
    rng = np.random.default_rng(2)
    rows = sp.random_array((2500, 4000), density=0.01, rng=rng, format="csr")
    scores = rows @ rng.standard_normal(4000) + 0.3 * rng.standard_normal(2500)
    c = rng.uniform(0.5, 2.0, 2500) if weights else None
    y = np.where(scores > 0.0, 1.0, -1.0) if signs else scores
    problem = dn.Problem(rows, y, loss, lam=4.0 / 2500, sample_weight=c, fit_intercept=fit_intercept)
    many = tuned(many_round_entries=1 << 20)
    found = dn.solve(problem, tuning=many)
    assert (found.plan.family, found.plan.method) == ("rounds", "sdna")
    assert found.converged
    general = dn.solve(problem, tol=1e-8, tuning=GENERAL)
    assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=2e-6)
    weak = dn.Problem(rows, y, loss, lam=1e-3 / 2500, sample_weight=c, fit_intercept=fit_intercept)
    assert dn.plan(weak, tuning=many).family is None


class Interpreted(losses.Logistic):
    """A loss that Numba cannot compile."""

    def derivative(self, z, y):
        return np.asarray([*map(float, super().derivative(z, y))])


def test_a_loss_that_cannot_be_compiled_takes_no_rounds_in_one_call():
    rows = sp.random_array((400, 700), density=0.02, rng=np.random.default_rng(0), format="csr")
    y = np.where(np.arange(400) % 3, 1.0, -1.0)
    many = tuned(many_round_entries=1 << 20, small_entries=0)
    assert dn.plan(dn.Problem(rows, y, losses.Logistic(), lam=0.01), tuning=many).family == "rounds"
    assert dn.plan(dn.Problem(rows, y, Interpreted(), lam=0.01), tuning=many).family is None


# The choice --------------------------------------------------------------------------------------------------------------------


def test_products_are_for_few_thin_sparse_rows():
    dense = dn.Problem(X.toarray(), SIGNS, losses.Logistic(), lam=1e-2).data
    sparse = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-2).data
    assert multiplies_entries(sparse.profile)
    assert not multiplies_entries(dense.profile)
    assert not multiplies_entries(sparse.profile, tuned(product_entries=X.nnz - 1))
    assert not multiplies_entries(dn.Problem(X[:, :60], SIGNS, losses.Logistic(), lam=1e-2).data.profile)


def test_small_data_with_few_features_take_products_where_hessians_cost_more():
    """Newton's method computes one Hessian for the squared loss, few where a sample is solved first or γ is unknown."""

    def family(n, loss):
        rows = sp.random_array((n, 45), density=0.1, rng=np.random.default_rng(0), format="csr")
        return dn.plan(dn.Problem(rows, np.where(np.arange(n) % 3, 1.0, -1.0), loss, lam=1.0 / n)).family

    assert [family(n, losses.SquaredHinge()) for n in (300, 2000, 9000)] == ["newton", "conjugate", "newton"]
    assert family(2000, losses.Logistic()) == "conjugate"
    assert family(2000, losses.Squared()) == "newton"


def test_several_classes_of_few_thin_rows_take_products_of_more_entries():
    """On 20000×50000 with 8 classes n×n matrices for each class took four times as long."""
    rows = sp.random_array((300, 700), density=0.02, rng=np.random.default_rng(0), format="csr")
    few, labels = tuned(product_entries=rows.nnz // 8 + 1), np.arange(300) % 3
    wide = dn.Problem(rows, labels, losses.Softmax(3), lam=1e-2)
    assert dn.plan(wide, tuning=few).family == "conjugate"
    assert dn.plan(dn.Problem(rows, np.sign(labels - 0.5), losses.Logistic(), lam=1e-2), tuning=few).family is None
    tall = sp.csr_array(sp.vstack([rows] * 3))
    assert not multiplies_entries(
        dn.Problem(tall, np.tile(labels, 3), losses.Softmax(3), lam=1e-2).data.profile, few, 3
    )


def test_a_weak_penalty_is_left_to_matrices():
    """The products of a system grow with λ^(−½); the Hessian of 100 features costs the same for any λ."""
    rng = np.random.default_rng(0)
    rows = sp.random_array((5000, 100), density=0.05, rng=rng, format="csr")
    y = np.where(rows @ rng.standard_normal(100) > 0.0, 1.0, -1.0)
    families = [dn.plan(dn.Problem(rows, y, losses.Logistic(), lam=lam)).family for lam in (100.0 / 5000, 1e-9)]
    assert families == ["conjugate", "stored"]


class Undeclared(losses.Hinge):
    """The hinge without its kinks, which the dual rounds need."""

    def kinks(self, y):  # noqa: ARG002
        return ()


@pytest.mark.parametrize("loss", [losses.Hinge(), Undeclared()])
def test_losses_of_many_sparse_features_are_smoothed_where_rounds_do_not_apply(loss):
    """The cost of conjugate gradients that solve smoothed losses was not a number, which would sort before all others."""
    rng = np.random.default_rng(0)
    rows = sp.random_array((4200, 4100), density=0.002, rng=rng, format="csr")
    problem = dn.Problem(rows, np.resize([1.0, -1.0], 4200), loss, lam=1.0 / 4200)
    plans = kinked_plans(problem)
    expected = [("conjugate", True)] if isinstance(loss, Undeclared) else [(None, False)]
    assert [(plan.family, plan.smoothed) for plan in plans] == expected
    assert all(math.isfinite(plan.cost) for plan in plans)


@pytest.mark.parametrize("model", [dn.Ridge(), dn.LogisticRegression(), dn.LinearSVC(), dn.LinearSVR()], ids=repr)
def test_estimators_have_the_same_model_in_every_storage(model):
    y = SIGNS if hasattr(model, "C") and model.__class__.__name__ != "LinearSVR" else SCORE
    coefs = [model.set_params(tol=1e-8).fit(to(X), y).coef_.copy() for to in (sp.csr_array, *STORAGES.values())]
    coefs.append(model.fit(X.toarray(), y).coef_)
    for each in coefs[1:]:
        np.testing.assert_allclose(each, coefs[0], atol=2e-3 * np.abs(coefs[0]).max())


def neighbours():
    """Differences of neighbouring features: the condition number of XᵀX is about d², and conjugate gradients take 120 steps."""
    d, copies = 400, 10
    X = sp.csr_array(sp.vstack([sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(d - 1, d))] * copies))
    y = np.sign(X @ np.sin(np.arange(d) / 30) + 0.05 * np.random.default_rng(0).standard_normal(X.shape[0]))
    return dn.Problem(X, y, losses.Squared(), lam=0.01 / len(y))


def test_conjugate_gradients_that_are_slow_leave_sparse_rows_to_a_hessian(monkeypatch):
    """The point where they are given up is certified once, by the loop that goes on from it."""
    points, certified = [], PrimalPoint.certified
    monkeypatch.setattr(PrimalPoint, "certified", staticmethod(lambda *args: points.append(args) or certified(*args)))
    tuning = replace(DEFAULT, quadratic_optimism=12.0, few_products=math.inf)
    result = dn.solve(neighbours(), tol=1e-6, tuning=tuning)
    assert result.certificate.relative_gap <= 1e-6
    assert result.plan.before is not None
    assert result.plan.before.family == "conjugate"
    assert result.plan.method == "newton"
    assert result.trace.rows[-1].epoch < 30
    assert len(points) == 2


def test_conjugate_gradients_that_cost_more_than_twice_the_hessian_of_a_quadratic_loss_are_not_tried():
    problem = neighbours()
    cost = products_cost(problem, DEFAULT) / _without_products(problem, DEFAULT)
    assert DEFAULT.quadratic_optimism < cost < DEFAULT.product_optimism
    plan = dn.solve(problem, tol=1e-6).plan
    assert (plan.method, plan.family, plan.before) == ("newton", "stored", None)


FOLDS = [np.where(np.arange(N) % 5 == k, 0.0, 1.0) for k in range(5)]


@pytest.mark.parametrize(("loss", "y"), [SMOOTH[1], SMOOTH[5]], ids=["two classes", "three"])
@pytest.mark.parametrize("kernels", EITHER)
def test_folds_share_products_and_find_what_each_finds_alone(loss, y, kernels, monkeypatch):
    if kernels:
        monkeypatch.setattr(memory, "COMPILED_FROM", X.nnz)
    problems = [dn.Problem(X, y, loss, lam=1e-4, sample_weight=c, fit_intercept=True) for c in FOLDS]
    problems = [like(problems[0], sample_weight=each.sample_weight) for each in problems]
    products = []
    counted = conjugate.System.times
    monkeypatch.setattr(conjugate.System, "times", lambda *args: products.append(1) or counted(*args))
    alone = [dn.solve(problem, tol=1e-9, tuning=PRODUCTS) for problem in problems]
    each, products[:] = len(products), []
    together = dn.solve_many(problems, tol=1e-9, tuning=PRODUCTS)
    assert together[0].plan.together
    assert len(products) < each / 4  # those of the last models, once the others have ended
    for mine, own in zip(together, alone, strict=True):
        assert mine.certificate.relative_gap <= 1e-9
        assert mine.certificate.primal == pytest.approx(own.certificate.primal, rel=4e-9)


def test_a_model_that_misses_tol_is_solved_again_alone_without_its_start(monkeypatch):
    """Before, the loop repeated the searches of all models from their warm starts."""
    problems = [dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)]
    problems = [like(problems[0], sample_weight=c) for c in FOLDS]
    starts = [like(problem, lam=1e-2) for problem in problems]
    starts = dn.solve_many(starts, tol=1e-6, tuning=PRODUCTS)
    searches, search = [], conjugate.search

    def cut_short(problem, *args):
        searches.append(problem)
        found = yield from search(problem, *args)
        return found._replace(w=2.0 * found.w) if problem is problems[3] else found

    monkeypatch.setattr(conjugate, "search", cut_short)
    results = dn.solve_many(problems, tol=1e-6, tuning=PRODUCTS, warm_start=starts)
    assert len(searches) == 6
    assert searches[5] is problems[3]
    assert all(result.certificate.relative_gap <= 1e-6 for result in results)
    assert "missed tol" in results[0].plan.reason


def test_a_step_that_is_too_long_ends_near_the_lowest_point_on_its_way():
    """One example with a large margin has no curvature, and the whole step would move it far beyond the kink of its loss.

    A secant of the slopes at both ends would end the step of all examples early.
    """
    rows = np.eye(2)
    problem = dn.Problem(rows, np.array([1.0, 1.0]), losses.Logistic(), lam=1e-3)
    risk = Risk.of(problem, Block(problem.data))
    x, way = np.array([22.0, -4.0]), np.array([-30.0, 8.0])
    at = risk.at(x, risk.margins(x))
    found, _ = descent.step(risk, at, way, exact=True)
    lowest = min(risk.at(x + t * way, risk.margins(x + t * way)).value for t in np.linspace(0.0, 1.0, 201))
    assert at.value - found.value >= 0.95 * (at.value - lowest)
    short, _ = descent.step(risk, at, way)
    assert at.value - short.value < 0.5 * (at.value - lowest)


@pytest.mark.parametrize("warm", EITHER)
def test_strong_penalties_of_classes_settle_the_intercepts(warm, monkeypatch):
    """The slopes along the intercepts are nearly the whole gap, which was expected to be a hundredth of what it was."""
    monkeypatch.setattr(loop.Run, "start", None)  # the direct solution must meet tol
    y = np.where(LEVELS == 2, 2, np.arange(N) % 7 == 0)
    problems = [dn.Problem(X, y, losses.Softmax(3), lam=50.0, fit_intercept=True)]
    problems = [like(problems[0], sample_weight=c) for c in FOLDS]
    starts = None
    if warm:
        other = dn.solve(like(problems[0], sample_weight=None), tol=1e-9, tuning=PRODUCTS)
        starts = [other] * len(problems)
    results = dn.solve_many(problems, tol=1e-5, tuning=PRODUCTS, warm_start=starts)
    assert all(result.plan.family == "conjugate" for result in results)
    assert max(result.certificate.relative_gap for result in results) <= 1e-5


def test_a_gap_that_has_not_decreased_yet_predicts_nothing():
    risen = np.linspace(1.0, 1.2, 8000 // conjugate.UNDECIDED + 2)
    assert not conjugate.Pace(most=8000, first=1.0).is_slow(risen[: conjugate.OBSERVED + 1], 1e-6)
    assert conjugate.Pace(most=8000, first=1.0).is_slow(risen, 1e-6)
    assert conjugate.Pace(most=50, first=1.0).is_slow(risen[: conjugate.OBSERVED + 1], 1e-6)


def test_systems_end_at_the_smallest_residual_of_their_products():
    """Without a scale no combination of the vectors r, Hr, H²r, … leaves less; the last conjugate gradient left more."""
    problem = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-4)
    block = Block(problem.data)
    risk = Risk.of(problem, block, as_stored=True)
    at = risk.at(np.zeros(X.shape[1]), risk.constant(0.0))
    system = conjugate.System.of(risk, at, block, None)
    assert isinstance(system.inverse, float)
    krylov = [-at.gradient]
    for most in range(1, 6):
        way = system.solved(0.0, 0.0, most)
        krylov.append(system.times(krylov[-1] / np.linalg.norm(krylov[-1])))
        images = np.column_stack(krylov[1:])
        best = np.linalg.norm(at.gradient + images @ np.linalg.lstsq(images, -at.gradient)[0])
        assert np.linalg.norm(at.gradient + system.times(way.x)) == pytest.approx(best, rel=1e-6)
