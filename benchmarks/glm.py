"""Generalised linear models: processor seconds to a certified relative gap of 1e-6, against scikit-learn and glum.

    python -m benchmarks.glm --out benchmarks/GLM.md
    python -m benchmarks.glm --cells small,medium --repeats 5

Each library fits with falling tolerances until :func:`dualnewton.certify` proves a relative gap (P − D)/|P| of at most 1e-6 for
its model; the processor time of that fit alone counts, the least of some repeats, which are interleaved. Ours is one fit with
tol=1e-6, its certificate included. All run on one thread, with data in memory; kernels are compiled before. scikit-learn has no
elastic net.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton.io.generated import motor

GOAL = 1e-6
TOLERANCES = tuple(10.0**-k for k in range(2, 13))
POWERS = {"poisson": 1.0, "gamma": 2.0, "tweedie": 1.5}


class Cell(NamedTuple):
    """A problem: data, weights, the family, alpha and the share of ‖w‖₁."""

    name: str
    X: Any
    y: np.ndarray
    weights: np.ndarray | None
    family: str
    alpha: float
    l1_ratio: float = 0.0


def labels(family: str, mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw targets of a family with this mean."""
    if family == "poisson":
        return rng.poisson(mean).astype(float)
    if family == "gamma":
        return rng.gamma(2.0, mean / 2.0) + 1e-9
    return np.where((counts := rng.poisson(mean)) > 0, rng.gamma(np.maximum(counts, 1), 1.0), 0.0)


def dense(name: str, n: int, d: int, family: str, alpha: float, l1_ratio: float = 0.0) -> Cell:
    """Return Gaussian features of unequal scale, of which ten matter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * rng.uniform(0.3, 1.5, d)
    w = np.zeros(d)
    w[: min(d, 10)] = 0.25 * rng.standard_normal(min(d, 10))
    return Cell(f"{name}, {family}", X, labels(family, np.exp(X @ w + 0.5), rng), None, family, alpha, l1_ratio)


def cells(wanted: set[str]) -> Iterator[Cell]:
    """Yield the problems of the wanted groups, one at a time."""
    for family in POWERS if "small" in wanted else ():
        yield dense("300x10 dense", 300, 10, family, 1e-2)
    for family in POWERS if "medium" in wanted else ():
        yield dense("5000x50 dense", 5000, 50, family, 1e-3)
    for family in ("poisson", "gamma") if "wide" in wanted else ():
        yield dense("2000x5000 dense, elastic net", 2000, 5000, family, 0.05, 0.5)
    for family in ("poisson", "gamma", "tweedie") if "large" in wanted else ():
        yield dense("500000x50 dense", 500_000, 50, family, 1e-4)
    if "motor" in wanted:
        data = motor(678_013)
        name = "678013x75 one-hot CSR"
        yield Cell(f"{name}, poisson", data.X, data.y, data.sample_weight, "poisson", 1e-4)
        rng = np.random.default_rng(1)
        costs = np.where(data.y > 0.0, rng.gamma(2.0, 0.5, len(data.y)) * data.y, 0.0)
        yield Cell(f"{name}, tweedie", data.X, costs, data.sample_weight, "tweedie", 1e-4)
        yield Cell(f"{name}, gamma", data.X, rng.gamma(2.0, 0.5 + data.y), data.sample_weight, "gamma", 1e-4)


# The libraries ---------------------------------------------------------------------------------------------------------------


def ours(cell: Cell, tol: float) -> Any:
    """Return our estimator."""
    return dn.TweedieRegressor(power=POWERS[cell.family], alpha=cell.alpha, l1_ratio=cell.l1_ratio, tol=tol)


def sklearn(solver: str) -> Callable[[Cell, float], Any]:
    """Return scikit-learn's estimator by a solver."""

    def make(cell: Cell, tol: float) -> Any:
        from sklearn.linear_model import TweedieRegressor

        return TweedieRegressor(power=POWERS[cell.family], alpha=cell.alpha, tol=tol, solver=solver, max_iter=10_000)

    return make


