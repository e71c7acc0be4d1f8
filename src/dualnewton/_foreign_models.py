"""How each scikit-learn model is written as problems of this library: one table, one entry per class name.

An entry is either a translation, which yields one :class:`Part` per class or output, or the reason why there is none.
A model is looked up by the names of its classes, nearest first, so that nothing here imports scikit-learn (which takes
a second) before a model of it is at hand. Each translation states the objective that scikit-learn minimises, as its
sources have it (1.5 to 1.9), and what our P is of it. Notation: c weights, b intercept, z_i = x_iᵀw + b, and for
liblinear s = ``intercept_scaling``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from dualnewton._parts import AtScale, Certifiable, Part, coefficients, parts_of
from dualnewton.errors import DualnewtonError
from dualnewton.losses import (
    EpsilonInsensitive,
    Hinge,
    Logistic,
    Loss,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from dualnewton.matrix import linear
from dualnewton.objective.huber_scale import ConcomitantProblem
from dualnewton.objective.multinomial import MultinomialProblem
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import L2, NonNegative, mixed


class Data(NamedTuple):
    """What a model was fitted on."""

    X: linear.Matrix
    y: np.ndarray
    sample_weight: np.ndarray | None


Translation = Callable[[Any, Data], Iterable[Part]]

_ELSEWHERE = "For an objective of your own, build a dualnewton.Problem and call its certify(w, intercept)."

_TABLE: dict[str, Translation | str] = {
    # The reasons continue the sentence "model cannot be certified: <class> ...".
    "LinearRegression": "has no penalty, and its dual point would have to be orthogonal to every feature: "
    "use Ridge with a small alpha > 0 and certify that, or dualnewton.Ridge(alpha=0), whose fit finds such a point.",
    "BaseSGD": "is stopped by a schedule, not by optimality, and has an objective for each setting of it: "
    "write it, with lam = alpha, as a dualnewton.Problem and call its certify(coef_.ravel(), intercept_[0]).",
    "BaseLibSVM": "is a kernel machine with an objective of its own: use SVC(kernel='linear'), SVR(kernel='linear'), LinearSVC "
    "or LinearSVR.",
    "MultiTaskElasticNet": "couples its outputs by a penalty on whole rows of coefficients: "
    "use ElasticNet, which fits each output by itself.",
    "Pipeline": "is not a linear model in X: transform X first and pass the last step, "
    "certify(pipeline[-1], pipeline[:-1].transform(X), y).",
    "BaseSearchCV": "is a search over models: pass its best_estimator_.",
    "_ConstantPredictor": "minimises nothing; OneVsRestClassifier puts it where one of its classes has no examples, or "
    "nothing but examples. Fit the classifier without that class.",
}
_TABLE["MultiTaskElasticNetCV"] = _TABLE["MultiTaskLassoCV"] = _TABLE["MultiTaskElasticNet"]


def _translates(*names: str) -> Callable[[Translation], Translation]:
    """Enter a translation into the table under the names of the classes it is for."""

    def enter(translation: Translation) -> Translation:
        _TABLE.update(dict.fromkeys(names, translation))
        return translation

    return enter


def translation_of(model: Any) -> Translation:
    """Return how ``model`` is translated: by itself, or by the entry of its nearest class that scikit-learn wrote."""
    if isinstance(model, Certifiable) and not isinstance(model, type):
        return lambda own, data: own._parts(*data)
    for base in type(model).__mro__:
        entry = _TABLE.get(base.__name__) if base.__module__.partition(".")[0] == "sklearn" else None
        if isinstance(entry, str):
            raise DualnewtonError(f"model cannot be certified: {type(model).__name__} {entry}")
        if entry is not None:
            return entry
    known = ", ".join(name for name, entry in _TABLE.items() if not isinstance(entry, str))
    got = f"the class {model.__name__} itself" if isinstance(model, type) else type(model).__name__
    raise DualnewtonError(
        f"model must be a fitted estimator of dualnewton or a scikit-learn model, one of {known}; got {got}. {_ELSEWHERE}"
    )


def require_fitted(model: Any) -> None:
    """Raise scikit-learn's NotFittedError, which is a ``ValueError``, if ``model`` is not fitted."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)


