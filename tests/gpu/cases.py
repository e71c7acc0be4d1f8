"""Problems of the checks on a GPU, and comparisons with those in memory."""

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import RowVectors
from dualnewton.row_arrays import on_host

RTOL = 1e-10


def has_gpu():
    """Whether CuPy is there and finds a GPU."""
    try:
        import cupy

        return cupy.cuda.runtime.getDeviceCount() > 0
    except Exception:
        return False


def cuda(X):
    from dualnewton.matrix.cuda import as_cuda

    return as_cuda(X)


def placed(data, rows):
    return RowVectors(*(None if each is None else data.placed(each) for each in rows))


def close(found, expected, rtol=RTOL):
    found, expected = np.asarray(on_host(found)), np.asarray(expected)
    sizes = np.abs(expected)
    scale = float(sizes.max()) or 1.0
    # NumPy's own function takes seconds for matrices of some thousand rows, and is called where this finds a difference.
    with np.errstate(invalid="ignore"):
        same = found.shape == expected.shape and (np.abs(found - expected) <= rtol * (sizes + scale)).all()
    if not same:
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * scale)


def matrices():
    """Matrices of each storage and type, narrow and wide."""
    rng = np.random.default_rng(0)
    for n, d in ((1000, 3), (5003, 100), (700, 300), (300, 2100), (257, 4096)):
        X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
        for kind in (np.float32, np.float64):
            yield f"dense {n}x{d} {kind.__name__}", X.astype(kind)
            yield f"csr {n}x{d} {kind.__name__}", sp.csr_array(X.astype(kind))


LOSSES = {
    "logistic": losses.Logistic(),
    "squared": losses.Squared(),
    "squared hinge": losses.SquaredHinge(),
    "huber": losses.Huber(0.7),
    "smooth hinge": losses.SmoothHinge(0.3),
    "eps": losses.SquaredEpsilonInsensitive(0.2),
    "hinge": losses.Hinge(),
    "quantile": losses.Quantile(0.3),
    "softmax": losses.Softmax(3),
}


def problem_on(X, loss, seed=1, **more):
    """Return a problem with random labels, weights and offsets."""
    rng, n = np.random.default_rng(seed), X.shape[0]
    if loss.columns > 1:
        y, offset = rng.integers(0, loss.columns, n), 0.1 * rng.standard_normal((n, loss.columns))
    else:
        y = np.sign(rng.standard_normal(n)) if isinstance(loss, losses.base.Margin) else rng.standard_normal(n)
        offset = 0.1 * rng.standard_normal(n)
    return dn.Problem(X, y, loss, sample_weight=rng.uniform(0.5, 2.0, n), offset=offset, fit_intercept=True, **more)
