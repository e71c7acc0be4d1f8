"""Multinomial (softmax) logistic regression, in the words of classification: a problem with the loss ``Softmax``."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.losses import Softmax
from dualnewton.losses.softmax import class_numbers
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import L2, Regularizer
from dualnewton.validation import integer


def MultinomialProblem(
    X: Any,
    y: Any,
    *,
    lam: float | None = None,
    n_classes: int | None = None,
    sample_weight: Any = None,
    offset: Any = None,
    fit_intercept: bool = False,
    regularizer: Regularizer | None = None,
) -> Problem:
    """Return multinomial logistic regression over K classes as a :class:`Problem` with ``loss=losses.Softmax(K)``.

    With z_i = W a_i + b + o_i and the simplex Δ of distributions on K classes, the two problems are

        min_{W, b}  P(W, b) = (1/n) Σ c_i (log Σ_k exp(z_ik) − z_{i,y_i}) + λ Σ_k g(w_k)
        max_α       D(α)    = (1/n) Σ c_i (H(p_i) − o_iᵀα_i) − λ Σ_k g*(Ā_k),    Ā = (1/λn) Σ c_i α_i a_iᵀ,

    where p_i = e_{y_i} − α_i ∈ Δ and H(p) = −Σ_k p_k log p_k; Σ c_i α_i = 0 is asked for exactly when there is an intercept. With
    g = ½‖w‖² and no intercept, P(W) − D(α) = (λ/2)‖W − Ā‖² at the α that belongs to W.

    An even number of classes and g = ‖w‖₁ may leave W undetermined: to add a number to a feature's coefficients, half of which
    are positive and half negative, changes neither the margins' differences nor the penalty.

    Parameters
    ----------
    X, lam, sample_weight, fit_intercept
        Those of :class:`Problem`.
    y : array of shape (n,)
        The class numbers, whole numbers in 0, …, K − 1.
    n_classes : int, optional
        K ≥ 2; by default the largest class number plus one, and at least two. A class may have no example.
    offset : array of shape (n, K), optional
        o, added to the margins.
    regularizer : Regularizer, optional
        g, a sum over features: L2 (by default), ElasticNet, L1, NonNegative or Box.
    """
    if n_classes is None:
        n_classes = max(2, int(class_numbers(y, np.size(y), None).max(initial=0)) + 1)
    loss = Softmax(integer("n_classes", n_classes, 2))
    g = L2() if regularizer is None else regularizer
    return Problem(
        X,
        y,
        loss,
        regularizer=g,
        lam=lam,  # type: ignore[arg-type]
        sample_weight=sample_weight,
        offset=offset,
        fit_intercept=fit_intercept,
    )
