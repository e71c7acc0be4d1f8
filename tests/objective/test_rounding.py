"""Bounds of rounding errors: in 50-digit arithmetic, P(w, b) − P* never exceeds what a certificate states."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.losses.rounding import Roundoff
from dualnewton.objective import extended
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.rounding import rounding_bound
from fake_device import on_device

mp = mpmath.mp.clone()
mp.dps = 50


# P and D in 50 digits --------------------------------------------------------------------------------------------------


def value(loss, z, y):
    """φ(z; y) of one example, from its definition."""
    name = type(loss).__name__
    if name == "Softmax":
        return mp.log(sum(mp.exp(each) for each in z)) - z[int(y)]
    if name == "SquaredOutputs":
        return sum((a - b) ** 2 for a, b in zip(z, map(mp.mpf, y), strict=True)) / 2
    z, y = z[0], mp.mpf(float(y))
    r = z - y
    match name:
        case "Squared":
            return r**2 / 2
        case "Logistic":
            return mp.log(1 + mp.exp(-y * z))
        case "SquaredHinge":
            return max(1 - y * z, mp.mpf(0)) ** 2 / 2
        case "Hinge":
            return max(1 - y * z, mp.mpf(0))
        case "EpsilonInsensitive":
            return max(abs(r) - mp.mpf(loss.epsilon), mp.mpf(0))
        case "Quantile":
            return max(-mp.mpf(loss.q) * r, (1 - mp.mpf(loss.q)) * r)
        case "Huber":
            delta = mp.mpf(loss.delta)
            return r**2 / 2 if abs(r) <= delta else delta * (abs(r) - delta / 2)
        case "Poisson":
            return mp.exp(z) - y * z
        case "Gamma":
            return z + y * mp.exp(-z)
        case "Tweedie":
            p = mp.mpf(loss.power)
            return mp.exp((2 - p) * z) / (2 - p) + y * mp.exp((1 - p) * z) / (p - 1)
    raise AssertionError(name)


def penalty(g, W):
    """g(w) from its definition."""
    name = type(g).__name__
    l1 = sum(abs(x) for row in W for x in row)
    l2 = sum(x**2 for row in W for x in row) / 2
    return {"L2": l2, "NonNegative": l2, "Box": l2, "L1": l1}[name] if name != "ElasticNet" else l2 + mp.mpf(g.l1) * l1


def exact_primal(problem, w, b):
    """P(w, b) in 50 digits."""
    X = problem.X.toarray() if sp.issparse(problem.X) else np.asarray(problem.X)
    W = [[mp.mpf(float(x)) for x in row] for row in np.atleast_2d(w)]
    b = [mp.mpf(float(x)) for x in np.atleast_1d(b)]
    offsets = problem.o.reshape(problem.n, -1)
    total = mp.mpf(0)
    for i in range(problem.n):
        row = [mp.mpf(float(x)) for x in X[i]]
        z = [
            sum(x * a for x, a in zip(row, own, strict=True)) + at + mp.mpf(float(o))
            for own, at, o in zip(W, b, offsets[i], strict=True)
        ]
        total += mp.mpf(float(problem.c[i])) * value(problem.loss, z, problem.y[i])
    return total / problem.n + mp.mpf(problem.lam) * penalty(problem.regularizer, W)


# Problems ----------------------------------------------------------------------------------------------------------------

LOSSES = [
    losses.Squared(),
    losses.Logistic(),
    losses.SquaredHinge(),
    losses.Huber(0.5),
    losses.Hinge(),
    losses.EpsilonInsensitive(0.1),
    losses.Quantile(0.3),
    losses.Poisson(),
    losses.Gamma(),
    losses.Tweedie(1.4),
    losses.Softmax(3),
    losses.SquaredOutputs(2),
]
PENALTIES = [regularizers.L2(), regularizers.ElasticNet(0.3), regularizers.L1(), regularizers.NonNegative()]


def random_problem(loss, g, seed):
    """A small problem of any scale, with or without weights, offsets and an intercept, dense or sparse, float32 or float64."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(2, 13)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-3.0, 3.0, d) ** rng.integers(0, 2)
    if rng.random() < 0.3:
        X += 10.0 ** rng.uniform(0.0, 5.0)  # margins that cancel
    X = X.astype(rng.choice([np.float32, np.float64]))
    signal = X @ (rng.standard_normal(d) / (1e-300 + np.abs(X).max()))
    numbers = signal + 10.0 ** rng.uniform(-3.0, 2.0) * rng.standard_normal(n)
    match type(loss).__name__:
        case "Softmax":
            y = rng.integers(0, 3, n)
        case "SquaredOutputs":
            y = np.column_stack([numbers, numbers[::-1]])
        case "Logistic" | "SquaredHinge" | "Hinge":
            y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
        case "Poisson" | "Tweedie":
            y = rng.poisson(2.0, n).astype(float)
        case "Gamma":
            y = rng.gamma(2.0, 1.0, n) + 1e-3
        case _:
            y = numbers
    shape = n if loss.columns == 1 else (n, loss.columns)
    weights = rng.choice([0.0, 0.5, 2.0, 1e3], n) + 1e-9 * (rng.random() < 0.5) if rng.random() < 0.4 else None
    return dn.Problem(
        sp.csr_array(X) if rng.random() < 0.3 else X,
        y,
        loss,
        regularizer=g,
        lam=10.0 ** rng.uniform(-5.0, 1.0),
        sample_weight=None if weights is None or not weights.any() else weights,
        offset=rng.standard_normal(shape) if rng.random() < 0.3 else None,
        fit_intercept=bool(rng.random() < 0.5),
    )


