"""Problems that differ in labels and λ alone are certified by the same array operations, with the values that each has alone."""

import dataclasses
import math

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective import groups, targets
from dualnewton.objective.alike import with_labels
from dualnewton.objective.bounds import primal_bounds
from dualnewton.objective.certificates import certify_models, certify_pairs
from dualnewton.objective.rounding import rounding_bound, rounding_bounds
from dualnewton.row_arrays import SHORT
from tables import LOSSES, NON_SMOOTH, labels_for, name_of

N, D, LAMS = 40, 4, (0.3, 0.1, 0.02)
SQUARED = losses.Squared()


def problems_of(loss, **more):
    rng = np.random.default_rng(3)
    X = dn.matrix.as_data(rng.standard_normal((N, D)))
    return [dn.Problem(X, labels_for(loss, N, rng), loss, lam=lam, **more) for lam in LAMS]


def points_of(problems):
    """A solution, a point near one, and a point far from one."""
    found = [dn.solve(problem, tol=1e-6) for problem in problems]
    moves = (0.0, 1e-4, 0.3)
    intercepts = [each.intercept + move * each.intercept for each, move in zip(found, moves, strict=True)]
    return [each.w + move for each, move in zip(found, moves, strict=True)], intercepts, [each.alpha for each in found]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.L1()], ids=name_of)
@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH], ids=name_of)
def test_problems_of_a_group_have_their_own_certificates(loss, penalty, intercept):
    problems = problems_of(loss, regularizer=penalty, fit_intercept=intercept)
    assert [group.M for group in groups.groups_of(problems)] == [3]
    models, intercepts, alphas = points_of(problems)
    with np.errstate(over="ignore", invalid="ignore"):
        for certify, *more in ((certify_models,), (certify_pairs, alphas)):
            together = certify(problems, models, intercepts, *more, tol=1e-4)
            for k, pair in enumerate(together):
                (alone,) = certify([problems[k]], [models[k]], [intercepts[k]], *([each[k]] for each in more), tol=1e-4)
                one, other = pair.certificate, alone.certificate
                assert one.primal == pytest.approx(other.primal, rel=1e-13)
                assert one.dual == pytest.approx(other.dual, rel=1e-9, abs=1e-12)
                assert np.allclose(pair.alpha, alone.alpha, rtol=1e-9, atol=1e-12)
                assert (one.rounding is None) == (other.rounding is None)
                assert one.rounding is None or one.rounding == pytest.approx(other.rounding, rel=1e-4)


@pytest.mark.parametrize(
    "more", [{"sample_weight": np.arange(N) + 1.0}, {"offset": np.ones(N)}], ids=["weights", "offset"]
)
def test_problems_with_weights_or_offsets_are_evaluated_one_by_one(more):
    assert [group.M for group in groups.groups_of(problems_of(losses.Squared(), **more))] == [1, 1, 1]


def outputs_of(scales, loss=SQUARED, **more):
    """Problems with one λ whose labels have different scales, their models, and what one pass finds for these."""
    rng = np.random.default_rng(5)
    X = dn.matrix.as_data(rng.standard_normal((N, D)))
    targets = [k * rng.standard_normal(N) + k for k in scales]
    if loss is not SQUARED:
        targets = [np.where(y > y.mean(), 1.0, -1.0) for y in targets]
    made = [dn.Problem(X, y, loss, lam=0.1, **more) for y in targets]
    found = [dn.solve(problem, tol=1e-6) for problem in made]
    points = [each.w for each in found], [each.intercept for each in found]
    return made, *points, primal_bounds(made, *points)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    "loss", [SQUARED, losses.Logistic(), losses.SquaredHinge()], ids=lambda loss: type(loss).__name__
)
def test_one_rounding_bound_for_all_outputs_exceeds_the_bound_of_each(loss, intercept):
    scales = (1.0, 3.0, 0.5, 2.0)
    problems, models, intercepts, found = outputs_of(scales, loss, fit_intercept=intercept)
    shared = rounding_bounds(groups.groups_of(problems), models, intercepts, found, 1e-4)
    assert len(set(shared)) == 1
    for k, problem in enumerate(problems):
        (own,) = rounding_bounds(
            groups.singles([problem]), models[k : k + 1], intercepts[k : k + 1], found[k : k + 1], 1e-4
        )
        assert own <= shared[k] <= 1e-10 * found[k][0]


