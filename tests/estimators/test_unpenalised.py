"""Without a penalty: the dual points are feasible, and what they prove is true."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import dualnewton as dn
from dualnewton.losses import Logistic, Squared
from dualnewton.objective import unpenalised
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import NonNegativeUnpenalised, Unpenalised, View
from dualnewton.regularizers import ElasticNet
from estimators.cases import certificates, data_for


def risk(model, X, y):
    """The mean loss of a fitted model, written out."""
    if isinstance(model, dn.Ridge):
        return 0.5 * np.mean((model.predict(X) - y) ** 2)
    return -np.mean(model.predict_log_proba(X)[np.arange(len(y)), y])


@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_certificate_is_of_the_unpenalised_risk(n_classes, fit_intercept, make):
    X, y = data_for(n_classes, n=120, d=5)
    strength = {"alpha": 0.0} if n_classes == 0 else {"C": np.inf}
    kind = dn.Ridge if n_classes == 0 else dn.LogisticRegression
    model = kind(**strength, fit_intercept=fit_intercept).fit(make(X), y)
    assert model.certificate_.primal == pytest.approx(risk(model, X, y), rel=1e-10)
    # The dual point is orthogonal to every feature (and to ones), and its value is the one that is claimed.
    alpha = model.dual_coef_
    columns = np.column_stack([X, np.ones(len(y))]) if fit_intercept else X
    assert np.abs(columns.T @ alpha).max() <= 1e-10 * np.abs(columns).T.dot(np.abs(alpha)).max()
    assert model.certificate_.dual == pytest.approx(dual_value(n_classes, alpha, y), rel=1e-10)


def dual_value(n_classes, alpha, y):
    """The mean of −φ*(−α), written out."""
    if n_classes == 0:
        return np.mean(alpha * y - 0.5 * alpha**2)
    p = np.eye(n_classes)[y] - alpha if n_classes > 2 else np.stack([1.0 - (s := (2 * y - 1) * alpha), s], axis=1)
    return -np.mean(np.sum(p * np.log(p), axis=1))


@given(seed=st.integers(0, 10**6), scale=st.floats(-6.0, 6.0))
@settings(max_examples=20)
def test_no_model_is_better_than_the_dual_says(seed, scale):
    X, y = data_for(2, n=60, d=3, seed=seed)
    X = X * [1.0, 10.0**scale, 1.0]
    model = dn.LogisticRegression(C=np.inf, tol=1e-2)
    try:
        model.fit(X, y)
    except UserWarning:  # separable: the dual says zero, which is true of all losses
        return
    weak = dn.LogisticRegression(C=1e9, tol=1e-10, max_iter=1000).fit(X, y)
    assert risk(weak, X, y) >= model.certificate_.dual * (1.0 - 1e-9)
    assert model.certificate_.relative_gap <= 1e-2


@pytest.mark.parametrize("classes", [2, 3])
def test_separable_classes_end_the_steps_once_the_losses_are_nearly_zero(classes):
    """There is no minimum: dozens of further steps, each with a d×d decomposition, would prove nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((120, 40))
    y, model = np.argmax(X[:, :classes], axis=1), dn.LogisticRegression(C=np.inf, tol=1e-4)
    with pytest.warns(UserWarning, match="separates the classes"):
        model.fit(X, y)
    assert model.n_iter_.max() < 60
    assert risk(model, X, y) <= 1e-4 * np.log(classes)
    assert model.score(X, y) == 1.0


def test_features_that_say_the_same_are_no_obstacle():
    X, y = data_for(2, n=120, d=4)
    once, twice = (dn.LogisticRegression(C=np.inf, tol=1e-10).fit(Z, y) for Z in (X, np.hstack([X, X])))
    assert twice.certificate_.primal == pytest.approx(once.certificate_.primal, rel=1e-9)
    assert twice.certificate_.relative_gap <= 1e-10


def test_exact_fits_leave_no_gap():
    X, _ = data_for(0, n=30, d=4)
    model = dn.Ridge(0.0).fit(X, X @ [1.0, -2.0, 3.0, 0.5] + 4.0)
    assert model.coef_ == pytest.approx([1.0, -2.0, 3.0, 0.5])
    assert model.intercept_ == pytest.approx(4.0)
    assert model.certificate_.gap == 0.0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("C", [1.0, np.inf])
def test_a_warm_start_goes_on_where_the_last_fit_ended(n_classes, C):
    X, y = data_for(n_classes, n=120, d=5)
    model = dn.LogisticRegression(C=C, solver="newton-cholesky", warm_start=True).fit(X, y)
    cold, coef, certificate = np.max(model.n_iter_), model.coef_, model.certificate_
    model.fit(X, y)
    assert np.max(model.n_iter_) == 0 < cold
    np.testing.assert_array_equal(model.coef_, coef)
    assert model.certificate_.relative_gap <= max(certificate.relative_gap, 1e-12)


