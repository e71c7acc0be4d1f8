"""Cross-validated logistic regression beside scikit-learn's class: ten values of C, five folds, one thread."""

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
BOUND = 5.0
TOL = 1e-4
"""Of both: the certified relative gap of ours, and whatever scikit-learn's solver makes of it, which are their defaults."""

TIGHTER = (1e-6, 1e-8, 1e-10)
MANY = 10_000
"""Tolerances and iterations of scikit-learn that are tried until all its models are as good as ours are proved to be."""

CAP = 90.0
"""Seconds for each part: ours, scikit-learn as it is, and scikit-learn until it is as good."""


@dataclass(frozen=True)
class Search:
    """How long a search took, the score of each fold and value, and the largest relative gap of its models."""

    seconds: float
    scores: np.ndarray
    worst: float


def section(sets: list[Dataset], say: Callable[[str], None]) -> Section:
    """Time both on every set."""
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
        f"Both at their default tol of {TOL:g}, which to ours is the relative gap that each of its {VALUES * FOLDS} models is "
        f"proved to have, and to scikit-learn (lbfgs) a bound on the gradient. Its gap: the largest relative gap that its models "
        f"then have. Scores differ: the largest difference in accuracy of a fold. As good: with the loosest tol, in powers "
        f"of a hundred, and up to {MANY} iterations, by which all its models reach {TOL:g}. {MISSING}: not in {CAP:g} s."
    )
    result.tables = [Table("LogisticRegressionCV", columns, rows, note)]
    claim = f"{VALUES} values × {FOLDS} folds: at least {BOUND:g}× as fast as scikit-learn's class as it is"
    result.targets = [Target.at_least(claim, gains, BOUND)]
    return result


def row(ours: Search | None, theirs: Search | None, as_good: Search | None) -> list[str]:
    """Show what was found, as far as it was."""
    both = ours is not None and theirs is not None
    differ = f"{np.abs(ours.scores - theirs.scores).max():.1e}" if both else MISSING  # type: ignore[union-attr]
    gains = [ratio(other.seconds / ours.seconds) if ours and other else MISSING for other in (theirs, as_good)]
    worst = f"{theirs.worst:.1e}" if theirs else MISSING
    return [shown(ours), shown(theirs), gains[0], worst, differ, shown(as_good), gains[1]]


def shown(search: Search | None) -> str:
    """Show its time."""
    return seconds(search.seconds) if search else MISSING


def our_search(data: Dataset) -> Iterator[Search]:
    """Yield ours, fitted once before to be warm."""
    model = dn.LogisticRegressionCV(Cs=VALUES, cv=FOLDS, tol=TOL, use_legacy_attributes=False)
    model.fit(data.X, data.y)
    run = best_of(lambda: model.fit(data.X, data.y))
    gaps = [certificate.relative_gap for certificate in model.certificates_.ravel()]
    yield Search(run.seconds, model.scores_[:, 0], max(gaps))


def their_search(data: Dataset) -> Iterator[Search]:
    """Yield scikit-learn's, as it comes."""
    yield fitted(data, {})


def their_search_until_good(data: Dataset) -> Iterator[Search]:
    """Yield scikit-learn's at the loosest tolerance by which its models are as good as ours, if there is one."""
    for tol in TIGHTER:
        search = fitted(data, {"tol": tol, "max_iter": MANY})
        if search.worst <= TOL:
            yield search
            return


def fitted(data: Dataset, settings: dict[str, Any]) -> Search:
    """Fit scikit-learn's class, and have our judge look at each of its models."""
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
