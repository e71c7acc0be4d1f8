"""Dual methods (SDNA, SDCA, iterative Hessian sketch): rounds over random sets of examples."""
