"""The objective as plain values, for command lines and files, and its translation into problems.

Every interface of the library uses it: parameters of estimators and of scikit-learn's models (``sklearn_objectives``), options of
commands, and model files. A new loss or regulariser is one line in ``LOSSES`` or ``PENALTIES``.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from dualnewton import losses
from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.interop.names import LOSSES, MULTI_TASK, PENALTIES
from dualnewton.interop.parts import AtScale, Objective
from dualnewton.losses import Loss, Margin
from dualnewton.matrix import as_data
from dualnewton.objective.alike import with_labels
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import NonNegativeUnpenalised, Unpenalised
from dualnewton.regularizers import Regularizer
from dualnewton.validation import positive

SOFTMAX, REST = "softmax", "ovr"
"""Models of more than two classes: one problem for all, or one for each class against the rest."""

SEVERAL = {SOFTMAX: "softmax over the classes", REST: "each class against the rest"}

NUMBERS, CLASSES = "numbers", "classes"
"""Kinds of targets."""

ABSOLUTE, RELATIVE = "absolute", "relative"
"""Sample weights are used unchanged, or divided by their mean."""

NUMBERED = ("parameters", "penalty_parameters")
"""Fields of a specification that are mappings from names to numbers."""

BY_WEIGHT, BY_ROW, OWN_CLASS = "weights", "rows", "own"
"""How class weights are used. "balanced" sums the sample weights of a class, or counts its rows. In the problem of one class
against the rest they apply to all rows, or only to those of that class (as in liblinear, which sums sample weights)."""


@dataclass(frozen=True)
class Specification:
    """The objective P of a model, as plain values.

        P(w, b) = (1/n) Σ c_i φ(x_iᵀw + b; y_i) + λ g(w)

    More than two classes have one such problem for each class against the rest, or one problem with the softmax loss and the
    sum of the penalties of all w_k; several outputs have one problem each, or one for all if the penalty joins them.
    """

    # φ, a name in ``LOSSES``. An object of the library is replaced by its name and parameters; a user's own object is
    # kept, and cannot be written to a file.
    loss: Any
    lam: Any = None  # λ ≥ 0, one for all outputs or one for each. Zero is no penalty; None is 1/Σ c_i.
    penalty: Any = "l2"  # g, a name in ``PENALTIES``, or an object as for ``loss``
    _: KW_ONLY
    fit_intercept: bool = True  # whether b is free (unpenalised) or zero
    # Parameters of the loss and of the penalty; absent ones have the default of the class.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    penalty_parameters: Mapping[str, Any] = field(default_factory=dict)
    multiclass: str | None = None  # model of more than two classes: SOFTMAX or REST
    # NUMBERS or CLASSES; by default as the loss has them. (Ridge classification has the squared loss on classes.)
    targets: str | None = None
    weights: str = ABSOLUTE  # RELATIVE: sample weights are divided by their mean
    class_weight: Any = None  # "balanced", or pairs of labels and weights, by which those of the rows are multiplied
    class_weighting: str = BY_WEIGHT
    free_scale: bool = False  # whether Huber's scale σ is also minimised (see ``dualnewton.objective.huber_scale``)
    # s, where b = s v and v is penalised as w is: liblinear's ``intercept_scaling``.
    penalised_intercept: float | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for word, parameters, table in (("loss", "parameters", LOSSES), ("penalty", "penalty_parameters", PENALTIES)):
            name, settled = _settled(word, getattr(self, word), getattr(self, parameters), table)
            set_(self, word, name)
            set_(self, parameters, settled)
        set_(self, "lam", self._settled_lam())
        self.regularizer  # noqa: B018 (which checks its parameters)
        for name in ("fit_intercept", "free_scale"):
            if not isinstance(getattr(self, name), bool):
                raise DualnewtonError(f"{name} must be true or false, got {getattr(self, name)!r}")
        natural = CLASSES if isinstance(self.loss_object, Margin) else NUMBERS
        set_(self, "targets", natural if self.targets is None else among("targets", self.targets, (NUMBERS, CLASSES)))
        among("weights", self.weights, (ABSOLUTE, RELATIVE))
        among("class_weighting", self.class_weighting, (BY_WEIGHT, BY_ROW, OWN_CLASS))
        if isinstance(self.class_weight, str):
            among("class_weight", self.class_weight, ("balanced",))
        elif self.class_weight is not None:
            pairs = self.class_weight.items() if isinstance(self.class_weight, Mapping) else self.class_weight
            plain = [(_plain(label), weight) for label, weight in pairs]
            set_(self, "class_weight", [[k, positive(f"class_weight[{k!r}]", c, or_zero=True)] for k, c in plain])
        if self.free_scale and self.loss != "huber":
            raise DualnewtonError(f"free_scale is for the loss huber, got {self.loss}")
        if self.penalised_intercept is not None:
            set_(self, "penalised_intercept", positive("penalised_intercept", self.penalised_intercept))
        self._check_multiclass()

    def _settled_lam(self) -> float | list[float] | None:
        if self.lam is None:
            return None
        if isinstance(self.lam, float):
            return positive("lam", self.lam, or_zero=True)
        each = [positive("lam", lam, or_zero=True) for lam in np.ravel(np.asarray(self.lam, dtype=object))]
        if not each:
            raise DualnewtonError("lam must hold one number at least")
        return each[0] if len(each) == 1 else each

    def _check_multiclass(self) -> None:
        if self.multiclass is None:
            return
        among("multiclass", self.multiclass, (SOFTMAX, REST))
        if not self.classifies:
            raise DualnewtonError(f"multiclass is for losses of classification, got loss={self.loss!r}")
        if self.multiclass == SOFTMAX and not self.has_softmax:
            raise DualnewtonError(f"multiclass=softmax needs the logistic loss, got {self.loss}: use ovr")

    def __str__(self) -> str:
        def said(parameters: Mapping[str, Any]) -> str:
            return "".join(
                f", {key} = {f'{x:g}' if type(x) is float else x}" for key, x in parameters.items() if x is not False
            )

        several = "" if self.multiclass is None else f" ({SEVERAL[self.multiclass]})"
        scale = ", scale estimated" if self.free_scale else ""
        lams = self.lam if isinstance(self.lam, list) else [self.lam]
        lam = ", ".join("1/sum of weights" if each is None else f"{each:.6g}" for each in lams)
        balance = "" if self.class_weight is None else f", class weights {self.class_weight}"
        penalised = "" if self.penalised_intercept is None else " that is penalised"
        intercept = f"an intercept{penalised}" if self.fit_intercept else "no intercept"
        return (
            f"{self.loss}{said(self.parameters)}{scale}{several}, penalty {self.penalty}{said(self.penalty_parameters)}, "
            f"lambda = {lam}, {intercept}{balance}"
        )

    # Properties --------------------------------------------------------------------------------------------------------

    @property
    def classifies(self) -> bool:
        """Whether the targets are classes."""
        return self.targets == CLASSES

    @property
    def has_softmax(self) -> bool:
        """Whether several classes can be one problem, with the softmax loss."""
        return self.loss == "logistic"

    @property
    def is_softmax(self) -> bool:
        """Whether several classes are one problem, with the softmax loss."""
        return self.multiclass == SOFTMAX

    @property
    def is_one_problem(self) -> bool:
        """Whether several classes or outputs form one problem: softmax, or a penalty that joins the outputs."""
        joins = self.penalty == MULTI_TASK or self.regularizer[1].form.joint
        return self.is_softmax or (joins and self.lam != 0.0)

    @property
    def has_probabilities(self) -> bool:
        """Whether margins define probabilities."""
        return self.loss == "logistic"

    @property
    def power(self) -> float | None:
        """The Tweedie power of the deviance, if the loss is half a deviance with mean e^z; None for other losses."""
        return getattr(self.loss_object, "power", None)

    @cached_property
    def loss_object(self) -> Loss:
        """φ."""
        return self.loss if isinstance(self.loss, Loss) else LOSSES[self.loss](**self.parameters)

    @cached_property
    def regularizer(self) -> tuple[float, Regularizer]:
        """A factor and g: the penalty is λ · factor · g."""
        if isinstance(self.penalty, Regularizer):
            return 1.0, self.penalty
        entry = PENALTIES[self.penalty]
        if isinstance(entry, type):
            return 1.0, entry(**self.penalty_parameters)
        return entry(**self.penalty_parameters)

    @cached_property
    def is_penalised(self) -> bool:
        """Whether every output has a penalty."""
        return 0.0 not in self.lam if isinstance(self.lam, list) else self.lam != 0.0

    def unpenalised(self, count: int) -> list[bool]:
        """Return for each of ``count`` outputs whether it has no penalty."""
        return [lam == 0.0 for lam in self._lams(count, 1.0)]

    def with_some_penalty(self) -> Specification:
        """Return the same with (λ/2)‖w‖² where there is no penalty, from which a fit without a penalty starts; λ is arbitrary."""
        if self.is_penalised:
            return self
        lams = np.atleast_1d(np.array(self.lam))
        some = replace(self, lam=np.where(lams == 0.0, 1.0, lams))
        return some if lams.any() else replace(some, penalty="l2", penalty_parameters={})

    # Problems ----------------------------------------------------------------------------------------------------------

    def problems(
        self,
        X: Any,
        y: np.ndarray,
        classes: np.ndarray | None = None,
        *,
        sample_weight: np.ndarray | None = None,
        offset: np.ndarray | None = None,
    ) -> list[Any]:
        """Return the problems, which share one X; λ must be positive.

        y has class numbers 0, …, K − 1 (or several labels per row, as zeros and ones) for the labels in ``classes``, or else
        targets; the offset is added to the margins.
        """
        X = as_data(X)  # one object for all problems
        weights, total = self._weights(y, classes, sample_weight)
        if self.penalised_intercept is not None and self.fit_intercept:
            X = X.with_constant(self.penalised_intercept)
        intercept = self.fit_intercept and self.penalised_intercept is None
        factor, g = self.regularizer  # one object for all problems, which are solved together
        kinds = 0 if classes is None else len(classes)
        loss = losses.Softmax(kinds) if self.is_softmax else self._loss_of(y)
        targets = [y] if loss.columns > 1 else outputs(y, kinds)
        K = len(targets)
        lams = self._lams(K, total)
        each = zip(targets, lams, weights * (1 if len(weights) == K else K), strict=True)
        if self.free_scale:
            delta = self.parameters["delta"]
            return [HuberScaleProblem(X, target, delta, lam, c, intercept) for target, lam, c in each]
        more: dict[str, Any] = {"regularizer": g, "fit_intercept": intercept, "offset": offset}
        if len(weights) == K > 1:
            return [Problem(X, target, loss, lam=lam * factor, sample_weight=c, **more) for target, lam, c in each]
        first = Problem(X, targets[0], loss, lam=lams[0] * factor, sample_weight=weights[0], **more)
        return [first, *(with_labels(first, targets[1:], [lam * factor for lam in lams[1:]]) if K > 1 else ())]

    def _loss_of(self, y: np.ndarray) -> Loss:
        """Return φ; a loss of all outputs if they form one problem."""
        if y.ndim == 1 or y.shape[1] == 1 or not self.is_one_problem:
            return self.loss_object
        if self.loss != "squared":
            raise DualnewtonError(
                f"penalty={self.penalty!r} joins the outputs and needs the loss squared for several of them, got {self.loss!r}"
            )
        return _squared_outputs(y.shape[1])

    def objectives(
        self,
        X: Any,
        y: np.ndarray,
        classes: np.ndarray | None = None,
        *,
        sample_weight: np.ndarray | None = None,
        offset: np.ndarray | None = None,
        scale: float | None = None,
    ) -> Sequence[Objective]:
        """Return the objectives that certificates bound: the problems, except if there is no penalty or the scale is free.

        The arguments are those of :meth:`problems`, and σ of the model, if it is free.
        """
        if self.free_scale:
            assert scale is not None
            return [AtScale(problem, scale) for problem in self.problems(X, y, classes, sample_weight=sample_weight)]
        problems = self.with_some_penalty().problems(X, y, classes, sample_weight=sample_weight, offset=offset)
        free = self.unpenalised(len(problems))
        kind = NonNegativeUnpenalised if self.penalty in ("nonnegative", "non_negative") else Unpenalised
        return [kind.of(problem) if is_free else problem for problem, is_free in zip(problems, free, strict=True)]

    def _lams(self, count: int, total: float) -> list[float]:
        """Return λ of each output; ``total`` is Σ c_i."""
        if self.lam is None:
            return [1.0 / (total or 1.0)] * count
        if not isinstance(self.lam, list):
            return [self.lam] * count
        if len(self.lam) != count:
            raise DualnewtonError(
                f"Number of targets and number of penalties do not correspond: {len(self.lam)} != {count}. "
                "There must be one for all targets or one for each"
            )
        return self.lam

    def _weights(
        self, y: np.ndarray, classes: np.ndarray | None, sample_weight: np.ndarray | None
    ) -> tuple[list[np.ndarray | None], float]:
        """Return c, one for all problems or one for each, and its sum before division by the mean."""
        given = [self.row_weights(y, classes, sample_weight)]
        total = float(len(y) if given[0] is None else given[0].sum())
        own = self.class_weight is not None and self.class_weighting == OWN_CLASS
        if own and classes is not None and len(classes) > 2:
            of_class = weights_of_classes(self._by_class, classes, y, sample_weight)
            rows = 1.0 if sample_weight is None else sample_weight
            given = [rows * np.where(y == k, weight, 1.0) for k, weight in enumerate(of_class)]
        if self.weights == RELATIVE:
            given = [c / c.mean() if c is not None and c.any() else c for c in given]
        return given, total

    def row_weights(
        self, y: np.ndarray, classes: np.ndarray | None, sample_weight: np.ndarray | None
    ) -> np.ndarray | None:
        """Return the sample weights times the class weights, as used by all problems, except with ``class_weighting="own"``."""
        if self.class_weight is None or classes is None:
            return sample_weight
        if self.class_weighting == BY_ROW:
            from sklearn.utils.class_weight import compute_sample_weight

            of_row = compute_sample_weight(self._by_class, classes[y] if y.ndim == 1 else y)
        else:
            of_row = weights_of_classes(self._by_class, classes, y, sample_weight)[y]
        return of_row if sample_weight is None else of_row * sample_weight

    @property
    def _by_class(self) -> Any:
        """The class weights in scikit-learn's form."""
        return dict(self.class_weight) if isinstance(self.class_weight, list) else self.class_weight

    # Plain data --------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values for JSON; ``Specification(**words)`` restores the object."""
        for word in ("loss", "penalty"):
            if not isinstance(getattr(self, word), str):
                raise DualnewtonError(
                    f"{word} must be one of the library's to be stored in a file, got an object of the class "
                    f"{type(getattr(self, word)).__name__}"
                )
        return {each.name: getattr(self, each.name) for each in fields(self)}


