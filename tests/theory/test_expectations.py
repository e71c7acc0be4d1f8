import numpy as np
import pytest

from dualnewton import samplings, theory
from tables import name_of, samplings_for

N = 5


def definite(seed=0):
    A = np.random.default_rng(seed).standard_normal((N, N))
    return A @ A.T + 0.2 * np.eye(N)


@pytest.mark.parametrize("sampling", samplings_for(N), ids=name_of)
def test_the_inverse_of_each_block_is_summed_over_the_law(sampling):
    M, total = definite(), np.zeros((N, N))
    for members, probability in sampling.support():
        total[np.ix_(members, members)] += probability * np.linalg.inv(M[np.ix_(members, members)])
    found = theory.expected_inverse(M, sampling)
    np.testing.assert_allclose(found, total, rtol=1e-10, atol=1e-12)
    assert found.exact
    assert not found.standard_error.any()


def check_errors(exact, estimate):
    """Within five standard errors everywhere; entries that never occur are exact zeros."""
    assert not estimate.exact
    assert (np.abs(estimate - exact) <= 5.0 * estimate.standard_error + 1e-12).all()


@pytest.mark.parametrize("sampling", samplings_for(N), ids=name_of)
def test_monte_carlo_is_within_its_standard_error(sampling):
    M = definite()
    exact, estimate = (theory.expected_inverse(M, sampling, draws=4000, rng=1, limit=limit) for limit in (20_000, 0))
    check_errors(exact, estimate)
    wrong = theory.expected_inverse(M, samplings.Independent(np.linspace(0.2, 0.9, N)))
    with pytest.raises(AssertionError):
        check_errors(wrong, estimate)


@pytest.mark.parametrize("sampling", [samplings.Nice(N, 2), samplings.Shuffled(N, 2)], ids=name_of)
def test_the_standard_error_is_that_of_repeated_estimates(sampling):
    M, rng = definite(), np.random.default_rng(0)
    runs = [theory.expected_inverse(M, sampling, draws=40, rng=rng, limit=0) for _ in range(400)]
    spread = np.std([np.asarray(run) for run in runs], axis=0)
    claimed = np.sqrt(np.mean([run.standard_error**2 for run in runs], axis=0))
    np.testing.assert_allclose(claimed, spread, rtol=0.15)


def test_the_same_seed_gives_the_same_estimate():
    sampling = samplings.Nice(N, 2)
    first, second, other = (theory.expected_inverse(definite(), sampling, draws=50, rng=k, limit=0) for k in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_what_is_computed_from_an_expectation_is_a_plain_array():
    found = theory.expected_inverse(definite(), samplings.Nice(N, 2))
    assert type(found) is theory.Expectation
    for derived in (found @ found, 2.0 * found, found[:2], np.linalg.inv(found), found - found.mean()):
        assert type(derived) is np.ndarray
    assert isinstance(found.sum(), float)


def test_blocks_need_to_be_definite_and_only_they():
    A = np.random.default_rng(0).standard_normal((N, 3))
    M = A @ A.T  # rank 3: every block of three examples has an inverse, none of four has
    assert np.isfinite(theory.expected_inverse(M, samplings.Nice(N, 3))).all()
    with pytest.raises(ValueError, match="M must be positive definite, got a block M_S of size 4"):
        theory.expected_inverse(M, samplings.Nice(N, 4))
    with pytest.raises(ValueError, match="M must be positive definite"):
        theory.expected_inverse(-np.eye(N), samplings.Serial(N))


@pytest.mark.parametrize(
    ("M", "message"),
    [
        (np.eye(4), r"M must have shape \(5, 5\), the size of the sampling, got \(4, 4\)"),
        (np.eye(5) + np.eye(5, k=1), "M must be symmetric"),
        (np.full((5, 5), np.nan), "M must be finite, got np.float64.nan"),
        ([["a"] * 5] * 5, "M must be an array of real numbers, got list"),
        (1j * np.eye(5), "M must be an array of real numbers, got ndarray"),
    ],
)
def test_what_is_no_symmetric_matrix_is_refused(M, message):
    for function in (theory.expected_submatrix, theory.expected_inverse, theory.eso):
        with pytest.raises(ValueError, match=message):
            function(M, samplings.Serial(N))


def test_one_draw_has_no_standard_error():
    with pytest.raises(ValueError, match="draws must be an integer >= 2, got 1"):
        theory.expected_inverse(definite(), samplings.Nice(N, 2), draws=1, limit=0)
