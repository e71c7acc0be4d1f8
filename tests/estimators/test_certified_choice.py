"""A proved choice is that of exact fits, and the scores of exact fits lie in the intervals."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import metrics
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

import dualnewton as dn
from dualnewton.errors import DualnewtonError
from dualnewton.estimators.model_selection._alphas import Search
from dualnewton.estimators.model_selection._proofs import LeastSquaresProofs
from dualnewton.estimators.model_selection.choice import BOUNDS, ChoiceCertificate, Held, interval

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore::FutureWarning")
EXACT = {"tol": 1e-13, "max_iter": 5000}


def sample(seed, *, n=60, d=4, classes=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.3, 3.0, d)
    z = X @ rng.standard_normal(d) + 1.5 * rng.standard_normal(n)
    return X, np.digitize(z, np.quantile(z, np.arange(1, classes) / classes)) if classes else z


def means(model):
    """Mean scores over folds, in the order of the certificate."""
    scores = next(iter(model.scores_.values()))
    return scores.reshape(len(scores), -1).mean(axis=0)


def agrees(model, exact):
    """The scores of exact fits lie between the ends; where the choice is proved, it is that of the exact fits."""
    proof = model.choice_certificate_
    scores = means(exact)
    assert (proof.lower <= scores + 1e-12).all()
    assert (scores <= proof.upper + 1e-12).all()
    if proof.proved:
        assert model.C_[0] == exact.C_[0]
    assert proof.parameters[proof.chosen]["C"] == model.C_[0]
    return proof.proved


@pytest.mark.parametrize(("scoring", "problems"), [("accuracy", 30), ("neg_log_loss", 10)])
def test_the_choice_is_that_of_exact_fits(scoring, problems):
    """benchmarks/certified_choice.py repeats this on hundreds of problems."""
    proved = 0
    for seed in range(problems):
        options = {"Cs": 4, "cv": 3, "scoring": scoring, "fit_intercept": seed % 3 > 0}
        X, y = sample(seed)
        X = sp.csr_array(X) if seed % 4 == 0 else X
        model = dn.LogisticRegressionCV(certify_choice=True, **options).fit(X, y)
        proved += agrees(model, dn.LogisticRegressionCV(**options, **EXACT).fit(X, y))
    assert proved == problems


@pytest.mark.parametrize("shape", [{"classes": 3}, {"n": 20, "d": 40}], ids=["softmax", "wide"])
def test_softmax_and_wide_data(shape):
    for seed in range(6):
        X, y = sample(seed, **shape)
        options = {"Cs": [1e-2, 1.0, 1e2], "cv": 3}
        model = dn.LogisticRegressionCV(certify_choice=True, **options).fit(X, y)
        assert agrees(model, dn.LogisticRegressionCV(**options, **EXACT).fit(X, y))


def test_weights_and_a_share_of_the_l1_norm():
    for seed in range(5):
        X, y = sample(seed)
        weights = np.random.default_rng(seed).uniform(0.2, 2.0, len(y))
        options = {"Cs": [0.1, 1.0, 10.0], "cv": 3, "l1_ratios": [0.3, 1.0], "class_weight": "balanced"}
        model = dn.LogisticRegressionCV(certify_choice=True, **options).fit(X, y, weights)
        exact = dn.LogisticRegressionCV(**options, **EXACT).fit(X, y, weights)
        assert agrees(model, exact)
        assert model.l1_ratio_[0] == exact.l1_ratio_[0]


@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error", "neg_root_mean_squared_error"])
@pytest.mark.parametrize("shape", [{}, {"n": 20, "d": 40}], ids=["tall", "wide"])
def test_ridge(scoring, shape):
    for seed in range(5):
        X, y = sample(seed, classes=0, **shape)
        alphas = np.geomspace(1e-2, 1e3, 9)
        model = dn.RidgeCV(alphas, cv=3, scoring=scoring, fit_intercept=seed % 2 == 0).fit(X, y)
        proof, best = model.choice_certificate_, int(np.argmax(model.scores_.mean(axis=1)))
        assert proof.proved
        assert proof.parameters[proof.chosen] == {"alpha": model.alpha_} == {"alpha": alphas[best]}
        assert (proof.upper - proof.lower <= 1e-3 * (1.0 + np.abs(proof.scores))).all()


@pytest.mark.parametrize("ratio", [0.5, 1.0, [0.2, 0.9]], ids=str)
def test_elastic_net(ratio):
    """The Lasso is included: the squared losses alone bound the predictions where the features are independent."""
    proved = 0
    for seed in range(12):
        X, y = sample(seed, classes=0)
        weights = np.random.default_rng(seed).uniform(0.2, 2.0, len(y)) if seed % 3 == 0 else None
        options = {"l1_ratio": ratio, "cv": 3, "alphas": 20, "fit_intercept": seed % 2 == 0}
        model = dn.ElasticNetCV(tol=1e-3, **options).fit(X, y, weights)
        exact = dn.ElasticNetCV(**options, **EXACT).fit(X, y, weights)
        proof, scores = model.choice_certificate_, -exact.mse_path_.reshape(-1, 3).mean(axis=1)
        assert (proof.lower <= scores + 1e-12).all()
        assert (scores <= proof.upper + 1e-12).all()
        if proof.proved:
            proved += 1
            assert (model.alpha_, model.l1_ratio_) == (exact.alpha_, exact.l1_ratio_)
    assert proved >= 6


@pytest.mark.parametrize(("ratio", "seed"), [(0.1, 4), (0.1, 7), (0.5, 3), (0.5, 6)])
def test_of_many_features_the_choice_is_that_of_exact_fits_too(ratio, seed):
    """The gaps of the first fits leave it open: without further fits, another alpha would be chosen."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 260))
    y = X[:, :10] @ rng.standard_normal(10) + 0.3 * rng.standard_normal(50)
    alphas = np.geomspace(1.0, 0.01, 120)
    rough, exact = (dn.ElasticNetCV(l1_ratio=ratio, cv=3, alphas=alphas, tol=tol).fit(X, y) for tol in (1e-3, 1e-11))
    assert rough.alpha_ == exact.alpha_
    best = int(np.argmin(exact.mse_path_.mean(axis=1)))
    np.testing.assert_allclose(rough.mse_path_[best], exact.mse_path_[best], rtol=1e-4)


