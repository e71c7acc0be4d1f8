"""Problems without a penalty (C = ∞, alpha = 0): the mean loss, its dual, and certificates of the duality gap.

    min_{w, b}  P₀(w, b) = (1/n) Σ c_i φ(z_i; y_i)        max_α  D₀(α) = −(1/n) Σ c_i φ*(−α_i; y_i),  Σ c_i α_i x̃_i = 0,

where x̃_i is x_i, with an appended one for the intercept. A feasible dual point is orthogonal to every feature; α_i = −φ′(z_i) is
orthogonal at the optimum only. It is projected by the Newton step: with H = Σ c_i φ″_i x̃_i x̃_iᵀ and u = H⁺Σ c_i α_i x̃_i the
point α_i − φ″_i x̃_iᵀu is orthogonal, and φ* changes little, since φ″_i is small near an end of its domain. For softmax φ″_i is
the matrix diag(p_i) − p_i p_iᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.losses import Curvature, Loss
from dualnewton.objective import row_sums
from dualnewton.objective.alike import like
from dualnewton.objective.around import AroundProblem
from dualnewton.objective.certificate import POOR, Certificate, CertifiedPair
from dualnewton.objective.conjugate_gradients import Effort, Product, solve_together
from dualnewton.objective.newton_systems import CentredSystems
from dualnewton.objective.orthogonality import Independence, independence
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised_rounding import Sums, unpenalised_bound
from dualnewton.regularizers import L2, Regularizer
from dualnewton.row_arrays import column_sums, on_host, product, some_columns
from dualnewton.validation import frozen

FIRST = 1e-6
"""Penalty λ of :attr:`Unpenalised.weak`, as a fraction of the mean of c_i‖x_i‖²."""

MOST = 2000
"""Largest number of coefficients K(d + 1) for which the Hessian H is computed and decomposed, and the independence of features is
proved, which takes seconds for more. Beyond, systems with H are solved by conjugate gradients."""

CLOSE = 2.0**-46
"""Residual of conjugate gradients in Σ c_i α_i x_ij, as a fraction of the norms of the two vectors."""

ORTHOGONAL = 1e-12
"""Tolerance, for rounding, of the dual constraint Σ c_i α_i x_ij = 0, as a fraction of the norms of the two vectors."""

SINGULAR, SMALLEST = 1e-13, 1e-200
"""Eigenvalues of H below this fraction of the largest one, or below this number, count as zero: they are rounding errors."""

WELL = 1e-9
"""Estimated reciprocal condition number of H with a unit diagonal above which a Cholesky factor replaces the eigenvalues."""

Inverse = Callable[[np.ndarray, Effort], np.ndarray]
"""The product of the inverse Hessian with an array in the shape of θ, by conjugate gradients within some limits."""

NOTHING = 1e-13
"""Residuals of this fraction of max|y| are rounding: mean losses up to that of such a residual count as zero."""


@dataclass(frozen=True, eq=False)
class Unpenalised(AroundProblem):
    """P₀, D₀ and certificates of the duality gap; the fields are those of :class:`Problem`."""

    X: Any
    y: Any
    loss: Loss
    _: KW_ONLY
    sample_weight: Any = None
    offset: Any = None
    fit_intercept: bool = False

    scheme: ClassVar[str] = "no penalty"
    lam: ClassVar[float] = 0.0
    regularizer: ClassVar[Regularizer] = L2()
    one_sided: ClassVar[bool] = False  # whether Σ c_i α_i x_ij ≤ 0 suffices
    first: ClassVar[Unpenalised | None] = None  # the problem whose proof a further target shares

    @classmethod
    def of(cls, problem: Problem) -> Unpenalised:
        """Return a problem without its penalty."""
        names = ("sample_weight", "offset", "fit_intercept")
        found = cls(problem.X, problem.y, problem.loss, **{name: getattr(problem, name) for name in names})
        vars(found)["unit"] = like(problem, regularizer=cls.regularizer)  # the fields are already checked
        return found

    @cached_property
    def unit(self) -> Problem:
        """A problem with the same losses, and some penalty."""
        rest = {"sample_weight": self.sample_weight, "offset": self.offset, "fit_intercept": self.fit_intercept}
        return Problem(self.X, self.y, self.loss, **rest)

    @cached_property
    def weak(self) -> Problem:
        """The problem with a weak penalty."""
        return like(self.unit, lam=FIRST * (float(np.mean(self.unit.c * self.unit.norms)) or 1.0))

    @cached_property
    def view(self) -> View:
        """The models as matrices."""
        return View(self.unit)

    @cached_property
    def independence(self) -> Independence | None:
        """A proof that the features are linearly independent, for a loss whose curvature is constant: m_i = φ″_i."""
        if self.first is not None:
            return self.first.independence
        gram = (lambda: self.view.constant_hessian) if self.columns == 1 else None  # several columns repeat its block
        return independence(self.unit, one_sided=self.one_sided, gram=gram)

    @property
    def known_independence(self) -> Independence | None:
        """The proof above, if it is known or takes little time."""
        known = self.view.is_small or "independence" in vars(self if self.first is None else self.first)
        return self.independence if known else None

    def with_target(self, y: Any) -> Self:
        """Return the problem with another target; the two share the proof above and the norms of the features."""
        found = replace(self, X=self.data, y=y)
        vars(found)["first"] = self
        return found

    def starting_pair(self, start: Any = None) -> CertifiedPair:
        """Certify the starting point of a run: the model of an earlier result or, without one or if that is better, zero."""
        if (self.one_sided or self.loss.kinked) and not self.view.is_small:
            raise DualnewtonError(
                f"without a penalty at most {MOST} coefficients can be fitted if {self._limited}, got "
                f"{self.columns * (self.d + 1)}: use a large finite C or a small alpha > 0"
            )
        nothing = self.unit.no_dual()
        if start is None:
            return self.certified_pair(self.view.nothing, alpha=nothing)
        pair = self.certified_pair(start.w, start.intercept * self.unit.fit_intercept)
        alpha = self.unit.loss.nearest_dual(start.alpha, self.unit.y) if start.alpha.shape == nothing.shape else nothing
        pair = pair.proved_by(alpha, self.dual(alpha))
        if pair.certificate.relative_gap <= POOR:
            return pair
        return pair.joined_with(self.certified_pair(self.view.nothing, alpha=nothing))

    @property
    def _limited(self) -> str:
        """The reason for a limit on the coefficients."""
        return "they must not be negative" if self.one_sided else "the loss has kinks"

    def certify(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> Certificate:
        """Certify (w, b) with the projection of α_i = −φ′(z_i), or with the given α if its dual value is larger."""
        return self.bounded(self.proved_pair(w, intercept, alpha)).certificate

    def proved_pair(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> CertifiedPair:
        """Return the model and the dual point of :meth:`certify`, without a bound on rounding errors."""
        with np.errstate(over="ignore", invalid="ignore"):  # values that overflow give an infinite gap
            pair = self.certified_pair(w, intercept)
            if alpha is None:
                return pair
            given = self.data.placed(alpha)
            return pair.proved_by(given, self.dual(given))

    def rounding_of(self, pair: CertifiedPair) -> tuple[float | None, float]:
        return unpenalised_bound(self, pair)

    def extended_pair(self, pair: CertifiedPair) -> CertifiedPair:
        from dualnewton.objective.extended import unpenalised_pair  # rarely used

        return unpenalised_pair(self, pair)

    def certified_pair(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> CertifiedPair:
        """Return (w, b) with its certificate by α or, if none is given, by the projection of α_i = −φ′(z_i)."""
        intercept = self.unit.no_intercept() if intercept is None else self.unit.allowed_intercept(intercept)
        theta = self.view.joined(w, intercept)
        primal, below = self.primal_at(theta), self.unit.label_sums.below
        at_zero = -below / self.n if below < math.inf else -math.inf  # D₀(0): α = 0 is orthogonal to everything
        if primal <= at_zero:  # a perfect fit, as in least squares with more features than examples
            return CertifiedPair(w, intercept, self.unit.no_dual(), Certificate(primal, at_zero))
        if alpha is None:
            Z = self.view.margins(theta)
            slopes = self.unit.slopes_at(Z)
            alpha, _ = self.orthogonal(Z, slopes, self.inverse_at(theta, Z, slopes), Effort())
        dual, sums = self._dual(alpha)
        if dual > at_zero:
            return CertifiedPair(w, intercept, alpha, Certificate(primal, dual)).with_sizes(sums)
        return CertifiedPair(w, intercept, self.unit.no_dual(), Certificate(primal, at_zero))

    def recomputed(self, pair: CertifiedPair) -> Certificate:
        """Return P(w, b) and D₀(α) of a pair whose certificate must be recomputed, for example one from a file."""
        w, intercept = self.unit.model(pair.w), self.unit.allowed_intercept(pair.intercept)
        return Certificate(self.primal_at(self.view.joined(w, intercept)), self.dual(self.unit.dual_point(pair.alpha)))

    def dual(self, alpha: np.ndarray) -> float:
        """D₀(α), which is −∞ if α is not orthogonal to the features."""
        return self._dual(alpha)[0]

    def _dual(self, alpha: np.ndarray) -> tuple[float, Sums]:
        """D₀(α), with the sums over α from which its rounding errors are bounded."""
        unit = self.unit
        along = self.data.transposed_times(unit.weighted(alpha))
        terms = row_sums.dual_terms(unit.loss, alpha, unit.row_vectors, masses=unit.fit_intercept)
        allowed = ORTHOGONAL * math.sqrt(terms.sizes.squares) * self.data.feature_norms
        off = self.excess(along) > (allowed if along.ndim == 1 else allowed[:, None])
        value = -math.inf if off.any() else unit.dual_value(terms, self.view.nothing)
        return value, Sums(terms.sizes, along)

    def excess(self, along: np.ndarray) -> np.ndarray:
        """Return by how much Σ c_i α_i x_ij violates its constraint, for each feature."""
        return np.abs(along)

    def inverse_at(self, theta: np.ndarray, Z: np.ndarray, alpha: Any) -> Inverse:  # noqa: ARG002
        """Return the product with the inverse Hessian by which dual points near α are projected at θ with the margins Z."""
        return self.view.inverse_at(Z, alpha)

    def primal_at(self, theta: np.ndarray) -> float:
        """P₀ at θ = (w, b)."""
        return self.view.primal(theta)

    def orthogonal(
        self, Z: np.ndarray, alpha: Any, inverse: Inverse, effort: Effort, step: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return an orthogonal point near α, and the Newton step; the projection is repeated to remove rounding errors.

        ``step`` is an approximation of this step, if one is known.
        """
        more, total = step, np.zeros(())
        for _ in range(3 if step is None else 4):
            more = inverse(self.view.gradient(alpha), effort) if more is None else more
            if not more.any():
                break
            total, alpha, more = total + more, alpha - self.view.curved(Z, self.view.times(more)), None
        return self.unit.balanced(alpha), total


