"""The samplings: marginals, pairs and laws agree with each other and with the draws; what is no sampling is refused."""

import math
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton import samplings
from dualnewton.samplings import Explicit, Independent, IndexBlock, Nice, PairStructure, Partition, Serial, Shuffled
from tables import name_of, samplings_for

N = 5


def by_sampling(n):
    return pytest.mark.parametrize("sampling", samplings_for(n), ids=name_of)


# What a sampling states: p, P, τ and the law are one thing -----------------------------------------------------------


def assert_consistent(sampling):
    """Enumerate the law and compute everything else from it."""
    support = sampling.support()
    P = np.zeros((sampling.n, sampling.n))
    expected_size = 0.0
    for members, probability in support:
        assert probability > 0.0
        assert 1 <= len(members) == len(set(members.tolist())) <= sampling.max_size
        P[np.ix_(members, members)] += probability
        expected_size += probability * len(members)
    assert math.fsum(probability for _, probability in support) == pytest.approx(1.0, abs=1e-14)
    assert len(support) == sampling.support_size
    assert max(len(members) for members, _ in support) == sampling.max_size or isinstance(sampling, Independent)
    np.testing.assert_allclose(sampling.pair_probabilities(), P, atol=1e-14)
    np.testing.assert_allclose(sampling.p, np.diag(P), atol=1e-14)
    assert sampling.expected_size == pytest.approx(expected_size, rel=1e-14)
    assert sampling.is_uniform == (np.ptp(np.diag(P)) < 1e-12)
    assert (sampling.p > 0.0).all()


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8])
def test_marginals_pairs_and_size_are_those_of_the_law(n):
    for sampling in samplings_for(n):
        assert_consistent(sampling)


@pytest.mark.parametrize(
    "sampling",
    [
        Partition(7, 3, q=[0.2, 0.3, 0.5]),
        Shuffled(7, 3),
        Shuffled(6, 3),
        Independent([1.0, 0.2, 0.5]),
        Independent([1.0, 1.0]),
        Independent([1e-9, 1e-12, 0.3]),
        Independent([1e-9, 2e-9]),
        Serial(3, [1e-12, 1e-6, 1.0 - 1e-6 - 1e-12]),
        Explicit(3, [[0, 1], [1, 0], [2], []], [0.2, 0.3, 0.5, 0.0]),
    ],
    ids=name_of,
)
def test_unusual_samplings_are_consistent_too(sampling):
    assert_consistent(sampling)


def test_the_consistency_check_catches_wrong_pairs():
    class Wrong(Nice):
        def pair_structure(self):
            """Treat the members as independent."""
            right = super().pair_structure()
            p = self.tau / self.n
            return PairStructure(right.diagonal * 0.0 + p - p * p, right.factors, np.array([p * p]))

    assert_consistent(Nice(5, 2))
    with pytest.raises(AssertionError):
        assert_consistent(Wrong(5, 2))


@by_sampling(6)
def test_the_pair_structure_is_the_pair_matrix(sampling):
    structure = sampling.pair_structure()
    assert structure.diagonal.shape == (6,)
    assert structure.factors.shape == (6, structure.weights.size)
    np.testing.assert_allclose(structure.marginals(), np.diag(structure.dense()), atol=1e-15)
    np.testing.assert_allclose(structure.dense(), structure.dense().T)
    assert np.linalg.eigvalsh(structure.dense()).min() > -1e-14  # P = E[1_Ŝ 1_Ŝᵀ]
    assert not sampling.p.flags.writeable


def test_the_paper_s_numbers_for_nice_samplings():
    P = Nice(6, 3).pair_probabilities()
    assert np.diag(P) == pytest.approx(3 / 6)
    assert P[0, 1] == pytest.approx(3 * 2 / (6 * 5))


@pytest.mark.parametrize("kind", [Nice, Shuffled])
def test_numbers_may_be_small_integers_of_numpy(kind):
    """Products such as τ(τ − 1) exceed the range of a byte."""
    given, plain = kind(np.uint16(300), np.uint8(100)), kind(300, 100)
    np.testing.assert_array_equal(given.pair_structure().weights, plain.pair_structure().weights)
    assert given == plain


def test_shuffled_is_nice_exactly_when_tau_divides_n():
    np.testing.assert_allclose(Shuffled(6, 3).pair_probabilities(), Nice(6, 3).pair_probabilities())
    assert Shuffled(7, 3).expected_size == pytest.approx(7 / 3)
    assert not Shuffled(6, 3).iid


@pytest.mark.parametrize(
    ("sampling", "rounds"),
    [(Serial(7), 7), (Nice(7, 3), 3), (Nice(6, 3), 2), (Shuffled(7, 3), 3), (Partition(7, 3), 3), (Nice(1, 1), 1)],
    ids=str,
)
def test_rounds_per_epoch_visit_n_examples_on_average(sampling, rounds):
    assert sampling.rounds_per_epoch == rounds


