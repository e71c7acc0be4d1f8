"""The harness measures what it says: peers solve our problem, the search and the means are right, children are bounded."""

import importlib.util
import itertools
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from benchmarks import (
    against_peers,
    data,
    fresh,
    gpu_timeline,
    optimum,
    peers,
    regime_data,
    regimes,
    scaling,
    sklearn_tests,
    timing,
    wide,
)
from benchmarks.against_peers import Experience, Limits, Ours, Row
from benchmarks.report import MISSING, Section, Table, Target, markdown
from benchmarks.sklearn_tests_expected import ACCEL, EXPECTED, REASONS
from joblib import effective_n_jobs

import dualnewton as dn
from dualnewton.planning.costs import Costs

STORAGES, STRENGTHS = ("dense", "CSR"), (1.0, 0.1)
EVERY_PEER = [pytest.param(loss, peer, id=f"{loss}-{peer.name}") for loss in peers.PEERS for peer in peers.PEERS[loss]]


def tiny(storage):
    X, y = data.dense(60, 8)
    return (sp.csr_matrix(X * (np.abs(X) > 0.2)) if storage == "CSR" else X), y


def excess(loss, X, y, lam_n, w):
    """How far P(w) lies above the optimum, relatively."""
    problem = dn.Problem(X, y, data.EVERY_LOSS[loss], lam=lam_n / len(y))
    best = dn.solve(problem, tol=1e-11, random_state=0).certificate
    return (problem.primal(w) - best.primal) / best.primal


def labels(loss, y):
    # Residuals on both sides of the width of the Huber loss.
    return 3.0 * y + np.random.default_rng(1).standard_normal(len(y)) if loss == "Huber" else y


def fits_of_all_peers():
    """Yield, for each peer and problem, its w and the one with the regularisation doubled."""
    warnings.simplefilter("ignore")  # theirs are not ours to mend
    for loss, storage, lam_n in itertools.product(peers.PEERS, STORAGES, STRENGTHS):
        X, y = tiny(storage)
        for peer in peers.PEERS[loss]:
            if peer.installed and not peer.refuses(X):
                found = [peer.fit(X, labels(loss, y), factor * lam_n, tol=1e-9) for factor in (1.0, 2.0)]
                yield (loss, peer.name, storage, lam_n), found


@pytest.fixture(scope="module")
def fits():
    """In a child: one of the peers flushes tiny numbers to zero in the whole process, which other tests would notice."""
    outcome = timing.in_child(fits_of_all_peers, cap=300.0, threads=1)
    assert outcome.ending == timing.Outcome.DONE
    return dict(outcome.values)


@pytest.mark.parametrize("lam_n", STRENGTHS)
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("loss", "peer"), EVERY_PEER)
def test_every_peer_solves_our_problem(loss, peer, storage, lam_n, fits):
    X, y = tiny(storage)
    if not peer.installed:
        pytest.skip(f"{peer.package} is not installed")
    if peer.refuses(X):
        pytest.skip(peer.refuses(X))
    right, wrong = fits[loss, peer.name, storage, lam_n]
    assert abs(excess(loss, X, labels(loss, y), lam_n, right)) <= 1e-6
    # With the regularisation miscounted by a factor of two, the error that is easily made, the check fails.
    assert excess(loss, X, labels(loss, y), lam_n, wrong) > 5e-5


def test_best_of_keeps_the_shortest_run(monkeypatch):
    clock = iter([0.0, 0.3, 1.0, 1.1, 2.0, 2.2])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    answers = iter("abc")
    run = timing.best_of(lambda: next(answers), repeats=3, enough=10.0)
    assert run.seconds == pytest.approx(0.1)
    assert run.value == "c"


