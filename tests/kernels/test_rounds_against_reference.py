"""Every compiled round is the NumPy reference round on the same index block, to rounding.

The full product of losses, regularisers, storages, τ, K and forms has thousands of cells; what runs is a covering set of them,
in which every two levels of any two factors meet, for SDNA and for minibatch SDCA alike. Rounds of single examples are compiled
for each pair of a loss and a storage, those of sets for each storage. Where there is a choice, single examples therefore have one
of two storages, or one loss.
"""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from covering import covering, pairs_of
from dualnewton import regularizers, samplings
from dualnewton.objective.problem import Problem
from dualnewton.solvers import SDCA, SDNA
from dualnewton.solvers.dual import pipeline
from dualnewton.solvers.dual.compiled import CompiledEngine
from tables import LOSSES, AgainstDirection, labels_for, name_of, regularizers_for

N, D = 40, 6
ROUNDS = 8
TIGHT = 1e-13
"""The tolerance of the margins at which a compiled round is as exact as the reference."""


def csr(X, index):
    matrix = sp.csr_array(X)
    return sp.csr_array((matrix.data, matrix.indices.astype(index), matrix.indptr.astype(index)), shape=X.shape)


STORAGES = {
    "dense float64": lambda X: X,
    "dense float32": lambda X: X.astype(np.float32),
    "CSR int32 float64": lambda X: csr(X, np.int32),
    "CSR int32 float32": lambda X: csr(X.astype(np.float32), np.int32),
    "CSR int64 float64": lambda X: csr(X, np.int64),
    "CSR int64 float32": lambda X: csr(X.astype(np.float32), np.int64),
}
TAUS = [1, 2, 7, 16, N - 7]  # the last is larger than d, and larger than four register blocks
MODELS = [1, 3]
FORMS = ["plain", "weights and offset", "intercept"]
FACTORS = [LOSSES, regularizers_for(D), list(STORAGES), TAUS, MODELS, FORMS]


def has_a_kernel_of_its_own(cell):
    loss, storage, tau = (cell.get(factor) for factor in (0, 2, 3))
    return tau == 0 and loss not in (None, 1) and storage not in (None, 0, 2)


CASES = list(covering([len(levels) for levels in FACTORS], has_a_kernel_of_its_own))


def problems_of(case, seed=0):
    """K problems over one matrix with an empty row; each has labels, λ and (where asked for) weights and offsets of its own."""
    loss, regularizer, storage, _, K, form = (levels[x] for levels, x in zip(FACTORS, case, strict=True))
    rng = np.random.default_rng([seed, *case])
    X = rng.standard_normal((N, D)) * rng.uniform(0.3, 1.5, (N, 1)) * (rng.random((N, D)) < 0.7)
    X[rng.integers(N)] = 0.0
    first = Problem(STORAGES[storage](X), labels_for(loss, N, rng), loss, regularizer=regularizer)
    made = []
    for k in range(K):
        own = {"lam": 0.1 / (1 + k), "fit_intercept": form == "intercept"}
        if form == "weights and offset" and k != 1:  # the model in the middle has none
            weights = rng.uniform(0.2, 2.0, N) * (rng.random(N) < 0.9)  # some weights are zero
            own |= {"sample_weight": weights, "offset": 0.3 * rng.standard_normal(N)}
        made.append(Problem(first.X, labels_for(loss, N, rng), loss, regularizer=regularizer, **own))
    return made


def starting_points(problems, seed=1):
    rng = np.random.default_rng(seed)
    return [p.balanced(-0.5 * p.loss.derivative(rng.standard_normal(N), p.y)) for p in problems]


def assert_same_rounds(method, engine_problems, reference_problems, sampling, epochs=2, slack=1e-8):
    alphas = starting_points(engine_problems)
    engine = CompiledEngine(engine_problems, sampling, alphas, separable_rounds=method is SDCA)
    engine.models.tolerance[:] = TIGHT
    solvers = [method(problem, sampling) for problem in reference_problems]
    for solver, alpha in zip(solvers, alphas, strict=True):
        solver.start_from(alpha)
    rng = np.random.default_rng(2)
    for _ in range(epochs):
        block = sampling.draw(rng, ROUNDS)
        engine.run(block)
        engine.end_epoch()
        for k, solver in enumerate(solvers):
            solver.run(block)
            solver.end_epoch()
            np.testing.assert_allclose(engine.alpha(k), solver.alpha, atol=slack, rtol=slack)
            np.testing.assert_allclose(engine.models.w[k], solver.w, atol=slack, rtol=slack)
            np.testing.assert_allclose(engine.models.w_bar[k], solver.alpha_bar, atol=slack, rtol=slack)
            np.testing.assert_allclose(engine.models.b[k], solver.intercept, atol=slack, rtol=slack)
            assert not np.allclose(engine.alpha(k), alphas[k], atol=1e-3)  # it has moved


def test_the_cases_meet_every_pair_of_levels():
    sizes = [len(levels) for levels in FACTORS]
    met = set().union(*map(pairs_of, CASES))
    for i, j in itertools.combinations(range(len(sizes)), 2):
        for a, b in itertools.product(range(sizes[i]), range(sizes[j])):
            assert (i, a, j, b) in met
    assert len(CASES) < 2 * len(LOSSES) * len(STORAGES)


