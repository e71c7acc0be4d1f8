"""Multi-task models whose alpha, and r if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.model_selection import check_cv

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Data
from dualnewton.estimators.elastic_net import ElasticNet
from dualnewton.estimators.model_selection import _routing
from dualnewton.estimators.model_selection._alphas import AlphaSearch
from dualnewton.estimators.model_selection._certified import TOGETHER
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._grid import OverFolds, walk_values
from dualnewton.estimators.model_selection._joint_paths import JointColumns, JointPaths
from dualnewton.estimators.model_selection._joint_paths import Path as JointPath
from dualnewton.estimators.model_selection._quadratic_paths import QuadraticPaths
from dualnewton.estimators.model_selection._session import GridSession, Outcome, of_each
from dualnewton.estimators.multi_task import MultiTaskElasticNet, MultiTaskModel
from dualnewton.objective.alike import like
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import gathers_columns, sums_moments
from dualnewton.regularizers import mixed
from dualnewton.run.result import Result, Status


class Scored(NamedTuple):
    """Outcome and error of the model of each fold for a value, and a function that returns the model of all rows."""

    outcomes: list[Outcome]
    errors: list[float]
    final: Callable[[], list[Result]]


Walk = Callable[[float, np.ndarray], Iterator[Scored]]
"""Fits a decreasing grid of alphas for an l1_ratio and yields the outcome for each."""


@estimator
class MultiTaskElasticNetCV(AlphaSearch, MultiTaskModel):
    """A multi-task elastic net chosen by cross-validation, with a certificate for each model.

    If the d×d moments of all folds fit into memory, they come from one pass over the data, and the models of a fold are computed
    along the grid and certified from them. With fewer dense rows than features, the models of some alphas are solved for, and
    those between are interpolated. One output is an elastic net, and fitted as one. Otherwise the models of all folds are fitted
    together in shared passes.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.MultiTaskElasticNetCV``; differences and
    additions:

    Attributes
    ----------
    certificates_ : array of Certificate of shape (l1_ratios, alphas, folds)
        The certificate of each model; if alpha is zero, of the sum over the outputs.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_linnerud
    >>> X, y = load_linnerud(return_X_y=True)  # three outputs
    >>> model = dn.MultiTaskElasticNetCV(alphas=5, cv=3).fit(X, y)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((3, 3), True)
    """

    _kind: ClassVar[type[CertifiedModel]] = MultiTaskElasticNet

    def _search(self, data: Data, ratios: list[float], params: dict[str, Any]) -> None:
        grids = [self._grid(data, ratio) for ratio in ratios]
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {})
        splits = check_cv(self.cv).split(indexed(data), data.y, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0], data.sample_weight)
        search = _Search((len(ratios), len(grids[0]), len(folds)))
        with GridSession(self) as session:
            walk = self._walk(session, data, folds)
            for r, (ratio, alphas) in enumerate(zip(ratios, grids, strict=True)):
                for k, found in enumerate(walk(ratio, alphas)):
                    search.take(r, k, found)
            r, k = search.best
            final = search.final()
        self._set_chosen(grids, ratios[r], float(grids[r][k]))
        self.mse_path_ = np.squeeze(search.errors)
        self.certificates_ = of_each(search.outcomes, "certificate")
        self._adopt(data, final)
        values = [*[self.alpha_] * len(final), *np.repeat(np.stack(grids), len(folds))]
        names = [f"alpha = {alpha:.3g}" for alpha in values]
        CertifiedModel._warn_of_misses(self, [*final, *search.outcomes.ravel()], names)

    # The grid ---------------------------------------------------------------------------------------------------------

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        return np.linalg.norm(slopes, axis=1)

    # Fits ---------------------------------------------------------------------------------------------------------------

    def _walk(self, session: GridSession, data: Data, folds: Folds) -> Walk:
        """Return the way of fitting that suits the data."""
        c = data.sample_weight
        # Only ratios of weights matter: the objective of a fold is divided by their sum, and P by n.
        weightings = [each / each.mean() for each in folds.weights(c)]

        errors = _Errors(data, folds)

        def in_passes(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            names = [f"l1_ratio = {ratio:g}, alpha = {alpha:.3g}" for alpha in alphas]
            members = [
                (name, self._member(_OverFolds, alpha=alpha, l1_ratio=ratio))
                for name, alpha in zip(names, alphas, strict=True)
            ]
            for whole, of_folds in walk_values(session, members, data, c, weightings):
                count = len(of_folds) // len(folds)
                each = [of_folds[k * count : (k + 1) * count] for k in range(len(folds))]
                seen = [errors.of(fold, results) for fold, results in enumerate(each)]
                yield Scored([Outcome.of_all(results) for results in each], seen, partial(list, whole))

        # Columns of rows on disk or on a cluster cannot be selected.
        wide = data.matrix.capabilities.whole and gathers_columns(data.matrix.profile, session.tuning)
        if session.method != "auto" or not (wide or sums_moments(data.matrix.d, len(folds) + 1, session.tuning)):
            return in_passes
        everybody = [*weightings, np.ones(len(data.y)) if c is None else c / c.mean()]
        if data.y.shape[1] == 1 and data.matrix.capabilities.whole:
            single = data._replace(y=np.ascontiguousarray(data.y[:, 0]))
            return partial(
                _of_one_output, QuadraticPaths(session, single, folds, everybody, self._posing), errors, in_passes
            )
        paths = (JointColumns if wide else JointPaths)(session, data, folds, fit_intercept=self.fit_intercept)

        def by_moments(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            apart = (alphas == 0.0) | (ratio == 0.0)  # these have another dual, and no threshold at which a path stops
            poser = self._member(_OverFolds, alpha=1.0, l1_ratio=ratio)
            poser.weightings = everybody
            yield from _by_moments(paths, poser._problems(data), errors, ratio, alphas[~apart])
            yield from in_passes(ratio, alphas[apart])

        return by_moments

    def _posing(self, alpha: float, ratio: float) -> Any:
        """Return the estimator of one output and one value, whose penalty has a threshold for each coefficient."""
        return self._member(_OfOneOutput, alpha=alpha, l1_ratio=ratio)

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` takes metadata."""
        return _routing.router(self, check_cv(self.cv), None)


