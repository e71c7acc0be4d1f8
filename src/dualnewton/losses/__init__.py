"""Losses φ(z; y), convex in the margin z = aᵀw: each class gives φ, its conjugate φ* and the declared properties of both.

Every function of a loss is one branch-free expression in ``z`` (or ``u``), ``y`` and the loss's own fields. The same
expression runs on NumPy arrays and is compiled by Numba for scalars, so that each formula is written once: indicators are
written ``(m < 1.0) * 1.0`` and clips as minimum-of-maximum, never with ``np.where`` or ``if``.

The functions of a loss satisfy these identities (Section 4 of the paper uses all of them; :func:`check` tests them):

* Fenchel–Young: φ(z) + φ*(u) ≥ z u, with equality exactly when u = φ′(z);
* φ′ is nondecreasing and 1/γ-Lipschitz, so 0 ≤ φ″ ≤ 1/γ and φ* is γ-strongly convex;
* the dual variable that belongs to a margin is α = −φ′(z), and −α lies in the domain of φ*.
"""

from dualnewton.losses.base import Curvature, Kink, Loss, Margin
from dualnewton.losses.kinked import EpsilonInsensitive, Hinge, Quantile
from dualnewton.losses.log_link import Gamma, Poisson, Tweedie
from dualnewton.losses.nonsmooth import NonSmooth
from dualnewton.losses.outputs import SquaredOutputs
from dualnewton.losses.smooth import (
    Huber,
    Logistic,
    SmoothEpsilonInsensitive,
    SmoothHinge,
    SmoothQuantile,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from dualnewton.losses.softmax import Softmax

__all__ = [
    "Curvature",
    "EpsilonInsensitive",
    "Gamma",
    "Hinge",
    "Huber",
    "Kink",
    "Logistic",
    "Loss",
    "Margin",
    "NonSmooth",
    "Poisson",
    "Quantile",
    "SmoothEpsilonInsensitive",
    "SmoothHinge",
    "SmoothQuantile",
    "Softmax",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "SquaredOutputs",
    "Tweedie",
    "check",
]


def check(loss: Loss) -> None:
    """Test the identities that the library relies on; raise a ``DualnewtonError`` that names each one that fails.

    The check covers convexity and 1/γ-smoothness of φ, φ′ and φ″ against finite differences, the Fenchel–Young inequality with
    equality at u = φ′(z), strong convexity and domain of φ*, and every declared property. For a loss without γ it skips the
    identities that involve γ, and evaluates the others at |z| ≤ 30. For a loss with kinks it also checks the smoothed losses,
    whose conjugates must be φ* + (width/2)u². For a loss of several columns it checks the same identities for vectors of margins.

    Examples
    --------
    >>> from dualnewton import losses
    >>> losses.check(losses.Logistic())  # returns None: every identity holds
    """
    from dualnewton.losses.checks import check_loss  # not needed to fit a model

    check_loss(loss)
