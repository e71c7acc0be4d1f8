"""The machinery of the draws: exact inversion, uniform subsets, and coins tossed by leaps."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dualnewton import _draws

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
