"""Where the paper says that methods coincide, their trajectories do: equal seeds give equal sets to all of them."""

import numpy as np
import pytest

from dualnewton import samplings
from dualnewton.methods import Composite, Quadratic, Zero, method1, method2, nsync, pcdm, prox_method1
from methods.exact import EXAMPLE, composites, describe, feasible_points, minimum, quadratic, softplus_sum
from tables import name_of, uniform_samplings_for

N = 4
START = np.array([1.0, -2.0, 0.5, 3.0])
FUNCTIONS = pytest.mark.parametrize("f", [quadratic(N), softplus_sum(N)], ids=["quadratic", "softplus"])
ONE_AT_A_TIME = [
    samplings.Serial(N),
    samplings.Nice(N, 1),
    samplings.Partition(N, 1),
    samplings.Shuffled(N, 1),
    samplings.Explicit(N, [[i] for i in range(N)], np.full(N, 0.25)),
]


def without_psi(method):
    """The method of Section 3 that remains when ψ = 0."""
    return lambda f, *arguments: method(Composite(f, Zero()), *arguments)


def assert_same(one, other, f, sampling, x0, rtol=1e-12):
    a, b = (method(f, sampling, x0, 25, np.random.default_rng(5)) for method in (one, other))
    assert np.abs(a - b).max() <= rtol * np.abs(a).max()


@pytest.mark.parametrize("sampling", ONE_AT_A_TIME, ids=name_of)
@FUNCTIONS
def test_all_methods_coincide_when_sets_have_one_element(f, sampling):
    for other in (method2, nsync, without_psi(prox_method1), without_psi(pcdm)):
        assert_same(method1, other, f, sampling, START)


@FUNCTIONS
def test_the_smooth_methods_coincide_for_any_law_of_single_coordinates(f):
    for other in (method2, nsync):
        assert_same(method1, other, f, samplings.Serial(N, [0.1, 0.2, 0.3, 0.4]), START)


@FUNCTIONS
def test_no_two_methods_coincide_on_larger_sets(f):
    for one, other in [(method1, method2), (method1, nsync), (method2, nsync)]:
        with pytest.raises(AssertionError):
            assert_same(one, other, f, samplings.Nice(N, 2), START)


@pytest.mark.parametrize("sampling", ONE_AT_A_TIME, ids=name_of)
@pytest.mark.parametrize("F", composites(N), ids=describe)
def test_the_proximal_methods_coincide_when_sets_have_one_element(F, sampling):
    assert_same(prox_method1, pcdm, F, sampling, feasible_points(F, 1)[0])


@pytest.mark.parametrize("F", composites(N)[:3], ids=describe)
def test_the_proximal_methods_differ_on_larger_sets(F):
    with pytest.raises(AssertionError):
        assert_same(prox_method1, pcdm, F, samplings.Nice(N, 2), feasible_points(F, 1)[0])


@pytest.mark.parametrize("sampling", uniform_samplings_for(N), ids=name_of)
@FUNCTIONS
def test_without_psi_the_proximal_methods_are_methods_1_and_3(f, sampling):
    assert_same(method1, without_psi(prox_method1), f, sampling, START)
    assert_same(nsync, without_psi(pcdm), f, sampling, START)


@pytest.mark.parametrize("sampling", uniform_samplings_for(3), ids=name_of)
def test_without_psi_proximal_method_1_is_method_1_on_ill_conditioned_blocks_too(sampling):
    """A block of Example 2.3 has a condition number of 2·10⁴, and so many roundings may tell two exact solvers apart."""
    assert_same(method1, without_psi(prox_method1), Quadratic(EXAMPLE, [1.0, 2.0, -1.0]), sampling, START[:3], 1e-10)


@pytest.mark.parametrize("f", [quadratic(N), Quadratic(EXAMPLE, [1.0, 2.0, -1.0])], ids=["random", "Example 2.3"])
def test_method_1_with_all_coordinates_minimises_a_quadratic_in_one_step(f):
    n = len(f.M)
    for method in (method1, method2, without_psi(prox_method1)):
        x = method(f, samplings.Nice(n, n), START[:n], 1, 0)[-1]
        np.testing.assert_allclose(x, f.minimiser, rtol=1e-9)
    x = nsync(f, samplings.Nice(n, n), START[:n], 1, 0)[-1]
    assert np.abs(x - f.minimiser).max() > 0.1


@pytest.mark.parametrize("F", [F for F in composites(N) if isinstance(F.f, Quadratic)], ids=describe)
def test_proximal_method_1_with_all_coordinates_minimises_a_quadratic_plus_psi_in_one_step(F):
    x = prox_method1(F, samplings.Nice(N, N), feasible_points(F, 1)[0], 1, 0)[-1]
    np.testing.assert_allclose(x, minimum(F)[1], rtol=1e-10, atol=1e-12)
