"""The base class of losses with a kink, and the best intercept of those that are piecewise linear."""

from __future__ import annotations

import math
import operator
from functools import reduce
from typing import Any, ClassVar

import numpy as np

from dualnewton.losses.base import Loss
from dualnewton.losses.root import EXACT
from dualnewton.losses.rounding import Sizes
from dualnewton.row_arrays import SHIFTS, compiled_function, is_elsewhere, on_host, summed
from dualnewton.validation import Array

FEW_KINKS, NARROWED = 1 << 14, 15
"""Number of examples with a kink near the best intercept that are gathered and sorted, and the limit on how often an interval
around it is narrowed, each time to 1/17 of its length."""


class NonSmooth(Loss):
    """A loss with a kink, such as the hinge: convex, but 1/γ-smooth for no γ > 0.

    ``derivative`` returns any subgradient, ``second_derivative`` any number. Such a loss defines :meth:`smoothed`:
    :func:`dualnewton.solve` fits a sequence of smoothed losses, and the gap is certified for the loss itself. A piecewise linear
    loss also declares its :meth:`kinks`, so that dual rounds and ``method="interior"`` solve it without smoothing, and a fit
    with a quadratic penalty ends exactly at a solution.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> isinstance(losses.Hinge(), losses.NonSmooth), losses.Hinge().gamma
    (True, None)
    """

    kinked: ClassVar[bool] = True

    def value_change(self, sizes: Sizes, y: Array) -> float | None:
        """Bound the change of Σ c_i φ(z_i) by errors of the margins: |φ′| is at most the larger end of the domain of φ*.

        A loss with ``slope_limit`` needs no labels, and takes the method of the base class.
        """
        low, high = self.domain(y)
        steepest = max(float(np.max(-low)), float(np.max(high)))
        return steepest * math.sqrt(sizes.weight) * sizes.change if steepest < math.inf else None

    def best_intercept(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0) -> Any:
        """argmin_b Σ c_i φ(z_i + b); if it is an interval, the point of its middle half nearest to ``near``.

        The sum of a piecewise linear loss is piecewise linear in b, with kinks k_im − z_i: its slope is added up over the kinks
        in order until it is no longer negative. (A root search fails for a slope that jumps over zero.)
        """
        if self.pieces(y[:1]) is None:
            return super().best_intercept(margins, y, weights, near=near)
        c, reach = np.ones_like(margins) if weights is None else weights, max(1.0, float(np.abs(margins).max()))
        outside = 0.0
        # Rows on a cluster cannot be sorted, and running sums on a GPU differ between equal calls.
        if is_elsewhere(margins):
            margins, y, c, outside = self._undecided(margins, y, c, reach)
        kinks, (low, _) = self.kinks(y), self.domain(y)
        places = np.concatenate([kink.position - margins for kink in kinks])
        jumps = np.concatenate([c * (kink.right - kink.left) for kink in kinks])
        order = np.argsort(places, kind="stable")
        places, jumps = places[order], jumps[order]
        ends = np.concatenate([places[:1] - reach, places, places[-1:] + reach])
        # Between consecutive ends:
        slopes = outside + float(c @ low) + np.concatenate([0.0 * places[:1], np.cumsum(jumps)])
        flat = EXACT * len(slopes) * float(jumps.sum())
        first = min(int(np.count_nonzero(slopes < -flat)), len(slopes) - 1)
        if float(slopes[first]) > flat:
            return float(ends[first])
        start, end = float(ends[first]), float(ends[first + 1])
        quarter = 0.25 * (end - start)
        return float(np.clip(near, start + quarter, end - quarter))

    def _undecided(
        self, z: np.ndarray, y: np.ndarray, c: np.ndarray, reach: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """Return the examples whose kinks are near the best intercept (margins, labels, weights), and the slope of the others.

        An interval with all best intercepts is narrowed by the signs of the slope at some points in it until few examples have a
        kink inside. The slope of every other example is constant there.
        """
        kinks = self.kinks(y)
        places, jumps = [kink.position - z for kink in kinks], [float(c @ (kink.right - kink.left)) for kink in kinks]
        low, high = min(float(each.min()) for each in places) - reach, max(float(each.max()) for each in places) + reach
        level = EXACT * len(z) * sum(jumps)
        left, right = math.inf, -math.inf  # between which the slope is zero

        def inside() -> Any:
            return reduce(operator.or_, [(low <= each) & (each <= high) for each in places])

        for _ in range(NARROWED):
            if int(np.count_nonzero(inside())) <= FEW_KINKS:
                break
            sides = [(low, high)] if left > right else [(low, left), (right, high)]
            points = np.concatenate([np.linspace(*side, SHIFTS // len(sides) + 2)[1:-1] for side in sides])
            slopes = np.array([float(each) for each in summed(_shifted_slopes, z, y, c, self, tuple(points.tolist()))])
            below, above, flat = points[slopes < -level], points[slopes > level], points[np.abs(slopes) <= level]
            low, high = max([low, *below.tolist()]), min([high, *above.tolist()])
            left, right = min([left, *flat.tolist()]), max([right, *flat.tolist()])
        near = inside()
        outside = float((c * self.derivative(z + 0.5 * (low + high), y)) @ (1.0 - near))
        return on_host(z[near]), on_host(y[near]), on_host(c[near]), outside


def _shifted_slopes(
    z: np.ndarray, y: np.ndarray, c: np.ndarray, loss: Loss, shifts: tuple[float, ...]
) -> tuple[Any, ...]:
    """Σ c_i φ′(z_i + b) for each of ``SHIFTS`` numbers b."""
    if (function := compiled_function("shifted_slopes_of", loss, z)) is not None:
        return function(z, (y, c, None), kept=np.asarray(shifts, dtype=np.float64))
    return tuple(c @ loss.derivative(z + b, y) for b in shifts)
