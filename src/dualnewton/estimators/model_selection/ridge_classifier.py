"""Ridge classification whose alpha cross-validation chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Examples
from dualnewton.estimators.model_selection.ridge import RidgeSearch
from dualnewton.estimators.ridge import RidgeClassifier
from dualnewton.interop.sklearn_objectives import ridge_classifier
from dualnewton.interop.specification import outputs
from dualnewton.run.result import Result


@estimator
class RidgeClassifierCV(RidgeSearch, RidgeClassifier):
    """Ridge regression on labels ±1, with alpha chosen by cross-validation, and a certificate for each model.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.RidgeClassifierCV``; differences and additions:

    Parameters
    ----------
    scoring : str, callable or None
        The score; None is the squared error without ``cv``, and the accuracy with it. Without ``cv`` the prediction for each
        row is that of the model fitted without this row. (scikit-learn 1.9 gives all models of two classes the same score there.)
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows; they are also used in the scores.

    Attributes
    ----------
    n_iter_ : array of integers
        Epochs of each class or output, rounded up.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.RidgeClassifierCV(alphas=[0.1, 1.0, 10.0]).fit(X, y)
    >>> model.alpha_ in (0.1, 1.0, 10.0), model.certificate_.relative_gap <= 1e-4
    (True, True)
    """

    _kind: ClassVar[type[CertifiedModel]] = RidgeClassifier
    _score: ClassVar[str] = "accuracy"

    # Inherited parameters that this estimator does not have.
    alpha: Any = field(default=1.0, init=False)
    copy_X: bool = field(default=True, init=False)  # noqa: N815
    positive: bool = field(default=False, init=False)
    gcv_mode: str | None = field(default=None, init=False)
    alpha_per_target: bool = field(default=False, init=False)

    def _as_numbers(self, data: Examples) -> Examples:
        words = ridge_classifier(self._classifier(), len(data.y))  # the class weights do not depend on alpha
        c = words.row_weights(data.y, self.classes_, data.sample_weight)
        return Examples(data.X, np.stack(outputs(data.y, len(self.classes_)), axis=1), c)

    def _classifier(self) -> Any:
        """Return an estimator of the grid with the classes of this one, not yet fitted."""
        member = self._member()
        for name in ("classes_", "multilabel_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(member, name, getattr(self, name))
        return member

    def _truth(self, y: np.ndarray) -> np.ndarray:
        """Return the labels of rows of ±1, or of decision values."""
        if self.multilabel_:
            return (y > 0.0).astype(int)
        codes = (y[:, 0] > 0.0).astype(int) if y.shape[1] == 1 else y.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _fitted_model(self, data: Examples, results: Sequence[Result]) -> Any:
        model = self._classifier()
        model._take(data, results)
        return model

    def _identity(self) -> Any:
        return _Identity(self)


class _Identity(ClassifierMixin, BaseEstimator):
    """A classifier that returns its input as decision values, for a scorer."""

    def __init__(self, search: RidgeClassifierCV) -> None:
        self.search, self.classes_ = search, search.classes_

    def decision_function(self, scores: np.ndarray) -> np.ndarray:
        """Return the input, as a vector for two classes."""
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, scores: np.ndarray) -> np.ndarray:
        """Return the class of each row of scores."""
        return self.search._truth(scores)
