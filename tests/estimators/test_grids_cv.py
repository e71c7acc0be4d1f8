"""What all estimators with cross-validation promise: each model is proved, budgets hold, and a stopped search is usable."""

import pickle
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

import dualnewton as dn
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._grid import _Trail
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection._neighbours import Neighbours, _Model
from dualnewton.matrix import as_data, memory
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.primal.objective import Objective
from estimators.cases import data_for, outputs, relative
from estimators.grid_cases import ALPHAS, CASES, IDS, fold_models

every = pytest.mark.parametrize("case", CASES, ids=IDS)
with_folds = pytest.mark.parametrize(
    "case", [case for case in CASES if case.model.cv is not None], ids=lambda case: case.name
)


@pytest.mark.filterwarnings(
    "ignore:The least populated class"
)  # one of the checks has a class of two, and asks for cv=3
@parametrize_with_checks(
    [
        dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=2, tol=1e-10),
        dn.RidgeCV(),
        dn.RidgeCV(cv=3),
        dn.ElasticNetCV(alphas=5, cv=3),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# The proofs ----------------------------------------------------------------------------------------------------------


@with_folds
def test_every_certificate_is_that_of_the_problem_on_the_rows_of_the_fold(case):
    X, y = case.data(n=61)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = clone(case.model).set_params(cv=folds).fit(X, y)
    count = 0
    for fold, (train, _) in enumerate(folds):
        for certificate, problem in fold_models(model, X, y, train, fold):
            best = dn.solve(problem, tol=1e-11, random_state=0).certificate
            # P is divided by the number of all rows, not by that of the fold, where weights count as they are.
            scale = 1.0 if isinstance(model, dn.ElasticNetCV) else len(train) / len(y)
            assert certificate.relative_gap <= model.tol
            assert certificate.primal >= scale * best.dual * (1.0 - 1e-9)
            assert certificate.dual <= scale * best.primal * (1.0 + 1e-9)
            count += 1
    assert count == model.certificates_.size


@every
def test_the_final_model_is_that_of_all_rows(case):
    X, y = case.data()
    model = clone(case.model).set_params(tol=1e-10, max_iter=1000).fit(X, y)
    if isinstance(model, dn.LogisticRegressionCV):
        ratio = model.l1_ratio_[0] or 0.0
        alone = dn.LogisticRegression(C=model.C_[0], l1_ratio=ratio, multi_class=model.multi_class, tol=1e-10)
        alone.set_params(max_iter=1000)
    elif isinstance(model, dn.RidgeCV):
        alone = dn.Ridge(model.alpha_, tol=1e-10)
    else:
        alone = dn.ElasticNet(model.alpha_, l1_ratio=model.l1_ratio_, tol=1e-10)
    assert relative(outputs(model, X), outputs(alone.fit(X, y), X)) < 1e-5
    gaps = model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]
    assert max(certificate.relative_gap for certificate in gaps) <= 1e-10
    assert len(np.atleast_1d(model.dual_coef_)) == len(y)


@every
def test_it_warns_exactly_when_a_certificate_misses_tol(case):
    X, y = case.data()
    model = clone(case.model).set_params(tol=1e-9)
    lowest = 1 if isinstance(model, dn.ElasticNetCV) else 0  # as in scikit-learn
    for max_iter in (lowest, 1000):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model.set_params(max_iter=max_iter).fit(X, y)
        missed = max(certificate.relative_gap for certificate in model.certificates_.ravel()) > 1e-9
        assert [warning.category for warning in seen] == [ConvergenceWarning] * missed
        assert not missed or f"To get closer, raise max_iter (now {lowest})" in str(seen[0].message)
    assert not missed


# Folds ---------------------------------------------------------------------------------------------------------------


