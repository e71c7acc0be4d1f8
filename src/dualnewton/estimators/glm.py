"""Generalised linear models with the log link: PoissonRegressor, GammaRegressor and TweedieRegressor."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from sklearn import get_config
from sklearn.utils._param_validation import Interval, StrOptions

from dualnewton.estimators._base import CertifiedRegressor, solver_names
from dualnewton.estimators._devices import computed_on_host
from dualnewton.estimators._parameters import estimator
from dualnewton.estimators._validation import opened
from dualnewton.interop.generalised_linear import explained_deviance, generalised_linear
from dualnewton.interop.model_file._saved import LARGEST
from dualnewton.interop.parts import Examples
from dualnewton.interop.specification import Specification
from dualnewton.row_arrays import on_host
from dualnewton.run.result import Result
from dualnewton.validation import vector

LARGEST_SINGLE = 88.0
"""Power of e that is still finite in float32."""


@estimator
class GeneralizedLinearRegressor(CertifiedRegressor):
    """Base of the regressions whose loss is a deviance.

        min_{w, b}  Σ c_i φ(x_iᵀw + b + o_i; y_i)/Σ c_i + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    r = l1_ratio

    The prediction is exp(x_iᵀw + b + o_i). φ is half the unit deviance without the terms that depend on y alone, so that P may be
    negative, and differs from half the mean deviance by a constant.

    Parameters
    ----------
    alpha : float
        The strength of the penalty. Zero is no penalty, which cannot be combined with ``positive`` or ``bounds``.
    l1_ratio : float
        r: 0 is ridge regression, 1 the Lasso.
    positive : bool
        Whether the coefficients must not be negative.
    bounds : (lower, upper), optional
        Bounds of the coefficients, each a number or one number per feature, for r = 0.
    solver : str
        "auto", "sdna", "sdca", "newton" and "ihs" choose the method ("sdna" and "sdca" need r < 1, "ihs" r = 0).
        scikit-learn's names mean "auto".
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "positive": ["boolean"],
        "bounds": [tuple, list, None],
        "solver": solver_names("lbfgs", "newton-cholesky"),
    }

    alpha: float = 1.0
    l1_ratio: float = 0.0
    positive: bool = False
    bounds: Any = None
    solver: str = "auto"

    _power: ClassVar[float | None] = None
    """The power of the distribution, if the class fixes it."""

    def _specification(self, n: int) -> Specification:
        return generalised_linear(self, n, self._power)

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> Self:
        """Fit the model, and prove how good the fit is.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d), or Dataset
            CSR and C-ordered arrays are not copied; float32 stays float32. A data set that ``data.open`` has opened stays on
            disk.
        y : array of shape (n,)
            Counts, or other targets in the domain of the loss; if None, those of the data set.
        sample_weight : number or array of shape (n,), optional
            Nonnegative; only their ratios matter. For rates y = counts/exposure they are the exposures.
        offset : array of shape (n,), optional
            o, added to the margins; for counts, the logarithm of the exposures.

        Returns
        -------
        self
        """
        if not get_config()["skip_parameter_validation"]:
            self._validate_params()
        return self._fit_beside(X, with_offset(self._checked(X, y, sample_weight), on_host(offset)))

    def _take(self, data: Examples, results: Sequence[Result]) -> None:
        super()._take(data, results)
        self.n_iter_ = int(self.n_iter_[0])  # one number, as in scikit-learn

    @property
    def _log_power(self) -> float | None:
        """The power if the mean is exp(z); None for least squares, the only deviance here with another link."""
        return (self.power if self._power is None else self._power) or None

    def predict(self, X: Any, *, offset: Any = None) -> np.ndarray:
        """Return the mean exp(Xw + b + o), of shape (n,)."""

        def means(margins: np.ndarray) -> np.ndarray:
            margins = margins if offset is None else margins + vector("offset", on_host(offset), len(margins))
            return margins if self._log_power is None else means_of(margins)

        return computed_on_host(means, super().predict(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, offset: Any = None) -> float:
        """Return D², the fraction of the deviance explained: 1 − D(y, prediction)/D(y, mean of y)."""
        X, y, sample_weight = opened(X, y, sample_weight)
        predicted = on_host(self.predict(X, offset=offset))
        return explained_deviance(on_host(y), predicted, self._log_power or 0.0, on_host(sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._log_power is not None
        return tags


def with_offset(data: Examples, offset: Any) -> Examples:
    """Return the data with offsets, if there are any."""
    return data if offset is None else data._replace(offset=vector("offset", offset, len(data.y)))


def means_of(margins: np.ndarray) -> np.ndarray:
    """Return exp(z), clipped so that it does not overflow: margins of float32 rows and coefficients are float32."""
    return np.exp(np.minimum(margins, LARGEST if margins.dtype == np.float64 else LARGEST_SINGLE))


@estimator
class PoissonRegressor(GeneralizedLinearRegressor):
    """Poisson regression for counts y ≥ 0 with the mean exp(x_iᵀw + b + o_i), with a certificate.

        min_{w, b}  Σ c_i (e^{z_i} − y_i z_i)/Σ c_i + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    z_i = x_iᵀw + b + o_i,  r = l1_ratio

    Parameters, attributes and shapes are those of ``sklearn.linear_model.PoissonRegressor``; differences and additions:

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X, exposure = rng.standard_normal((200, 2)), rng.uniform(0.5, 2.0, 200)
    >>> counts = rng.poisson(exposure * np.exp(0.3 * X[:, 0]))
    >>> model = dn.PoissonRegressor(alpha=1e-3).fit(X, counts, offset=np.log(exposure))
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((2,), True)
    """

    _power: ClassVar[float | None] = 1.0


@estimator
class GammaRegressor(GeneralizedLinearRegressor):
    """Gamma regression for y > 0 with the mean exp(x_iᵀw + b + o_i), with a certificate.

        min_{w, b}  Σ c_i (z_i + y_i e^{−z_i})/Σ c_i + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    z_i = x_iᵀw + b + o_i,  r = l1_ratio

    Parameters, attributes and shapes are those of ``sklearn.linear_model.GammaRegressor``; differences and additions:

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> model = dn.GammaRegressor(alpha=1e-3).fit(X, rng.gamma(2.0, np.exp(0.3 * X[:, 0])))
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((2,), True)
    """

    _power: ClassVar[float | None] = 2.0


@estimator
class TweedieRegressor(GeneralizedLinearRegressor):
    """Regression with the deviance of a Tweedie distribution, with a certificate.

        min_{w, b}  Σ c_i φ(z_i; y_i)/Σ c_i + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    z_i = x_iᵀw + b + o_i,  r = l1_ratio

    φ is ½(z − y)² for power 0 and :class:`losses.Poisson`, :class:`losses.Tweedie` or :class:`losses.Gamma` for powers in [1, 2].

    Parameters, attributes and shapes are those of ``sklearn.linear_model.TweedieRegressor``; differences and additions:

    Parameters
    ----------
    power : float
        0 (least squares, with the identity as link), or in [1, 2] (1 Poisson, 2 gamma, with the log link). Other powers are
        refused: their deviances are not convex in the coefficients.
    link : {"auto", "identity", "log"}
        "auto" is the link of the power, as above.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 2))
    >>> costs = np.array([rng.gamma(2.0, 1.0, k).sum() for k in rng.poisson(np.exp(0.3 * X[:, 0]))])
    >>> model = dn.TweedieRegressor(power=1.5, alpha=1e-3).fit(X, costs)
    >>> model.coef_.shape, model.certificate_.relative_gap <= 1e-4
    ((2,), True)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "power": [Interval(Real, None, None, closed="neither")],
        "link": [StrOptions({"auto", "identity", "log"})],
    }

    power: float = 0.0
    link: str = "auto"
