"""The other solvers, each told to solve exactly our problem.

Ours is P(w) = (1/n) Σ φ(a_iᵀw) + (λ/2)‖w‖², with φ(z) = ½ max(0, 1 − yz)² for the squared hinge and ½(z − y)² for the
squared loss. Theirs:

* scikit-learn, logistic: C Σ φ + ½‖w‖², so C = 1/(λn);
* scikit-learn's LinearSVC: C Σ max(0, ·)² + ½‖w‖², twice our loss, so C = 1/(2λn);
* scikit-learn's Ridge: Σ (z − y)² + α‖w‖², twice ours, so α = λn;
* cyanure: (1/n) Σ φ + (λ₁/2)‖w‖² with our ½ in the squared hinge and the squared loss, so λ₁ = λ;
* snapml: Σ φ + (r/2)‖w‖², so r = λn, but its squared hinge is max(0, ·)² without the ½, so there r = 2λn;
* glum: half the mean deviance + (α/2)‖w‖², which is our φ for normal and for binomial labels 0 and 1, so α = λ.

For the Huber loss no peer was found: scikit-learn's HuberRegressor estimates a scale beside w and so solves another problem,
cyanure, snapml and glum have none. SciPy's L-BFGS-B on the objective itself stands in for them.

tests/test_benchmarks.py checks each of these by its optimum. The command ``compare`` and the benchmarks ask the same peers.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

MANY = 100_000
"""A number of iterations that no run reaches: the tolerance alone shall end it."""

WIDEST_HESSIAN = 5_000
"""Beyond so many features a method that forms the d×d Hessian is left out: it would need gigabytes."""

MODULES = ("sklearn.linear_model", "sklearn.svm", "scipy.optimize", "cyanure.estimators", "snapml", "glum")


def preload() -> None:
    """Import the peers that are installed, so that the child of each measurement need not: each would take a second."""
    for module in MODULES:
        if importlib.util.find_spec(module.split(".")[0]) is not None:
            importlib.import_module(module)


# What a peer cannot be asked; each returns the reason, or nothing ---------------------------------------------------------


def takes_all(_: Any) -> str:
    """Every matrix."""
    return ""


def forms_hessian(X: Any) -> str:
    """Matrices of few features."""
    return "too wide" if X.shape[1] > WIDEST_HESSIAN else ""


def forms_smaller_gram(X: Any) -> str:
    """Matrices of few features or few examples."""
    return "too wide" if min(X.shape) > WIDEST_HESSIAN else ""


def dense_only(X: Any) -> str:
    """Dense matrices."""
    return "dense only" if sp.issparse(X) else forms_smaller_gram(X)


# What a peer is --------------------------------------------------------------------------------------------------------------


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
    refuses : callable
        Says why a matrix is not asked of it; an empty string where it is.
    direct : bool
        Whether its tolerance means nothing, since it factorises: it is then run at one.
    """

    name: str
    package: str
    make: Callable[[Task], Any]
    threaded: bool = False
    refuses: Callable[[Any], str] = takes_all
    direct: bool = False

    @property
    def installed(self) -> bool:
        """Whether it can be imported."""
        return importlib.util.find_spec(self.package) is not None

    def fit(self, X: Any, y: np.ndarray, lam_n: float, tol: float, threads: int = 1) -> np.ndarray:
        """Return its w."""
        return self.fitted(X, y, lam_n, tol, threads)[0]

    def fitted(self, X: Any, y: np.ndarray, lam_n: float, tol: float, threads: int = 1) -> tuple[np.ndarray, float]:
        """Return its w, and how many iterations it says it has made; NaN where it does not say."""
        model = self.make(Task(len(y), lam_n, tol, threads)).fit(X, y)
        count = getattr(model, "n_iter_", None)
        iterations = math.nan if count is None else float(np.max(count))
        return np.ravel(model.coef_).astype(np.float64), iterations


# The makers ------------------------------------------------------------------------------------------------------------------


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
        return importlib.import_module("cyanure.estimators").Classifier(loss=loss, **cyanure_options(task))

    return make


def cyanure_options(task: Task) -> dict[str, Any]:
    """What cyanure is told of any loss."""
    return {
        "penalty": "l2",
        "lambda_1": task.lam_n / task.n,
        "fit_intercept": False,
        "tol": task.tol,
        "max_iter": MANY,
        "n_threads": task.threads,
        "verbose": False,
    }


def snapml_logistic(task: Task) -> Any:
    """snapml's dual coordinate ascent, logistic."""
    return importlib.import_module("snapml").LogisticRegression(
        regularizer=task.lam_n, dual=True, tol=task.tol, max_iter=MANY, n_jobs=task.threads, use_gpu=False
    )


