"""``dualnewton compare``: a report, a table, and refusals before any work."""

import json

import numpy as np

from cli.running import refused

QUICK = ("--methods", "auto,newton", "--peers", "ridge cholesky", "--time-limit", "20")


def test_the_report_and_the_table(command, tmp_path):
    said = command("compare", "diabetes", "--out", "duel/here", *QUICK)
    assert said.code == 0, said.err
    folder = tmp_path / "duel" / "here"
    assert sorted(path.name for path in folder.iterdir()) == ["compare.csv", "compare.html", "compare.png"]
    assert "dualnewton compare diabetes --out duel/here" in (folder / "compare.html").read_text(encoding="utf-8")
    for name in ("dualnewton auto", "dualnewton newton", "ridge cholesky"):
        assert name in said.out


def test_a_table_with_an_intercept_and_the_l1_norm(command, tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{'red' if x > 0 else 'blue'},{x:.4f},{2.0 * x + 1.0:.4f}" for x in rng.standard_normal(60)]
    (tmp_path / "table.csv").write_text("colour,size,price\n" + "\n".join(rows) + "\n")
    words = ("--target", "price", "--penalty", "l1", "--lam", "0.1", "--methods", "auto")
    said = command(
        "compare", "table.csv", "--out", "duel", *words, "--peers", "coordinate descent,ridge lsqr", "--json"
    )
    assert said.code == 0, said.err
    found = {row["solver"]: row for row in json.loads(said.out)}
    assert all(found[name]["best"] <= 1e-6 for name in ("dualnewton auto", "coordinate descent"))
    assert found["ridge lsqr"]["remark"] == "no penalty l1"


def test_json(command):
    said = command("compare", "diabetes", "--out", "duel", *QUICK, "--json")
    rows = json.loads(said.out)
    assert {row["solver"] for row in rows} == {"dualnewton auto", "dualnewton newton", "ridge cholesky"}
    assert all(row["best"] <= 1e-6 for row in rows)
    assert all(row["seconds_to"]["0.01"] <= row["seconds_to"]["1e-06"] for row in rows)


def test_what_is_refused(command, tmp_path, monkeypatch):
    assert "--penalty must be one of l2, l1, elasticnet" in refused(
        command("compare", "diabetes", "--out", "d", "--penalty", "nonnegative")
    )
    assert "got 'lbfgs'" in refused(command("compare", "diabetes", "--out", "d", "--peers", "lbfgs"))
    assert "got a target of 3 classes" in refused(command("compare", "iris", "--out", "d"))
    (tmp_path / "file").write_text("")
    assert "Not a directory" in refused(command("compare", "diabetes", "--out", "file"))
    monkeypatch.setattr("dualnewton.lab.report.files.NEEDED", ("no_such_package",))
    assert "pip install 'dualnewton[report]'" in refused(command("compare", "diabetes", "--out", "other"))
    assert not (tmp_path / "other").exists()
