"""The Gram pipeline: every piece is made once and used in turn, whoever made it; errors reach the caller, threads go home."""

import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, samplings
from dualnewton.kernels import blocks
from dualnewton.run.result import Status
from dualnewton.solvers.dual import pipeline
from dualnewton.solvers.dual.compiled import CompiledEngine
from tables import labels_for

N, D = 2203, 60  # more entries than the NumPy rounds are for; not a multiple of any τ below
STORAGES = {"dense": lambda X: X, "CSR": sp.csr_array}


def make(storage="dense", K=1, **kwargs):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.5)
    loss = losses.Logistic()
    first = dn.Problem(STORAGES[storage](X), labels_for(loss, N, rng), loss, lam=0.01, **kwargs)
    return [first, *(dn.Problem(first.X, labels_for(loss, N, rng), loss, lam=0.02 * k) for k in range(1, K))]


OTHERS = set()
"""The threads that were there before a test: the main thread, and those of a Dask cluster that other tests use."""


@pytest.fixture(autouse=True)
def _others():
    OTHERS.clear()
    OTHERS.update(threading.enumerate())


def helpers_left(patience=3.0):
    """The threads of a test that are still there when they have had time to go."""
    deadline = time.monotonic() + patience
    while (left := set(threading.enumerate()) - OTHERS) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


@pytest.fixture
def tiny_pieces(monkeypatch):
    """Pieces of one set, so that an epoch has hundreds of them."""
    monkeypatch.setattr(pipeline, "PIECE", 1)


HELPER, LEADER = False, True


class Watched:
    """The kernel with something done before each call by helpers or by the leader, and something after."""

    def __init__(self, who, before=lambda *_: None, after=lambda *_: None):
        self.kernel, self.who, self.before, self.after = blocks.rounds, who, before, after

    def prepare(self, *args):
        return self.kernel.prepare(*args)

    def __call__(self, *args):
        mine = args[7] is self.who
        if mine:
            self.before(*args)
        self.kernel(*args)
        if mine:
            self.after(*args)


def board_of(args):
    """The shared words, among the arguments of the kernel."""
    return args[6]


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("n_threads", [2, 4])
def test_every_piece_is_taken_made_and_used(storage, n_threads, tiny_pieces, monkeypatch):
    boards, makers = [], []
    monkeypatch.setattr(blocks, "rounds", Watched(LEADER, after=lambda *args: boards.append(board_of(args))))
    monkeypatch.setattr(blocks, "rounds", Watched(HELPER, lambda *_: makers.append(threading.current_thread())))
    (problem,) = make(storage)
    sampling = samplings.Shuffled(N, 8)
    engine = CompiledEngine([problem], sampling, [np.zeros(N)], separable_rounds=False, n_threads=n_threads)
    engine.run(sampling.draw(np.random.default_rng(0), sampling.rounds_per_epoch))
    (board,) = boards
    pieces = sampling.rounds_per_epoch
    assert board[blocks.TAKEN] == board[blocks.CONSUMED] == pieces
    assert board[blocks.READY :].tolist() == [1] * pieces
    assert len(set(makers)) == n_threads - 1
    assert helpers_left() == set()


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("late", [HELPER, LEADER], ids=["helper", "leader"])
def test_a_late_side_changes_no_bit(storage, late, tiny_pieces, monkeypatch):
    """Whichever half holds the other up, also with every slot full, the order of the arithmetic is the same."""
    problems = make(storage, K=3)
    expected = dn.solve_many(problems, tau=32, tol=0.0, max_epochs=2, random_state=0)
    monkeypatch.setattr(blocks, "rounds", Watched(late, lambda *_: time.sleep(0.02)))
    found = dn.solve_many(problems, tau=32, tol=0.0, max_epochs=2, random_state=0, n_threads=3)
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one.w, other.w)
        assert np.array_equal(one.alpha, other.alpha)
    assert helpers_left() == set()


@pytest.mark.parametrize("n_threads", [2, 3])
def test_an_error_of_a_helper_reaches_the_caller_and_leaves_no_thread(n_threads, tiny_pieces, monkeypatch):
    claimed = threading.Event()

    def fail_with_a_piece_in_hand(*args):
        if not claimed.is_set():
            board_of(args)[blocks.TAKEN] = 1
            claimed.set()
        raise RuntimeError("no memory left")

    found = []

    def fit():
        try:
            dn.solve(make()[0], tau=16, n_threads=n_threads, random_state=0)
        except RuntimeError as error:
            found.append(str(error))

    monkeypatch.setattr(blocks, "rounds", Watched(HELPER, fail_with_a_piece_in_hand))
    monkeypatch.setattr(blocks, "rounds", Watched(LEADER, lambda *_: claimed.wait(10.0)))
    caller = threading.Thread(
        target=fit, daemon=True
    )  # so that a leader that waits for ever does not hold up the tests
    caller.start()
    caller.join(10.0)
    assert found == ["no memory left"]
    assert helpers_left() == set()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_of_the_leader_leaves_no_thread(error, tiny_pieces, monkeypatch):
    calls, problem = [], make()[0]

    def fail(*_):
        calls.append(1)
        if len(calls) == 2:  # in the second sweep
            raise error("enough")

    monkeypatch.setattr(blocks, "rounds", Watched(LEADER, fail))
    if error is KeyboardInterrupt:
        result = dn.solve(problem, tau=16, tol=0.0, n_threads=3, random_state=0)
        assert result.status is Status.INTERRUPTED
        assert result.certificate.primal == pytest.approx(problem.primal(result.w), rel=1e-14)
        assert result.certificate.dual == pytest.approx(problem.dual(result.alpha), rel=1e-14)
    else:
        with pytest.raises(RuntimeError, match="enough"):
            dn.solve(problem, tau=16, tol=0.0, n_threads=3, random_state=0)
    assert helpers_left() == set()


def test_more_threads_than_pieces_are_no_trouble():
    problem = make()[0]
    one, many = (dn.solve(problem, tau=D, max_epochs=1, tol=0.0, random_state=0, n_threads=t) for t in (1, 50))
    assert many.plan.compiled
    assert np.array_equal(one.alpha, many.alpha)
    assert helpers_left() == set()


def test_no_more_threads_are_used_than_the_first_stage_keeps_busy():
    for K, tau, wanted in ((1, 8, 4), (1, 40, 12), (2, 8, 3), (9, 8, 2)):
        alphas = [np.zeros(N) for _ in range(K)]
        engine = CompiledEngine(make(K=K), samplings.Shuffled(N, tau), alphas, separable_rounds=False, n_threads=16)
        assert engine._sweep.n_threads == wanted
