"""Coordinate descent on a quadratic model with a separable penalty, compiled; ``solvers/prox`` defines the model.

sweeps(H, slopes, v, ridge, threshold, lower, upper, most, goal)      updates v and slopes in place
minima(H, along, squares, slopes, V, …, progress, trail, found, done)  rounds of Newton steps and sweeps of several models

``minima`` takes F models from the minimum of one penalty to that of the next, V and slopes in place, using the first ``size``
rows and columns of H[f]. Ridges and thresholds have a row for each penalty, ``goals`` a row with an entry for each model.
``lapack`` has the address of dpotrf. ``progress`` holds the least violation and the number of consecutive rounds that did not
halve it, at first infinity and zero. ``found[k, f]`` receives the minimum of penalty k, and ``done[f]``, at first the number of
the first penalty, that of the first one whose goal was not reached. ``trail[f]`` holds the minimum before the current one in its
first row and the slopes there in its second, each followed by the strength of a penalty: that of the minimum before, and that of
the current one; strengths of zero mean that there is none. A model also ends once its relative gap is at most its goal as a
fraction of the largest threshold, if ``squares[f]`` = Σ c y² is known (NaN if not), from which the losses follow.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import lean, lean_call, least, most
from dualnewton.kernels._memory import address, borrowed, give_back
from dualnewton.kernels.blas import factorise
from dualnewton.kernels.constants import LITTLE, NOTHING
from dualnewton.kernels.models import Kernel, LazyKernel

MOST_IN_VAIN = 4
"""Limit on consecutive rounds without a smaller largest violation."""

SWEEPS, SWEEPS_DIVISOR = 3, 10
"""Sweeps of coordinate descent after Newton steps; and the divisor of (free)²/size that gives the number of sweeps which cost as
much as a Newton step: this many are tried before a Newton step."""

FARTHEST = 2.0
"""Change of the strength, as a multiple of the last one, up to which minima are extrapolated: more would multiply rounding errors
of the slopes."""


@lean
def _best(curvature, ridge, slope, v, threshold, lower, upper):
    if curvature + ridge <= 0.0:
        return least(most(0.0, lower), upper)
    u = curvature * v - slope
    shrunk = u - least(most(u, -threshold), threshold)
    return least(most(shrunk / (curvature + ridge), lower), upper)


@lean_call
def _sweeps(H, slopes, v, ridge, threshold, lower, upper, limit, goal):
    visited, ended = borrowed(v.size, 0), False
    for _ in range(limit):
        count = 0
        for j in range(v.size):
            if v[j] != 0.0 or _best(H[j, j], ridge[j], slopes[j], v[j], threshold[j], lower[j], upper[j]) != v[j]:
                visited[count] = j
                count += 1
        largest = 0.0
        for place in range(count):
            i = np.uintp(visited[place])  # unsigned, since a negative place would count from the end
            new = _best(H[i, i], ridge[i], slopes[i], v[i], threshold[i], lower[i], upper[i])
            change = new - v[i]
            if abs(change) * (H[i, i] + ridge[i]) > NOTHING * goal:
                v[i] = new
                for k in range(v.size):
                    slopes[k] += change * H[i, k]
                largest = most(largest, abs(change) * (H[i, i] + ridge[i]))
        if largest <= goal:
            ended = True
            break
    give_back(visited)
    return ended


@lean
def violation(s, v, threshold, lower, upper):
    """The distance of −s from the subdifferential of threshold |v| and the bounds."""
    right = -s - threshold if v >= 0.0 else -s + threshold
    left = s + threshold if v > 0.0 else s - threshold
    return most(most(right, 0.0) if v < upper else 0.0, most(left, 0.0) if v > lower else 0.0)


@lean_call
def _largest_violation(slopes, v, ridge, threshold, lower, upper):
    """The largest distance of −slopes − ridge v from the subdifferential of threshold |v| and the bounds."""
    largest = 0.0
    for j in range(v.size):
        largest = most(largest, violation(slopes[j] + ridge[j] * v[j], v[j], threshold[j], lower[j], upper[j]))
    return largest


@lean_call
def _relative_gap(along, squares, slopes, v, ridge, threshold, lower, upper):
    """(P − D)/P for the dual point −φ′, shortened until g* is finite; ∞ for bounds other than zero.

    As in ``columns.py``: g(v) + g*(−slopes) + slopesᵀv by Fenchel and Young.
    """
    shrink, product, penalty, beyond, strong, losses = 1.0, 0.0, 0.0, 0.0, True, 0.5 * squares
    for j in range(v.size):
        losses += 0.5 * v[j] * (slopes[j] - along[j])
        product += slopes[j] * v[j]
        penalty += threshold[j] * abs(v[j]) + 0.5 * ridge[j] * v[j] * v[j]
        strong = strong and ridge[j] > 0.0
        if upper[j] < np.inf or (lower[j] > -np.inf and lower[j] != 0.0) or threshold[j] == 0.0:
            return np.inf
        excess = most(-slopes[j], slopes[j] if lower[j] < 0.0 else 0.0) - threshold[j]
        if excess > 0.0:
            shrink = least(shrink, threshold[j] / (threshold[j] + excess))
            beyond += 0.5 * excess * excess / ridge[j] if ridge[j] > 0.0 else 0.0
    gap = penalty + product + beyond if strong else penalty + shrink * product + (1.0 - shrink) ** 2 * losses
    return gap / (losses + penalty) if losses + penalty > 0.0 else np.inf


@lean_call
def solve_factored(L, x):
    """Solve L Lᵀ x = x in place."""
    for i in range(x.size):
        total = x[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    for i in range(x.size - 1, -1, -1):
        x[i] /= L[i, i]
        for j in range(i):
            x[j] -= L[i, j] * x[i]


@lean
def is_free(v, threshold, lower, upper):
    """Whether a coordinate is away from kinks and bounds."""
    return lower < v and v < upper and (v != 0.0 or threshold == 0.0)


@lean_call
def _free(v, threshold, lower, upper, free):
    """Write the coordinates away from kinks and bounds; return their number."""
    count = 0
    for j in range(v.size):
        if is_free(v[j], threshold[j], lower[j], upper[j]):
            free[count] = j
            count += 1
    return count


@lean_call
def newton_step(lapack, M, step):
    """Replace the negative slopes in ``step`` by M⁻¹ times them; return the slope along the step, negated.

    It is NaN if M is not positive definite. The lower triangle of M is used, and overwritten by its Cholesky factor.
    """
    m, decrease = step.size, 0.0
    downhill = borrowed(m, 0.0)
    for a in range(m):
        downhill[a] = step[a]
    # The upper triangle of LAPACK, which stores matrices by columns, is the lower one.
    if factorise(lapack[0], 1, m, address(M), m) == 0:
        solve_factored(M, step)
        for a in range(m):
            decrease += downhill[a] * step[a]
    else:
        decrease = np.nan
    give_back(downhill)
    return decrease


@lean_call
def _newton_direction(H, slopes, v, ridge, threshold, free, lapack, step):
    """Write the step to the minimum over the free coordinates; return the slope along it, negated, or NaN if there is none."""
    m = step.size
    M = borrowed((m, m), 0.0)
    for a in range(m):
        i = free[a]
        for b in range(m):
            M[a, b] = H[i, free[b]]
        M[a, a] += ridge[i] + LITTLE * M[a, a]
        sign = 1.0 if v[i] > 0.0 else -1.0 if v[i] < 0.0 else v[i]
        step[a] = -(slopes[i] + ridge[i] * v[i] + threshold[i] * sign)
    decrease = newton_step(lapack, M, step)
    give_back(M)
    return decrease


@lean_call
def step_ends(v, threshold, lower, upper, free, step, ends, new):
    """Write where the free coordinates would reach a kink or a bound, and their values after a step that stops there.

    Return the fraction of the step up to which all signs and bounds last.
    """
    t = 1.0
    for a in range(step.size):
        j = free[a]
        ends[a] = upper[j] if step[a] > 0.0 else lower[j]
        if threshold[j] > 0.0 and v[j] * step[a] < 0.0:
            ends[a] = most(ends[a], 0.0) if v[j] > 0.0 else least(ends[a], 0.0)
        new[a] = least(v[j] + step[a], ends[a]) if step[a] > 0.0 else most(v[j] + step[a], ends[a])
        if new[a] == ends[a] and step[a] != 0.0:
            t = least(t, (ends[a] - v[j]) / step[a])
    return t


@lean_call
def shorten_step(v, free, step, ends, t, new):
    """Write the values of the free coordinates after the fraction t of a step, at which the first of them reaches its end."""
    for a in range(step.size):
        old = v[free[a]]
        reaches = step[a] != 0.0 and (ends[a] - old) / step[a] <= t
        new[a] = ends[a] if reaches else old + t * step[a]


@lean_call
def _move(H, slopes, v, free, new):
    for a in range(new.size):
        j = free[a]
        change = new[a] - v[j]
        if change != 0.0:
            v[j] = new[a]
            for k in range(v.size):
                slopes[k] += change * H[j, k]


@lean_call
def _cut_step(H, slopes, v, ridge, threshold, lower, upper, free, step, decrease):
    """Take a step as far as signs and bounds last, as :func:`_newton_step` says; return 1 if it is the whole step, else 0."""
    m = step.size
    ends, new, old, before = borrowed(m, 0.0), borrowed(m, 0.0), borrowed(m, 0.0), borrowed(v.size, 0.0)
    for k in range(v.size):
        before[k] = slopes[k]
    for a in range(m):
        old[a] = v[free[a]]
    t = step_ends(v, threshold, lower, upper, free, step, ends, new)
    _move(H, slopes, v, free, new)
    gain = 0.0
    for a in range(m):
        j = free[a]
        gain += 0.5 * (new[a] - old[a]) * (before[j] + slopes[j])
        gain += 0.5 * ridge[j] * (new[a] * new[a] - old[a] * old[a]) + threshold[j] * (abs(new[a]) - abs(old[a]))
    # The shorter way gains t(1 − t/2) of what the whole step would have gained twice.
    if t < 1.0 and gain > -t * (1.0 - 0.5 * t) * decrease:
        for a in range(m):
            v[free[a]] = old[a]
        for k in range(v.size):
            slopes[k] = before[k]
        shorten_step(v, free, step, ends, t, new)
        _move(H, slopes, v, free, new)
    give_back(ends)
    give_back(new)
    give_back(old)
    give_back(before)
    return 1 if t == 1.0 else 0


@lean_call
def _newton_step(H, slopes, v, ridge, threshold, lower, upper, lapack, free):
    """Minimise over the coordinates away from kinks and bounds, as far as their signs and bounds last.

    Those that would change their sign or leave the bounds stop there. If the decrease is then too small, all move as far as the
    first. Return 1 if the minimum over these coordinates was reached, 0 if the step was cut short, and −1 if there was none.
    """
    m = _free(v, threshold, lower, upper, free)
    if m == 0:
        return 1
    step, end = borrowed(m, 0.0), -1
    decrease = _newton_direction(H, slopes, v, ridge, threshold, free, lapack, step)
    if decrease > -np.inf:
        end = _cut_step(H, slopes, v, ridge, threshold, lower, upper, free, step, decrease)
    give_back(step)
    return end


@lean_call
def _has_ended(along, squares, s, v, ridge, threshold, lower, upper, goal):
    """Whether no violation exceeds the goal, or the relative gap is at most the goal as a fraction of the largest threshold."""
    # LLVM works on several features at once in such a sum, not in the largest of some numbers.
    beyond = 0
    for j in range(v.size):
        beyond += violation(s[j] + ridge[j] * v[j], v[j], threshold[j], lower[j], upper[j]) > goal
    if beyond == 0:
        return True
    if np.isnan(squares):
        return False
    largest = 0.0
    for j in range(v.size):
        largest = most(largest, threshold[j])
    return _relative_gap(along, squares, s, v, ridge, threshold, lower, upper) * largest <= goal


@lean_call
def _reaches(
    G, along, squares, s, v, size, ridge, threshold, lower, upper, goal, rounds, steps, lapack, progress, free
):  # fmt: skip
    """Do rounds of sweeps and Newton steps of one model; return whether the goal was reached."""
    for _ in range(rounds):
        used = 0
        for j in range(v.size):
            if v[j] != 0.0:
                used += 1
        trials = used * used // (SWEEPS_DIVISOR * size) if size > 0 else 0
        for _ in range(trials):
            if _has_ended(along, squares, s, v, ridge, threshold, lower, upper, goal):
                return True
            if _sweeps(G, s, v, ridge, threshold, lower, upper, 1, 0.5 * goal):
                break
        if _has_ended(along, squares, s, v, ridge, threshold, lower, upper, goal):
            return True
        for _ in range(steps):
            if _newton_step(G, s, v, ridge, threshold, lower, upper, lapack, free) != 0:
                break
        left = _largest_violation(s, v, ridge, threshold, lower, upper)
        progress[1] = progress[1] + 1.0 if left > 0.5 * progress[0] else 0.0
        progress[0] = least(progress[0], left)
        if left <= goal:
            return True
        if progress[1] >= MOST_IN_VAIN:
            return False
        _sweeps(G, s, v, ridge, threshold, lower, upper, SWEEPS, 0.5 * goal)
    return False


@lean_call
def _extrapolate(H, slopes, v, trail, way, threshold, lower, upper, new, there):
    """Write the point on the line through the last two minima and its slopes; zeros and signs of the last one are kept."""
    for j in range(v.size):
        there[j] = slopes[j] + way * (slopes[j] - trail[1, j])
    for j in range(v.size):
        own = v[j] + way * (v[j] - trail[0, j])
        new[j] = least(most(own, lower[j]), upper[j])
        if threshold[j] > 0.0 and own * v[j] <= 0.0:
            new[j] = 0.0
        if new[j] != own:
            for k in range(v.size):
                there[k] += (new[j] - own) * H[j, k]


@lean_call
def _go_ahead(H, slopes, v, ridge, threshold, lower, upper, trail):
    """Go to where the last two minima point to, if the largest violation is smaller there, and keep the last one as the trail.

    The minima of a Lasso are linear in the strength as long as no feature enters or leaves.
    """
    size, strength = v.size, 0.0
    for j in range(size):
        strength += threshold[j]
    before, last = trail[0, size], trail[1, size]
    new, there, ahead = borrowed(size, 0.0), borrowed(size, 0.0), False
    if before > last and last > strength and last - strength <= FARTHEST * (before - last):
        _extrapolate(H, slopes, v, trail, (last - strength) / (before - last), threshold, lower, upper, new, there)
        here = _largest_violation(slopes, v, ridge, threshold, lower, upper)
        ahead = _largest_violation(there, new, ridge, threshold, lower, upper) < here
    for j in range(size):
        trail[0, j], trail[1, j] = v[j], slopes[j]
        if ahead:
            v[j], slopes[j] = new[j], there[j]
    trail[0, size], trail[1, size] = last, strength
    give_back(new)
    give_back(there)


@lean_call
def _minima(
    H, along, squares, slopes, V, size, ridges, thresholds, lower, upper, goals, rounds, steps, lapack, progress,
    trail, found, done,
):  # fmt: skip
    free = borrowed(V.shape[1], 0)
    for f in range(V.shape[0]):
        v, s, G, own = V[f], slopes[f], H[f], progress[f]
        while done[f] < goals.shape[0]:
            k = done[f]
            ridge, threshold, goal = ridges[k], thresholds[k], goals[k, f]
            if own[0] == np.inf:  # a new penalty
                _go_ahead(G, s, v, ridge, threshold, lower, upper, trail[f])
            if not _reaches(
                G, along[f], squares[f], s, v, size, ridge, threshold, lower, upper, goal, rounds, steps, lapack, own,
                free,
            ):  # fmt: skip
                break
            for j in range(v.size):
                found[k, f, j] = v[j]
            done[f] += 1
            own[0], own[1] = np.inf, 0.0
    give_back(free)


sweeps, minima = LazyKernel(_sweeps), Kernel(_minima)
sweeps.rounds = minima
