"""CSV files read with Arrow: the same bits, labels and errors as with Python's csv."""

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io import tables

RNG = np.random.default_rng(0)
NUMBERS = RNG.standard_normal((300, 4)) * 10.0 ** RNG.integers(-300, 300, (300, 4))


def lines(rows, labels, mark="."):
    return "".join(
        ";".join([*(repr(x).replace(".", mark) for x in row), str(label)]) + "\n"
        for row, label in zip(rows.tolist(), labels, strict=True)
    )


TEXTS = {
    "numbers": "a;b;c;d;y\n" + lines(NUMBERS, range(300)),
    "text labels": "a;b;c;d;y\n" + lines(NUMBERS, ["no", " yes "] * 150),
    "labels that are partly numbers": "a;b;c;d;y\n" + lines(NUMBERS, ["01"] * 299 + ["x"]),
    "decimal commas": "a;b;c;d;y\n" + lines(NUMBERS.round(3), range(300), ","),
    "no header": lines(NUMBERS, range(300)),
    "blank lines, a mark, quotes": '\ufeff\n\na;b;c;d;"y"\n\n' + lines(NUMBERS[:9], ['"u\nv"'] * 9),
    "signs and spaces": "a;y\n+1;+2\n 3 ;4\n",
}


def both(path, monkeypatch, **options):
    """What the two readers return, or raise."""
    found = []
    for fast in (1 << 62, 0):
        monkeypatch.setattr(tables, "FAST", fast)
        try:
            found.append(data.read(path, **options))
        except data.DataError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_both_readers_return_the_same(tmp_path, monkeypatch, name):
    path = tmp_path / "file.csv"
    path.write_text(TEXTS[name], encoding="utf-8")
    slow, fast = both(path, monkeypatch)
    np.testing.assert_array_equal(fast.X, slow.X)
    np.testing.assert_array_equal(fast.y, slow.y)
    assert fast.y.dtype.kind == slow.y.dtype.kind
    assert fast.feature_names == slow.feature_names


def test_weights_and_offsets_are_the_same(tmp_path, monkeypatch):
    path = tmp_path / "file.csv"
    path.write_text(TEXTS["numbers"])
    slow, fast = both(path, monkeypatch, weights="a", offset="c")
    np.testing.assert_array_equal(fast.sample_weight, slow.sample_weight)
    np.testing.assert_array_equal(fast.offset, slow.offset)


@pytest.mark.parametrize(
    "wrong",
    [
        "1;2",
        "1;2;3;4;5;6",
        "1;;3;4;5",
        "1;NA;3;4;5",
        "1;inf;3;4;5",
        "1;Rome;3;4;5",
        "1;1_000;3;4;5",
        "1;2;3;4;",
        '1;"2',
    ],
)
def test_both_readers_name_the_same_fault(tmp_path, monkeypatch, wrong):
    path = tmp_path / "file.csv"
    path.write_text(TEXTS["numbers"] + wrong + "\n")
    slow, fast = both(path, monkeypatch)
    assert isinstance(slow, str)
    assert fast == slow
    assert "line 302" in fast


def test_arrow_does_read_large_files(tmp_path, monkeypatch):
    path = tmp_path / "file.csv"
    path.write_text("a;b;c;d;y\n" + lines(np.tile(NUMBERS, (12, 1)), range(3600)))
    assert path.stat().st_size > tables.FAST
    monkeypatch.setattr(tables.TableSource, "_remaining", lambda *_: pytest.fail("read with csv"))
    assert data.read(path).X.shape == (3600, 4)


def test_latin_1_has_a_way_out(tmp_path):
    path = tmp_path / "file.csv"
    path.write_bytes("Größe,y\n1,é\n2,x\n".encode("latin-1"))
    with pytest.raises(data.DataError, match="name its encoding, such as latin-1"):
        data.read(path)
    found = data.read(path, encoding="latin-1")
    assert found.feature_names == ("Größe",)
    assert found.y.tolist() == ["é", "x"]


@pytest.mark.parametrize("encoding", ["base64", "rot13", "hex", "undefined", "no such"])
def test_an_encoding_must_be_one_of_text(tmp_path, encoding):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(data.DataError, match=f"encoding must be a codec of Python, .* got '{encoding}'"):
        data.read(tmp_path / "a.csv", encoding=encoding)


def test_text_without_a_byte_order_mark_is_not_utf_16(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(data.DataError, match="not UTF-16 text"):
        data.read(tmp_path / "a.csv", encoding="utf-16")


@pytest.mark.parametrize("encoding", [None, "utf-8", "utf-8-sig"])
def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path, encoding):
    (tmp_path / "a.csv").write_text("\ufeffa,b,y\n1,2,3\n4,5,6\n", encoding="utf-8")
    assert data.read(tmp_path / "a.csv", encoding=encoding).feature_names == ("a", "b")
