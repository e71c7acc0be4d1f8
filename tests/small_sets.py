"""Small data sets for the tests of readers and writers."""

import numpy as np
import scipy.sparse as sp

from dualnewton.io import Dataset


def sparse_set(n=40, d=17, seed=0, weights=False):
    """Sparse rows, some of them empty, with numbers of all lengths."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, (n, d)) * (rng.random((n, d)) < 0.3)
    X[3] = 0.0
    X[0, -1] = 1.5  # so that the last feature occurs
    y = rng.choice([-1.0, 1.0, 2.5], n)
    return Dataset(sp.csr_array(X), y, sample_weight=rng.uniform(0.5, 2.0, n) if weights else None)


def dense_set(n=30, d=5, seed=0, weights=False, text=False):
    """Dense rows with names, labels as numbers or as text."""
    rng = np.random.default_rng(seed)
    y = rng.choice(["red", "green", "deep blue"], n) if text else rng.standard_normal(n)
    names = tuple(f"feature {j}" for j in range(d))
    return Dataset(
        rng.standard_normal((n, d)), y, sample_weight=rng.uniform(0.5, 2.0, n) if weights else None, feature_names=names
    )


def svmlight_text(data, first=1):
    """The text of a sparse set, counted from ``first``."""
    lines = []
    for i in range(data.X.shape[0]):
        a, b = data.X.indptr[i : i + 2]
        pairs = zip(data.X.indices[a:b].tolist(), data.X.data[a:b].tolist(), strict=True)
        lines.append(f"{data.y[i]} " + " ".join(f"{j + first}:{value!r}" for j, value in pairs))
    return "\n".join(lines) + "\n"


def csv_text(data, delimiter=",", names=True):
    """The text of a dense set, labels last."""
    head = [delimiter.join([*data.feature_names, "target"])] if names else []
    rows = [
        delimiter.join([*map(repr, row), str(label)])
        for row, label in zip(data.X.tolist(), data.y.tolist(), strict=True)
    ]
    return "\n".join([*head, *rows]) + "\n"


def full(X):
    """A dense matrix of whatever it is."""
    return X.toarray() if sp.issparse(X) else np.asarray(X)


def same(left, right, names=True):
    """Whether two sets are equal to the last bit."""
    np.testing.assert_array_equal(full(left.X), full(right.X))
    np.testing.assert_array_equal(left.y, right.y)
    assert (left.sample_weight is None) == (right.sample_weight is None)
    if left.sample_weight is not None:
        np.testing.assert_array_equal(left.sample_weight, right.sample_weight)
    if names:
        assert left.feature_names == right.feature_names
