"""Generalised linear models with the log link, of this library, scikit-learn, glum and statsmodels, as specifications.

All minimise Σ c_i φ(z_i + o_i; y_i)/Σ c_i + alpha(r‖w‖₁ + ½(1 − r)‖w‖²), where φ is half the unit deviance of a Tweedie
distribution up to a term in y; P is this, without that term.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.parts import Examples, Part, parts_of
from dualnewton.interop.sklearn_objectives import chosen_value, refuse, translates
from dualnewton.interop.specification import RELATIVE, Specification, mixture, specified


def deviance(power: float, link: str = "auto") -> tuple[str, dict[str, float]]:
    """Return name and parameters of the loss of a Tweedie distribution with this power and link; raise if not convex.

    As in scikit-learn, the link "auto" is the identity for powers up to 0 and the logarithm beyond.
    """
    link = ("identity" if power <= 0.0 else "log") if link == "auto" else link
    if (power, link) == (0.0, "identity"):
        return "squared", {}
    if link == "log" and 1.0 <= power <= 2.0:
        return {1.0: ("poisson", {}), 2.0: ("gamma", {})}.get(power, ("tweedie", {"power": float(power)}))
    raise DualnewtonError(
        f"power must be 0 with the identity as link, or in [1, 2] with the logarithm, got power={power:g} and link={link!r}: "
        "the deviances of other powers and links (the inverse Gaussian, power 3, included) are not convex in the "
        "coefficients, or have no distribution, and nothing can be proved about their minima"
    )


def explained_deviance(y: Any, means: Any, power: float, sample_weight: Any = None) -> float:
    """Return D², the fraction of the deviance explained: 1 − D(y, means)/D(y, mean of y).

    Where y is constant, and the second deviance zero, it is 1 for perfect means and 0 for others, as R² in scikit-learn. Means
    that underflow to zero, which have no logarithm, are replaced by the least positive number.
    """
    from sklearn.metrics import d2_tweedie_score, mean_tweedie_deviance

    y, means = np.asarray(y, dtype=np.float64), np.asarray(means, dtype=np.float64)
    least = np.finfo(float).tiny
    means = np.maximum(means, least) if power else means
    seen = y if sample_weight is None else y[np.asarray(sample_weight) > 0.0]
    more = {"sample_weight": sample_weight, "power": power}
    with np.errstate(over="ignore"):
        if len(y) < 2 or np.ptp(seen) > 0.0:
            return float(d2_tweedie_score(y, means, **more))
        return float(mean_tweedie_deviance(y, means, **more) <= 4.0 * least)


def generalised_linear(model: Any, n: int, power: float | None = None) -> Specification:  # noqa: ARG001
    """Return the objective of a model of this library or of scikit-learn; ``power`` is given if the class implies it."""
    loss, parameters = deviance(model.power, model.link) if power is None else deviance(power)
    return specified(
        loss,
        float(chosen_value(model, "alpha")),
        fit_intercept=model.fit_intercept,
        parameters=parameters,
        weights=RELATIVE,
        **_penalty(model),
    )


def _penalty(model: Any) -> dict[str, Any]:
    """Return the fields of the penalty: a mixture, or the ridge penalty with bounds."""
    ratio = float(chosen_value(model, "l1_ratio")) if hasattr(model, "l1_ratio") else 0.0
    bounds, positive = getattr(model, "bounds", None), getattr(model, "positive", False)
    if bounds is None:
        return mixture(ratio, positive=positive)
    if ratio or positive:
        raise DualnewtonError(
            f"bounds must be None with l1_ratio > 0 or positive=True, got l1_ratio={ratio:g} and positive={positive}: "
            "the penalty with bounds is (alpha/2)‖w‖²"
        )
    lower, upper = bounds
    return {"penalty": "box", "penalty_parameters": {"lower": _listed(lower), "upper": _listed(upper)}}


def _listed(bound: Any) -> Any:
    """Return a bound as a number or a list of numbers, as stored in a file."""
    return np.asarray(bound, dtype=np.float64).tolist()


# Models of other libraries ---------------------------------------------------------------------------------------------------


def _parts(model: Any, data: Examples, specification: Specification) -> Iterator[Part]:
    y = np.asarray(data.y, dtype=np.float64)
    more: dict[str, Any] = {"sample_weight": data.sample_weight, "offset": data.offset}
    yield from parts_of(model, data.X, specification.objectives(data.X, y, **more))


for _name, _power in (("PoissonRegressor", 1.0), ("GammaRegressor", 2.0), ("TweedieRegressor", None)):
    translates(_name)(
        lambda model, data, power=_power: _parts(model, data, generalised_linear(model, data.X.shape[0], power))  # type: ignore[misc]
    )

_GLUM = {"NormalDistribution": 0.0, "PoissonDistribution": 1.0, "GammaDistribution": 2.0}
_LINKS = {"LogLink": "log", "IdentityLink": "identity", "Log": "log", "Identity": "identity"}


@translates("GeneralizedLinearRegressorBase")
def _glum(model: Any, data: Examples) -> Iterator[Part]:
    """glum's objective is scikit-learn's with an l1_ratio; other settings that change the objective are refused."""
    for name, plain in (("P1", "identity"), ("P2", "identity"), ("scale_predictors", False), ("A_ineq", None)):
        if isinstance(given := getattr(model, name), np.ndarray) or given != plain:
            refuse(
                model,
                f"{name} other than {plain!r}",
                "its penalty or constraints are not those of a dualnewton.Problem.",
            )
    family, link = model._family_instance, _LINKS.get(type(model._link_instance).__name__, "another")
    power = _GLUM.get(type(family).__name__, getattr(family, "power", None))
    if power is None:
        refuse(
            model, f"family={model.family!r}", "only the families normal, poisson, gamma and tweedie are known here."
        )
    loss, parameters = deviance(float(power), link)
    lower, upper = model.lower_bounds, model.upper_bounds
    ratio = float(np.ravel(chosen_value(model, "l1_ratio"))[0])
    alpha = chosen_value(model, "alpha")
    if lower is None and upper is None:
        words = mixture(ratio)
    elif ratio == 0.0:
        lower, upper = -np.inf if lower is None else lower, np.inf if upper is None else upper
        words = {"penalty": "box", "penalty_parameters": {"lower": _listed(lower), "upper": _listed(upper)}}
    else:
        refuse(model, "bounds and l1_ratio > 0", "certify a model with one of them.")
    more = {"fit_intercept": model.fit_intercept, "parameters": parameters, "weights": RELATIVE}
    return _parts(model, data, Specification(loss, 0.0 if alpha is None else float(alpha), **more, **words))


_STATSMODELS = {"Gaussian": 0.0, "Poisson": 1.0, "Gamma": 2.0}


@translates("GLMResultsWrapper", "GLMResults")
def _statsmodels(results: Any, data: Examples) -> Iterator[Part]:
    """The maximum of the likelihood without a penalty; X contains the constant column, if any, as ``exog`` does.

    Weights and offsets default to those of the model.
    """
    model = results.model
    link = _LINKS.get(type(model.family.link).__name__, "another")
    power = _STATSMODELS.get(type(model.family).__name__, getattr(model.family, "var_power", None))
    if power is None:
        refuse(
            results,
            f"family {type(model.family).__name__}",
            "only Gaussian, Poisson, Gamma and Tweedie are known here.",
        )
    loss, parameters = deviance(float(power), link)
    words = Specification(loss, 0.0, fit_intercept=False, parameters=parameters, weights=RELATIVE)
    c, o = data.sample_weight, data.offset
    c = np.asarray(model.iweights, dtype=np.float64) if c is None else c
    o = np.broadcast_to(np.asarray(model._offset_exposure, dtype=np.float64), len(c)) if o is None else o
    (objective,) = words.objectives(data.X, np.asarray(data.y, dtype=np.float64), sample_weight=c, offset=o)
    yield Part(objective, np.asarray(results.params, dtype=np.float64))


@translates("RegularizedResultsWrapper", "RegularizedResults")
def _statsmodels_regularised(results: Any, data: Examples) -> Iterator[Part]:  # noqa: ARG001
    refuse(results, "a penalty", "statsmodels does not keep its strength: write the objective as a dualnewton.Problem.")
