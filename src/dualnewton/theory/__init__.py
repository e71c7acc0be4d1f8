"""The paper's theory as functions: expectations over samplings, ESO vectors, rates and bounds (Sections 2 to 4)."""

from dualnewton.theory.eso import eso, eso_cheap, eso_conservative, eso_from_data, is_eso
from dualnewton.theory.expectations import Expectation, expected_inverse, expected_submatrix
from dualnewton.theory.rates import Forecast, Rates, dual_rows, epochs_to, importance, rates, theta
from dualnewton.theory.sigmas import Estimate, sigma1, sigma1_prox, sigma2, sigma2_from_sigma3, sigma3, sigma3_prox

__all__ = [
    "Estimate",
    "Expectation",
    "Forecast",
    "Rates",
    "dual_rows",
    "epochs_to",
    "eso",
    "eso_cheap",
    "eso_conservative",
    "eso_from_data",
    "expected_inverse",
    "expected_submatrix",
    "importance",
    "is_eso",
    "rates",
    "sigma1",
    "sigma1_prox",
    "sigma2",
    "sigma2_from_sigma3",
    "sigma3",
    "sigma3_prox",
    "theta",
]
