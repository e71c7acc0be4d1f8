"""Newton's method on one dense block of rows is for data whose Hessians are cheap, by products for thin rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton.planning.facts import mean_squared_cosine
from dualnewton.planning.small import FAMILIES, _candidates, small_plan
from dualnewton.planning.small_products import _without_products, products_cost
from dualnewton.planning.tuning import DEFAULT

CASES = {
    "few features": (10000, 20, 1.0, "newton"),
    "some features": (1500, 150, 1.0, "conjugate"),
    "few features, thin rows": (5000, 50, 0.05, "newton"),
    "many features": (4000, 250, 1.0, "conjugate"),
    "more rows": (5000, 250, 1.0, None),
    "many features, thin rows": (5000, 100, 0.05, "stored"),
    "many features, few thin rows": (3000, 160, 0.05, "conjugate"),
    "many more, not so thin": (6000, 200, 0.35, None),
    "small": (500, 200, 1.0, "newton"),
    "small, thin rows": (500, 200, 0.05, "conjugate"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_left_to_other_methods_if_hessians_cost_more_than_calls(case):
    n, d, density, family = CASES[case]
    X = np.random.default_rng(0).standard_normal((n, d))
    if density < 1.0:
        X = sp.random(n, d, density, format="csr", random_state=0)
    problem = dn.Problem(X, np.resize([1.0, -1.0], n), dn.losses.Logistic(), lam=1.0 / n)
    assert dn.plan(problem).family == family


def test_one_hessian_of_a_quadratic_loss_costs_less_than_conjugate_gradients():
    """Other losses have a Hessian for each step: logistic regression on 1500×150 takes 3 ms by products, and 9 with them."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((1500, 150)), rng.standard_normal(1500)
    assert dn.plan(dn.Problem(X, y, dn.losses.Squared(), lam=1.0 / 1500)).family == "newton"
    assert dn.plan(dn.Problem(X, y, dn.losses.Huber(1.0), lam=1.0 / 1500)).family == "conjugate"


@pytest.mark.parametrize("weighted", [False, True])
def test_outputs_of_least_squares_that_share_one_hessian_count_as_one(weighted):
    """Ridge regression of 20 outputs on 2000×100 takes 5 ms instead of 11 on one block; with weights it is planned as before."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2000, 100)), rng.standard_normal((2000, 20))
    c = rng.uniform(0.5, 1.5, 2000) if weighted else None
    model = dn.Ridge().fit(X, Y, sample_weight=c)
    assert ("on one dense block" in model.plan_.reason) != weighted
    assert max(each.relative_gap for each in model.certificate_) <= model.tol


@pytest.mark.parametrize(
    ("n", "d", "C", "family"),
    [
        (4000, 100, 1e-3, None),
        (4000, 100, 1.0, "kinks"),
        (300, 600, 1e-4, None),
        (200, 800, 1.0, "kinks"),
        (400, 20, 1e-3, "kinks"),
    ],
)
def test_kinked_losses_are_left_to_compiled_rounds_if_the_penalty_is_strong(n, d, C, family):
    """Interior-point steps cost the same for any penalty. On small data, the last case, nothing is compiled."""
    X = np.random.default_rng(0).standard_normal((n, d))
    problem = dn.Problem(X, np.resize([1.0, -1.0], n), dn.losses.Hinge(), lam=1.0 / (C * n))
    for models in (1, 8):  # each has its own steps
        chosen = small_plan(problem, "auto", "auto", models)
        assert (None if chosen is None else chosen.family) == family
    assert dn.plan(problem, method="interior").family == "kinks"


@pytest.mark.parametrize("ratio", [0.8, 0.99, 1.01, 1.1, 1.19, 1.3, 2.0])
def test_the_squared_hinge_on_few_stored_entries_forms_no_matrix_for_any_ratio_of_features_to_rows(ratio):
    """Where conjugate gradients leave the problem to dual rounds, these take it: a factor of n rows takes 16 times as long."""
    X = sp.random(900, round(900 * ratio), 0.03, format="csr", random_state=0)
    X.data[:] = 1.0
    problem = dn.Problem(X, np.resize([1.0, -1.0], 900), dn.losses.SquaredHinge(), lam=1.0 / 900)
    assert small_plan(problem, "auto", "auto").family == ("conjugate" if ratio < 1.0 else "rounds")


def test_several_models_of_a_dense_block_are_fitted_by_conjugate_gradients_too():
    """Three classes against the rest on 2000×170 take 14 ms instead of 42."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 170)), rng.integers(0, 3, 2000)
    model = dn.LinearSVC().fit(X, y)
    assert model.plan_.family == "conjugate"
    assert max(each.relative_gap for each in model.certificate_) <= model.tol


