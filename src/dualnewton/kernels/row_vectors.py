"""Kernels over vectors with an entry per row, which read no data.

- ``over_rows(ends, counter, function, fields, columns, vectors, sign, values)`` calls a function of rows and sums its values for
  each part; threads take parts from the counter, as in ``passes``.
- ``dual_terms(n, step, block, counter, function, fields, vectors, sums)`` sums, over the rows of each part, what the function of
  conjugates returns for α (nothing if its address is zero), then cαo, (cα)², cα², cα and c|α|: block by block, so that a row
  enters a sum through few additions.
- ``places(chances, points, places)`` finds the rows at which points in the cumulative sum of the chances lie.
"""

from __future__ import annotations

from dualnewton.kernels._jit import lean, least, most
from dualnewton.kernels._memory import address, array_at, borrowed, give_back, view
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.row_functions import call
from dualnewton.kernels.team import TeamKernel
from dualnewton.kernels.vectors import pointer


@lean
def _over_rows(ends, counter, function, fields, columns, vectors, sign, values):
    """values[p] = what a function of rows returns for the rows of part p, given the addresses of its seven vectors.

    Those with several columns have as many entries in each as there are rows; those that are not wanted have a distance of 0.
    """
    n, longest = ends[-1], 0
    for part in range(ends.size - 1):
        longest = most(longest, ends[part + 1] - ends[part])
    # Memory of this thread for outputs that are not wanted: writes of all threads to one place would wait (false sharing). Each
    # output has its own, since LLVM's vectorised loops are left out where two outputs overlap.
    unwanted = borrowed((3, longest), 0.0)
    part = next_number(counter)
    while part < ends.size - 1:
        low, high = ends[part], ends[part + 1]
        a, b = vectors[:, 0], vectors[:, 1]
        values[part] = call(
            function,
            fields[0],
            fields[1],
            high - low,
            columns,
            n,
            n if b[4] > 0 else 0,
            n if b[6] > 0 else 0,
            a[0] + low * b[0],
            a[1] + low * b[1],
            a[2] + low * b[2],
            a[3] + low * b[3],
            a[4] + low * b[4] if b[4] > 0 else address(unwanted),
            a[5] + low * b[5] if b[5] > 0 else address(unwanted) + 8 * longest,
            a[6] + low * b[6] if b[6] > 0 else address(unwanted) + 16 * longest,
            sign,
        )
        part = next_number(counter)
    give_back(unwanted)


@lean
def _add_sizes(alpha, c, o, sums):
    linear = squares = weighted = total = absolute = 0.0
    for i in range(alpha.size):
        mass = c[i] * alpha[i]
        linear += mass * o[i]
        squares += mass * mass
        weighted += mass * alpha[i]
        total += mass
        absolute += abs(mass)
    sums[1] += linear
    sums[2] += squares
    sums[3] += weighted
    sums[4] += total
    sums[5] += absolute


@lean
def _dual_terms(n, step, block, counter, function, fields, vectors, sums):
    unwanted, part = borrowed(block, 0.0), next_number(counter)
    while part < sums.shape[0]:
        own = view(sums, part * sums.shape[1], sums.shape[1])
        for k in range(own.size):
            own[k] = 0.0
        for low in range(part * step, least(part * step + step, n), block):
            m = least(block, least(part * step + step, n) - low)
            a, b, there = vectors[:, 0], vectors[:, 1], address(unwanted)
            z, y, c, o = a[0] + low * b[0], a[1] + low * b[1], a[2] + low * b[2], a[3] + low * b[3]
            if function != 0:
                own[0] += call(function, fields[0], fields[1], m, 1, n, 0, 0, z, y, c, o, there, there, there, 1.0)
            _add_sizes(array_at(pointer(z), m), array_at(pointer(c), m), array_at(pointer(o), m), own)
        part = next_number(counter)
    give_back(unwanted)


@lean
def _places(chances, points, places):
    """places[s] = the first row up to which the chances add up to points[s]; the points increase."""
    total, s = 0.0, 0
    for i in range(chances.size):
        total += chances[i]
        while s < points.size and points[s] <= total:
            places[s] = i
            s += 1
    for left in range(s, points.size):  # the last sum may be less than the total by rounding
        places[left] = chances.size - 1


over_rows, dual_terms, places = TeamKernel(_over_rows), TeamKernel(_dual_terms), Kernel(_places)