@estimator
class MultiTaskLassoCV(MultiTaskElasticNetCV):
    """A multi-task Lasso chosen by cross-validation: :class:`MultiTaskElasticNetCV` with ``l1_ratio=1``.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_linnerud
    >>> X, y = load_linnerud(return_X_y=True)  # three outputs
    >>> model = dn.MultiTaskLassoCV(alphas=5, cv=3).fit(X, y)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((3, 3), True)
    """

    l1_ratio: Any = field(default=1.0, init=False)


class _OverFolds(OverFolds, MultiTaskElasticNet):
    """The models of several folds, for one value."""


class _OfOneOutput(OverFolds, ElasticNet):
    """The same for one output."""


def _of_one_output(
    paths: QuadraticPaths, errors: _Errors, in_passes: Walk, ratio: float, alphas: np.ndarray
) -> Iterator[Scored]:
    """Yield the outcomes for decreasing alphas along the paths of an elastic net, of which this is one.

    Newton steps on the norms of features would solve singular systems: the norm of one coefficient has no curvature.
    """
    done = 0
    for found in paths.along(ratio, alphas[alphas > 0.0]):
        folds = range(found.W.shape[1])
        each = np.array([errors.of_models(f, found.W[:, f, None], found.b[:, f, None]) for f in folds])
        for k, outcomes in enumerate(found.outcomes):
            yield Scored(outcomes, each[:, k].tolist(), partial(found.final, k))
        done += len(found)
    yield from in_passes(ratio, alphas[done:])  # alpha = 0, which has another dual, or too many features