def test_support_is_refused_when_too_large():
    with pytest.raises(ValueError, match=r"Nice .* more than limit=20000 .*too many to enumerate"):
        Nice(40, 20).support()
    with pytest.raises(ValueError, match="more than limit=9"):
        Nice(5, 2).support(limit=9)
    assert len(Nice(5, 2).support(limit=10)) == 10
    with pytest.raises(ValueError, match="more than limit"):
        Independent(np.full(200, 0.1)).support()


# The shape of draws --------------------------------------------------------------------------------------------------

BIG = 1_000_000


def uneven(total):
    weights = np.random.default_rng(0).pareto(1.0, BIG) + 1e-9
    return total * weights / weights.sum()


LARGE = {
    "Serial": lambda: Serial(BIG),
    "Serial, uneven": lambda: Serial(BIG, uneven(1.0)),
    "Nice 16": lambda: Nice(BIG, 16),
    "Nice 65": lambda: Nice(BIG, 65),
    "Nice 5000": lambda: Nice(BIG, 5000),
    "Independent": lambda: Independent(np.full(BIG, 2e-5)),
    "Independent, uneven": lambda: Independent(np.minimum(1.0, uneven(20.0))),
    "Partition": lambda: Partition(BIG, 256),
    "Shuffled": lambda: Shuffled(BIG, 300),
    "Explicit": lambda: Explicit(BIG, [np.arange(0, BIG, 2), np.arange(1, BIG, 2)], [0.5, 0.5]),
}


def assert_well_formed(block, sampling, rounds):
    assert len(block) == rounds == len(block.sizes)
    assert block.starts[0] == 0
    assert block.starts[-1] == block.indices.size
    assert np.issubdtype(block.indices.dtype, np.integer)
    assert np.issubdtype(block.starts.dtype, np.integer)
    if rounds == 0:
        return
    assert block.sizes.min() >= 1
    assert block.sizes.max() <= sampling.max_size
    assert block.indices.min() >= 0
    assert block.indices.max() < sampling.n
    owner = np.repeat(np.arange(rounds), block.sizes)
    assert np.unique(owner * sampling.n + block.indices).size == block.indices.size, "an index twice in one set"


@pytest.mark.slow
@pytest.mark.parametrize("make", LARGE.values(), ids=LARGE)
def test_a_million_examples_are_drawn_without_a_matrix(make):
    sampling = make()
    rounds = 40 if sampling.expected_size < 1e4 else 3
    assert_well_formed(sampling.draw(np.random.default_rng(0), rounds), sampling, rounds)
    assert sampling.p.shape == (BIG,)
    sizes = [s.size for s in sampling.draw(np.random.default_rng(1), rounds)]
    assert np.mean(sizes) == pytest.approx(sampling.expected_size, rel=0.2)


@by_sampling(N)
@pytest.mark.parametrize("rounds", [0, 1, 2, 7, 100])
def test_blocks_have_as_many_sets_as_asked(sampling, rounds):
    assert_well_formed(sampling.draw(np.random.default_rng(rounds), rounds), sampling, rounds)


