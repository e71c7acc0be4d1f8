"""The estimators of the library, under their own names, over Dask collections.

    from dask.distributed import Client
    from dualnewton.dask import LogisticRegression

    client = Client()                                   # or Client("scheduler:8786")
    model = LogisticRegression(C=0.1).fit(X, y)         # dask arrays, data frames, or lists of delayed matrices
    model.certificate_                                  # the same proof as in memory
    model.predict(X_new)                                # a dask array, computed when it is asked for

``fit`` keeps each block of rows on its worker, with its labels, margins and dual variables; see docs/scaling.md. ``predict``,
``predict_proba`` and ``decision_function`` are lazy for collections and work on NumPy arrays as always. ``score`` is a number.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dualnewton import estimators, matrix
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier
from dualnewton.interop.parts import Data
from dualnewton.interop.specification import OWN_CLASS, Specification
from dualnewton.matrix.dask import DaskData
from dualnewton.matrix.dask.sources import is_collection

AVAILABLE = (
    "ERMClassifier",
    "ERMRegressor",
    "ElasticNet",
    "Lasso",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "Ridge",
    "RidgeClassifier",
)
"""Estimators that fit collections."""

LOCAL = ("_fitted", "callback", "certificate_", "dual_coef_", "feature_names_in_", "plan_", "trace_")
"""Attributes of a fitted model that predictions do not need: they stay with the client."""


class OnDask:
    """What changes in an estimator for collections: how data are checked, and where predictions are computed."""

    # Fit -------------------------------------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Data:
        name = type(self).__name__
        if not (is_collection(X) or isinstance(X, DaskData)):
            raise DualnewtonError(
                f"X must be a dask array, a dask data frame or a list of delayed matrices for dualnewton.dask.{name}, got "
                f"{type(X).__name__}: use dualnewton.{name} for data in memory"
            )
        if y is None:
            raise DualnewtonError(f"y must be given to fit {name}, got None")
        data = matrix.as_data(X)
        self.n_features_in_ = data.d
        vars(self).pop("feature_names_in_", None)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        weights = None if sample_weight is None else data.placed(data.adopted("sample_weight", sample_weight))
        return self._with_targets(Data(data, data.placed(data.adopted("y", y)), weights))

    def _with_targets(self, data: Data) -> Data:
        """Return the data of a regression."""
        return data._replace(y=data.y.astype(np.float64))

    def __getstate__(self) -> dict[str, Any]:
        # Dual variables and labels are on the workers of a cluster, which a file outlives.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("_fitted", "dual_coef_")}

    # Predictions -----------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Return the predictions, lazily for a collection."""
        return self._of_blocks("predict", X)

    def _of_blocks(self, method: str, X: Any) -> Any:
        """Apply a method to each block: to a dask array as a dask array, to a list of delayed matrices as a list."""
        own = getattr(super(), method)
        if not is_collection(X):
            return own(X)
        import dask

        apply = _Method(self._light(), method)
        if isinstance(X, list | tuple):
            return [dask.delayed(apply)(each) for each in X]
        self._require_names(X)
        rows = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        rows = rows.rechunk({1: -1}) if rows.numblocks[1] > 1 else rows
        if rows.shape[1] != self.n_features_in_:
            raise DualnewtonError(f"X must have {self.n_features_in_} features, as in fit, got {rows.shape[1]}")
        meta = apply(np.zeros((1, self.n_features_in_)))[:0]
        if meta.ndim == 1:
            return rows.map_blocks(apply, drop_axis=1, dtype=meta.dtype, meta=meta)
        return rows.map_blocks(apply, chunks=(rows.chunks[0], (meta.shape[1],)), dtype=meta.dtype, meta=meta)

    def _light(self) -> Any:
        """Return the model in memory that predicts a block: the class of the library, with coefficients and classes alone."""
        made = object.__new__(type(self)._in_memory)  # type: ignore[attr-defined]
        vars(made).update({name: value for name, value in vars(self).items() if name not in LOCAL}, callback=None)
        return made

    def _require_names(self, X: Any) -> None:
        known = getattr(self, "feature_names_in_", None)
        if known is not None and hasattr(X, "columns") and list(X.columns) != list(known):
            raise DualnewtonError(f"X must have the columns of fit, {list(known)}, got {list(X.columns)}")

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of a classifier, or R² of a regression, computed block by block."""
        if not is_collection(X):
            return float(super().score(X, y, sample_weight))  # type: ignore[misc]
        data = matrix.as_data(X)
        truth = data.placed(data.adopted("y", y))
        c = data.ones() if sample_weight is None else data.placed(data.adopted("sample_weight", sample_weight))
        coef = np.atleast_2d(np.asarray(self.coef_, dtype=np.float64))  # type: ignore[attr-defined]
        margins = data.times(coef.T) + np.asarray(self.intercept_)  # type: ignore[attr-defined]
        return self._scored(margins, truth, c)

    def _scored(self, margins: Any, truth: Any, c: Any) -> float:
        """Return R², the mean over the outputs."""
        truth = truth.reshape(len(truth), -1)
        mean = (c @ truth) / float(c.sum())
        left, spread = c @ np.square(truth - margins), c @ np.square(truth - mean)
        constant = np.where(left == 0.0, 1.0, 0.0)  # of a constant target, as scikit-learn has it
        return float(np.mean(np.where(spread > 0.0, 1.0 - left / np.where(spread > 0.0, spread, 1.0), constant)))


class ClassifierOnDask(OnDask):
    """The same for classifiers."""

    def _with_targets(self, data: Data) -> Data:
        """Return the data with the number of its class for each row, and class weights in the weights of rows."""
        if data.y.ndim != 1:
            raise DualnewtonError(f"y must have one label per row for dualnewton.dask, got shape {data.y.shape}")
        self.classes_, codes = np.unique(data.y, return_inverse=True)
        self.multilabel_ = False
        if len(self.classes_) < 2:
            raise DualnewtonError(
                f"y must hold at least two classes for {type(self).__name__}, got only one class: {self.classes_.tolist()[0]!r}"
            )
        weights = self._row_weights(codes, data.sample_weight)
        return data._replace(y=codes, sample_weight=weights)

    def _row_weights(self, codes: Any, given: Any) -> Any:
        """Return the weights of rows times those of their classes, which scikit-learn would compute from all labels."""
        asked = getattr(self, "class_weight", None)
        if asked is None:
            return given
        counts = np.array(
            [float((codes == k).sum() if given is None else given @ (codes == k)) for k in range(len(self.classes_))]
        )
        if isinstance(asked, str):
            of_class = counts.sum() / (len(counts) * counts)
        else:
            of_class = np.array([float(asked.get(label, 1.0)) for label in self.classes_.tolist()])
        of_row = codes.entries_of(of_class)
        return of_row if given is None else of_row * given

    def _specification(self, n: int) -> Specification:
        words: Specification = super()._specification(n)  # type: ignore[misc]
        if words.class_weight is None:
            return words
        if words.class_weighting == OWN_CLASS and len(self.classes_) > 2:
            raise DualnewtonError(
                f"class_weight must be None for {len(self.classes_)} classes in dualnewton.dask.{type(self).__name__}, got "
                f"{words.class_weight!r}: each class has weights of its own there; give sample_weight"
            )
        return replace(words, class_weight=None)

    def decision_function(self, X: Any) -> Any:
        """Return the margins, lazily for a collection."""
        return self._of_blocks("decision_function", X)

    def _scored(self, margins: Any, truth: Any, c: Any) -> float:
        """Return the share of the weight of rows whose class is predicted."""
        found = (margins[:, 0] > 0.0) * 1 if margins.shape[1] == 1 else margins.argmax(axis=1)
        return float(c @ (found.entries_of(self.classes_) == truth)) / float(c.sum())


class _Method:
    """A method of a model that is sent to the workers, as a function with a name that the dashboard shows."""

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name, self.__name__ = model, name, f"dualnewton-{name}"

    def __call__(self, X: Any) -> Any:
        if X.shape[0] == 0:
            return getattr(self.model, self.name)(np.zeros((1, X.shape[1])))[:0]
        return getattr(self.model, self.name)(X)


def _lazy(method: str) -> Any:
    def of_collection(self: Any, X: Any) -> Any:
        return self._of_blocks(method, X)

    of_collection.__name__ = method
    of_collection.__doc__ = f"Return ``{method}`` of each row, lazily for a collection."
    return of_collection


def _made(name: str) -> type:
    """Return the estimator of this name for collections."""
    base = getattr(estimators, name)
    mixin = ClassifierOnDask if issubclass(base, CertifiedClassifier) else OnDask
    lazy = {each: _lazy(each) for each in ("predict_proba", "predict_log_proba") if each in vars(base)}
    doc = f"{base.__doc__}\n\nThis class fits and predicts Dask collections: see :mod:`dualnewton.dask`."
    return type(name, (mixin, base), {**lazy, "_in_memory": base, "__module__": __name__, "__doc__": doc})


def __getattr__(name: str) -> Any:
    if name in AVAILABLE:
        made = globals()[name] = _made(name)
        return made
    if name in estimators.MODULES:
        raise AttributeError(
            f"dualnewton.dask has no {name}: it works on all rows at once, or on folds of them, which a cluster does not gather. "
            f"Available are {', '.join(AVAILABLE)}"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *AVAILABLE})
