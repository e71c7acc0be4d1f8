"""Multinomial (softmax) logistic regression: what is to be solved, and its judge."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from dualnewton._examples import Examples, best_factor
from dualnewton._softmax import BELOW_ONE, FEASIBLE, balancing_intercept, entropy, losses_of, parts, softmax
from dualnewton._validate import data_matrix, frozen, integer, vector
from dualnewton.certificate import Certificate, CertifiedPair
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.regularizers import L2, Regularizer

_FAR = 1e-2
"""The relative gap beyond which a shorter dual point is worth the search for it."""

_UNDERFLOW = 800.0
"""A margin this far below another has probability zero in float64: exp(−746) is."""

_ROOM = 8.0
"""Times what rounding was seen to add: sums in another order round otherwise."""


@dataclass(frozen=True)
class OverClasses:
    """Σ_k g(w_k) over the rows of W, which is a regulariser of W: its conjugate is Σ_k g*(s_k) over the rows of S."""

    g: Regularizer

    def value(self, W: np.ndarray) -> float:
        """Σ_k g(w_k)."""
        # For ½‖W‖² all squares are added at once, which takes one call however many the classes.
        return 0.5 * float(np.square(W).sum()) if self.g.quadratic else sum(map(self.g.value, W))

    def conjugate(self, S: np.ndarray) -> float:
        """Σ_k g*(s_k)."""
        return 0.5 * float(np.square(S).sum()) if self.g.quadratic else sum(map(self.g.conjugate, S))

    def grad_conjugate(self, S: np.ndarray) -> np.ndarray:
        """∇g*(s_k), row by row."""
        return S if self.g.quadratic else np.stack([self.g.grad_conjugate(s) for s in S])

    def reach(self, S: np.ndarray) -> float:
        """Return the largest r ≤ 1 for which the conjugate is finite at rS."""
        return min(map(self.g.reach, S))


@dataclass(frozen=True, eq=False)
class MultinomialProblem(Examples):
    """Multinomial logistic regression over K classes, its dual, and the certificate that connects them.

    With weights c, offsets o, an unpenalised intercept b, z_i = W a_i + b + o_i and the simplex Δ of distributions on K
    classes, the two problems are

        min_{W, b}  P(W, b) = (1/n) Σ c_i (log Σ_k exp(z_ik) − z_{i,y_i}) + λ Σ_k g(w_k)
        max_α       D(α)    = (1/n) Σ c_i (H(p_i) − o_iᵀα_i) − λ Σ_k g*(Ā_k),    Ā = (1/λn) Σ c_i α_i a_iᵀ,

    where p_i = e_{y_i} − α_i ∈ Δ and H(p) = −Σ_k p_k log p_k; Σ c_i α_i = 0 is asked for exactly when there is an
    intercept. At the optimum w_k = ∇g*(Ā_k) and p_i = softmax(z_i). Where g is not strongly convex (‖w‖₁), Ā has to lie where
    g* is finite, and w_k ∈ ∂g*(Ā_k). With g = ½‖w‖² and no intercept, P(W) − D(α) = (λ/2)‖W − Ā‖² at the α that belongs to W.

    An even number of classes and g = ‖w‖₁ may leave W undetermined: to add a number to a feature's coefficients, half of which
    are positive and half negative, changes neither the margins' differences nor the penalty.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        One example a_i per row; float32 and float64 are kept as they are, CSR and C order are not copied.
    y : array of shape (n,)
        The class numbers, whole numbers in 0, …, K − 1.
    lam : float
        λ > 0; 1/n by default.
    n_classes : int, optional
        K ≥ 2; by default the largest class number plus one, and at least two. A class may have no example.
    sample_weight : array of shape (n,), optional
        c ≥ 0, not all zero. A weight of two equals a repeated row, but for the factor 1/n.
    offset : array of shape (n, K), optional
        o, added to the margins.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    regularizer : Regularizer, optional
        g, a sum over features: L2 (by default), ElasticNet, L1, NonNegative or Box.
    """

    X: Any
    y: Any
    _: KW_ONLY
    lam: float = None  # type: ignore[assignment]
    n_classes: int = None  # type: ignore[assignment]
    sample_weight: Any = None
    offset: Any = None
    fit_intercept: bool = False
    regularizer: Regularizer = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        n, d = self.n, self.d
        K = None if self.n_classes is None else integer("n_classes", self.n_classes, 2)
        y = _class_numbers(self.y, n, K)
        K = max(2, int(y.max()) + 1) if K is None else K
        offset = None if self.offset is None else _matrix("offset", self.offset, (n, K))
        self._settle(n, y=y, n_classes=K, offset=offset, regularizer=_separable(self.regularizer, d))

    def __repr__(self) -> str:
        penalty = "" if self.regularizer.quadratic else f", regularizer={self.regularizer!r}"
        return self._described(f"n_classes={self.n_classes}{penalty}")

    # The data --------------------------------------------------------------------------------------------------------

    @cached_property
    def class_weights(self) -> np.ndarray:
        """N_k = Σ c_i over the examples of class k."""
        return frozen(np.bincount(self.y, weights=self.c, minlength=self.n_classes))

    @cached_property
    def g(self) -> OverClasses:
        """Σ_k g(w_k), as a function of W."""
        return OverClasses(self.regularizer)

    # The two objectives ----------------------------------------------------------------------------------------------

    def margins(self, W: np.ndarray, intercept: np.ndarray | None = None) -> np.ndarray:
        """z_i = W a_i + b + o_i as the rows of an n × K array; b is zero unless given."""
        Z = self.data.times(self._model(W).T)
        if self.offset is not None:
            Z += self.offset
        if intercept is not None:
            Z += self._intercept(intercept)
        return Z

    def primal(self, W: np.ndarray, intercept: np.ndarray | None = None) -> float:
        """P(W, b); b is zero unless given."""
        W = self._model(W)
        return self._primal(losses_of(self.margins(W, intercept), self.y)[0], W)

    def dual(self, alpha: np.ndarray) -> float:
        """D(α), which is −∞ where α is infeasible."""
        alpha = self._dual_point(alpha)
        value, mass, weight = 0.0, np.zeros(self.n_classes), np.zeros(self.n_classes)
        for part in parts(alpha):
            c, a = self.c[part], alpha[part]
            entropies, inside = entropy(a, self.y[part])
            if not (inside | (c == 0.0)).all():  # a row of weight zero does not take part, whatever its dual variables
                return -np.inf
            value += float(c @ entropies)
            if self.offset is not None:
                value -= float(c @ np.einsum("ik,ik->i", a, self.offset[part]))
            mass += c @ a
            weight += c @ np.abs(a)
        if self.fit_intercept and (np.abs(mass) > FEASIBLE * weight).any():
            return -np.inf
        return value / self.n - self.lam * self.g.conjugate(self.alpha_bar(alpha))

    def alpha_bar(self, alpha: np.ndarray) -> np.ndarray:
        """Ā = (1/λn) Σ c_i α_i a_iᵀ."""
        mass = alpha if self.sample_weight is None else self.c[:, None] * alpha
        return np.ascontiguousarray(self.data.transposed_times(mass).T) / (self.lam * self.n)

    # Row block by row block, for solvers -----------------------------------------------------------------------------

    def row_losses(self, rows: slice, Z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the sum of c_i φ_i(z_i) over some rows, and its gradient R, R_i = c_i (p_i − e_{y_i}), at their margins Z.

        Z has the intercept and the offsets in it. The losses' gradient by W is (1/n) Σ R_i a_iᵀ, by b (1/n) Σ R_i.
        """
        c = self.c[rows]
        losses, R = losses_of(Z, self.y[rows])
        R *= -c[:, None]
        return float(c @ losses), R

    def row_curvature(self, indices: np.ndarray | slice, Z: np.ndarray) -> np.ndarray:
        """c_i p_ik (1 − p_ik), the diagonal of the Hessian of c_i φ_i in z_i, for some rows at their margins Z."""
        c = self.c[indices]
        curvature = np.empty(Z.shape)
        for part in parts(Z):
            p, top, _, rest = softmax(Z[part])
            block = curvature[part]
            np.multiply(p, 1.0 - p, out=block)
            block[np.arange(len(p)), top] = rest / (1.0 + rest) ** 2  # 1 − p would lose the digits of a p close to one
            block *= c[part, None]
        return curvature

    # From one to the other -------------------------------------------------------------------------------------------

    def w_of(self, alpha: np.ndarray) -> np.ndarray:
        """Return W = ∇g*(Ā), row by row, the primal point of a dual one."""
        return self.g.grad_conjugate(self.alpha_bar(self._dual_point(alpha)))

    def alpha_of(self, W: np.ndarray, intercept: np.ndarray | None = None) -> np.ndarray:
        """α_i = e_{y_i} − softmax(z_i), the dual point of (W, b); with an intercept balanced, at the best b if none is given."""
        Z = self.margins(W)
        Z += self._best_intercept_at(Z) if intercept is None else self._intercept(intercept)
        return self._feasible(losses_of(Z, self.y)[1])

    def no_dual(self) -> np.ndarray:
        """α = 0, where p_i = e_{y_i}."""
        return np.zeros((self.n, self.n_classes))

    def dual_near(self, alpha: np.ndarray) -> np.ndarray:
        """Return a feasible dual point near α, to start from."""
        alpha = np.array(_matrix("warm_start", alpha, (self.n, self.n_classes)))
        # 1. Where the own class would get more than one, or another less than nothing, it gets just that.
        own = (np.arange(self.n), self.y)
        np.minimum(alpha, 0.0, out=alpha)
        alpha[own] = 0.0
        missed = -(alpha @ np.ones(self.n_classes))
        alpha /= np.maximum(missed, 1.0)[:, None]
        # 2. What the others have, the own class misses.
        alpha[own] = np.minimum(missed, 1.0)
        return self._feasible(alpha)

    def _feasible(self, alpha: np.ndarray) -> np.ndarray:
        return self.within_reach(self.balanced(alpha))

    def within_reach(self, alpha: np.ndarray) -> np.ndarray:
        """Shorten α until g*(Ā) is finite, which it is everywhere but for a g that is not strongly convex (‖w‖₁).

        p_i moves towards e_{y_i} in the simplex then, and what is balanced stays so.
        """
        if self.regularizer.strongly_convex:
            return alpha
        factor = self.g.reach(self.alpha_bar(alpha))
        if factor == 1.0:
            return alpha
        # Where λ is small, sums that almost cancel are divided by it: what rounding adds to Ā is seen, and made room for.
        excess = 1.0 - self.g.reach(self.alpha_bar(factor * alpha))
        return factor * (1.0 - _ROOM * excess) * alpha

    def balanced(self, alpha: np.ndarray) -> np.ndarray:
        """Make Σ c_i α_i = 0 where an intercept asks for it, by mixing all p_i with one distribution q.

        With S = Σ c_i α_i and C = Σ c_i, p′_i = (1 − ε) p_i + ε q is balanced for q = (N + S (1 − ε)/ε)/C. The smallest ε
        that leaves q ≥ 0 is taken. A class without examples must have probability zero in every row; what it had goes
        to the row's own class first.
        """
        if not self.fit_intercept:
            return alpha
        N, alpha = self.class_weights, np.array(alpha, dtype=np.float64)
        alpha[:, N == 0.0] = 0.0
        alpha[np.abs(alpha) < 1e-280] = 0.0  # so that no quotient of sums of them overflows
        self._close(alpha)
        S, weight = self.c @ alpha, self.c @ np.abs(alpha)
        S -= S.sum() * (weight / (weight.sum() or 1.0))  # the sum over classes is zero but for rounding
        if not (S < 0.0).any():
            return alpha
        ratio = float((N[S < 0.0] / -S[S < 0.0]).min())  # (1 − ε)/ε
        alpha *= ratio / (1.0 + ratio)
        alpha -= np.maximum(N + ratio * S, 0.0) / (N.sum() * (1.0 + ratio))  # εq
        self._close(alpha)
        return alpha

    def _close(self, alpha: np.ndarray) -> None:
        """Make each row sum to zero by the entry of its own class, which keeps the digits of small sums."""
        own = (np.arange(self.n), self.y)
        alpha[own] = 0.0
        alpha[own] = -(alpha @ np.ones(self.n_classes))

    def best_intercept(self, W: np.ndarray) -> np.ndarray:
        """argmin_b P(W, b), zero without an intercept; there Σ c_i α_i = 0 holds for α_i = e_{y_i} − softmax(z_i).

        Only differences of intercepts count: those of the classes that have examples sum to zero. A class without any
        would go to −∞; it is put where its probability is zero in float64 in every row, and no lower.
        """
        return self._best_intercept_at(self.margins(W))

    # The judge -------------------------------------------------------------------------------------------------------

    def certify(
        self, W: np.ndarray, intercept: np.ndarray | None = None, alpha: np.ndarray | None = None
    ) -> Certificate:
        """Prove how good (W, b) is, from scratch and in float64, whoever made it.

        Parameters
        ----------
        W : array of shape (K, d)
            The model.
        intercept : array of shape (K,), optional
            b; where there is an intercept and none is given, the best one for this W.
        alpha : array of shape (n, K), optional
            A dual point to try beside α_i = e_{y_i} − softmax(z_i), balanced first where there is an intercept, and
            shortened to where g* is finite; the largest dual value is taken, since each is a proof. Far from the optimum sα
            for the best s ∈ [0, 1] is tried too.
        """
        return self.certified_pair(W, intercept, alpha).certificate

    def certified_pair(
        self, W: np.ndarray, intercept: np.ndarray | None = None, alpha: np.ndarray | None = None
    ) -> CertifiedPair:
        """Do what :meth:`certify` does, and return the model and the dual point that prove it beside the certificate.

        The pair's ``w`` is K × d, its ``intercept`` has K entries and its ``alpha`` is n × K.
        """
        W = self._model(W)
        Z = self.margins(W)
        best = self._best_intercept_at(Z)
        b: Any = best if intercept is None else self._intercept(intercept)
        given = None if intercept is None else self._primal(losses_of(Z + b, self.y)[0], W)
        Z += best
        losses, natural = losses_of(Z, self.y)
        primal = self._primal(losses, W) if given is None else given
        candidates = [natural] if alpha is None else [natural, self._dual_point(alpha)]
        dual, proof = max(((self.dual(a), a) for a in map(self._feasible, candidates)), key=itemgetter(0))
        if primal - dual > _FAR * abs(primal):
            dual, proof = max((dual, proof), self._shrunk(proof, dual), key=itemgetter(0))
        return CertifiedPair(W, b, proof, Certificate(primal, dual))

    def _shrunk(self, alpha: np.ndarray, dual: float) -> tuple[float, np.ndarray]:
        """Maximise the concave D(sα) over s ∈ (0, 1], given D(α), without another look at the n × K numbers.

        With m_i = 1 − p_{i,y_i} the entropy of row i is, but for a multiple of s, −s log(s) m_i − (1 − s m_i) log(1 − s m_i).
        """
        if dual == -np.inf:
            return 0.0, np.zeros(alpha.shape)
        missed = np.clip(alpha[np.arange(self.n), self.y], 0.0, BELOW_ONE)
        total = float(self.c @ missed)
        scale, bar = self.lam * self.n, self.alpha_bar(alpha)
        penalty = scale * self.g.conjugate(bar)

        def own(s: float) -> float:
            return float(self.c @ ((1.0 - s * missed) * np.log1p(-s * missed)))

        def price(s: float) -> float:  # λn g*(sĀ)/s
            return s * penalty if self.regularizer.quadratic else scale * self.g.conjugate(s * bar) / s

        multiple = self.n * dual + penalty + own(1.0)
        shorter = best_factor(lambda s: own(s) + s * (np.log(s) * total - multiple + price(s))) * alpha
        return self.dual(shorter), shorter

    def _primal(self, losses: np.ndarray, W: np.ndarray) -> float:
        return float(self.c @ losses) / self.n + self.lam * self.g.value(W)

    def _best_intercept_at(self, Z: np.ndarray) -> np.ndarray:
        b = np.zeros(self.n_classes)
        if not self.fit_intercept:
            return b
        present = self.class_weights > 0.0
        if present.all():
            return balancing_intercept(Z, self.y, self.c)
        # A row of weight zero may belong to an absent class; any other label will do for it.
        y = np.maximum(np.cumsum(present) - 1, 0)[self.y]
        Z_present = Z[:, present]
        b[present] = balancing_intercept(Z_present, y, self.c)
        highest = (Z_present + b[present]).max(axis=1)
        b[~present] = (highest[:, None] - Z[:, ~present]).min(axis=0) - _UNDERFLOW
        return b

    def _model(self, W: Any) -> np.ndarray:
        return _matrix("W", W, (self.n_classes, self.d))

    def _dual_point(self, alpha: Any) -> np.ndarray:
        return _matrix("alpha", alpha, (self.n, self.n_classes))

    def _intercept(self, intercept: Any) -> np.ndarray:
        b = vector("intercept", intercept, self.n_classes)
        if b.any() and not self.fit_intercept:
            raise DualnewtonError(f"intercept must be 0 in a problem with fit_intercept=False, got {b.tolist()!r}")
        return b