def test_a_fold_is_a_weighting_of_all_rows():
    splits = [(np.array([0, 0, 2]), [1]), (np.array([True, False, True, True]), np.array([1, 1]))]
    folds = Folds.of(splits, 4)
    assert folds.counts.tolist() == [[2, 0, 1, 0], [1, 0, 1, 1]]
    assert [rows.tolist() for rows in folds.tests] == [[1], [1, 1]]
    assert [each.tolist() for each in folds.weights(np.array([1.0, 2.0, 3.0, 4.0]))] == [[2, 0, 3, 0], [1, 0, 3, 4]]
    kinds, group = folds.patterns
    assert (kinds[:, group] == folds.counts).all()
    assert kinds.shape[1] == 4


@given(counts=arrays(int, (4, 9), elements=st.integers(0, 3)))
def test_rows_that_all_folds_treat_alike_are_one_group(counts):
    kinds, group = Folds(counts.astype(float), [np.arange(1)] * 4).patterns
    assert (kinds[:, group] == counts).all()
    assert kinds.shape[1] == len({tuple(column) for column in counts.T})


def test_groups_of_rows_in_many_folds():
    counts = np.random.default_rng(0).integers(0, 2, (60, 40)).astype(float)
    kinds, group = Folds(counts[:, [*range(40), *range(40)]], [np.arange(1)] * 60).patterns
    assert (kinds[:, group] == np.hstack([counts, counts])).all()
    assert kinds.shape == (60, 40)


@pytest.mark.parametrize("shift", [True, False])
def test_moments_of_held_out_rows(shift):
    X, y = data_for(2, n=60, d=4)
    data, c = as_data(X), np.random.default_rng(0).uniform(0.5, 2.0, 60)
    splits = [(np.arange(30), np.arange(30, 60)), (np.arange(20, 60), np.arange(10))]
    folds = Folds.of(splits, 60)
    moments = FoldMoments(data, y[:, None], c, folds, DEFAULT, shift=shift)
    origin, rows = moments.training[0].origin, splits[0][1]
    assert origin.any() == shift
    own = moments.held_out(0)
    np.testing.assert_allclose(own.gram, data.moments(c[rows], y[rows, None], origin, rows)[0], rtol=1e-12, atol=1e-10)
    assert moments.held_out(1) is None  # the second fold uses some rows for nothing


def test_moments_of_full_rows_that_are_stored_as_sparse_ones_are_dense_products(monkeypatch):
    """RidgeCV on 20000×280 such rows took 5.0 s of processor time by sparse products, and takes 0.26 s."""
    kinds, products = [], memory.outer_products

    def recorded(rows, *more):
        kinds.append(sp.issparse(rows))
        return products(rows, *more)

    monkeypatch.setattr(memory, "outer_products", recorded)
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 40)), rng.standard_normal((300, 1))
    folds = Folds.of(KFold(3).split(X), 300)
    found, dense = (
        FoldMoments(as_data(rows), y, np.ones(300), folds, DEFAULT, shift=True) for rows in (sp.csr_array(X), X)
    )
    assert kinds
    assert not any(kinds)
    for one, other in zip(found.training, dense.training, strict=True):
        np.testing.assert_allclose(one.gram, other.gram, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_first_step_of_a_fold_is_a_step_of_newtons_method(fit_intercept, classes):
    """Whatever the curvatures of the rows that a fold holds out."""
    X, y = data_for(classes, n=400, d=4)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, 400)
    folds = Folds.of(KFold(4, shuffle=True, random_state=0).split(X), 400)
    loss = dn.losses.Logistic() if classes == 2 else dn.losses.Softmax(3)
    labels = np.where(y == 1, 1.0, -1.0) if classes == 2 else y
    pose = partial(dn.Problem, X, labels, loss, lam=0.01, fit_intercept=fit_intercept)
    whole = dn.solve(pose(sample_weight=weights), tol=1e-3, random_state=0)
    columns = 1 if classes == 2 else 3
    steps = Neighbours(pose().data, folds, weights, classes=columns)
    problems = [pose(sample_weight=c) for c in folds.weights(weights)]
    models = [_Model(Objective(problem), whole) for problem in problems]
    z = X @ np.atleast_2d(whole.w).T + whole.intercept
    margins = [np.where(counts[:, None] > 0.0, z, 9.0 * z) for counts in folds.counts]
    inverses = steps._inverses(models, np.hstack(margins), steps.kinds)
    A = np.column_stack([X, np.ones(400)]) if fit_intercept else X
    p = np.exp(z - z.max(axis=1, keepdims=True)) if columns == 3 else 1.0 / (1.0 + np.exp(-z))
    p /= p.sum(axis=1, keepdims=True) if columns == 3 else 1.0
    Q = np.stack([np.diag(row) - np.outer(row, row) for row in p])
    g = np.random.default_rng(1).standard_normal((columns, A.shape[1]))
    g -= g.mean(axis=0) if columns == 3 else 0.0  # no gradient lies along equal coefficients of all classes
    for c, inverse, model in zip(folds.weights(weights), inverses, models, strict=True):
        H = np.einsum("i,ikl,ia,ib->kalb", c, Q, A, A).reshape(g.size, g.size) + np.diag(model.objective.ridge)
        assert relative(H @ inverse(g.ravel()), g.ravel()) < 1e-9


