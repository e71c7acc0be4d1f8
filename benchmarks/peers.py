"""The other solvers, each told to solve exactly our problem.

Ours is P(w) = (1/n) Σ φ(a_iᵀw) + (λ/2)‖w‖², with the squared hinge φ(z) = ½ max(0, 1 − yz)². Theirs:

* scikit-learn, logistic: C Σ φ + ½‖w‖², so C = 1/(λn);
* scikit-learn's LinearSVC: C Σ max(0, ·)² + ½‖w‖², twice our loss, so C = 1/(2λn);
* cyanure: (1/n) Σ φ + (λ₁/2)‖w‖² with our ½ in the squared hinge, so λ₁ = λ;
* snapml: Σ φ + (r/2)‖w‖², so r = λn, but its squared hinge is max(0, ·)² without the ½, so there r = 2λn.

tests/test_benchmarks.py checks each of these by its optimum.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MANY = 100_000
"""A number of iterations that no run reaches: the tolerance alone shall end it."""

WIDEST_HESSIAN = 5_000
"""Beyond so many features a method that forms the d×d Hessian is left out: it would need gigabytes."""


@dataclass(frozen=True)
class Task:
    """What a peer is told: the regularisation, in all the ways they count it, its tolerance and its threads."""

    n: int
    lam_n: float
    tol: float
    threads: int


@dataclass(frozen=True)
class Peer:
    """A solver of another library for one loss.

    Parameters
    ----------
    name : str
        What the tables call it.
    package : str
        What must be installed.
    make : callable
        Builds the unfitted estimator of a :class:`Task`.
    threaded : bool
        Whether more threads could help it; the others are not measured again.
    most_features : int, optional
        Beyond, it is not asked.
    """

    name: str
    package: str
    make: Callable[[Task], Any]
    threaded: bool = False
    most_features: int | None = None

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.package) is not None

    def takes(self, X: Any) -> bool:
        """Say whether data of this shape can be asked of it."""
        return self.most_features is None or X.shape[1] <= self.most_features

    def fit(self, X: Any, y: np.ndarray, lam_n: float, tol: float, threads: int = 1) -> np.ndarray:
        """Return its w."""
        model = self.make(Task(len(y), lam_n, tol, threads)).fit(X, y)
        return np.ravel(model.coef_).astype(np.float64)


def sklearn_logistic(solver: str, **options: Any) -> Callable[[Task], Any]:
    """scikit-learn's LogisticRegression by one of its solvers."""

    def make(task: Task) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(
            C=1.0 / task.lam_n,
            solver=solver,
            fit_intercept=False,
            tol=task.tol,
            max_iter=MANY,
            random_state=0,
            **options,
        )

    return make


def sklearn_svc(dual: bool) -> Callable[[Task], Any]:
    """liblinear's squared hinge through scikit-learn's LinearSVC."""

    def make(task: Task) -> Any:
        from sklearn.svm import LinearSVC

        C = 0.5 / task.lam_n
        return LinearSVC(C=C, dual=dual, fit_intercept=False, tol=task.tol, max_iter=MANY, random_state=0)

    return make


def cyanure(loss: str) -> Callable[[Task], Any]:
    """cyanure with the solver it chooses itself."""

    def make(task: Task) -> Any:
        from cyanure.estimators import Classifier

        return Classifier(
            loss=loss,
            penalty="l2",
            lambda_1=task.lam_n / task.n,
            fit_intercept=False,
            tol=task.tol,
            max_iter=MANY,
            n_threads=task.threads,
            verbose=False,
        )

    return make


def snapml_logistic(task: Task) -> Any:
    """snapml's dual coordinate ascent, logistic."""
    from snapml import LogisticRegression

    return LogisticRegression(
        regularizer=task.lam_n, dual=True, tol=task.tol, max_iter=MANY, n_jobs=task.threads, use_gpu=False
    )


def snapml_svc(task: Task) -> Any:
    """snapml's dual coordinate ascent, squared hinge."""
    from snapml import SupportVectorMachine

    return SupportVectorMachine(
        loss="squared_hinge",
        regularizer=2.0 * task.lam_n,
        tol=task.tol,
        max_iter=MANY,
        n_jobs=task.threads,
        use_gpu=False,
    )


# Usually fast ones first: a peer that could not win any more is cut short.
PEERS: dict[str, list[Peer]] = {
    "logistic": [
        Peer("snapml", "snapml", snapml_logistic, threaded=True),
        Peer("cyanure", "cyanure", cyanure("logistic"), threaded=True),
        Peer("liblinear dual", "sklearn", sklearn_logistic("liblinear", dual=True)),
        Peer("lbfgs", "sklearn", sklearn_logistic("lbfgs"), threaded=True),
        Peer("newton-cholesky", "sklearn", sklearn_logistic("newton-cholesky"), True, WIDEST_HESSIAN),
        Peer("newton-cg", "sklearn", sklearn_logistic("newton-cg"), threaded=True),
        Peer("liblinear primal", "sklearn", sklearn_logistic("liblinear", dual=False)),
        Peer("saga", "sklearn", sklearn_logistic("saga")),
    ],
    "squared hinge": [
        Peer("snapml", "snapml", snapml_svc, threaded=True),
        Peer("cyanure", "cyanure", cyanure("sqhinge"), threaded=True),
        Peer("liblinear dual", "sklearn", sklearn_svc(dual=True)),
        Peer("liblinear primal", "sklearn", sklearn_svc(dual=False)),
    ],
}


def reference(loss: str) -> Peer:
    """Return the peer that cross-checks our optimum: liblinear's trust-region Newton, which both losses have."""
    return next(peer for peer in PEERS[loss] if peer.name == "liblinear primal")