# Regression ----------------------------------------------------------------------------------------------------------


@_translates("Ridge", "RidgeCV")
def _ridge(model: Any, data: Data) -> Iterator[Part]:
    """Σ c_i (z_i − y_i)² + alpha ‖w‖² for each output, b free, w ≥ 0 if ``positive``; P is this divided by 2n."""
    return _least_squares(model, data, _outputs(data.y))


@_translates("ElasticNet", "ElasticNetCV")
def _elastic_net(model: Any, data: Data) -> Iterator[Part]:
    """Σ c_i (z_i − y_i)²/(2 Σ c_i) + alpha(r‖w‖₁ + ½(1 − r)‖w‖²) for each output, b free, w ≥ 0 if ``positive``; P is this."""
    return _mixed(model, data, float(_chosen(model, "l1_ratio")))


@_translates("LassoCV")
def _lasso_cv(model: Any, data: Data) -> Iterator[Part]:
    """As for ElasticNet, with r = 1. (Lasso is an ElasticNet for scikit-learn; its cross-validation is not.)"""
    return _mixed(model, data, 1.0)


@_translates("HuberRegressor")
def _huber_regressor(model: Any, data: Data) -> Iterator[Part]:
    """Σ c_i (σ + σ H((z_i − y_i)/σ)) + alpha‖w‖², H(t) = t² or 2ε|t| − ε² for |t| > ε, b and σ free; P is this divided by 2n."""
    targets = _outputs(data.y)
    coefficients(model, data.X, len(targets))  # one output, or this refuses them
    lam = model.alpha / data.X.shape[0]
    problem = ConcomitantProblem(
        data.X, targets[0], model.epsilon, lam, data.sample_weight, fit_intercept=model.fit_intercept
    )
    return parts_of(model, data.X, [AtScale(problem, float(model.scale_))])


_REGRESSION: dict[str, tuple[Callable[[float], Loss], float]] = {
    "epsilon_insensitive": (EpsilonInsensitive, 1.0),
    "squared_epsilon_insensitive": (SquaredEpsilonInsensitive, 2.0),
}
"""The losses by scikit-learn's names, and how many of ours one of theirs is."""


@_translates("LinearSVR")
def _linear_svr(model: Any, data: Data) -> Iterator[Part]:
    """C Σ c_i max(0, |z_i − y_i| − epsilon)^p + ½‖w‖² + ½(b/s)², p = 1 or 2; P is this divided by pCn."""
    targets = _outputs(data.y)
    (w,), (b,) = coefficients(model, data.X, len(targets))
    X, w = _with_penalised_intercept(model, data.X, w, b)
    kind, times = _REGRESSION[model.loss]
    lam = 1.0 / (times * _strength(model, "C", model.C) * X.shape[0])
    yield Part(
        Problem(X, targets[0], kind(model.epsilon), regularizer=L2(), lam=lam, sample_weight=data.sample_weight), w
    )


@_translates("SVR")
def _svr(model: Any, data: Data) -> Iterator[Part]:
    """C Σ c_i max(0, |z_i − y_i| − epsilon) + ½‖w‖², b free; P is this divided by Cn."""
    return _by_dual_coef(model, data, data.y, EpsilonInsensitive(model.epsilon), data.sample_weight)


# Classification ------------------------------------------------------------------------------------------------------


@_translates("RidgeClassifier", "RidgeClassifierCV")
def _ridge_classifier(model: Any, data: Data) -> Iterator[Part]:
    """Ridge regression on labels ±1, one class against the rest: as for Ridge, P is the objective divided by 2n."""
    from sklearn.utils.class_weight import compute_sample_weight

    codes = _class_codes(model, data.y)
    if model.class_weight:
        # "balanced" counts rows here, where the other classifiers count their sample weights.
        of_row = compute_sample_weight(model.class_weight, model.classes_[codes])
        data = data._replace(sample_weight=_weighted(data.sample_weight, of_row))
    return _least_squares(model, data, _signs(model, codes))


