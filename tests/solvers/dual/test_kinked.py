"""Dual rounds on piecewise linear losses themselves: exact steps, a dual that never falls, and the optimum of smoothing."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, samplings
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.solvers import SDCA, SDNA
from dualnewton.solvers.dual import face, kinked, piecewise
from dualnewton.solvers.dual.compiled import CompiledEngine
from dualnewton.solvers.dual.face import face_step
from kinked_cases import (
    COMPILED,
    FORMS,
    LOSSES,
    PLAIN,
    REGULARIZERS,
    STORAGES,
    N,
    after_rounds,
    balanced_dual,
    by_loss,
    problem_of,
)
from tables import labels_for
from tuned import GENERAL

# The numbers of a loss -----------------------------------------------------------------------------------------------


@by_loss
def test_the_pieces_are_those_of_the_conjugate(loss):
    y = labels_for(loss, 9, np.random.default_rng(0))
    pieces = loss.pieces(y)
    low, high = loss.domain(y)
    np.testing.assert_array_equal(pieces[:, 0], low)
    np.testing.assert_array_equal(pieces[:, -1], high)
    for p in range(1, pieces.shape[1], 2):
        left, kink, right = pieces[:, p - 1], pieces[:, p], pieces[:, p + 1]
        assert np.all(left < right)
        rise = loss.conjugate(right, y) - loss.conjugate(left, y)
        np.testing.assert_allclose(rise, kink * (right - left), atol=1e-14)  # φ* has the slope k


def test_smooth_losses_have_no_pieces():
    y = np.array([1.0, -1.0])
    assert losses.Logistic().pieces(y) is None
    assert losses.SmoothHinge(0.1).pieces(y) is None


@by_loss
def test_the_residual_is_that_of_fenchel_and_young(loss):
    rng = np.random.default_rng(1)
    y, u = labels_for(loss, 50, rng), 2.0 * rng.standard_normal(50)
    low, high = loss.domain(y)
    v = low + (high - low) * np.clip(rng.uniform(-0.2, 1.2, 50), 0.0, 1.0)
    expected = loss.value(u, y) + loss.conjugate(v, y) - u * v
    np.testing.assert_allclose(piecewise.residuals(loss.pieces(y), u, -v), expected, atol=1e-14)


@by_loss
def test_the_step_of_one_example_is_the_best_one(loss):
    rng = np.random.default_rng(2)
    y, u, q = labels_for(loss, 60, rng), 2.0 * rng.standard_normal(60), rng.uniform(0.0, 3.0, 60)
    low, high = loss.domain(y)
    alpha = -(low + (high - low) * rng.random(60))
    beta = piecewise.solve_one(loss.pieces(y), u, q, alpha)

    def value(b):
        return u * (b - alpha) + 0.5 * q * (b - alpha) ** 2 + loss.conjugate(-b, y)

    for fraction in np.linspace(0.0, 1.0, 201):
        assert np.all(value(beta) <= value(-(low + (high - low) * fraction)) + 1e-14)


@by_loss
@pytest.mark.parametrize("rank", [3, 30])
def test_a_block_is_solved_to_rounding(loss, rank):
    """Every example is optimal for the margin that all of them leave, with repeated rows and rows without weight, too."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((20, rank))
    rows[1], rows[2] = rows[0], 0.0
    y, u, c = labels_for(loss, 20, rng), rng.standard_normal(20), rng.uniform(0.2, 2.0, 20)
    c[7] = 0.0
    gram, pieces, alpha = rows @ rows.T, loss.pieces(y), -loss.derivative(rng.standard_normal(20), y)
    beta = piecewise.solve_block(pieces, u, gram, alpha, c)
    z = u + gram @ (c * (beta - alpha))
    np.testing.assert_allclose(piecewise.residuals(pieces, z, beta), 0.0, atol=1e-12)


# The rounds ----------------------------------------------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("tau", [1, 4, 15])
@pytest.mark.parametrize("form", FORMS)
def test_the_dual_never_falls_in_a_round(loss, tau, form):
    """Section 3: each round maximises D, or a lower bound of it, over the set."""
    for regularizer in REGULARIZERS:
        problem = problem_of(loss, regularizer=regularizer, form=form)
        sampling = samplings.Nice(N, tau)
        solver = SDNA(problem, sampling)
        centre, mass = solver.intercept, solver.intercept_curvature
        before = balanced_dual(problem, solver.alpha, centre)
        for S in sampling.draw(np.random.default_rng(0), 15):
            solver.round(S)
            after = balanced_dual(problem, solver.alpha, centre)
            assert after >= before - 1e-14 * max(1.0, abs(before))
            before = after
        assert solver.intercept == pytest.approx(centre + mass * float(problem.c @ solver.alpha))
        assert before > problem.dual(problem.no_dual()) + 1e-3


