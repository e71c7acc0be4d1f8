"""Expected separable overapproximation: vectors v with E[M_Ŝ] ⪯ D(p)D(v) (eqs. ESO and PM of the paper).

One derivation serves every sampling. With P = D(δ) + Σ_k c_k u_k u_kᵀ (``sampling.pair_structure()``) and m = diag M,

    E[M_Ŝ] = P ∘ M = D(δ∘m) + Σ_k c_k D(u_k) M D(u_k)  ⪯  D(δ∘m) + Σ_k c_k λ′_k D(u_k²∘m),

since M_T ⪯ λ′(M_T) D(m) on the support T of u_k, where λ′(Y) = λmax(D_Y^−½ Y D_Y^−½). Dividing by D(p),

    v_i = (m_i/p_i) (δ_i + Σ_k c_k λ′_k u_ki²),                                                             (structured)

which is M_ii for a serial sampling, (1 − β + βλ′(M)) M_ii with β = (τ−1)/(n−1) for τ-nice, (1 − b_i + b_i λ′(M)) M_ii
for coins b_i (whether or not the empty set is thrown away), and λ′(M_B) M_ii for i in block B of a partition.

Where the supports overlap, the sum over k counts an example many times, and the best multiple of m,

    v = λ′(P∘M) m,     because diag(P∘M) = p∘m,                                                           (proportional)

may be smaller. Both are always valid; the one with the smaller sum is returned.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.samplings import PairStructure, Sampling
from dualnewton.theory.expectations import expected_submatrix, symmetric
from dualnewton.theory.spectra import ExpectedGram, Rows, columns_of, inverse_root, overlapping, top
from dualnewton.validation import data_matrix, vector

_ROUNDING = 1e-10
"""Tolerance on the largest eigenvalue of a matrix scaled to unit diagonal, far above the rounding error of LAPACK for n ≤ 10⁴."""


def eso(M: Any, sampling: Sampling) -> np.ndarray:
    """v with E[M_Ŝ] ⪯ D(p)D(v) (eq. ESO); zero exactly where M_ii is.

    Parameters
    ----------
    M : array of shape (n, n)
        A symmetric positive semidefinite matrix.
    sampling : Sampling
        Ŝ; for a sampling that implements only ``pair_probabilities()`` the result is the proportional vector.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> theory.eso(M, samplings.Nice(2, tau=2)).round(4)
    array([3., 3.])
    """
    M = symmetric("M", M, sampling)
    m = M.diagonal()
    if m.min() < 0.0:
        raise DualnewtonError(f"M must be positive semidefinite, got M[{np.argmin(m)}, {np.argmin(m)}] = {m.min()!r}")
    unit = M * np.outer(inverse_root(m), inverse_root(m))

    def proportional() -> np.ndarray:
        P = sampling.pair_probabilities()
        root = inverse_root(P.diagonal())
        return top(P * unit * np.outer(root, root)) * m

    try:
        pairs = sampling.pair_structure()
    except NotImplementedError:
        return proportional()
    supports, _ = columns_of(pairs.factors)
    v = _structured(pairs, m, np.array([top(unit[np.ix_(T, T)]) if T.size else 0.0 for T in supports]))
    return min(v, proportional(), key=np.sum) if overlapping(pairs) else v


def eso_from_data(A: Any, sampling: Sampling) -> np.ndarray:
    """v with E[(AAᵀ)_Ŝ] ⪯ D(p)D(v) (eq. PM) for examples a_i in the rows of A; the n×n matrix is never formed.

    The result is the vector of :func:`eso` for M = AAᵀ. Each λ′ is computed from a small Gram matrix of normalised rows (d×d, or
    of the rows of one set) or, where that is too large, bounded from above by a Lanczos process.

    Parameters
    ----------
    A : array or sparse array of shape (n, d)
        The examples.
    sampling : Sampling
        Ŝ.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> theory.eso_from_data(np.eye(2), samplings.Nice(2, tau=2)).round(4)
    array([1., 1.])
    """
    rows = rows_for(A, sampling)
    pairs, m = sampling.pair_structure(), rows.diagonal
    v = _structured(pairs, m, rows.tops(_normalising(m, pairs.factors)))
    if not overlapping(pairs):
        return v
    at_most = float(np.divide(v, m, out=np.zeros_like(m), where=m > 0.0).max())
    proportional = ExpectedGram(rows, pairs).top(inverse_root(sampling.p * m), at_most) * m
    return min(v, proportional, key=np.sum)


def eso_cheap(A: Any, sampling: Sampling) -> np.ndarray:
    """v for E[(AAᵀ)_Ŝ] ⪯ D(p)D(v) from the sparsity of A alone: v_i = Σ_j (1 − β_i + β_i ω_j) A_ij², one pass and no eigenvalue.

    ω_j counts the nonzeros of feature j; β_i is (τ−1)/(n−1) for τ-nice, the coin of i for independent and 0 for serial sampling.
    It applies the derivation of this module to each term of AAᵀ = Σ_j A_:j A_:jᵀ: λ′ of the rank-one term of feature j is ω_j.
    Since this holds for β = 1 too, λ′(AAᵀ) ≤ max_i Σ_j ω_j A_ij²/‖a_i‖², so :func:`eso_from_data` has the smaller worst ratio
    max_i v_i/‖a_i‖²; for an example whose features are all rare, v_i may be smaller here.

    Parameters
    ----------
    A : array or sparse array of shape (n, d)
        The examples.
    sampling : Sampling
        Ŝ; serial, τ-nice, shuffled, independent, or another whose P is a diagonal plus one rank-one term.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> theory.eso_cheap(np.array([[1.0, 1.0], [1.0, 0.0]]), samplings.Nice(2, tau=2))
    array([3., 2.])
    """
    rows = rows_for(A, sampling)
    pairs = sampling.pair_structure()
    if pairs.weights.size > 1:
        raise DualnewtonError(
            f"sampling must have pair probabilities of the form diagonal + rank one, got {type(sampling).__name__} "
            f"with {pairs.weights.size} sets; eso_from_data is cheap for small sets"
        )
    coupling = pairs.factors.power(2) @ pairs.weights  # P_ii = δ_i + c u_i²
    # ω_j counts all rows, at least as many as the support of the rank-one term contains, so the bound stays valid.
    counts = np.asarray((rows.A != 0).sum(axis=0)).ravel()
    weighted = linear.squared_norms(rows.A @ linear.diagonal(np.sqrt(counts)))  # Σ_j ω_j A_ij²
    return (pairs.diagonal * rows.diagonal + coupling * weighted) / sampling.p


def eso_conservative(A: Any, sampling: Sampling) -> np.ndarray:
    """v_i = min(τ, λ′(AAᵀ)) ‖a_i‖² with |Ŝ| ≤ τ: valid for every sampling (paper, after eq. PM), rarely the smallest ESO.

    Parameters
    ----------
    A, sampling
        As for :func:`eso_from_data`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> theory.eso_conservative(np.eye(2), samplings.Nice(2, tau=2)).round(4)
    array([1., 1.])
    """
    rows = rows_for(A, sampling)
    everyone = sp.csc_array(np.ones((sampling.n, 1)))
    return min(float(sampling.max_size), *rows.tops(_normalising(rows.diagonal, everyone))) * rows.diagonal


def is_eso(M: Any, sampling: Sampling, v: Any) -> bool:
    """Return True if E[M_Ŝ] ⪯ D(p)D(v) up to rounding (eq. ESO).

    The test is λmax(D^−½ (P∘M) D^−½) ≤ 1 with D = D(p∘v); this scaling makes the tolerance independent of the units of M.

    Parameters
    ----------
    M, sampling
        As for :func:`eso`.
    v : array of shape (n,)
        The vector to check.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import samplings, theory
    >>> M = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> law = samplings.Nice(2, tau=2)
    >>> theory.is_eso(M, law, theory.eso(M, law)), theory.is_eso(M, law, np.array([2.0, 2.0]))
    (True, False)
    """
    expected = expected_submatrix(M, sampling)
    v = vector("v", v, sampling.n)
    p = sampling.pair_probabilities().diagonal()
    if v.min() < 0.0 or expected[v == 0.0].any():  # D(p∘v) − P∘M ⪰ 0 and v_i = 0 imply that row i of P∘M is zero
        return False
    root = inverse_root(p * v)
    return top(expected * np.outer(root, root)) <= 1.0 + _ROUNDING


def rows_for(A: Any, sampling: Sampling) -> Rows:
    """Return the rows of A, after checking that there is one for each example of the sampling."""
    A = data_matrix("A", A)
    if A.shape[0] != sampling.n:
        raise DualnewtonError(f"A must have {sampling.n} rows, one for each example of the sampling, got {A.shape[0]}")
    return Rows(A)


def _structured(pairs: PairStructure, m: np.ndarray, norms: np.ndarray) -> np.ndarray:
    # A factor with a negative weight (no sampling of this library has one) only lowers P∘M, so the bound omits it.
    bound = pairs.diagonal + pairs.factors.power(2) @ (np.maximum(pairs.weights, 0.0) * norms)
    return m * bound / pairs.marginals()


def _normalising(m: np.ndarray, factors: sp.csc_array) -> sp.csc_array:
    """Return columns u with u_i = m_i^−½ on the support of each factor: then λmax(D(u)AAᵀD(u)) is λ′ of that block."""
    return sp.csc_array((inverse_root(m)[factors.indices], factors.indices, factors.indptr), shape=factors.shape)
