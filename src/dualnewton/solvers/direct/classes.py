"""Softmax with a quadratic penalty: L-BFGS from a Hessian that all classes share, then from Hessians of single classes.

With Q_i = diag(p_i) − p_i p_iᵀ the Hessian is H = Σ c_i Q_i ⊗ ã_i ã_iᵀ + ridge, for K(d + 1) unknowns. Its blocks take K²/2 Gram
matrices, each of which costs several passes. Two approximations take fewer:

1. At w = 0 all Q_i are equal, and Σ c_i Q_i ⊗ ã_i ã_iᵀ = S ⊗ G with one Gram matrix G. Elsewhere Q_i is replaced by w_i S, with
   w_i = tr Q_i and S the mean of all Q_i, of trace one. The steps begin with this matrix.
2. Where these need many passes, the probabilities of the rows differ too much. The Hessians of single classes, H_k = Σ c_i p_ik
   (1 − p_ik) ã_i ã_iᵀ + ridge, take K Gram matrices. Small problems use H itself, and so do larger ones whose gap decreases too
   slowly with those of single classes, such as separable classes with a weak penalty.

Every column sum of W and of the gradient is zero: neither the losses nor their gradients change if a vector is added to the
coefficients of all classes, and the penalty is least if these sum to zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from dualnewton.losses.softmax import class_weights
from dualnewton.matrix.factors import solved
from dualnewton.matrix.grams import coupled
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import couplings, curvature
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import (
    OBSERVED,
    OBSERVED_JOINT,
    PATIENCE,
    Pairs,
    further_steps,
    is_close,
    is_slow,
    quasi_newton,
)
from dualnewton.solvers.direct.risk import Risk

RARE = 1e-6
"""Least share of a class in the Hessian at w = 0: that of a class without examples would be singular."""

NOISE, NOTICED = 2.5e-7, 0.05
"""Rounding error of a product in float32, with a margin, and the largest part of the wanted gap that such errors may cause."""

Inverse = Callable[[np.ndarray], np.ndarray]


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits, *, passes: int, whole: bool) -> Found:
    """Take steps until the expected gap is small enough, or the predicted decrease of a step is rounding.

    Parameters
    ----------
    passes : int
        Steps that cost as much as a new Hessian: one is computed where more are expected.
    whole : bool
        Whether this Hessian is H, or that of each class.
    """
    risk, goal, most = Risk.of(problem, block), WELL_BELOW * limits.tol, 2 * limits.most
    weights = class_weights(problem.y, problem.sample_weight, problem.columns)
    shares = np.maximum(weights / weights.sum(), RARE)
    if start is None:
        b = np.log(shares) if weights.all() else problem.best_intercept_without_features()
        start = np.zeros((problem.columns, problem.d)), b if risk.free else problem.no_intercept()
        alike = problem.offset is None
    else:
        alike = False
    w, b = start[0] - np.mean(start[0], axis=0), start[1] - np.mean(start[1])
    x, steps = risk.vector(w, b), 0
    # Rounding errors in float32 change g by about their size times ‖X‖‖R‖, where ‖R‖² is at most 2nP.
    noise = (NOISE * problem.data.norm) ** 2 / (problem.lam * problem.n)
    patience = partial(
        is_slow, price=passes, observed=min(max(passes // 2, OBSERVED_JOINT), OBSERVED) if whole else OBSERVED
    )
    few = problem.columns * problem.d <= block.crossovers.joint_classes
    narrow = noise <= NOTICED * goal and risk.rows.size >= block.crossovers.narrowed_entries
    for own in (risk.narrowed(), risk) if narrow else (risk,):
        at, pairs = own.at(x, own.constant(b) if alike else own.margins(x)), Pairs()
        inverse, first, since = shared_inverse(own, at.margins, alike=alike), own.gap(at), steps
        while True:
            at, taken, last = quasi_newton(
                own, at, inverse, Limits(goal, most - steps, limits.deadline), pairs, patience
            )
            steps += taken
            observed = steps - since
            missing = further_steps(first, own.gap(at), goal * abs(at.value), observed) if observed >= PATIENCE else 1.0
            slow = missing > most - steps
            if last or steps >= most or (slow and (whole or not few)) or limits.is_late():
                break
            if slow:
                whole, first, since = True, own.gap(at), steps
            joint = partial(solved, own.factor(at.margins, single=True)) if whole else None
            inverse = joint or inverse_of_each_class(own, at.margins)
        x, alike = at.x, False
        if not last or is_close(own, at, goal):
            break
    return Found(*risk.model(x), -(-steps // 2))


def shared_inverse(risk: Risk, margins: np.ndarray, *, alike: bool) -> Inverse:
    """Return q ↦ (S ⊗ G + ridge)⁻¹ q, up to the ridge, which is multiplied by S as well.

    ``alike`` is True if all rows have the same margins.
    """
    K, vectors = risk.loss.columns, risk.vectors
    if alike:
        pairs = risk.loss.couplings(margins[:1], vectors.y[:1])[0]
        trace = 2.0 * float(pairs.sum())
        weights, inverse = (
            np.full(risk.n, trace) if vectors.c is None else trace * vectors.c,
            _inverse(pairs / trace, K),
        )
    else:
        weights, inverse = coupling(couplings(risk.loss, margins, vectors), K)
    factor = risk.factor_of(weights, (K - 1) * risk.ridge[: risk.size])

    def apply(q: np.ndarray) -> np.ndarray:
        return (inverse @ solved(factor, q.reshape(K, -1).T).T).ravel()

    return apply


def coupling(products: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return c_i tr Q_i of all rows, and S⁻¹, up to the vector of ones, along which no gradient lies.

    ``products`` are the couplings of the K classes in each row (``objective.row_sums.couplings``).
    """
    pairs = products.sum(axis=0)
    return 2.0 * products.sum(axis=1), _inverse(pairs / (2.0 * float(pairs.sum())), K)


def _inverse(pairs: np.ndarray, K: int) -> np.ndarray:
    """Return S⁻¹, given the couplings of all pairs of classes in S."""
    S = coupled((pair[None, None] for pair in pairs), K)[:, 0, :, 0]
    S += 1.0 / (K * (K - 1)) + RARE * np.eye(K)  # along the vector of ones S is zero
    return np.linalg.inv(S)


def inverse_of_each_class(risk: Risk, margins: np.ndarray) -> Inverse:
    """Return q ↦ H_k⁻¹ q_k for every class, less the mean of the classes."""
    ridge = risk.ridge[: risk.size]
    diagonals = np.ascontiguousarray(curvature(risk.loss, margins, risk.vectors).T)
    factors = [risk.factor_of(own, ridge) for own in diagonals]
    return lambda q: solved_by_class(factors, q)


def solved_by_class(factors: Sequence[np.ndarray], q: np.ndarray) -> np.ndarray:
    """Return H_k⁻¹ q_k for every class, less the mean of the classes, given the factors of H_k."""
    parts = q.reshape(len(factors), -1)
    steps = np.array([solved(factor, own) for factor, own in zip(factors, parts, strict=True)])
    return (steps - steps.mean(axis=0)).ravel()
