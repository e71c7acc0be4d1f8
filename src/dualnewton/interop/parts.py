"""The parts of a fitted model, of any library, and the objective by which each is certified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp

from dualnewton import matrix
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import MemoryData, linear
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.row_arrays import on_host
from dualnewton.run.loop import solve
from dualnewton.run.result import Progress, Result

SHARE, FINEST = 0.1, 1e-12
"""A dual point is accurate enough if its error is at most this fraction of the gap that it proves, or of P."""


class Examples(NamedTuple):
    """The examples of a fit: float rows (C order, CSR or on disk), targets or class numbers, weights c and offsets o, if any.

    ``squares`` is the sum of the squares of the entries of X in float64, if it is known.
    """

    X: Any
    y: np.ndarray
    sample_weight: np.ndarray | None
    offset: np.ndarray | None = None
    squares: float | None = None

    @property
    def matrix(self) -> matrix.Data:
        """X, wrapped in the data protocol."""
        if type(self.X) is not np.ndarray and isinstance(self.X, matrix.Data):
            return self.X
        return MemoryData(self.X, squares=self.squares)


class Objective(Protocol):
    """An objective with a dual, which a certificate bounds, of another form than :class:`Problem`."""

    @property
    def columns(self) -> int:
        """K, the number of rows of ``coef_`` that belong to it."""

    def proved_pair(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> CertifiedPair:
        """Certify (w, b); α is a dual point to try in addition to α(w)."""

    def bounded(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with a bound on the rounding errors of its certificate, if one is known."""

    def extended(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with its certificate recomputed in extended precision."""


@runtime_checkable
class Certifiable(Protocol):
    """A fitted model that returns its own objective: every estimator of this library."""

    def _parts(self, X: Any, y: Any, sample_weight: Any, offset: Any) -> Sequence[Part]:
        """Return one part for each class or output that was fitted independently."""


@dataclass(frozen=True, eq=False)
class Part:
    """One independent fit of a model: its objective, its point (w, b), and its dual point, if it has one."""

    problem: Problem | Objective
    w: np.ndarray
    intercept: Any = 0.0
    alpha: np.ndarray | None = None

    def certificate(self, *, exact: bool = False) -> Certificate:
        """Compute the certificate of (w, b) from the data, in extended precision if ``exact``."""
        pair = self._pair()
        return (self.problem.extended(pair) if exact else self.problem.bounded(pair)).certificate

    def _pair(self) -> CertifiedPair:
        """Return (w, b) with a dual point, which is searched where w does not determine it: at a kink of the loss."""
        problem = self.problem
        if not isinstance(problem, Problem):
            pair = problem.proved_pair(self.w, self.intercept, self.alpha)
            return _sharpened(problem, pair) if isinstance(problem, Unpenalised) and problem.loss.kinked else pair
        pair = problem.certified_pair(self.w, self.intercept, self.alpha)
        if not problem.loss.kinked:
            return pair
        start = problem.alpha_of(self.w)
        found = _search(pair.certificate, lambda **stop: solve(problem, warm_start=start, **stop))
        return pair if found is None else pair.proved_by(found.alpha, found.certificate.dual)


@dataclass(frozen=True, eq=False)
class AtScale:
    """The objective of Huber's regression in (w, b, σ), for a model that has a σ."""

    problem: HuberScaleProblem
    scale: float
    columns: int = 1

    def proved_pair(self, w: np.ndarray, intercept: float = 0.0, alpha: np.ndarray | None = None) -> CertifiedPair:
        """Certify (w, b, σ) against all models with any scale."""
        if intercept != 0.0 and not self.problem.fit_intercept:
            raise DualnewtonError(f"intercept must be 0 in a problem with fit_intercept=False, got {intercept!r}")
        # The certificate finds the best b and σ near the given ones; its dual point bounds the given ones as well. Its bound
        # is the squared error of the slopes divided by λ, and here λ is often tiny.
        proof = self.problem.certified_pair(w, intercept, self.scale, alpha)
        certificate = Certificate(self.problem.primal(w, intercept, self.scale), proof.certificate.dual)
        return _sharpened(self.problem, CertifiedPair(proof.w, intercept, proof.alpha, certificate, self.scale))

    def bounded(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with a bound on the rounding errors of its certificate."""
        return self.problem.bounded(pair)

    def extended(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with its certificate recomputed in extended precision."""
        return self.problem.extended(pair)


def parts_of(model: Any, X: linear.Matrix, problems: Sequence[Objective]) -> Iterator[Part]:
    """Pair each problem with its row of ``coef_`` and ``intercept_``, or with all rows if it is one problem of several classes.

    ``dual_coef_`` of this library is used if its number of examples matches.
    """
    counts = [problem.columns for problem in problems]
    coef, intercept = coefficients(model, X, sum(counts))
    alpha = on_host(getattr(model, "dual_coef_", None))
    alpha = None if alpha is None or len(alpha) != X.shape[0] else alpha.reshape(X.shape[0], -1)
    first = 0
    for problem, count in zip(problems, counts, strict=True):
        own: Any = first if count == 1 else slice(first, first + count)
        yield Part(problem, coef[own], intercept[own], None if alpha is None else alpha[:, own])
        first += count


def coefficients(model: Any, X: linear.Matrix, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return ``coef_`` and ``intercept_`` with one row and one number per fit, of which there must be ``count``."""
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    coef = np.atleast_2d(np.asarray(on_host(coef), dtype=np.float64))
    if coef.shape[1] != X.shape[1]:
        raise DualnewtonError(
            f"X must have the {coef.shape[1]} features that {type(model).__name__} was fitted on, got {X.shape[1]}"
        )
    if coef.shape[0] != count:
        raise DualnewtonError(
            f"y must be what {type(model).__name__} was fitted on, with {coef.shape[0]} output(s), got {count}"
        )
    return coef, np.broadcast_to(np.ravel(on_host(model.intercept_)).astype(np.float64), count)


def _search(certificate: Certificate, search: Callable[..., Result]) -> Result | None:
    """Run a solver until its dual value makes the certificate tight; None if the certificate is already tight.

    Let P̂ ≥ P* be the value of the solver's model. P̂ − D ≤ SHARE (P − D), at which it stops, gives P − D ≤ (P − P*)/(1 − SHARE).
    """

    def is_sharp(progress: Progress) -> bool:
        found = progress.certificate
        dual = max(found.dual, certificate.dual)
        return found.primal - dual <= SHARE * (certificate.primal - dual)

    if certificate.relative_gap <= FINEST:
        return None
    return search(tol=FINEST, random_state=0, callback=is_sharp)


def _sharpened(problem: Unpenalised | HuberScaleProblem, pair: CertifiedPair) -> CertifiedPair:
    """Return the pair with the dual point found by a solver, if its dual value is larger."""
    found = _search(pair.certificate, lambda **stop: solve(problem, **stop))
    return pair if found is None else pair.proved_by(found.alpha, found.certificate.dual)
