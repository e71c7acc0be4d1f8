"""Judge the work of another library: the duality gap of a linear model that scikit-learn fitted."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton._foreign_models import Data, require_fitted, translation_of
from dualnewton._validate import data_matrix, vector
from dualnewton.certificate import Certificate

__all__ = ["certify"]


def certify(model: Any, X: Any, y: Any, sample_weight: Any = None) -> Certificate:
    """Prove how close a fitted scikit-learn model is to the minimum of its own objective.

    The objective that scikit-learn minimises is written, divided by a positive factor, as P(w, b) of a
    :class:`Problem` (Section 4 of the paper) and judged at ``coef_`` and ``intercept_``, against the dual point
    α_i = −φ′(z_i). Hence ``factor * certificate.gap`` bounds the suboptimality of the model in scikit-learn's own
    units, whichever of its solvers was used and whatever it reported; ``relative_gap`` is the same in both units.
    Close to the optimum the bound is sharp; far from it, it may overstate the suboptimality many times.

    ========================================= ================================================================ ========
    model                                     objective                                                        factor
    ========================================= ================================================================ ========
    Ridge, RidgeClassifier and their CV       Σ c_i (z_i − y_i)² + alpha ‖w‖², ``positive`` included           2n
    LogisticRegression(CV), two classes       C Σ c_i log(1 + exp(−y_i z_i)) + ½(1 − r)‖w‖² + r‖w‖₁            C n
    LinearSVC with squared hinge              C Σ c_i max(0, 1 − y_i z_i)² + ½‖w‖² + ½(b/s)²                   2 C n
    LinearSVR with squared insensitive loss   C Σ c_i max(0, |z_i − y_i| − epsilon)² + ½‖w‖² + ½(b/s)²         2 C n
    ElasticNet(CV) with r < 1                 Σ c_i (z_i − y_i)²/(2 Σ c_i) + alpha(½(1 − r)‖w‖² + r‖w‖₁)       1
    OneVsRestClassifier of the above          the sum of theirs                                                theirs
    ========================================= ================================================================ ========

    where z_i = x_iᵀw + b, r = ``l1_ratio``, s = ``intercept_scaling`` and c_i is the sample weight times the class
    weight. The intercept is free, except that liblinear (LinearSVC, LinearSVR, ``solver="liblinear"``) adds ½(b/s)².

    Parameters
    ----------
    model : fitted scikit-learn estimator
        Its parameters are read as they are now: if they were changed after ``fit``, the new ones count. What cannot be
        certified is refused by name, with a way out.
    X : array, sparse array or data frame of shape (n, d)
        The data it was fitted on.
    y : array or series of shape (n,), or (n, outputs) for a regression with several outputs
        The targets or class labels it was fitted on.
    sample_weight : number or array of shape (n,), optional
        The weights that were given to ``fit``. A fitted model does not remember them, so they must be given again:
        without them the certificate is a valid one, but of another problem.

    Returns
    -------
    Certificate
        Of the sum over classes or outputs where there are several; ``parts`` holds the certificate of each.
    """
    translate = translation_of(model)
    require_fitted(model)
    X, y = data_matrix("X", X), np.asarray(y)
    n = X.shape[0]
    if y.ndim == 0 or len(y) != n:
        raise ValueError(f"y must have {n} rows, as X has, got shape {y.shape}")
    if sample_weight is not None:
        weights = np.full(n, sample_weight) if np.ndim(sample_weight) == 0 else sample_weight
        sample_weight = vector("sample_weight", weights, n, low=0.0)
    certificates = tuple(
        part.problem.certify(part.w, part.intercept) for part in translate(model, Data(X, y, sample_weight))
    )
    return certificates[0] if len(certificates) == 1 else Certificate.of_parts(certificates)
