"""The regularisers: conjugates against numerical suprema, gradients against optimality conditions, limits, refusals."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dualnewton import regularizers
from dualnewton.regularizers.base import largest
from tables import AgainstDirection, name_of, regularizers_for

D = 5


def by_regularizer(d):
    return pytest.mark.parametrize("regularizer", regularizers_for(d), ids=name_of)


vectors = arrays(np.float64, D, elements=st.floats(-1e4, 1e4))


# Duality -------------------------------------------------------------------------------------------------------------


def assert_fenchel_young(regularizer, w, s):
    """g(w) + g*(s) − ⟨w, s⟩ ≥ ½‖w − ∇g*(s)‖²: the inequality, and that it is strict away from w = ∇g*(s)."""
    defect = regularizer.value(w) + regularizer.conjugate(s) - w @ s
    distance = np.linalg.norm(w - regularizer.grad_conjugate(s))
    assert defect >= 0.5 * distance**2 - 1e-12 * (1.0 + w @ w + s @ s)


@by_regularizer(D)
@given(w=vectors, s=vectors)
def test_fenchel_young_inequality(regularizer, w, s):
    assert_fenchel_young(regularizer, w, s)
    assert_fenchel_young(regularizer, regularizer.grad_conjugate(w), s)  # a feasible point, whatever w is


@by_regularizer(D)
@given(s=vectors)
def test_fenchel_young_equality_at_the_gradient(regularizer, s):
    w = regularizer.grad_conjugate(s)
    assert abs(regularizer.value(w) + regularizer.conjugate(s) - w @ s) <= 1e-13 * (1.0 + s @ s)


def test_a_value_that_forgets_its_constraint_breaks_the_inequality():
    class Forgetful(regularizers.NonNegative):
        weights = None
        value = regularizers.L2.value

    w = s = np.array([-1.0, 2.0])
    assert_fenchel_young(regularizers.NonNegative(), w, s)
    with pytest.raises(AssertionError):
        assert_fenchel_young(Forgetful(), w, s)


@by_regularizer(D)
@given(s=vectors, t=vectors)
def test_the_gradient_is_nonexpansive(regularizer, s, t):
    moved = np.linalg.norm(regularizer.grad_conjugate(s) - regularizer.grad_conjugate(t))
    assert moved <= np.linalg.norm(s - t) * (1.0 + 1e-12) + 1e-11


def numerical_supremum(regularizer, s):
    """sup_w ⟨w, s⟩ − g(w) in two dimensions: a grid that closes in on the best point of a concave function."""
    centre, radius = np.zeros(2), 8.0
    offsets = np.array(list(itertools.product(np.linspace(-1.0, 1.0, 9), repeat=2)))
    for _ in range(45):
        points = centre + radius * offsets
        heights = [w @ s - regularizer.value(w) for w in points]
        centre, radius = points[int(np.argmax(heights))], 0.6 * radius
    return max(heights), centre


@by_regularizer(2)
@pytest.mark.parametrize("s", [(0.0, 0.0), (0.1, -0.2), (1.3, 0.4), (-2.0, 3.0), (-0.7, -0.05)], ids=str)
def test_conjugate_is_the_supremum_and_its_gradient_attains_it(regularizer, s):
    s = np.array(s)
    supremum, attained_at = numerical_supremum(regularizer, s)
    assert regularizer.conjugate(s) == pytest.approx(supremum, abs=1e-8)
    np.testing.assert_allclose(regularizer.grad_conjugate(s), attained_at, atol=1e-4)


# What the gradients are ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "regularizer",
    [regularizers.NonNegative(), regularizers.Box(-0.5, 0.8), regularizers.Box(np.linspace(-1, 0, D), np.full(D, 0.3))],
    ids=name_of,
)
@given(s=vectors, x=vectors)
def test_constraints_make_projections(regularizer, s, x):
    """w = ∇g*(s) is the feasible point nearest to s: it stays put, and ⟨s − w, x − w⟩ ≤ 0 for every feasible x."""
    w, feasible = regularizer.grad_conjugate(s), regularizer.grad_conjugate(x)
    assert np.isfinite(regularizer.value(w))
    np.testing.assert_array_equal(regularizer.grad_conjugate(w), w)
    assert (s - w) @ (feasible - w) <= 0.0


@given(s=vectors)
def test_elastic_net_gradient_is_the_soft_threshold(s):
    w = regularizers.ElasticNet(l1=0.3).grad_conjugate(s)
    np.testing.assert_allclose(w, np.sign(s) * np.maximum(np.abs(s) - 0.3, 0.0), atol=1e-12)
    subgradient = s - w  # of l1‖·‖₁ at w
    assert (np.abs(subgradient) <= 0.3 + 1e-11).all()
    np.testing.assert_allclose(subgradient[w != 0.0], 0.3 * np.sign(w[w != 0.0]), atol=1e-11)


@given(s=vectors)
def test_positive_elastic_net_gradient_is_the_one_sided_threshold(s):
    """⟨w, s⟩ − ½w² − l1 w over w ≥ 0 peaks at max(s − l1, 0)."""
    w = regularizers.ElasticNet(l1=0.3, positive=True).grad_conjugate(s)
    np.testing.assert_allclose(w, np.maximum(s - 0.3, 0.0), atol=1e-12)


@given(s=vectors)
def test_group_elastic_net_gradient_shrinks_whole_groups(s):
    """s − w is a subgradient of Σ strength √|k| ‖w_k‖: along w_k where that is not zero, else within the ball."""
    groups = np.array([7, 2, 7, 7, 2])
    w = regularizers.GroupElasticNet(groups, strength=0.2).grad_conjugate(s)
    for k in (2, 7):
        here = groups == k
        threshold = 0.2 * np.sqrt(here.sum())
        norm = np.linalg.norm(w[here])
        if norm > 0.0:
            np.testing.assert_allclose(s[here] - w[here], threshold * w[here] / norm, atol=1e-10)
        else:
            assert np.linalg.norm(s[here]) <= threshold * (1.0 + 1e-12)


def by_limits(limits, s):
    threshold, factor, lower, upper = limits
    return np.clip(factor * (s - np.clip(s, -threshold, threshold)), lower, upper)


@by_regularizer(D)
@given(s=vectors)
def test_the_form_of_a_regularizer_says_what_its_gradient_is(regularizer, s):
    if regularizer.form.is_general:
        separable = (
            regularizer.grad_conjugate(np.ones(D))[0] == regularizer.grad_conjugate(np.r_[1.0, np.zeros(D - 1)])[0]
        )
        assert not separable
    else:
        limits = regularizer.form.limits(D)
        assert limits.shape == (4, D)
        np.testing.assert_allclose(by_limits(limits, s), regularizer.grad_conjugate(s), rtol=1e-15)


def test_values_at_a_point_by_hand():
    w = np.array([3.0, -4.0, 0.0])
    assert regularizers.L2().value(w) == 12.5
    assert regularizers.L2([1.0, 2.0, 9.0]).value(w) == 4.5 + 16.0
    assert regularizers.L2([1.0, 2.0, 9.0]).conjugate(w) == 4.5 + 4.0
    assert regularizers.ElasticNet(l1=2.0).value(w) == 12.5 + 14.0
    assert regularizers.NonNegative().value(w) == np.inf
    assert regularizers.NonNegative().value(np.abs(w)) == 12.5
    assert regularizers.Box(-4.0, 3.0).value(w) == 12.5
    assert regularizers.Box(-4.0, 2.9).value(w) == np.inf
    assert regularizers.GroupElasticNet([0, 0, 1], strength=2.0).value(w) == pytest.approx(
        12.5 + 2.0 * np.sqrt(2.0) * 5.0
    )


# L1, which is not strongly convex --------------------------------------------------------------------------------------

by_sign = pytest.mark.parametrize("g", [regularizers.L1(), regularizers.L1(positive=True)], ids=name_of)


@by_sign
@given(w=vectors, s=vectors)
def test_fenchel_young_for_l1_wherever_its_conjugate_is_finite(g, w, s):
    """g(w) + g*(rs) ≥ ⟨w, rs⟩ for the r that makes g* finite, with equality at the w that attains g*."""
    inside = g.reach(s) * s
    assert g.conjugate(inside) == 0.0
    assert g.value(w) >= w @ inside - 1e-12 * np.abs(w) @ np.abs(s)
    assert g.value(g.grad_conjugate(inside)) == 0.0


@by_sign
@given(s=vectors)
def test_the_reach_of_l1_ends_where_its_conjugate_becomes_infinite(g, s):
    r = g.reach(s)
    assert 0.0 < r <= 1.0
    if r < 1.0:
        assert g.conjugate(1.001 * r * s) == np.inf
    else:
        assert g.conjugate(s) == 0.0


@pytest.mark.parametrize(
    "g", [*regularizers_for(D), regularizers.L1(), regularizers.L1(positive=True)], ids=lambda g: name_of(g)[:40]
)
@given(W=arrays(np.float64, (3, D), elements=st.floats(-10.0, 10.0)))
def test_functions_of_several_models_are_those_of_each(g, W):
    pairs = (
        (g.values, g.value),
        (g.conjugates, g.conjugate),
        (g.reaches, g.reach),
        (g.grad_conjugates, g.grad_conjugate),
    )
    for several, one in pairs:
        for S in (W, np.abs(W)):
            np.testing.assert_allclose(several(S), [one(s) for s in S], rtol=1e-14)


def test_strongly_convex_regularizers_reach_everywhere():
    assert all(g.strongly_convex and g.reach(1e6 * np.ones(D)) == 1.0 for g in regularizers_for(D))
    assert not regularizers.L1().strongly_convex


def test_l1_at_a_point_by_hand():
    w = np.array([3.0, -4.0, 0.0])
    assert regularizers.L1().value(w) == 7.0
    assert regularizers.L1(positive=True).value(w) == np.inf
    assert regularizers.L1().conjugate(np.array([1.0, -1.0])) == 0.0
    assert regularizers.L1().conjugate(np.array([1.0, -1.1])) == np.inf
    assert regularizers.L1(positive=True).conjugate(np.array([1.0, -100.0])) == 0.0
    assert regularizers.L1().reach(np.array([0.5, -4.0])) == 0.25


@given(
    w=vectors,
    strength=st.floats(1e-3, 1e3),
    r=st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]),
    positive=st.booleans(),
)
def test_a_mixed_penalty_is_what_scikit_learn_means_by_it(w, strength, r, positive):
    w = np.abs(w) if positive else w
    lam, g = regularizers.mixed(strength, r, positive=positive)
    expected = strength * (r * np.abs(w).sum() + 0.5 * (1.0 - r) * w @ w)
    assert lam * g.value(w) == pytest.approx(expected, rel=1e-12)
    assert g.value(-np.ones(2)) == np.inf or not positive


def test_the_ends_of_a_mixed_penalty():
    assert regularizers.mixed(0.3, 0.0) == (0.3, regularizers.L2())
    assert regularizers.mixed(0.3, 1.0) == (0.3, regularizers.L1())
    assert regularizers.mixed(0.3, 0.0, positive=True) == (0.3, regularizers.NonNegative())
    for ratio in (-0.1, 1.1, np.nan, None):
        with pytest.raises(ValueError, match="l1_ratio must be a"):
            regularizers.mixed(0.3, ratio)
    with pytest.raises(ValueError, match="strength must be a finite number > 0, got 0"):
        regularizers.mixed(0, 0.5)


# Limits --------------------------------------------------------------------------------------------------------------

SAME = [
    (regularizers.ElasticNet(l1=0.0), regularizers.L2()),
    (regularizers.GroupElasticNet(range(D), strength=0.0), regularizers.L2()),
    (regularizers.GroupElasticNet(range(D), strength=0.4), regularizers.ElasticNet(l1=0.4)),
    (regularizers.GroupElasticNet([0, 0, 1, 1, 1]), regularizers.GroupElasticNet(["b", "b", "a", "a", "a"])),
    (regularizers.ElasticNet(l1=0.0, positive=True), regularizers.NonNegative()),
    (regularizers.Box(-np.inf, np.inf), regularizers.L2()),
    (regularizers.Box(0.0, np.inf), regularizers.NonNegative()),
    (regularizers.Box(-0.5, 0.8), regularizers.Box(np.full(D, -0.5), 0.8)),
    (regularizers.L2(np.ones(D)), regularizers.L2()),
    (AgainstDirection(np.sqrt([3.0, 0.0, 0.0, 0.0, 0.0])), regularizers.L2([4.0, 1.0, 1.0, 1.0, 1.0])),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=lambda r: name_of(r)[:30])
@given(s=vectors)
def test_two_names_of_one_regularizer_agree(one, other, s):
    w = other.grad_conjugate(s)
    size = 1.0 + s @ s
    np.testing.assert_allclose(one.grad_conjugate(s), w, atol=1e-12 * np.sqrt(size))
    assert one.value(w) == pytest.approx(other.value(w), rel=1e-12)
    assert one.conjugate(s) == pytest.approx(other.conjugate(s), rel=1e-12, abs=1e-14 * size)


def test_an_elastic_net_penalty_in_the_words_of_others():
    """a(r‖w‖₁ + ½(1 − r)‖w‖²) is λg with λ = a(1 − r) and l1 = r/(1 − r)."""
    a, r, w = 0.7, 0.25, np.array([1.0, -2.0, 0.5])
    g = regularizers.ElasticNet(l1=r / (1.0 - r))
    assert a * (1.0 - r) * g.value(w) == pytest.approx(a * (r * np.abs(w).sum() + 0.5 * (1.0 - r) * w @ w))


def test_only_l2_is_quadratic():
    assert [g for g in regularizers_for(D) if g.form.is_plain] == [regularizers.L2()]
    assert [type(g) for g in regularizers_for(D) if g.form.is_quadratic] == [regularizers.L2] * 2
    assert not regularizers.L2(np.ones(D)).form.is_plain  # it says so by having weights, whatever they are


def test_sizes():
    """What is made for a number of features says so; what fits any says None."""
    assert all(g.size in (None, D) for g in regularizers_for(D))
    assert regularizers.L2().size is regularizers.ElasticNet().size is regularizers.NonNegative().size is None
    assert regularizers.L2([1.0, 2.0, 1.5]).size == 3
    assert regularizers.Box(0.0, 1.0).size is None
    assert regularizers.Box(0.0, np.ones(3)).size == regularizers.Box(np.zeros(3), 1.0).size == 3
    assert regularizers.GroupElasticNet([4, 4, 1, 0]).size == 4


@by_regularizer(1 + D)
def test_numbers_are_floats_and_inputs_stay(regularizer):
    s = np.linspace(-2.0, 2.0, 1 + D)
    kept = s.copy()
    w = regularizer.grad_conjugate(s)
    assert isinstance(regularizer.conjugate(s), float)
    assert isinstance(regularizer.value(w), float)
    np.testing.assert_array_equal(s, kept)


# Values and refusals -------------------------------------------------------------------------------------------------


def test_regularizers_are_values():
    assert regularizers.L2() == regularizers.L2()
    assert regularizers.ElasticNet(0.5) == regularizers.ElasticNet(l1=0.5)
    assert hash(regularizers.ElasticNet(0.5)) == hash(regularizers.ElasticNet(0.5))
    assert regularizers.ElasticNet(0.5) != regularizers.ElasticNet(0.6)
    assert regularizers.L2() != regularizers.NonNegative()
    weighted = regularizers.L2([1.0, 2.0])
    assert weighted == regularizers.L2(np.array([1.0, 2.0]))
    assert hash(weighted) == hash(regularizers.L2((1.0, 2.0)))
    assert weighted not in (regularizers.L2(), regularizers.L2([1.0, 2.5]), regularizers.L2([1.0, 2.0, 1.0]))
    assert len({regularizers.L2(), regularizers.L2(), weighted}) == 2


@by_regularizer(D)
def test_regularizers_are_frozen(regularizer):
    with pytest.raises(dataclasses.FrozenInstanceError):
        regularizer.l1 = 1.0
    hash(regularizer)


def test_bounds_groups_and_weights_cannot_change_under_a_regularizer():
    with pytest.raises(ValueError, match="read-only"):
        regularizers.L2(np.ones(2)).weights[0] = 5.0
    box = regularizers.Box(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        box.lower[0] = 5.0
    with pytest.raises(ValueError, match="read-only"):
        regularizers.GroupElasticNet([0, 1]).groups[0] = 1


@pytest.mark.parametrize("bad", [-0.1, np.nan, np.inf, None, "much", "0.5"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("l1", lambda bad: regularizers.ElasticNet(l1=bad)),
        ("strength", lambda bad: regularizers.GroupElasticNet([0, 1], strength=bad)),
    ],
    ids=["l1", "strength"],
)
def test_strengths_must_be_finite_and_not_negative(name, make, bad):
    with pytest.raises(ValueError, match=f"{name} must be a finite number >= 0, got"):
        make(bad)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [
        (1.0, 0.0, "lower must be <= upper"),
        ([0.0, 0.5], [1.0, 0.4], "lower must be <= upper everywhere.*, got 0.5 and 0.4 for feature 1"),
        (np.inf, np.inf, "finite numbers between them, got inf and inf"),
        (-np.inf, -np.inf, "finite numbers between"),
        (np.nan, 1.0, "lower must be a number or a vector of numbers, got nan"),
        (0.0, [np.nan, 1.0], "upper must be a number or a vector of numbers, got"),
        (np.zeros((2, 2)), 1.0, "lower must be a number or a vector"),
        (np.zeros(2), np.ones(3), "the same length, got 2 and 3"),
        ("low", 1.0, "lower must be a number or a vector"),
        (0.0, [1.0, None], "upper must be a number or a vector"),
        (0.0, object(), "upper must be a number or a vector"),
        (0.0, 1j, "upper must be a number or a vector"),
    ],
)
def test_bounds_that_leave_nothing_are_refused(lower, upper, words):
    with pytest.raises(ValueError, match=words):
        regularizers.Box(lower, upper)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 0.5, 2.0], r"weights must be >= 1 everywhere, got 0.5 at index 1: .* multiply lam by it"),
        ([-1.0, 1.0], "weights must be >= 1 everywhere, got -1.0 at index 0: .*it must be positive"),
        ([1.0, np.nan], "weights must be finite, got nan at index 1"),
        ([np.inf, 1.0], "weights must be finite, got inf at index 0"),
        (2.0, r"weights must have shape \(1,\), got \(\)"),
        (np.ones((2, 2)), r"weights must have shape \(4,\), got \(2, 2\)"),
        (["a", "b"], "weights must hold real numbers"),
    ],
)
def test_weights_that_are_not_one_number_of_at_least_one_per_feature_are_refused(weights, words):
    with pytest.raises(ValueError, match=words):
        regularizers.L2(weights)


@pytest.mark.parametrize("groups", [[], [[0, 1]], 3], ids=str)
def test_groups_must_name_the_group_of_each_feature(groups):
    with pytest.raises(ValueError, match=r"groups must name the group of each feature, such as .*, got shape"):
        regularizers.GroupElasticNet(groups)


def test_a_regularizer_not_finished_says_which_method_it_lacks():
    for method in ("value", "conjugate", "grad_conjugate"):
        with pytest.raises(NotImplementedError, match=f"Regularizer has no {method}"):
            getattr(regularizers.Regularizer(), method)(np.zeros(2))


@pytest.mark.parametrize(
    "values", [[], [-2.0, -1.0], [1.0, 3.0, 2.0], [1.0, np.inf], [np.nan, 1.0], [1.0, np.nan, 2.0]]
)
def test_the_largest_entry_is_that_of_a_reduction(values):
    np.testing.assert_equal(largest(np.array(values)), float(np.maximum.reduce(np.array(values), initial=0.0)))
