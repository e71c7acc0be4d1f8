"""The solvers that ``solve()`` drives."""

from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.ihs import IterativeHessianSketch
from dualnewton.solvers.dual.sdca import SDCA
from dualnewton.solvers.dual.sdna import SDNA

METHODS: dict[str, type[Solver]] = {"sdna": SDNA, "sdca": SDCA, "ihs": IterativeHessianSketch}

__all__ = ["METHODS", "SDCA", "SDNA", "IterativeHessianSketch", "Solver"]
