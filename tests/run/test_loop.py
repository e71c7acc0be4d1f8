"""The one loop: it converges, says truly how it ended, and repeats itself bit for bit."""

import time

import numpy as np
import pytest

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers, samplings
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.run.result import Status
from dualnewton.solvers import SDNA
from dualnewton.solvers.primal.newton import Descent
from dualnewton.solvers.protocol import PrimalPoint
from tables import LOSSES, labels_for, load, make_problem, name_of, regularizers_for, samplings_for
from tuned import GENERAL, tuned

FORMS = [
    {},
    {"weights": True, "offset": True},
    {"fit_intercept": True},
    {"sparse": True, "fit_intercept": True, "weights": True},
]


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_method_reaches_the_same_certified_optimum(loss, form):
    problem = make_problem(loss, n=16, d=4, lam=0.1, **form)
    results = [dn.solve(problem, method=method, tol=1e-9, tau=5, random_state=0) for method in ("sdna", "sdca", "ihs")]
    results.append(dn.solve(problem, tol=1e-9, random_state=0))
    for result in results:
        assert result.status is Status.CONVERGED
        assert result.certificate.relative_gap <= 1e-9
        # The certificate is about the very model and dual point that are returned.
        assert result.certificate.primal == pytest.approx(problem.primal(result.w, result.intercept), rel=1e-14)
        assert result.certificate.dual == pytest.approx(problem.dual(result.alpha), rel=1e-14)
        # λ-strong convexity turns the gap into a distance: ‖w − w*‖² ≤ 2 gap/λ, so two models are this close.
        radius = 2.0 * np.sqrt(2.0 * 1e-9 * result.certificate.primal / problem.lam)
        assert np.linalg.norm(result.w - results[0].w) <= radius


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_every_regulariser_converges(loss, fit_intercept):
    for regularizer in regularizers_for(4):
        problem = make_problem(loss, n=16, d=4, lam=0.1, regularizer=regularizer, fit_intercept=fit_intercept)
        result = dn.solve(problem, tau=6, tol=1e-8, random_state=0)
        assert result.status is Status.CONVERGED
        assert np.isfinite(regularizer.value(result.w))


@pytest.mark.parametrize("method", ["sdna", "ihs", "auto"])
def test_tau_may_be_an_integer_of_numpy(method):
    problem = make_problem(losses.Logistic(), n=30, d=4)
    results = [dn.solve(problem, method=method, tau=tau, random_state=0) for tau in (np.int64(2), 2)]
    assert results[0].converged
    np.testing.assert_array_equal(results[0].w, results[1].w)


