"""Coordinate descent with extrapolation and Newton steps on a quadratic model of many features, compiled.

column_rounds(*rows, q, diagonal, slopes, v, moved, …, along_q, start, …, sweeps, …)  rounds of sweeps until the goal is reached

``solvers/prox/column_descent.py`` defines the model and says in NumPy what it does; one row for each feature. The kernel computes
only those slopes that may violate the optimality conditions: the others are bounded by those known from another point.
``blas`` are the :func:`routines`.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import lean_call, least, most
from dualnewton.kernels._memory import address, borrowed, give_back
from dualnewton.kernels.blas import blas_address, call_syrk, lapack_address
from dualnewton.kernels.constants import IN_VAIN, INSIDE, LIFT, LITTLE, MEMORY, STEPS, SWEEPS
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.quadratic import is_free, newton_step, shorten_step, solve_factored, step_ends, violation

ROUNDING = 1e-13
"""Relative error that squares of norms of centred vectors may have, as a fraction of those before centring."""


def routines() -> np.ndarray:
    """Return the addresses of the functions of LAPACK and BLAS that Newton steps use."""
    return np.array([lapack_address("dpotrf"), blas_address("dsyrk")], dtype=np.intp)


@lean_call
def _column_sweep(
    data, columns, starts, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q, visited, count
):
    largest, along = 0.0, along_q[0]
    for place in range(count):
        j = visited[place]
        old = v[j]
        u = diagonal[j] * old - (slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along)
        shrunk = u - least(most(u, -threshold[j]), threshold[j])
        new = least(most(shrunk * inverse[j], lower[j]), upper[j])
        change = new - old
        if change != 0.0:
            v[j] = new
            row.add(data, columns, starts, j, change, moved)
            along += change * q[j]
            largest = most(largest, abs(change) * diagonal[j])
    along_q[0] = along
    return largest


@lean_call
def _go(data, columns, starts, q, v, moved, along_q, visited, count, new):
    """Go to the point with these values of the visited coordinates."""
    for place in range(count):
        j = visited[place]
        change = new[place] - v[j]
        if change != 0.0:
            v[j] = new[place]
            row.add(data, columns, starts, j, change, moved)
            along_q[0] += change * q[j]


@lean_call
def _doubtful(known, known_at, progress, slopes, v, moved, threshold, lower, upper, along_q, norms, visited):
    """Write the coordinates whose slopes have to be computed at the current point, and return their number.

    The others are zero and satisfy the optimality conditions: a slope differs from x times that at the last full survey, x such
    that the points are nearest to each other, by at most the norm of the feature times their distance (Cauchy and Schwarz).
    """
    count, along, x, scale, size = 0, along_q[0], 0.0, -progress[0] * progress[0], 0.0
    for i in range(moved.size):
        x += moved[i] * known_at[i]
        scale += known_at[i] * known_at[i]
    x = (x - along * progress[0]) / scale if scale > 0.0 else 1.0
    for i in range(moved.size):
        change = moved[i] - x * known_at[i]
        size += change * change
    distance = np.sqrt(most(size - (along - x * progress[0]) ** 2, 0.0) + ROUNDING * size)
    for j in range(v.size):
        here = slopes[j] + x * (known[j] - slopes[j])
        pull = most(-here if upper[j] > 0.0 else 0.0, here if lower[j] < 0.0 else 0.0)
        if v[j] != 0.0 or not pull + norms[j] * distance < threshold[j]:
            visited[count] = j
            count += 1
    progress[1] += count
    if progress[1] > v.size:  # those computed one by one cost as much as all
        for j in range(v.size):
            visited[j] = j
        return v.size
    return count


@lean_call
def _survey(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, constant, known, known_at,
    progress, norms, visited, found,
):  # fmt: skip
    """Write the coordinates of the next sweeps, and their number, the largest violation and the relative gap to ``found``."""
    count, largest, shrink, product, penalty, beyond, strong, linear = 0, 0.0, 1.0, 0.0, 0.0, 0.0, True, 0.0
    computed = _doubtful(known, known_at, progress, slopes, v, moved, threshold, lower, upper, along_q, norms, visited)
    for place in range(computed):
        j = visited[place]
        here = slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along_q[0]
        own = violation(here + ridge[j] * v[j], v[j], threshold[j], lower[j], upper[j])
        largest = most(largest, own)
        if computed == v.size:
            known[j] = here
        if v[j] != 0.0 or own > 0.0:
            visited[count] = j
            count += 1
            linear += slopes[j] * v[j]
            product += here * v[j]
            penalty += threshold[j] * abs(v[j]) + 0.5 * ridge[j] * v[j] * v[j]
        excess = most(-here if upper[j] > 0.0 else 0.0, here if lower[j] < 0.0 else 0.0) - threshold[j]
        if excess > 0.0:
            shrink = least(shrink, threshold[j] / (threshold[j] + excess))
            beyond += 0.5 * excess * excess / ridge[j] if ridge[j] > 0.0 else 0.0
    for j in range(v.size):
        strong = strong and ridge[j] > 0.0
    losses = constant + linear - 0.5 * along_q[0] * along_q[0]
    for i in range(moved.size):
        losses += 0.5 * moved[i] * moved[i]
        if computed == v.size:
            known_at[i] = moved[i]
    if computed == v.size:
        progress[0], progress[1] = along_q[0], 0.0
    gap = penalty + product + beyond if strong else penalty + shrink * product + (1.0 - shrink) ** 2 * losses
    found[0], found[1] = largest, gap / (losses + penalty) if losses + penalty > 0.0 else 0.0
    return count


@lean_call
def _weights(history, count, x):
    """Write the weights of the last points whose combination is expected to change least in a sweep (Anderson)."""
    G, total = borrowed((MEMORY, MEMORY), 0.0), 0.0
    for a in range(MEMORY):
        for b in range(a + 1):
            G[a, b] = 0.0
            for k in range(count):
                G[a, b] += (history[a + 1, k] - history[a, k]) * (history[b + 1, k] - history[b, k])
        total += G[a, a]
    for a in range(MEMORY):  # its Cholesky factor, in place
        G[a, a] += LIFT * total
        for b in range(a + 1):
            for k in range(b):
                G[a, b] -= G[a, k] * G[b, k]
            if b < a:
                G[a, b] /= G[b, b]
        G[a, a] = np.sqrt(G[a, a])
        x[a] = 1.0
    solve_factored(G, x)
    total = 0.0
    for a in range(MEMORY):
        total += x[a]
    for a in range(MEMORY):
        x[a] /= total
    give_back(G)


@lean_call
def _go_if_lower(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, visited, count, new, least_gain
):  # fmt: skip
    """Go to the point with these values of the visited coordinates if the model is lower there by more than a gain."""
    before, old, along, change = borrowed(moved.size, 0.0), borrowed(count, 0.0), along_q[0], 0.0
    for place in range(count):
        j, own = visited[place], new[place]
        old[place] = v[j]
        change += slopes[j] * (own - v[j]) + threshold[j] * (abs(own) - abs(v[j]))
        change += 0.5 * ridge[j] * (own * own - v[j] * v[j])
    for i in range(moved.size):
        before[i] = moved[i]
    _go(data, columns, starts, q, v, moved, along_q, visited, count, new)
    change -= 0.5 * (along_q[0] - along) * (along_q[0] + along)
    for i in range(moved.size):
        change += 0.5 * (moved[i] - before[i]) * (moved[i] + before[i])
    lower = change < -least_gain
    if not lower:
        for place in range(count):
            v[visited[place]] = old[place]
        for i in range(moved.size):
            moved[i] = before[i]
        along_q[0] = along
    give_back(before)
    give_back(old)
    return lower


@lean_call
def _extrapolate(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, visited, count, history
):
    """Go to the extrapolated point, with coordinates that change their sign at zero, if the model is lower there."""
    x, new = borrowed(MEMORY, 0.0), borrowed(count, 0.0)
    _weights(history, count, x)
    for place in range(count):
        j, own = visited[place], 0.0
        for a in range(MEMORY):
            own += x[a] * history[a + 1, place]
        own = least(most(own, lower[j]), upper[j])
        if threshold[j] > 0.0 and own * v[j] <= 0.0:
            own = 0.0
        new[place] = own
    _go_if_lower(data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, visited, count, new, 0.0)
    give_back(x)
    give_back(new)


@lean_call
def _form(data, columns, starts, q, diagonal, ridge, moved, free, blas, M):
    """Write the matrix of the free coordinates, on and above the diagonal: BLAS multiplies dense features."""
    m, n = M.shape[0], moved.size
    dense, by_rows = borrowed(n, 0.0), borrowed((n if starts.size == 0 else 0, m), 0.0)
    for i in range(n):
        dense[i] = 0.0
    for a in range(m):
        row.spread(data, columns, starts, free[a], 1.0, dense)
        if starts.size == 0:
            for i in range(n):
                by_rows[i, a] = dense[i]
        else:
            for b in range(a):
                M[b, a] = row.dot(data, columns, starts, free[b], dense)
            row.spread(data, columns, starts, free[a], 0.0, dense)
    if starts.size == 0:
        call_syrk(blas[1], m, n, 1.0, address(by_rows), m, 0.0, address(M), m)
    for a in range(m):
        for b in range(a, m):
            M[a, b] -= q[free[a]] * q[free[b]]
        M[a, a] = diagonal[free[a]] * (1.0 + LITTLE) + ridge[free[a]]
    give_back(dense)
    give_back(by_rows)


@lean_call
def _direction(data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, free, places, H, blas, step):
    """Write the step to the minimum over the free coordinates; return the slope along it, negated, or NaN if there is none.

    Their matrix has the rows and columns ``places`` of H.
    """
    m = step.size
    M = borrowed((m, m), 0.0)
    for a in range(m):
        j = free[a]
        for b in range(a + 1):
            M[a, b] = H[places[b], places[a]]
        sign = 1.0 if v[j] > 0.0 else -1.0 if v[j] < 0.0 else 0.0
        here = slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along_q[0]
        step[a] = -(here + ridge[j] * v[j] + threshold[j] * sign)
    decrease = newton_step(blas, M, step)
    give_back(M)
    return decrease


@lean_call
def _cut_step(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, free, step, decrease
):  # fmt: skip
    """Take a step as far as signs and bounds last, as ``_cut_step`` of ``quadratic.py`` does; return whether it was cut."""
    m = step.size
    ends, new = borrowed(m, 0.0), borrowed(m, 0.0)
    t = step_ends(v, threshold, lower, upper, free, step, ends, new)
    # The shorter way gains t(1 − t/2) of what the whole step would have gained twice.
    gain = t * (1.0 - 0.5 * t) * decrease if t < 1.0 else 0.0
    if not _go_if_lower(
        data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, free, m, new, gain
    ) and t < 1.0:  # fmt: skip
        shorten_step(v, free, step, ends, t, new)
        _go_if_lower(data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, free, m, new, 0.0)
    give_back(ends)
    give_back(new)
    return t < 1.0


@lean_call
def _newton_steps(
    data, columns, starts, q, diagonal, slopes, v, moved, ridge, threshold, lower, upper, along_q, blas, free, m
):  # fmt: skip
    """Minimise over m free coordinates; those that reach a kink or a bound stay there, and the others go on."""
    H, places = borrowed((m, m), 0.0), borrowed(m, 0)
    for a in range(m):
        places[a] = a
    _form(data, columns, starts, q, diagonal, ridge, moved, free, blas, H)
    for _ in range(STEPS):
        step, cut = borrowed(m, 0.0), False
        decrease = _direction(
            data, columns, starts, q, slopes, v, moved, ridge, threshold, along_q, free, places, H, blas, step
        )
        if decrease > 0.0:
            cut = _cut_step(
                data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, free, step,
                decrease,
            )  # fmt: skip
        give_back(step)
        if not cut:
            break
        left = 0
        for a in range(m):
            j = free[a]
            if is_free(v[j], threshold[j], lower[j], upper[j]):
                free[left], places[left] = j, places[a]
                left += 1
        m = left
        if m == 0:
            break
    give_back(H)
    give_back(places)


@lean_call
def _free(starts, v, moved, threshold, lower, upper, visited, count, free, found):
    """Write the visited coordinates away from kinks and bounds; return their number.

    ``found[2]`` receives the number of sweeps that cost as much as Newton steps: a sweep has two multiplications for each stored
    entry, the matrix of m features m/2 and its factors m³/6. BLAS takes a third of the time for those of dense features, and an
    eighth for factors of sparse ones, whose entries are read one by one.
    """
    m, stored = 0, 0.0
    for place in range(count):
        j = visited[place]
        if is_free(v[j], threshold[j], lower[j], upper[j]):
            free[m] = j
            m += 1
            stored += starts[j + 1] - starts[j] if starts.size > 0 else moved.size
    if m == 0:
        found[2] = np.inf
    elif starts.size > 0:
        found[2] = m / 4.0 + m * m * m / (96.0 * stored)
    else:
        found[2] = m / 12.0 + m * m / (36.0 * moved.size)
    return m


@lean_call
def _column_rounds(
    data, columns, starts, q, diagonal, slopes, v, moved, ridge, threshold, lower, upper, along_q, start, constant,
    goal, gap_goal, limit, sweeps, progress, most_free, known, known_at, blas,
):  # fmt: skip
    visited, found, history = borrowed(v.size, 0), borrowed(3, 0.0), borrowed((MEMORY + 1, v.size), 0.0)
    inverse, norms, free = borrowed(v.size, 0.0), borrowed(v.size, 0.0), borrowed(v.size, 0)
    for j in range(v.size):
        curvature = diagonal[j] + ridge[j]
        norms[j] = np.sqrt(diagonal[j] + ROUNDING * q[j] * q[j])
        visited[j], inverse[j] = j, 1.0 / curvature if curvature > 0.0 else 0.0
    _go(data, columns, starts, q, v, moved, along_q, visited, v.size, start)
    end = 0
    while True:
        count = _survey(
            data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, constant, known,
            known_at, progress, norms, visited, found,
        )  # fmt: skip
        end = 1 if found[0] <= goal or found[1] <= gap_goal else -1 if progress[4] >= IN_VAIN else 0
        if end != 0 or sweeps[0] >= limit:
            break
        m = _free(starts, v, moved, threshold, lower, upper, visited, count, free, found)
        if m <= most_free and progress[2] >= found[2]:
            _newton_steps(
                data, columns, starts, q, diagonal, slopes, v, moved, ridge, threshold, lower, upper, along_q, blas,
                free, m,
            )  # fmt: skip
            progress[4] = progress[4] + 1.0 if found[0] > 0.5 * progress[3] else 0.0
            progress[2], progress[3] = 0.0, least(progress[3], found[0])
            sweeps[0] += np.intp(found[2])
            continue
        last, inside, k = least(sweeps[0] + SWEEPS, limit), most(INSIDE * found[0], 0.5 * goal), 0
        while sweeps[0] < last:
            for place in range(count):
                history[k, place] = v[visited[place]]
            if k == MEMORY:
                _extrapolate(
                    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, visited,
                    count, history,
                )  # fmt: skip
                k = 0
                continue
            largest = _column_sweep(
                data, columns, starts, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q,
                visited, count,
            )  # fmt: skip
            sweeps[0] += 1
            progress[2] += 1.0
            k += 1
            if largest <= inside:
                break
    give_back(visited)
    give_back(inverse)
    give_back(norms)
    give_back(free)
    give_back(found)
    give_back(history)
    return end


column_rounds = Kernel(_column_rounds)
