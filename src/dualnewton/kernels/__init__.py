"""Code compiled by Numba: access to rows, block Newton steps, sweeps. Importing a module other than ``constants`` loads Numba."""
