"""The encoding of a table is that of scikit-learn's transformers, survives a file, and its units can be undone."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from dualnewton.errors import DualnewtonError
from dualnewton.io import arrow_csv, layout
from dualnewton.io.frames import Frame, read_frame
from dualnewton.io.source import ReadOptions
from dualnewton.preprocessing import Choices, Encoding, Kind, roles_of
from dualnewton.preprocessing.examples import examples_of

RNG = np.random.default_rng(0)
N = 200
WITH_HOLES = np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(40.0, 10.0, N))
TABLE = pd.DataFrame(
    {
        "customer_id": RNG.permutation(10 * N)[:N],
        "age": WITH_HOLES,
        "income": RNG.normal(3e4, 5e3, N),
        "plan": RNG.choice(["basic", "plus", "pro"], N),
        "city": RNG.choice(["Köln", "Paris", None], N),
        "active": RNG.random(N) < 0.3,
        "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 999, N), "D"),
        "name": [f"name {k}" for k in range(N)],
        "country": "DE",
        "comment": pd.Series([None] * N, dtype="string"),
    }
)


def frame_of(table, tmp_path):
    return Frame(tmp_path / "table.parquet", pa.Table.from_pandas(table, preserve_index=False))


@pytest.fixture
def frame(tmp_path):
    return frame_of(TABLE, tmp_path)


def encoding_of(frame, choices=None, **options):
    choices = choices or Choices()
    roles = roles_of(frame.table, frame.names, choices, frame.decimal)
    return Encoding.fit(frame, roles, choices=choices, **options)


def test_kinds_are_found_from_the_values(frame):
    found = {role.name: role.kind for role in roles_of(frame.table, frame.names, Choices())}
    assert found == {
        "customer_id": Kind.IDENTIFIER,
        "age": Kind.NUMBER,
        "income": Kind.NUMBER,
        "plan": Kind.CATEGORY,
        "city": Kind.CATEGORY,
        "active": Kind.BOOLEAN,
        "since": Kind.DATE,
        "name": Kind.IDENTIFIER,
        "country": Kind.CONSTANT,
        "comment": Kind.EMPTY,
    }


def test_the_matrix_is_that_of_scikit_learns_transformers(frame):
    days = TABLE.assign(since=(TABLE["since"] - pd.Timestamp(0)) / pd.Timedelta(days=1), active=1.0 * TABLE["active"])
    days["city"] = days["city"].fillna("~missing")  # sorts after the others
    peer = make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), ["age"]),
        ("passthrough", ["hole"]),
        (StandardScaler(), ["income"]),
        (OneHotEncoder(sparse_output=False), ["plan", "city"]),
        ("passthrough", ["active"]),
        (StandardScaler(), ["since"]),
    ).fit_transform(days.assign(hole=1.0 * TABLE["age"].isna()))
    encoding = encoding_of(frame)
    X, notes = encoding.matrix(frame)
    assert encoding.labels == (
        *("age", "age missing", "income", "plan=basic", "plan=plus", "plan=pro"),
        *("city=Köln", "city=Paris", "city missing", "active", "since"),
    )
    np.testing.assert_allclose(X, peer, rtol=0, atol=1e-12)
    assert notes == []
    assert encoding.identifiers == ("customer_id", "name")


def test_it_survives_json(frame):
    encoding = encoding_of(frame)
    words = json.loads(json.dumps(encoding.to_dict()))
    assert Encoding.from_dict(words) == encoding
    np.testing.assert_array_equal(Encoding.from_dict(words).matrix(frame).X, encoding.matrix(frame).X)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda words: words.pop("names"), "exactly the fields"),
        (lambda words: words["columns"][0].update(encoded="pickle"), "numeric or categorical"),
        (lambda words: words["columns"][0].update(scale=0.0), "scale > 0"),
        (lambda words: words["columns"][0].update(fill="x"), "finite numbers"),
        (lambda words: words["columns"][0].update(more=1), "is wrong"),
        (lambda words: words["columns"][2].update(distinct=[1]), "distinct must be texts"),
        (lambda words: words["columns"][2].update(indicator="yes"), "true or false"),
        (lambda words: words.update(has_names="yes"), "true or false"),
        (lambda words: words.update(identifiers=[3]), "a list of names"),
    ],
)
def test_damaged_words_are_refused(frame, change, message):
    words = json.loads(json.dumps(encoding_of(frame).to_dict()))
    change(words)
    with pytest.raises(DualnewtonError, match=message):
        Encoding.from_dict(words)


def test_original_units_give_the_same_margins(frame):
    encoding, rng = encoding_of(frame), np.random.default_rng(1)
    plain = encoding_of(frame, standardise=False)
    coef, intercept = rng.normal(size=(2, len(encoding.labels))), rng.normal(size=2)
    original, moved = encoding.in_original_units(coef, intercept)
    margins = encoding.matrix(frame).X @ coef.T + intercept
    np.testing.assert_allclose(plain.matrix(frame).X @ original.T + moved, margins, rtol=1e-9, atol=1e-9)


def test_new_and_missing_values_at_prediction_are_encoded_and_told(frame, tmp_path):
    encoding = encoding_of(frame)
    other = TABLE.head(3).copy()
    other.loc[:, "plan"] = ["ultra", "pro", None]
    other.loc[:, "income"] = [np.nan, 1.0, 2.0]
    X, notes = encoding.matrix(frame_of(other, tmp_path))
    k = encoding.labels.index("plan=basic")
    assert X[:, k : k + 3].tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 0]]
    at = encoding.labels.index("income")
    filled = TABLE["income"].median()
    assert X[0, at] == pytest.approx((filled - TABLE["income"].mean()) / TABLE["income"].std(ddof=0), abs=1e-12)
    assert [note.split(":")[0] for note in notes] == ["income", "plan", "plan"]
    assert "1 of 3 values are new ('ultra')" in notes[1]


def test_an_absent_column_is_named(frame, tmp_path):
    with pytest.raises(DualnewtonError, match="no column 'income', which the model was fitted on"):
        encoding_of(frame).matrix(frame_of(TABLE.drop(columns="income"), tmp_path))


def test_many_categories_make_a_sparse_matrix(tmp_path):
    table = pd.DataFrame({"city": [f"city {k % 90:02d}" for k in range(900)], "x": np.arange(900.0) ** 2})
    frame = frame_of(table, tmp_path)
    X = encoding_of(frame).matrix(frame).X
    dense = np.column_stack([np.eye(90)[np.arange(900) % 90], StandardScaler().fit_transform(table[["x"]])[:, 0]])
    np.testing.assert_allclose(X.toarray(), dense, atol=1e-12)


def test_choices_of_the_user(frame):
    choices = Choices(drop=["since"], categorical=["active"], numeric=["customer_id"])
    found = {role.name: role.kind for role in roles_of(frame.table, frame.names, choices)}
    assert found["since"] is Kind.DROPPED
    assert found["active"] is Kind.CATEGORY
    assert found["customer_id"] is Kind.NUMBER
    few = roles_of(frame.table, frame.names, Choices(features=["age", "name"]))
    assert [role.name for role in few if role.kind.used] == ["age", "name"]


def test_money_and_dates_stay_numbers_if_they_are_asked_for(tmp_path):
    rows = [f"${k}.50,{13 + k}/1/2024,0{k},c{k}" for k in range(9)]
    frame = read(tmp_path, "\n".join(["price,day,code,text", *rows]))
    roles = roles_of(frame.table, frame.names, Choices(features=frame.names))
    assert [role.kind for role in roles] == [Kind.NUMBER, Kind.DATE, Kind.CATEGORY, Kind.CATEGORY]
    roles = roles_of(frame.table, frame.names, Choices(categorical=["price"]))
    assert [role.kind for role in roles] == [Kind.CATEGORY, Kind.DATE, Kind.IDENTIFIER, Kind.IDENTIFIER]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (Choices(drop=["agee"]), "--drop must name columns of the features, got 'agee'; did you mean 'age'?"),
        (Choices(drop=["age"], numeric=["age"]), "both --drop and --numeric"),
        (Choices(categorical=["age"], numeric=["age"]), "both --categorical and --numeric"),
    ],
)
def test_choices_that_cannot_be(frame, choices, message):
    with pytest.raises(DualnewtonError) as caught:
        roles_of(frame.table, frame.names, choices)
    assert message in str(caught.value)


def read(tmp_path, text, encoding="utf-8", **options):
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    as_text = options.pop("as_text", ())
    return read_frame(tmp_path / "t.csv", ReadOptions(**options), as_text)


def test_decimal_commas_semicolons_and_latin_1(tmp_path):
    frame = read(tmp_path, "Größe;Preis;Datum\n1,5;3;31.12.2020\n-2,25;4;01.02.2021\n", "latin-1")
    assert frame.names == ("Größe", "Preis", "Datum")
    assert frame.table.column("Größe").to_pylist() == [1.5, -2.25]
    assert [role.kind for role in roles_of(frame.table, frame.names, Choices())] == [
        Kind.NUMBER,
        Kind.NUMBER,
        Kind.DATE,
    ]
    assert str(frame).endswith("2 rows, 3 columns, separated by semicolons, decimal commas, read as cp1252")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_byte_order_marks(tmp_path, encoding):
    frame = read(tmp_path, "ä,b\n1,ö\n2,ü\n", encoding)
    assert frame.names == ("ä", "b")
    assert frame.table.column("b").to_pylist() == ["ö", "ü"]


def test_latin_1_beyond_the_beginning_is_found_too(tmp_path):
    frame = read(tmp_path, "a,b\n" + "1,x\n" * 30_000 + "2,é\n", "latin-1")
    assert frame.table.column("b").to_pylist()[-1] == "é"


def test_thousands_and_stray_text_in_numbers(tmp_path):
    text = "a,b,y\n" + "".join(f'"{k},{k:03d}.5",{"unknown" if k == 7 else k * k},1\n' for k in range(1, 60))
    frame = read(tmp_path, text)
    roles = {role.name: role for role in roles_of(frame.table, ("a", "b"), Choices())}
    assert roles["a"].kind is Kind.NUMBER
    assert roles["b"].kind is Kind.IDENTIFIER
    assert "not 'unknown': --numeric b uses them" in roles["b"].seen
    encoding = encoding_of(Frame(frame.path, frame.table.select(["a", "b"])), Choices(numeric=["b"]), standardise=False)
    X = encoding.matrix(frame).X
    assert encoding.labels == ("a", "b", "b missing")
    assert X[1].tolist() == [2002.5, 4.0, 0.0]
    assert X[6, 2] == 1.0


def test_codes_that_are_asked_for_as_categories_keep_their_zeros(tmp_path):
    frame = read(tmp_path, "zip,y\n01234,1\n99999,2\n01234,1\n", as_text=("zip",))
    encoding = encoding_of(Frame(frame.path, frame.table.select(["zip"])), Choices(categorical=["zip"]))
    assert encoding.labels == ("zip=01234", "zip=99999")


def test_a_table_without_names_is_matched_by_position(tmp_path):
    frame = read(tmp_path, "1,0,5\n2,1,7\n3,0,9\n")
    assert frame.names == ("column 0", "column 1", "column 2")
    roles = roles_of(frame.table, ("column 0", "column 2"), Choices())
    encoding = Encoding.fit(frame, roles, target="column 1", standardise=False)
    whole = encoding.matrix(frame).X
    np.testing.assert_array_equal(encoding.matrix(read(tmp_path, "1,5\n2,7\n3,9\n")).X, whole)
    with pytest.raises(DualnewtonError, match="no header and 4 columns"):
        encoding.matrix(read(tmp_path, "1,2,3,4\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3: expected 2 values, found 1"),
        ('a,b\n1,"2\n', "line 2"),
        ("a,a\n1,2\n", "'a' 2 times"),
        ("a,b\n", "no examples"),
        ("", "the file is empty"),
    ],
)
def test_faults_of_files_are_named(tmp_path, text, message):
    with pytest.raises(DualnewtonError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_parquet_file_without_rows_holds_no_examples(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}), tmp_path / "t.parquet")
    with pytest.raises(DualnewtonError, match=r"t\.parquet: holds no examples$"):
        read_frame(tmp_path / "t.parquet", ReadOptions())


def test_a_target_of_dates_is_refused_with_the_name_of_the_file(tmp_path):
    found = read(tmp_path, "a,y\n1,2020-01-01\n2,2021-05-03\n")
    with pytest.raises(DualnewtonError, match=r"t\.csv: the target 'y' must hold numbers, categories"):
        examples_of(found, ReadOptions("y"))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    "values",
    [RNG.normal(5.0, 2.0, N), np.where(np.arange(N) % 2, 7.0, np.nextafter(7.0, 8.0)), RNG.normal(1e9, 1e-3, N)],
)
def test_means_and_scales_are_those_of_scikit_learn(values, weighted, tmp_path):
    weights = RNG.integers(0, 3, N).astype(float) if weighted else None
    scaler = StandardScaler().fit(values[:, None], sample_weight=weights)
    frame = frame_of(pd.DataFrame({"x": values, "other": WITH_HOLES}), tmp_path)
    roles = roles_of(frame.table, ["x"], Choices(numeric=frozenset({"x"})), frame.decimal)
    (column,) = Encoding.fit(frame, roles, weights=weights).columns
    assert column.mean == pytest.approx(scaler.mean_[0], rel=1e-14)
    assert column.scale == pytest.approx(scaler.scale_[0], rel=1e-7)


def test_a_column_whose_squares_overflow_is_named(tmp_path):
    frame = frame_of(pd.DataFrame({"small": WITH_HOLES, "large": 1e300 * RNG.normal(size=N)}), tmp_path)
    with pytest.raises(DualnewtonError, match="'large' must hold numbers whose squares are finite, got"):
        encoding_of(frame)


def test_lines_may_be_longer_than_the_parts_of_a_file_that_are_read_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(layout, "HEAD", 64)
    monkeypatch.setattr(arrow_csv, "PARSED", 64)
    names, place = [f"gene_{j}" for j in range(100)], tmp_path / "wide.csv"
    X = RNG.normal(size=(5, 100)).round(3)
    rows = [";".join(names), *(";".join(str(x) for x in row).replace(".", ",") for row in X)]
    place.write_text("\n".join(rows) + "\n")
    frame = read_frame(place, ReadOptions())
    assert frame.names == tuple(names)
    np.testing.assert_array_equal(frame.table.to_pandas().to_numpy(), X)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("since", "20240102", "'since' must hold dates, as in the fit, got numbers"),
        ("since", "yesterday", "'since' must hold dates, as in the fit, got 'yesterday'"),
        ("income", "2024-01-02", "'income' must hold numbers, as in the fit, got dates"),
        ("active", "7", "'active' must hold true and false, as in the fit, got 7"),
        ("active", "2024-01-02", "'active' must hold true and false, as in the fit, got dates"),
    ],
)
def test_a_column_of_another_kind_than_in_the_fit_is_refused(frame, tmp_path, name, value, message):
    """Its values as numbers are far from those of the fit: days since 1970 for dates, 20240102 for a date without hyphens."""
    first = TABLE[:1].drop(columns="comment").assign(**{name: value})
    other = read(tmp_path, first.to_csv(index=False))
    with pytest.raises(DualnewtonError, match=message):
        encoding_of(frame).matrix(other)


def test_an_error_says_why_no_column_is_left(tmp_path):
    found = read(tmp_path, "a,b\n1,x\n1,x\n")
    with pytest.raises(DualnewtonError, match=r"left out are a \(constant: always 1\), b \(constant: always x\)$"):
        encoding_of(found)
