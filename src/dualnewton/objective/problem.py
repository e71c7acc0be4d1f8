"""The optimisation problem, its dual, and the verifier that certifies solutions of it."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.losses import Loss
from dualnewton.matrix import Data, RowVectors, as_data, linear
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective import row_sums
from dualnewton.objective.bounds import best_intercept_bounds, better, dual_bounds, primal_bounds
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.multiples import scaled_if_far
from dualnewton.objective.rounding import allowed_rounding, rounding_bound
from dualnewton.regularizers import L2, Regularizer
from dualnewton.regularizers.base import OverRows
from dualnewton.row_arrays import ones
from dualnewton.validation import SHORT, data_matrix, finite, frozen, positive, vector

_SAFETY = 4.0
"""Safety factor on the measured rounding error of ᾱ when α is scaled into the domain of g*: other summation orders may round
to larger values."""

_FEASIBLE = 1e-12
"""Tolerance, for rounding, of the dual constraint Σ c_i α_i = 0, as a fraction of Σ c_i |α_i|."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A regularised empirical risk, its dual, and certificates of the duality gap.

    The two problems of Section 4 of the paper, with weights c, offsets o and an unpenalised intercept b added, are

        min_{w, b}  P(w, b) = (1/n) Σ c_i φ(a_iᵀw + b + o_i; y_i) + λ g(w)
        max_α       D(α)    = (1/n) Σ c_i (−φ*(−α_i; y_i) − o_i α_i) − λ g*(ᾱ),    ᾱ = (1/λn) Σ c_i α_i a_i

    where Σ c_i α_i = 0 is required if there is an intercept. At the optimum w = ∇g*(ᾱ) and α_i = −φ′(z_i).
    If g is not strongly convex (the Lasso), ᾱ must lie in the domain of g*, and w ∈ ∂g*(ᾱ).

    For a loss of K > 1 columns (:class:`losses.Softmax`), an example has K margins z_i = W a_i + b + o_i: w is a K × d matrix W,
    b has K entries, α and o are n × K, and the penalty is Σ_k g(w_k) over the rows of W. A regulariser that joins the columns
    (``form.joint``) is a function of W itself: for g(W) = Σ_j ‖W_j‖ over the features j, g*(Ā) is finite where all ‖Ā_j‖ ≤ 1,
    and α is scaled down until they are, which preserves Σ c_i α_i = 0 in each column.

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        One example a_i per row; float32 and float64 are kept; CSR and C-ordered arrays are not copied.
    y : array of shape (n,), or (n, K) for :class:`losses.SquaredOutputs`
        The labels; the loss defines the allowed values.
    loss : Loss
        φ.
    regularizer : Regularizer
        g; ½‖w‖² by default. For several columns it must be a sum over features.
    lam : float
        λ > 0; 1/n by default.
    sample_weight : array of shape (n,), optional
        c ≥ 0, not all zero. A weight of two equals a repeated row, except for the factor 1/n.
    offset : array of shape (n,) or (n, K), optional
        o, added to the margins.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 5))
    >>> y = np.where(X[:, 0] + 0.5 * rng.standard_normal(100) > 0, 1.0, -1.0)
    >>> problem = dn.Problem(X, y, dn.losses.Logistic(), lam=0.01)
    >>> problem
    Problem(n=100, d=5, loss=Logistic(), regularizer=L2(weights=None), lam=0.01)
    >>> round(problem.primal(np.zeros(5)), 4)  # log 2
    0.6931
    >>> problem.certify(np.zeros(5)).gap > 0
    True
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
        data = as_data(self.X)
        n, d = data.n, data.d
        y, counts = row_sums.checked_labels(self.loss, data.adopted("y", self.y), n)
        vars(self).update(data=data, n=n, d=d, columns=self.loss.columns)  # properties that small fits read often
        vars(self)["label_counts"], y = counts, data.placed(y)
        if self.regularizer.size not in (None, d):
            raise DualnewtonError(f"regularizer is made for {self.regularizer.size} features, X has {d}")
        if self.columns > 1 and self.regularizer.form.is_general:
            raise DualnewtonError(
                "regularizer must be a sum over features for several classes, one of L2(), ElasticNet(), L1(), NonNegative() "
                f"and Box(), got {self.regularizer!r}"
            )
        weights = self.sample_weight
        if weights is not None:
            weights = vector("sample_weight", data.adopted("sample_weight", weights), n, low=0.0)
        if weights is not None and not weights.any():
            raise DualnewtonError("sample_weight must have a positive entry, got zeros only")
        checked = {
            "X": getattr(data, "X", data),  # the matrix itself if it is in memory
            "y": y,
            "lam": 1.0 / n if self.lam is None else positive("lam", self.lam),
            "sample_weight": None if weights is None else data.placed(weights),
            "offset": None if self.offset is None else self.dual_point(data.adopted("offset", self.offset), "offset"),
            "fit_intercept": bool(self.fit_intercept),
        }
        vars(self).update(checked, row_vectors=RowVectors(y, checked["sample_weight"], checked["offset"]))  # frozen

    def __repr__(self) -> str:
        extras = [name for name in ("sample_weight", "offset") if getattr(self, name) is not None]
        return (
            f"Problem(n={self.n}, d={self.d}, loss={self.loss!r}, regularizer={self.regularizer!r}, lam={self.lam:g}"
            f"{''.join(f', {name}=...' for name in extras)}{', fit_intercept=True' if self.fit_intercept else ''})"
        )

    own_starts = False  # True if the objective certifies its own starting point (``starting_pair``)

    # The data --------------------------------------------------------------------------------------------------------

    @cached_property
    def data(self) -> Data:
        """X, wrapped in the protocol :class:`Data`."""
        return as_data(self.X)

    @cached_property
    def n(self) -> int:
        """The number of examples."""
        return self.data.n

    @cached_property
    def d(self) -> int:
        """The number of features."""
        return self.data.d

    @cached_property
    def columns(self) -> int:
        """K, the number of margins per example."""
        return self.loss.columns

    @property
    def unit(self) -> Problem:
        """The problem over these data with checked labels, weights and offsets: itself (see ``objective/around.py``)."""
        return self

    @property
    def scheme(self) -> str | None:
        """The outer scheme that solves the problem: smoothing for a loss with kinks, else None."""
        return "smoothing" if self.loss.kinked else None

    @property
    def places_models(self) -> bool:
        """Whether models and ᾱ may be feature arrays of the data (``Data.feature_array``) instead of NumPy arrays.

        The functions of g = ½‖w‖² have no arrays of their own. Losses with kinks are fitted by schemes that work in memory.
        """
        return self.columns == 1 and self.regularizer.form.is_plain and self.scheme is None

    @cached_property
    def c(self) -> np.ndarray:
        """The weights as a vector, ones by default."""
        return frozen(ones(self.n, self.y)) if self.sample_weight is None else self.sample_weight

    @cached_property
    def o(self) -> np.ndarray:
        """The offsets as an array of the shape of the margins, zeros by default."""
        return frozen(self.no_dual()) if self.offset is None else self.offset

    @cached_property
    def norms(self) -> np.ndarray:
        """‖a_i‖² of each row."""
        return frozen(self.data.row_scores(np.ones(self.d)))

    @cached_property
    def slopes_at_zero(self) -> np.ndarray:
        """Σ c_i φ′(b + o_i) a_i at w = 0 and its best intercept b; for several columns, one column for each."""
        return -self.data.transposed_times(self.weighted(self.slopes_at(self.o + self.best_intercept_at(self.o))))

    @cached_property
    def label_sums(self) -> row_sums.LabelSums:
        """Sums over labels, weights and offsets, for the rounding bound of every certificate."""
        return row_sums.label_sums(self.loss, self.row_vectors)

    @cached_property
    def pieces(self) -> np.ndarray | None:
        """The slopes and kinks of each example's loss if it is piecewise linear, else None: see ``Loss.pieces``."""
        pieces = self.loss.pieces(self.y)
        return None if pieces is None else frozen(pieces)

    @cached_property
    def g(self) -> Any:
        """The penalty as a function of w: the regulariser, summed over the rows of W if it does not join several columns."""
        return self.regularizer if self.columns == 1 or self.regularizer.form.joint else OverRows(self.regularizer)

    # The two objectives ----------------------------------------------------------------------------------------------

    def margins(self, w: np.ndarray, intercept: Any = 0.0) -> np.ndarray:
        """z_i = a_iᵀw + b + o_i; for several columns, one row per example."""
        products = self.data.times(w.T)
        return self.row_vectors.shifted(
            products + (np.asarray(intercept, like=products) if self.columns > 1 else intercept)
        )

    def primal(self, w: np.ndarray, intercept: Any = None) -> float:
        """P(w, b), with b = 0 by default."""
        w = self.model(w)
        return self.primal_at(self.margins(w, 0.0 if intercept is None else self._intercept(intercept)), w)

    def dual(self, alpha: np.ndarray) -> float:
        """D(α), which is −∞ if α is infeasible."""
        alpha = self.dual_point(alpha)
        return self.dual_at(alpha, self.alpha_bar(alpha))

    def dual_at(self, alpha: np.ndarray, alpha_bar: np.ndarray) -> float:
        """D(α), given ᾱ."""
        return self.dual_value(
            row_sums.dual_terms(self.loss, alpha, self.row_vectors, masses=self.fit_intercept), alpha_bar
        )

    def dual_value(self, terms: row_sums.DualTerms, alpha_bar: np.ndarray, *, balanced: bool = False) -> float:
        """D(α), given its sums over rows and ᾱ; −∞ if sums exceed the range of float64 (∞, or ∞ − ∞).

        ``balanced`` says that Σ c_i α_i = 0 is known.
        """
        if self.fit_intercept and not balanced and self.is_unbalanced(terms.sizes):
            return -np.inf
        total = terms.linear + terms.conjugates
        value = float(-total / self.n - self.lam * self.g.conjugate(alpha_bar))
        return value if value < np.inf else -np.inf

    def is_unbalanced(self, sizes: row_sums.DualSizes) -> bool:
        """Whether Σ c_i α_i = 0 fails beyond rounding, so that α is no dual point of a problem with an intercept."""
        if self.columns == 1:
            return bool(abs(sizes.sums) > _FEASIBLE * sizes.absolute)
        each = zip(sizes.sums.tolist(), sizes.absolute.tolist(), strict=True)
        return True in [abs(total) > _FEASIBLE * size for total, size in each]

    def weighted(self, values: np.ndarray) -> np.ndarray:
        """Multiply the values of each example by c_i."""
        return self.row_vectors.weighted(values)

    def alpha_bar(self, alpha: np.ndarray) -> np.ndarray:
        """ᾱ = (1/λn) Σ c_i α_i a_i, in the shape of w."""
        sums = self.data.transposed_times(self.weighted(alpha))
        return np.ascontiguousarray(sums.T) / (self.lam * self.n)

    # Losses and curvatures of blocks of rows, for primal methods ---------------------------------------------------------

    @cached_property
    def row_vectors(self) -> RowVectors:
        """Labels, weights and offsets, which a pass divides into blocks together with the rows."""
        return RowVectors(self.y, self.sample_weight, self.offset)

    def row_losses(self, rows: RowVectors, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Return Σ c_i φ_i and c_i φ′_i over a block of rows with margins z = a_iᵀw + b without the offsets."""
        return row_sums.value_and_slopes(self.loss, z, rows)

    def row_curvature(self, z: np.ndarray) -> np.ndarray:
        """c_i φ″_i of all rows with margins z = a_iᵀw + b without the offsets; for several columns, the diagonals."""
        return row_sums.curvature(self.loss, z, self.row_vectors)

    def row_couplings(self, z: np.ndarray) -> np.ndarray:
        """c_i q_kl of all rows with margins z = W a_i + b, one column for each pair of classes: see ``Loss.couplings``."""
        return row_sums.couplings(self.loss, z, self.row_vectors)

    # Conversion between primal and dual points, and projection onto the feasible set ---------------------------------

    def model(self, w: Any) -> np.ndarray:
        """Return w as a read-only float64 array; raise an error if its shape is wrong."""
        return vector("w", w, self.d) if self.columns == 1 else finite_matrix("W", w, (self.columns, self.d))

    def dual_point(self, alpha: Any, name: str = "alpha") -> np.ndarray:
        """Return α as a read-only float64 array; raise an error if its shape is wrong."""
        found = vector(name, alpha, self.n) if self.columns == 1 else finite_matrix(name, alpha, (self.n, self.columns))
        return self.data.placed(found)

    def w_of(self, alpha: np.ndarray) -> np.ndarray:
        """Return w = ∇g*(ᾱ), the primal point of a dual point."""
        return self.g.grad_conjugate(self.alpha_bar(self.dual_point(alpha)))

    def alpha_of(self, w: np.ndarray, intercept: Any = None) -> np.ndarray:
        """Return α_i = −φ′(z_i), made feasible; b is the best intercept for w if none is given."""
        margins = self.margins(self.model(w))
        b = self.best_intercept_at(margins) if intercept is None else self._intercept(intercept)
        return self.feasible(self.slopes_at(margins + np.asarray(b, like=margins)))

    def no_intercept(self) -> Any:
        """b = 0."""
        return 0.0 if self.columns == 1 else np.zeros(self.columns)

    def no_dual(self) -> np.ndarray:
        """α = 0, a feasible starting point of every dual method."""
        return np.zeros(self.n if self.columns == 1 else (self.n, self.columns), like=self.y)

    def dual_near(self, alpha: np.ndarray) -> np.ndarray:
        """Return a feasible dual point near α, for a warm start."""
        alpha = self.loss.nearest_dual(self.dual_point(alpha, "warm_start"), self.y)
        return self.feasible(alpha)

    def feasible(self, alpha: np.ndarray) -> np.ndarray:
        """Return a feasible point near α, whose −α_i lie in the domain of φ*: balanced, and with finite g*(ᾱ)."""
        return self.within_reach(self.balanced(alpha))

    def balanced(self, alpha: np.ndarray) -> np.ndarray:
        """Make Σ c_i α_i = 0 if there is an intercept."""
        return self.loss.balanced(alpha, self.y, self.c) if self.fit_intercept else alpha

    def within_reach(self, alpha: np.ndarray) -> np.ndarray:
        """Scale α down until g*(ᾱ) is finite, which is necessary only if g is not strongly convex (the Lasso).

        The domains of φ* and g* are convex and contain 0, so that scaling down preserves feasibility.
        """
        if self.regularizer.strongly_convex:
            return alpha
        bars = self.data.transposed_times(self.weighted(np.column_stack([alpha, alpha / 3.0]))).T / (self.lam * self.n)
        bar, third = bars.reshape(2, -1, self.d) if self.columns > 1 else bars
        factor = self.reach(bar, np.abs(bar - 3.0 * third))
        return alpha if factor == 1.0 else factor * alpha

    def reach(self, bar: np.ndarray, error: Any) -> float:
        """Return the factor in (0, 1] by which α must be scaled for g*(ᾱ) to be finite.

        For small λ, sums that almost cancel are divided by λ. ``error`` is the size of the rounding errors of ᾱ, as one number or
        of each entry: the factor is that of ᾱ with each entry moved away from zero by a multiple of it.
        """
        return float(self.g.reach(bar + np.copysign(_SAFETY * error, bar)))

    def best_intercept(self, w: np.ndarray) -> Any:
        """argmin_b P(w, b), or zero without an intercept; there Σ c_i φ′(z_i) = 0, which makes α_i = −φ′(z_i) feasible."""
        return self.best_intercept_at(self.margins(self.model(w)))

    def _intercept(self, intercept: Any) -> Any:
        return finite("intercept", intercept) if self.columns == 1 else vector("intercept", intercept, self.columns)

    def allowed_intercept(self, intercept: Any) -> Any:
        """Return b as an array or float; raise an error if it is not finite, or not zero in a problem without an intercept."""
        given = self._intercept(intercept)
        if not self.fit_intercept and (given != 0.0 if self.columns == 1 else given.any()):
            seen = np.asarray(given).tolist()
            raise DualnewtonError(f"intercept must be 0 in a problem with fit_intercept=False, got {seen!r}")
        return given

    # The verifier ----------------------------------------------------------------------------------------------------

    def certify(
        self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None, *, exact: bool = False
    ) -> Certificate:
        """Return a certificate of (w, b), recomputed from the data in float64, with a bound on its rounding errors.

        Parameters
        ----------
        w : array of shape (d,) or (K, d)
            The model.
        intercept : float or array of shape (K,), optional
            b; by default the best one for w if the problem has an intercept.
        alpha : array of shape (n,) or (n, K), optional
            A dual point to try in addition to α_i = −φ′(z_i); it is made feasible first. The certificate uses the larger dual
            value. Far from the optimum, where −φ′ overshoots, sα for the best s ∈ [0, 1] is tried as well.
        exact : bool
            Whether the values of the same pair are recomputed in extended precision (``objective/extended.py``), which makes the
            bound on the rounding errors about 2000 times smaller and takes about ten times as long.
        """
        # As in a run: values that overflow give an infinite gap, and no bit depends on the number of threads of BLAS.
        with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
            pair = self.certified_pair(w, intercept, alpha)
            return (self.extended(pair) if exact else self.bounded(pair)).certificate

    def bounded(self, pair: CertifiedPair, tol: float | None = None) -> CertifiedPair:
        """Return the pair with a bound on the rounding errors of its certificate, if it has none.

        With a ``tol`` the bound need not be sharp where gap and errors are at most tol|P|.
        """
        found = pair.certificate
        if found.rounding is not None or len(pair.alpha) != self.n:
            return pair
        enough = -np.inf if tol is None else allowed_rounding(found.primal, found.dual, tol)
        point = pair.w, pair.intercept, pair.alpha, found.primal, found.dual
        return pair.with_rounding(rounding_bound(self, *point, sizes=pair.sizes, enough=enough))

    @property
    def extends(self) -> bool:
        """Whether certificates can be recomputed in extended precision, which needs the rows in this process."""
        return self.data.capabilities.local

    def extended(self, pair: CertifiedPair) -> CertifiedPair:
        """Return the pair with its certificate recomputed in extended precision."""
        from dualnewton.objective.extended import extended_pair  # rarely used

        self.data.capabilities.require_local("a certificate in extended precision")
        return extended_pair(self, pair)

    def certified_pair(self, w: np.ndarray, intercept: Any = None, alpha: np.ndarray | None = None) -> CertifiedPair:
        """Do the same as :meth:`certify`, and return the model and the dual point together with the certificate."""
        w = self.model(w)
        given = None if intercept is None else self.allowed_intercept(intercept)
        if given is None and self.fit_intercept:
            ((primal, b, bound),) = best_intercept_bounds([self], [w])
        else:
            b = self.no_intercept() if given is None else given
            ((primal, bound, _),) = primal_bounds([self], [w], [b])
        if alpha is not None:
            (other,) = dual_bounds([self], [self.balanced(self.dual_point(alpha))])
            bound = better(bound, other)
        bound = scaled_if_far(self, primal, bound)
        return CertifiedPair(w, b, bound.alpha, Certificate(primal, bound.value)).with_sizes(bound.sizes)

    def recomputed(self, pair: CertifiedPair) -> Certificate:
        """Return P(w, b) and D(α) of a pair whose certificate must be recomputed, for example one from a file."""
        return Certificate(self.primal(pair.w, self.allowed_intercept(pair.intercept)), self.dual(pair.alpha))

    def primal_at(self, margins: np.ndarray, w: np.ndarray) -> float:
        """P(w), given the margins."""
        return self.losses_at(margins) + float(self.lam * self.g.value(w))

    def losses_at(self, margins: np.ndarray) -> float:
        """(1/n) Σ c_i φ(z_i), given the margins."""
        return row_sums.values(self.loss, margins, self.row_vectors._replace(o=None)) / self.n

    def slopes_at(self, margins: np.ndarray) -> np.ndarray:
        """−φ′(z_i)."""
        return row_sums.dual_point(self.loss, margins, self.row_vectors._replace(o=None))

    def best_intercept_at(self, margins: np.ndarray, near: Any = 0.0) -> Any:
        """argmin_b of the losses at the margins z_i + b, with the root search started at ``near``; zero without an intercept."""
        if not self.fit_intercept:
            return self.no_intercept()
        return row_sums.best_intercept(self.loss, margins, self.row_vectors, near)

    def best_intercept_without_features(self) -> Any:
        """Return the best b for w = 0."""
        if self.offset is None and self.fit_intercept:
            return self.loss.best_constant(self.y, self.sample_weight)
        return self.best_intercept_at(self.o)


def finite_matrix(name: str, value: Any, shape: tuple[int, int]) -> np.ndarray:
    """Return ``value`` as a read-only, finite float64 matrix of the given shape."""
    plain = type(value) is np.ndarray and value.dtype == np.float64 and value.flags.c_contiguous
    if plain and value.shape == shape and value.size <= SHORT and math.isfinite(np.vdot(value, value)):
        return frozen(value)  # calls dominate the time of small fits
    if np.shape(value) != shape:
        raise DualnewtonError(f"{name} must have shape {shape}, got {np.shape(value)}")
    return frozen(linear.to_dense(data_matrix(name, value)).astype(np.float64, copy=False))