def glum(cell: Cell, tol: float) -> Any:
    """Return glum's estimator, with the solver that it chooses."""
    from glum import GeneralizedLinearRegressor, TweedieDistribution

    family = {"poisson": "poisson", "gamma": "gamma"}.get(cell.family, TweedieDistribution(POWERS[cell.family]))
    more = {"alpha": cell.alpha, "l1_ratio": cell.l1_ratio, "gradient_tol": tol, "max_iter": 1000}
    return GeneralizedLinearRegressor(family=family, link="log", **more)


PEERS = {"sklearn lbfgs": sklearn("lbfgs"), "sklearn newton": sklearn("newton-cholesky"), "glum": glum}


def fitted(model: Any, cell: Cell) -> tuple[float, Any]:
    """Return the processor seconds of a fit, and the model."""
    began = time.process_time()
    model.fit(cell.X, cell.y, sample_weight=cell.weights)
    return time.process_time() - began, model


def gap(model: Any, cell: Cell) -> float:
    """Return the certified relative gap of a model."""
    return dn.certify(model, cell.X, cell.y, sample_weight=cell.weights).relative_gap


def tolerance(make: Callable[[Cell, float], Any], cell: Cell) -> float | None:
    """Return the loosest tolerance at which the model of a library has the gap that is wanted; None if none has."""
    for tol in TOLERANCES:
        if gap(fitted(make(cell, tol), cell)[1], cell) <= GOAL:
            return tol
    return None


def measured(cell: Cell, repeats: int) -> dict[str, float]:
    """Return the least processor seconds of each library; infinite where it does not reach the gap."""
    makes = {"ours": (ours, GOAL)}
    assert gap(fitted(ours(cell, GOAL), cell)[1], cell) <= GOAL  # which also compiles the kernels
    for name, make in PEERS.items():
        if cell.l1_ratio and name.startswith("sklearn"):
            continue
        if (tol := tolerance(make, cell)) is not None:
            makes[name] = make, tol
    seconds = dict.fromkeys(makes, math.inf)
    for _ in range(repeats):
        for name, (make, tol) in makes.items():
            seconds[name] = min(seconds[name], fitted(make(cell, tol), cell)[0])
    return seconds


def report(rows: list[tuple[str, dict[str, float]]]) -> str:
    """Return the table, with the ratio of the best other library to ours, and their geometric mean."""
    ratios = [min(value for name, value in row.items() if name != "ours") / row["ours"] for _, row in rows]
    names = ["ours", *PEERS]
    lines = [
        "# Generalised linear models: processor seconds to a certified relative gap of 1e-6",
        "",
        "Made by `python -m benchmarks.glm --out benchmarks/GLM.md`; the module says what is measured. A dash: not offered, or "
        "the gap was not reached at any tolerance. The last column is the time of the best other library over ours.",
        "",
        f"{platform.machine()}, one thread of a shared machine; Python {platform.python_version()}, "
        + ", ".join(f"{each} {version(each)}" for each in ("numpy", "scipy", "scikit-learn", "glum"))
        + f"; {time.strftime('%Y-%m-%d')}.",
        "",
        f"| cell | {' | '.join(names)} | best other / ours |",
        "|---" * (len(names) + 2) + "|",
    ]
    for (cell, row), ratio in zip(rows, ratios, strict=True):
        each = " | ".join(f"{row[name]:.4g}" if name in row else "–" for name in names)
        lines.append(f"| {cell} | {each} | {ratio:.2f} |")
    ahead = sum(ratio > 1.0 for ratio in ratios)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lines += ["", f"Ahead in {ahead} of {len(ratios)} cells; geometric mean of the ratios {mean:.2f}."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the cells that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", default="small,medium,wide,large,motor", help="groups of cells")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    with threadpool_limits(1):
        for cell in cells(set(given.cells.split(","))):
            rows.append((cell.name, measured(cell, given.repeats)))
            print(cell.name, {name: round(value, 5) for name, value in rows[-1][1].items()}, flush=True)
            if given.out is not None:
                given.out.write_text(report(rows), encoding="utf-8")
    print(report(rows))


if __name__ == "__main__":
    main()