@lru_cache(maxsize=16)
def _squared_outputs(count: int) -> Loss:
    """Return the loss of so many outputs."""
    return losses.SquaredOutputs(count)


def specified(loss: str, lam: Any, **words: Any) -> Specification:
    """Return ``Specification(loss, lam, **words)``; equal arguments give the same object, which is built and checked once.

    Building one takes almost as long as a small fit. Arguments without a hash, such as one λ for each output, are checked each
    time.
    """
    try:
        # Numbers by name have a hash as pairs.
        return _specified(loss, lam, **words | {name: tuple(words[name].items()) for name in NUMBERED if name in words})
    except TypeError:
        return Specification(loss, lam, **words)


@lru_cache(maxsize=256, typed=True)
def _specified(loss: str, lam: Any, **words: Any) -> Specification:
    return Specification(loss, lam, **words | {name: dict(words[name]) for name in NUMBERED if name in words})


def mixture(l1_ratio: float, *, positive: bool = False, joint: bool = False) -> dict[str, Any]:
    """Return the fields for r‖w‖₁ + ½(1 − r)‖w‖², with w ≥ 0 if ``positive``, or with Σ_j ‖W_j‖ for ‖w‖₁ if ``joint``."""
    if joint:
        return {"penalty": MULTI_TASK, "penalty_parameters": {"l1_ratio": float(l1_ratio)}}
    if positive:
        return {"penalty": "nonnegative", "penalty_parameters": {"l1_ratio": float(l1_ratio)}}
    named = {0.0: "l2", 1.0: "l1"}.get(float(l1_ratio))
    return (
        {"penalty": named} if named else {"penalty": "elasticnet", "penalty_parameters": {"l1_ratio": float(l1_ratio)}}
    )


