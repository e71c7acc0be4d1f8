"""PoissonRegressor, GammaRegressor, TweedieRegressor and their CV: other libraries' models, and what is new."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model as lm
from sklearn.metrics import mean_tweedie_deviance
from sklearn.model_selection import KFold

import dualnewton as dn

RNG = np.random.default_rng(0)
N = 200
X = RNG.standard_normal((N, 4))
WEIGHTS = RNG.integers(0, 4, N).astype(float)
OFFSET = RNG.uniform(-1.0, 1.0, N)
MEAN = np.exp(0.5 * X[:, 0] - 0.3 * X[:, 1] + 0.4 + OFFSET)
COUNTS = RNG.poisson(MEAN).astype(float)
COSTS = np.array([RNG.gamma(1.0, 1.0, k).sum() for k in COUNTS.astype(int)])
SIZES = RNG.gamma(2.0, MEAN / 2.0)

MODELS = [("PoissonRegressor", {}, COUNTS), ("GammaRegressor", {}, SIZES)] + [
    ("TweedieRegressor", {"power": power}, y) for power, y in ((1.0, COUNTS), (1.6, COSTS), (2.0, SIZES), (0.0, COSTS))
]
by_model = pytest.mark.parametrize(("name", "settings", "y"), MODELS, ids=[f"{m[0]} {m[1]}" for m in MODELS])


@pytest.mark.parametrize("fit_intercept", [True, False])
@by_model
def test_it_is_scikit_learns_model_and_its_own_certificate(name, settings, y, fit_intercept):
    given = settings | {"alpha": 0.03, "fit_intercept": fit_intercept}
    ours = getattr(dn, name)(**given, tol=1e-12).fit(X, y, WEIGHTS)
    theirs = getattr(lm, name)(**given, tol=1e-11, solver="newton-cholesky").fit(X, y, WEIGHTS)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-9)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-6, abs=1e-9)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-6)
    assert ours.score(X, y, WEIGHTS) == pytest.approx(theirs.score(X, y, WEIGHTS), rel=1e-8)
    for model in (ours, theirs):
        assert dn.certify(model, X, y, sample_weight=WEIGHTS).relative_gap <= 1e-12
    assert theirs.get_params().keys() <= ours.get_params().keys()
    assert {each for each in vars(theirs) if each.endswith("_")} <= set(vars(ours))


@pytest.mark.filterwarnings("ignore:Line search failed")  # of glum, next to its optimum
@pytest.mark.parametrize("l1_ratio", [0.0, 0.6])
@pytest.mark.parametrize(("name", "settings", "y"), MODELS[:2] + MODELS[3:4], ids=["poisson", "gamma", "tweedie"])
def test_it_is_glums_model_with_offsets(name, settings, y, l1_ratio):
    glum = pytest.importorskip("glum")
    family = glum.TweedieDistribution({"PoissonRegressor": 1, "GammaRegressor": 2}.get(name, settings.get("power")))
    theirs = glum.GeneralizedLinearRegressor(family=family, alpha=0.02, l1_ratio=l1_ratio, gradient_tol=1e-10)
    theirs.fit(X, y, sample_weight=WEIGHTS + 0.1, offset=OFFSET)
    ours = getattr(dn, name)(alpha=0.02, l1_ratio=l1_ratio, tol=1e-12, **settings)
    ours.fit(X, y, WEIGHTS + 0.1, offset=OFFSET)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.predict(X, offset=OFFSET), theirs.predict(X, offset=OFFSET), rtol=1e-6)
    certificate = dn.certify(theirs, X, y, sample_weight=WEIGHTS + 0.1, offset=OFFSET)
    assert certificate.relative_gap <= 1e-9
    with pytest.raises(ValueError, match="P2 other than 'identity'"):
        dn.certify(theirs.set_params(P2=np.ones(4)), X, y)


def test_it_is_the_maximum_of_the_likelihood_that_statsmodels_finds():
    sm = pytest.importorskip("statsmodels.api")
    constant = sm.add_constant(X)
    found = sm.GLM(COUNTS, constant, family=sm.families.Poisson(), offset=OFFSET, freq_weights=WEIGHTS).fit(tol=1e-12)
    ours = dn.PoissonRegressor(alpha=0.0, tol=1e-12).fit(X, COUNTS, WEIGHTS, offset=OFFSET)
    np.testing.assert_allclose(np.r_[ours.intercept_, ours.coef_], found.params, rtol=1e-6)
    assert dn.certify(found, constant, COUNTS).relative_gap <= 1e-10
    with pytest.raises(ValueError, match="family Binomial"):
        dn.certify(sm.GLM(COUNTS > 0, constant, family=sm.families.Binomial()).fit(), constant, COUNTS > 0)


def test_counts_with_log_exposures_are_rates_with_exposures_as_weights():
    """Σ e_i (e^{z} − (y_i/e_i) z) = Σ e^{z + log e_i} − y_i z: one model, written in two ways."""
    exposure = np.exp(OFFSET)
    by_offset = dn.PoissonRegressor(alpha=0.05, tol=1e-12).fit(X, COUNTS, offset=np.log(exposure))
    # The weights are divided by their mean; so is alpha.
    rates = dn.PoissonRegressor(alpha=0.05 / exposure.mean(), tol=1e-12).fit(X, COUNTS / exposure, exposure)
    np.testing.assert_allclose(by_offset.coef_, rates.coef_, rtol=1e-6)
    assert by_offset.intercept_ == pytest.approx(rates.intercept_, rel=1e-6)


def test_binomial_counts_are_two_weighted_rows_of_a_logistic_regression():
    """y successes of m trials: a row of each outcome, with the weights y and m − y; checked against single trials."""
    trials = RNG.integers(1, 6, N)
    successes = RNG.binomial(trials, 1.0 / (1.0 + np.exp(-X[:, 0])))
    rows, outcomes = np.vstack([X, X]), np.repeat([1, 0], N)
    by_weights = dn.LogisticRegression(tol=1e-12).fit(rows, outcomes, np.r_[successes, trials - successes])
    each = np.repeat(X, trials, axis=0)
    single = np.concatenate([np.arange(m) < k for m, k in zip(trials, successes, strict=True)])
    one_by_one = dn.LogisticRegression(tol=1e-12).fit(each, single.astype(int))
    np.testing.assert_allclose(by_weights.coef_, one_by_one.coef_, rtol=1e-6)


@by_model
def test_bounds_and_signs_hold_and_are_certified(name, settings, y):
    for more in ({"positive": True}, {"positive": True, "l1_ratio": 0.5}, {"bounds": (-0.1, [0.2, 0.1, np.inf, 0.3])}):
        model = getattr(dn, name)(alpha=0.05, tol=1e-9, **settings, **more).fit(X, y, offset=OFFSET)
        low, high = more.get("bounds", (0.0, np.inf))
        assert ((model.coef_ >= low) & (model.coef_ <= high)).all()
        assert dn.certify(model, X, y, offset=OFFSET).relative_gap <= 1e-8
    with pytest.raises(ValueError, match="bounds must be None with l1_ratio > 0"):
        getattr(dn, name)(bounds=(0.0, 1.0), l1_ratio=0.5, **settings).fit(X, y)


def test_files_keep_them(tmp_path):
    model = dn.PoissonRegressor(alpha=0.1, bounds=(-0.1, np.full(4, 0.2))).fit(X, COUNTS, offset=OFFSET)
    dn.save(model, tmp_path / "poisson")
    again = dn.load(tmp_path / "poisson")
    np.testing.assert_array_equal(again.predict(X, offset=OFFSET), model.predict(X, offset=OFFSET))
    assert dn.certify(again, X, COUNTS, offset=OFFSET) == dn.certify(model, X, COUNTS, offset=OFFSET)


@pytest.mark.parametrize(
    ("power", "link"), [(3.0, "auto"), (-1.0, "auto"), (0.0, "log"), (1.5, "identity"), (0.5, "auto")]
)
def test_deviances_that_are_not_convex_are_refused_with_the_reason(power, link):
    with pytest.raises(ValueError, match="not convex in the coefficients"):
        dn.TweedieRegressor(power=power, link=link).fit(X, SIZES)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(("name", "settings", "y"), MODELS[:2] + MODELS[3:4], ids=["poisson", "gamma", "tweedie"])
def test_cross_validation_scores_each_fold_as_a_fit_of_its_own_would(name, settings, y, storage):
    folds, alphas = KFold(3), [0.5, 0.01]
    search = getattr(dn, f"{name}CV")(alphas=alphas, cv=folds, tol=1e-10, l1_ratio=[0.0, 0.5], **settings)
    search.fit(storage(X), y, WEIGHTS, offset=OFFSET)
    power = {"PoissonRegressor": 1.0, "GammaRegressor": 2.0}.get(name, settings.get("power"))
    for r, ratio in enumerate((0.0, 0.5)):
        for k, (train, test) in enumerate(folds.split(X)):
            own = getattr(dn, name)(alpha=0.01, l1_ratio=ratio, tol=1e-10, **settings)
            own.fit(X[train], y[train], WEIGHTS[train], offset=OFFSET[train])
            score = mean_tweedie_deviance(
                y[test], own.predict(X[test], offset=OFFSET[test]), sample_weight=WEIGHTS[test], power=power
            )
            assert search.deviance_path_[r, 1, k] == pytest.approx(score, rel=1e-4)
    assert search.certificates_.shape == (2, 2, 3)
    assert max(each.relative_gap for each in search.certificates_.ravel()) <= 1e-10
    r, k = np.unravel_index(search.deviance_path_.mean(axis=2).argmin(), (2, 2))
    assert (search.l1_ratio_, search.alpha_) == ((0.0, 0.5)[r], alphas[k])
    assert not search.choice_certificate_.proved
    assert "no bounded slope" in str(search.choice_certificate_.reason)


def test_an_automatic_grid_begins_where_no_feature_is_in_use():
    search = dn.PoissonRegressorCV(alphas=5, l1_ratio=1.0, cv=3, eps=1e-2).fit(X, COUNTS)
    strongest = dn.PoissonRegressor(alpha=1.0001 * search.alphas_[0], l1_ratio=1.0).fit(X, COUNTS)
    weaker = dn.PoissonRegressor(alpha=0.9 * search.alphas_[0], l1_ratio=1.0).fit(X, COUNTS)
    assert not strongest.coef_.any()
    assert weaker.coef_.any()


def test_binomial_counts_are_weights_of_a_logistic_regression():
    """Two rows for each example, with the weights y and m − y, give the model of all m trials as rows of their own."""
    trials = RNG.integers(0, 6, N)
    successes = RNG.binomial(trials, 1.0 / (1.0 + np.exp(-X[:, 0])))
    outcome, counts = np.repeat([1, 0], N), np.r_[successes, trials - successes]
    weighted = dn.LogisticRegression(tol=1e-12).fit(np.vstack([X, X]), outcome, sample_weight=counts)
    single = dn.LogisticRegression(tol=1e-12).fit(
        np.repeat(np.vstack([X, X]), counts, axis=0), np.repeat(outcome, counts)
    )
    np.testing.assert_allclose(weighted.coef_, single.coef_, rtol=1e-8)
    np.testing.assert_allclose(weighted.intercept_, single.intercept_, rtol=1e-8)
    assert weighted.certificate_.relative_gap <= 1e-12


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_the_score_of_a_constant_target(power):
    # As R² in scikit-learn: 1 for a perfect prediction, 0 for another. Folds of rare counts often have zeros only.
    X, y = np.random.default_rng(0).standard_normal((20, 3)), np.full(20, 3.0)
    model = dn.TweedieRegressor(power=power).fit(X, y + np.abs(X[:, 0]))
    assert model.score(X, y) == 0.0
    assert model.score(X, np.where(X[:, 1] > 0.0, 3.0, 99.0), sample_weight=(X[:, 1] > 0.0).astype(float)) == 0.0
    model.coef_, model.intercept_ = np.zeros(3), np.log(4.0) if power else 4.0
    assert model.score(X, model.predict(X)) == 1.0


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_the_score_of_means_that_underflow(power):
    X, y = np.array([[1.0], [2.0], [3000.0]]), np.array([2.0, 1.0, 0.0])
    model = dn.TweedieRegressor(power=power, alpha=0.0).fit(X, y)
    model.coef_, model.intercept_ = np.array([-1.0]), 1.7
    assert model.predict(X)[2] == 0.0
    assert 0.0 < model.score(X, y) <= 1.0
    zeros = dn.PoissonRegressor().fit(X, np.zeros(3)) if power == 1.0 else model
    assert zeros.score(X, np.zeros(3)) in (0.0, 1.0)
