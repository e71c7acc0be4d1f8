"""The vertex of a linear program near an interior point.

Without a ridge an optimal x is determined by as many kinks as it has entries: margins that lie on a kink, and coefficients that
are zero (the kinks of thresholds). Near the optimum these have the largest curvature D. With B for their rows, k for their
kinks, and every other slope at the end of its jump on the side of the margin,

    B x = k,        Bᵀ (c p)_B = −Ãᵀ (slopes of all others).

The second system gives the slopes at the kinks: if they are within their jumps, x is optimal to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualnewton.matrix import linear
from dualnewton.solvers.primal.kinked_view import View

CANDIDATES = 3
"""Number of candidate kinks for a basis, per entry of x."""

DEPENDENT = 1e-11
"""A row depends on those chosen before it if its component outside their span is below this fraction of its norm."""

TIE = 1e-11
"""Distance from a kink, as a fraction of the largest margin, within which a margin is on the kink."""

REFINED = 2
"""Number of solves for x, each for the residual of the one before."""

OUTSIDE = 1e-9
"""Distance by which a slope may leave its jump, as a fraction of the jump; beyond it, the set of kinks was wrong."""

Pair = tuple[np.ndarray, np.ndarray]
"""x and p."""


def vertex_near(
    view: View,
    # The interior point.
    x: np.ndarray,
    p: np.ndarray,
    curvature: np.ndarray,  # (M, N) D
) -> Pair | None:
    """Return x and p of the vertex; None if the chosen kinks do not determine it."""
    basis = _basis(view, view.c * curvature)
    if basis is None:
        return None
    terms, system = view.terms, view.terms.system
    B, free, places, examples, zeros = basis.rows, basis.free, basis.places, basis.examples, basis.zeros
    inside, units = B[:, free] * view.units[free], view.units[free]
    # 1. x, corrected from its current value: along directions that no kink determines, it is unchanged.
    x = np.where(free, x, 0.0)
    for _ in range(REFINED):
        x[free] += units * np.linalg.lstsq(inside, terms.kinks[places, examples] - B @ x, rcond=None)[0]
    x[examples[examples >= view.n] - view.n] = 0.0
    # 2. p: at an end of the jump for margins not on a kink; unchanged on kinks outside the basis (repeated examples).
    beyond = system.margins(x) - terms.kinks
    off = np.abs(beyond) > TIE * float(np.abs(terms.kinks).max())
    p = np.where(off, np.where(beyond > 0.0, terms.jumps, 0.0), p)
    p[places, examples] = p[basis.zero_places, view.n + zeros] = 0.0
    left = -system.sums(terms.slopes(p))
    mass = np.linalg.lstsq(inside.T, units * left[free], rcond=None)[0]
    of_zeros = view.units[zeros] * (left - mass @ B)[zeros]
    places, examples = np.append(places, basis.zero_places), np.append(examples, view.n + zeros)
    taken, jumps = np.append(mass, of_zeros) / view.c[examples], terms.jumps[places, examples]
    if np.any((taken < -OUTSIDE * jumps) | (taken > (1.0 + OUTSIDE) * jumps)):
        return None
    p[places, examples] = np.clip(taken, 0.0, jumps)
    return x, p


@dataclass(frozen=True, eq=False)
class _Basis:
    """Kinks that determine x."""

    # Coefficients that are zero, and the numbers of their kinks.
    zeros: np.ndarray
    zero_places: np.ndarray
    free: np.ndarray  # entries of x that are not among these zeros
    # Rows of Ã on a kink that are independent in the free entries, the numbers of these kinks, and their examples.
    rows: np.ndarray
    places: np.ndarray
    examples: np.ndarray


def _basis(view: View, weights: np.ndarray) -> _Basis | None:
    """Choose as many kinks as x has entries, if possible, by their weights c D.

    The largest weights determine which coefficients are zero. For the others, pivoting takes the row that is largest outside the
    span of those before it; a dependent row has no component there.
    """
    from scipy.linalg import qr

    size = len(view.units)
    places, examples = np.unravel_index(_largest(weights, CANDIDATES * size), weights.shape)
    lengths = np.sqrt(weights[places, examples])
    surely = np.argsort(-lengths, kind="stable")[:size]
    coordinates = surely[examples[surely] >= view.n]
    zeros, at = np.unique(examples[coordinates] - view.n, return_index=True)
    zero_places, free = places[coordinates[at]], np.ones(size, dtype=bool)
    free[zeros] = False
    others = ~np.isin(examples, view.n + zeros)
    places, examples, lengths = places[others], examples[others], lengths[others]
    B = _rows(view, examples)
    scaled = B[:, free] * view.units[free]
    scaled *= (lengths / np.maximum(np.linalg.norm(scaled, axis=1), np.finfo(float).tiny))[:, None]
    if not np.isfinite(scaled).all():
        return None
    chosen = np.zeros(0, dtype=int)
    if scaled.size:
        _, R, pivots = qr(scaled.T, mode="economic", pivoting=True)
        first = pivots[: len(R)]
        chosen = first[np.abs(np.diagonal(R)) > DEPENDENT * lengths[first]]
    return _Basis(zeros, zero_places, free, B[chosen], places[chosen], examples[chosen])


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the flat indices of the largest values, unordered."""
    flat = values.ravel()
    return np.arange(flat.size) if flat.size <= count else np.argpartition(flat, -count)[-count:]


def _rows(view: View, examples: np.ndarray) -> np.ndarray:
    """Return the rows of Ã of some examples, including those of thresholds, as a dense matrix."""
    d, own = view.rows.d, examples < view.n
    B = np.zeros((len(examples), len(view.units)))
    wanted, back = np.unique(examples[own], return_inverse=True)
    B[own, :d] = linear.to_dense(view.rows.data.rows(wanted))[back]
    B[own, d:] = 1.0
    B[np.flatnonzero(~own), examples[~own] - view.n] = 1.0 / view.units[examples[~own] - view.n]
    return B
