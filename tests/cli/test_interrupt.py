"""Ctrl-C: the model so far, with a gap that is true."""

import signal
import threading
import time

import numpy as np
import pytest

import dualnewton as dn
from cli.running import process
from dualnewton.cli.fit import continuation, ended_by_signals, unmoved_by_signals
from dualnewton.interop.model_file import SavedModel


def slow_problem(folder):
    """Data on which minibatch SDCA with a tiny penalty needs more time than any test has."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 60)) * np.logspace(0, 2, 60)
    y = np.sign(X @ rng.standard_normal(60) + 20.0 * rng.standard_normal(400))
    np.savez(folder / "slow.npz", X=X, y=y)
    return X, y


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_the_model_so_far_is_saved_and_its_gap_is_true(tmp_path, how):
    X, y = slow_problem(tmp_path)
    endless = ["--lam", "1e-7", "--method", "sdca", "--tol", "0", "--max-epochs", "100000000"]
    run = process("fit", "slow.npz", *endless, "--out", "m.model", cwd=tmp_path)
    end = threading.Timer(240, run.kill)
    end.start()
    try:
        assert "relative gap" in run.stderr.readline()
        run.send_signal(how)
        out, err = run.communicate()
    finally:
        end.cancel()
    assert run.returncode == 130, err
    assert "INTERRUPTED" in out
    assert "starts again from the beginning; with --checkpoint FILE it would continue" in out
    assert "saved in m.model" in out
    assert err.splitlines()[-1] == "dualnewton: interrupted"
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.model", "slow.npz"]

    model = SavedModel.load(tmp_path / "m.model")
    assert model.status == ("INTERRUPTED",)
    assert str(model.certificate) in out
    problem = dn.Problem(X, y, dn.losses.Logistic(), lam=1e-7, fit_intercept=True)
    assert model.certificate.primal == pytest.approx(problem.primal(model.coef[0], float(model.intercept[0])), rel=1e-9)
    best = dn.solve(problem, tol=1e-6, random_state=0).certificate
    assert model.certificate.dual <= best.primal
    assert best.dual <= model.certificate.primal


def test_a_repeated_command_continues_only_from_a_checkpoint_that_was_written(tmp_path):
    assert "starts again" in continuation(None)
    assert "no checkpoint was written yet" in continuation(str(tmp_path / "absent"))
    assert "continues from the checkpoint" in continuation(str(tmp_path))


def test_a_killed_fit_goes_on_to_the_same_model(command, tmp_path):
    slow_problem(tmp_path)
    words = ["fit", "slow.npz", "--lam", "1e-7", "--method", "sdca", "--tol", "0", "--max-epochs", "120"]
    run = process(*words, "--checkpoint", "c.ckpt", "--out", "m.model", cwd=tmp_path)
    until = time.monotonic() + 240.0
    while not (tmp_path / "c.ckpt").exists() and run.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    run.kill()
    run.communicate()
    assert run.returncode == -signal.SIGKILL
    assert not (tmp_path / "m.model").exists()
    assert command(*words, "--checkpoint", "c.ckpt", "--out", "m.model").code == 0
    assert command(*words, "--out", "whole.model").code == 0
    resumed, whole = (SavedModel.load(tmp_path / name) for name in ("m.model", "whole.model"))
    assert np.array_equal(resumed.coef, whole.coef)
    assert np.array_equal(resumed.intercept, whole.intercept)
    assert resumed.certificates == whole.certificates


def test_before_there_is_a_model_nothing_is_written(command, tmp_path, monkeypatch):
    from dualnewton import io

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(io, "find", interrupted)
    said = command("fit", "iris", "--out", "m.model")
    assert (said.code, said.out, said.err) == (130, "", "dualnewton: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_a_request_to_end_is_as_good_as_a_key():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_nothing_disturbs_the_writing():
    with unmoved_by_signals():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
