"""The judge for several problems over the same X: certificates in shared passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton._validate import vector
from dualnewton.certificate import Certificate, CertifiedPair
from dualnewton.multinomial import MultinomialProblem
from dualnewton.problem import Problem

AnyProblem = Problem | MultinomialProblem


def judge_duals(problems: Sequence[Any], alphas: Sequence[np.ndarray]) -> list[CertifiedPair]:
    """Certify w = ∇g*(ᾱ) for a dual point of each problem: two passes over the data where there is no intercept to find.

    A dual method is judged by its α alone, so that whatever rounding it has gathered in its w does not count.
    """
    if any(problem.fit_intercept or not isinstance(problem, Problem) for problem in problems):
        both = zip(problems, alphas, strict=True)
        return [problem.certified_pair(problem.w_of(alpha), alpha=alpha) for problem, alpha in both]
    alphas = [vector("alpha", alpha, problem.n) for problem, alpha in zip(problems, alphas, strict=True)]
    bars = _bars(problems, alphas)
    models = [problem.regularizer.grad_conjugate(bar) for problem, bar in zip(problems, bars, strict=True)]
    margins, none = _margins(problems, models), [0.0] * len(models)
    return _pairs(problems, models, margins, [alpha.copy() for alpha in alphas], bars, none)


def judge_models(
    problems: Sequence[Any],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    alphas: Sequence[np.ndarray] | None = None,
) -> list[CertifiedPair]:
    """Certify a primal point of each problem, each with the dual point α_i = −φ′(z_i) that belongs to it.

    Where there is an intercept, the dual point is that of the best one for this w, which balances it. Feasible dual points that
    are given are tried, too: the better of the two is the proof.
    """
    if not all(isinstance(problem, Problem) for problem in problems):
        given: Sequence[Any] = [None] * len(problems) if alphas is None else alphas
        all_of_it = zip(problems, models, intercepts, given, strict=True)
        return [problem.certified_pair(w, intercept, alpha) for problem, w, intercept, alpha in all_of_it]
    models = [vector("w", w, problem.d) for problem, w in zip(problems, models, strict=True)]
    margins = _margins(problems, models)
    each = list(zip(problems, margins, intercepts, strict=True))
    best = [problem.best_intercept_at(z, b) for problem, z, b in each]
    own = [problem.alpha_at(z + b if b else z) for problem, z, b in zip(problems, margins, best, strict=True)]
    moved = [z + b if b else z for _, z, b in each]
    pairs = _pairs(problems, models, moved, own, _bars(problems, own), intercepts)
    if alphas is None:
        return pairs
    others = zip(pairs, problems, alphas, _bars(problems, alphas), strict=True)
    return [pair.proved_by(alpha, problem.dual_at(alpha, bar)) for pair, problem, alpha, bar in others]


def _pairs(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    margins: Sequence[np.ndarray],
    alphas: Sequence[np.ndarray],
    bars: np.ndarray,
    intercepts: Sequence[float],
) -> list[CertifiedPair]:
    pairs = []
    for problem, w, z, alpha, bar, b in zip(problems, models, margins, alphas, bars, intercepts, strict=True):
        certificate = Certificate(problem.primal_at(z, w), problem.dual_at(alpha, bar))
        pairs.append(CertifiedPair(w, b, alpha, certificate))
    return pairs


def _margins(problems: Sequence[Problem], models: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the margins of each model, in one pass over X."""
    data = problems[0].data
    products = data.times(_columns(models)).reshape(data.n, -1)
    both = zip(problems, products.T, strict=True)
    return [product if problem.offset is None else product + problem.offset for problem, product in both]


def _bars(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> np.ndarray:
    """Return ᾱ of each problem, in one pass over X."""
    data = problems[0].data
    masses = [problem.weighted(alpha) for problem, alpha in zip(problems, alphas, strict=True)]
    scales = np.array([problem.lam * problem.n for problem in problems])
    return np.ascontiguousarray((data.transposed_times(_columns(masses)).reshape(data.d, -1) / scales).T)


def _columns(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Make vectors the columns of a matrix; one stays as it is, for which products are faster."""
    return vectors[0] if len(vectors) == 1 else np.stack(vectors, axis=1)
