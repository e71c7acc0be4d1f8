"""``dualnewton datasets``: the named data sets and their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualnewton.cli import _options as options

if TYPE_CHECKING:
    from dualnewton.io.catalog import Entry
    from dualnewton.io.dataset import Dataset


def datasets(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Download this data set.")] = None,
    json: options.Json = False,
) -> None:
    """List the named data sets, or download one of them.

    A name can be used wherever a command takes a file. Its file is searched in the folder **DUALNEWTON_DATA** (NAME.npz,
    NAME.svm, NAME.csv, NAME.bz2, ...), then in the cache (**DUALNEWTON_CACHE**, or the cache folder of the user); otherwise it is
    downloaded, and its content is compared with the SHA-256 of the catalog, if that is known. Sets that come with the library
    need no network.

    For example:

        dualnewton datasets
        dualnewton datasets mushrooms
        dualnewton fit a9a
    """
    from dualnewton.cli import _output

    rows = listed() if name is None else [fetched(name)]
    if json:
        _output.as_json(rows if name is None else rows[0])
    elif name is None:
        _output.table(("name", "kind", "n", "d", "here", "from"), [list(row.values()) for row in rows])
        print()
        _output.paragraph(
            "Generators: dense:NxD, uncentred:NxD, sparse:NxDxK (K entries per row), motor:N (insurance claims), optionally "
            "followed by :SEED."
        )
    else:
        for key, value in rows[0].items():
            _output.say(key, value)


def listed() -> list[dict[str, Any]]:
    """Return a row of the table for each named set."""
    from dualnewton.io.catalog import FILES, OFFLINE, located

    rows = []
    for entry in [*OFFLINE.values(), *FILES.values()]:
        here = entry.name in OFFLINE or located(entry) is not None
        source = " or ".join(origin.url for origin in entry.origins) or "comes with the library"
        row = {"name": entry.name, "kind": entry.kind, "n": entry.n, "d": entry.d}
        rows.append({**row, "here": "yes" if here else "no", "from": source})
    return rows


def fetched(name: str) -> dict[str, Any]:
    """Download a set if it is not local, and return its file, source, checksums and size."""
    from dualnewton.cli._transfer import transfer
    from dualnewton.io.catalog import FILES, checksum, fetch, load

    facts: dict[str, Any] = {"name": name}
    if name in FILES:
        with transfer(f"downloading {name}") as progress:
            path, origin = fetch(name, progress)
        facts |= {"file": str(path), "from": origin.url if origin else "a local file"}
        if origin is not None:
            known = (
                "as in the catalog"
                if origin.sha256
                else "recorded at the first download; later ones must have the same"
            )
            facts["sha256"] = f"{checksum(path)} ({known})"
    data = load(name)
    n, d = data.X.shape
    if name in FILES:
        facts["content"] = _content(FILES[name], data)
    return {**facts, "examples": n, "features": d}


def _content(entry: Entry, data: Dataset) -> str:
    """Return the digest of the content of a set, and whether it is that of the catalog."""
    found = entry.content(data)
    if not entry.contents:
        return f"{found} (not known to the catalog)"
    return f"{found} ({'as in' if found in entry.contents else 'not that of'} the catalog)"
