"""Runs of every kind, for the tests of checkpoints: which problems, which settings, and what must be the same bit for bit."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers, samplings
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.planning.tuning import Tuning
from tables import AgainstDirection
from tuned import GENERAL, tuned

SEED = 3


def one(loss, *, n=60, d=6, sparse=None, dtype=np.float64, shift=0.0, lam=None, seed=0, **more):
    """A list with one problem that no method solves at once."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + shift
    if sparse is not None:
        X *= rng.random((n, d)) < sparse
    z = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)
    y = np.where(z > 0.0, 1.0, -1.0) if isinstance(loss, losses.Margin) else z
    X = X.astype(dtype)
    return [dn.Problem(sp.csr_array(X) if sparse is not None else X, y, loss, lam=lam or 0.3 / n, **more)]


def weighted(loss, *, n=60, **more):
    rng = np.random.default_rng(9)
    extra = {"sample_weight": rng.uniform(0.2, 2.0, n), "offset": 0.3 * rng.standard_normal(n)}
    return one(loss, n=n, fit_intercept=True, **extra, **more)


def several(loss, lams=(1.0, 0.01, 0.1), *, weights=False, **more):
    """Problems over the same X that end at different times."""
    (first,) = one(loss, **more)
    rng = np.random.default_rng(5)
    c = [rng.uniform(0.5, 1.5, first.n) if weights and k else None for k in range(len(lams))]
    rest = {"regularizer": first.regularizer, "fit_intercept": first.fit_intercept}
    return [dn.Problem(first.X, first.y, loss, lam=lam, sample_weight=c[k], **rest) for k, lam in enumerate(lams)]


def one_ends_at_once():
    """The model with the larger c/λ, on which the precision of the other's Gram blocks depends, ends after the first epochs."""
    hard, easy = several(logistic, (0.02, 0.01), dtype=np.float32)
    return [hard, replace(easy, offset=20.0 * easy.y)]


def classes(*, n=60, d=5, **more):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, d))
    y = np.argmax(X @ rng.standard_normal((d, 3)) + rng.standard_normal((n, 3)), axis=1)
    return [dn.MultinomialProblem(X, y, lam=0.02, **more)]


