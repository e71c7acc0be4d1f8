"""The subclasses of scikit-learn's classes whose ``fit`` is this library's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn import linear_model, svm
from sklearn.preprocessing import LabelBinarizer

from dualnewton import accel, estimators
from dualnewton.errors import DualnewtonError

HOMES = (linear_model, svm)
"""The modules of scikit-learn that have the classes."""


def pairs() -> Iterator[tuple[type, type]]:
    """Yield each class of scikit-learn that this library also has, with its replacement."""
    for name in sorted(estimators.__all__):
        ours = getattr(estimators, name)
        theirs = next((vars(home)[name] for home in HOMES if name in vars(home)), None)
        if inspect.isclass(ours) and theirs is not None:
            yield theirs, accelerated(theirs, ours)


def accelerated(theirs: type, ours: type) -> type:
    """Return a subclass of scikit-learn's class that is fitted by ``ours``.

    It has the name and the module of its base, so that models are pickled under scikit-learn's name, and can be loaded by a
    process in which nothing is installed.
    """

    def fit(self: Any, X: Any, y: Any, *given: Any, **named: Any) -> Any:
        reason = difference(self)
        if reason is None:
            try:
                fitted = _fitted(self, ours, X, y, *given, **named)
            except (TypeError, ValueError, NotImplementedError) as error:
                # scikit-learn may accept arguments that this library refuses; if both refuse, scikit-learn's error is raised.
                reason = str(error).partition("\n")[0]
            else:
                _adopt(self, fitted, theirs, y)
                return self
        accel.note(self, reason)
        return own_fit(self, X, y, *given, **named)

    own_fit: Callable[..., Any] = theirs.fit  # type: ignore[attr-defined]
    fit.__doc__, fit.__signature__ = own_fit.__doc__, inspect.signature(own_fit)  # type: ignore[attr-defined]
    members = {
        "fit": fit,
        "__module__": theirs.__module__,
        "__qualname__": theirs.__qualname__,
        "__doc__": theirs.__doc__,
    }
    return type(theirs)(theirs.__name__, (theirs,), members)


def difference(model: Any) -> str | None:
    """Return the reason why a model with these parameters must be fitted by scikit-learn; None if there is none."""
    if getattr(model, "warm_start", False):
        return "warm_start continues scikit-learn's own iterations"
    if getattr(model, "_skl_callbacks", None):
        return "callbacks are called between scikit-learn's own iterations"
    if sklearn.get_config()["array_api_dispatch"]:
        return "array_api_dispatch is set"
    if penalises_intercept(model) and getattr(model, "penalty", None) == "l1" and model.intercept_scaling != 1.0:
        return "intercept_scaling with an l1 penalty"
    return None


def penalises_intercept(model: Any) -> bool:
    """Whether scikit-learn fits the model by LIBLINEAR with an intercept, which is then the coefficient of a constant feature."""
    by_liblinear = isinstance(model, svm.LinearSVC | svm.LinearSVR) or getattr(model, "solver", None) == "liblinear"
    return by_liblinear and bool(model.fit_intercept)


def _fitted(model: Any, ours: type, X: Any, y: Any, *given: Any, **named: Any) -> Any:
    """Return this library's model with the same parameters, fitted to the objective of scikit-learn."""
    parameters = model.get_params(deep=False)
    if not penalises_intercept(model):
        return ours(**parameters).fit(X, y, *given, **named)
    if ours.__name__.startswith("LogisticRegression") and len(np.unique(np.asarray(y))) > 2:
        raise DualnewtonError("LIBLINEAR with several classes")
    X = sklearn.utils.check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X")
    constant = np.full((X.shape[0], 1), model.intercept_scaling, dtype=X.dtype)
    joined = sp.hstack([X, constant], format="csr") if sp.issparse(X) else np.hstack([X, constant])
    fitted = ours(**parameters | {"fit_intercept": False}).fit(joined, y, *given, **named)
    fitted.intercept_ = model.intercept_scaling * fitted.coef_[..., -1]
    if fitted.coef_.ndim == 1:  # a regression has one intercept in an array, as LIBLINEAR's has
        fitted.intercept_ = np.atleast_1d(fitted.intercept_)
    fitted.coef_ = np.ascontiguousarray(fitted.coef_[..., :-1])
    fitted.n_features_in_ = X.shape[1]
    return fitted


def _adopt(model: Any, fitted: Any, theirs: type, y: Any) -> None:
    """Store the fitted attributes, replacing those of an earlier fit."""
    for name in [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]:
        delattr(model, name)
    for name, value in vars(fitted).items():
        if name.endswith("_") and not isinstance(inspect.getattr_static(theirs, name, None), property):
            setattr(model, name, value)
    if hasattr(theirs, "_prepare_data"):  # the ridge classifiers read their classes from a binarizer
        model._label_binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(y)
        if len(model.coef_) == 1 and _is_vector_for_two_classes(theirs):
            model.coef_ = model.coef_[0]
    if hasattr(theirs, "_get_loss"):  # generalised linear models predict by the link of their loss
        model._base_loss = model._get_loss()


@cache
def _is_vector_for_two_classes(theirs: type) -> bool:
    """Whether coef_ of a ridge classifier is a vector for two classes, which depends on the version of scikit-learn."""
    fitted = theirs().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    return bool(fitted.coef_.ndim == 1)