def test_best_of_does_not_repeat_a_long_run(monkeypatch):
    clock = iter([0.0, 5.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(clock))
    assert timing.best_of(lambda: None, repeats=3, enough=1.0).seconds == 5.0


@pytest.mark.parametrize("first", [1, 3, 4, 10])
@pytest.mark.parametrize("needed", [0.7, 3.0, 3.1, 3.6, 7.99])
def test_the_search_ends_within_a_quarter_decade_of_the_loosest_tolerance(needed, first):
    """A solver whose time is the number of digits asked for, and which succeeds from ``needed`` digits on."""
    tried = []

    def attempt(tol):
        tried.append(-math.log10(tol))
        return tried[-1] if tried[-1] >= needed - 1e-12 else None

    trials = list(timing.loosest_success(attempt, first))
    best = min(trial.seconds for trial in trials if trial.succeeded)
    assert needed - 1e-9 <= best <= needed + 0.25
    assert [trial.digits for trial in trials] == pytest.approx(tried)  # each is told, also those that fail
    assert len(tried) <= abs(math.ceil(needed) - first) + 4
    assert len(tried) == len(set(tried))


def test_the_search_of_a_solver_that_never_succeeds_ends():
    trials = list(timing.loosest_success(lambda _: None, first=7))
    assert [trial.digits for trial in trials] == [7, 8, 9, 10]
    assert not any(trial.succeeded for trial in trials)


def test_the_geometric_mean_lets_ahead_and_behind_cancel():
    assert timing.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)
    assert timing.geometric_mean([1.0, 10.0, 100.0]) == pytest.approx(10.0)
    assert math.isnan(timing.geometric_mean([]))


def slow():
    yield "first"
    time.sleep(60.0)
    yield "never"


def failing():
    yield "first"
    raise ValueError("no")


def test_a_child_ends_as_it_says():
    assert timing.in_child(lambda: iter([1, 2]), cap=30.0, threads=1) == timing.Outcome([1, 2], timing.Outcome.DONE)
    assert timing.in_child(slow, cap=0.3, threads=1) == timing.Outcome(["first"], timing.Outcome.CUT)
    failed = timing.in_child(failing, cap=30.0, threads=1)
    assert failed.values == ["first"]
    assert failed.ending == "failed: ValueError: no"


def test_estimators_in_a_child_may_use_several_threads():
    """Joblib, which resolves n_jobs for them, gives one core to daemons; a benchmark of threads would then measure one."""
    assert timing.in_child(lambda: iter([effective_n_jobs(2)]), cap=30.0, threads=2).values == [2]


def test_a_child_is_killed_when_one_value_takes_too_long():
    assert timing.in_child(slow, cap=60.0, threads=1, patience=0.3).ending == timing.Outcome.CUT
    steady = timing.in_child(lambda: (time.sleep(0.5) for _ in range(4)), cap=60.0, threads=1, patience=1.5)
    assert steady.ending == timing.Outcome.DONE


def test_limits_are_longer_with_the_clock_of_the_processor(monkeypatch):
    """Other work, which that clock leaves out, would end the slower peers, and only these."""
    monkeypatch.setattr(timing, "chosen_clock", "cpu")
    waiting = timing.in_child(lambda: (time.sleep(0.8) for _ in range(2)), cap=60.0, threads=1, patience=0.6)
    assert waiting.ending == timing.Outcome.DONE
    assert timing.in_child(slow, cap=60.0, threads=1, patience=0.05).ending == timing.Outcome.CUT


def test_preparation_does_not_eat_the_budget():
    outcome = timing.in_child(lambda: iter([1]), cap=0.8, threads=1, prepare=lambda: time.sleep(1.0))
    assert outcome == timing.Outcome([1], timing.Outcome.DONE)
    unprepared = timing.in_child(lambda: (time.sleep(2.0) for _ in range(2)), cap=0.8, threads=1)
    assert unprepared.ending == timing.Outcome.CUT


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from Linux's /proc")
@pytest.mark.parametrize("mebibytes", [12, 20])
def test_memory_that_was_freed_before_does_not_hide_what_is_used(mebibytes):
    def work():
        large = np.ones(2**22 - 2**10)
        del large  # from now on the allocator keeps arrays up to this size for reuse
        leftovers = [np.ones(3 * 2**17) for _ in range(8)]
        del leftovers
        yield fresh.extra_memory(lambda: np.ones(mebibytes * 2**17))

    outcome = timing.in_child(work, cap=30.0, threads=1)
    assert outcome.ending == timing.Outcome.DONE
    # The kernel keeps its counters per processor and adds them up late, so a few MiB are noise; hidden memory would be all of it.
    assert outcome.last() == pytest.approx(mebibytes * 2**20, abs=mebibytes * 2**19)


def test_the_warm_up_compiles():
    """Problems that NumPy serves, or sparse ones that are spread out, would leave the compiler to the first cell."""
    for cell in data.warm_up_cells():
        assert dn.plan(cell.problem(), method="newton").compiled
        assert Costs.of(cell.problem().data.profile).by_entry is not cell.data.is_dense