# What is given -------------------------------------------------------------------------------------------------------


def _matrix(name: str, value: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return ``value`` as a read-only, finite float64 matrix of the given shape."""
    if np.shape(value) != shape:
        raise DualnewtonError(f"{name} must have shape {shape}, got {np.shape(value)}")
    return frozen(linear.to_dense(data_matrix(name, value)).astype(np.float64, copy=False))


def _separable(regularizer: Any, d: int) -> Regularizer:
    """Return g if it is a sum over d features; ½‖w‖² in the place of None."""
    if regularizer is None:
        return L2()
    if not isinstance(regularizer, Regularizer):
        raise DualnewtonError(
            f"regularizer must be a regularizers.Regularizer, such as regularizers.L1(), got {regularizer!r}"
        )
    if regularizer.size not in (None, d):
        raise DualnewtonError(f"regularizer is made for {regularizer.size} features, X has {d}")
    if not regularizer.quadratic and regularizer.limits(d) is None:
        raise DualnewtonError(
            "regularizer must be a sum over features for several classes, one of L2(), ElasticNet(), L1(), NonNegative() "
            f"and Box(), got {regularizer!r}"
        )
    return regularizer


def _class_numbers(y: Any, n: int, K: int | None) -> np.ndarray:
    """Return y as integers if they are class numbers 0, …, K − 1."""
    allowed = f"whole class numbers {'0, 1, 2, ...' if K is None else f'in 0, ..., {K - 1}'}"
    remedy = "np.unique(y, return_inverse=True) numbers any labels"
    if (dtype := np.asarray(y).dtype).kind not in "fiub":
        raise DualnewtonError(f"y must hold {allowed}, got labels of type {dtype}; {remedy}")
    numbers = vector("y", y, n)
    valid = (numbers >= 0.0) & (numbers == np.floor(numbers)) & (numbers < (2.0**31 if K is None else K))
    if not valid.all():
        at = int(np.argmin(valid))
        raise DualnewtonError(f"y must hold {allowed}, got {numbers[at]:g} at index {at}; {remedy}")
    return frozen(numbers.astype(np.intp))
