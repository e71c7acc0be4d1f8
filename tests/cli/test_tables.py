"""Business tables: what `fit` finds and says, and that predict, evaluate and certify apply the same encoding."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cli.running import refused
from dualnewton.interop.model_file import SavedModel

N = 150


def churn():
    rng = np.random.default_rng(0)
    age, plan, active = rng.integers(18, 90, N), rng.choice(["basic", "plus", "pro"], N), rng.random(N) < 0.5
    margin = 0.05 * (age - 50) + 1.5 * (plan == "basic") - active
    return pd.DataFrame(
        {
            "customer": [f"K{k:04d}" for k in range(N)],
            "age": age.astype(float),
            "spent": rng.normal(100.0, 30.0, N).round(2),
            "plan": plan,
            "active": active,
            "since": [f"20{10 + k % 13}-0{1 + k % 9}-1{k % 9}" for k in range(N)],
            "churn": np.where(rng.random(N) < 1 / (1 + np.exp(-margin)), "yes", "no"),
        }
    )


@pytest.fixture
def table(tmp_path):
    found = churn()
    found.to_csv(tmp_path / "churn.csv", index=False)
    return found


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_is_fitted_as_scikit_learn_would(command, table, tmp_path):
    words = ("--drop", "since,spent", "--tol", 1e-12, "--out", "m.model")
    said = command("fit", "churn.csv", "--target", "churn", *words)
    assert said.code == 0, said.err
    X = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(sparse_output=False), ["plan"]), ("passthrough", ["active"])
    ).fit_transform(table)
    peer = LogisticRegression(tol=1e-10, max_iter=10_000).fit(X, table["churn"])
    model = SavedModel.load("m.model")
    np.testing.assert_allclose(model.coef, peer.coef_, atol=1e-5)
    assert model.feature_names == ("age", "plan=basic", "plan=plus", "plan=pro", "active")

    proba = rows_of(command("predict", "m.model", "churn.csv", "--proba").out)
    np.testing.assert_allclose([float(row["yes"]) for row in proba], peer.predict_proba(X)[:, 1], atol=1e-5)
    assert [row["customer"] for row in proba] == table["customer"].tolist()  # identifiers are kept
    found = json.loads(command("evaluate", "m.model", "churn.csv", "--json").out)
    assert found["accuracy"] == pytest.approx(peer.score(X, table["churn"]))
    proved = json.loads(command("certify", "m.model", "churn.csv", "--json").out)
    assert proved["primal"] == pytest.approx(model.certificate.primal, rel=1e-12)
    assert "it covers the fit on the encoded matrix" in said.out
    assert "about the encoded matrix" in command("certify", "m.model", "churn.csv").out


def test_parquet_takes_the_same_way(command, table, tmp_path):
    table.assign(since=pd.to_datetime(table["since"])).to_parquet(tmp_path / "churn.parquet")
    for name in ("churn.csv", "churn.parquet"):
        assert command("fit", name, "--target", "churn", "--out", f"{name}.model").code == 0
    first, second = (SavedModel.load(f"{name}.model") for name in ("churn.csv", "churn.parquet"))
    assert first.table == second.table
    np.testing.assert_array_equal(first.coef, second.coef)


def test_text_in_parquet_is_read_as_in_csv(command, table, tmp_path):
    plan = table["plan"].where(np.arange(N) % 7 > 0, "n/a")
    active = np.where(table["active"], "true", "false")
    written = table.assign(plan=plan, active=active, hour=[f"{k % 24:02d}:30" for k in range(N)], code='007\n"x"')
    written.loc[3, "since"] = "?"
    written.to_csv(tmp_path / "words.csv", index=False)
    written.to_parquet(tmp_path / "words.parquet")
    for name in ("words.csv", "words.parquet"):
        said = command("fit", name, "--target", "churn", "--out", f"{name}.model")
        assert said.code == 0, said.err
    first, second = (SavedModel.load(f"{name}.model") for name in ("words.csv", "words.parquet"))
    assert first.table == second.table
    assert {"since", "since missing", "active", "hour"} <= set(second.feature_names)
    assert "plan=n/a" not in second.feature_names
    np.testing.assert_array_equal(first.coef, second.coef)
    one, other = (command("predict", "words.csv.model", name).out for name in ("words.csv", "words.parquet"))
    assert one == other


def test_columns_of_another_use_or_kind_are_refused_by_name(command, table):
    said = refused(command("fit", "churn.csv", "--target", "churn", "--features", "churn"))
    assert "--features must name columns of the features, got 'churn', which is the target" in said
    for option in ("--weights", "--offset"):
        said = refused(command("fit", "churn.csv", "--target", "churn", option, "since"))
        assert f"the {option[2:].removesuffix('s')}s in 'since' must be numbers, got dates" in said
    assert "got dates" in refused(command("fit", "churn.csv", "--target", "since"))


def test_fit_names_target_rows_columns_and_what_was_done(command, table):
    out = command("fit", "churn.csv", "--target", "churn").out
    lines = {line.split()[0]: " ".join(line.split()) for line in out.splitlines() if line.strip()}
    assert lines["table"] == f"table churn.csv: {N} rows, 7 columns"
    assert lines["customer"] == f"customer identifier text with {N} distinct values left out"
    assert lines["plan"].startswith("plan newton") or "3 columns of 0 and 1" in out
    assert "since date 2010" in lines["since"]
    counts = table["churn"].value_counts()
    assert lines["target"] == f"target churn: classes no ({counts['no']}), yes ({counts['yes']})"


def test_decimal_commas_encodings_and_missing_targets(command, table, tmp_path):
    table.loc[3, "churn"] = None
    german = table.rename(columns={"churn": "gekündigt"})
    german.to_csv(tmp_path / "g.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    said = command("fit", "g.csv", "--target", "gekündigt", "--out", "g.model")
    assert said.code == 0, said.err
    assert "separated by semicolons, decimal commas, read as cp1252" in said.out
    assert "1 row without a target left out" in said.out
    assert SavedModel.load("g.model").n == N - 1
    assert len(rows_of(command("predict", "g.model", "g.csv").out)) == N  # a row without a target is predicted, too
    assert "not UTF-8 text" in refused(command("fit", "g.csv", "--target", "gekündigt", "--encoding", "utf-8"))
    assert "a codec of Python" in refused(command("fit", "g.csv", "--encoding", "klingon"))
    assert "decimal must be" in refused(command("fit", "g.csv", "--decimal", "x"))


def test_a_new_category_at_prediction_is_told_and_not_refused(command, table, tmp_path):
    command("fit", "churn.csv", "--target", "churn", "--out", "m.model")
    table.assign(plan="ultra").head(2).drop(columns="churn").to_csv(tmp_path / "new.csv", index=False)
    said = command("predict", "m.model", "new.csv", "--keep", "plan")
    assert said.code == 0
    assert "plan: 2 of 2 values are new ('ultra')" in said.err
    assert list(rows_of(said.out)[0]) == ["customer", "plan", "prediction"]


def test_digits_with_leading_zeros_are_no_quantities(command, table, tmp_path):
    table.assign(phone=[f"0{k:05d}" for k in range(N)], zip=["01234", "98101"] * (N // 2)).to_csv("z.csv", index=False)
    said = command("fit", "z.csv", "--target", "churn", "--out", "m.model")
    lines = {line.split()[0]: " ".join(line.split()) for line in said.out.splitlines() if line.strip()}
    assert lines["zip"] == "zip category 01234, 98101 2 columns of 0 and 1"
    assert "phone identifier" in lines["phone"]
    assert "with leading zeros: --numeric phone uses them" in lines["phone"]
    assert rows_of(command("predict", "m.model", "z.csv").out)[7]["phone"] == "000007"
    assert "phone number 0 to 149" in " ".join(
        command("fit", "z.csv", "--target", "churn", "--numeric", "phone").out.split()
    )


def test_a_table_without_the_target_of_the_model_cannot_be_evaluated(command, table, tmp_path):
    command("fit", "churn.csv", "--target", "churn", "--out", "m.model")
    table.drop(columns="churn").to_csv("new.csv", index=False)
    assert "new.csv has no column 'churn', the target of the model" in refused(
        command("evaluate", "m.model", "new.csv")
    )


def test_held_out_rows_are_not_seen_by_the_encoding(command, table):
    said = command("fit", "churn.csv", "--target", "churn", "--test-size", 0.2, "--out", "m.model")
    model = SavedModel.load("m.model")
    assert model.n == 0.8 * N
    assert f"on {N // 5} held-out examples" in said.out
    (age,) = [column for column in model.table.columns if column.name == "age"]
    assert age.mean != pytest.approx(table["age"].mean(), rel=1e-6)
    again = command("fit", "churn.csv", "--target", "churn", "--test-size", 0.2).out
    assert [line for line in again.splitlines() if "accuracy" in line] == [
        line for line in said.out.splitlines() if "accuracy" in line
    ]
    assert "between 0 and 1" in refused(command("fit", "churn.csv", "--test-size", 1.5))
    assert "held-out examples" in command("fit", "iris", "--test-size", 0.3).out


@pytest.mark.parametrize(
    "words", [["--target", "churn"], ["--target", "spent"], ["--target", "spent", "--penalty", "l1"]]
)
def test_cross_validation_chooses_lambda_with_a_proof(command, table, words):
    said = command("fit", "churn.csv", *words, "--cv", 3, "--out", "m.model")
    assert said.code == 0, said.err
    assert "xact fits" in said.out
    (choice,) = [line for line in said.out.splitlines() if line.startswith("choice")]
    name, value = choice.split()[1], float(choice.split()[3])
    lam = SavedModel.load("m.model").objective.lam
    known = {"C": lambda: 1.0 / (value * N), "alpha": lambda: value if "l1" in words else value / N}
    assert lam == pytest.approx(known[name](), rel=1e-3)
    assert "leave out -C and --lam" in refused(command("fit", "churn.csv", *words, "--cv", 3, "-C", 1))


def test_what_cross_validation_does_not_know(command):
    assert "--cv is for the losses" in refused(command("fit", "breast_cancer", "--loss", "hinge", "--cv", 3))
    assert "from 2" in refused(command("fit", "breast_cancer", "--cv", 1))


def test_options_of_tables_are_for_tables(command):
    assert "--drop is for tables" in refused(command("fit", "iris", "--drop", "a"))


def test_coefficients_are_listed_by_name_in_original_units(command, table, tmp_path):
    command("fit", "churn.csv", "--target", "spent", "--features", "age,active", "--lam", 1e-9, "--out", "m.model")
    said = command("coefficients", "m.model", "--out", "c.csv", "--json")
    found = {line["name"]: line["coefficient"] for line in json.loads(said.out)["coefficients"]}
    A = np.column_stack([table["age"], table["active"], np.ones(N)]).astype(float)
    exact = np.linalg.lstsq(A, table["spent"], rcond=None)[0]
    np.testing.assert_allclose([found["age"], found["active"]], exact[:2], rtol=1e-5)
    text = command("coefficients", "m.model").out
    listed = [line.split()[0] for line in text.splitlines() if "█" in line or "░" in line][1:]
    effects = {line["name"]: abs(line["fitted"]) for line in json.loads(said.out)["coefficients"]}
    assert listed == sorted(effects, key=effects.get, reverse=True)
    assert rows_of((tmp_path / "c.csv").read_text())[0]["feature"] == "intercept"
    assert "and 1 more" in command("coefficients", "m.model", "--top", 1).out
    assert "--top" in refused(command("coefficients", "m.model", "--top", -1))


def test_a_single_feature_can_be_fitted_and_predicted(command, tmp_path):
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{k},{3 * k + k % 2}\n" for k in range(30)))
    (tmp_path / "x.csv").write_text("x\n1\n2\n")
    assert command("fit", "t.csv", "--loss", "squared", "--lam", 1e-9, "--out", "m.model").code == 0
    said = command("predict", "m.model", "x.csv")
    assert said.code == 0, said.err
    np.testing.assert_allclose([float(row["prediction"]) for row in rows_of(said.out)], [3.5, 6.5], atol=0.2)


def test_repeated_names_are_refused_before_the_fit(command, tmp_path):
    (tmp_path / "t.csv").write_text("a,a,y\n1,2,0\n2,1,1\n3,4,1\n")
    assert "every column must have its own name, got 'a' 2 times" in refused(command("fit", "t.csv"))


def test_weights_of_zero_and_wrong_names_are_refused(command, tmp_path):
    place = tmp_path / "zero.csv"
    place.write_text("x,w,y\n" + "".join(f"{k},0,{k % 2}\n" for k in range(12)))
    assert "sample_weight must have a positive entry" in refused(
        command("fit", place, "--target", "y", "--weights", "w")
    )
    wrong = refused(command("fit", place, "--target", "y", "--drop", "w", "--multiclass", "neither"))
    assert "multiclass must be one of softmax, ovr, got 'neither'" in wrong


@pytest.mark.parametrize("ending", ["npz", "svm"])
def test_a_model_of_a_table_refuses_other_data(command, tmp_path, ending):
    # Its coefficients belong to standardised numbers: those of an array with as many columns would be taken for them.
    rng = np.random.default_rng(0)
    x, y = rng.normal(100.0, 5.0, (40, 2)), np.arange(40) % 2
    pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    assert command("fit", tmp_path / "t.csv", "--target", "y", "--out", tmp_path / "m").code == 0
    assert command("convert", tmp_path / "t.csv", tmp_path / f"t.{ending}", "--target", "y").code == 0
    for name in ("predict", "evaluate", "certify"):
        assert "the model encodes the columns of a table" in refused(
            command(name, tmp_path / "m", tmp_path / f"t.{ending}")
        )
