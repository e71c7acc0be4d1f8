"""``dualnewton datasets``: the list, one set, and what is said where it cannot be had."""

import hashlib
import json
from dataclasses import replace

import pytest

from dualnewton.io import catalog, folders

TEXT = b"1 1:0.5 3:2\n-1 2:1\n"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A catalog of one set, and a network that delivers it."""
    monkeypatch.setenv(folders.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(folders.DATA, raising=False)
    origin = catalog.Origin("https://example.org/sets/small", hashlib.sha256(TEXT).hexdigest())
    monkeypatch.setattr(catalog, "FILES", {"small": catalog.Entry("small", catalog.CLASSIFICATION, 2, 3, (origin,))})

    def deliver(url, path, checksum, progress):
        assert url == origin.url
        assert checksum == origin.sha256
        path.parent.mkdir(parents=True)
        path.write_bytes(TEXT)
        progress(len(TEXT), len(TEXT))

    monkeypatch.setattr(catalog, "download", deliver)


def test_the_list_names_what_is_here_and_what_is_not(command, server):
    said = command("datasets")
    assert said.code == 0
    lines = {line.split()[0]: line for line in said.out.splitlines() if line.strip()}
    assert "150" in lines["iris"]
    assert " yes " in lines["iris"]
    assert " no " in lines["small"]
    assert "https://example.org/sets/small" in lines["small"]


def test_a_set_is_fetched_once_and_described(command, server, tmp_path):
    said = command("datasets", "small")
    assert (said.code, said.err) == (0, "")
    assert str(tmp_path / "cache" / "small") in said.out
    assert f"{hashlib.sha256(TEXT).hexdigest()} (as in the catalog)" in said.out
    assert command("datasets", "small").code == 0  # a second download would fail: the folder is there
    rows = {row["name"]: row for row in json.loads(command("datasets", "--json").out)}
    assert rows["small"]["here"] == "yes"


@pytest.mark.filterwarnings("default")
def test_content_that_is_not_that_of_the_catalog_gets_one_line(command, server, monkeypatch):
    small = catalog.FILES["small"]
    origin = replace(small.origins[0], content="0" * 64)
    monkeypatch.setitem(catalog.FILES, "small", replace(small, origins=(origin,)))
    said = command("datasets", "small")
    assert said.code == 0
    assert said.err.startswith("dualnewton: ")
    assert said.err.count("\n") == 1
    assert "the content differs from that on which the figures" in said.err
    assert "(not that of the catalog)" in said.out


def test_a_set_that_comes_along_and_a_generator(command):
    facts = json.loads(command("datasets", "wine", "--json").out)
    assert facts == {"name": "wine", "examples": 178, "features": 13}
    assert json.loads(command("datasets", "dense:20x3", "--json").out)["features"] == 3


def test_an_unknown_name_is_one_line(command):
    said = command("datasets", "mushroms")
    assert said.code == 2
    assert "did you mean mushrooms?" in said.err
    assert said.err.count("\n") == 1


def test_without_a_network_the_line_says_what_to_put_where(command, server, monkeypatch):
    from dualnewton.io.download import DownloadError

    def unreachable(url, *_):
        raise DownloadError(f"{url}: no connection")

    monkeypatch.setattr(catalog, "download", unreachable)
    said = command("datasets", "small")
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert "put small into" in said.err
