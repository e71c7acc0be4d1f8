"""``dualnewton convert``: conversion of a data file to another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dualnewton.cli import _options as options

Source = Annotated[str, typer.Argument(metavar="IN", help="A file, or a name that `datasets` lists.")]
Out = Annotated[
    str,
    typer.Argument(
        metavar="OUT", help="The new file: .npz, .npy, .svm, .csv, .tsv or .parquet; text also .gz .bz2 .xz."
    ),
]
NFeatures = Annotated[int | None, options.option("--n-features", "NUMBER", "The number of columns of a sparse file.")]
ZeroBased = Annotated[
    bool | None,
    options.option(
        "--zero-based/--one-based", None, "First index in a svmlight file. By default 1, unless a 0 occurs."
    ),
]
ROLES = dict.fromkeys(("target", "weights"))
Dtype = Annotated[str | None, options.option("--dtype", "NAME", "Store X as float64 or float32.")]


@options.with_groups
def convert(
    source: Source,
    out: Out,
    roles: options.Roles = ROLES,
    n_features: NFeatures = None,
    zero_based: ZeroBased = None,
    dtype: Dtype = None,
) -> None:
    """Write data in another format, with memory use that does not depend on the size of the file.

    For data that do not fit into memory, convert to a format that can be memory-mapped: **.npz** (sparse or dense, everything
    in one file) or **.npy** (dense; the labels in NAME.y.npy). `fit` and the other commands then read parts from disk.

    OUT appears under its name only when it is complete. Temporary files in its folder take about as much space as OUT.

    For example:

        dualnewton convert train.svm.bz2 train.npz
        dualnewton convert measurements.csv measurements.npy --target price --dtype float32
        dualnewton convert mushrooms mushrooms.csv
    """
    from dualnewton.cli import _output
    from dualnewton.cli._transfer import transfer
    from dualnewton.io.conversion import convert as converted

    _output.ready(out)
    size = Path(source).stat().st_size if Path(source).is_file() else None
    with transfer(f"reading {source}") as progress:
        done = converted(
            source,
            out,
            **roles,
            n_features=n_features,
            zero_based=zero_based,
            dtype=dtype,
            report=lambda read: progress(read, size),
        )
    n, d = done.shape
    _output.say("written", f"{done.path}, {done.path.stat().st_size} bytes")
    _output.say("data", f"{n} examples, {d} features, {done.entries} entries")
    _output.say("target", done.target or "none")
