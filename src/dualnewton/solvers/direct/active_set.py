"""A quadratic model with thresholds, minimised: the inner problem of the direct solvers with kinked penalties.

    f(v) = ½ vᵀHv − qᵀv + Σ_j ½ ridge_j v_j² + threshold_j |v_j|,      and v ≥ 0 where ``low`` is −∞

1. The primal-dual active set method determines the signs of all coordinates by one step of coordinate descent, in all coordinates
   at once, and solves a linear system for the coordinates that are not zero. From a good start it ends after a few systems,
   whatever the size, but it may cycle where features are correlated. A singular system (one-hot features with an intercept) ends
   the method: it has no solution with these signs, or many, of which rounding errors would give a huge one.

2. Then, for few coordinates, single coordinates become zero or nonzero one after the other, each time with a linear system for
the others (feature-sign search, Lee, Battle, Raina and Ng 2007): f decreases at every step. A coordinate on which the nonzero
ones depend replaces one of them, so that no system is singular.

3. Else proximal point steps, v ← argmin f + ½ Σ κ_j (v_j − center_j)², converge for any H. Each is solved in the slopes
η = Hp − q by semismooth Newton steps with a line search:

    ψ(p) = ½ pᵀHp + ½ Σ (ridge_j + κ_j) v_j²,       v_j = soft(κ_j center_j − η_j, threshold_j)/(ridge_j + κ_j)

is convex in Hp and least where Hp = Hv. κ falls from step to step, so that few are needed (Li, Sun and Toh 2018), as long as
the Newton steps of a proximal step end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

LIFT = 1e-13
"""Fraction of the largest diagonal entry that is added to a matrix which is singular to rounding, 100 times more at each try."""

ROUNDING = 1e-15
"""Relative change of f or ψ that counts as rounding."""

FIRST, FALL, LAST = 1e-2, 0.1, 1e-9
"""κ_j/H_jj of the first proximal step, the factor by which it falls from step to step, and where it stops falling."""

MOST_PROXIMAL, MOST_NEWTON, HALVINGS = 40, 40, 30
"""Proximal steps, Newton steps of each, and halvings of a Newton step, at most."""

SINGULAR = 1e-10
"""Pivot of a Cholesky factorisation, as a fraction of the diagonal entry, up to which a matrix counts as singular."""

SHARPER = 0.1
"""Error up to which a proximal step is solved, as a fraction of the change that it makes."""


MOST_SETS = 8
"""Active set steps at most; where the method converges at all, it mostly needs fewer."""


MOST_EXCHANGES, RIGHT = 4, 1e-9
"""Systems that exchanges of single coordinates may take for each coordinate, and the slope beyond the threshold, as a fraction of
it, that counts as rounding."""


class Kinks(NamedTuple):
    """The penalty of some coordinates: a coordinate is zero if its slope is between −high and −low.

    ``high`` is the threshold; ``low`` is −high, or −∞ where coordinates must not be negative.
    """

    ridge: np.ndarray
    low: np.ndarray
    high: np.ndarray

    def only(self, some: np.ndarray) -> Kinks:
        """Return the part of some coordinates."""
        return Kinks(self.ridge[some], self.low[some], self.high[some])

    def times(self, factor: float) -> Kinks:
        """Return the penalty times a factor."""
        return Kinks(factor * self.ridge, factor * self.low, factor * self.high)

    def shrunk(self, u: np.ndarray) -> np.ndarray:
        """Return by how much u lies outside the thresholds, with signs; for u = −slopes, the violations of zero coordinates."""
        return u - np.minimum(np.maximum(u, self.low), self.high)

    def nearest(self, v: np.ndarray) -> np.ndarray:
        """Return v, with zeros where it is negative and must not be."""
        return np.where(self.low == -np.inf, np.maximum(v, 0.0), v)

    def value(self, v: np.ndarray) -> float:
        """Return the penalty of a point, ∞ for one that has a negative coordinate where there must be none."""
        if self.low.size and self.low.item(0) == -np.inf and v.min() < 0.0:
            return np.inf
        return float(np.abs(v).dot(self.high)) + 0.5 * float((v * v).dot(self.ridge))


class Gram(Protocol):
    """H = AᵀA of some features."""

    diagonal: np.ndarray
    rank: int  # or more
    forms_rows: bool  # whether rows of H are cheap

    def times(self, x: np.ndarray) -> np.ndarray:
        """Return Hx."""

    def rows(self, free: np.ndarray) -> np.ndarray:
        """Return rows of H."""

    def correction(self, free: np.ndarray, total: np.ndarray, e: np.ndarray, He: np.ndarray) -> np.ndarray:
        """Return −(H_ff + T)⁻¹(He)_f for the diagonal matrix T of the totals of the free coordinates."""


class Matrix:
    """H as a matrix."""

    forms_rows = True

    def __init__(self, H: np.ndarray, rank: int) -> None:
        self.H, self.diagonal, self.rank = H, H.diagonal(), rank

    def times(self, x: np.ndarray) -> np.ndarray:
        return x.dot(self.H)

    def rows(self, free: np.ndarray) -> np.ndarray:
        return self.H.take(free, axis=0)

    def correction(self, free: np.ndarray, total: np.ndarray, e: np.ndarray, He: np.ndarray) -> np.ndarray:  # noqa: ARG002
        M = self.H.take(free, axis=0).take(free, axis=1)
        M.reshape(-1)[:: len(free) + 1] += total
        return solution(M, -He[free])


class Columns:
    """H = AᵀA by the columns of A, which are more than its rows."""

    forms_rows = False

    def __init__(self, A: np.ndarray) -> None:
        self.A, self.diagonal, self.rank = A, np.einsum("ij,ij->j", A, A), len(A)

    def times(self, x: np.ndarray) -> np.ndarray:
        return (self.A @ x) @ self.A

    def rows(self, free: np.ndarray) -> np.ndarray:
        return self.A.take(free, axis=1).T @ self.A

    def correction(self, free: np.ndarray, total: np.ndarray, e: np.ndarray, He: np.ndarray) -> np.ndarray:
        roots = 1.0 / np.sqrt(total)
        B = self.A.take(free, axis=1) * roots
        few = B.shape[1] <= B.shape[0]
        M = B.T @ B if few else B @ B.T
        M.reshape(-1)[:: len(M) + 1] += 1.0
        return roots * (solution(M, -roots * He[free]) if few else -solution(M, self.A @ e) @ B)


def solution(M: np.ndarray, right: np.ndarray) -> np.ndarray:
    """M⁻¹ right for a positive semidefinite matrix in C order, which is overwritten; a singular one gets a larger diagonal."""
    lift, solve = 0.0, _posv()
    while len(M):
        _, x, failed = solve(M.T, right)
        if not failed:
            return np.asarray(x)
        lift = lifted(M, lift)
    return right


@cache
def _posv() -> Any:
    """Return LAPACK's function, imported on first use: SciPy's own wrapper takes longer than a small system."""
    from scipy.linalg.lapack import dposv

    return dposv


@cache
def _potrs() -> Any:
    """Return LAPACK's solution by a factor."""
    from scipy.linalg.lapack import dpotrs

    return dpotrs


