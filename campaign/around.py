"""Bounds of rounding errors of objectives without a penalty and of Huber's scale: no point in 50 digits is better than stated.

Newton's method in 50 digits looks for a better point, from the model of a certificate: P − P(better) ≤ P − P* must not exceed
gap + rounding. A certificate with a reach ρ is compared with a point v on the way to it with Σ_j ‖x_j‖ |v_j| ≤ ρ. Nothing here
calls a loss of the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

import dualnewton as dn
from campaign import exact
from campaign.parts import Defect
from campaign.problems import Drawn, power
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.unpenalised import Unpenalised

Rng = np.random.Generator

STEPS, HALVINGS = 12, 12
"""Steps of Newton's method, and halvings of a step."""

SMALL = 1e-12
"""Step of differences: in 50 digits the second derivatives have 24 digits."""

RIDGE = "1e-25"
"""Ridge of the scaled Hessian, which may be singular."""

ENOUGH = 1e-35
"""A step that lowers P by less than this fraction is the last one."""

Point = Any
"""θ in 50 digits, with the intercept and the scale last, if there are any."""


def minimised(value: Callable[[Point], Any], slopes: Callable[[Point], tuple[Any, Any]], point: Point) -> Point:
    """Return the best point that Newton's method with step halving finds; ``slopes`` gives the gradient and the Hessian."""
    fifty = exact._fifty()
    best = value(point)
    for _ in range(STEPS):
        g, H = slopes(point)
        scale = np.array([1 / fifty.sqrt(h) if h > 0 else fifty.mpf(1) for h in H.diagonal()], dtype=object)
        scaled = fifty.matrix((scale[:, None] * H * scale).tolist())
        for j in range(len(g)):
            scaled[j, j] += fifty.mpf(RIDGE)
        step = scale * np.array(list(fifty.lu_solve(scaled, fifty.matrix((scale * g).tolist()))), dtype=object)
        found = ((value(there), there) for k in range(HALVINGS) for there in [point - step / 2**k])
        lower = next(((new, there) for new, there in found if new < best), None)
        if lower is None or best - lower[0] <= ENOUGH * abs(best):
            return point if lower is None else lower[1]
        best, point = lower
    return point


def within(reach: float, theta: Point, better: Point, norms: Any) -> Point:
    """Return the last point v on the way from θ to a better one with Σ_j N_j |v_j| ≤ reach, for a convex objective."""
    sizes = [(norms * np.abs(each)).sum() for each in (theta, better)]
    if sizes[1] <= reach:
        return better
    return theta + (better - theta) * ((reach - sizes[0]) / (sizes[1] - sizes[0]))


def _rows(case: exact.Objective) -> tuple[Any, Any, Any]:
    """Return the rows with an appended one for the intercept, the weights, and n."""
    X = case.numbers(case.X)
    if case.fit_intercept:
        X = np.column_stack([X, case.numbers(np.ones(len(X)))])
    c = case.numbers(np.ones(len(X)) if case.sample_weight is None else case.sample_weight)
    return X, c, len(X)


def _theta(case: exact.Objective, pair: CertifiedPair, *more: float) -> Any:
    W, b = np.atleast_2d(pair.w), np.reshape(pair.intercept, (-1, 1))
    return case.numbers(np.append(np.column_stack([W, b]) if case.fit_intercept else W, more))


def excess_without_penalty(case: exact.Objective, pair: CertifiedPair, reach: float = np.inf) -> Any:
    """Return P₀ of the pair minus the smallest known P₀ of a model within reach."""
    X, c, n = _rows(case)
    K = len(np.atleast_2d(pair.w))
    o = case.numbers(np.zeros((n, K)) if case.offset is None else np.reshape(case.offset, (n, K)))
    h, units = case.numbers(SMALL)[()], case.numbers(SMALL * np.eye(K))

    def margins(theta: Any) -> Any:
        return X @ theta.reshape(K, -1).T + o

    def value(theta: Any) -> Any:
        return c @ case.losses(margins(theta)) / n

    def slopes(theta: Any) -> tuple[Any, Any]:
        Z = margins(theta)
        low, mid, high = [case.losses(Z - e) for e in units], case.losses(Z), [case.losses(Z + e) for e in units]
        gradient = [X.T @ (c * (high[k] - low[k])) / (2 * h * n) for k in range(K)]
        blocks = [[high[k] - 2 * mid + low[k]] * K for k in range(K)]
        for k, j in combinations(range(K), 2):
            both = case.losses(Z + units[k] + units[j]) + case.losses(Z - units[k] - units[j])
            blocks[k][j] = blocks[j][k] = (both - high[k] - low[k] - high[j] - low[j] + 2 * mid) / 2
        H = [[X.T @ ((c * own)[:, None] * X) / (h * h * n) for own in row] for row in blocks]
        return np.concatenate(gradient), np.concatenate([np.concatenate(row, axis=1) for row in H])

    theta = _theta(case, pair)
    norms = np.tile(_norms(X), K)
    return value(theta) - value(within(reach, theta, minimised(value, slopes, theta), norms))


