"""Functions of vectors over features, on a GPU."""

import numpy as np
from tests.gpu.cases import cuda

from dualnewton.row_arrays import compiled_function, on_host
from dualnewton.solvers.primal.lbfgs import End


def check_vectors():
    """Functions of vectors over features agree with NumPy's, and repeat to the bit."""
    rng = np.random.default_rng(9)
    for count, n in ((2, 70_001), (6, 200_000), (40, 300)):
        rows, (u, v, z, ridge) = rng.standard_normal((count, n)), rng.standard_normal((4, n))
        there = [cuda(np.ones((1, 1))).placed(each) for each in (rows, u, v, z, ridge)]
        factors, g, (s, y, m) = rng.standard_normal(count), u + ridge * v, (u - v, v - z, z - ridge)

        def results(given=there, factors=factors):
            rows, u, v, z, ridge = given
            ends = End(u, v, z), End(v, z, ridge)
            for some in (None, rows):
                yield from compiled_function("pair_of", None, z)(some, *ends)
            yield from compiled_function("combination_of", None, z)(-0.5, z, factors, rows, v)
            yield from compiled_function("penalised_of", None, z)(u, v, ridge, z)

        expected = []
        for both in (np.stack([s, m]), np.stack([*rows, s, m])):
            expected += [both, y, np.stack([both @ y, both @ v]), np.array([s @ s, y @ y])]
        step, sums = -0.5 * z + factors @ rows, ((ridge * v) @ v, g @ g, (z * g) @ g)
        expected += [step, step @ v, g, sums]
        for found, again, known in zip(results(), results(), expected, strict=True):
            assert np.array_equal(on_host(found), on_host(again))
            np.testing.assert_allclose(np.asarray(on_host(found)), known, rtol=1e-9, atol=1e-9 * n)
