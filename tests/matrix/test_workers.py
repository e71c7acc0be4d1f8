"""Threads: how many there are, and where they may be used."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.kernels._jit import jit
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.team import TeamKernel
from dualnewton.matrix import as_data, linear, memory, selections, whole
from dualnewton.matrix import workers as of_threads
from dualnewton.matrix.workers import end_waiting, physical_cores, sum_of_squares, threads, workers


@jit
def fails(counter, parts):
    if next_number(counter) < parts:
        raise ValueError("of a part")


@jit
def counts(counter, taken):
    part = next_number(counter)
    while part < taken.size:
        taken[part] += 1
        part = next_number(counter)


FAILS, COUNTS = TeamKernel(fails), TeamKernel(counts)


@pytest.fixture(autouse=True)
def _no_threads_wait():
    """Threads of an earlier test would be used again."""
    end_waiting()


def test_threads_belong_to_their_context_and_are_not_used_inside_each_other():
    with threads(3):
        assert workers().helpers == 2
        counts = workers().each(range(5), lambda _: workers().helpers)
        with threads(1):
            assert workers().helpers == 0
    assert set(counts) == {0}
    assert workers().helpers == 0


def test_threads_have_the_settings_of_warnings_of_the_caller():
    with threads(3), np.errstate(over="ignore"):
        assert workers().each([1e200] * 9, np.square) == [np.inf] * 9


def test_results_are_in_order_and_an_error_reaches_the_caller():
    def inverse(x):
        return 1.0 / x

    for count in (1, 2, 8):
        with threads(count):
            assert workers().each([1.0, 2.0, 4.0], inverse) == [1.0, 0.5, 0.25]
            with pytest.raises(ZeroDivisionError):
                workers().each([1.0, 0.0, 4.0], inverse)


def test_a_thread_that_is_late_is_not_waited_for_and_an_error_of_a_helper_reaches_the_caller():
    main, entered, done = threading.current_thread(), threading.Event(), []

    def fail_in_a_helper():
        if threading.current_thread() is main:
            assert entered.wait(30.0)
        else:
            entered.set()
            raise ValueError("in a helper")

    with threads(4):
        for _ in range(50):  # most helpers find the gate closed, or sleep
            workers().share(lambda: done.append(threading.current_thread()), 4)
        with pytest.raises(ValueError, match="in a helper"):
            workers().share(fail_in_a_helper, 2)
        assert workers().each(range(9), abs) == list(range(9))  # the team goes on
    assert done.count(main) == 50
    assert len(done) <= 200


def test_an_error_in_compiled_code_reaches_the_caller_in_any_number_of_threads():
    for count in (1, 3):
        with threads(count), pytest.raises(ValueError, match="of a part"):
            workers().run(FAILS, 8, np.zeros(1, dtype=np.int64), 8)


def test_another_thread_that_has_work_during_a_job_does_it_alone():
    found = []
    with threads(3):
        team = workers()

        def nested():
            team.share(lambda: found.append(threading.current_thread()), 3)

        team.share(nested, 3)
    assert 1 <= len(found) <= 3
    assert len(set(found)) == len(found)


def test_threads_sleep_and_wake(monkeypatch):
    from dualnewton.kernels import team

    sums = []
    for spell in (0, 1, 200):
        monkeypatch.setattr(team, "MOST_YIELDS", spell)
        end_waiting()
        with threads(4):
            for _ in range(200):
                taken = np.zeros(64, dtype=np.int64)
                workers().run(COUNTS, 64, np.zeros(1, dtype=np.int64), taken)
                sums.append(taken.sum() == taken.max() * 64 == 64)
    assert all(sums)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_system_that_allows_no_further_threads_has_the_work_done_by_the_others(allowed, monkeypatch):
    """An error of ``Thread.start`` would end a fit that one thread can do."""
    start, tried = threading.Thread.start, []

    def limited(thread):
        tried.append(thread)
        if len(tried) > allowed:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    before = threading.active_count()
    with threads(4):
        for _ in range(3):
            taken = np.zeros(64, dtype=np.int64)
            workers().run(COUNTS, 64, np.zeros(1, dtype=np.int64), taken)
            assert taken.tolist() == [1] * 64
        assert workers().each(range(9), abs) == list(range(9))
    assert tried
    end_waiting()
    assert threading.active_count() == before
    monkeypatch.setattr(threading.Thread, "start", start)
    with threads(4):
        assert workers().is_complete  # a team that is not complete is not used again


def test_threads_that_start_late_are_known():
    before = threading.active_count()
    for shares in (2, 3, 8):
        with threads(8):
            workers().share(lambda: None, shares)  # ends before the last threads have started
            workers().share(lambda: None, 8)
        end_waiting()
        assert threading.active_count() == before


def test_threads_wait_for_the_next_context_that_wants_as_many():
    """A fit has two contexts, and starting and ending threads takes 3 ms for each."""
    before = threading.active_count()
    with threads(4):
        first = workers()
        workers().each(range(9), abs)
    for _ in range(3):
        with threads(4):
            assert workers() is first
            assert workers().each(range(9), abs) == list(range(9))
    assert threading.active_count() <= before + 3
    with threads(3):
        assert workers() is not first
        assert workers().each(range(9), abs) == list(range(9))
    assert threading.active_count() <= before + 2  # only the last threads wait
    end_waiting()
    assert threading.active_count() == before


def test_contexts_of_several_callers_at_the_same_time_have_threads_of_their_own():
    both, found = threading.Barrier(2), []

    def call():
        for _ in range(20):
            with threads(3):
                found.append(workers())
                both.wait(30.0)
                assert workers().each(range(9), abs) == list(range(9))
                both.wait(30.0)

    other = threading.Thread(target=call)
    other.start()
    call()
    other.join()
    assert len(found) == 40
    assert all(one is not two for one, two in zip(found[::2], found[1::2], strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # threads of BLAS
def test_threads_that_wait_end_before_a_fork_and_at_the_end_of_the_process():
    code = """if True:
        import os, threading
        from dualnewton.matrix.workers import threads, workers
        def work():
            with threads(4):
                assert workers().each(range(9), abs) == list(range(9))
        work()
        child = os.fork()
        assert threading.active_count() == 1, threading.enumerate()
        work()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            print("done")
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert found.stdout == "done\n"
    assert found.stderr.strip() == ""


