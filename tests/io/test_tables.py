"""CSV files: with and without names, the target where it is looked for, and faults by line and column."""

import gzip

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io.gathered import gather
from dualnewton.io.pieces import Pieces
from dualnewton.io.source import ReadOptions
from dualnewton.io.tables import source
from small_sets import csv_text, dense_set, same


@pytest.fixture
def file(tmp_path):
    def write(text, name="file.csv"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.mark.parametrize("text", [False, True])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_reads_what_was_written_to_the_last_bit(file, delimiter, text):
    known = dense_set(text=text)
    found = data.read(file(csv_text(known, delimiter)))
    same(found, known)
    assert found.target == "the column 'target'"
    assert found.X.flags.c_contiguous
    plain = data.read(file(csv_text(known, delimiter, names=False)))
    same(plain, known, names=False)
    assert plain.feature_names is None
    assert plain.target == "the last column ('column 5')"


@pytest.mark.parametrize("block", [1, 2000, 1 << 22])
def test_blocks_do_not_matter(file, block):
    known = dense_set(text=True)
    path = file(csv_text(known))
    same(gather(source(path, ReadOptions(block=block)), Pieces).dataset(), known)


@pytest.mark.parametrize(
    ("head", "expected"),
    [("a,label,b", 1), ("y,a,b", 0), ("a,Class,b", 1), ("a,b,c", 2), ("y,target,c", 1), ("label,y,c", 0)],
)
def test_the_target_is_known_by_its_name_or_is_the_last_column(file, head, expected):
    found = data.read(file(f"{head}\n1,2,3\n4,5,6\n"))
    assert found.y.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]][expected]
    assert repr(head.split(",")[expected]) in found.target


@pytest.mark.parametrize(("target", "expected"), [("b", 1), (0, 0), (-1, 2), ("0", 0), ("-2", 1), (np.int64(2), 2)])
def test_the_target_is_chosen_by_name_or_number(file, target, expected):
    found = data.read(file("a,b,c\n1,2,3\n4,5,6\n"), target=target)
    assert found.y.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]][expected]
    assert found.X.shape == (2, 2)


def test_there_may_be_no_target(file):
    found = data.read(file("a,b,y\n1,2,3\n4,5,6\n"), target=False)
    assert found.y is None
    assert found.feature_names == ("a", "b", "y")


def test_weights_are_a_column_or_a_file(file):
    path = file("a,w,b,y\n1,2,3,0\n4,5,6,1\n")
    found = data.read(path, weights="w")
    assert found.sample_weight.tolist() == [2.0, 5.0]
    assert found.feature_names == ("a", "b")
    beside = file("1\n0.5\n", "weights.txt")
    assert data.read(path, weights=str(beside)).sample_weight.tolist() == [1.0, 0.5]
    with pytest.raises(data.DataError, match="neither a column \\(a, w, b, y\\) nor a file"):
        data.read(path, weights="v")
    with pytest.raises(data.DataError, match="both the target and the weights"):
        data.read(path, weights="y", target="y")


def test_numbers_can_be_names_where_the_target_has_one(file):
    found = data.read(file("0,1,target\n7,8,9\n"))
    assert found.feature_names == ("0", "1")
    assert found.y.tolist() == [9.0]


def test_labels_that_are_partly_numbers_keep_their_spelling_whatever_the_blocks(file):
    path = file("a,y\n" + "".join(f"{i},{'01' if i < 90 else 'other'}\n" for i in range(100)))
    for block in (1, 1 << 22):
        y = gather(source(path, ReadOptions(block=block)), Pieces).dataset().y
        assert y.tolist() == ["01"] * 90 + ["other"] * 10


def test_quotes_spaces_marks_and_compression(file):
    text = '\ufeff"a, b",c,"y"\r\n"1.5", 2,"x ""1"""\r\n\r\n3,4,z\r\n'
    found = data.read(file(gzip.compress(text.encode()), "file.csv.gz"))
    assert found.feature_names == ("a, b", "c")
    assert found.X.tolist() == [[1.5, 2.0], [3.0, 4.0]]
    assert found.y.tolist() == ['x "1"', "z"]


FAULTS = {
    "too few values": ("a,b,y\n1,2,3\n4,5\n", "line 3: expected 3 values, found 2"),
    "too many values": ("a,b,y\n1,2,3,4\n", "line 2: expected 3 values, found 4"),
    "a missing value": ("a,b,y\n1,2,3\n4,,6\n", "line 3, column 'b': the value is missing (found '')"),
    "NA": ("a,b,y\n1,2,3\n4,NA,6\n", "line 3, column 'b': the value is missing (found 'NA')"),
    "nan": ("a,b,y\n1,2,3\nnan,2,6\n", "line 3, column 'a': the value is missing"),
    "a missing label": ("a,b,y\n1,2,\n", "line 2, column 'y': the value is missing"),
    "infinity": ("a,b,y\n1,inf,2\n", "line 2, column 'b': the value must be finite"),
    "overflow": ("a,b,y\n1,1e999,2\n", "line 2, column 'b': the value must be finite"),
    "one column of text": ("a,b,y\n1,Paris,3\n4,Rome,6\n", "line 2: the column 'b' is not numeric (found 'Paris')"),
    "columns of text": ("a,b,y\nu,Paris,3\nv,Rome,6\n", "the columns 'a', 'b' are not numeric"),
    "an underscore": ("a,b,y\n1,1_000,3\n", "the column 'b' is not numeric (found '1_000')"),
    "other digits": ("a,b,y\n1,٣,3\n", "the column 'b' is not numeric"),
    "an open quote": ('a,b,y\n1,"2,3\n', "line 2"),
    "not UTF-8": (b"a,b,y\n1,2,\xff\xfe\n", "not UTF-8 text"),
    "one column": ("a\n1\n", "no column is left for the features"),
    "a line break in a name": ('"a\nb"\n1\n', "no column is left for the features: 'a\\nb' is the target"),
    "only names": ("a,b,y\n", "no examples"),
    "empty": ("", "the file is empty"),
    "repeated names": ("a,b,a,y\n1,2,3,4\n", "every column must have its own name, got 'a' 2 times"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_by_line_and_column(file, name):
    text, message = FAULTS[name]
    path = file(text)
    with pytest.raises(data.DataError) as caught:
        data.read(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("target", ["absent", 3, -4, "7"])
def test_an_absent_target_is_refused_with_the_columns_there_are(file, target):
    with pytest.raises(data.DataError, match=r"target must name one of the columns \(a, b, c\), got"):
        data.read(file("a,b,c\n1,2,3\n"), target=target)


def test_a_misspelt_target_is_compared_with_the_columns(file):
    with pytest.raises(data.DataError, match=r"got 'chrun'; did you mean 'churn'\?"):
        data.read(file("a,b,churn\n1,2,3\n"), target="chrun")


def test_the_width_is_checked(file):
    path = file("a,b,c\n1,2,3\n")
    assert data.read(path, n_features=2).X.shape == (1, 2)
    with pytest.raises(data.DataError, match="has 2 features, expected n_features=3"):
        data.read(path, n_features=3)
    with pytest.raises(data.DataError, match="zero_based is for svmlight"):
        data.read(path, zero_based=True)


def test_a_quotation_mark_that_is_not_closed_is_named(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text('a,b,y\n1,"2,3\n4,5,6\n', encoding="utf-8")
    with pytest.raises(data.DataError, match="line 3: a quotation mark is not closed"):
        data.read(file)
