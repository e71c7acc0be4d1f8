"""Cross-validated logistic regression compared with scikit-learn's class: ten values of C, five folds, one thread."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from benchmarks.data import Dataset
from benchmarks.report import MISSING, Section, Table, Target, ratio, seconds
from benchmarks.timing import best_of, in_child

import dualnewton as dn
from dualnewton import losses

VALUES, FOLDS = 10, 5
"""Number of values of C and of folds; both are the defaults of the two classes."""

BOUND = 5.0
"""The target: how many times as fast as scikit-learn ours should be."""

TOL = 1e-4
"""The default tolerance of both classes: a certified relative gap for ours, a bound on the gradient for scikit-learn."""

TIGHTER = (1e-6, 1e-8, 1e-10)
MANY = 10_000
"""The tolerances of scikit-learn, and the iteration limit, that are tried until the gaps of all its models are below TOL."""

CAP = 90.0
"""Time limit in seconds of each search: ours, scikit-learn's at default settings, and scikit-learn's to the same gap."""


@dataclass(frozen=True)
class Search:
    """The time of a search, the score of each fold and value, and the largest relative gap of its models."""

    seconds: float
    scores: np.ndarray
    worst: float


def section(sets: list[Dataset], say: Callable[[str], None]) -> Section:
    """Time both classes on every data set."""
    rows, gains = [], []
    for data in sets:
        ours, theirs, as_good = (
            in_child(partial(work, data), CAP, 1).last() for work in (our_search, their_search, their_search_until_good)
        )
        gains.append(theirs.seconds / ours.seconds if ours and theirs else math.nan)
        rows.append([data.name, *row(ours, theirs, as_good)])
        say(f"{data.name}: ours {shown(ours)}, scikit-learn {shown(theirs)}, as good {shown(as_good)}")
    result = Section(f"Cross-validation: {VALUES} values of C × {FOLDS} folds, logistic, 1 thread")
    columns = ["data", "ours", "scikit-learn", "gain", "its gap", "scores differ", "scikit-learn, as good", "gain"]
    note = (
        f"Both at their default tol of {TOL:g}: ours certifies this relative gap for each of its {VALUES * FOLDS} models, "
        f"scikit-learn (lbfgs) uses it as a bound on the gradient. Its gap: the largest relative gap of its models. Scores "
        f"differ: the largest difference in accuracy of a fold. As good: with the loosest tol, in powers of a hundred, and up "
        f"to {MANY} iterations, for which all its models reach a gap of {TOL:g}. {MISSING}: not in {CAP:g} s."
    )
    result.tables = [Table("LogisticRegressionCV", columns, rows, note)]
    claim = f"{VALUES} values × {FOLDS} folds: at least {BOUND:g}× as fast as scikit-learn's class at default settings"
    result.targets = [Target.at_least(claim, gains, BOUND)]
    return result


def row(ours: Search | None, theirs: Search | None, as_good: Search | None) -> list[str]:
    """Return the row of a data set; a search that did not end in time is shown as missing."""
    both = ours is not None and theirs is not None
    differ = f"{np.abs(ours.scores - theirs.scores).max():.1e}" if both else MISSING  # type: ignore[union-attr]
    gains = [ratio(other.seconds / ours.seconds) if ours and other else MISSING for other in (theirs, as_good)]
    worst = f"{theirs.worst:.1e}" if theirs else MISSING
    return [shown(ours), shown(theirs), gains[0], worst, differ, shown(as_good), gains[1]]


def shown(search: Search | None) -> str:
    """Return the time of a search as text."""
    return seconds(search.seconds) if search else MISSING


def our_search(data: Dataset) -> Iterator[Search]:
    """Yield our search, after one untimed fit that compiles the kernels."""
    model = dn.LogisticRegressionCV(Cs=VALUES, cv=FOLDS, tol=TOL, use_legacy_attributes=False)
    model.fit(data.X, data.y)
    run = best_of(lambda: model.fit(data.X, data.y))
    gaps = [certificate.relative_gap for certificate in model.certificates_.ravel()]
    yield Search(run.seconds, model.scores_[:, 0], max(gaps))


def their_search(data: Dataset) -> Iterator[Search]:
    """Yield scikit-learn's search at default settings."""
    yield fitted(data, {})


def their_search_until_good(data: Dataset) -> Iterator[Search]:
    """Yield scikit-learn's search at the loosest tolerance for which all its models reach our gap, if there is one."""
    for tol in TIGHTER:
        search = fitted(data, {"tol": tol, "max_iter": MANY})
        if search.worst <= TOL:
            yield search
            return


def fitted(data: Dataset, settings: dict[str, Any]) -> Search:
    """Fit scikit-learn's class, and certify each of its models."""
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import StratifiedKFold

    model = LogisticRegressionCV(Cs=VALUES, cv=FOLDS, scoring="accuracy", n_jobs=1, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = best_of(lambda: model.fit(data.X, data.y))
    (scores,), (paths,) = model.scores_.values(), model.coefs_paths_.values()
    worst = 0.0
    for fold, (train, _) in enumerate(StratifiedKFold(FOLDS).split(data.X, data.y)):
        X, y = data.X[train], np.where(data.y[train] == model.classes_[1], 1.0, -1.0)
        for C, coefs in zip(model.Cs_, paths[fold], strict=True):
            problem = dn.Problem(X, y, losses.Logistic(), lam=1.0 / (C * len(y)), fit_intercept=True)
            worst = max(worst, problem.certify(coefs[:-1], float(coefs[-1])).relative_gap)
    return Search(run.seconds, scores, worst)
