"""The exact dual step of one example for piecewise linear losses, given by their slopes and kinks: see ``Loss.pieces``.

On the piece between two neighbouring slopes, φ* is linear, and its slope is a kink k of φ. With v = −α and a curvature q, the
best v is where the margin u − q(v′ − v) reaches the kink, v′ = v + (u − k)/q, clipped to the piece; the pieces are in order, so
that the solution is on the last piece that v′ enters. This is the step of LIBLINEAR for the hinge, and soft-threshold and clip
for the ε-insensitive loss.

``at`` is the index of the example as a tuple. (Numba adds tuples, but does not unpack them into an index.)
"""

from __future__ import annotations

from dualnewton.kernels._jit import lean


@lean
def solve_piece(u, curvature, alpha, pieces, at):
    """Return the new dual variable of an example with margin u."""
    old, new = -alpha, pieces[at + (0,)]  # noqa: RUF005
    for p in range(1, pieces.shape[-1], 2):
        left, kink, right = pieces[at + (p - 1,)], pieces[at + (p,)], pieces[at + (p + 1,)]  # noqa: RUF005
        reach = u - kink + curvature * old
        if reach >= curvature * right:
            new = right
        elif reach > curvature * left:
            new = min(max(reach / curvature, left), right)
    return -new


@lean
def piece_residual(u, alpha, pieces, at):
    """φ(u) + φ*(−α) + αu ≥ 0, which is zero if and only if α is optimal for the margin u.

    Its weighted mean over all examples, at the margins of w(α), is the duality gap.
    """
    residual = 0.0
    for p in range(1, pieces.shape[-1], 2):
        left, kink, right = pieces[at + (p - 1,)], pieces[at + (p,)], pieces[at + (p + 1,)]  # noqa: RUF005
        here = min(max(-alpha, left), right)
        residual += ((right if u > kink else left) - here) * (u - kink)
    return residual


@lean
def step_piece(u, curvature, alpha, pieces, at):
    """Return the new dual variable of an example with margin u, and its residual before the step.

    Without a residual the dual variable stays as it is: most visits of a sweep over all examples end here.
    """
    residual = piece_residual(u, alpha, pieces, at)
    return (solve_piece(u, curvature, alpha, pieces, at) if residual != 0.0 else alpha), residual
