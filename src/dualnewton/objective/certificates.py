"""Certificates for several problems over the same X, computed in shared passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.objective.bounds import (
    DualSums,
    PrimalBound,
    best_intercept_bounds,
    better,
    dual_bounds,
    dual_sums,
    primal_bounds,
)
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.groups import Group, columns_of, for_each, groups_of
from dualnewton.objective.multiples import scaled_if_far
from dualnewton.objective.problem import Problem, finite_matrix
from dualnewton.objective.rounding import rounding_bounds
from dualnewton.objective.row_sums import label_weights, over_rows
from dualnewton.row_arrays import is_elsewhere
from dualnewton.validation import vector


def certify_duals(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[CertifiedPair]:
    """Certify w = ∇g*(ᾱ) for a dual point of each problem: in two passes, or three if an intercept must be searched.

    Only α is taken from the dual method: w is recomputed, so that rounding errors accumulated in the method's w do not matter.
    """
    alphas = [problem.dual_point(alpha).copy() for problem, alpha in zip(problems, alphas, strict=True)]
    if any(problem.fit_intercept for problem in problems):
        return _certify_with_intercepts(problems, alphas)
    sums = dual_sums(problems, alphas)
    models = [problem.g.grad_conjugate(each.bar) for problem, each in zip(problems, sums, strict=True)]
    products = problems[0].data.times(np.column_stack([w.T for w in models])).reshape(problems[0].n, -1)

    def certified(model: tuple[tuple[Problem, Any], np.ndarray, DualSums]) -> CertifiedPair:
        (problem, own), w, each = model
        primal = problem.primal_at(problem.row_vectors.shifted(products[:, own]), w)
        certificate = Certificate(primal, problem.dual_at(each.alpha, each.bar))
        return CertifiedPair(w, problem.no_intercept(), each.alpha, certificate)

    return for_each(problems[0], list(zip(columns_of(problems), models, sums, strict=True)), certified)


def _certify_with_intercepts(problems: Sequence[Problem], alphas: Sequence[np.ndarray]) -> list[CertifiedPair]:
    """Certify w = ∇g*(ᾱ) with its best intercept; the dual point is α, balanced, or −φ′ if that is better."""
    balanced = for_each(problems[0], list(zip(problems, alphas, strict=True)), lambda pair: pair[0].balanced(pair[1]))
    sums = dual_sums([*problems, *problems], [*alphas, *balanced])
    models = [problem.g.grad_conjugate(each.bar) for problem, each in zip(problems, sums, strict=False)]
    found = best_intercept_bounds(problems, models)

    def certified(place: int) -> CertifiedPair:
        (primal, b, own), each = found[place], sums[len(problems) + place]
        bound = scaled_if_far(problems[place], primal, better(own, *each.bounds()))
        return CertifiedPair(models[place], b, bound.alpha, Certificate(primal, bound.value))

    return for_each(problems[0], range(len(problems)), certified)


def certify_cold_starts(problems: Sequence[Problem]) -> list[CertifiedPair]:
    """Certify w = ∇g*(0) with its best intercept by α = 0: the starting point of a run without a warm start.

    There is no search for a better dual point, since the first step of any method finds one.
    """
    pairs = []
    for problem in problems:
        alpha = problem.no_dual()
        if problem.places_models:
            bar = problem.data.feature_array(np.broadcast_to(0.0, problem.d))
        else:
            bar = np.zeros((problem.columns, problem.d) if problem.columns > 1 else problem.d)
        w = problem.g.grad_conjugate(bar)
        # ∇g*(0) = 0 for g = ½‖w‖².
        alike = problem.offset is None and (problem.regularizer.form.is_plain or not w.any())
        # Labels of many rows were counted when they were checked.
        known = None if problem.sample_weight is not None else vars(problem).get("label_counts")
        kinds = (known or label_weights(problem.y, problem.sample_weight, problem.columns)) if alike else None
        if kinds is None:
            margins = problem.o if alike else problem.margins(w)  # w = 0 needs no product with the data
            b = problem.best_intercept_at(margins)
            value, dual = problem.primal_at(margins + np.asarray(b, like=margins), w), problem.dual_at(alpha, bar)
        else:
            b, value, dual = _of_labels(problem, w, bar, *kinds)
        pairs.append(CertifiedPair(w, b, alpha, Certificate(value, dual)))
    return pairs


def _of_labels(
    problem: Problem, w: np.ndarray, bar: np.ndarray, kinds: np.ndarray, weights: np.ndarray
) -> tuple[Any, float, float]:
    """Return the best intercept, P and D for w = 0 and α = 0, if examples differ by their labels alone."""
    loss, n = problem.loss, problem.n
    zeros = np.zeros(len(kinds) if problem.columns == 1 else (len(kinds), problem.columns))
    b = loss.best_intercept(zeros, kinds, weights) if problem.fit_intercept else problem.no_intercept()
    primal, dual = float(weights @ loss.value(zeros + b, kinds)) / n, -loss.conjugates(zeros, kinds, weights) / n
    if not problem.regularizer.form.is_plain:
        primal, dual = primal + problem.lam * problem.g.value(w), dual - problem.lam * problem.g.conjugate(bar)
    return b, primal, float(dual)


def certify_models(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    alphas: Sequence[np.ndarray] | None = None,
    *,
    tol: float | None = None,
    enough: float = 0.0,
) -> list[CertifiedPair]:
    """Certify a primal point of each problem with its dual point α_i = −φ′(z_i), in one pass.

    Problems whose intercept is so far from its best value that it must be searched share a second pass. If feasible ``alphas``
    are given, each certificate uses the better of the two dual points, which takes one more pass. Without these, certificates
    have a bound on their rounding errors if ``tol`` is given. Neither it nor the dual bound need be sharp where gap and errors
    are at most tol|P|; ``enough`` says the same of the dual bound alone.
    """
    models, intercepts = _checked_models(problems, models, intercepts)
    groups = groups_of(problems)
    found = primal_bounds(problems, models, intercepts, tol or enough, groups)
    pairs = _pairs(groups, models, intercepts, found, tol)
    if alphas is None:
        return pairs
    others = zip(problems, pairs, dual_sums(problems, alphas), strict=True)
    return [pair.proved_by(each.alpha, problem.dual_at(each.alpha, each.bar)) for problem, pair, each in others]


def _checked_models(
    problems: Sequence[Problem], models: Sequence[np.ndarray], intercepts: Sequence[Any]
) -> tuple[list[np.ndarray], list[Any]]:
    """Return the models and the intercepts, checked: those of many outputs together."""
    if len(problems) > 1 and all(problem.columns == 1 and problem.fit_intercept for problem in problems):
        M, d = len(problems), problems[0].d
        W, b = finite_matrix("w", np.array(models), (M, d)), vector("intercept", np.array(intercepts), M)
        return list(W), b.tolist()
    return (
        [problem.model(w) for problem, w in zip(problems, models, strict=True)],
        [problem.allowed_intercept(b) for problem, b in zip(problems, intercepts, strict=True)],
    )


def _pairs(
    groups: Sequence[Group],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    found: Sequence[PrimalBound],
    tol: float | None,
) -> list[CertifiedPair]:
    """Return the pairs of models and dual points; with bounds on their rounding errors if ``tol`` is given."""
    errors: list[float | None] = [None] * len(models)
    if tol is not None:
        errors = rounding_bounds(groups, models, intercepts, found, tol)
    # Sums over the dual points are kept for a later bound on rounding errors. Those of a group are not: they differ in the last
    # bits from those of one problem, which a run that is restored from a file computes.
    keeps = tol is None and (len(models) == 1 or is_elsewhere(groups[0].first.y))
    pairs = []
    for w, b, (primal, bound, _), rounding in zip(models, intercepts, found, errors, strict=True):
        certificate = Certificate(primal, bound.value, rounding=rounding)
        pair = CertifiedPair(w, b, bound.alpha, certificate)
        pairs.append(pair.with_sizes(bound.sizes) if keeps else pair)
    return pairs


def certify_pairs(
    problems: Sequence[Problem],
    models: Sequence[np.ndarray],
    intercepts: Sequence[Any],
    alphas: Sequence[np.ndarray],
    *,
    tol: float | None = None,
) -> list[CertifiedPair]:
    """Certify a model of each problem by the dual point that is given with it, balanced: two passes, and no search.

    For methods that compute both: at a kink −φ′(z_i) is any slope in an interval, and a wrong choice proves nothing.
    """
    models, intercepts = _checked_models(problems, models, intercepts)
    products = problems[0].data.times(models[0].T if len(models) == 1 else np.column_stack([w.T for w in models]))
    products, groups, points, losses = products.reshape(problems[0].n, -1), groups_of(problems), [], list[float]()
    first = column = 0
    for group in groups:
        own, last = slice(first, first + group.M), column + group.M * group.K
        points += _balanced(group, alphas[own])
        losses += _losses(group, products[:, column:last], intercepts[own])
        first, column = own.stop, last
    penalties = [float(problem.lam * problem.g.value(w)) for problem, w in zip(problems, models, strict=True)]
    parts = zip(losses, dual_bounds(problems, points, groups, tol or 0.0), penalties, strict=True)
    found = [PrimalBound(value + penalty, bound, penalty) for value, bound, penalty in parts]
    return _pairs(groups, models, intercepts, found, tol)


def _balanced(group: Group, alphas: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the dual points of a group, checked and balanced."""
    first = group.first
    if group.M == 1:
        return [first.balanced(first.dual_point(alphas[0]))]
    found = finite_matrix("alpha", np.array(alphas), (group.M, first.n))
    return list(first.loss.balanced(found, group.rows.y, first.c) if first.fit_intercept else found)


def _losses(group: Group, products: np.ndarray, intercepts: Sequence[Any]) -> list[float]:
    """Return (1/n) Σ c_i φ(z_i) of each problem of a group, given the products of the rows with their models, as columns."""
    first, rows = group.first, group.rows
    if group.M == 1:
        z = products if first.columns > 1 else products[:, 0]
        return [first.losses_at(rows.shifted(z + np.asarray(intercepts[0], like=products)))]
    values = first.loss.value(np.ascontiguousarray(products.T) + np.array(intercepts)[:, None], rows.y)
    sums = over_rows(first.loss, values) if rows.c is None else values @ rows.c
    return [value / first.n for value in sums.tolist()]
