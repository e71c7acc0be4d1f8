"""Nonnegative least squares from normal equations: min_{w ≥ 0} ½ wᵀHw − qᵀw.

Block principal pivoting (Júdice and Pires 1994; Kim and Park 2011): a guess of the positive coefficients gives w by one linear
system; those that are negative, and zeros whose slope is negative, change sides, all at once. If that does not reduce their
number several times in a row, only the last of them does, which cannot cycle.
"""

from __future__ import annotations

import numpy as np

PATIENCE = 3
"""Exchanges of all coefficients on the wrong side that do not reduce their number, before single ones follow."""

MOST = 4
"""Linear systems at most, as a multiple of the coefficients, with ``PATIENCE`` more."""

ROUNDING = 1e-12
"""Slopes below this fraction of the terms of which they are sums are zero."""

DEPENDENT = 1e-7
"""Pivot of a Cholesky factor, as a fraction of the root of the diagonal entry, up to which features depend on each other."""


def nonnegative(
    H: np.ndarray,  # (d, d) symmetric, with a positive diagonal
    q: np.ndarray,  # (d,) slopes at zero, with the opposite sign
) -> np.ndarray | None:
    """Return the minimiser; None if the features in use depend on each other up to rounding, or the exchanges take too long."""
    from scipy.linalg.lapack import dposv

    roots = np.sqrt(H.diagonal())
    used, fewest, patience = q > 0.0, len(q) + 1, PATIENCE
    for _ in range(MOST * len(q) + PATIENCE):
        free = used.nonzero()[0]
        w, failed = np.zeros(len(q)), 0
        if free.size:
            rows = H.take(free, axis=0)
            factor, x, failed = dposv(rows.take(free, axis=1), q[free])
            if failed or np.count_nonzero(factor.diagonal() <= DEPENDENT * roots[free]):
                return None
            w[free] = x
            slopes = x @ rows - q
        else:
            slopes = -q
        terms = roots * float(roots @ np.abs(w)) + np.abs(q)
        wrong = np.where(used, w < 0.0, slopes < -ROUNDING * terms).nonzero()[0]
        if not wrong.size:
            return w
        if wrong.size < fewest:
            fewest, patience = wrong.size, PATIENCE
        elif patience:
            patience -= 1
        else:
            wrong = wrong[-1:]
        used[wrong] = ~used[wrong]
    return None
