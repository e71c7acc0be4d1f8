"""The minimiser lies in the ellipsoid or ball that is proved to contain it, and the bounds are sharp near it."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective.distance import Rotation, Sample, ball, region, spread_by_rows, spread_per_root_gap
from tables import LOSSES, WITHOUT_GAMMA, name_of

DECLARED = [loss for loss in [*LOSSES, losses.Softmax(3), *WITHOUT_GAMMA] if loss.self_concordance is not None]
PENALTIES = [
    regularizers.L2(),
    regularizers.L2(np.array([1.0, 3.0, 1.0, 2.0])),
    regularizers.ElasticNet(0.5),
    regularizers.ElasticNet(0.5, positive=True),
    regularizers.L1(),
    regularizers.NonNegative(),
    regularizers.Box(-0.1, 0.2),
]
FORMS = [{}, {"weights": True, "offset": True}, {"fit_intercept": True, "weights": True}]


def posed(loss, *, n=80, d=4, seed=0, lam=0.02, sparse=False, weights=False, offset=False, **options):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.5, 3.0, d) + 0.3
    z = X @ rng.standard_normal(d) + rng.standard_normal(n)
    y = np.digitize(z, np.quantile(z, [1 / 3, 2 / 3])) if loss.columns > 1 else z
    if isinstance(loss, losses.Logistic):
        y = np.where(z > 0.0, 1.0, -1.0)
    elif loss in WITHOUT_GAMMA:
        y = np.exp(0.3 * z)
    if weights:
        options["sample_weight"] = rng.integers(0, 3, n).astype(float)
    if offset:
        options["offset"] = 0.3 * rng.standard_normal(n if loss.columns == 1 else (n, loss.columns))
    return dn.Problem(sp.csr_array(X) if sparse else X, y, loss, lam=lam, **options)


def difference(problem, w, b, exact):
    """x − x* in the order of the region's coordinates; intercepts of several classes are compared up to their sum."""
    shift = np.asarray(b - exact.intercept)
    rows = np.atleast_2d(w - exact.w)
    if not problem.fit_intercept:
        return rows.ravel()
    return np.column_stack([rows, np.atleast_1d(shift - (shift.mean() if problem.columns > 1 else 0.0))]).ravel()


def change(problem, w, b, exact, rows):
    """√(mean of the squared changes of margins), of several classes up to a constant for each row."""
    Z = problem.margins(w, b)[rows] - problem.margins(exact.w, exact.intercept)[rows]
    if problem.columns > 1:
        Z = Z - Z.mean(axis=1, keepdims=True)
    return np.sqrt(np.mean(np.sum(Z.reshape(len(Z), -1) ** 2, axis=1)))


@pytest.mark.parametrize("loss", DECLARED, ids=name_of)
def test_declared_self_concordance_holds(loss):
    """|φ‴| ≤ Mφ″, along random directions for several columns."""
    rng = np.random.default_rng(0)
    K, h = loss.columns, 1e-5
    z = 4.0 * rng.standard_normal((400, K)) if K > 1 else 4.0 * rng.standard_normal(400)
    t = rng.standard_normal(z.shape)
    y = (
        rng.integers(0, K, 400)
        if K > 1
        else np.where(rng.random(400) < 0.5, 1.0, 1.0 if loss in WITHOUT_GAMMA else -1.0)
    )

    def second(at):
        return np.sum((t * loss.curvature_times(at, y, t)).reshape(400, -1), axis=1)

    third = (second(z + h * t) - second(z - h * t)) / (2.0 * h)
    reach = np.ptp(t, axis=1) if K > 1 else np.abs(t)
    assert (np.abs(third) <= loss.self_concordance * reach * second(z) * (1.0 + 1e-6) + 1e-8).all()


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("penalty", PENALTIES, ids=name_of)
@pytest.mark.parametrize("loss", DECLARED, ids=name_of)
def test_the_region_contains_the_minimiser(loss, penalty, form):
    problem = posed(loss, regularizer=penalty, **form)
    exact = dn.solve(problem, tol=1e-14, max_epochs=5000)
    rng = np.random.default_rng(1)
    sample = Sample(problem.data, np.arange(0, problem.n, 3))
    if loss.columns > 1 and not penalty.strongly_convex:  # one vector may be added to all w_k: the losses do not change
        assert region(problem, exact.w, exact.intercept) is None
        return
    bounded = 0
    for size in (1e-6, 1e-3, 1e-2, 0.1):
        w = exact.w + size * rng.standard_normal(exact.w.shape)
        if not penalty.form.is_quadratic:  # zeros and bounds stay: away from them the subgradient is large
            kept = np.isin(exact.w, [0.0, penalty.form.lower, penalty.form.upper])
            w = np.where(kept | (np.abs(w - exact.w) > np.abs(exact.w)), exact.w, w)
            w = np.clip(w, penalty.form.lower, penalty.form.upper)
        b = exact.intercept + size * rng.standard_normal(np.shape(exact.intercept)) * problem.fit_intercept
        found = region(problem, w, b)
        if np.isfinite(found.radius):
            bounded += 1
            u = difference(problem, w, b, exact)
            assert np.linalg.norm(found.factor.T @ u) <= found.radius * (1.0 + 1e-6) + 1e-7
            assert change(problem, w, b, exact, sample.rows) <= found.spread(sample) * (1.0 + 1e-6) + 1e-7
    assert bounded >= 2


