"""LogisticRegressionCV finds what scikit-learn's finds, in the same shapes, with every solver of theirs at its tightest."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV as Theirs
from sklearn.metrics import make_scorer
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold

import dualnewton as dn
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.direct import method_of_folds
from dualnewton.planning.plan import Plan
from estimators.cases import data_for, relative
from tables import load

CS = [0.05, 1.0, 20.0]


def both(X, y, weights=None, **settings):
    settings = {"Cs": CS, "cv": 3, "max_iter": 10_000, **settings}
    ours = dn.LogisticRegressionCV(tol=1e-12, **settings).fit(X, y, weights)
    solver = "saga" if settings.get("l1_ratios") else "newton-cholesky"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = Theirs(tol=1e-9 if solver == "saga" else 1e-12, solver=solver, random_state=0, **settings)
        theirs.fit(X, y, weights)
    return ours, theirs


def flat(found):
    return np.concatenate([np.ravel(part) for part in (found.values() if isinstance(found, dict) else [found])])


def shapes(found):
    return {key: part.shape for key, part in found.items()} if isinstance(found, dict) else found.shape


def assert_same(ours, theirs, tol=1e-6):
    assert relative(flat(ours.coefs_paths_), flat(theirs.coefs_paths_)) < tol
    assert relative(flat(ours.scores_), flat(theirs.scores_)) < tol
    assert relative(ours.coef_, theirs.coef_) < tol
    assert np.abs(ours.intercept_ - theirs.intercept_).max() < tol * max(1.0, np.abs(theirs.intercept_).max())
    assert np.array_equal(ours.C_, theirs.C_)
    assert np.array_equal(ours.Cs_, theirs.Cs_)
    for name in ("coefs_paths_", "scores_", "n_iter_"):
        assert shapes(getattr(ours, name)) == shapes(getattr(theirs, name))
    for name in ("C_", "l1_ratio_", "l1_ratios_", "coef_", "intercept_"):
        assert np.shape(getattr(ours, name)) == np.shape(getattr(theirs, name))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("kind", "fit_intercept"), [("dense", True), ("CSR", False)])
@pytest.mark.parametrize("weighting", ["none", "rows", "classes", "both"])
def test_it_finds_what_scikit_learn_finds(n_classes, kind, fit_intercept, weighting):
    X, y = data_for(n_classes, n=50, d=4)
    weights = np.random.default_rng(0).uniform(0.2, 2.0, 50) if weighting in ("rows", "both") else None
    class_weight = "balanced" if weighting in ("classes", "both") else None
    given = sp.csr_array(X * (np.abs(X) > 0.5)) if kind == "CSR" else X
    settings = {"class_weight": class_weight, "fit_intercept": fit_intercept, "scoring": "neg_log_loss"}
    assert_same(*both(given, y, weights, **settings))


@pytest.mark.parametrize("settings", [
    {},
    {"use_legacy_attributes": False, "l1_ratios": (0,)},
    {"refit": False},
    {"refit": False, "use_legacy_attributes": False, "l1_ratios": (0,)},
    {"scoring": "roc_auc"},
    {"scoring": "accuracy"},
    {"scoring": make_scorer(lambda y, z: -float(np.mean(y != z)))},
    {"cv": ShuffleSplit(3, random_state=0)},
    {"Cs": 4},
    {"Cs": [20.0, 0.05, 1.0]},
    {"class_weight": {0: 0.5, 1: 2.0}},
], ids=str)  # fmt: skip
def test_every_setting_means_what_it_means_there(settings):
    X, y = data_for(2, n=50, d=4)
    assert_same(*both(X, y, **settings))


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shares_of_the_absolute_penalty_are_tried_in_turn(legacy, n_classes):
    X, y = data_for(n_classes, n=50, d=4)
    ours, theirs = both(
        X, y, l1_ratios=[0.2, 1.0], scoring="neg_log_loss", use_legacy_attributes=legacy, Cs=[0.3, 2.0], cv=2
    )
    assert_same(ours, theirs, tol=1e-5)  # theirs goes no further in its 10000 passes
    assert ours.certificates_.shape == (2, 2, 2, 1)


@pytest.mark.parametrize("refit", [True, False])
def test_shares_of_softmax_with_and_without_a_last_fit(refit):
    X, y = data_for(3, n=50, d=4)
    ours, theirs = both(X, y, l1_ratios=[1.0], scoring="neg_log_loss", Cs=[0.3, 2.0], cv=2, refit=refit)
    assert_same(ours, theirs, tol=1e-5)
    assert np.abs(ours.coef_.sum(axis=0)).max() > 1e-3  # nothing was moved to a mean of zero
    if refit:
        assert dn.certify(ours, X, y).relative_gap <= 1e-10


def test_a_name_of_the_penalty_decides_for_softmax_as_well():
    X, y = data_for(3, n=50, d=4)
    settings = {"Cs": [0.3], "cv": 2, "tol": 1e-10}
    by_name = dn.LogisticRegressionCV(penalty="l1", **settings).fit(X, y)
    by_share = dn.LogisticRegressionCV(l1_ratios=[1.0], **settings).fit(X, y)
    assert np.array_equal(by_name.coef_, by_share.coef_)
    assert dn.certify(by_name, X, y).relative_gap <= 1e-10


def test_labels_may_be_words_and_folds_may_lack_a_class():
    X, y = data_for(3, n=40, d=3)
    labels = np.array(["ant", "bee", "cow"])[y]
    folds = [(np.flatnonzero(y != 2), np.flatnonzero(y == 2)), (np.arange(0, 40, 2), np.arange(1, 40, 2))]
    model = dn.LogisticRegressionCV(Cs=[0.5], cv=folds, scoring="neg_log_loss", tol=1e-8).fit(X, labels)
    assert set(model.scores_) == set(model.classes_) == {"ant", "bee", "cow"}
    assert model.scores_["ant"][0, 0] < np.log(1e-8)  # no model that has never seen a cow expects one
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= 1e-4
    assert model.predict(X)[0] in labels


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_a_penalty(n_classes):
    X, y = data_for(n_classes, n=80, d=3)
    ours, theirs = both(X, y, Cs=[1.0, np.inf], scoring="neg_log_loss")
    assert_same(ours, theirs)


def test_one_class_against_the_rest_is_a_search_with_all_of_them():
    X, y = data_for(3, n=50, d=4)
    model = dn.LogisticRegressionCV(Cs=CS, cv=3, multi_class="ovr", tol=1e-12).fit(X, y)
    assert model.certificates_.shape == (1, 3, 3, 3)
    alone = dn.LogisticRegression(C=model.C_[0], multi_class="ovr", tol=1e-12).fit(X, y)
    assert relative(model.coef_, alone.coef_) < 1e-6
    assert relative(model.predict_proba(X), alone.predict_proba(X)) < 1e-6


def test_weights_count_in_the_scores_too():
    X, y = data_for(2, n=50, d=4)
    weights = (np.arange(50) % 2).astype(float)
    ours, theirs = both(X, y, weights)
    assert_same(ours, theirs)
    assert ours.score(X, y, sample_weight=weights) == pytest.approx(theirs.score(X, y, sample_weight=weights))


@pytest.mark.parametrize(("settings", "message"), [
    ({"Cs": [1.0, -1.0]}, "Cs must be a number of values or a list of values > 0"),
    ({"Cs": []}, "Cs must be"),
    ({"l1_ratios": [0.5, 1.5]}, "l1_ratios must be a list of numbers between 0 and 1"),
    ({"penalty": "elasticnet"}, "l1_ratios must be a list of numbers"),
    ({"Cs": 0}, "'Cs' parameter"),
    ({"scoring": "nonsense"}, "'scoring' parameter"),
])  # fmt: skip
def test_what_cannot_be_tried_is_refused(settings, message):
    X, y = data_for(2)
    with pytest.raises(ValueError, match=message):
        dn.LogisticRegressionCV(**settings).fit(X, y)


def test_an_ineffective_share_is_said_to_be_so():
    X, y = data_for(2)
    with pytest.warns(UserWarning, match=r"l1_ratios parameter is only used .* Got \(penalty=l2\) with l1_ratios="):
        dn.LogisticRegressionCV(Cs=[1.0], cv=2, penalty="l2", l1_ratios=[0.5]).fit(X, y)


@pytest.mark.parametrize("Cs", [5, [1.0, 1e4]], ids=str)
def test_folds_that_can_be_separated_are_not_held_up_by_rows_that_cannot(Cs):
    # Without some of the rows the classes are separable: from the model of all rows a fold took more than max_iter.
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = dn.LogisticRegressionCV(Cs=Cs, cv=3, l1_ratios=[1], solver="saga", use_legacy_attributes=False).fit(X, y)
    assert max(each.relative_gap for each in model.certificates_.ravel()) <= model.tol
    assert model.n_iter_.max() < model.max_iter


def test_splits_with_one_class_are_refused():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.repeat(["a", "b"], 30)
    with pytest.raises(
        DualnewtonError, match=r"cv must leave training rows of at least two classes, got split 0 .* class b only"
    ):
        dn.LogisticRegressionCV(Cs=2, cv=KFold(2)).fit(X, y)


def test_the_warning_names_the_values_that_missed():
    X, y = make_classification(300, 8, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"in \d+ of 8 fits \(C = 0.1, C = 100\)"):
        dn.LogisticRegressionCV(Cs=[0.1, 100.0], cv=3, max_iter=1, tol=1e-12).fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"\(alpha = [\d.e-]+.*more\)"):
        dn.LassoCV(alphas=40, cv=3, tol=0.0).fit(X, X[:, 0] + y)


def test_several_classes_converge_at_weak_penalties():
    """Each fold starts on the line through its last two models: from the model of all rows it had stopped at ``max_iter``."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((300, 150))
    y = np.digitize(X[:, 0] + rng.standard_normal(300), [-0.5, 0.5])
    model = dn.LogisticRegressionCV(cv=3, l1_ratios=(0.0,), use_legacy_attributes=False).fit(X, y)
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= model.tol
    assert model.n_iter_.max() <= 40


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array, np.float32], ids=["dense", "CSR", "float32"])
def test_models_from_shared_hessians_are_certified_and_near_those_of_single_fits(storage, classes):
    rng = np.random.default_rng(classes)
    X = rng.standard_normal((3000, 20)) * (rng.uniform(size=(3000, 20)) < 0.5)
    y = (X @ rng.standard_normal((20, classes)) + rng.standard_normal((3000, classes))).argmax(axis=1)
    model = dn.LogisticRegressionCV(cv=3, use_legacy_attributes=False).fit(storage(X), y)
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= 1e-4
    rows, _ = next(iter(StratifiedKFold(3).split(X, y)))
    for k in (0, 4, 9):
        alone = dn.LogisticRegression(C=model.Cs_[k], tol=1e-9).fit(X[rows], y[rows])
        found = model.coefs_paths_[0, 0, k, :, :-1]
        assert np.linalg.norm(found - alone.coef_) <= 0.02 * np.linalg.norm(alone.coef_)


def test_folds_of_text_reach_their_tolerance():
    """The folds tried rounds of single examples again, and were at ``max_iter`` with gaps above ``tol``."""
    X, y = load("news20")
    model = dn.LogisticRegressionCV(Cs=np.logspace(-4, 4, 10)[5:7], use_legacy_attributes=False).fit(X, y <= 10)
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= 1e-4


@pytest.mark.parametrize(
    ("sparse", "method", "expected"),
    [(True, "newton", "ihs"), (True, "ihs", "ihs"), (True, "sdna", None), (False, "newton", None)],
)
def test_method_of_folds(sparse, method, expected):
    rows = Profile(50_000, 20_000, 4_000_000, 1e9, sparse, 8)
    assert method_of_folds(rows, Plan(method, 50_000, "")) == expected
    assert method_of_folds(rows, Plan(method, 50_000, "", family="conjugate")) is None  # the folds share products


def test_a_tolerance_of_zero_ends_with_a_warning():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = X.sum(axis=1) + rng.standard_normal(60) > 0.0
    with pytest.warns(ConvergenceWarning, match="more than tol=0"):
        model = dn.LogisticRegressionCV(tol=0.0).fit(X, y)
    assert model.certificate_.relative_gap < 1e-9
