"""Theorem 4: 0 < σ₃ ≤ σ₂ ≤ σ₁ ≤ 1 for G ⪯ M and E[M_Ŝ] ⪯ D(p)D(v)."""

import numpy as np
import pytest

from dualnewton import samplings, theory
from tables import samplings_for

ROUNDING = 1.0 + 1e-10


def matrices(n, seed, kind):
    """M ≻ 0 and 0 ≺ G ⪯ M, equal or not."""
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((n, n)) + 0.3 * np.eye(n)
    M = root @ root.T
    if kind == "equal":
        return M, M
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    return M, root @ (Q * rng.uniform(0.05, 1.0, n)) @ Q.T @ root.T


def check(M, G, sampling, v):
    s1, s2, s3 = theory.sigma1(M, G, sampling), theory.sigma2(M, G, sampling), theory.sigma3(M, G, sampling, v)
    assert 0.0 < s3 <= s2 * ROUNDING
    assert s2 <= s1 * ROUNDING
    assert s1 <= ROUNDING


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("which", range(len(samplings_for(3))))
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["equal", "smaller"])
def test_the_rates_are_ordered(n, which, seed, kind):
    M, G = matrices(n, seed, kind)
    sampling = samplings_for(n)[which]
    check(M, G, sampling, theory.eso(M, sampling))


@pytest.mark.parametrize("which", range(len(samplings_for(3))))
def test_the_rates_are_the_eigenvalues_of_the_definition(which):
    M, G = matrices(5, 7, "smaller")
    sampling = samplings_for(5)[which]
    values, Q = np.linalg.eigh(G)
    root = (Q * np.sqrt(values)) @ Q.T
    D, v = np.diag(sampling.p), theory.eso(M, sampling)
    for found, matrix in [
        (theory.sigma1(M, G, sampling), theory.expected_inverse(M, sampling)),
        (theory.sigma2(M, G, sampling), D @ np.linalg.inv(theory.expected_submatrix(M, sampling)) @ D),
        (theory.sigma3(M, G, sampling, v), D @ np.diag(1.0 / v)),
    ]:
        assert found == pytest.approx(np.linalg.eigvalsh(root @ matrix @ root)[0], rel=1e-9)


def test_serial_samplings_make_the_three_equal():
    M, G = matrices(4, 0, "smaller")
    sampling = samplings.Serial(4, [0.1, 0.2, 0.3, 0.4])
    s3 = theory.sigma3(M, G, sampling, theory.eso(M, sampling))
    assert theory.sigma1(M, G, sampling) == pytest.approx(s3, rel=1e-12)
    assert theory.sigma2(M, G, sampling) == pytest.approx(s3, rel=1e-12)


def test_a_vector_that_is_no_eso_is_caught_and_breaks_the_order():
    M, _ = matrices(5, 0, "equal")
    sampling = samplings.Nice(5, 3)
    v = 0.01 * theory.eso(M, sampling)
    assert not theory.is_eso(M, sampling, v)
    with pytest.raises(AssertionError):
        check(M, M, sampling, v)
