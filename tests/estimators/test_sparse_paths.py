"""lasso_path, enet_path, ``path`` and LassoCV against scikit-learn's, and against single fits."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model as theirs
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualnewton as dn
from estimators.cases import relative
from tuned import tuned

TIGHT = {"tol": 1e-14, "max_iter": 10**6}
SHAPES = {"tall": (60, 8), "wide": (30, 60)}


def data(shape, kind="dense"):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) + 0.5
    y = X @ (rng.standard_normal(d) * (np.arange(d) < 6)) + 0.3 * rng.standard_normal(n)
    return (sp.csr_array(X * (X > 0.3)) if kind == "csr" else X), y


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("l1_ratio", "positive"), [(1.0, False), (0.4, False), (0.7, True)])
def test_the_functions_return_what_scikit_learns_do(shape, kind, l1_ratio, positive):
    X, y = data(shape, kind)
    settings = {"alphas": 9, "eps": 1e-2, "l1_ratio": l1_ratio, "positive": positive}
    ours = dn.enet_path(X, y, **settings, tol=1e-12, return_n_iter=True, return_certificates=True)
    reference = theirs.enet_path(X, y, **settings, **TIGHT, return_n_iter=True)
    for mine, other in zip(ours[:2], reference[:2], strict=True):
        assert mine.shape == other.shape
        assert relative(mine, other) < 1e-6
    assert ours[2].shape == reference[2].shape
    assert len(ours[3]) == len(reference[3])
    assert all(certificate.relative_gap <= 1e-12 for certificate in ours[4])
    assert [certificate.gap for certificate in ours[4]] == list(ours[2])


def test_lasso_path_is_enet_path_with_no_ridge():
    X, y = data("wide")
    alphas = [0.05, 1.0, 0.2]
    found, expected = dn.lasso_path(X, y, alphas=alphas), dn.enet_path(X, y, alphas=alphas, l1_ratio=1.0)
    assert list(found[0]) == [1.0, 0.2, 0.05]
    assert np.array_equal(found[1], expected[1])
    several = dn.lasso_path(X, np.stack([y, -2.0 * y], axis=1), alphas=alphas, tol=1e-12)
    assert several[1].shape == (2, 60, 3)
    assert relative(several[1][0], dn.lasso_path(X, y, alphas=alphas, tol=1e-12)[1]) < 1e-6


def test_arrays_that_need_no_conversion_are_read_once_for_their_check(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("scikit-learn's check reads the arrays again")

    X, y = data("tall")
    expected = dn.lasso_path(X.tolist(), y, alphas=[0.3, 0.1])
    monkeypatch.setattr("sklearn.utils.validation.check_X_y", refuse)
    assert np.array_equal(dn.lasso_path(X, y, alphas=[0.3, 0.1])[1], expected[1])
    for wrong, targets in ((np.where(X > 2.0, np.nan, X), y), (X, np.append(y, 0.0)), (X[:0], y[:0])):
        with pytest.raises(AssertionError, match="scikit-learn"):
            dn.lasso_path(wrong, targets)


def test_weights_count_as_repetitions():
    X, y = data("tall")
    times = np.random.default_rng(0).integers(0, 3, 60)
    weighted = dn.lasso_path(X, y, alphas=[0.3, 0.1], sample_weight=times, tol=1e-12)
    repeated = dn.lasso_path(np.repeat(X, times, axis=0), np.repeat(y, times), alphas=[0.3, 0.1], tol=1e-12)
    assert relative(weighted[1], repeated[1]) < 1e-8


@pytest.mark.parametrize("large", [0, 1500], ids=["by columns", "by moments"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_path_has_the_models_of_single_fits(monkeypatch, shape, large):
    monkeypatch.setattr(dn.Lasso, "_tuning", tuned(fold_decomposition=large, least_set=4))
    X, y = data(shape)
    values = [0.02, 1.0, 0.1]
    for model in (dn.Lasso(tol=1e-12), dn.ElasticNet(l1_ratio=0.6, positive=True, tol=1e-12)):
        path = model.path(X, y, values)
        for k, alpha in enumerate(values):
            single = type(model)(**{**model.get_params(), "alpha": alpha}).fit(X, y)
            assert relative(path.coef[k], single.coef_) < 1e-6
            assert path.intercept[k] == pytest.approx(single.intercept_, rel=1e-6)
            assert path.certificates[k].relative_gap <= 1e-12
            assert path.models[k].dual_coef_.shape == y.shape


@pytest.mark.parametrize(("call", "message"), [
    (lambda X, y: dn.enet_path(X, y, l1_ratio=2.0), r"l1_ratio must be a number in \(0, 1\], got 2.0"),
    (lambda X, y: dn.enet_path(X, y, l1_ratio=0.0), r"l1_ratio must be a number in \(0, 1\], got 0.0"),
    (lambda X, y: dn.lasso_path(X, y, alphas=[0.1, -1.0]), r"alphas\[1\] == -1.0, must be > 0.0"),
    (lambda X, y: dn.lasso_path(X, y, eps=0.0), "eps must be a number > 0, got 0.0"),
    (lambda X, y: dn.lasso_path(X, y, l1_ratio=0.5), "l1_ratio is 1 in lasso_path, got 0.5"),
    (lambda X, y: dn.LassoCV(alphas=[-1.0]).fit(X, y), r"alphas\[0\] == -1.0, must be >= 0.0"),
])  # fmt: skip
def test_what_cannot_be_computed_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(*data("tall"))


@parametrize_with_checks([dn.LassoCV(alphas=4, cv=2)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("shape", SHAPES)
def test_lasso_cv_chooses_what_scikit_learns_does(shape, kind):
    X, y = data(shape, kind)
    ours, reference = dn.LassoCV(cv=3, alphas=8, eps=1e-2, tol=1e-12), theirs.LassoCV(cv=3, alphas=8, eps=1e-2, **TIGHT)
    assert {name: ours.get_params()[name] for name in ("eps", "alphas", "cv")} == {"eps": 1e-2, "alphas": 8, "cv": 3}
    assert dn.LassoCV().get_params().items() >= theirs.LassoCV().get_params().items()
    ours.fit(X, y)
    reference.fit(X, y)
    assert ours.alpha_ == pytest.approx(reference.alpha_, rel=1e-12)
    assert relative(ours.mse_path_, reference.mse_path_) < 1e-6
    assert relative(ours.coef_, reference.coef_) < 1e-6
    assert max(certificate.relative_gap for certificate in ours.certificates_.ravel()) <= 1e-12


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.csr_matrix])
def test_features_without_entries_have_coefficients_of_zero_and_change_no_others(kind):
    rng = np.random.default_rng(0)
    used = np.sort(rng.permutation(900)[:40])
    X = np.zeros((60, 900), dtype=np.float32)
    X[:, used] = rng.standard_normal((60, 40)) * (rng.random((60, 40)) < 0.3)
    Y = X[:, used] @ rng.standard_normal((40, 2)) + rng.standard_normal((60, 2))
    for y in (Y[:, 0], Y):
        values, coefs, gaps = dn.enet_path(kind(X), y, alphas=12)
        few = dn.enet_path(kind(X[:, used]), y, alphas=12)
        assert coefs.shape == (*np.shape(y)[1:], 900, 12)
        assert coefs.dtype == np.float32
        assert not np.delete(coefs, used, axis=-2).any()
        for found, expected in zip((values, coefs[..., used, :], gaps), few, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_a_path_of_rows_without_entries_is_zero():
    values, coefs, gaps = dn.lasso_path(sp.csr_array((5, 7)), np.arange(5.0), alphas=[2.0, 1.0])
    np.testing.assert_array_equal(coefs, np.zeros((7, 2)))
    assert not gaps.any()
    assert values.tolist() == [2.0, 1.0]
