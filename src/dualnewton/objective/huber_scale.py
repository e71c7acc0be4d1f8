"""Huber regression with a jointly estimated scale σ of the residuals, and its joint certificate.

With h(t) = ½t² for |t| ≤ ε and ε(|t| − ε/2) otherwise, r_i = a_iᵀw + b − y_i and weights c_i, the problem is

    min_{w, b, σ≥0}  P(w, b, σ) = (1/n) Σ c_i (σ/2 + σ h(r_i/σ)) + (λ/2)‖w‖²,

which is jointly convex: σh(r/σ) = max {−αr − σα²/2 : |α| ≤ ε} is a perspective function, with the limit ε|r| for σ → 0. For
fixed α the objective is linear in σ, (σ/2n) Σ c_i (1 − α_i²), so that minimising over σ ≥ 0 gives a constraint in the dual:

    max_α  D(α) = (1/n) Σ c_i α_i y_i − (λ/2)‖ᾱ‖²,    ᾱ = (1/λn) Σ c_i α_i a_i,    |α_i| ≤ ε,   Σ c_i α_i² ≤ Σ c_i,

and Σ c_i α_i = 0 with an intercept. If λ = 0, the constraint Σ c_i α_i a_i = 0 replaces the term ‖ᾱ‖². For a fixed σ > 0 this
is the problem of :class:`losses.Huber` with targets y/σ and penalty λσ, with the model w/σ and the same dual point α. For σ = 0
it is the problem of the absolute error with penalty λ/ε and the dual point α/ε.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.losses import EpsilonInsensitive, Huber
from dualnewton.objective.around import AroundProblem
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.objective.scale_rounding import scale_bound
from dualnewton.objective.unpenalised import mean_weight, no_residual
from dualnewton.row_arrays import blocks, mapped, on_host
from dualnewton.validation import positive, vector

ROUNDING = 1e-12
"""Relative tolerance, for rounding, of the dual constraint Σ c_i α_i² ≤ Σ c_i."""

STEPS = 50
"""Maximum number of Newton steps (sets of outliers) when minimising over intercept and scale for given residuals."""

STATIONARY, CLOSE = 1e-12, 1e-7
"""A Newton step for intercept and scale ends the minimisation if it is at most the first multiple of the scale. One of at most
the second multiple changes P by rounding only, about its square, and is taken without comparing P, since the dual point has an
error of first order in the scale."""

CANCELLED = 1e-3
"""Smallest fraction of a sum of squares that may remain after subtraction; below it the remainder is rounding."""

ORTHOGONAL = 1e-11
"""Tolerance of the constraint Σ c_i α_i a_ij = 0 of a problem without penalty, as a fraction of Σ c_i |α_i a_ij|."""

INSIDE = 1e-6
"""Minimum distance from ±ε, as a fraction of ε, of the dual variables that the projection :meth:`_stationary` may change."""

WEAK = 1e-9
"""Penalty λ of the subproblems with fixed scale if λ = 0, as a fraction of the mean of c_i‖a_i‖²."""

SOME = 1 << 16
"""Number of rows, at least, whose median is the first intercept."""

MOST = 2000
"""Without a penalty, the largest d for which a dual point is made orthogonal to the features, by a d×d matrix."""

HALVINGS, DAMPINGS = 10, (0.0, 1e-6, 1e-3, 1.0)
"""Maximum number of trial lengths 1, ½, ¼, … of a step, and the multiples of the Hessian's diagonal that are added to it in
turn, since the Hessian is singular if there are too few inliers."""

VANISHING = 1e-4
"""A scale below this fraction of the spread of the targets is taken as a sign that the best scale is zero."""


class JointStep(NamedTuple):
    """The point after a Newton step in all variables."""

    w: np.ndarray
    intercept: float
    scale: float
    # A dual point for w, if P changed by rounding only: r_i/σ then has the rounding error of r_i divided by σ.
    alpha: np.ndarray | None
    shortened: bool  # whether the step was shorter than Newton's


@dataclass(frozen=True, eq=False)
class HuberScaleProblem(AroundProblem):
    """Huber regression with a joint scale: P, D and the certificate, as defined at the top of this module.

    The fields are those of :class:`Problem`, but λ may be zero.
    """

    X: Any
    y: Any
    # ε ≥ 1, the size in units of σ above which a residual is an outlier; for ε < 1 the best scale would always be zero.
    epsilon: float = 1.35
    lam: float = None  # type: ignore[assignment]
    sample_weight: Any = None
    fit_intercept: bool = False

    scheme: ClassVar[str] = "scale"

    def __post_init__(self) -> None:
        if positive("epsilon", self.epsilon) < 1.0:
            raise DualnewtonError(f"epsilon must be >= 1, got {self.epsilon!r}")
        lam = 1.0 / self.unit.n if self.lam is None else positive("lam", self.lam, or_zero=True)
        object.__setattr__(self, "lam", lam)

    @cached_property
    def unit(self) -> Problem:
        """The problem at σ = 1; if λ = 0, with the weak penalty ``WEAK``."""
        unit = Problem(
            self.X, self.y, Huber(self.epsilon), sample_weight=self.sample_weight, fit_intercept=self.fit_intercept
        )
        return replace(unit, X=unit.data, lam=self.lam or WEAK * (float((unit.c * unit.norms).mean()) or 1.0))

    @cached_property
    def zero(self) -> float:
        """The value up to which P counts as zero without a penalty, which a bound on rounding errors includes."""
        return -math.inf if self.lam > 0.0 else self.epsilon * mean_weight(self.unit) * no_residual(self.unit)

    def at(self, scale: float) -> Problem:
        """Return the problem at a fixed σ."""
        if scale > 0.0:
            return replace(self.unit, X=self.unit.data, y=self.unit.y / scale, lam=self.unit.lam * scale)
        return replace(self.unit, X=self.unit.data, loss=EpsilonInsensitive(0.0), lam=self.unit.lam / self.epsilon)

    def factors(self, scale: float) -> tuple[float, float]:
        """Return the factors that turn model and dual point of the problem at fixed σ into those of this problem."""
        return (scale, 1.0) if scale > 0.0 else (1.0, self.epsilon)

    def starting_pair(self, start: Any = None) -> CertifiedPair:
        """Certify the starting point of a run: an earlier result or, without one, w = 0 and the median of the targets."""
        if start is not None:
            intercept = start.intercept * self.fit_intercept  # of the earlier result, if this problem has one
            return self.certified_pair(start.w, intercept, start.scale or None, start.alpha)
        return self.certified_pair(np.zeros(self.d), self._median() if self.fit_intercept else 0.0)

    def _median(self) -> float:
        """Return the median of the targets of positive weight; of every k-th target if there are very many."""
        data, some = self.unit.data, slice(None, None, max(1, self.unit.n // SOME))
        y, c = data.entries(self.unit.y, some), data.entries(self.unit.c, some)
        return float(np.median(y[c > 0.0])) if (c > 0.0).any() else 0.0

    def primal(self, w: np.ndarray, intercept: float, scale: float) -> float:
        """P(w, b, σ), with the limit σ → 0 at σ = 0."""
        w = vector("w", w, self.unit.d)
        return self._primal_at(self.unit.margins(w, intercept) - self.unit.y, w, scale)

    def _primal_at(self, r: np.ndarray, w: np.ndarray, scale: float) -> float:
        return self._sums(r, 0.0, scale).primal(self, w)

    def dual(self, alpha: np.ndarray) -> float:
        """D(α), which is −∞ if α is infeasible."""
        alpha = vector("alpha", alpha, self.unit.n)
        return self._dual_at(alpha, self.unit.data.transposed_times(self.unit.weighted(alpha)))

    def _dual_at(self, alpha: np.ndarray, along: np.ndarray) -> float:
        """D(α), given Σ c_i α_i a_i."""
        unit = self.unit
        mass = unit.weighted(alpha)
        too_long = float(mass @ alpha) > (1.0 + ROUNDING) * unit.c.sum()
        if too_long or unit.dual_at(alpha, along / (unit.lam * unit.n)) == -math.inf:
            return -math.inf
        linear = float(mass @ unit.y) / unit.n
        if self.lam > 0.0:
            return linear - 0.5 * float(along @ along) / (self.lam * unit.n**2)
        allowed = ORTHOGONAL * unit.data.absolute_sums(np.abs(mass))
        return linear if np.all(np.abs(along) <= allowed) else -math.inf

    def rounding_of(self, pair: CertifiedPair) -> tuple[float | None, float]:
        return scale_bound(self, pair)

    def extended_pair(self, pair: CertifiedPair) -> CertifiedPair:
        from dualnewton.objective.extended import scale_pair  # rarely used

        return scale_pair(self, pair)

    def recomputed(self, pair: CertifiedPair) -> Certificate:
        """Return P(w, b, σ) and D(α) of a pair whose certificate must be recomputed, for example one from a file."""
        scale = positive("scale", np.nan if pair.scale is None else pair.scale, or_zero=True)
        return Certificate(
            self.primal(pair.w, self.unit.allowed_intercept(pair.intercept), scale), self.dual(pair.alpha)
        )

    def _feasible(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Clip α to [−ε, ε], make it balanced (orthogonal if λ = 0); return its best feasible multiple, and Σ c_i α_i a_i."""
        unit = self.unit
        alpha = unit.dual_near(np.where(unit.c > 0.0, alpha, 0.0))
        if self.lam == 0.0 and unit.d <= MOST:
            alpha = self._stationary(alpha, np.zeros(unit.d))
        along = unit.data.transposed_times(unit.weighted(alpha))
        if not alpha.any():
            return alpha, along
        # Rounding must not move the largest entry of the multiple beyond ε, where D = −∞; squares of α itself may underflow.
        largest = float(np.abs(alpha).max())
        widest = (1.0 - 4.0 * np.finfo(float).eps) * self.epsilon
        longest = min(math.sqrt(float(unit.c.sum() / (unit.c @ np.square(alpha / largest)))), widest) / largest
        linear = float(unit.c @ (alpha * unit.y)) / unit.n
        quadratic = self.lam * float(np.square(along / (unit.lam * unit.n)).sum())
        s = min(longest, max(linear, 0.0) / quadratic) if quadratic > 0.0 else longest * (linear > 0.0)
        return s * alpha, s * along

    def certified_pair(
        self, w: np.ndarray, intercept: float = 0.0, scale: float | None = None, alpha: np.ndarray | None = None
    ) -> CertifiedPair:
        """Certify a model, with the best intercept and scale for its residuals found from the given ones.

        At these, −α_i = r_i/σ clipped to ±ε is feasible and P − D = (λ/2)‖w − ᾱ‖².
        """
        unit = self.unit
        w, intercept = vector("w", w, unit.d), unit.allowed_intercept(intercept)
        r = unit.margins(w) - unit.y
        spread = math.sqrt(float(unit.c @ np.square(r + intercept) / unit.c.sum()))
        primal, b, sigma, lowest = self._settled(r, w, intercept, scale or 0.0)
        if not lowest:  # start again, since the iteration cannot leave σ = 0
            primal, b, sigma = min((primal, b, sigma), self._settled(r, w, intercept, spread)[:3])
        own = -np.clip((r + b) / sigma, -self.epsilon, self.epsilon) if sigma > 0.0 else -self.epsilon * np.sign(r + b)
        candidates = [self._feasible(unit.data.placed(point)) for point in (own, alpha) if point is not None]
        dual, best = max(((self._dual_at(*point), point[0]) for point in candidates), key=lambda found: found[0])
        if dual < 0.0:  # D(0) = 0, and rounding left no dual point that is orthogonal to the features
            dual, best = 0.0, unit.no_dual()
        return CertifiedPair(w, b, best, Certificate(primal, dual), float(sigma))

    def _settled(self, r: np.ndarray, w: np.ndarray, b: float, scale: float) -> tuple[float, float, float, bool]:
        """Minimise P over (b, σ) for residuals r without b; return (P, b, σ) and whether P has slope zero there, so that no other
        point is lower. Each Newton step is exact for its set of outliers.

        For a fixed set of outliers, Σ c_i α_i = 0 gives b = −m − σκ, where m is the mean of r over the inliers and κ = ε Σ c_i
        sign(r_i + b) over the outliers divided by the weight of the inliers, and Σ c_i α_i² = Σ c_i gives
        σ² = V/(Σ c_i − ε²·(weight of outliers) − κ²·(weight of inliers)), where V = Σ c_i (r_i − m)² over the inliers.
        """
        total, last = float(self.unit.c.sum()), math.inf
        at = self._sums(r, b, scale)
        if scale == 0.0:  # no step leaves it
            return at.primal(self, w), b, scale, False
        for _ in range(STEPS):
            middle = pull = 0.0
            if self.fit_intercept and at.weight > 0.0:
                middle, pull = at.first / at.weight, self.epsilon * at.signs / at.weight
            spread = at.second - at.weight * middle**2
            if spread < CANCELLED * at.second:
                spread = float(np.where(at.outside, 0.0, self.unit.c) @ np.square(r + b - middle))
            left = total - self.epsilon**2 * (total - at.weight) - at.weight * pull**2
            aim, move, length = 2.0 * scale, 0.0, math.inf  # with this many outliers P decreases as σ grows
            if left > 0.0 and at.weight > 0.0:
                aim = math.sqrt(spread / left)
                move = -middle - aim * pull if self.fit_intercept else 0.0
                length = max(abs(aim - scale), abs(move))
            close = length <= CLOSE * scale
            if close and (length <= STATIONARY * scale or length >= last):
                return at.primal(self, w), b, scale, True
            for t in 0.5 ** np.arange(HALVINGS):
                there, moved = b + t * move, scale + t * (aim - scale)
                if (found := self._sums(r, there, moved)).losses < at.losses or close:
                    break
            else:
                break
            b, scale, at, last = there, moved, found, length if close else math.inf
        return at.primal(self, w), b, scale, False

    def _sums(self, r: np.ndarray, b: float, scale: float) -> _Sums:
        """Return the losses of the residuals r + b at a scale, and the sums over their inliers, in one pass over blocks."""
        sums, outside = np.zeros(5), mapped(lambda r: np.abs(r + b) > self.epsilon * scale, r)
        for rows in blocks(r):
            z, c = r[rows] + b, self.unit.c[rows]
            size = np.abs(z)
            inliers = np.where(outside[rows], 0.0, c)
            slope = np.minimum(size, self.epsilon * scale) / scale if scale > 0.0 else self.epsilon
            inside = inliers * z
            terms = (
                c * (0.5 * scale + slope * (size - 0.5 * scale * slope)),
                inliers,
                inside,
                inside * z,
                (c - inliers) * np.sign(z),
            )
            sums += on_host(np.stack(terms).sum(axis=1))  # one reduction, which on a cluster takes a round trip
        return _Sums(outside, *sums.tolist())

    def stepped(self, w: np.ndarray, b: float, scale: float) -> JointStep | None:
        """Take a joint Newton step on P in (w, b, σ), halved until P decreases; return None if no step decreases P.

        With ψ_i = r_i/σ clipped to ±ε, the Hessian is (1/nσ) Σ_I c_i v_i v_iᵀ over the inliers I, where v_i = (ã_i, −ψ_i).
        """
        unit, d = self.unit, self.unit.d
        r = unit.margins(w, b) - unit.y
        psi = np.clip(r / scale, -self.epsilon, self.epsilon)
        inliers = np.where(np.abs(r) <= self.epsilon * scale, unit.c, 0.0)
        H = np.empty((self._width + 1, self._width + 1))
        H[:-1, :-1] = self._moments(inliers)
        H[-1, :-1] = H[:-1, -1] = -self._along(inliers * psi)
        H[-1, -1] = float(inliers @ np.square(psi))
        H /= scale
        H[np.arange(d), np.arange(d)] += self.lam * unit.n
        slope = np.append(self._along(unit.c * psi), 0.5 * float(unit.c @ (1.0 - np.square(psi))))
        slope[:d] += self.lam * unit.n * w
        here = self._primal_at(r, w, scale)
        noise = 1e-15 * here
        for damping in DAMPINGS:
            step = -_solved(H + np.diag(damping * np.diag(H)), slope)
            to_w, to_b, to_scale = step[:d], float(step[d]) if self.fit_intercept else 0.0, float(step[-1])
            to_r = unit.margins(to_w, to_b) - unit.o
            for t in 0.5 ** np.arange(HALVINGS):
                moved = scale + t * to_scale
                there = self._primal_at(r + t * to_r, w + t * to_w, moved) if moved > 0.0 else math.inf
                # At rounding level of P the full step is still taken, since it improves the dual point.
                if there < here - noise:
                    return JointStep(w + t * to_w, b + t * to_b, moved, None, t * (damping == 0.0) < 1.0)
                if t == 1.0 and damping == 0.0 and there <= here + noise:
                    psi = np.clip((r + to_r) / moved, -self.epsilon, self.epsilon)
                    alpha = self._stationary(-psi, self.lam * unit.n * (w + to_w))
                    return JointStep(w + to_w, b + to_b, moved, alpha, False)
        return None

    @property
    def _width(self) -> int:
        return self.unit.d + self.fit_intercept

    def _along(self, mass: np.ndarray) -> np.ndarray:
        """Σ mass_i ã_i, where ã_i is a_i, with an appended one for the intercept."""
        along = self.unit.data.transposed_times(mass)
        return np.append(along, float(mass.sum())) if self.fit_intercept else along

    def _moments(self, weights: np.ndarray) -> np.ndarray:
        """Σ weights_i ã_i ã_iᵀ."""
        return self.unit.data.weighted_gram(weights, intercept=self.fit_intercept)

    def _stationary(self, alpha: np.ndarray, sums: np.ndarray) -> np.ndarray:
        """Return a point near α with Σ c_i α_i a_i = sums, and balanced with an intercept, that differs on the inliers only."""
        unit, inside = self.unit, (np.abs(alpha) < (1.0 - INSIDE) * self.epsilon) * 1.0
        H = self._moments(unit.c * inside)
        wanted = np.append(sums, 0.0) if self.fit_intercept else sums
        for _ in range(3):  # repeated to remove the rounding errors of the first projection
            u = _solved(H, self._along(unit.c * alpha) - wanted)
            alpha = alpha - inside * (unit.data.times(u[: unit.d]) + u[unit.d :].sum())
        return alpha


class _Sums(NamedTuple):
    """Sums over examples with residuals z at a scale, and whether each is an outlier."""

    outside: np.ndarray
    losses: float
    weight: float  # Σ c over the inliers
    first: float  # Σ cz over the inliers
    second: float  # Σ cz² over the inliers
    signs: float  # Σ c sign z over the outliers

    def primal(self, problem: HuberScaleProblem, w: np.ndarray) -> float:
        """P."""
        value = self.losses / problem.unit.n + 0.5 * problem.lam * float(w @ w)
        return 0.0 if value <= problem.zero else value


def _solved(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return a solution of Hx = g for a positive semidefinite H, scaled to a unit diagonal for accuracy."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve, lstsq

    scale = 1.0 / np.sqrt(np.where(np.diag(H) > 0.0, np.diag(H), 1.0))
    scaled = H * np.outer(scale, scale)
    try:
        return np.asarray(scale * cho_solve(cho_factor(scaled, check_finite=False), scale * g, check_finite=False))
    except LinAlgError:
        return np.asarray(scale * lstsq(scaled, scale * g, cond=1e-13, check_finite=False)[0])
