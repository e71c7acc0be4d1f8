"""evaluate: the scores, against scikit-learn's."""

import json

import numpy as np
import pytest
from sklearn import metrics

from cli.running import refused
from dualnewton import data
from dualnewton.interop.model_file import SavedModel


def scores(command, *words):
    said = command("evaluate", *words, "--json")
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_two_classes(command):
    command("fit", "breast_cancer", "--out", "m.model")
    model, dataset = SavedModel.load("m.model"), data.find("breast_cancer")
    y = dataset.y
    assert scores(command, "m.model", "breast_cancer") == pytest.approx(
        {
            "n": 569,
            "accuracy": metrics.accuracy_score(y, model.predict(dataset.X)),
            "log_loss": metrics.log_loss(y, model.predict_proba(dataset.X)),
            "auc": metrics.roc_auc_score(y == model.classes[1], model.decision_function(dataset.X)),
        },
        rel=1e-9,
    )


def test_three_classes(command):
    command("fit", "iris", "--out", "m.model")
    found = scores(command, "m.model", "iris")
    assert set(found) == {"n", "accuracy", "log_loss"}
    command("fit", "iris", "--loss", "hinge", "--out", "m.model")
    assert set(scores(command, "m.model", "iris")) == {"n", "accuracy"}


def test_values(command):
    command("fit", "diabetes", "--out", "m.model")
    model, dataset = SavedModel.load("m.model"), data.find("diabetes")
    y, z = dataset.y, model.predict(dataset.X)
    assert scores(command, "m.model", "diabetes") == pytest.approx(
        {
            "n": 442,
            "r2": metrics.r2_score(y, z),
            "rmse": np.sqrt(metrics.mean_squared_error(y, z)),
            "mae": metrics.mean_absolute_error(y, z),
        },
        rel=1e-9,
    )
    text = command("evaluate", "m.model", "diabetes").out
    assert f"{metrics.r2_score(y, z):.6g}" in text
    assert "mean absolute error" in text


def test_weights_count(command, tmp_path):
    rng = np.random.default_rng(0)
    x, c = rng.standard_normal(40), rng.integers(0, 3, 40)
    y = np.sign(x + rng.standard_normal(40)).astype(int)

    def write(name, x, y, c):
        rows = [f"{a!r},{b},{w}" for a, b, w in zip(x.tolist(), y, c, strict=True)]
        (tmp_path / name).write_text("\n".join(["x,label,c", *rows]) + "\n")

    write("w.csv", x, y, c)
    write("r.csv", np.repeat(x, c), np.repeat(y, c), np.ones(c.sum(), dtype=int))
    command("fit", "w.csv", "--target", "label", "--weights", "c", "--out", "m.model")
    weighted = scores(command, "m.model", "w.csv", "--weights", "c")
    repeated = scores(command, "m.model", "r.csv")
    for name in ("accuracy", "log_loss", "auc"):
        assert weighted[name] == pytest.approx(repeated[name], rel=1e-12)


def test_a_score_without_meaning_is_null(command, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,1\n2,1\n-1,0\n-2,0\n")
    (tmp_path / "b.csv").write_text("x,y\n1,1\n2,1\n")
    command("fit", "a.csv", "--out", "m.model")
    assert scores(command, "m.model", "b.csv")["auc"] is None


def test_labels_that_the_model_does_not_know(command, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,1\n2,1\n-1,0\n-2,0\n")
    (tmp_path / "b.csv").write_text("x,y\n1,7\n2,1\n")
    command("fit", "a.csv", "--out", "m.model")
    assert "must hold the classes of the model, 0, 1, got 7 as well" in refused(command("evaluate", "m.model", "b.csv"))
    (tmp_path / "c.csv").write_text("x,y\n1,up\n2,down\n")
    command("fit", "diabetes", "--out", "d.model")
    refused(command("evaluate", "d.model", "c.csv"))
