"""What a pass computes from each block of rows, for certificates and for primal methods: losses, derivatives, dual points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.matrix import BlockLosses, RowForm, RowVectors
from dualnewton.objective import row_sums
from dualnewton.objective.groups import Group, columns_of, groups_of
from dualnewton.row_arrays import stacked

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

CHEAP = 1 << 20
"""Number of entries of X up to which Σ c_i a_i is a product of its own, for the few dual points that need balancing. Above, every
pass sums it as well, since another pass would take longer."""


def sum_columns(rows: RowVectors, columns: np.ndarray, *, thirds: bool) -> np.ndarray:
    """Return columns of some rows whose sums give ᾱ: c_i α_i, c_i d_i with the balancing direction d, and thirds of both.

    The thirds, which measure rounding errors, are included if g is not strongly convex. ``columns`` are α_i and d_i.
    """
    columns = rows.weighted(columns)
    if thirds and type(columns) is np.ndarray:  # contiguous columns, which are also faster to join
        return np.concatenate([columns.T, columns.T / 3.0]).T
    return np.concatenate([columns, columns / 3.0], axis=1) if thirds else columns


def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the columns of all parts, contiguous if they are in memory; a single part is not copied."""
    if len(parts) == 1:
        return parts[0]
    here = type(parts[0]) is np.ndarray
    return np.concatenate([part.T for part in parts]).T if here else np.concatenate(parts, axis=1)


class Derivatives:
    """The losses of several models, whose margins are adjacent columns, and their derivatives (see :class:`Target`).

    A target holds only the declared forms of its problems, since it is sent to the rows (on a cluster).
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.forms = [RowForm(problem.loss) for problem in problems]

    def losses(self, rows: Sequence[RowVectors], Z: np.ndarray) -> BlockLosses:
        """Return Σ c_i φ_i of each model and the derivatives c_i φ′_i."""
        values, R = np.empty(len(self.forms)), np.empty(Z.shape[::-1], like=Z).T  # contiguous columns
        for k, ((form, own), vectors) in enumerate(zip(columns_of(self.forms), rows, strict=True)):
            values[k], R[:, own] = row_sums.value_and_slopes(form.loss, Z[:, own], vectors)
        return BlockLosses(values, R)


class PrimalPoints:
    """The losses and dual points of several models on a block of rows (see :class:`Target`)."""

    def __init__(self, problems: Sequence[Problem], groups: Sequence[Group] | None = None, tol: float = 0.0) -> None:
        self.forms: list[RowForm] = []
        self.counts: list[int] = []
        self.kept = 0  # columns that a pass keeps
        for group in groups or groups_of(problems):
            form = _form_of(group.first, measured=group.M > 1 or tol == 0.0)
            self.forms += [form] * group.M
            self.counts.append(group.M)
            self.kept += group.M * _kept_columns(form)

    def losses(self, rows: Sequence[RowVectors], Z: np.ndarray) -> BlockLosses:
        """Return Σ c_i φ_i of each model, the weighted parts of its dual point, and the dual points, to be kept."""
        values, k, first, column = np.empty(len(self.forms)), 0, 0, 0
        if len(self.forms) == 1:
            form, (own,) = self.forms[0], rows
            values[0], alpha = _only_point(form, own, Z if form.loss.columns > 1 else Z[:, 0])
            plain = own.c is None and not form.thirds
            return BlockLosses(values, alpha if plain else sum_columns(own, alpha, thirds=form.thirds), alpha)
        kept = np.empty((self.kept, len(Z)), like=Z)  # contiguous columns
        for M in self.counts:
            form, K = self.forms[k], self.forms[k].loss.columns
            last = first + M * _kept_columns(form)
            if M == 1:
                values[k] = _point(
                    form, rows[k], Z[:, column if K == 1 else slice(column, column + K)], kept[first:last]
                )
            else:
                values[k : k + M] = _points(form, rows[k : k + M], Z[:, column : column + M], kept[first:last])
            k, first, column = k + M, last, column + M * K
        return BlockLosses(values, self._factors(rows, kept), kept.T)

    def _factors(self, rows: Sequence[RowVectors], kept: np.ndarray) -> np.ndarray:
        """Return the columns that are multiplied by Aᵀ: those that are kept, with weights, and their thirds."""
        factors, first, same = [], 0, True
        for form, own in zip(self.forms, rows, strict=True):
            last, same = first + _kept_columns(form), same and own.c is None and not form.thirds
            factors.append(kept[first:last].T if same else sum_columns(own, kept[first:last].T, thirds=form.thirds))
            first = last
        return kept.T if same else joined(factors)


def _only_point(form: RowForm, rows: RowVectors, margins: np.ndarray) -> tuple[float, np.ndarray]:
    """Return Σ c_i φ_i of one model, and the columns of its dual point and of the balancing direction."""
    if form.direction:
        kept = np.empty((_kept_columns(form), len(margins)), like=margins)
        return _point(form, rows, margins, kept), kept.T
    z = margins if rows.o is None else margins + rows.o
    value, slopes = form.loss.sum_and_derivative(z, rows.y, rows.c)
    return value, -slopes if form.loss.columns > 1 else -slopes[:, None]


def _point(form: RowForm, rows: RowVectors, margins: np.ndarray, kept: np.ndarray) -> float:
    """Return Σ c_i φ_i of one model; write the columns of its dual point, and of the balancing direction, to ``kept``."""
    z, K = margins if rows.o is None else margins + rows.o, form.loss.columns
    value, slopes = form.loss.sum_and_derivative(z, rows.y, rows.c)
    own = 0 if K == 1 else slice(0, K)
    np.negative(slopes.T, out=kept[own])
    if form.direction:
        kept[-K:] = form.loss.balancing_direction(kept[own].T, z, rows.y).T
    return value


def _points(form: RowForm, rows: Sequence[RowVectors], margins: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Do the same as :func:`_point` for the models of a group, with one row of arrays for each."""
    z, y = np.ascontiguousarray(margins.T), stacked([each.y for each in rows])
    value, slopes = form.loss.value_and_derivative(z, y)
    alpha = kept[:: 1 + form.direction]
    np.negative(slopes, out=alpha)
    if form.direction:
        kept[1::2] = form.loss.balancing_direction(alpha, z, y)
    return row_sums.over_rows(form.loss, value) if rows[0].c is None else value @ rows[0].c


def _kept_columns(form: RowForm) -> int:
    """Return the number of columns that a pass keeps of a model: its dual point, and the balancing direction, if it has one."""
    return int(form.loss.columns * (1 + form.direction))


def _form_of(problem: Problem, *, measured: bool) -> RowForm:
    """Return the outputs of a pass that certifies a primal point; with an intercept, most losses have a balancing direction.

    ``measured`` says that the pass must measure the rounding errors of ᾱ on small data, too.
    """
    direction, few = problem.fit_intercept and problem.loss.balances_by_direction, problem.n * problem.d <= CHEAP
    if direction and problem.loss.balances_by_mean and few:
        direction = False
    return RowForm(problem.loss, True, direction, needs_thirds(problem, measured=measured))


def needs_thirds(problem: Problem, *, measured: bool) -> bool:
    """Whether a pass sums thirds of a dual point: only for g that are not strongly convex, on small data only if ``measured``."""
    if problem.regularizer.strongly_convex:
        return False
    return measured or not (problem.n * problem.d <= CHEAP and problem.data.capabilities.local)
