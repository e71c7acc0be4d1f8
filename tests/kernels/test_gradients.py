"""∇g* of a whole vector: compiled from the regulariser's own method, called through its address, heard when it fails."""

from dataclasses import dataclass

import numpy as np
import pytest

from dualnewton import losses, regularizers, samplings
from dualnewton.kernels import blocks, gradients, separable
from dualnewton.kernels.gradients import NONE, compiled_gradient
from dualnewton.solvers.dual.compiled import CompiledEngine
from tables import AgainstDirection, make_problem, name_of, regularizers_for

D = 6
WHOLE = [r for r in regularizers_for(D) if r.form.is_general]


class Mixture(regularizers.Regularizer):
    """Whatever may be a field, and no dataclass: a test of how fields are read, not a regulariser."""

    def __init__(self, **changes):
        fields = {
            "number": 0.5,
            "whole": 2,
            "flag": True,
            "scalar": np.float64(0.25),
            "cell": np.array(0.125),
            "single": np.arange(D, dtype=np.float32),
            "strided": np.arange(2.0 * D)[::2],
            "places": np.array([1, 0, 2, 3, 5, 4]),
            "nothing": None,
            "words": "not for the compiler",
            "_private": 3.0,
        }
        vars(self).update(fields | changes)

    def grad_conjugate(self, s):
        factor = self.number + self.scalar + self.cell + self.flag
        return factor * s[self.places] + self.single / self.whole - self.strided


def written(regularizer, s):
    w = np.full_like(s, np.nan)
    compiled_gradient(regularizer).function(s, w)
    return w


def assert_same_gradient(regularizer, like):
    rng = np.random.default_rng(0)
    for scale in (0.0, 1e-200, 1e-3, 1.0, 1e8):
        s = scale * rng.standard_normal(D)
        kept = s.copy()
        np.testing.assert_allclose(written(regularizer, s), like.grad_conjugate(s), rtol=1e-13, atol=1e-14 * scale)
        np.testing.assert_array_equal(s, kept)


def test_two_of_the_table_are_whole_and_one_of_them_is_the_users():
    assert [type(r) for r in WHOLE] == [regularizers.GroupElasticNet, AgainstDirection]


@pytest.mark.parametrize("regularizer", [*WHOLE, Mixture()], ids=lambda r: type(r).__name__)
def test_what_is_compiled_is_the_gradient_as_it_is_written(regularizer):
    assert_same_gradient(regularizer, regularizer)


def test_the_comparison_sees_a_field_that_is_not_passed_on():
    with pytest.raises(AssertionError):
        assert_same_gradient(Mixture(number=0.5), Mixture(number=0.51))
    with pytest.raises(AssertionError):
        assert_same_gradient(Mixture(), Mixture(places=np.arange(D)))


def test_a_division_by_zero_is_what_it_is_in_numpy():
    @dataclass(frozen=True)
    class Ratio(regularizers.Regularizer):
        zero: float = 0.0

        def grad_conjugate(self, s):
            return s * (s[0] / self.zero)

    np.testing.assert_array_equal(written(Ratio(), np.array([1.0, -2.0])), [np.inf, -np.inf])


def test_equal_fields_share_one_compilation_and_equal_types_most_of_it():
    groups = np.arange(D) // 2
    one, same = (compiled_gradient(regularizers.GroupElasticNet(groups.copy(), 0.3)) for _ in range(2))
    other, longer = (compiled_gradient(regularizers.GroupElasticNet(g, 0.4)) for g in (groups, np.arange(D + 1)))
    assert one is same
    assert len({id(made.function) for made in (one, other, longer)}) == 3
    assert len(gradients._method(regularizers.GroupElasticNet).overloads) == 1


def test_a_field_that_is_written_to_later_does_not_change_what_was_compiled():
    direction = np.ones(200_000)  # so large that compiled code refers to it instead of holding it
    s = np.linspace(0.0, 1.0, direction.size)
    before = written(AgainstDirection(direction), s)
    direction[:] = 2.0
    np.testing.assert_array_equal(written(AgainstDirection(np.ones(direction.size)), s), before)
    assert not np.allclose(written(AgainstDirection(direction), s), before)


# Inside the kernels ----------------------------------------------------------------------------------------------------


def engine_of(regularizer, tau, separable_rounds=False):
    problem = make_problem(losses.Logistic(), n=20, d=D, regularizer=regularizer, lam=0.05)
    sampling = samplings.Nice(20, tau)
    engine = CompiledEngine([problem], sampling, [np.zeros(20)], separable_rounds=separable_rounds)
    return engine, sampling.draw(np.random.default_rng(0), 10)


@pytest.mark.parametrize("regularizer", regularizers_for(D), ids=name_of)
def test_only_what_needs_a_call_has_an_address(regularizer):
    models = engine_of(regularizer, 1)[0].models
    assert (models.gradient is NONE) == (type(regularizer) not in map(type, WHOLE))
    assert (models.limits.shape[1] > 0) == (not regularizer.form.is_plain and not regularizer.form.is_general)
    assert (models.w is models.w_bar) == regularizer.form.is_plain


def test_no_kernel_is_compiled_for_a_regularizer():
    def made():
        return [len(kernel.known) for kernel in (separable.singles, separable.minibatches, blocks.rounds)]

    kinds = [(1, False), (3, True), (3, False)]
    for tau, alone in kinds:
        engine_of(regularizers.L2(), tau, alone)
    before = made()
    assert min(before) > 0
    for regularizer in regularizers_for(D):
        for tau, alone in kinds:
            engine, block = engine_of(regularizer, tau, alone)
            engine.run(block)
    assert made() == before


@dataclass(frozen=True)
class Fussy(regularizers.Regularizer):
    """½‖w‖² that will not hear of large vectors."""

    largest: float = 1e-3

    def grad_conjugate(self, s):
        if np.abs(s).max() > self.largest:
            raise ValueError("too large for me")
        return 1.0 * s


@pytest.mark.parametrize(("tau", "separable_rounds"), [(1, False), (3, True), (3, False)])
def test_an_error_inside_the_gradient_is_heard(tau, separable_rounds):
    engine, block = engine_of(Fussy(), tau, separable_rounds)
    with pytest.raises(ValueError, match="too large for me"):
        engine.run(block)
    calm, block = engine_of(Fussy(largest=1e9), tau, separable_rounds)
    calm.run(block)
    plain, block = engine_of(regularizers.L2(), tau, separable_rounds)
    plain.run(block)
    np.testing.assert_allclose(calm.models.w, plain.models.w, rtol=1e-12)
    assert np.abs(plain.models.w).max() > 1e-3