def test_rows_have_norm_one_and_zero_rows_stay():
    X = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]])
    for scaled in (data.unit_rows(X), data.unit_rows(sp.csr_array(X)).toarray()):
        np.testing.assert_allclose(np.linalg.norm(scaled, axis=1), [1.0, 0.0, 1.0])
    labels = data.ten_classes(data.dense(200, 30)[0])
    np.testing.assert_array_equal((labels > 0.0).sum(axis=1), np.ones(200))


def test_a_bare_sweep_leaves_w_almost_where_it_was():
    pytest.importorskip("numba")
    from benchmarks.floors import sweep_kernel

    X = data.unit_rows(tiny("CSR")[0])
    n, d = X.shape
    w, margins = np.zeros(d), np.ones(n)
    sweep_kernel()(X.data, X.indices, X.indptr, np.arange(n), w, margins)
    np.testing.assert_allclose(w, 1e-12 * (X.T @ margins), rtol=1e-6)


def test_a_target_is_missed_where_a_value_is_missing():
    assert Target.at_most("", [1.0, 1.2], 1.3).passed
    assert not Target.at_most("", [1.0, math.nan], 1.3).passed
    assert not Target.at_least("", [1.6, math.nan], 1.5).passed
    assert Target.at_least("", [], 1.5).verdict == "not measured"


def test_the_page_holds_every_table_and_no_path_of_the_machine():
    section = Section("Part", [Table("Times", ["data", "ours"], [["tiny", "1 ms"]])], [Target("fast", "2×", True)])
    page = markdown([section], "python -m benchmarks.run", ["a note"])
    assert "| tiny | 1 ms |" in page
    assert "| fast | 2× | PASS |" in page
    assert str(fresh.ROOT) not in page
    assert sys.prefix not in page


# Every regime ------------------------------------------------------------------------------------------------------------


def small_cells():
    X, y = data.dense(80, 12)
    dense = data.Dataset("small, dense", lambda: (X, y))
    sparse = data.Dataset("small, CSR", lambda: (sp.csr_matrix(X * (np.abs(X) > 0.2)), y))
    return [data.Cell(chosen, loss, 0.1) for chosen in (dense, sparse) for loss in data.EVERY_LOSS]


@pytest.mark.parametrize("widest", [5_000, 6], ids=["Cholesky", "conjugate gradients"])
@pytest.mark.parametrize("cell", small_cells(), ids=str)
def test_newton_finds_an_optimum_that_the_judge_certifies(cell, widest, monkeypatch):
    monkeypatch.setattr(optimum, "WIDEST_HESSIAN", widest)
    monkeypatch.setattr(optimum, "DOMINANT", 5)
    problem = cell.problem()
    assert problem.certify(optimum.newton(problem, np.zeros(problem.d), 30.0)).relative_gap <= 1e-9


@pytest.mark.parametrize("loss", ["logistic", "squared", "squared hinge"])
def test_newton_in_the_dual_finds_it_too_where_data_are_wide(loss, monkeypatch):
    monkeypatch.setattr(wide, "DOMINANT", 5)
    monkeypatch.setattr(optimum, "WIDEST_HESSIAN", 20)
    data_set = scaling.sparse_set(60, 80, 6)
    cell = data.Cell(data_set, loss, 0.1)
    assert optimum.is_wide(cell)
    (found,) = optimum.find_optimum(cell, np.zeros(60))  # certified, so that the library is not asked
    narrow = optimum.newton(cell.problem(), np.zeros(80), 30.0)
    assert found.primal == pytest.approx(cell.problem().primal(narrow), rel=1e-7)


def test_an_optimum_is_kept_and_certified_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(optimum, "KEPT", tmp_path / "kept")
    cell = small_cells()[0]
    found = optimum.optimum_of(cell)
    assert found.certified
    (kept,) = (tmp_path / "kept").iterdir()
    np.save(kept, np.full_like(found.point, 7.0))  # whatever lies there is only a start
    again = optimum.optimum_of(cell)
    assert again.certified
    assert again.primal == pytest.approx(found.primal, rel=1e-9)


def test_a_goal_is_reached_near_the_optimum_and_nothing_lies_below_the_dual():
    best = optimum.Optimum(1.0, 1.0 - 1e-12, np.zeros(1))
    assert best.certified
    assert best.reached_by(1.0 + 0.9e-6)
    assert not best.reached_by(1.0 + 1.1e-6)
    with pytest.raises(ArithmeticError, match="below the dual"):
        best.reached_by(1.0 - 1e-9)


