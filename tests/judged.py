"""What is true of every result, whoever asks."""

import numpy as np
import pytest


def assert_certificate_is_true(problem, result):
    """P and D are those of the returned model and dual point, judged again from outside."""
    primal, dual = problem.primal(result.w, result.intercept), problem.dual(result.alpha)
    assert np.isfinite([result.certificate.primal, result.certificate.dual]).all()
    assert result.certificate.primal == pytest.approx(primal, rel=1e-13)
    assert result.certificate.dual == pytest.approx(dual, rel=1e-13, abs=1e-13 * abs(primal))
    assert dual <= primal + 1e-12 * abs(primal)
