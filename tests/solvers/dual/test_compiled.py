"""The compiled engine as ``solve`` and ``solve_many`` drive it: true certificates, equal bits, and no surprise on the way."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers, samplings, theory
from dualnewton.run.result import Status
from dualnewton.solvers.dual import sweeps
from dualnewton.solvers.dual.compiled import CompiledEngine
from tables import LOSSES, labels_for, make_problem, name_of, regularizers_for
from tuned import tuned
from verified import assert_certificate_is_true

N, D = 1507, 90  # more entries than the NumPy rounds are for; no τ below divides N
EPS = np.finfo(np.float64).eps


def make(loss=losses.Logistic(), seed=0, **kwargs):  # noqa: B008 (frozen)
    return make_problem(loss, n=N, d=D, seed=seed, **{"lam": 0.02, **kwargs})


def assert_same_bits(one, other):
    assert np.array_equal(one.w, other.w)
    assert np.array_equal(one.alpha, other.alpha)
    assert one.intercept == other.intercept
    assert one.certificate == other.certificate
    assert one.n_epochs == other.n_epochs


# Certificates ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", [{}, {"sparse": True, "weights": True, "offset": True}], ids=str)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_loss_converges_to_a_true_certificate(loss, form, fit_intercept):
    for regularizer in regularizers_for(D)[:5:2]:
        problem = make(loss, regularizer=regularizer, fit_intercept=fit_intercept, **form)
        result = dn.solve(problem, tol=1e-7, random_state=0)
        assert result.plan.compiled
        assert result.status is Status.CONVERGED
        assert result.certificate.relative_gap <= 1e-7
        assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("k", range(len(regularizers_for(D))), ids=lambda k: name_of(regularizers_for(D)[k]))
@pytest.mark.parametrize("form", [{}, {"sparse": True, "fit_intercept": True}], ids=str)
def test_every_regularizer_converges_to_a_true_certificate(k, form):
    problem = make(regularizer=regularizers_for(D)[k], **form)
    for tau in (1, 16):
        result = dn.solve(problem, method="sdna", tau=tau, tol=1e-7, random_state=0)
        assert result.plan.compiled
        assert result.status is Status.CONVERGED
        assert_certificate_is_true(problem, result)
        assert np.any(result.w != 0.0)


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_of_features_are_a_change_of_their_units(sparse):
    """With w_j = u_j/√v_j the penalty ½ Σ v_j w_j² of w on X is ½‖u‖² of u on the columns X_j/√v_j."""
    v = np.geomspace(1.0, 50.0, D)
    weighted = make(sparse=sparse, regularizer=regularizers.L2(v))
    scaled = dn.Problem(weighted.X @ sp.diags_array(v**-0.5), weighted.y, weighted.loss, lam=weighted.lam)
    one, other = (dn.solve(problem, method="sdna", tol=1e-12, random_state=0) for problem in (weighted, scaled))
    assert one.plan.compiled
    np.testing.assert_allclose(np.sqrt(v) * one.w, other.w, atol=1e-5)
    assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-11)
    assert np.linalg.norm(one.w - other.w) > 0.1 * np.linalg.norm(other.w)


def test_groups_of_one_are_the_elastic_net():
    net, groups = regularizers.ElasticNet(l1=0.3), regularizers.GroupElasticNet(range(D), strength=0.3)
    one, other = (dn.solve(make(regularizer=g), method="sdna", tau=8, tol=1e-12, random_state=0) for g in (net, groups))
    assert one.plan.compiled
    assert other.plan.compiled
    np.testing.assert_allclose(one.w, other.w, atol=1e-6)
    assert 0 < np.count_nonzero(one.w) < D


@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("tau", [1, 7, 32])
def test_every_block_size_reaches_the_optimum_of_the_reference(method, tau):
    problem = make(weights=True, fit_intercept=True)
    result = dn.solve(problem, method=method, tau=tau, tol=1e-7, random_state=0)
    assert result.status is Status.CONVERGED
    reference = dn.solve(problem, tol=1e-9, random_state=0, tuning=tuned(small_entries=10 * N * D))
    assert not reference.plan.compiled
    # λ-strong convexity turns the gaps into a distance: ‖w − w*‖² ≤ 2 gap/λ.
    radius = np.sqrt(2.0 * result.certificate.gap / problem.lam) + np.sqrt(
        2.0 * reference.certificate.gap / problem.lam
    )
    assert np.linalg.norm(result.w - reference.w) <= radius
    # and the radius is no blank cheque
    assert radius < 0.05 * np.linalg.norm(reference.w)


def test_rounding_has_the_last_word():
    result = dn.solve(make(losses.Squared(), lam=1.0), tau=8, tol=0.0, max_epochs=5000, random_state=0)
    assert result.status in (Status.NO_PROGRESS, Status.ROUNDING)  # rounding: a gap of exactly zero
    assert result.certificate.relative_gap <= 1e-13


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("lam", [1e-1, 1e-2])
def test_float32_rows_are_solved_as_tightly_as_float64(loss, lam):
    """Gram blocks are summed in float32, what a run converges to is not: a gap far below its rounding in as many epochs."""
    narrow = make(loss, lam=lam, dtype=np.float32, fit_intercept=True)
    wide = dn.Problem(narrow.X.astype(np.float64), narrow.y, loss, lam=lam, fit_intercept=True)
    settings = {"tau": 8, "tol": 1e-12, "random_state": 0}
    one, other = (dn.solve(problem, method="sdna", **settings) for problem in (narrow, wide))
    assert one.plan.compiled
    assert one.status is Status.CONVERGED
    assert_certificate_is_true(narrow, one)
    assert one.n_epochs == pytest.approx(other.n_epochs, rel=0.02)


def test_where_float32_will_do_for_gram_blocks_follows_from_the_curvature():
    plain = engine_of(make(dtype=np.float32)).limit
    assert engine_of(make(dtype=np.float32, lam=0.002)).limit == pytest.approx(0.1 * plain)
    weighted = make(dtype=np.float32, weights=True)
    assert engine_of(weighted).limit == pytest.approx(plain / weighted.c.max())
    assert engine_of(make(losses.SmoothHinge(0.5), dtype=np.float32)).limit == pytest.approx(
        plain * losses.SmoothHinge(0.5).gamma / losses.Logistic().gamma
    )


# Equal bits ------------------------------------------------------------------------------------------------------------

SAMPLINGS = {
    "shuffled": lambda: samplings.Shuffled(N, 16),  # the last set is ragged
    "nice": lambda: samplings.Nice(N, 16),
    "independent": lambda: samplings.Independent(np.linspace(0.001, 0.02, N)),
    "partition": lambda: samplings.Partition(N, 50),
    "explicit": lambda: samplings.Explicit(N, [range(k, N, 60) for k in range(60)], np.full(60, 1 / 60)),
    "serial with importance": lambda: samplings.Serial(N, theory.importance(make())),
}


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_number_of_threads_changes_no_bit(name, sparse):
    problem = make(sparse=sparse, fit_intercept=True)
    settings = {"sampling": SAMPLINGS[name](), "tol": 1e-12, "max_epochs": 4}
    one, two, three = (dn.solve(problem, **settings, n_threads=t, random_state=5) for t in (1, 2, 3))
    assert_same_bits(one, two)
    assert_same_bits(one, three)
    other = dn.solve(problem, **settings, n_threads=2, random_state=6)
    assert not np.array_equal(one.alpha, other.alpha)


@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_defaults_repeat_themselves_bit_for_bit(method, dtype):
    problem = make(losses.SquaredHinge(), dtype=dtype)
    assert_same_bits(*(dn.solve(problem, method=method, random_state=1, n_threads=t) for t in (1, 2)))


@pytest.mark.parametrize("sparse", [False, True])
def test_solves_in_several_python_threads_are_those_alone(sparse):
    problems = [make(loss, sparse=sparse, lam=lam) for loss in LOSSES[:3] for lam in (0.02, 0.1)]

    def fit(problem, threads=1):
        return dn.solve(problem, tau=8, random_state=0, n_threads=threads, tol=1e-9)

    alone = [fit(problem) for problem in problems]
    with ThreadPoolExecutor(4) as pool:
        for threads in (1, 2):
            for one, other in zip(alone, pool.map(lambda p, t=threads: fit(p, t), problems), strict=True):
                assert_same_bits(one, other)


# Many models -----------------------------------------------------------------------------------------------------------


def family(K, loss=losses.Logistic(), sparse=False, **kwargs):  # noqa: B008 (frozen)
    """K problems over the same data with labels, λ, weights and offsets of their own."""
    first = make(loss, sparse=sparse, **kwargs)
    rng = np.random.default_rng(9)
    X = first.X
    made = [first]
    for k in range(1, K):
        own = {"sample_weight": rng.uniform(0.2, 2.0, N)} if k % 2 else {"offset": 0.3 * rng.standard_normal(N)}
        y = labels_for(loss, N, rng)
        made.append(
            dn.Problem(
                X, y, loss, regularizer=first.regularizer, lam=0.02 * 3.0**k, fit_intercept=first.fit_intercept, **own
            )
        )
    return made


@pytest.mark.parametrize("tau", [1, 8])
@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("form", [{}, {"sparse": True}, {"fit_intercept": True}], ids=str)
def test_several_models_are_the_single_ones(method, tau, form):
    problems = family(4, **form)
    together = dn.solve_many(problems, method=method, tau=tau, tol=1e-7, random_state=0)
    epochs = {result.n_epochs for result in together}
    assert len(epochs) > 1  # some left early
    for problem, result in zip(problems, together, strict=True):
        assert result.status is Status.CONVERGED
        assert_certificate_is_true(problem, result)
        alone = dn.solve(problem, method=method, tau=tau, tol=1e-7, random_state=0)
        # both optima lie between the two certificates' values
        assert result.certificate.dual <= alone.certificate.primal
        assert alone.certificate.dual <= result.certificate.primal
        distance = np.linalg.norm(result.w - alone.w)
        assert distance <= 2.0 * np.sqrt(2.0 * 1e-7 * result.certificate.primal / problem.lam)


@pytest.mark.parametrize("tau", [1, 8])
def test_a_model_that_leaves_does_not_disturb_the_others(tau):
    """The labels of a problem that is solved at once must not matter to the one that goes on."""
    hard = make(lam=1e-3)
    easy = dn.Problem(hard.X, hard.y, hard.loss, lam=1e3)
    alone = dn.solve_many([hard, hard], tau=tau, tol=1e-6, random_state=0)
    mixed = dn.solve_many([easy, hard], tau=tau, tol=1e-6, random_state=0)
    assert mixed[0].n_epochs < mixed[1].n_epochs
    assert mixed[1].status is Status.CONVERGED
    np.testing.assert_allclose(mixed[1].alpha, alone[1].alpha, atol=1e-9)
    assert mixed[1].n_epochs == alone[1].n_epochs


@pytest.mark.parametrize("tau", [1, 16])
@pytest.mark.parametrize("sparse", [False, True])
def test_several_models_give_equal_bits_with_any_number_of_threads(sparse, tau):
    """Threads take models where rounds visit single examples, and Gram blocks otherwise."""
    problems = family(3, sparse=sparse)
    runs = [dn.solve_many(problems, tau=tau, tol=1e-6, random_state=0, n_threads=t) for t in (1, 2, 3, 8)]
    for one, *others in zip(*runs, strict=True):
        for other in others:
            assert_same_bits(one, other)


def test_problems_over_the_same_sparse_matrix_may_be_made_one_by_one():
    rng = np.random.default_rng(0)
    X = sp.random_array((N, D), density=0.3, rng=rng, format="csr")
    problems = [dn.Problem(X, labels_for(losses.Logistic(), N, rng), losses.Logistic()) for _ in range(3)]
    for result in dn.solve_many(problems, random_state=0):
        assert result.status is Status.CONVERGED


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("X", {"X": np.ones((N, D))}),
        ("loss", {"loss": losses.SquaredHinge()}),
        ("regularizer", {"regularizer": regularizers.ElasticNet()}),
        ("fit_intercept", {"fit_intercept": True}),
    ],
)
def test_problems_that_differ_in_what_they_must_share_are_refused_by_name(name, change):
    first = make()
    other = dn.Problem(**{"X": first.X, "y": first.y, "loss": first.loss, **change})
    with pytest.raises(ValueError, match=f"problems must share {name}: problem 1"):
        dn.solve_many([first, other])


def test_no_problem_and_too_few_warm_starts_are_refused():
    with pytest.raises(ValueError, match="problems must hold at least one problem, got none"):
        dn.solve_many([])
    with pytest.raises(ValueError, match="warm_start must have one entry for each of 2 problems, got 1"):
        dn.solve_many(family(2), warm_start=[np.zeros(N)])


def test_a_callback_is_told_of_the_model_and_may_stop_one():
    problems, seen = family(3), []

    def watch(progress):
        seen.append(progress)
        return progress.model == 1

    results = dn.solve_many(problems, tol=1e-6, random_state=0, callback=watch)
    statuses = [result.status for result in results]
    assert statuses == [Status.CONVERGED, Status.STOPPED_BY_CALLBACK, Status.CONVERGED]
    assert {progress.model for progress in seen} == {0, 1, 2}
    for k, result in enumerate(results):
        mine = [progress for progress in seen if progress.model == k]
        assert mine == result.trace.rows
        assert mine[-1].certificate == result.certificate


# The loop's other promises ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [1, 16])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_warm_start_goes_on_where_the_other_stopped(tau, fit_intercept):
    problem = make(lam=2e-3, fit_intercept=fit_intercept)
    cold = dn.solve(problem, tau=tau, tol=1e-6, random_state=0)
    assert dn.solve(problem, tau=tau, tol=2e-6, warm_start=cold).n_epochs == 0
    nearby = dn.Problem(problem.X, problem.y, problem.loss, lam=1.8e-3, fit_intercept=fit_intercept)
    warm, anew = (
        dn.solve(nearby, tau=tau, tol=1e-6, warm_start=start, random_state=0, max_epochs=5000) for start in (cold, None)
    )
    assert warm.status is anew.status is Status.CONVERGED
    assert warm.n_epochs < anew.n_epochs
    both = dn.solve_many([problem, nearby], tau=tau, tol=2e-6, warm_start=[cold, warm])
    assert [result.n_epochs for result in both] == [0, 0]


def test_max_epochs_ends_with_a_certificate():
    result = dn.solve(problem := make(lam=1e-4), tau=1, tol=1e-12, max_epochs=3, random_state=0)
    assert result.status is Status.EPOCH_LIMIT
    assert 3 <= result.n_epochs <= 4  # a sweep is not cut
    assert_certificate_is_true(problem, result)
    assert (np.diff(result.trace.primal) <= 0.0).all()
    assert (np.diff(result.trace.dual) >= 0.0).all()


def test_a_time_limit_is_kept_inside_an_epoch(monkeypatch):
    monkeypatch.setattr(sweeps, "PIECE", 160)
    run, calls = CompiledEngine.run, []

    def ticking(self, block, *limits):
        calls.append(len(block))
        run(self, block, *limits)

    monkeypatch.setattr(CompiledEngine, "run", ticking)
    monkeypatch.setattr(time, "perf_counter", lambda: 0.02 * len(calls))
    problem = make(lam=1e-4)
    result = dn.solve(problem, tau=16, tol=1e-14, time_limit=0.05, random_state=0)
    assert result.status is Status.TIME_LIMIT
    assert 0 < result.n_epochs <= 1
    assert max(calls) <= 10
    assert len(calls) < 76 / 10  # an epoch has 76 sets: it was cut
    assert_certificate_is_true(problem, result)
    assert dn.solve(problem, tau=16, time_limit=0.0).status is Status.TIME_LIMIT


@pytest.mark.parametrize("tau", [1, 16])
def test_looking_at_the_clock_changes_no_bit(tau):
    problem = make()
    assert_same_bits(*(dn.solve(problem, tau=tau, random_state=0, time_limit=limit) for limit in (None, 600.0)))


def test_ctrl_c_returns_the_best_certified_point_so_far():
    problem, seen = make(lam=1e-4), []

    def watch(progress):
        seen.append(progress)
        if progress.epoch > 0:
            raise KeyboardInterrupt

    result = dn.solve(problem, tau=8, tol=1e-13, random_state=0, callback=watch)
    assert result.status is Status.INTERRUPTED
    assert result.certificate == seen[-1].certificate
    assert_certificate_is_true(problem, result)


def test_ctrl_c_inside_the_kernels_leaves_the_models_that_were_done_alone(monkeypatch):
    run, calls = CompiledEngine.run, []

    def interrupted(self, block, *limits):
        calls.append(1)
        if len(calls) == 8:
            raise KeyboardInterrupt
        run(self, block, *limits)

    monkeypatch.setattr(CompiledEngine, "run", interrupted)
    hard = make(lam=1e-4)
    easy = dn.Problem(hard.X, hard.y, hard.loss, lam=1e3)
    done, open_ = dn.solve_many([easy, hard], tau=8, tol=1e-6, random_state=0)
    assert done.status is Status.CONVERGED
    assert open_.status is Status.INTERRUPTED
    assert_certificate_is_true(hard, open_)


# The data, as they come ------------------------------------------------------------------------------------------------


def engine_of(problem, tau=4):
    return CompiledEngine([problem], samplings.Shuffled(N, tau), [np.zeros(N)], separable_rounds=False)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_the_data_are_not_copied(dtype, index, tmp_path):
    problem = make(dtype=dtype)
    X = problem.X
    assert np.shares_memory(engine_of(dn.Problem(X, problem.y, problem.loss)).rows.data, X)
    S = sp.csr_array(np.where(X.max() > X, X, 0.0).astype(dtype))  # rows that store all entries are treated as dense
    S = sp.csr_array((S.data, S.indices.astype(index), S.indptr.astype(index)), shape=S.shape)
    rows = engine_of(dn.Problem(S, problem.y, problem.loss)).rows
    assert rows.columns.dtype.itemsize == np.dtype(index).itemsize
    for part, own in zip(rows, (S.data, S.indices, S.indptr), strict=True):
        assert np.shares_memory(part, own)
    mapped = np.memmap(tmp_path / "X", dtype=dtype, mode="w+", shape=X.shape)
    mapped[:] = X
    assert np.shares_memory(engine_of(dn.Problem(mapped, problem.y, problem.loss)).rows.data, mapped)


@pytest.mark.parametrize("tau", [1, 8])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_read_only_mapped_and_fortran_order_data_give_the_same_bits(tau, dtype, tmp_path):
    problem = make(dtype=dtype)
    X, settings = problem.X, {"tau": tau, "random_state": 0, "tol": 1e-6}
    expected = dn.solve(dn.Problem(np.array(X), problem.y, problem.loss), **settings)
    frozen = np.array(X)
    frozen.setflags(write=False)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    strided = np.zeros((2 * N, D + 3), dtype=dtype)
    strided[::2, 1:-2] = X
    for form in (frozen, mapped, np.asfortranarray(X), strided[::2, 1:-2], X.astype(dtype().dtype.newbyteorder(">"))):
        if form.dtype != dtype and dtype == np.float32:
            continue  # foreign byte order is widened to float64, so that the last bits of the certificate may differ
        assert_same_bits(expected, dn.solve(dn.Problem(form, problem.y, problem.loss), **settings))
    assert not frozen.flags.writeable


@pytest.mark.parametrize("tau", [1, 8])
def test_sparse_forms_that_are_not_canonical_are_solved_as_what_they_mean(tau):
    """Entries out of order, and entries given in parts that add up: the matrix is the same."""
    problem = make(losses.Squared(), sparse=True)
    X = problem.X
    times = 6
    parts = sp.csr_array(
        (np.repeat(X.data / times, times), np.repeat(X.indices, times), times * X.indptr), shape=X.shape
    )
    backwards = X[:, ::-1].tocsr()
    backwards = sp.csr_array((backwards.data, D - 1 - backwards.indices, backwards.indptr), shape=X.shape)
    expected = dn.solve(problem, tau=tau, random_state=0, tol=1e-8)
    for form in (parts, backwards, X.tocsc(), X.tocoo()):
        np.testing.assert_allclose(form.toarray(), X.toarray(), rtol=1e-14)
        result = dn.solve(dn.Problem(form, problem.y, problem.loss, lam=problem.lam), tau=tau, random_state=0, tol=1e-8)
        assert result.status is Status.CONVERGED
        assert abs(result.n_epochs - expected.n_epochs) <= 2
        np.testing.assert_allclose(result.w, expected.w, atol=1e-3)


# What the kernels do not serve -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpecialLogistic(losses.Logistic):
    """A logistic loss whose author likes SciPy."""

    def derivative(self, z, y):
        from scipy.special import expit

        return -y * expit(-y * z)


class SpecialRidge(regularizers.L2):
    """½‖w‖² whose author likes SciPy, too, and says nothing of its form."""

    form = regularizers.Regularizer.form  # not the one of L2: it is known by its functions only

    def grad_conjugate(self, s):
        from scipy.special import xlog1py

        return s + xlog1py(0.0, s * s)


class Helped(regularizers.L2):
    """½‖w‖² whose author likes small methods."""

    form = regularizers.Regularizer.form  # not the one of L2: it is known by its functions only

    def same(self, s):
        return s

    def grad_conjugate(self, s):
        return self.same(s)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"loss": SpecialLogistic()}, "SpecialLogistic cannot be compiled"),
        ({"regularizer": SpecialRidge()}, "SpecialRidge cannot be compiled (Use of unsupported opcode"),
        ({"regularizer": Helped()}, "Helped cannot be compiled (Unknown attribute 'same'"),
    ],
    ids=["loss", "regulariser", "a method of its own"],
)
@pytest.mark.parametrize("tau", ["auto", 60])
def test_what_cannot_be_compiled_is_served_by_the_reference_and_the_plan_says_why(change, reason, tau):
    base = make()
    problem = dn.Problem(**{"X": base.X, "y": base.y, "loss": base.loss, "lam": 0.1, **change})
    result = dn.solve(problem, tau=tau, tol=1e-4, random_state=0)
    assert not result.plan.compiled
    assert reason in result.plan.reason
    assert result.status is Status.CONVERGED
    assert_certificate_is_true(problem, result)
