"""Ridge classification whose alpha cross-validation chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.metrics import check_scoring, get_scorer
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metadata_routing import _routing_enabled
from sklearn.utils.validation import check_is_fitted

from dualnewton.estimators._base import CertifiedModel, decided, decisions
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Data, opened
from dualnewton.estimators.model_selection import _routing
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._leave_one_out import LeaveOneOut
from dualnewton.estimators.model_selection.ridge import RidgeCV
from dualnewton.estimators.ridge import RidgeClassifier
from dualnewton.interop.sklearn_objectives import ridge_classifier
from dualnewton.interop.specification import Specification, outputs
from dualnewton.run.result import Result


@estimator
class RidgeClassifierCV(LinearClassifierMixin, RidgeCV):
    """Ridge regression on labels ±1, with alpha chosen by cross-validation, and a certificate for each model.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.RidgeClassifierCV``; differences and additions:

    Parameters
    ----------
    scoring : str, callable or None
        The score; None is the squared error without ``cv``, and the accuracy with it. Without ``cv`` the prediction for each
        row is that of the model fitted without this row. (scikit-learn 1.9 gives all models of two classes the same score there.)
    class_weight : dict, "balanced" or None
        Weights of the classes, multiplied by those of the rows; they are also used in the scores.

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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }
    _kind: ClassVar[type[CertifiedModel]] = RidgeClassifier

    class_weight: Any = None
    gcv_mode: str | None = field(default=None, init=False)
    alpha_per_target: bool = field(default=False, init=False)

    def _search(self, data: Data, values: np.ndarray, params: dict[str, Any]) -> None:
        words = ridge_classifier(self._classifier(1.0), len(data.y))  # the class weights do not depend on alpha
        c = words.row_weights(data.y, self.classes_, data.sample_weight)
        signs = np.stack(outputs(data.y, len(self.classes_)), axis=1)
        signed = Data(data.X, signs, c)
        if c is not None:
            params["sample_weight"] = c
        unrouted = params if params and _routing.takes_weights(self._scorer()) else {}
        given = _routing.routed(self, "fit", params, unrouted)
        if self.cv is None:
            self._by_leaving_one_out(signed, values, given.scorer.score)
        else:
            labels = self._labels(signs)
            splits = check_cv(self.cv, labels, classifier=True).split(indexed(data), labels, **given.splitter.split)
            self._by_folds(signed, values, Folds.of(splits, len(labels), data.sample_weight), given.scorer.score)

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Data:
        return RidgeClassifier._checked(self, X, y, sample_weight)

    def _specification(self, n: int) -> Specification:
        return ridge_classifier(self, n)

    def _classifier(self, alpha: float) -> Any:
        """Return the estimator of one value with the classes of this one, not yet fitted."""
        own = self.get_params(deep=False)
        member = _FittedClassifier(alpha, **{name: own[name] for name in RidgeClassifier().get_params() if name in own})
        for name in ("classes_", "multilabel_", "n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                setattr(member, name, getattr(self, name))
        return member

    def _labels(self, signs: np.ndarray) -> np.ndarray:
        """Return the labels of rows of ±1."""
        if self.multilabel_:
            return (signs > 0.0).astype(int)
        codes = (signs[:, 0] > 0.0).astype(int) if signs.shape[1] == 1 else signs.argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def _scores_of_rows(
        self, data: Data, Y: np.ndarray, c: np.ndarray, found: LeaveOneOut, params: dict[str, Any]
    ) -> np.ndarray:
        if self.scoring is None:
            return super()._scores_of_rows(data, Y, c, found, params)
        predictions, labels, scorer = Y - found.errors, self._labels(Y), self._scorer()
        if self.store_cv_results:
            self.cv_results_ = np.moveaxis(predictions, 0, 2).astype(data.X.dtype)
        identity = _Identity(self.classes_, multilabel=self.multilabel_)
        return np.array([[scorer(identity, one, labels, **params)] for one in predictions])

    def _fitted_model(self, data: Data, results: Sequence[Result]) -> Any:
        model = self._classifier(1.0)
        model._take(data, results)
        return model

    def _truth(self, y: np.ndarray) -> np.ndarray:
        return self._labels(y)

    def _take(self, data: Data, results: Sequence[Result]) -> None:
        self.coef_ = np.vstack([result.w for result in results]).astype(data.X.dtype)
        intercept = np.hstack([result.intercept for result in results]).astype(data.X.dtype)
        self.intercept_ = intercept if self.fit_intercept else 0.0

    def _scorer(self) -> Any:
        if self.scoring is None and _routing_enabled():
            return get_scorer("accuracy").set_score_request(sample_weight=True)
        return check_scoring(self, scoring=self.scoring, allow_none=True)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each row; with several labels per row, a row of zeros and ones."""
        check_is_fitted(self)
        if self.multilabel_:
            return (self.decision_function(X) > 0.0).astype(int)
        return decided(self, self.decision_function(X))

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the margins Xw + b, of shape (n,) for two classes and (n, K) for K."""
        check_is_fitted(self)
        return decisions(self, X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions; ``y`` and the weights default to those of the data set, if X is one."""
        return ClassifierMixin.score(self, *opened(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags = None
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = False
        return tags


class _FittedClassifier(RidgeClassifier):
    """A model of a fold, to be scored."""


class _Identity(ClassifierMixin, BaseEstimator):
    """A classifier that returns its input as decision values, for a scorer."""

    def __init__(self, classes: np.ndarray, *, multilabel: bool) -> None:
        self.classes, self.classes_, self.multilabel = classes, classes, multilabel

    def decision_function(self, scores: np.ndarray) -> np.ndarray:
        """Return the input, as a vector for two classes."""
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, scores: np.ndarray) -> np.ndarray:
        """Return the class of each row of scores."""
        if self.multilabel:
            return (scores > 0.0).astype(int)
        alone = scores.shape[1] == 1
        return np.asarray(self.classes[(scores[:, 0] > 0.0).astype(int) if alone else scores.argmax(axis=1)])
