"""Rows of this machine on the workers of a cluster: those of files are read there, those in memory are sent."""

from dataclasses import replace

import numpy as np
import pytest

import disk_cases as cases
import dualnewton as dn
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask import placing
from dualnewton.row_arrays import on_host

W = np.linspace(-1.0, 1.0, cases.D)


def products(data):
    return on_host(data.times(W))


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet"])
def test_files_are_read_by_the_workers(cluster, kind, tmp_path, monkeypatch):
    cases.small_pieces(monkeypatch, 1 << 13)
    monkeypatch.chdir(tmp_path)
    options = cases.written(tmp_path / "big", kind)
    data = dn.data.open("big", **options).X
    placed = placing.on_workers(data)
    assert placed.profile == replace(data.profile, on_disk=False)  # the workers hold them in memory
    assert placed.layout.count == len(data.source.rows) > 3
    np.testing.assert_allclose(products(placed), cases.rows_of(kind) @ W, rtol=1e-12, atol=1e-12)
    features = np.array([4, 1])
    some = placing.on_workers(data.with_features(features))
    np.testing.assert_allclose(
        on_host(some.times(W[features])), cases.rows_of(kind)[:, features] @ W[features], atol=1e-12
    )


@pytest.mark.parametrize("rows", [cases.DENSE, cases.SPARSE], ids=["dense", "sparse"])
def test_rows_in_memory_are_cut_by_their_size_and_sent(cluster, rows, monkeypatch):
    monkeypatch.setattr(placing, "BLOCK", 1 << 12)
    placed = placing.on_workers(rows)
    assert placed.layout.count > 3
    np.testing.assert_allclose(products(placed), rows @ W, rtol=1e-12, atol=1e-12)


def test_text_was_parsed_by_this_process_alone(cluster, tmp_path):
    cases.written(tmp_path, "csv")
    with pytest.raises(
        DualnewtonError, match=r"part-0\.csv was parsed into an unnamed file of this process: `dualnewton con"
    ):
        placing.on_workers(dn.data.open(tmp_path, **cases.COLUMNS).X)