def snapml_svc(task: Task) -> Any:
    """snapml's dual coordinate ascent, squared hinge."""
    return importlib.import_module("snapml").SupportVectorMachine(
        loss="squared_hinge",
        regularizer=2.0 * task.lam_n,
        tol=task.tol,
        max_iter=MANY,
        n_jobs=task.threads,
        use_gpu=False,
    )


def sklearn_ridge(solver: str) -> Callable[[Task], Any]:
    """scikit-learn's Ridge by one of its solvers."""

    def make(task: Task) -> Any:
        from sklearn.linear_model import Ridge

        return Ridge(alpha=task.lam_n, solver=solver, fit_intercept=False, tol=task.tol, max_iter=MANY, random_state=0)

    return make


def cyanure_squared(task: Task) -> Any:
    """cyanure's least squares with the solver it chooses itself."""
    return importlib.import_module("cyanure.estimators").Regression(**cyanure_options(task))


def snapml_squared(task: Task) -> Any:
    """snapml's dual coordinate ascent, squared loss."""
    return importlib.import_module("snapml").LinearRegression(
        regularizer=task.lam_n,
        dual=True,
        tol=task.tol,
        max_iter=MANY,
        n_jobs=task.threads,
        fit_intercept=False,
        use_gpu=False,
    )


@dataclass
class Glum:
    """glum's iteratively reweighted least squares, a Newton method; its binomial labels are 0 and 1."""

    family: str
    task: Task
    coef_: np.ndarray = field(init=False)
    n_iter_: int = field(init=False)

    def fit(self, X: Any, y: np.ndarray) -> Glum:
        """Translate the labels and fit."""
        model = importlib.import_module("glum").GeneralizedLinearRegressor(
            family=self.family,
            alpha=self.task.lam_n / self.task.n,
            l1_ratio=0.0,
            fit_intercept=False,
            gradient_tol=self.task.tol,
            max_iter=MANY,
        )
        model.fit(X, 0.5 * (y + 1.0) if self.family == "binomial" else y)
        self.coef_, self.n_iter_ = model.coef_, model.n_iter_
        return self


@dataclass
class HuberByLbfgs:
    """SciPy's L-BFGS-B on the Huber loss of width one, ended by the largest entry of the gradient as in scikit-learn."""

    task: Task
    coef_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: np.ndarray) -> HuberByLbfgs:
        """Minimise."""
        from scipy.optimize import minimize

        n, lam = self.task.n, self.task.lam_n / self.task.n

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            r = X @ w - y
            c = np.clip(r, -1.0, 1.0)  # φ′; and φ = c(r − c/2) on both branches
            return c @ (r - 0.5 * c) / n + 0.5 * lam * (w @ w), X.T @ c / n + lam * w

        options = {"gtol": self.task.tol, "ftol": 64 * np.finfo(float).eps, "maxiter": MANY, "maxfun": MANY}
        self.coef_ = minimize(objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options).x
        return self


# Usually fast ones first: a peer that could not win any more is cut short.
PEERS: dict[str, list[Peer]] = {
    "logistic": [
        Peer("snapml", "snapml", snapml_logistic, threaded=True),
        Peer("cyanure", "cyanure", cyanure("logistic"), threaded=True),
        Peer("liblinear dual", "sklearn", sklearn_logistic("liblinear", dual=True)),
        Peer("lbfgs", "sklearn", sklearn_logistic("lbfgs"), threaded=True),
        Peer("newton-cholesky", "sklearn", sklearn_logistic("newton-cholesky"), True, forms_hessian),
        Peer("glum", "glum", partial(Glum, "binomial"), True, forms_hessian),
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
    "squared": [
        Peer("ridge cholesky", "sklearn", sklearn_ridge("cholesky"), True, forms_smaller_gram, direct=True),
        Peer("ridge lsqr", "sklearn", sklearn_ridge("lsqr"), threaded=True),
        Peer("ridge sparse_cg", "sklearn", sklearn_ridge("sparse_cg"), threaded=True),
        Peer("glum", "glum", partial(Glum, "normal"), True, forms_hessian),
        Peer("snapml", "snapml", snapml_squared, threaded=True),
        Peer("cyanure", "cyanure", cyanure_squared, threaded=True),
        Peer("ridge svd", "sklearn", sklearn_ridge("svd"), True, dense_only, direct=True),
        Peer("ridge saga", "sklearn", sklearn_ridge("saga")),
    ],
    "Huber": [Peer("lbfgs (scipy)", "scipy", HuberByLbfgs, threaded=True)],
}
