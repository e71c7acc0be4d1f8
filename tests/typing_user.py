"""A user's file that uses the public names with types: `make lint` checks it by ``mypy --strict``, and a test runs it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import dualnewton as dn
from dualnewton import losses, methods, regularizers, samplings, theory


def solved() -> dn.Result:
    """Pose a problem, plan it, solve it, and read everything that a result has."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.sign(X[:, 0] + 0.1)
    problem = dn.Problem(X, y, losses.Logistic(), regularizer=regularizers.L2(), lam=1 / 40, fit_intercept=True)
    plan: dn.Plan = dn.plan(problem)
    tau: int = plan.tau
    seen = list[float]()

    def callback(progress: dn.Progress) -> bool:
        seen.append(progress.certificate.relative_gap)
        return progress.epoch > 100.0

    result = dn.solve(problem, method="auto", tau="auto", tol=1e-8, random_state=0, callback=callback, n_threads=1)
    w: np.ndarray = result.w
    certificate: dn.Certificate = result.certificate
    bound: float = certificate.primal - certificate.dual
    status: str = result.status.message
    assert bound == certificate.gap
    assert w.shape == (3,)
    assert tau > 0
    assert seen
    assert status
    (again,) = dn.solve_many([problem], warm_start=None, tol=1e-4)
    assert again.status is dn.Status.CONVERGED
    return result


def fitted(folder: Path) -> float:
    """Fit estimators, certify one of another library's kind, save one and read it again."""
    data = dn.data.load("iris")
    model = dn.LogisticRegression(C=2.0, tol=1e-6).fit(data.X, data.y)
    coef: np.ndarray = model.coef_
    gap: float = dn.certify(model, data.X, data.y).relative_gap
    dn.save(model, folder / "iris.model")
    score: float = dn.load(folder / "iris.model").score(data.X, data.y)
    lasso: dn.Lasso = dn.Lasso(alpha=0.1).fit(data.X, coef[0] @ data.X.T)
    search = dn.ElasticNetCV(alphas=[0.1, 0.01], cv=3).fit(data.X, data.X[:, 0])
    proved: bool = search.choice_certificate_.proved
    assert gap <= model.certificate_.relative_gap + 1e-6
    assert isinstance(proved, bool)
    assert lasso.n_features_in_ == 4
    return score


def predicted() -> float:
    """Compute what the paper's theorems predict."""
    rng = np.random.default_rng(0)
    problem = dn.Problem(rng.standard_normal((20, 3)), np.ones(20), losses.Squared(), lam=0.1)
    sampling: samplings.Sampling = samplings.Nice(20, 4)
    sets = sampling.draw(rng, 5)
    rates = theory.rates(problem, sampling)
    epochs = theory.epochs_to(problem, sampling, 1e-6)
    assert callable(methods.method1)
    assert epochs.sdna > 0.0
    assert len(sets) == 5
    assert rates.sigma1_prox is not None
    return rates.theta
