"""Block coordinate descent for K columns and a penalty on the norm of each feature's coefficients, compiled.

sweeps(H, slopes, V, ridge, threshold, most, goal)                     updates V and slopes in place
path(H, along, squares, slopes, V, ridges, thresholds, tol, limit, lapack, models)
                                                                       minima for decreasing penalties, each from the one
                                                                       before; returns how many were found with ``limit`` Newton
                                                                       steps each

``solvers/prox/joint_subproblem.py`` defines the model, and has sweeps and Newton steps in NumPy. Arrays of K columns have the
shape (K, d): an update adds a multiple of a row of H to each of K contiguous rows. ``lapack`` has the addresses of the functions
in :data:`LAPACK`.
"""

from __future__ import annotations

import math

from dualnewton.kernels._jit import lean_call, least, most
from dualnewton.kernels._memory import address, borrowed, give_back
from dualnewton.kernels.blas import factorise
from dualnewton.kernels.constants import CANCELLED
from dualnewton.kernels.models import Kernel, LazyKernel
from dualnewton.kernels.quadratic import solve_factored

LAPACK = "dpotrf", "dpotri"
"""Functions of LAPACK whose addresses ``path`` takes, in this order."""

SWEEPS = 10
"""Number of sweeps over a working set, which cost about as much as updating the slopes of all features afterwards."""

SETS_DIVISOR = 50
"""Divisor of the number of nonzero features that gives how many working sets cost as much as a Newton step over these features:
this many are tried before a Newton step."""

LARGEST_FACTOR, HALVINGS = 1000, 8
"""Largest number of nonzero features for Newton steps, and number of fractions 1, ½, ¼, … of a step that are tried."""


@lean_call
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


@lean_call
def _sweeps(H, slopes, V, ridge, threshold, limit, goal):
    K, size = V.shape
    change, ended = borrowed(K, 0.0), False
    for _ in range(limit):
        largest = 0.0
        for j in range(size):
            moved = _moved(H, slopes, V, ridge[j], threshold[j], j, change)
            if moved > 0.0:
                largest = most(largest, moved)
                for k in range(K):
                    step = change[k]
                    for i in range(size):
                        slopes[k, i] += step * H[j, i]
        if largest <= goal:
            ended = True
            break
    give_back(change)
    return ended


@lean_call
def _violators(slopes, V, threshold, inside):
    """Write the features that are nonzero or whose slope exceeds the threshold; return their number."""
    K, d = V.shape
    count, limit = 0, threshold * threshold
    for j in range(d):
        used, norm = 0, 0.0
        for k in range(K):
            if V[k, j] != 0.0:
                used += 1
            norm += slopes[k, j] * slopes[k, j]
        if used > 0 or norm > limit:
            inside[count] = j
            count += 1
    return count


@lean_call
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
        steepest = most(steepest, steep)
        over = math.sqrt(steep) - threshold
        if over > 0.0:
            beyond += over * over
    losses = most(0.5 * (squares + product - fitted), 0.0)
    if ridge > 0.0:
        gap = penalty + product + beyond / (2.0 * ridge)
    else:
        r = least(1.0, threshold / math.sqrt(steepest)) if steepest > 0.0 else 1.0
        gap = penalty + r * product + (1.0 - r) * (1.0 - r) * losses
    return 0.0 if losses + penalty == 0.0 else gap / (losses + penalty)


@lean_call
def _follow(H, inside, steps, slopes):
    """Update the slopes of all features after steps of some features."""
    for a in range(steps.shape[1]):
        for k in range(slopes.shape[0]):
            step = steps[k, a]
            if step != 0.0:
                for i in range(slopes.shape[1]):
                    slopes[k, i] += step * H[inside[a], i]


@lean_call
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


@lean_call
def _fill(H, slopes, V, ridge, threshold, used, Q, U, right):
    """Write the matrices of a Newton step: see :func:`_newton_direction`."""
    K, m = right.shape
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


@lean_call
def _inverted(lapack, Q):
    """Overwrite a symmetric matrix by its inverse; return whether it is positive definite."""
    m = len(Q)
    # The upper triangle of LAPACK, which stores matrices by columns, is the lower one.
    if factorise(lapack[0], 1, m, address(Q), m) != 0 or factorise(lapack[1], 1, m, address(Q), m) != 0:
        return False
    for a in range(m):
        for b in range(a):
            Q[b, a] = Q[a, b]
    return True


@lean_call
def _newton_direction(H, slopes, V, ridge, threshold, used, lapack, way):
    """Write the Newton step over the nonzero features, at which the norms are smooth, of shape (K, used); return if there is one.

    The matrix of K·used rows is M = I ⊗ Q − Σ_j bend_j u_j u_jᵀ with u_j = V_j/‖V_j‖, bend_j = threshold/‖V_j‖ and
    Q = H + D(ridge + bend): one matrix for all columns, less one rank for each feature. By Woodbury's formula, with N = I ⊗ Q⁻¹
    and U the matrix of columns √bend_j u_j,

        M⁻¹ = N + NU (I − UᵀNU)⁻¹ UᵀN,        (UᵀNU)_ij = √(bend_i bend_j) u_iᵀu_j (Q⁻¹)_ij,

    so that all matrices have as many rows as there are nonzero features.
    """
    K, m = way.shape
    N, joined, inner = borrowed((m, m), 0.0), borrowed((m, m), 0.0), borrowed(m, 0.0)
    U, right = borrowed((K, m), 0.0), borrowed((K, m), 0.0)
    _fill(H, slopes, V, ridge, threshold, used, N, U, right)
    exists = _inverted(lapack, N)
    if exists:
        for k in range(K):
            for a in range(m):
                way[k, a] = 0.0
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
        exists = factorise(lapack[0], 1, m, address(joined), m) == 0
    if exists:
        solve_factored(joined, inner)
        for a in range(m):
            for k in range(K):
                right[k, a] = U[k, a] * inner[a]
        _add_products(N, right, way)
    give_back(N)
    give_back(joined)
    give_back(inner)
    give_back(U)
    give_back(right)
    return exists


