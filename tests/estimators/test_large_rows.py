"""Many rows: normal equations, one check of X, certificates of w = 0 by labels, and a balanced dual point of softmax."""

import numpy as np
import pytest
from sklearn import linear_model

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.estimators._validation import _require_finite_squares, distinct
from dualnewton.estimators.least_squares import DECOMPOSED, SUMMED
from dualnewton.objective import certificates, row_sums

N, D = 30_000, 6


def regression(outputs=0, *, shift=5.0, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((N, D)) * np.geomspace(1.0, 100.0, D) + shift).astype(dtype)
    Y = X @ rng.standard_normal((D, max(outputs, 1))) + rng.standard_normal((N, max(outputs, 1)))
    return X, Y if outputs else Y[:, 0]


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outputs", [0, 2])
def test_normal_equations_give_scikit_learns_model(outputs, weighted, fit_intercept):
    X, y = regression(outputs)
    weights = np.random.default_rng(1).uniform(0.0, 2.0, N).round(1) if weighted else None
    ours = dn.LinearRegression(fit_intercept=fit_intercept).fit(X, y, weights)
    theirs = linear_model.LinearRegression(fit_intercept=fit_intercept).fit(X, y, weights)
    assert ours.plan_.reason == SUMMED
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(ours.singular_, theirs.singular_, rtol=1e-6)
    assert ours.rank_ == theirs.rank_
    assert max(one.relative_gap for one in np.atleast_1d(ours.certificate_)) <= 1e-12


@pytest.mark.parametrize(
    ("spoil", "reason"), [("repeated", SUMMED), ("constant", SUMMED), ("nearly repeated", DECOMPOSED)]
)
def test_features_that_depend_on_each_other_are_left_out_or_decomposed(spoil, reason):
    """Exact relations are proved, and the normal equations of the other features solved; else X is decomposed."""
    X, y = regression()
    X[:, 0] = {"repeated": X[:, 1], "constant": 3.0, "nearly repeated": X[:, 1] + 1e-6 * X[:, 0]}[spoil]
    ours = dn.LinearRegression().fit(X, y)
    assert ours.plan_.reason == reason
    assert ours.certificate_.relative_gap <= 1e-9
    if reason == SUMMED:  # scikit-learn neglects singular values below 1e-6 of the largest
        theirs = linear_model.LinearRegression().fit(X, y)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_entries_that_are_not_finite_are_refused_in_scikit_learns_words(entry, dtype):
    X = np.ones((20, 3), dtype=dtype)
    X[7, 1] = entry
    y = np.arange(20) % 2
    with pytest.raises(ValueError, match="Input X contains") as theirs:
        linear_model.LogisticRegression().fit(X, y)
    with pytest.raises(ValueError, match="Input X contains") as ours:
        dn.LogisticRegression().fit(X, y)
    assert str(ours.value).splitlines()[0] == str(theirs.value).splitlines()[0]


def test_float32_entries_whose_squares_overflow_float32_are_allowed():
    X = np.full((20, 3), 1e25, dtype=np.float32)
    _require_finite_squares(dn.Ridge(), X)
    with pytest.raises(ValueError, match="whose squares are finite"):
        _require_finite_squares(dn.Ridge(), np.full((20, 3), 1e200))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, float, bool, object, "U5"])
def test_labels_are_numbered_as_by_sorting(dtype):
    y = np.random.default_rng(4).choice([3, 100, 7], 50).astype(dtype)
    for values, known in zip(distinct(y), np.unique(y, return_inverse=True), strict=True):
        np.testing.assert_array_equal(values, known)
        assert values.dtype == known.dtype


def test_labels_of_a_wide_range_are_numbered_without_overflow():
    y = np.array([-120, 120, -120, 5], dtype=np.int8)
    np.testing.assert_array_equal(distinct(y)[0], [-120, 5, 120])
    np.testing.assert_array_equal(distinct(y)[1], [0, 2, 0, 1])


