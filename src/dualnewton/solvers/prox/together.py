"""Several quadratic models, minimised along falling strengths of a separable penalty: folds, outputs.

    min_v  ½ vᵀH_f v − along_fᵀv + Σ_j ½ ridge_j v_j² + threshold_j |v_j|,      lower ≤ v ≤ upper

for each model f and each strength of the penalty. A kernel (``kernels/quadratic.py``) starts each strength at the minimum for the
last one, and takes Newton steps on the free coordinates with coordinate descent between them. Without compiled code,
the primal-dual active set method solves all models and all strengths at once, in a few dozen array operations: the coordinates
that one step of coordinate descent would leave at zero or at a bound are held there, and a linear system gives the others.
Models that are not solved so are solved by :func:`dualnewton.solvers.prox.subproblem.minimise`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dualnewton.solvers.deadline import Until
from dualnewton.solvers.prox.rounds import ROUNDING
from dualnewton.solvers.prox.subproblem import Penalty, minimise, rounds_of, sweep_of

MOST = (40, 10)
"""Rounds of the kernel, and the Newton steps of each that may end at a bound or a change of sign. (Where a model has as many
nonzero features as rows, a step that ends at a change of sign exchanges one for another. Sweeps after each such step would undo
it.)"""

MOST_STEPS = 8
"""Steps of the active set method; where it converges at all, it needs fewer."""

SINGULAR = 1e-12
"""Fraction of the diagonal that is added to it: one singular matrix (columns of a categorical variable) would stop all models."""

FAR = 1e8
"""A model v is left out if some H_jj |v_j| exceeds this multiple of the largest linear term: its matrix was singular."""

SMALL = 32
"""Coordinates up to which the systems of several models are solved together, with a unit row for each coordinate that is held."""

TOGETHER = 1 << 15
"""Entries of the matrices that the active set method holds at a time: 256 KiB, which stay in the second-level cache."""


BETWEEN_CHECKS = 1 << 25
"""Entries of the matrices, times penalties, between two checks of the time limit."""


def minima_along(
    H: np.ndarray,  # (F, capacity, capacity) symmetric, positive semidefinite; the first m rows and columns count
    # The linear terms, of shape (F, m), and Σ c y² of each model: with these, a kernel ends at a small relative gap, too.
    targets: tuple[np.ndarray, np.ndarray],
    start: np.ndarray,  # (F, m) points within the bounds
    penalties: Sequence[Penalty],  # from the strongest to the weakest; they differ in ridge and threshold only
    goals: Sequence[float],  # for each penalty, the violation of the optimality conditions at which a model is done
    *,
    compiled: bool,  # whether kernels may be used
    # Whether to stop; the models of the other penalties stay where those of the last one are.
    is_over: Callable[[], bool] = lambda: False,
) -> np.ndarray:
    """Return the minimisers, an array of shape (penalties, F, m)."""
    along, squares = targets
    rounding = ROUNDING * np.abs(along).max(axis=1, initial=0.0)
    each = np.maximum(np.asarray(goals)[:, None], rounding)
    if compiled:
        return _by_kernel(H, along, squares, start, penalties, each, is_over)
    return _by_active_sets(H, along, start, penalties, each, is_over)


def _by_kernel(
    H: np.ndarray,
    along: np.ndarray,
    squares: np.ndarray,
    start: np.ndarray,
    penalties: Sequence[Penalty],
    goals: np.ndarray,
    is_over: Callable[[], bool],
) -> np.ndarray:
    (F, size), V = start.shape, start.copy()
    found = np.empty((len(penalties), F, size))
    slopes = np.stack([own[:size, :size] @ v for own, v in zip(H, V, strict=True)]) - along
    trail = np.zeros((F, 2, size + 1))
    step = max(1, BETWEEN_CHECKS // max(1, F * size * size))
    for low in range(0, len(penalties), step):
        some, own, part = penalties[low : low + step], goals[low : low + step], found[low : low + step]
        done = np.zeros(F, dtype=np.intp)
        while not is_over():
            rounds_of(H, slopes, V, some, own, *MOST, part, done, trail=trail, targets=(along, squares))
            if not (left := np.flatnonzero(done < len(some))).size:
                break
            for f in left:
                k, G = done[f], H[f, :size, :size]
                V[f] = part[k, f] = _minimum(G, along[f], V[f], some[k], own[k, f], is_over, compiled=True)
                slopes[f] = G @ V[f] - along[f]
                done[f] += 1
        for f in np.flatnonzero(done < len(some)):
            part[done[f] :, f] = V[f]
    return found


def _minimum(
    H: np.ndarray,
    along: np.ndarray,
    v: np.ndarray,
    penalty: Penalty,
    goal: float,
    is_over: Callable[[], bool],
    *,
    compiled: bool,
) -> np.ndarray:
    """Return the minimiser of one model, starting at v."""
    H = np.ascontiguousarray(H)
    return minimise(H, H @ v - along, v, penalty, goal, sweep_of(compiled=compiled), Until(ended=is_over))


def _by_active_sets(
    H: np.ndarray,
    along: np.ndarray,
    start: np.ndarray,
    penalties: Sequence[Penalty],
    goals: np.ndarray,
    is_over: Callable[[], bool],
) -> np.ndarray:
    F, size = start.shape
    H = H[:, :size, :size]
    found = np.empty((len(penalties), F, size))
    # Few small systems are solved all at once, larger ones one after the other, each for its free coordinates only.
    step = max(1, TOGETHER // max(1, F * size * size)) if size <= SMALL else 1
    V = start
    for low in range(0, len(penalties), step):
        some, own = penalties[low : low + step], goals[low : low + step]
        if is_over():
            found[low:] = V
            break
        if size <= SMALL:
            points, reached = _active_sets(H, along, V, some, own)
        else:
            points, reached = V[None].copy(), np.zeros((1, F), dtype=bool)
        for k, f in zip(*np.nonzero(~reached), strict=True):
            near = points[k - 1, f] if k else V[f]
            points[k, f] = _minimum(H[f], along[f], near, some[k], own[k, f], is_over, compiled=False)
        found[low : low + step] = points
        V = points[-1]
    return found


def _active_sets(
    H: np.ndarray, along: np.ndarray, start: np.ndarray, penalties: Sequence[Penalty], goals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the minimisers that the primal-dual active set method finds, and which these are.

    Where it does not converge from the start, it is tried from the minimum of the nearest strength that it has found: from there,
    the columns of a categorical variable do not all become free at once, which makes the matrix singular.
    """
    A, F = len(penalties), len(start)
    found, reached = np.tile(start, (A, 1, 1)), np.zeros((A, F), dtype=bool)
    ridge, threshold = (np.stack([getattr(penalty, name) for penalty in penalties]) for name in ("ridge", "threshold"))
    lower, upper, left = penalties[0].lower, penalties[0].upper, np.arange(A * F)
    while left.size:
        strength, number = np.divmod(left, F)
        own = Penalty(ridge[strength], threshold[strength], lower, upper)
        V, done = _tried(H, along, found[strength, number], number, own, goals[strength, number])
        found[strength[done], number[done]], reached[strength[done], number[done]] = V[done], True
        left = left[:0]
        for f in range(F if done.any() else 0):
            good, bad = np.flatnonzero(reached[:, f]), np.flatnonzero(~reached[:, f])
            if good.size and bad.size:
                found[bad, f] = found[good[np.abs(good - bad[:, None]).argmin(axis=1)], f]
                left = np.append(left, bad * F + f)
    return found, reached