@by_sampling(N)
def test_same_seed_same_block(sampling):
    blocks = [sampling.draw(np.random.default_rng(seed), 60) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(blocks[0].indices, blocks[1].indices)
    np.testing.assert_array_equal(blocks[0].starts, blocks[1].starts)
    if sampling.support_size > 1:
        assert not np.array_equal(blocks[0].indices, blocks[2].indices)


ONE_EXAMPLE = [
    Serial(1),
    Serial(1, [1.0]),
    Nice(1, 1),
    Independent([0.3]),
    Independent([1.0]),
    Partition(1, 1),
    Shuffled(1, 1),
    Explicit(1, [[0]], [1.0]),
]


@pytest.mark.parametrize("sampling", ONE_EXAMPLE, ids=name_of)
def test_one_example_is_always_drawn(sampling):
    assert [s.tolist() for s in sampling.draw(np.random.default_rng(0), 4)] == [[0]] * 4
    assert sampling.p == pytest.approx([1.0])
    assert sampling.pair_probabilities() == pytest.approx(np.ones((1, 1)))
    assert sampling.rounds_per_epoch == 1
    assert_consistent(sampling)


@pytest.mark.parametrize(("n", "tau"), [(7, 3), (6, 2), (5, 5), (9, 1)])
def test_shuffled_visits_each_example_once_per_epoch_in_a_fresh_order(n, tau):
    sampling = Shuffled(n, tau)
    length = sampling.rounds_per_epoch
    block = sampling.draw(np.random.default_rng(0), 3 * length)
    orders = block.indices.reshape(3, n)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(n), (3, 1)))
    assert len({tuple(order) for order in orders.tolist()}) == 3
    assert block.sizes.tolist() == ([tau] * (n // tau) + [n % tau] * (n % tau > 0)) * 3


def test_shuffled_draws_part_of_an_epoch_as_its_beginning():
    part = Shuffled(7, 3).draw(np.random.default_rng(0), 4)
    whole = Shuffled(7, 3).draw(np.random.default_rng(0), 6)
    assert [s.tolist() for s in part] == [s.tolist() for s in whole][:4]


# IndexBlock ----------------------------------------------------------------------------------------------------------


def test_index_blocks_are_sequences_of_sets():
    block = IndexBlock.from_sizes(np.array([4, 1, 0, 2, 2]), np.array([2, 0, 3]))
    assert len(block) == 3
    assert block.sizes.tolist() == [2, 0, 3]
    assert [s.tolist() for s in block] == [[4, 1], [], [0, 2, 2]]
    assert [block[k].tolist() for k in range(-3, 3)] == [[4, 1], [], [0, 2, 2], [4, 1], [], [0, 2, 2]]
    for outside in (3, -4):
        with pytest.raises(IndexError):
            block[outside]
    assert np.shares_memory(block[0], block.indices)
    assert len(IndexBlock.from_sizes(np.empty(0, int), np.empty(0, int))) == 0


@pytest.mark.parametrize("rounds", [1, 2, 3, 10, 11])
def test_pieces_of_a_block_are_the_block(rounds):
    block = Independent([0.3, 0.5, 0.2]).draw(np.random.default_rng(0), 10)
    pieces = list(block.pieces(rounds))
    assert all(1 <= len(piece) <= rounds for piece in pieces)
    assert all(piece.starts[0] == 0 and piece.starts[-1] == piece.indices.size for piece in pieces)
    assert [s.tolist() for piece in pieces for s in piece] == [s.tolist() for s in block]


@by_sampling(N)
def test_samplings_are_frozen_and_pickle(sampling):
    with pytest.raises(AttributeError):
        sampling.n = 3
    twin = pickle.loads(pickle.dumps(sampling))
    np.testing.assert_array_equal(twin.p, sampling.p)
    draws = [one.draw(np.random.default_rng(0), 20).indices for one in (twin, sampling)]
    np.testing.assert_array_equal(*draws)


# A sampling of a user's own ------------------------------------------------------------------------------------------


class Neighbours(samplings.Sampling):
    """Two neighbours on a circle, each pair equally likely: only what the protocol asks for."""

    def __init__(self, n):
        self.n = n

    def pair_structure(self):
        pairs = np.stack([np.arange(self.n), (np.arange(self.n) + 1) % self.n], axis=1)
        factors = sp.csc_array((np.ones(2 * self.n), pairs.ravel(), np.arange(self.n + 1) * 2), shape=(self.n, self.n))
        return PairStructure(np.zeros(self.n), factors, np.full(self.n, 1.0 / self.n))

    def draw(self, rng, rounds):
        first = rng.integers(self.n, size=rounds)
        return IndexBlock(np.stack([first, (first + 1) % self.n], axis=1).ravel(), np.arange(rounds + 1) * 2)


def test_a_sampling_of_a_users_own_needs_two_methods():
    sampling = Neighbours(5)
    assert sampling.p == pytest.approx(2 / 5)
    assert sampling.expected_size == pytest.approx(2.0)
    assert sampling.is_uniform
    assert sampling.iid
    assert sampling.max_size == 5
    assert sampling.rounds_per_epoch == 3
    listed = Explicit(5, [[i, (i + 1) % 5] for i in range(5)], np.full(5, 0.2))
    np.testing.assert_allclose(sampling.pair_probabilities(), listed.pair_probabilities())
    assert_well_formed(sampling.draw(np.random.default_rng(0), 50), sampling, 50)


def test_a_sampling_without_a_law_says_so():
    for ask in (Neighbours(5).support, lambda: Neighbours(5).support_size, Neighbours(5).laws):
        with pytest.raises(ValueError, match="Neighbours cannot be enumerated: it does not state its law"):
            ask()


def test_a_sampling_not_finished_says_which_method_it_lacks():
    with pytest.raises(NotImplementedError, match=r"Sampling has no pair_structure\(\)"):
        samplings.Sampling().pair_structure()
    with pytest.raises(NotImplementedError, match=r"Sampling has no draw\(rng, rounds\)"):
        samplings.Sampling().draw(None, 1)


# Refusals ------------------------------------------------------------------------------------------------------------

REFUSED = [
    (lambda: Serial(0), r"n must be an integer >= 1, got 0"),
    (lambda: Serial(2.5), r"n must be an integer >= 1, got 2\.5"),
    (lambda: Serial(True), r"n must be an integer >= 1, got True"),
    (lambda: Serial(3, [0.5, 0.5]), r"q must have shape \(3,\), got \(2,\)"),
    (lambda: Serial(2, [0.5, 0.4]), r"q must sum to 1, got a sum of 0\.9"),
    (lambda: Serial(2, [1.5, -0.5]), r"q must be >= 0 everywhere, got .*-0\.5.* at index 1"),
    (lambda: Serial(2, [np.nan, 1.0]), r"q must be finite, got .*nan.* at index 0"),
    (lambda: Serial(2, ["a", "b"]), r"q must hold real numbers"),
    (
        lambda: Serial(3, [0.5, 0.0, 0.5]),
        r"q is not proper: every example must have a positive probability.* example 1",
    ),
    (lambda: Nice(5, 0), r"tau must be an integer in \[1, 5\], got 0"),
    (lambda: Nice(5, 6), r"tau must be an integer in \[1, 5\], got 6"),
    (lambda: Nice(5, 2.0), r"tau must be an integer in \[1, 5\], got 2\.0"),
    (lambda: Nice(0, 1), r"n must be an integer >= 1, got 0"),
    (lambda: Nice("5", 1), r"n must be an integer >= 1, got '5'"),
    (lambda: Independent([]), r"p must have at least one probability, got none"),
    (lambda: Independent([0.5, 0.0]), r"p is not proper: .* example 1"),
    (lambda: Independent([0.5, 1.2]), r"p must be <= 1 everywhere, got .*1\.2.* at index 1"),
    (lambda: Independent([0.5, -0.1]), r"p must be >= 0 everywhere, got .*-0\.1.* at index 1"),
    (lambda: Independent([0.5, np.nan]), r"p must be finite, got .*nan.* at index 1"),
    (lambda: Independent([[0.5, 0.5], [0.1, 0.2]]), r"p must have shape"),
    (lambda: Independent(0.5), r"p must have shape"),
    (lambda: Partition(5, 0), r"tau must be an integer in \[1, 5\], got 0"),
    (lambda: Partition(5, 6), r"tau must be an integer in \[1, 5\], got 6"),
    (lambda: Partition(5, 2, q=[0.5, 0.5]), r"q must have shape \(3,\), got \(2,\)"),
    (lambda: Partition(5, 2, q=[0.5, 0.5, 0.0]), r"q is not proper"),
    (lambda: Partition(5, 2, q=[0.5, 0.2, 0.2]), r"q must sum to 1"),
    (lambda: Shuffled(5, 0), r"tau must be an integer in \[1, 5\], got 0"),
    (lambda: Shuffled(5, 6), r"tau must be an integer in \[1, 5\], got 6"),
    (lambda: Explicit(2, [[0], [2]], [0.5, 0.5]), r"sets\[1\] must have indices in \[0, 1\], got \[2\]"),
    (lambda: Explicit(2, [[0, 1], [-1]], [0.5, 0.5]), r"sets\[1\] must have indices in \[0, 1\], got \[-1\]"),
    (lambda: Explicit(2, [[0, 1, 0]], [1.0]), r"sets\[0\] must not contain an example twice, got \[0, 1, 0\]"),
    (lambda: Explicit(2, [[0, 1.5]], [1.0]), r"sets\[0\] must be a flat sequence of integers"),
    (lambda: Explicit(2, [[[0, 1]]], [1.0]), r"sets\[0\] must be a flat sequence of integers"),
    (lambda: Explicit(2, [[True, False]], [1.0]), r"sets\[0\] must be a flat sequence of integers"),
    (lambda: Explicit(2, [[0, 1], []], [0.9, 0.1]), r"must not be empty \(the sampling would be vacuous\).* index 1"),
    (lambda: Explicit(3, [[0], [1]], [0.5, 0.5]), r"sets is not proper: .* positive probability, got 0 for example 2"),
    (lambda: Explicit(2, [[0], [1]], [1.0, 0.0]), r"sets is not proper: .* example 1"),
    (lambda: Explicit(2, [[0], [1]], [1.0]), r"probabilities must have shape \(2,\), got \(1,\)"),
    (lambda: Explicit(2, [[0], [1]], [0.5, 0.6]), r"probabilities must sum to 1, got a sum of 1\.1"),
    (lambda: Explicit(2, [[0], [1]], [1.1, -0.1]), r"probabilities must be >= 0 everywhere"),
    (lambda: Explicit(2, [[0], [1]], [np.nan, 1.0]), r"probabilities must be finite"),
    (lambda: Explicit(2, [], []), r"probabilities must sum to 1"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=[words[:50] for _, words in REFUSED])
def test_what_is_no_sampling_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
