"""Smooth losses with thresholds on small data: the optimum that the general method and scikit-learn find."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model as skl
from sklearn.datasets import load_breast_cancer

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective.certificates import certify_models, certify_pairs
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct import active_set, proximal
from dualnewton.solvers.direct.block import Block, Limits
from tuned import GENERAL


def rows_of(n, d, *, correlated=0.0):
    """Rows, and scores that depend on a few of the features."""
    rng = np.random.default_rng(n + d)
    X = rng.standard_normal((n, d)) + correlated * rng.standard_normal((n, 1)) + 0.5
    return X, X[:, : min(d, 6)] @ rng.standard_normal(min(d, 6)) + rng.standard_normal(n)


SHAPES = {
    "few features": rows_of(80, 7),
    "correlated": rows_of(90, 30, correlated=3.0),
    "more features than rows": rows_of(40, 70),
}
LOSSES = [
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.SmoothHinge(0.3),
    losses.Huber(0.5),
    losses.SquaredEpsilonInsensitive(0.2),
]


def labels(loss, score):
    """Labels that the loss allows."""
    return np.where(score > 0.3, 1.0, -1.0) if isinstance(loss, losses.Margin) else score


def posed(loss, shape, regularizer, lam, **more):
    X, score = SHAPES[shape]
    return dn.Problem(X, labels(loss, score), loss, regularizer=regularizer, lam=lam, **more)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", [0.1, 3e-3])
def test_it_finds_what_the_general_method_finds(loss, shape, strength, monkeypatch):
    seen, solve = [], proximal.solve
    monkeypatch.setattr(proximal, "solve", lambda *args, **rest: seen.append(args) or solve(*args, **rest))
    score = SHAPES[shape][1]
    weights = np.random.default_rng(1).uniform(0.2, 2.0, len(score))
    weights[::7] = 0.0
    for k, (ratio, positive) in enumerate(itertools.product((1.0, 0.5), (False, True))):
        lam, g = regularizers.mixed(strength, ratio, positive=positive)
        more = {"sample_weight": weights} if k % 2 else {"offset": 0.3 * score}
        problem = posed(loss, shape, g, lam, fit_intercept=k < 3, **more)
        found = dn.solve(problem, tol=1e-9)
        assert seen, "the direct solver was not used"
        assert found.certificate.relative_gap <= 1e-9
        assert found.plan.family == "proximal"
        seen.clear()
        general = dn.solve(problem, method="newton", tol=1e-9, tuning=GENERAL)
        assert not seen
        assert found.certificate.primal == pytest.approx(general.certificate.primal, rel=3e-9)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_scikit_learn_finds_nothing_lower(ratio, C):
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    ours = dn.LogisticRegression(C=C, l1_ratio=ratio, tol=1e-6).fit(X, y)
    theirs = skl.LogisticRegression(C=C, l1_ratio=ratio, solver="saga", tol=1e-3, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs.fit(X, y)
    assert ours.plan_.family == "proximal"
    assert dn.certify(ours, X, y).primal <= dn.certify(theirs, X, y).primal * (1.0 + 1e-6)


def degenerate():
    """Data that leave matrices singular or minima far away, by name."""
    X, score = rows_of(60, 8)
    y = np.where(score > 0.0, 1, 0)
    wide, other = rows_of(30, 60)
    yield "duplicated columns", np.hstack([X, X, -X]), y
    yield "constant columns", np.hstack([X, np.full((60, 2), 3.0), np.zeros((60, 1))]), y
    yield "separable classes", X, (X[:, 0] > 0.0).astype(int)
    yield "far from the origin", X + 1e4, y
    yield "mixed scales", X * np.geomspace(1e-8, 1e8, 8), y
    yield "huge", 1e8 * X, y
    yield "tiny", 1e-8 * X, y
    yield "one of a class", X, np.arange(60) // 59
    yield "more features than rows, each twice", np.hstack([wide, wide]), np.where(other > 0.0, 1, 0)


@pytest.mark.parametrize(("X", "y"), [case[1:] for case in degenerate()], ids=[case[0] for case in degenerate()])
@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.parametrize("C", [1e-3, 1.0, 1e4])
def test_degenerate_data_are_certified_without_warnings(X, y, ratio, C):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for fit_intercept in (True, False):
            model = dn.LogisticRegression(C=C, l1_ratio=ratio, fit_intercept=fit_intercept).fit(X, y)
            assert model.certificate_.relative_gap <= 1e-4


def test_a_looser_tolerance_takes_fewer_steps():
    X, score = SHAPES["correlated"]
    loose, tight = (dn.LogisticRegression(l1_ratio=1.0, tol=tol).fit(X, score > 0.0) for tol in (1e-1, 1e-8))
    assert loose.n_iter_ < tight.n_iter_
    assert loose.certificate_.relative_gap <= 1e-1


def test_a_start_is_continued_and_limits_end_the_steps():
    problem = posed(losses.Logistic(), "more features than rows", regularizers.L1(), 1e-3, fit_intercept=True)
    block = Block(problem.data)
    found = proximal.solve(problem, block, None, Limits(1e-10))
    again = proximal.solve(problem, block, (found.w, found.intercept), Limits(1e-9))
    np.testing.assert_allclose(again.w, found.w, rtol=1e-6)
    assert again.steps == 1
    short = proximal.solve(problem, block, None, Limits(1e-10, 1))
    late = proximal.solve(problem, block, None, Limits(1e-10, deadline=0.0))
    assert short.steps == 1
    assert not late.w.any()
    assert problem.primal(found.w, found.intercept) < problem.primal(short.w, short.intercept)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("regularizer", [regularizers.L1(), regularizers.ElasticNet(0.5)])
@pytest.mark.parametrize("further", ["nothing", "weights and offsets"])
def test_slopes_of_the_quadratic_model_prove_its_minimum(shape, regularizer, further):
    """−φ′ at that point, which does not fulfil the optimality conditions exactly, proves a larger gap."""
    X, score = SHAPES[shape]
    rng, n = np.random.default_rng(0), len(X)
    rows = {"sample_weight": np.arange(n) % 4 * 1.0, "offset": 0.3 * rng.standard_normal(n)}
    rows = rows if further == "weights and offsets" else {}
    y = np.where(score + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), regularizer=regularizer, lam=0.02, fit_intercept=True, **rows)
    found = proximal.solve(problem, Block(problem.data), None, Limits(tol := 1e-4))
    assert found.alpha is not None
    (pair,) = certify_pairs([problem], [found.w], [found.intercept], [found.alpha])
    (other,) = certify_models([problem], [found.w], [found.intercept])
    assert pair.certificate.relative_gap <= tol
    assert pair.certificate.gap < (0.5 if regularizer == regularizers.L1() else 1.0) * other.certificate.gap
    (quick,) = certify_pairs(
        [problem], [found.w], [found.intercept], [found.alpha], tol=tol
    )  # without a second sum of ᾱ
    assert quick.certificate.meets(tol)
    assert problem.dual(quick.alpha) == pytest.approx(quick.certificate.dual, rel=1e-12)
    assert abs(quick.certificate.dual - pair.certificate.dual) <= 1e-3 * tol * pair.certificate.primal


def test_models_of_dummy_variables_need_no_proximal_point_steps(monkeypatch):
    """Their matrix is singular, where active sets cycle: features are exchanged one by one (steps of both kinds before)."""
    rng = np.random.default_rng([300, 10, 2])
    levels = rng.choice(5, size=(300, 2), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    X = (levels[:, :, None] == np.arange(5)).reshape(300, -1) * 1.0
    score = X @ rng.standard_normal(10)
    y = score + 0.5 * score.std() * rng.standard_normal(300) > score.mean()
    monkeypatch.setattr(active_set.Model, "_proximal", None)
    model = dn.LogisticRegression(l1_ratio=1.0).fit(X, y)
    assert model.plan_.family == "proximal"
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("density", [0.1, 0.9, 1.0])
def test_gathered_features_are_those_of_the_rows_as_they_are_stored(density):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 9)) * (rng.random((50, 9)) < density)
    rows = X if density == 1.0 else sp.csr_array(X)
    problem = dn.Problem(rows, np.where(np.arange(50) % 2, 1.0, -1.0), losses.Logistic(), regularizer=regularizers.L1())
    block = Block(problem.data)
    assert sp.issparse(block.light) == (density == 0.1)
    task = proximal.Task(problem, block, 1e-4)
    for features in ([4, 1], [], [8, 0, 3]):
        task.gather(np.array(features, dtype=np.intp))
    assert task.inside.tolist() == [4, 1, 8, 0, 3]
    np.testing.assert_array_equal(task.A, X[:, task.inside])
    task = proximal.Task(problem, block, 1e-4)
    task.gather(np.arange(9))
    np.testing.assert_array_equal(task.A, X)


def test_features_gathered_in_another_order_than_theirs_are_used_in_their_places():
    """All 20 features are used in the end, of which the 16 with the strongest slopes are gathered first."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 20))
    y = np.where(X @ rng.permutation(np.linspace(0.5, 3.0, 20)) + rng.standard_normal(400) > 0.0, 1.0, -1.0)
    more = {"regularizer": regularizers.L1(), "lam": 1e-3, "fit_intercept": True}
    problem, limits = dn.Problem(X, y, losses.Logistic(), **more), Limits(1e-8)
    expected = proximal.solve(problem, Block(problem.data), None, limits)
    slowly = Crossovers(gathered_features=0, gathered_products=0)
    found = proximal.solve(problem, Block(problem.data, slowly), None, limits)
    assert np.count_nonzero(found.w) == 20
    assert problem.primal(found.w, found.intercept) == pytest.approx(
        problem.primal(expected.w, expected.intercept), rel=1e-8
    )
    np.testing.assert_allclose(found.w, expected.w, rtol=1e-2)
