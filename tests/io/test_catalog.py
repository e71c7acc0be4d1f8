"""Named data sets: where they are looked for, what is always there, and what is said where they are not."""

import bz2
from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import data
from dualnewton.io import catalog, folders
from dualnewton.io.download import DownloadError
from small_sets import full, same, sparse_set, svmlight_text


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder of the user's own, an empty cache, and no network."""
    monkeypatch.setenv(folders.DATA, str(tmp_path / "mine"))
    monkeypatch.setenv(folders.CACHE, str(tmp_path / "cache"))
    (tmp_path / "mine").mkdir()

    def unreachable(url, *_):
        raise DownloadError(f"{url}: no connection")

    monkeypatch.setattr(catalog, "download", unreachable)
    return tmp_path / "mine"


@pytest.mark.parametrize("name", catalog.OFFLINE)
def test_what_comes_with_the_library_is_what_the_catalog_says(mine, name):
    found = data.load(name)
    entry = catalog.OFFLINE[name]
    assert found.X.shape == (entry.n, entry.d)
    assert found.X.flags.c_contiguous
    assert len(found.y) == entry.n
    assert found.name == name
    assert (len(np.unique(found.y)) <= 10) == (entry.kind == catalog.CLASSIFICATION)


def test_the_synthetic_set_is_the_documented_one(mine):
    rng = np.random.default_rng(0)
    s = rng.standard_normal((2048, 1024)) + 1.0
    X = np.sqrt(10.0) * s / np.linalg.norm(s, axis=1)[:, None]
    v = rng.standard_normal(1024)
    y = np.sign(X @ (v - v.mean()) + 0.1 * rng.standard_normal(2048))
    found = data.load("synthetic")
    np.testing.assert_allclose(found.X, X, rtol=1e-12)
    np.testing.assert_array_equal(found.y, y)


def test_a_downloaded_file_of_another_size_is_refused(mine):
    folders.cache_folder().mkdir()
    (folders.cache_folder() / "a9a").write_text("1 3:1\n-1 2:1\n")
    with pytest.raises(data.DataError, match=r"has 2 examples of 123 features, and a9a has 32561 examples"):
        data.load("a9a")


def test_generators(mine):
    dense, sparse = data.load("dense:50x7"), data.load("sparse:60x40x5:3")
    assert dense.X.shape == (50, 7)
    assert sparse.X.shape == (60, 40)
    for found in (dense, sparse):
        np.testing.assert_allclose(np.linalg.norm(full(found.X), axis=1), 1.0)
        assert set(found.y) == {-1.0, 1.0}
        same(data.load(found.name), found)
    assert not np.array_equal(data.load("dense:50x7:1").X, dense.X)
    assert sparse.X.has_canonical_format
    assert np.diff(sparse.X.indptr).max() <= 5


@pytest.mark.parametrize(
    "name", ["dense", "dense:", "dense:5", "dense:5x", "dense:0x3", "sparse:5x4", "dense:5x4:x", "dense:-1x4"]
)
def test_a_generator_that_is_not_understood_says_how_it_is_written(mine, name):
    with pytest.raises(data.DataError, match="must have the form"):
        data.load(name)


@pytest.mark.parametrize("file", ["w8a.npz", "w8a", "w8a.bz2", "w8a.txt", "w8a.svm.bz2", "w8a.libsvm"])
def test_the_users_own_files_come_first(mine, file):
    known = sparse_set(d=17)
    text = svmlight_text(known).encode()
    if file.endswith(".npz"):
        np.savez(mine / file, X=full(known.X), y=known.y)
    else:
        (mine / file).write_bytes(bz2.compress(text) if file.endswith(".bz2") else text)
    found = data.load("w8a")
    d = 17 if file.endswith(".npz") else 300  # a sparse file is as wide as the catalog says
    assert found.X.shape == (40, d)
    np.testing.assert_array_equal(full(found.X)[:, :17], full(known.X))
    assert found.name == "w8a"
    same(data.find("w8a"), found)


def test_any_file_of_the_folder_has_a_name(mine):
    (mine / "prices.csv").write_text("a,y\n1,2\n")
    assert data.find("prices").y.tolist() == [2.0]
    with pytest.raises(data.DataError, match="no data set is named"):
        data.load("../mine/prices")


def test_the_cache_comes_second(mine, tmp_path, monkeypatch):
    known = sparse_set()
    monkeypatch.setitem(catalog.FILES, "w8a", replace(catalog.FILES["w8a"], n=known.X.shape[0]))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "w8a").write_text(svmlight_text(known))
    with pytest.warns(data.DataWarning, match="the content differs"):
        found = data.load("w8a")
    np.testing.assert_array_equal(full(found.X)[:, :17], full(known.X))


def test_without_a_file_and_a_network_the_message_says_what_to_put_where(mine, tmp_path):
    with pytest.raises(data.DataError) as caught:
        data.load("colon_cancer")
    text = str(caught.value)
    assert "\n" not in text
    for part in ("put colon-cancer.bz2 into", str(tmp_path / "cache"), "colon_cancer.npz", folders.DATA, folders.CACHE):
        assert part in text


def test_an_unknown_name_is_compared_with_the_known_ones(mine):
    with pytest.raises(data.DataError, match="no data set is named 'mushroom': did you mean mushrooms\\?"):
        data.load("mushroom")
    with pytest.raises(data.DataError, match="there is no file 'mushroom', and no data set is named 'mushroom'"):
        data.find("mushroom")
    with pytest.raises(data.DataError, match=r"there is no file 'absent\.csv'"):
        data.find("absent.csv")
    with pytest.raises(data.DataError, match="is a folder"):
        data.find(str(mine))


def test_an_existing_file_is_preferred_to_a_name(mine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris").write_text("1 1:5\n")
    assert data.find("iris").X.shape == (1, 1)


def test_what_can_be_asked_of_a_named_set(mine, tmp_path):
    assert data.find("iris", target=False).y is None
    assert data.find("iris", n_features=4, target=None).X.shape == (150, 4)
    (tmp_path / "w").write_text("1\n" * 150)
    assert data.find("iris", weights=str(tmp_path / "w")).sample_weight.sum() == 150.0
    (tmp_path / "w").write_text("1\n" * 149)
    for option in (
        {"target": "x"},
        {"n_features": 5},
        {"weights": "x"},
        {"zero_based": True},
        {"weights": str(tmp_path / "w")},
    ):
        with pytest.raises(data.DataError):
            data.find("iris", **option)


def test_the_cache_folder_is_the_users_own(monkeypatch, tmp_path):
    monkeypatch.delenv(folders.CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(folders.sys, "platform", "linux")
    assert folders.cache_folder() == tmp_path / "dualnewton"
    for platform in folders.CACHES:
        monkeypatch.setattr(folders.sys, "platform", platform)
        assert folders.cache_folder().name == "dualnewton"


def test_addresses_are_whole_and_names_fit_their_files():
    for name, entry in catalog.FILES.items():
        assert entry.name == name
        assert entry.n > 0
        assert entry.d > 0
        assert entry.origins
        for origin in entry.origins:
            assert origin.url.startswith("https://")
            assert origin.file
            assert origin.sha256 is None or len(origin.sha256) == 64


def test_a_named_set_becomes_a_problem(mine):
    found = data.load("synthetic")
    problem = dn.Problem(found.X, found.y, dn.losses.Logistic())
    assert np.shares_memory(problem.X, found.X)