LABELS = {
    "logistic": (losses.Logistic(), lambda k: 2.0 * (k % 3 == 0) - 1.0),
    "squared hinge": (losses.SquaredHinge(), lambda k: 2.0 * (k % 3 == 0) - 1.0),
    "squared": (losses.Squared(), lambda k: (k % 5) - 1.5),
    "softmax": (losses.Softmax(4), lambda k: k % 7 % 4),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("g", [regularizers.L2(), regularizers.ElasticNet(0.5)], ids=["l2", "net"])
def test_the_certificate_of_zero_by_labels_is_that_by_rows(name, weighted, fit_intercept, g, monkeypatch):
    loss, label = LABELS[name]
    rng = np.random.default_rng(2)
    weights = rng.uniform(0.0, 2.0, 300) if weighted else None
    X, y = rng.standard_normal((300, 4)), np.array([label(k) for k in range(300)])
    problem = dn.Problem(X, y, loss, regularizer=g, sample_weight=weights, fit_intercept=fit_intercept)
    assert row_sums.label_weights(problem.y, weights, loss.columns) is not None
    (by_labels,) = certificates.certify_cold_starts([problem])
    monkeypatch.setattr(row_sums, "MANY", 1)
    sizes = row_sums.sizes_at_zero(loss, problem.y, weights, problem.no_dual())
    monkeypatch.setattr(certificates, "label_weights", lambda *_: None)
    monkeypatch.setattr(row_sums, "label_weights", lambda *_: None)
    assert sizes == pytest.approx(row_sums.sizes_at_zero(loss, problem.y, weights, problem.no_dual()), rel=1e-13)
    monkeypatch.setattr(row_sums, "MANY", 1 << 16)
    (by_rows,) = certificates.certify_cold_starts([problem])
    np.testing.assert_allclose(by_labels.intercept, by_rows.intercept, atol=1e-12)
    assert by_labels.certificate.primal == pytest.approx(by_rows.certificate.primal, rel=1e-13)
    assert by_labels.certificate.dual == pytest.approx(by_rows.certificate.dual, abs=1e-13)


def test_the_certificate_of_zero_takes_no_product_with_the_data(monkeypatch):
    rng = np.random.default_rng(3)
    problem = dn.Problem(rng.standard_normal((300, 4)), rng.standard_normal(300), losses.Squared(), fit_intercept=True)
    expected = problem.certified_pair(np.zeros(4), float(problem.y.mean())).certificate.primal
    monkeypatch.setattr(type(problem.data), "times", lambda *_: pytest.fail("a product with the data"))
    (pair,) = certificates.certify_cold_starts([problem])
    assert pair.certificate.primal == pytest.approx(expected, rel=1e-14)


def test_a_few_labels_of_many_rows_are_read_once(monkeypatch):
    """They are checked and counted together; an invalid label has the same message as among few rows."""
    n, counted, count = 1 << 16, [], row_sums.label_weights
    X, y = np.ones((n, 1)), np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    monkeypatch.setattr(row_sums, "label_weights", lambda *given: counted.append(given) or count(*given))
    monkeypatch.setattr(certificates, "label_weights", row_sums.label_weights)
    problem = dn.Problem(X, y, losses.Logistic(), lam=1.0)
    certificates.certify_cold_starts([problem])
    assert len(counted) == 1
    assert not problem.y.flags.writeable
    for label in (0.0, 2.0, np.nan, np.inf):
        for places in (slice(5, 6), slice(5, None)):
            wrong = y.copy()
            wrong[places] = label
            with pytest.raises(dn.errors.DualnewtonError, match="at index 5"):
                dn.Problem(X, wrong, losses.Logistic(), lam=1.0)


def test_a_label_that_the_first_rows_do_not_have_is_not_missed():
    y = np.where(np.arange(300) < 299, np.arange(300) % 2, 7.0)
    assert row_sums.label_weights(y, None, 1) is None


def test_a_small_imbalance_of_softmax_is_removed_as_by_the_intercept():
    """The balanced point has Σ c_i α_i = 0 and, to first order, the dual value of the best intercept."""
    rng = np.random.default_rng(3)
    X, c = rng.standard_normal((2000, 5)), rng.uniform(0.5, 2.0, 2000)
    y = (X @ rng.standard_normal((5, 4)) + rng.gumbel(size=(2000, 4))).argmax(axis=1)
    problem = dn.MultinomialProblem(X, y, lam=1e-3, sample_weight=c, fit_intercept=True)
    best = dn.solve(problem, tol=1e-10)
    off = best.intercept + 1e-4 * np.arange(4.0)
    alpha = problem.slopes_at(problem.margins(best.w, off))
    balanced = problem.balanced(alpha)
    assert np.abs(c @ balanced).max() <= 1e-13 * c.sum()
    np.testing.assert_allclose(balanced.sum(axis=1), 0.0, atol=1e-15)
    lost = best.certificate.dual - problem.dual(balanced)
    assert abs(lost) <= 1e-9
