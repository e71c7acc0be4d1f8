"""Each optional package absent: the library imports and fits, and what needs the package says how to install it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from campaign.parts import Defect

OPTIONAL = (
    "matplotlib",
    "pandas",
    "dask",
    "distributed",
    "plotly",
    "cupy",
    "polars",
    "numexpr",
    "mpmath",
    "hypothesis",
)
"""Packages without which fits work."""

NEEDS = {
    "matplotlib": "dn.solve(problem).trace.plot()",
    "pandas": "dn.solve(problem).trace.to_pandas()",
}
"""What needs a package; without it, an ``ImportError`` that names the package is the only answer."""

FIT = """
import sys
sys.modules[{name!r}] = None
import numpy as np
import dualnewton as dn
X = np.random.default_rng(0).standard_normal((50, 3))
y = np.where(X[:, 0] > 0.2, 1.0, -1.0)
problem = dn.Problem(X, y, dn.losses.Logistic(), lam=0.1)
assert dn.solve(problem).converged
assert dn.LogisticRegression().fit(X, y).certificate_.relative_gap <= 1e-4
assert dn.RidgeCV().fit(X, y).coef_.shape == (3,)
np.savez("rows.npz", X=X, y=y)
assert dn.data.read("rows.npz").X.shape == (50, 3)
from dualnewton.cli import main
sys.argv = ["dualnewton", "fit", "rows.npz", "--out", "m.model"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
dn.load("m.model")
"""
ASK = """
try:
    {code}
except ImportError as error:
    assert {name!r} in str(error), error
    print("asked")
"""


def case(seed: int, folder: Path) -> Counter[str]:
    """Try one package."""
    name = OPTIONAL[seed % len(OPTIONAL)]
    code = FIT.format(name=name) + (ASK.format(name=name, code=NEEDS[name]) if name in NEEDS else "")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode:
        raise Defect(f"without {name}: {run.stderr[-1500:]}")
    return Counter([f"without {name}"])
