"""Newton's method on sparse rows with few features: Hessians are summed over the pairs of stored entries of each row."""

from __future__ import annotations

from functools import partial

from dualnewton.solvers.direct import newton

solve = partial(newton.solve, as_stored=True)