def _by_moments(
    paths: JointPaths, posed: Sequence[Problem], errors: _Errors, ratio: float, alphas: np.ndarray
) -> Iterator[Scored]:
    """Yield the outcomes for decreasing alphas: first all paths, then, fold by fold, all certificates.

    The problems are those of the folds and, last, of all rows, for any λ.
    """
    if not alphas.size:
        return
    session = paths.session
    session.begin(f"l1_ratio = {ratio:g}, alpha = {alphas[0]:.3g} to {alphas[-1]:.3g}")
    *of_folds, whole = posed
    found = paths.along(ratio, alphas, session.goal)
    lams = [mixed(float(alpha), ratio, joint=True)[0] for alpha in alphas]
    each = [
        _certified(paths, fold, problem, path, lams, errors)
        for fold, (problem, path) in enumerate(zip(of_folds, found, strict=False))
    ]
    for k, lam in enumerate(lams):
        own = [fold[k] for fold in each]
        final = partial(_whole, paths, like(whole, lam=lam), found, k)
        yield Scored([outcome for outcome, _ in own], [error for _, error in own], final)


def _certified(
    paths: JointPaths, fold: int, problem: Problem, path: JointPath, lams: Sequence[float], errors: _Errors
) -> list[tuple[Outcome, float]]:
    """Certify the models of a fold, solve those that miss ``tol``, and return outcomes and errors."""
    session = paths.session
    proofs = paths.certificates(fold, problem, lams, path)
    seen = [
        (Outcome(proof, Status.CONVERGED, 1.0), float(error))
        for proof, error in zip(proofs, errors.of_models(fold, path.W, path.b), strict=True)
    ]
    session.report([outcome for outcome, _ in seen])
    for k, proof in enumerate(proofs):
        if proof.relative_gap > session.tol:
            result = path.solved(session, like(problem, lam=lams[k]), k)
            seen[k] = Outcome.of(result), errors.of(fold, [result])
    return seen


def _whole(paths: JointPaths, problem: Problem, found: Sequence[JointPath], k: int) -> list[Result]:
    return [paths.of_all_rows(problem, found, k)]


class _Errors:
    """The mean squared errors over the held-out rows of each fold (weighted) and the outputs."""

    def __init__(self, data: Data, folds: Folds) -> None:
        self.data, self.tests = data, [np.sort(rows) for rows in folds.tests]

    def of(self, fold: int, results: Sequence[Result]) -> float:
        """Return the error of a model: one result for all outputs, or one for each."""
        W, b = np.vstack([result.w for result in results]), np.hstack([result.intercept for result in results])
        return float(self.of_models(fold, W[None], b[None])[0])

    def of_models(self, fold: int, W: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the errors of several models, W of shape (models, K, d) and b of shape (models, K)."""
        rows = self.tests[fold]
        Y = self.data.y[rows][:, None, :]
        weights = None if self.data.sample_weight is None else self.data.sample_weight[rows]
        step, found = max(1, TOGETHER // Y.size), []
        for low in range(0, len(W), step):
            part = slice(low, low + step)
            margins = self._products(rows, W[part].reshape(-1, W.shape[2]))
            missed = margins.reshape(len(rows), *b[part].shape) + (b[part] - Y)
            found.append(np.average(np.square(missed).mean(axis=2), axis=0, weights=weights))
        return np.concatenate(found)

    def _products(self, rows: np.ndarray, W: np.ndarray) -> np.ndarray:
        """W a_i of some rows, from a pass over all rows if they cannot be selected."""
        matrix = self.data.matrix
        if matrix.capabilities.whole:
            return np.asarray(matrix.rows(rows) @ W.T)
        return matrix.entries(matrix.times(np.ascontiguousarray(W.T)), rows)


class _Search:
    """The errors of all models, and the best value so far.

    Attributes
    ----------
    errors : array of shape (l1_ratios, alphas, folds)
        The mean squared errors.
    outcomes : array of Outcome of the same shape
        Certificates and statuses of the models.
    best : (int, int)
        The first index with the least mean over the folds.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.errors, self.outcomes = np.empty(shape), np.empty(shape, dtype=object)
        self.best, self.least = (0, 0), np.inf
        self.final: Callable[[], list[Result]] = list

    def take(self, ratio: int, place: int, found: Scored) -> None:
        """Store the outcome for a value."""
        self.errors[ratio, place] = found.errors
        for fold, outcome in enumerate(found.outcomes):
            self.outcomes[ratio, place, fold] = outcome
        mean = float(np.mean(found.errors))
        if mean < self.least:
            self.best, self.least, self.final = (ratio, place), mean, found.final