def test_least_squares_whose_ridge_float32_would_lose_begins_by_no_products_in_it():
    """They took twenty products before the loop began again."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.standard_normal((970, 376)))
    y, lam = rng.standard_normal(970), 1.0 / 970
    plan = small_plan(dn.Problem(X, y, dn.losses.Squared(), lam=lam), "auto", "auto")
    assert plan.family == "conjugate"
    assert small_plan(dn.Problem(1e4 * X, y, dn.losses.Squared(), lam=lam), "auto", "auto") is None


@pytest.mark.parametrize("loss", [dn.losses.Logistic(), dn.losses.SquaredHinge()])
def test_many_sparse_rows_for_each_feature_are_solved_by_products_with_a_weak_penalty_too(loss):
    """The bound of their number by the trace is far too large there: a trial of dual rounds took up to four times as long."""
    X = sp.random(4000, 300, 0.05, format="csr", random_state=0)
    X.data[:] = 4.0
    rng = np.random.default_rng(0)
    y = np.where(X @ rng.standard_normal(300) + 8.0 * rng.standard_normal(4000) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, loss, lam=1.0 / 4000, fit_intercept=True)
    plan = small_plan(problem, "auto", "auto")
    assert plan is not None
    assert plan.family == "conjugate"
    result = dn.solve(problem, tol=1e-4)
    assert result.converged
    assert result.n_epochs < 40
    assert result.plan.family == "conjugate"


@pytest.mark.parametrize(("loss", "lam_n"), [(dn.losses.Logistic(), 1.0), (dn.losses.SquaredHinge(), 2.0)])
def test_dummy_variables_that_share_few_directions_are_not_solved_by_products_with_a_weak_penalty(loss, lam_n):
    """The products would cost several times as much as sketches, and most of them would be given up halfway."""
    rng = np.random.default_rng(0)
    shared, columns = rng.standard_normal(20000), []
    for first in range(0, 120, 6):  # the levels of each variable depend on what all have in common
        level = np.digitize(0.6 * shared + 0.8 * rng.standard_normal(20000), [-0.5, 0.5, 1.0, 1.5, 2.0])
        columns.append(level + first)
    places = np.stack(columns, axis=1)
    X = sp.csr_array((np.ones(places.size), places.ravel(), np.arange(0, places.size + 1, 20)), shape=(20000, 120))
    y = np.where(X @ rng.standard_normal(120) + rng.standard_normal(20000) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, loss, lam=lam_n / 20000, fit_intercept=True)
    assert dn.plan(problem).family == "stored"
    cost = products_cost(problem, DEFAULT) / _without_products(problem, DEFAULT)
    assert 1.0 < cost < DEFAULT.product_optimism
    assert small_plan(problem, "auto", "auto", n_threads=2) is None
    result = dn.solve(problem, n_threads=2)
    assert result.converged
    assert result.n_epochs < 25
    uneven = replace(DEFAULT, isotropic_rows=math.inf)
    assert small_plan(problem, "auto", "auto", n_threads=2, tuning=uneven).family == "conjugate"


def test_rows_in_random_directions_have_a_mean_squared_cosine_of_one_over_the_number_of_features():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((2000, 50)), rng.standard_normal(2000)
    even = dn.Problem(X, y, dn.losses.Squared(), lam=0.1)
    assert mean_squared_cosine(even, DEFAULT) == pytest.approx(1.0 / 50, rel=0.2)
    line = dn.Problem(np.outer(rng.standard_normal(2000), X[0]), y, dn.losses.Squared(), lam=0.1)
    assert mean_squared_cosine(line, DEFAULT) == pytest.approx(1.0)


BEYOND = {
    "sparse rows": (
        sp.random(2000, 100, 0.1, format="csr", random_state=0),
        {"product_entries": 5000, "direct_entries": 0},
    ),
    "dense rows": (np.random.default_rng(0).standard_normal((1100, 1000)), {}),
}


@pytest.mark.parametrize("rows", BEYOND)
def test_products_with_more_entries_are_for_one_thread(rows):
    """Those of SciPy and NumPy take one thread, the methods of the loop all. Several models share those with sparse rows."""
    X, changes = BEYOND[rows]
    n = X.shape[0]
    problem = dn.Problem(X, np.resize([1.0, -1.0], n), dn.losses.Logistic(), lam=0.1)
    tuning = replace(DEFAULT, **changes)
    assert small_plan(problem, "auto", "auto", 1, tuning).family == "conjugate"
    several = small_plan(problem, "auto", "auto", 2, tuning)
    assert (several is not None and several.together) if sp.issparse(X) else several is None
    assert small_plan(problem, "auto", "auto", 1, tuning, n_threads=2) is None
    assert small_plan(problem, "newton", "auto", 1, tuning) is None  # has the same bits for any number of threads
    weak = dn.Problem(X, problem.y, dn.losses.Logistic(), lam=1e-7)
    assert not sp.issparse(X) or small_plan(weak, "auto", "auto", 1, tuning) is None


@pytest.mark.parametrize(("loss", "family"), [(dn.losses.Squared(), "conjugate"), (dn.losses.SquaredHinge(), None)])
def test_least_squares_on_a_large_block_takes_products_where_other_losses_take_hessians_of_samples(loss, family):
    """A Hessian of 2500×600 costs as much as 40 to 70 conjugate gradients: enough for the one system of a quadratic loss."""
    X = np.random.default_rng(0).standard_normal((2500, 600))
    problem = dn.Problem(X, np.sign(X[:, 0]), loss, lam=1.0 / len(X))
    assert X.size > DEFAULT.direct_entries
    plan = small_plan(problem, "auto", "auto")
    assert (plan and plan.family) == family
    if plan is not None:
        assert DEFAULT.quadratic_products <= plan.directions < DEFAULT.block_products


LOSSES = [dn.losses.Squared(), dn.losses.Logistic(), dn.losses.SquaredHinge(), dn.losses.Hinge()]
PENALTIES = [dn.regularizers.L2(), dn.regularizers.L1(), dn.regularizers.ElasticNet(), dn.regularizers.Box(0.0, 1.0)]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("shape", [(60, 5), (40, 90), (3000, 30)], ids=str)
def test_families_that_are_not_asked_would_take_no_problem(shape, sparse):
    """Columns and penalties that a family does not declare are those whose problems it refuses."""
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal(shape), np.resize([1.0, -1.0], shape[0])
    X = dn.matrix.as_data(sp.csr_array(X * (rng.random(shape) < 0.05)) if sparse else X)
    problems = [dn.Problem(X, labels, loss, regularizer=g, lam=0.1) for loss in LOSSES for g in PENALTIES]
    Y, classes = rng.standard_normal((shape[0], 3)), np.resize([0, 1, 2], shape[0])
    joint = (dn.regularizers.JointL1(), dn.regularizers.JointElasticNet())
    problems += [dn.Problem(X, Y, dn.losses.SquaredOutputs(3), regularizer=g, lam=0.1) for g in (*joint, *PENALTIES)]
    problems += [dn.Problem(X, classes, dn.losses.Softmax(3), regularizer=g, lam=0.1) for g in PENALTIES]
    for problem in problems:
        columns, quadratic = problem.columns > 1, problem.scheme is not None or problem.regularizer.form.is_quadratic
        for name, family in FAMILIES.items():
            asked = family.several_columns in (None, columns) and family.quadratic == quadratic
            dense = family.dense is False and not sparse  # a family for sparse rows
            if problem.scheme in family.schemes and not asked and not dense:
                assert not family.takes(problem, DEFAULT), name


def test_a_problem_of_joint_outputs_asks_one_family():
    assert [name for name, _ in _candidates(None, "auto", True, False, True, False, False, True, True)] == ["joint"]
