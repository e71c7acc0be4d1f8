"""Specifications of the objectives of scikit-learn's linear models, and of ours, which have the same parameters.

A specification of each family is a function of a model and its number of rows. Our estimators call it by name. Models of
scikit-learn are looked up in one table by the names of their classes, nearest first, so that nothing here imports scikit-learn
(which takes a second) unless a model of it is given. An entry of the table is a translation, which yields one :class:`Part` per
class or output, or the reason why there is none. Each states the objective that scikit-learn minimises, according to its sources
(1.5 to 1.9), and its relation to our P. Notation: c weights, b intercept, z_i = x_iᵀw + b, and for liblinear
s = ``intercept_scaling``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.parts import Certifiable, Examples, Part, coefficients, parts_of
from dualnewton.interop.specification import (
    BY_ROW,
    CLASSES,
    OWN_CLASS,
    RELATIVE,
    REST,
    SOFTMAX,
    Specification,
    mixture,
    outputs,
    specified,
)
from dualnewton.matrix import linear

NAMED = {"l1": 1.0, "l2": 0.0}
"""l1_ratio by the name of the penalty."""


# Specifications --------------------------------------------------------------------------------------------------------------


def ridge(model: Any, n: int, **more: Any) -> Specification:
    """Σ c_i (z_i − y_i)² + alpha ‖w‖² for each output, b free, w ≥ 0 if ``positive``; P is this divided by 2n."""
    alpha = chosen_value(model, "alpha")
    each = alpha if isinstance(alpha, float) else np.ravel(np.asarray(alpha, dtype=np.float64))
    words = mixture(0.0, positive=getattr(model, "positive", False))
    return specified("squared", each / n, fit_intercept=model.fit_intercept, **words, **more)


def linear_regression(model: Any, n: int) -> Specification:  # noqa: ARG001
    """Σ c_i (z_i − y_i)² for each output, b free, w ≥ 0 if ``positive``; P is this divided by 2n."""
    return specified("squared", 0.0, fit_intercept=model.fit_intercept, **mixture(0.0, positive=model.positive))


def ridge_classifier(model: Any, n: int) -> Specification:
    """Ridge regression on labels ±1, one class against the rest: as for Ridge, P is the objective divided by 2n."""
    # "balanced" counts rows here; the other classifiers sum sample weights.
    return ridge(
        model,
        n,
        targets=CLASSES,
        multiclass=_several(model, REST),
        class_weight=model.class_weight or None,
        class_weighting=BY_ROW,
    )


def elastic_net(model: Any, n: int) -> Specification:  # noqa: ARG001
    """Σ c_i (z_i − y_i)²/(2 Σ c_i) + alpha(r‖w‖₁ + ½(1 − r)‖w‖²) for each output, b free, w ≥ 0 if ``positive``; P is this.

    Only ratios of weights matter: the objective is divided by their sum, and P by n. LassoCV has no r, which is 1.
    """
    ratio = chosen_value(model, "l1_ratio") if hasattr(model, "l1_ratio") else 1.0
    words = mixture(float(ratio), positive=model.positive)
    alpha = _first(chosen_value(model, "alpha"))
    return specified("squared", alpha, fit_intercept=model.fit_intercept, weights=RELATIVE, **words)


def multi_task(model: Any, n: int) -> Specification:  # noqa: ARG001
    """Σ c_i ‖z_i − y_i‖²/(2 Σ c_i) + alpha(r Σ_j ‖W_j‖ + ½(1 − r)‖W‖²), b free, ‖W_j‖ over all outputs; P is this.

    Only ratios of weights matter. For the Lasso r is 1.
    """
    ratio = float(chosen_value(model, "l1_ratio")) if hasattr(model, "l1_ratio") else 1.0
    words, alpha = mixture(ratio, joint=True), _first(chosen_value(model, "alpha"))
    return specified("squared", alpha, fit_intercept=model.fit_intercept, weights=RELATIVE, **words)


def huber_regressor(model: Any, n: int) -> Specification:
    """Σ c_i (σ + σ H((z_i − y_i)/σ)) + alpha‖w‖², H(t) = t² or 2ε|t| − ε² for |t| > ε, b and σ free; P is this divided by 2n."""
    parameters = {"delta": float(model.epsilon)}
    lam = model.alpha / n
    return specified("huber", lam, fit_intercept=model.fit_intercept, parameters=parameters, free_scale=True)


def quantile_regressor(model: Any, n: int) -> Specification:  # noqa: ARG001
    """Σ c_i φ(z_i; y_i)/Σ c_i + alpha ‖w‖₁, φ the pinball loss max(q(y − z), (q − 1)(y − z)), b free; P is this.

    Only ratios of weights matter. Ours also has a ``penalty``: "l2" is ½‖w‖² instead of ‖w‖₁.
    """
    words = mixture(NAMED[getattr(model, "penalty", "l1")])
    more = {"fit_intercept": model.fit_intercept, "parameters": {"q": float(model.quantile)}, "weights": RELATIVE}
    return specified("quantile", float(model.alpha), **more, **words)


def logistic_regression(model: Any, n: int) -> Specification:
    """C Σ c_i log(1 + exp(−y_i z_i)) + ½(1 − r)‖w‖² + r‖w‖₁, r the l1_ratio, b free; P is this divided by Cn.

    With K > 2 classes the loss is log Σ_k exp(z_ik) − z_{i,y_i}, and the penalty is summed over the w_k. ``penalty`` defines r if
    it is given (as up to 1.7); there is no penalty if it is None or C is infinite.
    """
    C, penalty = _first(chosen_value(model, "C")), getattr(model, "penalty", "deprecated")
    ratio = NAMED.get(str(penalty), float(np.ravel(chosen_value(model, "l1_ratio"))[0] or 0.0))
    lam = 0.0 if penalty is None or math.isinf(C) else 1.0 / (C * n)
    return specified(
        "logistic",
        lam,
        fit_intercept=model.fit_intercept,
        multiclass=_several(model, REST if getattr(model, "multi_class", "auto") == "ovr" else SOFTMAX),
        class_weight=model.class_weight,
        **mixture(ratio),
    )


def linear_svc(model: Any, n: int) -> Specification:
    """C Σ c_i max(0, 1 − y_i z_i)^p + ½‖w‖² or + ‖w‖₁ for each class against the rest, b free, p = 1 or 2; P is this over pCn."""
    # With more than two classes liblinear applies the class weight to class k only; the rest has weight 1.
    weights = {"class_weight": model.class_weight, "class_weighting": OWN_CLASS}
    return _svm(model, n, model.loss, multiclass=_several(model, REST), **mixture(NAMED[model.penalty]), **weights)


def linear_svr(model: Any, n: int) -> Specification:
    """C Σ c_i max(0, |z_i − y_i| − epsilon)^p + ½‖w‖², b free, p = 1 or 2; P is this divided by pCn."""
    if model.epsilon == 0.0 and model.loss == "squared_epsilon_insensitive":
        return _svm(model, n, "squared")  # ridge regression: one linear system, whatever the residuals
    return _svm(model, n, model.loss, parameters={"epsilon": float(model.epsilon)})


def _svm(model: Any, n: int, loss: str, **words: Any) -> Specification:
    power = 2.0 if loss.startswith("squared") else 1.0  # our squared losses have a factor ½
    return specified(loss, 1.0 / (power * model.C * n), fit_intercept=model.fit_intercept, **words)


def chosen_value(model: Any, name: str) -> Any:
    """Return the value that cross-validation chose, in ``name_``, or else the parameter itself."""
    return getattr(model, f"{name}_" if hasattr(model, f"{name}_") else name)


def _first(value: Any) -> float:
    return float(value if isinstance(value, float) else np.ravel(value)[0])


def _several(model: Any, how: str) -> str | None:
    return how if len(model.classes_) > 2 else None


# Models of scikit-learn ------------------------------------------------------------------------------------------------------


Translation = Callable[[Any, Examples], Iterable[Part]]

LIBRARIES = ("sklearn", "glum", "statsmodels")
"""The libraries whose classes are recognised by name."""

_ELSEWHERE = "For an objective of your own, build a dualnewton.Problem and call its certify(w, intercept)."

_TABLE: dict[str, Translation | str] = {
    # The reasons continue the sentence "model cannot be certified: <class> ...".
    "BaseSGD": "stops by a schedule, not by optimality, and its objective depends on its settings: "
    "write it, with lam = alpha, as a dualnewton.Problem and call its certify(coef_.ravel(), intercept_[0]).",
    "BaseLibSVM": "is a kernel machine with another objective: use SVC(kernel='linear'), SVR(kernel='linear'), LinearSVC "
    "or LinearSVR.",
    "Pipeline": "is not a linear model in X: transform X first and pass the last step, "
    "certify(pipeline[-1], pipeline[:-1].transform(X), y).",
    "BaseSearchCV": "is a search over models: pass its best_estimator_.",
    "_ConstantPredictor": "minimises nothing; OneVsRestClassifier uses it for a class that has no examples, or "
    "all examples. Fit the classifier without that class.",
}


def translates(*names: str) -> Callable[[Translation], Translation]:
    """Register a translation in the table under class names."""

    def enter(translation: Translation) -> Translation:
        _TABLE.update(dict.fromkeys(names, translation))
        return translation

    return enter


def translation_of(model: Any) -> Translation:
    """Return the translation of ``model``: its own method, or the entry of its nearest base class in one of the libraries."""
    if isinstance(model, Certifiable) and not isinstance(model, type):
        return lambda own, data: own._parts(data.X, data.y, data.sample_weight, data.offset)
    for base in type(model).__mro__:
        entry = _TABLE.get(base.__name__) if base.__module__.partition(".")[0] in LIBRARIES else None
        if isinstance(entry, str):
            raise DualnewtonError(f"model cannot be certified: {type(model).__name__} {entry}")
        if entry is not None:
            return entry
    known = ", ".join(name for name, entry in _TABLE.items() if not isinstance(entry, str))
    got = f"the class {model.__name__} itself" if isinstance(model, type) else type(model).__name__
    raise DualnewtonError(
        f"model must be a fitted estimator of dualnewton or a model of another library, one of {known}; got {got}. {_ELSEWHERE}"
    )


def _translated(model: Any, data: Examples, specification: Specification) -> Iterator[Part]:
    """Return the parts of a model by its own objective, which must have a penalty."""
    for name in ("alpha", "C"):
        given: Iterable[Any] = (
            np.ravel(chosen_value(model, name)) if hasattr(model, name) or hasattr(model, f"{name}_") else []
        )
        none = [float(each) for each in given if each in (0.0, np.inf)]
        if none and not specification.free_scale:
            _unpenalised(model, f"{name}={none[0]:g}")
    classes = model.classes_ if specification.classifies else None
    y = data.y if classes is None else _class_codes(model, data.y)
    scale = getattr(model, "scale_", None)
    objectives = specification.objectives(
        data.X, y, classes, sample_weight=data.sample_weight, scale=scale, offset=data.offset
    )
    if specification.penalised_intercept is None or not specification.fit_intercept:
        yield from parts_of(model, data.X, objectives)
        return
    # b = s v, where v is the weight of a constant column s.
    coefs, intercepts = coefficients(model, data.X, len(objectives))
    v = intercepts / specification.penalised_intercept
    yield from (Part(objective, np.append(w, own)) for objective, w, own in zip(objectives, coefs, v, strict=True))


for _names, _specify in (
    (("Ridge", "RidgeCV"), ridge),
    (("LinearRegression",), linear_regression),
    (("ElasticNet", "ElasticNetCV", "LassoCV"), elastic_net),
    (("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLassoCV"), multi_task),
    (("HuberRegressor",), huber_regressor),
    (("QuantileRegressor",), quantile_regressor),
    (("RidgeClassifier", "RidgeClassifierCV"), ridge_classifier),
):
    translates(*_names)(
        lambda model, data, specify=_specify: _translated(model, data, specify(model, data.X.shape[0]))  # type: ignore[misc]
    )


@translates("LogisticRegression", "LogisticRegressionCV")
def _logistic_regression(model: Any, data: Examples) -> Iterator[Part]:
    """As :func:`logistic_regression`; ``solver="liblinear"`` adds ½(b/s)², or |b/s| for r = 1."""
    K, multi_class = len(model.classes_), getattr(model, "multi_class", "auto")
    if not getattr(model, "refit", True):
        refuse(model, "refit=False", "an average over folds minimises nothing: use refit=True.")
    if getattr(model, "penalty", "deprecated") is None:
        _unpenalised(model, "penalty=None")
    liblinear = model.solver == "liblinear"
    # The options for several classes in scikit-learn before 1.8.
    if (K > 2 and (liblinear or multi_class == "ovr")) or (K == 2 and multi_class == "multinomial"):
        what = f"{K} classes and multi_class={multi_class!r}, solver={model.solver!r}"
        refuse(model, what, "fit OneVsRestClassifier(LogisticRegression(...)) and certify that.")
    if liblinear and hasattr(model, "C_") and model.fit_intercept and model.intercept_scaling != 1.0:
        refuse(
            model,
            f"solver='liblinear' and intercept_scaling={model.intercept_scaling!r}",
            "its last fit ignores intercept_scaling: fit LogisticRegression with C = C_ and certify that.",
        )
    specification = logistic_regression(model, data.X.shape[0])
    if liblinear:
        specification = replace(specification, penalised_intercept=model.intercept_scaling)
    return _translated(model, data, specification)


@translates("LinearSVC", "LinearSVR")
def _liblinear_svm(model: Any, data: Examples) -> Iterator[Part]:
    """As :func:`linear_svc` or :func:`linear_svr`, plus ½(b/s)², or |b/s| beside ‖w‖₁."""
    if getattr(model, "multi_class", "ovr") != "ovr":
        refuse(model, f"multi_class={model.multi_class!r}", "its loss couples the classes: use multi_class='ovr'.")
    words = (linear_svc if hasattr(model, "classes_") else linear_svr)(model, data.X.shape[0])
    return _translated(model, data, replace(words, penalised_intercept=model.intercept_scaling))


@translates("SVC", "SVR")
def _libsvm(model: Any, data: Examples) -> Iterator[Part]:
    """C Σ c_i φ(z_i; y_i) + ½‖w‖², b free, φ as LinearSVC or LinearSVR has it with p = 1; P is this divided by Cn.

    libsvm stores the nonzero entries of c_i C α_i.
    """
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) > 2:
        refuse(
            model,
            f"{len(classes)} classes",
            "it fits each pair of them on other rows: fit OneVsRestClassifier(SVC(kernel='linear')) and certify that.",
        )
    if model.kernel != "linear":
        refuse(model, f"kernel={model.kernel!r}", "it is not a linear model in X: use kernel='linear'.")
    n = data.X.shape[0]
    lam, y = 1.0 / (model.C * n), data.y
    if classes is None:
        words = Specification("epsilon_insensitive", lam, parameters={"epsilon": model.epsilon})
    else:
        # Unlike in the other classes, "balanced" counts rows here.
        by_label = dict(zip(classes.tolist(), model.class_weight_.tolist(), strict=True))
        y, words = _class_codes(model, y), Specification("hinge", lam, class_weight=by_label)
    (problem,) = words.problems(data.X, y, classes, sample_weight=data.sample_weight)
    (w,), (b,) = coefficients(model, data.X, 1)
    alpha = np.zeros(n)
    if model.support_.max(initial=-1) < n:
        alpha[model.support_] = np.ravel(linear.to_dense(model.dual_coef_)) / (model.C * problem.c[model.support_])
    yield Part(problem, w, b, problem.dual_near(alpha))


@translates("OneVsRestClassifier")
def _one_vs_rest(model: Any, data: Examples) -> Iterator[Part]:
    """The sum of the objectives of its ``estimators_``, each fitted on labels 1 for one class and 0 for the rest."""
    signs = outputs(_class_codes(model, data.y), len(model.classes_))
    for estimator, y in zip(model.estimators_, signs, strict=True):
        yield from translation_of(estimator)(estimator, data._replace(y=(y > 0.0).astype(int)))


def _class_codes(model: Any, y: np.ndarray) -> np.ndarray:
    """Return the position of each label in ``classes_``."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DualnewtonError(
            f"y must hold one label per row, got shape {y.shape}; with several labels per row, certify a model per column"
        )
    position = {label: code for code, label in enumerate(model.classes_.tolist())}
    codes = np.array([position.get(label, -1) for label in y.tolist()], dtype=np.intp)
    if (codes < 0).any():
        at = int(np.argmin(codes))
        raise DualnewtonError(
            f"y must hold labels that {type(model).__name__} was fitted on, {model.classes_.tolist()}, "
            f"got {y.tolist()[at]!r} at index {at}"
        )
    return codes


def _unpenalised(model: Any, setting: str) -> NoReturn:
    refuse(model, setting, "without a penalty the dual proves nothing: use a weak l2 penalty and certify that.")


def refuse(model: Any, setting: str, reason: str) -> NoReturn:
    """Raise the error that a model with this setting cannot be certified, for this reason."""
    raise DualnewtonError(f"model cannot be certified: {type(model).__name__} with {setting}: {reason}")
