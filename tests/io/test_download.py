"""Downloads from a server on this machine: complete and checked, or nothing."""

import bz2
import hashlib
import http.server
import socket
import threading
import zipfile

import numpy as np
import pytest

from dualnewton import data
from dualnewton.io import catalog, download, folders
from dualnewton.io.content import content_digest
from small_sets import csv_text, dense_set, full, same, sparse_set, svmlight_text

CONTENT = svmlight_text(sparse_set()).encode()
RIGHT = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves files, cuts some short, and fails as often as it is told to."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path not in self.server.files:
            self.send_error(404)
        elif self.server.failures > 0:
            self.server.failures -= 1
            self.send_error(503)
        else:
            content = self.server.files[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:-100] if self.server.cut else content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0.0)
    monkeypatch.setattr(download, "TIMEOUT", 5.0)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.asked, running.failures, running.cut = {"/file": CONTENT}, [], 0, False
        running.url = f"http://127.0.0.1:{running.server_port}"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("checksum", [None, RIGHT])
def test_a_file_comes_whole_and_its_checksum_is_returned(server, tmp_path, checksum):
    seen = []
    path = tmp_path / "deep" / "folder" / "file"
    assert download.download(f"{server.url}/file", path, checksum, lambda *done: seen.append(done)) == RIGHT
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert names(path.parent) == ["file"]


def test_a_wrong_checksum_keeps_nothing_and_is_not_tried_again(server, tmp_path):
    (tmp_path / "file").write_bytes(b"before")
    with pytest.raises(download.DownloadError, match=f"the SHA-256 is {RIGHT}, expected 0000"):
        download.download(f"{server.url}/file", tmp_path / "file", "0" * 64)
    assert (tmp_path / "file").read_bytes() == b"before"
    assert names(tmp_path) == ["file"]
    assert len(server.asked) == 1


def test_an_absent_file_is_not_tried_again(server, tmp_path):
    with pytest.raises(download.DownloadError, match="the server answers 404 Not Found"):
        download.download(f"{server.url}/absent", tmp_path / "file")
    assert names(tmp_path) == []
    assert len(server.asked) == 1


def test_a_body_that_is_cut_short_is_tried_again_and_refused(server, tmp_path):
    server.cut = True
    with pytest.raises(download.DownloadError, match=rf"ended after \d+ of {len(CONTENT)} bytes \(3 attempts\)"):
        download.download(f"{server.url}/file", tmp_path / "file")
    assert names(tmp_path) == []
    assert len(server.asked) == download.ATTEMPTS


def test_a_server_that_recovers_is_asked_again(server, tmp_path):
    server.failures = 2
    assert download.download(f"{server.url}/file", tmp_path / "file") == RIGHT
    server.failures = 3
    with pytest.raises(download.DownloadError, match="503"):
        download.download(f"{server.url}/file", tmp_path / "file")


def test_no_connection_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "WAIT", 0.0)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/file"
        with pytest.raises(download.DownloadError, match="no connection") as caught:
            download.download(url, tmp_path / "file")
    assert "\n" not in str(caught.value)
    assert "Errno" not in str(caught.value)
    assert names(tmp_path) == []


def test_an_interrupt_leaves_nothing(server, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download.download(f"{server.url}/file", tmp_path / "file", None, interrupt)
    assert names(tmp_path) == []


@pytest.fixture
def entry(server, tmp_path, monkeypatch):
    """A catalog with one set, on the server."""
    monkeypatch.setenv(folders.CACHE, str(tmp_path / "cache"))
    monkeypatch.delenv(folders.DATA, raising=False)

    def enter(*origins, n=40, d=17):
        known = catalog.Entry("small", catalog.CLASSIFICATION, n, d, origins)
        monkeypatch.setattr(catalog, "FILES", {"small": known})
        return known

    return enter


def test_a_named_set_is_downloaded_once(server, entry):
    entry(catalog.Origin(f"{server.url}/file", RIGHT))
    for _ in range(2):
        same(data.load("small"), sparse_set())
    assert server.asked == ["/file"]


def test_the_checksum_of_the_first_download_is_that_of_later_ones(server, entry, tmp_path):
    entry(catalog.Origin(f"{server.url}/file"))
    data.load("small")
    cache = tmp_path / "cache"
    assert (cache / "file.sha256").read_text().strip() == RIGHT
    (cache / "file").write_bytes(CONTENT.replace(b"1", b"2", 1))
    with pytest.raises(data.DataError, match=f"expected {RIGHT}: delete the file to download it again"):
        data.load("small")
    (cache / "file").unlink()
    server.files["/file"] = CONTENT + b"\n"
    with pytest.raises(data.DataError, match=f"expected {RIGHT}: nothing was kept"):
        data.load("small")
    server.files["/file"] = CONTENT
    same(data.load("small"), sparse_set())


def test_a_changed_value_gives_a_warning_and_another_compression_none(server, entry, tmp_path):
    content = content_digest(sparse_set(), classes=True)
    entry(catalog.Origin(f"{server.url}/file.bz2", content=content))
    server.files["/file.bz2"] = bz2.compress(CONTENT)
    same(data.load("small"), sparse_set())
    entry(catalog.Origin(f"{server.url}/changed", content=content))
    server.files["/changed"] = CONTENT.replace(b"17:1.5", b"17:1.6")
    with pytest.warns(data.DataWarning, match=f"in the catalog {content}"):
        found = data.load("small")
    assert found.X[0, -1] == 1.6


def test_the_second_origin_serves_where_the_first_does_not(server, entry):
    entry(catalog.Origin(f"{server.url}/absent"), catalog.Origin(f"{server.url}/file"))
    same(data.find("small"), sparse_set())


def test_what_every_origin_says_is_in_the_message(server, entry):
    entry(catalog.Origin(f"{server.url}/absent"), catalog.Origin(f"{server.url}/file", "0" * 64))
    with pytest.raises(data.DataError) as caught:
        data.load("small")
    assert "404" in str(caught.value)
    assert "SHA-256" in str(caught.value)
    assert "put absent or file into" in str(caught.value)


def test_a_table_inside_an_archive(server, entry, tmp_path):
    known = dense_set()
    with zipfile.ZipFile(tmp_path / "sets.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("other.txt", "nothing")
        archive.writestr("train.csv", csv_text(known, names=False))
    server.files["/sets.zip"] = (tmp_path / "sets.zip").read_bytes()
    entry(catalog.Origin(f"{server.url}/sets.zip", member="train.csv"), n=30, d=5)
    found = data.load("small")
    np.testing.assert_array_equal(full(found.X), known.X)
    np.testing.assert_array_equal(found.y, known.y)
    assert found.name == "small"
    entry(catalog.Origin(f"{server.url}/sets.zip", member="absent.csv"), n=30, d=5)
    with pytest.raises(data.DataError, match=r"expected a zip archive with absent\.csv in it"):
        data.load("small")


def test_a_page_in_the_place_of_the_file_is_refused(server, entry):
    server.files["/file"] = b"<html><body>Please log in, thank you</body></html>\n"
    entry(catalog.Origin(f"{server.url}/file"))
    with pytest.raises(data.DataError):
        data.load("small")
