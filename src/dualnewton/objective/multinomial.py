"""Multinomial (softmax) logistic regression as a :class:`Problem` with the loss ``Softmax``."""

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

    where p_i = e_{y_i} − α_i ∈ Δ and H(p) = −Σ_k p_k log p_k; with an intercept, Σ c_i α_i = 0 is required. With
    g = ½‖w‖² and no intercept, P(W) − D(α) = (λ/2)‖W − Ā‖² at α = −φ′(z).

    With an even number of classes and g = ‖w‖₁ the minimiser W may not be unique: if half of a feature's coefficients are
    positive and half negative, adding a small number to all of them changes neither the loss nor the penalty.

    Parameters
    ----------
    X, lam, sample_weight, fit_intercept
        As in :class:`Problem`.
    y : array of shape (n,)
        The class numbers, whole numbers in 0, …, K − 1.
    n_classes : int, optional
        K ≥ 2; by default the largest class number plus one, and at least two. A class may have no example.
    offset : array of shape (n, K), optional
        o, added to the margins.
    regularizer : Regularizer, optional
        g, a sum over features: L2 (the default), ElasticNet, L1, NonNegative or Box.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> problem = dn.MultinomialProblem(X, y, lam=0.01, fit_intercept=True)
    >>> dn.solve(problem).w.shape  # a row for each class
    (3, 4)
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
