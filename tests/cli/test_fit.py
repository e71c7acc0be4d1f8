"""fit: what it solves, proves, says and saves."""

import re

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

import dualnewton as dn
from cli.running import refused
from dualnewton import data
from dualnewton.cli._problems import problems_from, problems_of
from dualnewton.interop.model_file import SavedModel
from dualnewton.interop.names import LOSSES


def csv_of(path, X, y, names=None, label="label"):
    names = names or [f"f{k}" for k in range(X.shape[1])]
    lines = [",".join([*names, label])]
    lines += [",".join([*(repr(float(x)) for x in row), str(target)]) for row, target in zip(X, y, strict=True)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("penalty", ["l2", "l1", "elasticnet", "nonnegative"])
@pytest.mark.parametrize("loss", LOSSES)
def test_what_is_saved_is_proved(command, loss, penalty):
    name = "breast_cancer" if loss in ("logistic", "squared_hinge", "smooth_hinge", "hinge") else "diabetes"
    said = command("fit", name, "--loss", loss, "--penalty", penalty, "-C", 0.01, "--tol", 1e-4, "--out", "m.model")
    assert said.code == 0, said.err
    assert "saved in m.model" in said.out
    model, dataset = SavedModel.load("m.model"), data.find(name)
    (problem,) = problems_of(model.objective, dataset, model.classes)
    certificate = problem.certify(model.coef[0], float(model.intercept[0]))
    assert certificate.primal == pytest.approx(model.certificate.primal, rel=1e-12)
    primal = problem.primal(model.coef[0], float(model.intercept[0]))
    assert model.certificate.dual <= primal + 1e-12 * abs(primal)  # P is negative for counts
    assert model.certificate.relative_gap <= 1e-4
    assert model.objective.lam == pytest.approx(1.0 / (0.01 * dataset.X.shape[0]), rel=1e-15)
    assert str(model.certificate) in said.out


def test_classes_and_C_are_those_of_scikit_learn(command):
    command("fit", "breast_cancer", "-C", 0.3, "--tol", 1e-12, "--out", "m.model")
    model, dataset = SavedModel.load("m.model"), data.find("breast_cancer")
    peer = dn.LogisticRegression(C=0.3, tol=1e-10).fit(dataset.X, dataset.y)
    np.testing.assert_allclose(model.coef, peer.coef_, rtol=1e-4, atol=1e-8)
    np.testing.assert_array_equal(model.predict(dataset.X), peer.predict(dataset.X))
    np.testing.assert_allclose(model.predict_proba(dataset.X), peer.predict_proba(dataset.X), atol=1e-6)


def test_lam_is_scikit_learns_alpha(command):
    command(
        "fit", "diabetes", "--penalty", "elasticnet", "--l1-ratio", 0.3, "--lam", 0.05, "--tol", 1e-12, "--out", "m"
    )
    model, dataset = SavedModel.load("m"), data.find("diabetes")
    peer = dn.ElasticNet(0.05, l1_ratio=0.3, tol=1e-12).fit(dataset.X, dataset.y)
    np.testing.assert_allclose(model.coef[0], peer.coef_, rtol=1e-6, atol=1e-6)
    assert (
        f"R2 {peer.score(dataset.X, dataset.y):.4f}"
        in command("fit", "diabetes", *["--penalty", "elasticnet", "--l1-ratio", "0.3", "--lam", "0.05"]).out
    )


@pytest.mark.parametrize(
    ("words", "multiclass", "certificates"),
    [
        ([], "softmax", 1),
        (["--penalty", "l1", "-C", "1"], "softmax", 1),
        (["--penalty", "nonnegative"], "softmax", 1),
        (["--penalty", "l1", "--multiclass", "ovr"], "ovr", 3),
        (["--multiclass", "ovr"], "ovr", 3),
        (["--loss", "squared_hinge"], "ovr", 3),
    ],
)
def test_three_classes(command, words, multiclass, certificates):
    said = command("fit", "iris", *words, "--out", "iris.model")
    model = SavedModel.load("iris.model")
    assert model.objective.multiclass == multiclass
    assert model.coef.shape == (3, 4)
    assert len(model.certificates) == certificates
    assert said.out.count("primal") == (1 if certificates == 1 else 4)


def test_the_loss_is_chosen_from_the_labels_and_said(command):
    assert "logistic since the target has 3 distinct labels" in command("fit", "iris").out
    assert "squared since the target has 214 distinct values" in command("fit", "diabetes").out
    assert "(quantile as asked)" in command("fit", "diabetes", "--loss", "quantile", "--quantile", 0.9).out
    assert "(huber as asked)" in command("fit", "diabetes", "--loss", "huber", "--delta", 20).out


def test_text_labels_and_columns_by_name(command, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 3))
    y = np.where(X[:, 0] > 0, "yes", "no")
    train = csv_of(tmp_path / "train.csv", X, y)
    turned = csv_of(tmp_path / "turned.csv", X[:, ::-1], y, ["f2", "f1", "f0"])
    said = command("fit", train, "--target", "label", "--test", turned, "--out", "m.model")
    assert said.code == 0, said.err
    model = SavedModel.load("m.model")
    assert model.classes.tolist() == ["no", "yes"]
    assert model.feature_names == ("f0", "f1", "f2")
    score = f"accuracy {model.score(StandardScaler().fit_transform(X), y):.4f}"
    assert said.out.count(score) == 2


def test_labels_that_are_whole_numbers_are_saved_as_integers(command, tmp_path):
    X = np.random.default_rng(0).standard_normal((40, 2))
    csv_of(tmp_path / "a.csv", X, np.sign(X[:, 0]))
    command("fit", "a.csv", "--target", "label", "--out", "m.model")
    assert SavedModel.load("m.model").classes.tolist() == [-1, 1]


