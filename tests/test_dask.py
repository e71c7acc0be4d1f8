"""Estimators over Dask collections: the models of the estimators in memory, with their certificates, and lazy predictions."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dualnewton as dn
import dualnewton.dask as on_dask
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask import tasks
from dualnewton.matrix.dask.layout import Layout
from dualnewton.matrix.dask.local import LocalRows
from dualnewton.matrix.dask.programs import compiled

# A warning of Dask about a slow disk, which says nothing about the models.
pytestmark = pytest.mark.filterwarnings("ignore:Creating scratch directories")

N, D = 160, 5
RNG = np.random.default_rng(4)
X = RNG.standard_normal((N, D))
SCORES = X @ np.array([1.0, -1.0, 0.5, 0.0, 0.0]) + 0.4 + RNG.standard_normal(N)
LABELS = np.where(SCORES > 0.0, "yes", "no")
KINDS = np.digitize(SCORES, [-0.5, 1.5])
WEIGHTS = RNG.uniform(0.5, 2.0, N)

MEANS = np.exp(0.3 * SCORES)
OUTPUTS = np.column_stack([SCORES, X[:, 3] - SCORES])

FITS = {
    "LogisticRegression": ({"C": 0.5, "class_weight": "balanced"}, LABELS),
    "LinearSVC": ({"C": 0.1}, LABELS),
    "RidgeClassifier": ({"alpha": 2.0}, KINDS),
    "ERMClassifier": ({"loss": "smooth_hinge", "lam": 0.1}, LABELS),
    "Ridge": ({"alpha": 3.0}, SCORES),
    "ElasticNet": ({"alpha": 0.1}, SCORES),
    "Lasso": ({"alpha": 0.1}, SCORES),
    "LinearSVR": ({"C": 0.1, "loss": "squared_epsilon_insensitive"}, SCORES),
    "ERMRegressor": ({"loss": "huber", "lam": 0.1}, SCORES),
    "LinearRegression": ({}, OUTPUTS),
    "HuberRegressor": ({"tol": 1e-4}, SCORES),
    "MultiTaskElasticNet": ({"alpha": 0.1}, OUTPUTS),
    "MultiTaskLasso": ({"alpha": 0.1}, OUTPUTS),
    "PoissonRegressor": ({"alpha": 0.1}, np.floor(MEANS)),
    "GammaRegressor": ({"alpha": 0.1}, MEANS),
    "TweedieRegressor": ({"alpha": 0.1, "power": 1.5}, np.floor(MEANS)),
    "QuantileRegressor": ({"alpha": 1.0, "penalty": "l2", "tol": 1e-2}, SCORES),
}


def chunked(values, size=70):
    import dask.array as da

    return da.from_array(values, chunks=(size, *values.shape[1:]))


def by_blocks(predict, size=70):
    """Return the predictions for blocks of X: BLAS may compute a row otherwise in a matrix of other size."""
    return np.concatenate([predict(X[low : low + size]) for low in range(0, N, size)])


@pytest.fixture(scope="module")
def workers():
    """Workers in threads of this process: tests/matrix/dask and tests/cli/test_on_dask.py have processes."""
    distributed = pytest.importorskip("distributed")
    local = distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0")
    with local, distributed.Client(local) as client:
        yield client


@pytest.fixture(autouse=True)
def sums_can_be_sent(monkeypatch):
    """Serialise each step that the client does itself, since rows are few, as a step of the workers is serialised."""
    from distributed.protocol import pickle as protocol

    outcome = LocalRows.outcome

    def checked(self, step, join, arrays):
        program, _ = compiled(arrays)
        sent = protocol.loads(protocol.dumps(tasks.Step(program, step, join, len(self.blocks))))
        return outcome(self, sent.function, sent.join, arrays)

    monkeypatch.setattr(LocalRows, "outcome", checked)


@pytest.fixture(scope="module")
def rows(workers):
    return chunked(X).persist()


SEARCHES = {
    "LogisticRegressionCV": ({"Cs": [0.01, 1.0], "cv": 2, "class_weight": "balanced"}, LABELS),
    "RidgeCV": ({"alphas": [1.0, 100.0], "cv": 2}, SCORES),
    "RidgeClassifierCV": ({"alphas": [1.0, 100.0], "cv": 2, "class_weight": "balanced"}, KINDS),
    "ElasticNetCV": ({"alphas": [0.02, 0.5], "cv": 2}, SCORES),
    "LassoCV": ({"alphas": [0.02, 0.5], "cv": 2}, SCORES),
    "MultiTaskElasticNetCV": ({"alphas": [0.0, 0.02, 0.5], "cv": 2}, OUTPUTS),
    "MultiTaskLassoCV": ({"alphas": [0.02, 0.5], "cv": 2}, OUTPUTS),
    "PoissonRegressorCV": ({"alphas": [0.1], "cv": 2}, np.floor(MEANS)),
}
LIKE_POISSON = {"GammaRegressorCV", "TweedieRegressorCV"}
"""Searches that differ from that of Poisson regression by the loss alone, with which the models are tried above."""


def test_every_estimator_is_tried():
    assert {*FITS, *SEARCHES, *LIKE_POISSON} == set(on_dask.AVAILABLE)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of parameters that scikit-learn renames
def test_cross_validation_chooses_as_in_memory(rows, name):
    parameters, y = SEARCHES[name]
    ours = getattr(on_dask, name)(**parameters, tol=1e-8).fit(rows, chunked(y, 90), chunked(WEIGHTS))
    theirs = getattr(dn, name)(**parameters, tol=1e-8).fit(X, y, WEIGHTS)
    chosen = "C_" if name.startswith("Log") else "alpha_"
    np.testing.assert_array_equal(getattr(ours, chosen), getattr(theirs, chosen))
    assert all(proof.relative_gap <= ours.tol for proof in np.ravel(ours.certificates_))
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_array_equal(ours.predict(rows).compute(), by_blocks(ours._light().predict))


def test_values_and_folds_of_small_data_share_passes(rows, monkeypatch):
    """They take 28 exchanges of messages; 164 if each value starts from the one before."""
    exchanges, submit = [], Layout._futures
    monkeypatch.setattr(Layout, "_futures", lambda *given: exchanges.append(given[1]) or submit(*given))
    on_dask.LogisticRegressionCV(Cs=8, cv=3, scoring="neg_log_loss").fit(rows, chunked(LABELS))
    assert len(exchanges) <= 60


@pytest.mark.parametrize("name", FITS)
def test_the_model_is_that_of_memory(rows, name):
    parameters, y = FITS[name]
    tight = {"tol": 1e-8, **parameters}
    ours = getattr(on_dask, name)(**tight).fit(rows, chunked(y, 90), chunked(WEIGHTS))
    theirs = getattr(dn, name)(**tight).fit(X, y, WEIGHTS)
    certificates = ours.certificate_ if isinstance(ours.certificate_, list) else [ours.certificate_]
    assert all(each.relative_gap <= ours.tol for each in certificates)
    near = max(1e-3, 10.0 * ours.tol)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=near)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=near)
    found = ours.predict(rows)
    assert hasattr(found, "__dask_graph__")
    np.testing.assert_array_equal(found.compute(), by_blocks(ours._light().predict))
    assert ours.score(rows, chunked(y), chunked(WEIGHTS)) == pytest.approx(ours.score(X, y, WEIGHTS), rel=1e-11)
    assert clone(ours).get_params() == ours.get_params()


def test_softmax_over_a_data_frame_with_unknown_sizes(workers):
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame(X, columns=list("abcde")).assign(kind=KINDS)
    table = dd.from_pandas(frame, npartitions=3)
    ours = on_dask.LogisticRegression(tol=1e-8).fit(table[list("abcde")], table["kind"])
    theirs = dn.LogisticRegression(tol=1e-8).fit(X, KINDS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    assert list(ours.feature_names_in_) == list("abcde")
    shares = ours.predict_proba(table[list("abcde")])
    np.testing.assert_allclose(shares.compute(), theirs.predict_proba(X), atol=1e-4)
    with pytest.raises(DualnewtonError, match="X must have the columns of fit"):
        ours.predict(table[list("abcd")])


def test_delayed_sparse_blocks(workers):
    import dask

    blocks = [dask.delayed(sp.csr_array)(X[low : low + 60]) for low in (0, 60, 120)]
    labels = [dask.delayed(LABELS[low : low + 60]) for low in (0, 60, 120)]
    model = on_dask.LogisticRegression().fit(blocks, labels)
    predictions = dask.compute(*model.predict(blocks))
    np.testing.assert_array_equal(np.concatenate(predictions), dn.LogisticRegression().fit(X, LABELS).predict(X))
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert model.score(blocks, labels) == model.score(X, LABELS)


def test_offsets_of_a_generalised_linear_model(rows):
    counts, offset = np.floor(MEANS), np.linspace(-0.5, 0.5, N)
    ours = on_dask.PoissonRegressor(tol=1e-10).fit(rows, chunked(counts), offset=chunked(offset, 50))
    theirs = dn.PoissonRegressor(tol=1e-10).fit(X, counts, offset=offset)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    found = ours.predict(rows, offset=chunked(offset))
    np.testing.assert_allclose(found.compute(), theirs.predict(X, offset=offset), rtol=1e-4)
    ours_score = ours.score(rows, chunked(counts), offset=chunked(offset))
    assert ours_score == pytest.approx(theirs.score(X, counts, offset=offset), rel=1e-6)


def test_what_cannot_be_fitted_says_so_by_name(rows):
    with pytest.raises(AttributeError, match=r"dualnewton\.dask has no enet_path: .* Available are .*Ridge"):
        on_dask.enet_path  # noqa: B018
    with pytest.raises(DualnewtonError, match=r"RidgeCV\(cv=None\) needs rows in the memory of this process"):
        on_dask.RidgeCV().fit(rows, chunked(SCORES))
    with pytest.raises(DualnewtonError, match=r"X must be a dask array.* use dualnewton\.Ridge for data in memory"):
        on_dask.Ridge().fit(X, SCORES)
    with pytest.raises(DualnewtonError, match="only one class: 'yes'"):
        on_dask.LogisticRegression().fit(rows, chunked(np.full(N, "yes")))
    with pytest.raises(DualnewtonError, match="y must be given"):
        on_dask.Ridge().fit(rows)
    with pytest.raises(DualnewtonError, match="visits rows in random order, but the rows are on the workers"):
        on_dask.LogisticRegression(solver="sdna").fit(rows, chunked(LABELS))
    with pytest.raises(DualnewtonError, match="class_weight must be None for 3 classes"):
        on_dask.LinearSVC(class_weight="balanced").fit(rows, chunked(KINDS))


def test_verbose_shows_the_progress(rows, capsys):
    told = []
    on_dask.Ridge(verbose=1, callback=told.append).fit(rows, chunked(SCORES))
    assert capsys.readouterr().err.startswith("Ridge: epoch 0, relative gap")
    assert len(told) >= 2
