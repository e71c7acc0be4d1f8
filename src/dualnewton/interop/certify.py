"""Certificates of fitted linear models of this and other libraries: the duality gap from coefficients and data."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton import matrix
from dualnewton.errors import DualnewtonError
from dualnewton.interop import generalised_linear  # noqa: F401 (enters the models of other libraries)
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import translation_of
from dualnewton.io.dataset import Dataset
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective.certificate import Certificate
from dualnewton.row_arrays import on_host
from dualnewton.validation import data_matrix, vector

__all__ = ["certify"]


def certify(
    model: Any, X: Any, y: Any = None, *, sample_weight: Any = None, offset: Any = None, exact: bool = False
) -> Certificate:
    """Prove how close a fitted model, of this library, scikit-learn, glum or statsmodels, is to the minimum of its own objective.

    That objective is written, divided by a positive factor, as P(w, b) of a :class:`Problem` (Section 4 of the paper) and
    certified at ``coef_`` and ``intercept_``, against the dual point α_i = −φ′(z_i). Hence ``factor * certificate.gap`` bounds
    the suboptimality of the model in the units of its own objective, whichever solver was used and whatever it reported;
    ``relative_gap`` is the same in both units.

    ========================================= ================================================================ ========
    scikit-learn's model                      objective                                                        factor
    ========================================= ================================================================ ========
    Ridge, RidgeClassifier and their CV       Σ c_i (z_i − y_i)² + alpha ‖w‖², ``positive`` included           2n
    LinearRegression                          Σ c_i (z_i − y_i)², ``positive`` included                        2n
    ElasticNet, Lasso and their CV            Σ c_i (z_i − y_i)²/(2 Σ c_i) + alpha(½(1 − r)‖w‖² + r‖w‖₁)       1
    MultiTaskElasticNet, -Lasso and their CV  Σ c_i ‖z_i − y_i‖²/(2 Σ c_i) + alpha(½(1 − r)‖W‖² + r Σ_j ‖W_j‖) 1
    HuberRegressor                            Σ c_i (σ + σ H((z_i − y_i)/σ)) + alpha ‖w‖²                      2n
    QuantileRegressor                         Σ c_i max(q(y_i − z_i), (q − 1)(y_i − z_i))/Σ c_i + alpha ‖w‖₁     1
    LogisticRegression(CV), two classes       C Σ c_i log(1 + exp(−y_i z_i)) + ½(1 − r)‖w‖² + r‖w‖₁            C n
    LogisticRegression(CV), K > 2             C Σ c_i (log Σ_k exp(z_ik) − z_{i,y_i}) + the same of all w_k    C n
    LinearSVC                                 C Σ c_i max(0, 1 − y_i z_i)^p + ½‖w‖² + ½(b/s)²                  p C n
    LinearSVR                                 C Σ c_i max(0, ``|z_i − y_i|`` − epsilon)^p + ½‖w‖² + ½(b/s)²    p C n
    SVC, two classes, and SVR, kernel linear  C Σ c_i max(0, 1 − y_i z_i) + ½‖w‖², or as LinearSVR             C n
    Poisson-, Gamma-, TweedieRegressor        Σ c_i φ(z_i; y_i)/Σ c_i + alpha(½(1 − r)‖w‖² + r‖w‖₁)            1
    OneVsRestClassifier of the above          the sum of theirs                                                theirs
    ========================================= ================================================================ ========

    where z_i = x_iᵀw + b, r = ``l1_ratio``, s = ``intercept_scaling``, p = 2 for the squared losses and 1 for the others,
    φ is ``losses.Poisson``, ``Gamma`` or ``Tweedie`` (glum's models of these families are certified like scikit-learn's, those of
    statsmodels without a penalty),
    H(t) = t² for ``|t|`` ≤ ``epsilon`` and 2 ``epsilon |t|`` − ``epsilon``² beyond, and c_i is the sample weight times the class
    weight. The intercept is free, except that liblinear (LinearSVC, LinearSVR, ``solver="liblinear"``) adds ½(b/s)²; with
    the penalty ‖w‖₁ instead of ½‖w‖² it adds ``|b/s|``. The objective of an estimator of this library, and the factor, are
    in its docstring.

    Close to the optimum the bound is tight; far from it, the bound may be many times the suboptimality. The losses with a
    kink (p = 1, quantiles) and HuberRegressor need more than w for a good dual point. For these, :func:`solve` searches one until
    the bound exceeds the suboptimality by at most a ninth, which takes about as long as a fit. ``dual_coef_`` is tried first.

    Parameters
    ----------
    model : fitted estimator, or model from a file (``dualnewton.load``)
        Its parameters have their current values, even if they were changed after ``fit``. A model that cannot be certified is
        refused with the reason and an alternative.
    X : array, sparse array or data frame of shape (n, d), or Dataset
        The data it was fitted on; rows of a data set on disk are read in passes, and those on a GPU stay there.
    y : array or series of shape (n,), or (n, outputs) for a regression with several outputs
        The targets or class labels it was fitted on; if None, those of the data set.
    sample_weight : number or array of shape (n,), optional
        The weights that were given to ``fit``. A fitted model does not store them, so they must be given again: without them the
        certificate is valid, but for another problem.
    offset : array of shape (n,), optional
        The offsets that were given to ``fit`` (:class:`PoissonRegressor`, similar estimators, glum, statsmodels), for the same
        reason.
    exact : bool
        Whether P and D are recomputed in extended precision, useful if ``certificate.rounding`` is not negligible against the
        gap. It takes about ten times as long; for data in memory or on disk.

    Returns
    -------
    Certificate
        The certificate; with several classes or outputs, of their sum, and ``parts`` has the certificate of each.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> certificate = dn.certify(LogisticRegression().fit(X, y), X, y)  # a model of scikit-learn
    >>> 0 <= certificate.relative_gap < 1e-3
    True
    """
    translate = translation_of(model)
    if hasattr(model, "fit"):  # a saved model is always fitted
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(model)
    # As in a fit: values that overflow give an infinite gap, and no bit depends on the number of threads of BLAS.
    with one_blas_thread, np.errstate(over="ignore", invalid="ignore"):
        parts = translate(model, _checked(X, y, sample_weight, offset))
        certificates = tuple(part.certificate(exact=exact) for part in parts)
    return certificates[0] if len(certificates) == 1 else Certificate.of_parts(certificates)


def _checked(X: Any, y: Any, sample_weight: Any, offset: Any) -> Examples:
    if isinstance(X, Dataset):
        X, y, sample_weight = X.X, X.y if y is None else y, X.sample_weight if sample_weight is None else sample_weight
    if not isinstance(X, matrix.Data):
        elsewhere = matrix.from_elsewhere(X)
        X = data_matrix("X", X) if elsewhere is None else elsewhere
    y, sample_weight, offset = np.asarray(on_host(y)), on_host(sample_weight), on_host(offset)
    n = X.shape[0]
    if y.ndim == 0 or len(y) != n:
        raise DualnewtonError(f"y must have {n} rows, as X has, got shape {y.shape}")
    if sample_weight is not None:
        weights = np.full(n, sample_weight) if np.ndim(sample_weight) == 0 else sample_weight
        sample_weight = vector("sample_weight", weights, n, low=0.0)
    return Examples(X, y, sample_weight, None if offset is None else vector("offset", offset, n))
