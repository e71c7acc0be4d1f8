"""predict: what a saved model says, where it is written, and which columns it looks at."""

import csv
import io

import numpy as np
import pytest

from cli.running import refused
from dualnewton import data
from dualnewton.interop.model_file import SavedModel


@pytest.fixture
def iris(command):
    command("fit", "iris", "--out", "iris.model")
    return SavedModel.load("iris.model"), data.find("iris")


def table(text):
    rows = list(csv.reader(io.StringIO(text)))
    return rows[0], rows[1:]


def write(path, names, columns):
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_classes_go_to_the_screen(command, iris):
    model, dataset = iris
    names, rows = table(command("predict", "iris.model", "iris").out)
    assert names == ["prediction"]
    assert [row[0] for row in rows] == [str(label) for label in model.predict(dataset.X).tolist()]


def test_numbers_keep_all_their_digits(command, iris):
    model, dataset = iris
    names, rows = table(command("predict", "iris.model", "iris", "--proba").out)
    assert names == [str(label) for label in model.classes.tolist()]
    np.testing.assert_array_equal(np.array(rows, dtype=float), model.predict_proba(dataset.X))
    command("predict", "iris.model", "iris", "--decision", "--out", "z.npy")
    np.testing.assert_array_equal(np.load("z.npy"), model.decision_function(dataset.X))


def test_a_file_holds_what_the_screen_shows(command, iris, tmp_path):
    shown = command("predict", "iris.model", "iris", "--proba").out
    said = command("predict", "iris.model", "iris", "--proba", "--out", "p.csv")
    assert said.out == ""
    assert (tmp_path / "p.csv").read_text(encoding="utf-8") == shown


def test_values_and_text_labels_fit_in_an_npy_file(command, tmp_path):
    command("fit", "diabetes", "--out", "d.model")
    command("predict", "d.model", "diabetes", "--out", "d.npy")
    dataset = data.find("diabetes")
    np.testing.assert_array_equal(np.load("d.npy"), SavedModel.load("d.model").predict(dataset.X))
    x = np.linspace(-1, 1, 20)
    write(tmp_path / "t.csv", ["x", "label"], [x, np.where(x > 0, "up", "down")])
    command("fit", "t.csv", "--out", "t.model")
    command("predict", "t.model", "t.csv", "--out", "t.npy")
    assert set(np.load("t.npy", allow_pickle=False).tolist()) == {"up", "down"}


def test_columns_are_found_by_name_and_the_target_need_not_be_there(command, tmp_path):
    rng = np.random.default_rng(0)
    a, b, c = rng.standard_normal((3, 50))
    y = np.where(a + b > 0, "p", "q")
    write(tmp_path / "train.csv", ["a", "b", "out"], [a, b, y])
    command("fit", "train.csv", "--target", "out", "--out", "m.model")
    expected = command("predict", "m.model", "train.csv").out
    write(tmp_path / "bare.csv", ["b", "c", "a"], [b, c, a])
    assert command("predict", "m.model", "bare.csv").out == expected
    write(tmp_path / "bare.csv", ["b", "a"], [b, a])
    assert command("predict", "m.model", "bare.csv").out == expected
    write(tmp_path / "less.csv", ["b", "c"], [b, c])
    assert "no column 'a'" in refused(command("predict", "m.model", "less.csv"))


def test_without_names_columns_are_counted(command, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 4))
    np.savez(tmp_path / "train.npz", X=X, y=np.sign(X[:, 0]))
    command("fit", "train.npz", "--out", "m.model")
    np.save(tmp_path / "x.npy", X)
    _, rows = table(command("predict", "m.model", "x.npy").out)
    np.testing.assert_array_equal([int(row[0]) for row in rows], SavedModel.load("m.model").predict(X))
    np.save(tmp_path / "x.npy", X[:, :3])
    assert "3" in refused(command("predict", "m.model", "x.npy"))


def test_a_sparse_file_may_end_before_the_last_feature(command, tmp_path):
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n-1 1:-1 2:1\n1 3:1\n-1 2:2\n")
    command("fit", "a.svm", "--out", "m.model")
    (tmp_path / "b.svm").write_text("1 1:1\n-1 2:5\n")
    assert command("predict", "m.model", "b.svm").out == "prediction\n1\n-1\n"
    (tmp_path / "c.svm").write_text("1 1:1 7:2\n")
    refused(command("predict", "m.model", "c.svm"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--proba", "--decision"], "give one of them"),
        (["--out", "p.xlsx"], "--out must end in .csv or .npy"),
        (["--out", "absent/p.csv"], "no such folder"),
    ],
)
def test_refusals(command, iris, tmp_path, words, message):
    assert message in refused(command("predict", "iris.model", "iris", *words))
    assert [path.name for path in tmp_path.iterdir()] == ["iris.model"]


def test_probabilities_belong_to_the_logistic_loss(command):
    command("fit", "iris", "--loss", "hinge", "--out", "m.model")
    assert "logistic" in refused(command("predict", "m.model", "iris", "--proba"))
