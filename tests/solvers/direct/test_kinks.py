"""Interior-point steps on small data find the optimum that the general methods find, and leave the rest to these."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.svm import SVC

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.objective.certificates import certify_pairs
from dualnewton.planning.small import small_plan
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct import kinks
from dualnewton.solvers.direct.block import Block, Limits
from dualnewton.solvers.primal import interior_search, step_systems
from tuned import GENERAL

LOSSES = [
    losses.Hinge(),
    losses.EpsilonInsensitive(0.0),
    losses.EpsilonInsensitive(0.3),
    losses.Quantile(0.2),
]
SHAPES = {"tall": (90, 7), "wide": (12, 20)}
STORAGES = {"dense": np.asarray, "float32": np.float32, "csr": sp.csr_array}


def drawn(n, d, seed=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.05, 5.0, d)
    score = X @ rng.standard_normal(d) / np.sqrt(d) + rng.standard_normal(n)
    weights = rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.9)
    return X, score, weights


def labels(loss, score):
    return np.where(score > 0.3, 1.0, -1.0) if isinstance(loss, losses.Hinge) else score


def found(problem, tol, most=60, crossovers=USUAL):
    """Return the certificate of what the direct solver finds, and its steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = kinks.solve(problem, Block(problem.data, crossovers), None, Limits(tol, most))
    (pair,) = certify_pairs([problem], [result.w], [result.intercept], [result.alpha])
    return pair.certificate, result.steps


@pytest.mark.parametrize(
    ("loss", "shape", "fit_intercept", "lam_n"), all_pairs(LOSSES, SHAPES, [False, True], [10.0, 1.0, 1e-2])
)
def test_it_finds_what_the_general_method_finds(loss, shape, fit_intercept, lam_n):
    """A covering design of the four factors: any two levels of any two of them meet."""
    n, d = SHAPES[shape]
    X, score, weights = drawn(n, d)
    cases = itertools.product((None, weights), (None, 0.3 * score), (None, np.linspace(1.0, 4.0, d)))
    for (sample_weight, offset, v), storage in zip(cases, itertools.cycle(STORAGES.values()), strict=False):
        problem = dn.Problem(
            storage(X),
            labels(loss, score),
            loss,
            regularizer=regularizers.L2(v),
            lam=lam_n / n,
            sample_weight=sample_weight,
            offset=offset,
            fit_intercept=fit_intercept,
        )
        direct = dn.solve(problem, tol=1e-10)
        assert direct.plan.family == "kinks", "the direct solution was not good enough"
        assert direct.certificate.relative_gap <= 1e-10
        general = dn.solve(problem, method="interior", tol=1e-10, tuning=GENERAL)
        assert general.plan.family is None
        assert direct.certificate.primal == pytest.approx(general.certificate.primal, rel=1e-9)
        np.testing.assert_allclose(direct.w, general.w, atol=1e-4 * np.abs(general.w).max())


def test_the_hinge_is_libsvms():
    X, score, _ = drawn(200, 5)
    y = np.where(score > 0.0, 1.0, -1.0)
    theirs = SVC(kernel="linear", C=0.7, tol=1e-10).fit(X, y)
    ours = dn.LinearSVC(loss="hinge", C=0.7, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-4)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize(("n", "d"), [(300, 10), (3000, 20), (40, 300)])
def test_steps_are_few_and_end_at_the_tolerance(loss, n, d):
    X, score, _ = drawn(n, d)
    problem = dn.Problem(X, labels(loss, score), loss, lam=1.0 / n, fit_intercept=True)
    steps = []
    for tol in (1e-2, 1e-4, 1e-8):
        certificate, taken = found(problem, tol)
        assert certificate.relative_gap <= tol
        steps.append(taken)
    assert steps == sorted(steps)
    assert steps[0] < steps[2]
    assert steps[1] <= 20


def test_examples_that_are_decided_are_left_out(monkeypatch):
    sizes, create = [], step_systems.Rows.__init__
    monkeypatch.setattr(
        step_systems.Rows,
        "__init__",
        lambda self, columns, *rest: sizes.append(columns.shape[1]) or create(self, columns, *rest),
    )
    X, score, weights = drawn(4000, 12)
    for loss in LOSSES:
        sizes.clear()
        problem = dn.Problem(X, labels(loss, score), loss, lam=1e-4, sample_weight=weights, fit_intercept=True)
        certificate, _ = found(problem, 1e-6)
        assert certificate.relative_gap <= 1e-6
        assert sizes[0] == np.count_nonzero(weights)
        assert sizes[-1] <= USUAL.undecided_share * sizes[0]