CELLS = list(itertools.product(range(len(LOSSES)), STORAGES, range(len(REGULARIZERS)), [1, 4, 15], FORMS))
CELLS = [cell for k, cell in enumerate(CELLS) if (7 * k) % 29 < 4]


@pytest.mark.parametrize("method", [SDNA, SDCA])
@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_compiled_rounds_are_the_reference_rounds(method, cell):
    loss, storage, regularizer, tau, form = cell
    # Where rows repeat, rounding decides how they share what their sum is.
    first = problem_of(LOSSES[loss], storage, REGULARIZERS[regularizer], form, repeated=False)
    second = dn.Problem(
        first.X, labels_for(LOSSES[loss], N, np.random.default_rng(8)), first.loss, regularizer=first.regularizer,
        lam=0.01, sample_weight=first.sample_weight, offset=first.offset, fit_intercept=first.fit_intercept,
    )  # fmt: skip
    problems, sampling = [first, second], samplings.Nice(N, tau)
    starts = [p.balanced(-0.5 * p.loss.derivative(np.linspace(-1.0, 1.0, N), p.y)) for p in problems]
    engine = CompiledEngine(problems, sampling, starts, separable_rounds=method is SDCA)
    engine.models.tolerance[:] = 1e-13
    solvers = [method(problem, sampling) for problem in problems]
    for solver, start in zip(solvers, starts, strict=True):
        solver.start_from(start)
    rng = np.random.default_rng(2)
    for _ in range(2):
        block = sampling.draw(rng, 8)
        engine.run(block)
        engine.end_epoch()
        for k, solver in enumerate(solvers):
            solver.run(block)
            solver.end_epoch()
            np.testing.assert_allclose(engine.alpha(k), solver.alpha, atol=1e-9)
            np.testing.assert_allclose(engine.models.w[k], solver.w, atol=1e-9)
            np.testing.assert_allclose(engine.models.b[k], solver.intercept, atol=1e-9)
            assert not np.allclose(solver.alpha, starts[k], atol=1e-3)  # it has moved


def random_numbers(count):
    return np.random.default_rng(count).integers(0, 1 << 32, size=count, dtype=np.uint32)


@by_loss
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ends", [[], [1, 4, 24]], ids=["one call", "several calls"])
def test_sweeps_with_shrinking_are_rounds_of_single_examples(loss, form, ends):
    """The random numbers determine the order of the visits: reference rounds in this order end at the same point."""
    regularizer = REGULARIZERS[2] if loss is LOSSES[0] else REGULARIZERS[3] if loss is LOSSES[1] else PLAIN
    problem, sampling = problem_of(loss, "CSR float64", regularizer, form, repeated=False), samplings.Serial(N)
    engine, solver = CompiledEngine([problem], sampling, [np.zeros(N)], separable_rounds=False), SDNA(problem, sampling)
    assert engine.shrinks
    visits, draws, order = engine.visits(0), random_numbers(N), list(range(N))
    for p, draw in enumerate(draws.tolist()):  # Fisher and Yates
        q = p + (draw * (N - p) >> 32)
        order[p], order[q] = order[q], order[p]
    done = [engine.shrink(0, visits, part, 1.0) for part in np.split(draws, ends)]
    assert sum(done) == N  # with a fraction of one the first sweep is the last
    assert visits.ended
    residual = 0.0
    for i in order:
        u = problem.data.rows([i]) @ solver.w + problem.o[i] + solver.intercept
        residual += problem.c[i] * float(piecewise.residuals(problem.pieces[[i]], u, solver.alpha[[i]])[0])
        solver.round(np.array([i]))
    solver.end_epoch()
    np.testing.assert_allclose(engine.alpha(0), solver.alpha, atol=1e-12)
    np.testing.assert_allclose(engine.models.b[0], solver.intercept, atol=1e-12)
    assert visits.first_residual == visits.residual == pytest.approx(residual)


def test_shrinking_leaves_out_examples_without_a_residual():
    problem = problem_of(losses.Hinge(), n=300, d=40, lam=1e-3)
    engine = CompiledEngine([problem], samplings.Serial(300), [np.zeros(300)], separable_rounds=False)
    visits = engine.visits(0)
    assert engine.shrink(0, visits, random_numbers(300), 0.1) == 300
    first, sizes = visits.first_residual, [300]
    while not visits.ended:
        active = visits.order[: (size := int(visits.place[2]))].copy()
        assert size <= sizes[-1]
        assert engine.shrink(0, visits, random_numbers(size), 0.1) == size
        sizes.append(size)
        assert set(visits.order[: visits.place[2]]) <= set(active)
    assert min(sizes) < 200  # most examples have no residual
    assert visits.first_residual == first
    assert visits.residual <= 0.1 * first


