"""The draws: their machinery (exact inversion, uniform subsets, coins tossed by leaps) and the law of every sampling."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dualnewton.samplings import Explicit, Independent, IndexBlock, Nice, Partition, Serial, Shuffled
from dualnewton.samplings import draws as _draws
from tables import name_of, samplings_for

LAWS = {
    "even": np.full(8, 0.125),
    "one": np.array([1.0]),
    "uneven": np.array([1e-12, 0.3, 1e-9, 0.2, 1e-12, 0.5 - 1e-9 - 2e-12]),
    "rising": np.arange(1, 51) / 1275.0,
    "tiny first": np.r_[np.full(200, 1e-12), 1.0 - 200e-12],
    "tiny last": np.r_[1.0 - 200e-12, np.full(200, 1e-12)],
    "some impossible": np.array([0.0, 0.5, 0.0, 0.0, 0.5, 0.0]),
}
by_law = pytest.mark.parametrize("q", LAWS.values(), ids=LAWS)


class Scripted:
    """A generator whose uniform numbers are given."""

    def __init__(self, numbers):
        self.numbers = np.asarray(numbers)

    def random(self, size):
        assert size == self.numbers.size
        return self.numbers


class Bounded:
    """A generator that ends a loop which would not end by itself."""

    def __init__(self, seed, calls):
        self.rng = np.random.default_rng(seed)
        self.left = calls

    def __getattr__(self, name):
        self.left -= 1
        assert self.left > 0, "asked for random numbers again and again"
        return getattr(self.rng, name)


def fits(counts, probabilities):
    """The p-value of Pearson's test, outcomes expected fewer than five times put together."""
    counts, expected = np.asarray(counts), counts.sum() * np.asarray(probabilities)
    rare = expected < 5.0
    observed = np.r_[counts[~rare], counts[rare].sum()]
    expected = np.r_[expected[~rare], expected[rare].sum()]
    possible = expected > 0.0
    assert not observed[~possible].any()
    if possible.sum() == 1:
        return 1.0
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    return stats.chi2.sf(statistic, possible.sum() - 1)


# Categorical ---------------------------------------------------------------------------------------------------------


@by_law
def test_categorical_inverts_its_distribution_function(q):
    """Every number of a fine grid, of the ends and of the steps goes where the definition sends it, to one rounding."""
    cdf = np.cumsum(q)
    steps = np.clip(cdf / cdf[-1], 0.0, np.nextafter(1.0, 0.0))
    u = np.r_[0.0, np.nextafter(1.0, 0.0), np.arange(1000) / 1000.0, np.arange(q.size) / q.size, steps]
    u = np.unique(np.r_[u, np.nextafter(u, 0.0), np.minimum(np.nextafter(u, 1.0), np.nextafter(1.0, 0.0))])
    found = _draws.Categorical(q).draw(Scripted(u), u.size)
    assert (found >= 0).all()
    assert (found < q.size).all()
    above, below = cdf[found], cdf[found] - q[found]
    assert (u * cdf[-1] <= above + 1e-15).all()
    assert (u * cdf[-1] >= below - 1e-15).all()


@by_law
def test_categorical_has_its_law(q):
    found = _draws.Categorical(q).draw(np.random.default_rng(0), 50_000)
    assert fits(np.bincount(found, minlength=q.size), q) > 1e-3


def test_the_goodness_of_fit_catches_a_wrong_law():
    q = LAWS["rising"]
    found = _draws.Categorical(q[::-1]).draw(np.random.default_rng(0), 50_000)
    assert fits(np.bincount(found, minlength=q.size), q) < 1e-9
    slightly = 0.95 * q + 0.05 / q.size
    found = _draws.Categorical(slightly).draw(np.random.default_rng(0), 50_000)
    assert fits(np.bincount(found, minlength=q.size), q) < 1e-3


def test_categorical_never_draws_what_is_impossible():
    q = LAWS["some impossible"]
    found = _draws.Categorical(q).draw(np.random.default_rng(1), 10_000)
    assert set(found.tolist()) == {1, 4}


@pytest.mark.parametrize("size", [2**k + shift for k in (1, 5, 10, 16) for shift in (-1, 0, 1)])
def test_the_largest_uniform_number_stays_in_the_guide_table(size):
    q = np.full(size, 1.0 / size)
    assert _draws.Categorical(q).draw(Scripted([np.nextafter(1.0, 0.0)]), 1).tolist() == [size - 1]


# Subsets -------------------------------------------------------------------------------------------------------------

PICKS = {"together": _draws.subsets_together, "one by one": _draws.subsets_one_by_one}
by_pick = pytest.mark.parametrize("pick", PICKS.values(), ids=PICKS)