def outputs(y: np.ndarray, n_classes: int) -> list[np.ndarray]:
    """Return the labels of each problem: targets unchanged, two classes as ±1, more as one against the rest."""
    if y.ndim == 2:
        y = np.where(y > 0, 1.0, -1.0) if n_classes else y
        return list(np.ascontiguousarray(y.T) if type(y) is np.ndarray else y.T)
    if not n_classes:
        return [y]
    return [np.where(y == k, 1.0, -1.0) for k in ([1] if n_classes <= 2 else range(n_classes))]


def weights_of_classes(
    class_weight: Any, classes: np.ndarray, codes: np.ndarray, sample_weight: np.ndarray | None
) -> np.ndarray:
    """Return the weight of each class, by the rule of the installed scikit-learn."""
    from sklearn.utils.class_weight import compute_class_weight

    # Up to version 1.6, "balanced" counted rows; since then it sums their weights.
    counts_weights = "sample_weight" in inspect.signature(compute_class_weight).parameters
    more = {"sample_weight": sample_weight} if counts_weights else {}
    with np.errstate(divide="ignore"):  # for a class of total weight zero
        found = np.asarray(compute_class_weight(class_weight, classes=classes, y=classes[codes], **more), dtype=float)
    return np.where(np.isinf(found), 0.0, found)