@cache
def _pstrf() -> Any:
    """Return LAPACK's Cholesky factorisation with pivots."""
    from scipy.linalg.lapack import dpstrf

    return dpstrf


def _without(free: np.ndarray, places: Any, v: np.ndarray) -> np.ndarray:
    """Return the coordinates but for those at some places, which become zero."""
    v[free[places]] = 0.0
    kept = np.ones(len(free), dtype=bool)
    kept[places] = False
    return free[kept]


def is_singular(factor: np.ndarray, M: np.ndarray) -> bool:
    """Whether a column of M depends on the earlier ones up to rounding, by the Cholesky factor of M."""
    return bool(np.count_nonzero(np.square(factor.diagonal()) <= SINGULAR * M.diagonal()))


def lifted(M: np.ndarray, lift: float) -> float:
    """Increase the diagonal of a matrix in C order that is not positive definite, more than the last time; return the increment.

    The first increment is proportional to the diagonal, whose entries rounding may have made negative. A matrix that contains
    NaN becomes the identity, so that a caller that tries again terminates.
    """
    lift = 100.0 * lift or LIFT * float(np.abs(M.diagonal()).max()) or 1.0
    M.ravel()[:: len(M) + 1] += lift
    if not lift < np.inf:
        M[:] = np.eye(len(M))
    return lift


