"""The svmlight reader: both parsers agree with each other and with scikit-learn, and name the line that is damaged."""

import bz2
import gzip
import io
import lzma

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from dualnewton import data
from dualnewton.io import svmlight
from dualnewton.io.gathered import gather
from dualnewton.io.pieces import Pieces
from dualnewton.io.source import ReadOptions
from small_sets import full, same, sparse_set, svmlight_text

PARSERS = {"lines": svmlight.by_lines, "kernel": svmlight.by_kernel}


def read(path, parser, **options):
    source = svmlight.SvmlightSource(path, ReadOptions(**options), parser=PARSERS[parser])
    return gather(source, Pieces).dataset()


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "file.svm"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.mark.parametrize("block", [1, 7, 64, 1000, 1 << 22])
@pytest.mark.parametrize("parser", PARSERS)
def test_agrees_with_scikit_learn_whatever_the_blocks(file, parser, block):
    known = sparse_set()
    path = file(svmlight_text(known))
    found = read(path, parser, block=block)
    X, y = load_svmlight_file(path)
    same(found, data.Dataset(X, y))
    same(found, known)
    assert found.X.indices.dtype == found.X.indptr.dtype == np.int32
    assert found.X.has_canonical_format


LINES = {
    "comments and blank lines": ("# head\n\n1 1:2 # tail 3:4\n  \n-1 2:5#tail\n", [[2, 0], [0, 5]], [1, -1]),
    "other line ends": ("1 1:2\r\n-1 2:5\r\n", [[2, 0], [0, 5]], [1, -1]),
    "no last newline": ("1 1:2\n-1 2:5", [[2, 0], [0, 5]], [1, -1]),
    "a byte order mark": ("\ufeff1 1:2\n-1 2:5\n", [[2, 0], [0, 5]], [1, -1]),
    "queries": ("1 qid:7 1:2\n-1 qid:8 2:5\n", [[2, 0], [0, 5]], [1, -1]),
    "tabs and spaces": (" 1\t1:2  \n-1   \t 2:5\t\n", [[2, 0], [0, 5]], [1, -1]),
    "unsorted": ("1 2:3 1:2\n-1 2:5\n", [[2, 3], [0, 5]], [1, -1]),
    "zero-based": ("1 0:2\n-1 1:5\n", [[2, 0], [0, 5]], [1, -1]),
    "zero in a later line": ("1 1:2\n-1 0:5\n", [[0, 2], [5, 0]], [1, -1]),
    "empty rows": ("1\n-1 1:0 2:1e0\n", [[0, 0], [0, 1]], [1, -1]),
    "numbers to ask float for": ("4e-320 1:1e-400\n1 2:3e-310\n", [[0, 0], [0, 3e-310]], [4e-320, 1]),
    "plus signs": ("+1 1:+2\n-1 2:+5e+0\n", [[2, 0], [0, 5]], [1, -1]),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("name", LINES)
def test_reads_what_is_allowed(file, name, parser):
    text, X, y = LINES[name]
    found = read(file(text), parser)
    np.testing.assert_array_equal(full(found.X), X)
    np.testing.assert_array_equal(found.y, y)


DAMAGED = {
    "a word": ("1 1:2 hello\n", "expected index:value, found 'hello'"),
    "no value": ("1 1:\n", "value of the feature 1 must be a finite number, found ''"),
    "no index": ("1 :5\n", "expected index:value, found ':5'"),
    "a value that is none": ("1 1:2x\n", "found '2x'"),
    "a label that is none": ("one 1:2\n", "the label must be a finite number, found 'one'"),
    "several labels": ("1,2 1:2\n", "several labels"),
    "not a number": ("1 1:nan\n", "found 'nan'"),
    "infinite": ("1 1:1e999\n", "found '1e999'"),
    "an infinite label": ("1e999 1:1\n", "found '1e999'"),
    "negative index": ("1 -1:2\n", "expected index:value, found '-1:2'"),
    "index too long": ("1 1234567890123456789:2\n", "expected index:value"),
    "twice": ("1 3:2 3:4\n", "the index 3 occurs twice"),
    "twice, unsorted": ("1 3:2 1:1 3:4\n", "the index 3 occurs twice"),
    "late query": ("1 1:2 qid:3\n", "found 'qid:3'"),
    "a bad query": ("1 qid:x 1:2\n", "the qid must be a finite number, found 'x'"),
    "two colons": ("1 1:2:3\n", "found '2:3'"),
    "binary": (b"1 1:2 \xff\x00\n", "expected index:value"),
    "underscores": ("1 1:1_000\n", "found '1_000'"),
}


@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize("block", [16, 1 << 20])
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_line_is_named_by_its_number(file, name, parser, block):
    text, message = DAMAGED[name]
    text = text if isinstance(text, bytes) else text.encode()
    path = file(b"1 1:2\n# comment\n\n" + text + b"-1 1:3\n" * 50)
    with pytest.raises(data.DataError) as caught:
        read(path, parser, block=block)
    assert f"{path}, line 4: " in str(caught.value)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("parser", PARSERS)
def test_counting_can_be_chosen(file, parser):
    path = file("1 1:2\n-1 3:5\n")
    assert read(path, parser).X.shape == (2, 3)
    assert read(path, parser, zero_based=True).X.shape == (2, 4)
    with pytest.raises(data.DataError, match="line 1: the index 0"):
        read(file("1 0:2\n"), parser, zero_based=False)


@pytest.mark.parametrize("parser", PARSERS)
def test_a_file_may_have_fewer_features_than_asked_for_but_not_more(file, parser):
    path = file("1 1:2\n-1 3:5\n")
    assert read(path, parser, n_features=10).X.shape == (2, 10)
    with pytest.raises(data.DataError, match="n_features must be at least 3, got 2"):
        read(path, parser, n_features=2)


@pytest.mark.parametrize("parser", PARSERS)
def test_large_indices_are_kept(file, parser):
    found = read(file("1 1:2 3000000000:4\n"), parser)
    assert found.X.shape == (1, 3_000_000_000)
    assert found.X.indices.dtype == np.int64
    assert found.X.indices.tolist() == [0, 2_999_999_999]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_known_by_their_bytes(tmp_path, compress):
    known = sparse_set()
    path = tmp_path / "train"  # whatever the name
    path.write_bytes(compress(svmlight_text(known).encode()))
    same(data.read(path), known)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(data.DataError, match="damaged or cut short"):
        data.read(path)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_file_without_examples_is_refused(file, text):
    with pytest.raises(data.DataError, match="no examples"):
        data.read(file(text))


def test_a_file_without_features_is_refused_unless_their_number_is_given(file):
    path = file("1\n-1\n")
    with pytest.raises(data.DataError, match="no features"):
        data.read(path)
    assert data.read(path, n_features=3).X.shape == (2, 3)


def test_weights_come_from_another_file(file, tmp_path):
    path = file("1 1:2\n-1 3:5\n")
    weights = tmp_path / "weights.txt"
    weights.write_text("0.5\n2\n")
    assert data.read(path, weights=str(weights)).sample_weight.tolist() == [0.5, 2.0]
    weights.write_text("0.5\n2\n3\n")
    with pytest.raises(data.DataError, match="one weight for each of 2 examples, has 3"):
        data.read(path, weights=str(weights))
    with pytest.raises(data.DataError, match="neither anything in a svmlight file nor a file"):
        data.read(path, weights="absent")


def test_the_target_cannot_be_chosen(file):
    with pytest.raises(data.DataError, match="labels first in each line"):
        data.read(file("1 1:2\n"), target="y")


def test_an_endless_line_is_refused(monkeypatch):
    monkeypatch.setattr(svmlight, "LONGEST", 1000)
    with pytest.raises(data.DataError, match="more than 1000 bytes"):
        list(svmlight._texts(io.BytesIO(b"1" * 5000), 100, "file"))


WORDS = [
    b"1",
    b"-1",
    b"0",
    b"+2.5",
    b"1:2",
    b"3:4",
    b"2:1e3",
    b"0:1",
    b"7:1e999",
    b"qid:3",
    b"#",
    b":",
    b",",
    b"x",
    b"1:2:3",
]
SPACES = [b" ", b"\n", b"\t", b"\r\n", b"", b"  ", b"\x0b"]


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(SPACES)), max_size=30), st.sampled_from([0, 1]))
@settings(max_examples=1000)
def test_the_compiled_parser_does_what_the_specification_says(pieces, lowest):
    text = b"".join(map(b"".join, pieces)) + b"\n"
    outcomes = []
    for parser in PARSERS.values():
        try:
            rows = parser(text, lowest)
            X = rows.X
            outcomes.append(
                (rows.vectors["y"].tolist(), X.data.tolist(), X.indices.tolist(), X.ends.tolist(), X.least, X.most)
            )
        except svmlight.DamagedLineError as error:
            outcomes.append((error.lines_before, error.reason))
    assert outcomes[0] == outcomes[1]


def test_the_compiled_parser_itself_reads_what_is_whole():
    from dualnewton.kernels.svmlight import parse

    text = svmlight_text(sparse_set(n=200)).encode()
    room = [np.empty(5000, dtype=kind) for kind in (np.uint64, np.int64, np.int64, np.uint64)]
    found = parse(np.frombuffer(text, dtype=np.uint8), 0, *room, np.empty((10, 3), dtype=np.int64))
    assert (found.rows, found.hard, found.damaged) == (200, 0, -1)


def test_many_numbers_for_float_are_read_line_by_line():
    text = b"1 " + b" ".join(b"%d:1e-320" % j for j in range(1, 1000)) + b"\n"
    rows = svmlight.by_kernel(text, 1)
    assert rows.X.data.tolist() == [1e-320] * 999