def among(name: str, value: Any, known: Any) -> Any:
    """Return a known name; otherwise raise an error that lists the known names and suggests the closest."""
    if isinstance(value, str) and value in known:
        return value
    close = difflib.get_close_matches(str(value), list(known), 1, 0.5)
    meant = f": did you mean {close[0]}?" if close else ""
    raise DualnewtonError(f"{name} must be one of {', '.join(known)}, got {value!r}{meant}")


def _settled(word: str, value: Any, parameters: Any, table: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the name of a loss or a penalty and all its parameters, or a user's own object."""
    base = Loss if table is LOSSES else Regularizer
    if isinstance(value, base):
        names = [name for name, kind in table.items() if kind is type(value)]
        if not names:
            return value, {}
        value, parameters = names[0], {name: getattr(value, name) for name in _parameters(table[names[0]])}
    own = _parameters(table[among(word, value, table)])
    for name in parameters:
        if name not in own:
            takers = ", ".join(other for other in table if name in _parameters(table[other])) or f"no {word}"
            raise DualnewtonError(f"{name} is a parameter of {takers}, not of {value}")
    settled = {**own, **{name: _plain(each) for name, each in parameters.items()}}
    return value, {name: each for name, each in settled.items() if each is not None}


@lru_cache
def _parameters(kind: Any) -> Mapping[str, Any]:
    """Return the parameters of a loss or a penalty by name, with their defaults."""
    if isinstance(kind, type):
        return {each.name: _plain(each.default) for each in fields(kind) if each.init}
    found = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in found if each.default is not inspect.Parameter.empty}


def _plain(value: Any) -> Any:
    """Return arrays and tuples as lists, and NumPy numbers as Python numbers."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


Words = Callable[[Any, int], Specification]
"""Translates the parameters of an estimator into the specification of its objective on n rows."""
