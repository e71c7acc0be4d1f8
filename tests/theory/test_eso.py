import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dualnewton import samplings, theory
from dualnewton.theory import spectra
from tables import name_of, samplings_for

N = 6


def stretch(M):
    """λ′(M), straight from its definition."""
    root = 1.0 / np.sqrt(M.diagonal())
    return np.linalg.eigvalsh(M * np.outer(root, root))[-1]


def definite(n=N, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n + 1)) * rng.uniform(0.2, 3.0, (n, 1))
    return A @ A.T


@st.composite
def sparse_rows(draw):
    """A small matrix of small integers, most of them zero; some rows and columns vanish."""
    n, d = draw(st.integers(3, 7)), draw(st.integers(1, 5))
    entry = st.sampled_from([0, 0, 0, 1, -1, 2, 3])
    return np.array(draw(st.lists(entry, min_size=n * d, max_size=n * d)), dtype=float).reshape(n, d)


# The formulas --------------------------------------------------------------------------------------------------------

COINS = np.linspace(0.1, 0.8, N)
TABLE = [
    (samplings.Serial(N), lambda M: M.diagonal()),
    (samplings.Serial(N, COINS / COINS.sum()), lambda M: M.diagonal()),
    (samplings.Nice(N, 1), lambda M: M.diagonal()),
    (samplings.Nice(N, 4), lambda M: (1 - 3 / 5 + 3 / 5 * stretch(M)) * M.diagonal()),
    (samplings.Nice(N, N), lambda M: stretch(M) * M.diagonal()),
    (samplings.Shuffled(N, 3), lambda M: (1 - 2 / 5 + 2 / 5 * stretch(M)) * M.diagonal()),
    # Chunks of 4 and 2: both are together with probability ½(4·3 + 2·1)/(6·5), each alone is there with ½.
    (samplings.Shuffled(N, 4), lambda M: (1 - 14 / 30 + 14 / 30 * stretch(M)) * M.diagonal()),
    (samplings.Independent(COINS), lambda M: (1 - COINS + COINS * stretch(M)) * M.diagonal()),
    (samplings.Partition(N, 4), lambda M: np.repeat([stretch(M[:4, :4]), stretch(M[4:, 4:])], [4, 2]) * M.diagonal()),
]


@pytest.mark.parametrize(("sampling", "formula"), TABLE, ids=[name_of(row[0]) for row in TABLE])
def test_the_closed_forms(sampling, formula):
    M = definite()
    np.testing.assert_allclose(theory.eso(M, sampling), formula(M), rtol=1e-12)


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("which", range(len(samplings_for(3))))
@pytest.mark.parametrize("seed", range(3))
def test_it_is_an_eso(n, which, seed):
    M, sampling = definite(n, seed), samplings_for(n)[which]
    assert theory.is_eso(M, sampling, theory.eso(M, sampling))


@pytest.mark.parametrize(
    "sampling",
    [s for s in samplings_for(N) if not isinstance(s, (samplings.Independent, samplings.Explicit))],
    ids=name_of,
)
def test_no_smaller_multiple_is_one(sampling):
    M = definite()
    assert not theory.is_eso(M, sampling, 0.999 * theory.eso(M, sampling))


def test_for_overlapping_sets_the_smaller_of_two_bounds_is_taken():
    ring = samplings.Explicit(N, [[i, (i + 1) % N] for i in range(N)], np.full(N, 1 / N))
    winners = set()
    for seed in range(3):
        M = definite(seed=seed)
        proportional = stretch(ring.pair_probabilities() * M) * M.diagonal()
        structured = np.zeros(N)  # v_i = (M_ii/p_i) Σ Prob(S) λ′(M_S) over the sets S that hold i
        for members, probability in ring.support():
            structured[members] += (
                probability * stretch(M[np.ix_(members, members)]) * M.diagonal()[members] / ring.p[members]
            )
        assert theory.is_eso(M, ring, proportional)
        assert theory.is_eso(M, ring, structured)
        winners.add(proportional.sum() < structured.sum())
        smaller = min(proportional, structured, key=np.sum)
        np.testing.assert_allclose(theory.eso(M, ring), smaller, rtol=1e-12)
    assert winners == {True, False}  # each has its turn


def test_disjoint_sets_are_a_partition():
    M, listed = definite(), samplings.Explicit(N, [[0, 1, 2], [3, 4, 5]], [0.5, 0.5])
    np.testing.assert_allclose(theory.eso(M, listed), theory.eso(M, samplings.Partition(N, 3)), rtol=1e-12)


def test_a_sampling_that_states_only_its_pairs():
    class Pairs(samplings.Sampling):
        n = N

        def pair_probabilities(self):
            return samplings.Nice(N, 3).pair_probabilities()

    M = definite()
    np.testing.assert_allclose(theory.eso(M, Pairs()), theory.eso(M, samplings.Nice(N, 3)), rtol=1e-12)
    assert theory.is_eso(M, Pairs(), theory.eso(M, Pairs()))
    assert theory.sigma2(M, M, Pairs()) == pytest.approx(theory.sigma2(M, M, samplings.Nice(N, 3)))


def test_a_zero_row_has_a_zero_entry_and_changes_no_other():
    M = definite()
    padded = np.zeros((N + 1, N + 1))
    padded[:N, :N] = M
    v = theory.eso(padded, samplings.Independent(np.full(N + 1, 0.4)))
    np.testing.assert_allclose(v, [*theory.eso(M, samplings.Independent(np.full(N, 0.4))), 0.0], rtol=1e-12)
    assert theory.is_eso(padded, samplings.Independent(np.full(N + 1, 0.4)), v)


