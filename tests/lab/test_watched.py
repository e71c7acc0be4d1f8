"""Watched runs are those of ``solve``, and their clock counts turns only."""

import math

import numpy as np
import pytest

from dualnewton import Problem, losses, samplings, solve
from dualnewton.io import load
from dualnewton.lab.watched import DEFAULT, NICE, Limits, Watched, watch, watch_repeatedly


def problem_of(name="dense:400x300", loss=None):
    dataset = load(name)
    return Problem(dataset.X, dataset.y, losses.Squared() if loss is None else loss, lam=1.0 / len(dataset.y))


@pytest.mark.parametrize("name", ["dense:60x20", "dense:400x300"], ids=["NumPy", "compiled"])
@pytest.mark.parametrize("method", ["sdna", "sdca"])
def test_it_is_the_run_that_solve_makes(name, method):
    problem = problem_of(name)
    seen = watch(problem, method, 8, NICE, Limits(0.0, 10), seed=3)
    result = solve(
        problem, method=method, sampling=samplings.Nice(problem.n, 8), tol=0.0, max_epochs=10, random_state=3
    )
    assert seen.epoch[-1] == pytest.approx(result.n_epochs)
    # solve keeps the best point so far, the curve has the last one; certificates tell compiled rounds how exactly to solve.
    assert result.certificate.gap <= seen.gap.min() * 1.5
    assert seen.gap.min() <= result.certificate.gap * 1.5


def test_every_epoch_has_its_certificate_and_time_goes_on():
    seen = watch(problem_of(), "sdna", 4, NICE, Limits(1e-8, 50))
    assert seen.relative_gap[-1] <= 1e-8
    np.testing.assert_allclose(np.diff(seen.epoch), 1.0)
    assert (np.diff(seen.seconds) > 0.0).all()
    assert seen.epoch[0] == seen.seconds[0] == 0.0


def test_ctrl_c_ends_the_experiment_not_one_run_of_it():
    def tell(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch(problem_of("dense:60x20"), "sdca", 4, NICE, Limits(1e-4, 20), tell=tell)


def test_what_it_tells_is_what_it_returns():
    heard = []
    seen = watch(problem_of(), "sdca", 4, DEFAULT, Limits(1e-4, 20), tell=lambda *row: heard.append(row))
    assert heard == list(zip(seen.epoch[1:], seen.relative_gap[1:], strict=True))


def test_repeated_runs_have_the_same_iterates_and_the_shortest_times():
    problem, limits = problem_of(), Limits(1e-6, 30)
    once, again = watch(problem, "sdna", 8, NICE, limits), watch_repeatedly(3, problem, "sdna", 8, NICE, limits)
    np.testing.assert_array_equal(once.gap, again.gap)
    assert again.seconds.shape == once.seconds.shape
    assert (np.diff(again.seconds) > 0.0).all()


def test_the_first_time_at_a_level():
    seen = Watched(
        "sdna", NICE, 1, None, *map(np.array, ([0.0, 1.0, 2.0], [0.0, 0.1, 0.3], [1.0, 0.1, 0.01], [1.0, 0.1, 0.01]))
    )
    assert seen.first(0.1) == 1.0
    assert seen.first(0.05, "seconds") == 0.3
    assert seen.first(1e-3) == math.inf
    assert seen.seconds_per_epoch == pytest.approx(0.2)
