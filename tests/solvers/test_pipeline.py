"""The Gram pipeline: every piece is consumed once and in order, whoever made it; errors reach the caller, threads go home."""

import sys
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, samplings
from dualnewton.kernels import blocks
from dualnewton.result import Status
from dualnewton.solvers.compiled import CompiledEngine
from tables import labels_for

N, D = 2003, 60  # more entries than the NumPy rounds are for; not a multiple of any τ below
STORAGES = {"dense": lambda X: X, "CSR": sp.csr_array}


def make(storage="dense", K=1, **kwargs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.5)
    loss = losses.Logistic()
    first = dn.Problem(STORAGES[storage](X), labels_for(loss, N, rng), loss, lam=0.01, **kwargs)
    return [first, *(dn.Problem(first.X, labels_for(loss, N, rng), loss, lam=0.02 * k) for k in range(1, K))]


def threads_of_helpers():
    return [thread for thread in threading.enumerate() if thread is not threading.main_thread()]


@pytest.fixture
def tiny_pieces(monkeypatch):
    """Pieces of one or two sets, so that an epoch has hundreds of them."""
    monkeypatch.setattr(sys.modules["dualnewton.solvers.pipeline"], "AHEAD", 1)


class Watched:
    """A kernel with something done before each call."""

    def __init__(self, kernel, before):
        self.kernel, self.before = kernel, before

    def prepare(self, *args):
        return self.kernel.prepare(*args)

    def __call__(self, *args):
        self.before(*args)
        return self.kernel(*args)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n_threads", [2, 4])
def test_pieces_are_produced_once_each_and_consumed_in_order(storage, n_threads, tiny_pieces, monkeypatch):
    produced, consumed, makers = [], [], set()

    def saw_production(data, columns, row_starts, indices, starts, first, last, *rest):
        produced.append((first, last))
        makers.add(threading.current_thread())

    def saw_consumption(data, columns, row_starts, indices, starts, first, last, *rest):
        assert (first, last) in produced
        assert threading.current_thread() is threading.main_thread()
        consumed.append((first, last))

    monkeypatch.setattr(blocks, "produce", Watched(blocks.produce, saw_production))
    monkeypatch.setattr(blocks, "consume", Watched(blocks.consume, saw_consumption))
    (problem,) = make(storage)
    sampling = samplings.Shuffled(N, 8)
    engine = CompiledEngine([problem], sampling, [np.zeros(N)], separable_rounds=False, n_threads=n_threads)
    block = sampling.draw(np.random.default_rng(0), sampling.rounds_per_epoch)
    engine.run(block)
    assert sorted(produced) == consumed
    assert [first for first, _ in consumed] == [0, *(last for _, last in consumed[:-1])]
    assert consumed[-1][1] == len(block)
    assert makers <= {threading.main_thread()} | {t for t in makers if not t.is_alive()}
    assert threads_of_helpers() == []


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("slow", ["produce", "consume"])
def test_a_slow_side_changes_no_bit(storage, slow, tiny_pieces, monkeypatch):
    """Whichever half holds the other up, the order of the arithmetic is the same."""
    problems = make(storage, K=3)
    expected = dn.solve_many(problems, tau=64, tol=0.0, max_epochs=2, random_state=0)

    def dawdle(*_):
        if (threading.current_thread() is threading.main_thread()) == (slow == "consume"):
            time.sleep(1e-3)

    monkeypatch.setattr(blocks, slow, Watched(getattr(blocks, slow), dawdle))
    found = dn.solve_many(problems, tau=64, tol=0.0, max_epochs=2, random_state=0, n_threads=3)
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one.w, other.w)
        assert np.array_equal(one.alpha, other.alpha)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_an_error_of_a_producer_reaches_the_caller_and_leaves_no_thread(n_threads, tiny_pieces, monkeypatch):
    helper_was_here = threading.Event()

    def fail_in_a_helper(*_):
        if threading.current_thread() is threading.main_thread():
            assert helper_was_here.wait(10.0)  # leave a piece to the others
        else:
            helper_was_here.set()
            raise RuntimeError("the disk is gone")

    monkeypatch.setattr(blocks, "produce", Watched(blocks.produce, fail_in_a_helper))
    with pytest.raises(RuntimeError, match="the disk is gone"):
        dn.solve(make()[0], tau=16, n_threads=n_threads, random_state=0)
    assert threads_of_helpers() == []


def test_an_error_of_the_calling_thread_leaves_no_thread_either(tiny_pieces, monkeypatch):
    def fail(*_):
        raise RuntimeError("no room")

    monkeypatch.setattr(blocks, "consume", Watched(blocks.consume, fail))
    with pytest.raises(RuntimeError, match="no room"):
        dn.solve(make()[0], tau=16, n_threads=3, random_state=0)
    assert threads_of_helpers() == []


@pytest.mark.parametrize("n_threads", [1, 2])
def test_ctrl_c_in_the_middle_of_an_epoch_returns_a_certified_point(n_threads, tiny_pieces, monkeypatch):
    problem, calls = make()[0], []
    name = "rounds" if n_threads == 1 else "consume"

    def interrupt(*_):
        calls.append(1)
        if len(calls) == (2 if n_threads == 1 else 150):  # in the second epoch
            raise KeyboardInterrupt

    monkeypatch.setattr(blocks, name, Watched(getattr(blocks, name), interrupt))
    result = dn.solve(problem, tau=16, tol=0.0, n_threads=n_threads, random_state=0)
    assert result.status is Status.INTERRUPTED
    assert result.certificate.primal == pytest.approx(problem.primal(result.w), rel=1e-14)
    assert result.certificate.dual == pytest.approx(problem.dual(result.alpha), rel=1e-14)
    assert threads_of_helpers() == []


def test_the_buffers_go_back_when_the_engine_is_closed():
    sampling = samplings.Shuffled(N, 8)
    engine = CompiledEngine(make(), sampling, [np.zeros(N)], separable_rounds=False, n_threads=2)
    assert engine._sweep.slots
    engine.close()
    assert engine._sweep.slots == []


def test_more_threads_than_pieces_are_no_trouble():
    problem = make()[0]
    one, many = (dn.solve(problem, tau=D, max_epochs=1, tol=0.0, random_state=0, n_threads=t) for t in (1, 50))
    assert many.plan.compiled
    assert np.array_equal(one.alpha, many.alpha)