def subset_counts(picked, n, tau):
    number = {s: k for k, s in enumerate(itertools.combinations(range(n), tau))}
    return np.bincount([number[tuple(sorted(row))] for row in picked.tolist()], minlength=len(number))


@pytest.mark.slow
@by_pick
@pytest.mark.parametrize(("n", "tau"), [(1, 1), (4, 1), (5, 2), (6, 3), (6, 5), (4, 4)])
def test_every_subset_is_equally_likely(pick, n, tau):
    picked = pick(np.random.default_rng(3), n, tau, 10_000)
    assert picked.shape == (10_000, tau)
    assert fits(subset_counts(picked, n, tau), np.full(math.comb(n, tau), 1.0 / math.comb(n, tau))) > 1e-3


def test_the_subset_test_catches_floyd_without_his_top_element():
    """Replacing a repeat by the smallest free element, in the place of the newest, is the classic slip."""
    rng = np.random.default_rng(3)
    picked = rng.integers(5, size=(10_000, 2))
    repeated = picked[:, 0] == picked[:, 1]
    picked[repeated, 1] = (picked[repeated, 0] == 0) * 1
    assert fits(subset_counts(picked, 5, 2), np.full(10, 0.1)) < 1e-9


@by_pick
def test_large_subsets_hold_no_index_twice_and_favour_none(pick):
    picked = np.sort(pick(np.random.default_rng(4), 200, 100, 400), axis=1)
    assert (np.diff(picked, axis=1) > 0).all()
    assert picked.min() >= 0
    assert picked.max() < 200
    # Each index is in half of the sets: 400 tosses of a fair coin, nearly independent between indices.
    frequency = np.bincount(picked.ravel(), minlength=200) / 400
    assert np.abs(frequency - 0.5).max() < 4.5 * np.sqrt(0.25 / 400)
    assert frequency.std() == pytest.approx(np.sqrt(0.25 / 400), rel=0.25)


# Coins ---------------------------------------------------------------------------------------------------------------


def classes_of(coins):
    level = np.floor(-np.log2(coins))
    return [np.flatnonzero(level == k) for k in np.unique(level)]


@pytest.mark.parametrize("coins", [(0.3,), (0.9, 0.05, 0.6), (0.5, 0.5, 1e-3), (1.0, 0.2), (1.0, 1.0)], ids=str)
def test_heads_are_independent_coins(coins):
    """All outcomes of a round have the probabilities of independent tosses, the empty one included."""
    coins, rounds = np.array(coins), 20_000
    owner, member = _draws.heads(np.random.default_rng(5), coins, classes_of(coins), rounds)
    assert (np.diff(owner) >= 0).all()
    outcome = np.bincount(owner, weights=2.0**member, minlength=rounds).astype(int)
    shows = (np.arange(2**coins.size)[:, None] >> np.arange(coins.size)) % 2 == 1
    law = np.where(shows, coins, 1.0 - coins).prod(axis=1)
    assert fits(np.bincount(outcome, minlength=law.size), law) > 1e-3


def test_the_test_of_coins_catches_biased_ones():
    coins, rounds = np.array([0.9, 0.05, 0.6]), 20_000
    owner, member = _draws.heads(np.random.default_rng(5), coins * 0.97, classes_of(coins), rounds)
    outcome = np.bincount(owner, weights=2.0**member, minlength=rounds).astype(int)
    shows = (np.arange(8)[:, None] >> np.arange(3)) % 2 == 1
    assert fits(np.bincount(outcome, minlength=8), np.where(shows, coins, 1.0 - coins).prod(axis=1)) < 1e-3


@pytest.mark.parametrize("probability", [0.5, 0.01, 1e-5, 1e-9])
def test_tosses_of_one_coin_have_binomial_counts_and_uniform_places(probability):
    rng = np.random.default_rng(6)
    length = int(200 / probability)
    runs = [_draws._bernoulli_process(rng, probability, length) for _ in range(50)]
    assert all((np.diff(places) > 0).all() and places[0] >= 0 and places[-1] < length for places in runs)
    total, expected = sum(places.size for places in runs), 50 * length * probability
    assert abs(total - expected) < 4.0 * np.sqrt(expected * (1.0 - probability))
    assert stats.kstest(np.concatenate(runs) / length, "uniform").pvalue > 1e-3


def test_a_sure_coin_always_shows_heads():
    assert _draws._bernoulli_process(np.random.default_rng(0), 1.0, 5).tolist() == [0, 1, 2, 3, 4]


def test_no_tosses_no_heads():
    for probability in (1.0, 0.5, 1e-9):
        assert _draws._bernoulli_process(np.random.default_rng(0), probability, 0).size == 0


