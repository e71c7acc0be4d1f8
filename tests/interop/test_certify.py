"""certify(): the gap of a scikit-learn model is zero at its optimum, and everywhere a bound on its suboptimality."""

import inspect
import os
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn import linear_model as lm
from sklearn.base import clone
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC
from sklearn.utils.class_weight import compute_class_weight

from certify_cases import (
    CASES,
    ELASTIC,
    EVERY_MODEL,
    SINCE_1_8,
    TARGETS,
    TIGHT,
    UNWEIGHTED,
    WEIGHTS,
    D,
    N,
    X,
    hubers,
    lassos,
    logistics,
    nets,
    ridge_classifiers,
    ridges,
    signs,
    softmaxes,
    svcs,
    svrs,
)
from dualnewton import LogisticRegression, losses
from dualnewton.interop.certify import certify
from dualnewton.objective.problem import Problem
from tables import load

# What a certificate says ---------------------------------------------------------------------------------------------


def assert_optimality_is_proved(case, model):
    certificate = case.certify(model)
    assert certificate.primal == pytest.approx(case.objective_of(model), rel=1e-12)
    assert certificate.relative_gap <= case.tolerance


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_tight_fit_is_proved_optimal_for_the_objective_that_scikit_learn_documents(case):
    assert_optimality_is_proved(case, case.fit())


@pytest.mark.parametrize("case", EVERY_MODEL, ids=str)
def test_the_gap_of_a_wrong_model_bounds_its_suboptimality(case):
    model = case.fit()
    best = case.objective_of(model)
    rng = np.random.default_rng(5)
    for size in (1e-3, 1e-1, 10.0):
        wrong = clone(model)
        vars(wrong).update(vars(model))
        # Upwards, so that positive coefficients stay positive.
        wrong.coef_ = model.coef_ + size * rng.random(np.shape(model.coef_))
        wrong.intercept_ = model.intercept_ - size
        suboptimality = case.objective_of(wrong) - best
        assert case.certify(wrong).gap >= (1.0 - 1e-6) * suboptimality > 1e-9
        with pytest.raises(AssertionError):
            assert_optimality_is_proved(case, wrong)


@pytest.mark.parametrize("case", EVERY_MODEL, ids=str)
def test_a_wrong_intercept_alone_shows_in_the_gap(case):
    model = case.fit()
    best = case.certify(model).primal
    # By different amounts, since softmax does not notice one for all classes.
    model.intercept_ = model.intercept_ + 0.1 * np.arange(1, 1 + np.size(model.intercept_)).reshape(
        np.shape(model.intercept_)
    )
    certificate = case.certify(model)
    assert certificate.gap >= (1.0 - 1e-6) * (certificate.primal - best) > 1e-5


def changed(case, **settings):
    """The tight fit of a case under settings that it was not fitted with."""
    return case.fit().set_params(**settings)


WRONG_SETTINGS = [
    (ridges(), {"alpha": 1.4}),
    (ridges(), {"positive": True}),
    (ridges(positive=True), {"positive": False}),
    (nets(), {"positive": True}),
    (nets(positive=True), {"positive": False}),
    (ridge_classifiers("three"), {"class_weight": "balanced"}),
    (nets(), {"alpha": 0.2}),
    (nets(l1_ratio=0.5), {"l1_ratio": 0.6}),
    (logistics(), {"C": 4.0}),
    (logistics(), {"class_weight": "balanced"}),
    (logistics(), {"class_weight": {"no": 1.0, "yes": 2.0}}),
    (logistics(), {"solver": "liblinear"}),
    (logistics(solver="liblinear"), {"solver": "lbfgs"}),
    (logistics(solver="liblinear"), {"intercept_scaling": 1.0}),
    (svcs("two"), {"C": 1.0}),
    (svcs("three"), {"intercept_scaling": 1.0}),
    (svcs("three"), {"class_weight": "balanced"}),
    (svrs(), {"C": 1.0}),
    (svrs(), {"epsilon": 0.4}),
    (svrs(), {"intercept_scaling": 0.5}),
    (svrs(loss="epsilon_insensitive"), {"loss": "squared_epsilon_insensitive"}),
    (svcs("three"), {"loss": "hinge"}),
    (svcs("two", loss="hinge"), {"C": 1.0}),
    (svcs("two", penalty="l1", dual=False), {"penalty": "l2"}),
    (lassos(), {"alpha": 0.2}),
    (lassos(positive=True), {"positive": False}),
    (softmaxes(), {"C": 4.0}),
    (softmaxes(), {"class_weight": "balanced"}),
    (UNWEIGHTED[0], {"l1_ratio": 0.6}),
    (UNWEIGHTED[1], {"C": 4.0}),
    (hubers(alpha=0.1), {"alpha": 0.2}),
    (hubers(alpha=0.1), {"epsilon": 1.5}),
]


