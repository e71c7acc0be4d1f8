"""Assertions that hold for every result."""

import numpy as np
import pytest

from dualnewton.objective.rounding import rounding_bound


def assert_certificate_is_true(problem, result):
    """P and D are those of the returned model and dual point, evaluated again by the problem."""
    primal, dual = problem.primal(result.w, result.intercept), problem.dual(result.alpha)
    if dual == -np.inf and result.certificate.rounding is not None:
        # The sums of this evaluation exceed a threshold by their rounding errors, which the certificate's bound includes.
        shorter = problem.dual((1.0 - 1e-10) * result.alpha)
        assert shorter * (1.0 - 1e-6) <= result.certificate.dual <= shorter + result.certificate.rounding
        dual = result.certificate.dual
    assert np.isfinite([result.certificate.primal, result.certificate.dual]).all()
    # A certificate near rounding was computed in extended precision, and differs from these by at most the rounding errors here.
    errors = rounding_bound(problem, result.w, result.intercept, result.alpha, primal, dual) or 0.0
    allowed = 1e-13 * abs(primal) + min(errors, 1e-6 * abs(primal))
    assert result.certificate.primal == pytest.approx(primal, rel=1e-13, abs=allowed)
    assert result.certificate.dual == pytest.approx(dual, rel=1e-13, abs=allowed)
    assert dual <= primal + 1e-12 * abs(primal)
