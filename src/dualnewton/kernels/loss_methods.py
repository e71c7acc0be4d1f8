"""The methods of a loss in compiled code, which Numba finds by the type of its fields (``losses.fields_of``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dualnewton.kernels._jit import LEAN_ROWS, row_overloads, row_part
from dualnewton.kernels.elementary import vectorised
from dualnewton.kernels.losses import kind_of, of_library
from dualnewton.losses import base


@row_overloads
def loss_at(kind, p, q):
    """Return the fields of a loss: given as constants, or built from p and q."""
    if not isinstance(kind, types.NamedTupleClass):
        return lambda kind, p, q: kind  # noqa: ARG005
    if len(kind.instance_class._fields) == 1:
        return lambda kind, p, q: kind(p)  # noqa: ARG005
    return lambda kind, p, q: kind(p, q)


# Functions of one margin --------------------------------------------------------------------------------------------------------


def _of_one_margin(name: str) -> Any:
    @row_overloads
    def method(self, z, y):
        kind = kind_of(self)
        options = LEAN_ROWS if of_library(kind) else {}
        own = vectorised(getattr(kind, name), **options)
        if name == "domain":
            return row_part(lambda self, z, y: own(self, y), **options)  # noqa: ARG005
        return row_part(lambda self, z, y: own(self, z, y), **options)

    return method


value, derivative, second_derivative = map(_of_one_margin, ("value", "derivative", "second_derivative"))
conjugate_inside, domain = map(_of_one_margin, ("conjugate_inside", "domain"))
direction = vectorised(base.balancing_direction)


# Functions of K margins of each example of a block ------------------------------------------------------------------------------


def _of_columns(name: str) -> Any:
    @row_overloads
    def method(self, z, y, values, out):
        own = vectorised(getattr(kind_of(self), name))
        return lambda self, z, y, values, out: own(self, z, y, values, out)

    return method


BY_COLUMNS = {name: _of_columns(name) for name in base.BY_COLUMNS}
"""The functions of a loss that compiled passes call, by name."""


@row_overloads
def labels_of(self, y, first, m, K):
    """Return m labels in the form that the loss declares, given those of all rows as numbers of 8 bytes."""

    def numbers(self, y, first, m, K):
        return y[first : first + m]

    def classes(self, y, first, m, K):
        return y[first : first + m].view(np.int64)

    def vectors(self, y, first, m, K):
        found = np.empty((K, m))
        for i in range(m):
            for k in range(K):
                found[k, i] = y[(first + i) * K + k]
        return found

    return {base.LabelForm.NUMBER: numbers, base.LabelForm.CLASS: classes, base.LabelForm.VECTOR: vectors}[
        kind_of(self).label_form
    ]
