"""Every estimator fits, predicts and scores data sets on disk as it does those in memory, and never gathers their rows."""

import gc
import threading

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import disk_cases as cases
import dualnewton as dn
from dualnewton import data, losses
from dualnewton.matrix import ChunkedData
from dualnewton.matrix.read_ahead import NAME

N, D = 8000, 6
RNG = np.random.default_rng(11)
X = (RNG.standard_normal((N, D)) + 0.5) * np.geomspace(0.3, 2.0, D)
SCORES = X @ RNG.standard_normal((D, 3)) + 0.2
NOISE = RNG.standard_normal((N, 3))
TARGET, TARGETS = SCORES[:, 0] + NOISE[:, 0], (SCORES + NOISE)[:, :2]
LABELS = np.where(TARGET > 0.3, "yes", "no")
CLASSES = np.array(["a", "b", "c"])[(SCORES + NOISE).argmax(axis=1)]
WEIGHTS = RNG.uniform(0.5, 2.0, N)

MODELS = {
    "logistic": (dn.LogisticRegression(), LABELS),
    "logistic l1": (dn.LogisticRegression(l1_ratio=1.0, C=0.05), LABELS),
    "softmax": (dn.LogisticRegression(), CLASSES),
    "one against the rest": (dn.LogisticRegression(multi_class="ovr"), CLASSES),
    "without a penalty": (dn.LogisticRegression(C=np.inf), LABELS),
    "svc": (dn.LinearSVC(), LABELS),
    "hinge": (dn.LinearSVC(loss="hinge", tol=1e-6), LABELS),
    "svr": (dn.LinearSVR(tol=1e-6), TARGET),
    "ridge": (dn.Ridge(), TARGETS),
    "nonnegative ridge": (dn.Ridge(positive=True), TARGET),
    "ridge classifier": (dn.RidgeClassifier(), CLASSES),
    "least squares": (dn.LinearRegression(), TARGETS),
    "elastic net": (dn.ElasticNet(alpha=0.1), TARGET),
    "lasso": (dn.Lasso(alpha=0.05), TARGET),
    "huber": (dn.HuberRegressor(), TARGET),
    "quantile": (dn.QuantileRegressor(alpha=0.01, tol=1e-7), TARGET),
    "multi-task": (dn.MultiTaskElasticNet(alpha=0.1), TARGETS),
    "erm": (dn.ERMClassifier(losses.SquaredHinge()), LABELS),
}
SHARE = 0.25
"""Largest part of the rows that a fit may gather: samples on which it starts, on data as small as these."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write the rows into two files of float64."""
    folder = tmp_path_factory.mktemp("rows")
    np.save(folder / "a.npy", X[:3000])
    np.save(folder / "b.npy", X[3000:])
    return folder


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch):
    cases.small_pieces(monkeypatch, 1 << 15)


@pytest.fixture
def gathered(monkeypatch):
    """The number of entries of each gathering of rows or columns."""
    found = [0]

    def watched(name):
        original = getattr(ChunkedData, name)

        def call(self, *arguments, **options):
            result = original(self, *arguments, **options)
            found.append(result.size)
            return result

        monkeypatch.setattr(ChunkedData, name, call)

    for name in ("rows", "columns", "row_gram"):
        watched(name)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_estimators_fit_predict_and_score_data_sets(name, folder, gathered):
    model, y = MODELS[name]
    weights = None if name in ("without a penalty", "quantile") else WEIGHTS
    dataset = data.open(folder, target=y if y.ndim == 1 else None, weights=weights)
    given = (dataset,) if y.ndim == 1 else (dataset, y)
    on_disk, in_memory = clone(model).fit(*given), clone(model).fit(X, y, sample_weight=weights)
    assert max(gathered) <= SHARE * X.size
    proofs = np.ravel(on_disk.certificate_)
    assert all(proof.relative_gap <= model.tol for proof in proofs)
    scale = np.abs(in_memory.coef_).max()
    np.testing.assert_allclose(on_disk.coef_, in_memory.coef_, rtol=0.0, atol=30.0 * model.tol**0.5 * scale)
    assert np.mean(on_disk.predict(dataset) != on_disk.predict(X)) <= (0.0 if is_classifier(model) else 1.0)
    np.testing.assert_allclose(on_disk.score(*given), on_disk.score(X, y, sample_weight=weights), rtol=1e-12)
    assert dn.certify(on_disk, *given).relative_gap <= 1.5 * model.tol
    assert not [thread for thread in threading.enumerate() if thread.name == NAME]


def test_what_needs_all_rows_at_once_says_so(folder):
    with pytest.raises(ValueError, match=r"positive=True decomposes all rows at once, but .*pieces.*use Ridge"):
        dn.LinearRegression(positive=True).fit(data.open(folder, target=TARGET))


