"""What a checkpoint states about its model proves nothing: a run that continues computes its certificates again."""

import json

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.files import archive
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.run.checkpoint import KIND, VERSION, _digest_of_state

RNG = np.random.default_rng(2)
X = RNG.standard_normal((40, 3))
Y = np.where(X[:, 0] + RNG.standard_normal(40) > 0.0, 1.0, -1.0)
TARGET = X @ np.ones(3) + RNG.standard_normal(40)

PROBLEMS = {
    "logistic": lambda: dn.Problem(X, Y, losses.Logistic(), lam=0.1, fit_intercept=True),
    "lasso": lambda: dn.Problem(X, TARGET, losses.Squared(), regularizer=regularizers.L1(), lam=0.1),
    "huber's scale": lambda: HuberScaleProblem(X, TARGET, 1.35, lam=0.1, fit_intercept=True),
    "no penalty": lambda: Unpenalised(X, Y, losses.Logistic()),
}


def forged(path, change):
    """Apply a change to the certificate and the arrays of the best pair, and make the digest right."""
    content, arrays = archive.read(path, KIND, VERSION)
    tree = json.loads(arrays.pop("state").tobytes())
    change(tree, arrays)
    text = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    content["digest"] = _digest_of_state(content["run"], text, arrays)
    archive.write(path, KIND, VERSION, content, {"state": text, **arrays})


def shift_arrays(tree, arrays):
    for name, array in arrays.items():
        if array.dtype == np.float64:
            arrays[name] = array + 0.01


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_forged_model_is_certified_anew(name, tmp_path):
    problem, path = PROBLEMS[name](), tmp_path / "run.checkpoint"
    honest = dn.solve(problem, tol=1e-6, random_state=0, checkpoint=path)
    assert honest.converged
    forged(path, shift_arrays)
    found = dn.solve(problem, tol=1e-6, random_state=0, checkpoint=path)
    again = problem.recomputed(found)
    assert found.certificate.agrees_with(again)
    assert found.converged
    assert abs(found.certificate.primal - honest.certificate.primal) <= 1.1e-6 * abs(honest.certificate.primal)


def test_a_checkpoint_that_is_true_keeps_its_bits(tmp_path):
    problem, path = PROBLEMS["logistic"](), tmp_path / "run.checkpoint"
    one, other = (dn.solve(problem, tol=1e-6, random_state=0, checkpoint=path) for _ in range(2))
    assert one.certificate == other.certificate
    assert np.array_equal(one.w, other.w)
