"""Methods 1, 2, 3 (NSync), proximal Method 1 and PCDM of Sections 2 and 3 of the paper: reference implementations in NumPy."""

from dualnewton.methods.composite import pcdm, prox_method1
from dualnewton.methods.functions import Composite, Quadratic, Smooth, dual_of
from dualnewton.methods.separable import Absolute, ConjugateLoss, Interval, Separable, Square, Zero
from dualnewton.methods.smooth import method1, method2, nsync

__all__ = [
    "Absolute",
    "Composite",
    "ConjugateLoss",
    "Interval",
    "Quadratic",
    "Separable",
    "Smooth",
    "Square",
    "Zero",
    "dual_of",
    "method1",
    "method2",
    "nsync",
    "pcdm",
    "prox_method1",
]