@pytest.mark.parametrize(("case", "settings"), WRONG_SETTINGS, ids=str)
def test_the_fit_of_another_objective_is_caught(case, settings):
    assert case.certify(case.fit()).relative_gap <= case.tolerance
    assert not case.certify(changed(case, **settings)).gap <= 1e-5


def test_an_intercept_that_the_settings_do_not_allow_is_refused():
    case = ridges()
    with pytest.raises(ValueError, match="intercept must be 0 in a problem with fit_intercept=False"):
        case.certify(changed(case, fit_intercept=False))


@pytest.mark.parametrize("case", EVERY_MODEL, ids=str)
def test_weights_left_out_are_caught(case):
    assert certify(case.fit(), case.X, case.y).relative_gap > 1e-5


@pytest.mark.parametrize("class_weight", [None, "balanced"])
@pytest.mark.parametrize("base", UNWEIGHTED, ids=str)
def test_a_softmax_that_saga_leaves_early_is_judged_against_the_optimum(base, class_weight):
    model = clone(base.model).set_params(class_weight=class_weight, max_iter=20)
    case = replace(base, model=model, weights=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it has not converged
        model = case.fit()
    certificate = case.certify(model)
    assert certificate.primal == pytest.approx(case.objective_of(model), rel=1e-12)
    best = LogisticRegression(C=model.C, l1_ratio=model.l1_ratio, class_weight=class_weight, tol=1e-12)
    suboptimality = certificate.primal - best.fit(case.X, case.y, case.c).certificate_.primal
    assert certificate.gap >= (1.0 - 1e-9) * suboptimality > 1e-5


@pytest.mark.parametrize("target", ["two", "three"])
def test_the_intercept_of_liblinear_is_not_free(target):
    case = svcs(target)
    model = case.fit()
    free = [
        Problem(X, labels, losses.SquaredHinge(), lam=1.0 / (2.0 * model.C * N), fit_intercept=True).certify(w, b)
        for w, b, labels in zip(model.coef_, model.intercept_, signs(case.y).T, strict=True)
    ]
    assert sum(certificate.gap for certificate in free) > 1e-5


def test_liblinear_gives_the_rest_of_a_class_the_weight_one():
    case = svcs("three", class_weight={5: 1.0, 6: 3.0, 7: 0.3}, fit_intercept=False)
    model = case.fit()
    assert case.certify(model).relative_gap <= 1e-10
    everywhere = np.array([model.class_weight[label] for label in case.y])
    first = Problem(
        X, signs(case.y)[:, 0], losses.SquaredHinge(), lam=1.0 / (2 * model.C * N), sample_weight=everywhere
    )
    assert first.certify(model.coef_[0]).relative_gap > 1e-3


# Real data, loosely fitted -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("loose", "tight"),
    [
        (lm.LogisticRegression(tol=0.05), lm.LogisticRegression(solver="newton-cholesky", tol=1e-12)),
        (lm.LogisticRegression(tol=1e-3), lm.LogisticRegression(solver="newton-cholesky", tol=1e-12)),
        (
            lm.LogisticRegression(solver="saga", tol=0.3, random_state=0),
            lm.LogisticRegression(solver="newton-cholesky", tol=1e-12),
        ),
        (LinearSVC(tol=0.1, random_state=0), LinearSVC(tol=1e-11, max_iter=10_000)),
        (LinearSVC(C=0.01, dual=True, tol=1.0, random_state=0), LinearSVC(C=0.01, tol=1e-11, max_iter=10_000)),
        (lm.RidgeClassifier(solver="lsqr", tol=1e-2), lm.RidgeClassifier(solver="sparse_cg", tol=1e-12)),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["a9a", "mushrooms"])
def test_on_real_data_the_gap_of_a_loose_fit_bounds_its_distance_to_a_tight_one(name, loose, tight):
    X, y = load(name)
    rows = np.random.default_rng(0).choice(X.shape[0], 1500, replace=False)
    # scikit-learn fits single precision in single precision, which reaches no tight gap.
    X, y = X[rows].astype(np.float64), y[rows]
    proved, reference = (certify(clone(model).fit(X, y), X, y) for model in (loose, tight))
    assert reference.relative_gap < 1e-9
    assert proved.gap > reference.gap
    assert proved.gap >= proved.primal - reference.primal > 0.0
    # Each dual value bounds every primal one.
    assert max(proved.dual, reference.dual) <= reference.primal * (1.0 + 1e-12)


# Models made of others -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case", [ridge_classifiers("three"), svcs("three"), replace(ridges(), target="outputs")], ids=str
)
def test_the_certificate_of_several_fits_is_the_sum_of_theirs(case):
    certificate = case.certify(case.fit())
    assert len(certificate.parts) == np.atleast_2d(case.fit().coef_).shape[0]
    assert certificate.primal == pytest.approx(sum(part.primal for part in certificate.parts))
    assert certificate.dual == pytest.approx(sum(part.dual for part in certificate.parts))