def test_standardised_columns_have_variance_one_and_constant_ones_stay():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4)) * [1.0, 100.0, 1e-3, 1.0] + [0.0, 5.0, 1.0, 0.0]
    X[:, 3] = 0.3  # no binary fraction: its computed deviation is not exactly zero
    scaled = regime_data.standardised(X)
    np.testing.assert_allclose(scaled.mean(axis=0), [0.0, 0.0, 0.0, 0.3], atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 1.0, 1.0, 0.0], atol=1e-12)
    X[:, :3] *= rng.random((50, 3)) < 0.5
    kept = regime_data.standardised(sp.csr_array(X))
    assert kept.nnz == np.count_nonzero(X)
    np.testing.assert_allclose(kept.toarray().std(axis=0), [1.0, 1.0, 1.0, 0.0], atol=1e-12)
    np.testing.assert_array_equal(kept.toarray()[:, 3], X[:, 3])
    y = regime_data.centred(rng.random(30))
    np.testing.assert_allclose([y.mean(), y.std()], [0.0, 1.0], atol=1e-12)


def test_generated_data_have_the_condition_number_and_the_wrong_labels_they_claim():
    X, y = regime_data.ill_conditioned(20_000, 4)
    spectrum = np.linalg.eigvalsh(np.cov(X.T))[::-1]
    np.testing.assert_allclose(spectrum, np.geomspace(1.0, 1.0 / regime_data.CONDITION, 4), rtol=0.1)
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    assert np.mean(np.sign(X @ w) != y) == pytest.approx(regime_data.FLIPPED, abs=0.02)


def test_there_are_144_cells_and_the_names_choose_among_them():
    assert len(list(regime_data.cells(regime_data.REGIMES, quick=False))) == 144
    here, absent = regime_data.regimes(quick=False, names=["ill-200000x100", "cadata"])
    assert {*absent, *(regime.name for regime in here)} == {"ill-200000x100", "cadata"}
    for cell in regime_data.cells(regime_data.REGIMES, quick=False):
        assert peers.PEERS[cell.loss]


def row(mine=None, reached=True, **theirs):
    ours = None if mine is None else Ours(mine, "sdna", 1, 3.0, reached)
    return Row(small_cells()[0], optimum.Optimum(1.0, 1.0, np.zeros(1)), ours, theirs)


def test_a_ratio_says_who_reached_the_goal():
    assert row(2.0, saga=3.0, lbfgs=4.0, snapml="cut short").ratio == 1.5
    assert row(2.0, lbfgs="not reached").ratio == math.inf
    assert row(2.0, reached=False, lbfgs=1.0).ratio == 0.0
    assert math.isnan(row(None, lbfgs="cut short").ratio)
    assert against_peers.mean_ratio([row(1.0, a=4.0), row(1.0, a=1.0), row(1.0), row(None, a=1.0)]) == 2.0
    assert [against_peers.line(row(*times, **theirs))[-1] for times, theirs in (((1.0,), {}), ((), {"a": 1.0}))] == [
        "only ours",
        "only a peer",
    ]


def test_more_threads_are_tried_by_those_they_could_help():
    fast, slow, single = (peers.Peer(name, "numpy", None, threaded=name != "c") for name in "abc")
    known = row(1.0, a=1.0, b=10.0, c=1.0)
    assert [against_peers.could_gain(peer, known) for peer in (fast, slow, single)] == [True, False, False]


def test_experience_orders_peers_and_remembers_the_tolerance():
    a, b = (peers.Peer(name, "numpy", None) for name in "ab")
    lived = Experience()
    lived.learn(b, [timing.Trial(3, None), timing.Trial(4, 0.5), timing.Trial(3.5, 0.4)])
    assert [peer.name for peer in lived.fast_first([a, b])] == ["b", "a"]
    assert (lived.times["b"], lived.digits["b"]) == (0.4, 4)
    lived.learn(b, [timing.Trial(4, None)])
    assert "b" not in lived.times
    assert (Limits(20.0).for_search(math.inf), Limits(20.0).for_run(math.inf)) == (60.0, 20.0)
    assert (Limits(20.0).for_search(1.0), Limits(20.0).for_run(1.0)) == (15.0, 2.5)


def failing_make(task):
    raise AssertionError("a peer that more threads cannot help was asked again")


