"""Numbers that kernels share with the functions in NumPy that specify them; importing this module does not load Numba."""

NOTHING = 1e-3
"""Coordinate descent: fraction of the goal by which a coordinate must change its slope for its move to be made."""

LITTLE = 2e-15
"""Fraction of its diagonal that is added to the matrix of a Newton step, since that of constant features is rounding."""

CANCELLED = 16.0 * 2.0**-52
"""Allowance for the rounding errors of vᵀHv as a fraction of (Σ_j H_jj^½ |v_j|)², for H a sum of products of centred rows."""

MEMORY, SWEEPS, LIFT = 5, 25, 1e-10
"""Coordinate descent without a matrix: sweeps between two extrapolations, sweeps between two surveys of all coordinates at most,
and the fraction of its trace that is added to the diagonal of the matrix of an extrapolation."""

INSIDE = 0.2
"""Largest change of a slope by a sweep, as a fraction of the largest violation, at which all coordinates are surveyed again."""

STEPS, IN_VAIN = 20, 16
"""Newton steps with one matrix at most; and consecutive rounds of them that do not halve the largest violation, after which the
rest is rounding."""
