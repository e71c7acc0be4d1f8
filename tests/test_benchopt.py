"""The solvers for benchopt minimise the objectives of its benchmarks, by its interface."""

import importlib.util
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks" / "benchopt"
INSTALLED = importlib.util.find_spec("benchopt") is not None


@pytest.fixture
def solver(monkeypatch):
    """Return a solver by the name of its benchmark, on benchopt's base class or, without it, on an empty one."""

    def load(name):
        if not INSTALLED:
            monkeypatch.setitem(sys.modules, "benchopt", types.SimpleNamespace(BaseSolver=object))
        spec = importlib.util.spec_from_file_location(f"of_{name}", FOLDER / name / "dualnewton_solver.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.Solver()

    return load


def huber(r, epsilon):
    return np.where(np.abs(r) <= epsilon, r**2, 2.0 * epsilon * np.abs(r) - epsilon**2)


def pinball(r, q):
    return np.maximum(q * r, (q - 1.0) * r)


CASES = {
    "logreg_l2": (
        {"lmbd": 0.5, "fit_intercept": True},
        lambda X, y, w: np.logaddexp(0.0, -y * (X @ w[:-1] + w[-1])).sum() + 0.25 * w[:-1] @ w[:-1],
    ),
    "ridge": (
        {"lmbd": 2.0, "fit_intercept": True},
        lambda X, y, w: 0.5 * np.sum((y - X @ w[:-1] - w[-1]) ** 2) + w[:-1] @ w[:-1],
    ),
    "lasso": (
        {"lmbd": 3.0, "fit_intercept": False},
        lambda X, y, w: 0.5 * np.sum((y - X @ w) ** 2) + 3.0 * np.abs(w).sum(),
    ),
    "svm": ({"C": 0.3}, lambda X, y, w: 0.3 * np.maximum(0.0, 1.0 - y * (X @ w)).sum() + 0.5 * w @ w),
    "huber_l2": (
        {"lmbd": 1.0, "epsilon": 0.4},
        lambda X, y, w: huber(y - X @ w[1:] - w[0], 0.4).sum() + w[1:] @ w[1:],
    ),
    "quantile_regression": (
        {"lmbd": 0.05, "quantile": 0.3, "fit_intercept": True},
        lambda X, y, w: pinball(y - X @ w[:-1] - w[-1], 0.3).mean() + 0.05 * np.abs(w[:-1]).sum(),
    ),
}
"""For each benchmark: what its ``Objective.get_objective`` gives beside X and y, and the value that it computes."""


def test_every_folder_has_a_case():
    assert {path.name for path in FOLDER.iterdir() if path.is_dir()} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_no_other_point_is_better(name, solver):
    given, value = CASES[name]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    z = X[:, 0] + 0.5 * rng.standard_normal(40)
    y = np.sign(z) if name in ("logreg_l2", "svm") else z
    one = solver(name)
    one.set_objective(X, y, **given)
    one.run(np.inf)
    (start,) = one.get_result().values()
    one.run(1e-10)
    (found,) = one.get_result().values()
    least = value(X, y, found)
    assert not start.any()
    assert least < value(X, y, start)
    # The objective is convex: a point that no step improves is its minimum, to about the square of the smallest step.
    steps = rng.standard_normal((300, len(found))) * np.repeat([1e-4, 1e-2, 1.0], 100)[:, None]
    assert min(value(X, y, found + step) for step in steps) >= least - 1e-9 * least


OBJECTIVE = """
from benchopt import BaseObjective

class Objective(BaseObjective):
    name = "ridge"
    parameters = {"lmbd": [1.0], "fit_intercept": [True]}
    def set_data(self, X, y):
        self.X, self.y = X, y
    def get_one_result(self):
        import numpy as np
        return {"beta": np.zeros(self.X.shape[1] + 1)}
    def evaluate_result(self, beta):
        r = self.y - self.X @ beta[:-1] - beta[-1]
        return {"value": 0.5 * r @ r + 0.5 * self.lmbd * beta[:-1] @ beta[:-1]}
    def get_objective(self):
        return {"X": self.X, "y": self.y, "lmbd": self.lmbd, "fit_intercept": self.fit_intercept}
"""

DATASET = """
from benchopt import BaseDataset

class Dataset(BaseDataset):
    name = "simulated"
    def get_data(self):
        import numpy as np
        rng = np.random.default_rng(0)
        X = rng.standard_normal((50, 4))
        return {"X": X, "y": X[:, 0] + rng.standard_normal(50)}
"""


@pytest.mark.skipif(not INSTALLED, reason="benchopt is not installed")
def test_benchopt_runs_a_benchmark_with_our_solver(tmp_path):
    for folder, file, text in (
        ("", "objective.py", OBJECTIVE),
        ("datasets", "simulated.py", DATASET),
        ("solvers", "dualnewton_solver.py", (FOLDER / "ridge" / "dualnewton_solver.py").read_text(encoding="utf-8")),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / file).write_text(text, encoding="utf-8")
    words = ["run", str(tmp_path), "-s", "dualnewton", "-n", "4", "-r", "1", "--no-plot", "--no-display"]
    run = subprocess.run([sys.executable, "-m", "benchopt", *words], capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert list((tmp_path / "outputs").glob("*.parquet"))
