"""Solvers of other libraries, with parameters that make each solve exactly our problem.

Our problem is P(w, b) = (1/n) Σ φ(a_iᵀw + b) + λ(r‖w‖₁ + ½(1 − r)‖w‖²), with φ(z) = ½ max(0, 1 − yz)² for the squared hinge and
½(z − y)² for the squared loss. Most solvers take part for r = 0 and b = 0 alone: each declares its penalties, and whether it has
an intercept that is not penalised. The objectives of the others are:

* scikit-learn, logistic: C Σ φ + r‖w‖₁ + ½(1 − r)‖w‖², so C = 1/(λn);
* scikit-learn's ElasticNet, PoissonRegressor and GammaRegressor: ours, with α = λ (r = 0 for the last two);
* scikit-learn's LinearSVC: C Σ max(0, ·)² + ½‖w‖², twice our loss, so C = 1/(2λn);
* scikit-learn's Ridge: Σ (z − y)² + α‖w‖², twice ours, so α = λn;
* cyanure: (1/n) Σ φ + (λ₁/2)‖w‖² with our ½ in the squared hinge and the squared loss, so λ₁ = λ;
* snapml: Σ φ + (r/2)‖w‖², so r = λn, but its squared hinge is max(0, ·)² without the ½, so there r = 2λn;
* glum: half the mean deviance + α(r‖w‖₁ + ½(1 − r)‖w‖²), which is our φ for normal, poisson, gamma and for binomial labels 0
  and 1, so α = λ.

None of them solves our problem with the Huber loss: scikit-learn's HuberRegressor estimates a scale together with w, which is
another problem; cyanure, snapml and glum do not have the loss. SciPy's L-BFGS-B on the objective is used instead.

tests/test_benchmarks.py checks that each of these solvers reaches our optimum. The command ``compare`` and the benchmarks use the
same solvers.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

MANY = 100_000
"""Iteration limit of the other solvers, too large to be reached, so that the tolerance ends every run."""

WIDEST_HESSIAN = 5_000
"""Largest number of features for solvers that form the d×d Hessian, which takes 200 MB at this size and grows as d²."""

MODULES = ("sklearn.linear_model", "sklearn.svm", "scipy.optimize", "cyanure.estimators", "snapml", "glum")


def preload() -> None:
    """Import the installed libraries, so that forked child processes need not import them, at about a second each."""
    for module in MODULES:
        if importlib.util.find_spec(module.split(".")[0]) is not None:
            importlib.import_module(module)


# Restrictions of solvers; each function returns the reason why a matrix is not supported, or an empty string ---------------


def takes_all(_: Any) -> str:
    """Accept every matrix."""
    return ""


def forms_hessian(X: Any) -> str:
    """Accept matrices with few features."""
    return "too wide" if X.shape[1] > WIDEST_HESSIAN else ""


def forms_smaller_gram(X: Any) -> str:
    """Accept matrices with few features or few examples."""
    return "too wide" if min(X.shape) > WIDEST_HESSIAN else ""


def dense_only(X: Any) -> str:
    """Accept dense matrices with few features or few examples."""
    return "dense only" if sp.issparse(X) else forms_smaller_gram(X)


# The interface of a solver ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The settings of a solver: n and λn, from which its regularisation follows, its tolerance and its threads, r and b."""

    n: int
    lam_n: float
    tol: float
    threads: int = 1
    l1_ratio: float = 0.0
    fit_intercept: bool = False


class Fitted(NamedTuple):
    """The model of a solver, and the number of iterations that it reports, NaN if it reports none."""

    w: np.ndarray
    intercept: float
    iterations: float


RIDGE, SPARSE, ANY = ("l2",), ("l1", "elasticnet"), ("l2", "l1", "elasticnet")
"""Penalties that a solver may have."""


@dataclass(frozen=True)
class Peer:
    """A solver of another library for one loss."""

    name: str  # name in tables
    package: str  # package that must be installed
    make: Callable[[Task], Any]  # returns the unfitted estimator for a :class:`Task`
    threaded: bool = False  # whether the solver uses several threads; the others are measured with one thread only
    refuses: Callable[[Any], str] = takes_all  # returns the reason why a matrix is not supported, or an empty string
    direct: bool = False  # whether it factorises a matrix and ignores the tolerance, so that it is run once
    penalties: tuple[str, ...] = RIDGE
    intercept: bool = False  # whether it has an intercept that is not penalised

    @property
    def installed(self) -> bool:
        """True if the package can be imported."""
        return importlib.util.find_spec(self.package) is not None

    def fit(self, X: Any, y: np.ndarray, lam_n: float, tol: float, threads: int = 1) -> np.ndarray:
        """Return the coefficients w of a fit."""
        return self.fitted(X, y, Task(len(y), lam_n, tol, threads)).w

    def fitted(self, X: Any, y: np.ndarray, task: Task) -> Fitted:
        """Return the model of a fit."""
        model = self.make(task).fit(X, y)
        count = getattr(model, "n_iter_", None)
        iterations = math.nan if count is None else float(np.max(count))
        b = float(np.ravel(model.intercept_)[0]) if task.fit_intercept else 0.0
        return Fitted(np.ravel(model.coef_).astype(np.float64), b, iterations)