def test_peers_are_measured_and_those_without_threads_only_once():
    cell = small_cells()[0]
    best = optimum.Optimum(
        *(lambda c: (c.primal, c.dual))(dn.solve(cell.problem(), tol=1e-9).certificate), np.zeros(12)
    )
    first = Row(cell, best, None)
    chosen = [peer for peer in peers.PEERS["logistic"] if peer.name in ("liblinear primal", "lbfgs")]
    against_peers.ask_peers(first, chosen, 1, None, Limits(10.0), Experience())
    assert set(first.peers) == {"liblinear primal", "lbfgs"}
    second = Row(cell, best, None)
    again = [peers.Peer("liblinear primal", "sklearn", failing_make)]
    against_peers.ask_peers(second, again, 2, first, Limits(10.0), Experience())
    assert second.tried == {"liblinear primal": first.tried["liblinear primal"]}


def test_regret_compares_auto_with_the_best_of_our_methods():
    cell, auto = small_cells()[0], Ours(2.0, "sdna", 1, 3.0, True)
    seen = regimes.Hindsight(cell, auto, {"sdna": 2.0, "newton": 1.0, "ihs": MISSING})
    assert seen.regret == 2.0
    assert seen.line[-1] == "2.00×"
    assert regimes.Hindsight(cell, None, {"sdna": MISSING, "newton": 1.0, "ihs": MISSING}).regret == math.inf
    assert math.isnan(regimes.Hindsight(cell, None, dict.fromkeys(regimes.OUR_METHODS, MISSING)).regret)
    assert regimes.own_time(row(1.0), "no such method", 1, 1.0) == MISSING
    assert regimes.against_hindsight([seen], 1).passed is False


def test_the_targets_of_the_regimes_count_what_is_missing_against_us():
    good, bad = row(1.0, a=4.0), row(1.0, a=0.5)
    assert [target.passed for target in regimes.against_peers([good] * 9, 1)] == [True, True, True]
    assert [target.passed for target in regimes.against_peers([good] * 9 + [bad], 1)] == [True, False, True]
    assert [target.passed for target in regimes.against_peers([good] * 8 + [row(None, a=1.0)], 1)] == [
        False,
        False,
        True,
    ]
    worst = regimes.worst([good, bad, row(None, a=1.0), row(None)], 1)
    assert [line[-1] for line in worst.rows] == ["only a peer", "0.50×", "4.00×"]


def test_scaling_draws_what_it_measured(tmp_path):
    pytest.importorskip("matplotlib")
    axis, rows = scaling.AXES[0], [row(0.1, lbfgs=0.2), row(1.0, lbfgs="cut short")]
    assert scaling.times(rows, "ours") == [0.1, 1.0]
    assert scaling.growth(axis, rows) == "Ours grows like n^1.00. "
    assert scaling.plot(axis, rows, tmp_path).stat().st_size > 1_000
    X = scaling.sparse_set(40, 500, 10).X
    assert X.shape == (40, 500)
    assert 9 * 40 <= X.nnz <= 10 * 40


def test_every_expected_failure_of_scikit_learns_tests_is_one_of_its_tests_and_has_a_reason():
    for module in sklearn_tests.MODULES:
        name = module.rpartition(".")[2]
        source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
        for expected in (EXPECTED, ACCEL):
            for function, reason in expected.get(name, {}).items():
                assert f"def {function}(" in source
                assert reason in REASONS
    assert {module.rpartition(".")[2] for module in sklearn_tests.MODULES} >= {*EXPECTED, *ACCEL}


def test_the_summary_counts_by_module_and_reason():
    passed, expected, new = (
        sklearn_tests.Outcome("test_fit", "a", "passed"),
        sklearn_tests.Outcome("test_n_iter", "", "failed", "2 != 1"),
        sklearn_tests.Outcome("test_other", "", "failed"),
    )
    counts = sklearn_tests.Counts.of([passed, expected, new])
    section = sklearn_tests.summary("tests", {"sklearn.linear_model.tests.test_ridge": counts})
    modules, reasons, tests = section.tables
    assert modules.rows == [["test_ridge", "3", "1", "2"], ["all", "3", "1", "2"]]
    assert {row[0]: row[1] for row in reasons.rows if row[1] != "0"} == {"solver": "1", "unexplained": "1"}
    assert [row[1:] for row in tests.rows] == [["test_n_iter", "1", "solver"], ["test_other", "1", "unexplained"]]
    assert section.targets[0].passed is False


@pytest.mark.parametrize("owner", gpu_timeline.WATCHED, ids=lambda owner: owner.__name__)
def test_functions_watched_on_a_gpu_exist(owner):
    """The timeline replaces functions by name, and runs on machines with a GPU only."""
    missing = [name for name in gpu_timeline.WATCHED[owner] if not callable(getattr(owner, name, None))]
    assert not missing
