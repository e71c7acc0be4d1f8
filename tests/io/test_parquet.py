"""Parquet files: types, names, nulls, and what happens without pyarrow."""

import sys

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io.gathered import gather
from dualnewton.io.parquet import source
from dualnewton.io.pieces import Pieces
from dualnewton.io.source import ReadOptions
from small_sets import dense_set, same

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("block", [1, 500, 1 << 22])
@pytest.mark.parametrize("text", [False, True])
def test_reads_what_was_written(tmp_path, text, block):
    known = dense_set(text=text)
    columns = dict(zip(known.feature_names, known.X.T, strict=True))
    path = write(tmp_path / "file.parquet", **columns, label=known.y)
    same(data.read(path), known)
    same(gather(source(path, ReadOptions(block=block)), Pieces).dataset(), known)
    assert data.read(path).target == "the column 'label'"


def test_numbers_of_other_types_and_categories(tmp_path):
    path = write(
        tmp_path / "file.pq",
        i=pa.array([1, 2], pa.int8()),
        b=[True, False],
        f=pa.array([0.5, 1.5], pa.float32()),
        w=[1.0, 2.0],
        y=pa.array(["u", "v"]).dictionary_encode(),
    )
    found = data.read(path, weights="w")
    assert found.X.tolist() == [[1.0, 1.0, 0.5], [2.0, 0.0, 1.5]]
    assert found.y.tolist() == ["u", "v"]
    assert found.sample_weight.tolist() == [1.0, 2.0]


FAULTS = {
    "null": ({"a": [1.0, None], "y": [0, 1]}, "row 1, column 'a': the value is missing"),
    "nan": ({"a": [1.0, np.nan], "y": [0, 1]}, "row 1, column 'a': the value is missing"),
    "infinity": ({"a": [1.0, np.inf], "y": [0, 1]}, "row 1, column 'a': the value must be finite"),
    "null label": ({"a": [1.0, 2.0], "y": [0, None]}, "row 1, column 'y': the value is missing"),
    "text": ({"a": ["u", "v"], "b": [1, 2], "y": [0, 1]}, "the column 'a' is not numeric (found 'string')"),
    "no rows": ({"a": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}, "no examples"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_by_row_and_column(tmp_path, name):
    columns, message = FAULTS[name]
    with pytest.raises(data.DataError) as caught:
        data.read(write(tmp_path / "file.parquet", **columns))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_file_is_refused(tmp_path):
    path = write(tmp_path / "file.parquet", a=[1.0, 2.0], y=[0, 1])
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(data.DataError, match="not a Parquet file that can be read, or damaged"):
        data.read(path)


def test_without_pyarrow_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    path = write(tmp_path / "file.parquet", a=[1.0, 2.0], y=[0, 1])
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install pyarrow"):
        data.read(path)
