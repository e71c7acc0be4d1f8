"""The files of a report hold what it says, whole or not at all."""

import csv
import json
import re

import numpy as np
import pytest

from dualnewton.lab import report
from dualnewton.lab.report import Chart, Claim, Curve, Panel, Report, Section, Table, page

NASTY = "</script><b>&"


def small(name=NASTY):
    x = np.array([0.0, 1.0, 2.0, 3.0])
    curves = [Curve(name, x, [1.0, 0.1, 0.0, 1e-3]), Curve("other", x, [1.0, np.nan, 0.5, 0.2], "SDCA", 1)]
    chart = Chart(
        "picture",
        "Title",
        [[Panel("left", curves), Panel("right", curves[:1], "rounds", 2.0)]],
        "x",
        "y",
        "See.",
        lowest=1e-2,
    )
    claims = [
        Claim("It holds", "data", True, "1 < 2"),
        Claim("It does not", "data", False, "2 < 1", "so"),
        Claim("?", "data", None, ""),
    ]
    return Report(
        "A report",
        "Lead.",
        [
            Section(
                "part",
                "Part",
                "Text.",
                [chart],
                [Table("Numbers", ("a", "b"), [["1", name]])],
                claims,
                ("k", "v"),
                [(1, 0.1), (2, 1 / 3)],
            )
        ],
        "dualnewton something",
        ["A note."],
        {"Processor": "some"},
    )


def test_curves_leave_out_what_a_logarithm_cannot_show():
    curve = Curve("c", [0.0, 1.0, 2.0], [1.0, 0.0, np.inf])
    assert [len(side) for side in curve.points(x_log=False, y_log=True)] == [1, 1]
    assert [len(side) for side in curve.points(x_log=True, y_log=False)] == [1, 1]
    assert [len(side) for side in curve.points(x_log=False, y_log=False)] == [2, 2]


@pytest.mark.slow
def test_all_files_are_written(tmp_path):
    paths = report.write(small(), tmp_path, "page")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "part.csv", "picture.png"]
    assert paths[0] == tmp_path / "page.html"
    with open(tmp_path / "part.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["k", "v"]
    assert float(rows[2][1]) == 1 / 3
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("before")

    def full(_report):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dualnewton.lab.report.files.page", full)
    with pytest.raises(OSError, match="No space left"):
        report.write(small(), tmp_path, "page")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
    assert (tmp_path / "page.html").read_text() == "before"


def test_the_page_needs_nothing_from_elsewhere_and_escapes_names():
    text = page.page(small())
    ours = text.replace(plotly(), "")
    assert not re.search(r"(src|href)=[\"'](?!data:)", ours)
    assert "http" not in ours
    assert NASTY not in ours
    specs = json.loads(re.search(r'<script id="charts" type="application/json">(.*?)</script>', ours, re.DOTALL)[1])
    assert [spec["id"] for spec in specs] == ["picture-0", "picture-1"]
    assert [len(spec["data"]) for spec in specs] == [2, 1]
    assert specs[0]["data"][0]["y"] == [1.0, 0.1, 1e-3]
    assert specs[1]["layout"]["xaxis"]["range"] == [0.0, 2.0]
    assert specs[1]["layout"]["xaxis"]["title"]["text"] == "rounds"


def plotly():
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def test_the_verdicts_are_counted():
    text = page.page(small())
    assert "1 of 3 claims borne out by this run" in text
    assert [text.count(f'class="verdict {name}"') for name in ("holds", "fails", "unknown")] == [1, 1, 1]


def test_what_is_not_installed_is_said_before_any_work(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "plotly" else object())
    with pytest.raises(ImportError, match=r"needs plotly, not installed here: pip install 'dualnewton\[report\]'"):
        report.require()


def test_a_folder_is_made_and_a_file_in_its_place_refused(tmp_path):
    assert report.folder(str(tmp_path / "a" / "b")).is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        report.folder(str(tmp_path / "file"))


def test_a_chart_without_points_is_drawn(tmp_path):
    nothing = Curve("zero", [1.0, 2.0], [0.0, 0.0])
    chart = Chart(
        "empty", "Empty", [[Panel("left", [nothing]), Panel("right", [])]], "x", "y", "", x_log=True, lowest=1e-3
    )
    report.write(Report("r", "", [Section("s", "S", "", [chart])], ""), tmp_path, "page")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty.png", "page.html"]
