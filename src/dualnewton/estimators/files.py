"""Estimators as files, which hold everything needed to predict and to certify again; loading runs no code of the file."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.estimators import MODULES
from dualnewton.files.archive import BadFileError
from dualnewton.interop.labels import tidy
from dualnewton.interop.model_file import SavedModel
from dualnewton.interop.model_file._values import from_json, to_json
from dualnewton.row_arrays import on_host


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator of this library, or a :class:`SavedModel`, to a file, atomically.

    ``dualnewton predict``, ``evaluate`` and ``certify``, and :func:`load`, read the file. It holds no code. Values that cannot be
    stored (callbacks, random generators, splitters, your own losses) are refused by name.

    Parameters
    ----------
    model : fitted estimator or SavedModel
        Not changed.
    path : path
        The file; an existing one is replaced.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "ridge.model"
    >>> model = dn.Ridge().fit(X, y)
    >>> dn.save(model, place)
    >>> bool((dn.load(place).predict(X) == model.predict(X)).all())
    True
    """
    (model if isinstance(model, SavedModel) else _saved(model)).save(path)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model: the estimator that :func:`save` wrote, or else a :class:`SavedModel`, as ``dualnewton fit`` writes it.

    A loaded estimator has its parameters and fitted attributes, but no state for a warm start.

    Parameters
    ----------
    path : path
        A file in this or an earlier version of the format.

    Raises
    ------
    BadFileError
        A ``ValueError`` with a message of one line: the file is damaged, of another kind, or of a newer version.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> place = pathlib.Path(tempfile.mkdtemp()) / "ridge.model"
    >>> model = dn.Ridge().fit(X, y)
    >>> dn.save(model, place)
    >>> bool((dn.load(place).predict(X) == model.predict(X)).all())
    True
    """
    saved = SavedModel.load(path)
    if saved.estimator is None:
        return saved
    try:
        return _estimator(saved)
    except (ValueError, TypeError) as error:
        raise BadFileError(f"{path} is damaged: {' '.join(str(error).split())}") from None


def _saved(model: Any) -> SavedModel:
    from sklearn.utils.validation import check_is_fitted

    from dualnewton.estimators._base import CertifiedModel

    name = type(model).__name__
    if not isinstance(model, CertifiedModel) or name not in MODULES:
        raise DualnewtonError(f"model must be a fitted estimator of dualnewton or a SavedModel, got {name}")
    check_is_fitted(model)
    if getattr(model, "multilabel_", False):
        raise DualnewtonError(f"{name} cannot be written to a file with several labels per row")
    values: dict[str, np.ndarray] = {}
    coef = model.coef_.toarray() if hasattr(model.coef_, "toarray") else on_host(model.coef_)
    fitted = {key: on_host(each) for key, each in vars(model).items() if key.endswith("_") and key[0] != "_"} | {
        "coef_": coef
    }
    estimator = {"class": name} | {
        part: {key: to_json(value, values, f"{key} of {name}") for key, value in each.items()}
        for part, each in (("parameters", model.get_params(deep=False)), ("fitted", fitted))
    }
    rows = np.atleast_2d(coef).astype(np.float64)
    n, certificates = len(model.dual_coef_), model.certificate_
    names = getattr(model, "feature_names_in_", None)
    return SavedModel(
        coef=rows,
        intercept=np.broadcast_to(np.ravel(on_host(model.intercept_)).astype(np.float64), len(rows)).copy(),
        objective=model._specification(n),
        classes=tidy(model.classes_) if hasattr(model, "classes_") else None,
        certificates=tuple(certificates) if isinstance(certificates, list) else (certificates,),
        status=tuple(result.status.name for result in model._fitted),
        plan=str(model.plan_),
        n=n,
        feature_names=None if names is None else tuple(map(str, names)),
        command="dualnewton.save",
        scale=getattr(model, "scale_", None),
        estimator=estimator,
        values=values,
    )


def _estimator(saved: SavedModel) -> Any:
    assert saved.estimator is not None
    name, fitted = saved.estimator["class"], saved.estimator["fitted"]
    if name not in MODULES:
        raise DualnewtonError(f"class must be one of {', '.join(MODULES)}, got {name!r:.40}")
    kind = getattr(import_module(f"dualnewton.estimators.{MODULES[name]}"), name)
    model = kind(**{key: from_json(each, saved.values) for key, each in saved.estimator["parameters"].items()})
    model._validate_params()
    wrong = [key for key in fitted if not key.endswith("_") or key.startswith("_") or not key.isidentifier()]
    needed = ["coef_", "intercept_", "n_features_in_", *(["classes_"] if saved.classes is not None else [])]
    if wrong or not set(needed) <= set(fitted):
        raise DualnewtonError(
            f"fitted must hold {', '.join(needed)} and attributes that end in _, got {wrong or list(fitted)}"
        )
    for key, words in fitted.items():
        setattr(model, key, from_json(words, saved.values))
    if not np.array_equal(np.atleast_2d(model.coef_), saved.coef):
        raise DualnewtonError("coef_ of the estimator must be the coefficients of the model")
    if not np.array_equal(model.n_features_in_, saved.d):
        raise DualnewtonError(
            f"n_features_in_ must be the {saved.d} columns of coef_, got {model.n_features_in_!r:.40}"
        )
    return model
