import subprocess
import sys
import tracemalloc
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dualnewton import losses, regularizers, samplings, theory
from dualnewton.objective.problem import Problem
from dualnewton.theory import spectra
from tables import LOSSES, make_problem, name_of, samplings_for, uniform_samplings_for

N = 6
EYE = np.eye(N)


def definite(n=N, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A @ A.T + 0.2 * np.eye(n)


# Section 2, estimated ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("sampling", [samplings.Nice(N, 3), samplings.Shuffled(N, 4)], ids=name_of)
def test_an_estimated_sigma1_knows_its_error(sampling):
    M, rng = definite(), np.random.default_rng(0)
    exact = theory.sigma1(M, M, sampling)
    assert exact.standard_error == 0.0
    runs = [theory.sigma1(M, M, sampling, draws=1000, rng=rng, limit=0) for _ in range(60)]
    assert np.mean([run.standard_error for run in runs]) == pytest.approx(np.std(runs), rel=0.3)
    assert all(abs(run - exact) < 5.0 * run.standard_error for run in runs)


def test_a_law_too_large_to_enumerate_is_refused_unless_asked_for():
    n, sampling = 40, samplings.Nice(40, 10)
    M = definite(n)
    with pytest.raises(ValueError, match=r"Nice cannot be enumerated within limit=20000 sets.*pass draws="):
        theory.sigma1(M, M, sampling)
    estimate = theory.sigma1(M, M, sampling, draws=2000, rng=0)
    assert theory.sigma2(M, M, sampling) < estimate + 5.0 * estimate.standard_error
    assert 0.0 < estimate.standard_error < estimate
    with pytest.raises(ValueError, match=r"draws=2 are too few: example \d+ was never drawn"):
        theory.sigma1(M, M, sampling, draws=2, rng=0)


def test_a_sampling_without_a_law_is_refused_too():
    class Drawn(samplings.Sampling):
        n = N

        def draw(self, rng, rounds):
            return samplings.Nice(N, 2).draw(rng, rounds)

    M = definite()
    with pytest.raises(ValueError, match="Drawn cannot be enumerated"):
        theory.sigma1(M, M, Drawn())
    exact = theory.sigma1(M, M, samplings.Nice(N, 2))
    estimate = theory.sigma1(M, M, Drawn(), draws=4000, rng=0)
    assert abs(estimate - exact) < 5.0 * estimate.standard_error


def test_a_singular_g_has_rate_zero():
    G = np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    sampling, v = samplings.Nice(N, 2), np.full(N, 2.0)
    for rate in (theory.sigma1(EYE, G, sampling), theory.sigma2(EYE, G, sampling), theory.sigma3(EYE, G, sampling, v)):
        assert rate == pytest.approx(0.0, abs=1e-14)


# Section 4 against Sections 2 and 3 ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weights"])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("small", [0, 300], ids=["lanczos", "lapack"])
def test_the_rates_of_the_dual_are_those_of_its_matrices(loss, weights, small, monkeypatch):
    # Lemma 3: Theorem 5 with M = AAᵀ/(λn²), G = 0 and γ/n. Theorem 8: Proposition 1 with the same.
    monkeypatch.setattr(spectra, "SMALL", small)
    problem = make_problem(loss, n=N, lam=0.02, weights=weights, sparse=weights)
    A = theory.dual_rows(problem)
    A = A.toarray() if sp.issparse(A) else A
    M = A @ A.T / (problem.lam * N**2)
    for sampling in uniform_samplings_for(N):
        found, zero = theory.rates(problem, sampling), np.zeros((N, N))
        prox1 = theory.sigma1_prox(M, zero, loss.gamma / N, sampling)
        prox3 = theory.sigma3_prox(M, zero, loss.gamma / N, sampling, theory.eso(M, sampling) + 1e-300)
        assert found.sigma1_prox == pytest.approx(prox1, rel=1e-7)
        assert found.sigma1_prox <= prox1 * (1.0 + 1e-12)  # rounded to the safe side
        assert found.theta == pytest.approx(prox3, rel=1e-7)


def test_the_rows_of_the_dual_make_its_hessian():
    # In α̂ = √c α the dual of a quadratic problem has the Hessian −(ÂÂᵀ/(λn) + γI)/n, Lemma 4.
    problem = make_problem(losses.Squared(), n=N, weights=True, offset=True, lam=0.3)
    root = np.sqrt(problem.c)
    second = hessian_of(lambda a: problem.dual(a / root))
    A = theory.dual_rows(problem)
    np.testing.assert_allclose(-N * second, A @ A.T / (0.3 * N) + EYE, atol=1e-10)
    assert np.abs(-N * second - problem.X @ problem.X.T / (0.3 * N) - EYE).max() > 0.1  # the weights matter


def hessian_of(quadratic):
    """The Hessian of a quadratic function, exactly: q(x+y) − q(x) − q(y) + q(0) = xᵀHy."""
    at = [quadratic(row) for row in EYE]
    return np.array(
        [[quadratic(EYE[i] + EYE[j]) - at[i] - at[j] + quadratic(0.0 * EYE[0]) for j in range(N)] for i in range(N)]
    )


@pytest.mark.parametrize("sampling", samplings_for(N), ids=name_of)
def test_the_quadratic_rate_is_the_contraction_of_method_1(sampling):
    # Theorem 7: the matrix E[(H_S)⁻¹]H, with H = AAᵀ/(λn) + γI, has σ₁ as its smallest eigenvalue.
    problem = make_problem(losses.Squared(), n=N, lam=0.05)
    H = problem.X @ problem.X.T / (0.05 * N) + EYE
    smallest = np.linalg.eigvals(np.asarray(theory.expected_inverse(H, sampling)) @ H).real.min()
    assert theory.rates(problem, sampling).sigma1 == pytest.approx(smallest, rel=1e-9)


def test_what_does_not_apply_says_why():
    squared = losses.Squared()

    def missing(problem, sampling, name="sigma1"):
        found = theory.rates(problem, sampling)
        assert getattr(found, name) is None
        return found.missing[name]

    serial = samplings.Serial(N)
    assert "Logistic is not" in missing(make_problem(losses.Logistic(), n=N), serial)
    assert "this is NonNegative" in missing(make_problem(squared, n=N, regularizer=regularizers.NonNegative()), serial)
    assert "n = 1001 is too large" in missing(make_problem(squared, n=1001), samplings.Serial(1001))
    assert "cannot be enumerated" in missing(make_problem(squared, n=100), samplings.Nice(100, 50))
    assert "900 blocks of up to 899" in missing(make_problem(squared, n=900), samplings.Nice(900, 899))
    uneven = samplings.Serial(N, np.arange(1, N + 1) / 21)
    assert "equal marginals, and those of this sampling go from" in missing(
        make_problem(squared, n=N), uneven, "sigma1_prox"
    )
    assert not theory.rates(make_problem(squared, n=N), serial).missing


@pytest.mark.parametrize(
    "function",
    [theory.rates, theory.theta, lambda p, _: theory.importance(p), lambda p, s: theory.epochs_to(p, s, 0.1)],
)
def test_an_intercept_is_outside_the_theory(function):
    with pytest.raises(ValueError, match="fit_intercept must be False"):
        function(make_problem(losses.Logistic(), n=N, fit_intercept=True), samplings.Serial(N))


# Importance ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 1.0), min_size=N, max_size=N), st.booleans(), st.booleans())
def test_no_serial_law_beats_importance(mass, weights, sparse):
    problem = make_problem(losses.Logistic(), n=N, lam=0.05, weights=weights, sparse=sparse)
    best = theory.theta(problem, samplings.Serial(N, theory.importance(problem)))
    other = theory.theta(problem, samplings.Serial(N, np.array(mass) / np.sum(mass)))
    assert other <= best * (1.0 + 1e-12)
    strength = problem.lam * problem.loss.gamma * N
    v = problem.c * (problem.X**2).sum(axis=1)  # of a CSR array as well
    assert best == pytest.approx(strength / (v + strength).sum(), rel=1e-12)


def test_the_law_by_norms_alone_is_worse():
    problem = make_problem(losses.Logistic(), n=N, lam=0.05)
    v = (problem.X**2).sum(axis=1)
    by_norm = theory.theta(problem, samplings.Serial(N, v / v.sum()))
    assert by_norm < 0.99 * theory.theta(problem, samplings.Serial(N, theory.importance(problem)))


# Bounds --------------------------------------------------------------------------------------------------------------


def check_bound(sigma, theta, iterations, gap):
    """The iterations reach the gap by (1 − σ)^k/θ, and one fewer does not."""
    assert (1.0 - sigma) ** iterations / theta <= gap * (1.0 + 1e-9) < (1.0 - sigma) ** (iterations - 1) / theta


@pytest.mark.parametrize("sampling", uniform_samplings_for(N)[:-1], ids=name_of)
@pytest.mark.parametrize("gap", [1e-2, 1e-9])
def test_the_forecast_is_the_first_iteration_that_the_theorems_allow(sampling, gap):
    problem = make_problem(losses.Squared(), n=N, lam=0.02, weights=True)
    found, rates = theory.epochs_to(problem, sampling, gap), theory.rates(problem, sampling)
    assert found.rates == rates
    check_bound(rates.theta, rates.theta, found.sdca_iterations, gap)
    check_bound(rates.sigma1_prox, rates.theta, found.sdna_iterations, gap)
    check_bound(rates.sigma1, rates.theta, found.sdna_quadratic_iterations, gap)
    with pytest.raises(AssertionError):
        check_bound(rates.theta, rates.theta, found.sdca_iterations + 1, gap)
    assert found.sdna == pytest.approx(found.sdna_iterations * sampling.expected_size / N)
    assert found.sdna_quadratic <= found.sdna <= found.sdca


def test_one_block_of_all_examples_solves_a_quadratic_problem_in_one_iteration():
    found = theory.epochs_to(make_problem(losses.Squared(), n=N, lam=0.02), samplings.Nice(N, N), 1e-6)
    assert (found.sdna_quadratic_iterations, found.sdna_quadratic) == (1, 1.0)
    assert found.sdna_iterations > 1
    # Orthogonal rows with AAᵀ/(λn) + γI = 4I: no rounding at all, and σ₁ = 1 reaches any gap.
    problem = Problem(np.repeat(np.eye(2), 3, axis=1), [1.0, 2.0], losses.Squared(), lam=0.5)
    found = theory.epochs_to(problem, samplings.Nice(2, 2), 1e-300)
    assert found.rates.sigma1 == 1.0
    assert found.sdna_quadratic_iterations == 1


def test_a_gap_that_the_start_has_takes_no_time():
    problem = make_problem(losses.Logistic(), n=N)
    theta = theory.theta(problem, samplings.Nice(N, 2))
    found = theory.epochs_to(problem, samplings.Nice(N, 2), 1.01 / theta)
    assert (found.sdna, found.sdca, found.sdna_quadratic) == (0.0, 0.0, None)
    assert theory.epochs_to(problem, samplings.Nice(N, 2), 0.99 / theta).sdna_iterations >= 1


def test_unequal_marginals_leave_sdna_the_rate_of_lemma_5():
    problem = make_problem(losses.Logistic(), n=N, lam=0.05)
    found = theory.epochs_to(problem, samplings.Serial(N, theory.importance(problem)), 1e-3)
    assert found.sdna_iterations == found.sdca_iterations > 0


@dataclass(frozen=True)
class Shifted(losses.Squared):
    """½(z − y)² − 1, which is negative somewhere."""

    def value(self, z, y):
        return super().value(z, y) - 1.0

    def conjugate_inside(self, u, y):
        return super().conjugate_inside(u, y) + 1.0


def test_a_dual_that_starts_below_zero_needs_the_optimum():
    problem, sampling = make_problem(Shifted(), n=N, lam=0.1), samplings.Nice(N, 2)
    with pytest.raises(ValueError, match=r"optimum must be given: D\(0\) = -1 is negative"):
        theory.epochs_to(problem, sampling, 1e-3)
    w = np.linalg.solve(problem.X.T @ problem.X / N + 0.1 * np.eye(4), problem.X.T @ problem.y / N)
    optimum = problem.primal(w)
    assert problem.certify(w).gap < 1e-12
    found = theory.epochs_to(problem, sampling, 1e-3, optimum=optimum)
    check_bound(found.rates.theta, found.rates.theta / ((optimum + 1.0) / abs(optimum)), found.sdca_iterations, 1e-3)
    for wrong in (-1.5, 0.0, np.nan):
        with pytest.raises(ValueError, match=r"optimum must be finite, not zero and at least D\(0\) = -1"):
            theory.epochs_to(problem, sampling, 1e-3, optimum=wrong)


# Size, refusals, imports ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [lambda n: samplings.Nice(n, 64), lambda n: samplings.Partition(n, 250)], ids=["nice", "partition"]
)
def test_many_examples_need_no_square_matrix(make):
    n, rng = 50_000, np.random.default_rng(0)
    X = sp.random_array((n, 50), density=0.1, rng=rng, format="csr")
    problem, sampling = Problem(X, rng.standard_normal(n), losses.Squared()), make(n)
    tracemalloc.start()
    try:
        found = theory.epochs_to(problem, sampling, 1e-6)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * (X.data.nbytes + X.indices.nbytes)  # the square would be 5,000 times the data
    assert 0.0 < found.rates.theta < found.rates.sigma1_prox < sampling.p.max()
    assert 0.0 < found.sdna < found.sdca


