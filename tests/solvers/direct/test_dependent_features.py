"""Features that depend on each other: found by the directions of conjugate gradients, and a block of the preconditioner."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.solvers.direct import conjugate, dependent_features
from dualnewton.solvers.direct.block import Block
from dualnewton.solvers.direct.dependent_features import DependentFeatures, Directions
from dualnewton.solvers.direct.risk import Risk

N, D, DEPENDENT, RANK = 3000, 300, 20, 5
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, D))
CHOSEN = RNG.choice(D, DEPENDENT, replace=False)
X[:, CHOSEN[RANK:]] = X[:, CHOSEN[:RANK]] @ RNG.standard_normal((RANK, DEPENDENT - RANK))
X[:, CHOSEN] += 0.02 * RNG.standard_normal((N, DEPENDENT))
X /= X.std(axis=0)
SCORE = X @ RNG.standard_normal(D) / np.sqrt(D) + RNG.standard_normal(N)
SIGNS = np.where(SCORE > 0.2, 1.0, -1.0)
LOSSES = [(losses.Squared(), SCORE), (losses.Logistic(), SIGNS), (losses.SquaredHinge(), SIGNS)]


def without_blocks(monkeypatch):
    """No direction shows features that depend on each other."""
    monkeypatch.setattr(Directions, "found_in", lambda *_: None)


def directions_of(H, g, inverse=1.0, known=()):
    """What each direction of conjugate gradients for Hs = g, scaled by ``inverse``, shows, in order."""
    seen, found = Directions(inverse, np.array(known, dtype=np.intp)), []
    r, p, last = g.copy(), np.zeros(g.size), None
    for _ in range(40):
        q = inverse * r
        square = r @ q
        share = square / (last or square)
        p = q + share * p
        last, curvature = square, p @ H @ p
        assert seen.flat <= dependent_features.FLAT
        found.append(seen.found_in(p, square, share, curvature))
        assert seen.length == pytest.approx(p @ (p / inverse), rel=1e-6)
        r -= square / curvature * (H @ p)
    return found


@pytest.mark.parametrize("centred", [False, True])
def test_the_block_is_the_weighted_gram_matrix_of_the_features(centred):
    features, weights = np.array([5, 2, 9]), RNG.uniform(0.0, 2.0, N)
    block = DependentFeatures.of(features, (X + 1.0).astype(np.float32), weights, centred=centred)
    own = X[:, features] + 1.0
    if centred:
        own = own - weights @ own / weights.sum()
    H = (own.T * weights) @ own
    np.testing.assert_allclose(block.products * weights.sum(), H, rtol=1e-4, atol=1e-4 * H.max())
    inverse, ridge, r = RNG.uniform(0.5, 1.0, D), RNG.uniform(1.0, 2.0, D), RNG.standard_normal(D)
    expected = inverse * r
    expected[features] = np.linalg.solve(H + np.diag(ridge[features]), r[features])
    found = block.preconditioner(inverse, weights.sum(), ridge).times(r)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-6)
    # One number for all diagonal entries, and one ridge.
    expected = 0.5 * r
    expected[features] = np.linalg.solve(H + 3.0 * np.eye(3), r[features])
    np.testing.assert_allclose(block.preconditioner(0.5, weights.sum(), 3.0).times(r), expected, rtol=1e-3, atol=1e-6)


def test_flat_directions_of_a_block_are_counted():
    def several(features):
        block = DependentFeatures.of(features, X.astype(np.float32), np.ones(N), centred=False)
        return block.preconditioner(1.0, N, 1.0).has_several_flat()

    others = np.setdiff1d(np.arange(D), CHOSEN)[:20]
    assert several(np.concatenate([others, CHOSEN]))
    assert not several(np.concatenate([others, CHOSEN[:RANK]]))
    assert not several(np.concatenate([others, CHOSEN[: RANK + dependent_features.SEVERAL - 1]]))


def test_directions_show_the_features_that_depend_on_each_other():
    found = directions_of(X.T @ X + np.eye(D), X.T @ SCORE, inverse=1.0 / N)
    (first, *_) = (each for each in found if each is not None)
    assert set(CHOSEN) <= set(first)
    assert first.size == len(set(first)) == dependent_features.AT_ONCE
    assert all(each is None for each in found[:3])


def test_scales_of_the_features_do_not_matter():
    scale = np.exp(RNG.standard_normal(D))
    H, g = X.T @ X + np.eye(D), X.T @ SCORE
    plain = directions_of(H, g, inverse=np.full(D, 1.0 / N))
    scaled = directions_of(H * np.outer(scale, scale), g * scale, inverse=1.0 / (N * scale**2))
    assert [each is None for each in plain] == [each is None for each in scaled]


def test_known_features_are_kept_and_few_are_added():
    known = np.arange(dependent_features.MOST - 10)
    found = [each for each in directions_of(X.T @ X + np.eye(D), X.T @ SCORE, 1.0 / N, known) if each is not None]
    for each in found:
        assert (each[: known.size] == known).all()
        assert each.size == dependent_features.MOST
    full = np.arange(dependent_features.MOST)
    assert all(each is None for each in directions_of(X.T @ X + np.eye(D), X.T @ SCORE, 1.0 / N, full))


@pytest.mark.parametrize("kind", ["independent", "two copies", "many", "all"])
def test_nothing_is_found_where_no_block_of_few_features_would_help(kind):
    rng = np.random.default_rng(2)
    A = rng.standard_normal((N, D))
    if kind == "two copies":
        A[:, 3] = A[:, 8] + 0.01 * rng.standard_normal(N)
    elif kind == "many":  # more than a block takes
        A[:, :120] = A[:, :20] @ rng.standard_normal((20, 120)) + 0.05 * rng.standard_normal((N, 120))
    elif kind == "all":
        A = A @ np.diag(np.geomspace(1.0, 1e-2, D)) @ np.linalg.qr(rng.standard_normal((D, D)))[0]
    A /= A.std(axis=0)
    assert all(each is None for each in directions_of(A.T @ A + np.eye(D), A.T @ SCORE, inverse=1.0 / N))


@pytest.mark.parametrize(("loss", "y"), LOSSES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_block_saves_products_and_the_model_is_the_same(loss, y, fit_intercept, monkeypatch):
    problem = dn.Problem(X, y, loss, lam=1.0 / N, fit_intercept=fit_intercept)
    found = dn.solve(problem, tol=1e-6)
    assert found.plan.family == "conjugate"
    assert found.certificate.relative_gap <= 1e-6
    without_blocks(monkeypatch)
    other = dn.solve(problem, tol=1e-6)
    assert other.certificate.relative_gap <= 1e-6
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=2e-6)
    assert found.n_epochs < 0.95 * other.n_epochs


@pytest.mark.parametrize(("spent", "left_early"), [(0, True), (80, True), (110, False)])
def test_a_system_goes_on_where_half_of_the_products_are_spent(spent, left_early):
    """The block then serves the next system only."""
    problem = dn.Problem(X, SCORE, losses.Squared(), lam=1.0 / N)
    block = Block(problem.data)
    risk = Risk.of(problem, block, as_stored=True)
    system = conjugate.System.of(risk, risk.at(np.zeros(D), np.zeros(N)), block, None)
    pace = conjugate.Pace(most=200, products=spent, first=1e9, observed=1000)
    found = system.solved(0.0, 1e-9, 60, pace)
    assert found.dependent is not None
    assert set(CHOSEN) <= set(found.dependent.features)
    assert (found.products < 20) == left_early
    following = conjugate.System.of(risk, risk.at(found.x, found.margins), block, system, found.dependent)
    assert following.preconditioner is not None
    assert following.solved(0.0, 1e-9, 60).products < 30
