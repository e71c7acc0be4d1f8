"""Methods 1, 2, 3: the shape of what they return, what they move, and what they refuse."""

from types import SimpleNamespace

import numpy as np
import pytest

from dualnewton import samplings, theory
from dualnewton.methods import Composite, Quadratic, Smooth, Zero, method1, method2, nsync, pcdm, prox_method1
from methods.exact import EXAMPLE, quadratic, softplus_sum
from tables import name_of, samplings_for

N = 4
START = np.array([1.0, -2.0, 0.5, 3.0])


def composite(method):
    return lambda f, *arguments, **keywords: method(Composite(f, Zero()), *arguments, **keywords)


SMOOTH = {"method1": method1, "method2": method2, "nsync": nsync}
ALL = {**SMOOTH, "prox_method1": composite(prox_method1), "pcdm": composite(pcdm)}
THREE = pytest.mark.parametrize("method", SMOOTH.values(), ids=SMOOTH)
FIVE = pytest.mark.parametrize("method", ALL.values(), ids=ALL)


@FIVE
def test_a_trajectory_starts_at_x0_and_moves_the_coordinates_of_the_sets_alone(method):
    f, sampling = softplus_sum(N), samplings.Nice(N, 2)
    x = method(f, sampling, START.tolist(), 12, 3)
    assert x.shape == (13, N)
    assert x.dtype == np.float64
    np.testing.assert_array_equal(x[0], START)
    for S, before, after in zip(sampling.draw(np.random.default_rng(3), 12), x, x[1:], strict=False):
        assert set(np.flatnonzero(before != after)) == set(S)


@FIVE
def test_equal_seeds_give_equal_trajectories_and_generators_move_on(method):
    f, sampling = quadratic(N), samplings.Independent(np.full(N, 0.4))
    rng = np.random.default_rng(11)
    first, second = (method(f, sampling, START, 6, rng) for _ in range(2))
    np.testing.assert_array_equal(first, method(f, sampling, START, 6, 11))
    assert not np.array_equal(first, second)


@FIVE
def test_no_iterations_leave_the_start(method):
    np.testing.assert_array_equal(method(quadratic(N), samplings.Serial(N), START, 0, 0), START[None])


@pytest.mark.parametrize("sampling", samplings_for(N), ids=name_of)
@THREE
def test_they_converge_for_every_sampling(method, sampling):
    f = softplus_sum(N)
    x = method(f, sampling, START, 600, 0)[-1]
    assert np.abs(f.gradient(x)).max() < 1e-6 * np.abs(f.gradient(START)).max()


def test_the_steps_are_those_of_the_paper():
    """On Example 2.3 with the 2-nice sampling, where v = (2, 2, 2) may be taken, by the displayed formulas."""
    f, sampling, x = Quadratic(EXAMPLE), samplings.Nice(3, 2), np.array([1.0, -1.0, 2.0])
    gradient = EXAMPLE @ x
    S = sampling.draw(np.random.default_rng(0), 1)[0]
    chosen = np.isin(np.arange(3), S)
    projection = np.diag(chosen * 1.0)
    pseudoinverse = np.linalg.pinv(projection @ EXAMPLE @ projection)
    average = (np.eye(3) / 3 + 1 / 3) * EXAMPLE  # the probability of i is 2/3, of i and j it is 1/3
    np.testing.assert_allclose(method1(f, sampling, x, 1, 0)[1], x - pseudoinverse @ gradient, rtol=1e-9)
    step = projection @ np.linalg.inv(average) @ gradient * 2 / 3
    np.testing.assert_allclose(method2(f, sampling, x, 1, 0)[1], x - step, rtol=1e-12)
    np.testing.assert_allclose(nsync(f, sampling, x, 1, 0, v=[2, 2, 2])[1], x - chosen * gradient / 2, rtol=1e-14)