# Constructors of the estimators ----------------------------------------------------------------------------------------------


def constructor(path: str, settings: Callable[[Task], dict[str, Any]], **options: Any) -> Callable[[Task], Any]:
    """Return the constructor of the class at an import path, with settings that depend on the task and options that do not."""

    def make(task: Task) -> Any:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)(**settings(task), **options)

    return make


def _sklearn(task: Task) -> dict[str, Any]:
    return {"fit_intercept": task.fit_intercept, "tol": task.tol, "max_iter": MANY, "random_state": 0}


def sklearn_logistic(solver: str, **options: Any) -> Callable[[Task], Any]:
    """Return the constructor of scikit-learn's LogisticRegression with one of its solvers."""

    def settings(task: Task) -> dict[str, Any]:
        return {**_sklearn(task), "C": 1.0 / task.lam_n, **_l1_of_logistic(task)}

    return constructor("sklearn.linear_model.LogisticRegression", settings, solver=solver, **options)


def _l1_of_logistic(task: Task) -> dict[str, Any]:
    """Return the parameters of the l1 norm; before scikit-learn 1.8 the penalty had a name, of which liblinear has "l1"."""
    if task.l1_ratio == 0.0:
        return {}
    from sklearn import __version__
    from sklearn.utils.fixes import parse_version

    if parse_version(__version__) >= parse_version("1.8"):
        return {"l1_ratio": task.l1_ratio}
    return {"penalty": "l1"} if task.l1_ratio == 1.0 else {"penalty": "elasticnet", "l1_ratio": task.l1_ratio}


def sklearn_svc(**options: Any) -> Callable[[Task], Any]:
    """Return the constructor of scikit-learn's LinearSVC, liblinear with the hinge or, by default, its square."""
    factor = 1.0 if options.get("loss") == "hinge" else 0.5

    def settings(task: Task) -> dict[str, Any]:
        return {**_sklearn(task), "C": factor / task.lam_n, "penalty": "l1" if task.l1_ratio else "l2"}

    return constructor("sklearn.svm.LinearSVC", settings, **options)


def sklearn_ridge(solver: str) -> Callable[[Task], Any]:
    """Return the constructor of scikit-learn's Ridge with one of its solvers."""
    return constructor(
        "sklearn.linear_model.Ridge", lambda task: {**_sklearn(task), "alpha": task.lam_n}, solver=solver
    )


sklearn_elastic_net = constructor(
    "sklearn.linear_model.ElasticNet",
    lambda task: {**_sklearn(task), "alpha": task.lam_n / task.n, "l1_ratio": task.l1_ratio},
)
"""The constructor of scikit-learn's ElasticNet, which runs coordinate descent."""


def sklearn_glm(kind: str, solver: str) -> Callable[[Task], Any]:
    """Return the constructor of scikit-learn's PoissonRegressor or GammaRegressor with one of its solvers."""

    def settings(task: Task) -> dict[str, Any]:
        given = {"alpha": task.lam_n / task.n, "tol": task.tol, "max_iter": MANY}
        return {**given, "fit_intercept": task.fit_intercept}

    return constructor(f"sklearn.linear_model.{kind}", settings, solver=solver)


def cyanure(kind: str, **options: Any) -> Callable[[Task], Any]:
    """Return the constructor of cyanure's Classifier or Regression with its automatic choice of the solver."""

    def settings(task: Task) -> dict[str, Any]:
        return {"lambda_1": task.lam_n / task.n, "tol": task.tol, "max_iter": MANY, "n_threads": task.threads}

    return constructor(
        f"cyanure.estimators.{kind}", settings, penalty="l2", fit_intercept=False, verbose=False, **options
    )


def snapml(kind: str, factor: float = 1.0, **options: Any) -> Callable[[Task], Any]:
    """Return the constructor of a class of snapml, which runs dual coordinate ascent; its regulariser is ``factor`` times λn."""

    def settings(task: Task) -> dict[str, Any]:
        return {"regularizer": factor * task.lam_n, "tol": task.tol, "max_iter": MANY, "n_jobs": task.threads}

    return constructor(f"snapml.{kind}", settings, use_gpu=False, **options)