def test_classes_of_which_each_has_a_hessian_share_it_between_folds():
    """H_k = Σ c_i p_ik(1 − p_ik) ã_i ã_iᵀ + ridge of all rows, in the mean proportion of the folds and of all rows."""
    X, y = data_for(3, n=300, d=20)
    folds = Folds.of(KFold(4).split(X), 300)
    pose = partial(dn.Problem, X, y, dn.losses.Softmax(3), lam=0.01, fit_intercept=True)
    steps = Neighbours(pose().data, folds, None, classes=3)
    steps.joint, steps.shared, steps.groups = False, False, [None]
    start = dn.solve(pose(), tol=1e-3)
    models = [_Model(Objective(pose(sample_weight=c)), start) for c in folds.weights(None)]
    z = X @ start.w.T + start.intercept
    (inverse, *_) = steps._inverses(models, np.tile(z, 4), np.full((4, 1), 0.8))
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    A, ridge = np.column_stack([X, np.ones(300)]), models[0].objective.column_ridge
    g = np.random.default_rng(1).standard_normal((3, 21))
    each = [
        np.linalg.solve(0.8 * (A.T * q) @ A + np.diag(ridge), own) for q, own in zip((p * (1 - p)).T, g, strict=True)
    ]
    assert relative(inverse(g.ravel()), (each - np.mean(each, axis=0)).ravel()) < 1e-9


def test_hessians_in_single_precision_are_summed_again_where_features_are_nearly_dependent():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 70))
    folds = Folds.of(KFold(3).split(X), 300)
    for near, single in ((0.5, True), (1e-5, False)):
        X[:, 1] = X[:, 0] + near * rng.standard_normal(300)
        pose = partial(dn.Problem, X, np.sign(X[:, 2]), dn.losses.Logistic(), lam=1e-8)
        steps = Neighbours(pose().data, folds, None)
        objectives = [Objective(pose(sample_weight=c)) for c in folds.weights(None)]
        start = dn.solve(pose(lam=1.0), tol=1e-3)
        models = [_Model(objective, start) for objective in objectives]
        inverses = steps._inverses(models, np.zeros((300, 3)), steps.kinds)
        assert steps.single is single
        g = rng.standard_normal(70)
        for c, inverse, objective in zip(folds.weights(None), inverses, objectives, strict=True):
            H = 0.25 * (X.T * c) @ X + np.diag(objective.ridge)
            assert relative(H @ inverse(g), g) < (1e-3 if single else 1e-5)