def label(case):
    loss, regularizer, *rest = (levels[x] for levels, x in zip(FACTORS, case, strict=True))
    return ", ".join([name_of(loss), f"{type(regularizer).__name__} {case[1]}", *map(str, rest)])


@pytest.mark.parametrize("case", CASES, ids=label)
@pytest.mark.parametrize("method", [SDNA, SDCA])
def test_compiled_rounds_are_the_reference_rounds(method, case):
    problems = problems_of(case)
    assert_same_rounds(method, problems, problems, samplings.Nice(N, TAUS[case[3]]))


@pytest.mark.parametrize("method", [SDNA, SDCA])
@pytest.mark.parametrize("storage", [0, 2])
@pytest.mark.parametrize(
    "sampling",
    [
        samplings.Shuffled(N, 7),
        samplings.Independent(np.linspace(0.02, 0.4, N)),
        samplings.Partition(N, 9),
        samplings.Serial(N, np.arange(1, N + 1) / (N * (N + 1) / 2)),
        samplings.Explicit(N, [[3], list(range(5)), list(range(2, N))], [0.2, 0.3, 0.5]),
    ],
    ids=lambda sampling: type(sampling).__name__,
)
def test_ragged_sets_and_uneven_laws_too(method, storage, sampling):
    problems = problems_of((1, 1, storage, 0, 1, 2))
    assert_same_rounds(method, problems, problems, sampling)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("tau", [2, 7, 16])
def test_rounds_by_gram_blocks_in_float32_go_nearly_as_far(loss, tau):
    """The errors of G are those of the length of a step; w stays the image of α to the rounding of float64."""
    rng = np.random.default_rng(tau)
    X = (rng.standard_normal((N, 37)) / 6.0).astype(np.float32)  # long enough for whole vectors of eight
    problem = Problem(X, labels_for(loss, N, rng), loss, lam=0.1)
    sampling = samplings.Nice(N, tau)
    assert_same_rounds(SDNA, [problem], [problem], sampling, slack=1e-5)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_rounds(SDNA, [problem], [problem], sampling, slack=1e-11)
    engine = CompiledEngine([problem], sampling, starting_points([problem]), separable_rounds=False)
    engine.run(sampling.draw(rng, 5 * ROUNDS))
    np.testing.assert_allclose(engine.models.w_bar[0], problem.alpha_bar(engine.alpha(0)), atol=1e-13)


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("storage", range(len(STORAGES)), ids=list(STORAGES))
@pytest.mark.parametrize("regularizer", [2, 6], ids=lambda r: type(FACTORS[1][r]).__name__)
def test_producing_ahead_is_the_same_round_bit_for_bit(regularizer, storage, n_threads, monkeypatch):
    monkeypatch.setattr(pipeline, "PIECE", 1)  # one set a piece, so that there are many to hand over
    problems = problems_of((1, regularizer, storage, 2, 1, 1))
    sampling = samplings.Shuffled(N, 7)
    block = sampling.draw(np.random.default_rng(3), 5 * sampling.rounds_per_epoch)
    states = []
    for threads in (1, n_threads):
        start = starting_points(problems)
        engine = CompiledEngine(problems, sampling, start, separable_rounds=False, n_threads=threads)
        engine.run(block)
        states.append(engine.models)
    one, several = states
    for name in ("w", "w_bar", "alpha", "b", "residual"):
        assert np.array_equal(getattr(one, name), getattr(several, name)), name


@pytest.mark.parametrize("method", [SDNA, SDCA])
@pytest.mark.parametrize("tau", [1, 7])
def test_the_comparison_sees_a_penalty_that_is_off_by_a_percent(method, tau):
    problems = problems_of((1, 0, 0, 0, 0, 0))
    (right,) = problems
    wrong = Problem(right.X, right.y, right.loss, regularizer=right.regularizer, lam=1.01 * right.lam)
    sampling = samplings.Nice(N, tau)
    assert_same_rounds(method, problems, problems, sampling)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_rounds(method, problems, [wrong], sampling)


OFF_BY_A_PERCENT = [
    (regularizers.GroupElasticNet([0, 0, 1, 1, 1, 2], 0.2), regularizers.GroupElasticNet([0, 0, 1, 1, 1, 2], 0.202)),
    (regularizers.L2(np.full(D, 2.0)), regularizers.L2(np.full(D, 2.02))),
    (AgainstDirection(np.ones(D)), AgainstDirection(1.01 * np.ones(D))),
]


@pytest.mark.parametrize(("right", "wrong"), OFF_BY_A_PERCENT, ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("tau", [1, 7])
def test_the_comparison_sees_a_regularizer_that_is_off_by_a_percent(right, wrong, tau):
    (base,) = problems_of((1, 0, 0, 0, 0, 0))
    problem, other = (
        Problem(base.X, base.y, base.loss, regularizer=regularizer, lam=base.lam) for regularizer in (right, wrong)
    )
    sampling = samplings.Nice(N, tau)
    assert_same_rounds(SDNA, [problem], [problem], sampling)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_same_rounds(SDNA, [problem], [other], sampling)