def test_threads_that_outnumber_the_items_are_divided_among_these():
    def helped(_):
        taken = np.zeros(640, dtype=np.int64)
        workers().run(COUNTS, 640, np.zeros(1, dtype=np.int64), taken)
        nested = workers().each(range(5), lambda _: workers().helpers)
        return workers().helpers, taken.sum() == taken.max() * 640 == 640, set(nested)

    with threads(9):
        for _ in range(20):
            assert workers().each(range(2), helped) == [(3, True, {0})] * 2
            assert workers().each(range(4), helped) == [(1, True, {0})] * 4
            assert workers().each(range(5), helped) == [(0, True, {0})] * 5
        assert workers().helpers == 8


def test_threads_of_a_context_around_are_used_again():
    """The runs of a cross-validation are inside one context; starting threads for each would take 3 ms."""
    with threads(4):
        outer = workers()
        workers().share(lambda: None, 4)
        before = threading.active_count()
        with threads(4):
            assert workers() is outer
            assert workers().each(range(9), abs) == list(range(9))
        assert threading.active_count() == before  # the inner context has not ended them
        with threads(1):
            assert workers().helpers == 0
        with threads(3):
            assert workers() is not outer
            assert workers().helpers == 2
        assert workers() is outer
    assert workers().helpers == 0


def test_there_is_a_core():
    assert 1 <= physical_cores() <= os.cpu_count()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no CPU affinity on this system")
