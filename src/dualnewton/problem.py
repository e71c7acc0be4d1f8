"""What is to be solved, and the only judge of a solution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from dualnewton._examples import Examples, best_factor
from dualnewton._root import zero_of
from dualnewton._validate import finite, frozen, vector
from dualnewton.certificate import Certificate, CertifiedPair
from dualnewton.errors import DualnewtonError
from dualnewton.losses import Loss
from dualnewton.regularizers import L2, Regularizer

_FAR = 1e-2
"""The relative gap beyond which a shorter dual point is worth the search for it."""

_BLOCK = 1 << 13
"""Numbers that the functions of a loss are asked for at once: larger temporaries would be mapped anew for every one of them."""

_ROOM = 8.0
"""Times what rounding was seen to add: sums in another order round otherwise."""

_FEASIBLE = 1e-12
"""Σ c_i α_i counts as zero below this fraction of Σ c_i |α_i|: what rounding leaves of an exact balance."""


@dataclass(frozen=True, eq=False)
class Problem(Examples):
    """A regularised empirical risk, its dual, and the certificate that connects them.

    The two problems of Section 4 of the paper, with weights c, offsets o and an unpenalised intercept b added, are

        min_{w, b}  P(w, b) = (1/n) Σ c_i φ(a_iᵀw + b + o_i; y_i) + λ g(w)
        max_α       D(α)    = (1/n) Σ c_i (−φ*(−α_i; y_i) − o_i α_i) − λ g*(ᾱ),    ᾱ = (1/λn) Σ c_i α_i a_i

    where Σ c_i α_i = 0 is asked for exactly when there is an intercept. At the optimum w = ∇g*(ᾱ) and α_i = −φ′(z_i).
    Where g is not strongly convex (the Lasso), ᾱ has to lie where g* is finite, and w ∈ ∂g*(ᾱ).

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        One example a_i per row; float32 and float64 are kept as they are, CSR and C order are not copied.
    y : array of shape (n,)
        The labels; what is allowed is the loss's to say.
    loss : Loss
        φ.
    regularizer : Regularizer
        g; ½‖w‖² by default.
    lam : float
        λ > 0; 1/n by default.
    sample_weight : array of shape (n,), optional
        c ≥ 0, not all zero. A weight of two equals a repeated row, but for the factor 1/n.
    offset : array of shape (n,), optional
        o, added to the margins.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    """

    X: Any
    y: Any
    loss: Loss
    _: KW_ONLY
    regularizer: Regularizer = L2()  # noqa: RUF009 (frozen, so sharing it is safe)
    lam: float = None  # type: ignore[assignment]
    sample_weight: Any = None
    offset: Any = None
    fit_intercept: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.loss, Loss):
            raise DualnewtonError(
                f"loss must be an instance of losses.Loss, such as losses.Logistic(), got {self.loss!r}"
            )
        if not isinstance(self.regularizer, Regularizer):
            raise DualnewtonError(
                f"regularizer must be a regularizers.Regularizer, such as regularizers.L2(), got {self.regularizer!r}"
            )
        n, d = self.n, self.d
        y = vector("y", self.y, n)
        if not (valid := self.loss.valid_labels(y)).all():
            at = int(np.argmin(valid))
            raise DualnewtonError(
                f"y must hold {self.loss.label_domain} for {type(self.loss).__name__}, got {y[at]:g} at index {at}"
            )
        if self.regularizer.size not in (None, d):
            raise DualnewtonError(f"regularizer is made for {self.regularizer.size} features, X has {d}")
        offset = None if self.offset is None else vector("offset", self.offset, n)
        self._settle(n, y=y, offset=offset)

    def __repr__(self) -> str:
        return self._described(f"loss={self.loss!r}, regularizer={self.regularizer!r}")

    # The data --------------------------------------------------------------------------------------------------------

    @cached_property
    def o(self) -> np.ndarray:
        """The offsets as a vector, zeros by default."""
        return frozen(np.zeros(self.n)) if self.offset is None else self.offset

    # The two objectives ----------------------------------------------------------------------------------------------

    def margins(self, w: np.ndarray, intercept: float = 0.0) -> np.ndarray:
        """z_i = a_iᵀw + b + o_i."""
        return self.data.times(w) + (self.o + intercept)

    def primal(self, w: np.ndarray, intercept: float = 0.0) -> float:
        """P(w, b)."""
        w = vector("w", w, self.d)
        return self.primal_at(self.margins(w, intercept), w)

    def dual(self, alpha: np.ndarray) -> float:
        """D(α), which is −∞ where α is infeasible."""
        alpha = vector("alpha", alpha, self.n)
        return self.dual_at(alpha, self.alpha_bar(alpha))

    def dual_at(self, alpha: np.ndarray, alpha_bar: np.ndarray) -> float:
        """D(α), given ᾱ."""
        mass = self.weighted(alpha)
        if self.fit_intercept and abs(mass.sum()) > _FEASIBLE * np.abs(mass).sum():
            return -np.inf
        total = 0.0 if self.offset is None else float(mass @ self.offset)
        for rows in blocks(self.n):
            conjugate = self.loss.conjugate(-alpha[rows], self.y[rows])
            if self.sample_weight is not None:
                # A row of weight zero does not take part, whatever its dual variable.
                c = self.sample_weight[rows]
                conjugate = c * np.where(c > 0.0, conjugate, 0.0)
            total += float(conjugate.sum())
        return float(-total / self.n - self.lam * self.regularizer.conjugate(alpha_bar))

    def weighted(self, values: np.ndarray) -> np.ndarray:
        """c_i times the values."""
        return values if self.sample_weight is None else self.sample_weight * values

    def alpha_bar(self, alpha: np.ndarray) -> np.ndarray:
        """ᾱ = (1/λn) Σ c_i α_i a_i."""
        return self.data.transposed_times(self.weighted(alpha)) / (self.lam * self.n)

    # Block by block, for methods that pass over the data -----------------------------------------------------------------

    def row_losses(self, rows: slice, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return Σ c_i φ_i and c_i φ′_i over a block of rows with margins z = a_iᵀw + b, to which the offsets are added here."""
        z = z if self.offset is None else z + self.offset[rows]
        value, slopes = self.loss.value_and_derivative(z, self.y[rows])
        if self.sample_weight is None:
            return float(value.sum()), slopes
        return float(self.sample_weight[rows] @ value), self.sample_weight[rows] * slopes

    def row_curvature(self, z: np.ndarray) -> np.ndarray:
        """c_i φ″_i of all rows with margins z = a_iᵀw + b."""
        weights = np.empty(self.n)
        for rows in blocks(self.n):
            at = z[rows] if self.offset is None else z[rows] + self.offset[rows]
            weights[rows] = self.loss.second_derivative(at, self.y[rows])
        return weights if self.sample_weight is None else weights * self.sample_weight

    # From one to the other -------------------------------------------------------------------------------------------

    def w_of(self, alpha: np.ndarray) -> np.ndarray:
        """Return w = ∇g*(ᾱ), the primal point of a dual one."""
        return self.regularizer.grad_conjugate(self.alpha_bar(vector("alpha", alpha, self.n)))

    def alpha_of(self, w: np.ndarray) -> np.ndarray:
        """α_i = −φ′(z_i), the dual point of a primal one; with an intercept, at the best one and balanced."""
        margins = self.margins(vector("w", w, self.d))
        return self.alpha_at(margins + self.best_intercept_at(margins))

    def no_dual(self) -> np.ndarray:
        """α = 0, where every dual method may start."""
        return np.zeros(self.n)

    def dual_near(self, alpha: np.ndarray) -> np.ndarray:
        """Return a feasible dual point near α, to start from."""
        low, high = self.loss.domain(self.y)
        return self.within_reach(self.balanced(-np.clip(-vector("warm_start", alpha, self.n), low, high)))

    def balanced(self, alpha: np.ndarray) -> np.ndarray:
        """Make Σ c_i α_i = 0 where an intercept asks for it, by shrinking the heavier sign towards zero.

        −α_i stays in the domain of φ*, which is convex and holds 0 for every loss that is bounded below.
        """
        if not self.fit_intercept:
            return alpha
        up, down = self.c @ np.maximum(alpha, 0.0), self.c @ np.maximum(-alpha, 0.0)
        keep = min(up, down)
        shrink_up = keep / up if up > 0.0 else 0.0
        shrink_down = keep / down if down > 0.0 else 0.0
        return np.where(alpha > 0.0, shrink_up, shrink_down) * alpha

    def within_reach(self, alpha: np.ndarray) -> np.ndarray:
        """Shorten α until g*(ᾱ) is finite, which it is everywhere but for a g that is not strongly convex (the Lasso).

        0 lies in the domains of φ* and g*, which are convex, so that a shorter point is as feasible as a longer one.
        """
        if self.regularizer.strongly_convex:
            return alpha
        factor = self.regularizer.reach(self.alpha_bar(alpha))
        if factor == 1.0:
            return alpha
        # Where λ is small, sums that almost cancel are divided by it: what rounding adds to ᾱ is seen, and made room for.
        excess = 1.0 - self.regularizer.reach(self.alpha_bar(factor * alpha))
        return factor * (1.0 - _ROOM * excess) * alpha

    def best_intercept(self, w: np.ndarray) -> float:
        """argmin_b P(w, b), zero without an intercept; there Σ c_i φ′(z_i) = 0, which makes α_i = −φ′(z_i) feasible."""
        return self.best_intercept_at(self.margins(vector("w", w, self.d)))

    # The judge -------------------------------------------------------------------------------------------------------

    def certify(self, w: np.ndarray, intercept: float | None = None, alpha: np.ndarray | None = None) -> Certificate:
        """Prove how good (w, b) is, from scratch and in float64, whoever made it.

        Parameters
        ----------
        w : array of shape (d,)
            The model.
        intercept : float, optional
            b; where there is an intercept and none is given, the best one for this w.
        alpha : array of shape (n,), optional
            A dual point to try beside α_i = −φ′(z_i), balanced first where there is an intercept; the largest dual value
            is taken, since each is a proof. Far from the optimum, where −φ′ overshoots, sα for the best s ∈ [0, 1] is
            tried too.
        """
        return self.certified_pair(w, intercept, alpha).certificate

    def certified_pair(
        self, w: np.ndarray, intercept: float | None = None, alpha: np.ndarray | None = None
    ) -> CertifiedPair:
        """Do what :meth:`certify` does, and return the model and the dual point that prove it beside the certificate."""
        w = vector("w", w, self.d)
        margins = self.margins(w)
        near = 0.0 if intercept is None else finite("intercept", intercept)
        best = self.best_intercept_at(margins, near)
        b = best if intercept is None else near
        if b != 0.0 and not self.fit_intercept:
            raise DualnewtonError(f"intercept must be 0 in a problem with fit_intercept=False, got {b!r}")
        candidates = [self.alpha_at(margins + best)]
        if alpha is not None:
            candidates.append(self.within_reach(self.balanced(vector("alpha", alpha, self.n))))
        primal = self.primal_at(margins + b, w)
        dual, best_alpha = max(((self.dual(a), a) for a in candidates), key=itemgetter(0))
        if primal - dual > _FAR * abs(primal):
            dual, best_alpha = max((dual, best_alpha), self._shrunk(best_alpha), key=itemgetter(0))
        return CertifiedPair(w, b, best_alpha, Certificate(primal, dual))

    def _shrunk(self, alpha: np.ndarray) -> tuple[float, np.ndarray]:
        """Maximise the concave D(sα) over s ∈ (0, 1], without another pass over the data; α = 0 is feasible, so sα is."""
        alpha_bar = self.alpha_bar(alpha)
        shorter = best_factor(lambda s: -self.dual_at(s * alpha, s * alpha_bar)) * alpha
        return self.dual(shorter), shorter

    def primal_at(self, margins: np.ndarray, w: np.ndarray) -> float:
        """P(w), given the margins."""
        total = 0.0
        for rows in blocks(self.n):
            value = self.loss.value(margins[rows], self.y[rows])
            total += float(value.sum() if self.sample_weight is None else self.sample_weight[rows] @ value)
        return total / self.n + self.lam * self.regularizer.value(w)

    def alpha_at(self, margins: np.ndarray) -> np.ndarray:
        """α_i = −φ′(z_i), balanced and within reach."""
        alpha = np.empty(self.n)
        for rows in blocks(self.n):
            np.negative(self.loss.derivative(margins[rows], self.y[rows]), out=alpha[rows])
        return self.within_reach(self.balanced(alpha))

    def best_intercept_at(self, margins: np.ndarray, near: float = 0.0) -> float:
        """Find the zero of the nondecreasing slope Σ c_i φ′(z_i + b), searched for from a guess; zero without an intercept."""
        if not self.fit_intercept:
            return 0.0

        def slope(b: float) -> tuple[float, float, float]:
            value = curvature = terms = 0.0
            for rows in blocks(self.n):
                first, second = self.loss.derivatives(margins[rows] + b, self.y[rows])
                if self.sample_weight is not None:
                    first, second = self.sample_weight[rows] * first, self.sample_weight[rows] * second
                value, curvature, terms = value + first.sum(), curvature + second.sum(), terms + np.abs(first).sum()
            return float(value), float(curvature), float(terms)

        return zero_of(slope, near, reach=max(1.0, float(np.abs(margins).max())))


def blocks(n: int) -> Iterator[slice]:
    """Cut n rows into blocks on which the functions of a loss are fast."""
    for start in range(0, n, _BLOCK):
        yield slice(start, min(start + _BLOCK, n))