@pytest.mark.parametrize("target", ["two", "three"])
@pytest.mark.parametrize(
    "binary",
    [
        lm.LogisticRegression(solver="newton-cholesky", tol=1e-12, class_weight="balanced"),
        LinearSVC(tol=1e-11, class_weight="balanced"),
        lm.RidgeClassifier(),
        lm.Ridge(),
    ],
    ids=str,
)
def test_one_vs_rest_is_certified_through_its_estimators(binary, target):
    y = TARGETS[target]
    model = OneVsRestClassifier(binary).fit(X, y)
    certificate = certify(model, X, y)
    assert certificate.relative_gap <= 1e-10
    classes = model.classes_[1:] if target == "two" else model.classes_
    alone = [certify(clone(binary).fit(X, (y == k).astype(int)), X, (y == k).astype(int)) for k in classes]
    assert certificate.primal == pytest.approx(sum(part.primal for part in alone), rel=1e-12)
    # The labels of another class, in its place, are not proved.
    model.estimators_ = (
        model.estimators_[::-1] if target == "three" else [clone(binary).fit(X, (y == "no").astype(int))]
    )
    assert certify(model, X, y).relative_gap > 1e-2


def test_one_vs_rest_passes_weights_on():
    y = TARGETS["three"]
    with sklearn.config_context(enable_metadata_routing=True):
        binary = lm.LogisticRegression(solver="newton-cholesky", tol=1e-12).set_fit_request(sample_weight=True)
        model = OneVsRestClassifier(binary).fit(X, y, sample_weight=WEIGHTS)
    assert certify(model, X, y, sample_weight=WEIGHTS).relative_gap <= 1e-10
    assert certify(model, X, y).relative_gap > 1e-5


