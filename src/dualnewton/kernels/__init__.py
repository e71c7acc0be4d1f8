"""Compiled code: rows, block Newton, sweeps. Importing it loads Numba."""
