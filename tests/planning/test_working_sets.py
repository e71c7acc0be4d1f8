"""Which features the matrix of a least-squares model is formed of: all at once where most are used, else those that are."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.costs import Costs
from dualnewton.planning.tuning import DEFAULT
from dualnewton.planning.working_sets import affordable_features, sums_at_once, takes_all
from dualnewton.solvers.direct import thresholds

RNG = np.random.default_rng(5)
X = RNG.standard_normal((400, 80)) + 1.0
Y = X @ RNG.standard_normal(80) + RNG.standard_normal(400)
WEIGHTS, OFFSET = RNG.uniform(0.5, 2.0, 400), RNG.standard_normal(400)


def problem(lam, regularizer=None, y=Y, **more):
    return dn.Problem(X, y, losses.Squared(), regularizer=regularizer or regularizers.L1(), lam=lam, **more)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("more", [{}, {"sample_weight": WEIGHTS, "offset": OFFSET}], ids=["plain", "weighted"])
def test_slopes_at_zero_are_those_of_the_objective(fit_intercept, more):
    own = problem(1.0, fit_intercept=fit_intercept, **more)
    w, t = np.zeros(80), 1e-4
    steps = [own.best_intercept(w + s * t * np.eye(80)[7]) for s in (-1.0, 1.0)]
    values = [own.primal(w + s * t * np.eye(80)[7], b) - t for s, b in zip((-1.0, 1.0), steps, strict=True)]
    assert own.slopes_at_zero[7] / own.n == pytest.approx((values[1] - values[0]) / (2.0 * t), rel=1e-6)


def test_the_matrix_of_all_features_is_for_weak_penalties():
    highest = float(np.abs(problem(1.0, fit_intercept=True).slopes_at_zero).max()) / 400
    assert sums_at_once(problem(1e-3 * highest, fit_intercept=True))
    assert not sums_at_once(problem(0.5 * highest, fit_intercept=True))
    # Of the features that must not be negative, those with a negative slope are used: here none.
    falling = problem(1e-3, regularizers.ElasticNet(1.0, positive=True), y=-X.sum(axis=1))
    assert sums_at_once(problem(1e-3, y=-X.sum(axis=1)))
    assert not sums_at_once(falling)


def test_features_of_several_outputs_are_gathered_as_they_are_used():
    """Which of many features explain a target independently is known for one output alone."""
    several = dn.Problem(
        X, np.column_stack([Y, -Y]), losses.SquaredOutputs(2), regularizer=regularizers.JointL1(), lam=1e-3
    )
    few = replace(DEFAULT, summed_features=79)
    assert sums_at_once(several)
    assert not sums_at_once(several, few)
    result = dn.solve(several, tol=1e-6, tuning=replace(few, direct_entries=0, small_entries=0))
    assert result.converged
    assert result.plan.family is None


def test_both_ways_find_the_same_model():
    own = problem(0.05, fit_intercept=True)
    assert sums_at_once(own)
    general = replace(DEFAULT, direct_entries=0, small_entries=0, swept_entries=0)
    found = [
        dn.solve(own, method="newton", tol=1e-10, tuning=replace(general, walk_share=share)) for share in (0.0, 2.0)
    ]
    for each in found:
        assert each.certificate.relative_gap <= 1e-10
        assert each.plan.family is None
    np.testing.assert_allclose(found[0].w, found[1].w, atol=1e-9)


def test_many_features_are_gathered_unless_each_explains_a_part_of_its_own():
    own = problem(1e-3, fit_intercept=True)
    few = replace(DEFAULT, summed_features=79)
    assert sums_at_once(own)
    assert sums_at_once(own, few)
    assert not sums_at_once(own, replace(few, shared_share=0.0))
    common = np.random.default_rng(1).standard_normal((400, 1))
    alike = dn.Problem(
        0.1 * X + common, Y + 20.0 * common[:, 0], losses.Squared(), regularizer=regularizers.L1(), lam=1e-3
    )
    assert sums_at_once(alike)
    assert not sums_at_once(alike, few)


@pytest.mark.parametrize(
    ("used", "turns"), [(200, (thresholds.LEAST, 184, 184)), (20, (20, 0, 20))], ids=["all", "few"]
)
def test_independent_features_are_gathered_in_two_turns(used, turns, monkeypatch):
    """Features with an effect are recognised at w = 0, and those that chance adds from the residuals of these."""
    rng, gathered = np.random.default_rng(2), []
    rows = rng.standard_normal((4000, 200))
    y = rows[:, :used] @ rng.choice([-1.0, 1.0], used) + rng.standard_normal(4000)
    gather = thresholds.Rows.gather
    monkeypatch.setattr(thresholds.Rows, "gather", lambda self, some: gathered.append(some.size) or gather(self, some))
    model = dn.Lasso(alpha=1e-3 if used == 200 else 0.04).fit(rows, y)
    first, least, most = turns
    assert gathered[0] == first
    assert least <= sum(gathered[1:]) <= most
    assert model.certificate_.relative_gap <= model.tol


def test_wide_elastic_nets_walk_on_systems_of_the_rows():
    """Noise alone would make every feature nonzero at w = 0; the linear systems are still no larger than the rows."""
    wide = np.random.default_rng(7).standard_normal((300, 5000))
    y = wide[:, :30].sum(axis=1)
    lam, g = regularizers.mixed(0.2, 0.5)
    own = dn.Problem(wide, y, losses.Squared(), regularizer=g, lam=lam, fit_intercept=True)
    assert dn.plan(own).method == "newton"


def test_steps_on_sparse_rows_are_over_all_features_of_which_the_matrix_is_cheap():
    """As for w8a: 20000 rows of 12 entries; the matrix of all 300 features costs more than a pass, and less than that of some."""
    sparse = Costs.of(Profile(20_000, 300, 240_000, 72.0 * 20_000, True, 8), DEFAULT)
    dense = Costs.of(Profile(20_000, 300, 6_000_000, 0.5 * 300**2 * 20_000, False, 8), DEFAULT)
    assert affordable_features(sparse) < 300
    assert takes_all(sparse, once=False)
    assert not takes_all(dense, once=False)