def test_of_the_lasso_with_more_features_than_rows_nothing_is_claimed():
    X, y = sample(0, classes=0, n=20, d=40)
    proof = dn.ElasticNetCV(l1_ratio=1.0, cv=3, alphas=10).fit(X, y).choice_certificate_
    assert np.isinf(proof.upper).all()
    assert "Lasso" in str(proof)
    assert dn.ElasticNetCV(l1_ratio=0.5, cv=3, alphas=10).fit(X, y).choice_certificate_.proved


def test_rough_fits_suffice_for_values_that_lose_clearly():
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)  # rough fits that were asked for are no misses
        model = dn.LogisticRegressionCV(certify_choice=True).fit(X, y)
    exact = dn.LogisticRegressionCV(**EXACT).fit(X, y)
    assert agrees(model, exact)
    assert model.n_iter_.sum() < 0.8 * exact.n_iter_.sum()
    gaps = np.array([proof.relative_gap for proof in model.certificates_.ravel()])
    assert (gaps > 1e-6).any()
    assert model.certificate_.relative_gap <= model.tol


def test_without_the_option_nothing_is_claimed_and_the_reason_says_how_to_ask():
    X, y = load_iris(return_X_y=True)
    model = dn.LogisticRegressionCV(Cs=3, cv=3).fit(X, y)
    assert not model.choice_certificate_.proved
    assert "certify_choice=True" in str(model.choice_certificate_)


@pytest.mark.parametrize(
    ("options", "names"),
    [({"scoring": "roc_auc"}, "roc_auc"), ({"refit": False}, "refit=False")],
)
def test_what_cannot_be_proved_is_refused(options, names):
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.raises(DualnewtonError, match=names):
        dn.LogisticRegressionCV(certify_choice=True, **options).fit(X, y)


# Intervals of scores -------------------------------------------------------------------------------------------------


def scores_of(scoring, y, rows, omega):
    """The scores of several vectors of predictions, one in each row."""
    squares = (rows - y) ** 2 @ omega
    return {
        "accuracy": lambda: ((y > 0) == (rows > 0)) @ omega,
        "neg_log_loss": lambda: -np.logaddexp(0.0, -y * rows) @ omega,
        "r2": lambda: 1.0 - squares / (omega @ (y - omega @ y) ** 2),
        "neg_mean_squared_error": lambda: -squares,
        "neg_root_mean_squared_error": lambda: -np.sqrt(squares),
        "neg_mean_absolute_error": lambda: -np.abs(rows - y) @ omega,
    }[scoring]()


def score_of_scikit_learn(scoring, y, z, omega):
    if scoring == "accuracy":
        return metrics.accuracy_score(y > 0, z > 0, sample_weight=omega)
    if scoring == "neg_log_loss":
        return -metrics.log_loss(y > 0, 1.0 / (1.0 + np.exp(-z)), sample_weight=omega, labels=[False, True])
    function = {
        "r2": metrics.r2_score,
        "neg_mean_squared_error": metrics.mean_squared_error,
        "neg_root_mean_squared_error": metrics.root_mean_squared_error,
        "neg_mean_absolute_error": metrics.mean_absolute_error,
    }[scoring]
    return (1.0 if scoring == "r2" else -1.0) * function(y, z, sample_weight=omega)


