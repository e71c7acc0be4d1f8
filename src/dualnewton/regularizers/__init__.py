"""Regularisers g: closed and 1-strongly convex, so that g* is 1-smooth and w = ∇g*(ᾱ) is the primal point of a dual point.

The exceptions are :class:`L1` and :class:`JointL1`, whose g* is finite on a bounded set only: the verifier scales dual points
into that set.

The three functions satisfy these identities (Section 4 of the paper; :func:`check` tests them):

* Fenchel–Young: g(w) + g*(s) ≥ ⟨w, s⟩, with equality exactly when w = ∇g*(s);
* ‖∇g*(s) − ∇g*(t)‖ ≤ ‖s − t‖, which makes the block model ½hᵀX_S h of SDNA an upper bound for every such g.
"""

from dualnewton.regularizers.base import Form, Kind, Regularizer
from dualnewton.regularizers.groups import GroupElasticNet
from dualnewton.regularizers.joint import JointElasticNet, JointL1
from dualnewton.regularizers.quadratic import L2
from dualnewton.regularizers.separable import L1, Box, ElasticNet, NonNegative, mixed

__all__ = [
    "L1",
    "L2",
    "Box",
    "ElasticNet",
    "Form",
    "GroupElasticNet",
    "JointElasticNet",
    "JointL1",
    "Kind",
    "NonNegative",
    "Regularizer",
    "check",
    "mixed",
]


def check(regularizer: Regularizer, size: int | None = None) -> None:
    """Test the identities that the library relies on; raise a ``DualnewtonError`` that names each one that fails.

    The check covers 1-strong convexity of g, the Fenchel–Young inequality with equality at w = ∇g*(s), ∇g* against differences
    of g*, its 1-Lipschitz continuity, and the declared form. It uses random points of dimension ``size`` (by default the
    regulariser's own size, or 5).

    Examples
    --------
    >>> from dualnewton import regularizers
    >>> regularizers.check(regularizers.L1())  # returns None: every identity holds
    """
    from dualnewton.regularizers.checks import check_regularizer  # not needed to fit a model

    check_regularizer(regularizer, size or getattr(regularizer, "size", None) or 5)