def test_physical_cores_respect_the_affinity_of_the_process():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))});"
        "from dualnewton.matrix.workers import physical_cores; print(physical_cores())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "1"


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_gathered_in_threads_are_those_of_numpy(dtype, monkeypatch):
    monkeypatch.setattr(whole, "CHUNK", 40)
    X = np.random.default_rng(0).standard_normal((50, 7)).astype(dtype)
    chosen = np.random.default_rng(1).integers(0, 50, 200)
    for count in (1, 3):
        with threads(count):
            found = whole.take_rows(X, chosen)
        assert found.dtype == np.float64
        assert np.array_equal(found, X[chosen])


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_entry_that_is_not_finite_is_found_in_any_number_of_threads(wrong, monkeypatch):
    monkeypatch.setattr(of_threads, "LONG", 10)
    X = np.random.default_rng(0).standard_normal((30, 5))
    for count, compiled_from in ((1, 1000), (3, 1000), (3, 1)):
        monkeypatch.setattr(memory, "COMPILED_FROM", compiled_from)
        with threads(count):
            assert sum_of_squares(X.reshape(-1)) == pytest.approx(np.square(X).sum(), rel=1e-14)
            as_data(1e200 * X)  # the squares overflow, the entries do not
            broken = X.copy()
            broken[17, 2] = wrong
            with pytest.raises(ValueError, match=r"X must be finite, got -?(nan|inf) at index \(17, 2\)"):
                as_data(broken)


def test_column_indices_that_do_not_increase_are_found_in_any_part(monkeypatch):
    monkeypatch.setattr(linear, "COMPARED", 100)
    X = sp.random_array((60, 9), density=0.3, format="csr", rng=np.random.default_rng(0))
    X.data[X.indptr[10] : X.indptr[14]] = X.data[X.indptr[57] :] = 0.0
    X.eliminate_zeros()  # rows without entries, also at the end
    X.sort_indices()
    with threads(3):
        assert linear.in_order(X)
        for row in np.flatnonzero(np.diff(X.indptr) > 1):
            for wrong in (slice(None, None, -1), [0, 0]):
                broken, place = X.copy(), X.indptr[row]
                broken.indices[place : place + 2] = X.indices[place : place + 2][wrong]
                assert not linear.in_order(broken)
    assert linear.in_order(sp.csr_array((3, 2)))


@pytest.mark.parametrize("stride", [1, 10, 64])
def test_the_largest_values_are_found_among_those_above_a_bound_or_among_all(stride, monkeypatch):
    monkeypatch.setattr(selections, "STRIDE", stride)
    monkeypatch.setattr(selections, "PIECE", 700)
    halves = np.full(5000, 0.5)
    values = np.random.default_rng(0).permutation(5000)
    # All values that the bound is computed from are large.
    rare = np.where(np.arange(5000) % stride == 0, 5000.0, values)
    for size in (1, 39, 41, 500, 5000):
        assert sorted(values[selections.largest(2.0 * values, halves, size)]) == list(range(5000 - size, 5000))
        assert sorted(rare[selections.largest(2.0 * rare, halves, size)]) == sorted(rare)[5000 - size :]


def test_gram_matrices_of_sparse_rows_and_their_scaling_by_stripes(monkeypatch):
    monkeypatch.setattr(linear, "STRIPE", 10)
    rows, factors = sp.random_array((33, 20), density=0.4, format="csr", rng=np.random.default_rng(0)), np.arange(33.0)
    with threads(3):
        gram = linear.gram(rows)
        np.testing.assert_array_equal(gram, (rows @ rows.T).toarray())
        np.testing.assert_allclose(linear.scaled_both(gram, factors), factors[:, None] * gram * factors, rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_gram_matrices_of_many_sparse_rows_have_the_same_bits_in_any_number_of_threads(dtype, monkeypatch):
    for name, number in (("STRIPE", 10), ("MANY", 20), ("SHARED", 4)):
        monkeypatch.setattr(linear, name, number)
    rows = sp.random_array((33, 50), density=0.2, format="csr", rng=np.random.default_rng(0), dtype=dtype)
    alone = linear.gram(rows, np.arange(1.0, 51.0))
    np.testing.assert_allclose(alone, (rows * np.arange(1.0, 51.0)) @ rows.T.toarray(), rtol=2e-6)
    for count in (2, 16):
        with threads(count):
            np.testing.assert_array_equal(linear.gram(rows, np.arange(1.0, 51.0)), alone)


def test_cores_that_a_container_does_not_list_are_counted_without_a_word(monkeypatch, capsys):
    def unlisted():
        return "not found", ValueError("found 0 physical cores < 1")

    monkeypatch.setattr("joblib.externals.loky.backend.context._count_physical_cores", unlisted)
    assert physical_cores() >= 1
    assert capsys.readouterr().err == ""