@pytest.mark.parametrize("scoring", sorted(BOUNDS))
@pytest.mark.parametrize("weighted", [False, True])
def test_no_change_of_predictions_within_the_spread_leaves_the_interval(scoring, weighted):
    n, rng = 12, np.random.default_rng(0)
    for _ in range(40):
        omega = rng.uniform(0.1, 1.0, n) if weighted else np.ones(n)
        omega /= omega.sum()
        z = rng.standard_normal(n)
        classes = scoring in ("accuracy", "neg_log_loss")
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0) if classes else rng.standard_normal(n)
        (score,) = scores_of(scoring, y, z[None], omega)
        assert score == pytest.approx(score_of_scikit_learn(scoring, y, z, omega), rel=1e-12)
        spread = 10.0 ** rng.uniform(-2.0, 0.5)
        low, high = interval(scoring, Held(z, y, omega), score, spread)
        changes = rng.standard_normal((30, n)) * (rng.random((30, n)) < rng.uniform(0.1, 1.0, (30, 1)))
        changes *= spread / np.maximum(np.sqrt(changes**2 @ omega), 1e-300)[:, None]
        changed = scores_of(scoring, y, z + changes, omega)
        assert (low - 1e-9 <= changed).all()
        assert (changed <= high + 1e-9).all()


def test_ties_go_to_the_first_and_later_equals_are_beaten():
    values = tuple({"C": float(k)} for k in range(3))
    scores = np.array([0.5, 0.5, 0.4])
    first = ChoiceCertificate(values, scores, scores, scores, 0, "accuracy")
    assert first.proved
    assert not ChoiceCertificate(values, scores, scores, scores, 1, "accuracy").proved
    wide = ChoiceCertificate(values, scores, scores - 0.2, scores + 0.2, 0, "accuracy", "a reason")
    assert wide.rivals.tolist() == [1, 2]
    assert "a reason" in str(wide)
    assert wide.to_pandas()["may_be_best"].all()


def test_no_score_is_bounded_after_the_time_limit():
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning):
        model = dn.LogisticRegressionCV(Cs=2, cv=2, certify_choice=True, time_limit=0.0).fit(X[:60], y[:60])
    assert "time_limit was reached" in str(model.choice_certificate_)


@pytest.mark.parametrize("seed", [1, 5])
def test_the_few_values_that_may_be_best_are_fitted_until_the_choice_is_proved(seed):
    """Their gaps were small enough for the choice, but not for its proof."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((200, 1000)), np.zeros(1000)
    w[:20] = rng.standard_normal(20)
    y = X @ w + 0.1 * rng.standard_normal(200)
    model = dn.ElasticNetCV().fit(X, y / y.std())
    exact = dn.ElasticNetCV(tol=1e-12).fit(X, y / y.std())
    assert model.choice_certificate_.proved
    assert model.alpha_ == exact.alpha_
    proof, scores = model.choice_certificate_, -exact.mse_path_.mean(axis=1)
    assert (proof.lower <= scores + 1e-12).all()
    assert (scores <= proof.upper + 1e-12).all()


@pytest.mark.parametrize(("ratio", "most"), [(1.0, 1), (0.9, 2)])
def test_values_that_may_be_best_share_the_factors_of_a_proof(ratio, most, monkeypatch):
    """A matrix of all features was factorised for each such value and fold, which took longer than all fits."""
    rng = np.random.default_rng(2)
    X = sp.random_array((1500, 300), density=0.02, rng=rng, format="csr")
    y = X[:, :20] @ rng.standard_normal(20)
    y = y / y.std() + 0.1 * rng.standard_normal(1500)
    calls, refined, once, again = [], [], LeastSquaresProofs._local, Search.refine
    monkeypatch.setattr(LeastSquaresProofs, "_local", lambda *given: calls.append(given) or once(*given))
    monkeypatch.setattr(Search, "refine", lambda search, values: refined.extend(values) or again(search, values))
    model = dn.ElasticNetCV(l1_ratio=ratio, cv=4).fit(X, y)
    assert len(refined) > 2
    assert len(calls) == 4 * most
    assert model.choice_certificate_.proved
    assert model.alpha_ == dn.ElasticNetCV(l1_ratio=ratio, cv=4, tol=1e-12).fit(X, y).alpha_


def test_of_very_many_features_the_choice_is_that_of_exact_fits():
    """More coefficients than are kept as arrays: the choice was that of the first fits, whose gaps left it open."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 20_000))
    y = X[:, ::1000].sum(axis=1) + rng.standard_normal(50)
    model, exact = (dn.LassoCV(tol=tol).fit(X, y) for tol in (1e-4, 1e-7))
    assert model.alpha_ == exact.alpha_
    best = int(np.argmin(exact.mse_path_.mean(axis=1)))
    np.testing.assert_allclose(model.mse_path_[best], exact.mse_path_[best], rtol=1e-4)


def test_exact_ridge_models_are_compared_without_a_matrix_of_the_features(monkeypatch):
    """Their gaps are rounding, so that strong convexity alone proves the choice; it does not where scores are nearly equal."""
    rng = np.random.default_rng(0)
    X, computed = rng.standard_normal((120, 8)), LeastSquaresProofs._computed_factor
    y = X.sum(axis=1) + rng.standard_normal(120)
    calls = []
    monkeypatch.setattr(LeastSquaresProofs, "_computed_factor", lambda *args: calls.append(1) or computed(*args))
    for alphas, expected in (([0.1, 10.0, 1000.0], 0), ([1e-3, 6e-3], 4)):
        model = dn.RidgeCV(alphas, cv=4).fit(X, y)
        assert model.choice_certificate_.proved
        assert len(calls) == expected