@pytest.mark.parametrize("loss", NON_SMOOTH, ids=name_of)
def test_problems_with_kinks_share_a_rounding_bound(loss):
    """Their slopes have one limit for all labels, so that the bound needs no labels."""
    rng = np.random.default_rng(5)
    X = dn.matrix.as_data(rng.standard_normal((N, D)))
    problems = [dn.Problem(X, labels_for(loss, N, rng), loss, lam=0.1) for _ in range(3)]
    models, intercepts, alphas = points_of(problems)
    together = certify_pairs(problems, models, intercepts, alphas, tol=1.0)
    assert len({pair.certificate.rounding for pair in together}) == 1
    for k, problem in enumerate(problems):
        (own,) = certify_pairs([problem], models[k : k + 1], intercepts[k : k + 1], alphas[k : k + 1], tol=1.0)
        assert 0.0 < own.certificate.rounding <= together[k].certificate.rounding


def test_outputs_of_very_different_scales_have_rounding_bounds_of_their_own():
    problems, models, intercepts, found = outputs_of((1e-2, 1.0, 1e2), fit_intercept=True)
    errors = rounding_bounds(groups.groups_of(problems), models, intercepts, found, 1e-9)
    assert len(set(errors)) == 3
    for error, (primal, *_) in zip(errors, found, strict=True):
        assert error <= 1e-9 * primal


def test_many_problems_form_groups_of_limited_size(monkeypatch):
    problems, models, intercepts, found = outputs_of(range(1, 8), fit_intercept=True)
    monkeypatch.setattr(groups, "TOGETHER", 3 * N)
    assert [group.M for group in groups.groups_of(problems)] == [3, 3, 1]
    for (primal, bound, _), (other, another, _) in zip(primal_bounds(problems, models, intercepts), found, strict=True):
        assert (primal, bound.value) == pytest.approx((other, another.value), rel=1e-13)
        np.testing.assert_allclose(bound.alpha, another.alpha, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("weights", [None, np.arange(N) % 3 + 1.0], ids=["plain", "weights"])
@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.L1()], ids=name_of)
def test_the_squared_loss_is_balanced_by_its_mean_as_by_its_direction(penalty, weights, monkeypatch):
    """On small data Σ c_i a_i is a product of its own; in larger passes it is summed beside the dual point."""
    more = {"regularizer": penalty, "fit_intercept": True, "sample_weight": weights}
    problems = problems_of(losses.Squared(), **more)
    models, intercepts, _ = points_of(problems)
    off = [b + 1e-3 for b in intercepts]
    by_mean = primal_bounds(problems, models, off)
    monkeypatch.setattr(targets, "CHEAP", 0)
    for (primal, bound, _), (other, another, _) in zip(by_mean, primal_bounds(problems, models, off), strict=True):
        assert (primal, bound.value) == pytest.approx((other, another.value), rel=1e-12)
        np.testing.assert_allclose(bound.alpha, another.alpha, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.L1()], ids=name_of)
def test_the_bound_from_the_norm_of_x_exceeds_that_from_the_norms_of_features(penalty):
    problem = problems_of(losses.Logistic(), regularizer=penalty, fit_intercept=True)[0]
    found = dn.solve(problem, tol=1e-6)
    point = found.w, found.intercept, found.alpha, found.certificate.primal, found.certificate.dual
    rough, sharp = (rounding_bound(problem, *point, enough=enough) for enough in (math.inf, -math.inf))
    assert sharp < rough < 2.0 * D * sharp
    assert (
        rounding_bound(problem, *point, enough=0.5 * (sharp + rough)) == sharp
    )  # the rough bound would miss the tolerance


