"""
Lines of conditional quantiles
==============================

Lines of conditional quantiles, each certified. Usage: quantiles.py [folder for the figure]
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import dualnewton as dn

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def make_data(n: int = 4000) -> tuple[np.ndarray, np.ndarray]:
    """Return one feature, and targets whose spread grows with it."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.0, 10.0, n)
    return x[:, None], 2.0 + 0.6 * x + (0.4 + 0.25 * x) * rng.gumbel(size=n)


def main() -> None:
    X, y = make_data()
    models = [dn.QuantileRegressor(quantile=q, alpha=0.0).fit(X, y) for q in QUANTILES]

    print("quantile   slope   intercept   share of targets below   relative gap")
    for model in models:
        below = np.mean(y < model.predict(X))
        gap = model.certificate_.relative_gap
        print(f"{model.quantile:8.2f}   {model.coef_[0]:5.2f}   {model.intercept_:9.2f}   {below:22.4f}   {gap:12.1e}")

    if find_spec("matplotlib") is None:
        print("The figure needs matplotlib: pip install 'dualnewton[plot]'.")
    else:
        draw(X, y, models, Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="quantiles-")))


def draw(X: np.ndarray, y: np.ndarray, models: list, folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ends = np.array([[0.0], [10.0]])
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.scatter(X[:, 0], y, s=3, color="0.7", linewidths=0)
    for model, colour in zip(models, plt.get_cmap("viridis")(np.linspace(0.0, 0.85, len(models))), strict=True):
        label = f"q = {model.quantile:g}: {np.mean(y < model.predict(X)):.1%} below"
        axes.plot(ends[:, 0], model.predict(ends), color=colour, linewidth=2.0, label=label)
    axes.set(xlabel="x", ylabel="y", title="Conditional quantiles, each a certified linear program", ylim=(-2.0, 22.0))
    axes.legend(loc="upper left", fontsize="small")
    figure.savefig(folder / "quantiles.png", dpi=120)
    print(f"The lines are drawn in {folder / 'quantiles.png'}.")


if __name__ == "__main__":
    main()