def true_optimum(problem, fits):
    """The smallest known P, in 50 digits: an upper bound of P*."""
    return min(exact_primal(problem, fit.w, fit.intercept) for fit in fits)


@pytest.mark.parametrize("g", PENALTIES, ids=lambda g: type(g).__name__)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_the_true_suboptimality_never_exceeds_the_bound(loss, g):
    # Two fits of different quality: the suboptimality of the worse, against the better, is at most its bound; and the true P of
    # each differs from the stated one by at most the rounding errors.
    if type(loss).__name__ == "SquaredOutputs" and not g.form.is_quadratic:
        pytest.skip("each output is a problem of its own")
    for seed in range(4):
        problem = random_problem(loss, g, seed)
        rough = dn.solve(problem, tol=1e-3, max_epochs=30, random_state=0)
        fine = dn.solve(problem, tol=1e-13, max_epochs=300, random_state=0)
        lowest = true_optimum(problem, [rough, fine])
        for fit in (rough, fine):
            for exact in (False, True):
                certificate = problem.certify(fit.w, fit.intercept, fit.alpha, exact=exact)
                true = exact_primal(problem, fit.w, fit.intercept)
                rounding = certificate.rounding
                if rounding == math.inf:
                    continue
                assert abs(true - mp.mpf(certificate.primal)) <= rounding
                assert true - lowest <= mp.mpf(certificate.primal) - mp.mpf(certificate.dual) + rounding
        if fine.converged:
            assert fine.certificate.bound <= 1e-13 * abs(fine.certificate.primal)


def test_the_bound_holds_for_the_dual_value_itself():
    # Ridge without an intercept: D(α) = −(1/n) Σ (α²/2 − αy) − (λ/2)‖ᾱ‖² in 50 digits.
    for seed in range(40):
        rng = np.random.default_rng(seed)
        n, d = 9, 4
        X, y = rng.standard_normal((n, d)) + 10.0 ** rng.uniform(0, 6), rng.standard_normal(n)
        lam, alpha, w = 10.0 ** rng.uniform(-6, 0), rng.standard_normal(n), rng.standard_normal(d)
        problem = dn.Problem(X, y, losses.Squared(), lam=lam)
        primal, dual = problem.primal(w), problem.dual(alpha)
        bound = rounding_bound(problem, w, 0.0, alpha, primal, dual)
        a = [mp.mpf(float(each)) for each in alpha]
        bar = [sum(a[i] * mp.mpf(float(X[i, j])) for i in range(n)) / (mp.mpf(lam) * n) for j in range(d)]
        conjugates = sum(a[i] ** 2 / 2 - a[i] * mp.mpf(float(y[i])) for i in range(n))
        true = -conjugates / n - mp.mpf(lam) / 2 * sum(each**2 for each in bar)
        gap = exact_primal(problem, w, 0.0) - true
        assert abs(gap - (mp.mpf(primal) - mp.mpf(dual))) <= bound


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_sums_that_are_not_zero_count_with_large_offsets(sign):
    # D of a point with Σ α_i = nε instead of 0 exceeds P* by εb.
    rng = np.random.default_rng(0)
    y, offset = rng.standard_normal(20), 1e6 + rng.standard_normal(20)
    problem = dn.Problem(np.zeros((20, 1)), y, losses.Squared(), offset=offset, lam=1.0, fit_intercept=True)
    b, w = problem.best_intercept(np.zeros(1)), np.zeros(1)
    alpha = y - offset - b
    alpha += sign * 0.9e-12 * np.abs(alpha).mean() - alpha.mean()
    primal, dual, conjugates = problem.primal(w, b), problem.dual(alpha), np.abs(alpha * (0.5 * alpha - y)).sum()
    rounding = rounding_bound(problem, w, b, alpha, primal, dual, conjugates=float(conjugates))
    residuals = [mp.mpf(float(t)) - mp.mpf(float(o)) for t, o in zip(y, offset, strict=True)]
    lowest = sum((t - sum(residuals) / 20) ** 2 for t in residuals) / 40
    assert dual > -mp.inf
    assert dual - rounding <= lowest


