"""What every estimator of the family promises: the forms of data, the proof, warnings, budgets, warm starts, threads."""

import pickle
import threading
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import dualnewton as dn
from dualnewton.estimators._session import Session
from estimators.cases import CASES, IDS, certificates, data_for, outputs, relative

every = pytest.mark.parametrize("case", CASES, ids=IDS)


# Data ----------------------------------------------------------------------------------------------------------------


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def with_long_indices(X):
    X = sp.csr_array(X)
    return sp.csr_array((X.data, X.indices.astype(np.int64), X.indptr.astype(np.int64)), shape=X.shape)


FORMS = {
    "list": lambda X: X.tolist(),
    "Fortran order": np.asfortranarray,
    "read-only": read_only,
    "CSR": sp.csr_matrix,
    "CSR of 64 bits": with_long_indices,
    "CSC": sp.csc_array,
    "COO": sp.coo_array,
    "data frame": lambda X: pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]),
}


@every
@pytest.mark.parametrize("form", FORMS)
def test_the_model_does_not_depend_on_the_form_of_the_data(case, form):
    X, y = case.data()
    given = FORMS[form](X)
    model, reference = (clone(case.model).set_params(tol=1e-8).fit(rows, y) for rows in (given, X))
    assert relative(model.coef_, reference.coef_) < 1e-3
    assert (
        relative(outputs(model, given), outputs(model, np.ascontiguousarray(X) if form != "data frame" else given))
        < 1e-9
    )
    assert model.n_features_in_ == X.shape[1]
    assert hasattr(model, "feature_names_in_") == (form == "data frame")


@every
def test_a_polars_frame_is_a_data_frame(case):
    polars = pytest.importorskip("polars")
    X, y = case.data()
    names = [f"x{j}" for j in range(X.shape[1])]
    frame = polars.DataFrame(np.ascontiguousarray(X), schema=names)
    model, reference = clone(case.model).fit(frame, y), clone(case.model).fit(np.ascontiguousarray(X), y)
    np.testing.assert_array_equal(model.coef_, reference.coef_)
    np.testing.assert_allclose(
        outputs(model, frame), outputs(reference, np.ascontiguousarray(X)), rtol=1e-9, atol=1e-12
    )
    assert list(model.feature_names_in_) == names


@every
def test_single_precision_stays_single(case):
    X, y = case.data()
    single, double = clone(case.model).fit(X.astype(np.float32), y), clone(case.model).fit(X, y)
    assert single.coef_.dtype == np.asarray(single.intercept_).dtype == np.float32
    assert relative(single.coef_, double.coef_) < 1e-3


@every
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array, with_long_indices], ids=["dense", "CSR", "CSR of 64 bits"])
def test_the_problems_hold_the_users_own_arrays(case, make, monkeypatch):
    X, y = case.data()
    given, held = make(X), []
    monkeypatch.setattr("dualnewton.estimators._session.solved", lambda problems, *_: held.extend(problems) or 1 / 0)
    model = clone(case.model)
    if case.name == "ridge, unpenalised":  # by default solved outside of runs, as LinearRegression is
        model.set_params(solver="newton")
    with pytest.raises(ZeroDivisionError):
        model.fit(given, y)
    for problem in held:
        parts = ("data", "indices", "indptr") if sp.issparse(given) else ()
        assert all(np.shares_memory(getattr(problem.X, part), getattr(given, part)) for part in parts)
        assert parts or np.shares_memory(problem.X, given)
    assert held


def test_memory_mapped_data_are_read_where_they_are(tmp_path):
    X, y = data_for(2)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert (dn.LogisticRegression().fit(mapped, y).coef_ == dn.LogisticRegression().fit(X, y).coef_).all()


def test_entries_that_are_named_twice_are_added():
    X, y = data_for(0)
    rows, columns = np.indices(X.shape)
    twice = sp.csr_array(
        sp.coo_array((np.tile(X.ravel() / 2, 2), (np.tile(rows.ravel(), 2), np.tile(columns.ravel(), 2))))
    )
    doubled = sp.csr_array(
        (np.repeat(X.ravel() / 2, 2), np.repeat(columns.ravel(), 2), np.arange(0, 2 * X.size + 1, 2 * X.shape[1]))
    )
    for given in (twice, doubled):
        assert relative(dn.Ridge().fit(given, np.stack([y, -y], axis=1)).coef_[0], dn.Ridge().fit(X, y).coef_) < 1e-9


