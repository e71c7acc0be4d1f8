"""The estimators of the library, under their own names, over Dask collections.

    from dask.distributed import Client
    from dualnewton.dask import LogisticRegression

    client = Client()                                   # or Client("scheduler:8786")
    model = LogisticRegression(C=0.1).fit(X, y)         # dask arrays, data frames, or lists of delayed matrices
    model.certificate_                                  # the same proof as in memory
    model.predict(X_new)                                # a dask array, computed on demand

``fit`` keeps each block of rows on its worker, with its labels, margins and dual variables; see docs/scaling.md. ``predict``,
``predict_proba`` and ``decision_function`` are lazy for collections and work on NumPy arrays as always. ``score`` is a number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.linear_model._base import LinearClassifierMixin

from dualnewton import estimators, matrix
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedClassifier
from dualnewton.estimators.glm import GeneralizedLinearRegressor
from dualnewton.estimators.model_selection._cross_validated import CrossValidated
from dualnewton.interop.parts import Examples
from dualnewton.interop.specification import OWN_CLASS, Specification
from dualnewton.matrix.dask import DaskData
from dualnewton.matrix.dask.sources import is_collection
from dualnewton.row_arrays import on_host

AVAILABLE = tuple(name for name in estimators.MODULES if not name.endswith("_path"))
"""The estimators, all of which fit collections; functions that compute paths need all rows at once."""

ON_WORKERS = ("_fitted", "dual_coef_", "outliers_")
"""Attributes of a fitted model that have an entry per row, on the workers of a cluster, which are not stored in files."""

LOCAL = (
    *ON_WORKERS, "callback", "certificate_", "certificates_", "choice_certificate_", "coefs_paths_", "feature_names_in_", "plan_",
    "trace_",
)  # fmt: skip
"""Attributes of a fitted model that predictions do not need: they are not sent to workers."""


class OnDask:
    """Mixin of an estimator for Dask collections: it checks collections instead of arrays, and predicts lazily."""

    # Fit -------------------------------------------------------------------------------------------------------------

    def _checked(self, X: Any, y: Any, sample_weight: Any) -> Examples:
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
        if is_collection(X) and hasattr(X, "columns"):  # a data frame
            self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        weights = None if sample_weight is None else _placed(data, "sample_weight", sample_weight)
        return self._with_targets(Examples(data, _placed(data, "y", y), weights))

    def _with_targets(self, data: Examples) -> Examples:
        """Return the data of a regression."""
        return data._replace(y=data.y.astype(np.float64))

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ON_WORKERS}

    # Predictions -----------------------------------------------------------------------------------------------------

    def predict(self, X: Any) -> Any:
        """Return the predictions, lazily for a collection."""
        return self._of_blocks("predict", X)

    def _of_blocks(self, method: str, X: Any, offset: Any = None) -> Any:
        """Apply a method to each block: to a dask array as a dask array, to a list of delayed matrices as a list.

        The offsets, if any, are of the same kind as X.
        """
        own = getattr(super(), method)
        if not is_collection(X):
            return own(X) if offset is None else own(X, offset=offset)
        import dask

        apply, given = _Method(self._light(), method), () if offset is None else (offset,)
        if isinstance(X, list | tuple):
            return [dask.delayed(apply)(*each) for each in zip(X, *given, strict=True)]
        self._require_names(X)
        rows = _as_array(X)
        rows = rows.rechunk({1: -1}) if rows.numblocks[1] > 1 else rows
        if rows.shape[1] != self.n_features_in_:
            raise DualnewtonError(f"X must have {self.n_features_in_} features, as in fit, got {rows.shape[1]}")
        beside = [_as_array(each)[:, None] for each in given]
        meta = apply(np.zeros((1, self.n_features_in_)))[:0]
        more = {"drop_axis": 1} if meta.ndim == 1 else {"chunks": (rows.chunks[0], (meta.shape[1],))}
        return rows.map_blocks(apply, *beside, dtype=meta.dtype, meta=meta, **more)

    def _light(self) -> Any:
        """Return the model in memory that predicts a block: the class of the library, with coefficients and classes only."""
        made = object.__new__(type(self)._in_memory)  # type: ignore[attr-defined]
        vars(made).update({name: value for name, value in vars(self).items() if name not in LOCAL}, callback=None)
        return made

    def _require_names(self, X: Any) -> None:
        known = getattr(self, "feature_names_in_", None)
        if known is not None and hasattr(X, "columns") and list(X.columns) != list(known):
            raise DualnewtonError(f"X must have the columns of fit, {list(known)}, got {list(X.columns)}")

    def score(self, X: Any, y: Any, sample_weight: Any = None, **offset: Any) -> float:
        """Return the accuracy of a classifier, R² of a regression, or D² of one with a log link, computed block by block."""
        if not is_collection(X):
            return float(super().score(X, y, sample_weight, **offset))  # type: ignore[misc]
        data = matrix.as_data(X)
        truth = _placed(data, "y", y)
        c = data.ones() if sample_weight is None else _placed(data, "sample_weight", sample_weight)
        coef = np.atleast_2d(np.asarray(self.coef_, dtype=np.float64))  # type: ignore[attr-defined]
        margins = data.times(coef.T) + np.asarray(self.intercept_)  # type: ignore[attr-defined]
        for given in offset.values():
            margins = margins if given is None else margins + _placed(data, "offset", given)[:, None]
        return self._scored(margins, truth, c)

    def _scored(self, margins: Any, truth: Any, c: Any) -> float:
        """Return R², the mean over the outputs."""
        truth = truth.reshape(len(truth), -1)
        mean = (c @ truth) / float(c.sum())
        left, spread = c @ np.square(truth - margins), c @ np.square(truth - mean)
        constant = np.where(left == 0.0, 1.0, 0.0)  # for a constant target, as in scikit-learn
        return float(np.mean(np.where(spread > 0.0, 1.0 - left / np.where(spread > 0.0, spread, 1.0), constant)))


class GeneralisedOnDask(OnDask):
    """The mixin of generalised linear models, which take offsets."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> Any:
        """Fit the model; offsets are a collection with an entry per row, such as the logarithm of exposures."""
        self._validate_params()  # type: ignore[attr-defined]
        data = self._checked(X, y, sample_weight)
        if offset is not None:
            data = data._replace(offset=_placed(data.X, "offset", offset))
        return self._fit_beside(X, data)  # type: ignore[attr-defined]

    def predict(self, X: Any, *, offset: Any = None) -> Any:
        """Return the means, lazily for a collection."""
        return self._of_blocks("predict", X, offset)

    def _scored(self, margins: Any, truth: Any, c: Any) -> float:
        """Return D², the share of the deviance that is explained; R² for least squares.

        The deviance is twice φ(z) less the least value of φ, which is −φ*(0); the mean of y alone has z = log ȳ.
        """
        if self._log_power is None:  # type: ignore[attr-defined]
            return super()._scored(margins, truth, c)
        loss = self._specification(len(truth)).loss_object  # type: ignore[attr-defined]
        truth = truth.astype(np.float64)
        least = loss.conjugate(0.0 * truth, truth)
        constant = math.log(float(c @ truth) / float(c.sum()))
        left, spread = (float(c @ (loss.value(z, truth) + least)) for z in (margins[:, 0], constant + 0.0 * truth))
        return 1.0 - left / spread


