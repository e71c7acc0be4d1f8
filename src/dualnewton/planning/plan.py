"""A plan: the method that a run uses, its parameter, and the reason, as :func:`dualnewton.plan` returns it."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal

Tau = int | Literal["auto"]

PRIMAL = ("newton", "ihs", "interior")
"""Methods that update w by passes over the data; the others update α by rounds over sets of examples."""


@dataclass(frozen=True)
class Plan:
    """A method with its τ, and the reason in a sentence.

    Attributes
    ----------
    method : str
        "sdna", "sdca", "newton", "ihs" or "interior"; "direct" for a solution without iterations, such as the eigendecomposition
        by which ``RidgeCV`` fits all its values. Estimators use "direct" where it is cheap; ``solve`` does not accept it.
    tau : int
        Examples per round; for primal methods, rows of the (first) sketch; for a direct solution, all examples.
    reason : str
        Why this method was chosen, or what was computed.
    compiled : bool
        Whether compiled kernels are used, or NumPy alone.
    cost : float
        Predicted seconds to a relative gap of 1e-6, on a core with the rates of :class:`Rates`; NaN for most direct solutions.
    family : str, optional
        The direct solver that solves the problem in one call (:mod:`dualnewton.planning.small`), if any.
    inner : str, optional
        The direct solver of the small problems to which "wide" reduces a problem with more features than examples.
    directions : int
        Number of gradients that "wide" tries before it factorises the n×n Gram matrix, of those that "conjugate" tries before
        it factorises the d×d Hessian of dense rows or leaves sparse rows to other methods, and of the sweeps that "entries"
        tries on dense features.
    passes : int
        Number of L-BFGS steps that "classes" takes before it computes a Hessian again.
    whole : bool
        Whether this is the Hessian of all classes together, or one of each class.
    together : bool
        Whether the steps of several models are batched in shared array operations.
    smoothed : bool
        Whether a loss with kinks is solved through a sequence of smoothed losses.
    samples : tuple of int
        Sizes of the samples of rows on which the problem is solved first, each from the solution on the one before.
    before : Plan, optional
        The earlier plan, if the run has changed its method.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 5))
    >>> y = np.where(X[:, 0] + 0.5 * rng.standard_normal(100) > 0, 1.0, -1.0)
    >>> problem = dn.Problem(X, y, dn.losses.Logistic(), lam=0.01)
    >>> dn.plan(problem).method
    'newton'
    """

    method: str
    tau: int
    reason: str
    _: KW_ONLY
    compiled: bool = False
    cost: float = field(default=math.nan, compare=False)  # NaN would make a plan differ from its own copy
    family: str | None = None
    inner: str | None = None
    directions: int = 0
    passes: int = 0
    whole: bool = False
    together: bool = False
    smoothed: bool = False
    samples: tuple[int, ...] = ()
    before: Plan | None = None

    def __str__(self) -> str:
        earlier = "" if self.before is None else f"{self.before}; then "
        return f"{earlier}{self.method}, tau = {self.tau}{', compiled' if self.compiled else ''}: {self.reason}"

    @property
    def is_primal(self) -> bool:
        """Whether the method updates w by passes over the data, and not α by rounds."""
        return self.method in PRIMAL

    @property
    def has_switched(self) -> bool:
        """Whether the run has changed from an iterative method; a direct solver does not count."""
        before = self.before
        return before is not None and (before.family is None or before.has_switched)

    def after(self, earlier: Plan, reason: str) -> Plan:
        """Return this plan as the one that takes over from an earlier one."""
        return replace(self, reason=reason, before=earlier)
