"""``dualnewton rates``: a table that a person reads, and the same numbers for a program."""

import csv
import json

from cli.running import refused


def test_the_table_and_a_word_on_its_columns(command):
    said = command("rates", "diabetes", "--tau", "1,16", "--gap", "1e-2")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].split()[1:3] == ["diabetes:", "442"]
    head = next(line for line in lines if line.startswith("τ"))
    rows = lines[lines.index(head) + 1 :][:2]
    assert [row.split()[0] for row in rows] == ["1", "16"]
    assert "Theorem 6 (SDNA) or 8 (SDCA)" in said.out


def test_json_and_csv_have_the_same_numbers(command, tmp_path):
    said = command("rates", "diabetes", "--tau", "1,16", "--gap", "1e-2", "--json", "--out", tmp_path / "rates.csv")
    rows = json.loads(said.out)
    assert [row["tau"] for row in rows] == [1, 16]
    for row in rows:
        assert row["theta"] <= row["sigma1_prox"] * (1.0 + 1e-12)
        assert row["sdna_epochs"] <= row["sdna_bound"]
        assert row["sdca_epochs"] <= row["sdca_bound"]
    with open(tmp_path / "rates.csv", newline="") as file:
        assert [float(row["theta"]) for row in csv.DictReader(file)] == [row["theta"] for row in rows]


def test_what_is_refused(command):
    assert "got '1;2'" in refused(command("rates", "diabetes", "--tau", "1;2"))
    assert "in [1, 442], got 443" in refused(command("rates", "diabetes", "--tau", "443"))
    assert "got a target of 3 classes" in refused(command("rates", "iris"))
    assert "gamma" in refused(command("rates", "breast_cancer", "--loss", "hinge"))
    assert "no such folder" in refused(command("rates", "diabetes", "--out", "absent/rates.csv"))