class ClassifierOnDask(OnDask):
    """The mixin of classifiers."""

    def _with_targets(self, data: Examples) -> Examples:
        """Return the data with class numbers as y, and row weights multiplied by class weights."""
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
                f"{words.class_weight!r}: each problem would need its own weights; use sample_weight"
            )
        return replace(words, class_weight=None)

    def decision_function(self, X: Any) -> Any:
        """Return the margins, lazily for a collection."""
        return self._of_blocks("decision_function", X)

    def _scored(self, margins: Any, truth: Any, c: Any) -> float:
        """Return the share of the weight of rows whose class is predicted."""
        found = (margins[:, 0] > 0.0) * 1 if margins.shape[1] == 1 else margins.argmax(axis=1)
        return float(c @ (found.entries_of(self.classes_) == truth)) / float(c.sum())


class SearchOnDask(OnDask):
    """The mixin of searches by cross-validation, which keep labels and weights in the memory of the client."""

    def score(self, X: Any, y: Any, sample_weight: Any = None, **offset: Any) -> float:
        """Return the score of the estimator without cross-validation; other scores are not available for collections."""
        scoring = getattr(self, "scoring", None)
        if is_collection(X) and scoring not in (None, "warn"):
            raise DualnewtonError(
                f"scoring must be None for the score of a collection, got {scoring!r}: score predictions that are computed, or "
                "rows in memory"
            )
        return super().score(X, y, sample_weight, **offset)


