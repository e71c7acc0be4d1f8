"""A slice of the campaign (``make campaign``) on fixed seeds, and checks of its own instruments."""

import json
import mmap
import pickle
import time
from dataclasses import replace

import numpy as np
import pytest
from campaign import exact, gpu, report, runner
from campaign.parts import PARTS, Defect, skipped
from campaign.problems import LOSSES, PENALTIES
from campaign.watch import Watch

import dualnewton as dn
from dualnewton import losses, regularizers
from fake_device import on_device
from tables import LOSSES as SMOOTH
from tables import NON_SMOOTH, SEVERAL_COLUMNS, WITHOUT_GAMMA, exported, labels_for, name_of

ALL_LOSSES = [*SMOOTH, *NON_SMOOTH, *WITHOUT_GAMMA]

SLICE = {
    "fits": range(20, 45),
    "estimators": range(11, 17),
    "files": range(0, 18, 6),
    "mutants": range(40),
    "rounding": range(70, 94),
}
"""Seeds of each part that take a few seconds of processor time together."""


@pytest.mark.parametrize(("name", "seed"), [(name, seed) for name, seeds in SLICE.items() for seed in seeds])
def test_nothing_breaks(name, seed, tmp_path):
    assert PARTS[name].case(seed, tmp_path).total() >= 1


def test_the_campaign_draws_every_loss_and_penalty():
    assert set(LOSSES) == {kind.__name__ for kind in exported(losses, losses.Loss)}
    assert {name.split()[0] for name in PENALTIES} == {
        kind.__name__ for kind in exported(regularizers, regularizers.Regularizer)
    }


def test_each_seed_fits_a_problem_on_a_device_and_counts_the_refusals_before_it():
    found = [gpu.fitted(seed, {"device": on_device}) for seed in range(60_000, 60_012)]
    assert all(each.total() > each["refused"] for each in found)
    assert any(each["refused"] for each in found)


@pytest.mark.parametrize("loss", [*ALL_LOSSES, *SEVERAL_COLUMNS], ids=name_of)
def test_a_claim_is_true_of_the_solution_and_false_of_another_model(loss):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 3)), labels_for(loss, 20, rng) + (0.1 if loss == losses.Gamma() else 0.0)
    given = {"lam": 0.1, "sample_weight": rng.random(20), "offset": None, "fit_intercept": True}
    result = dn.solve(dn.Problem(X, y, loss, **given), tol=1e-9, random_state=0)
    claim = exact.Objective(X, y, loss, regularizers.L2(), **given)
    true, rounding = claim.claim(result.w, result.intercept, result.alpha)
    assert true <= result.certificate.gap + rounding
    assert rounding <= 1e-10 * abs(result.certificate.primal)
    other, rounding = claim.claim(result.w + 0.1, result.intercept, result.alpha)
    assert other > result.certificate.gap + rounding
    with pytest.raises(Defect, match=r"Σ c_i α_i|outside the domain"):
        claim.claim(result.w, result.intercept, result.alpha + 0.1)


def test_a_watch_notes_what_a_reader_must_not_do(tmp_path):
    (tmp_path / "in").mkdir()
    with Watch(tmp_path / "in") as watch:
        (tmp_path / "in" / "own").write_text("allowed")
        (tmp_path / "in" / "own").read_text()
        assert watch.seen == []
        (tmp_path / "other").write_text("")
        pickle.loads(pickle.dumps(PARTS["files"]))
    (tmp_path / "afterwards").write_text("")
    assert [note.split()[0] for note in watch.seen] == ["open", "pickle.find_class"]


def test_a_watch_measures_the_growth_of_memory(tmp_path):
    with Watch(tmp_path) as watch:
        room = mmap.mmap(-1, 1 << 26)  # new pages: an array may get memory that earlier tests have left resident
        np.frombuffer(room, dtype=np.uint8)[:] = 1
    assert len(room) <= watch.growth or not watch.able


def test_what_needs_an_absent_package_is_skipped_by_name_and_not_counted(tmp_path):
    assert skipped("rows", ["numpy"]) is None
    assert list(skipped("rows", ["numpy", "no_such_package"])) == ["skipped rows: no no_such_package"]
    (tmp_path / "files.jsonl").write_text(
        '{"seed": 0, "counts": {"read": 3}}\n{"seed": 1, "counts": {"skipped rows": 1}}\n'
    )
    assert "| 3 | read 3 |" in report.rows(tmp_path)[0]


def test_a_log_continues_where_it_was_left_and_repeats_failures(tmp_path, monkeypatch):
    log = tmp_path / "files.jsonl"
    asked = []

    class Child:
        alive = True

        def __init__(self, part):
            self.part = part

        def answer(self, seed):
            asked.append(seed)
            return {"seed": seed, "counts": {"read": 2}} if seed != 1 else {"seed": 1, "defect": "a crash"}

        def end(self):
            pass

    monkeypatch.setattr(runner, "Child", Child)
    assert [entry["seed"] for entry in runner.run("files", range(3), log, time.monotonic() + 60)] == [1]
    with log.open("a") as file:
        file.write('{"seed": 3, "cou')  # as a killed campaign leaves it
    runner.run("files", range(5), log, time.monotonic() + 60)
    assert asked == [0, 1, 2, 1, 3, 4]
    (row,) = report.rows(tmp_path)
    assert row.startswith("| files")
    assert "read 8" in row
    assert row.endswith("| 1 |")


def test_a_crash_is_the_defect_of_its_seed(monkeypatch, tmp_path):
    child = runner.Child(replace(PARTS["files"], seconds=600.0))  # a hang, even on a busy machine
    assert json.dumps(child.answer(2)["counts"])
    child.process.stdin.write(b"not a seed\n")  # ends the process
    assert "the process ended" in child.answer(3)["defect"]
    assert not child.alive