def test_one_kernel_serves_all_piecewise_linear_losses():
    """The losses enter by numbers: a second one compiles nothing."""
    from dualnewton.kernels import separable

    known = None
    for loss in LOSSES:
        CompiledEngine([problem_of(loss)], samplings.Serial(N), [np.zeros(N)], separable_rounds=False)
        known = known or set(separable.singles.known)
        assert separable.singles.known == known


@pytest.mark.parametrize("storage", ["dense float64", "CSR float32"])
def test_threads_do_not_change_a_bit(storage):
    problem = problem_of(losses.Hinge(), storage, n=400, d=30)
    found = [
        dn.solve(problem, method="sdna", tau=7, tol=1e-8, random_state=0, tuning=COMPILED, n_threads=threads)
        for threads in (1, 3)
    ]
    np.testing.assert_array_equal(found[0].alpha, found[1].alpha)
    assert found[0].certificate == found[1].certificate


# Steps of all free examples together ---------------------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("products", [3, 100])
def test_a_joint_step_raises_the_dual_on_its_face(loss, form, products):
    for regularizer in REGULARIZERS:
        problem = problem_of(loss, regularizer=regularizer, form=form)
        solver, centre, alpha, state = after_rounds(problem)
        free, _, beta, used, success = face_step(problem, solver.pieces, alpha, state, products)
        at = piecewise.free_kinks(solver.pieces, alpha)
        np.testing.assert_array_equal(free, np.flatnonzero(~np.isnan(at) & (problem.c > 0.0)))
        assert 0 < used <= products + 7
        new = alpha.copy()
        new[free] = beta
        before, after = (balanced_dual(problem, point, centre) for point in (alpha, new))
        assert after > before
        assert 0.0 < success <= 1.0 + 1e-9
        left, right = piecewise.piece_ends(solver.pieces[free], alpha[free])
        assert np.all((left <= -beta) & (-beta <= right))


@pytest.mark.parametrize("products", [1, 4])
def test_conjugate_gradients_of_a_joint_step_do_not_depend_on_the_scale_of_an_example(products):
    """Their preconditioner is the diagonal: the solution of D G D x = D t is D⁻¹ times that of G x = t, after each product."""
    rng = np.random.default_rng(1)
    A, t, scales = rng.standard_normal((9, 30)), rng.standard_normal(9), np.exp(rng.uniform(-5.0, 5.0, 9))
    G = A @ A.T
    scaled = scales[:, None] * G * scales
    rule = {"fraction": face.REDUCTION, "most": products, "flat": face.FLAT}
    x, used = conjugate_gradients(G.__matmul__, t, (1.0 / G.diagonal()).__mul__, **rule)
    other, same = conjugate_gradients(scaled.__matmul__, scales * t, (1.0 / scaled.diagonal()).__mul__, **rule)
    assert used == same == products
    np.testing.assert_allclose(scales * other, x, rtol=1e-9)


def test_joint_steps_take_more_products_while_they_are_hardly_clipped(monkeypatch):
    problem = problem_of(losses.Hinge(), n=60, d=30, lam=1e-3)
    counts, successes = [], iter([0.8, 0.5, 0.1, 0.1, 0.1, 0.9])

    def step(problem, pieces, alpha, state, products, most):
        counts.append(products)
        free = np.array([len(counts) % 2])
        return face.FaceStep(free, problem.data.rows(free), alpha[free], products, next(successes))

    monkeypatch.setattr(kinked, "face_step", step)
    engine = CompiledEngine([problem], samplings.Shuffled(60, 1), [problem.no_dual()], separable_rounds=False)
    method = kinked.KinkedSweeps([problem], engine, samplings.Shuffled(60, 1), focus=True, solves_system=None)
    for _ in range(6):
        method._joint_step(0, np.inf)
    assert counts == [20, 40, 40, 20, 10, 5]
    assert method.faces[0].products == 10


def test_rows_of_different_lengths_and_a_weak_penalty_take_few_epochs():
    """A fixed number of products without a preconditioner took 420 to 620 epochs."""
    rng = np.random.default_rng(0)
    X = sp.random_array((2000, 600), density=0.02, rng=rng, format="csr", data_sampler=rng.standard_normal)
    score = X @ rng.standard_normal(600)
    y = np.sign(score / score.std() + 0.5 * rng.standard_normal(2000))
    X = sp.csr_array(sp.diags_array(np.exp(rng.uniform(-2.0, 2.0, 2000))) @ X)
    problem = dn.Problem(X, y, losses.Hinge(), lam=0.03 / 2000)
    result = dn.solve(problem, method="sdna", tau=1, tol=1e-4, random_state=0)
    assert result.converged
    assert result.trace.epoch[-1] <= 300.0