class ClassifierSearchOnDask(SearchOnDask, ClassifierOnDask):
    """The mixin of searches over classifiers, which themselves multiply the weights of rows by those of classes."""

    def _row_weights(self, codes: Any, given: Any) -> Any:  # noqa: ARG002
        return given


class GeneralisedSearchOnDask(SearchOnDask, GeneralisedOnDask):
    """The mixin of searches over generalised linear models, which take offsets."""

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None, **params: Any) -> Any:
        """Fit all models; offsets are a collection with an entry per row."""
        if offset is not None:
            offset = on_host(_placed(matrix.as_data(X), "offset", offset))
        own: Any = super(GeneralisedOnDask, self)
        return own.fit(X, y, sample_weight, offset=offset, **params)


class _Method:
    """A method of a model that is sent to the workers, as a function with a name that the dashboard shows."""

    def __init__(self, model: Any, name: str) -> None:
        self.model, self.name, self.__name__ = model, name, f"dualnewton-{name}"

    def __call__(self, X: Any, offset: Any = None) -> Any:
        if X.shape[0] == 0:
            return getattr(self.model, self.name)(np.zeros((1, X.shape[1])))[:0]
        more = {} if offset is None else {"offset": np.ravel(offset)}
        return getattr(self.model, self.name)(X, **more)


def _as_array(values: Any) -> Any:
    """Return a collection as a dask array."""
    return values.to_dask_array() if hasattr(values, "to_dask_array") else values


def _placed(data: Any, name: str, values: Any) -> Any:
    """Return values with an entry per row as a row array."""
    return data.placed(data.adopted(name, values))


def _lazy(method: str) -> Any:
    def of_collection(self: Any, X: Any) -> Any:
        return self._of_blocks(method, X)

    of_collection.__name__ = method
    of_collection.__doc__ = f"Return ``{method}`` of each row, lazily for a collection."
    return of_collection


MIXINS: dict[tuple[type, ...], type] = {
    (CrossValidated, LinearClassifierMixin): ClassifierSearchOnDask,
    (CrossValidated, GeneralizedLinearRegressor): GeneralisedSearchOnDask,
    (CrossValidated,): SearchOnDask,
    (CertifiedClassifier,): ClassifierOnDask,
    (GeneralizedLinearRegressor,): GeneralisedOnDask,
}
"""The mixin for subclasses of all these classes, the first that applies; :class:`OnDask` for all others."""


def _class_for_collections(name: str) -> type:
    """Return the estimator of this name for collections."""
    base = getattr(estimators, name)
    mixin = next((own for kinds, own in MIXINS.items() if all(issubclass(base, kind) for kind in kinds)), OnDask)
    lazy = {each: _lazy(each) for each in ("predict_proba", "predict_log_proba") if each in vars(base)}
    doc = f"{base.__doc__}\n\nThis class fits and predicts Dask collections: see :mod:`dualnewton.dask`."
    return type(name, (mixin, base), {**lazy, "_in_memory": base, "__module__": __name__, "__doc__": doc})


def __getattr__(name: str) -> Any:
    if name in AVAILABLE:
        made = globals()[name] = _class_for_collections(name)
        return made
    if name in estimators.MODULES:
        raise AttributeError(
            f"dualnewton.dask has no {name}: it works on all rows at once, which a cluster does not gather. "
            f"Available are {', '.join(AVAILABLE)}"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *AVAILABLE})
