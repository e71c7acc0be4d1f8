"""``dualnewton reproduce``: every claim with its verdict, on the terminal and in the report."""

from cli.running import refused


def test_the_example(command, tmp_path):
    said = command("reproduce", "example", "--quick", "--out", "paper")
    assert said.code == 0, said.err
    assert sorted(path.name for path in (tmp_path / "paper").iterdir()) == ["example.csv", "example.png", "report.html"]
    assert "σ₁ = 0.33501, σ₂ = 0.00013332, σ₃ = 3.3333e-05" in said.out
    assert said.out.splitlines()[-1].split()[-1] == "paper/report.html"
    page = (tmp_path / "paper" / "report.html").read_text(encoding="utf-8")
    assert "dualnewton reproduce example --quick --out paper" in page


def test_a_set_that_is_not_there_is_said(command, monkeypatch, tmp_path):
    monkeypatch.setenv("DUALNEWTON_DATA", str(tmp_path / "nothing"))
    from dualnewton.io import DataError
    from dualnewton.lab import sets

    def absent():
        raise DataError("put mushrooms there")

    monkeypatch.setitem(sets.SETS, "mushrooms", (absent, absent))
    said = command("reproduce", "figure1", "--quick", "--out", "paper")
    assert said.code == 0, said.err
    assert "The mushrooms data are missing, so that no figure shows them" in said.out
    assert "mushrooms data are missing" in (tmp_path / "paper" / "report.html").read_text(encoding="utf-8")


def test_what_is_refused(command):
    assert "got 'figure4'" in refused(command("reproduce", "figure4", "--out", "paper"))
    assert "got 'hinge'" in refused(command("reproduce", "figure1", "--loss", "hinge", "--out", "paper"))
    assert "--out" in refused(command("reproduce"))
