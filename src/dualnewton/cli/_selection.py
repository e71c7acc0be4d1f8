"""The choice of λ by cross-validation, with a certificate of the choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task
    from dualnewton.io import Dataset
    from dualnewton.objective.choice import ChoiceCertificate

RIDGE_LAMS = np.logspace(-6.0, 2.0, 25)
"""Values of λ for the squared loss with the penalty l2, relative to the mean square of a standardised feature."""

LOGISTIC_CS = 17
"""Values of C for the logistic loss, between 1e-4 and 1e4 in equal steps of the logarithm."""

SHARES = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.5}
"""The share of the l1 norm in each penalty; for elasticnet, the default."""


def chosen_lam(
    task: Task, dataset: Dataset, cv: int, threads: int, seed: int, estimators: Any
) -> tuple[float, ChoiceCertificate]:
    """Return the λ that cross-validation chooses, and the certificate of the choice.

    The task gives loss, penalty and classes; ``seed`` the random order in which examples are divided into ``cv`` folds;
    ``estimators`` is the module of the searches for rows in memory or on a cluster.
    """
    words = task.objective
    known = words.loss in SEARCHES and words.penalty in SHARES and words.multiclass != "ovr"
    if not known:
        raise DualnewtonError(
            f"--cv is for the losses {', '.join(SEARCHES)} with the penalties {', '.join(SHARES)}, got {words.loss} with "
            f"{words.penalty}{' and ovr' if words.multiclass == 'ovr' else ''}: choose lambda by --lam or -C"
        )
    if words.loss == "logistic" and dataset.offset is not None:
        raise DualnewtonError(
            "--cv chooses lambda of the loss logistic without offsets: leave out --offset and --exposure"
        )
    if not 2 <= cv <= dataset.X.shape[0]:
        raise DualnewtonError(f"--cv must be a number of folds from 2 to the number of examples, got {cv}")
    share = float(words.penalty_parameters.get("l1_ratio", SHARES[words.penalty]))
    return SEARCHES[words.loss](task, dataset, share, _folds(task, cv, seed), estimators, threads)


def _folds(task: Task, cv: int, seed: int) -> Any:
    from sklearn.model_selection import KFold, StratifiedKFold

    kind = KFold if task.classes is None else StratifiedKFold
    return kind(cv, shuffle=True, random_state=seed)


def _logistic(task: Task, dataset: Dataset, share: float, folds: Any, estimators: Any, threads: int) -> Any:
    from dualnewton.interop.labels import tidy

    search = estimators.LogisticRegressionCV(
        Cs=LOGISTIC_CS,
        l1_ratios=(share,),
        cv=folds,
        scoring="neg_log_loss",
        certify_choice=True,
        use_legacy_attributes=False,
        fit_intercept=task.objective.fit_intercept,
        n_jobs=threads,
    )
    search.fit(dataset.X, tidy(dataset.y), sample_weight=dataset.sample_weight)
    return 1.0 / (float(np.ravel(search.C_)[0]) * dataset.X.shape[0]), search.choice_certificate_


def _squared(task: Task, dataset: Dataset, share: float, folds: Any, estimators: Any, threads: int) -> Any:
    n, y, c = dataset.X.shape[0], np.asarray(dataset.y, dtype=float), dataset.sample_weight
    if dataset.offset is not None:
        y = y - dataset.offset  # the loss is a function of z + o - y
    intercept = task.objective.fit_intercept
    if share == 0.0:
        ridge = estimators.RidgeCV(alphas=RIDGE_LAMS * n, cv=folds, fit_intercept=intercept, n_jobs=threads)
        ridge.fit(dataset.X, y, sample_weight=c)
        return float(ridge.alpha_) / n, ridge.choice_certificate_
    net = estimators.ElasticNetCV(l1_ratio=share, cv=folds, fit_intercept=intercept, n_jobs=threads).fit(
        dataset.X, y, sample_weight=c
    )
    return _lam(float(net.alpha_), c), net.choice_certificate_


def _deviance(task: Task, dataset: Dataset, share: float, folds: Any, estimators: Any, threads: int) -> Any:
    power = task.objective.power
    assert power is not None  # of the losses in SEARCHES
    search = estimators.TweedieRegressorCV(
        power=power, l1_ratio=share, cv=folds, fit_intercept=task.objective.fit_intercept, n_jobs=threads
    )
    y, c = np.asarray(dataset.y, dtype=float), dataset.sample_weight
    search.fit(dataset.X, y, sample_weight=c, offset=dataset.offset)
    return _lam(float(search.alpha_), c), search.choice_certificate_


def _lam(alpha: float, c: np.ndarray | None) -> float:
    """Return λ for the alpha of an estimator, which divides weights by their mean; the command line does not."""
    return alpha * (1.0 if c is None else float(np.mean(c)))


SEARCHES: dict[str, Any] = {
    "logistic": _logistic,
    "squared": _squared,
    "poisson": _deviance,
    "gamma": _deviance,
    "tweedie": _deviance,
}
"""The search of each loss."""
