"""certify: what is proved of a model or of coefficients, ours or not."""

import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import dualnewton as dn
from cli.running import refused
from dualnewton import data
from dualnewton.cli._coefficients import read_coefficients
from dualnewton.interop.model_file import SavedModel


def proved(command, *words):
    said = command("certify", *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def write_coefficients(path, names, coef, intercept=None, columns=("coefficient",), order=None):
    rows = [f"{name},{','.join(repr(float(c)) for c in column)}" for name, column in zip(names, coef.T, strict=True)]
    rows = rows if order is None else [rows[k] for k in order]
    if intercept is not None:
        rows.insert(1, f"intercept,{','.join(repr(float(b)) for b in intercept)}")
    path.write_text("\n".join([",".join(["feature", *columns]), *rows]) + "\n", encoding="utf-8")


@pytest.mark.parametrize("words", [["iris"], ["iris", "--loss", "hinge"], ["diabetes", "--penalty", "l1", "-C", "0.1"]])
def test_a_saved_model_keeps_its_proof(command, words):
    command("fit", *words, "--out", "m.model", "--tol", 1e-7)
    model, found = SavedModel.load("m.model"), proved(command, "m.model", words[0])
    assert found["primal"] == pytest.approx(model.certificate.primal, rel=1e-12)
    assert found["relative_gap"] <= 2e-7
    assert len(found["parts"]) == (0 if len(model.certificates) == 1 else 3)


def test_on_other_data_it_is_a_solution_of_the_problem_there(command, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.sign(X[:, 0] + rng.standard_normal(60))
    np.savez(tmp_path / "a.npz", X=X[:40], y=y[:40])
    np.savez(tmp_path / "b.npz", X=X[40:], y=y[40:])
    command("fit", "a.npz", "--out", "m.model")
    model, found = SavedModel.load("m.model"), proved(command, "m.model", "b.npz")
    problem = dn.Problem(X[40:], y[40:], dn.losses.Logistic(), lam=model.objective.lam, fit_intercept=True)
    assert found["primal"] == pytest.approx(problem.primal(model.coef[0], float(model.intercept[0])), rel=1e-12)
    best = dn.solve(problem, tol=1e-12, random_state=0).certificate
    assert found["dual"] <= best.primal <= found["primal"]
    assert found["relative_gap"] > 1e-3


def test_coefficients_of_another_library(command, tmp_path):
    dataset = data.find("breast_cancer")
    X = (dataset.X - dataset.X.mean(0)) / dataset.X.std(0)
    np.savez(tmp_path / "s.npz", X=X, y=dataset.y)
    peer = LogisticRegression(C=0.5, tol=1e-3).fit(X, dataset.y)
    names = [f"f{k}" for k in range(X.shape[1])]
    write_coefficients(tmp_path / "w.csv", names, peer.coef_, peer.intercept_)
    found = proved(command, "w.csv", "s.npz", "-C", 0.5)
    expected = dn.certify(peer, X, dataset.y)
    assert found["primal"] == pytest.approx(expected.primal, rel=1e-12)
    assert found["dual"] == pytest.approx(expected.dual, rel=1e-9)


def test_a_kink_is_judged_sharply(command, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4))
    y = np.sign(X[:, 0] + 0.5 * rng.standard_normal(80))
    np.savez(tmp_path / "s.npz", X=X, y=y)
    peer = LinearSVC(loss="hinge", fit_intercept=False, tol=1e-10, max_iter=100_000).fit(X, y)
    write_coefficients(tmp_path / "w.csv", "abcd", peer.coef_)
    found = proved(command, "w.csv", "s.npz", "--loss", "hinge", "--no-intercept")
    assert found["relative_gap"] < 1e-6


def test_rows_are_found_by_name_and_classes_by_column(command, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3))
    y = np.array(["a", "b", "c"])[np.argmax(X, axis=1)]
    rows = [",".join([*map(repr, row.tolist()), label]) for row, label in zip(X, y, strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["u,v,w,label", *rows]) + "\n")
    command("fit", "x.csv", "--out", "m.model", "--tol", 1e-9, "--no-standardise")
    model = SavedModel.load("m.model")
    columns = [2, 0, 1]
    write_coefficients(
        tmp_path / "c.csv", "uvw", model.coef[columns], model.intercept[columns], tuple("cab"), order=[2, 0, 1]
    )
    found = proved(command, "c.csv", "x.csv")
    assert found["primal"] == pytest.approx(model.certificate.primal, rel=1e-12)
    write_coefficients(tmp_path / "c.csv", "uvw", model.coef, model.intercept, tuple("abd"))
    assert "must have the classes a, b, c as columns" in refused(command("certify", "c.csv", "x.csv"))
    write_coefficients(tmp_path / "c.csv", "uvz", model.coef, model.intercept, tuple("abc"))
    assert "no coefficient for the feature 'w'" in refused(command("certify", "c.csv", "x.csv"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("w.csv", "1,2.5,-3\n"),
        ("w.csv", "1\n2.5\n\n-3\n"),
        ("w.csv", "coefficient\n1\n2.5\n-3\n"),
        ("w.txt", "1 2.5 -3\n"),
        ("w.csv", "feature,coefficient\na,1\nb,2.5\nc,-3\n"),
        ("w.csv", "a,1\nb,2.5\nc,-3\n"),
        ("w.tsv", "feature\tcoefficient\n0\t1\n1\t2.5\n2\t-3\n"),
    ],
)
def test_files_of_coefficients(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    found = read_coefficients(str(tmp_path / name))
    np.testing.assert_array_equal(found.coef, [[1, 2.5, -3]])
    assert found.intercept is None


def test_without_an_intercept_the_best_one_is_taken_and_said(command, tmp_path):
    dataset = data.find("diabetes")
    w = np.linspace(-1, 1, 10)
    (tmp_path / "w.csv").write_text(",".join(map(repr, w.tolist())))
    said = command("certify", "w.csv", "diabetes")
    assert "with the intercept that is best for them" in said.out
    problem = dn.Problem(dataset.X, dataset.y, dn.losses.Squared(), fit_intercept=True)
    assert f"primal {problem.certify(w).primal:.10g}" in said.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("1,2\n", "must have 10 coefficients, one for each feature of diabetes, got 2"),
        ("1,2\n3,4\n", "must be a line or a column of numbers"),
        ("feature,coefficient\na,x\n", "must hold finite numbers, got 'x'"),
        ("feature,coefficient\na,inf\n", "must hold finite numbers, got 'inf'"),
        ("feature,coefficient\na,1\na,2\n", "must name each feature once, got 'a'"),
        ("feature,coefficient\na,1\nb\n", "must have 2 cells in each row"),
        ("feature,coefficient\nintercept,1\n", "an intercept and no coefficients"),
        ("feature,u,v\na,1,2\n", "must have one column of coefficients, got 2"),
        ("coefficient\n", "no coefficients"),
        ("feature,coefficient\n", "a feature and its coefficients"),
    ],
)
def test_files_that_are_no_coefficients(command, tmp_path, text, message):
    (tmp_path / "w.csv").write_text(text)
    assert message in refused(command("certify", "w.csv", "diabetes"))


def test_a_file_that_is_no_text(command, tmp_path):
    (tmp_path / "w.csv").write_bytes(b"\xff\xfe\x00\x01" * 9)
    assert "is not text" in refused(command("certify", "w.csv", "diabetes"))


def test_a_saved_model_has_its_own_objective(command):
    command("fit", "iris", "--out", "m.model")
    assert "C must be left out" in refused(command("certify", "m.model", "iris", "-C", 3))
    assert "penalty must be left out" in refused(command("certify", "m.model", "iris", "--penalty", "l1"))


def test_what_nonnegative_does_not_allow_has_no_proof(command, tmp_path):
    (tmp_path / "w.csv").write_text(",".join(["-1"] * 10))
    found = proved(command, "w.csv", "diabetes", "--penalty", "nonnegative")
    assert found["primal"] is None