def test_decided_examples_are_left_out_early_where_many_remain(monkeypatch):
    """The gap of separable classes is many times the objective for most of the steps, which took all examples."""
    sizes, advance = [], interior_search.Search.advance

    def counted(self, **options):
        sizes.append(len(self.terms.least))
        return advance(self, **options)

    monkeypatch.setattr(interior_search.Search, "advance", counted)
    X, y = load_breast_cancer(return_X_y=True)
    model = dn.LinearSVC(loss="hinge").fit(X, y)
    assert model.certificate_.relative_gap <= model.tol
    assert sizes.count(len(X)) <= 6  # 16 before
    assert len(sizes) <= 14  # 21 before


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [800, 1500])
def test_separable_classes_start_at_a_multiple_of_the_least_squares_fit(n, weighted):
    """The margins of that fit are too small: from it, the steps were 15 to 17."""
    X, _, weights = drawn(n, 12)
    y, weights = np.where(X[:, 0] + 0.3 * X[:, 1] > 0.0, 1.0, -1.0), weights + 0.5 if weighted else None
    problem = dn.Problem(X, y, losses.Hinge(), lam=0.001 / n, sample_weight=weights, fit_intercept=True)
    certificate, steps = found(problem, 1e-4)
    assert certificate.relative_gap <= 1e-4
    assert steps <= 13


@pytest.mark.parametrize("decided", [0.45, 0.25])
def test_examples_that_were_left_out_too_early_come_back(decided, monkeypatch):
    """Whatever is taken for decided: the gap of all examples decides."""
    monkeypatch.setattr(interior_search, "DECIDED", decided)
    monkeypatch.setattr(interior_search, "SMALL_MOVE", 1e3)
    monkeypatch.setattr(interior_search, "RESTRICTED_FROM", np.inf)
    seen = {name: [] for name in ("_widen", "_go_back")}
    for name, calls in seen.items():
        original = getattr(interior_search.Search, name)

        def counted(*args, calls=calls, original=original):
            calls.append(len(args))
            return original(*args)

        monkeypatch.setattr(interior_search.Search, name, counted)
    X, score, _ = drawn(400, 12)
    for loss in LOSSES:
        problem = dn.Problem(X, labels(loss, score), loss, lam=1e-3, fit_intercept=True)
        certificate, steps = found(problem, 1e-6, crossovers=Crossovers(undecided_entries=1))
        assert certificate.relative_gap <= 1e-6
        assert steps <= 40
    assert seen["_widen"] + seen["_go_back"]


def test_separable_classes_take_few_steps():
    """Examples are left out only once the gap is small: before, most slopes are near zero, and those that stay are not known."""
    X, y = load_digits(return_X_y=True)
    for k in (2, 5, 7):
        problem = dn.Problem(X, np.where(y == k, 1.0, -1.0), losses.Hinge(), lam=1.0 / len(y), fit_intercept=True)
        certificate, steps = found(problem, 1e-4)
        assert certificate.relative_gap <= 1e-4
        assert steps <= 35