@pytest.mark.parametrize("probability", [1e-17, 1e-18, 1e-19, 1e-100, 1e-300])
def test_a_coin_that_practically_never_shows_heads_is_tossed_without_overflow(probability):
    """Leaps of such a coin pass the largest integer; the positions must not wrap around, nor the loop turn for ever."""
    places = _draws._bernoulli_process(Bounded(seed=0, calls=100), probability, 10**6)
    assert places.size == 0


# The law of the samplings --------------------------------------------------------------------------------------------


def one_draw_per_epoch(sampling, rng, rounds):
    """Independent draws also of a sampling whose epochs are not: each from a random place of an epoch of its own."""
    if sampling.iid:
        return list(sampling.draw(rng, rounds))
    length = sampling.rounds_per_epoch
    block = sampling.draw(rng, rounds * length)
    return [block[k * length + int(place)] for k, place in enumerate(rng.integers(length, size=rounds))]


def law_of(sampling):
    law = {}
    for members, probability in sampling.support():
        key = tuple(sorted(members.tolist()))
        law[key] = law.get(key, 0.0) + probability
    return law


def numbers_of(sets, law):
    """The place of each set in the law; a set outside the support is an error."""
    number = {key: k for k, key in enumerate(law)}
    keys = [tuple(sorted(s.tolist())) for s in sets]
    assert set(keys) <= set(number)
    return np.array([number[key] for key in keys])


def assert_draws_have_the_law(sampling, seed=0, rounds=8000):
    """Pearson's test over all sets, and every pair frequency within five standard deviations."""
    sets = one_draw_per_epoch(sampling, np.random.default_rng(seed), rounds)
    assert len(sets) == rounds
    law = law_of(sampling)
    assert fits(np.bincount(numbers_of(sets, law), minlength=len(law)), list(law.values())) > 1e-3
    P, frequency = sampling.pair_probabilities(), np.zeros((sampling.n, sampling.n))
    for s in sets:
        frequency[np.ix_(s, s)] += 1.0 / rounds
    assert (np.abs(frequency - P) <= 5.0 * np.sqrt(P * (1.0 - P) / rounds) + 1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize("sampling", samplings_for(5), ids=name_of)
def test_draws_have_the_law(sampling):
    assert_draws_have_the_law(sampling)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        Partition(7, 3, q=[0.2, 0.3, 0.5]),
        Shuffled(7, 3),
        Shuffled(4, 4),
        Independent([1.0, 0.2, 0.5]),
        Independent([1e-9, 2e-9, 1e-9]),
        Independent([1e-15, 3e-15]),
        Independent([0.7, 1e-9, 0.02]),
        Serial(4, [1e-12, 0.3, 1e-9, 0.7 - 1e-9 - 1e-12]),
        Explicit(3, [[0, 1], [1, 0], [2], []], [0.2, 0.3, 0.5, 0.0]),
    ],
    ids=name_of,
)
def test_draws_of_unusual_samplings_have_the_law(sampling):
    assert_draws_have_the_law(sampling, seed=1)


class Biased(Nice):
    """Says it is τ-nice but thins out the sets with example 0."""

    def draw(self, rng, rounds):
        sets = [s for s in super().draw(rng, 3 * rounds) if 0 not in s or rng.random() < 0.8][:rounds]
        return IndexBlock.from_sizes(np.concatenate(sets), np.full(rounds, self.tau))


class WithReplacement(Nice):
    def draw(self, rng, rounds):
        return IndexBlock(rng.integers(self.n, size=rounds * self.tau), np.arange(rounds + 1) * self.tau)


class DeafToItsProbabilities(Partition):
    def draw(self, rng, rounds):
        return Partition(self.n, self.tau).draw(rng, rounds)


@pytest.mark.parametrize(
    "wrong",
    [Biased(5, 2), WithReplacement(5, 2), DeafToItsProbabilities(5, 2, q=[0.4, 0.3, 0.3])],
    ids=lambda wrong: type(wrong).__name__,
)
def test_the_test_of_draws_catches_a_wrong_sampling(wrong):
    with pytest.raises(AssertionError):
        assert_draws_have_the_law(wrong)


def product_law_fits(first, second, law):
    probabilities = np.array(list(law.values()))
    counts = np.bincount(first * len(law) + second, minlength=len(law) ** 2)
    return fits(counts, np.outer(probabilities, probabilities).ravel()) > 1e-3


def assert_successive_draws_are_independent(sampling, seed=2, rounds=10_000):
    """All pairs (S_k, S_{k+1}) have the product law, as Assumption 3 asks of i.i.d. draws."""
    law = law_of(sampling)
    drawn = numbers_of(sampling.draw(np.random.default_rng(seed), 2 * rounds), law)
    assert product_law_fits(drawn[::2], drawn[1::2], law)