def test_margins_that_cancel_are_told_by_the_bound():
    # |x||w| is 1e16 times |z|: P is nothing but rounding errors, which the bound covers and a plain gap would not.
    X = np.array([[1e8, -1e8], [1e8, -1e8 + 1.0]])
    w = np.array([1e8, 1e8])
    problem = dn.Problem(X, np.array([1.0, -1.0]), losses.Hinge(), lam=1e-20)
    certificate = problem.certify(w)
    true = exact_primal(problem, w, 0.0)
    assert certificate.rounding > 0.1
    assert abs(true - mp.mpf(certificate.primal)) <= certificate.rounding
    assert problem.certify(w, exact=True).rounding < 1e-2 * certificate.rounding


# What the library says -----------------------------------------------------------------------------------------------------


def test_convergence_counts_rounding_errors():
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.ones(60)
    y[::2] = -1.0
    problem = dn.Problem(X, y, losses.Logistic(), lam=0.01, fit_intercept=True)
    result = dn.solve(problem, tol=1e-6)
    assert result.converged
    assert 0.0 < result.certificate.rounding < 1e-9
    assert result.certificate.bound == result.certificate.gap + result.certificate.rounding
    assert "rounding errors" in str(result.certificate)


def test_a_tolerance_below_rounding_ends_with_a_status_that_says_so():
    # Features with an offset of 1e9 in units of their spread, and almost no penalty.
    rng = np.random.default_rng(0)
    X = 1e9 + rng.standard_normal((50, 3))
    y = np.where(rng.random(50) < 0.5, -1.0, 1.0)
    result = dn.solve(dn.Problem(X, y, losses.Hinge(), lam=1e-22), tol=1e-9, max_epochs=50)
    assert not result.converged
    assert result.certificate.rounding > 1e-9 * abs(result.certificate.primal)


def test_extended_precision_proves_a_tolerance_that_float64_does_not():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 3)) + 1e4
    y = X @ np.ones(3) / 1e4 + rng.standard_normal(40)
    problem = dn.Problem(X, y, losses.Squared(), lam=1e-3, fit_intercept=True)
    result = dn.solve(problem, tol=1e-12)
    ordinary = problem.bounded(CertifiedPair(result.w, result.intercept, result.alpha, dn.Certificate(1.0, 1.0)))
    assert result.converged
    assert result.certificate.rounding < 1e-12 * result.certificate.primal < ordinary.certificate.rounding


@pytest.mark.parametrize("loss", [losses.Quantile(0.1), losses.Gamma(), losses.Tweedie(1.2634), losses.Poisson()])
def test_a_loss_in_extended_precision_has_its_parameters_and_labels_in_it(loss):
    # 1 − q and log y, computed in float64, would have errors of 2⁻⁵³.
    rng = np.random.default_rng(2)
    problem = dn.Problem(np.ones((50, 1)), rng.gamma(2.0, 10.0, 50), loss)
    z = rng.uniform(-4.0, 40.0, 50)
    found = extended.precise(loss).value(z.astype(np.longdouble), extended.labels(problem))
    for x, one, y in zip(found, z, problem.y, strict=True):
        true = value(loss, [mp.mpf(float(one))], y)
        terms = abs(true) + (1 + mp.mpf(float(y))) * abs(mp.mpf(float(one)))
        high = float(x)  # two numbers of float64 hold one of 80 bits
        assert abs(mp.mpf(high) + mp.mpf(float(x - high)) - true) <= 32.0 * extended.UNIT * terms


