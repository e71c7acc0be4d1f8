"""The compiled engine where it is hard: certificates confirmed in fifty digits, any scale, empty rows, and Figure 1."""

import itertools

import mpmath
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, samplings
from dualnewton.objective.certificates import certify_duals
from dualnewton.run.result import Status
from dualnewton.solvers.dual.compiled import CompiledEngine
from tables import LOSSES, labels_for, load, make_problem, name_of
from tuned import tuned
from verified import assert_certificate_is_true

ALWAYS_COMPILED = tuned(small_entries=0)


# Confirmed from outside ------------------------------------------------------------------------------------------------


def exact_optimum(X, y, loss, lam, fit_intercept):
    """min P, by Newton's method in 50 digits."""
    with mpmath.workdps(50):
        n, d = X.shape
        rows = [[mpmath.mpf(float(x)) for x in row] + [mpmath.mpf(1)] * fit_intercept for row in X]
        y, lam = [mpmath.mpf(float(label)) for label in y], mpmath.mpf(float(lam))
        size = d + fit_intercept

        def parts(z, label):
            if isinstance(loss, losses.Squared):
                return (z - label) ** 2 / 2, z - label, mpmath.mpf(1)
            s = 1 / (1 + mpmath.exp(label * z))
            return mpmath.log1p(mpmath.exp(-label * z)), -label * s, s * (1 - s)

        def objective(w, order):
            g, H = mpmath.zeros(size, 1), mpmath.zeros(size)
            value = lam * sum(w[j] ** 2 for j in range(d)) / 2
            for j in range(d):
                g[j], H[j, j] = lam * w[j], lam
            for a, label in zip(rows, y, strict=True):
                phi, first, second = parts(sum(x * t for x, t in zip(a, w, strict=True)), label)
                value += phi / n
                for j in range(size if order else 0):
                    g[j] += first * a[j] / n
                    for k in range(size):
                        H[j, k] += second * a[j] * a[k] / n
            return value, g, H

        w = mpmath.zeros(size, 1)
        for _ in range(200):
            value, g, H = objective(w, 2)
            step = mpmath.lu_solve(H, -g)
            decrement = -sum(g[j] * step[j] for j in range(size))
            if decrement < mpmath.mpf(10) ** -40:
                return value
            t = mpmath.mpf(1)
            while objective(w + t * step, 0)[0] > value - t * decrement / 10:
                t /= 2
            w += t * step
        raise AssertionError("Newton's method did not converge")


def confirm(problem, certificate):
    """D ≤ min P ≤ P up to the rounding errors of the problem's evaluation."""
    X = problem.X.toarray() if sp.issparse(problem.X) else problem.X
    optimum = float(exact_optimum(X, problem.y, problem.loss, problem.lam, problem.fit_intercept))
    slack = 1e-13 * max(1.0, abs(certificate.primal))
    assert certificate.dual <= optimum + slack
    assert optimum <= certificate.primal + slack
    assert certificate.primal - optimum <= certificate.gap + slack