def _tried(
    H: np.ndarray, along: np.ndarray, V: np.ndarray, number: np.ndarray, penalty: Penalty, goals: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Take steps of the active set method from each row of V; return the ends, and where they are minimisers.

    It is no descent method: where it does not converge, the result is arbitrary. ``number`` is the model of each row.
    """
    found, reached = np.zeros(V.shape), np.zeros(len(V), dtype=bool)
    ridge, threshold, lower, upper = penalty.ridge, penalty.threshold, penalty.lower, penalty.upper
    diagonal, farthest = np.einsum("fjj->fj", H)[number], FAR * np.abs(along).max(axis=1, initial=0.0)
    left, kept, own = np.arange(len(V)), np.zeros(V.shape), H[number]
    matrices = np.empty_like(own)  # for all steps: fresh memory takes longer than the arithmetic
    for _ in range(MOST_STEPS):
        slopes = (own @ V[:, :, None])[:, :, 0] - along[number]
        here = Penalty(ridge, threshold, lower, upper)
        inside = ((lower <= V) & (upper >= V)).all(axis=1)
        done = inside & (here.violations(V, slopes).max(axis=1, initial=0.0) <= goals)
        found[left[done]], reached[left[done]] = V[done], True
        # A singular matrix has moved a model very far: it is left out.
        near = np.abs(diagonal * V).max(axis=1, initial=0.0) <= farthest[number]
        if not (count := np.count_nonzero(more := near & ~done)):
            break
        if count < len(V):
            left, number, goals, V, slopes, kept = (each[more] for each in (left, number, goals, V, slopes, kept))
            diagonal, ridge, threshold, own = diagonal[more], ridge[more], threshold[more], own[more]
        curvature = diagonal + ridge
        u = np.where(
            V * kept < 0.0, 0.0, diagonal * V - slopes
        )  # a coordinate that changes its sign passes through zero
        kept = np.clip(u, -threshold, threshold)
        aim = np.divide(u - kept, curvature, out=np.zeros_like(u), where=curvature > 0.0)
        held = np.clip(aim, lower, upper)
        free = (held == aim) & ((aim != 0.0) | (threshold == 0.0)) & (curvature > 0.0)
        held[free] = 0.0
        M = matrices[: len(own)]
        M[:] = 0.0
        np.copyto(M, own, where=free[:, :, None] & free[:, None, :])
        M.reshape(len(M), -1)[:, :: M.shape[1] + 1] += np.where(free, ridge + SINGULAR * diagonal, 1.0)
        rest = along[number] - kept - (own @ held[:, :, None])[:, :, 0]
        try:
            V = np.linalg.solve(M, np.where(free, rest, held)[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            break
    return found, reached