@_translates("LogisticRegression", "LogisticRegressionCV")
def _logistic_regression(model: Any, data: Data) -> Iterator[Part]:
    """C Σ c_i log(1 + exp(−y_i z_i)) + ½(1 − r)‖w‖² + r‖w‖₁, r the l1_ratio, b free; P is this divided by Cn.

    ``solver="liblinear"`` adds ½(b/s)², or |b/s| for r = 1. With K > 2 classes the loss is log Σ_k exp(z_ik) − z_{i,y_i},
    and the penalty is added up over the w_k.
    """
    K, multi_class = len(model.classes_), getattr(model, "multi_class", "auto")
    if not getattr(model, "refit", True):
        _refuse(model, "refit=False", "an average over folds minimises nothing: use refit=True.")
    codes = _class_codes(model, data.y)
    lam, regularizer = mixed(1.0 / (_strength(model, "C", _chosen(model, "C")) * len(codes)), _l1_ratio(model))
    weights = _weighted(data.sample_weight, _class_weights(model, codes, data.sample_weight)[codes])
    intercept = {"fit_intercept": model.fit_intercept}
    if K > 2 or multi_class == "multinomial":
        # What scikit-learn before 1.8 could be told to do with classes.
        if model.solver == "liblinear" or multi_class == "ovr" or K == 2:
            what = f"{K} classes and multi_class={multi_class!r}, solver={model.solver!r}"
            _refuse(model, what, "fit OneVsRestClassifier(LogisticRegression(...)) and certify that.")
        softmax = MultinomialProblem(
            data.X, codes, lam=lam, n_classes=K, sample_weight=weights, regularizer=regularizer, **intercept
        )
        yield from parts_of(model, data.X, [softmax])
        return
    (y,) = _signs(model, codes)
    if model.solver == "liblinear":
        if hasattr(model, "C_") and model.fit_intercept and model.intercept_scaling != 1.0:
            _refuse(
                model,
                f"solver='liblinear' and intercept_scaling={model.intercept_scaling!r}",
                "its last fit ignores intercept_scaling: fit LogisticRegression with C = C_ and certify that.",
            )
        (w,), (b,) = coefficients(model, data.X, 1)
        X, w = _with_penalised_intercept(model, data.X, w, b)
        yield Part(Problem(X, y, Logistic(), regularizer=regularizer, lam=lam, sample_weight=weights), w)
    else:
        problem = Problem(data.X, y, Logistic(), regularizer=regularizer, lam=lam, sample_weight=weights, **intercept)
        yield from parts_of(model, data.X, [problem])


_CLASSIFICATION: dict[str, tuple[Loss, float]] = {"hinge": (Hinge(), 1.0), "squared_hinge": (SquaredHinge(), 2.0)}
"""The losses by scikit-learn's names, and how many of ours one of theirs is."""


@_translates("LinearSVC")
def _linear_svc(model: Any, data: Data) -> Iterator[Part]:
    """C Σ c_i max(0, 1 − y_i z_i)^p + ½‖w‖² + ½(b/s)² for each class against the rest, p = 1 or 2; P is this divided by pCn.

    With ``penalty="l1"`` it is ‖w‖₁ + |b/s|.
    """
    if model.multi_class != "ovr":
        _refuse(model, f"multi_class={model.multi_class!r}", "its loss couples the classes: use multi_class='ovr'.")
    loss, times = _CLASSIFICATION[model.loss]
    strength = 1.0 / (times * _strength(model, "C", model.C) * data.X.shape[0])
    lam, regularizer = mixed(strength, {"l1": 1.0, "l2": 0.0}[model.penalty])
    codes = _class_codes(model, data.y)
    by_class = _class_weights(model, codes, data.sample_weight)
    signs = _signs(model, codes)
    coefs, intercepts = coefficients(model, data.X, len(signs))
    X, coefs = _with_penalised_intercept(model, data.X, coefs, intercepts)
    for k, (y, w) in enumerate(zip(signs, coefs, strict=True)):
        # With more than two classes liblinear weighs the class k alone; the rest of it has weight 1, whatever its classes.
        of_row = by_class[codes] if len(signs) == 1 else np.where(codes == k, by_class[k], 1.0)
        weights = _weighted(data.sample_weight, of_row)
        yield Part(Problem(X, y, loss, regularizer=regularizer, lam=lam, sample_weight=weights), w)