@settings(max_examples=30)
@given(
    loss=st.sampled_from([losses.Squared(), losses.Logistic()]),
    n=st.integers(4, 12),
    d=st.integers(1, 3),
    tau=st.integers(1, 4),
    lam=st.sampled_from([1e-4, 1e-2, 1.0, 100.0]),
    scale=st.sampled_from([0.01, 1.0, 20.0]),
    storage=st.sampled_from([np.asarray, sp.csr_array]),
    dtype=st.sampled_from([np.float64, np.float32]),
    method=st.sampled_from(["sdna", "sdca"]),
    fit_intercept=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_a_certificate_is_confirmed_by_newtons_method_in_fifty_digits(
    loss, n, d, tau, lam, scale, storage, dtype, method, fit_intercept, seed
):
    rng = np.random.default_rng(seed)
    X = storage((scale * rng.standard_normal((n, d))).astype(dtype))
    problem = dn.Problem(X, labels_for(loss, n, rng), loss, lam=lam, fit_intercept=fit_intercept)
    settings = {"tol": 1e-9, "max_epochs": 300, "random_state": seed, "tuning": ALWAYS_COMPILED}
    result = dn.solve(problem, method=method, tau=min(tau, d), **settings)
    assert result.plan.compiled
    assert result.converged == (result.certificate.relative_gap <= 1e-9)
    confirm(problem, result.certificate)


def test_the_confirmation_sees_a_certificate_that_promises_too_much():
    problem = make_problem(losses.Logistic(), n=10, d=2, lam=0.1)
    result = dn.solve(problem, tau=2, tol=1e-10, random_state=0, tuning=ALWAYS_COMPILED)
    confirm(problem, result.certificate)
    for off in (1e-9, -1e-9):
        wrong = dn.Certificate(result.certificate.primal + off, result.certificate.dual + off)
        with pytest.raises(AssertionError):
            confirm(problem, wrong)


# Hard inputs -----------------------------------------------------------------------------------------------------------


def assert_ends_well(problem, **settings):
    usual = {"tol": 1e-6, "max_epochs": 30, "random_state": 0, "tuning": ALWAYS_COMPILED}
    result = dn.solve(problem, **{**usual, **settings})
    assert result.plan.compiled
    assert np.isfinite(result.w).all()
    assert np.isfinite(result.alpha).all()
    assert_certificate_is_true(problem, result)
    assert result.converged == (result.certificate.relative_gap <= 1e-6)
    return result


@pytest.mark.parametrize(("loss", "lam", "tau"), all_pairs(LOSSES, [1e-12, 1e-6, 1.0, 1e6], [1, 8]))
def test_any_scale_ends_with_a_true_certificate(loss, lam, tau):
    """A covering design of the three factors: any two levels of any two of them meet."""
    rng = np.random.default_rng(0)
    for sparse in (False, True):
        base = make_problem(loss, n=40, d=9, sparse=sparse)
        for scale in (1e-8, 1.0, 1e8):
            assert_ends_well(dn.Problem(scale * base.X, base.y, loss, lam=lam), tau=tau)
        mixed = sp.diags_array(10.0 ** rng.uniform(-8, 8, 40)) @ base.X
        for method in ("sdna", "sdca"):
            problem = dn.Problem(mixed, base.y, loss, lam=lam, fit_intercept=sparse)
            assert_ends_well(problem, method=method, tau=tau)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("lam", [1e-12, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("tau", [1, 8])
def test_no_epoch_of_sdna_loses_dual_value_however_small_the_penalty(loss, lam, tau):
    problem = make_problem(loss, n=40, d=9, lam=lam)
    sampling = samplings.Shuffled(40, tau)
    engine = CompiledEngine([problem], sampling, [np.zeros(40)], separable_rounds=False)
    engine.models.tolerance[:] = 1e-13
    rng, value = np.random.default_rng(0), problem.dual(np.zeros(40))
    for _ in range(10):
        engine.run(sampling.draw(rng, sampling.rounds_per_epoch))
        before, value = value, problem.dual(engine.alpha(0))
        assert value >= before - 1e-10 * max(1.0, abs(before))
    assert value > problem.dual(np.zeros(40))


@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("tau", [1, 16])
def test_examples_that_sleep_do_not_break_the_method(method, tau):
    """Many examples are settled at once here; the few that are not are a sampling of their own, denser than the one asked for."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.standard_normal((407, 30)) * 1e-3, np.ones((40, 30)) + 0.1 * rng.standard_normal((40, 30))])
    y = np.r_[labels_for(losses.Logistic(), 407, rng), np.where(rng.random(40) < 0.5, 1.0, -1.0)]
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-3)
    settings = {"tol": 1e-6, "max_epochs": 3000, "random_state": 0, "tuning": ALWAYS_COMPILED}
    result = dn.solve(problem, method=method, tau=tau, **settings)
    assert result.plan.compiled
    assert result.status is Status.CONVERGED
    assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("tau", [1, 4])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_class_duplicated_rows_and_zero_rows_are_solved(tau, sparse, fit_intercept):
    rng = np.random.default_rng(0)
    shapes = {
        "duplicated": np.repeat(rng.standard_normal((5, 4)), 8, axis=0),
        "zero": np.zeros((40, 4)),
        "constant": np.ones((40, 4)),
        "half empty": rng.standard_normal((40, 4)) * (np.arange(40) % 2)[:, None],
    }
    for loss in LOSSES:
        for X in shapes.values():
            for y in (np.ones(40), labels_for(loss, 40, rng)):
                data = sp.csr_array(X) if sparse else X
                problem = dn.Problem(data, y, loss, lam=0.1, fit_intercept=fit_intercept)
                result = assert_ends_well(problem, tau=tau, max_epochs=300)
                assert result.certificate.gap <= 1e-6 * abs(result.certificate.primal) + 1e-10


@pytest.mark.parametrize("tau", [1, 8])
def test_w8a_with_its_all_zero_rows(tau):
    X, y = load("w8a")
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-3)
    assert np.count_nonzero(problem.norms == 0.0) == 4203
    result = dn.solve(problem, tau=tau, tol=1e-5, random_state=0)
    assert result.plan.compiled
    assert result.status is Status.CONVERGED
    assert_certificate_is_true(problem, result)
    # A zero row has margin zero whatever w: its dual variable is −φ′(0).
    empty = problem.norms == 0.0
    np.testing.assert_allclose(result.alpha[empty], 0.5 * problem.y[empty], rtol=1e-12)


# Figure 1 --------------------------------------------------------------------------------------------------------------


def gaps(problem, method, tau, seed):
    """The certified gap after each epoch of rounds on τ-nice sets."""
    sampling, rng = samplings.Nice(problem.n, tau), np.random.default_rng(seed)
    engine = CompiledEngine([problem], sampling, [np.zeros(problem.n)], separable_rounds=method == "sdca")
    engine.models.tolerance[:] = 1e-13
    while True:
        engine.run(sampling.draw(rng, sampling.rounds_per_epoch))
        yield certify_duals([problem], [engine.alpha(0)])[0].certificate.gap


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()], ids=name_of)
def test_larger_blocks_save_sdna_epochs_and_cost_sdca_epochs(loss):
    """Figure 1 on every fourth row of mushrooms with λ = 1/n: epochs to a gap of 1e-6, summed over three seeds."""
    X, y = (part[::4] for part in load("mushrooms"))
    problem = dn.Problem(X, np.where(y == y.max(), 1.0, -1.0), loss, lam=1.0 / X.shape[0])

    def epochs(tau, seed):
        return 1 + sum(1 for _ in itertools.takewhile(lambda gap: gap > 1e-6, gaps(problem, "sdna", tau, seed)))

    one, some, many = (sum(epochs(tau, seed) for seed in range(3)) for tau in (1, 32, 256))
    assert one > some > many
    # SDCA is the same method one example at a time; with larger sets it is behind after as many epochs as that takes.
    alone = epochs(1, seed=0)
    first, second, third = (
        next(itertools.islice(gaps(problem, "sdca", tau, 0), alone - 1, None)) for tau in (1, 32, 256)
    )
    assert first <= 1e-6 < second < third