@pytest.mark.parametrize("loss", DECLARED, ids=name_of)
def test_the_bound_is_sharp_near_the_minimiser(loss):
    """For a quadratic penalty the radius tends to ‖x − x*‖_H itself."""
    problem = posed(loss, fit_intercept=True)
    exact = dn.solve(problem, tol=1e-14, max_epochs=5000)
    w = exact.w + 1e-4 * np.random.default_rng(0).standard_normal(exact.w.shape)
    found = region(problem, w, exact.intercept)
    actual = np.linalg.norm(found.factor.T @ difference(problem, w, exact.intercept, exact))
    assert actual <= found.radius <= 1.05 * actual


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.floats(-5.0, 0.0), wide=st.booleans(), logistic=st.booleans())
def test_predictions_of_the_minimiser_are_within_the_spread(seed, size, wide, logistic):
    loss = losses.Logistic() if logistic else losses.Squared()
    n, d = (12, 30) if wide else (60, 5)
    problem = posed(loss, n=n, d=d, seed=seed, lam=0.1, fit_intercept=True, sparse=seed % 2 == 0)
    exact = dn.solve(problem, tol=1e-14, max_epochs=5000)
    rng = np.random.default_rng(seed)
    w, b = exact.w + 10.0**size * rng.standard_normal(d), exact.intercept + 10.0**size * rng.standard_normal()
    rows = np.arange(0, n, 2)
    actual = change(problem, w, b, exact, rows)
    bounds = [region(problem, w, b).spread(Sample(problem.data, rows))]
    if wide:
        rotation = Rotation.of(problem.data)
        bounds.append(rotation.region(problem, w, b).spread(Sample(rotation.data, rows)))
        assert bounds[1] == pytest.approx(bounds[0], rel=0.5)  # the same region, but for the bound of an eigenvalue
    if not logistic:
        bounds.append(ball(problem, problem.certify(w, b)).spread(Sample(problem.data, rows)))
    assert all(actual <= bound * (1.0 + 1e-9) + 1e-9 for bound in bounds)


@pytest.mark.parametrize("intercept", [False, True])
def test_products_of_the_rows_give_the_bound_of_the_hessian(intercept):
    rng = np.random.default_rng(0)
    X, c, omega = rng.standard_normal((20, 35)) + 1.0, np.zeros(20), np.zeros(20)
    c[:14], omega[14:] = rng.random(14) + 0.1, rng.dirichlet(np.ones(6))
    rows, ridge = np.column_stack([X, np.ones(20)]), np.append(np.full(35, 0.3), 0.0)
    size = 35 + intercept
    grams = [(rows.T * weights) @ rows for weights in (c, omega)]
    expected = spread_per_root_gap(*(gram[:size, :size] for gram in grams), ridge[:size])
    found = spread_by_rows(X @ X.T, c, omega, 0.3, intercept=intercept)
    assert expected <= found <= (1.0 + 1e-6) * expected
    far = X + 1e6  # products of the rows lose the digits that matter
    assert spread_by_rows(far @ far.T, c, omega, 0.3, intercept=intercept) is None


@pytest.mark.parametrize("rank", [0, 1, 40, 400])
def test_the_largest_quotient_of_two_forms_is_bounded_from_above(rank):
    from scipy.linalg import eigh

    rng = np.random.default_rng(rank)
    A, B = rng.standard_normal((500, 150)) * 10.0 ** rng.uniform(-3, 3, 150), rng.standard_normal((rank, 150))
    gram, sample, ridge = A.T @ A, B.T @ B, np.full(150, 1e-3)
    found = spread_per_root_gap(gram, sample, ridge)
    exact = np.sqrt(2.0 * max(eigh(sample, gram + np.diag(ridge), eigvals_only=True)[-1], 0.0))
    assert exact * (1.0 - 1e-6) <= found <= 1.25 * exact + 1e-12


def test_a_singular_hessian_proves_nothing():
    """The Lasso with more features than rows has no unique minimiser."""
    problem = posed(losses.Squared(), n=10, d=30, regularizer=regularizers.L1())
    assert region(problem, np.zeros(30), 0.0) is None
    assert ball(problem, problem.certify(np.zeros(30))) is None


def test_losses_without_the_property_prove_nothing():
    problem = dn.Problem(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), losses.SquaredHinge())
    assert region(problem, np.zeros(4), 0.0) is None
