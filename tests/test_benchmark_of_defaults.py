"""The comparison of default settings covers every shared estimator, proves both models, and says what it could not measure."""

import math
import time
from dataclasses import replace

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.svm
from benchmarks import defaults, defaults_data, defaults_report
from benchmarks.defaults import Case, Cell, Effort

import dualnewton as dn

ONCE = Effort(repeats=1)


@pytest.fixture
def table():
    return defaults_data.generate(60, 5, "gaussian", "300×10")


def cell_of(case, table):
    return list(defaults.measure(case, table, ONCE))[-1]


def test_every_name_that_scikit_learn_has_is_compared():
    theirs = set(dir(sklearn.linear_model)) | set(dir(sklearn.svm))
    assert {case.name for case in defaults.CASES} == set(dn.estimators.__all__) & theirs


def test_a_cell_has_the_gaps_of_both_models_and_the_tolerance_of_ours(table):
    cell = cell_of(Case("LogisticRegression", "two"), table)
    theirs = sklearn.linear_model.LogisticRegression().fit(table.X, table.two)
    assert cell.their_gap == dn.certify(theirs, table.X, table.two).relative_gap
    assert cell.our_gap <= cell.tol == 1e-4
    assert not cell.missed
    assert cell.repeats == 1


def test_a_path_is_judged_by_its_worst_model(table):
    cell = cell_of(Case("lasso_path", "regression"), table)
    assert cell.our_gap <= 1e-4
    alphas, coefs, _ = sklearn.linear_model.lasso_path(table.X, table.y)
    single = [defaults._path_gap(table.X, table.y, alpha, 1.0, w) for alpha, w in zip(alphas, coefs.T, strict=True)]
    assert cell.their_gap == max(single)


def test_a_fit_that_fails_leaves_a_note_and_counts_as_missed(table):
    cell = cell_of(Case("Ridge", "regression", parameters={"alpha": -1.0}), table)
    assert cell.missed
    assert "ours: " in cell.note
    assert math.isnan(cell.ratio)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_a_model_whose_residuals_are_rounding_errors_is_not_missed(table, noise):
    exact = replace(table, y=table.X[:, 0] - table.X[:, 1] + noise * table.X[:, 2] ** 2)
    case = Case("HuberRegressor", "regression", parameters={"alpha": 1e-18, "tol": 1e-14})
    cell = cell_of(case, exact)
    assert cell.our_gap > cell.tol
    assert cell.interpolates == (noise == 0.0)
    assert cell.missed == (noise > 0.0)


@pytest.mark.parametrize("late", ["ours", "theirs"])
def test_a_slow_fit_is_stopped_and_the_rest_is_measured(monkeypatch, table, late):
    of_both = Case.fitter

    def fitter(case, ours, **further):
        if case.name == "Lasso" and ours == (late == "ours"):
            return lambda *_: time.sleep(60.0)
        return of_both(case, ours, **further)

    monkeypatch.setattr(Case, "fitter", fitter)
    pairs = [(Case(name, "regression"), table) for name in ("Ridge", "Lasso", "ElasticNet")]
    cells = list(defaults.measure_all(pairs, ONCE, cap=1.5))
    assert [cell.estimator for cell in cells] == ["Ridge", "Lasso", "ElasticNet"]
    assert [cell.note for cell in cells] == ["", f"{late} cut short", ""]
    assert (getattr(cells[1], late), cells[1].missed) == (1.5, late == "ours")
    assert 0.0 < min(cells[1].ours, cells[1].theirs) < 1.5


def test_tables_are_finite_with_all_targets():
    tables, left_out = defaults_data.tables(defaults_data.GROUPS, (*defaults_data.KINDS[:1], *defaults_data.FORMS))
    assert {table.name for table in tables} >= {
        "iris",
        "wine",
        "breast_cancer",
        "digits",
        "diabetes",
        "linnerud",
        "300×10",
    }
    for table in tables:
        for task in ("regression", "two", "many", "outputs"):
            X, y = table.task(task)
            assert np.isfinite(X).all()
            assert np.isfinite(y).all()
            assert len(X) == len(y)
        assert len(np.unique(table.two)) == 2
        assert len(np.unique(table.many)) >= 3
    assert all(left_out.values())


def test_the_summary_is_written_to_the_page_the_table_and_the_documentation(tmp_path, monkeypatch):
    docs = tmp_path / "performance.md"
    docs.write_text(f"before\n{defaults_report.BEGIN}\nold\n{defaults_report.END}\nafter\n", "utf-8")
    for name, path in {"PAGE": "DEFAULTS.md", "CELLS": "DEFAULTS.csv"}.items():
        monkeypatch.setattr(defaults_report, name, tmp_path / path)
    monkeypatch.setattr(defaults_report, "DOCS", docs)
    cells = [
        Cell("Ridge", "300×10", "300×10 gaussian", 1.0, 2.0, 1e-9, 1e-9, 1e-4, 3),
        Cell("Lasso", "300×10", "300×10 gaussian", 8.0, 1.0, 1e-3, math.nan, 1e-4, 3),
    ]
    defaults_report.write(defaults.Results(cells), "command")
    page = (tmp_path / "DEFAULTS.md").read_text("utf-8")
    assert "geometric mean 2.00, not slower in 1 cells (50%), largest ratio 8.00" in page
    assert "exceeds `tol`: 1." in page
    written = docs.read_text("utf-8")
    assert written.startswith("before")
    assert written.endswith("after\n")
    assert "old" not in written
    assert "| Lasso | 8.00 (8.00) | 8.00 (8.00) |" in written
    assert len((tmp_path / "DEFAULTS.csv").read_text("utf-8").splitlines()) == 3


def test_the_exit_status_says_whether_every_model_is_certified(monkeypatch):
    cells = [Cell("Ridge", "300×10", "300×10 gaussian", 1.0, 2.0, 1e-9, 1e-9, 1e-4, 3)]
    monkeypatch.setattr(defaults, "run", lambda _: defaults.Results(cells))
    assert defaults.main([]) == 0
    cells[0].our_gap = 1e-3
    assert defaults.main([]) == 1
