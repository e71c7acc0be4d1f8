"""Random adversarial problems whose rows are on a GPU; machines without one have nothing to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from campaign.fits import attempted
from campaign.problems import drawn
from dualnewton import DualnewtonError

LATE = 0.5
"""Seconds beyond a time limit that a fit may take: a step starts many kernels, and a kernel is compiled at its first use."""


def _moved(X: Any) -> Any:
    from dualnewton.matrix.cuda import as_cuda

    return as_cuda(X)


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "GPU": _moved,
    "GPU float32": _moved,
    "GPU CSR": lambda X: _moved(sp.csr_array(X)),
    "GPU CSR float32": lambda X: _moved(sp.csr_array(X)),
}


def case(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001
    """Try one random problem on the GPU."""
    from dualnewton.matrix.cuda_library import cupy

    try:
        cupy()
    except DualnewtonError:
        return Counter(["no GPU"])
    return attempted(drawn(seed, STORAGES), LATE)