@dataclass
class Glum:
    """glum's iteratively reweighted least squares, a Newton method, with labels 0 and 1 for the binomial family."""

    family: str
    task: Task
    coef_: np.ndarray = field(init=False)
    intercept_: float = field(init=False)
    n_iter_: int = field(init=False)

    def fit(self, X: Any, y: np.ndarray) -> Glum:
        """Translate the labels and fit."""
        model = importlib.import_module("glum").GeneralizedLinearRegressor(
            family=self.family,
            alpha=self.task.lam_n / self.task.n,
            l1_ratio=self.task.l1_ratio,
            fit_intercept=self.task.fit_intercept,
            gradient_tol=self.task.tol,
            max_iter=MANY,
        )
        model.fit(X, 0.5 * (y + 1.0) if self.family == "binomial" else y)
        self.coef_, self.intercept_, self.n_iter_ = model.coef_, model.intercept_, model.n_iter_
        return self


@dataclass
class HuberByLbfgs:
    """SciPy's L-BFGS-B on the Huber loss with δ = 1, stopped by the largest gradient entry, as scikit-learn's lbfgs is."""

    task: Task
    coef_: np.ndarray = field(init=False)

    def fit(self, X: Any, y: np.ndarray) -> HuberByLbfgs:
        """Minimise the objective."""
        from scipy.optimize import minimize

        n, lam = self.task.n, self.task.lam_n / self.task.n

        def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
            r = X @ w - y
            c = np.clip(r, -1.0, 1.0)  # c = φ′(r), and φ(r) = c(r − c/2) on both branches
            return c @ (r - 0.5 * c) / n + 0.5 * lam * (w @ w), X.T @ c / n + lam * w

        options = {"gtol": self.task.tol, "ftol": 64 * np.finfo(float).eps, "maxiter": MANY, "maxfun": MANY}
        self.coef_ = minimize(objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options).x
        return self


# Fast solvers come first, because the benchmarks stop a solver when it exceeds the best time so far.
PEERS: dict[str, list[Peer]] = {
    "logistic": [
        Peer("snapml", "snapml", snapml("LogisticRegression", dual=True), threaded=True),
        Peer("cyanure", "cyanure", cyanure("Classifier", loss="logistic"), threaded=True),
        Peer("liblinear dual", "sklearn", sklearn_logistic("liblinear", dual=True)),
        Peer("lbfgs", "sklearn", sklearn_logistic("lbfgs"), threaded=True, intercept=True),
        Peer("newton-cholesky", "sklearn", sklearn_logistic("newton-cholesky"), True, forms_hessian, intercept=True),
        Peer("glum", "glum", partial(Glum, "binomial"), True, forms_hessian, penalties=ANY, intercept=True),
        Peer("newton-cg", "sklearn", sklearn_logistic("newton-cg"), threaded=True, intercept=True),
        Peer("liblinear primal", "sklearn", sklearn_logistic("liblinear", dual=False), penalties=("l2", "l1")),
        Peer("saga", "sklearn", sklearn_logistic("saga"), penalties=ANY, intercept=True),
    ],
    "squared hinge": [
        Peer("snapml", "snapml", snapml("SupportVectorMachine", factor=2.0, loss="squared_hinge"), threaded=True),
        Peer("cyanure", "cyanure", cyanure("Classifier", loss="sqhinge"), threaded=True),
        Peer("liblinear dual", "sklearn", sklearn_svc(dual=True)),
        Peer("liblinear primal", "sklearn", sklearn_svc(dual=False), penalties=("l2", "l1")),
    ],
    "squared": [
        Peer("ridge cholesky", "sklearn", sklearn_ridge("cholesky"), True, forms_smaller_gram, True, intercept=True),
        Peer("ridge lsqr", "sklearn", sklearn_ridge("lsqr"), threaded=True, intercept=True),
        Peer("ridge sparse_cg", "sklearn", sklearn_ridge("sparse_cg"), threaded=True, intercept=True),
        Peer("glum", "glum", partial(Glum, "normal"), True, forms_hessian, penalties=ANY, intercept=True),
        Peer("snapml", "snapml", snapml("LinearRegression", dual=True, fit_intercept=False), threaded=True),
        Peer("cyanure", "cyanure", cyanure("Regression"), threaded=True),
        Peer("ridge svd", "sklearn", sklearn_ridge("svd"), True, dense_only, direct=True, intercept=True),
        Peer("ridge saga", "sklearn", sklearn_ridge("saga"), intercept=True),
    ],
    "Huber": [Peer("lbfgs (scipy)", "scipy", HuberByLbfgs, threaded=True)],
}