def test_weights_are_a_column(command, tmp_path):
    rng = np.random.default_rng(1)
    X, y, c = rng.standard_normal((60, 2)), rng.integers(0, 2, 60), rng.integers(1, 4, 60)
    csv_of(tmp_path / "w.csv", np.column_stack([X, c]), y, ["a", "b", "weight"])
    command("fit", "w.csv", "--target", "label", "--weights", "weight", "--tol", 1e-12, "--out", "w.model")
    csv_of(tmp_path / "r.csv", np.repeat(X, c, axis=0), np.repeat(y, c), ["a", "b"])
    command("fit", "r.csv", "--target", "label", "--tol", 1e-12, "--out", "r.model")
    weighted, repeated = SavedModel.load("w.model"), SavedModel.load("r.model")
    assert weighted.feature_names == ("a", "b")
    np.testing.assert_allclose(weighted.coef, repeated.coef, rtol=1e-5)  # C counts the sum over rows


def test_a_limit_is_no_failure(command):
    words = ("fit", "breast_cancer", "--method", "sdca", "--out", "m.model")
    said = command(*words, "--max-epochs", 1)
    assert said.code == 0
    assert "EPOCH_LIMIT" in said.out
    assert "a higher --max-epochs gets closer" in said.out
    assert SavedModel.load("m.model").status == ("EPOCH_LIMIT",)
    assert "TIME_LIMIT" in command(*words, "--time-limit", 0).out


def test_without_out_nothing_is_written(command, tmp_path):
    said = command("fit", "iris")
    assert "--out FILE" in said.out
    assert list(tmp_path.iterdir()) == []


def test_equal_commands_give_equal_models(command):
    for name in ("a", "b"):
        command("fit", "diabetes", "--method", "sdna", "--seed", 3, "--lam", 1, "--out", f"{name}.model")
    a, b = SavedModel.load("a.model"), SavedModel.load("b.model")
    np.testing.assert_array_equal(a.coef, b.coef)
    assert a.command == "dualnewton fit diabetes --method sdna --seed 3 --lam 1 --out a.model"


def test_the_progress_line_has_epoch_gap_and_time(command):
    said = command("fit", "breast_cancer")
    lines = said.err.splitlines()
    assert re.match("fit: epoch [0-9]+, relative gap ", lines[0])
    assert "left" not in lines[-1]  # it is done
    assert "\x1b" not in said.err + said.out  # no colours where nobody sees them


def test_the_bar_fills_as_the_gap_falls():
    from dualnewton.cli._progress import done

    assert done(1.0, 1.0, 1e-6) == 0.0
    assert done(1.0, 1e-3, 1e-6) == pytest.approx(0.5)
    assert done(1.0, 1e-7, 1e-6) == 1.0
    assert done(float("inf"), 1e-3, 1e-6) == 0.0
    assert done(1.0, 1e-3, 0.0) == pytest.approx(3 / 16)


@pytest.mark.parametrize(("C", "lam", "expected"), [(None, None, 1 / 150), (2.0, None, 1 / 300), (None, 0.7, 0.7)])
def test_the_strength(C, lam, expected):
    assert problems_from(data.find("iris"), C=C, lam=lam).objective.lam == pytest.approx(expected, rel=1e-15)


def test_a_checkpoint_goes_when_the_model_is_safe(command, tmp_path):
    words = ("fit", "iris", "--loss", "squared_hinge", "--method", "sdna", "--checkpoint", "c.ckpt")
    said = command(*words)
    assert "c.ckpt, from which the same command continues" in said.out  # no model was saved
    assert (tmp_path / "c.ckpt").exists()
    assert command(*words, "--max-epochs", 0, "--out", "m.model").code == 0
    assert SavedModel.load("m.model").status == ("CONVERGED",) * 3  # it was there
    assert not (tmp_path / "c.ckpt").exists()


def test_the_checkpoint_of_another_run_is_refused_and_kept(command, tmp_path):
    words = ("fit", "iris", "--checkpoint", "c.ckpt")
    command(*words)
    before = (tmp_path / "c.ckpt").read_bytes()
    assert "lam" in refused(command(*words, "-C", 3, "--out", "m.model"))
    assert (tmp_path / "c.ckpt").read_bytes() == before
    assert not (tmp_path / "m.model").exists()


@pytest.mark.parametrize(("options", "expected"), [((), 5), (("--threads", 2), 2)])
def test_a_fit_uses_all_physical_cores_unless_told_otherwise(command, monkeypatch, options, expected):
    asked = []

    def recorded(*arguments, n_threads, **settings):
        asked.append(n_threads)
        return dn.solve_many(*arguments, n_threads=n_threads, **settings)

    monkeypatch.setattr("dualnewton.matrix.workers.physical_cores", lambda: 5)
    monkeypatch.setattr("dualnewton.run.loop.solve_many", recorded)
    assert command("fit", "iris", *options).code == 0
    assert asked == [expected]


def test_without_a_penalty(command):
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import LinearRegression

    X, y = load_diabetes(return_X_y=True)
    expected = LinearRegression().fit(X, y).coef_
    for words in (["-C", "inf"], ["--lam", 0]):
        said = command("fit", "diabetes", *words, "--tol", 1e-10, "--out", "m.model")
        assert "lambda = 0" in said.out
        assert "CONVERGED" in said.out
        np.testing.assert_allclose(SavedModel.load("m.model").coef[0], expected, rtol=1e-4)
        assert "lambda = 0" in command("certify", "m.model", "diabetes").out
    for name in ("plan", "rates"):
        assert "needs a penalty" in refused(command(name, "diabetes", "-C", "inf"))
