"""The base class of objectives that are defined by a problem over the same data: Huber's scale, and no penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair


class AroundProblem(ABC):
    """An objective that is not a :class:`Problem`, but has one over the same data, ``unit``, and its own starting point."""

    unit: Any
    own_starts = True

    @abstractmethod
    def rounding_of(self, pair: CertifiedPair) -> tuple[float | None, float]:
        """Return ``rounding`` and ``reach`` of a certificate."""

    @abstractmethod
    def extended_pair(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with its certificate recomputed in extended precision."""

    def bounded(self, pair: CertifiedPair, tol: float | None = None) -> CertifiedPair:  # noqa: ARG002
        """Return the pair with a bound on the rounding errors of its certificate, if it has none and one is known."""
        if pair.certificate.rounding is not None or len(pair.alpha) != self.n:
            return pair
        return pair.with_rounding(*self.rounding_of(pair))

    @property
    def extends(self) -> bool:
        """Whether a run recomputes certificates in extended precision: if all rows are in memory.

        Without a penalty, bounds on rounding errors are large far from the optimum, where reading rows again would gain nothing.
        """
        return bool(self.data.capabilities.whole and self.unit.extends)

    def extended(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with its certificate recomputed in extended precision; raise an error if that is not possible."""
        self.data.capabilities.require_local("a certificate in extended precision")
        found = pair.certificate
        inside = np.isfinite([found.primal, found.dual]).all()
        return self.extended_pair(pair) if inside else pair

    data = property(lambda self: self.unit.data)
    n = property(lambda self: self.unit.n)
    d = property(lambda self: self.unit.d)
    columns = property(lambda self: self.unit.columns)
