"""Downloads; a file appears under its name only when it is complete and its checksum is right."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from dualnewton.files.replacing import replacing
from dualnewton.io.dataset import DataError
from dualnewton.io.streams import Progress

ATTEMPTS = 3
"""Number of attempts to download a file; the further ones are for interrupted connections and errors of the server."""

WAIT = 1.0
"""Seconds of waiting before the second attempt; the wait doubles with each further one, to spare a busy server."""

TIMEOUT = 30.0
"""Seconds without data after which a connection counts as lost."""

PIECE = 1 << 18
"""Bytes read from the network at a time; progress is reported after each."""


class DownloadError(DataError):
    """A file could not be downloaded; the message has the reason."""


class _TransientError(Exception):
    """An error that may not occur in another attempt."""


def download(url: str, path: Path, sha256: str | None = None, progress: Progress | None = None) -> str:
    """Download a file and return its SHA-256.

    Missing folders of ``path`` are created, and an existing file is replaced only by a complete one. A file with another
    checksum than ``sha256`` is deleted. ``progress`` is called with the bytes received and their total number, if that is
    known.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _once(url, path, sha256, progress)
        except _TransientError as error:
            if attempt == ATTEMPTS:
                raise DownloadError(f"{url}: {error} ({ATTEMPTS} attempts)") from None
            time.sleep(WAIT * 2 ** (attempt - 1))
    raise AssertionError("not reached")


def _once(url: str, path: Path, sha256: str | None, progress: Progress | None) -> str:
    import http.client
    import urllib.error
    import urllib.request

    request = urllib.request.Request(url, headers={"User-Agent": "dualnewton"})
    digest, received = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer, replacing(path) as file:
            length = answer.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            while piece := answer.read(PIECE):
                file.write(piece)
                digest.update(piece)
                received += len(piece)
                if progress is not None:
                    progress(received, total)
            if total is not None and received != total:
                raise _TransientError(f"the connection ended after {received} of {total} bytes")
            if sha256 is not None and digest.hexdigest() != sha256:
                raise DownloadError(f"{url}: the SHA-256 is {digest.hexdigest()}, expected {sha256}: nothing was kept")
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"the server answers {error.code} {error.reason}"
        raise _TransientError(reason) if error.code >= 500 else DownloadError(f"{url}: {reason}") from None
    except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _TransientError(f"no connection ({_reason(error)})") from None
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    """Return the reason why a connection failed, without the number of a system error."""
    cause = getattr(error, "reason", None) or error
    return str(getattr(cause, "strerror", None) or cause).rstrip(".") or type(cause).__name__
