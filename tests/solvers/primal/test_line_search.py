"""The search on a line finds the minimum of the convex function on it, or says that there is no way down."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import dualnewton as dn
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective
from tables import LOSSES, labels_for, name_of


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("scale", [3.0, 1e3, 1e8])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_minimum_is_found(loss, scale, fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4))
    problem = dn.Problem(X, labels_for(loss, 60, rng), loss, lam=0.1, fit_intercept=fit_intercept)
    objective = Objective(problem)
    x = 0.3 * rng.standard_normal(4 + fit_intercept)

    def value(point):
        w, b = objective.parts(point)
        return problem.primal(w[0], float(b[0]))

    def margins(point):
        w, b = objective.parts(point)
        return X @ w[0] + b[0]

    def searched(end):
        return line_minimum(loss, problem.row_vectors, objective.ridge, x, end, margins(x), margins(end))

    gradient = np.array([(value(x + 1e-6 * e) - value(x - 1e-6 * e)) / 2e-6 for e in np.eye(x.size)])
    end = x - scale * gradient
    t = searched(end)
    best = minimize_scalar(
        lambda t: value(x + t * (end - x)), bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-14}
    )
    assert 0.0 < t < 1.0
    gained, possible = value(x) - value(x + t * (end - x)), value(x) - best.fun
    assert gained >= 0.9 * possible or best.x > 0.5
    assert searched(x + scale * gradient) == 0.0


def test_margins_that_overflow_are_not_followed():
    problem = dn.Problem(np.ones((3, 1)), np.array([1.0, -1.0, 1.0]), dn.losses.Squared(), lam=1.0)
    ridge, x, end = Objective(problem).ridge, np.zeros(1), np.full(1, 1e200)
    with np.errstate(over="ignore", invalid="ignore"):
        t = line_minimum(problem.loss, problem.row_vectors, ridge, x, end, np.zeros(3), np.full(3, 1e200))
    assert 0.0 <= t < 1e-20