@_translates("SVC")
def _svc(model: Any, data: Data) -> Iterator[Part]:
    """C Σ c_i max(0, 1 − y_i z_i) + ½‖w‖², b free, for two classes; P is this divided by Cn."""
    if len(model.classes_) > 2:
        _refuse(
            model,
            f"{len(model.classes_)} classes",
            "it fits each pair of them on other rows: fit OneVsRestClassifier(SVC(kernel='linear')) and certify that.",
        )
    codes = _class_codes(model, data.y)
    (y,) = _signs(model, codes)
    # Unlike elsewhere, "balanced" counts rows here.
    return _by_dual_coef(model, data, y, Hinge(), _weighted(data.sample_weight, model.class_weight_[codes]))


@_translates("OneVsRestClassifier")
def _one_vs_rest(model: Any, data: Data) -> Iterator[Part]:
    """The sum of the objectives of its ``estimators_``, each fitted on labels 1 for one class and 0 for the rest."""
    for estimator, y in zip(model.estimators_, _signs(model, _class_codes(model, data.y)), strict=True):
        yield from translation_of(estimator)(estimator, data._replace(y=(y > 0.0).astype(int)))


# What the translations share -----------------------------------------------------------------------------------------


def _least_squares(model: Any, data: Data, targets: list[np.ndarray]) -> Iterator[Part]:
    """Σ c_i (z_i − y_i)² + alpha ‖w‖² for each target, with one alpha for all or one for each, divided by 2n."""
    n = data.X.shape[0]
    regularizer = NonNegative() if getattr(model, "positive", False) else L2()
    alphas = np.broadcast_to(np.ravel(_chosen(model, "alpha")), len(targets))
    for alpha, target, w, b in zip(alphas, targets, *coefficients(model, data.X, len(targets)), strict=True):
        problem = Problem(
            data.X,
            target,
            Squared(),
            regularizer=regularizer,
            lam=_strength(model, "alpha", alpha) / n,
            sample_weight=data.sample_weight,
            fit_intercept=model.fit_intercept,
        )
        yield Part(problem, w, b)


def _mixed(model: Any, data: Data, l1_ratio: float) -> Iterator[Part]:
    """Σ c_i (z_i − y_i)²/(2 Σ c_i) + alpha(r‖w‖₁ + ½(1 − r)‖w‖²) for each output."""
    lam, regularizer = mixed(_strength(model, "alpha", _chosen(model, "alpha")), l1_ratio, positive=model.positive)
    # The weights count only relative to each other: scikit-learn divides by their sum, P by n.
    weights = None if data.sample_weight is None else data.sample_weight / data.sample_weight.mean()
    problems = [
        Problem(
            data.X,
            target,
            Squared(),
            regularizer=regularizer,
            lam=lam,
            sample_weight=weights,
            fit_intercept=model.fit_intercept,
        )
        for target in _outputs(data.y)
    ]
    return parts_of(model, data.X, problems)


