"""The identities tested by ``losses.check`` for a loss of several columns, at random rows of margins of several scales."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from dualnewton._identities import ROUNDING, STEP, UnusableError, broken, call, failures, report
from dualnewton.losses.base import Curvature, Loss

ROWS = 200
"""Number of rows of margins that are tested."""

SCALES = (1e-6, 1e-2, 1.0, 5.0, 40.0)
"""Standard deviations of the tested margins: from nearly equal probabilities to probabilities close to zero and one."""


def check_columns(loss: Loss) -> None:
    """Raise a ``DualnewtonError`` that names each identity which ``loss`` breaks; see :func:`dualnewton.losses.check`."""
    report(loss, failures(_shapes, loss))
    report(loss, (words for identity in _IDENTITIES for words in failures(identity, _Rows(loss))))


class _Rows:
    """The margins, labels and directions at which a loss is tested, and the function values there."""

    def __init__(self, loss: Loss) -> None:
        rng = np.random.default_rng(0)
        self.loss, K = loss, loss.columns
        self.y = loss.labels(_labels(loss), ROWS)
        self.z = rng.choice(SCALES, (ROWS, 1)) * rng.standard_normal((ROWS, K))
        self.way = rng.standard_normal((ROWS, K))
        self.value, self.slope = call(loss, "value_and_derivative", self.z, self.y)
        self.conjugate = call(loss, "conjugate", self.slope, self.y)
        self.size = np.abs(self.z).max(axis=1)

    def at(self, method: str, step: float) -> np.ndarray:
        """Apply a method to the margins moved by ``step`` along the directions."""
        return np.asarray(call(self.loss, method, self.z + step * self.way, self.y))


def _labels(loss: Loss) -> np.ndarray:
    """Return labels that are equal for rows a multiple of K apart: class numbers, or K targets for each row."""
    number = np.arange(ROWS) % loss.columns
    return number if loss.label_columns == 1 else np.cos(number[:, None] + 3.0 * np.arange(loss.label_columns))


def _has_couplings(loss: Loss) -> bool:
    return loss.curvature is not Curvature.CONSTANT


def _shapes(loss: Loss) -> Iterator[str]:
    """For K margins, a loss returns one value, K slopes, K curvatures and, where these vary, K(K − 1)/2 couplings."""
    rows = _Rows(loss)
    one, each, pairs = (ROWS,), (ROWS, loss.columns), (ROWS, loss.columns * (loss.columns - 1) // 2)
    wanted = {"value": one, "derivative": each, "second_derivative": each}
    if _has_couplings(loss):
        wanted["couplings"] = pairs
    for method, shape in wanted.items():
        seen = np.asarray(call(loss, method, rows.z, rows.y))
        if seen.shape != shape or not np.isfinite(seen).all():
            raise UnusableError(f"must return finite numbers of shape {shape} from {method}, got shape {seen.shape}")
    if loss.gamma is not None and not 0.0 < loss.gamma < np.inf:
        yield f"has gamma={loss.gamma!r}: give the largest finite gamma > 0 known for which the loss is 1/gamma-smooth, or None"


def _fenchel_young(rows: _Rows) -> Iterator[str]:
    """φ(z) + φ*(u) ≥ ⟨z, u⟩ for every pair of rows with equal labels, with equality at u = φ′(z)."""
    K = rows.loss.columns
    for shift in range(0, ROWS // 2, K):  # rows this far apart have the same label
        u, conjugate = rows.slope[: ROWS - shift], rows.conjugate[: ROWS - shift]
        z, value = rows.z[shift:], rows.value[shift:]
        total, product = value + conjugate, (z * u).sum(axis=1)
        allowed = ROUNDING * (1.0 + np.abs(value) + np.abs(conjugate) + np.abs(z * u).sum(axis=1))
        defect = np.abs(product - total) if shift == 0 else product - total
        for k in broken(defect, allowed, rows.size[shift:]):
            seen = f"value+conjugate is {total[k]:.8g} and <z, u> is {product[k]:.8g}"
            yield f"breaks Fenchel–Young: at z={z[k].tolist()}, u={u[k].tolist()} {seen}"
            return


def _derivative_is_slope_of_value(rows: _Rows) -> Iterator[str]:
    """The slope of a secant lies between the derivatives at its ends."""
    low, high = rows.at("value", -STEP), rows.at("value", STEP)
    secant = (high - low) / (2.0 * STEP)
    slopes = np.sort([(rows.at("derivative", s) * rows.way).sum(axis=1) for s in (-STEP, 0.0, STEP)], axis=0)
    outside = np.maximum(slopes[0] - secant, secant - slopes[-1])
    for k in broken(outside, ROUNDING * (1.0 + np.abs(rows.value) + rows.size) / STEP, rows.size):
        seen = f"value climbs by {secant[k]:.8g} but derivative by {slopes[1][k]:.8g}"
        yield f"has a derivative that is not the slope of value: around z={rows.z[k].tolist()} {seen}"


def _curvature_is_slope_of_derivative(rows: _Rows) -> Iterator[str]:
    """Hessian-vector product, diagonal and couplings describe the same Hessian, whose eigenvalues are at most 1/γ."""
    loss, K = rows.loss, rows.loss.columns
    along = np.asarray(call(loss, "curvature_times", rows.z, rows.y, rows.way))
    climbs = (rows.at("derivative", STEP) - rows.at("derivative", -STEP)) / (2.0 * STEP)
    off = np.abs(climbs - along).max(axis=1)
    for k in broken(off, 1e-6, rows.size):
        yield f"has a curvature_times that is not the slope of derivative: wrong by {off[k]:.3g} at z={rows.z[k].tolist()}"
    if _has_couplings(loss):
        yield from _couplings_give_the_hessian(rows, along)
    diagonal = np.asarray(call(loss, "second_derivative", rows.z, rows.y))
    for column in range(K):
        unit = np.zeros(rows.z.shape)
        unit[:, column] = 1.0
        own = np.asarray(call(loss, "curvature_times", rows.z, rows.y, unit))[:, column]
        for k in broken(np.abs(own - diagonal[:, column]), ROUNDING, rows.size):
            yield f"has a second_derivative that is not the diagonal of its Hessian: at z={rows.z[k].tolist()}"
    if loss.gamma is not None:
        steep = (along * rows.way).sum(axis=1) - np.square(rows.way).sum(axis=1) / loss.gamma
        for k in broken(steep, ROUNDING * np.square(rows.way).sum(axis=1), rows.size):
            yield f"is not 1/gamma-smooth with gamma={loss.gamma:g}: at z={rows.z[k].tolist()}"


def _couplings_give_the_hessian(rows: _Rows, along: np.ndarray) -> Iterator[str]:
    """Σ q_kl (e_k − e_l)(e_k − e_l)ᵀ t is the Hessian times t."""
    couplings, by_pairs = np.asarray(call(rows.loss, "couplings", rows.z, rows.y)), np.zeros(rows.z.shape)
    for q, (one, other) in zip(couplings.T, combinations(range(rows.loss.columns), 2), strict=True):
        apart = q * (rows.way[:, one] - rows.way[:, other])
        by_pairs[:, one] += apart
        by_pairs[:, other] -= apart
    for k in broken(np.abs(by_pairs - along).max(axis=1), ROUNDING, rows.size):
        yield f"has couplings that do not give the Hessian of curvature_times: at z={rows.z[k].tolist()}"


def _dual_points_are_feasible(rows: _Rows) -> Iterator[str]:
    """``nearest_dual`` returns feasible points; ``balanced`` of a feasible point is feasible and satisfies Σ c_i α_i = 0."""
    loss, c = rows.loss, np.linspace(0.5, 2.0, ROWS)
    near = np.asarray(call(loss, "nearest_dual", rows.z, rows.y))
    balanced = np.asarray(call(loss, "balanced", near, rows.y, c))
    for name, alpha in (("nearest_dual", near), ("balanced", balanced)):
        for k in broken(~np.isfinite(loss.conjugate(-alpha, rows.y)) * 1.0, 0.0, rows.size):
            yield f"has a {name} that leaves the domain of the conjugate: {alpha[k].tolist()}, y={rows.y[k]}"
    for k in broken(np.abs(c @ balanced), ROUNDING * (c @ np.abs(balanced)), np.ones(loss.columns)):
        yield f"has a balanced(alpha, y, c) with sum c_i alpha_i = {(c @ balanced)[k]:.3g} in column {k[0]}, which must be 0"


def _the_intercept_is_best(rows: _Rows) -> Iterator[str]:
    """At the best intercept the derivatives of the examples sum to zero."""
    b = call(rows.loss, "best_intercept", rows.z, rows.y, np.ones(ROWS))
    slopes = rows.loss.derivative(rows.z + b, rows.y)
    for k in broken(np.abs(slopes.sum(axis=0)), 1e-10 * np.abs(slopes).sum(axis=0), np.ones(rows.loss.columns)):
        yield f"has a best_intercept where the derivatives of column {k[0]} sum to {slopes.sum(axis=0)[k]:.3g}, which must be 0"


def _conjugates_along_a_ray(rows: _Rows) -> Iterator[str]:
    """``conjugates_along`` equals Σ φ*(−sα) computed by ``conjugates``."""
    alpha = -rows.slope
    along = rows.loss.conjugates_along(alpha, rows.y, None, at_one=rows.loss.conjugates(alpha, rows.y, None))
    for s in (1.0, 0.9, 0.3, 1e-3):
        expected = rows.loss.conjugates(s * alpha, rows.y, None)
        if not abs(along(s) - expected) <= 1e-10 * ROWS:
            yield f"has a conjugates_along that differs from conjugates: at s={s:g} it is {along(s):.8g}, not {expected:.8g}"


_IDENTITIES = (
    _fenchel_young,
    _derivative_is_slope_of_value,
    _curvature_is_slope_of_derivative,
    _dual_points_are_feasible,
    _the_intercept_is_best,
    _conjugates_along_a_ray,
)