@pytest.mark.parametrize(("n", "d", "shares"), [(3000, 80, True), (600, 1200, False), (3000, 1200, False)])
def test_folds_of_thin_rows_share_hessians_that_cost_less_than_a_pass_over_them(n, d, shares):
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(0, d // 8, (n, 8)) + d // 8 * np.arange(8), axis=1)
    X = sp.csr_array((np.ones(8 * n), columns.ravel(), np.arange(0, 8 * n + 1, 8)), shape=(n, d))
    y = X @ rng.standard_normal(d) + rng.standard_normal(n) > 0.0
    folds = Folds.of(StratifiedKFold(3).split(X, y), n)
    assert Neighbours.is_cheaper(as_data(X), folds) is shares
    model = dn.LogisticRegressionCV(Cs=3, cv=3, use_legacy_attributes=False).fit(X, y)
    assert max(found.relative_gap for found in model.certificates_.ravel()) <= model.tol
    exact = dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-9, use_legacy_attributes=False).fit(X, y)
    np.testing.assert_allclose(model.scores_, exact.scores_, atol=0.01)


def test_a_start_on_the_line_through_two_models_moves_the_margins_along_a_line():
    """With features far from zero, coefficients that stay where they are would move all margins."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20, 3)) + 1000.0
    old, new = (dn.solve(dn.Problem(X, np.sign(X[:, 0] - 1000.0), dn.losses.Logistic(), lam=lam)) for lam in (1e2, 1.0))
    new = replace(new, w=np.array([*new.w[:2], 0.4 * old.w[2]]))  # the line changes the sign of this coefficient
    trail = _Trail()
    trail.add(0.0, [old])
    trail.add(1.0, [new])
    (start,) = trail.ahead(2.0)
    np.testing.assert_allclose(X @ start.w, X @ (2.0 * new.w - old.w), rtol=1e-12)
    trail.add(1.0, [replace(new, w=new.w * [1.0, 0.0, 1.0])])
    assert trail.ahead(2.0)[0].w[1] == 0.0


def test_folds_of_uncentred_separable_classes_converge():
    """Means of 2000 against a spread of one, more unknowns than rows, weak penalties: all models meet tol within max_iter."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((240, 90)) + rng.choice([0.0, 300.0, 2000.0], 90)
    y = rng.integers(0, 3, 240)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = dn.LogisticRegressionCV(cv=3, scoring="accuracy", l1_ratios=[0.0], use_legacy_attributes=False).fit(
            X, y
        )
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= 1e-4


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
def test_steps_serve_folds_of_compiled_size_too(storage):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 30)) * (rng.uniform(size=(4000, 30)) < 0.3)
    y = (X @ rng.standard_normal(30) + rng.standard_normal(4000) > 0.0).astype(int)
    model = dn.LogisticRegressionCV(Cs=[0.01, 100.0], cv=3, scoring="neg_log_loss").fit(storage(X), y)
    assert max(certificate.relative_gap for certificate in model.certificates_.ravel()) <= 1e-4
    for k, C in enumerate(model.Cs_):
        rows = Folds.of(StratifiedKFold(3).split(X, y), 4000).counts[0] > 0.0
        alone = dn.LogisticRegression(C=C, tol=1e-9).fit(X[rows], y[rows])
        assert relative(model.coefs_paths_[1][0, k, :-1], alone.coef_[0]) < 0.02


def test_splits_without_rows_are_refused():
    with pytest.raises(ValueError, match=r"at least one split"):
        Folds.of([], 3)
    with pytest.raises(ValueError, match=r"got 0 and 1 in split 1"):
        Folds.of([([0], [1]), ([], [1])], 3)


