"""The search on a line finds the minimum of the convex function on it, or says that there is no way down."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import dualnewton as dn
from dualnewton.objective.row_sums import slope_along
from dualnewton.solvers.primal import line_search
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

    def slope(point, way):
        slopes = loss.derivative(margins(point), problem.y)
        return float(way @ (np.append(X.T @ slopes, slopes.sum())[: way.size] + objective.ridge * point))

    def searched(end):
        slopes = slope(x, end - x), slope(end, end - x)
        return line_minimum(loss, problem.row_vectors, objective.ridge, x, end, margins(x), margins(end), slopes=slopes)

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
        margins = np.zeros(3), np.full(3, 1e200)
        t = line_minimum(problem.loss, problem.row_vectors, ridge, x, end, *margins, slopes=(-1e200, np.nan))
    assert 0.0 <= t < 1e-20


def test_slopes_at_the_ends_are_not_computed_again(monkeypatch):
    """They are known from the gradients of both points; each would take a pass over the margins."""
    X, y, counted = np.random.default_rng(0).standard_normal((60, 4)), np.ones(60), []
    monkeypatch.setattr(line_search, "slope_along", lambda *given: counted.append(given) or slope_along(*given))
    problem = dn.Problem(X, y, dn.losses.Squared(), lam=0.1)
    x, way, ridge = np.zeros(4), X.T @ y, Objective(problem).ridge
    way *= (way @ way) / (0.3 * np.sum((X @ way) ** 2 + 6.0 * (way @ way) / len(y)))  # the minimum is at 0.3
    slopes = [float(way @ (X.T @ (X @ point - y) + ridge * point)) for point in (x, x + way)]
    t = line_minimum(
        problem.loss, problem.row_vectors, ridge, x, x + way, X @ x, X @ (x + way), slopes=(slopes[0], slopes[1])
    )
    assert t == pytest.approx(0.3, abs=0.02)
    assert len(counted) == 2