class Model:
    """The model f with its current point v, which the methods move to the minimum.

    Attributes
    ----------
    v, slopes : arrays
        The current point, and Hv − q there.
    value : float
        f(v); NaN if it is not needed.
    ridged : bool
        Whether a coordinate has a ridge. (Adding zeros to a diagonal takes a sixth of the time of a small system.)
    exact : bool
        Whether v is the minimum up to rounding: the solution of a linear system whose signs are right.
    """

    def __init__(self, gram: Gram, slopes: np.ndarray, v: np.ndarray, kinks: Kinks) -> None:
        self.gram, self.kinks, self.v, self.slopes = gram, kinks, v, slopes
        self.q = gram.times(v) - slopes
        self.value, self.ridged, self.exact = np.nan, np.count_nonzero(kinks.ridge) > 0, False

    def _value(self, v: np.ndarray, slopes: np.ndarray) -> float:
        return 0.5 * float(v @ (slopes - self.q)) + self.kinks.value(v)

    def _keep_lower(self, v: np.ndarray, slopes: np.ndarray) -> None:
        """Move to a point if f is lower there."""
        if np.isnan(self.value):
            self.value = self._value(self.v, self.slopes)
        value = self._value(v, slopes)
        if value < self.value:
            self.v, self.slopes, self.value = v, slopes, value

    def minimise(self, goal: float, is_over: Callable[[], bool], share: float = 0.0, exchanged: int = 0) -> np.ndarray:
        """Move to the minimum, up to violations of the optimality conditions of ``goal`` times the threshold; return v.

        It also ends once a proximal point step expects no further decrease of f of more than the given share of that so far: by
        convexity, a step from c to v leaves f(v) − f(u) ≤ Σ κ_j |v_j − c_j| |v_j − u_j|, and the minimum u is expected to be no
        farther from v than c is. If ``is_over`` returns True before that, f(v) does not exceed its value at the start. Up to
        ``exchanged`` coordinates are exchanged one by one before proximal point steps. Callers ignore NumPy's warnings of
        overflow: the certificate would show a point that overflow has made wrong.
        """
        part, least, begin, start = FIRST, LAST, np.nan, self.v
        for _ in range(MOST_PROXIMAL):
            if (self.gram.forms_rows and self._active_sets(is_over)) or self._violation() <= goal or is_over():
                break
            few = part == FIRST and self.v.size <= exchanged
            if few and (self._exchange(start) or self._exchange(np.zeros(self.v.size))):
                break
            self._keep_lower(self.v, self.slopes)
            before, center = self.value, self.v
            begin = before if np.isnan(begin) else begin
            ended = self._proximal(part * self.gram.diagonal, is_over)
            if 0.0 < part * float(np.square(self.v - center) @ self.gram.diagonal) <= share * (begin - self.value):
                break
            if not ended:  # so small a κ takes too many Newton steps: continue with a larger one
                least = min(part / FALL, FIRST)
            in_vain, last = self.value > before - ROUNDING * abs(before), part
            part = max(part * FALL, least)
            if in_vain and part == least and (ended or last == FIRST):
                break
        return self.v

    def _violation(self) -> float:
        """Return the largest violation of the optimality conditions, as a fraction of the threshold."""
        kinks = self.kinks
        at_zero = np.abs(kinks.shrunk(-self.slopes))
        used = np.abs(self.slopes + kinks.ridge * self.v + kinks.high * np.sign(self.v))
        return float((np.where(self.v != 0.0, used, at_zero) / kinks.high).max())

    def _active_sets(self, is_over: Callable[[], bool]) -> bool:
        """Take active set steps; return whether one reached the minimum. Otherwise v is the lowest of their points."""
        kinks, v, slopes, seen = self.kinks, self.v, self.slopes, list[tuple[bytes, bytes]]()
        tried, low, high, every = list[tuple[np.ndarray, np.ndarray]](), kinks.low, kinks.high, len(self.v)
        u = -slopes
        if np.count_nonzero(v):  # coordinates that are not zero keep their signs at first
            u = np.where(v != 0.0, np.copysign(np.inf, v), u)
        kept = np.minimum(np.maximum(u, low), high)
        free = (u != kept).nonzero()[0]
        for _ in range(MOST_SETS):
            signed = kept.take(free)
            pattern = free.tobytes(), np.signbit(signed).tobytes()
            if seen:
                tried.append((v, slopes))
            if pattern in seen or (free.size > self.gram.rank and not self.ridged) or is_over():
                break
            seen.append(pattern)
            rows = self.gram.rows(free)
            M = rows.take(free, axis=1)
            if self.ridged:
                M.reshape(-1)[:: len(free) + 1] += kinks.ridge.take(free)
            factor, x, failed = _posv()(M.T, self.q.take(free) - signed) if free.size else (M, signed, 0)
            wrong = x * signed < 0.0
            changes = np.count_nonzero(wrong)
            if failed or (changes and is_singular(factor, M)):
                break
            v = np.zeros(every)
            v[free] = x
            slopes = x.dot(rows) - self.q
            u, last = self.gram.diagonal * v - slopes, free
            if changes:
                u[free[wrong]] = 0.0
            kept = np.minimum(np.maximum(u, low), high)
            free = (u != kept).nonzero()[0]
            if not changes and (last.size == every or free.size == last.size):
                self.v, self.slopes, self.value, self.exact = v, slopes, np.nan, True
                return True
        else:
            tried.append((v, slopes))
        for each in tried:
            self._keep_lower(*each)
        return False

    def _exchange(self, start: np.ndarray) -> bool:
        """Let single coordinates become zero or nonzero until the optimality conditions hold; return whether they do.

        v stays as it is if they do not, after too many steps or since the nonzero coordinates of the start are dependent. From
        v = 0, all coordinates that may become nonzero are tried first, but for those that depend on others.
        """
        kinks, v = self.kinks, start.copy()
        free, signs = v.nonzero()[0], np.sign(v)
        if not free.size:
            signs = np.sign(kinks.shrunk(self.q))
            free = self._independent(signs.nonzero()[0])
        edges = np.where(signs > 0.0, kinks.high, kinks.low)
        for _ in range(MOST_EXCHANGES * v.size):
            # 1. The minimum over the coordinates that are not zero, for their signs.
            rows = self.gram.rows(free)
            M = rows.take(free, axis=1)
            if self.ridged:
                M.reshape(-1)[:: len(free) + 1] += kinks.ridge[free]
            right = self.q[free] - edges[free]
            factor, x, failed = _posv()(M.T, right) if free.size else (M, right, 0)
            if failed or is_singular(factor, M):
                return False
            # 2. Up to the first coordinates that would change their signs.
            if (wrong := (x * signs[free] <= 0.0).nonzero()[0]).size:
                ways = v[free[wrong]] / (v[free[wrong]] - x[wrong])
                v[free] += ways.min() * (x - v[free])
                free = _without(free, wrong[ways == ways.min()], v)
                continue
            v[free] = x
            slopes = x @ rows - self.q
            # 3. The coordinate whose slope exceeds its threshold most.
            beyond = kinks.shrunk(-slopes)
            beyond[free] = 0.0
            sizes = np.abs(beyond)
            if not np.count_nonzero(sizes > RIGHT * kinks.high):
                self.v, self.slopes, self.value, self.exact = v, slopes, np.nan, True
                return True
            j = int(sizes.argmax())
            signs[j] = math.copysign(1.0, beyond[j])
            edges[j] = kinks.high[j] if signs[j] > 0.0 else kinks.low[j]
            replaced = self._replaced(free, rows[:, j], j, factor, signs[j], v)
            if replaced is None:
                return False
            free = replaced
        return False

    def _independent(self, free: np.ndarray) -> np.ndarray:
        """Return those of some coordinates that a Cholesky factor with pivots takes before the rest depends on them."""
        M = self.gram.rows(free).take(free, axis=1)
        diagonal = M.reshape(-1)[:: len(free) + 1]
        diagonal += self.kinks.ridge[free]
        if not free.size:
            return free
        _, pivots, rank, _ = _pstrf()(M.T, SINGULAR * float(diagonal.max()))
        return np.sort(free[pivots[:rank] - 1])

    def _replaced(
        self, free: np.ndarray, column: np.ndarray, j: int, factor: np.ndarray, sign: float, v: np.ndarray
    ) -> np.ndarray | None:
        """Return the nonzero coordinates with j, and without one of them if j depends on them; None if rounding prevents it.

        In that case v moves along the relation, on which Hv stays the same and f falls, until one of them is zero.
        """
        entering = np.concatenate([free, [j]])
        if not free.size:
            return entering
        relation, _ = _potrs()(factor, column)
        own = self.gram.diagonal[j]
        if own + self.kinks.ridge[j] - float(column @ relation) > SINGULAR * own:
            return entering
        steps = sign * relation
        falling = (steps * v[free] > 0.0).nonzero()[0]
        if not falling.size:
            return None
        ways = v[free[falling]] / steps[falling]
        v[free] -= ways.min() * steps
        v[j] = ways.min() * sign
        return _without(entering, falling[ways.argmin()], v)

    def _proximal(self, kappa: np.ndarray, is_over: Callable[[], bool]) -> bool:
        """Move v approximately to the minimum over w of f(w) + ½ Σ κ_j (w_j − v_j)²; f(v) does not increase.

        Return whether the Newton steps ended before their limit.
        """
        center, kinks = kappa * self.v, self.kinks
        total = kinks.ridge + kappa
        inverse = 1.0 / np.where(total > 0.0, total, 1.0)
        p, eta, ended = self.v, self.slopes, False
        v = kinks.shrunk(center - eta) * inverse
        for _ in range(MOST_NEWTON):
            e = v - p
            He = self.gram.times(e)
            size = float(e @ He)
            if ended := size <= SHARPER**2 * float((v - self.v) ** 2 @ kappa) or size <= 0.0 or is_over():
                break
            free = v.nonzero()[0]
            step = e.copy()
            step[free] += self.gram.correction(free, total[free], e, He)
            Hstep = self.gram.times(step)
            slope, t = -float(step @ He), 1.0
            here = 0.5 * float(total @ (v * v))
            linear, curved = float(p @ Hstep), float(step @ Hstep)
            for _ in range(HALVINGS):
                new = kinks.shrunk(center - eta - t * Hstep) * inverse
                change = t * linear + 0.5 * t * t * curved + 0.5 * float(total @ (new * new)) - here
                if change <= 1e-4 * t * slope + ROUNDING * here:
                    break
                t *= 0.5
            p, eta, v = p + t * step, eta + t * Hstep, new
        self._keep_lower(v, self.gram.times(v) - self.q)
        return ended