@pytest.mark.parametrize("seed", [5, 16, 28])
def test_a_warm_start_from_which_no_step_lowers_the_loss_is_left(seed):
    rng = np.random.default_rng(seed)
    X = np.eye(20)[rng.integers(20, size=300)]
    y = (X @ rng.standard_normal(20) + rng.standard_normal(300) * 0.3 > 0).astype(int)
    y = np.where(rng.random(300) < 0.1, 1 - y, y)
    model = dn.LogisticRegression(
        C=np.inf, tol=1e-6, max_iter=1000, warm_start=True, class_weight=[None, "balanced"][seed % 2]
    )
    with warnings.catch_warnings():  # on the first rows, categories may have one class only
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:150], y[:150])
    assert model.fit(X, y).certificate_.relative_gap <= 1e-6


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_warm_start_from_separated_classes_converges_on_others(n_classes, seed):
    rng = np.random.default_rng(seed)
    X = np.eye(8)[rng.integers(8, size=200)]
    y = rng.integers(n_classes, size=200)
    model = dn.LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000, warm_start=True)
    with pytest.warns(ConvergenceWarning, match="separates the classes"):
        model.fit(X, X.argmax(axis=1) % n_classes)
    model.fit(X, y)
    assert model.certificate_.relative_gap <= 1e-8
    assert model.certificate_.primal <= clone(model).fit(X, y).certificate_.primal * (1.0 + 1e-7)


@pytest.mark.parametrize("scale", [1e-14, 1e14])
@pytest.mark.parametrize(
    "model",
    [
        dn.LinearRegression(),
        dn.Ridge(alpha=0.0),
        dn.QuantileRegressor(alpha=0.0),
        dn.HuberRegressor(alpha=0.0),
        dn.HuberRegressor(alpha=0.0, epsilon=1.0),
    ],
    ids=repr,
)
def test_residuals_count_as_zero_whatever_the_weights(model, scale):
    """Scaled weights give the model of equal ones, and the label of a row without weight is not used."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((100, 3))
    y, c = X @ [1.0, 2.0, 3.0] + rng.standard_normal(100), np.ones(100)
    expected = clone(model).fit(X, y).coef_
    scaled = clone(model).fit(X, y, sample_weight=scale * c)
    np.testing.assert_allclose(scaled.coef_, expected, rtol=1e-6)
    assert scaled.certificate_.primal > 0.0
    y[7], c[7] = 1e15, 0.0
    masked = clone(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        masked.fit(X, y, sample_weight=c)
    assert masked.certificate_.primal > 0.0
    np.testing.assert_allclose(masked.coef_, clone(model).fit(X[c > 0], y[c > 0]).coef_, rtol=1e-3)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("model", [dn.Ridge(alpha=0.0), dn.RidgeClassifier(alpha=0.0)], ids=repr)
def test_ridge_without_a_penalty_on_features_that_nearly_depend_on_each_other(model, free):
    """The normal equations of Newton's method lose the directions of small singular values; certificates found no dual point."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 60))
    X[:, ::2] = 1.0 + 1e-6 * X[:, ::2]
    y = X[:, 1] + 1e6 * (X[:, 2] - 1.0) + rng.standard_normal(300) > 0.5
    best = np.column_stack([X, np.ones(300)]) if free else X
    z = 2.0 * y - 1.0 if isinstance(model, dn.RidgeClassifier) else y * 1.0
    residuals = z - best @ np.linalg.lstsq(best, z, rcond=1e-14)[0]
    fitted = clone(model).set_params(fit_intercept=free).fit(X, y * 1)
    assert fitted.certificate_.primal == pytest.approx(residuals @ residuals / 600.0, rel=1e-6)
    assert fitted.certificate_.relative_gap <= 1e-6


def test_an_intercept_that_the_problem_does_not_have():
    X, y = data_for(2, n=120, d=5)
    result, without = (
        dn.solve(Unpenalised(X, 2.0 * y - 1.0, Logistic(), fit_intercept=True)),
        Unpenalised(X, 2.0 * y - 1.0, Logistic()),
    )
    assert without.starting_pair(result).intercept == 0.0
    with pytest.raises(dn.DualnewtonError, match="intercept must be 0"):
        without.certify(result.w, result.intercept)


def test_steps_of_one_epoch_at_a_time_get_there_too():
    X, y = data_for(3, n=120, d=5)
    model = dn.LogisticRegression(C=np.inf, warm_start=True, max_iter=1)
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(25):
            values.append(model.fit(X, y).certificate_.primal)
    assert np.all(np.diff(values) <= 0.0)
    assert model.certificate_.relative_gap <= model.tol


def test_a_problem_loses_its_penalty_without_new_checks():
    """What was checked is shared, and the certificate is that of the objective stated afresh."""
    rng = np.random.default_rng(5)
    X, y, c = rng.standard_normal((40, 4)), rng.standard_normal(40), rng.uniform(0.5, 2.0, 40)
    problem = Problem(X, y, Squared(), lam=3.0, regularizer=ElasticNet(), sample_weight=c, fit_intercept=True)
    free = Unpenalised.of(problem)
    again = Unpenalised(X, y, Squared(), sample_weight=c, fit_intercept=True)
    assert free.unit.data is problem.data
    assert free.unit.y is problem.y
    w = np.linalg.lstsq(np.sqrt(c)[:, None] * X, np.sqrt(c) * y, rcond=None)[0]
    assert free.certify(w, 0.1) == again.certify(w, 0.1)
    assert free.weak.lam == again.weak.lam > 0.0
    assert type(free.weak.regularizer) is type(again.weak.regularizer)


