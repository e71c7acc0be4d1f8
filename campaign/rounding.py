"""Bounds of rounding errors against 50-digit arithmetic: P(w, b) − D(α) never exceeds gap + rounding."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dualnewton as dn
from campaign import exact
from campaign.around import around
from campaign.fits import refused
from campaign.parts import Defect, skipped
from campaign.problems import STORAGES, Drawn, drawn, power

Rng = np.random.Generator

SIZES = (1, 2, 3, 5, 8, 12, 20), (1, 2, 2, 3, 4, 6)
"""Numbers of rows and features: small, for arithmetic on single numbers."""

EXACT = 1e-40
"""Relative error of sums in 50 digits."""

LIMITS = {"method": "auto", "max_epochs": 200, "time_limit": 5.0}


def points(case: Drawn, problem: dn.Problem, rng: Rng) -> Iterator[dn.CertifiedPair]:
    """Yield pairs with their certificates: a fit, a model beside it, a model whose margins cancel, a random dual point."""
    result = dn.solve(problem, **case.options | LIMITS)
    w, b = result.w, result.intercept
    yield problem.certified_pair(w, b, result.alpha)
    yield problem.certified_pair(w + np.abs(w).max() * power(rng, -9, 0) * rng.standard_normal(w.shape), b)
    X = case.exact.X / (np.abs(case.exact.X).max() or 1.0)
    null = np.linalg.svd(X)[2][-1]  # |x||w| ≫ |z|
    yield problem.certified_pair(w + power(rng, 0, 8) * null, b)
    share = rng.random((len(X), 1)).reshape(-1, *[1] * (w.ndim - 1))
    yield problem.certified_pair(power(rng, -6, 2) * w, b, problem.dual_near(share * result.alpha))


def checked(case: Drawn, problem: dn.Problem, pair: Any) -> str:
    """Check the certificates of a pair in float64 and in extended precision; return what the bound is."""
    found = pair.certificate
    if not np.isfinite([found.primal, found.dual]).all():
        return "no finite value"
    objective = replace(case.exact, numbers=exact.digits)
    try:
        true, _ = objective.claim(pair.w, pair.intercept, pair.alpha)
    except exact.OutOfRange:
        return "beyond e^690"
    for way in (problem.bounded, problem.extended):
        certificate = way(pair).certificate
        if certificate.rounding is None:
            raise Defect(f"{way.__name__} has no bound: {certificate!r}")
        if certificate.rounding == np.inf:
            return "an infinite bound"
        stated = certificate.primal - certificate.dual + certificate.rounding
        if not true <= stated + EXACT * (abs(certificate.primal) + abs(certificate.dual)):
            raise Defect(f"P − D is {true:.17g} in 50 digits, {way.__name__} says {certificate!r}")
    return "within the bound"


def mapped(X: np.ndarray, folder: Path) -> np.ndarray:
    """Return rows in a file that is mapped into memory."""
    np.save(folder / "rows.npy", X)
    return np.load(folder / "rows.npy", mmap_mode="r")


def case(seed: int, folder: Path) -> Counter[str]:
    """Check some points of one random problem."""
    if (without := skipped("50 digits", ["mpmath"])) is not None:
        return without
    rng = np.random.default_rng([seed, 90])
    storages = STORAGES | {"memory-mapped": lambda X: mapped(X, folder)}
    given = drawn(seed, storages, sizes=SIZES, gentle=bool(rng.integers(2)), harsh=bool(rng.integers(2)))
    counts: Counter[str] = Counter()
    with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore"):  # as in a run
        warnings.simplefilter("error")
        try:
            problem = given.make()
            for pair in points(given, problem, rng):
                counts[checked(given, problem, pair)] += 1
            counts.update(around(given, problem, rng))
        except dn.DualnewtonError as error:
            return Counter([refused(error)])
        except Exception as error:
            raise Defect(f"{given.title}: {type(error).__name__}: {error}") from error
    return counts
