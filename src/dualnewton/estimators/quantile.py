"""QuantileRegressor: linear models of conditional quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton.estimators._base import CertifiedRegressor, solver_names
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._session import Session
from dualnewton.interop.parts import Examples
from dualnewton.interop.sklearn_objectives import quantile_regressor
from dualnewton.interop.specification import Words
from dualnewton.objective.problem import Problem
from dualnewton.planning.interior import refusal
from dualnewton.run.result import Result


@estimator
class QuantileRegressor(CertifiedRegressor):
    """Linear regression on a quantile, with a certificate.

        min_{w, b}  Σ c_i φ(y_i − x_iᵀw − b)/Σ c_i + alpha ‖w‖₁  or  + (alpha/2)‖w‖²,    φ(r) = max(q r, (q − 1) r),  q = quantile

    P is this objective. With ‖w‖₁, or without a penalty, it is a linear program: an interior-point method solves it in the
    memory of a few vectors of n numbers, and linear algebra moves its solution to the nearest vertex, where coefficients are
    exactly zero. Where several models are optimal, scikit-learn may return another one.

    Parameters, attributes and shapes are those of ``sklearn.linear_model.QuantileRegressor``; differences and additions:

    Parameters
    ----------
    quantile : float
        q, strictly between 0 and 1.
    alpha : float
        The strength of the penalty; 0 is allowed.
    penalty : {"l1", "l2"}
        ‖w‖₁, as in scikit-learn, or ½‖w‖².
    solver : str
        "auto", "interior", "sdna", "sdca", "newton" and "ihs" choose the method ("sdna", "sdca" and "ihs" need penalty="l2");
        without a penalty it is always "interior". scikit-learn's names all mean "auto".
    solver_options : dict, optional
        Accepted and ignored: they are for scikit-learn's solvers.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = dn.QuantileRegressor(quantile=0.9, alpha=0.0).fit(X, y)
    >>> round(float((y <= model.predict(X)).mean()), 1), model.certificate_.relative_gap <= 1e-6
    (0.9, True)
    """

    _words: ClassVar[Words] = staticmethod(quantile_regressor)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "quantile": [Interval(Real, 0, 1, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "penalty": [StrOptions({"l1", "l2"})],
        "solver": solver_names("highs", "highs-ds", "highs-ipm", "interior-point", "revised simplex"),
        "solver_options": [dict, None],
    }

    quantile: float = 0.5
    alpha: float = 1.0
    penalty: str = "l1"
    solver_options: dict[str, Any] | None = None
    solver: str = "auto"
    tol: float = 1e-6

    def _solved(self, session: Session, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result]:
        direct = session.method == "auto" and refusal(problems[0], session.tuning) is None
        return session.solve(problems, self._starts(problems, before), method="interior" if direct else None)

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        self.n_iter_ = int(self.n_iter_[0])  # one number, as in scikit-learn
