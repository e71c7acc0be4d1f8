"""A certificate: the primal and the dual value that together prove how good a fit is."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Certificate:
    """P(w) and D(α) of one feasible pair.

    Weak duality D(α) ≤ D(α*) = P(w*) ≤ P(w) makes ``gap`` a proof: P(w) − P(w*) ≤ gap, whoever computed w and however.

    Attributes
    ----------
    primal, dual : float
        P(w) and D(α), recomputed from the data in float64.
    parts : tuple of Certificate
        Where a model is several independent fits (classes, outputs): the certificate of each. The values are sums.
    """

    primal: float
    dual: float
    _: KW_ONLY
    parts: tuple[Certificate, ...] = ()

    @classmethod
    def of_parts(cls, parts: tuple[Certificate, ...]) -> Certificate:
        """Join the certificates of independent fits: the sums of their values certify the sum of their objectives."""
        return cls(sum(part.primal for part in parts), sum(part.dual for part in parts), parts=parts)

    @property
    def gap(self) -> float:
        """P(w) − D(α) ≥ 0; a difference that rounding made negative counts as zero."""
        return max(self.primal - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """Return (P − D)/|P|, which is 0 if the gap is."""
        if self.gap == 0.0:
            return 0.0
        return self.gap / abs(self.primal) if 0.0 < abs(self.primal) < np.inf else np.inf

    def __str__(self) -> str:
        return (
            f"primal {self.primal:.10g}, dual {self.dual:.10g}: "
            f"within {self.gap:.2e} of the optimum (relative gap {self.relative_gap:.2e})"
        )


@dataclass(frozen=True, eq=False)
class CertifiedPair:
    """A model (w, b), a feasible dual point α, and the certificate that the two make: P(w, b) and D(α).

    Where a scale of the residuals is fitted, too, it is a part of the model: P(w, b, σ).
    """

    w: np.ndarray
    intercept: Any  # a float; of several classes a vector
    alpha: np.ndarray
    certificate: Certificate
    scale: float | None = None

    def proved_by(self, alpha: np.ndarray, dual: float) -> CertifiedPair:
        """Take another dual point for the proof, if its value is larger."""
        if not dual > self.certificate.dual:
            return self
        return replace(self, alpha=alpha, certificate=Certificate(self.certificate.primal, dual))

    def joined_with(self, other: CertifiedPair) -> CertifiedPair:
        """Take the better model and the better dual point of two pairs: weak duality holds for any two."""
        primal = min(self, other, key=lambda pair: pair.certificate.primal)
        dual = max(self, other, key=lambda pair: pair.certificate.dual)
        certificate = Certificate(primal.certificate.primal, dual.certificate.dual)
        return replace(primal, alpha=dual.alpha, certificate=certificate)
