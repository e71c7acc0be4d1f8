"""Every way in which a plan begins and in which a run changes its method, over estimators and storages, each certified.

Predictions are rarely so wrong that a run of a fraction of a second changes its method: where they are not, the constants of the
prediction are replaced.
"""

import itertools
import math
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.estimators._base import CertifiedModel
from dualnewton.planning.eligible import methods_for
from dualnewton.planning.facts import Facts
from dualnewton.planning.planner import general_plan
from dualnewton.planning.switching import Switching
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.primal import model as quasi_newton
from tuned import tuned

plan = sys.modules["dualnewton.planning.planner"]  # dn.plan is the function

N, D = 2700, 50
assert DEFAULT.small_entries < N * D  # so that kernels may serve

STORAGES = {
    "dense": np.ascontiguousarray,
    "float32": lambda X: X.astype(np.float32),
    "csr": sp.csr_array,
}
SOLE = None


def table(seed=0, classes=2, spread=0.0):
    """Gaussian features, most of them zero, of scales over so many powers of ten; noisy classes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.3)
    W = rng.standard_normal((classes, D)) / math.sqrt(0.3 * D)
    y = np.argmax(X @ W.T + 0.7 * rng.gumbel(size=(N, classes)), axis=1)
    return X * 10.0 ** np.linspace(-0.5 * spread, 0.5 * spread, D), y


def tune(monkeypatch, **changes):
    """Let estimators plan by other numbers, and without direct solvers."""
    monkeypatch.setattr(CertifiedModel, "_tuning", tuned(direct_entries=0, **changes))


def prefer(monkeypatch, *methods):
    """Make the planner predict that the first of these methods which a problem has costs nothing."""
    monkeypatch.setattr(plan, "predicted_costs", lambda facts: {next(m for m in methods if m in facts.methods): 0.0})
    tune(monkeypatch, trial_share=0.0)  # and no other is tried before it


def impatient(monkeypatch, *methods):
    """Begin with a primal method that is left as soon as its speed is known, for one that seems to cost nothing."""
    prefer(monkeypatch, *methods)
    # Epochs of SDNA cost nothing.
    free = {"visited_row": 0.0, "visited_entry": 0.0, "random_bandwidth": math.inf, "random_cache_bandwidth": math.inf}
    tune(monkeypatch, trial_share=-1.0, overrun=0.0, softmax_overrun=0.0, switch_margin=0.0, **free)


def newton_is_stuck(monkeypatch):
    """Begin with Newton's method, none of whose steps is ever accepted."""
    prefer(monkeypatch, "newton")
    accepts = quasi_newton.Model._accepts
    monkeypatch.setattr(quasi_newton.Model, "_accepts", lambda self, *at: not self.policy.newton and accepts(self, *at))


def crawling(monkeypatch):
    """Begin with SDNA, and take its epochs to be dear."""
    prefer(monkeypatch, "sdna")
    tune(monkeypatch, trial_share=0.0, switch_margin=0.0)


def tried_first(monkeypatch):
    """Begin with a few epochs of SDNA before a primal method, and take more of them to be dear."""
    tune(monkeypatch, trial_share=math.inf, trial_rows=math.inf, switch_margin=0.0)


def many_rows(monkeypatch):
    """The same, but for data with many more rows than features."""
    tune(monkeypatch, trial_share=math.inf, switch_margin=0.0)


