"""The solvers that ``solve()`` drives, by the names their users give them."""

from dualnewton.solvers.base import Solver
from dualnewton.solvers.ihs import IterativeHessianSketch
from dualnewton.solvers.sdca import SDCA
from dualnewton.solvers.sdna import SDNA

METHODS: dict[str, type[Solver]] = {"sdna": SDNA, "sdca": SDCA, "ihs": IterativeHessianSketch}

__all__ = ["METHODS", "SDCA", "SDNA", "IterativeHessianSketch", "Solver"]
