"""The solvers that ``solve()`` drives."""

from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.reference import SDCA, SDNA, IterativeHessianSketch

METHODS: dict[str, type[Solver]] = {"sdna": SDNA, "sdca": SDCA, "ihs": IterativeHessianSketch}

__all__ = ["METHODS", "SDCA", "SDNA", "IterativeHessianSketch", "Solver"]