BINARY = {"C": 1.0}
BRANCHES = {
    # name: (what is injected, parameters of LogisticRegression, classes, storages, first method, later method)
    "softmax newton": (lambda m: prefer(m, "newton"), {}, 3, STORAGES, "newton", SOLE),
    "softmax sketch": (lambda m: prefer(m, "ihs"), {}, 3, STORAGES, "ihs", SOLE),
    "softmax sketch left": (lambda m: impatient(m, "ihs"), {}, 3, STORAGES, "ihs", "newton"),
    "softmax newton left": (lambda m: impatient(m, "newton"), {}, 3, STORAGES, "newton", "ihs"),
    "softmax stuck": (newton_is_stuck, {}, 3, STORAGES, "newton", "ihs"),
    "softmax with a kink": (tune, {"l1_ratio": 0.5}, 3, STORAGES, "newton", SOLE),
    "softmax with a kink, impatient": (lambda m: impatient(m, "newton"), {"l1_ratio": 1}, 3, ["csr"], "newton", SOLE),
    "newton": (lambda m: prefer(m, "newton"), BINARY, 2, STORAGES, "newton", SOLE),
    "sketch": (lambda m: prefer(m, "ihs"), BINARY, 2, STORAGES, "ihs", SOLE),
    "sdna": (lambda m: prefer(m, "sdna"), {"C": 1e-3}, 2, STORAGES, "sdna", SOLE),
    "crawls": (crawling, {"C": 100.0}, 2, STORAGES, "sdna", "primal"),
    "crawls with a kink": (crawling, {"C": 1.0, "l1_ratio": 0.5}, 2, STORAGES, "sdna", "newton"),
    "newton left": (lambda m: impatient(m, "newton"), BINARY, 2, STORAGES, "newton", "sdna"),
    "sketch left": (lambda m: impatient(m, "ihs"), BINARY, 2, STORAGES, "ihs", "sdna"),
    "stuck": (newton_is_stuck, {"C": 1e-3}, 2, STORAGES, "newton", "sdna"),
    "only one method": (lambda m: impatient(m, "newton"), {"l1_ratio": 1}, 2, STORAGES, "newton", SOLE),
    "sdna is tried first": (tried_first, {"C": 100.0}, 2, STORAGES, "sdna", "primal"),
    "sdna is not tried on many rows": (many_rows, {"C": 100.0}, 2, STORAGES, "primal", SOLE),
}
CASES = [(name, storage) for name, case in BRANCHES.items() for storage in case[3]]


@pytest.mark.parametrize(("name", "storage"), CASES)
def test_each_branch_is_taken_and_certified(name, storage, monkeypatch):
    inject, parameters, classes, _, first, later = BRANCHES[name]
    X, y = table(classes=classes)
    X = STORAGES[storage](X)
    inject(monkeypatch)
    model = dn.LogisticRegression(tol=1e-5, max_iter=1000, **parameters).fit(X, y)
    taken = model.plan_
    methods = [taken.method] if taken.before is None else [taken.before.method, taken.method]
    expected = [first] if later is SOLE else [first, later]
    assert len(methods) == len(expected)
    for method, wanted in zip(methods, expected, strict=True):
        assert method in (plan.PRIMAL if wanted == "primal" else (wanted,))
    if name == "sdna is tried first":
        assert "a few epochs cost little" in taken.before.reason
    assert set(methods) <= set(methods_for(model._problems(model._checked(X, y, None))[0]))
    assert model.certificate_.relative_gap <= 1e-5
    assert dn.certify(model, X, y).relative_gap <= (1e-4 if storage == "float32" else 2e-5)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("model", [dn.ElasticNet(alpha=1e-3, tol=1e-8), dn.LinearSVC(tol=1e-6)], ids=str)
def test_other_estimators_change_their_method_too(model, storage, monkeypatch):
    X, y = table(spread=2.0)
    crawling(monkeypatch)
    fitted = clone(model).fit(STORAGES[storage](X), y)
    assert fitted.plan_.is_primal
    assert fitted.plan_.before.method == "sdna"
    assert fitted.certificate_.relative_gap <= model.tol


