"""The files of a report: a CSV file for every section, a PNG file for every chart, and the HTML page."""

from __future__ import annotations

import csv
import errno
import importlib.util
import io
import os
from pathlib import Path

from dualnewton.errors import MissingPackageError
from dualnewton.files.replacing import replacing
from dualnewton.lab.report.content import Report
from dualnewton.lab.report.page import page
from dualnewton.lab.report.picture import draw

NEEDED = ("matplotlib", "plotly")


def require() -> None:
    """Raise an error that names the packages to install if a report cannot be drawn; called before any work is done."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"a report needs {' and '.join(missing)}, not installed here: pip install 'dualnewton[report]'"
        )


def folder(path: str) -> Path:
    """Create the folder of a report before any work is done; raise ``OSError`` if that is impossible."""
    made = Path(path)
    if made.exists() and not made.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    made.mkdir(parents=True, exist_ok=True)
    if not os.access(made, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return made


def write(report: Report, folder: Path | str, stem: str) -> list[Path]:
    """Write all files of a report into an existing folder; return their paths, that of the HTML page (``stem``.html) first."""
    folder = Path(folder)
    text = page(report)
    paths = [folder / f"{stem}.html"]
    with replacing(paths[0], "w", encoding="utf-8") as file:
        file.write(text)
    for section in report.sections:
        if section.records:
            paths.append(folder / f"{section.name}.csv")
            with replacing(paths[-1], "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(section.columns)
                # repr of a float is text from which the same value can be read back
                rows = ([repr(float(x)) if isinstance(x, float) else x for x in record] for record in section.records)
                writer.writerows(rows)
        for chart in section.charts:
            paths.append(folder / f"{chart.name}.png")
            picture = io.BytesIO()
            draw(chart, picture)
            with replacing(paths[-1]) as file:
                file.write(picture.getvalue())
    return paths
