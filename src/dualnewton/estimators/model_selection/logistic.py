"""Logistic regression whose C (and l1_ratio) cross-validation chooses."""

from __future__ import annotations

import math
from dataclasses import field
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metadata_routing import UNUSED, _raise_for_params

from dualnewton._warning import warn
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._base import CertifiedModel
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import in_unit_interval, opened
from dualnewton.estimators.logistic import LogisticRegression
from dualnewton.estimators.model_selection import _routing
from dualnewton.estimators.model_selection._cross_validated import CrossValidated
from dualnewton.estimators.model_selection._folds import Folds, indexed
from dualnewton.estimators.model_selection._logistic_grid import Grid, GridFits, Scored, parted
from dualnewton.estimators.model_selection._session import GridSession, certified, of_each
from dualnewton.estimators.model_selection.choice import BOUNDS, ChoiceCertificate
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import NAMED
from dualnewton.run.result import Result, Status

POWERS = (-4.0, 4.0)
"""The powers of ten between which the values of C lie if only their number is given."""

LEVELS = (1e-2, 1e-6, 1e-12)
"""Relative gaps to which the models are fitted, one after the other, until the choice among them is proved."""

FINAL = 1e-14
"""The relative gap of the final model on small data."""

LARGEST = 1e300
"""Value that replaces an infinite C if a mean of models is certified; the bound is valid and very large."""


