"""Block coordinate descent for K columns and a penalty on the norm of each feature's coefficients, compiled.

sweeps(H, slopes, V, ridge, threshold, most, goal)                     updates V and slopes in place
path(H, along, squares, slopes, V, ridges, thresholds, tol, most, models)
                                                                       minima for decreasing penalties, each from the one
                                                                       before; returns how many were found with ``most`` Newton
                                                                       steps each
follow(H, inside, steps, slopes)                                       slopes of all features after steps of some

``solvers/prox/joint_subproblem.py`` defines the model, and has sweeps and Newton steps in NumPy. Arrays of K columns have the
shape (K, d): an update adds a multiple of a row of H to each of K contiguous rows.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.quadratic import solve_factored

SWEEPS = 10
"""Number of sweeps over a working set, which cost about as much as updating the slopes of all features afterwards."""

RENT = 50
"""Divisor of the number of nonzero features that gives how many working sets cost as much as a Newton step over these features:
this many are tried before a Newton step."""

CANCELLED = 16.0 * 2.0**-52
"""Allowance for the rounding errors of vᵀHv as a fraction of (Σ_j H_jj^½ |v_j|)², for H a sum of products of centred rows."""

LARGEST_FACTOR, HALVINGS = 1000, 8
"""Largest number of nonzero features for Newton steps, and number of fractions 1, ½, ¼, … of a step that are tried."""


@jit
def _moved(H, slopes, V, ridge, threshold, j, change):
    """Move feature j to its best coefficients, write their change to ``change``, and return the change of its slope."""
    K, own = V.shape[0], H[j, j]
    curvature, norm = own + ridge, 0.0
    for k in range(K):
        u = own * V[k, j] - slopes[k, j]
        change[k] = u
        norm += u * u
    norm = math.sqrt(norm)
    shrink = (1.0 - threshold / norm) / curvature if norm > threshold and curvature > 0.0 else 0.0
    size = 0.0
    for k in range(K):
        new = shrink * change[k]
        change[k] = new - V[k, j]
        size += change[k] * change[k]
        V[k, j] = new
    return math.sqrt(size) * curvature


@jit
def _sweeps(H, slopes, V, ridge, threshold, most, goal):
    K, size = V.shape
    change = np.empty(K)
    for _ in range(most):
        largest = 0.0
        for j in range(size):
            moved = _moved(H, slopes, V, ridge[j], threshold[j], j, change)
            if moved > 0.0:
                largest = max(largest, moved)
                for k in range(K):
                    step = change[k]
                    for i in range(size):
                        slopes[k, i] += step * H[j, i]
        if largest <= goal:
            return True
    return False


@jit
def _violators(slopes, V, threshold, inside):
    """Write the features that are nonzero or whose slope exceeds the threshold; return their number."""
    K, d = V.shape
    count, limit = 0, threshold * threshold
    for j in range(d):
        used, norm = False, 0.0
        for k in range(K):
            used = used or V[k, j] != 0.0
            norm += slopes[k, j] * slopes[k, j]
        if used or norm > limit:
            inside[count] = j
            count += 1
    return count


@jit
def _relative_gap(slopes, along, V, squares, ridge, threshold):
    """(P − D)/P at V, for the corresponding dual point: see ``solvers/prox/joint.py``."""
    K, d = V.shape
    penalty = product = fitted = beyond = steepest = 0.0
    for j in range(d):
        length = steep = 0.0
        for k in range(K):
            length += V[k, j] * V[k, j]
            steep += slopes[k, j] * slopes[k, j]
            product += V[k, j] * slopes[k, j]
            fitted += V[k, j] * along[k, j]
        penalty += 0.5 * ridge * length + threshold * math.sqrt(length)
        steepest = max(steepest, steep)
        over = math.sqrt(steep) - threshold
        if over > 0.0:
            beyond += over * over
    losses = max(0.5 * (squares + product - fitted), 0.0)
    if ridge > 0.0:
        gap = penalty + product + beyond / (2.0 * ridge)
    else:
        r = min(1.0, threshold / math.sqrt(steepest)) if steepest > 0.0 else 1.0
        gap = penalty + r * product + (1.0 - r) * (1.0 - r) * losses
    return 0.0 if losses + penalty == 0.0 else gap / (losses + penalty)


@jit
def _follow(H, inside, steps, slopes):
    """Update the slopes of all features after steps of some features."""
    for a in range(inside.size):
        for k in range(slopes.shape[0]):
            step = steps[k, a]
            if step != 0.0:
                for i in range(slopes.shape[1]):
                    slopes[k, i] += step * H[inside[a], i]


@jit
def _used(V, features):
    """Write the features whose norm is positive; return their number."""
    count = 0
    for j in range(V.shape[1]):
        square = 0.0
        for k in range(V.shape[0]):
            square += V[k, j] * V[k, j]
        if square > 0.0:
            features[count] = j
            count += 1
    return count


@jit
def _newton_direction(H, slopes, V, ridge, threshold, used):
    """The Newton step over the nonzero features, at which the norms are smooth, an array of shape (K, used).

    The matrix of K·used rows is M = I ⊗ Q − Σ_j bend_j u_j u_jᵀ with u_j = V_j/‖V_j‖, bend_j = threshold/‖V_j‖ and
    Q = H + D(ridge + bend): one matrix for all columns, less one rank for each feature. By Woodbury's formula, with N = I ⊗ Q⁻¹
    and U the matrix of columns √bend_j u_j,

        M⁻¹ = N + NU (I − UᵀNU)⁻¹ UᵀN,        (UᵀNU)_ij = √(bend_i bend_j) u_iᵀu_j (Q⁻¹)_ij,

    so that all matrices have as many rows as there are nonzero features.
    """
    K, m = V.shape[0], used.size
    Q, U, right = np.empty((m, m)), np.empty((K, m)), np.empty((K, m))
    for a in range(m):
        j, square = used[a], 0.0
        for k in range(K):
            square += V[k, j] * V[k, j]
        norm = math.sqrt(square)
        bend = threshold / norm
        for b in range(m):
            Q[a, b] = H[j, used[b]]
        Q[a, a] += ridge + bend
        for k in range(K):
            U[k, a] = math.sqrt(bend) * V[k, j] / norm
            right[k, a] = -(slopes[k, j] + (ridge + bend) * V[k, j])
    N = np.linalg.inv(Q)
    way, joined, inner = np.zeros((K, m)), np.empty((m, m)), np.empty(m)
    _add_products(N, right, way)
    for a in range(m):
        total = 0.0
        for k in range(K):
            total += U[k, a] * way[k, a]
        inner[a] = total
        for b in range(m):
            product = 0.0
            for k in range(K):
                product += U[k, a] * U[k, b]
            joined[a, b] = -product * N[a, b]
        joined[a, a] += 1.0
    solve_factored(np.linalg.cholesky(joined), inner)
    for a in range(m):
        for k in range(K):
            right[k, a] = U[k, a] * inner[a]
    _add_products(N, right, way)
    return way


@jit
def _add_products(N, rows, sums):
    """Add the products of a symmetric matrix with some rows."""
    for k in range(rows.shape[0]):
        for a in range(len(N)):
            number = rows[k, a]
            for b in range(len(N)):
                sums[k, b] += number * N[a, b]


@jit
def _longest_fraction(H, slopes, V, ridge, threshold, used, way):
    """Return the largest fraction 1, ½, ¼, … of a step over the nonzero features that decreases the objective, or zero.

    The matrix H may have negative eigenvalues by rounding: an upper bound of what rounding takes from the curvature of the step
    is added to it. Without that, a long step along features that depend on each other seems to decrease the objective.
    """
    K, m = way.shape
    linear = curved = 0.0
    for k in range(K):
        size = 0.0
        for a in range(m):
            bent = 0.0
            for b in range(m):
                bent += H[used[a], used[b]] * way[k, b]
            linear += slopes[k, used[a]] * way[k, a]
            curved += bent * way[k, a]
            size += math.sqrt(max(H[used[a], used[a]], 0.0)) * abs(way[k, a])
        curved += CANCELLED * size * size
    t = 1.0
    for _ in range(HALVINGS):
        change = t * linear + 0.5 * t * t * curved
        for a in range(m):
            before = after = 0.0
            for k in range(K):
                old = V[k, used[a]]
                new = old + t * way[k, a]
                before += old * old
                after += new * new
            change += 0.5 * ridge * (after - before) + threshold * (math.sqrt(after) - math.sqrt(before))
        if change < 0.0:
            return t
        t *= 0.5
    return 0.0


@jit
def _newton_step(H, slopes, V, ridge, threshold, used):
    """Take the longest fraction of a Newton step over the nonzero features that decreases the objective, if any."""
    try:
        way = _newton_direction(H, slopes, V, ridge, threshold, used)
    except Exception:  # the matrix is singular to rounding
        return
    t = _longest_fraction(H, slopes, V, ridge, threshold, used, way)
    if t == 0.0:  # no descent, or a step with infinite or undefined entries
        return
    for k in range(V.shape[0]):
        for a in range(used.size):
            V[k, used[a]] += t * way[k, a]
            for i in range(slopes.shape[1]):
                slopes[k, i] += t * way[k, a] * H[used[a], i]


@jit
def _extrapolated(slopes, V, old_slopes, old_V, along, squares, ridge, threshold, factor):
    """Move V and the slopes along the line through the last two minima, if the gap is smaller there than at the last.

    The minimum of the Lasso is piecewise linear in the threshold, and the slopes are affine in V.
    """
    new_V, new_slopes = np.empty(V.shape), np.empty(V.shape)
    for k in range(V.shape[0]):
        for j in range(V.shape[1]):
            new_V[k, j] = V[k, j] + factor * (V[k, j] - old_V[k, j])
            new_slopes[k, j] = slopes[k, j] + factor * (slopes[k, j] - old_slopes[k, j])
    before = _relative_gap(slopes, along, V, squares, ridge, threshold)
    lower = _relative_gap(new_slopes, along, new_V, squares, ridge, threshold) < before
    for k in range(V.shape[0]):
        for j in range(V.shape[1]):
            old_V[k, j], old_slopes[k, j] = V[k, j], slopes[k, j]
            if lower:
                V[k, j], slopes[k, j] = new_V[k, j], new_slopes[k, j]


@jit
def _over_set(H, slopes, V, ridge, threshold, inside):
    """Sweep over the features of a working set, with a separate matrix; then update the slopes of all features."""
    K = V.shape[0]
    count = inside.size
    part, own, now = np.empty((count, count)), np.empty((K, count)), np.empty((K, count))
    for a in range(count):
        for b in range(count):
            part[a, b] = H[inside[a], inside[b]]
        for k in range(K):
            own[k, a] = slopes[k, inside[a]]
            now[k, a] = V[k, inside[a]]
    _sweeps(part, own, now, np.full(count, ridge), np.full(count, threshold), SWEEPS, 0.0)
    for a in range(count):
        for k in range(K):
            now[k, a], V[k, inside[a]] = now[k, a] - V[k, inside[a]], now[k, a]
    _follow(H, inside, now, slopes)


@jit
def _path(H, along, squares, slopes, V, ridges, thresholds, tol, most, models):
    K, d = V.shape
    inside, old_V, old_slopes = np.empty(d, dtype=np.intp), V.copy(), slopes.copy()
    steps = 0
    for step in range(ridges.size):
        # The first step is a Newton step if the last minimum needed one: sweeps would increase the gap of the extrapolated point.
        newton, factor = steps > 0, 0.0
        ridge, threshold, sets, steps = ridges[step], thresholds[step], 0, 0
        if step > 1 and thresholds[step - 2] > thresholds[step - 1]:
            factor = (thresholds[step - 1] - threshold) / (thresholds[step - 2] - thresholds[step - 1])
        _extrapolated(slopes, V, old_slopes, old_V, along, squares, ridge, threshold, factor)
        while not _relative_gap(slopes, along, V, squares, ridge, threshold) <= tol:
            count = _violators(slopes, V, threshold, inside)
            newton = newton or sets >= max(count // RENT, 1)
            if newton and (steps == most or count > LARGEST_FACTOR):
                return step
            if newton:
                _newton_step(H, slopes, V, ridge, threshold, inside[: _used(V, inside)])
                newton, sets, steps = False, 0, steps + 1
            else:
                _over_set(H, slopes, V, ridge, threshold, inside[:count])
                sets += 1
        # Loops, since an array assignment would also compile its error message for different shapes, which takes seconds.
        for k in range(K):
            for j in range(d):
                models[step, k, j] = V[k, j]
    return ridges.size


sweeps, path, follow = Kernel(_sweeps), Kernel(_path), Kernel(_follow)