SERIAL = samplings.Serial(N)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.sigma1(EYE, -EYE, SERIAL), "G must be positive semidefinite, got an eigenvalue of -1"),
        (lambda: theory.sigma1(EYE, np.eye(2), SERIAL), r"G must have shape \(6, 6\)"),
        (lambda: theory.sigma1(0 * EYE, EYE, SERIAL), "M must be positive definite"),
        (lambda: theory.sigma2(0 * EYE, EYE, SERIAL), "M must be positive definite"),
        (lambda: theory.sigma3(EYE, EYE, SERIAL, np.zeros(N)), "v must be > 0 everywhere, got .*0.0.* at index 0"),
        (lambda: theory.sigma3(np.ones((2, 3)), EYE, SERIAL, np.ones(N)), "M must have shape"),
        (lambda: theory.sigma1_prox(EYE, EYE, -1.0, SERIAL), "gamma must be >= 0 everywhere"),
        (lambda: theory.sigma1_prox(EYE, EYE, np.ones(2), SERIAL), "gamma must have shape"),
        (lambda: theory.sigma1_prox(0 * EYE, EYE, 0.0, SERIAL), r"M \+ D\(gamma\) must be positive definite"),
        (lambda: theory.sigma2_from_sigma3(0.1, beta=1.0, n=3, tau=4), r"tau must be an integer in \[1, 3\], got 4"),
        (lambda: theory.sigma2_from_sigma3(0.1, beta=0.0, n=3, tau=2), "beta must be a finite number > 0, got 0.0"),
        (
            lambda: theory.theta(make_problem(LOSSES[0]), samplings.Serial(5)),
            "sampling must be over the problem's 6 examples, got one over 5",
        ),
        (lambda: theory.theta(make_problem(LOSSES[0]), SERIAL, -np.ones(N)), "v must be >= 0 everywhere"),
        (
            lambda: theory.epochs_to(make_problem(LOSSES[0]), SERIAL, 0.0),
            "relative_gap must be a finite number > 0, got 0.0",
        ),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.slow
def test_importing_the_theory_loads_nothing_heavy():
    code = "import sys, dualnewton.theory; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "dualnewton.theory.rates" in loaded
    assert not {"sklearn", "matplotlib", "numba", "scipy.linalg", "scipy.sparse.linalg"} & set(loaded)