def test_problems_with_other_labels_share_all_else_and_check_their_labels():
    problem = problems_of(losses.Logistic(), fit_intercept=True, sample_weight=np.arange(N) + 1.0)[0]
    (other,) = with_labels(problem, [-problem.y], [0.7])
    assert other.data is problem.data
    assert other.sample_weight is problem.sample_weight
    assert other.lam == 0.7
    model = dn.solve(other, tol=1e-8)
    alone = dn.solve(dataclasses.replace(problem, y=-problem.y, lam=0.7), tol=1e-8)
    np.testing.assert_allclose(model.w, alone.w, rtol=1e-6)
    for y, lam in ((np.zeros(N), 1.0), (problem.y, 0.0)):
        with pytest.raises(dn.DualnewtonError):
            with_labels(problem, [y], [lam])


@pytest.mark.parametrize("n", [20, 2 * SHORT])
def test_labels_of_several_outputs_are_checked_together_and_an_error_names_the_entry(n):
    X, y = np.ones((n, 1)), np.ones(n)
    problem, wrong = dn.Problem(X, y, losses.Logistic()), y.copy()
    wrong[7] = 3.0
    for each in with_labels(problem, [y, -y, y], [0.1, 0.2, 0.3]):
        assert not each.y.flags.writeable
    with pytest.raises(dn.DualnewtonError, match="got 3 at index 7"):
        with_labels(problem, [y, wrong, y], [0.1, 0.2, 0.3])


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_models_of_several_outputs_are_checked(fit_intercept):
    problems = problems_of(losses.Squared(), fit_intercept=fit_intercept)
    models, intercepts = [np.ones(D) for _ in problems], [0.0 for _ in problems]
    assert len(certify_models(problems, models, intercepts)) == len(problems) > 1
    for bad in (np.full(D, np.nan), np.ones(D + 1)):
        with pytest.raises((dn.DualnewtonError, ValueError)):
            certify_models(problems, [*models[:-1], bad], intercepts)
    with pytest.raises(dn.DualnewtonError, match="intercept"):
        certify_models(problems, models, [*intercepts[:-1], np.nan])


@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.L1()], ids=name_of)
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic(), losses.Hinge()], ids=name_of)
def test_problems_with_the_same_weights_form_a_group(loss, penalty):
    rng = np.random.default_rng(8)
    weights = rng.integers(0, 3, N) * 1.0
    first = problems_of(loss, regularizer=penalty, fit_intercept=True, sample_weight=weights)[0]
    problems = [first, *with_labels(first, [labels_for(loss, N, rng) for _ in LAMS[1:]], LAMS[1:])]
    assert [group.M for group in groups.groups_of(problems)] == [3]
    models, intercepts, _ = points_of(problems)
    with np.errstate(over="ignore", invalid="ignore"):
        for k, pair in enumerate(certify_models(problems, models, intercepts, tol=1e-4)):
            (alone,) = certify_models([problems[k]], [models[k]], [intercepts[k]], tol=1e-4)
            one, other = pair.certificate, alone.certificate
            assert (one.primal, one.dual) == pytest.approx((other.primal, other.dual), rel=1e-9, abs=1e-12)
            assert one.rounding == pytest.approx(other.rounding, rel=1e-4)


def test_outputs_with_the_same_weights_have_the_model_of_each_alone():
    rng = np.random.default_rng(9)
    X, Y, c = rng.standard_normal((N, D)), rng.standard_normal((N, 3)), rng.uniform(0.0, 2.0, N)
    together = dn.Ridge().fit(X, Y, sample_weight=c)
    for k in range(3):
        alone = dn.Ridge().fit(X, Y[:, k], sample_weight=c)
        np.testing.assert_allclose(together.coef_[k], alone.coef_, rtol=1e-9, atol=1e-12)
        assert together.certificate_[k].primal == pytest.approx(alone.certificate_.primal, rel=1e-12)
