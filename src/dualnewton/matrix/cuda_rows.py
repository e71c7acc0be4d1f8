"""Functions of a loss over all rows on a GPU, given margins or dual variables: one kernel each, instead of one per operation.

The functions have the names and the parameters of those in ``kernels/row_functions.py``, which are compiled for rows in memory,
and some further ones that are sums by NumPy there. Each block of threads has a range of rows; the sums of the blocks are added
in order, so that equal calls return equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix import cuda_source, cuda_translation, cuda_vectors
from dualnewton.matrix.cuda_library import (
    THREADS,
    cupy,
    kernel,
    limit,
    numbers,
    partial_sums,
    promised,
    ranges,
    sent,
    totals,
)
from dualnewton.matrix.protocol import RowVectors
from dualnewton.row_arrays import SHIFTS, RowArray

BLOCKS = 8
"""Largest number of blocks per multiprocessor."""


class Form(NamedTuple):
    """The C statements for one row, with its ``weight``; the number of its sums, where SHIFTS is that of the numbers ``way``; the
    translation of a loss that they use.
    """

    terms: str
    sums: int
    translated: Callable[[type], cuda_translation.Translation | None] | None = cuda_translation.translated


FORMS = {
    "losses_of": Form(
        "double v = z[i] + (o ? o[i] : 0.0); total[0] += weight * value(v, y[i], p);"
        "if (out) out[i] = at * slope(v, y[i], p);",
        1,
    ),
    "curvature_of": Form("out[i] = weight * bend(z[i] + (o ? o[i] : 0.0), y[i], p);", 0),
    "slope_of": Form("total[0] += weight * slope(z[i] + (o ? o[i] : 0.0) + at * way[i], y[i], p) * way[i];", 1),
    "intercept_slopes_of": Form(
        "double r = weight * slope(z[i] + at, y[i], p);"
        "total[0] += r; total[1] += weight * bend(z[i] + at, y[i], p); total[2] += fabs(r);",
        3,
    ),
    "shifted_slopes_of": Form(
        "for (int k = 0; k < SUMS; ++k) total[k] += weight * slope(z[i] + way[k], y[i], p);", SHIFTS
    ),
    "conjugates_of": Form(
        "if (weight > 0.0) total[0] += weight * conjugate(-z[i], y[i], p);", 1, cuda_translation.translated_conjugate
    ),
    "dual_terms_of": Form(
        "double a = weight * z[i]; total[0] += o ? a * o[i] : 0.0;"
        "if (weight > 0.0) total[1] += weight * conjugate(-z[i], y[i], p);"
        "total[2] += a * a; total[3] += a * z[i]; total[4] += a; total[5] += fabs(a);",
        6,
        cuda_translation.translated_conjugate,
    ),
    "dual_sizes_of": Form(
        "double a = weight * z[i]; total[0] += a * a; total[1] += a * z[i]; total[2] += a; total[3] += fabs(a);",
        4,
        None,
    ),
    "signed_sums_of": Form("total[0] += weight * fmax(z[i], 0.0); total[1] += weight * fmax(-z[i], 0.0);", 2, None),
    "active_of": Form("total[0] += z[i] != 0.0;", 1, None),
    "negative_of": Form("total[0] += z[i] < 0.0;", 1, None),
    "label_weights_of": Form("for (int k = 0; k < SUMS; ++k) total[k] += z[i] == way[k] ? weight : 0.0;", SHIFTS, None),
}
"""The functions of rows: z are margins; dual variables in those of the dual; any numbers, and labels, in the last two."""


@lru_cache(maxsize=256)
def row_function(name: str, loss: Any) -> Callable[..., tuple[float, ...]] | None:
    """Return a function of rows for a loss (None for those that need no loss); None if it has no translation.

    It takes margins or dual variables z and the vectors of the rows, and returns sums. An array that it writes to is ``slopes``
    or ``factors``, and one that it reads is ``kept``, as in ``matrix.sum_over_rows``; ``sign`` is the number that its
    description there names. If it does not wait for the GPU, it returns a function that does, and returns the sums.
    """
    if name in cuda_vectors.OF_VECTORS:
        return cuda_vectors.OF_VECTORS[name]
    form = FORMS.get(name)
    if form is None or (loss is not None and (loss.columns > 1 or loss.label_columns > 1)):
        return None
    translation = cuda_translation.Translation("", ())
    if form.translated is not None:
        found = form.translated(type(loss))
        if found is None:
            return None
        translation = found
    parameters = cuda_translation.parameters_of(loss, translation)
    source = translation.source + cuda_source.SUMMED + cuda_source.ROW_SUMS

    def function(
        z: RowArray,
        rows: RowVectors | tuple[Any, ...] = (),
        *,
        slopes: RowArray | None = None,
        factors: RowArray | None = None,
        kept: RowArray | None = None,
        sign: float = 1.0,
        waits: bool = True,
    ) -> Any:
        xp = cupy()
        n, gpu = len(z), xp.cuda.Device().id
        step, blocks = ranges(n, BLOCKS * limit(gpu, "MultiProcessorCount"), THREADS)
        y, c, o = rows or (None, None, None)
        margins, y, c, o, way = map(_kernel_argument, (z, y, c, o, kept))
        out = next((each for each in (slopes, factors) if each is not None), np.intp(0))
        count = form.sums if form.sums < SHIFTS or kept is None else kept.size
        sums = partial_sums(blocks * count) if count else np.intp(0)
        made = kernel("row_sums", source, SUMS=count, SIZE=max(1, count), TERMS=form.terms)
        arguments = margins, y, c, o, numbers(gpu, *parameters), way, np.float64(sign), out
        made((blocks,), (THREADS,), (*arguments, sums, np.int64(n), np.int64(step)))
        if not waits:
            return promised(sums, blocks, count)
        return tuple(totals(sums, blocks, count).tolist()) if count else ()

    return function


def _kernel_argument(values: Any) -> Any:
    """Return an argument of a kernel: a vector as float64, or the null pointer."""
    if values is None:
        return np.intp(0)
    return sent(values) if type(values) is np.ndarray else cupy().ascontiguousarray(values, dtype=np.float64)


def additions(n: int) -> int:
    """Return the additions through which a row enters a sum over n rows: those of its block, and those over the blocks."""
    step, blocks = ranges(n, BLOCKS * limit(cupy().cuda.Device().id, "MultiProcessorCount"), THREADS)
    return step + blocks