# Runs ----------------------------------------------------------------------------------------------------------------

RUNS = list(itertools.product(range(len(LOSSES)), STORAGES, [0, 1, 2], [1, 5], FORMS, ["sdna", "sdca"]))
RUNS = [run for k, run in enumerate(RUNS) if (11 * k) % 37 < 3]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_rounds_find_the_optimum_of_smoothing(run):
    loss, storage, regularizer, tau, form, method = run
    problem = problem_of(LOSSES[loss], storage, REGULARIZERS[regularizer], form)
    # The slowest of these problems takes 1,400 to 37,000 epochs, depending on the seed.
    direct = dn.solve(problem, method=method, tau=tau, tol=1e-9, max_epochs=60000, random_state=0, tuning=COMPILED)
    smoothed = dn.solve(problem, method="newton", tol=1e-9, max_epochs=20000, random_state=0)
    assert direct.plan.reason.startswith(f"dual rounds on {type(problem.loss).__name__} without smoothing")
    assert direct.plan.method == method
    assert direct.converged
    assert smoothed.converged
    slack = 2e-9 * smoothed.certificate.primal
    assert direct.certificate.primal == pytest.approx(smoothed.certificate.primal, abs=slack)
    np.testing.assert_allclose(direct.w, smoothed.w, atol=3.0 * np.sqrt(2.0 * slack / problem.lam))


@by_loss
@pytest.mark.parametrize("intercept", [False, True])
def test_the_linear_system_finishes(loss, intercept):
    problem = problem_of(loss, form="intercept" if intercept else "plain", n=200, d=8, lam=1e-3)
    result = dn.solve(problem, method="sdna", tau=1, tol=1e-13, max_epochs=3000, random_state=0, tuning=COMPILED)
    assert result.certificate.relative_gap <= 1e-12


def test_the_numpy_engine_does_the_same():
    problem = problem_of(losses.Hinge(), n=60, d=4, lam=1e-2, form="intercept")
    result = dn.solve(problem, method="sdna", tol=1e-10, random_state=0)
    assert not result.plan.compiled
    assert result.converged


@pytest.mark.parametrize("tuning", [COMPILED, None], ids=["compiled", "NumPy"])
def test_no_step_takes_many_more_epochs_than_are_left(tuning):
    """Sweeps over few active examples and products of a joint step are as many as the limit leaves."""
    problem = problem_of(losses.EpsilonInsensitive(0.0), n=30, d=30, lam=1e-6)
    for most in (1, 3, 30, 31, 60):
        result = dn.solve(problem, method="sdca", tau=1, tol=0.0, max_epochs=most, random_state=0, tuning=tuning)
        assert result.status is dn.Status.EPOCH_LIMIT
        assert most <= result.n_epochs <= most + 2


def test_models_together_are_models_alone():
    first = problem_of(losses.Hinge(), "CSR float64", form="intercept", n=200, d=8)
    others = [dn.Problem(first.X, -first.y, first.loss, lam=lam, fit_intercept=True) for lam in (0.2, 0.01)]
    problems = [first, *others]
    together = dn.solve_many(problems, method="sdna", tau=1, tol=1e-9, random_state=0, tuning=COMPILED)
    for problem, result in zip(problems, together, strict=True):
        alone = dn.solve(problem, method="newton", tol=1e-9)
        assert result.converged
        assert result.certificate.primal == pytest.approx(alone.certificate.primal, rel=2e-9)


def test_a_sampling_is_followed_as_it_is():
    problem = problem_of(losses.Hinge(), n=80)
    result = dn.solve(problem, method="sdna", sampling=samplings.Nice(80, 20), tol=1e-4, random_state=0)
    assert result.converged
    assert "without smoothing" in result.plan.reason


@pytest.mark.parametrize(
    ("quick", "tuning", "most", "gap"),
    [(-np.inf, COMPILED, 1000, 1e-2), (np.inf, COMPILED, 1000, 1e-6), (-np.inf, None, 5, np.inf)],
    ids=["rounds are quick", "rounds are slow", "NumPy rounds, whose residual is unknown"],
)
def test_joint_steps_are_for_rounds_that_are_slow(quick, tuning, most, gap, monkeypatch):
    problem, count = problem_of(losses.Hinge(), n=300, d=40, lam=1e-3), 0

    def counted(*arguments):
        nonlocal count
        count += 1
        return face_step(*arguments)

    monkeypatch.setattr(kinked, "face_step", counted)
    numbers = replace(GENERAL if tuning is None else tuning, quick_rounds=quick)
    result = dn.solve(problem, method="sdna", tau=1, tol=1e-6, tuning=numbers, max_epochs=most)
    assert (count > 0) == (quick > 0.0 or tuning is None)
    assert result.certificate.relative_gap <= gap