def _by_dual_coef(
    model: Any, data: Data, y: np.ndarray, loss: Loss, sample_weight: np.ndarray | None
) -> Iterator[Part]:
    """C Σ c_i φ(z_i; y_i) + ½‖w‖², b free, divided by Cn; libsvm's dual point has c_i C α_i where it is not zero."""
    if model.kernel != "linear":
        _refuse(model, f"kernel={model.kernel!r}", "it is not a linear model in X: use kernel='linear'.")
    n = data.X.shape[0]
    problem = Problem(
        data.X, y, loss, regularizer=L2(), lam=1.0 / (model.C * n), sample_weight=sample_weight, fit_intercept=True
    )
    (w,), (b,) = coefficients(model, data.X, 1)
    alpha = np.zeros(n)
    if model.support_.max(initial=-1) < n:
        dual_coef = model.dual_coef_.toarray() if linear.is_sparse(model.dual_coef_) else model.dual_coef_
        alpha[model.support_] = np.ravel(dual_coef) / (model.C * problem.c[model.support_])
    yield Part(problem, w, b, problem.dual_near(alpha))


def _outputs(y: np.ndarray) -> list[np.ndarray]:
    """Return the targets of each output."""
    return list(y.T) if y.ndim == 2 else [y]


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


def _signs(model: Any, codes: np.ndarray) -> list[np.ndarray]:
    """Return the ±1 labels of each class against the rest; of two classes, of the second against the first alone."""
    n_classes = len(model.classes_)
    return [np.where(codes == k, 1.0, -1.0) for k in ([1] if n_classes == 2 else range(n_classes))]


def _class_weights(model: Any, codes: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray:
    """Return the weight of each class, by the rule of the scikit-learn that is installed."""
    from sklearn.utils.class_weight import compute_class_weight

    # Up to version 1.6, "balanced" counted rows; since then it adds up their weights.
    counts_weights = "sample_weight" in inspect.signature(compute_class_weight).parameters
    more = {"sample_weight": sample_weight} if counts_weights else {}
    return np.asarray(
        compute_class_weight(model.class_weight, classes=model.classes_, y=model.classes_[codes], **more), dtype=float
    )


def _weighted(sample_weight: np.ndarray | None, of_row: np.ndarray) -> np.ndarray:
    return of_row if sample_weight is None else of_row * sample_weight


def _with_penalised_intercept(
    model: Any, X: linear.Matrix, w: np.ndarray, b: np.ndarray
) -> tuple[linear.Matrix, np.ndarray]:
    """Write b as liblinear does: b = s v, where v is the weight of a constant column s, penalised like any other."""
    if not model.fit_intercept:
        return X, w
    s = float(model.intercept_scaling)
    return linear.with_constant(X, s), np.concatenate([w, np.asarray(b / s)[..., None]], axis=-1)


def _chosen(model: Any, name: str) -> Any:
    """Return the value that cross-validation chose, in ``name_``, or else the parameter itself."""
    return getattr(model, f"{name}_" if hasattr(model, f"{name}_") else name)


def _strength(model: Any, name: str, value: Any) -> float:
    """Return a strength of regularisation as a float, which must penalise: neither zero nor infinite."""
    number = float(np.ravel(value)[0])
    if number in (0.0, np.inf):
        _unpenalised(model, f"{name}={number:g}")
    return number


def _l1_ratio(model: Any) -> float:
    """Return the share of ‖w‖₁, which ``penalty`` decides where it is given (as up to 1.7), and else ``l1_ratio``."""
    penalty = getattr(model, "penalty", "deprecated")
    if penalty is None:
        _unpenalised(model, "penalty=None")
    ratio = np.ravel(_chosen(model, "l1_ratio"))[0]
    return {"l1": 1.0, "l2": 0.0}.get(penalty, float(ratio or 0.0))


def _unpenalised(model: Any, setting: str) -> NoReturn:
    _refuse(model, setting, "without a penalty the dual proves nothing: use a weak l2 penalty and certify that.")


def _refuse(model: Any, setting: str, reason: str) -> NoReturn:
    raise DualnewtonError(f"model cannot be certified: {type(model).__name__} with {setting}: {reason}")
