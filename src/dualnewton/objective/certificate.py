"""Certificates: a primal and a dual value whose difference, the duality gap, bounds the suboptimality of a model."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from dualnewton.row_arrays import is_elsewhere, on_host

ROUNDING = 1e-12
"""Two certificates of one pair agree up to this fraction of the values."""

POOR = 0.5
"""Relative gap above which the model of a warm start is compared with a cold start."""


@dataclass(frozen=True)
class Certificate:
    """P(w) and D(α) of one feasible pair.

    By weak duality, D(α) ≤ D(α*) = P(w*) ≤ P(w), so that P(w) − P(w*) ≤ gap for any w and α, however they were computed. The two
    values are computed in floating-point arithmetic: in exact arithmetic, P(w) − P(w*) ≤ gap + rounding = bound.

    Attributes
    ----------
    primal, dual : float
        P(w) and D(α), recomputed from the data in float64.
    rounding : float, optional
        A proved bound on the rounding error of P − D (``objective/rounding.py``); 0 if P and D include one; None if none was
        computed or none is known (docs/reliability.md). It is ignored when certificates are compared.
    reach : float
        Infinite, unless there is no penalty and features depend on each other up to rounding, or are more than 2000, for which
        this is not examined. The bound is then proved in comparison with all models v with Σ_j ‖x_j‖ |v_j| ≤ reach, where x_j
        is column j of X, and a column of ones for the intercept. Ignored when certificates are compared.
    parts : tuple of Certificate
        The certificates of the independent fits (classes, outputs) of which the model consists; the values are their sums.

    Examples
    --------
    >>> import dualnewton as dn
    >>> certificate = dn.Certificate(primal=0.30, dual=0.29)
    >>> round(certificate.gap, 4), round(certificate.relative_gap, 4)
    (0.01, 0.0333)
    """

    primal: float
    dual: float
    _: KW_ONLY
    rounding: float | None = field(default=None, compare=False)
    reach: float = field(default=math.inf, compare=False)
    parts: tuple[Certificate, ...] = ()

    @classmethod
    def of_values(cls, primal: np.ndarray, dual: np.ndarray, rounding: float | None = None) -> list[Certificate]:
        """Return the certificates of several models, in a third of the time that the constructor takes for hundreds of them."""
        found = [object.__new__(cls) for _ in range(primal.size)]
        for each, own_primal, own_dual in zip(found, primal.tolist(), dual.tolist(), strict=True):
            own = vars(each)
            # The other fields have their defaults, which are those of the class.
            own["primal"], own["dual"], own["rounding"] = own_primal, own_dual, rounding
        return found

    @classmethod
    def of_parts(cls, parts: tuple[Certificate, ...]) -> Certificate:
        """Combine the certificates of independent fits: the sums of their values certify the sum of their objectives."""
        errors = [part.rounding for part in parts if part.rounding is not None]
        rounding = sum(errors) if len(errors) == len(parts) else None
        values = sum(part.primal for part in parts), sum(part.dual for part in parts)
        return cls(*values, rounding=rounding, reach=min((part.reach for part in parts), default=math.inf), parts=parts)

    @property
    def gap(self) -> float:
        """The duality gap P(w) − D(α) ≥ 0; a difference that is negative by rounding counts as zero."""
        return max(self.primal - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """(P − D)/|P|, or 0 if the gap is 0."""
        gap, size = self.primal - self.dual, abs(self.primal)
        if gap <= 0.0:
            return 0.0
        return gap / size if 0.0 < size < np.inf else np.inf

    def agrees_with(self, other: Certificate) -> bool:
        """Whether both values equal those of the other certificate up to rounding: twice its rounding bound, if it has one.

        The bound of a certificate with a finite ``reach`` covers more than the errors of P and D, and is not used.
        """
        known = other.rounding is not None and other.reach == math.inf
        allowed = 2.0 * (other.rounding or 0.0) if known else ROUNDING * (abs(self.primal) + abs(self.dual))
        return abs(self.primal - other.primal) <= allowed and abs(self.dual - other.dual) <= allowed

    @property
    def bound(self) -> float:
        """The gap plus its rounding errors, if they are known: P(w) − P(w*) is at most this in exact arithmetic."""
        return self.gap + (self.rounding or 0.0)

    @property
    def relative_bound(self) -> float:
        """The bound divided by |P|, or 0 if P = D = 0."""
        bound = self.bound
        if self.gap == self.primal == 0.0 or bound == 0.0:
            return 0.0
        return bound / abs(self.primal) if 0.0 < abs(self.primal) < np.inf else np.inf

    def meets(self, tol: float) -> bool:
        """Whether the bound is at most ``tol`` times |P|; if P = D = 0, whatever the rounding errors."""
        if not self.relative_gap <= tol:
            return False
        return self.primal == 0.0 or self.gap + (self.rounding or 0.0) <= tol * abs(self.primal)

    def __str__(self) -> str:
        errors = "; without a bound on rounding errors"
        if self.rounding is not None:
            errors = f"; rounding errors of at most {self.rounding:.1e} are included" if self.rounding else ""
        among = "" if self.reach == math.inf else f" among models with Σ‖x_j‖|w_j| ≤ {self.reach:.1e}"
        return (
            f"primal {self.primal:.10g}, dual {self.dual + 0.0:.10g}: "  # + 0.0 prints -0 as 0
            f"within {self.bound:.2e} of the optimum{among} (relative gap {self.relative_gap:.2e}{errors})"
        )


@dataclass(frozen=True, eq=False)
class CertifiedPair:
    """A model (w, b), a feasible dual point α, and their certificate: P(w, b) and D(α).

    If a scale σ of the residuals is fitted as well, it is part of the model: P(w, b, σ).
    """

    w: np.ndarray
    intercept: Any  # a float; a vector for several classes
    alpha: np.ndarray
    certificate: Certificate
    scale: float | None = None

    sizes: ClassVar[Any] = None
    """The sums over α from which rounding errors are bounded, if the pass that certified the pair has found them. They are not a
    field: ``replace``, which may change α, and files leave them out."""

    def with_sizes(self, sizes: Any) -> CertifiedPair:
        """Keep the sums over α with this pair."""
        vars(self)["sizes"] = sizes
        return self

    def in_memory(self) -> CertifiedPair:
        """Return the pair with its model as a NumPy array."""
        return replace(self, w=on_host(self.w)).with_sizes(self.sizes) if is_elsewhere(self.w) else self

    def with_rounding(self, rounding: float | None, reach: float = math.inf) -> CertifiedPair:
        """Return the pair with a bound on the rounding errors of its certificate, and the models for which it is proved."""
        # Not ``replace``, which takes twice as long: Python calls dominate the time of a small fit.
        found = self.certificate
        certificate = Certificate(found.primal, found.dual, rounding=rounding, reach=reach, parts=found.parts)
        return CertifiedPair(self.w, self.intercept, self.alpha, certificate, self.scale)

    def proved_by(self, alpha: np.ndarray, dual: float) -> CertifiedPair:
        """Return the pair with another dual point if its dual value is larger."""
        if not dual > self.certificate.dual:
            return self
        return replace(self, alpha=alpha, certificate=Certificate(self.certificate.primal, dual))

    def joined_with(self, other: CertifiedPair) -> CertifiedPair:
        """Return the better model and the better dual point of two pairs: weak duality holds for any combination.

        NaN is worse than any number.
        """
        primal = min(self, other, key=lambda pair: _or(np.inf, pair.certificate.primal))
        dual = max(self, other, key=lambda pair: _or(-np.inf, pair.certificate.dual))
        certificate = Certificate(primal.certificate.primal, dual.certificate.dual)
        return replace(primal, alpha=dual.alpha, certificate=certificate).with_sizes(dual.sizes)


def _or(otherwise: float, value: float) -> float:
    return otherwise if np.isnan(value) else value
