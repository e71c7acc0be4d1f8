"""
A first certified fit
=====================

`make demo`: fit a logistic regression, print its certificate, certify scikit-learn's fit, and plot the gap.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

import dualnewton as dn
from dualnewton import losses, samplings, theory


def main() -> None:
    X, target = load_breast_cancer(return_X_y=True)
    X, y = StandardScaler().fit_transform(X), np.where(target == 1, 1.0, -1.0)
    n = len(y)

    print("1. Fit a logistic regression with an unpenalised intercept, and certify its duality gap.")
    problem = dn.Problem(X, y, losses.Logistic(), lam=1 / n, fit_intercept=True)
    result = dn.solve(problem, tol=1e-8, random_state=0)
    print(result)
    print(f"  accuracy     {np.mean(np.sign(X @ result.w + result.intercept) == y):.3f} on the training data\n")

    print("2. Certify the same model fitted by scikit-learn with its default tolerance.")
    print(f"  certificate  {dn.certify(LogisticRegression(C=1.0).fit(X, y), X, y)}\n")

    print("3. The paper's claim: with larger random sets, SDNA needs fewer epochs; minibatch SDCA does not.")
    # The rates of the two methods differ where rows have different norms (with equal norms theta = sigma1_prox).
    unit = dn.Problem(X / np.linalg.norm(X, axis=1).mean(), y, losses.Logistic(), lam=0.1 / n)
    runs = {}
    print("  tau   SDNA epochs   SDCA epochs   proved rates: theta (SDCA)   sigma1_prox (SDNA)")
    for tau in (1, 8, 64):
        law = samplings.Nice(n, tau)
        for method in ("sdna", "sdca"):
            runs[f"{method}, tau={tau}"] = dn.solve(unit, method=method, sampling=law, max_epochs=100, random_state=0)
        epochs = [runs[f"{method}, tau={tau}"] for method in ("sdna", "sdca")]
        rates = theory.rates(unit, law)
        shown = [f"{'' if run.converged else '>'}{run.n_epochs:.3g}" for run in epochs]
        print(f"  {tau:3d}   {shown[0]:>11}   {shown[1]:>11}   {rates.theta:26.3e}   {rates.sigma1_prox:18.3e}")

    draw(runs, "demo_gap.png")


def draw(runs: dict[str, dn.Result], path: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    for name, run in runs.items():
        run.trace.plot(axes, label=name)
        axes.get_lines()[-1].set_linestyle("-" if name.startswith("sdna") else ":")
    axes.set_title("Certified duality gap, logistic regression on breast_cancer")
    axes.legend()
    figure.savefig(path, dpi=120)
    print(f"\nThe gap of each run against epochs is drawn in {path}.")


if __name__ == "__main__":
    main()