@pytest.mark.parametrize("sampling", [s for s in samplings_for(3) if s.iid], ids=name_of)
def test_successive_draws_are_independent(sampling):
    assert_successive_draws_are_independent(sampling)


def test_the_test_of_independence_catches_dependent_draws():
    with pytest.raises(AssertionError):
        assert_successive_draws_are_independent(Shuffled(4, 2))  # two chunks of one permutation never meet


@pytest.mark.slow
def test_draws_of_different_calls_are_independent_too():
    rng = np.random.default_rng(5)
    for sampling in (Serial(3), Nice(4, 2), Independent([0.3, 0.6])):
        law = law_of(sampling)
        drawn = numbers_of([sampling.draw(rng, 1)[0] for _ in range(4000)], law)
        assert product_law_fits(drawn[::2], drawn[1::2], law)


def test_shuffled_permutations_are_uniform():
    sampling = Shuffled(3, 1)
    orders = sampling.draw(np.random.default_rng(0), 3 * 6000).indices.reshape(-1, 3)
    number = {order: k for k, order in enumerate(itertools.permutations(range(3)))}
    counts = np.bincount([number[tuple(order)] for order in orders.tolist()], minlength=6)
    assert fits(counts, np.full(6, 1 / 6)) > 1e-3


# Nice: both branches; Independent: extreme coins ---------------------------------------------------------------------


@pytest.mark.parametrize(("n", "tau"), [(66, 65), (67, 65), (66, 64), (67, 64)])
def test_nice_has_its_law_on_both_sides_of_the_branch(n, tau):
    """A set is known by the few examples it leaves out."""
    block = Nice(n, tau).draw(np.random.default_rng(1), 3000)
    left_out = list(itertools.combinations(range(n), n - tau))
    number = {key: k for k, key in enumerate(left_out)}
    everything = set(range(n))
    codes = [number[tuple(sorted(everything - set(s.tolist())))] for s in block]
    counts = np.bincount(codes, minlength=len(left_out))
    if len(left_out) > 600:  # too many cells for a few thousand draws: how often each example is left out
        counts = np.bincount([i for code in codes for i in left_out[code]], minlength=n)
    assert fits(counts, np.full(counts.size, 1.0 / counts.size)) > 1e-3


@pytest.mark.parametrize(
    "coins",
    [
        [1e-15] * 3,
        [1e-17] * 3,
        [1e-300] * 2,
        [5e-324, 1e-300],
        [1e-18, 0.5],
        [1e-19, 0.5],
        [1e-300, 0.5],
        [1e-300, 1.0],
        [1.0, 1.0, 1.0],
        [1.0, 1e-9],
    ],
    ids=str,
)
def test_independent_sets_are_never_empty_whatever_the_coins(coins):
    sampling, rounds = Independent(coins), 5000
    block = sampling.draw(Bounded(seed=0, calls=1000), rounds)
    assert len(block) == rounds
    assert block.sizes.min() >= 1
    frequency = np.bincount(block.indices, minlength=sampling.n) / rounds
    p = np.minimum(sampling.p, 1.0)
    np.testing.assert_array_less(np.abs(frequency - p), 5.0 * np.sqrt(p * (1.0 - p) / rounds) + 1e-3)


def test_many_rare_coins_need_many_sets_at_once():
    """A hundred thousand sets of three coins of 1e-15: more tosses than an integer counts, were all of them made."""
    block = Independent([1e-15] * 3).draw(Bounded(seed=0, calls=1000), 100_000)
    assert len(block) == 100_000
    assert block.sizes.tolist().count(1) == 100_000


def test_independent_knows_its_coins_and_its_condition():
    sampling = Independent([0.5, 0.25])
    assert sampling.nonempty == pytest.approx(1.0 - 0.5 * 0.75)
    assert sampling.p == pytest.approx(np.array([0.5, 0.25]) / 0.625)
    assert Independent([1.0, 0.1]).nonempty == 1.0
    assert Independent(np.full(1000, 0.1)).nonempty == pytest.approx(1.0, abs=1e-15)
    assert Independent([1e-20, 1e-20]).nonempty == pytest.approx(2e-20)


def test_serial_with_very_uneven_probabilities_has_its_law():
    q = np.r_[np.full(50, 1e-12), 0.25, np.full(50, 1e-9), 0.75 - 50e-12 - 50e-9]
    drawn = Serial(q.size, q).draw(np.random.default_rng(0), 40_000).indices
    assert fits(np.bincount(drawn, minlength=q.size), q) > 1e-3
    assert Serial(q.size, q).p == pytest.approx(q, rel=1e-12)