def _norms(X: Any) -> Any:
    return np.array([exact._fifty().sqrt(each) for each in (X * X).sum(axis=0)], dtype=object)


def excess_with_scale(
    case: exact.Objective, problem: HuberScaleProblem, pair: CertifiedPair, reach: float = np.inf
) -> Any:
    """Return P(w, b, σ) of the pair minus the smallest known P of a model within reach."""
    X, c, n = _rows(case)
    y, epsilon, lam = case.numbers(case.y), case.numbers(problem.epsilon)[()], case.numbers(problem.lam)[()]
    penalised = case.numbers(np.arange(X.shape[1]) < case.X.shape[1]) * lam

    def value(point: Any) -> Any:
        theta, sigma = point[:-1], point[-1]
        size = np.abs(X @ theta - y)
        if sigma < 0:
            return exact.INF
        slope = epsilon + 0 * size if sigma == 0 else np.minimum(size / sigma, epsilon)
        return c @ (sigma / 2 + slope * (size - sigma * slope / 2)) / n + (penalised * theta * theta).sum() / 2

    def slopes(point: Any) -> tuple[Any, Any]:
        theta, sigma = point[:-1], point[-1]
        r = X @ theta - y
        psi = np.maximum(-epsilon, np.minimum(r / sigma, epsilon))
        V = np.column_stack([X, -psi])
        inside = c * np.where(np.abs(r) <= epsilon * sigma, 1, 0)
        H = V.T @ (inside[:, None] * V) / (sigma * n)
        g = np.append(X.T @ (c * psi) / n + penalised * theta, c @ (1 - psi * psi) / (2 * n))
        for j in range(len(theta)):
            H[j, j] += penalised[j]
        return g, H

    point = _theta(case, pair, pair.scale)
    if pair.scale == 0:
        return 0
    norms = np.append(_norms(X), 0)  # the scale has no part in the size of a model
    return value(point) - value(within(reach, point, minimised(value, slopes, point), norms))


def around(case: Drawn, problem: dn.Problem, rng: Rng) -> Iterator[str]:
    """Check the same data without a penalty and, for numbers as labels, with Huber's scale; yield what the bounds are."""
    limits = {"max_epochs": 200, "time_limit": 5.0, "random_state": 0, "tol": case.options["tol"]}
    objective = replace(case.exact, numbers=exact.digits)
    free = Unpenalised.of(problem)
    for pair in _beside(free, dn.solve(free, **limits), rng):
        yield _checked("no penalty", free, pair, partial(excess_without_penalty, objective, pair))
    if type(problem.loss).__name__ != "Squared" or problem.offset is not None:
        return
    lam = float(rng.choice([0.0, problem.lam]))
    scaled = HuberScaleProblem(problem.X, problem.y, 1.35, lam, problem.sample_weight, problem.fit_intercept)
    for pair in _beside(scaled, dn.solve(scaled, **limits), rng):
        yield _checked("scale", scaled, pair, partial(excess_with_scale, objective, scaled, pair))


def _beside(problem: Any, result: dn.Result, rng: Rng) -> Iterator[CertifiedPair]:
    """Yield the pair of a fit, and that of a model beside it."""
    more = {} if result.scale is None else {"scale": result.scale}
    yield CertifiedPair(result.w, result.intercept, result.alpha, replace(result.certificate, rounding=None), **more)
    w = result.w + np.abs(result.w).max() * power(rng, -9, 0) * rng.standard_normal(result.w.shape)
    yield problem.certified_pair(w, result.intercept)


def _checked(name: str, problem: Any, pair: CertifiedPair, excess: Callable[[float], Any]) -> str:
    """Check the certificates of a pair in float64 and in extended precision; return what the bound is."""
    certificates = [way(pair).certificate for way in (problem.bounded, problem.extended)]
    values = [[found.primal, found.dual, found.rounding] for found in certificates if found.rounding is not None]
    if len(values) < len(certificates) or not np.isfinite(values).all():
        return f"{name}: no bound"
    try:
        true = excess(min(found.reach for found in certificates))
    except exact.OutOfRange:
        return f"{name}: beyond e^690"
    for found in certificates:
        if not true <= found.primal - found.dual + (found.rounding or 0.0):
            raise Defect(f"{name}: P is {float(true):.17g} above a point in 50 digits, the certificate says {found!r}")
    return f"{name}: within the bound" + (" within reach" if certificates[0].reach < np.inf else "")
