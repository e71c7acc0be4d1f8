import numpy as np
import pytest

from dualnewton import samplings
from dualnewton.theory import spectra
from dualnewton.theory.spectra import ExpectedGram, Rows, lanczos_top
from tables import samplings_for

SPECTRA = {
    "separated": np.linspace(0.0, 1.0, 3000) ** 2 + np.eye(1, 3000, 5).ravel(),
    "crowded at the top": 1.0 - np.linspace(0.0, 1.0, 3000) ** 6,
    "identity": np.full(3000, 0.7),
    "zero": np.zeros(3000),
    "one": np.eye(1, 3000, 17).ravel(),
}


def check(found, spectrum):
    assert spectrum.max() <= found <= 1.002 * spectrum.max()


@pytest.mark.parametrize("spectrum", SPECTRA.values(), ids=SPECTRA)
def test_lanczos_is_never_below_the_truth_and_close(spectrum):
    check(lanczos_top(lambda x: spectrum * x, spectrum.size, np.inf), spectrum)


def test_without_upward_rounding_it_would_be_below(monkeypatch):
    spectrum = SPECTRA["crowded at the top"]
    monkeypatch.setattr(spectra, "_CONVERGED", 0.0)
    monkeypatch.setattr(spectra, "_CHANCE", 1.648 * np.sqrt(spectrum.size))  # no slack
    with pytest.raises(AssertionError):
        check(lanczos_top(lambda x: spectrum * x, spectrum.size, np.inf), spectrum)


def test_few_steps_give_a_loose_bound_that_is_still_one(monkeypatch):
    monkeypatch.setattr(spectra, "_STEPS", 60)
    spectrum = SPECTRA["crowded at the top"]
    found = lanczos_top(lambda x: spectrum * x, spectrum.size, np.inf)
    assert 1.002 < found < 1.2
    assert lanczos_top(lambda x: spectrum * x, spectrum.size, at_most=1.001) == 1.001


@pytest.mark.parametrize("which", range(len(samplings_for(3))))
@pytest.mark.parametrize("group", [4, 256], ids=["wide", "narrow"])
def test_products_with_the_expected_gram(which, group, monkeypatch):
    monkeypatch.setattr(spectra, "_GROUP", group)
    rng = np.random.default_rng(0)
    A, x, scale = rng.standard_normal((7, 3)), rng.standard_normal(7), rng.uniform(0.5, 2.0, 7)
    sampling = samplings_for(7)[which]
    expected = sampling.pair_probabilities() * (A @ A.T)
    operator = ExpectedGram(Rows(A), sampling.pair_structure())
    np.testing.assert_allclose(operator.times(x), expected @ x, atol=1e-12)
    largest = np.linalg.eigvalsh(expected * np.outer(scale, scale))[-1]
    for small in (300, 0):
        monkeypatch.setattr(spectra, "SMALL", small)
        assert operator.top(scale, np.inf) == pytest.approx(largest, rel=1e-7)


def test_blocks_taken_together_are_the_blocks_taken_alone():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1000, 20))
    columns = samplings.Partition(1000, 30).pair_structure().factors  # several groups, the last block smaller
    blocks = [A[k : k + 30] for k in range(0, 1000, 30)]
    np.testing.assert_allclose(Rows(A).tops(columns), [np.linalg.norm(block, 2) ** 2 for block in blocks], rtol=1e-12)
