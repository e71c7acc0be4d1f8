"""HuberRegressor: Huber's robust regression, which estimates the scale of the residuals together with the coefficients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval

from dualnewton.estimators._base import CertifiedRegressor
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import huber_regressor
from dualnewton.interop.specification import Words
from dualnewton.run.result import Result


@estimator
class HuberRegressor(CertifiedRegressor):
    """Huber's robust regression with a joint scale, and one certificate for coefficients and scale.

        min_{w, b, σ≥0}  Σ c_i (σ + σ H((x_iᵀw + b − y_i)/σ)) + alpha ‖w‖²,    H(t) = t² for |t| ≤ ε, else 2ε|t| − ε²

    The certificate covers this objective in w, b and σ together, divided by 2n: no coefficients and scale have an objective
    lower by more than the gap. (Its dual is in ``dualnewton.objective.huber_scale``.)

    Parameters, attributes and shapes are those of ``sklearn.linear_model.HuberRegressor``; differences and additions:

    Parameters
    ----------
    epsilon : float
        Residuals above this multiple of the scale count as outliers; at least 1.
    alpha : float
        The strength of the penalty; 0 is allowed.
    max_iter : int, optional
        Limit on the epochs (passes over the data) of the whole fit, in units of 100 epochs. (An iteration is a fit at one scale
        of the residuals, for which 100 epochs are counted.)
    solver : str
        "auto", "sdna", "sdca", "newton" or "ihs", for the fits at one scale.

    Attributes
    ----------
    scale_ : float
        σ.
    outliers_ : array of bool, of shape (n,)
        Which residuals exceed epsilon σ.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.HuberRegressor().fit(X, y)
    >>> model.scale_ > 0, model.certificate_.relative_gap <= 1e-5
    (True, True)
    """

    _words: ClassVar[Words] = staticmethod(huber_regressor)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "epsilon": [Interval(Real, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
    }

    _iteration_epochs: ClassVar[int] = 100

    epsilon: float = 1.35
    alpha: float = 0.0001
    max_iter: int | None = 100
    tol: float = 1e-5

    def _results(self, session: Session, data: Examples, before: Sequence[Result] | None) -> list[Result]:
        return session.solve(self._problems(data), _starts(before, *data.X.shape))

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        (result,) = results
        assert result.scale is not None
        # One integer, as in scikit-learn, at most max_iter: the last step may take a few epochs more.
        iterations = math.ceil(result.n_epochs / self._iteration_epochs)
        self.n_iter_ = iterations if self.max_iter is None else min(iterations, self.max_iter)
        self.scale_ = result.scale
        residuals = np.abs(data.matrix.times(result.w) + result.intercept - data.matrix.placed(data.y))
        self.outliers_ = residuals > self.epsilon * result.scale


def _starts(before: Sequence[Result] | None, n: int, d: int) -> list[Result] | None:
    """Return the last fit as a warm start, if it has the same number of features; for other examples, without its dual point."""
    if before is None or before[0].scale is None or before[0].w.shape != (d,):
        return None
    return [before[0] if before[0].alpha.shape == (n,) else replace(before[0], alpha=np.zeros(n))]
