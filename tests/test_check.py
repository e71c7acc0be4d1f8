"""``losses.check`` and ``regularizers.check`` pass what is right and say in words what is wrong."""

import numpy as np
import pytest

from dualnewton import losses, regularizers
from tables import LOSSES, name_of, regularizers_for

UNUSUAL_LOSSES = [
    losses.SmoothHinge(width=1e-6),
    losses.SmoothHinge(width=1e6),
    losses.Huber(delta=1e-6),
    losses.Huber(delta=1e8),
    losses.SquaredEpsilonInsensitive(epsilon=0.0),
    losses.SquaredEpsilonInsensitive(epsilon=1e4),
]


@pytest.mark.parametrize("loss", [*LOSSES, *UNUSUAL_LOSSES], ids=name_of)
def test_every_loss_of_the_library_passes(loss):
    assert losses.check(loss) is None


@pytest.mark.parametrize("d", [2, 5, 12])
@pytest.mark.parametrize("which", range(len(regularizers_for(5))), ids=lambda k: name_of(regularizers_for(5)[k]))
def test_every_regularizer_of_the_library_passes(which, d):
    assert regularizers.check(regularizers_for(d)[which], d) is None


@pytest.mark.parametrize(
    "regularizer",
    [
        regularizers.ElasticNet(l1=1e-6),
        regularizers.ElasticNet(l1=1e6),
        regularizers.Box(-1e-6, 1e6),
        regularizers.Box(2.0, 3.0),
        regularizers.Box(1.0, 1.0),
        regularizers.GroupElasticNet([3, 1, 3, 3], strength=50.0),
    ],
    ids=name_of,
)
def test_unusual_regularizers_pass_at_their_own_size(regularizer):
    assert regularizers.check(regularizer) is None


# Losses of a user's own, right ones first ----------------------------------------------------------------------------


class PseudoHuber(losses.Loss):
    """√(1 + r²) − 1: its slope comes near the ends ±1 of the domain without reaching them."""

    gamma = 1.0

    def value(self, z, y):
        r = z - y
        return r * r / (np.sqrt(1.0 + r * r) + 1.0)

    def derivative(self, z, y):
        r = z - y
        return r / np.sqrt(1.0 + r * r)

    def second_derivative(self, z, y):
        r = z - y
        return (1.0 + r * r) ** -1.5

    def conjugate_inside(self, u, y):
        return 1.0 - np.sqrt((1.0 - u) * (1.0 + u)) + u * y

    def domain(self, _y):
        return -1.0, 1.0  # plain numbers serve as well as arrays


class LogCosh(losses.Loss):
    """log cosh r for nonnegative labels, plus a line, so that the domain is not symmetric."""

    gamma = 1.0

    def value(self, z, y):
        r = np.abs(z - y)
        return r + np.log1p(np.exp(-2.0 * r)) - np.log(2.0) + 0.5 * (z - y)

    def derivative(self, z, y):
        return np.tanh(z - y) + 0.5

    def second_derivative(self, z, y):
        e = np.exp(-2.0 * np.abs(z - y))
        return 4.0 * e / (1.0 + e) ** 2

    def conjugate_inside(self, u, y):
        low, high = 0.5 * (1.5 - u), 0.5 * (u + 0.5)
        return u * y + low * np.log(low + (low == 0.0)) + high * np.log(high + (high == 0.0)) + np.log(2.0)

    def domain(self, y):
        return 0.0 * y - 0.5, 0.0 * y + 1.5

    def valid_labels(self, y):
        return np.isfinite(y) & (y >= 0.0)


@pytest.mark.parametrize("loss", [PseudoHuber(), LogCosh()], ids=lambda loss: type(loss).__name__)
def test_a_right_loss_of_a_users_own_passes(loss):
    assert losses.check(loss) is None


def test_a_needlessly_small_gamma_is_only_hinted_at():
    class Timid(losses.Logistic):
        gamma = 1.0

    with pytest.warns(UserWarning, match=r"Timid has gamma=1, but no curvature above 0\.25 was seen.*gamma=4"):
        losses.check(Timid())


# Wrong losses, each with the words that must be said ------------------------------------------------------------------


class WrongConjugate(losses.Squared):
    def conjugate_inside(self, u, y):
        return u * (u + y)


class ConjugateTooSmall(losses.Huber):
    def conjugate_inside(self, u, y):
        return u * (0.5 * u + y) - 0.01 * np.abs(u)


class WrongSign(losses.Logistic):
    def derivative(self, z, y):
        return -super().derivative(z, y)


