"""What the tests of Section 4 share: exact expectations over one round, and the optimum."""

import numpy as np

import dualnewton as dn
from tables import make_problem


def expected_dual_after_a_round(solver_class, problem, sampling, alpha, known=None, **kwargs):
    """E[D(α⁺)] by enumerating the sampling.

    ``known`` keeps D(α⁺) by set and α between samplings, for one problem and a method whose round depends on the set alone: SDNA.
    """
    known = {} if known is None else known
    solver = solver_class(problem, sampling, **kwargs)
    total = 0.0
    for S, probability in sampling.support():
        key = tuple(S), alpha.tobytes()
        if key not in known:
            solver.start_from(alpha)
            solver.round(S)
            known[key] = problem.dual(solver.alpha)
        total += probability * known[key]
    return total


def optimum(problem):
    """D(α*) = P(w*), from above by at most the certified gap."""
    result = dn.solve(problem, method="sdna", tau=problem.n, tol=1e-14, random_state=0)
    return result.certificate.primal


def dual_points(problem, count=4, seed=0):
    """Feasible dual points: the origin, and random ones."""
    rng = np.random.default_rng(seed)
    yield np.zeros(problem.n)
    for scale in np.linspace(0.3, 3.0, count):
        margins = scale * rng.standard_normal(problem.n)
        yield -problem.loss.derivative(margins, problem.y) * rng.uniform(0.2, 1.0, problem.n)


def gaps_along(solver_class, problem, sampling, rounds, seed, **kwargs):
    """P(w) − D(α) after 0, 1, …, ``rounds`` rounds from α = 0."""
    solver = solver_class(problem, sampling, **kwargs)
    gaps = [problem.primal(solver.w) - problem.dual(solver.alpha)]
    for S in sampling.draw(np.random.default_rng(seed), rounds):
        solver.round(S)
        gaps.append(problem.primal(solver.w) - problem.dual(solver.alpha))
    return np.array(gaps)


def equal_rows_problem(loss, n=5, lam=0.2, seed=0):
    """Unit rows: for the squared loss and one example at a time, Lemma 5 holds with equality."""
    problem = make_problem(loss, n=n, d=4, seed=seed)
    X = problem.X / np.linalg.norm(problem.X, axis=1, keepdims=True)
    return dn.Problem(X, problem.y, loss, lam=lam)
