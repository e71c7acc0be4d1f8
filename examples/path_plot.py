"""
A path of the Lasso
===================

A regularisation path of the Lasso on which every model is certified. Usage: path_plot.py [folder for the figure]
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import dualnewton as dn


def main() -> None:
    data = load_diabetes()
    X, y = StandardScaler().fit_transform(data.data), data.target

    strongest = np.abs(X.T @ (y - y.mean())).max() / len(y)  # the smallest alpha for which every coefficient is zero
    path = dn.Lasso(tol=1e-10).path(X, y, strongest * np.logspace(0.0, -3.0, 60))

    print("     alpha   features   relative gap   coefficients that are not zero")
    for alpha, coef, certificate in list(zip(path.values, path.coef, path.certificates, strict=True))[::10]:
        names = " ".join(np.array(data.feature_names)[coef != 0.0])
        print(f"{alpha:10.4f}   {np.count_nonzero(coef):8d}   {certificate.relative_gap:12.1e}   {names}")
    print(f"The worst relative gap on the path is {max(one.relative_gap for one in path.certificates):.1e}.")

    if find_spec("matplotlib") is None:
        print("The figure needs matplotlib: pip install 'dualnewton[plot]'.")
    else:
        draw(path, data.feature_names, Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="path-")))


def draw(path, names, folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, coefficients in zip(names, path.coef.T, strict=True):
        axes.plot(path.values, coefficients, label=name)
    axes.set(xscale="log", xlabel="alpha", ylabel="coefficient", title="The Lasso on diabetes, each model certified")
    axes.invert_xaxis()
    axes.legend(ncols=2, fontsize="small")
    figure.savefig(folder / "lasso_path.png", dpi=120)
    print(f"The path is drawn in {folder / 'lasso_path.png'}.")


if __name__ == "__main__":
    main()