SEARCHES = {
    "logistic": (dn.LogisticRegressionCV(Cs=[1e-3, 1e-1], cv=3), LABELS),
    "softmax by the log loss": (dn.LogisticRegressionCV(Cs=[1e-3, 1e-1], cv=2, scoring="neg_log_loss"), CLASSES),
    "ridge": (dn.RidgeCV(alphas=[1.0, 1e3, 1e5], cv=3), TARGET),
    "ridge of several outputs": (dn.RidgeCV(alphas=[1.0, 1e3], cv=2, scoring="neg_mean_absolute_error"), TARGETS),
    "ridge classifier": (dn.RidgeClassifierCV(alphas=[1.0, 1e4], cv=3), CLASSES),
    "elastic net": (dn.ElasticNetCV(alphas=[0.01, 0.1, 1.0], cv=3), TARGET),
    "lasso in passes": (dn.LassoCV(alphas=[0.05, 0.5], cv=3, solver="newton"), TARGET),
    "multi-task elastic net": (dn.MultiTaskElasticNetCV(alphas=[0.0, 0.05, 0.5], cv=2), TARGETS),
    "multi-task lasso in passes": (dn.MultiTaskLassoCV(alphas=[0.05, 0.5], cv=2, solver="newton"), TARGETS),
    "gamma": (dn.GammaRegressorCV(alphas=[0.01, 1.0], cv=2, tol=1e-7), np.exp(0.3 * TARGET)),
}


def chosen(model):
    """The values that cross-validation has chosen, and the mean scores of all of them."""
    if hasattr(model, "C_"):
        return model.C_[0], np.mean(next(iter(model.scores_.values())), axis=0)
    scores = next(getattr(model, name) for name in ("scores_", "mse_path_", "deviance_path_") if hasattr(model, name))
    return model.alpha_, np.mean(scores, axis=-1).ravel()


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.filterwarnings("ignore::FutureWarning")  # of parameters that scikit-learn renames
def test_cross_validation_of_data_sets_chooses_as_in_memory_and_selects_no_rows(name, folder, gathered):
    search, y = SEARCHES[name]
    dataset = data.open(folder, target=y if y.ndim == 1 else None)
    on_disk = clone(search).fit(*((dataset,) if y.ndim == 1 else (dataset, y)))
    assert max(gathered) <= SHARE * X.size
    in_memory = clone(search).fit(X, y)
    (ours, scores), (theirs, expected) = chosen(on_disk), chosen(in_memory)
    assert ours == theirs
    np.testing.assert_allclose(scores, expected, rtol=1e-3)
    assert all(proof.relative_gap <= search.tol for proof in np.ravel(on_disk.certificates_))
    scale = np.abs(in_memory.coef_).max()
    np.testing.assert_allclose(on_disk.coef_, in_memory.coef_, rtol=0.0, atol=30.0 * search.tol**0.5 * scale)


def test_cross_validation_that_needs_the_held_out_rows_says_so(folder):
    with pytest.raises(ValueError, match=r"scoring must be a name, such as 'accuracy', got .*pieces"):
        dn.RidgeCV(cv=2, scoring=lambda *_: 0.0).fit(data.open(folder, target=TARGET))


def test_leaving_out_one_row_at_a_time_reads_blocks_of_rows(folder):
    found = dn.RidgeCV(alphas=[0.1, 10.0]).fit(data.open(folder, target=TARGET))
    expected = dn.RidgeCV(alphas=[0.1, 10.0]).fit(X, TARGET)
    assert found.alpha_ == expected.alpha_
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-9)


def test_features_that_depend_on_each_other_are_solved_without_gathering(tmp_path, gathered):
    copied = np.column_stack([X, X[:, 0] + X[:, 1]])
    np.save(tmp_path / "X.npy", copied)
    found = dn.LinearRegression().fit(data.open(tmp_path / "X.npy", target=TARGET))
    assert max(gathered) <= SHARE * X.size
    expected = dn.LinearRegression().fit(copied, TARGET)
    np.testing.assert_allclose(found.predict(copied), expected.predict(copied), rtol=1e-6, atol=1e-6)


def test_labels_features_and_offsets_are_checked(folder, tmp_path):
    dataset = data.open(folder)
    with pytest.raises(ValueError, match="LogisticRegression needs labels or targets: the data set has none"):
        dn.LogisticRegression().fit(dataset)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        dn.Ridge().fit(dataset, TARGET[:7])
    with pytest.raises(ValueError, match="offsets, which estimators do not take"):
        dn.Ridge().fit(data.open(folder, target=TARGET, offset=WEIGHTS))
    np.save(tmp_path / "wide.npy", np.ones((5, D + 1)))
    model = dn.Ridge().fit(dataset, TARGET)
    with pytest.raises(ValueError, match=f"X has {D + 1} features, but Ridge is expecting {D}"):
        model.predict(data.open(tmp_path / "wide.npy"))


def test_data_sets_in_memory_are_fitted_as_their_arrays():
    cancer = data.load("breast_cancer")
    one, other = dn.Ridge().fit(cancer), dn.Ridge().fit(cancer.X, cancer.y)
    assert np.array_equal(one.coef_, other.coef_)
    assert one.feature_names_in_.tolist() == list(cancer.feature_names)
    assert one.score(cancer) == pytest.approx(other.score(cancer.X, cancer.y), rel=1e-12)
    gc.collect()
