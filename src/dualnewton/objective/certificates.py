"""Certificates for several problems over the same X, computed in shared passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.problem import Problem


def judge_duals(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[CertifiedPair]:
    """Certify w = ∇g*(ᾱ) for a dual point of each problem, in two passes over the data if there is no intercept.

    Only α is taken from the dual method: w is recomputed, so that rounding errors accumulated in the method's w do not matter.
    """
    if any(problem.fit_intercept for problem in problems):
        both = zip(problems, alphas, strict=True)
        return [problem.certified_pair(problem.w_of(alpha), alpha=alpha) for problem, alpha in both]
    alphas = [problem.dual_point(alpha).copy() for problem, alpha in zip(problems, alphas, strict=True)]
    bars = _bars(problems, alphas)
    models = [problem.g.grad_conjugate(bar) for problem, bar in zip(problems, bars, strict=True)]
    pairs = []
    for problem, w, z, alpha, bar in zip(problems, models, _margins(problems, models), alphas, bars, strict=True):
        certificate = Certificate(problem.primal_at(z, w), problem.dual_at(alpha, bar))
        pairs.append(CertifiedPair(w, problem.no_intercept(), alpha, certificate))
    return pairs


def certify_cold_starts(problems: Sequence[Problem]) -> list[CertifiedPair]:
    """Certify w = ∇g*(0) with its best intercept by α = 0: the starting point of a run without a warm start.

    There is no search for a better dual point, since the first step of any method finds one.
    """
    pairs = []
    for problem in problems:
        alpha = problem.no_dual()
        bar = np.zeros((problem.columns, problem.d) if problem.columns > 1 else problem.d)
        w = problem.g.grad_conjugate(bar)
        margins = problem.margins(w)
        b = problem.best_intercept_at(margins)
        value = problem.primal_at(margins + b, w)
        pairs.append(CertifiedPair(w, b, alpha, Certificate(value, problem.dual_at(alpha, bar))))
    return pairs


def judge_models(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    alphas: Sequence[np.ndarray] | None = None,
) -> list[CertifiedPair]:
    """Certify a primal point of each problem with its dual point α_i = −φ′(z_i).

    With an intercept, the dual point is evaluated at the best intercept for w, where Σ c_i α_i = 0. If feasible ``alphas`` are
    given, each certificate uses the better of the two dual points.
    """
    models = [problem.model(w) for problem, w in zip(problems, models, strict=True)]
    values, own = [], []
    for problem, w, z, b in zip(problems, models, _margins(problems, models), intercepts, strict=True):
        value, alpha = problem.pair_at(z, w, b)
        values.append(value)
        own.append(alpha)
    pairs = []
    for problem, w, b, value, alpha, bar in zip(
        problems, models, intercepts, values, own, _bars(problems, own), strict=True
    ):
        pairs.append(CertifiedPair(w, b, alpha, Certificate(value, problem.dual_at(alpha, bar))))
    if alphas is None:
        return pairs
    others = zip(pairs, problems, alphas, _bars(problems, alphas), strict=True)
    return [pair.proved_by(alpha, problem.dual_at(alpha, bar)) for pair, problem, alpha, bar in others]


def _margins(problems: Sequence[Problem], models: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the margins of each model, in one pass over X."""
    data = problems[0].data
    products = data.times(_joined([w.T for w in models])).reshape(data.n, -1)
    return [
        own if problem.offset is None else own + problem.offset
        for problem, own in zip(problems, _parted(problems, products), strict=True)
    ]


def _bars(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return ᾱ of each problem, in one pass over X."""
    data = problems[0].data
    masses = [problem.weighted(alpha) for problem, alpha in zip(problems, alphas, strict=True)]
    sums = data.transposed_times(_joined(masses)).reshape(data.d, -1)
    return [
        np.ascontiguousarray(own.T) / (problem.lam * problem.n)
        for problem, own in zip(problems, _parted(problems, sums), strict=True)
    ]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Concatenate vectors and matrices as columns; a single one is returned as it is, since products with vectors are faster."""
    return parts[0] if len(parts) == 1 else np.column_stack(parts)


def _parted(problems: Sequence[Problem], columns: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the columns of each problem, as a vector if there is only one."""
    first = 0
    for problem in problems:
        last = first + problem.columns
        yield columns[:, first] if problem.columns == 1 else columns[:, first:last]
        first = last
