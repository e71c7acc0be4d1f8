"""The dual of a problem as a composite function (Section 4): F = −D, its gradient, its bounds, its minimum."""

import numpy as np
import pytest

from dualnewton import losses, samplings
from dualnewton.methods import dual_of, pcdm, prox_method1
from tables import LOSSES, make_problem, name_of, regularizers_for

D = 4
EVERY_LOSS = pytest.mark.parametrize("loss", LOSSES, ids=name_of)
EVERY_REGULARIZER = pytest.mark.parametrize(
    "k", range(len(regularizers_for(D))), ids=[name_of(g) for g in regularizers_for(D)]
)
KINDS = [
    {},
    {"weights": True, "offset": True},
    {"sparse": True, "offset": True},
    {"dtype": np.float32, "weights": True},
]
EVERY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "-".join(kind) or "plain")


def problem_for(loss, k, kind):
    return make_problem(loss, d=D, regularizer=regularizers_for(D)[k], lam=0.2, **kind)


def feasible(problem, seed):
    """Dual points of random margins."""
    margins = 2.0 * np.random.default_rng(seed).standard_normal(problem.n)
    return -problem.loss.derivative(margins, problem.y)


@EVERY_KIND
@EVERY_REGULARIZER
@EVERY_LOSS
def test_it_is_minus_the_dual(loss, k, kind):
    problem = problem_for(loss, k, kind)
    F = dual_of(problem)
    for seed in range(3):
        alpha = feasible(problem, seed)
        assert F.value(alpha) == pytest.approx(-problem.dual(alpha), rel=1e-13, abs=1e-13)


@EVERY_KIND
@EVERY_REGULARIZER
def test_the_gradient_and_the_bounds_of_its_smooth_part(k, kind):
    f = dual_of(problem_for(losses.Squared(), k, kind)).f
    rng = np.random.default_rng(8)
    n = len(f.M)
    for _ in range(3):
        x, h = 3.0 * rng.standard_normal((2, n))
        differences = [(f.value(x + e) - f.value(x - e)) / 2e-5 for e in 1e-5 * np.eye(n)]
        np.testing.assert_allclose(f.gradient(x), differences, atol=1e-7)
        rest = f.value(x + h) - f.value(x) - f.gradient(x) @ h
        assert -1e-12 <= rest <= 0.5 * h @ f.M @ h + 1e-12
    assert not f.G.any()


def test_with_l2_the_upper_bound_is_an_equality():
    """So that a wrong scale of M would have been noticed from both sides."""
    f = dual_of(make_problem(losses.Logistic(), weights=True, offset=True)).f
    x, h = np.random.default_rng(9).standard_normal((2, len(f.M)))
    assert f.value(x + h) - f.value(x) - f.gradient(x) @ h == pytest.approx(0.5 * h @ f.M @ h, rel=1e-12)


@EVERY_LOSS
def test_its_separable_part_is_strongly_convex_as_lemma_3_says(loss):
    problem = make_problem(loss, weights=True)
    np.testing.assert_allclose(dual_of(problem).gamma, problem.c * loss.gamma / problem.n)


@EVERY_KIND
@EVERY_LOSS
def test_one_step_of_proximal_method_1_with_all_coordinates_closes_the_gap(loss, kind):
    """For g = ½‖w‖² the smooth part is its own quadratic bound, so the step minimises F, which the dual value must show."""
    problem = make_problem(loss, lam=0.05, **kind)
    alpha = prox_method1(dual_of(problem), samplings.Nice(problem.n, problem.n), np.zeros(problem.n), 1, 0)[-1]
    assert problem.certify(problem.w_of(alpha), alpha=alpha).relative_gap < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", [prox_method1, pcdm], ids=lambda method: method.__name__)
@EVERY_REGULARIZER
def test_both_methods_close_the_gap_for_every_regulariser(method, k):
    problem = problem_for(losses.Logistic(), k, {"weights": True, "offset": True})
    alpha = method(dual_of(problem), samplings.Nice(problem.n, 2), np.zeros(problem.n), 250, 0)[-1]
    assert problem.certify(problem.w_of(alpha), alpha=alpha).relative_gap < 1e-7


def test_a_row_of_zeros_is_no_obstacle_to_proximal_method_1():
    """Its dual variable has no curvature in f: the optimum is α_i = −φ′(o_i), whatever the others are."""
    problem = make_problem(losses.Logistic(), offset=True)
    X = problem.X.copy()
    X[2] = 0.0
    problem = type(problem)(X, problem.y, problem.loss, offset=problem.offset)
    F = dual_of(problem)
    for tau in (1, 3):
        alpha = prox_method1(F, samplings.Nice(6, tau), np.zeros(6), 60, 0)[-1]
        assert alpha[2] == pytest.approx(-problem.loss.derivative(problem.o, problem.y)[2], rel=1e-12)
    with pytest.raises(ValueError, match="M must have a positive diagonal for steps of length 1/v, got 0 at index 2"):
        pcdm(F, samplings.Serial(6), np.zeros(6), 1, 0)


def test_what_has_no_separable_dual_is_refused():
    with pytest.raises(ValueError, match=r"problem must have fit_intercept=False: .* not separable"):
        dual_of(make_problem(losses.Squared(), fit_intercept=True))
    with pytest.raises(
        ValueError, match=r"problem must have positive weights, got sample_weight 0 at index 1: .* leave it out"
    ):
        dual_of(make_problem(losses.Squared(), sample_weight=[1.0, 0.0, 1.0, 1.0, 1.0, 1.0]))