def logistic_cv(**kwargs):
    """LogisticRegressionCV, whose defaults are being changed and warn about it until 1.10."""
    accepted = inspect.signature(lm.LogisticRegressionCV).parameters
    quiet = {"use_legacy_attributes": False, "l1_ratios": (0.0,) if SINCE_1_8 else None}
    settings = {
        "Cs": [0.1, 1.0],
        "cv": 3,
        "scoring": "neg_log_loss",
        "solver": "newton-cholesky",
        "tol": 1e-12,
        **quiet,
        **kwargs,
    }
    return lm.LogisticRegressionCV(**{k: v for k, v in settings.items() if k in accepted})


CROSS_VALIDATED = [
    (lm.RidgeCV(), "real"),
    (lm.RidgeCV(cv=3, fit_intercept=False), "real"),
    (lm.RidgeCV(alpha_per_target=True), "outputs"),
    (lm.RidgeClassifierCV(class_weight="balanced"), "three"),
    (lm.RidgeClassifierCV(class_weight="balanced", cv=3), "three"),
    (lm.ElasticNetCV(l1_ratio=[0.3, 0.7], cv=3, **TIGHT), "real"),
    (lm.ElasticNetCV(l1_ratio=1.0, cv=3, **TIGHT), "real"),
    (lm.LassoCV(cv=3, **TIGHT), "real"),
    (logistic_cv(class_weight="balanced", solver="newton-cg"), "three"),
    (logistic_cv(class_weight="balanced"), "two"),
    (logistic_cv(use_legacy_attributes=True), "two"),
    (logistic_cv(solver="liblinear", tol=1e-10), "two"),
    (logistic_cv(solver="saga", l1_ratios=(0.3, 0.6), max_iter=100_000, random_state=0, **ELASTIC), "two"),
]


@pytest.mark.parametrize(("model", "target"), CROSS_VALIDATED, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weights"])
def test_a_cross_validated_model_is_judged_at_the_values_it_chose(model, target, weights):
    y = TARGETS[target]
    fitted = clone(model).fit(X, y, **({} if weights is None else {"sample_weight": weights}))
    assert certify(fitted, X, y, sample_weight=weights).relative_gap <= 1e-10
    chosen = "C_" if hasattr(fitted, "C_") else "alpha_"
    setattr(fitted, chosen, 2.0 * np.asarray(getattr(fitted, chosen)))
    assert certify(fitted, X, y, sample_weight=weights).relative_gap > 1e-6


# What may be handed in -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [logistics(), svcs("three"), ridges(), nets()], ids=str)
def test_containers_do_not_matter(case):
    pd = pytest.importorskip("pandas")
    model = case.fit()
    expected = case.certify(model)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(D)])
    column = case.y[:, None]
    for data in (frame, np.asfortranarray(X), X.tolist(), sp.csc_matrix(X), sp.coo_array(X)):
        for y in (case.y, pd.Series(case.y), case.y.tolist(), column):
            certificate = certify(model, data, y)
            assert certificate.primal == pytest.approx(expected.primal, rel=1e-12)
            assert certificate.dual == pytest.approx(expected.dual, rel=1e-12)


@pytest.mark.parametrize("names", [(0, 1), (-1, 1), (False, True), ("a", "b"), (2.0, 7.0), (1, 0)], ids=str)
@pytest.mark.parametrize("model", [logistics().model, svcs("two").model, ridge_classifiers("two").model], ids=str)
def test_the_names_of_the_classes_do_not_matter(model, names):
    y = np.array(names)[(TARGETS["two"] == "yes").astype(int)]
    certificate = certify(clone(model).fit(X, y), X, y)
    plain = certify(clone(model).fit(X, TARGETS["two"]), X, TARGETS["two"])
    assert certificate.relative_gap <= 1e-10
    assert certificate.primal == pytest.approx(plain.primal, rel=1e-9)


