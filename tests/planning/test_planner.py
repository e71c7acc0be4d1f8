"""Plans follow from sizes and conditioning alone, say why, and are reconsidered by work, never by the clock."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import ChunkedData, MemoryData
from dualnewton.planning import tuning as tuning_module
from dualnewton.planning.costs import Costs
from dualnewton.planning.dual import dual_epoch, expected_epochs
from dualnewton.planning.facts import Facts
from dualnewton.planning.plan import Plan
from dualnewton.planning.planner import general_plan, kinked_plans, predicted_costs
from dualnewton.planning.switching import Switching
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.primal.model import Model
from tables import make_problem
from tuned import GENERAL, tuned

WRONG = tuned(epochs_fixed=-1e9, direct_entries=0)
"""SDNA seems to cost less than nothing."""


def tall(n=40_000, d=20, lam_n=1.0, scale=1.0, loss=None, seed=0, **extras):
    """Many more examples than features; rows of squared norm scale²·d."""
    rng = np.random.default_rng(seed)
    X = scale * rng.standard_normal((n, d))
    y = np.where(X[:, 0] + scale * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return dn.Problem(X, y, loss or losses.Logistic(), lam=lam_n / n, **extras)


def wide_and_sparse(n=3000, d=20_000, seed=0, **extras):
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.003, format="csr", random_state=rng)
    X = sp.csr_array(sp.diags_array(1.0 / np.sqrt(X.multiply(X).sum(axis=1) + 1e-9)) @ X)
    return dn.Problem(X, np.where(rng.random(n) < 0.5, 1.0, -1.0), losses.Logistic(), lam=1.0 / n, **extras)


@pytest.mark.parametrize(("n", "d", "tau"), [(30_000, 100, 1), (2000, 400, 1), (10_000, 400, 8)])
def test_rounds_take_several_examples_only_where_rows_are_long_and_exceed_the_cache(n, d, tau):
    assert dn.plan(tall(n=n, d=d), method="sdna").tau == tau


def test_the_plan_is_reported_and_can_be_overridden():
    small, large = make_problem(losses.Squared(), n=40), make_problem(losses.Squared(), n=2000, d=100)
    assert not dn.plan(small).compiled
    assert dn.plan(small, method="sdna").tau == 40
    assert "Newton" in dn.plan(small, method="sdna").reason
    assert "too small to load compiled kernels" in dn.plan(small, method="sdna").reason
    assert dn.plan(large, method="sdna").compiled
    assert dn.plan(large, method="sdna").tau < 2000
    chosen = dn.plan(large, method="sdca", tau=3)
    assert (chosen.method, chosen.tau, chosen.reason, chosen.compiled) == ("sdca", 3, "tau given by the user", True)
    assert not dn.plan(large, method="sdna", tau=101).compiled  # more examples than features: the d×d form
    assert dn.plan(large, tau=8).method == "sdna"
    assert dn.solve(large, max_epochs=0).plan == dn.plan(large)
    assert str(dn.plan(small, method="sdna")).startswith("sdna, tau = 40: ")
    assert "compiled" in str(dn.plan(large, method="sdna"))
    for method in ("sdna", "sdca", "newton", "ihs"):
        assert dn.plan(large, method=method).method == method
        assert dn.plan(large, method=method, tuning=GENERAL).cost > 0.0


@pytest.mark.slow
def test_each_regime_gets_its_method():
    # One step of Newton's method solves least squares with few features.
    assert dn.plan(tall(loss=losses.Squared())).method == "newton"
    # Many examples, few features, rows that are long against the penalty: scikit-learn's everyday case.
    assert dn.plan(tall(lam_n=0.1)).method in ("newton", "ihs")
    # Short sparse rows with far more features than any matrix could have.
    assert dn.plan(wide_and_sparse(), tuning=GENERAL).method == "sdna"
    # So few stored entries that calls take most of the time.
    assert dn.plan(wide_and_sparse()).family == "conjugate"
    # A kink: steps over the features in use, unless there would be too many of them.
    assert dn.plan(tall(regularizer=regularizers.ElasticNet(0.1))).method == "newton"
    assert dn.plan(wide_and_sparse(regularizer=regularizers.ElasticNet(0.01))).method == "sdna"
    # No strong convexity: there is no dual method.
    assert dn.plan(wide_and_sparse(regularizer=regularizers.L1())).method == "newton"
    # What is no sum over features has no other method than this.
    assert dn.plan(tall(regularizer=regularizers.GroupElasticNet(np.arange(20) // 2))).method == "sdna"


def costs_of(X):
    return Costs.of(MemoryData(X).profile)


def test_costs_grow_with_what_they_count():
    X = np.ones((1000, 30))
    costs, longer = costs_of(X), costs_of(np.ones((4000, 30)))
    assert costs.data_pass < longer.data_pass
    assert costs.epoch < longer.epoch
    assert costs.sketch(100) < costs.sketch(200) < costs.sketch(1000)
    assert costs_of(sp.csr_array(X)).pairs == costs.pairs
    for each in (costs, longer, costs_of(np.ones((50_000, 300)))):
        rows, budget = each.first_sketch, each.drawing + each.data_pass
        assert rows == 1 or each.sketch(rows) <= budget
        assert rows == each.n or each.sketch(rows + 1) > budget


def test_conditioning_is_what_the_theorem_divides_by():
    problem = tall(n=2000, lam_n=0.5, scale=3.0)
    expected = 1.0 + problem.norms.mean() / (4.0 * 0.5)
    assert Facts.of(problem).conditioning == pytest.approx(expected, rel=0.1)
    assert expected_epochs(100.0) > expected_epochs(1.0)


def course(problem, method, tol=1e-6):
    return Switching(problem, dn.plan(problem, method=method), tol, free=True)


def test_a_dual_method_that_crawls_is_left_for_a_primal_one():
    slow = course(tall(lam_n=0.01), "sdna")
    for epoch in range(6):
        slow.note(float(epoch), 0.1 * 0.98**epoch, 5.0 * 0.98**epoch)
    better = slow.better()
    assert better is not None
    assert better.is_primal
    assert better.before is not None
    assert better.before.method == "sdna"
    assert "more epochs of sdna" in str(better)


def test_a_method_that_keeps_its_promise_is_kept():
    quick = course(wide_and_sparse(), "sdna")
    for epoch in range(6):
        quick.note(float(epoch), 0.1**epoch, 7.0 * 0.1**epoch)
        assert quick.better() is None
    unknown = course(tall(), "sdna")
    for epoch in range(6):
        unknown.note(float(epoch), 0.1, math.nan)
        assert unknown.better() is None


def test_a_primal_method_far_beyond_its_prediction_is_left_for_a_dual_one():
    problem = wide_and_sparse()
    lost = course(problem, "ihs")
    for turn in range(400):
        lost.note(3.0 * turn, 0.5 * 0.999**turn, 0.999**turn)
    better = lost.better()
    assert better is not None
    assert better.method == "sdna"
    assert "passes of ihs" in better.reason


def test_what_was_asked_for_is_not_changed():
    problem = tall(lam_n=0.01)
    asked = Switching(problem, dn.plan(problem, method="sdna"), 1e-6, free=False)
    for epoch in range(6):
        asked.note(float(epoch), 0.1 * 0.99**epoch, 0.99**epoch)
    assert asked.better() is None


@pytest.mark.slow
def test_a_run_that_changes_its_method_carries_its_point_over_and_repeats(monkeypatch):
    problem = tall(n=20_000, d=30, lam_n=0.02, seed=3)
    first = dn.solve(problem, random_state=0, tuning=WRONG)
    monkeypatch.setattr(time, "perf_counter", lambda clock=time.perf_counter: 100.0 * clock())  # another machine
    second = dn.solve(problem, random_state=0, tuning=WRONG)
    assert first.converged
    assert first.plan.before is not None
    assert first.plan.before.method == "sdna"
    assert first.plan.is_primal
    assert np.all(np.diff(first.trace.gap) <= 0.0)
    assert np.array_equal(first.w, second.w)
    assert first.plan == second.plan


def test_penalties_of_each_feature_need_no_l2_of_the_plain_kind():
    weights = np.linspace(1.0, 100.0, 20)
    result = dn.solve(tall(regularizer=regularizers.L2(weights)), tol=1e-9, random_state=0)
    assert result.converged
    assert result.plan.is_primal


@pytest.mark.parametrize(
    ("method", "regularizer", "words"),
    [
        ("newton", regularizers.GroupElasticNet(np.arange(20) // 2), "needs a regularizer that is a sum over features"),
        ("ihs", regularizers.NonNegative(), r"needs regularizer L2\(\), got NonNegative"),
        ("sdna", regularizers.L1(), r"needs a strongly convex regularizer, got L1\(positive=False\)"),
        ("sdca", regularizers.L1(), 'use "newton", or regularizers.mixed with l1_ratio < 1'),
    ],
)
def test_a_method_says_which_penalties_it_is_for(method, regularizer, words):
    with pytest.raises(ValueError, match=words):
        dn.plan(tall(n=500, regularizer=regularizer), method=method)


def test_a_penalty_that_no_method_takes_on_data_in_pieces_is_refused_by_name():
    rng = np.random.default_rng(0)
    pieces = ChunkedData([rng.standard_normal((5, 4)) for _ in range(2)])
    penalty = regularizers.GroupElasticNet([0, 0, 1, 1])
    problem = dn.Problem(pieces, rng.standard_normal(10), losses.Squared(), regularizer=penalty)
    with pytest.raises(
        dn.DualnewtonError, match=r"regularizer must be a sum over features for these data, since .* pieces"
    ):
        dn.solve(problem)


def test_a_kink_makes_a_dual_method_dearer_and_lets_the_run_change():
    smooth, kinked = Facts.of(tall()), Facts.of(tall(regularizer=regularizers.ElasticNet(0.1)))
    assert kinked.conditioning == smooth.conditioning
    assert predicted_costs(kinked)["sdna"] > predicted_costs(smooth)["sdna"]
    slow = course(kinked.problem, "sdna")
    for epoch in range(6):
        slow.note(float(epoch), 0.1 * 0.98**epoch, 5.0 * 0.98**epoch)
    better = slow.better()
    assert better is not None
    assert better.method == "newton"
    assert not course(tall(n=500, regularizer=regularizers.L1()), "newton").free  # there is nothing to change to


@pytest.mark.slow
def test_a_run_with_a_kink_changes_its_method_on_the_way():
    problem = tall(n=20_000, d=30, lam_n=0.02, seed=3, regularizer=regularizers.ElasticNet(0.1))
    result = dn.solve(problem, random_state=0, tuning=WRONG)
    assert result.converged
    assert (result.plan.method, result.plan.before.method) == ("newton", "sdna")


def test_a_primal_method_that_cannot_go_on_hands_over_to_sdna(monkeypatch):
    problem = tall(n=2000, d=5)
    assert dn.plan(problem).is_primal
    monkeypatch.setattr(Model, "_accepts", lambda *_: False)  # no step is ever good enough
    result = dn.solve(problem, random_state=0, tuning=GENERAL)
    assert result.converged
    assert result.plan.method == "sdna"
    assert result.plan.before is not None
    assert "rounding stopped the steps" in str(result.plan)
    asked = dn.solve(problem, method="newton", random_state=0, tuning=GENERAL)
    assert asked.status is dn.Status.NO_PROGRESS
    assert asked.plan.before is None


def test_newton_takes_all_rows_or_says_so():
    problem = make_problem(losses.Logistic(), n=40)
    assert dn.plan(problem, method="newton", tau=40) == dn.plan(problem, method="newton")
    with pytest.raises(ValueError, match='tau must be "auto" or n = 40 with method "newton", got 5'):
        dn.solve(problem, method="newton", tau=5)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.EpsilonInsensitive(0.1)])
def test_a_loss_with_kinks_is_planned_by_cost(loss):
    """Interior points without kernels for small data, rounds for sparse rows, smoothed losses where neither applies."""
    small = dn.plan(tall(loss=loss, n=300, d=10))
    assert (small.method, small.compiled, small.smoothed) == ("interior", False, False)
    first, *others = kinked_plans(tall(loss=loss))
    assert [first.cost, *(plan.cost for plan in others)] == sorted(plan.cost for plan in (first, *others))
    assert {(plan.method, plan.smoothed) for plan in (first, *others)} >= {("interior", False), ("sdna", False)}
    sparse = replace(wide_and_sparse(), loss=loss)
    assert dn.plan(sparse).method == "sdna"
    assert not dn.plan(sparse).smoothed
    bounded = dn.plan(replace(tall(loss=loss), regularizer=regularizers.L1(positive=True)))
    assert bounded.smoothed
    assert "smoothed losses" in bounded.reason


def test_losses_with_kinks_are_smoothed_where_each_step_reads_files(tmp_path):
    problem = tall(loss=losses.Hinge())
    np.save(tmp_path / "rows.npy", problem.data.X)
    on_disk = replace(problem, X=dn.data.open(tmp_path / "rows.npy", target=problem.y).X)
    plans = kinked_plans(on_disk)
    assert [plan.smoothed for plan in plans] == [True, False]
    assert [plan.method for plan in plans][1] == "interior"
    assert Costs.of(on_disk.data.profile).reading == problem.n * problem.d * 8 / DEFAULT.rates.file_bandwidth
    assert Costs.of(problem.data.profile).reading == 0.0


@pytest.mark.slow
def test_slow_rounds_on_a_loss_with_kinks_are_left_for_interior_points():
    problem = tall(loss=losses.Hinge(), n=3000, d=60, lam_n=1e-3)
    result = dn.solve(problem, tol=1e-4, max_epochs=5000, tuning=GENERAL)
    assert result.converged
    assert result.plan.before is not None
    assert (result.plan.before.method, result.plan.method) == ("sdna", "interior")
    assert "more epochs of rounds" in result.plan.reason


def test_two_steps_of_rounds_show_their_speed():
    """A third would be a joint step, which may cost more than all sweeps before."""
    problem = tall(loss=losses.Hinge(), n=3000, d=60, lam_n=1e-3)
    course = Switching(problem, general_plan(problem, method="sdna", tau="auto"), 1e-4, free=True)
    course.note(0.5 * DEFAULT.kinked_trial_epochs, 0.8, 0.8)
    assert course.better() is None
    course.note(DEFAULT.kinked_trial_epochs, 0.79, 0.79)
    assert course.better().method == "interior"


def test_sdna_is_tried_on_dense_data_with_about_as_many_rows_as_features():
    """The products of the rows give the dual a curvature that the predicted epochs, from the penalty alone, leave out."""
    square = tall(n=1000, d=900, lam_n=0.01)
    assert predicted_costs(Facts.of(square))["sdna"] > 100.0 * predicted_costs(Facts.of(square))["newton"]
    by_rounds = replace(DEFAULT, fewest_products=1 << 30)
    assert "trial of SDNA" in dn.plan(square, tuning=by_rounds).reason
    assert "trial of SDNA" not in dn.plan(square, tuning=replace(by_rounds, trial_rows=1.0)).reason
    assert "trial of SDNA" not in dn.plan(tall(n=4000, d=900, lam_n=0.01)).reason


@pytest.mark.parametrize(("n", "tried"), [(2000, True), (4000, False)])
def test_sdna_is_tried_on_sparse_data_with_few_rows_for_each_feature_alone(n, tried):
    """With more rows the trial was in vain: 30000 rows with 10000 features took 2.5 times as long."""
    rng = np.random.default_rng(0)
    X = sp.random_array((n, 1000), density=0.03, rng=rng, format="csr")
    problem = dn.Problem(X, np.where(rng.standard_normal(n) > 0.0, 1.0, -1.0), losses.Logistic(), lam=1e-7)
    assert ("trial of SDNA" in dn.plan(problem, tuning=tuned(small_entries=0)).reason) is tried


def test_rounds_that_would_exceed_the_limit_of_epochs_are_left():
    square = tall(n=1000, d=900, lam_n=0.01)
    course = Switching(square, dn.plan(square, tuning=replace(DEFAULT, fewest_products=1 << 30)), 1e-4, free=True)
    for epoch in range(1, 31):  # 32 more epochs would do
        course.note(float(epoch), 0.75**epoch, 0.75**epoch)
    assert course.better(remaining=70.0) is None
    assert course.better(remaining=1.0) is None  # a few epochs miss tol by little; a Newton step costs far more
    course.change_to(course.state.plan)
    for epoch in range(1, 31):
        course.note(float(epoch), 0.9**epoch, 0.9**epoch)
    assert course.better(remaining=100.0) is None
    assert course.better(remaining=40.0).is_primal


@pytest.mark.parametrize("family", ["kinks", None])
def test_slow_rounds_are_left_after_a_direct_solver_that_failed(family):
    problem = tall(loss=losses.Hinge(), n=3000, d=60, lam_n=1e-3)
    first = Plan("interior", problem.n, "one call", family=family)
    rounds = general_plan(problem, method="sdna", tau="auto").after(first, "the direct solution missed tol")
    course = Switching(problem, rounds, 1e-4, free=True)
    for epoch in range(100):
        course.note(float(epoch), 0.5 * 0.999**epoch, 0.999**epoch)
    better = course.better()
    assert rounds.has_switched == (family is None)
    if family is None:  # the run has left a method before
        assert better is None
        return
    assert better.method == "interior"
    course.change_to(better)
    assert course.better(stuck=True) is None


def test_newton_is_not_left_for_rounds_of_numpy_at_the_price_of_compiled_ones():
    problem = tall(n=380, d=19, lam_n=1.0)
    facts = Facts.of(problem)
    assert facts.small
    assert dual_epoch(facts) > 10.0 * facts.costs.epoch
    course = Switching(problem, dn.plan(problem, method="newton"), 1e-6, free=True)
    # Far beyond the prediction, and as many passes to go as compiled epochs would be well worth.
    course.relative_gap = 1e-2
    passes = 2.0 * expected_epochs(facts.difficulty) * facts.costs.epoch / facts.costs.data_pass
    assert course._dual(passes, 1e9) is None
    assert course._dual(passes * 1e4, 1e9).method == "sdna"


def test_many_rounds_of_a_given_tau_are_compiled_on_small_data_too():
    few, many = (make_problem(losses.Logistic(), n=60, lam=lam_n / 60.0) for lam_n in (10.0, 0.01))
    for method in ("sdna", "sdca"):
        assert not dn.plan(few, method=method, tau=1).compiled
        assert dn.plan(many, method=method, tau=1).compiled
        assert not dn.plan(many, method=method).compiled  # with blocks as large as NumPy likes them
    assert not dn.plan(many, method="sdna", tau=60).compiled  # one round an epoch
    result = dn.solve(many, method="sdna", tau=1, tol=1e-9, random_state=0)
    assert result.plan.compiled
    newton = dn.solve(many, method="newton", tol=1e-14)
    assert result.certificate.dual <= newton.certificate.primal <= result.certificate.primal * (1.0 + 1e-12)


def test_the_speed_of_a_long_run_is_known_from_few_of_its_steps():
    """A run of thousands of steps keeps a bounded number of residuals, which reach back over about half of it."""
    X, y = np.eye(20), np.where(np.arange(20) % 2, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-3)
    course = Switching(problem, dn.plan(problem, method="sdna", tau=1), 1e-9, free=True)
    for epoch in range(1, 5001):
        course.note(float(epoch), 0.5, 0.999**epoch)
    history = course.state.history
    assert len(history) <= 100
    assert history[-1][0] == 5000.0
    assert 2000.0 <= history[0][0] <= 2600.0
    assert course._pace() == pytest.approx(-math.log(0.999))


def test_outputs_that_share_a_hessian_are_planned_by_newton_where_one_takes_dual_rounds():
    """Rounds are done for each output; there were as many epochs for three outputs as for one in the prediction."""
    X = np.random.default_rng(0).standard_normal((1000, 2500)).astype(np.float32)
    problem = dn.Problem(X, X[:, 0], losses.Squared(), lam=1.0 / 1000, fit_intercept=True)
    one, three = Facts.of(problem), Facts.of(problem, models=3)
    assert predicted_costs(three)["sdna"] > 2.8 * predicted_costs(one)["sdna"]
    assert predicted_costs(three)["newton"] < 1.1 * predicted_costs(one)["newton"]
    assert dn.plan(problem).method == "sdna"
    assert dn.plan(problem, models=3).method == "newton"
    weighted = replace(problem, sample_weight=np.linspace(0.5, 1.5, 1000))
    assert predicted_costs(Facts.of(weighted, models=3)) == predicted_costs(Facts.of(weighted))


def test_a_hessian_in_single_precision_is_predicted_at_half_the_cost():
    X = np.random.default_rng(0).standard_normal((4000, 700))
    problem = dn.Problem(X, X[:, 0], losses.Squared(), lam=1.0 / 4000)
    costs = Facts.of(problem).matrix_costs
    assert costs.single
    whole = replace(costs, single=False)
    assert 0.5 < costs.outer(4000, costs.pairs)[0] / whole.outer(4000, whole.pairs)[0] < 0.6
    assert not Facts.of(replace(problem, lam=1e-9)).matrix_costs.single  # the ridge would be lost


@pytest.mark.parametrize(("shared", "method"), [(0.0, "ihs"), (1.0, "sdna")])
def test_few_passes_are_predicted_for_features_without_correlation(shared, method):
    """A diagonal Hessian is then about exact: 10000×400 takes 0.6 of the time of rounds; 1.5 times it with a shared direction."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 400)) + shared * rng.standard_normal((10_000, 1))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-4)
    facts = Facts.of(problem)
    assert (facts.feature_overlap < 1.1) is (method == "ihs")
    assert dn.plan(problem).method == method
    X[0, 0] = 0.0  # rows that store all of their entries are treated as dense
    assert Facts.of(dn.Problem(sp.csr_array(X), y, losses.Logistic(), lam=1.0)).feature_overlap == math.inf


