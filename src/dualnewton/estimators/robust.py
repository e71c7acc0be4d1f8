"""HuberRegressor: least squares deaf to outliers, with the scale of the others estimated beside the coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from dualnewton.estimators._base import CertifiedModel, CertifiedRegressor
from dualnewton.estimators._session import Session
from dualnewton.interop.parts import Data
from dualnewton.interop.sklearn_objectives import huber_regressor
from dualnewton.interop.specification import Specification
from dualnewton.run.result import Result


class HuberRegressor(CertifiedRegressor):
    """Huber's robust regression with a joint scale, certified jointly.

        min_{w, b, σ≥0}  Σ c_i (σ + σ H((x_iᵀw + b − y_i)/σ)) + alpha ‖w‖²,    H(t) = t² for |t| ≤ ε, else 2ε|t| − ε²

    The certificate covers this objective in w, b and σ together, divided by 2n: no coefficients with any scale are better by
    more than the gap. (Its dual is in ``dualnewton.objective.huber_scale``.)

    Parameters, attributes and shapes are those of ``sklearn.linear_model.HuberRegressor``; what differs or is new:

    Parameters
    ----------
    epsilon : float
        From how many scales on a residual is an outlier; at least 1, where it is least absolute deviations.
    max_iter : int
        The most epochs (passes over the data).
    alpha : float
        The strength of the penalty; 0 is allowed.
    warm_start : bool
        Start from the model and the dual point of the last fit.
    fit_intercept : bool
        Whether b is free (unpenalised) or zero.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit is done.
    solver : str
        "auto", "sdna", "sdca", "newton" or "ihs", for the fits at one scale.
    random_state : int, RandomState, Generator or None
        None is a fixed seed: equal fits give equal models.
    time_limit : float, optional
        Stop after so many seconds, with the best model so far and its proven gap.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the fit.
    verbose : int
        Show a progress line.
    n_jobs : int, optional
        Threads; the model does not depend on their number.

    Attributes
    ----------
    scale_ : float
        σ.
    outliers_ : array of bool, of shape (n,)
        Which residuals exceed epsilon σ.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **CertifiedModel._parameter_constraints,
        "epsilon": [Interval(Real, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(
        self,
        *,
        epsilon: float = 1.35,
        max_iter: int = 100,
        alpha: float = 0.0001,
        warm_start: bool = False,
        fit_intercept: bool = True,
        tol: float = 1e-5,
        solver: str = "auto",
        random_state: Any = None,
        time_limit: float | None = None,
        callback: Any = None,
        verbose: int = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.alpha = alpha
        self.warm_start = warm_start
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.solver = solver
        self.random_state = random_state
        self.time_limit = time_limit
        self.callback = callback
        self.verbose = verbose
        self.n_jobs = n_jobs

    def _specification(self, n: int) -> Specification:
        return huber_regressor(self, n)

    def _results(self, session: Session, data: Data, before: Sequence[Result] | None) -> list[Result]:
        return session.solve(self._problems(data), _starts(before, *data.X.shape))

    def _take(self, data: Data, results: Sequence[Result]) -> None:
        super()._take(data, results)
        (result,) = results
        assert result.scale is not None
        # One number, as in scikit-learn, and at most max_iter: the part of an epoch that a sketch takes does not count.
        epochs = math.ceil(result.n_epochs)
        self.n_iter_: Any = epochs if self.max_iter is None else min(epochs, self.max_iter)
        self.scale_ = result.scale
        residuals = np.abs(data.matrix.times(result.w) + result.intercept - data.y)
        self.outliers_ = residuals > self.epsilon * result.scale


def _starts(before: Sequence[Result] | None, n: int, d: int) -> list[Result] | None:
    """Return the last fit as a point to start from, if it has as many features; on other examples without its dual point."""
    if before is None or before[0].scale is None or before[0].w.shape != (d,):
        return None
    return [before[0] if before[0].alpha.shape == (n,) else replace(before[0], alpha=np.zeros(n))]
