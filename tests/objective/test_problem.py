"""The verifier: weak duality always, strong duality at the optimum, and equal certificates for equal points."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from dualnewton import losses, regularizers
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.certificates import certify_models, certify_pairs
from dualnewton.objective.problem import Problem
from tables import LOSSES, labels_for, make_problem, name_of, regularizers_for

FORMS = [
    {},
    {"weights": True},
    {"offset": True},
    {"fit_intercept": True},
    {"fit_intercept": True, "weights": True, "offset": True},
]


def feasible_dual_points(problem, rng, count):
    """Random α in the domain of the dual, balanced where there is an intercept."""
    for _ in range(count):
        alpha = -problem.loss.derivative(5.0 * rng.standard_normal(problem.n), problem.y)
        yield problem.balanced(alpha * rng.uniform(0.0, 1.0, problem.n))


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_weak_duality(loss, form):
    rng = np.random.default_rng(0)
    for regularizer in regularizers_for(4):
        problem = make_problem(loss, lam=0.3, regularizer=regularizer, **form)
        duals = [problem.dual(alpha) for alpha in feasible_dual_points(problem, rng, 20)]
        assert np.isfinite(duals).all()
        for _ in range(20):
            w = regularizer.grad_conjugate(2.0 * rng.standard_normal(4))
            b = rng.standard_normal() if problem.fit_intercept else 0.0
            assert problem.primal(w, b) >= max(duals)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("positive", [False, True])
def test_the_lasso_has_true_lower_bounds_from_shortened_dual_points(loss, form, positive):
    rng = np.random.default_rng(0)
    problem = make_problem(loss, lam=0.03, regularizer=regularizers.L1(positive), **form)
    values, duals, shortened = [], [], 0
    for _ in range(20):
        w = np.abs(rng.standard_normal(4)) if positive else rng.standard_normal(4)
        alpha = rng.standard_normal() * problem.alpha_of(rng.standard_normal(4))
        pair = problem.certified_pair(w, alpha=problem.dual_near(3.0 * alpha))
        assert problem.dual(pair.alpha) > -np.inf
        assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-13)
        assert np.max(problem.alpha_bar(pair.alpha) if positive else np.abs(problem.alpha_bar(pair.alpha))) <= 1 + 1e-12
        elsewhere = 5.0 * rng.standard_normal(4)
        margins = problem.margins(elsewhere, problem.best_intercept(elsewhere))
        shortened += problem.dual(problem.balanced(-problem.loss.derivative(margins, problem.y))) == -np.inf
        values.append(pair.certificate.primal)
        duals.append(pair.certificate.dual)
    assert min(values) >= max(duals)
    assert shortened > 0  # else the test would not have tried what it is about


def test_a_dual_value_that_is_too_large_would_be_seen():
    """A penalty that is 1% too small in the dual already breaks weak duality near the optimum."""
    problem = make_problem(LOSSES[0], lam=0.3, offset=True)
    ridge = problem.X.T @ problem.X / problem.n + problem.lam * np.eye(4)
    w = np.linalg.solve(ridge, problem.X.T @ (problem.y - problem.o) / problem.n)
    alpha = problem.alpha_of(w)
    assert problem.dual(alpha) == pytest.approx(problem.primal(w), rel=1e-13)
    wrong = problem.dual(alpha) + 0.01 * problem.lam * problem.regularizer.conjugate(problem.alpha_bar(alpha))
    assert wrong > problem.primal(w) * (1.0 + 1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_dual_bounds_the_primal_minimum_found_by_someone_else(loss, form):
    """At a minimiser found by SciPy the certificate closes: no duality gap is left but rounding."""
    from scipy.optimize import minimize

    problem = make_problem(loss, n=12, d=3, lam=0.5, **form)

    def objective(x):
        return problem.primal(x[:3], x[3] if problem.fit_intercept else 0.0)

    found = minimize(objective, np.zeros(3 + problem.fit_intercept), method="BFGS", options={"gtol": 1e-9})
    certificate = problem.certify(found.x[:3], found.x[3] if problem.fit_intercept else None)
    assert certificate.primal == pytest.approx(found.fun, rel=1e-12)
    assert certificate.gap <= 1e-7
    assert (
        problem.certify(found.x[:3] + 0.1).gap
        >= problem.primal(found.x[:3] + 0.1, problem.best_intercept(found.x[:3] + 0.1)) - found.fun
    )


@given(st.integers(0, 2**32 - 1), st.sampled_from(LOSSES), st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e8]), st.booleans())
def test_the_best_intercept_is_best(seed, loss, scale, weighted):
    problem = make_problem(loss, n=9, d=2, seed=seed, fit_intercept=True, weights=weighted)
    w = scale * np.random.default_rng(seed).standard_normal(2)
    b = problem.best_intercept(w)
    here = problem.primal(w, b)
    for step in (1e-6, 1e-3, 1.0, scale):
        for other in (b - step, b + step):
            assert here <= problem.primal(w, other) * (1.0 + 1e-12)
    alpha = problem.alpha_of(w)
    assert abs(problem.c @ alpha) <= 1e-12 * (problem.c @ np.abs(alpha))
    assert np.isfinite(problem.dual(alpha))


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_far_from_the_optimum_the_proof_is_no_worse_than_that_of_the_origin(loss, form):
    """−φ′(z) overshoots at a bad w and may have a hugely negative dual value; shrunk towards zero it cannot."""
    problem = make_problem(loss, lam=1e-4, **form)
    w = 100.0 * np.ones(4)
    origin = problem.dual(np.zeros(6))
    assert problem.dual(problem.alpha_of(w)) < origin - 1.0
    pair = problem.certified_pair(w)
    assert pair.certificate.dual >= origin - 1e-3
    assert pair.certificate.dual == pytest.approx(problem.dual(pair.alpha), rel=1e-13)


def test_sums_beyond_the_range_of_float64_prove_nothing():
    """g*(ᾱ) = ∞ − ∞ is no number; D is then −∞, and the certificate falls back to another dual point."""
    problem = Problem(np.eye(2), np.ones(2), losses.Squared(), regularizer=regularizers.Box(-np.inf, np.inf), lam=1e-8)
    with np.errstate(all="ignore"):
        assert problem.dual(np.full(2, 1e200)) == -np.inf
        assert np.isfinite(problem.certify(np.zeros(2), alpha=np.full(2, 1e200)).dual)


def test_a_dual_value_beyond_the_range_of_float64_proves_nothing():
    """Σ c_i φ*(−α_i) overflows to −∞ here, so that D = ∞ would claim a gap of zero."""
    problem = Problem(np.eye(2), np.full(2, 1e200), losses.Quantile(0.5), lam=1e200, sample_weight=np.full(2, 1e200))
    with np.errstate(all="ignore"):
        assert problem.dual(np.full(2, 0.5)) == -np.inf


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_an_unbalanced_dual_point_is_infeasible_with_an_intercept(loss):
    problem = make_problem(loss, fit_intercept=True)
    alpha = problem.alpha_of(np.zeros(4))
    assert np.isfinite(problem.dual(alpha))
    assert problem.dual(np.where(alpha > 0, 0.5, 1.0) * alpha) == -np.inf
    assert make_problem(loss).dual(np.where(alpha > 0, 0.5, 1.0) * alpha) > -np.inf


def test_a_dual_point_outside_the_domain_is_infeasible_unless_its_weight_is_zero():
    problem = make_problem(losses.Logistic())
    alpha = 0.5 * problem.y
    alpha[2] = 1.5 * problem.y[2]
    assert problem.dual(alpha) == -np.inf
    weights = np.ones(6)
    weights[2] = 0.0
    assert np.isfinite(make_problem(losses.Logistic(), sample_weight=weights).dual(alpha))


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_weights_are_repetitions_and_zero_weights_are_absences(loss, fit_intercept):
    rng = np.random.default_rng(3)
    X, y, times = rng.standard_normal((6, 3)), labels_for(loss, 6, rng), np.array([1, 3, 0, 2, 1, 1])
    repeated = Problem(
        np.repeat(X, times, axis=0), np.repeat(y, times), loss, lam=0.3 * 6 / 8, fit_intercept=fit_intercept
    )
    weighted = Problem(X, y, loss, lam=0.3, sample_weight=times, fit_intercept=fit_intercept)
    w = rng.standard_normal(3)
    for a, b in zip(_values(weighted, w), _values(repeated, w), strict=True):
        assert 6 * a == pytest.approx(8 * b, rel=1e-12)
    assert weighted.best_intercept(w) == pytest.approx(repeated.best_intercept(w), rel=1e-9, abs=1e-12)


def _values(problem, w):
    certificate = problem.certify(w)
    return certificate.primal, certificate.dual


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Huber(0.5)], ids=name_of)
def test_an_offset_is_a_shift_of_the_labels_where_only_the_residual_counts(loss):
    rng = np.random.default_rng(4)
    X, y, o, w = rng.standard_normal((7, 3)), rng.standard_normal(7), rng.standard_normal(7), rng.standard_normal(3)
    assert Problem(X, y, loss, offset=o).certify(w).gap == pytest.approx(
        Problem(X, y - o, loss).certify(w).gap, rel=1e-12
    )


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_storage_and_precision_do_not_matter_to_the_judge(loss):
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.5)).astype(np.float32)
    y, w = labels_for(loss, 40, rng), rng.standard_normal(6)
    long_indices = sp.csr_array(X)
    long_indices.indices, long_indices.indptr = (
        long_indices.indices.astype(np.int64),
        long_indices.indptr.astype(np.int64),
    )
    twice = sp.csr_array(X)  # each entry named twice, by halves
    halves = np.repeat(twice.data / 2, 2), np.repeat(twice.indices, 2), 2 * twice.indptr
    repeats = sp.csr_array(halves, shape=X.shape)
    read_only = X.astype(float)
    read_only.flags.writeable = False
    storages = [
        X,
        X.astype(float),
        np.asfortranarray(X),
        read_only,
        sp.csr_array(X),
        sp.csc_array(X),
        sp.coo_array(X),
        long_indices,
        sp.csr_matrix(X),
        repeats,
    ]
    expected = Problem(X.astype(float), y, loss).certify(w)
    for storage in storages:
        found = Problem(storage, y, loss).certify(w)
        assert found.primal == pytest.approx(expected.primal, rel=1e-13)
        assert found.dual == pytest.approx(expected.dual, rel=1e-13, abs=1e-13)


@pytest.mark.parametrize(("n", "d"), [(300, 40_000), (3000, 400), (500, 20_000)])
def test_the_threads_of_blas_change_no_bit_of_a_certificate(n, d):
    rng = np.random.default_rng(0)
    problem = Problem(rng.standard_normal((n, d)), np.sign(rng.standard_normal(n)), losses.Logistic(), lam=0.1)
    w = rng.standard_normal(d)
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(problem.certify(w))
    assert found[0] == found[1]


def test_the_data_are_neither_copied_nor_changed():
    X = np.random.default_rng(0).standard_normal((8, 3))
    sparse = sp.csr_array(X)
    assert Problem(X, np.ones(8), losses.Squared()).X is X
    assert np.shares_memory(Problem(sparse, np.ones(8), losses.Squared()).X.data, sparse.data)
    before = X.copy()
    Problem(X, np.ones(8), losses.Squared(), fit_intercept=True).certify(np.ones(3))
    assert np.array_equal(X, before)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(
    "X",
    [
        np.ones((1, 1)),
        np.zeros((5, 2)),
        np.ones((6, 2)),
        np.array([[1e8], [1e-8], [0.0], [1.0]]),
        np.tile([[1.0, 2.0]], (4, 1)),
    ],
    ids=["n=d=1", "zero", "constant", "scales", "duplicates"],
)
def test_degenerate_data_have_honest_certificates(loss, X, fit_intercept):
    for y in (np.ones(len(X)), labels_for(loss, len(X), np.random.default_rng(0))):
        problem = Problem(X, y, loss, lam=0.1, fit_intercept=fit_intercept)
        certificate = problem.certify(np.zeros(X.shape[1]))
        assert np.isfinite(certificate.primal)
        assert np.isfinite(certificate.dual)
        assert certificate.gap >= 0.0


def test_one_class_with_an_intercept_is_fitted_by_the_intercept_alone():
    for loss in LOSSES:
        certificate = Problem(
            np.random.default_rng(0).standard_normal((5, 2)), np.ones(5), loss, fit_intercept=True
        ).certify(np.zeros(2))
        assert certificate.primal == pytest.approx(0.0, abs=1e-15)
        assert certificate.relative_gap == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": [[1.0, np.nan], [0.0, 1.0]]}, r"X must be finite, got .*nan.* at index \(0, 1\)"),
        ({"X": [[1.0, 1.0], [0.0, np.inf]]}, r"X must be finite, got .*inf.* at index \(1, 1\)"),
        ({"X": sp.csr_array([[1.0, np.nan], [0.0, 1.0]])}, "X must be finite"),
        ({"X": np.empty((0, 2))}, r"X must have at least one row and one column, got shape \(0, 2\)"),
        ({"X": np.empty((2, 0))}, "at least one row and one column"),
        ({"X": [1.0, 2.0]}, "X must be a matrix with one row per example, got 1 dimension"),
        ({"X": [["a", "b"], ["c", "d"]]}, "X must hold real numbers"),
        ({"X": np.ones((2, 2)) * 1j}, "X must hold real numbers"),
        ({"y": [1.0]}, r"y must have shape \(2,\), got \(1,\)"),
        ({"y": [1.0, 0.0]}, r"y must hold -1 or \+1 for Logistic, got 0 at index 1; 2 \* y - 1 converts"),
        ({"y": [1.0, np.nan]}, "y must be finite"),
        ({"y": ["yes", "no"]}, "y must hold real numbers"),
        ({"lam": 0.0}, "lam must be a finite number > 0, got 0.0"),
        ({"lam": -1.0}, "lam must be a finite number > 0, got -1.0"),
        ({"lam": np.inf}, "lam must be a finite number > 0, got inf"),
        ({"lam": "small"}, "lam must be a finite number > 0, got 'small'"),
        ({"sample_weight": [1.0, -1.0]}, "sample_weight must be >= 0 everywhere, got .*-1.0.* at index 1"),
        ({"sample_weight": [0.0, 0.0]}, "sample_weight must have a positive entry"),
        ({"sample_weight": [1.0]}, "sample_weight must have shape"),
        ({"offset": [1.0, np.inf]}, "offset must be finite"),
        ({"offset": [1.0, 2.0, 3.0]}, "offset must have shape"),
        ({"loss": "logistic"}, r"loss must be an instance of losses.Loss.*got 'logistic'"),
        ({"loss": losses.Logistic}, "loss must be an instance"),
        ({"regularizer": "l2"}, "regularizer must be a regularizers.Regularizer.*got 'l2'"),
        ({"regularizer": regularizers.Box(np.zeros(3), np.ones(3))}, "regularizer is made for 3 features, X has 2"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_input_is_named(change, message):
    good = {"X": [[1.0, 0.0], [0.0, 1.0]], "y": [1.0, -1.0], "loss": losses.Logistic()}
    with pytest.raises(ValueError, match=message):
        Problem(**{**good, **change})


def test_bad_points_are_named():
    problem = make_problem(losses.Squared())
    with pytest.raises(ValueError, match=r"w must have shape \(4,\), got \(3,\)"):
        problem.primal(np.zeros(3))
    with pytest.raises(ValueError, match=r"alpha must have shape \(6,\)"):
        problem.dual(np.zeros(4))
    with pytest.raises(ValueError, match="w must be finite"):
        problem.certify([np.nan, 0, 0, 0])
    with pytest.raises(ValueError, match=r"intercept must be 0 in a problem with fit_intercept=False, got 1.0"):
        problem.certify(np.zeros(4), intercept=1.0)
    with pytest.raises(ValueError, match="intercept must be a finite number"):
        make_problem(losses.Squared(), fit_intercept=True).certify(np.zeros(4), intercept=np.inf)


def test_a_problem_is_frozen():
    problem = make_problem(losses.Squared())
    with pytest.raises(AttributeError):
        problem.lam = 2.0
    with pytest.raises(ValueError, match="read-only"):
        problem.y[0] = 3.0


def test_certificates_speak_and_add_up():
    certificate = Certificate(2.0, 1.5)
    assert certificate.gap == 0.5
    assert certificate.relative_gap == 0.25
    assert "5.00e-01" in str(certificate)
    assert "2.50e-01" in str(certificate)
    assert Certificate(1.0, 1.0 + 1e-16).gap == 0.0
    assert Certificate(0.0, 0.0).relative_gap == 0.0
    assert Certificate(0.0, -1.0).relative_gap == np.inf
    assert "dual 0:" in str(Certificate(1.0, -0.0))
    both = Certificate.of_parts((certificate, Certificate(1.0, 1.0)))
    assert (both.primal, both.dual, len(both.parts)) == (3.0, 2.5, 2)


@pytest.mark.parametrize("b", [np.nan, np.inf, 1.0])
def test_the_verifier_takes_no_intercept_that_the_problem_does_not_have(b):
    problem = make_problem(losses.Logistic())
    for certify in (
        lambda: certify_models([problem], [np.zeros(4)], [b]),
        lambda: certify_pairs([problem], [np.zeros(4)], [b], [np.zeros(6)]),
    ):
        with pytest.raises(ValueError, match="intercept must be"):
            certify()


def test_a_value_that_is_no_number_is_worse_than_any_other():
    good, bad = (
        CertifiedPair(np.zeros(1), 0.0, np.zeros(1), Certificate(p, d)) for p, d in ((2.0, 1.0), (np.nan, np.nan))
    )
    assert good.joined_with(bad).certificate == bad.joined_with(good).certificate == good.certificate


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize("positive", [False, True])
def test_a_strength_of_numpy_in_lower_precision_does_not_round_the_objective(kind, positive):
    """Its product with a number of Python has its precision: P would be rounded, and lie below D."""
    rng = np.random.default_rng(0)
    X, strength = rng.standard_normal((30, 4)), kind(0.3)
    y = np.sign(X[:, 0] + 0.1)
    single, exact = (
        Problem(X, y, losses.Logistic(), regularizer=regularizers.ElasticNet(l1, positive=positive), lam=0.1)
        for l1 in (strength, float(strength))
    )
    w = np.abs(rng.standard_normal(4))
    assert single.certify(w) == exact.certify(w)