DEGENERATE = {
    "repeated columns": lambda X: np.hstack([X, X]),
    "constant columns": lambda X: np.hstack([X, np.full((len(X), 2), 3.0)]),
    "no features": lambda X: 0.0 * X,
    "repeated rows": lambda X: np.vstack([X[: len(X) // 3]] * 3),
    "large": lambda X: 1e8 * X,
    "tiny": lambda X: 1e-8 * X,
    "scales": lambda X: X * np.geomspace(1e-6, 1e6, X.shape[1]),
}


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("kind", DEGENERATE)
def test_degenerate_data(loss, kind):
    X, score, _ = drawn(60, 5)
    X = DEGENERATE[kind](X)
    y = labels(loss, np.tile(score[:20], 3) if kind == "repeated rows" else score)
    for fit_intercept in (False, True):
        problem = dn.Problem(X, y, loss, lam=1.0 / 60.0, fit_intercept=fit_intercept)
        assert found(problem, 1e-6)[0].relative_gap <= 1e-6


@pytest.mark.parametrize("rank", [3, 60])
@pytest.mark.parametrize("method", ["auto", "interior"])
def test_wide_rows_whose_features_differ_in_scale(rank, method):
    """Products of the rows lose the small features, which a small penalty makes important: an orthogonal basis keeps them."""
    rng = np.random.default_rng(3)
    n, d = 60, 300
    X = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) * np.exp(3.0 * rng.standard_normal(d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Hinge(), lam=1e-3 / n, fit_intercept=True)
    result = dn.solve(problem, method=method, tol=1e-4)
    assert result.converged
    assert result.certificate.primal == pytest.approx(problem.primal(result.w, result.intercept))


@pytest.mark.parametrize("y", [np.ones(8), np.r_[np.ones(4), -np.ones(4)]], ids=["one class", "separable"])
def test_classes_that_need_no_loss(y):
    """With one class P = 0 is reached, to which no gap is relative; the general methods end there, as they always have."""
    X = np.arange(16.0).reshape(8, 2)
    result = dn.solve(dn.Problem(X, y, losses.Hinge(), lam=1e-3, fit_intercept=True), tol=1e-6)
    assert result.certificate.gap <= 1e-6 * max(result.certificate.primal, 1e-3)


@given(
    n=st.integers(1, 40),
    d=st.integers(1, 12),
    loss=st.sampled_from(LOSSES),
    lam_n=st.sampled_from([1e-3, 1.0, 1e3]),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    fit_intercept=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_small_problem_meets_the_tolerance(n, d, loss, lam_n, scale, fit_intercept, weighted, seed):
    """Either the direct solution is certified, or the general methods go on to the same answer."""
    X, score, weights = drawn(n, d, seed)
    weights[0] = 1.0
    problem = dn.Problem(
        np.round(scale * X, 2 - int(np.log10(scale))),
        labels(loss, score),
        loss,
        lam=lam_n / n,
        sample_weight=weights if weighted else None,
        fit_intercept=fit_intercept,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = dn.solve(problem, tol=1e-6)
    size = max(float(np.abs(problem.y).max()), 1.0)
    assert result.certificate.gap <= max(1e-6 * result.certificate.primal, 1e-12 * size)


def test_a_callback_or_a_checkpoint_changes_no_bit(tmp_path):
    X, score, _ = drawn(90, 7)
    problem = dn.Problem(X, score, losses.EpsilonInsensitive(0.1), lam=1e-2, fit_intercept=True)
    straight = dn.solve(problem, tol=1e-6)
    for other in (
        dn.solve(problem, tol=1e-6, callback=lambda _: False),
        dn.solve(problem, tol=1e-6, checkpoint=tmp_path / "run"),
    ):
        assert np.array_equal(straight.w, other.w)
        assert np.array_equal(straight.alpha, other.alpha)
        assert straight.certificate == other.certificate


def test_limits_leave_a_point_that_is_certified():
    X, score, _ = drawn(90, 7)
    problem = dn.Problem(X, score, losses.Quantile(0.3), lam=1e-4, fit_intercept=True)
    few = dn.solve(problem, tol=1e-10, max_epochs=6)
    assert few.status is dn.Status.EPOCH_LIMIT
    assert 1e-10 < few.certificate.relative_gap <= 1.0
    assert dn.solve(problem, tol=1e-10, time_limit=0.0).status is dn.Status.TIME_LIMIT


def test_the_general_method_goes_on_where_no_step_is_possible(monkeypatch):
    monkeypatch.setattr(kinks, "starting_state", lambda *_: None)
    X, score, _ = drawn(90, 7)
    problem = dn.Problem(X, score, losses.Quantile(0.3), lam=1e-4, fit_intercept=True)
    result = dn.solve(problem, tol=1e-8)
    assert result.converged
    assert result.plan.before.family == "kinks"


def test_several_classes_share_the_rows():
    """More entries than are batched: one class after the other, each as if it were alone."""
    X, score, _ = drawn(2000, 7)
    y = np.digitize(score, [-0.5, 0.5])
    model = dn.LinearSVC(loss="hinge", tol=1e-6).fit(X, y)
    for k, part in enumerate(model.certificate_):
        alone = dn.LinearSVC(loss="hinge", tol=1e-6).fit(X, y == k)
        assert part.relative_gap <= 1e-6
        np.testing.assert_array_equal(model.coef_[k], alone.coef_[0])


def test_what_it_takes():
    X, score, _ = drawn(90, 7)

    def family(loss=LOSSES[1], **changes):
        plan = small_plan(dn.Problem(X, labels(loss, score), loss, **changes), "auto", "auto")
        return plan and plan.family

    assert all(family(loss) == "kinks" for loss in LOSSES)
    assert family(regularizer=regularizers.L1()) is None
    assert family(losses.Squared()) != "kinks"
    large = dn.Problem(np.ones((40_000, 30)), np.ones(40_000), losses.Hinge())
    assert small_plan(large, "auto", "auto") is None
    assert small_plan(dn.Problem(X, score, LOSSES[1]), "newton", "auto") is None


def test_a_loss_without_a_hash_is_solved():
    """A user's loss may have parameters, such as arrays, that have none."""

    class Unhashable(losses.Hinge):
        __hash__ = None

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    problem = dn.Problem(X, np.where(X[:, 0] > 0.1, 1.0, -1.0), Unhashable(), lam=0.01)
    result = dn.solve(problem, tol=1e-6)
    assert result.converged
    assert result.plan.family == "kinks"