@pytest.mark.parametrize("case", EVERY_MODEL, ids=str)
def test_a_weight_of_two_is_a_repeated_row(case):
    model = case.fit()
    twice = np.arange(N) % 3 == 0
    rows = np.r_[np.arange(N), np.flatnonzero(twice)]
    weighted = certify(model, X, case.y, sample_weight=1.0 + twice)
    repeated = certify(model, X[rows], case.y[rows])
    # P is an average: over n rows, except for those whose objective is one itself.
    n = (1, 1) if isinstance(model, lm.ElasticNet | lm.QuantileRegressor) else (N, len(rows))
    assert weighted.primal * n[0] == pytest.approx(repeated.primal * n[1], rel=1e-12)
    assert weighted.gap * n[0] == pytest.approx(repeated.gap * n[1], rel=case.sharpness)


def test_one_number_is_the_weight_of_every_row():
    case = logistics()
    model = case.fit()
    expected = certify(model, X, case.y, sample_weight=np.full(N, 1.7))
    assert certify(model, X, case.y, sample_weight=1.7) == expected
    assert certify(model, X, case.y) != expected


def test_single_precision_is_judged_in_double():
    case = ridges(solver="cholesky")
    single = X.astype(np.float32)
    model = case.fit().fit(single, case.y)
    certificate = certify(model, single, case.y)
    assert model.coef_.dtype == np.float32
    assert 0.0 < certificate.relative_gap < 1e-10
    widened = certify(model, single.astype(np.float64), case.y)
    assert certificate.dual == pytest.approx(widened.dual, rel=1e-14)


def test_sparsified_coefficients_are_read():
    case = logistics(solver="saga", l1_ratio=0.4, **ELASTIC)
    model = case.fit()
    expected = case.certify(model)
    assert case.certify(model.sparsify()) == expected


def test_a_subclass_is_judged_as_the_model_it_extends():
    class Renamed(lm.Ridge):
        pass

    case = ridges()
    assert certify(Renamed(alpha=0.7).fit(X, case.y), X, case.y) == certify(
        lm.Ridge(alpha=0.7).fit(X, case.y), X, case.y
    )


@pytest.mark.parametrize(
    ("penalty", "l1_ratio", "meant"), [("l2", None, 0.0), ("l2", 0.9, 0.0), ("elasticnet", 0.4, 0.4)], ids=str
)
def test_the_penalty_parameter_of_older_versions_is_understood(penalty, l1_ratio, meant):
    case = logistics(solver="saga", l1_ratio=0.4, **ELASTIC)
    model = case.fit()
    new = certify(changed(case, l1_ratio=meant), X, case.y) if SINCE_1_8 else None
    old = certify(model.set_params(penalty=penalty, l1_ratio=l1_ratio), X, case.y)
    assert new in (None, old)
    assert (old.relative_gap <= 1e-10) == (meant == 0.4)


def test_balanced_weights_follow_the_installed_version(monkeypatch):
    def rows_only(class_weight, *, classes, y):
        return compute_class_weight(class_weight, classes=classes, y=y)

    case = replace(logistics(class_weight="balanced"), weights=True)
    monkeypatch.setattr("sklearn.utils.class_weight.compute_class_weight", rows_only)
    y = case.y
    by_rows = WEIGHTS * np.array([N / (2.0 * np.sum(y == label)) for label in y])
    model = clone(case.model).set_params(class_weight=None).fit(X, y, sample_weight=by_rows)
    assert case.certify(model.set_params(class_weight="balanced")).relative_gap <= 1e-10


def test_importing_it_does_not_import_scikit_learn():
    code = "import sys, dualnewton.interop.certify; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0


def test_certifying_warns_about_nothing_and_changes_nothing():
    case = replace(svcs("three", class_weight="balanced"), weights=True)
    model = case.fit()
    before = {name: np.copy(value) for name, value in vars(model).items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.certify(model)
    assert before.keys() == vars(model).keys()
    assert all(np.array_equal(value, vars(model)[name]) for name, value in before.items())
