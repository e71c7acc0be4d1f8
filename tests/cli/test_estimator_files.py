"""Files that dn.save wrote from an estimator: predict, evaluate and certify take them as they take those of fit."""

import csv
import io
import json

import numpy as np
import pytest

import dualnewton as dn
from cli.running import refused
from interop_cases import CASES, NUMBERS, SCORES, X

LABELLED = {name: case for name, case in CASES.items() if case.y.ndim == 1}


@pytest.fixture
def files(tmp_path):
    """Write a model and its data, with weights if it was fitted with any."""

    def write(case):
        model = case.fitted()
        dn.save(model, tmp_path / "m.model")
        columns = {f"f{k}": X[:, k] for k in range(X.shape[1])} | {"label": case.y}
        weighted = columns if case.weights is None else columns | {"c": case.weights}
        for path, each in (("rows.csv", columns), ("data.csv", weighted)):
            with open(tmp_path / path, "w", encoding="utf-8", newline="") as file:
                rows = csv.writer(file)
                rows.writerow(each)
                rows.writerows(zip(*(column.tolist() for column in each.values()), strict=True))
        return model, [
            "m.model",
            "data.csv",
            "--target",
            "label",
            *([] if case.weights is None else ["--weights", "c"]),
        ]

    return write


@pytest.mark.parametrize("name", LABELLED)
def test_certify_proves_what_the_estimator_does(command, files, name):
    if name == "logistic, booleans":
        pytest.skip("a .csv file has text for booleans, and the model has 0 and 1")
    case = LABELLED[name]
    model, words = files(case)
    said = command("certify", *words, "--json")
    assert said.code == 0, said.err
    found, expected = json.loads(said.out), dn.certify(model, X, case.y, sample_weight=case.weights)
    assert found["primal"] == pytest.approx(expected.primal, rel=1e-12)
    assert found["dual"] <= expected.primal * (1.0 + 1e-12)
    assert found["primal"] - found["dual"] <= max(2.0 * model.tol, 1e-6) * abs(expected.primal)


@pytest.mark.parametrize("name", ["softmax, strings", "svc", "ridge classifier", "huber", "elastic net", "erm"])
def test_predict_and_evaluate_agree_with_the_estimator(command, files, name):
    case = LABELLED[name]
    model, words = files(case)
    rows = list(csv.reader(io.StringIO(command("predict", "m.model", "rows.csv", "--target", "label").out)))[1:]
    predicted = model.predict(X)
    if hasattr(model, "classes_"):
        assert [row[0] for row in rows if row] == [str(label) for label in predicted.tolist()]
    else:
        np.testing.assert_allclose([float(row[0]) for row in rows], predicted, rtol=1e-12)
    scores = json.loads(command("evaluate", *words, "--json").out)
    expected = model.score(X, case.y, sample_weight=case.weights)
    assert scores["accuracy" if hasattr(model, "classes_") else "r2"] == pytest.approx(expected, rel=1e-12)


def test_several_targets_can_be_predicted_and_no_more(command, tmp_path):
    dn.save(dn.Ridge().fit(X, SCORES), tmp_path / "m.model")
    np.savez(tmp_path / "data.npz", X=X, y=NUMBERS)
    rows = list(csv.reader(io.StringIO(command("predict", "m.model", "data.npz").out)))
    assert rows[0] == ["prediction_0", "prediction_1", "prediction_2"]
    np.testing.assert_allclose(np.array(rows[1:], dtype=float), dn.load("m.model").predict(X), rtol=1e-12)
    for what in ("evaluate", "certify"):
        assert "the model has 3 targets" in refused(command(what, "m.model", "data.npz"))
