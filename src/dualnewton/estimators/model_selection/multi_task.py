"""Multi-task models whose alpha, and r if several are given, cross-validation chooses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import Examples
from dualnewton.estimators.elastic_net import ElasticNet
from dualnewton.estimators.model_selection._alphas import AlphaSearch, Scored, Search, Walk
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._grid import over_folds
from dualnewton.estimators.model_selection._joint_paths import JointColumns, JointPaths
from dualnewton.estimators.model_selection._quadratic_paths import Fitted, quadratic_paths
from dualnewton.estimators.model_selection._session import TOGETHER, Outcome
from dualnewton.estimators.multi_task import MultiTaskElasticNet, MultiTaskModel
from dualnewton.planning.direct import gathers_columns, keeps_moments
from dualnewton.run.result import Result


@estimator
class MultiTaskElasticNetCV(AlphaSearch, MultiTaskModel):
    """A multi-task elastic net chosen by cross-validation, with a certificate for each model.

    If the d×d moments of all folds fit into memory, they come from one pass over the data, and the models of a fold are computed
    along the grid and certified from them. With fewer dense rows than features, unless these are few, the models of some alphas
    are solved for, and those between are interpolated. One output is an elastic net, and fitted as one. Otherwise the models of
    all folds are fitted together in shared passes.

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

    def _slope_sizes(self, slopes: np.ndarray) -> np.ndarray:
        return np.linalg.norm(slopes, axis=1)

    def _walk(self, search: Search) -> Walk:
        session, data, folds = search.session, search.data, search.folds
        errors = _Errors(data, folds)

        def in_passes(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            for whole, of_folds in self._in_passes(search, ratio, alphas):
                seen = np.array([[errors.of(fold, results) for fold, results in enumerate(of_folds)]])
                yield Scored([[Outcome.of_all(results) for results in of_folds]], seen, [whole].__getitem__)

        # Columns of rows on disk or on a cluster cannot be selected.
        wide = data.matrix.capabilities.whole and gathers_columns(data.matrix.profile, session.tuning)
        if session.method != "auto" or not (wide or keeps_moments(data.matrix.d, len(folds) + 1, session.tuning)):
            return in_passes
        if data.y.shape[1] == 1 and data.matrix.capabilities.whole:
            # Newton steps on the norms of features would solve singular systems: the norm of one coefficient has no curvature.
            single = data._replace(y=np.ascontiguousarray(data.y[:, 0]))
            return quadratic_paths(session, single, folds, self._posing).walk(errors.scored, in_passes)
        paths = (JointColumns if wide else JointPaths)(session, data, folds, fit_intercept=self.fit_intercept)

        def by_moments(ratio: float, alphas: np.ndarray) -> Iterator[Scored]:
            apart = (alphas == 0.0) | (ratio == 0.0)  # these have another dual, and no threshold at which a path stops
            poser = self._member(over_folds(self._kind), alpha=1.0, l1_ratio=ratio)
            poser.weightings = folds.and_all_rows().relative_weights(data.sample_weight)
            yield from paths.scored(poser._problems(data), errors, ratio, alphas[~apart])
            yield from in_passes(ratio, alphas[apart])

        return by_moments

    def _posing(self, ratio: float) -> Any:
        """Return the estimator of one output and an l1_ratio, whose penalty has a threshold for each coefficient."""
        return self._member(over_folds(ElasticNet), alpha=1.0, l1_ratio=ratio)


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


class _Errors:
    """The mean squared errors over the held-out rows of each fold (weighted) and the outputs."""

    def __init__(self, data: Examples, folds: Folds) -> None:
        self.data, self.tests = data, [np.sort(rows) for rows in folds.tests]

    def of(self, fold: int, results: Sequence[Result]) -> float:
        """Return the error of a model: one result for all outputs, or one for each."""
        W, b = np.vstack([result.w for result in results]), np.hstack([result.intercept for result in results])
        return float(self.of_models(fold, W[None], b[None])[0])

    def scored(self, found: Fitted) -> Scored:
        """Return the models of one output for each alpha with their errors."""
        folds = range(found.W.shape[1])
        errors = np.array([self.of_models(f, found.W[:, f, None], found.b[:, f, None]) for f in folds]).T
        return Scored(found.outcomes, errors, found.final)

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