@with_folds
def test_repeated_rows_of_a_split_count_as_often_as_they_are_there(case):
    X, y = case.data()
    rng = np.random.default_rng(1)
    tight = clone(case.model).set_params(tol=1e-11, max_iter=1000)
    if isinstance(tight, dn.ElasticNetCV):
        tight.set_params(alphas=[0.5, 0.1])  # a grid of its own would follow from other rows
    draws = [np.concatenate([rng.integers(0, 60, 60), np.arange(3)]) for _ in range(2)]
    rest = [np.setdiff1d(np.arange(60), rows) for rows in draws]
    found = clone(tight).set_params(cv=list(zip(draws, rest, strict=True))).fit(X, y)
    for fold, (inside, outside) in enumerate(zip(draws, rest, strict=True)):
        written_out = np.concatenate([inside, outside])
        split = np.arange(len(inside)), np.arange(len(inside), len(written_out))
        alone = clone(tight).set_params(cv=[split]).fit(X[written_out], y[written_out])
        axis = -1 if isinstance(tight, dn.ElasticNetCV) else -2
        scale = 1.0 if isinstance(tight, dn.ElasticNetCV) else len(written_out) / len(y)
        mine, theirs = (model.certificates_.take(k, axis=axis).ravel() for model, k in ((found, fold), (alone, 0)))
        for a, b in zip(mine, theirs, strict=True):
            assert a.primal == pytest.approx(scale * b.primal, rel=1e-8)


def test_groups_are_routed_to_the_splitter():
    X, y = data_for(2)
    groups = np.arange(60) % 4
    with config_context(enable_metadata_routing=True):
        for model in (
            dn.LogisticRegressionCV(Cs=[1.0], cv=GroupKFold(4)),
            dn.RidgeCV(cv=GroupKFold(4)),
            dn.ElasticNetCV(alphas=2, cv=GroupKFold(4)),
        ):
            model.fit(X, y, groups=groups)
            assert 4 in model.certificates_.shape
    with pytest.raises((TypeError, ValueError), match="groups"):
        dn.RidgeCV(cv=GroupKFold(4)).fit(X, y, groups=groups)


# Budgets, callbacks, other tools -------------------------------------------------------------------------------------


@every
def test_a_search_without_time_is_a_usable_model_with_proofs(case):
    X, y = case.data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = clone(case.model).set_params(time_limit=0.0, tol=1e-9).fit(X, y)
    assert np.isfinite(outputs(model, X)).all()
    assert all(np.isfinite(certificate.primal) for certificate in model.certificates_.ravel())


@every
def test_a_callback_sees_certificates_and_may_stop_the_search(case):
    X, y = case.data()
    seen = []
    model = clone(case.model).set_params(callback=lambda progress: seen.append(progress) or True, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert seen
    assert np.isfinite(outputs(model, X)).all()


@every
def test_progress_names_the_part_of_the_grid(case, capsys):
    X, y = case.data()
    clone(case.model).set_params(verbose=1).fit(X, y)
    text = capsys.readouterr().err
    assert f"{type(case.model).__name__}, " in text
    assert "relative gap" in text
    assert ("C = 0.1, all rows" in text) or ("alpha = " in text)


@every
def test_it_survives_pickling_and_takes_sparse_and_single_rows(case):
    X, y = case.data()
    model = clone(case.model).set_params(tol=1e-6).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    assert (outputs(copy, X) == outputs(model, X)).all()
    assert copy.certificates_.ravel()[0] == model.certificates_.ravel()[0]
    assert relative(outputs(clone(model).fit(sp.csc_array(X), y), X), outputs(model, X)) < 1e-3
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.coef_.dtype == np.float32
    assert relative(outputs(single, X), outputs(model, X)) < 1e-3


@every
def test_a_path_is_that_of_the_estimator_without_cross_validation(case):
    X, y = case.data()
    path = clone(case.model).set_params(tol=1e-8).path(X, y, [0.5, 2.0])
    assert list(path.values) == [0.5, 2.0]
    assert len(path.models) == 2


def test_threads_change_nothing():
    X, y = data_for(2, n=300)
    one, two = (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    assert (one.coef_ == two.coef_).all()


def test_alphas_of_a_tuple_are_left_alone():
    X, y = data_for(0)
    model = dn.RidgeCV(ALPHAS).fit(X, y)
    assert model.alphas is ALPHAS
