"""Rounding errors of objectives without a penalty and with Huber's scale: proved bounds, against 50-digit arithmetic."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from campaign import around, exact
from campaign.around import excess_with_scale, excess_without_penalty

import dualnewton as dn
from dualnewton import losses
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.orthogonality import COPIED, _factored, smallest_eigenvalue
from dualnewton.objective.unpenalised import NonNegativeUnpenalised, Unpenalised
from dualnewton.objective.unpenalised_rounding import FLOAT64, _in_features
from fake_device import on_device


@pytest.mark.parametrize("digits", [0, 3, 6, 8, 12, 17])
def test_the_smallest_eigenvalue_is_never_smaller_than_its_bound(digits):
    rng = np.random.default_rng(digits)
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    B = (Q * np.append(np.ones(5), 10.0**-digits)) @ Q.T
    scale = 1.0 / np.sqrt(np.diag(B))
    B = scale[:, None] * B * scale
    with mpmath.workdps(50):
        true = min(mpmath.eigsy(mpmath.matrix(np.tril(B) + np.tril(B, -1).T), eigvals_only=True))
    for order in ("C", "F"):
        found = smallest_eigenvalue(B.copy(order=order), 1e-15)
        assert found <= max(true, 0)
        assert (found > 0.0) == (digits <= 8)


def test_features_that_are_not_centred_are_proved_independent_by_one_factor(monkeypatch):
    from scipy.linalg import lapack

    made, own = [], lapack.dpotrf
    X = 1.0 + 0.5 * np.random.default_rng(0).standard_normal((200, 6))
    problem = Unpenalised(X, X[:, 0], losses.Squared(), fit_intercept=True)
    scaled = np.column_stack([X, np.ones(200)])
    scaled /= np.linalg.norm(scaled, axis=0)
    assert np.linalg.svd(scaled)[1][-1] ** 2 < 2.0**-4
    monkeypatch.setattr(lapack, "dpotrf", lambda *given, **options: made.append(1) or own(*given, **options))
    assert problem.independence is not None
    assert len(made) == 1


def test_sums_over_sparse_features_have_the_rounding_errors_of_their_entries():
    """Σ c_i α_i x_i is computed from α itself, not as a difference of two sums: γ of the nonzero entries bounds its error."""
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 2100), density=0.01, rng=rng, data_sampler=rng.standard_normal, format="csr")
    problem, alpha = Unpenalised(X, rng.standard_normal(300), losses.Squared()), rng.standard_normal(300)
    error = _in_features(problem, FLOAT64)
    assert error == FLOAT64.gamma(int(X.count_nonzero(axis=0).max()) + 8)
    dense = X.toarray()
    exactly = np.array([float(mpmath.fdot(dense[:, j], alpha)) for j in range(50)])
    found = problem.unit.data.transposed_times(alpha)[:50]
    norms = np.linalg.norm(dense[:, :50], axis=0) * np.linalg.norm(alpha)
    assert (np.abs(found - exactly) <= error * norms + 1e-300).all()


def drawn(loss, seed, n=40, d=4):
    """Rows with correlated features of different scales, and labels."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) + 3.0 * rng.standard_normal((n, 1))) * 10.0 ** rng.uniform(-2.0, 2.0, d)
    signal = X @ (rng.standard_normal(d) / np.abs(X).max(axis=0)) + rng.standard_normal(n)
    match type(loss).__name__:
        case "Logistic" | "SquaredHinge":
            y = np.where(signal + rng.standard_normal(n) > 0.0, 1.0, -1.0)
        case "Poisson" | "Gamma" | "Tweedie":
            y = rng.poisson(np.exp(np.clip(signal, -1.0, 2.0))) + 0.5
        case _:
            y = signal
    return X, y, rng.random(n) * (rng.random(n) < 0.8)


