"""The base of estimators whose penalty is chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

from sklearn.base import _fit_context
from sklearn.utils.metadata_routing import _raise_for_params

from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._path import Path
from dualnewton.estimators._validation import Examples
from dualnewton.row_arrays import on_host


@estimator
class CrossValidated(CertifiedModel):
    """An estimator that fits a grid of models of another class, and takes the coefficients of the best of them.

    Parameters
    ----------
    cv : int, splitter, iterable of splits or None
        The folds: 5 by default.
    tol : float
        The certified relative gap (P − D)/|P| at which a model has converged, for each model.
    max_iter : int, optional
        Limit on the epochs of each model that is fitted in passes; 1000 if None.
    time_limit : float, optional
        Limit in seconds for all models together; models not started by then are certified at their starting points.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; ``progress.model`` is the number of the model within the
        current run.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {"cv": ["cv_object"]}
    _kind: ClassVar[type[CertifiedModel]]
    """The class of the models of the grid."""

    cv: Any = None
    warm_start: bool = field(default=False, init=False)

    @property
    def _by_folds_alone(self) -> bool:
        """Whether the search needs only folds and passes, so that the rows may be on a cluster."""
        return True

    def _values(self) -> Any:
        """Return the values to choose from, if they do not depend on the data; raise an error if one is not allowed."""
        raise NotImplementedError

    def _search(self, data: Examples, values: Any, params: dict[str, Any]) -> None:
        """Fit all models and set all attributes; ``params`` are metadata for the splitter and the scorer."""
        raise NotImplementedError

    def _first_member(self) -> Any:
        """Return an estimator of the grid, whose penalty strength is not set yet."""
        return self._member()

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **params: Any) -> Self:
        """Fit all models, choose the best, and prove how good each is.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d), or Dataset
            CSR and C-ordered arrays are not copied; float32 stays float32. A data set that ``data.open`` has opened stays on
            disk.
        y : array of shape (n,), or (n, outputs) where the class takes several
            Labels or targets; if None, those of the data set.
        sample_weight : number or array of shape (n,), optional
            Nonnegative; used in the fits, and in the scores if the scorer takes weights.
        **params
            For the splitter and the scorer, if metadata routing is enabled.

        Returns
        -------
        self
        """
        _raise_for_params(params, self, "fit")
        values = self._values()
        self._search(self._checked_for_folds(X, y, sample_weight), values, params)
        return self._beside(X)

    def _checked_for_folds(self, X: Any, y: Any, sample_weight: Any) -> Examples:
        """Check the arguments of ``fit``; folds select rows in memory or on disk."""
        data = self._checked(X, y, sample_weight)
        able = data.matrix.capabilities
        if not self._by_folds_alone:
            able.require_local(f"{type(self).__name__}(cv=None)")
        # Splitters and scorers need labels and weights in memory, even if the rows are elsewhere.
        return data._replace(y=on_host(data.y), sample_weight=on_host(data.sample_weight))

    def _member(self, kind: type[CertifiedModel] | None = None, **values: Any) -> Any:
        """Return an estimator of the grid, not yet fitted, with the parameters of the search and the given values."""
        kind, own = kind or self._kind, self.get_params(deep=False)
        return kind(**{name: own[name] for name in kind().get_params() if name in own} | values)

    def _warn_of_misses(self, results: Sequence[Any], names: Sequence[str] = (), *, unbounded: bool = False) -> None:
        """Give no warning for the final model: the search warns once, for all models."""

    def path(self, X: Any, y: Any, values: Any, *, sample_weight: Any = None) -> Path:
        """Call ``path`` of an estimator of the grid, with the first of the values of the other parameters."""
        return self._first_member().path(X, y, values, sample_weight=sample_weight)