@estimator
class LogisticRegressionCV(CrossValidated, LogisticRegression):
    """Logistic regression, with C chosen by cross-validation, and a certificate for each model.

    For each l1_ratio and C it fits :class:`LogisticRegression` on all rows and on those of each fold. The models of a value are
    fitted in shared passes, and those of the folds start from that of all rows; the chosen model needs no refit.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.LogisticRegressionCV``; differences and
    additions:

    Parameters
    ----------
    Cs : int or sequence of floats
        The values, or their number between 1e-4 and 1e4.
    l1_ratios : sequence of floats, optional
        Shares of ‖w‖₁ in the penalty to choose from; by default only 0.
    cv : int, splitter, iterable of splits or None
        The folds: 5 stratified ones by default.
    scoring : str, callable or None
        The score; by default accuracy.
    refit : bool
        Whether the final model is that of all rows for the values with the best mean score, or the mean of the best models of
        the folds.
    certify_choice : bool
        Whether to prove that exact fits choose the same value. The models of folds are then fitted as accurately as this needs:
        first roughly, and then more accurately for values that may still be the best. The final model is fitted to ``tol``.
    use_legacy_attributes : bool
        Whether attributes have the shapes of scikit-learn up to 1.9 (dicts by class; the default) or those after 1.9.

    Attributes
    ----------
    choice_certificate_ : ChoiceCertificate
        With ``certify_choice``: bounds on the mean score of exact fits for each value, and whether exact fits would choose the
        same value.
    certificates_ : array of Certificate of shape (l1_ratios, Cs, folds, fits)
        The certificate of each model; there is one fit for two classes or softmax, and one for each class against the rest.
    certificate_ : Certificate or list of Certificate
        The certificate of the final model; with ``refit=False``, of the mean of models, which need not be near the optimum for
        the mean of C.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = dn.LogisticRegressionCV(Cs=3, cv=3).fit(X, y)
    >>> model.C_.shape, model.certificate_.relative_gap <= 1e-4
    ((1,), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "penalty": [StrOptions({"l1", "l2", "elasticnet", "deprecated"})],
        "Cs": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "l1_ratios": ["array-like", None, StrOptions({"warn"})],
        "scoring": [StrOptions({*get_scorer_names(), "warn"}), callable, None],
        "refit": ["boolean"],
        "certify_choice": ["boolean"],
        "use_legacy_attributes": ["boolean", StrOptions({"warn"})],
    }
    _kind: ClassVar[type[CertifiedModel]] = LogisticRegression
    __metadata_request__score: ClassVar[dict[str, str]] = {"sample_weight": UNUSED}  # the scorer takes it

    penalty: str | None = "deprecated"
    C: float = field(default=1.0, init=False)
    l1_ratio: float | None = field(default=0.0, init=False)
    Cs: Any = 10
    l1_ratios: Any = "warn"
    scoring: Any = "warn"
    refit: bool = True
    certify_choice: bool = False
    use_legacy_attributes: Any = "warn"

    def _search(self, data: Examples, values: tuple[np.ndarray, list[float]], params: dict[str, Any]) -> None:
        weights = {} if data.sample_weight is None else {"sample_weight": data.sample_weight}
        given = _routing.routed(self, "fit", {**params, "sample_weight": data.sample_weight}, {**params, **weights})
        labels = self.classes_[data.y]
        splits = check_cv(self.cv, labels, classifier=True).split(indexed(data), labels, **given.splitter.split)
        folds = Folds.of(splits, data.X.shape[0], data.sample_weight)
        self._need_two_classes(folds, data.y)
        grid = Grid(*values, len(folds), self._fits)
        with GridSession(self) as session:
            fits = GridFits(self, session, data, folds)
            scored = Scored(self, session, data, folds, given.scorer.score)
            self.choice_certificate_ = self._until_chosen(session, fits, scored, grid)
            final = self._final_model(session, data, grid)
        self._adopt(data, final)
        self._set_attributes(grid)
        names, models = grid.everything()
        if self.certify_choice:  # models of folds are fitted roughly on purpose
            wanted = [k for k, model in enumerate(models) if model.status is not Status.CONVERGED]
            names, models = [names[k] for k in wanted], [models[k] for k in wanted]
            names, models = [*names, *[f"C = {self._final.C:.3g}"] * len(final)], [*models, *final]
        CertifiedModel._warn_of_misses(self, models, names)

    def _need_two_classes(self, folds: Folds, y: np.ndarray) -> None:
        """Reject splits whose training rows have one class only."""
        for k, counts in enumerate(folds.counts):
            (seen,) = np.nonzero(np.bincount(y[counts > 0.0], minlength=len(self.classes_)))
            if len(seen) < 2:
                raise DualnewtonError(
                    f"cv must leave training rows of at least two classes, got split {k} with rows of the class "
                    f"{self.classes_[seen[0]]} only: use StratifiedKFold (an integer cv does), or other folds"
                )

    @property
    def _fits(self) -> int:
        """The number of fits of a model: one for two classes or softmax, else one for each class against the rest."""
        return 1 if self._is_softmax or len(self.classes_) == 2 else len(self.classes_)

    def _until_chosen(self, session: GridSession, fits: GridFits, scored: Scored, grid: Grid) -> ChoiceCertificate:
        """Fit all values to ``tol``, or those that may still be the best more and more accurately until the choice is proved."""
        wanted = grid.places()
        for tol in LEVELS if self.certify_choice else (self.tol,):
            session.tol = tol
            fits.fit(grid, wanted)
            scored.score(grid, wanted, fits)
            choice = grid.choice(scored)
            places = grid.places()
            wanted = [places[k] for k in sorted([choice.chosen, *choice.rivals])]
            unknown = not np.isfinite([grid.ends[place] for place in wanted]).all()
            if choice.proved or session.is_over or (unknown and tol <= self.tol):
                break
        session.tol = self.tol
        return choice

    # The grid ---------------------------------------------------------------------------------------------------------

    def _values(self) -> tuple[np.ndarray, list[float]]:
        """Return the values of C and of l1_ratio."""
        if self.certify_choice and not (self.refit and self.scoring in (None, "warn", *BOUNDS)):
            raise DualnewtonError(
                "certify_choice=True needs refit=True and a score for which an interval is known, one of "
                f"{', '.join(map(repr, BOUNDS))}, got refit={self.refit!r} and scoring={self.scoring!r}"
            )
        if isinstance(self.Cs, Integral):
            Cs = np.logspace(*POWERS, int(self.Cs))
        else:
            Cs = np.asarray(self.Cs, dtype=np.float64)
            if Cs.ndim != 1 or Cs.size == 0 or not (Cs > 0.0).all():
                raise DualnewtonError(f"Cs must be a number of values or a list of values > 0, got {self.Cs!r}")
        named = NAMED.get(str(self.penalty))
        if named is not None and self._has_ratios:
            warn(
                f"l1_ratios parameter is only used when penalty is 'elasticnet'. Got (penalty={self.penalty}) with "
                f"l1_ratios={self.l1_ratios!r}"
            )
        if named is not None or not (self._has_ratios or self.penalty == "elasticnet"):
            return Cs, [named or 0.0]
        ratios = np.asarray(self.l1_ratios if self._has_ratios else [])
        if ratios.ndim != 1 or ratios.size == 0 or ratios.dtype.kind not in "fiu" or not in_unit_interval(ratios):
            raise DualnewtonError(f"l1_ratios must be a list of numbers between 0 and 1, got {self.l1_ratios!r}")
        return Cs, ratios.astype(float).tolist()

    @property
    def _has_ratios(self) -> bool:
        return not (self.l1_ratios is None or isinstance(self.l1_ratios, str))

    def _at(self, C: float, ratio: float, kind: type[LogisticRegression] = LogisticRegression) -> Any:
        """Return the estimator of one value, not yet fitted."""
        model = self._member(kind, C=C, l1_ratio=ratio, penalty="deprecated")
        if hasattr(self, "classes_"):
            model.classes_ = self.classes_
        return model

    def _first_member(self) -> Any:
        return self._at(1.0, self._values()[1][0])

    # Scores and choice -------------------------------------------------------------------------------------------------

    def _final_model(self, session: GridSession, data: Examples, grid: Grid) -> list[Result]:
        """Return the model of all rows for the best values, or the mean of the best model of each fold."""
        if self.refit:
            r, k = grid.best()
            self._final = self._at(float(grid.Cs[k]), grid.ratios[r])
            return self._refined(session, data, grid.whole[r, k], self._final)
        best = [grid.best(fold) for fold in range(grid.folds)]
        C = float(np.mean([grid.Cs[k] for _, k in best]))
        self._final = self._at(C, float(np.mean([grid.ratios[r] for r, _ in best])))
        mean = np.mean([grid.coefs[place][fold] for fold, place in enumerate(best)], axis=0)
        return self._certified_mean(data, mean, self._at(C, self._final.l1_ratio))

    def _refined(self, session: GridSession, data: Examples, found: list[Result], member: Any) -> list[Result]:
        """Continue to ``tol``, and to a smaller gap if that is cheap: the final model is fitted as accurately as possible."""
        problems = member._problems(data)
        if member.penalty is None or math.isinf(member.C) or session.is_over:
            return found
        session.begin(f"C = {member.C:.3g}, all rows")
        if any(result.certificate.relative_gap > self.tol for result in found):
            found = session.solve(problems, found)
        exact = session.goal < session.tol and all(result.converged for result in found)
        return session.solve(problems, found, tol=FINAL) if exact else found

    def _certified_mean(self, data: Examples, coefs: np.ndarray, member: Any) -> list[Result]:
        """Certify mean coefficients as a model with the penalty of ``member``."""
        member.C = min(member.C, LARGEST)
        problems = member._problems(data)
        w, b = parted(coefs, fit_intercept=self.fit_intercept)
        models, intercepts = ([w], [b]) if self._is_softmax else (list(w), [float(each) for each in b])
        return certified(problems, models, intercepts, self.tol, "the mean of the best model of each fold")

    def _sums_to_zero(self) -> bool:
        return bool(self._final._sums_to_zero())

    def _set_attributes(self, grid: Grid) -> None:
        """Set the attributes of scikit-learn's class, in the shapes that ``use_legacy_attributes`` asks for."""
        C, ratio, scores = self._final.C, self._final.l1_ratio, grid.scores
        self.Cs_ = grid.Cs
        self.l1_ratios_ = np.asarray(grid.ratios if self._has_ratios else [None])
        self.certificates_ = of_each(grid.outcomes, "certificate")
        n_iter = np.ceil(of_each(grid.outcomes, "n_epochs").astype(float)).astype(int).max(axis=3)
        coefs = np.array([[grid.coefs[r, k] for k in range(len(grid.Cs))] for r in range(len(grid.ratios))])
        # Of shape (l1_ratios, Cs, folds, …) so far.
        if self.use_legacy_attributes in (False, np.False_):
            self.C_: Any = C
            self.l1_ratio_: Any = ratio
            self.scores_, self.n_iter_, self.coefs_paths_ = (
                np.moveaxis(each, 2, 0) for each in (scores, n_iter, coefs)
            )
            return
        classes = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        shares: Any = slice(None) if self._has_ratios else 0  # the axis exists if ``l1_ratios`` was given
        of_fold = scores.transpose(2, 1, 0)[:, :, shares]
        self.C_ = np.full(len(classes), C)
        self.l1_ratio_ = np.full(len(classes), ratio if self._has_ratios or not self.refit else None)
        self.scores_ = {label: of_fold.copy() for label in classes}
        self.n_iter_ = n_iter.transpose(2, 1, 0)[None, :, :, shares]
        self.coefs_paths_ = dict(zip(classes, coefs.transpose(3, 2, 1, 0, 4)[:, :, :, shares], strict=True))

    # Scores, paths and metadata ----------------------------------------------------------------------------------------

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **score_params: Any) -> float:
        """Return the score of the final model on other data, by ``scoring``."""
        _raise_for_params(score_params, self, "score")
        X, y, sample_weight = opened(X, y, sample_weight)
        weights = {} if sample_weight is None else {"sample_weight": sample_weight}
        given = _routing.routed(self, "score", {**score_params, **weights}, weights)
        return self._scorer()(self, X, y, **given.scorer.score)

    def _scorer(self) -> Any:
        return get_scorer("accuracy" if self.scoring in (None, "warn") else self.scoring)

    def get_metadata_routing(self) -> Any:
        """Return the metadata routing: the splitter of ``fit`` and the scorer of ``fit`` and ``score`` take metadata."""
        return _routing.router(self, self.cv, self._scorer(), "fit", "score")
