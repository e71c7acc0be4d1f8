"""The norms of rows from which rounds on single examples take their curvature."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, samplings
from dualnewton.solvers.dual.compiled import CompiledEngine


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_curvature_of_single_examples_has_the_norms_of_the_problem(dtype):
    """Of sparse rows with the same bits, with empty and long rows among them."""
    rng = np.random.default_rng(0)
    dense = rng.standard_normal((50, 300)) * (rng.random((50, 300)) < rng.random((50, 1)))
    dense[[0, 7, 49]] = 0.0
    y = np.where(rng.random(50) < 0.5, 1.0, -1.0)
    for X in (dense.astype(dtype), sp.csr_array(dense.astype(dtype))):
        problem = dn.Problem(X, y, losses.Logistic(), lam=0.1)
        engine = CompiledEngine([problem], samplings.Shuffled(50, 1), [np.zeros(50)], separable_rounds=False)
        np.testing.assert_allclose(engine.curvature[0], problem.norms, rtol=1e-14)
        assert sp.issparse(X) <= np.array_equal(engine.curvature[0], problem.norms)