@pytest.mark.parametrize("method", ["sdna", "sdca"])
def test_every_sampling_drives_every_method(method):
    problem = make_problem(losses.Logistic(), n=8, d=3, lam=0.2)
    for sampling in samplings_for(8):
        result = dn.solve(problem, method=method, sampling=sampling, tol=1e-7, max_epochs=2000, random_state=1)
        assert result.status is Status.CONVERGED
        assert result.plan.reason.startswith("sampling given by the user")


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_path():
    problem = make_problem(losses.Logistic(), n=50, d=5)
    one, two, other = (dn.solve(problem, tau=8, max_epochs=5, tol=0.0, random_state=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.w, two.w)
    assert np.array_equal(one.alpha, two.alpha)
    assert one.trace.gap.tolist() == two.trace.gap.tolist()
    assert not np.array_equal(one.alpha, other.alpha)
    again = dn.solve(problem, tau=8, max_epochs=5, tol=0.0, random_state=np.random.default_rng(3), n_threads=1)
    assert np.array_equal(one.w, again.w)


def test_status_epoch_limit_and_the_trace():
    problem = make_problem(losses.Logistic(), n=50, d=5, lam=1e-3)
    result = dn.solve(problem, tau=2, max_epochs=3, tol=1e-12, random_state=0)
    assert result.status is Status.EPOCH_LIMIT
    assert result.n_epochs == 3
    assert result.trace.epoch.tolist() == [0, 1, 2, 3]
    assert (np.diff(result.trace.seconds) > 0.0).all()
    # The best pair so far: primal never rises, dual never falls.
    assert (np.diff(result.trace.primal) <= 0.0).all()
    assert (np.diff(result.trace.dual) >= 0.0).all()
    np.testing.assert_allclose(result.trace.gap, result.trace.primal - result.trace.dual)
    assert result.trace.gap[-1] == result.certificate.gap
    assert list(result.trace.to_pandas().columns) == ["epoch", "seconds", "primal", "dual", "gap"]
    assert "EPOCH_LIMIT" in str(result)
    assert "relative gap" in str(result)
    assert "EPOCH_LIMIT" in repr(result)
    assert len(repr(result)) < 200, "a result shows the shapes of its arrays, not their numbers"
    assert len(repr(result.trace)) < 80
    assert dn.solve(problem, max_epochs=0).n_epochs == 0


def test_the_trace_can_be_drawn():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    result = dn.solve(make_problem(losses.Squared(), n=30, d=4), tau=4, random_state=0)
    axes = result.trace.plot(x="seconds", label="sdna")
    (line,) = axes.get_lines()
    assert line.get_ydata().tolist() == result.trace.gap[result.trace.gap > 0.0].tolist()
    assert axes.get_yscale() == "log"
    assert result.trace.plot(ax=axes) is axes
    with pytest.raises(ValueError, match=r'x must be "epoch" or "seconds", got .*gap'):
        result.trace.plot(x="gap")
    plt.close(axes.figure)


def test_a_callback_sees_every_certificate_and_may_stop():
    problem = make_problem(losses.Logistic(), n=50, d=5, lam=1e-3)
    seen = []

    def watch(progress):
        seen.append(progress)
        return progress.epoch == 2

    result = dn.solve(problem, tau=2, tol=1e-12, callback=watch, random_state=0)
    assert result.status is Status.STOPPED_BY_CALLBACK
    assert [progress.epoch for progress in seen] == [0, 1, 2]
    assert seen[-1].certificate.gap == result.certificate.gap


def test_a_certificate_after_every_turn_and_that_of_the_iterate_beside_the_best():
    problem = make_problem(
        losses.Squared(), n=700, d=300, lam=1e-3
    )  # compiled rounds, whose certificates are not cheap
    settings = {"method": "sdca", "tau": 8, "tol": 0.0, "max_epochs": 9, "random_state": 0}
    seldom, often = (dn.solve(problem, **settings, certify_every=every).trace for every in (None, 1))
    assert len(seldom) < len(often) == 10
    np.testing.assert_allclose(often.epoch, np.arange(10.0))
    # The best so far is the lowest P and the highest D of the iterates so far.
    latest = [row.latest for row in often.rows]
    np.testing.assert_array_equal(often.primal, np.minimum.accumulate([each.primal for each in latest]))
    np.testing.assert_array_equal(often.dual, np.maximum.accumulate([each.dual for each in latest]))
    worked = np.array([row.work_seconds for row in often.rows])
    assert worked[0] == 0.0
    assert (np.diff(worked) > 0.0).all()
    assert (worked <= often.seconds).all()


@pytest.mark.parametrize(
    ("regularizer", "method"), [(regularizers.L2(), "ihs"), (regularizers.ElasticNet(0.5), "auto")], ids=name_of
)
def test_primal_methods_certify_the_start_and_the_solution_alone(regularizer, method):
    """The gap is compared with the current P, here a twentieth of that of the start, so that no certificate misses ``tol``."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 20))
    problem = dn.Problem(X, np.sign(X @ rng.standard_normal(20)), losses.Logistic(), regularizer=regularizer, lam=1e-4)
    for tol in 10.0 ** -np.arange(1.0, 8.0, 0.5):
        result = dn.solve(problem, method=method, tol=tol, random_state=0, tuning=GENERAL)
        assert result.plan.is_primal
        assert [row.certificate.relative_gap <= tol for row in result.trace.rows] == [False, True]


def test_a_time_limit_is_kept_inside_an_epoch_and_the_model_is_usable(monkeypatch):
    problem = make_problem(losses.Logistic(), n=4000, d=5, lam=1e-6)
    original, clock = SDNA.round, [0.0]

    def ticking(self, S):
        clock[0] += 2e-4
        original(self, S)

    monkeypatch.setattr(SDNA, "round", ticking)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    by_numpy = tuned(kernel_loading=np.inf)
    result = dn.solve(problem, tau=1, tol=1e-14, time_limit=0.05, random_state=0, tuning=by_numpy)
    assert result.status is Status.TIME_LIMIT
    assert 0.0 < result.n_epochs < 0.5  # an epoch of 4000 rounds takes 0.8 s: it was cut
    assert result.certificate.primal == pytest.approx(problem.primal(result.w), rel=1e-14)
    assert np.isfinite(result.certificate.gap)


def test_ctrl_c_returns_the_best_certified_point_so_far(monkeypatch):
    problem = make_problem(losses.Logistic(), n=60, d=5, lam=1e-3)
    whole = dn.solve(problem, tau=4, tol=0.0, max_epochs=3, random_state=0)
    original, calls = SDNA.round, []

    def interrupted(self, S):
        calls.append(1)
        if len(calls) == 50:  # in the fourth epoch
            raise KeyboardInterrupt
        original(self, S)

    monkeypatch.setattr(SDNA, "round", interrupted)
    result = dn.solve(problem, tau=4, tol=0.0, max_epochs=99, random_state=0)
    assert result.status is Status.INTERRUPTED
    assert result.n_epochs == 3
    assert np.array_equal(result.w, whole.w)
    assert result.certificate == whole.certificate


def test_precision_has_the_last_word():
    problem = make_problem(losses.Squared(), n=40, d=5, lam=0.1)
    result = dn.solve(problem, tau=4, tol=0.0, max_epochs=100_000, random_state=0)
    assert result.status in (Status.NO_PROGRESS, Status.ROUNDING)  # rounding: a gap of exactly zero
    assert result.certificate.relative_gap <= 1e-14
    assert result.n_epochs < 1000


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_warm_start_goes_on_where_the_other_stopped(fit_intercept):
    problem = make_problem(losses.Logistic(), n=60, d=5, lam=0.01, fit_intercept=fit_intercept)
    cold = dn.solve(problem, tau=6, tol=1e-8, random_state=0)
    assert dn.solve(problem, tau=6, tol=2e-8, warm_start=cold).n_epochs == 0
    assert dn.solve(problem, tau=6, tol=2e-8, warm_start=cold.alpha).n_epochs == 0
    nearby = dn.Problem(problem.X, problem.y, problem.loss, lam=0.009, fit_intercept=fit_intercept)
    assert (
        dn.solve(nearby, tau=6, tol=1e-6, warm_start=cold, random_state=0).n_epochs
        < dn.solve(nearby, tau=6, tol=1e-6, random_state=0).n_epochs
    )


def test_an_infeasible_warm_start_is_brought_into_the_domain():
    problem = make_problem(losses.Logistic(), n=10, d=3)
    result = dn.solve(problem, warm_start=np.full(10, 7.0), tol=1e-9, random_state=0)
    assert result.status is Status.CONVERGED


DEGENERATE = {
    "n=d=1": np.ones((1, 1)),
    "zero rows": np.zeros((5, 2)),
    "constant features": np.ones((6, 2)),
    "duplicate rows": np.repeat([[1.0, 2.0], [0.5, -1.0]], 3, axis=0),
}


@pytest.mark.parametrize(
    ("loss", "data", "fit_intercept", "one_label"), all_pairs(LOSSES, DEGENERATE, [False, True], [False, True])
)
def test_degenerate_data_are_solved(loss, data, fit_intercept, one_label):
    """A covering design of the four factors: any two levels of any two of them meet."""
    X = DEGENERATE[data]
    y = np.ones(len(X)) if one_label else labels_for(loss, len(X), np.random.default_rng(0))
    for tau in sorted({1, min(2, len(X))}):
        problem = dn.Problem(X, y, loss, lam=0.1, fit_intercept=fit_intercept)
        result = dn.solve(problem, tau=tau, tol=1e-8, random_state=0)
        assert result.certificate.gap <= 1e-8 * max(1.0, abs(result.certificate.primal)) + 1e-12


@pytest.mark.parametrize(("loss", "lam", "scale"), all_pairs(LOSSES, [1e-12, 1e-6, 1e6], [1e-8, 1.0, 1e8]))
def test_any_scale_ends_with_a_true_certificate_and_no_exception(loss, lam, scale):
    """A covering design of the three factors: any two levels of any two of them meet."""
    problem = make_problem(loss, n=20, d=3, lam=lam)
    problem = dn.Problem(scale * problem.X, problem.y, loss, lam=lam)
    result = dn.solve(problem, tau=4, tol=1e-6, max_epochs=20, random_state=0)
    assert np.isfinite(result.w).all()
    assert result.certificate.primal == pytest.approx(problem.primal(result.w), rel=1e-12)
    assert problem.dual(result.alpha) <= problem.primal(result.w) * (1.0 + 1e-12)
    assert result.converged == (result.certificate.relative_gap <= 1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"method": "magic"},
            r"method must be one of 'auto', 'sdna', 'sdca', 'newton', 'ihs', 'interior', got 'magic'",
        ),
        ({"tau": 0}, r"tau must be an integer in \[1, 6\], got 0"),
        ({"tau": 7}, r"tau must be an integer in \[1, 6\], got 7"),
        ({"tau": 2.5}, r"tau must be an integer in \[1, 6\], got 2.5"),
        ({"certify_every": 0}, "certify_every must be an integer >= 1"),
        ({"tol": -1.0}, "tol must be a finite number >= 0, got -1.0"),
        ({"tol": np.nan}, "tol must be a finite number >= 0, got nan"),
        ({"max_epochs": -1}, "max_epochs must be an integer >= 0, got -1"),
        ({"time_limit": -2}, "time_limit must be a finite number >= 0, got -2"),
        ({"n_threads": 0}, "n_threads must be an integer >= 1, got 0"),
        ({"random_state": -1}, "random_state must be None, a nonnegative integer or"),
        ({"random_state": "x"}, "random_state must be None, a nonnegative integer or"),
        ({"warm_start": np.zeros(3)}, r"warm_start must have shape \(6,\), got \(3,\)"),
        ({"sampling": "nice"}, "sampling must be a samplings.Sampling"),
        ({"sampling": samplings.Nice(5, 2)}, "sampling must be over the 6 examples of the problem, got one over 5"),
        ({"sampling": samplings.Nice(6, 2), "tau": 2}, "tau must be 'auto' if a sampling is given"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        dn.solve(make_problem(losses.Squared()), **change)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_ridge_equals_scikit_learn(fit_intercept):
    from sklearn.linear_model import Ridge

    problem = make_problem(losses.Squared(), n=80, d=6, lam=0.05, weights=True, fit_intercept=fit_intercept)
    ours = dn.solve(problem, tol=1e-14, tau=80, random_state=0)
    theirs = Ridge(alpha=0.05 * 80, fit_intercept=fit_intercept).fit(problem.X, problem.y, problem.sample_weight)
    np.testing.assert_allclose(ours.w, theirs.coef_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_logistic_regression_equals_scikit_learn_on_real_data(fit_intercept):
    from sklearn.linear_model import LogisticRegression

    X, y = load("splice")
    X, y = X[:300].astype(float), np.where(y[:300] > 0, 1.0, -1.0)
    ours = dn.solve(
        dn.Problem(X, y, losses.Logistic(), lam=1 / 300, fit_intercept=fit_intercept), tol=1e-13, random_state=0
    )
    theirs = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12, fit_intercept=fit_intercept).fit(X, y)
    np.testing.assert_allclose(ours.w, theirs.coef_[0], atol=1e-6)
    np.testing.assert_allclose(ours.intercept, theirs.intercept_[0] if fit_intercept else 0.0, atol=1e-6)


@pytest.mark.parametrize("name", ["mushrooms", "phishing", "w8a"])
def test_real_sparse_data_are_solved_all_zero_rows_included(name):
    X, y = load(name)
    rows = np.random.default_rng(0).permutation(X.shape[0])[:1500]
    problem = dn.Problem(
        X[rows], np.where(y[rows] == y.max(), 1.0, -1.0), losses.Logistic(), lam=1e-2, fit_intercept=True
    )
    result = dn.solve(problem, tol=1e-6, random_state=0)
    assert result.status is Status.CONVERGED
    assert result.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("first", ["sdna", "newton"])
@pytest.mark.parametrize("then", ["sdna", "newton"])
def test_a_warm_start_keeps_what_was_proved(first, then, fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    y = np.where(X[:, 0] + rng.standard_normal(200) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.SquaredHinge(), lam=0.01, fit_intercept=fit_intercept)
    earlier = dn.solve(problem, method=first, tol=1e-7, random_state=0)
    later = dn.solve(problem, method=then, tol=1e-7, random_state=0, warm_start=earlier)
    assert later.n_epochs == 0.0
    assert later.certificate.gap <= earlier.certificate.gap + earlier.certificate.rounding


def test_planning_too_keeps_to_one_blas_thread(monkeypatch):
    """A product on two threads would leave one of them spinning through the whole run."""
    from threadpoolctl import threadpool_info

    from dualnewton.planning.facts import Facts

    seen, of = [], Facts.of

    def looking(problem, *args, **more):
        seen.extend(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
        return of(problem, *args, **more)

    monkeypatch.setattr(Facts, "of", looking)
    dn.solve(make_problem(losses.Logistic(), n=40), random_state=0, tuning=GENERAL)
    assert seen
    assert set(seen) == {1}


def test_a_model_whose_arithmetic_overflows_ends_at_its_best_point(monkeypatch):
    problem = dn.Problem(np.eye(3), np.array([1.0, -1.0, 1.0]), dn.losses.Logistic(), lam=0.1)
    point = PrimalPoint(np.array([1.0, np.nan, 0.0]), 0.0)
    monkeypatch.setattr(Descent, "point", lambda *_: point)
    result = dn.solve(problem, method="newton", tol=1e-9, tuning=GENERAL)
    assert result.status is dn.Status.NO_PROGRESS
    assert np.isfinite(result.w).all()
    assert result.certificate.relative_gap < np.inf


@pytest.mark.parametrize(
    "loss", [losses.Poisson(), losses.Logistic(), losses.Squared()], ids=lambda loss: type(loss).__name__
)
def test_a_warm_start_that_is_worse_than_none_is_not_used(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    y = np.where(X[:, 0] + rng.standard_normal(40) > 0.0, 1.0, -1.0 if isinstance(loss, losses.Logistic) else 0.0)
    near, far = (dn.Problem(rows, y, loss, lam=1e-4, fit_intercept=True) for rows in (X, -300.0 * X))
    start = dn.solve(near, tol=1e-6)
    cold, warm = (dn.solve(far, tol=1e-6, warm_start=each, callback=lambda _: False) for each in (None, start))
    nothing = far.primal(np.zeros(3), far.best_intercept_without_features())
    assert far.primal(start.w, start.intercept) > 10.0 * nothing
    assert warm.trace.rows[0].certificate.primal <= nothing + 1e-12
    assert warm.converged
    assert warm.n_epochs <= cold.n_epochs
    assert dn.solve(near, tol=1e-6, warm_start=start).n_epochs == 0.0  # a good start is


def test_a_method_that_a_warm_start_misleads_begins_once_more_without_it(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3))
    problem = dn.Problem(X, np.sign(X[:, 0] + rng.standard_normal(40)), losses.Logistic(), lam=1e-3)
    other = dn.solve(dn.Problem(X, problem.y, losses.Logistic(), lam=1e-2))
    cold = dn.solve(problem, method="newton", tol=1e-9, tuning=GENERAL)
    starts, make, step = [], Descent.__init__, Descent.step

    def made(self, problems, data, points, **options):
        starts.append(points[0][0].any())
        make(self, problems, data, points, **options)
        self.misled = starts[0] and len(starts) == 1

    def stays(self, *limits):
        spent = 1.0 if self.misled else step(self, *limits)
        self.models[0].stuck |= self.misled
        return spent

    monkeypatch.setattr(Descent, "__init__", made)
    monkeypatch.setattr(Descent, "step", stays)
    settings = {"method": "newton", "tol": 1e-9, "tuning": GENERAL, "warm_start": other, "random_state": 0}
    result = dn.solve(problem, **settings)
    assert starts == [True, False]
    assert result.converged
    assert "once more without the warm start" in str(result.plan)
    assert result.certificate.primal == pytest.approx(cold.certificate.primal, rel=1e-9)


def test_a_run_that_has_left_its_warm_start_continues_from_a_checkpoint(tmp_path):
    rng = np.random.default_rng(16)
    X = np.eye(20)[rng.integers(20, size=300)]
    y = np.where(X @ rng.standard_normal(20) + rng.standard_normal(300) * 0.3 > 0, 1.0, -1.0)
    y = np.where(rng.random(300) < 0.1, -y, y)
    part, whole = (Unpenalised.of(dn.Problem(X[:n], y[:n], losses.Logistic(), lam=1.0)) for n in (150, 300))
    start = dn.solve(part, tol=1e-6)
    wanted = dn.solve(whole, tol=1e-6, warm_start=start, random_state=0)
    assert wanted.converged
    path, epochs, found = tmp_path / "run", 0.0, None
    while found is None or not found.converged:
        checkpoint = dn.Checkpoint(path, seconds=0.0, spacing=0.0)
        epochs += 2.0
        found = dn.solve(
            whole, tol=1e-6, warm_start=start, random_state=0, checkpoint=checkpoint, max_epochs=int(epochs)
        )
    assert found.w.tobytes() == wanted.w.tobytes()