def test_well_conditioned_hessians_are_factorised_and_others_decomposed():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 6)) * 10.0 ** np.arange(-3, 3)
    g = rng.standard_normal((1, 7))
    inverse = Unpenalised(X, X.sum(axis=1), Squared(), fit_intercept=True).view.inverse
    H = np.c_[X, np.ones(50)].T @ np.c_[X, np.ones(50)]
    np.testing.assert_allclose(inverse(H)(g)[0] @ H, g[0], rtol=1e-9)
    V, reciprocal, scale = unpenalised._decomposed(H, scaled=True)
    np.testing.assert_allclose(inverse(H)(g)[0], scale * (V @ (reciprocal * (V.T @ (scale * g[0])))), rtol=1e-9)
    assert unpenalised.unit_factor(H) is not None
    H[1], H[:, 1] = H[0], H[:, 0]  # two equal features
    H[1, 1] = H[0, 0]
    assert unpenalised.unit_factor(H) is None


# Many coefficients ------------------------------------------------------------------------------------------------------


@pytest.fixture
def without_matrices(monkeypatch):
    """Treat problems of any size as those of more coefficients than a Hessian may have."""
    monkeypatch.setattr(unpenalised, "MOST", 0)
    monkeypatch.setattr(View, "_hessian", lambda *_: pytest.fail("the Hessian of all coefficients"))


LARGE = {
    "logistic": (dn.LogisticRegression(C=np.inf, tol=1e-6), 2),
    "softmax": (dn.LogisticRegression(C=np.inf, tol=1e-6), 3),
    "one against others": (dn.LogisticRegression(C=np.inf, tol=1e-6, multi_class="ovr"), 3),
    "poisson": (dn.PoissonRegressor(alpha=0.0, tol=1e-6), 0),
    "gamma": (dn.GammaRegressor(alpha=0.0, tol=1e-6), 0),
    "ridge": (dn.Ridge(alpha=0.0, tol=1e-6, solver="newton"), 0),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_steps_by_conjugate_gradients_have_the_same_minimum(name, fit_intercept, make, monkeypatch, request):
    model, n_classes = LARGE[name]
    X, y = data_for(n_classes, n=150, d=6)
    X, y = X * [1.0, 1.0, 0.1, 10.0, 1.0, 3.0], y if n_classes else np.abs(y) + 0.1
    expected = clone(model).set_params(fit_intercept=fit_intercept).fit(X, y)
    request.getfixturevalue("without_matrices")
    found = clone(model).set_params(fit_intercept=fit_intercept, max_iter=1000).fit(make(X), y)
    np.testing.assert_allclose(
        found.decision_function(X) if n_classes else found.predict(X),
        expected.decision_function(X) if n_classes else expected.predict(X),
        rtol=2e-2,
        atol=2e-2,
    )
    for one, other in zip(certificates(found), certificates(expected), strict=True):
        assert one.meets(1e-6)
        assert one.primal == pytest.approx(other.primal, rel=2e-6)
        assert one.reach < np.inf
    assert "conjugate gradients" in found.plan_.reason
    proof = dn.certify(found, make(X), y)
    assert proof.relative_gap <= 2e-6


def test_steps_far_from_the_minimum_are_rough(without_matrices, monkeypatch):
    """Their dual points would prove nothing: systems are solved exactly once one may suffice."""
    fractions, own = [], unpenalised.CentredSystems.solved
    monkeypatch.setattr(
        unpenalised.CentredSystems,
        "solved",
        lambda self, G, enough, effort: fractions.append(effort.fraction) or own(self, G, enough, effort),
    )
    X, y = data_for(2, n=300, d=8)
    dn.LogisticRegression(C=np.inf, tol=1e-8, max_iter=1000).fit(X, y)
    first = fractions.index(0.0)
    assert first >= 1
    assert all(fraction > 0.0 for fraction in fractions[:first])


def test_a_time_limit_ends_conjugate_gradients(without_matrices):
    X, y = data_for(2, n=300, d=8)
    found = dn.solve(Unpenalised(X, 2.0 * y - 1.0, Logistic(), fit_intercept=True), time_limit=0.0)
    assert found.status is dn.Status.TIME_LIMIT


def test_many_coefficients_are_refused_where_each_step_needs_a_matrix():
    wide = np.ones((3, 3000))
    with pytest.raises(ValueError, match="at most 2000 coefficients can be fitted if the loss has kinks, got 3001"):
        dn.QuantileRegressor(alpha=0.0).fit(wide, [0.0, 1.0, 0.0])
    with pytest.raises(ValueError, match="at most 2000 coefficients can be fitted if they must not be negative"):
        NonNegativeUnpenalised(wide, np.ones(3), Squared()).starting_pair()