def targets(*, n=60, d=12, **more):
    """Three outputs that share their features."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((n, d))
    Y = X[:, :3] @ rng.standard_normal((3, 3)) + rng.standard_normal((n, 3))
    return [dn.Problem(X, Y, losses.SquaredOutputs(3), fit_intercept=True, **more)]


def with_scale(*, n=50, d=4, **more):
    (problem,) = one(squared, n=n, d=d)
    y = problem.y + np.where(np.arange(n) % 7 == 0, 10.0, 0.0)
    return [HuberScaleProblem(problem.X, y, **{"lam": 0.01, "fit_intercept": True, **more})]


def two_targets():
    (first,) = one(logistic, n=200, fit_intercept=True)
    rng = np.random.default_rng(6)
    y = np.where(first.X[:, 0] + rng.standard_normal(first.n) > 0.5, 1.0, -1.0)
    return [first, dn.Problem(first.X, y, logistic, fit_intercept=True)]


def without_penalty(problems):
    return [Unpenalised.of(problem) for problem in problems]


@dataclass(frozen=True)
class Case:
    """A run; ``tuning`` sends a small problem the way of a large one."""

    name: str
    make: Callable[[], list[Any]]
    settings: dict[str, Any] = field(default_factory=dict)
    tuning: Tuning | None = GENERAL

    def solve(self, problems=None, **more):
        problems = self.make() if problems is None else problems
        return dn.solve_many(problems, **{"random_state": SEED, "tuning": self.tuning, **self.settings, **more})


COMPILED = tuned(small_entries=0)
SAMPLED = tuned(direct_entries=0, one_block_features=0, sample_rows=16)  # samples pay for a thousand rows
FROM_A_SAMPLE = tuned(direct_entries=0, one_block_features=0, proximal_calls=0.0)
BY_PRODUCTS = tuned(largest_matrix=5, one_block_features=0)
IN_STEPS = tuned(
    direct_entries=0, most_together=4, least_set=5, multiply=1.0, sparse_pair=1.0
)  # 5 features are affordable
WRONGLY_PLANNED = tuned(small_entries=0, direct_entries=0, epochs_fixed=-1e9)  # SDNA seems to cost less than nothing

logistic, squared, hinge2 = losses.Logistic(), losses.Squared(), losses.SquaredHinge()
lasso, net = regularizers.L1(), regularizers.ElasticNet(0.5)
joint_net = regularizers.JointElasticNet(0.5)
few = {"max_epochs": 12}


def direction():
    return AgainstDirection(np.linspace(-1.0, 2.0, 6))


CASES = [
    Case("sdna", lambda: one(logistic), {"method": "sdna", "tau": 5, **few}),
    Case("sdna, all parts", lambda: weighted(hinge2), {"method": "sdna", "tau": 5, **few}),
    Case("sdna, all at once", lambda: one(logistic), {"method": "sdna", "tol": 1e-12}),
    Case(
        "sdna, bounds",
        lambda: one(logistic, regularizer=regularizers.Box(-0.1, 0.2)),
        {"method": "sdna", "tau": 8, **few},
    ),
    Case("sdca", lambda: weighted(logistic), {"method": "sdca", "tau": 3, **few}),
    Case("coins", lambda: one(logistic), {"sampling": samplings.Independent(np.linspace(0.02, 0.3, 60)), **few}),
    Case("sketched rounds", lambda: weighted(logistic), {"method": "ihs", "sampling": samplings.Nice(60, 9), **few}),
    Case("compiled", lambda: one(logistic), {"method": "sdna", "tau": 1, "tol": 1e-9, **few}, COMPILED),
    Case("compiled, sparse", lambda: weighted(hinge2, sparse=0.4), {"method": "sdna", "tau": 1, **few}, COMPILED),
    Case("compiled, float32", lambda: one(logistic, dtype=np.float32), {"method": "sdna", "tau": 1, **few}, COMPILED),
    Case("compiled blocks", lambda: weighted(logistic), {"method": "sdna", "tau": 4, "tol": 1e-9, **few}, COMPILED),
    Case("compiled sdca", lambda: one(logistic, sparse=0.5), {"method": "sdca", "tau": 4, **few}, COMPILED),
    Case("compiled, shrinking", lambda: one(squared, regularizer=net), {"method": "sdna", "tau": 2, **few}, COMPILED),
    Case(
        "compiled, own penalty",
        lambda: one(logistic, regularizer=direction()),
        {"method": "sdna", "tau": 3, **few},
        COMPILED,
    ),
    Case(
        "compiled coins",
        lambda: one(logistic),
        {"sampling": samplings.Independent(np.linspace(0.01, 0.1, 60)), **few},
        COMPILED,
    ),
    Case(
        "compiled models",
        lambda: several(logistic, weights=True, fit_intercept=True),
        {"method": "sdna", "tau": 1, "tol": 1e-5},
        COMPILED,
    ),
    Case("compiled models in blocks", lambda: several(logistic), {"method": "sdna", "tau": 3, "tol": 1e-5}, COMPILED),
    Case("compiled models, one ends", one_ends_at_once, {"method": "sdna", "tau": 3, "tol": 1e-11}, COMPILED),
    Case("newton, small", lambda: weighted(logistic), {"method": "newton", "tol": 1e-12}, tuned()),
    Case("newton", lambda: weighted(logistic), {"method": "newton", "tol": 1e-12}, GENERAL),
    Case("newton, models", lambda: several(logistic, weights=True), {"method": "newton", "tol": 1e-12}, GENERAL),
    Case(
        "newton by rows",
        lambda: one(logistic, n=12, d=30, fit_intercept=True),
        {"method": "newton", "tol": 1e-12},
        GENERAL,
    ),
    Case(
        "newton by sparse rows",
        lambda: one(logistic, n=12, d=30, sparse=0.3),
        {"method": "newton", "tol": 1e-12},
        GENERAL,
    ),
    Case(
        "newton by float32 rows",
        lambda: several(logistic, (1.0, 0.01, 1.0), n=12, d=30, dtype=np.float32),
        {"method": "newton", "tol": 1e-12},
        GENERAL,
    ),
    Case("newton by products", lambda: weighted(logistic, sparse=0.7), {"method": "newton", "tol": 1e-12}, BY_PRODUCTS),
    Case("newton, leaps", lambda: several(squared, (1.0, 0.01)), {"method": "newton", "tol": 0.0}, GENERAL),
    Case("ihs", lambda: one(logistic, n=200), {"method": "ihs", "tau": 24, "tol": 1e-12}),
    Case(
        "ihs, few rows", lambda: one(hinge2, n=200, d=12, fit_intercept=True), {"method": "ihs", "tau": 6, "tol": 1e-10}
    ),
    Case(
        "ihs, models",
        lambda: several(logistic, (0.02, 0.02, 0.02), weights=True, n=200),
        {"method": "ihs", "tau": 24, "tol": 1e-12},
    ),
    Case(
        "ihs, sparse float32",
        lambda: one(logistic, n=200, sparse=0.2, dtype=np.float32),
        {"method": "ihs", "tau": 30, "tol": 1e-10},
        COMPILED,
    ),
    Case("lasso, small", lambda: one(squared, d=20, regularizer=lasso, lam=0.05), {"tol": 1e-12}, None),
    Case("elastic net, small", lambda: several(logistic, (0.1, 0.001), regularizer=net), {"tol": 1e-12}, None),
    Case(
        "ihs from samples", lambda: one(logistic, n=1000, fit_intercept=True), {"method": "ihs", "tol": 1e-12}, SAMPLED
    ),
    Case("ihs from samples, softmax", lambda: classes(n=3000), {"method": "ihs", "tol": 1e-12}, SAMPLED),
    Case(
        "l1 logistic from a sample",
        lambda: one(logistic, n=1000, regularizer=lasso, lam=0.02, fit_intercept=True),
        {"method": "newton", "tol": 1e-12},
        FROM_A_SAMPLE,
    ),
    Case("lasso", lambda: one(squared, d=20, regularizer=lasso, lam=0.05), {"tol": 1e-12}),
    Case(
        "lasso, many features", lambda: one(squared, n=30, d=300, regularizer=lasso, lam=0.02), {"tol": 1e-12}, IN_STEPS
    ),
    Case(
        "elastic net, sparse",
        lambda: one(logistic, n=50, d=400, sparse=0.03, regularizer=net, fit_intercept=True),
        {"method": "newton", "tol": 1e-12},
        COMPILED,
    ),
    Case(
        "elastic net, models",
        lambda: several(logistic, (0.1, 0.001), regularizer=net),
        {"method": "newton", "tol": 1e-12},
    ),
    Case(
        "elastic net, in steps",
        lambda: several(squared, (0.3, 0.01), n=40, d=80, sparse=0.3, weights=True, regularizer=net),
        {"method": "newton", "tol": 1e-12},
        IN_STEPS,
    ),
    Case("softmax", lambda: classes(fit_intercept=True), {"method": "ihs", "tol": 1e-10}),
    Case("softmax, newton", lambda: classes(fit_intercept=True), {"method": "newton", "tol": 1e-10}),
    Case(
        "softmax, few rows",
        lambda: classes(n=40, d=20, sample_weight=np.linspace(0.5, 1.5, 40)),
        {"tau": 6, "method": "ihs", "tol": 1e-8},
    ),
    Case("softmax, elastic net", lambda: classes(fit_intercept=True, regularizer=net), {"tol": 1e-12}),
    Case(
        "softmax, l1 in steps",
        lambda: classes(n=40, d=30, regularizer=lasso, sample_weight=np.linspace(0.5, 1.5, 40)),
        {"tol": 1e-12},
        IN_STEPS,
    ),
    Case("multi-task", lambda: targets(regularizer=joint_net, lam=0.02), {"tol": 1e-14}),
    Case(
        "multi-task, in steps",
        lambda: targets(n=30, d=200, regularizer=regularizers.JointL1(), lam=0.05),
        {"tol": 1e-12},
        IN_STEPS,
    ),
    Case("hinge, smoothed", lambda: one(losses.Hinge(), n=40, d=4), {"method": "newton", "tol": 1e-6}),
    Case(
        "hinge, compiled",
        lambda: one(losses.Hinge(), n=40, d=4, fit_intercept=True),
        {"method": "sdna", "tau": 1, "max_epochs": 40},
        COMPILED,
    ),
    Case(
        "hinge itself, NumPy",
        lambda: weighted(losses.Hinge(), n=40, d=4),
        {"method": "sdna", "tau": 5, "tol": 1e-10},
    ),
    Case(
        "epsilon itself, compiled models",
        lambda: several(losses.EpsilonInsensitive(0.3), (0.1, 0.01), weights=True, n=40, d=4),
        {"method": "sdna", "tau": 1, "tol": 1e-10},
        COMPILED,
    ),
    Case(
        "epsilon, smoothed models",
        lambda: several(losses.EpsilonInsensitive(0.3), (0.1, 0.01), n=40, d=4),
        {"method": "newton", "tol": 1e-6},
    ),
    Case(
        "interior",
        lambda: weighted(losses.EpsilonInsensitive(0.3), sparse=0.5),
        {"method": "interior", "tol": 1e-10, "certify_every": 1},
    ),
    Case(
        "interior, models",
        lambda: several(losses.Quantile(0.3), fit_intercept=True),
        {"method": "interior", "tol": 1e-10},
        tuned(),
    ),
    Case(
        "interior, thresholds",
        lambda: one(losses.Quantile(0.3), d=4, lam=0.02, regularizer=regularizers.L1()),
        {"tol": 1e-10, "certify_every": 1},
    ),
    Case("interior, no penalty", lambda: without_penalty(one(losses.Quantile(0.3), n=60, d=4)), {"tol": 1e-10}),
    Case(
        "interior, aggregated",
        lambda: one(losses.Quantile(0.3), n=900, d=3, fit_intercept=True),
        {"method": "interior", "tol": 1e-8},
        tuned(direct_entries=0, aggregated=1.0),
    ),
    Case(
        "interior, aggregated models",
        lambda: several(losses.Quantile(0.3), n=900, d=3, fit_intercept=True),
        {"method": "interior", "tol": 1e-8},
        tuned(direct_entries=0, aggregated=1.0),
    ),
    Case("interior, wide", lambda: one(losses.Hinge(), n=20, d=30), {"method": "interior", "tol": 1e-10}),
    Case("newton, small, models", lambda: several(logistic), {"method": "newton", "tol": 1e-12}, tuned()),
    Case("joint scale", with_scale, {"tol": 1e-10}),
    Case("joint scale, no joint steps", with_scale, {"tol": 1e-8}, tuned(joint_scale_features=0, one_block_features=0)),
    Case("joint scale from a sample", lambda: with_scale(n=1000), {"tol": 1e-12}, SAMPLED),
    Case("joint scale by rounds", with_scale, {"method": "sdna", "tau": 5, "tol": 1e-8}),
    Case("joint scale by interior points", lambda: with_scale(n=60, d=50, lam=1e-3), {"tol": 1e-8}),
    Case("joint scale of zero", lambda: with_scale(epsilon=1.0), {"tol": 1e-6}),
    Case("no penalty", lambda: without_penalty(one(logistic, n=200)), {"tol": 1e-10}),
    Case(
        "no penalty, models",
        lambda: without_penalty(two_targets()),
        {"method": "sdna", "tau": 5, "tol": 1e-10, "max_epochs": 60},
    ),
    Case("no penalty, least squares", lambda: without_penalty(weighted(squared)), {"tol": 1e-14}),
    Case("no penalty, softmax", lambda: without_penalty(classes(n=200)), {"tol": 1e-10}),
    Case("another method", lambda: one(logistic, n=600, d=5, lam=1e-5), {"tol": 1e-9}, WRONGLY_PLANNED),
    Case(
        "another method, kinks",
        lambda: one(logistic, n=600, d=5, lam=1e-5, regularizer=net),
        {"tol": 1e-9},
        WRONGLY_PLANNED,
    ),
]


def bits(results):
    """All that must not differ between a run and one that was stopped on its way: everything but the seconds."""
    told = []
    for result in results:
        digest = hashlib.sha256()
        for part in (result.w, np.asarray(result.intercept, float), result.alpha):
            digest.update(repr((part.shape, part.dtype)).encode() + part.tobytes())
        rows = [(row.epoch.hex(), *_certificate(row.certificate), row.model) for row in result.trace.rows]
        certificate, end = _certificate(result.certificate), (result.status.name, float(result.n_epochs).hex())
        told.append((digest.hexdigest(), certificate, end, repr(result.plan), result.scale, rows))
    return told


def _certificate(certificate):
    return float(certificate.primal).hex(), float(certificate.dual).hex()