class SlightlyWrongDerivative(losses.Squared):
    def derivative(self, z, y):
        return 1.00001 * (z - y)


class SlightlyWrongCurvature(losses.Logistic):
    def second_derivative(self, z, y):
        return 0.99 * super().second_derivative(z, y)


class NegativeCurvature(losses.Huber):
    def second_derivative(self, z, y):
        return super().second_derivative(z, y) - (np.abs(z - y) == self.delta) * 1.0


class GammaTooLarge(losses.Logistic):
    gamma = 4.1


class DomainTooNarrow(losses.Huber):
    def domain(self, y):
        return 0.0 * y - 0.5, 0.0 * y + self.delta


class DomainAnUlpTooNarrow(losses.Huber):
    def domain(self, y):
        return 0.0 * y - self.delta, 0.0 * y + np.nextafter(self.delta, 0.0)


class DomainTooWide(losses.Huber):
    def domain(self, y):
        return 0.0 * y - self.delta, 0.0 * y + 1.01 * self.delta


class DomainForgotten(losses.Huber):
    domain = losses.Loss.domain


class DomainReversed(losses.Huber):
    def domain(self, y):
        return 0.0 * y + self.delta, 0.0 * y - self.delta


class DomainNotAPair(losses.Huber):
    def domain(self, _y):
        return self.delta


class NotConvex(losses.Squared):
    def value(self, z, y):
        return np.sin(z - y)


class Overflows(losses.Logistic):
    def value(self, z, y):
        return np.log(1.0 + np.exp(-y * z))


class InfiniteAtTheEnd(losses.Logistic):
    def conjugate_inside(self, u, y):
        s = -y * u
        return s * np.log(s) + (1.0 - s) * np.log(1.0 - s)


class FinitePastTheEnd(losses.Huber):
    def conjugate(self, u, y):
        return self.conjugate_inside(u, y)


class MarkedNonnegative(losses.Squared):
    nonnegative = True

    def value(self, z, y):
        return super().value(z, y) - 1.0

    def conjugate_inside(self, u, y):
        return super().conjugate_inside(u, y) + 1.0


class ListOfValues(losses.Squared):
    def value(self, z, y):
        return np.ravel(super().value(z, y)).tolist()


class MarkedQuadratic(losses.SquaredHinge):
    curvature = losses.Curvature.CONSTANT


class MarkedPiecewise(losses.Logistic):
    curvature = losses.Curvature.PIECEWISE


class KinkElsewhere(losses.Hinge):
    def kinks(self, y):
        return (losses.Kink(0.5 * y, *self.domain(y)),)


class KinkOfASmoothLoss(losses.SmoothHinge):
    def kinks(self, y):
        return (losses.Kink(y, *self.domain(y)),)


class MissingMethods(losses.Loss):
    gamma = 1.0

    def value(self, z, y):
        return 0.5 * (z - y) ** 2

    def derivative(self, z, y):
        return z - y


class MissingGamma(losses.Loss):
    pass


class NegativeGamma(losses.Squared):
    gamma = -1.0


class InfiniteGamma(losses.Squared):
    gamma = np.inf


class ScalarsOnly(losses.Squared):
    def value(self, z, y):
        return 0.5 * (z - y) ** 2 if z > y else 0.5 * (y - z) ** 2


class ConstantInsteadOfArray(losses.Squared):
    def second_derivative(self, _z, _y):
        return 1.0


class ScalarsDiffer(losses.Squared):
    def value(self, z, y):
        return 0.5 * (z - y) ** 2 if np.ndim(z) else 0.0


class WritesIntoItsInput(losses.Squared):
    def derivative(self, z, y):
        if np.ndim(z):
            z -= y
            return z
        return z - y


class AllowsNaN(losses.Squared):
    def valid_labels(self, y):
        return np.full(np.shape(y), True)


class AllowsNothing(losses.Squared):
    def valid_labels(self, y):
        return np.full(np.shape(y), False)


class OneAnswerForAllLabels(losses.Squared):
    def valid_labels(self, _y):
        return True