def test_the_digits_three_times_are_fitted_by_a_method_that_softmax_has():
    X, y = load_digits(return_X_y=True)
    X, y = np.vstack([X] * 3), np.hstack([y] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of 100 epochs on features that are not scaled
        model = dn.LogisticRegression().fit(X, y)
    assert model.plan_.method in ("newton", "ihs")
    assert dn.certify(model, X, y).relative_gap <= model.certificate_.relative_gap * (1.0 + 1e-6)


@pytest.mark.parametrize("first", ["newton", "ihs"])
@pytest.mark.parametrize("stuck", [False, True])
def test_softmax_is_left_for_its_other_method_only(first, stuck):
    X, y = table(classes=3)
    problem = dn.MultinomialProblem(X, y)
    run = Switching(problem, general_plan(problem, method=first, tau="auto"), 1e-6, free=True)
    for turn in range(3000):
        run.note(3.0 * turn, 0.5 * 0.999**turn, 0.999**turn)
    run.relative_gap = 1e-2
    better = run.better(stuck=stuck)
    assert {first, better.method} == {"newton", "ihs"}
    assert better.before.method == first
    run.change_to(better)
    assert run.better(stuck=True) is None  # there and not back


STRANGE = [0.0, -1.0, math.inf, math.nan, 5e-324, 1e308]


@pytest.mark.parametrize("first", ["sdna", "newton"])
def test_a_history_of_any_numbers_has_an_answer(first):
    X, y = table()
    problem = dn.Problem(X[:200, :5], 2.0 * (y[:200] > 0) - 1.0, losses.Logistic(), lam=1e-3)
    begun = dn.plan(problem, method=first)
    for far, near, gap in itertools.product(STRANGE, repeat=3):
        run = Switching(problem, begun, 1e-6, free=True)
        for epoch, residual in ((1.0, far), (2.0, 1.0), (3.0, near)):
            run.note(epoch, gap, residual)
        better = run.better()
        assert better is None or better.method in methods_for(problem)
        assert DEFAULT.slowest_epoch <= run._pace() < math.inf
    run.note(1.0, 0.1, 1.0)  # a turn without work
    assert run._pace() == DEFAULT.slowest_epoch


def test_the_speed_is_measured_over_the_second_half_of_the_epochs():
    """Two steps without progress, after fast ones, are noise; a second half without progress is not."""
    X, y = table()
    problem = dn.Problem(X, 2.0 * (y > 0) - 1.0, losses.Hinge(), lam=1e-3)
    run = Switching(problem, dn.plan(problem, method="sdna"), 1e-4, free=True)
    for epoch in range(1, 41):
        run.note(float(epoch), 1e-2, 2.0 ** -min(epoch, 18))
        if epoch == 20:
            assert run._pace() == pytest.approx(0.8 * math.log(2.0))
    assert run._pace() == DEFAULT.slowest_epoch
    assert run.state.history[0][0] == 20.0


@pytest.mark.parametrize("scale", [1e-170, 1e170])
def test_predictions_are_finite_whatever_the_scale(scale):
    X, y = table()
    problem = dn.Problem(X * scale, 2.0 * y - 1.0, losses.Logistic(), lam=1e-300)
    with np.errstate(over="ignore", under="ignore"):
        facts = Facts.of(problem)
        assert 1.0 <= facts.conditioning < math.inf
        assert plan.predicted_costs(facts).keys() == set(methods_for(problem))
        assert not any(map(math.isnan, plan.predicted_costs(facts).values()))


def test_ridge_cv_fits_columns_of_very_different_size():
    rng = np.random.default_rng(0)
    scales = 10.0 ** np.linspace(-6.0, 8.0, 30)
    X = rng.standard_normal((131, 30)) * scales
    y = X @ (rng.standard_normal(30) / scales) + rng.standard_normal(131)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # penalties of 1e-12 leave rounding the last word
        model = dn.RidgeCV(alphas=np.logspace(-12, 12, 13)).fit(X, y)
    found = model.certificate_
    assert found.gap <= model.tol * found.primal + found.rounding
    assert model.alpha_ <= 1e-10  # the squares of the smallest feature have a sum of 1.3e-10
    assert model.best_score_ > -1.5


def test_a_regularizer_without_strong_convexity_is_never_left_for_sdna():
    X, y = table()
    problem = dn.Problem(X, 2.0 * y - 1.0, losses.Logistic(), regularizer=regularizers.L1())
    assert not plan.offered_plans(Facts.of(problem), primal=False)
    assert [each.method for each in plan.offered_plans(Facts.of(problem), primal=True)] == ["newton"]