@lean_call
def _add_products(N, rows, sums):
    """Add the products of a symmetric matrix with some rows."""
    for k in range(rows.shape[0]):
        for a in range(len(N)):
            number = rows[k, a]
            for b in range(len(N)):
                sums[k, b] += number * N[a, b]


@lean_call
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
            size += math.sqrt(most(H[used[a], used[a]], 0.0)) * abs(way[k, a])
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


@lean_call
def _newton_step(H, slopes, V, ridge, threshold, used, m, lapack):
    """Take the longest fraction of a Newton step over the m nonzero features that decreases the objective, if any."""
    way, t = borrowed((V.shape[0], m), 0.0), 0.0
    if _newton_direction(H, slopes, V, ridge, threshold, used, lapack, way):
        t = _longest_fraction(H, slopes, V, ridge, threshold, used, way)
    if t > 0.0:  # else there is no descent, or the step has infinite or undefined entries
        for k in range(V.shape[0]):
            for a in range(m):
                V[k, used[a]] += t * way[k, a]
                for i in range(slopes.shape[1]):
                    slopes[k, i] += t * way[k, a] * H[used[a], i]
    give_back(way)


@lean_call
def _extrapolated(slopes, V, old_slopes, old_V, along, squares, ridge, threshold, factor):
    """Move V and the slopes along the line through the last two minima, if the gap is smaller there than at the last.

    The minimum of the Lasso is piecewise linear in the threshold, and the slopes are affine in V.
    """
    new_V, new_slopes = borrowed(V.shape, 0.0), borrowed(V.shape, 0.0)
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
    give_back(new_V)
    give_back(new_slopes)


@lean_call
def _over_set(H, slopes, V, ridge, threshold, inside, count):
    """Sweep over the features of a working set, with a separate matrix; then update the slopes of all features."""
    K = V.shape[0]
    part, own, now = borrowed((count, count), 0.0), borrowed((K, count), 0.0), borrowed((K, count), 0.0)
    ridges, thresholds = borrowed(count, 0.0), borrowed(count, 0.0)
    for a in range(count):
        ridges[a], thresholds[a] = ridge, threshold
        for b in range(count):
            part[a, b] = H[inside[a], inside[b]]
        for k in range(K):
            own[k, a] = slopes[k, inside[a]]
            now[k, a] = V[k, inside[a]]
    _sweeps(part, own, now, ridges, thresholds, SWEEPS, 0.0)
    for a in range(count):
        for k in range(K):
            now[k, a], V[k, inside[a]] = now[k, a] - V[k, inside[a]], now[k, a]
    _follow(H, inside, now, slopes)
    give_back(part)
    give_back(own)
    give_back(now)
    give_back(ridges)
    give_back(thresholds)


@lean_call
def _minimum(H, along, squares, slopes, V, ridge, threshold, tol, limit, lapack, newton, inside):
    """Move to the minimum for one penalty, beginning with a Newton step if ``newton``; return the number of Newton steps.

    Return −1 if it was not found with ``limit`` Newton steps.
    """
    sets, steps = 0, 0
    while not _relative_gap(slopes, along, V, squares, ridge, threshold) <= tol:
        count = _violators(slopes, V, threshold, inside)
        newton = newton or sets >= most(count // SETS_DIVISOR, 1)
        if newton and (steps == limit or count > LARGEST_FACTOR):
            return -1
        if newton:
            used = _used(V, inside)
            _newton_step(H, slopes, V, ridge, threshold, inside, used, lapack)
            newton, sets, steps = False, 0, steps + 1
        else:
            _over_set(H, slopes, V, ridge, threshold, inside, count)
            sets += 1
    return steps


@lean_call
def _path(H, along, squares, slopes, V, ridges, thresholds, tol, limit, lapack, models):
    K, d = V.shape
    inside, old_V, old_slopes = borrowed(d, 0), borrowed(V.shape, 0.0), borrowed(V.shape, 0.0)
    for k in range(K):
        for j in range(d):
            old_V[k, j], old_slopes[k, j] = V[k, j], slopes[k, j]
    steps, found = 0, 0
    for step in range(ridges.size):
        ridge, threshold, factor = ridges[step], thresholds[step], 0.0
        if step > 1 and thresholds[step - 2] > thresholds[step - 1]:
            factor = (thresholds[step - 1] - threshold) / (thresholds[step - 2] - thresholds[step - 1])
        _extrapolated(slopes, V, old_slopes, old_V, along, squares, ridge, threshold, factor)
        # The first step is a Newton step if the last minimum needed one: sweeps would increase the gap of the extrapolated point.
        steps = _minimum(H, along, squares, slopes, V, ridge, threshold, tol, limit, lapack, steps > 0, inside)
        if steps < 0:
            break
        found += 1
        for k in range(K):
            for j in range(d):
                models[step, k, j] = V[k, j]
    give_back(inside)
    give_back(old_V)
    give_back(old_slopes)
    return found


sweeps, path = LazyKernel(_sweeps), Kernel(_path)