WRONG_LOSSES = {
    WrongConjugate: r"breaks Fenchel–Young: at z=.*, y=.*, u=phi'\(z\)=.* the sum .* is .* but z\*u is .*conjugate_inside",
    ConjugateTooSmall: "breaks the Fenchel–Young inequality: .* below",
    WrongSign: "derivative that is not the slope of value: .* climbs by .* but derivative is",
    SlightlyWrongDerivative: "derivative that is not the slope of value",
    SlightlyWrongCurvature: "second_derivative that is not the slope of derivative",
    NegativeCurvature: r"second_derivative outside \[0, 1/gamma\] = \[0, 1\]: .* it is -1",
    GammaTooLarge: r"is not 1/gamma-smooth with gamma=4.1: .*more than \|z-t\|/gamma",
    DomainTooNarrow: r"domain too narrow: .* lies outside \[-0.5, 1\]",
    DomainAnUlpTooNarrow: r"domain too narrow: .* lies outside \[-1, 0.9999999999999998\d*\]",
    DomainTooWide: r"domain too wide: .* reaches to 1.01, but the slope phi'\(z\) is 1 even at z=.*e\+08",
    DomainForgotten: r"domain too wide: .* reaches to inf, but the slope phi'\(z\) is 1 even at z=.*e\+08",
    DomainReversed: "it must be low < high, got 1 and -1",
    DomainNotAPair: r"must return the pair \(low, high\), got 1.0",
    NotConvex: "has a value that is not convex: halfway between .* may be at most",
    Overflows: "is not finite: value at .* is inf",
    InfiniteAtTheEnd: "is not finite: conjugate_inside at .* is nan",
    FinitePastTheEnd: r"a conjugate that is .* just past the end u=.* must be \+inf",
    MarkedNonnegative: "declares to be nonnegative, but has a value below zero: at z=",
    ListOfValues: "is not elementwise: value of an array gave a list",
    MarkedQuadratic: "declares CONSTANT curvature, but second_derivative is not constant: it runs from 0 to 1",
    MarkedPiecewise: "declares PIECEWISE curvature, but second_derivative is neither 0 nor 0.25: at z=",
    KinkElsewhere: "declares a kink that does not exist: just right of kink 0, at z=.* derivative is .* but the kink says",
    KinkOfASmoothLoss: "declares kinks, but is not a NonSmooth loss",
    MissingMethods: r"has no second_derivative\(z, y\)(.|\n)*has no conjugate_inside\(u, y\)",
    MissingGamma: r"has no value\(z, y\)",
    NegativeGamma: r"has gamma=-1.0: give the largest finite gamma > 0",
    InfiniteGamma: r"has gamma=inf",
    ScalarsOnly: "cannot be used: value raised ValueError: The truth value of an array",
    ConstantInsteadOfArray: r"second_derivative of floats of shape \(\d+,\) gave float64 of shape \(\)",
    ScalarsDiffer: "treats scalars and arrays differently: value at .* alone and .* in an array",
    WritesIntoItsInput: "writes into the arguments of derivative",
    AllowsNaN: "allows the label nan",
    AllowsNothing: "allows no label",
    OneAnswerForAllLabels: "one bool per label, got",
}


@pytest.mark.parametrize("wrong", WRONG_LOSSES, ids=lambda cls: cls.__name__)
def test_a_wrong_loss_is_told_what_is_wrong(wrong):
    with pytest.raises(ValueError, match=WRONG_LOSSES[wrong]) as caught:
        losses.check(wrong())
    assert all(line.startswith(wrong.__name__) for line in str(caught.value).splitlines())


def test_every_broken_identity_is_listed_in_one_error():
    with pytest.raises(ValueError) as caught:
        losses.check(GammaTooLarge())
    lines = str(caught.value).splitlines()
    for words in ("second_derivative outside", "not 1/gamma-smooth", "conjugate that is not gamma-strongly convex"):
        assert sum(words in line for line in lines) == 1


@pytest.mark.parametrize("wrong", [losses.Squared, "logistic", None])
def test_what_is_no_loss_is_refused(wrong):
    with pytest.raises(ValueError, match=r"loss must be an instance such as losses\.Logistic\(\), got"):
        losses.check(wrong)


# Regularisers --------------------------------------------------------------------------------------------------------


class WrongConjugateOfG(regularizers.ElasticNet):
    def conjugate(self, s):
        return 0.5 * float(s @ s)


class ForgottenConstraint(regularizers.NonNegative):
    weights = None
    value = regularizers.L2.value


class InfeasiblePoint(regularizers.NonNegative):
    def grad_conjugate(self, s):
        return s


class WeaklyConvex(regularizers.Regularizer):
    """¼‖w‖², all else right for it."""

    def value(self, w):
        return 0.25 * float(w @ w)

    def conjugate(self, s):
        return float(s @ s)

    def grad_conjugate(self, s):
        return 2.0 * s


