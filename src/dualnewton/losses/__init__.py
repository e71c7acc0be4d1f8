"""Losses φ(z; y): convex in the margin z = aᵀw, each with its conjugate and with declarations of what it is.

Every function of a loss is one branch-free expression in ``z`` (or ``u``), ``y`` and the loss's own fields. It runs on
NumPy arrays as it stands and is simple enough to be compiled for scalars, so that there is one truth per loss:
indicators are written ``(m < 1.0) * 1.0`` and clips as minimum-of-maximum, never ``np.where`` or ``if``.

The identities that bind the functions of a loss (Section 4 of the paper uses all of them; :func:`check` tests them):

* Fenchel–Young: φ(z) + φ*(u) ≥ z u, with equality exactly when u = φ′(z);
* φ′ is nondecreasing and 1/γ-Lipschitz, so 0 ≤ φ″ ≤ 1/γ and φ* is γ-strongly convex;
* the dual variable that belongs to a margin is α = −φ′(z), and −α lies in the domain of φ*.
"""

from dualnewton.losses.base import Curvature, Kink, Loss, Margin, NonSmooth
from dualnewton.losses.kinked import EpsilonInsensitive, Hinge
from dualnewton.losses.smooth import (
    Huber,
    Logistic,
    SmoothEpsilonInsensitive,
    SmoothHinge,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from dualnewton.losses.softmax import Softmax

__all__ = [
    "Curvature",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Kink",
    "Logistic",
    "Loss",
    "Margin",
    "NonSmooth",
    "SmoothEpsilonInsensitive",
    "SmoothHinge",
    "Softmax",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "check",
]


def check(loss: Loss) -> None:
    """Test the identities that every part of the library relies on; raise a ``DualnewtonError`` that names each broken one.

    Convexity and 1/γ-smoothness of φ, φ′ and φ″ against differences, the Fenchel–Young inequality and its equality
    at u = φ′(z), strong convexity of φ*, its domain, and every declaration. Of a loss without γ those that do not need it; of
    a loss with kinks also all of its smooth neighbours, whose conjugates must be φ* + (width/2)u²; of a loss of several
    columns the same identities for vectors of margins.
    """
    from dualnewton.losses.checks import check_loss  # not needed to fit a model

    check_loss(loss)
