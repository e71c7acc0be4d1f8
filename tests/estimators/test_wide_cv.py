"""Cross-validation over fewer examples than features: the coordinates of the rows change no model, score or choice."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from covering import all_pairs
from dualnewton.estimators.model_selection import _few_coordinates
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.direct import decomposes, shares_coordinates
from tuned import tuned

N, D = 50, 160
RNG = np.random.default_rng(5)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.5)
SCORE = X[:, :8] @ RNG.standard_normal(8) + 0.5 * RNG.standard_normal(N)
CLASSES = {2: (SCORE > 0.0).astype(int), 3: np.digitize(SCORE, [-1.0, 1.0])}
STORAGES = {"dense": np.asarray, "float32": np.float32, "csr": sp.csr_array}
WITHOUT = tuned(direct_multiplications=0.0)


@pytest.fixture
def factors(monkeypatch):
    """The factors that searches made; a direct solver, which passes weights, may make others where a fit is near rounding."""
    made, of = [], _few_coordinates.Factor.of

    def counted(*args):
        made.extend([args] if len(args) == 1 else [])
        return of(*args)

    monkeypatch.setattr(_few_coordinates.Factor, "of", counted)
    return made


def fitted(search, rows, y, monkeypatch, tuning=None, **given):
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        if tuning is not None:
            patch.setattr(type(search), "_tuning", tuning)
        return search.fit(rows, y, **given)


FORMS = {
    "plain": {},
    "no intercept": {"fit_intercept": False},
    "one against the rest": {"multi_class": "ovr"},
    "class weights": {"class_weight": "balanced"},
    "mixtures": {"l1_ratios": [0.0, 0.5]},
}


@pytest.mark.parametrize(("form", "storage", "classes"), all_pairs(FORMS, STORAGES, CLASSES))
def test_models_scores_and_choice_are_those_of_all_features(form, storage, classes, factors, monkeypatch):
    """A covering design of the three factors: any two levels of any two of them meet."""
    words = {"Cs": [0.01, 0.3, 10.0], "cv": 3, "tol": 1e-11, "use_legacy_attributes": False} | FORMS[form]
    rows, y = STORAGES[storage](X), CLASSES[classes]
    weights = RNG.uniform(0.5, 2.0, N)
    few = fitted(dn.LogisticRegressionCV(**words), rows, y, monkeypatch, sample_weight=weights)
    assert len(factors) == 1
    other = fitted(dn.LogisticRegressionCV(**words), rows, y, monkeypatch, WITHOUT, sample_weight=weights)
    assert len(factors) == 1
    assert max(proof.relative_gap for proof in few.certificates_.ravel()) <= 1e-11
    assert few.C_ == other.C_
    np.testing.assert_allclose(few.scores_, other.scores_, rtol=1e-6)
    np.testing.assert_allclose(few.coefs_paths_, other.coefs_paths_, atol=1e-4 * np.abs(other.coefs_paths_).max())
    assert few.coef_.dtype == other.coef_.dtype
    # The certificate is that of the data themselves.
    parts = dn.certify(few, rows, y, sample_weight=weights)
    assert parts.relative_gap <= (1e-6 if rows.dtype == np.float32 else 1e-10)


def test_a_proved_choice_is_refined_in_the_same_coordinates(factors, monkeypatch):
    words = {"Cs": [0.01, 0.1, 1.0], "cv": 3, "certify_choice": True, "use_legacy_attributes": False}
    few = fitted(dn.LogisticRegressionCV(**words), X, CLASSES[2], monkeypatch)
    other = fitted(dn.LogisticRegressionCV(**words), X, CLASSES[2], monkeypatch, WITHOUT)
    assert len(factors) == 1
    assert few.C_ == other.C_
    assert few.choice_certificate_.proved == other.choice_certificate_.proved


def test_repeated_rows_have_fewer_coordinates(factors, monkeypatch):
    rows, y = np.vstack([X[:20], X[:20]]), np.tile(CLASSES[2][:20], 2)
    search = dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=2, tol=1e-10, use_legacy_attributes=False)
    found = fitted(search, rows, y, monkeypatch)
    assert len(factors) == 1
    assert max(proof.relative_gap for proof in found.certificates_.ravel()) <= 1e-10


def test_more_products_of_rows_pay_for_a_grid_than_for_one_model():
    """All values and folds share the factor."""
    n, d = 700, 5000
    rows = Profile(n, d, n * d, 0.5 * n * d * d, False, 8)
    assert not decomposes(n, d)
    assert shares_coordinates(rows)
    assert not shares_coordinates(rows, tuned(grid_multiplications=float(n * n * d - 1)))
    assert not shares_coordinates(Profile(d, n, n * d, 0.5 * n * d * d, False, 8))