class NotConvexInside(regularizers.L2):
    def value(self, w):
        return 0.5 * float(w @ w) + float(np.sin(5.0 * w).sum())


class WrongGradient(regularizers.L2):
    def grad_conjugate(self, s):
        return 0.999 * s


class MarkedQuadraticG(regularizers.ElasticNet):
    form = regularizers.Form.quadratic()


class BoundsLeftOut(regularizers.Box):
    form = regularizers.Form.separable(lower=0.0)


class WrongWeights(regularizers.L2):
    form = regularizers.Form.quadratic(np.full(5, 2.0))


class InfiniteConjugate(regularizers.L2):
    def conjugate(self, s):
        return np.inf if s[0] > 1.0 else 0.5 * float(s @ s)


class ShortGradient(regularizers.L2):
    def grad_conjugate(self, s):
        return s[1:]


class ArrayInsteadOfNumber(regularizers.L2):
    def value(self, w):
        return 0.5 * w * w


class WritesIntoItsInputG(regularizers.L2):
    def grad_conjugate(self, s):
        np.maximum(s, -1.0, out=s)
        return s


class ForgotToReturn(regularizers.L2):
    def value(self, w):
        0.5 * float(w @ w)


class RaisesInside(regularizers.L2):
    def conjugate(self, s):
        return s.no_such_attribute


class NothingGiven(regularizers.Regularizer):
    pass


WRONG_REGULARIZERS = {
    WrongConjugateOfG: r"breaks Fenchel–Young: at s=\[.*\], w=grad_conjugate\(s\)=\[.*\] the sum .* but <w, s> is",
    ForgottenConstraint: "breaks the Fenchel–Young inequality: at w=.* below <w, s> =",
    InfeasiblePoint: r"a value that is not a finite number: at w=grad_conjugate\(s\)=.* it is inf",
    WeaklyConvex: r"grad_conjugate moves by .* more than \|\|s - t\|\|(.|\n)*value that is not 1-strongly convex",
    NotConvexInside: "value that is not 1-strongly convex: halfway between",
    WrongGradient: "grad_conjugate that is not the gradient of conjugate: around s=.* climbs by",
    MarkedQuadraticG: "declares a form of kind QUADRATIC that is not its grad_conjugate: .* it is .* by the form",
    BoundsLeftOut: "declares a form of kind SEPARABLE that is not its grad_conjugate(.|\n)*that is not its value: .* inf, by the",
    WrongWeights: "declares a form of kind QUADRATIC that is not its value: at w=",
    InfiniteConjugate: "a conjugate that is not a finite number: at s=.* it is inf",
    ShortGradient: "grad_conjugate that is not a finite vector",
    ArrayInsteadOfNumber: "a value that is not a finite number",
    WritesIntoItsInputG: "writes into the arguments of grad_conjugate",
    ForgotToReturn: "a value that is not a finite number: .* it is None",
    RaisesInside: "cannot be used: conjugate raised AttributeError: .*no_such_attribute",
    NothingGiven: "is not complete: it has no value, no conjugate, no grad_conjugate",
}


@pytest.mark.parametrize("wrong", WRONG_REGULARIZERS, ids=lambda cls: cls.__name__)
def test_a_wrong_regularizer_is_told_what_is_wrong(wrong):
    with pytest.raises(ValueError, match=WRONG_REGULARIZERS[wrong]) as caught:
        regularizers.check(wrong())
    assert all(line.startswith(wrong.__name__) for line in str(caught.value).splitlines())


class RidgeAround(regularizers.Regularizer):
    """½‖w − 1‖²: far from zero, differences of small vectors carry the rounding of large ones."""

    def value(self, w):
        return 0.5 * float((w - 1.0) @ (w - 1.0))

    def conjugate(self, s):
        return float(s.sum()) + 0.5 * float(s @ s)

    def grad_conjugate(self, s):
        return s + 1.0


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_a_right_regularizer_of_a_users_own_passes(size):
    assert regularizers.check(RidgeAround(), size) is None


@pytest.mark.parametrize("wrong", [regularizers.L2, "l2"])
def test_what_is_no_regularizer_is_refused(wrong):
    with pytest.raises(ValueError, match=r"regularizer must be an instance such as regularizers\.L2\(\), got"):
        regularizers.check(wrong, 3)


def test_a_regularizer_is_checked_at_its_own_size_only():
    box = regularizers.Box(np.zeros(2), 1.0)
    assert regularizers.check(box) is None
    with pytest.raises(ValueError, match="size must be 2, for which the regularizer is made, got 3"):
        regularizers.check(box, 3)