class NonNegativeUnpenalised(Unpenalised):
    """A problem without a penalty subject to w ≥ 0: a dual point then needs only Σ c_i α_i x_ij ≤ 0, with equality where w_j > 0.

    α_i = −φ′(z_i) is projected onto the features with w_j > 0. At the optimum the projection changes nothing, and the other
    features satisfy their inequality.
    """

    one_sided = True

    def excess(self, along: np.ndarray) -> np.ndarray:
        return along

    def inverse_at(self, theta: np.ndarray, Z: np.ndarray, alpha: Any) -> Inverse:  # noqa: ARG002
        H, zeros = self.view.hessian(Z).copy(), np.flatnonzero(theta[0, : self.d] == 0.0)
        # The features at zero form a diagonal block of their own, which leaves H regular if that of the others is.
        own = H[zeros, zeros]
        H[zeros], H[:, zeros] = 0.0, 0.0
        H[zeros, zeros] = own
        inverse, used = self.view.inverse(H), np.ones(theta.shape)
        used[0, zeros] = 0.0
        return lambda g, _: used * inverse(used * g)

    def primal_at(self, theta: np.ndarray) -> float:
        return math.inf if np.any(theta[0, : self.d] < 0.0) else super().primal_at(theta)


class View:
    """The models of a problem as matrices: θ = (w, b), or w alone, with one row for each column of margins."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.columns, self.with_one = problem, problem.columns, problem.fit_intercept
        self.quadratic = problem.loss.curvature is Curvature.CONSTANT
        self.nothing = np.zeros(problem.d if self.columns == 1 else (self.columns, problem.d))  # w = 0

    @property
    def is_small(self) -> bool:
        """Whether H is computed: it has few coefficients."""
        return self.columns * (self.problem.d + 1) <= MOST

    def joined(self, w: np.ndarray, intercept: Any) -> np.ndarray:
        """Return θ = (w, b) as a matrix."""
        if not self.with_one:
            return np.atleast_2d(w)
        d = self.problem.d
        # np.column_stack takes three times as long, and a fit calls this several times.
        theta = np.empty((self.columns, d + 1))
        theta[:, :d], theta[:, d] = w, intercept
        return theta

    def parted(self, theta: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return w and b in the shapes of the problem."""
        W, b = theta[:, : self.problem.d], theta[:, -1] if self.with_one else np.zeros(self.columns)
        return (W[0].copy(), float(b[0])) if self.columns == 1 else (W.copy(), b.copy())

    def times(self, theta: np.ndarray) -> np.ndarray:
        """θ x̃_i, for each row, in the shape that the loss takes."""
        d = self.problem.d
        if self.columns == 1:  # products with a vector are faster than with a matrix of one column
            products = self.problem.data.times(np.ascontiguousarray(theta[0, :d]))
            return products + float(theta[0, d]) if self.with_one else products
        products = self.problem.data.times(np.ascontiguousarray(theta[:, :d].T))
        return products + np.asarray(theta[:, d], like=products) if self.with_one else products

    def gradient(self, alpha: np.ndarray) -> np.ndarray:
        """Σ c_i α_i x̃_i, in the shape of θ."""
        mass = self.problem.weighted(alpha)
        along = np.atleast_2d(self.problem.data.transposed_times(mass).T)
        return np.column_stack([along, np.atleast_1d(on_host(column_sums(mass)))]) if self.with_one else along

    def margins(self, theta: np.ndarray) -> np.ndarray:
        """z_i, with their offsets."""
        return self.problem.row_vectors.shifted(self.times(theta))

    def curved(self, z: np.ndarray, t: np.ndarray) -> np.ndarray:
        """φ″_i t_i, for t in the shape of the margins."""
        return self.problem.loss.curvature_times(z, self.problem.y, t)

    def hessian(self, z: np.ndarray) -> np.ndarray:
        """Σ c_i φ″_i ⊗ x̃_i x̃_iᵀ, with one block for each pair of columns."""
        return self.constant_hessian if self.quadratic else self._hessian(z)

    @cached_property
    def constant_hessian(self) -> np.ndarray:
        """The Hessian of a loss whose curvature is constant: a sum over the data alone, computed in one pass and kept."""
        return frozen(self._hessian(self.problem.no_dual()))

    def _hessian(self, z: np.ndarray) -> np.ndarray:
        gram = partial(self.problem.data.weighted_gram, intercept=self.with_one)
        if self.columns == 1:
            return gram(row_sums.curvature(self.problem.loss, z, self.problem.row_vectors._replace(o=None)))
        c, units = self.problem.c, np.eye(self.columns)
        # φ″_i is symmetric: its column l is the product with the unit vector of l.
        rows = np.zeros((self.problem.n, self.columns), like=z)
        of = [self.curved(z, rows + np.asarray(unit, like=z)).reshape(-1, self.columns) for unit in units]
        return np.block([[gram(c * column[:, k]) for column in of] for k in range(self.columns)])

    def inverse_at(self, z: np.ndarray, alpha: Any) -> Inverse:
        """Return a function that multiplies by H⁻¹, or by conjugate gradients up to what the dual constraint allows near α."""
        if self.is_small:
            inverse = self.inverse(self.hessian(z))
            return lambda g, _: inverse(g)
        problem = self.problem
        mass = problem.weighted(alpha)
        size = CLOSE * math.sqrt(float(on_host(product(mass, mass))))
        weights = row_sums.curvature(problem.loss, z, problem.row_vectors._replace(o=None))
        norms = problem.data.feature_norms
        if self.columns == 1:
            systems = CentredSystems.of(problem.data, weights, intercept=self.with_one)
            return lambda g, effort: systems.solved(g, size * norms[None], effort)
        # Intercepts of several columns depend on each other, and are unknowns like the others.
        each = [some_columns(weights, k) for k in range(self.columns)]
        own, enough = (
            np.array([problem.data.column_norms(column) for column in each]),
            np.tile(norms, (self.columns, 1)),
        )
        if self.with_one:
            own = np.column_stack([own, on_host(column_sums(weights))])
            enough = np.column_stack([enough, np.full(self.columns, math.sqrt(problem.n))])
        diagonal = own.ravel()
        scale = np.divide(1.0, diagonal, out=np.zeros(diagonal.shape), where=diagonal > SMALLEST)
        enough = size * enough.reshape(1, -1)

        def times(V: np.ndarray) -> np.ndarray:
            return self.gradient(self.curved(z, self.times(V.reshape(own.shape)))).reshape(1, -1)

        return lambda g, effort: solve_together(times, g.reshape(1, -1), scale, enough, effort).reshape(g.shape)

    def inverse(self, H: np.ndarray) -> Product:
        """Return a function that multiplies by H⁻¹, or with a generalised inverse that gives the shortest w if H is singular.

        If sums overflow, there is no such matrix, and the function returns zero.
        """
        if not np.isfinite(H).all():
            return np.zeros_like
        if self.columns == 1 and (found := unit_factor(H)) is not None:  # eigenvalues take more than ten times as long
            from scipy.linalg.lapack import dpotrs

            L, unit = found
            return lambda g: (unit * dpotrs(L, unit * g.ravel(), lower=True)[0]).reshape(g.shape)
        V, reciprocal, scale = _decomposed(H, scaled=True)
        # For several columns H is always singular: adding the same vector to all of them does not change the loss.
        if V.shape[0] == V.shape[1] or self.columns > 1:
            return lambda g: (scale * (V @ (reciprocal * (V.T @ (scale * g.ravel()))))).reshape(g.shape)
        d = self.problem.d
        # H may be zero (all rows classified with large margins): the divisor is then one, and the step zero.
        edge, corner = (H[:d, d], H[d, d] or 1.0) if self.with_one else (np.zeros(d), 1.0)
        scaled = edge / math.sqrt(corner)  # at most the root of the diagonal of H; the square of an edge may overflow
        V, reciprocal, _ = _decomposed(H[:d, :d] - np.outer(scaled, scaled), scaled=False)  # for centred features

        def multiplied(g: np.ndarray) -> np.ndarray:
            along, one = g[0, :d], g[0, d:]
            w = V @ (reciprocal * (V.T @ (along - edge * (one.sum() / corner))))
            return np.concatenate([w, (one - edge @ w) / corner])[None, :]

        return multiplied

    def primal(self, theta: np.ndarray) -> float:
        """P₀."""
        value = self.problem.primal_at(self.margins(theta), self.nothing)
        return 0.0 if value <= self.zero else value

    @cached_property
    def zero(self) -> float:
        """The mean loss up to which P₀ counts as zero, which a bound on rounding errors includes; −∞ if no loss is zero."""
        problem, step = self.problem, no_residual(self.problem)
        y, loss = problem.y, problem.loss
        if self.quadratic:
            return mean_weight(problem) * step**2
        if not loss.kinked or problem.label_sums.below != 0.0 or loss.value(y, y).any():  # min φ = φ(y; y) = 0
            return -math.inf
        values = (loss.value(y + shift, y) * (problem.c > 0.0) for shift in (-step, step))
        return mean_weight(problem) * max(float(value.max()) for value in values)


