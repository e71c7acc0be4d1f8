"""Functions of a loss over all rows, given margins or dual variables: compiled and in threads for many rows, else by NumPy.

They do not read X, but on one thread they would take longer than passes on many threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualnewton.losses import Loss
from dualnewton.losses.root import zero_of
from dualnewton.matrix import RowVectors, dual_sums, row_parts, sum_over_rows
from dualnewton.matrix.selections import pieces_of
from dualnewton.row_arrays import (
    BLOCK,
    SHIFTS,
    SUMMED,
    RowArray,
    blocks,
    column_sums,
    compiled_function,
    is_elsewhere,
    mapped,
    on_host,
    product,
    summed,
    totals,
)
from dualnewton.validation import frozen

MANY = 1 << 16
"""Number of rows from which the functions are compiled."""

MOST_LABELS = 32
"""Largest number of distinct labels for which examples with equal margins are summed per label."""


def _compiled(name: str, loss: Any, rows: RowArray, many: bool) -> Callable[..., tuple[float, ...]] | None:
    """Return a compiled function of rows, which returns its sums over them; None if NumPy's expressions compute it.

    ``many`` is True if the number of all rows, not only of this block, is large enough for compiled functions in memory.
    """
    if is_elsewhere(rows):
        return compiled_function(name, loss, rows)
    if not many:
        return None
    function = _row_function(name, loss)
    return None if function is None else lambda z, rows, **rest: (sum_over_rows(function, loss, z, rows, **rest),)


def _row_function(name: str, loss: Any) -> Any:
    """Return a ``RowFunction`` of a loss for rows in memory; None if it cannot be compiled."""
    from dualnewton.kernels import row_functions

    return getattr(row_functions, name)(loss)


def _is_long(alpha: np.ndarray) -> bool:
    """Whether kernels sum over this dual point of one column: it is long, and in memory."""
    return type(alpha) is np.ndarray and alpha.ndim == 1 and len(alpha) >= MANY


def value_and_slopes(loss: Loss, z: np.ndarray, rows: RowVectors) -> tuple[float, np.ndarray]:
    """Σ c_i φ(z_i + o_i; y_i) and c_i φ′_i of a block of rows."""
    z = z if rows.o is None else z + rows.o
    if type(loss).sum_and_derivative is not Loss.sum_and_derivative:
        total, slopes = loss.sum_and_derivative(z, rows.y, rows.c)
    else:  # by itself: calls dominate the time of each step of a small fit
        value, slopes = loss.value_and_derivative(z, rows.y)
        total = float(value.sum(dtype=np.float64) if rows.c is None else rows.c @ value)
    return total, slopes if rows.c is None else rows.weighted(slopes)


def checked_labels(loss: Loss, y: Any, n: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray] | None]:
    """Return the labels, checked and in the type that the loss takes, and the distinct ones with their counts if these are known.

    Where many rows have a few labels only these are checked, since reading all of a million takes a millisecond each time.
    """
    plain = type(y) is np.ndarray and y.dtype == np.float64 and y.shape == (n,) and n >= MANY
    if plain and type(loss).labels is Loss.labels and (found := label_weights(y, None, loss.columns)) is not None:
        kinds = found[0]
        if np.isfinite(kinds).all() and loss.valid_labels(kinds).all():
            return frozen(y), found
    return loss.labels(y, n), None


def label_weights(y: np.ndarray, c: np.ndarray | None, columns: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the distinct labels with the sums of their weights, if a sample of rows has only a few."""
    kinds = np.unique(on_host(y[: 2 * MOST_LABELS]))
    if y.ndim > 1 or len(kinds) > MOST_LABELS or len(kinds) < max(2, columns):
        return None
    counts = _label_weights(y, None, kinds)
    if counts.sum() != len(y):
        return None
    return kinds, counts if c is None else _label_weights(y, c, kinds)


def _label_weights(y: np.ndarray, c: np.ndarray | None, kinds: np.ndarray) -> np.ndarray:
    """Return the sum of the weights of each of these labels."""
    function = compiled_function("label_weights_of", None, y) if len(kinds) <= SHIFTS else None
    if function is not None:
        return np.array(function(y, (None, c, None), kept=kinds))
    if c is None and type(y) is np.ndarray and len(y) >= MANY:
        counts = [[np.count_nonzero(y[part] == kind) for kind in kinds] for part in pieces_of(len(y))]
        return np.array(counts, dtype=np.float64).sum(axis=0)
    own = [y == kind for kind in kinds]
    return np.array([float(np.count_nonzero(rows) if c is None else c @ rows) for rows in own], dtype=np.float64)


