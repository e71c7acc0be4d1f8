"""What the bound of rounding errors costs, and how large it is: ``python -m benchmarks.rounding``.

For problems of several sizes it prints the time of a certificate, of the bound of its rounding errors as a fit with tol=1e-4
computes it, from the norm of X, and as ``certify`` does, from the norms of all features; of a certificate in extended precision;
and the bounds themselves, relative to P. Each time is the least processor time of several calls; one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.report import Section, Table, markdown
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton import losses
from dualnewton.objective.bounds import primal_bounds
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.rounding import rounding_bound, rounding_bounds
from dualnewton.objective.unpenalised import Unpenalised

FILE = Path(__file__).parent / "ROUNDING.md"

TOL = 1e-4
"""Tolerance of a fit: a bound that meets it need not be sharp."""

SIZES = ((300, 10), (5000, 50), (200, 5000), (200_000, 50))


def problems() -> Iterator[tuple[str, dn.Problem]]:
    """Yield logistic and ridge regressions with an intercept, dense ones and a sparse one."""
    rng = np.random.default_rng(0)
    for n, d in SIZES:
        X = rng.standard_normal((n, d))
        z = X[:, 0] + 0.5 * rng.standard_normal(n)
        yield f"{n}×{d}, ridge", dn.Problem(X, z, losses.Squared(), lam=1.0 / n, fit_intercept=True)
        yield f"{n}×{d}, logistic", dn.Problem(X, np.sign(z), losses.Logistic(), lam=1.0 / n, fit_intercept=True)
    n = 100_000
    S = sp.random_array((n, 10_000), density=2e-3, format="csr", rng=rng)
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    yield f"{n}×10000 CSR, logistic", dn.Problem(S, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True)


def least(work: Callable[[], Any]) -> float:
    """Return the least milliseconds of several calls: at least three, and about a second in all."""
    best, began, calls = np.inf, time.process_time(), 0
    while calls < 3 or (time.process_time() - began < 1.0 and calls < 300):
        start = time.process_time()
        work()
        best, calls = min(best, time.process_time() - start), calls + 1
    return 1e3 * best


def row(name: str, problem: dn.Problem) -> list[str]:
    """Measure one problem."""
    result = dn.solve(problem, tol=1e-6)
    w, b, alpha = result.w, result.intercept, result.alpha
    found = problem.certify(w, b, alpha)

    values = primal_bounds([problem], [w], [b])

    def bound() -> float | None:
        vars(problem).pop("label_sums", None)  # a fit computes them once, as the bound
        return rounding_bounds([problem], [w], [b], values, TOL)[0]

    def sharp() -> float | None:
        vars(problem).pop("label_sums", None)
        vars(problem.data).pop("feature_norms", None)
        return rounding_bound(problem, w, b, alpha, found.primal, found.dual)

    certificate, alone, with_norms = least(lambda: problem.certified_pair(w, b)), least(bound), least(sharp)
    exact, in_full = least(lambda: problem.certify(w, b, alpha, exact=True)), problem.certify(w, b, alpha, exact=True)
    share = f"{alone:.3g} ms ({100.0 * alone / certificate:.0f} %)"
    errors = bound(), found.rounding, in_full.rounding
    relative = [f"{(each or 0.0) / abs(found.primal):.1e}" for each in errors]
    return [name, f"{certificate:.3g} ms", share, f"{with_norms:.3g} ms", f"{exact:.3g} ms", *relative]


def objectives() -> Iterator[tuple[str, Any]]:
    """Yield least squares and logistic regression without a penalty, and Huber's regression with a scale."""
    rng = np.random.default_rng(1)
    for n, d in ((300, 10), (5000, 50), (200_000, 50)):
        X = rng.standard_normal((n, d))
        z = X[:, 0] + 0.5 * rng.standard_normal(n)
        yield f"{n}×{d}, least squares", Unpenalised(X, z, losses.Squared(), fit_intercept=True)
        yield f"{n}×{d}, logistic, no penalty", Unpenalised(X, np.sign(z), losses.Logistic(), fit_intercept=True)
        yield f"{n}×{d}, Huber, scale", HuberScaleProblem(X, z, 1.35, 1.0 / n, fit_intercept=True)


def own_row(name: str, problem: Any) -> list[str]:
    """Measure one objective that is not a :class:`Problem`."""
    result = dn.solve(problem, tol=1e-6)
    more = {} if result.scale is None else {"scale": result.scale}
    pair = problem.certified_pair(result.w, result.intercept, **more)

    def bound() -> Any:
        vars(problem.unit).pop("label_sums", None)
        vars(problem).pop("independence", None)
        return problem.bounded(pair)

    certificate, alone = least(lambda: problem.certified_pair(result.w, result.intercept, **more)), least(bound)
    exact, found = least(lambda: problem.extended(pair)), pair.certificate
    roundings = [way(pair).certificate.rounding for way in (problem.bounded, problem.extended)]
    relative = [f"{each / abs(found.primal):.1e}" for each in roundings]
    return [
        name,
        f"{certificate:.3g} ms",
        f"{alone:.3g} ms ({100.0 * alone / certificate:.0f} %)",
        f"{exact:.3g} ms",
        *relative,
    ]


def main() -> None:
    """Measure all problems, print the rows, and write the table."""
    heads = ["problem", "certificate", "bound", "sharp bound", "extended certificate"]
    heads += ["bound/P", "sharp bound/P", "extended bound/P"]
    own_heads = ["problem", "certificate", "bound", "extended certificate", "rounding/P", "extended"]
    rows, own_rows = [], []
    with threadpool_limits(1):
        for name, problem in problems():
            rows.append(row(name, problem))
            print(" | ".join(rows[-1]), flush=True)
        for name, problem in objectives():
            own_rows.append(own_row(name, problem))
            print(" | ".join(own_rows[-1]), flush=True)
    words = (
        "certificate: P, α = −φ′ and D, recomputed from the data; bound: that of its rounding errors in a fit with "
        "tol=1e-4, from sums that the certificate and the check of X have computed, and its share of the certificate; sharp "
        "bound: from the norms of the features, which take a pass over the data; extended: in NumPy's longdouble."
    )
    own_words = "bound: with the proof that the features are linearly independent, by a Cholesky factorisation; with norms known."
    tables = [
        Table("Cost and size", heads, rows, words),
        Table("Without a penalty, and with Huber's scale", own_heads, own_rows, own_words),
    ]
    section = Section("Bounds of rounding errors", tables)
    FILE.write_text(markdown([section], "python -m benchmarks.rounding", []), encoding="utf-8")


if __name__ == "__main__":
    main()
