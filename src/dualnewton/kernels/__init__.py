"""Code compiled by Numba: access to rows, block Newton steps, sweeps. Importing a module of this package loads Numba."""