# From the data -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(sparse_rows())
def test_from_rows_it_is_the_same_and_valid(A):
    M = A @ A.T
    for sampling in samplings_for(len(A)):
        v = theory.eso_from_data(sp.csr_array(A), sampling)
        np.testing.assert_allclose(v, theory.eso(M, sampling), rtol=1e-9, atol=1e-12)
        assert theory.is_eso(M, sampling, v)


@given(sparse_rows(), st.integers(1, 7))
def test_the_three_bounds_for_nice_samplings(A, tau):
    n = len(A)
    M, sampling = A @ A.T, samplings.Nice(n, min(tau, n))
    best, cheap, conservative = (
        bound(A, sampling) for bound in (theory.eso_from_data, theory.eso_cheap, theory.eso_conservative)
    )
    beta = (sampling.tau - 1) / (n - 1)
    np.testing.assert_allclose(cheap, (1 + ((A != 0).sum(axis=0) - 1) * beta) @ (A**2).T, rtol=1e-12)
    assert all(theory.is_eso(M, sampling, v) for v in (best, cheap, conservative))
    assert (best <= conservative * (1.0 + 1e-12)).all()
    m = np.maximum(M.diagonal(), 1e-300)
    assert (best / m).max() <= (cheap / m).max() * (1.0 + 1e-12)


@pytest.mark.slow
@given(sparse_rows())
def test_the_cheap_and_the_conservative_bound_of_the_other_samplings(A):
    for sampling in samplings_for(len(A)):
        assert theory.is_eso(A @ A.T, sampling, theory.eso_conservative(A, sampling))
        if sampling.pair_structure().weights.size <= 1:
            assert theory.is_eso(A @ A.T, sampling, theory.eso_cheap(sp.csr_array(A), sampling))


def test_a_row_of_rare_features_may_have_a_smaller_cheap_bound():
    # So "the first is the smallest" is true of the worst ratio v_i/‖a_i‖² and not of every entry.
    A, sampling = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), samplings.Nice(3, 2)
    assert theory.eso_from_data(A, sampling)[2] > theory.eso_cheap(A, sampling)[2]


def test_forgetting_a_feature_count_would_be_noticed():
    A, sampling = np.ones((4, 1)), samplings.Nice(4, 3)
    assert theory.is_eso(A @ A.T, sampling, theory.eso_cheap(A, sampling))
    assert not theory.is_eso(A @ A.T, sampling, theory.eso_cheap(A, sampling) - 2 / 3)  # ω − 1 for ω


@pytest.mark.parametrize("shape", [(40, 3), (40, 60)])
@pytest.mark.parametrize(
    "storage", [np.asarray, sp.csr_array, lambda A: A.astype(np.float32)], ids=["dense", "csr", "float32"]
)
@pytest.mark.parametrize("small", [0, 300], ids=["lanczos", "lapack"])
def test_every_way_to_the_eigenvalue(shape, storage, small, monkeypatch):
    monkeypatch.setattr(spectra, "SMALL", small)
    rng = np.random.default_rng(0)
    A = storage(rng.standard_normal(shape) * (rng.random(shape) < 0.7))
    dense = np.asarray(A.todense() if sp.issparse(A) else A, dtype=float)
    n = shape[0]
    sets = [range(k, k + 12) for k in range(0, n - 11, 4)]  # overlapping, and too wide together for one group
    for sampling in (
        samplings.Nice(n, 7),
        samplings.Independent(rng.uniform(0.01, 0.5, n)),
        samplings.Partition(n, 7),
        samplings.Explicit(n, [*map(list, sets), list(range(n))], np.full(len(sets) + 1, 1 / (len(sets) + 1))),
    ):
        v = theory.eso_from_data(A, sampling)
        np.testing.assert_allclose(v, theory.eso(dense @ dense.T, sampling), rtol=1e-7)
        assert theory.is_eso(dense @ dense.T, sampling, v)


# is_eso, and what is refused -------------------------------------------------------------------------------------


def test_the_judge_of_vectors():
    M, sampling = np.diag([1.0, 1e-12, 0.0]), samplings.Nice(3, 2)
    assert theory.is_eso(M, sampling, [1.0, 1e-12, 0.0])
    assert not theory.is_eso(M, sampling, [1.0, 0.9e-12, 0.0])  # each coordinate is tested on its own scale
    assert not theory.is_eso(M, sampling, [0.0, 1e-12, 0.0])
    assert not theory.is_eso(M, sampling, [1.0, 1e-12, -1.0])
    assert theory.is_eso(1e-200 * M, sampling, [1e-200, 1e-212, 1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.eso(-np.eye(3), samplings.Serial(3)), r"M must be positive semidefinite, got M\[0, 0\] = .*-1"),
        (
            lambda: theory.eso_from_data(np.eye(3), samplings.Serial(4)),
            "A must have 4 rows, one for each example of the sampling, got 3",
        ),
        (lambda: theory.eso_from_data([[np.inf]], samplings.Serial(1)), "A must be finite"),
        (
            lambda: theory.eso_cheap(np.eye(4), samplings.Partition(4, 2)),
            "diagonal . rank one, got Partition with 2 sets",
        ),
        (lambda: theory.is_eso(np.eye(3), samplings.Serial(3), np.ones(2)), r"v must have shape \(3,\), got \(2,\)"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
