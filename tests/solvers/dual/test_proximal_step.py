"""Proximal steps of dual rounds on piecewise linear losses: they raise the dual, and follow joint steps that are slow."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, samplings
from dualnewton.solvers import SDNA
from dualnewton.solvers.dual import kinked, piecewise
from dualnewton.solvers.dual.compiled import CompiledEngine
from dualnewton.solvers.dual.proximal_step import ProximalStep, proximal_step
from kinked_cases import COMPILED, FORMS, REGULARIZERS, N, after_rounds, balanced_dual, by_loss, problem_of


@by_loss
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("width", [0.01, 1.0])
def test_a_proximal_step_raises_the_dual(loss, form, width):
    for regularizer in REGULARIZERS:
        problem = problem_of(loss, regularizer=regularizer, form=form)
        solver, centre, alpha, state = after_rounds(problem)
        found = proximal_step(problem, solver.pieces, alpha, state, width)
        assert 0 < found.steps < 30
        assert found.products >= found.steps
        new = alpha.copy()
        new[found.moved] = found.alpha
        low, high = problem.loss.domain(problem.y)
        assert np.all((low <= -new) & (-new <= high))
        np.testing.assert_array_equal(
            found.free, np.flatnonzero(~np.isnan(piecewise.free_kinks(solver.pieces, new)) & (problem.c > 0.0))
        )
        before, after = (balanced_dual(problem, point, centre) for point in (alpha, new))
        assert found.increase > 0.0
        is_exact = regularizer.form.is_quadratic
        assert problem.n * (after - before) >= (1.0 - 1e-9) * found.increase
        assert not is_exact or problem.n * (after - before) == pytest.approx(found.increase, rel=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_a_proximal_step_maximises_the_proximal_dual(form, monkeypatch):
    """Its w is that of its dual variables, which are the exact proximal point where the accuracy is high."""
    monkeypatch.setattr("dualnewton.solvers.dual.proximal_step.FRACTION", 1e-6)
    problem, width = problem_of(losses.Hinge(), form=form, repeated=False), 0.3
    solver = SDNA(problem, samplings.Serial(N))
    alpha = solver.alpha.copy()
    found = proximal_step(
        problem, solver.pieces, alpha, (solver.w, solver.intercept, solver.intercept_curvature), width
    )
    new = alpha.copy()
    new[found.moved] = found.alpha
    margins = problem.margins(problem.w_of(new), found.intercept)
    best = piecewise.solve_one(solver.pieces, margins, width, alpha)
    live = problem.c > 0.0
    np.testing.assert_allclose(new[live], best[live], atol=1e-5)
    assert form != "intercept" or abs(float(problem.c @ new)) < 1e-4


def ill_conditioned(n=6000, d=400):
    """Sparse rows whose features are used at very different rates, as words are, and a weak penalty."""
    rng = np.random.default_rng(0)
    chances = 1.0 / np.sqrt(np.arange(1.0, d + 1.0))
    columns = rng.choice(d, size=(n, 12), p=chances / chances.sum())
    X = sp.csr_array((np.ones(columns.size), (np.repeat(np.arange(n), 12), columns.ravel())), shape=(n, d))
    z = X @ rng.standard_normal(d)
    y = z / z.std() + 0.5 * rng.standard_normal(n)
    return dn.Problem(X, y, losses.EpsilonInsensitive(0.0), lam=0.1 / n, fit_intercept=True)


def test_proximal_steps_follow_slow_joint_steps(monkeypatch):
    problem, count = ill_conditioned(), 0

    def counted(*arguments, **limits):
        nonlocal count
        count += 1
        return proximal_step(*arguments, **limits)

    monkeypatch.setattr(kinked, "proximal_step", counted)
    epochs = []
    for slow in (-np.inf, 0.02):
        numbers = replace(COMPILED, slow_face=slow)
        result = dn.solve(problem, method="sdna", tau=1, tol=1e-4, tuning=numbers, max_epochs=20_000, random_state=0)
        assert result.converged
        assert (count > 0) == (slow > 0.0)
        epochs.append(result.n_epochs)
    assert epochs[1] < 0.7 * epochs[0]


def test_a_proximal_step_that_would_lower_the_dual_is_not_taken(monkeypatch):
    problem = problem_of(losses.Hinge(), n=60, d=6, lam=1e-3)
    widths = []

    def step(problem, pieces, alpha, state, width, **limits):
        widths.append(width)
        every = np.arange(problem.n)
        return ProximalStep(every, alpha + 0.1, 3.0, every, 2.0, 1, 1, -1.0)

    monkeypatch.setattr(kinked, "proximal_step", step)
    engine = CompiledEngine([problem], samplings.Shuffled(60, 1), [problem.no_dual()], separable_rounds=False)
    method = kinked.KinkedSweeps(
        [problem], engine, samplings.Shuffled(60, 1), focus=True, solves_system=lambda *_: False
    )
    method.residuals, before, intercept = [0.1], engine.alpha(0).copy(), engine.model(0)[1]
    for _ in range(2):
        method._proximal_step(0, np.inf, np.inf)
        method._choose_steps(0, 0.1, 5.0)
    np.testing.assert_array_equal(engine.alpha(0), before)
    assert engine.model(0)[1] == intercept
    assert widths[1] == pytest.approx(10.0 * widths[0])
    assert not method.faces[0].proximal
