"""The linear system of the examples on kinks: exact where the set is right, not used where it is not, and always certified."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.costs import Costs
from dualnewton.planning.plan import Plan
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.outer import proximal_point as smoothing
from kinked_cases import Quantile, problem_for
from tables import name_of
from tuned import tuned

LOSSES = [
    losses.Hinge(),
    losses.EpsilonInsensitive(0.3),
    losses.EpsilonInsensitive(0.0),
    losses.Quantile(0.3),
    Quantile(),
]

VARIANTS = {
    "plain": {},
    "intercept": {"fit_intercept": True},
    "weights, some zero": {"sample_weight": np.random.default_rng(0).integers(0, 4, 80) * 0.7, "fit_intercept": True},
    "offset": {"offset": np.random.default_rng(1).standard_normal(80), "fit_intercept": True},
    "feature weights": {"regularizer": regularizers.L2(np.arange(1.0, 7.0))},
    "sparse": {"sparse": True, "regularizer": regularizers.L2(np.arange(1.0, 7.0)), "fit_intercept": True},
}


@dataclass(frozen=True)
class Bent(losses.NonSmooth):
    """|r| + r²/2: a kink, but not piecewise linear."""

    def value(self, z, y):
        return np.abs(z - y) + 0.5 * (z - y) ** 2

    def derivative(self, z, y):
        return np.sign(z - y) + (z - y)

    def second_derivative(self, z, y):
        return 1.0 + 0.0 * (z - y)

    def conjugate_inside(self, u, y):
        return u * y + 0.5 * np.maximum(np.abs(u) - 1.0, 0.0) ** 2

    def kinks(self, y):
        return (losses.Kink(y, 0.0 * y - 1.0, 0.0 * y + 1.0),)

    def smoothed(self, width):
        return SmoothBent(width)


@dataclass(frozen=True)
class SmoothBent(losses.Loss):
    width: float

    @property
    def gamma(self):
        return self.width

    def derivative(self, z, y):
        r = z - y
        far = (np.abs(r) > self.width) * 1.0
        return far * (r + np.sign(r)) / (1.0 + self.width) + (1.0 - far) * r / self.width

    def second_derivative(self, z, y):
        far = (np.abs(z - y) > self.width) * 1.0
        return far / (1.0 + self.width) + (1.0 - far) / self.width

    def value(self, z, y):
        r = z - y
        far = (np.abs(r) > self.width) * 1.0
        u = far * (r + np.sign(r)) / (1.0 + self.width) + (1.0 - far) * r / self.width
        return u * r - 0.5 * self.width * u * u - 0.5 * np.maximum(np.abs(u) - 1.0, 0.0) ** 2

    def conjugate_inside(self, u, y):
        return u * (0.5 * self.width * u + y) + 0.5 * np.maximum(np.abs(u) - 1.0, 0.0) ** 2


def stage_of(problem, width=1e-4):
    """A proximal step from near the optimum: its problem, what was found, and the gap that it proves."""
    centre = 0.9 * dn.solve(problem, tol=1e-8).alpha
    smoothed = replace(problem, loss=problem.loss.smoothed(width), offset=problem.o - width * centre)
    stage = dn.solve(smoothed, tol=1e-12)
    return smoothed, stage, problem.certify(stage.w, alpha=stage.alpha).relative_gap


@pytest.fixture
def without(monkeypatch):
    """Runs as they are without the finish."""
    return lambda: monkeypatch.setattr(smoothing, "solved_on_found_kinks", lambda *_: None)


# The system ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_right_set_gives_the_optimum(loss, variant):
    problem = problem_for(loss, lam=0.02, **VARIANTS[variant])
    smoothed, stage, gap = stage_of(problem)
    assert gap > 1e-9  # something is left to do
    w, alpha = smoothing.solved_on_found_kinks(problem, smoothed, stage, gap)
    assert problem.certify(w, alpha=alpha).relative_gap <= 2e-15


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_free_margins_lie_on_kinks_and_masses_are_in_balance(dtype):
    c = np.random.default_rng(0).uniform(0.2, 2.0, 80)
    problem = problem_for(losses.Hinge(), lam=0.02, fit_intercept=True, sample_weight=c)
    problem = replace(problem, X=problem.X.astype(dtype))
    smoothed, stage, gap = stage_of(problem)
    w, alpha = smoothing.solved_on_found_kinks(problem, smoothed, stage, gap)
    share = problem.y * alpha
    free = (share > 0.0) & (share < 1.0)
    assert 2 <= free.sum() <= problem.d + 1
    assert np.abs(problem.margins(w, problem.best_intercept(w)) * problem.y - 1.0)[free].max() <= 1e-14
    assert abs(c @ alpha) <= 1e-14 * (c @ np.abs(alpha))
    np.testing.assert_allclose(w, problem.w_of(alpha), rtol=1e-13)


def test_repeated_rows_leave_the_system_singular_and_the_optimum_what_it_is():
    """As many free examples as copies of the rows on a kink: more than the unknowns."""
    once = problem_for(losses.Hinge(), lam=0.02, fit_intercept=True)
    four = replace(once, X=np.repeat(once.X, 4, axis=0), y=np.repeat(once.y, 4))
    smoothed, stage, _ = stage_of(four)
    assert smoothing.solved_on_found_kinks(four, smoothed, stage, 2.0 * DEFAULT.late_kink_gap) is None  # not yet
    w, alpha = smoothing.solved_on_found_kinks(four, smoothed, stage, DEFAULT.late_kink_gap)
    share = four.y * alpha
    assert ((share > 0.0) & (share < 1.0)).sum() > four.d + 1
    assert four.certify(w, alpha=alpha).relative_gap <= 1e-14
    np.testing.assert_allclose(w, dn.solve(once, tol=1e-14).w, rtol=1e-7)


def test_a_row_without_weight_that_lies_on_a_kink_takes_no_part():
    half = problem_for(losses.Hinge(), lam=0.04, fit_intercept=True)
    problem = replace(half, X=np.tile(half.X, (2, 1)), y=np.tile(half.y, 2), sample_weight=np.repeat([2.0, 0.0], 80))
    width, centre = 1e-4, np.tile(0.9 * dn.solve(half, tol=1e-8).alpha, 2)
    smoothed = replace(problem, loss=problem.loss.smoothed(width), offset=-width * centre)
    w, alpha = smoothing.solved_on_found_kinks(problem, smoothed, dn.solve(smoothed, tol=1e-12), 1.0)
    assert problem.certify(w, alpha=alpha).relative_gap <= 2e-15
    np.testing.assert_allclose(w, dn.solve(half, tol=1e-14).w, rtol=1e-7)


def test_features_of_unequal_size():
    """What the lift takes from the smallest of them is given back."""
    problem = problem_for(losses.EpsilonInsensitive(0.1), lam=1e-4, fit_intercept=True)
    problem = replace(problem, X=problem.X * 10.0 ** np.linspace(-3.0, 3.0, problem.d))
    smoothed, stage, gap = stage_of(problem)
    w, alpha = smoothing.solved_on_found_kinks(problem, smoothed, stage, gap)
    assert problem.certify(w, alpha=alpha).relative_gap <= 1e-14


def test_without_free_examples_the_vertices_are_the_solution():
    """So strong a penalty that every example is a support vector at its end."""
    X = np.random.default_rng(0).standard_normal((40, 3))
    y = np.repeat([-1.0, 1.0], 20)
    problem = dn.Problem(X, y, losses.Hinge(), lam=1e3)
    smoothed, stage, gap = stage_of(problem)
    _, alpha = smoothing.solved_on_found_kinks(problem, smoothed, stage, gap)
    np.testing.assert_array_equal(alpha, y)


# Where it is no use --------------------------------------------------------------------------------------------------


def test_a_set_that_is_wrong_is_left_to_the_stages():
    problem = problem_for(losses.Hinge(), lam=1e-3, fit_intercept=True)
    smoothed = replace(problem, loss=problem.loss.smoothed(1.0))
    assert smoothing.solved_on_found_kinks(problem, smoothed, dn.solve(smoothed, tol=1e-10), 0.0) is None


def test_other_penalties_and_losses_are_left_to_the_stages():
    problem = problem_for(losses.Hinge(), lam=0.02)
    smoothed, stage, gap = stage_of(problem)
    assert smoothing.solved_on_found_kinks(problem, smoothed, stage, gap) is not None
    other = replace(problem, regularizer=regularizers.NonNegative())
    assert smoothing.solved_on_found_kinks(other, *stage_of(other)) is None
    losses.check(Bent())
    bent = problem_for(Bent(), lam=0.02)
    assert smoothing.solved_on_found_kinks(bent, *stage_of(bent)[:2], 0.0) is None
    assert dn.solve(bent, tol=1e-9).converged


def test_it_costs_no_more_than_the_stage():
    problem = problem_for(losses.Hinge(), lam=0.02)
    smoothed, stage, gap = stage_of(problem)
    costs = Costs.of(problem.data.profile)
    size = int(np.count_nonzero(smoothed.loss.second_derivative(smoothed.margins(stage.w), problem.y)))
    enough = costs.gram(size) / costs.data_pass
    for times, relative_gap, done in ((0.9, gap, False), (1.1, gap, True), (0.2, 1e-9, False), (0.3, 1e-9, True)):
        by_rounds = replace(stage, n_epochs=times * enough, plan=Plan("sdna", 1, "by hand"))
        assert (smoothing.solved_on_found_kinks(problem, smoothed, by_rounds, relative_gap) is not None) == done
    by_passes = replace(stage, n_epochs=0.0, plan=Plan("newton", 80, "by hand"))
    assert smoothing.solved_on_found_kinks(problem, smoothed, by_passes, gap) is not None
    assert smoothing.solved_on_found_kinks(problem, smoothed, stage, gap, tuned(repeated_matrix=2)) is None


def test_numbers_that_overflow_are_not_handed_to_the_judge():
    problem = problem_for(losses.Hinge(), lam=0.02)
    smoothed, stage, gap = stage_of(problem)
    tiny = replace(problem, lam=1e-306)
    assert smoothing.solved_on_found_kinks(tiny, smoothed, stage, gap) is None


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_runs_meet_what_rounding_kept_from_them(loss, without):
    weights = np.random.default_rng(0).uniform(0.2, 2.0, 80)
    problems = [
        problem_for(loss, lam=1.0 / (80 * C), fit_intercept=True, sample_weight=weights)
        for C in np.geomspace(0.05, 20.0, 8)
    ]
    ours = [dn.solve(problem, method="newton", tol=1e-12) for problem in problems]
    assert max(result.certificate.relative_gap for result in ours) <= 2e-15
    without()
    others = [dn.solve(problem, method="newton", tol=1e-12) for problem in problems]
    assert sum(len(result.trace) for result in ours) <= 0.75 * sum(len(result.trace) for result in others)
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_allclose(one.w, other.w, rtol=1e-4, atol=1e-5)


def test_each_of_several_models_is_finished():
    first = problem_for(losses.EpsilonInsensitive(0.2), lam=0.02, sparse=True, fit_intercept=True)
    problems = [first, replace(first, lam=0.5), replace(first, y=-first.y, offset=np.linspace(-1.0, 1.0, 80))]
    assert sp.issparse(first.X)
    for result in dn.solve_many(problems, method="newton", tol=1e-12):
        assert result.certificate.relative_gap <= 2e-15


def test_a_stage_that_is_good_enough_is_not_asked(monkeypatch):
    problem = problem_for(losses.Hinge(), lam=0.02)
    asked = []
    monkeypatch.setattr(smoothing, "solved_on_found_kinks", lambda *args: asked.append(args[3]))
    result = dn.solve(problem, method="newton", tol=1e-4)
    assert result.converged
    assert len(asked) == len(result.trace) - 2  # the start and the last stage are not
    assert min(asked) > 1e-4


def test_a_stage_that_was_cut_short_is_not_asked(monkeypatch):
    """Else a run with a limit would end elsewhere than the run without one."""
    problem = problem_for(losses.Hinge(), lam=0.02)
    stages = []
    monkeypatch.setattr(smoothing, "solved_on_found_kinks", lambda *args: stages.append(args[2]))
    for limit in range(12):
        dn.solve(problem, method="newton", tol=1e-12, max_epochs=limit)
    assert stages
    assert all(stage.status in smoothing.NATURAL for stage in stages)
    stages.clear()
    stopped = dn.solve(problem, method="newton", tol=1e-12, callback=lambda progress: progress.epoch > 2.0)
    assert stopped.status is dn.Status.STOPPED_BY_CALLBACK
    assert stages == []


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_a_gap_that_is_rounding_of_the_margins_is_the_end(loss):
    """With more features than examples the losses are next to nothing, and so is P; no stage could make its gap smaller."""
    problem = problem_for(loss, n=30, d=200, lam=1e-5, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=0.0)
    sizes = np.abs(problem.margins(result.w, result.intercept))
    assert result.certificate.primal <= 1e-4 * sizes.mean()
    assert result.certificate.gap <= smoothing.MARGINS * sizes.mean()
    assert len(result.trace) <= 8  # the rounding of BLAS decides on the last ones