@pytest.mark.parametrize("case", CASES[:1] + CASES[7:8], ids=["classifier", "regressor"])
def test_weights_are_checked(case):
    X, y = case.data()
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        clone(case.model).fit(X, y, -np.ones(len(y)))
    with pytest.raises(ValueError, match="sample_weight"):
        clone(case.model).fit(X, y, np.ones(3))


# The proof -----------------------------------------------------------------------------------------------------------


@every
def test_a_fit_has_its_proof(case):
    X, y = case.data()
    model = clone(case.model).fit(X, y)
    assert max(certificate.relative_gap for certificate in certificates(model)) <= model.tol
    traces = model.trace_ if isinstance(model.trace_, list) else [model.trace_]
    for certificate, trace in zip(certificates(model), traces, strict=True):
        assert trace.gap[-1] == certificate.gap
    assert model.dual_coef_.shape[0] == len(y)
    assert model.plan_.reason
    counts = model.n_iter_
    # Ridge has None in the place of a count wherever scikit-learn has it.
    assert isinstance(model, dn.Ridge | dn.RidgeClassifier) if counts is None else np.asarray(counts).dtype.kind == "i"
    assert (np.diff(traces[0].gap) <= 0.0).all()


@every
def test_it_warns_exactly_when_the_certificate_misses_tol(case):
    X, y = case.data(n=200, d=12)
    model = clone(case.model)
    lowest = 1 if isinstance(model, dn.Ridge | dn.RidgeClassifier) else 0  # as in scikit-learn
    for max_iter in (lowest, 1, 2, 4, 1000):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            model.set_params(max_iter=max_iter, tol=1e-9).fit(X, y)
        missed = max(certificate.relative_gap for certificate in certificates(model)) > 1e-9
        assert [warning.category for warning in seen] == [ConvergenceWarning] * missed
        if missed:
            text = str(seen[0].message)
            assert "certified relative gap of" in text
            assert f"raise max_iter (now {max_iter})" in text
            assert seen[0].filename == __file__
    assert not missed


def test_the_warning_says_what_the_gap_proves():
    X, y = data_for(0, n=200, d=12)
    with pytest.warns(
        ConvergenceWarning, match=r"proved to exceed the minimum by at most [0-9.e-]+ % of its value\. To get"
    ):
        dn.Ridge(solver="sdca", max_iter=20, alpha=100.0, tol=1e-15).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="This bound proves little") as seen:
        dn.Ridge(solver="sdca", max_iter=1, alpha=1e-9, tol=1e-12).fit(1e3 * X, y)
    assert "or tol" not in str(seen[0].message)
    assert 'solver="auto" may choose a faster method than "sdca"' in str(seen[0].message)


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2]])
def test_without_a_penalty_separable_classes_have_no_optimum_and_the_warning_says_so(labels):
    X = np.array([[0.0, 0.0], [0.1, 0.0], [2.0, 0.0], [2.1, 0.1], [0.0, 3.0], [0.1, 3.0]])
    with pytest.warns(ConvergenceWarning, match="no finite optimum exists") as seen:
        dn.LogisticRegression(C=np.inf).fit(X, labels)
    assert "raise" not in str(seen[0].message)


def test_the_warning_counts_the_fits_that_miss():
    X, y = data_for(0, n=600, d=20)
    Y = np.stack([y, 0.0 * y, y**2], axis=1)
    with pytest.warns(ConvergenceWarning, match=r"in 2 of 3 fits, since max_iter was reached"):
        dn.Ridge(solver="sdca", max_iter=1).fit(X, Y)


@pytest.mark.parametrize(("tol", "asked"), [(1e-2, 1e-2), (1e-4, 1e-4), (1e-12, 1e-14), (1e-16, 1e-16)])
def test_only_tiny_gaps_are_fitted_beyond_tol(tol, asked):
    assert Session(dn.LogisticRegression(tol=tol)).goal == pytest.approx(asked, rel=1e-12)


def test_a_fit_that_ends_between_tol_and_what_was_asked_for_has_converged():
    X, y = data_for(2, n=600)
    model = dn.LogisticRegression(solver="sdna", tol=1e-3, max_iter=1)
    while max(certificate.relative_gap for certificate in certificates(quiet(model, X, y))) > 1e-3:
        model.set_params(max_iter=model.max_iter + 1)
    assert model.certificate_.relative_gap > 1e-6
    assert model._fitted[0].converged
    model.fit(X, y)  # and does not warn


def quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


# Budgets and callbacks -----------------------------------------------------------------------------------------------


