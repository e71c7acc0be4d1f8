"""Proximal Newton steps that begin at the solution on a sample of the rows (``solvers/prox/samples.py``)."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.protocol import Work
from dualnewton.planning.facts import Facts
from dualnewton.planning.primal import newton
from dualnewton.planning.working_sets import SetSizes
from dualnewton.solvers.deadline import NEVER
from dualnewton.solvers.prox import samples
from dualnewton.solvers.prox.newton import Proximal
from fake_device import on_device
from tuned import tuned

SAMPLED = tuned(one_block_features=0, proximal_calls=0.0)
"""Samples pay for problems of a thousand rows."""

UNSAMPLED = tuned(one_block_features=0, sample_share=0.0)

N, D = 4000, 12


def features(seed=0, *, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    return sp.csr_array(X * (rng.random((N, D)) < 0.3)) if sparse else X


def problem(loss=None, X=None, **more):
    X, rng = features() if X is None else X, np.random.default_rng(1)
    loss = losses.Logistic() if loss is None else loss
    scores = X @ np.where(np.arange(D) < 4, 1.0, 0.0) + 0.3 + rng.logistic(size=N)
    y = scores if isinstance(loss, losses.Huber) else np.where(scores > 0.0, 1.0, -1.0)
    return dn.Problem(X, y, loss, **{"regularizer": regularizers.L1(), "lam": 0.02, "fit_intercept": True, **more})


def softmax(**more):
    X, rng = features(), np.random.default_rng(1)
    scores = np.column_stack([X[:, 0], X[:, 1], X[:, 2]]) + rng.gumbel(size=(N, 3))
    return dn.MultinomialProblem(X, scores.argmax(axis=1), regularizer=regularizers.L1(), lam=0.02, **more)


def assert_same_minimum(one, other):
    for result in (one, other):
        assert result.converged
    assert one.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-8)
    np.testing.assert_allclose(one.w, other.w, atol=1e-4)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(1.0)], ids=str)
@pytest.mark.parametrize(
    "penalty", [regularizers.L1(), regularizers.ElasticNet(0.5), regularizers.Box(-0.2, 0.5)], ids=str
)
def test_the_minimum_is_that_without_a_sample_after_fewer_passes(loss, penalty, sparse, passes):
    posed = problem(loss, features(sparse=sparse), regularizer=penalty)
    whole = dn.solve(posed, method="newton", tol=1e-9, tuning=UNSAMPLED)
    before = passes.count(N)
    passes.clear()
    result = dn.solve(posed, method="newton", tol=1e-9, tuning=SAMPLED)
    assert "sampled rows" in result.plan.reason
    assert_same_minimum(result, whole)
    assert passes.count(N) <= before
    assert min(passes) < N


@pytest.mark.parametrize("parts", ["weights", "offset", "softmax"])
def test_other_parts_of_a_problem_are_those_of_the_sampled_rows(parts):
    rng = np.random.default_rng(2)
    more = {"weights": {"sample_weight": rng.integers(1, 4, N)}, "offset": {"offset": rng.standard_normal(N)}}
    posed = softmax(fit_intercept=True) if parts == "softmax" else problem(**more[parts])
    result = dn.solve(posed, method="newton", tol=1e-9, tuning=SAMPLED)
    assert result.plan.samples
    assert_same_minimum(result, dn.solve(posed, method="newton", tol=1e-9, tuning=UNSAMPLED))


def test_rows_on_a_device_or_on_disk_are_sampled_too(tmp_path):
    np.save(tmp_path / "rows.npy", features())
    known = problem()
    whole = dn.solve(known, method="newton", tol=1e-8, tuning=UNSAMPLED)
    for rows in (on_device(features()), dn.data.open(str(tmp_path / "rows.npy"), memory=N * D * 2).X):
        posed = dn.Problem(rows, known.y, known.loss, regularizer=known.regularizer, lam=known.lam, fit_intercept=True)
        result = dn.solve(posed, method="newton", tol=1e-8, tuning=SAMPLED)
        assert result.plan.samples
        assert_same_minimum(result, whole)


def test_several_models_share_the_sample(passes):
    problems = [problem(lam=lam) for lam in (0.05, 0.02)]
    data = problems[0].data
    problems = [dn.Problem(data, each.y, each.loss, regularizer=each.regularizer, lam=each.lam) for each in problems]
    results = dn.solve_many(problems, method="newton", tol=1e-8, tuning=SAMPLED)
    for posed, result in zip(problems, results, strict=True):
        assert_same_minimum(result, dn.solve(posed, method="newton", tol=1e-8, tuning=UNSAMPLED))
    assert len({rows for rows in passes if rows < N}) == 1


def test_bits_depend_neither_on_the_seed_nor_on_the_number_of_threads():
    posed = problem(X=features(sparse=True))
    runs = [
        dn.solve(posed, method="newton", n_threads=threads, tuning=SAMPLED, random_state=seed).alpha.tobytes()
        for threads, seed in ((1, 1), (1, None), (2, 2))
    ]
    assert runs[0] == runs[1] == runs[2]


def test_a_rare_class_leaves_the_sample_out(passes):
    X = features()
    y = np.where(np.arange(N) % 300 == 0, 1.0, -1.0)
    posed = dn.Problem(X, y, losses.Logistic(), regularizer=regularizers.L1(), lam=1e-4, fit_intercept=True)
    assert newton(Facts.of(posed, SAMPLED), "auto").samples
    assert dn.solve(posed, method="newton", tol=1e-6, tuning=SAMPLED).converged
    assert set(passes) == {N}


def test_an_earlier_model_leaves_the_sample_out(passes):
    posed = problem()
    start = dn.solve(posed, method="newton", tol=1e-2, tuning=SAMPLED)
    passes.clear()
    assert dn.solve(posed, method="newton", warm_start=start, tuning=SAMPLED).converged
    assert set(passes) == {N}


def test_a_feature_that_no_row_of_the_sample_has_is_found():
    """12 of 4000 rows have the feature, which decides their class; the sample has none or few of them."""
    X = features()
    X[:, -1] = 40.0 * (np.arange(N) % 333 == 0)
    posed = problem(X=X, lam=1e-3)
    posed = dn.Problem(X, np.where(X[:, -1] > 0.0, 1.0, posed.y), posed.loss, regularizer=posed.regularizer, lam=1e-3)
    result = dn.solve(posed, method="newton", tol=1e-9, tuning=SAMPLED)
    assert result.w[-1] > 0.0
    assert_same_minimum(result, dn.solve(posed, method="newton", tol=1e-9, tuning=UNSAMPLED))


def test_the_curvature_of_the_sample_serves_the_first_step_where_its_rows_are_many(monkeypatch):
    posed = problem()

    def first_step(curved):
        monkeypatch.setattr(samples, "CURVED", curved)
        method = Proximal([posed], posed.data, [(np.zeros(D), 0.0)], tol=1e-6, compiled=False, sizes=sizes, sample=500)
        samples.begin(method, NEVER)
        return method.models[0]

    sizes = sizes_of(posed)
    assert first_step(curved=500 // D).known is not None
    assert first_step(curved=500).known is None
    own, full = first_step(curved=1).known.curvature.H, posed.data.weighted_gram(posed.row_curvature(np.zeros(N)))
    assert np.trace(own) == pytest.approx(np.trace(full), rel=0.5)  # of all rows, not of the sample


def sizes_of(posed):
    return SetSizes.of(posed.data, SAMPLED, once=False, compiled=False)


def test_matrices_of_the_sample_are_kept_although_it_has_fewer_entries(monkeypatch):
    """70 features with 10 % of their entries: a matrix has more entries than the sample, and fewer than all rows."""
    rng = np.random.default_rng(4)
    X = sp.random_array((N, 70), density=0.1, rng=rng, format="csr")
    y = np.where(X[:, [0]].toarray().ravel() + 0.1 * rng.standard_normal(N) > 0.0, 1.0, -1.0)
    posed = dn.Problem(X, y, losses.Logistic(), regularizer=regularizers.L1(), lam=2e-3)
    monkeypatch.setattr(samples, "CURVED", 1)
    few = tuned(least_set=4)
    sizes = SetSizes.of(posed.data, few, once=False, compiled=False)
    method = Proximal([posed], posed.data, [(np.zeros(70), 0.0)], tol=1e-6, compiled=False, sizes=sizes, sample=500)
    samples.begin(method, NEVER)
    assert X.nnz / 8 < 70**2 < X.nnz
    assert method.models[0].known is not None


def test_samples_are_for_curvature_that_changes_and_for_many_rows():
    def planned(posed, **more):
        return newton(Facts.of(posed, more.pop("tuning", SAMPLED), **more), "auto").samples

    posed = problem()
    assert planned(posed)
    assert planned(posed)[0] <= N / 8
    assert not planned(posed, near=True)
    assert not planned(problem(losses.Squared()))
    assert not planned(problem(regularizer=regularizers.L2()))
    assert not planned(posed, tuning=tuned(fewest_sample_rows=N))
    assert not planned(posed, tuning=tuned(proximal_calls=1e6))  # calls would take longer than the steps saved


def test_the_matrix_of_a_part_of_the_rows_is_summed_as_that_of_all():
    data = MemoryData(features(sparse=True)).using(Work(compiled=True, by_pairs=lambda *_: True))
    part = data.subset(np.arange(0, N, 10))
    assert part.work.compiled
    assert part.work.by_pairs is data.work.by_pairs


@pytest.mark.parametrize("large", [1e3, 1e5])
def test_where_the_solution_is_far_worse_on_all_rows_the_run_begins_at_zero(large):
    """A row that is not in the sample has a margin of some hundreds, or of thousands, at the solution on the sample."""
    X, rng = features(), np.random.default_rng(3)
    y = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)
    sampled = MemoryData(X).strata(np.random.default_rng(0), 500)
    other = np.setdiff1d(np.arange(N), sampled)[0]
    X[other, 0] = large
    posed = dn.Problem(X, y, losses.Poisson(), regularizer=regularizers.L1(), lam=1e-3, fit_intercept=True)
    sizes = sizes_of(posed)
    runs = [
        Proximal([posed], posed.data, [(np.zeros(D), 0.0)], tol=1e-6, compiled=False, sizes=sizes, sample=size)
        for size in (500, 0)
    ]
    with np.errstate(over="ignore", invalid="ignore"):  # as in every run
        runs[0].step(np.random.default_rng(0), np.inf, np.inf)
    sampled, whole = (run.models[0] for run in runs)
    assert not sampled.stuck
    assert sampled.value == whole.value < np.inf