def sizes_at_zero(loss: Loss, y: np.ndarray, c: np.ndarray | None, nothing: np.ndarray) -> float:
    """Σ c_i |φ(0; y_i)|, at zero margins."""
    many = len(y) >= (MANY if loss.columns == 1 else BLOCK // loss.columns)
    if many and (kinds := label_weights(y, c, loss.columns)) is not None:
        y, c = kinds
        nothing = np.zeros((len(y), *nothing.shape[1:]))
    sizes = np.abs(loss.value_at_zero(y, nothing))
    return float(sizes.sum() if c is None else c @ sizes)


def values(loss: Loss, z: np.ndarray, rows: RowVectors) -> float:
    """Σ c_i φ(z_i + o_i; y_i)."""
    return float(summed(_values, z, *rows, loss, len(z) >= MANY)[0])


def _values(z: np.ndarray, y: np.ndarray, c: Any, o: Any, loss: Loss, many: bool) -> tuple[float, ...]:
    rows = RowVectors(y, c, o)
    if (function := _compiled("losses_of", loss, z, many)) is not None:
        return function(z, rows)
    if c is None and type(z) is np.ndarray and z.size <= BLOCK:  # calls dominate the time of small fits
        return (float(loss.value(rows.shifted(z), y).sum()),)
    total = 0.0
    for part in blocks(z, loss.columns):
        own = rows.part(part)
        value = loss.value(own.shifted(z[part]), own.y)
        total += float(value.sum() if own.c is None else own.c @ value)
    return (total,)


class DualSizes(NamedTuple):
    """Sums over rows of a dual point."""

    # Σ c_i² ‖α_i‖² and Σ c_i ‖α_i‖², of shape (M,) for M problems.
    squares: Any
    weighted: Any
    # Σ c_i α_ik and Σ c_i |α_ik|, of shape (K,) for K > 1 columns or (M,); None if they were not asked for.
    sums: Any = None
    absolute: Any = None

    def times(self, factor: Any) -> DualSizes:
        """Return the sums of the point multiplied by a number, or by one for each problem, up to rounding.

        The bounds on rounding errors allow for some more roundings than those of the sums themselves.
        """
        square, (squares, weighted, sums, absolute) = factor * factor, self
        if sums is None:
            return DualSizes(square * squares, square * weighted)
        return DualSizes(square * squares, square * weighted, factor * sums, factor * absolute)


class DualTerms(NamedTuple):
    """Sums over rows that make up the dual value, and bound its rounding errors."""

    sizes: DualSizes  # sums over the dual point itself
    linear: float  # Σ c_i α_i o_i
    conjugates: Any  # Σ c_i φ*(−α_i; y_i), of shape (M,) for M problems


def dual_terms(
    loss: Loss, alpha: np.ndarray, rows: RowVectors, *, masses: bool, sizes: DualSizes | None = None
) -> DualTerms:
    """Return the sums of D(α); Σ c_i α_i and Σ c_i |α_i| only if ``masses``. ``sizes`` are those of α, if they are known.

    For several problems of one column, α and the labels have a row for each, and so have the sums (:func:`split`).
    """
    many, here = len(alpha) >= MANY, type(alpha) is np.ndarray
    if sizes is None and here and not (many and alpha.ndim == 1):  # else one kernel computes all sums
        sizes = dual_sizes(loss, alpha, rows, masses=masses)
    if here and sizes and rows.o is None and not many and alpha.ndim == (1 if loss.columns == 1 else 2):  # small fits
        return DualTerms(sizes, 0.0, float(loss.conjugates(alpha, rows.y, rows.c)))
    linear, conjugates, *found = summed(_dual_terms, alpha, *rows, loss, many, masses, sizes is None)
    return DualTerms(sizes or _sizes(alpha, *found), linear, conjugates)


def _dual_terms(
    alpha: np.ndarray, y: np.ndarray, c: Any, o: Any, loss: Loss, many: bool, masses: bool, sizes: bool
) -> tuple[Any, ...]:
    if (function := compiled_function("dual_terms_of", loss, alpha)) is not None:
        linear, conjugates, *found = function(alpha, RowVectors(y, c, o))
        return linear, _proved(conjugates), *(found[: 4 if masses else 2] if sizes else ())
    if _is_long(alpha) and (function := _row_function("conjugates_of", loss)) is not None:
        conjugates, linear, *found = dual_sums(function, loss, alpha, RowVectors(y, c, o))
        return linear, _proved(conjugates), *(found[: 4 if masses else 2] if sizes else ())
    linear = 0.0 if o is None else float(np.vdot(RowVectors(y, c, o).weighted(alpha), o))
    (conjugates,) = _conjugates(alpha, y, c, o, loss, many)
    return linear, conjugates, *(_dual_sizes(alpha, y, c, o, loss, masses) if sizes else ())


def split(terms: DualTerms) -> list[DualTerms]:
    """Return the sums of each of several problems without offsets."""
    sizes = [each.tolist() for each in terms.sizes if each is not None]
    return [
        DualTerms(DualSizes(*own), terms.linear, conjugates)
        for *own, conjugates in zip(*sizes, terms.conjugates.tolist(), strict=True)
    ]


def dual_sizes(loss: Loss, alpha: np.ndarray, rows: RowVectors, *, masses: bool) -> DualSizes:
    """Return the sums over a dual point; those of single columns only if ``masses``."""
    here = masses and rows.c is None and type(alpha) is np.ndarray
    if here and (alpha.size < MANY if alpha.ndim == 1 else loss.columns > 1):  # small fits
        square: Any = product(alpha, alpha)
        if alpha.ndim > 1:
            return DualSizes(square, square, totals(alpha), totals(np.abs(alpha)))
        if len(alpha) >= 2 * SUMMED:
            return _sizes(alpha, square, square, totals(alpha), totals(np.abs(alpha)))
        square = float(square)
        return DualSizes(square, square, float(np.add.reduce(alpha)), float(np.add.reduce(np.abs(alpha))))
    return _sizes(alpha, *summed(_dual_sizes, alpha, *rows, loss, masses))


def _sizes(alpha: np.ndarray, squares: Any, weighted: Any, *columns: Any) -> DualSizes:
    if alpha.ndim == 1:
        return DualSizes(float(squares), float(weighted), *map(float, columns))
    if type(alpha) is np.ndarray:
        return DualSizes(squares, weighted, *columns)
    return DualSizes(on_host(squares), on_host(weighted), *map(on_host, columns))


def _dual_sizes(alpha: np.ndarray, y: np.ndarray, c: Any, o: Any, loss: Loss, masses: bool) -> tuple[Any, ...]:
    if alpha.ndim == 1 and (function := compiled_function("dual_sizes_of", None, alpha)) is not None:
        return function(alpha, RowVectors(y, c, o))[: None if masses else 2]
    if _is_long(alpha):
        return dual_sums(None, loss, alpha, RowVectors(y, c, o))[2 : 6 if masses else 4]
    if alpha.ndim == 2 and loss.columns == 1:  # several problems
        mass = alpha if c is None else c * alpha
        squares = np.einsum("ki,ki->k", mass, mass)
        weighted = squares if c is None else np.einsum("ki,ki->k", alpha, mass)
        if not masses:
            return squares, weighted
        if alpha.shape[1] >= 2 * SUMMED:
            return squares, weighted, totals(mass.T), totals(np.abs(mass).T)
        return squares, weighted, mass.sum(axis=1), np.abs(mass).sum(axis=1)
    mass = alpha if c is None else RowVectors(y, c, o).weighted(alpha)
    squares = product(mass, mass)
    weighted = squares if c is None else product(alpha, mass)
    if not masses:
        return squares, weighted
    return squares, weighted, totals(mass), totals(np.abs(mass))


def over_rows(loss: Loss, values: np.ndarray) -> Any:
    """Return the sum over the rows of each column, or of each row of an array with a row for each of several problems."""
    return values.sum(axis=-1) if loss.columns == 1 else column_sums(values)


def conjugates(loss: Loss, alpha: np.ndarray, rows: RowVectors) -> float:
    """Σ c_i φ*(−α_i; y_i)."""
    return float(summed(_conjugates, alpha, *rows, loss, len(alpha) >= MANY)[0])


def _conjugates(alpha: np.ndarray, y: np.ndarray, c: Any, o: Any, loss: Loss, many: bool) -> tuple[Any]:
    if alpha.ndim == 2 and loss.columns == 1:  # several problems
        found = loss.conjugate(-alpha, y)
        totals = over_rows(loss, found if c is None else c * np.where(c > 0.0, found, 0.0))
        return (np.where(np.isnan(totals), np.inf, totals),)
    if not many and type(alpha) is np.ndarray:
        return (loss.conjugates(alpha, y, c),)
    if (function := _compiled("conjugates_of", loss, alpha, many)) is not None:
        return (_proved(*function(alpha, RowVectors(y, c, o))),)
    return (loss.conjugates(alpha, y, c),)


def _proved(conjugates: float) -> float:
    """Return a sum of conjugates; ∞ where it is not a number, which proves nothing."""
    return math.inf if math.isnan(conjugates) else conjugates


def conjugates_along(loss: Loss, alpha: np.ndarray, rows: RowVectors, at_one: float) -> Callable[[float], float]:
    """Return s ↦ Σ c_i φ*(−sα_i; y_i) for s ∈ (0, 1], given its value at s = 1."""
    if type(loss).conjugates_along is not Loss.conjugates_along:
        return loss.conjugates_along(alpha, rows.y, rows.c, at_one=at_one)
    return lambda s: conjugates(loss, s * alpha, rows)


def curvature(loss: Loss, z: np.ndarray, rows: RowVectors) -> np.ndarray:
    """c_i φ″(z_i + o_i; y_i) of all rows; for several columns, the diagonals."""
    if z.size <= BLOCK and type(z) is np.ndarray:
        return rows.weighted(loss.second_derivative(z if rows.o is None else z + rows.o, rows.y))
    if (function := _compiled("curvature_of", loss, z, len(z) >= MANY)) is not None:
        found = np.empty(z.shape[::-1], like=z)
        function(z, rows, factors=found)
        return found.T
    return rows.weighted(mapped(loss.second_derivative, rows.shifted(z), rows.y, columns=loss.columns))


def curvature_at(loss: Loss, z: np.ndarray, rows: RowVectors) -> Callable[[np.ndarray], np.ndarray]:
    """Return t ↦ c_i φ″(z_i + o_i; y_i) t_i, for t in the shape of the margins."""
    times = loss.curvature_at(z if rows.o is None else z + rows.o, rows.y)
    return times if rows.c is None else lambda t: rows.weighted(times(t))


def couplings(loss: Loss, z: np.ndarray, rows: RowVectors) -> np.ndarray:
    """c_i q_kl(z_i + o_i; y_i) of all rows, one column for each pair of classes: see ``Loss.couplings``."""
    if (function := _compiled("couplings_of", loss, z, len(z) >= MANY)) is not None:
        found = np.empty((loss.columns * (loss.columns - 1) // 2, len(z)))
        function(z, rows, factors=found)
        return found.T
    return rows.weighted(loss.couplings(rows.shifted(z), rows.y))


def dual_point(loss: Loss, z: np.ndarray, rows: RowVectors) -> np.ndarray:
    """−φ′(z_i + o_i; y_i) of all rows."""
    if (function := _compiled("losses_of", loss, z, len(z) >= MANY)) is not None:
        found = np.empty(z.shape[::-1], like=z)
        function(z, rows, slopes=found, sign=-1.0)
        return found.T
    return mapped(lambda z, y: -loss.derivative(z, y), rows.shifted(z), rows.y, columns=loss.columns)


def slope_along(loss: Loss, z: np.ndarray, way: np.ndarray, t: float, rows: RowVectors) -> float:
    """Σ c_i φ′(z_i + t·way_i + o_i; y_i) way_i."""
    return float(summed(_slope_along, z, way, *rows, loss, t, len(z) >= MANY)[0])


def _slope_along(
    z: np.ndarray, way: np.ndarray, y: np.ndarray, c: Any, o: Any, loss: Loss, t: float, many: bool
) -> tuple[float, ...]:
    rows = RowVectors(y, c, o)
    if (function := _compiled("slope_of", loss, z, many)) is not None:
        return function(z, rows, kept=np.ascontiguousarray(way, like=way), sign=t)
    total = 0.0
    for part in blocks(z):
        own = rows.part(part)
        slopes = loss.derivative(own.shifted(z[part] + t * way[part]), own.y)
        total += float(np.vdot(own.weighted(slopes), way[part]))
    return (total,)


def best_intercept(loss: Loss, z: np.ndarray, rows: RowVectors, near: Any) -> Any:
    """argmin_b Σ c_i φ(z_i + b; y_i): see ``Loss.best_intercept``."""
    function = None if is_elsewhere(z) else _compiled("intercept_slopes_of", loss, z, len(z) >= MANY)
    if function is None:
        return loss.best_intercept(z, rows.y, rows.c, near=near)
    own, starts, sums = rows._replace(o=None), row_parts(len(z))[:-1], np.empty(len(z))

    def slope(b: float) -> tuple[float, float, float]:
        # The sums of a part are stored starting at the index of its first row.
        function(z, own, kept=sums, sign=b)
        value, curvature, terms = (float(sums[starts + place].sum()) for place in range(3))
        return value, curvature, terms

    return zero_of(slope, near, reach=lambda: max(1.0, float(z.max()), -float(z.min())))


class LabelSums(NamedTuple):
    """Sums over rows that depend on labels, weights and offsets alone, for bounds on rounding errors."""

    # Σ c_i, Σ c_i² and max c_i.
    weight: float
    squared_weight: float
    heaviest: float
    # Σ c_i ‖y_i‖² and, over the rows of positive weight, Σ ‖y_i‖² of the numbers that the loss computes from the labels
    # (``Loss.label_sizes``).
    labels: float
    own: float
    # Σ c_i |φ_i(0)|, and an upper bound on −Σ c_i min φ_i.
    at_zero: float
    below: float
    offsets: float  # Σ ‖o_i‖²


def label_sums(loss: Loss, rows: RowVectors) -> LabelSums:
    """Return the sums over labels, weights and offsets."""
    y = rows.y
    if rows.c is rows.o is None and type(y) is np.ndarray and len(y) <= BLOCK:  # small fits
        n, own = float(len(y)), loss.label_sizes(y)
        square = float(product(own, own))
        if (at_zero := loss.sizes_at_zero(n, square)) is not None:
            return LabelSums(n, n, 1.0, square, square, at_zero, loss.shortfall(y, None), 0.0)
    heaviest = 1.0 if rows.c is None else float(rows.c.max())
    weight, squared, *others = map(float, summed(_label_sums, *rows, loss))
    return LabelSums(weight, squared, heaviest, *others)


def _label_sums(y: np.ndarray, c: Any, o: Any, loss: Loss) -> tuple[Any, ...]:
    n, own = len(y), loss.label_sizes(y)
    square, below, offsets = product(own, own), loss.shortfall(y, c), 0.0 if o is None else product(o, o)
    weight: Any = n
    squares, labels = weight, square
    if c is not None:
        rows = RowVectors(y, c, o)
        weight, squares, labels = c.sum(), c @ c, product(own, rows.weighted(own))
        square = product(own, rows._replace(c=c > 0.0).weighted(own))
    if (at_zero := loss.sizes_at_zero(float(weight), float(labels))) is None:
        at_zero = sizes_at_zero(loss, y, c, np.zeros(n if loss.columns == 1 else (n, loss.columns), like=y))
    return weight, squares, labels, square, at_zero, below, offsets


def label_sums_of_each(loss: Loss, Y: np.ndarray, c: np.ndarray | None = None) -> list[LabelSums]:
    """Return the sums over the labels of several problems without offsets, one row of labels for each."""
    if c is not None:
        return [label_sums(loss, RowVectors(y, c)) for y in Y]
    n, own = float(Y.shape[1]), loss.label_sizes(Y)
    squares = np.einsum("ki,ki->k", own, own).tolist()
    at_zero = [loss.sizes_at_zero(n, square) for square in squares]
    if None in at_zero:
        at_zero = over_rows(loss, np.abs(loss.value(np.zeros(Y.shape), Y))).tolist()
    each = zip(Y, squares, at_zero, strict=True)
    return [LabelSums(n, n, 1.0, square, square, size or 0.0, loss.shortfall(y, None), 0.0) for y, square, size in each]
