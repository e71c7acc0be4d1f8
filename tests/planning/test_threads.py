"""The choices of "auto" in 1 to 16 threads, on times that ``benchmarks/cores.py`` measured on a machine with 16 cores."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.costs import Costs, on_threads
from dualnewton.planning.facts import Facts
from dualnewton.planning.planner import predicted_costs
from dualnewton.planning.tuning import DEFAULT

THREADS = (1, 2, 4, 8, 16)


def profile(n, d, per_row, *, sparse):
    return Profile(n, d, n * per_row, 0.5 * n * per_row**2, sparse, 8)


RECORD = {
    "dense 200000×500, unit rows": (
        profile(200_000, 500, 500, sparse=False),
        1.25,
        {
            "newton": (4.47, 2.83, 1.51, 0.971, 0.690),
            "ihs": (1.33, 0.852, 0.481, 0.326, 0.292),
            "sdna": (1.45, 1.19, 1.02, 1.12, 1.07),
        },
    ),
    "dense 1000000×100, standardised": (
        profile(1_000_000, 100, 100, sparse=False),
        26.0,
        {"newton": (4.05, 2.36, 1.29, 0.813, 0.608), "ihs": (2.39, 1.5, 0.838, 0.589, 0.406)},
    ),
    "CSR 500000×100000, 40 a row": (
        profile(500_000, 100_000, 40, sparse=True),
        1.25,
        {"ihs": (2.19, 1.32, 0.843, 0.665, 0.709), "sdna": (1.33, 1.37, 1.18, 1.14, 1.24)},
    ),
}
"""Size, conditioning 1 + E‖a‖²/(γλn), and seconds to a relative gap of 1e-6 in 1, 2, 4, 8 and 16 threads."""


def costs(data, threads):
    """The predicted costs of a logistic problem with data of this size."""
    size, conditioning, _ = RECORD[data]
    problem = dn.Problem(np.eye(2), np.array([1.0, -1.0]), losses.Logistic(), lam=1.0)
    return predicted_costs(Facts(problem, Costs.of(size, on_threads(DEFAULT, size, threads)), conditioning))


def test_threads_that_take_models_are_counted():
    """Ten models of CSR 125000×100000 in 16 threads: 0.66 s by passes of all models, 0.33 s by rounds of each."""
    size = profile(125_000, 100_000, 40, sparse=True)
    problem = dn.Problem(np.eye(2), np.array([1.0, -1.0]), losses.Logistic(), lam=1.0)
    chosen = {}
    for models in (1, 10):
        found = predicted_costs(Facts(problem, Costs.of(size, on_threads(DEFAULT, size, 16, models)), 1.25))
        chosen[models] = min(found, key=found.get)
    assert chosen == {1: "ihs", 10: "sdna"}


@pytest.mark.parametrize("data", RECORD)
@pytest.mark.parametrize("threads", THREADS)
def test_the_choice_is_nearly_as_fast_as_the_fastest_method(data, threads):
    found, times = costs(data, threads), RECORD[data][2]
    chosen = min(found, key=found.get)
    assert times[chosen][THREADS.index(threads)] <= 1.1 * min(each[THREADS.index(threads)] for each in times.values())


@pytest.mark.parametrize("data", RECORD)
def test_many_threads_are_given_to_passes(data):
    """Since the rounds of SDNA hardly get faster."""
    found = costs(data, 16)
    assert min(found, key=found.get) == "ihs"
    assert found["sdna"] > costs(data, 1)["sdna"] / 1.5


@pytest.mark.parametrize("method", ["newton", "ihs", "sdna"])
def test_a_method_that_is_given_has_the_same_plan_for_any_number_of_threads(method):
    X = np.random.default_rng(0).standard_normal((20_000, 60))
    problem = dn.Problem(X, np.sign(X[:, 0]), losses.Logistic(), lam=1e-4)
    assert on_threads(DEFAULT, problem.data.profile, 16) != DEFAULT
    alone = dn.plan(problem, method=method)
    assert dn.plan(problem, method=method, n_threads=16) == alone
    assert dn.plan(problem, n_threads=16).cost < dn.plan(problem).cost


def test_data_of_one_part_are_planned_for_one_thread():
    assert on_threads(DEFAULT, profile(1000, 100, 100, sparse=False), 16) == DEFAULT