def test_what_follows_from_the_numbers_is_computed_once_for_each_kind(monkeypatch):
    computed, own, other = [], replace(DEFAULT), replace(DEFAULT, fewest_directions=7)
    for kind in ("a", "b", "a"):
        assert own.kept(kind, lambda kind=kind: computed.append(kind) or kind) == kind
    assert computed == ["a", "b"]
    assert own == DEFAULT
    assert other.kept("a", lambda: 3) == 3
    monkeypatch.setattr(tuning_module, "KEPT", 2)
    own.kept("c", lambda: None)
    own.kept("a", lambda: computed.append("again"))
    assert computed == ["a", "b", "again"]


def test_the_gradients_that_are_tried_depend_on_size_loss_and_numbers():
    rng = np.random.default_rng(0)
    found = {}
    for d, loss in ((2000, losses.Logistic()), (9000, losses.Logistic()), (2000, losses.SquaredHinge())):
        problem = dn.Problem(rng.standard_normal((90, d)), np.sign(rng.standard_normal(90)), loss, lam=0.1)
        plans = [dn.plan(problem), dn.plan(problem, tuning=replace(DEFAULT)), dn.plan(problem)]
        assert plans[0] == plans[1] == plans[2]
        found[d, type(loss)] = plans[0].directions
    assert len(set(found.values())) > 1
