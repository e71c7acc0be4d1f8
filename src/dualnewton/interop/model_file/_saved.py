"""A fitted model that can be written to a file, read from it, and used."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files import archive as _archive
from dualnewton.files.archive import BadFileError
from dualnewton.interop.labels import codes_of
from dualnewton.interop.model_file import _fields
from dualnewton.interop.offsets import OffsetColumn
from dualnewton.interop.parts import Objective, Part, parts_of
from dualnewton.interop.specification import Specification
from dualnewton.matrix import as_data
from dualnewton.objective.certificate import Certificate
from dualnewton.preprocessing import Encoding
from dualnewton.row_arrays import on_host
from dualnewton.validation import finite_or_none, frozen

KIND, VERSION = "model", 4
"""The kind of file, and the version of its layout, which is increased by each change that an older library would misread."""

ARRAYS = ("coef", "intercept")

LARGEST = 709.0
"""The largest margin z in a predicted mean exp(z); larger margins are clipped to it, so that the mean is finite in float64."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A linear model with its objective and its certificate."""

    coef: np.ndarray  # (K, d) one row for each numeric target, one row for two classes, and one per class for more
    intercept: np.ndarray  # (K,)
    objective: Specification
    _: KW_ONLY
    classes: np.ndarray | None  # labels in order, integers, floats or text; None if the targets are numbers
    # One for each problem that was solved: one for two classes and softmax, else one for each target or class.
    certificates: tuple[Certificate, ...]
    status: tuple[str, ...]  # of each problem, a name in :class:`Status`
    plan: str  # method that was used, and the reason
    n: int  # number of examples that it was fitted on
    feature_names: tuple[str, ...] | None = None
    target: str | None = None  # column that it predicts
    offset: OffsetColumn | None = None  # column that is added to the margins
    table: Encoding | None = None  # encoding of a table's columns as the matrix on which the model was fitted
    # The version of the library, the time (UTC, ISO 8601) and the command that created it.
    library: str = field(default_factory=_fields.version)
    created: str = field(default_factory=_fields.now)
    command: str = ""
    scale: float | None = None  # σ, if the objective leaves it free
    # The class, the parameters and the fitted attributes of the original estimator, for ``dualnewton.load``.
    estimator: Mapping[str, Any] | None = None
    values: Mapping[str, np.ndarray] = field(default_factory=dict)  # arrays to which ``estimator`` refers

    def __post_init__(self) -> None:
        coef, intercept = _fields.parameters(self.coef, self.intercept)
        object.__setattr__(self, "coef", frozen(coef))
        object.__setattr__(self, "intercept", frozen(intercept))
        self._check_counts()

    def _check_counts(self) -> None:
        """Raise an error if parts are inconsistent."""
        K, d = self.coef.shape
        if self.objective.classifies != (self.classes is not None):
            raise DualnewtonError(
                f"classes must be there exactly for a loss of classification, got {self.objective.loss}"
            )
        several = self.n_classes > 2
        problems = 1 if self.objective.is_one_problem else K
        for what, seen, wanted in (
            ("rows of coef", K, self.n_classes if several else K if self.classes is None else 1),
            ("certificates", len(self.certificates), problems),
            ("entries of status", len(self.status), problems),
            ("encoded columns of the table", d if self.table is None else len(self.table.labels), d),
            ("feature names", d if self.feature_names is None else len(self.feature_names), d),
        ):
            if seen != wanted:
                raise DualnewtonError(f"the model must have {wanted} {what}, got {seen}")
        if self.objective.free_scale != (self.scale is not None):
            raise DualnewtonError(f"scale must be there exactly where the objective leaves it free, got {self.scale!r}")
        if several != (self.objective.multiclass is not None):
            raise DualnewtonError(f"multiclass is for more than two classes, got {self.objective.multiclass!r}")

    @property
    def coef_(self) -> np.ndarray:
        """The coefficients, under their name in estimators."""
        return self.coef

    @property
    def intercept_(self) -> np.ndarray:
        """The intercepts, under their name in estimators."""
        return self.intercept

    @property
    def d(self) -> int:
        """The number of features."""
        return int(self.coef.shape[1])

    @property
    def n_classes(self) -> int:
        """The number of classes, 0 if the targets are numbers."""
        return 0 if self.classes is None else len(self.classes)

    @property
    def certificate(self) -> Certificate:
        """The certificate; if each class has one, that of their sum."""
        return self.certificates[0] if len(self.certificates) == 1 else Certificate.of_parts(self.certificates)

    # The file --------------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file, which is replaced only when the new one is complete."""
        content = {name: _plain(getattr(self, name)) for name in _fields.FIELDS}
        _fields.checked(content)  # a file that could not be read again is not written
        arrays = {name: getattr(self, name) for name in ARRAYS}
        _archive.write(path, KIND, VERSION, content, {**arrays, **self.values})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SavedModel:
        """Read a model, and check every part of it.

        Raises
        ------
        BadFileError
            A ``DualnewtonError`` with a message of one line: the file is damaged, of another kind, or of a newer version.
        OSError
            If it cannot be opened.
        """
        content, arrays = _archive.read(path, KIND, VERSION)
        try:
            return cls._of_content(content, arrays)
        except ValueError as error:
            raise BadFileError(f"{path} is damaged: {' '.join(str(error).split())}") from None

    @classmethod
    def _of_content(cls, content: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> SavedModel:
        fields = _fields.checked(_fields.of_this_version(content))
        values = {name: array for name, array in arrays.items() if name not in ARRAYS}
        if len(arrays) - len(values) != len(ARRAYS) or (values and fields["estimator"] is None):
            raise DualnewtonError(
                f"the arrays must be {' and '.join(ARRAYS)}, got {', '.join(sorted(arrays)) or 'none'}"
            )
        d = fields.pop("d")
        model = cls(coef=arrays["coef"], intercept=arrays["intercept"], values=values, **fields)
        if model.d != d:
            raise DualnewtonError(f"d must be the number of columns of coef, {model.d}, got {d}")
        return model

    def in_original_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and intercepts in the original units of a table; without a table, those of the fit."""
        if self.table is None:
            return self.coef, self.intercept
        return self.table.in_original_units(self.coef, self.intercept)

    # Certificate -----------------------------------------------------------------------------------------------------

    def objectives(self, X: Any, y: Any, sample_weight: Any = None, *, offset: Any = None) -> Sequence[Objective]:
        """Return the objectives of the model on data, whose labels must be of its classes, or numbers if it has none."""
        y = np.asarray(y, dtype=float) if self.classes is None else codes_of(y, self.classes)
        more = {"sample_weight": sample_weight, "offset": offset, "scale": self.scale}
        return self.objective.objectives(X, y, self.classes, **more)

    def _parts(self, X: Any, y: Any, sample_weight: Any, offset: Any = None) -> list[Part]:
        """Return the objectives by which :func:`dualnewton.certify` certifies the model."""
        return list(parts_of(self, X, self.objectives(X, y, sample_weight, offset=offset)))

    # Prediction ------------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any, *, offset: np.ndarray | None = None) -> np.ndarray:
        """Return the margins Xw + b + o, of shape (n,), or (n, K) for more than two classes."""
        data = as_data(X)
        if data.d != self.d:
            raise DualnewtonError(f"X must have the {self.d} features that the model was fitted on, got {data.d}")
        margins = on_host(data.times(np.ascontiguousarray(self.coef.T))) + self.intercept
        margins = margins if offset is None else margins + np.asarray(offset)[:, None]
        return margins[:, 0] if len(self.coef) == 1 else margins

    def predict(self, X: Any, *, offset: np.ndarray | None = None) -> np.ndarray:
        """Return the class of each row, or its value: the mean exp(z) for losses with the log link."""
        margins = self.decision_function(X, offset=offset)
        if self.classes is None:
            return margins if self.objective.power is None else np.exp(np.minimum(margins, LARGEST))
        return self.classes[(margins > 0.0).astype(int) if margins.ndim == 1 else margins.argmax(axis=1)]

    def predict_proba(self, X: Any, *, offset: np.ndarray | None = None) -> np.ndarray:
        """Return the probability of each class, by the logistic function or softmax; normalised for one against the rest."""
        if not self.objective.has_probabilities:
            raise DualnewtonError(
                f"probabilities belong to the logistic loss, and this model has {self.objective.loss}"
            )
        from scipy.special import expit, softmax  # not needed to inspect a model

        margins = self.decision_function(X, offset=offset)
        if margins.ndim == 1:
            return expit(np.stack([-margins, margins], axis=1))
        if self.objective.is_softmax:
            return softmax(margins, axis=1)
        each = expit(margins)
        total = each.sum(axis=1, keepdims=True)
        # If all probabilities underflow in float64, the margins still define their order.
        return np.where(total > 0.0, each / (total + (total == 0.0)), softmax(margins, axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, offset: np.ndarray | None = None) -> float:
        """Return the accuracy for classes, the mean R² over the targets for numbers, and D² for losses with the log link."""
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
        if self.classes is not None:
            codes = codes_of(y, self.classes)
            return float(np.average(self.classes[codes] == self.predict(X, offset=offset), weights=weights))
        y = np.asarray(y, dtype=float)
        if (power := self.objective.power) is not None:
            from dualnewton.interop.generalised_linear import explained_deviance

            return explained_deviance(y, self.predict(X, offset=offset), power, weights)
        spread = weights @ (y - np.average(y, axis=0, weights=weights)) ** 2
        missed = weights @ (y - self.predict(X, offset=offset)) ** 2
        return float(np.mean(1.0 - missed / spread)) if np.all(spread > 0.0) else float("nan")


def _plain(value: Any) -> Any:
    """Return a field of a model as values for JSON."""
    if isinstance(value, Certificate):
        found = {"primal": value.primal, "dual": value.dual, "rounding": finite_or_none(value.rounding)}
        return found | ({"reach": value.reach} if math.isfinite(value.reach) else {})
    if isinstance(value, OffsetColumn):
        return asdict(value)
    if isinstance(value, Specification | Encoding):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value