def test_a_certificate_of_a_model_that_overflows_does_not_warn():
    X = np.random.default_rng(0).standard_normal((20, 2))
    certificate = dn.Problem(X, np.arange(20.0), losses.Poisson(), lam=1e-7).certify(np.array([1e3, -1e3]))
    assert certificate.primal > 1e300


def test_sums_over_classes_add_their_rounding_errors():
    parts = dn.Certificate(1.0, 0.9, rounding=1e-10), dn.Certificate(2.0, 1.9, rounding=2e-10)
    assert dn.Certificate.of_parts(parts).rounding == pytest.approx(3e-10)
    assert dn.Certificate.of_parts((*parts, dn.Certificate(1.0, 1.0))).rounding is None
    assert not dn.Certificate(1.0, 1.0, rounding=1e-3).meets(1e-4)
    assert dn.Certificate(0.0, 0.0, rounding=0.0).meets(0.0)


def test_a_users_loss_need_not_be_nonnegative():
    class Lower(losses.Squared):
        """½(z − y)² − 5, whose infimum is negative; a parent's declaration that φ ≥ 0 is not inherited."""

        def value(self, z, y):
            return 0.5 * (z - y) ** 2 - 5.0

        def conjugate_inside(self, u, y):
            return u * (0.5 * u + y) + 5.0

    loss = Lower()
    assert not loss.nonnegative
    assert loss.shortfall(np.zeros(3), None) == 15.0
    X = np.random.default_rng(0).standard_normal((20, 2))
    certificate = dn.solve(dn.Problem(X, X[:, 0], loss, lam=0.1)).certificate
    assert 0.0 < certificate.rounding < 1e-10


def test_a_loss_without_a_bound_has_no_bound_and_still_converges():
    class Counts(losses.Loss):
        """exp(z) − yz, declared without γ."""

        def value(self, z, y):
            return np.exp(np.minimum(z, 700.0)) - y * z

        def derivative(self, z, y):
            return np.exp(np.minimum(z, 700.0)) - y

        def second_derivative(self, z, y):
            return np.exp(np.minimum(z, 700.0)) + 0.0 * y

        def conjugate_inside(self, u, y):
            v = u + y
            return v * np.log(v + (v == 0.0)) - v

        def domain(self, y):
            return -y, 0.0 * y + np.inf

    X = np.random.default_rng(0).standard_normal((20, 2))
    result = dn.solve(dn.Problem(X, np.arange(20.0) % 4, Counts(), lam=0.1))
    assert result.converged
    assert result.certificate.rounding is None


# Rows elsewhere --------------------------------------------------------------------------------------------------------------

ELSEWHERE = [losses.Logistic(), losses.Quantile(0.3), losses.Gamma(), losses.Softmax(3), losses.SquaredOutputs(2)]


def same_bounds(loss, place):
    """The bounds of one certificate with the rows in memory and at another place, whose values differ by rounding."""
    rng = np.random.default_rng(5)
    X, c, shape = rng.standard_normal((60, 3)), rng.random(60), (60, loss.columns)[: 1 + (loss.columns > 1)]
    y = {"Softmax": rng.integers(0, 3, 60), "SquaredOutputs": rng.standard_normal(shape)}.get(type(loss).__name__)
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0) if y is None else y
    y = np.abs(y) if type(loss).__name__ == "Gamma" else y
    given = {"lam": 0.1, "sample_weight": c, "offset": rng.standard_normal(shape), "fit_intercept": True}
    w, b = 0.1 * rng.standard_normal((*shape[1:], 3)), np.full(shape[1:], 0.2)
    here, there = (dn.Problem(each, y, loss, **given).certify(w, b[()]) for each in (X, place(X)))
    assert here.rounding > 0.0
    assert [there.primal, there.dual] == pytest.approx([here.primal, here.dual], rel=1e-12)
    assert there.rounding == pytest.approx(here.rounding, rel=1e-3)