@every
def test_a_fit_without_time_is_a_usable_model_with_its_proof(case):
    X, y = case.data(n=200, d=12)
    with pytest.warns(ConvergenceWarning, match=r"time_limit was reached .* raise time_limit \(now 0\.0 s\)"):
        model = clone(case.model).set_params(time_limit=0.0, tol=1e-9).fit(X, y)
    assert outputs(model, X).shape[0] == len(y)
    assert max(certificate.relative_gap for certificate in certificates(model)) < np.inf


@every
def test_a_callback_sees_the_gap_fall_and_may_stop_the_fit(case):
    X, y = case.data(n=200, d=12)
    seen = []

    def stop_at_the_second(progress):
        seen.append(progress)
        return len(seen) >= 2

    model = clone(case.model).set_params(callback=stop_at_the_second, tol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert seen
    assert all(np.isfinite(progress.certificate.primal) for progress in seen)
    assert np.isfinite(model.coef_).all()


def test_an_interrupted_fit_is_a_usable_model():
    X, y = data_for(2, n=600, d=12)

    def interrupt(progress):
        if progress.epoch > 0:
            raise KeyboardInterrupt

    with pytest.warns(ConvergenceWarning, match="interrupted from the keyboard"):
        model = dn.LogisticRegression(solver="sdna", callback=interrupt, tol=1e-12).fit(X, y)
    assert model.score(X, y) > 0.5
    with pytest.warns(ConvergenceWarning, match="interrupted from the keyboard"):
        model = dn.LogisticRegression(C=np.inf, callback=interrupt, tol=1e-12).fit(X, y)
    assert model.score(X, y) > 0.5
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        path = dn.LogisticRegression(solver="sdna", callback=interrupt, tol=1e-12).path(X, y, [1.0, 0.1, 10.0])
    assert list(path.values) == [0.1]  # the strongest penalty comes first, and whoever interrupts wants no more


# Warm starts ---------------------------------------------------------------------------------------------------------


@every
def test_a_warm_start_from_the_optimum_has_nothing_to_do(case):
    X, y = case.data(n=200, d=12)
    model = clone(case.model).set_params(warm_start=True, tol=1e-6).fit(X, y)
    first = model.coef_.copy()
    model.fit(X, y)
    direct = case.name in ("ridge, unpenalised", "logistic, unpenalised", "softmax, unpenalised")
    traces = model.trace_ if isinstance(model.trace_, list) else [model.trace_]
    assert max(trace.epoch[-1] for trace in traces) == 0 or direct
    assert relative(model.coef_, first) < 1e-6


def test_a_warm_start_carries_the_dual_to_another_C(monkeypatch):
    X, y = data_for(2, n=200, d=12)
    model = dn.LogisticRegression(warm_start=True).fit(X, y)
    dual, given = model.dual_coef_, {}
    import dualnewton.estimators._session as session

    solved = session.solved

    def listen(problems, request, start, *args):
        given["warm_start"] = start
        return solved(problems, request, start, *args)

    monkeypatch.setattr(session, "solved", listen)
    model.set_params(C=2.0).fit(X, y)
    assert given["warm_start"][0].alpha is dual
    model.fit(X[:150], y[:150])  # other examples: the model is kept, and the dual point that belongs to it there
    assert given["warm_start"][0].alpha.shape == (150,)
    model.fit(X[:, :5], y)  # other features: nothing is
    assert given["warm_start"] is None
    model.fit(X, np.arange(len(y)) % 3)
    assert given["warm_start"] is None


# Paths ---------------------------------------------------------------------------------------------------------------


@every
def test_a_path_is_a_fit_for_each_value_each_certified(case):
    X, y = case.data()
    strength = case.model._strength
    values = [1.0, 0.01, 10.0]
    model = clone(case.model).set_params(tol=1e-10, max_iter=1000)
    path = model.path(X, y, values)
    assert not hasattr(model, "coef_")
    assert list(path.values) == values
    for k, value in enumerate(values):
        alone = clone(model).set_params(**{strength: value}).fit(X, y)
        if isinstance(model, dn.QuantileRegressor):  # a linear program, with several optimal models
            mine, other = path.certificates[k].primal, alone.certificate_.primal
            assert mine == pytest.approx(other, rel=1e-9)
        else:
            assert relative(path.coef[k], alone.coef_) < 1e-4
            assert relative(outputs(path.models[k], X), outputs(alone, X)) < 1e-4
        assert path.certificates[k] is path.models[k].certificate_
        assert max(certificate.relative_gap for certificate in certificates(path.models[k])) <= 1e-10


def test_a_path_refuses_what_it_cannot_walk():
    X, y = data_for(2)
    with pytest.raises(ValueError, match="values must hold at least one value of C"):
        dn.LogisticRegression().path(X, y, [])
    with pytest.raises(ValueError, match=r"'C' parameter .* in the range"):
        dn.LogisticRegression().path(X, y, [1.0, -1.0])


# Randomness, threads, other tools ------------------------------------------------------------------------------------


def test_equal_fits_are_equal_and_seeds_may_be_anything_scikit_learn_takes():
    X, y = data_for(2, n=600)  # more than one block, drawn at random
    model = dn.LogisticRegression(solver="sdna")
    for seed in (None, 3, np.random.RandomState(3), np.random.default_rng(3)):
        assert model.set_params(random_state=seed).fit(X, y).certificate_.relative_gap <= 1e-4
    once, again = (clone(model).set_params(random_state=None).fit(X, y) for _ in range(2))
    assert (once.coef_ == again.coef_).all()
    assert (model.set_params(random_state=5).fit(X, y).coef_ != once.coef_).any()


def test_threads_change_nothing_and_are_counted_as_joblib_counts_them():
    X, y = data_for(2, n=300)
    one, two = (dn.LogisticRegression(n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    assert (one.coef_ == two.coef_).all()
    assert Session(dn.Ridge()).threads == 1
    assert Session(dn.Ridge(n_jobs=-1)).threads == joblib.cpu_count()
    with joblib.parallel_config("sequential"):
        assert Session(dn.Ridge(n_jobs=-1)).threads == 1


@pytest.mark.parametrize("case", CASES[:2] + CASES[7:8], ids=["logistic", "softmax", "ridge"])
def test_fits_side_by_side_do_not_disturb_each_other(case):
    X, y = case.data()
    expected = clone(case.model).fit(X, y).coef_
    found = {}
    threads = [
        threading.Thread(target=lambda k=k: found.update({k: clone(case.model).fit(X, y).coef_})) for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all((coef == expected).all() for coef in found.values())


@every
def test_a_fitted_model_survives_pickling(case, tmp_path):
    X, y = case.data()
    model = clone(case.model).set_params(warm_start=True).fit(X, y)
    joblib.dump(model, tmp_path / "model")
    copies = pickle.loads(pickle.dumps(model)), joblib.load(tmp_path / "model")
    for copy in copies:
        assert (outputs(copy, X) == outputs(model, X)).all()
        assert certificates(copy)[0] == certificates(model)[0]
    model.fit(X, y)  # a copy goes on from where the model was, and as it does
    assert all((copy.fit(X, y).coef_ == model.coef_).all() for copy in copies)


@every
def test_sparse_coefficients_predict_the_same(case):
    X, y = case.data()
    model = clone(case.model).fit(X, y)
    dense, before = model.coef_, outputs(model, X)
    assert relative(outputs(model.sparsify(), X), before) < 1e-12
    assert sp.issparse(model.coef_)
    assert (model.densify().coef_ == dense).all()


def test_weights_are_routed():
    X, y = data_for(2)
    weights = np.arange(len(y)) % 3
    with config_context(enable_metadata_routing=True):
        model = dn.LogisticRegression().set_fit_request(sample_weight=True)
        routed = make_pipeline(FunctionTransformer(), model).fit(X, y, sample_weight=weights)
    assert (routed[-1].coef_ == dn.LogisticRegression().fit(X, y, weights).coef_).all()


def test_it_works_where_scikit_learn_puts_it():
    X, y = data_for(2)
    pipeline = make_pipeline(StandardScaler(), dn.LogisticRegression())
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.01, 1.0]}, cv=3).fit(X, y)
    assert search.best_estimator_[-1].certificate_.relative_gap <= 1e-4
    assert "LogisticRegression" in search._repr_html_()


# Help ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in dn.estimators.__all__ if isinstance(getattr(dn, name), type)])
def test_help_describes_every_parameter_once_and_no_other(name):
    kind = getattr(dn, name)
    section = kind.__doc__.partition("\nParameters\n----------\n")[2].partition("\n\n")[0]
    heads = [line.partition(" : ")[0] for line in section.splitlines() if not line.startswith(" ")]
    described = [parameter for head in heads for parameter in head.split(", ")]
    assert sorted(described) == sorted(kind().get_params())


@pytest.mark.parametrize("name", [name for name in dn.estimators.__all__ if isinstance(getattr(dn, name), type)])
def test_help_describes_what_every_fit_leaves(name):
    attributes = getattr(dn, name).__doc__.partition("\nAttributes\n----------\n")[2]
    assert all(f"\n{each} : " in f"\n{attributes}" for each in ("certificate_", "trace_", "dual_coef_", "plan_"))