LOSSES = [
    losses.Squared(),
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.Huber(0.5),
    losses.Poisson(),
    losses.Gamma(),
    losses.Tweedie(1.4),
    losses.Quantile(0.3),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_without_a_penalty_no_point_in_50_digits_is_better_than_stated(loss, seed):
    X, y, c = drawn(loss, seed)
    problem = Unpenalised(
        sp.csr_array(X) if seed else X, y, loss, sample_weight=c if seed else None, fit_intercept=True
    )
    claim = exact.Objective(X, y, loss, None, 0.0, problem.sample_weight, None, True, exact.digits)
    result = dn.solve(problem, tol=1e-9, random_state=0)
    assert result.converged
    beside = problem.bounded(problem.certified_pair(result.w * (1.0 + 1e-7), result.intercept))
    for pair in (result, beside, problem.extended(beside)):
        found = pair.certificate
        assert found.rounding is not None
        assert found.rounding <= 1e-10 * abs(found.primal) + 0.01 * found.gap
        # Newton's method finds nothing better for a loss with kinks, but the excess is then zero, not negative.
        assert 0 <= excess_without_penalty(claim, pair) <= found.primal - found.dual + found.rounding


@pytest.mark.parametrize("lam", [0.0, 1e-3])
@pytest.mark.parametrize("intercept", [False, True])
def test_with_a_scale_no_point_in_50_digits_is_better_than_stated(lam, intercept):
    X, y, c = drawn(losses.Squared(), 3)
    problem = HuberScaleProblem(X, y, 1.35, lam, c, intercept)
    claim = exact.Objective(X, y, losses.Squared(), None, 0.0, c, None, intercept, exact.digits)
    result = dn.solve(problem, tol=1e-9, random_state=0)
    assert result.converged
    beside = problem.certified_pair(result.w * (1.0 + 1e-7), result.intercept)
    for pair in (problem.bounded(beside), problem.extended(beside)):
        found = pair.certificate
        assert found.rounding <= 1e-10 * found.primal
        assert 0 <= excess_with_scale(claim, problem, pair) <= found.primal - found.dual + found.rounding


def test_nonnegative_coefficients_without_a_penalty():
    X, y, _ = drawn(losses.Squared(), 5)
    model = dn.LinearRegression(positive=True).fit(X, y)
    kept = model.coef_ > 0.0
    assert 0 < kept.sum() < 4
    problem = NonNegativeUnpenalised(X, y, losses.Squared(), fit_intercept=True)
    pair = problem.bounded(problem.certified_pair(model.coef_, model.intercept_, model.dual_coef_))
    found = pair.certificate
    assert found.rounding == model.certificate_.rounding <= 1e-11 * found.primal
    # The best model with the same features may have negative coefficients in general; here it does not.
    claim = exact.Objective(X[:, kept], y, losses.Squared(), None, 0.0, None, None, True, exact.digits)
    assert (
        0 <= excess_without_penalty(claim, replace(pair, w=pair.w[kept])) <= found.primal - found.dual + found.rounding
    )


def test_zero_features_and_perfect_fits():
    X, y, _ = drawn(losses.Squared(), 0)
    assert dn.LinearRegression().fit(np.column_stack([X, 0.0 * X]), y).certificate_.rounding < 1e-10
    perfect = dn.LinearRegression().fit(X[:3], y[:3])  # α = 0 is orthogonal to everything
    assert perfect.certificate_.rounding < 1e-20
    assert perfect.certificate_.relative_gap == 0.0


def with_levels(X, seed):
    """Rows with dummy variables of all levels of two variables, a copy, a multiple and a constant."""
    levels = np.random.default_rng(seed).integers(0, 3, (2, len(X)))
    return np.column_stack([X, *np.eye(3)[levels], X[:, 0], -4.0 * X[:, 1], np.full(len(X), 0.3)])


@pytest.mark.parametrize(
    "loss", [losses.Squared(), losses.Logistic(), losses.Poisson()], ids=lambda x: type(x).__name__
)
def test_features_that_depend_exactly_on_others_have_a_bound(loss):
    X, y, c = drawn(loss, 8)
    X = with_levels(X[:, :2], 0)
    problem = Unpenalised(sp.csr_array(X), y, loss, sample_weight=c, fit_intercept=True)
    result = dn.solve(problem, tol=1e-9)
    claim = exact.Objective(X, y, loss, None, 0.0, c, None, True, exact.digits)
    beside = problem.certified_pair(result.w * (1.0 + 1e-7), result.intercept)
    for pair in (result, problem.bounded(beside), problem.extended(beside)):
        found = pair.certificate
        assert found.rounding <= 1e-10 * abs(found.primal) + 0.01 * found.gap
        assert excess_without_penalty(claim, pair) <= found.primal - found.dual + found.rounding


def test_relations_are_proved_on_every_row():
    X, y, _ = drawn(losses.Squared(), 0)
    integers = np.rint(10.0 * X / np.abs(X).max(axis=0))
    for row, change in ((7, 2.0**-8), (0, 1.0)):
        sums = integers[:, 0] + 3.0 * integers[:, 1]
        assert dn.LinearRegression().fit(np.column_stack([integers, sums]), y).certificate_.rounding < 1e-10
        sums[row] += change * 2.0**-40
        assert dn.LinearRegression().fit(np.column_stack([integers, sums]), y).certificate_.reach < np.inf
    third = X[:, 0] / 3.0  # not exactly
    assert dn.LinearRegression().fit(np.column_stack([X, third]), y).certificate_.reach < np.inf
    positive = dn.LinearRegression(positive=True).fit(
        np.column_stack([integers, sums]), y
    )  # each has its own constraint
    assert positive.certificate_.reach < np.inf


@pytest.mark.parametrize("name", ["squared", "logistic", "scale"])
@pytest.mark.parametrize("intercept", [False, True])
def test_features_that_depend_up_to_rounding_are_compared_with_models_within_reach(name, intercept):
    X, y, _ = drawn(losses.Squared(), 1, n=24, d=2)
    X = np.column_stack([X, X[:, 0] / 3.0 + X[:, 1] / 7.0])
    loss = losses.Logistic() if name == "logistic" else losses.Squared()
    y = np.sign(y - np.median(y) + 0.1) if name == "logistic" else y
    problem = (
        HuberScaleProblem(X, y, 1.35, 0.0, fit_intercept=intercept)
        if name == "scale"
        else Unpenalised(X, y, loss, fit_intercept=intercept)
    )
    claim = exact.Objective(X, y, loss, None, 0.0, None, None, intercept, exact.digits)
    excess = excess_with_scale if name == "scale" else excess_without_penalty
    given = (claim, problem) if name == "scale" else (claim,)
    result = dn.solve(problem, tol=1e-6)
    assert result.converged
    proved = [
        way(problem.certified_pair(result.w, result.intercept, **scale(result)))
        for way in (problem.bounded, problem.extended)
    ]
    for pair in (result, *proved):
        found = pair.certificate
        norms = np.linalg.norm(X, axis=0)
        assert 1000.0 * (norms @ np.abs(pair.w)) < found.reach < np.inf
        assert found.rounding <= 1e-9 * found.primal
        assert "among models with" in str(found)
        assert excess(*given, pair, found.reach) <= found.primal - found.dual + found.rounding
    # A direction of rounding errors is one more feature: models with coefficients of 10¹⁶ are better by a fraction of P that no
    # bound over all models can hide.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(around, "RIDGE", "1e-42")
        assert excess(*given, result) > 1e-4 * result.certificate.primal


def scale(result):
    """The scale of a result as an argument, if it has one."""
    return {} if result.scale is None else {"scale": result.scale}


def test_nearly_dependent_features_are_proved_independent_by_a_factor():
    X, y, c = drawn(losses.Squared(), 2)
    for digits in (6, 9, 11):  # correlations of 1 − 10^−12 and more: the Gram matrix is singular to rounding
        near = np.column_stack([X, X[:, 0] + 10.0**-digits * np.abs(X[:, 0]).max() * X[:, 1] / np.abs(X[:, 1]).max()])
        near[:, 4] += 10.0**-digits * np.abs(X[:, 0]).max() * np.random.default_rng(digits).standard_normal(40)
        problem = Unpenalised(near, y, losses.Squared(), sample_weight=c, fit_intercept=True)
        model = dn.LinearRegression().fit(near, y, c)
        found = model.certificate_
        claim = exact.Objective(near, y, losses.Squared(), None, 0.0, c, None, True, exact.digits)
        pair = problem.certified_pair(model.coef_, model.intercept_, model.dual_coef_)
        assert found.reach == np.inf
        assert found.bound <= 1e-6 * found.primal
        for way in (problem.bounded, problem.extended):
            proof = way(pair).certificate
            assert proof.reach == np.inf
            assert excess_without_penalty(claim, pair) <= proof.primal - proof.dual + proof.rounding


@pytest.mark.parametrize("intercept", [False, True])
def test_several_outputs_share_a_proof_of_independence(intercept):
    X, y, c = drawn(losses.Squared(), 1)
    Y = np.column_stack([y, y[::-1]])
    outputs = Unpenalised(X, Y, losses.SquaredOutputs(2), sample_weight=c, fit_intercept=intercept)
    result = dn.solve(outputs, tol=1e-9)
    found = outputs.bounded(outputs.certified_pair(result.w, result.intercept)).certificate
    assert found.reach == np.inf
    assert 0.0 < found.rounding <= 1e-10 * found.primal
    for k in range(2):  # the optimum is the sum of those of the outputs
        claim = exact.Objective(X, Y[:, k], losses.Squared(), None, 0.0, c, None, intercept, exact.digits)
        one = replace(result, w=result.w[k], intercept=result.intercept[k] if intercept else 0.0)
        assert excess_without_penalty(claim, one) <= found.primal - found.dual + found.rounding


@pytest.mark.parametrize("seed", [0, 1])
def test_softmax_without_a_penalty_has_a_bound_in_50_digits(seed):
    X, _, c = drawn(losses.Squared(), seed, n=20, d=2)
    rng = np.random.default_rng(seed)
    y, offset, loss = rng.integers(0, 3, 20).astype(float), rng.standard_normal((20, 3)), losses.Softmax(3)
    problem = Unpenalised(X, y, loss, sample_weight=c, offset=offset, fit_intercept=bool(seed))
    claim = exact.Objective(X, y, loss, None, 0.0, c, offset, bool(seed), exact.digits)
    result = dn.solve(problem, tol=1e-9)
    beside = problem.certified_pair(result.w * (1.0 + 1e-7), result.intercept)
    for pair in (result, problem.bounded(beside), problem.extended(beside)):
        found = pair.certificate
        assert found.rounding <= 1e-10 * found.primal
        assert 0 <= excess_without_penalty(claim, pair) <= found.primal - found.dual + found.rounding


def posed(X, name):
    """A problem without a penalty, or with Huber's scale."""
    rng = np.random.default_rng(5)
    signal, c = rng.standard_normal(60), rng.random(60)
    given = {"sample_weight": c, "fit_intercept": True}
    match name:
        case "scale":
            return HuberScaleProblem(X, signal, 1.35, 0.0, **given)
        case "softmax":
            return Unpenalised(X, np.arange(60) % 3, losses.Softmax(3), **given)
        case "logistic":
            return Unpenalised(X, np.sign(signal), losses.Logistic(), **given)
    return Unpenalised(X, signal, losses.Squared(), **given)


def same_bounds(name, place):
    """The bounds of one certificate with the rows in memory and at another place, whose values differ by rounding."""
    X = np.random.default_rng(4).standard_normal((60, 3))
    here, there = posed(X, name), posed(place(X), name)
    result = dn.solve(here, tol=1e-9)
    more = {} if result.scale is None else {"scale": result.scale}
    bounds = [each.bounded(each.certified_pair(result.w, result.intercept, **more)) for each in (here, there)]
    assert bounds[0].certificate.rounding > 0.0
    assert bounds[1].certificate.rounding == pytest.approx(bounds[0].certificate.rounding, rel=0.1)


@pytest.mark.parametrize("name", ["squared", "logistic", "softmax", "scale"])
def test_rows_on_a_device_have_the_same_bounds(name):
    same_bounds(name, on_device)


@pytest.mark.parametrize("name", ["softmax", "scale"])
def test_rows_on_a_cluster_have_the_same_bounds(name, cluster):
    import dask.array as da

    same_bounds(name, lambda X: da.from_array(X, chunks=(25, 3)))


def test_a_few_rows_prove_independence(monkeypatch):
    # With 2000 features the sum over all rows would take longer than a time limit allows.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 3))
    problem = Unpenalised(X, np.sign(X[:, 0] + rng.standard_normal(5000)), losses.Logistic())
    pair, sizes = problem.certified_pair(dn.solve(problem, tol=1e-9).w), []
    gram = type(problem.data).weighted_gram
    monkeypatch.setattr(
        type(problem.data),
        "weighted_gram",
        lambda self, weights, *rest, **more: sizes.append(len(weights)) or gram(self, weights, *rest, **more),
    )
    assert problem.bounded(pair).certificate.rounding < 1e-9
    assert len(sizes) == 1
    assert sizes[0] <= 2 * 4 + 128


def test_moments_of_huge_features_do_not_overflow():
    X = np.array([[1.0, 1.0], [2.0, 2.0]])
    view = Unpenalised(X, np.zeros(2), losses.Squared(), fit_intercept=True).view
    H = np.outer([1e150, 1e150, 1e60], [1e150, 1e150, 1e60])  # of rank one; the squares of its last column overflow
    assert np.isfinite(view.inverse(H)(np.ones((1, 3)))).all()


def test_least_squares_with_little_noise_converges_by_extended_precision():
    X, _, _ = drawn(losses.Squared(), 0)
    y = X.sum(axis=1) + 1e-7 * np.random.default_rng(0).standard_normal(40)
    model = dn.LinearRegression(tol=1e-6).fit(X, y)
    problem = Unpenalised(X, y, losses.Squared(), fit_intercept=True)
    certificate = model.certificate_
    assert problem.certify(model.coef_, model.intercept_, model.dual_coef_).rounding > 1e-6 * certificate.primal
    assert certificate.bound <= 1e-6 * certificate.primal
    assert dn.certify(model, X, y, exact=True).bound <= 1e-6 * certificate.primal


def test_a_model_whose_losses_overflow_is_certified_as_far_from_the_optimum():
    X, y, _ = drawn(losses.Poisson(), 0)
    problem = Unpenalised(X, y, losses.Poisson())
    certificate = problem.certify(1e160 * np.ones(4))
    assert certificate.gap > 1e300


def test_an_inverse_factor_beyond_float64_proves_nothing():
    X = np.eye(30, k=1) + 1e-16 * np.eye(30)  # R = X, and an entry of R⁻¹ is 1e480
    problem = dn.Problem(X, np.ones(30), losses.Squared(), lam=1.0)
    with np.errstate(all="raise"):
        assert _factored(problem, np.arange(30), np.ones(30), ...) is None


@pytest.mark.parametrize("kind", [dn.QuantileRegressor, dn.HuberRegressor])
@pytest.mark.parametrize("shape", [(10, 2), (100, 3), (50, 100)])
@pytest.mark.parametrize("shift", [0.3, 1e3])
def test_targets_without_errors_are_fitted_without_a_warning(kind, shape, shift):
    """Residuals are rounding, and so is P, of which no gap is a small fraction."""
    X = np.random.default_rng(0).standard_normal(shape)
    y = X @ np.linspace(0.1, 3.3, shape[1]) + shift
    model = kind(alpha=0.0).fit(X, y)
    np.testing.assert_allclose(model.predict(X), y, rtol=1e-10, atol=1e-10 * shift)
    assert model.certificate_.primal == 0.0
    assert 0.0 < model.certificate_.rounding <= 1e-9 * np.abs(y).max()  # what counts as zero is part of the bound
    noise = (
        1e-9 * max(1.0, shift) * np.random.default_rng(1).standard_normal(shape[0])
    )  # a million roundings of a target
    noisy = kind(alpha=0.0).fit(X[:, :2], y + noise)
    assert noisy.certificate_.primal > 0.0


def test_a_kinked_loss_that_is_not_zero_at_its_label_has_no_value_that_counts_as_zero():
    y = np.array([1.0, -1.0, 1.0])
    assert Unpenalised(np.eye(3), y, losses.Hinge()).view.zero == pytest.approx(1e-13, rel=1e-2)
    assert Unpenalised(np.eye(3), y, losses.EpsilonInsensitive(0.1)).view.zero == 0.0
    assert Unpenalised(np.eye(3), y, losses.Logistic()).view.zero == -np.inf


@pytest.mark.parametrize("size", [6, COPIED, COPIED + 6])
def test_attempts_at_an_eigenvalue_leave_the_matrix_as_it_was(size):
    """The bound is that of the first shift below the smallest eigenvalue, however many larger ones failed before."""
    B = np.eye(size) - (1.0 - 2.0**-18) / size
    found = smallest_eigenvalue(B, 0.0)
    assert 0.99 * 2.0**-20 <= found <= 2.0**-20