@pytest.mark.parametrize("loss", ELSEWHERE, ids=lambda loss: type(loss).__name__)
def test_certificates_on_a_device_have_the_same_bound(loss):
    same_bounds(loss, on_device)


def test_certificates_on_a_cluster_have_the_same_bound(cluster):
    import dask.array as da

    same_bounds(losses.Softmax(3), lambda X: da.from_array(X, chunks=(30, 3)))


def test_a_tolerance_below_rounding_is_told_where_there_is_no_extended_precision():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((40, 3)) + 1e4
    y = X @ np.ones(3) / 1e4 + rng.standard_normal(40)
    problem = dn.Problem(on_device(X), y, losses.Squared(), lam=1e-3, fit_intercept=True)
    assert dn.solve(problem, tol=1e-6).converged
    assert dn.solve(problem, tol=1e-12, max_epochs=50).status is dn.Status.ROUNDING


def many_rows():
    """Dense rows that are added part by part, and a point of the dual that no method has found."""
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((1 << 16, 33)), np.where(rng.random(1 << 16) < 0.4, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-7, fit_intercept=True)
    return problem, problem.certified_pair(0.1 * rng.standard_normal(33))


def test_sums_of_parts_have_smaller_errors_which_the_bound_covers():
    problem, pair = many_rows()
    found, point = pair.certificate, (pair.w, pair.intercept, pair.alpha)
    bound = problem.bounded(pair).certificate.rounding
    plain = rounding_bound(problem, *point, found.primal, found.dual, roundoff=Roundoff(in_parts=False))
    exact = problem.extended(pair).certificate
    assert problem.data.additions < problem.n / 8
    assert abs((found.primal - found.dual) - (exact.primal - exact.dual)) <= bound < plain / 2.0


def test_a_smaller_gap_is_tried_before_extended_precision(monkeypatch):
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((400, 5)), np.where(rng.random(400) < 0.5, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-2)
    given = {"method": "sdna", "tau": 1, "random_state": 0, "certify_every": 1}
    first = dn.solve(problem, tol=1e-6, **given)
    found = first.certificate
    errors = problem.certify(
        first.w, alpha=first.alpha
    ).rounding  # sharp: those of the run are found by another formula
    tol = (found.gap + 0.5 * errors) / found.primal  # met by the gap, and not by the gap with its errors

    def refused(self, pair):
        raise AssertionError("extended precision")

    monkeypatch.setattr(dn.Problem, "extended", refused)
    result = dn.solve(problem, tol=tol, **given)
    assert result.converged
    assert result.certificate.gap < found.gap


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_bounds_by_the_values_of_the_conjugates_hold(loss):
    """Σ c_i |φ*(−α_i)| is computed where a bound of it by the losses at z = 0 is too large for the tolerance."""
    for seed in range(12):
        problem = random_problem(loss, regularizers.L2(), seed)
        fits = [dn.solve(problem, tol=tol, max_epochs=300, random_state=0) for tol in (1e-12, 1e-6)]
        best = true_optimum(problem, fits)
        for fit in fits:
            pair = fit.w, fit.intercept, fit.alpha
            found = problem.certify(*pair)
            plain, sharp = (
                rounding_bound(problem, *pair, found.primal, found.dual, enough=enough)
                for enough in (-math.inf, 1e-300)
            )
            if plain is None:
                assert sharp is None
                continue
            assert sharp <= plain
            true = exact_primal(problem, fit.w, fit.intercept)
            assert true - best <= mp.mpf(found.primal) - mp.mpf(found.dual) + mp.mpf(sharp)


def test_losses_far_below_those_at_zero_need_no_extended_precision(monkeypatch):
    """Ridge regression of few rows and features of large scales fits its targets: P is 1e-8 of the losses at z = 0."""
    monkeypatch.setattr(extended, "extended_pair", lambda *_: pytest.fail("extended precision"))
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((200, 2000)) + rng.standard_normal(2000)) * 10.0 ** rng.uniform(-3.0, 3.0, 2000)
    Y = rng.standard_normal((200, 3)) + 3.0
    for y in (Y[:, 0], Y):
        model = dn.Ridge(alpha=0.01, tol=1e-6).fit(X, y)
        for certificate in model.certificate_ if y.ndim > 1 else [model.certificate_]:
            assert certificate.primal < 1e-9
            assert certificate.meets(1e-6)