@THREE
def test_any_object_with_the_four_attributes_will_do(method):
    f = softplus_sum(N)
    same = SimpleNamespace(value=f.value, gradient=f.gradient, M=f.M, G=f.G)
    np.testing.assert_array_equal(
        method(same, samplings.Nice(N, 2), START, 5, 0), method(f, samplings.Nice(N, 2), START, 5, 0)
    )


# The vector v --------------------------------------------------------------------------------------------------------

WITH_V = pytest.mark.parametrize("method", [nsync, composite(pcdm)], ids=["nsync", "pcdm"])


@WITH_V
def test_the_default_v_is_that_of_the_theory(method):
    f, sampling = quadratic(N), samplings.Nice(N, 2)
    v = theory.eso(f.M, sampling)
    x = method(f, sampling, START, 5, 0)
    np.testing.assert_array_equal(x, method(f, sampling, START, 5, 0, v=v))
    assert not np.array_equal(x, method(f, sampling, START, 5, 0, v=2.0 * v))


@WITH_V
def test_a_v_that_is_no_eso_is_refused(method):
    f, sampling = quadratic(N), samplings.Nice(N, N)
    for wrong in (np.diag(f.M), -np.ones(N), np.zeros(N)):
        with pytest.raises(
            ValueError, match=r"v must satisfy E\[M_S\] <= D\(p\)D\(v\) .* as theory.eso\(M, sampling\) does"
        ):
            method(f, sampling, START, 1, 0, v=wrong)
    with pytest.raises(ValueError, match=r"v must have shape \(4,\), got \(1,\)"):
        method(f, sampling, START, 1, 0, v=[2.0])


# Refusals ------------------------------------------------------------------------------------------------------------


@FIVE
def test_bad_input_is_refused_in_words(method):
    f, sampling = quadratic(N), samplings.Serial(N)
    with pytest.raises(ValueError, match=r"f must have value, gradient, M and G, as methods.Smooth does"):
        method(3, sampling, START, 1, 0)
    with pytest.raises(ValueError, match="sampling must choose among the 4 coordinates of f, got one for n=5"):
        method(f, samplings.Serial(5), START, 1, 0)
    with pytest.raises(ValueError, match=r"sampling must be an instance of samplings.Sampling, got 'serial'"):
        method(f, "serial", START, 1, 0)
    with pytest.raises(ValueError, match=r"x0 must have shape \(4,\), got \(3,\)"):
        method(f, sampling, START[:3], 1, 0)
    with pytest.raises(ValueError, match="x0 must be finite"):
        method(f, sampling, START * np.nan, 1, 0)
    with pytest.raises(ValueError, match="iterations must be an integer >= 0, got -1"):
        method(f, sampling, START, -1, 0)
    scalar_gradient = Smooth(f.value, np.sum, f.M, f.G)
    with pytest.raises(ValueError, match=r"f.gradient\(x\) must have shape \(4,\), got \(\)"):
        method(scalar_gradient, sampling, START, 1, 0)


@pytest.mark.parametrize("method", [method1, method2], ids=lambda method: method.__name__)
def test_methods_that_invert_need_a_positive_definite_matrix(method):
    with pytest.raises(
        ValueError, match=r"f.M must be positive definite for Method [12], .*, got a smallest eigenvalue of"
    ):
        method(Quadratic(np.ones((N, N))), samplings.Serial(N), START, 1, 0)


@THREE
def test_a_composite_function_is_sent_to_the_proximal_methods(method):
    with pytest.raises(ValueError, match="goes to prox_method1 or pcdm"):
        method(Composite(quadratic(N), Zero()), samplings.Serial(N), START, 1, 0)


class Improper(samplings.Serial):
    def pair_structure(self):
        pairs = super().pair_structure()
        return samplings.PairStructure(pairs.diagonal * [0, 1, 1, 1], pairs.factors, pairs.weights)


@FIVE
def test_a_sampling_that_never_reaches_a_coordinate_is_refused(method):
    with pytest.raises(
        ValueError, match=r"sampling must be proper \(Assumption 3\), got probability 0 for coordinate 0"
    ):
        method(quadratic(N), Improper(N), START, 1, 0)
