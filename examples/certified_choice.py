"""
Cross-validation whose choice is proved
=======================================

Cross-validation whose choice is proved. Usage: certified_choice.py [folder for the figure]
"""

import sys
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification
from sklearn.preprocessing import StandardScaler

import dualnewton as dn

SETTINGS = {"Cs": 12, "cv": 5, "scoring": "neg_log_loss", "l1_ratios": None, "use_legacy_attributes": False}


def main() -> None:
    warnings.simplefilter("ignore")
    X, y = make_classification(600, 20, n_informative=6, flip_y=0.15, random_state=3)
    X = StandardScaler().fit_transform(X)
    model = dn.LogisticRegressionCV(certify_choice=True, **SETTINGS).fit(X, y)
    proof = model.choice_certificate_
    print(proof)
    print(f"Relative gap of the final model: {model.certificate_.relative_gap:.1e}.")

    gaps = np.array([proof.relative_gap for proof in model.certificates_.ravel()]).reshape(len(proof.scores), -1)
    print("         C   score of exact fits between         relative gap of the fits")
    for values, low, high, gap in zip(proof.parameters, proof.lower, proof.upper, gaps.max(axis=1), strict=True):
        print(f"{values['C']:10.4g}   {low:12.6f} and {high:12.6f}   {gap:12.1e}")

    if find_spec("matplotlib") is None:
        print("The figure needs matplotlib: pip install 'dualnewton[plot]'.")
    else:
        draw(proof, Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="choice-")))


def draw(proof, folder: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    Cs = np.array([values["C"] for values in proof.parameters])
    lower = np.maximum(proof.lower, proof.scores.min() - 0.2)  # rough fits of values that lose have long intervals
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.vlines(Cs, lower, proof.upper, linewidth=6, color="0.75", label="exact fits are in here")
    axes.plot(Cs, proof.scores, "o", markersize=4, color="C0", label="mean score of the models")
    axes.axhline(proof.lower[proof.chosen], color="C3", linewidth=1, label="every other interval ends below")
    axes.set(xscale="log", xlabel="C", ylabel="mean log-likelihood", title="Rough fits suffice where they lose clearly")
    axes.legend(loc="lower right", fontsize="small")
    figure.savefig(folder / "choice.png", dpi=120)
    print(f"The intervals are drawn in {folder / 'choice.png'}.")


if __name__ == "__main__":
    main()