def no_residual(problem: Problem) -> float:
    """Return the size of residuals that counts as zero, by the largest label among rows of positive weight."""
    y, c = problem.y, problem.sample_weight
    y = y if c is None else problem.row_vectors._replace(c=c > 0.0).weighted(y)
    return NOTHING * float(np.abs(y).max())


def mean_weight(problem: Problem) -> float:
    """Return (1/n) Σ c_i."""
    return problem.label_sums.weight / problem.n


def unit_factor(H: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the Cholesky factor of D(s)HD(s), whose diagonal is one, and s; None if that may be near a singular matrix."""
    from scipy.linalg.lapack import dpocon, dpotrf

    diagonal = H.diagonal()
    if not diagonal.min(initial=math.inf) > SMALLEST:
        return None
    scale = 1.0 / np.sqrt(diagonal)
    B = H * np.outer(scale, scale)
    norm = float(np.abs(B).sum(axis=0).max(initial=0.0))
    L, failed = dpotrf(B, lower=True)
    return None if failed or not dpocon(L, norm, uplo="L")[0] > WELL else (L, scale)


def _decomposed(H: np.ndarray, *, scaled: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the eigenvectors of H outside its null space, the reciprocals of their eigenvalues, and the scaling of H.

    If ``scaled``, H is scaled to a unit diagonal first, so that the result does not depend on the scales of the features.
    """
    from scipy.linalg import eigh

    diagonal = np.diag(H) if scaled else np.ones(len(H))
    scale = 1.0 / np.sqrt(np.where(diagonal > SMALLEST, diagonal, 1.0))
    values, vectors = eigh(H * np.outer(scale, scale))
    kept = values > max(SINGULAR * values[-1], SMALLEST)
    return vectors[:, kept], 1.0 / values[kept], scale
