"""Random adversarial problems whose rows are on a GPU; machines without one have nothing to try.

Six of ten draws are refused there: dual methods and the interior-point method need the rows in memory, and some losses, penalties
and methods do not go together anywhere. A refusal is checked and counted, and the seed draws again until a problem is fitted.
"""

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

TURNS = 12
"""Most draws of one seed."""


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
    """Fit one random problem on the GPU."""
    from dualnewton.matrix.cuda_library import cupy

    try:
        cupy()
    except DualnewtonError:
        return Counter(["no GPU"])
    return fitted(seed, STORAGES)


def fitted(seed: int, storages: dict[str, Callable[[np.ndarray], Any]]) -> Counter[str]:
    """Fit the first problem of a seed that is not refused; count the refusals as well."""
    found: Counter[str] = Counter()
    for turn in range(TURNS):
        found += (last := attempted(drawn(seed, storages, turn=turn), LATE))
        if "refused" not in last:
            break
    return found
